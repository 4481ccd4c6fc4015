//! The operators of ATen, and of Python on sizes: a rule each, which writes the nodes of ONNX that mean the same.

mod attention;
mod bessel;
pub(super) mod complex;
pub(super) mod control;
mod convert;
mod counting;
mod create;
mod decomposition;
mod gradient;
pub(super) mod index;
mod linear;
mod loss;
mod matrix;
mod norm;
mod normal;
mod pointwise;
mod polygamma;
mod pool;
mod quantized;
mod recurrent;
mod reduce;
mod scatter;
pub(super) mod shape;
mod sizes;
mod special;
mod spectra;
mod strides;
mod vision;

use super::call::{Call, Outputs, Result};
use super::schema::{Argument, Node};
use super::value::Output;
use super::views::put_back::PutBack;
pub(super) use control::is_inlined;
pub(super) use linear::sums;
use std::collections::HashMap;
use std::sync::LazyLock;

/// Writes the nodes of a call whose operands and results are real.
pub(super) type Rule = for<'c, 'p> fn(&mut Call<'c, 'p>) -> Result<Outputs>;

/// Rules by name: `add.Tensor` of ATen, others with their namespace. Results of these are tensors of their own.
type Table = &'static [(&'static str, Rule)];

/// Rules of operators whose one result is indices, of i64 whatever the dtype in which they compute.
const INDEX_TABLES: &[Table] = &[counting::INDEX_RULES, reduce::INDEX_RULES];

/// Rules of operators whose results may share elements with what they are given: when they do, and how what is written into a result
/// gets there.
type ViewTable = &'static [(&'static str, Rule, Sharing, PutBack)];

/// What is known of an operator on real numbers.
#[derive(Clone, Copy)]
struct Entry {
    rule: Rule,
    view: Option<View>,
    yields_indices: bool,
}

/// How results of an operator share elements with what it is given.
#[derive(Clone, Copy)]
pub(super) struct View {
    pub sharing: Sharing,
    pub put_back: PutBack,
}

const TABLES: &[Table] = &[
    attention::RULES,
    bessel::RULES,
    control::RULES,
    convert::RULES,
    counting::RULES,
    create::RULES,
    decomposition::RULES,
    gradient::RULES,
    index::RULES,
    linear::RULES,
    loss::RULES,
    matrix::RULES,
    norm::RULES,
    normal::RULES,
    pointwise::RULES,
    polygamma::RULES,
    pool::RULES,
    quantized::RULES,
    recurrent::RULES,
    reduce::RULES,
    scatter::RULES,
    shape::RULES,
    sizes::RULES,
    special::RULES,
    spectra::RULES,
    strides::RULES,
    vision::RULES,
];

const VIEW_TABLES: &[ViewTable] = &[
    convert::VIEWS,
    counting::VIEWS,
    linear::VIEWS,
    matrix::VIEWS,
    norm::VIEWS,
    shape::VIEWS,
    strides::VIEWS,
];

static RULES: LazyLock<HashMap<&str, Entry>> = LazyLock::new(|| {
    let of = |tables: &'static [Table], yields_indices| {
        let rules = tables.iter().copied().flatten();
        rules.map(move |&(name, rule)| (name, Entry { rule, view: None, yields_indices }))
    };
    let views = VIEW_TABLES.iter().copied().flatten().map(|&(name, rule, sharing, put_back)| {
        (name, Entry { rule, view: Some(View { sharing, put_back }), yields_indices: false })
    });
    of(TABLES, false).chain(of(INDEX_TABLES, true)).chain(views).collect()
});

/// The operator that a target names, without what they all begin with.
pub(super) fn name(target: &str) -> &str {
    let target = target.strip_prefix("torch.ops.").unwrap_or(target);
    target.strip_prefix("aten.").unwrap_or(target)
}

/// The name of the operator that yields what an operator writes into its first argument: `add.Tensor` for `add_.Tensor`.
fn functional(name: &str) -> Option<String> {
    let (operator, overload) = name.split_once('.')?;
    let operator =
        operator.strip_suffix('_').filter(|operator| !operator.is_empty() && !operator.ends_with('_'))?;
    Some(format!("{operator}.{overload}"))
}

/// What an operator's name in a table has behind it, where it has no rule for complex numbers.
pub(super) const OF_COMPLEX: &str = " of complex numbers";

/// What writes a call's nodes. A rule for real numbers never sees complex ones as if they were real: those have rules of their own,
/// which say of what parts another rule may compute something.
#[derive(Clone, Copy)]
pub(super) enum AnyRule {
    Real(Rule),
    Complex(complex::Rule),
}

impl AnyRule {
    pub fn outputs(self, call: &mut Call<'_, '_>) -> Result<Vec<Output>> {
        match self {
            AnyRule::Real(rule) => Ok(rule(call)?.into_iter().map(Output::Real).collect()),
            AnyRule::Complex(rule) => rule(call),
        }
    }
}

/// The rule of a call.
pub(super) fn rule(call: &Call<'_, '_>) -> Option<AnyRule> {
    let target = &call.node.target;
    if call.is_complex() {
        complex::find(target).map(AnyRule::Complex)
    } else {
        find(target).map(AnyRule::Real)
    }
}

/// Whether there is a rule for an operator.
pub(super) fn is_known(target: &str) -> bool {
    is_inlined(target) || find(target).is_some() || complex::find(target).is_some()
}

/// The rule of a target for real numbers.
fn find(target: &str) -> Option<Rule> {
    of_name(&RULES, target).map(|entry| entry.rule)
}

/// Whether the one result of an operator is indices.
pub(super) fn yields_indices(target: &str) -> bool {
    of_name(&RULES, target).is_some_and(|entry| entry.yields_indices)
}

/// How results of an operator on real numbers, or on either part of complex ones, share elements with what it is given.
pub(super) fn view(target: &str) -> Option<View> {
    of_name(&RULES, target).and_then(|entry| entry.view).filter(|_| !family(target).ends_with("_copy"))
}

/// When results of a call share elements with what it is given.
pub(super) fn sharing(call: &Call<'_, '_>) -> Option<Sharing> {
    let target = &call.node.target;
    if call.is_complex() && complex::view(target).is_some() {
        return Some(Sharing::Always);
    }
    view(target).map(|view| view.sharing)
}

fn of_name<R: Copy>(rules: &HashMap<&str, R>, target: &str) -> Option<R> {
    let name = name(target);
    let named = |name: &str| rules.get(name).copied();
    let same = |name: &str| named(name).or_else(|| named(&plain(name)?));
    same(name)
        .or_else(|| same(&functional(name)?))
        .or_else(|| without_out(name)?.iter().find_map(|name| same(name)))
}

/// Names that the operator may have which yields what an operator writes into its argument `out`: `add.Tensor` for `add.out`. Where
/// none of them takes the same arguments, the rule leaves some unread, which is an error unless they are such as change nothing.
fn without_out(name: &str) -> Option<Vec<String>> {
    let (operator, overload) = name.split_once('.')?;
    let overloads = match overload {
        "out" => vec!["default", "Tensor", "self"],
        "IntList_out" => vec!["dim_IntList"],
        "out_mode" => vec!["Tensor_mode"],
        overload => vec![overload.strip_suffix("_out")?],
    };
    Some(overloads.into_iter().map(|overload| format!("{operator}.{overload}")).collect())
}

/// Another name of the same operator: `torch.special` has some of its own, others are NumPy's, and copies of views are views that
/// nobody writes into.
fn plain(name: &str) -> Option<String> {
    let (operator, overload) = name.split_once('.')?;
    let operator = operator.strip_prefix("special_").unwrap_or(operator);
    let is_view = |viewed: &&str| {
        let name = format!("{viewed}.{overload}");
        let real = RULES.get(name.as_str()).and_then(|entry| entry.view);
        real.is_some_and(|view| view.sharing == Sharing::Always) || complex::is_view(&name)
    };
    let viewed = operator.strip_suffix("_copy").filter(is_view);
    let plain = match viewed.unwrap_or(operator) {
        "absolute" => "abs",
        "arccos" => "acos",
        "arccosh" => "acosh",
        "arcsin" => "asin",
        "arcsinh" => "asinh",
        "arctan" => "atan",
        "arctan2" => "atan2",
        "arctanh" => "atanh",
        "expit" => "sigmoid",
        "greater" => "gt",
        "greater_equal" => "ge",
        "less" => "lt",
        "less_equal" => "le",
        "moveaxis" => "movedim",
        "negative" => "neg",
        "not_equal" => "ne",
        "row_stack" => "vstack",
        plain => plain,
    };
    Some(format!("{plain}.{overload}"))
}

/// Whether an operator writes into its first argument. Those that give it another shape leave its elements as they are.
pub(super) fn is_in_place(target: &str) -> bool {
    let name = name(target);
    let reshapes = || view(target).is_some_and(|view| view.sharing == Sharing::Always);
    !RULES.contains_key(name) && functional(name).is_some() && !reshapes()
}

/// The tensor that a call writes into, if it does.
pub(super) fn written(node: &Node) -> Option<&str> {
    if is_in_place(&node.target) {
        return first_tensor(node);
    }
    let name = name(&node.target);
    if RULES.contains_key(name) {
        return None;
    }
    without_out(name)?;
    match node.inputs.iter().find(|input| input.name == OUT).map(|input| &input.arg) {
        Some(Argument::Tensor(tensor)) => Some(&tensor.name),
        _ => None,
    }
}

/// The argument that is a tensor for the result.
pub(super) const OUT: &str = "out";

/// Whether an operator in place gives all elements anew.
pub(super) fn replaces(target: &str) -> bool {
    matches!(family(target), "copy" | "fill" | "zero")
}

/// The operator without its overload, and without the mark of one that works in place: `transpose` for `transpose_.int`.
pub(super) fn family(target: &str) -> &str {
    let name = name(target);
    let operator = name.split_once('.').map_or(name, |(operator, _)| operator);
    match operator.strip_suffix('_') {
        Some(bare) if !bare.is_empty() && !bare.ends_with('_') => bare,
        _ => operator,
    }
}

/// The first argument, if it is a tensor.
pub(super) fn first_tensor(node: &Node) -> Option<&str> {
    match node.inputs.first().map(|input| &input.arg) {
        Some(Argument::Tensor(tensor)) => Some(&tensor.name),
        _ => None,
    }
}

/// The tensor that a result of an operator may be a view of: the first argument, or of a list of tensors that of the same position.
pub(super) fn base(node: &Node, position: usize, sharing: Sharing) -> Option<&str> {
    if sharing == Sharing::OfOne {
        let list = node.inputs.iter().find_map(|input| match &input.arg {
            Argument::Tensors(list) => Some(list),
            _ => None,
        });
        return match list?.as_slice() {
            [only] => Some(&only.name),
            _ => None,
        };
    }
    match node.inputs.first().map(|input| &input.arg) {
        Some(Argument::Tensors(list)) => list.get(position).map(|tensor| tensor.name.as_str()),
        _ => first_tensor(node),
    }
}

/// When results of an operator are what it is given in another shape, such that what is written into one the other has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sharing {
    /// They are views.
    Always,
    /// They are the same tensor, unless a copy is asked for, another dtype, or another order in memory.
    AsItIs,
    /// They are views where the elements lie such that they can be.
    IfItLiesSo,
    /// They are views if the elements lie in order.
    IfContiguous,
    /// They are views if they have the same shape.
    IfSameShape,
    /// They are the same tensor where nothing is dropped.
    UnlessDropped,
    /// They are the same tensor, unless that is conjugated, or negated, when somebody reads it.
    UnlessConjugated,
    UnlessNegated,
    /// They are views of the only tensor of a list, unless something is summed.
    OfOne,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_that_write_are_those_that_yield() {
        assert_eq!(functional("add_.Tensor").as_deref(), Some("add.Tensor"));
        for name in ["add.Tensor", "__and__.Tensor", "_.x", "relu"] {
            assert_eq!(functional(name), None, "{name}");
        }
        for (name, other) in [
            ("special_expit.default", "sigmoid.default"),
            ("split_with_sizes_copy.default", "split_with_sizes.default"),
            ("_to_copy.default", "_to_copy.default"),
        ] {
            assert_eq!(plain(name).as_deref(), Some(other));
        }
        for name in ["maximum.out", "add.out", "sum.IntList_out", "div.out_mode", "gt.Tensor_out"] {
            assert!(is_known(&format!("torch.ops.aten.{name}")), "{name}");
        }
        assert!(!is_known("torch.ops.aten.nothing.out"));
        assert!(is_in_place("torch.ops.aten.relu_.default"));
        assert!(is_in_place("torch.ops.aten.dropout_.default"));
        assert!(!is_in_place("torch.ops.aten.squeeze_.dim"));
        assert!(!is_in_place("torch.ops.aten.relu.default"));
    }

    #[test]
    fn an_operator_has_one_rule() {
        let tables: usize = TABLES.iter().chain(INDEX_TABLES).map(|table| table.len()).sum();
        let views: usize = VIEW_TABLES.iter().map(|table| table.len()).sum();
        assert_eq!(tables + views, RULES.len());
    }

    /// What no schema says: operators that are composed of views, or yield what they are given.
    const UNDECLARED: &[&str] = &[
        "_unsafe_view",
        "alpha_dropout",
        "atleast_1d",
        "atleast_2d",
        "atleast_3d",
        "bfloat16",
        "bool",
        "broadcast_tensors",
        "cartesian_prod",
        "double",
        "dropout",
        "einsum",
        "feature_alpha_dropout",
        "feature_dropout",
        "float",
        "half",
        "int",
        "long",
        "meshgrid",
        "sum_to_size",
        "transpose",
        "type_as",
        "unsafe_chunk",
        "unsafe_split",
        "unsafe_split_with_sizes",
    ];

    #[test]
    fn views_are_those_of_the_schemas() {
        let declared: Vec<&str> = include_str!("operators/aliases.txt").lines().collect();
        for &name in &declared {
            let shares = view(name).is_some() || complex::view(name).is_some();
            assert!(shares || !is_known(name), "`{name}` shares elements with its argument");
        }
        let views = VIEW_TABLES.iter().copied().flatten().map(|entry| entry.0);
        for name in views.filter(|name| !declared.contains(name)) {
            assert!(UNDECLARED.contains(&family(name)), "`{name}` yields a tensor of its own");
        }
    }
}
