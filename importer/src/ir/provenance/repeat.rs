//! Which computations can be done again with a checkpoint's tensors.

use super::Provenance;
use crate::data::uniform;
use crate::ir::{Cast, Expand, Op, Reduce, Reshape, Slice};
use kiln_types::{Activation, ReduceOp, TensorData};

impl Provenance {
    /// Whether a checkpoint that has the keys is enough to compute it: with the operations of [`kiln_types::Derivation`],
    /// and with no large tables of numbers beside the keys.
    pub fn is_repeatable(&self) -> bool {
        let own = match self {
            Self::Literal(data) => uniform(data).is_some() || is_small_table(data),
            Self::Apply { op, operands } => is_expressible(op, operands.iter().map(|operand| &**operand)),
            Self::Exporter { .. } | Self::TooMuch { .. } => false,
            Self::Key { .. } | Self::Scaled { .. } | Self::NormScale(_) | Self::NormShift(_) => true,
        };
        own && self.parts().into_iter().all(Self::is_repeatable)
    }

    /// Whether to compute it while the model is compiled would be the end of checkpoints for a model that could take them
    /// otherwise.
    pub(crate) fn is_loss(&self) -> bool {
        !self.is_exporters() && !self.is_repeatable()
    }
}

/// Whether a literal's numbers may all be written down: those of the three channels of an image, say.
pub fn is_small_table(data: &TensorData) -> bool {
    /// More would be no text to read.
    const MOST: usize = 16;
    data.dtype.is_float() && (1..=MOST).contains(&data.num_elements()) && !data.shape.is_empty()
}

fn is_expressible<'p>(op: &Op, mut operands: impl Iterator<Item = &'p Provenance>) -> bool {
    match op {
        Op::Unary(_) | Op::Binary(_) | Op::Permute(_) | Op::Concat(_) => true,
        Op::Activation(activation) => {
            matches!(activation, Activation::Tanh | Activation::Sigmoid | Activation::Softplus)
        }
        Op::Cast(Cast { to }) => to.is_float(),
        Op::Reshape(Reshape { dims }) | Op::Expand(Expand { dims }) => {
            dims.iter().all(|dim| dim.as_size().is_some())
        }
        Op::Slice(Slice { ranges }) => ranges
            .iter()
            .all(|range| range.step > 0 && range.start.as_size().is_some() && range.end.as_size().is_some()),
        Op::Clamp(_) => true,
        Op::Reduce(Reduce { op, keep_dims, axes }) => {
            let known = matches!(op, ReduceOp::Sum | ReduceOp::Mean | ReduceOp::Max | ReduceOp::Min);
            known
                && (*keep_dims || operands.all(|of| of.shape().is_some_and(|shape| shape.len() > axes.len())))
        }
        Op::MatMul => operands.all(|of| of.shape().is_some_and(|shape| shape.len() == 2)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{Reduce, Softmax};
    use kiln_types::{BinaryOp, UnaryOp};
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
