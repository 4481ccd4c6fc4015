//! Provenances as expressions over a checkpoint's tensors.
//!
//! Each operation says itself how a loader repeats it (`Operation::derivation`), from the expressions of its operands.

use super::{Norm, Provenance};
use crate::data::{shortest, uniform};
use crate::ir::{Cast, Graph, Infer, Op, TensorType, Value, ValueDef, ValueId};
use kiln_types::{BinaryOp, DType, Derivation, KeyBase, TensorData, UnaryOp};
use std::sync::Arc;

impl Provenance {
    /// The provenance as an expression, its keys under their whole names, with all their sizes. The error says what cannot
    /// be expressed.
    pub fn derivation(&self) -> Result<Derivation, String> {
        let boxed = |part: &Provenance| part.derivation().map(Box::new);
        Ok(match self {
            Self::Key { key, shape } => {
                Derivation::Key { path: key.clone(), base: KeyBase::Root, shape: Some(shape.clone()) }
            }
            Self::Literal(data) => match uniform(data) {
                Some(number) => Derivation::Number(number),
                None => table(data).ok_or_else(|| format!("a table of {} numbers", data.num_elements()))?,
            },
            Self::Apply { op, operands } => op.derivation(&Sources { op, operands })?,
            Self::Scaled { weight, scale, .. } => Derivation::Scaled(boxed(weight)?, boxed(scale)?),
            Self::NormScale(norm) => norm.scale_derivation()?,
            Self::NormShift(norm) => {
                let moved =
                    Derivation::binary(BinaryOp::Mul, norm.mean.derivation()?, norm.scale_derivation()?);
                Derivation::binary(BinaryOp::Sub, norm.beta.derivation()?, moved)
            }
            Self::Exporter { .. } => return Err("what the exporter did".into()),
            Self::TooMuch { .. } => return Err("a long computation".into()),
        })
    }

    /// Whether a checkpoint that has the keys is enough to compute it: with the operations of [`Derivation`], and with no large
    /// tables of numbers beside the keys.
    pub fn is_repeatable(&self) -> bool {
        self.derivation().is_ok()
    }

    /// Whether to compute it while the model is compiled would be the end of checkpoints for a model that could take them
    /// otherwise.
    pub(crate) fn is_loss(&self) -> bool {
        !self.is_exporters() && !self.is_repeatable()
    }

    /// The provenance without casts between floats: parameters get the backend's dtype anyway.
    pub fn uncast(&self) -> &Self {
        match self {
            Self::Apply { op: Op::Cast(Cast { to }), operands } if to.is_float() => {
                operands.first().map_or(self, |of| of.uncast())
            }
            made => made,
        }
    }

    /// The shape of what it yields, where that is easily told.
    pub fn shape(&self) -> Option<Vec<usize>> {
        match self {
            Self::Key { shape, .. } => Some(shape.clone()),
            Self::Literal(data) => Some(data.shape.clone()),
            Self::Apply { op, operands } => {
                let shapes = operands.iter().map(|operand| operand.shape()).collect::<Option<Vec<_>>>()?;
                shape_of(op, &shapes)
            }
            Self::Scaled { weight, .. } => weight.shape(),
            Self::NormScale(norm) | Self::NormShift(norm) => norm.gamma.shape(),
            Self::Exporter { .. } | Self::TooMuch { .. } => None,
        }
    }

    /// The expression of an operand that must have its own shape: a number that stands for many is spread.
    fn sized(&self) -> Result<Derivation, String> {
        Ok(match (self.uncast(), self.derivation()?) {
            (Self::Literal(data), number @ Derivation::Number(_)) if !data.shape.is_empty() => {
                Derivation::Expand(Box::new(number), data.shape.clone())
            }
            (_, expression) => expression,
        })
    }
}

impl Norm {
    fn scale_derivation(&self) -> Result<Derivation, String> {
        let sum = Derivation::binary(
            BinaryOp::Add,
            self.variance.derivation()?,
            Derivation::Number(shortest(self.epsilon)),
        );
        let root = Derivation::Unary(UnaryOp::Sqrt, Box::new(sum));
        Ok(Derivation::binary(BinaryOp::Div, self.gamma.derivation()?, root))
    }
}

/// The shape of an operation's result on floats of these shapes.
fn shape_of(op: &Op, shapes: &[Vec<usize>]) -> Option<Vec<usize>> {
    let mut graph = Graph::default();
    let mut operand = |shape: &Vec<usize>| -> ValueId {
        if shape.is_empty() {
            return graph.add_constant(None, TensorData::new(vec![0f32], shape.clone()));
        }
        let ty = TensorType::new(DType::F32, shape.iter().copied());
        graph.add_value(Value { name: String::new(), ty, def: ValueDef::Input(0), host: None })
    };
    let operands: Vec<Option<ValueId>> = shapes.iter().map(|shape| Some(operand(shape))).collect();
    match op.infer(&mut Infer::new(&graph, &operands)).ok()?.as_slice() {
        [ty] => ty.shape(),
        _ => None,
    }
}

/// The operands of an operation that is to become an expression.
pub(crate) struct Sources<'a> {
    op: &'a Op,
    operands: &'a [Arc<Provenance>],
}

impl<'a> Sources<'a> {
    /// What the operation cannot do.
    pub(crate) fn unknown(&self) -> String {
        format!("the operation {}", self.op.name())
    }

    /// How they were made.
    pub(crate) fn made(&self) -> &'a [Arc<Provenance>] {
        self.operands
    }

    fn get(&self, n: usize) -> Result<&'a Provenance, String> {
        self.operands.get(n).map(|operand| &**operand).ok_or_else(|| self.unknown())
    }

    /// The `n`-th, in its own shape.
    pub(crate) fn of(&self, n: usize) -> Result<Derivation, String> {
        self.get(n)?.sized()
    }

    /// The same, as a part of another expression.
    pub(crate) fn boxed(&self, n: usize) -> Result<Box<Derivation>, String> {
        self.of(n).map(Box::new)
    }

    /// The `n`-th, perhaps as a number that stands for many.
    pub(crate) fn bare(&self, n: usize) -> Result<Derivation, String> {
        self.get(n)?.derivation()
    }

    /// All of them, each in its own shape.
    pub(crate) fn all(&self) -> Result<Vec<Derivation>, String> {
        (0..self.operands.len()).map(|n| self.of(n)).collect()
    }

    /// The shape of the `n`-th.
    pub(crate) fn shape(&self, n: usize) -> Option<Vec<usize>> {
        self.operands.get(n)?.shape()
    }
}

/// Whether a literal's numbers may all be written down: those of the three channels of an image, say.
fn is_small_table(data: &TensorData) -> bool {
    /// More would be no text to read.
    const MOST: usize = 16;
    data.dtype.is_float() && (1..=MOST).contains(&data.num_elements()) && !data.shape.is_empty()
}

/// A few numbers, one after the other.
fn table(data: &TensorData) -> Option<Derivation> {
    let numbers = data.clone().convert_dtype(DType::F64).to_vec::<f64>().ok()?;
    let one = |number| Derivation::Expand(Box::new(Derivation::Number(shortest(number))), vec![1]);
    let row = Derivation::Concat(0, numbers.into_iter().map(one).collect());
    let is_row = data.shape.len() == 1;
    is_small_table(data).then(|| match is_row {
        true => row,
        false => Derivation::Reshape(Box::new(row), Some(data.shape.clone())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{Reduce, Softmax};
    use kiln_types::{BinaryOp, ReduceOp, UnaryOp};
    use std::sync::Arc;

    fn key(shape: &[usize]) -> Arc<Provenance> {
        Arc::new(Provenance::Key { key: "w".into(), shape: shape.to_vec() })
    }

    fn numbers(count: usize) -> Arc<Provenance> {
        let numbers: Vec<f32> = (0..count).map(|i| i as f32).collect();
        Arc::new(Provenance::Literal(TensorData::new(numbers, [count])))
    }

    fn of(op: Op, operands: Vec<Arc<Provenance>>) -> Provenance {
        Provenance::Apply { op, operands }
    }

    #[test]
    fn what_a_loader_cannot_do_is_known() {
        let mul = || Op::Binary(BinaryOp::Mul);
        let sum = |op, axes: &[usize], keep_dims| Op::Reduce(Reduce { op, axes: axes.to_vec(), keep_dims });
        let cases = [
            (of(Op::Unary(UnaryOp::Sqrt), vec![key(&[2, 3])]), true),
            (of(mul(), vec![key(&[8]), numbers(8)]), true),
            (of(mul(), vec![key(&[100]), numbers(100)]), false),
            (of(sum(ReduceOp::Sum, &[0], true), vec![key(&[2])]), true),
            (of(sum(ReduceOp::Sum, &[0], false), vec![key(&[2, 3])]), true),
            (of(sum(ReduceOp::Sum, &[0], false), vec![key(&[2])]), false),
            (of(sum(ReduceOp::Prod, &[0], true), vec![key(&[2])]), false),
            (of(Op::MatMul, vec![key(&[2, 3]), key(&[3, 4])]), true),
            (of(Op::MatMul, vec![key(&[5, 2, 3]), key(&[3, 4])]), false),
            (of(Op::Softmax(Softmax { axis: 0 }), vec![key(&[2])]), false),
        ];
        for (provenance, repeatable) in cases {
            assert_eq!(provenance.is_repeatable(), repeatable, "{provenance:?}");
            let outer = of(Op::Unary(UnaryOp::Neg), vec![Arc::new(provenance)]);
            assert_eq!(outer.is_repeatable(), repeatable, "{outer:?}");
        }
        let exporters = Arc::new(Provenance::Exporter { name: "val_1".into(), keys: Vec::new() });
        let softmax = of(Op::Softmax(Softmax { axis: 0 }), vec![exporters]);
        assert!(!softmax.is_repeatable() && !softmax.is_loss());
    }
}
