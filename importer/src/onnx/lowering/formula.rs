//! Formulas: values with operators, so that what is composed from a few operations reads as it is written on paper.
//!
//! Nothing in a formula returns a `Result`. The first operation that breaks a rule is remembered, those after it are
//! skipped, and [`Lowering::formula`] returns the error.

use super::Lowering;
use crate::ir::{Op, RuleError, RuleResult, ValueId, op};
use kiln_types::{Activation, BinaryOp, CompareOp, DType, ReduceOp, Scalar, UnaryOp};
use std::cell::RefCell;
use std::ops::{Add, Div, Mul, Neg, Sub};

/// The lowering while a formula is written.
struct Draft<'a, 'g, 'm> {
    to: &'a mut Lowering<'g, 'm>,
    broken: Option<RuleError>,
}

/// An operation to append.
type Step<'s> = &'s mut dyn FnMut(&mut Lowering<'_, '_>) -> RuleResult<ValueId>;

/// Where operations are appended; hides the lifetimes of the lowering.
trait Append {
    /// The step's value; nothing once a rule is broken.
    fn append(&self, step: Step<'_>) -> Option<ValueId>;
}

impl Append for RefCell<Draft<'_, '_, '_>> {
    fn append(&self, step: Step<'_>) -> Option<ValueId> {
        let mut draft = self.borrow_mut();
        if draft.broken.is_some() {
            return None;
        }
        let result = step(draft.to);
        result.map_err(|error| draft.broken = Some(error)).ok()
    }
}

/// A formula under construction.
#[derive(Clone, Copy)]
pub(crate) struct Formula<'f>(&'f dyn Append);

/// A value in a formula.
#[derive(Clone, Copy)]
pub(crate) struct Value<'f> {
    /// After a broken rule, some value before it: nobody gets to see it.
    id: ValueId,
    formula: Formula<'f>,
}

impl Lowering<'_, '_> {
    /// Appends what a formula computes.
    pub(crate) fn formula(
        &mut self,
        write: impl for<'f> FnOnce(Formula<'f>) -> Value<'f>,
    ) -> RuleResult<ValueId> {
        self.formulas(|formula| [write(formula)]).map(|[value]| value)
    }

    /// Appends what formulas with common parts compute.
    pub(crate) fn formulas<const N: usize>(
        &mut self,
        write: impl for<'f> FnOnce(Formula<'f>) -> [Value<'f>; N],
    ) -> RuleResult<[ValueId; N]> {
        let draft = RefCell::new(Draft { to: self, broken: None });
        let values = write(Formula(&draft)).map(|value| value.id);
        draft.into_inner().broken.map_or(Ok(values), Err)
    }
}

impl<'f> Formula<'f> {
    /// A value that was there before.
    pub(crate) fn value(self, id: ValueId) -> Value<'f> {
        Value { id, formula: self }
    }

    /// Several of them.
    pub(crate) fn values<const N: usize>(self, ids: [ValueId; N]) -> [Value<'f>; N] {
        ids.map(|id| self.value(id))
    }
}

/// An operand of an operator: a value, or a number, which takes the other operand's dtype.
pub(crate) trait Term<'f> {
    fn beside(self, other: Value<'f>) -> Value<'f>;
}

impl<'f> Term<'f> for Value<'f> {
    fn beside(self, _: Value<'f>) -> Value<'f> {
        self
    }
}

impl<'f> Term<'f> for f64 {
    fn beside(self, other: Value<'f>) -> Value<'f> {
        other.number(self)
    }
}

impl<'f> Value<'f> {
    /// What a step makes of this value.
    pub(crate) fn then(
        self,
        mut step: impl FnMut(&mut Lowering<'_, '_>, ValueId) -> RuleResult<ValueId>,
    ) -> Self {
        let id = self.formula.0.append(&mut |to| step(to, self.id));
        Self { id: id.unwrap_or(self.id), ..self }
    }

    /// A number of this dtype.
    pub(crate) fn number(self, number: impl Into<Scalar>) -> Self {
        let number = number.into();
        self.then(|to, x| Ok(to.number_like(x, number)))
    }

    pub(crate) fn unary(self, op: UnaryOp) -> Self {
        self.then(|to, x| to.unary(op, x))
    }

    pub(crate) fn binary(self, op: BinaryOp, other: impl Term<'f>) -> Self {
        let other = other.beside(self);
        self.then(|to, x| to.binary(op, x, other.id))
    }

    pub(crate) fn activation(self, activation: Activation) -> Self {
        self.then(|to, x| to.activation(activation, x))
    }

    pub(crate) fn cast(self, dtype: DType) -> Self {
        self.then(|to, x| to.cast(x, dtype))
    }

    pub(crate) fn abs(self) -> Self {
        self.unary(UnaryOp::Abs)
    }

    pub(crate) fn sqrt(self) -> Self {
        self.unary(UnaryOp::Sqrt)
    }

    pub(crate) fn recip(self) -> Self {
        self.unary(UnaryOp::Recip)
    }

    pub(crate) fn round(self) -> Self {
        self.unary(UnaryOp::Round)
    }

    pub(crate) fn square(self) -> Self {
        self * self
    }

    pub(crate) fn pow(self, exponent: impl Term<'f>) -> Self {
        self.binary(BinaryOp::Pow, exponent)
    }

    pub(crate) fn max(self, other: impl Term<'f>) -> Self {
        self.binary(BinaryOp::Max, other)
    }

    pub(crate) fn min(self, other: impl Term<'f>) -> Self {
        self.binary(BinaryOp::Min, other)
    }

    fn compare(self, op: CompareOp, other: impl Term<'f>) -> Self {
        let other = other.beside(self);
        self.then(|to, x| to.compare(op, x, other.id))
    }

    pub(crate) fn equals(self, other: impl Term<'f>) -> Self {
        self.compare(CompareOp::Equal, other)
    }

    pub(crate) fn greater(self, other: impl Term<'f>) -> Self {
        self.compare(CompareOp::Greater, other)
    }

    pub(crate) fn less(self, other: impl Term<'f>) -> Self {
        self.compare(CompareOp::Lower, other)
    }

    /// `self ? yes : no`.
    pub(crate) fn where_(self, yes: Self, no: Self) -> Self {
        self.then(|to, condition| to.select(condition, yes.id, no.id))
    }

    /// A reduction whose axes stay with size 1.
    pub(crate) fn reduce(self, op: ReduceOp, axes: &[usize]) -> Self {
        self.then(|to, x| to.reduce(op, x, axes, true))
    }

    pub(crate) fn mean(self, axes: &[usize]) -> Self {
        self.reduce(ReduceOp::Mean, axes)
    }

    pub(crate) fn sum(self, axes: &[usize]) -> Self {
        self.reduce(ReduceOp::Sum, axes)
    }

    /// A reduction over axes that go.
    pub(crate) fn reduce_squeezed(self, op: ReduceOp, axes: &[usize]) -> Self {
        self.then(|to, x| to.reduce(op, x, axes, false))
    }

    pub(crate) fn clamp(self, low: f64, high: f64) -> Self {
        let (min, max) = (Some(Scalar::Float(low)), Some(Scalar::Float(high)));
        self.then(|to, x| to.add(Op::Clamp(op::Clamp { min, max }), &[x]))
    }
}

impl Neg for Value<'_> {
    type Output = Self;

    fn neg(self) -> Self {
        self.unary(UnaryOp::Neg)
    }
}

macro_rules! operators {
    ($($op:ident $method:ident),*) => {$(
        impl<'f, T: Term<'f>> $op<T> for Value<'f> {
            type Output = Self;

            fn $method(self, other: T) -> Self {
                self.binary(BinaryOp::$op, other)
            }
        }
    )*};
}
operators!(Add add, Sub sub, Mul mul, Div div);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::Graph;
    use crate::onnx::lowering::Model;
    use crate::onnx::proto::ModelProto;
    use crate::onnx::source::Folder;

    fn with_ones(test: impl FnOnce(&mut Lowering<'_, '_>, ValueId)) -> Graph {
        let (proto, folder) = (ModelProto::default(), Folder::none());
        let model = Model::new(&proto, &folder).unwrap();
        let mut graph = Graph::default();
        let mut to = Lowering::new(&mut graph, &model, false);
        let x = to.fill(vec![crate::ir::Dim::constant(3)], 1.0, DType::F32).unwrap();
        test(&mut to, x);
        graph
    }

    #[test]
    fn a_formula_appends_its_operations_in_order() {
        let graph = with_ones(|to, x| {
            let y = to.formula(|f| -f.value(x).square() / 2.0 + f.value(x)).unwrap();
            assert_eq!(to.dims(y), [crate::ir::Dim::constant(3)]);
        });
        let kinds: Vec<String> = graph.nodes.iter().map(|node| node.op.kind()).collect();
        assert_eq!(kinds, ["Fill", "Binary(Mul)", "Unary(Neg)", "Binary(Div)", "Binary(Add)"]);
    }

    #[test]
    fn the_first_broken_rule_is_returned_and_nothing_is_appended_after_it() {
        let mut wanted = None;
        let graph = with_ones(|to, x| {
            wanted = to.reduce(ReduceOp::Sum, x, &[7], true).err();
            let found = to.formula(|f| {
                let broken = f.value(x).sum(&[7]);
                (broken + 1.0).sum(&[8]).sqrt() * f.value(x)
            });
            assert_eq!(found.err(), wanted);
        });
        assert!(wanted.is_some());
        assert_eq!(graph.nodes.len(), 1);
    }
}
