//! What one operator of ONNX is to Kiln: a specification, attributes, a lowering.

use super::lowering::Lowering;
use super::node::SourceNode;
use crate::ir::{Key, RuleError, RuleResult, ValueId};
use std::rc::Rc;

/// An operator, or a family of them.
pub(crate) trait Operator<'m>: Sized + 'm {
    /// Every operator that this implements, and what reads its attributes.
    const FORMS: Forms<'m, Self>;

    /// Appends the operations that compute the outputs.
    fn lower(&self, args: &Args, to: &mut Lowering<'_, 'm>) -> RuleResult<Outputs>;
}

/// The operators that an `O` implements.
pub(crate) type Forms<'m, O> = &'m [Form<'m, O>];

/// An operator in some versions, and what reads its attributes; an attribute that is not read is an error.
pub(crate) struct Form<'m, O> {
    /// What is read.
    pub(crate) spec: Spec,
    /// Makes an `O` of a node.
    read: fn(&mut SourceNode<'m>) -> RuleResult<O>,
}

/// Kiln's own domain.
pub(crate) const KILN: &str = "kiln";

/// Name, versions and inputs of an operator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spec {
    /// Domain; empty for ONNX's own.
    pub(crate) domain: &'static str,
    /// Name.
    pub(crate) name: &'static str,
    /// First version of the operator set in which it has the form that is read here.
    pub(crate) since: i64,
    /// Last version, when the operator was withdrawn.
    pub(crate) until: i64,
    /// Names of the inputs; `?` after an optional one, `*` after one that repeats.
    pub(crate) inputs: &'static [&'static str],
    /// Whether elements are moved and nothing is computed with them, so that strings may be what numbers are.
    pub(crate) moves: bool,
}

impl Spec {
    /// An operator of ONNX's own domain.
    pub(crate) const fn onnx(name: &'static str, since: i64, inputs: &'static [&'static str]) -> Self {
        Self { domain: "", name, since, until: i64::MAX, inputs, moves: false }
    }

    /// An operator of ONNX Runtime's domain.
    pub(crate) const fn microsoft(name: &'static str, inputs: &'static [&'static str]) -> Self {
        Self { domain: "com.microsoft", ..Self::onnx(name, 1, inputs) }
    }

    /// An operator of Kiln's own domain: what programs of PyTorch have and ONNX has no operator for.
    pub(crate) const fn kiln(name: &'static str, inputs: &'static [&'static str]) -> Self {
        Self { domain: KILN, ..Self::onnx(name, 1, inputs) }
    }

    /// An operator of ONNX's domain for classical machine learning.
    pub(crate) const fn ml(name: &'static str, since: i64, inputs: &'static [&'static str]) -> Self {
        Self { domain: "ai.onnx.ml", ..Self::onnx(name, since, inputs) }
    }

    /// Withdrawn after this version.
    pub(crate) const fn until(self, version: i64) -> Self {
        Self { until: version, ..self }
    }

    /// Moves elements of its first input (of all inputs, where they are one that repeats), strings as well as numbers.
    pub(crate) const fn moves(self) -> Self {
        Self { moves: true, ..self }
    }

    /// With what reads the attributes.
    pub(crate) const fn reads<'m, O>(self, read: fn(&mut SourceNode<'m>) -> RuleResult<O>) -> Form<'m, O> {
        Form { spec: self, read }
    }

    /// The place of an input.
    fn place(&self, name: &str) -> Option<usize> {
        self.inputs.iter().position(|input| input.trim_end_matches(['?', '*']) == name)
    }

    /// The versions as text.
    pub(crate) fn versions(&self) -> String {
        match self.until {
            i64::MAX => format!("{} and newer", self.since),
            until => format!("{} to {until}", self.since),
        }
    }
}

/// An entry of the table: one form of one implementation.
pub(crate) struct Entry {
    /// What it implements.
    pub(crate) spec: &'static Spec,
    /// Which of the implementation's forms it is.
    form: usize,
    /// Whether one of the implementation's forms has an input of this name.
    pub(crate) has_input: fn(&str) -> bool,
    lower: Lower,
}

/// Reads a node as a form, by its number, and lowers it.
type Lower = for<'m> fn(usize, &mut SourceNode<'m>, &Args, &mut Lowering<'_, 'm>) -> RuleResult<Outputs>;

impl Entry {
    /// An entry for each form of `O`; `lower` is [`lower_form`] of the same `O`.
    pub(crate) fn all<O: Operator<'static>>(lower: Lower) -> impl Iterator<Item = Self> {
        let has_input = |name: &str| O::FORMS.iter().any(|form| form.spec.place(name).is_some());
        O::FORMS.iter().enumerate().map(move |(form, Form { spec, .. })| Self {
            spec,
            form,
            has_input,
            lower,
        })
    }

    /// Reads and lowers a node.
    pub(crate) fn run<'m>(
        &self,
        node: &mut SourceNode<'m>,
        args: &Args,
        to: &mut Lowering<'_, 'm>,
    ) -> RuleResult<Outputs> {
        (self.lower)(self.form, node, args, to)
    }
}

/// Reads a node as one of `O`'s forms and lowers it.
pub(crate) fn lower_form<'m, O: Operator<'m>>(
    form: usize,
    node: &mut SourceNode<'m>,
    args: &Args,
    to: &mut Lowering<'_, 'm>,
) -> RuleResult<Outputs> {
    let operator = (O::FORMS[form].read)(node)?;
    node.finish()?;
    let Outputs(outputs) = operator.lower(args, to)?;
    Ok(Outputs(if args.moves_strings {
        outputs.into_iter().map(Operand::of_strings).collect()
    } else {
        outputs
    }))
}

/// What an input or output stands for.
#[derive(Clone, Debug)]
pub(crate) enum Operand {
    /// A tensor.
    Tensor(ValueId),
    /// A sequence of tensors, its length known.
    Sequence(Rc<[ValueId]>),
    /// Strings: a tensor of their places in the graph's table, [`Strings`](crate::ir::Strings).
    Strings(ValueId),
    /// A sequence of maps of the same keys: a tensor with a row for each map and a column for each key.
    Maps(ValueId, Rc<[Key]>),
    /// An optional without a value; whoever takes it finds no input.
    Absent,
}

impl Operand {
    /// What it is, for messages.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Tensor(_) => "a tensor of numbers",
            Self::Sequence(_) => "a sequence",
            Self::Strings(_) => "a tensor of strings",
            Self::Maps(..) => "a sequence of maps",
            Self::Absent => "an optional without a value",
        }
    }

    /// The tensor, or an error that says what stands in its place, and where that is.
    pub(crate) fn tensor(&self, place: &str) -> RuleResult<ValueId> {
        match self {
            Self::Tensor(value) => Ok(*value),
            other => Err(RuleError::Unsupported { what: format!("{} {place}", other.kind()) }),
        }
    }

    /// Places as what they stand for.
    fn of_strings(self) -> Self {
        match self {
            Self::Tensor(places) => Self::Strings(places),
            other => other,
        }
    }
}

/// A node's outputs in order.
pub(crate) struct Outputs(pub(crate) Vec<Operand>);

impl From<ValueId> for Outputs {
    fn from(value: ValueId) -> Self {
        Outputs(vec![Operand::Tensor(value)])
    }
}

impl From<Vec<ValueId>> for Outputs {
    fn from(values: Vec<ValueId>) -> Self {
        Outputs(values.into_iter().map(Operand::Tensor).collect())
    }
}

/// A node's operands, by the names of the specification.
pub(crate) struct Args {
    spec: &'static Spec,
    has_input: fn(&str) -> bool,
    operands: Vec<Option<Operand>>,
    /// Whether the operands that are moved hold places of strings.
    moves_strings: bool,
}

impl Args {
    /// Checks the number of operands against the specification.
    pub(crate) fn new(entry: &Entry, mut operands: Vec<Option<Operand>>) -> RuleResult<Self> {
        let (spec, has_input) = (entry.spec, entry.has_input);
        let variadic = spec.inputs.last().is_some_and(|name| name.ends_with('*'));
        if operands.len() > spec.inputs.len() && !variadic {
            let what = format!("{} inputs where {} has {}", operands.len(), spec.name, spec.inputs.len());
            return Err(RuleError::Unsupported { what });
        }
        for (n, name) in spec.inputs.iter().enumerate() {
            let required = !name.ends_with(['?', '*']);
            if required && operands.get(n).is_none_or(Option::is_none) {
                return Err(RuleError::MissingInput { input: (*name).to_owned() });
            }
        }
        let moves_strings = spec.moves && matches!(operands.first(), Some(Some(Operand::Strings(_))));
        if moves_strings {
            let moved = if variadic { operands.len() } else { 1 };
            for operand in operands.iter_mut().take(moved).flatten() {
                match operand {
                    Operand::Strings(places) => *operand = Operand::Tensor(*places),
                    other => {
                        let what = format!("{} where the first input is a tensor of strings", other.kind());
                        return Err(RuleError::Unsupported { what });
                    }
                }
            }
        }
        Ok(Self { spec, has_input, operands, moves_strings })
    }

    /// The place of an input; nothing where this form of the operator has none of that name.
    fn index(&self, name: &str) -> RuleResult<Option<usize>> {
        let place = self.spec.place(name);
        if place.is_none() && !(self.has_input)(name) {
            let what = format!("its rule asks for an input `{name}`, which none of its forms has");
            return Err(RuleError::Internal { what });
        }
        Ok(place)
    }

    fn operand(&self, name: &str) -> RuleResult<Option<&Operand>> {
        Ok(self.index(name)?.and_then(|n| self.operands.get(n)).and_then(Option::as_ref))
    }

    /// The operands from a variadic one on; none where this form of the operator does not have it.
    fn rest(&self, name: &str) -> RuleResult<&[Option<Operand>]> {
        Ok(self.index(name)?.and_then(|from| self.operands.get(from..)).unwrap_or_default())
    }

    /// An input that must be there.
    pub(crate) fn value(&self, name: &str) -> RuleResult<ValueId> {
        self.optional(name)?.ok_or_else(|| RuleError::MissingInput { input: name.to_owned() })
    }

    /// An input that may be absent, or that older versions of the operator do not have.
    pub(crate) fn optional(&self, name: &str) -> RuleResult<Option<ValueId>> {
        match self.operand(name)? {
            None | Some(Operand::Absent) => Ok(None),
            Some(other) => other.tensor(&format!("as the input `{name}`")).map(Some),
        }
    }

    /// A tensor of strings, as their places.
    pub(crate) fn strings(&self, name: &str) -> RuleResult<ValueId> {
        match self.operand(name)? {
            Some(Operand::Strings(places)) => Ok(*places),
            None | Some(Operand::Absent) => Err(RuleError::MissingInput { input: name.to_owned() }),
            Some(other) => {
                let what = format!("{} as the input `{name}`, a tensor of strings", other.kind());
                Err(RuleError::Unsupported { what })
            }
        }
    }

    /// A sequence.
    pub(crate) fn sequence(&self, name: &str) -> RuleResult<&[ValueId]> {
        match self.operand(name)? {
            Some(Operand::Sequence(values)) => Ok(values),
            None | Some(Operand::Absent) => Err(RuleError::MissingInput { input: name.to_owned() }),
            Some(other) => {
                let what = format!("{} as the input `{name}`, a sequence", other.kind());
                Err(RuleError::Unsupported { what })
            }
        }
    }

    /// The first input, whatever it is.
    pub(crate) fn first(&self) -> Option<&Operand> {
        self.operands.first().and_then(Option::as_ref)
    }

    /// Every input from a variadic one on, whatever it is.
    pub(crate) fn operands(&self, name: &str) -> RuleResult<Vec<Operand>> {
        let missing = || RuleError::MissingInput { input: name.to_owned() };
        self.rest(name)?.iter().map(|operand| operand.clone().ok_or_else(missing)).collect()
    }

    /// Every input from a variadic one on.
    pub(crate) fn all(&self, name: &str) -> RuleResult<Vec<ValueId>> {
        self.rest(name)?
            .iter()
            .map(|operand| match operand {
                Some(operand) => operand.tensor(&format!("among the inputs `{name}`")),
                None => Err(RuleError::MissingInput { input: name.to_owned() }),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lower(_: usize, _: &mut SourceNode<'_>, _: &Args, _: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        Ok(Outputs(Vec::new()))
    }

    #[test]
    fn inputs_that_no_form_has_are_mistakes() {
        static SPEC: Spec = Spec::onnx("Concat", 4, &["inputs*"]);
        let has_input = |name: &str| matches!(name, "inputs" | "axis");
        let args =
            Args::new(&Entry { spec: &SPEC, form: 0, has_input, lower }, Vec::new()).expect("arguments");
        assert!(args.all("inputs").expect("no inputs").is_empty());
        assert!(args.optional("axis").expect("an input of another form").is_none());
        for error in [args.all("input").err(), args.optional("axes").err(), args.value("axes").err()] {
            assert!(matches!(error, Some(RuleError::Internal { .. })), "{error:?}");
        }
    }
}
