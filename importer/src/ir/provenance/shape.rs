//! The shapes of what provenances yield.

use super::Provenance;
use crate::ir::{Concat, Dim, Expand, Op, Permute, Reduce, Reshape, Slice};

impl Provenance {
    /// The shape of what it yields, where that is easily told.
    pub fn shape(&self) -> Option<Vec<usize>> {
        match self {
            Self::Key { shape, .. } => Some(shape.clone()),
            Self::Literal(data) => Some(data.shape.clone()),
            Self::Apply { op, operands } => {
                let of = |n: usize| operands.get(n).and_then(|operand| operand.shape());
                applied(op, &of, operands.len())
            }
            Self::Scaled { weight, .. } => weight.shape(),
            Self::NormScale(norm) | Self::NormShift(norm) => norm.gamma.shape(),
            Self::Exporter { .. } | Self::TooMuch { .. } => None,
        }
    }
}

fn applied(op: &Op, of: &dyn Fn(usize) -> Option<Vec<usize>>, operands: usize) -> Option<Vec<usize>> {
    match op {
        Op::Unary(_) | Op::Activation(_) | Op::Cast(_) => of(0),
        Op::Binary(_) => broadcast(&of(0)?, &of(1)?),
        Op::Reshape(Reshape { dims }) | Op::Expand(Expand { dims }) => {
            dims.iter().map(Dim::as_size).collect()
        }
        Op::Permute(Permute { axes }) => {
            let shape = of(0)?;
            axes.iter().map(|&axis| shape.get(axis).copied()).collect()
        }
        Op::Slice(Slice { ranges }) => {
            let sizes = ranges.iter().map(|range| {
                let length = range.end.as_size()?.checked_sub(range.start.as_size()?)?;
                Some(length.div_ceil(usize::try_from(range.step.unsigned_abs()).ok()?.max(1)))
            });
            sizes.collect()
        }
        Op::Concat(Concat { axis }) => {
            let shapes: Vec<Vec<usize>> = (0..operands).map(of).collect::<Option<_>>()?;
            let mut shape = shapes.first()?.clone();
            *shape.get_mut(*axis)? =
                shapes.iter().map(|shape| shape.get(*axis).copied()).sum::<Option<usize>>()?;
            Some(shape)
        }
        Op::Reduce(Reduce { axes, keep_dims, .. }) => {
            let sizes = of(0)?.into_iter().enumerate();
            let sizes = sizes.filter(|(axis, _)| *keep_dims || !axes.contains(axis));
            Some(sizes.map(|(axis, size)| if axes.contains(&axis) { 1 } else { size }).collect())
        }
        Op::MatMul => match (of(0)?.as_slice(), of(1)?.as_slice()) {
            (&[rows, inner], &[other, columns]) if inner == other => Some(vec![rows, columns]),
            _ => None,
        },
        _ => None,
    }
}

fn broadcast(a: &[usize], b: &[usize]) -> Option<Vec<usize>> {
    let rank = a.len().max(b.len());
    let size = |shape: &[usize], i: usize| (i + shape.len()).checked_sub(rank).map_or(1, |i| shape[i]);
    let sizes = (0..rank).map(|i| match (size(a, i), size(b, i)) {
        (x, y) if x == y || y == 1 => Some(x),
        (1, y) => Some(y),
        _ => None,
    });
    sizes.collect()
}
