//! How checkpoints of the original network fill the fields of a module.
//!
//! A field whose parameters are simply the original's, under the field's name and laid out as PyTorch does, says nothing;
//! others carry an attribute. Keys are relative to the module, so that equal modules still share a struct.

mod expression;

use super::placement::relative;
use super::{Content, Field, ModuleTree};
use crate::code::Number;
use expression::{seen_from, shapeless, shortest};
use kiln_importer::data::{shortest as shortest_f64, uniform};
use kiln_importer::ir::{
    Norm, Op, Permute, Provenance, ValueId, is_numbered_parameter, without_quantization,
};
use kiln_types::{BinaryOp, Derivation, DerivationTarget, KeyBase};
use std::collections::BTreeSet;

/// How a field is filled.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FieldOrigin {
    /// A batch normalization was folded into the layer.
    BatchNorm {
        /// Its path in the module.
        path: String,
        /// What it adds to the variance.
        epsilon: Number,
        /// Whether the layer had a bias before.
        biased: bool,
    },
    /// Parameters of a layer, or (under an empty name) the field itself, are computed.
    Derived(Vec<(&'static str, String)>),
    /// No checkpoint has it.
    Constant,
}

/// How checkpoints fill a field of the module with a path; `None` where they do without saying.
pub fn origin(tree: &ModuleTree<'_>, base: &str, field: &Field) -> Option<FieldOrigin> {
    if !matches!(tree.checkpoints, Checkpoints::Taken { .. }) {
        return None;
    }
    let path = if base.is_empty() { field.key.clone() } else { format!("{base}.{}", field.key) };
    match &field.content {
        Content::Parameter(value) => {
            let expected = Expected { key: path, transposed: false };
            derived(tree, &[parameter(tree, ("", ""), *value, expected)?], base)
        }
        Content::Layer(node) => {
            let (_, layer) = tree.layer(*node)?;
            let parameters = layer.parameters().filter_map(|(field, value)| {
                let key = format!("{path}.{}", field.in_pytorch);
                let expected = Expected { key, transposed: field.transposed };
                parameter(tree, (layer.declared.name, field.name), value?, expected)
            });
            let parameters: Vec<Parameter<'_>> = parameters.collect();
            folded_norm(&parameters, base).or_else(|| derived(tree, &parameters, base))
        }
        Content::Sequence(items) => {
            let item = |(number, item): (usize, &Content)| {
                let key = format!("{}.{number}", field.key);
                origin(tree, base, &Field { key, content: item.clone() })
            };
            of_list(&items.iter().enumerate().map(item).collect::<Vec<_>>()).flatten()
        }
        Content::Module(_) | Content::Absent => None,
    }
}

/// How checkpoints fill the layers of a list, if that can be said of all at once.
pub fn of_list(items: &[Option<FieldOrigin>]) -> Option<Option<FieldOrigin>> {
    let first = items.first()?;
    Some(match first {
        None | Some(FieldOrigin::Constant) => {
            items.iter().all(|item| item == first).then(|| first.clone())?
        }
        Some(FieldOrigin::BatchNorm { epsilon, biased, .. }) => {
            let path = |item: &Option<FieldOrigin>| match item {
                Some(FieldOrigin::BatchNorm { path, epsilon: e, biased: b })
                    if (e, b) == (epsilon, biased) =>
                {
                    Some(path.clone())
                }
                _ => None,
            };
            let path = numbered(&items.iter().map(path).collect::<Option<Vec<_>>>()?)?;
            Some(FieldOrigin::BatchNorm { path, epsilon: *epsilon, biased: *biased })
        }
        Some(FieldOrigin::Derived(texts)) => {
            let text = |(n, (name, _)): (usize, &(&'static str, String))| {
                let of = |item: &Option<FieldOrigin>| match item {
                    Some(FieldOrigin::Derived(others)) if others.len() == texts.len() => {
                        others.get(n).filter(|(other, _)| other == name).map(|(_, text)| text.clone())
                    }
                    _ => None,
                };
                Some((*name, numbered(&items.iter().map(of).collect::<Option<Vec<_>>>()?)?))
            };
            Some(FieldOrigin::Derived(texts.iter().enumerate().map(text).collect::<Option<_>>()?))
        }
    })
}

/// One text for all items of a list, in which `{}` stands for the number of the item.
fn numbered(texts: &[String]) -> Option<String> {
    let (first, second) = (texts.first()?, texts.get(1)?);
    if first.contains("{}") {
        return None;
    }
    let mut pattern = String::with_capacity(first.len());
    let (mut a, mut b) = (words(first), words(second));
    loop {
        match (a.next(), b.next()) {
            (None, None) => break,
            (Some("0"), Some("1")) => pattern.push_str("{}"),
            (Some(a), Some(b)) if a == b => pattern.push_str(a),
            _ => return None,
        }
    }
    let is_equal = |(number, text): (usize, &String)| {
        let number = number.to_string();
        let mut parts = pattern.split("{}");
        let mut rest = text.strip_prefix(parts.next()?)?;
        // Ends with the text: one pattern may be longer than all the others together.
        for part in parts {
            rest = rest.strip_prefix(&number)?.strip_prefix(part)?;
        }
        rest.is_empty().then_some(())
    };
    texts.iter().enumerate().all(|item| is_equal(item).is_some()).then_some(pattern)
}

/// The numbers in a text, and what is between them.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let is_digit = rest.starts_with(|c: char| c.is_ascii_digit());
        let end = rest.find(|c: char| c.is_ascii_digit() != is_digit).unwrap_or(rest.len());
        let (word, behind) = rest.split_at(end);
        rest = behind;
        (!word.is_empty()).then_some(word)
    })
}

/// A parameter: of a layer, or (without a name) a field by itself.
struct Parameter<'g> {
    name: &'static str,
    /// How it is made, if not known from the graph alone.
    made: Option<&'g Provenance>,
    /// The one number that it is everywhere.
    number: Option<f64>,
    /// Where checkpoints have it when nothing is said.
    expected: Expected,
    target: DerivationTarget,
}

/// A key of a checkpoint.
struct Expected {
    key: String,
    /// Whether the tensor is transposed there.
    transposed: bool,
}

fn parameter<'g>(
    tree: &ModuleTree<'g>,
    (layer, name): (&'static str, &'static str),
    value: ValueId,
    expected: Expected,
) -> Option<Parameter<'g>> {
    let constant = tree.graph.constant(value)?;
    Some(Parameter {
        name,
        made: constant.provenance.as_deref(),
        number: number(tree, value),
        expected,
        target: DerivationTarget { layer: layer.to_owned(), shape: constant.data.shape.clone() },
    })
}

impl Parameter<'_> {
    /// Whether a provenance is what checkpoints have for it.
    fn is_expected(&self, made: &Provenance) -> bool {
        is_key(made, &self.expected.key, self.expected.transposed)
    }
}

/// Whether a key is transposed, for a provenance that is no more than one.
fn layout(made: &Provenance) -> Option<bool> {
    match made.uncast() {
        Provenance::Key { .. } => Some(false),
        Provenance::Apply { op: Op::Permute(Permute { axes }), operands } if axes.as_slice() == [1, 0] => {
            matches!(operands.first().map(|of| of.uncast()), Some(Provenance::Key { .. })).then_some(true)
        }
        _ => None,
    }
}

/// Whether a provenance is a key, perhaps transposed.
fn is_key(made: &Provenance, wanted: &str, transposed: bool) -> bool {
    match made.uncast() {
        Provenance::Key { key, .. } => !transposed && key == wanted,
        Provenance::Apply { op: Op::Permute(Permute { axes }), operands } => {
            transposed
                && axes.as_slice() == [1, 0]
                && operands.first().is_some_and(|of| is_key(of, wanted, false))
        }
        _ => false,
    }
}

/// A normalization with PyTorch's names, folded into weight and bias.
fn folded_norm(parameters: &[Parameter<'_>], base: &str) -> Option<FieldOrigin> {
    let [weight, bias] = parameters else { return None };
    if (weight.name, bias.name) != ("weight", "bias") {
        return None;
    }
    let norm = match weight.made?.uncast() {
        Provenance::Scaled { weight: before, scale, .. } if weight.is_expected(before) => {
            match scale.uncast() {
                Provenance::NormScale(norm) => norm,
                _ => return None,
            }
        }
        _ => return None,
    };
    let is_shift = |made: &Provenance| matches!(made.uncast(), Provenance::NormShift(other) if other == norm);
    let is_scale = |made: &Provenance| matches!(made.uncast(), Provenance::NormScale(other) if other == norm);
    let biased = match bias.made?.uncast() {
        made if is_shift(made) => false,
        Provenance::Apply { op: Op::Binary(BinaryOp::Add), operands } => match operands.as_slice() {
            [product, shift] if is_shift(shift) => match product.uncast() {
                Provenance::Apply { op: Op::Binary(BinaryOp::Mul), operands } => match operands.as_slice() {
                    [before, scale] if bias.is_expected(before) && is_scale(scale) => true,
                    _ => return None,
                },
                _ => return None,
            },
            _ => return None,
        },
        _ => return None,
    };
    let path = norm_path(norm)?;
    let path = relative(&path, base)?.to_owned();
    Some(FieldOrigin::BatchNorm { path, epsilon: shortest_f64(norm.epsilon).into(), biased })
}

/// The path below which all parameters of a normalization have PyTorch's names.
fn norm_path(norm: &Norm) -> Option<String> {
    let path = match norm.gamma.uncast() {
        Provenance::Key { key, .. } => key.strip_suffix(".weight")?,
        _ => return None,
    };
    let named = |made: &Provenance, name: &str| is_key(made, &format!("{path}.{name}"), false);
    let all = named(&norm.beta, "bias")
        && named(&norm.mean, "running_mean")
        && named(&norm.variance, "running_var");
    all.then(|| path.to_owned())
}

fn derived(tree: &ModuleTree<'_>, parameters: &[Parameter<'_>], base: &str) -> Option<FieldOrigin> {
    // Where one is in the record alone, the numbers beside it are measured ones.
    let recorded = parameters.iter().any(|p| p.made.is_none() && p.number.is_none());
    if recorded && parameters.iter().all(|p| p.made.is_none()) {
        return Some(FieldOrigin::Constant);
    }
    let mut texts = Vec::new();
    for parameter in parameters {
        let text = match (parameter.made, parameter.number) {
            (Some(made), _) if parameter.is_expected(made) && other_names(tree, made).next().is_none() => {
                continue;
            }
            (Some(made), _) => text(tree, made, parameter, base)?,
            (None, Some(number)) if !recorded => Derivation::Number(number).to_string(),
            (None, _) => Derivation::Constant.to_string(),
        };
        texts.push((parameter.name, text));
    }
    (!texts.is_empty()).then_some(FieldOrigin::Derived(texts))
}

/// The expression of a parameter.
fn text(tree: &ModuleTree<'_>, made: &Provenance, parameter: &Parameter<'_>, base: &str) -> Option<String> {
    let derivation = made.derivation().ok()?;
    let Expected { key, transposed } = &parameter.expected;
    if layout(made) != Some(*transposed) {
        return Some(seen_from(base, shortest(derivation, &parameter.target)).to_string());
    }
    // A tied parameter may be in checkpoints under any of its names, laid out alike.
    let named = |name: &str| {
        let key = Derivation::key(name, KeyBase::Root);
        if *transposed { Derivation::Permute(Box::new(key), vec![1, 0]) } else { key }
    };
    let mut names = Vec::new();
    if tree.graph.tied_keys.contains(key) {
        names.push(named(key));
    }
    names.push(shapeless(derivation.clone()));
    names.extend(other_names(tree, made).filter(|name| *name != key.as_str()).map(named));
    let text = match names.len() {
        1 => shortest(derivation, &parameter.target),
        _ => Derivation::First(names),
    };
    Some(seen_from(base, text).to_string())
}

/// The keys that the network has besides for a parameter which is no more than one key, perhaps transposed.
fn other_names<'t>(tree: &'t ModuleTree<'_>, made: &Provenance) -> impl Iterator<Item = &'t str> {
    let key = layout(made).and_then(|_| made.keys().pop());
    let names = key.and_then(|key| tree.graph.ties.get(&key));
    names.into_iter().flatten().map(String::as_str)
}

/// Why a model cannot take checkpoints at all: parameters that the exporter, or Kiln, changed in ways that cannot be
/// repeated. `None` when it can.
fn refusal(tree: &ModuleTree<'_>) -> Option<String> {
    let mut quantized: Vec<String> = Vec::new();
    let mut exporters: Vec<String> = Vec::new();
    let mut foreign: Vec<String> = Vec::new();
    let mut others: Vec<String> = Vec::new();
    for value in parameters(tree) {
        let Some(made) = tree.graph.provenance(value) else { continue };
        let name = tree.graph.constant(value).and_then(|constant| constant.name.clone());
        let name = name.unwrap_or_else(|| "a parameter".into());
        let keys = made.keys();
        if made.is_exporters() && keys.is_empty() && without_quantization(&name) != name {
            quantized.push(without_quantization(&name).to_owned());
        } else if made.is_exporters()
            && keys.is_empty()
            && (name.contains('/') || is_numbered_parameter(&name))
        {
            foreign.push(name);
        } else if made.is_exporters() {
            let from: Vec<&str> = keys.iter().filter(|key| **key != name).map(String::as_str).collect();
            exporters.push(if from.is_empty() { name } else { format!("{name} (from {})", from.join(", ")) });
        } else if let Err(what) = made.derivation() {
            others.push(format!("{name} (from {}, by {what})", keys.join(", ")));
        }
    }
    let list = |names: &[String]| {
        /// More would hide the advice behind them.
        const SHOWN: usize = 3;
        let shown = names.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
        match names.len().saturating_sub(SHOWN) {
            0 => shown,
            more => format!("{shown} and {more} more"),
        }
    };
    if !quantized.is_empty() {
        return Some(format!("the file has {} quantized, as no checkpoint has them", list(&quantized)));
    }
    if !exporters.is_empty() {
        return Some(format!(
            "the exporter changed {}, or merged it with others that were equal; export with optimize=False (the older \
             exporter: do_constant_folding=False, training=TrainingMode.PRESERVE, and weights that differ)",
            list(&exporters)
        ));
    }
    if !foreign.is_empty() {
        return Some(format!("what the file calls {} is no key of PyTorch's", list(&foreign)));
    }
    (!others.is_empty()).then(|| format!("it cannot be repeated how {} were computed", list(&others)))
}

/// Whether and how a model takes checkpoints of the original network.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Checkpoints {
    /// It has no parameters that a checkpoint could hold.
    #[default]
    None,
    /// It does not, for this reason.
    Refused(String),
    /// It does.
    Taken {
        /// Whether it has parameters besides that no checkpoint holds.
        constants: bool,
    },
}

/// Decides it for a plan whose parameters have their places.
pub fn checkpoints(tree: &ModuleTree<'_>) -> Checkpoints {
    let made = |value: &ValueId| tree.graph.provenance(*value).is_some();
    let values = parameters(tree);
    // What has no names but an exporter's numbers may come from anywhere.
    let of_keys =
        |value: &ValueId| tree.graph.provenance(*value).is_some_and(|made| made.is_of_checkpoints());
    if !values.iter().any(of_keys) {
        return Checkpoints::None;
    }
    if let Some(reason) = refusal(tree) {
        return Checkpoints::Refused(reason);
    }
    let constants = values.iter().any(|value| !made(value) && number(tree, *value).is_none());
    Checkpoints::Taken { constants }
}

/// The one number that a parameter is everywhere, when no checkpoint has it.
fn number(tree: &ModuleTree<'_>, value: ValueId) -> Option<f64> {
    let constant = tree.graph.constant(value).filter(|constant| constant.provenance.is_none())?;
    if constant.data.dtype.is_bool() {
        None
    } else {
        uniform(&constant.data).filter(|number| number.is_finite())
    }
}

/// Every parameter of the modules, in order.
fn parameters(tree: &ModuleTree<'_>) -> Vec<ValueId> {
    let mut found = Vec::new();
    let (mut waiting, mut seen) = (vec![tree.root], BTreeSet::new());
    while let Some(module) = waiting.pop() {
        if !seen.insert(module) {
            continue;
        }
        let mut contents: Vec<&Content> =
            tree.modules[module].fields.iter().rev().map(|field| &field.content).collect();
        while let Some(content) = contents.pop() {
            match content {
                Content::Parameter(value) => found.push(*value),
                Content::Layer(node) => {
                    found.extend(tree.layer(*node).into_iter().flat_map(|(_, layer)| layer.values()));
                }
                Content::Module(child) => waiting.push(*child),
                Content::Sequence(items) => contents.extend(items.iter().rev()),
                Content::Absent => {}
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::numbered;

    #[test]
    fn texts_of_items_differ_in_their_numbers_alone() {
        let cases: &[(&[&str], Option<&str>)] = &[
            (&["norms.0", "norms.1", "norms.2"], Some("norms.{}")),
            (&["norm", "norm"], Some("norm")),
            (&["a1.0.b0 + 0", "a1.1.b1 + 0"], Some("a1.{}.b{} + 0")),
            (&["0.b", "1.b", "3.b"], None),
            (&["norms.1", "norms.2"], None),
            (&["norms.0", "norms.1", "norms"], None),
            (&["norms.0", "norms.1", "norms.2.x"], None),
            (&["{}.0", "{}.1"], None),
            (&["norms.0"], None),
        ];
        for (texts, expected) in cases {
            let texts: Vec<String> = texts.iter().map(|&text| text.to_owned()).collect();
            assert_eq!(numbered(&texts).as_deref(), *expected, "{texts:?}");
        }
        let many: Vec<String> = (0..12).map(|i| format!("cat(0, q.{i}.weight, k.{i}.weight)")).collect();
        assert_eq!(numbered(&many).as_deref(), Some("cat(0, q.{}.weight, k.{}.weight)"));
    }
}
