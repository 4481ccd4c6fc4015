//! `MaxPool`, with the positions of the maxima when they are asked for.

use super::super::lowering::{Window, Windows, known_padding};
use super::conv::padded;
use super::prelude::*;
use crate::ir::op;
use kiln_types::{PoolOp, PoolOptions};

pub(super) struct MaxPool {
    windows: Windows,
    ceil_mode: bool,
    column_major: bool,
    indices: bool,
}

impl MaxPool {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self {
            windows: Windows::read(node)?,
            ceil_mode: node.flag("ceil_mode", false)?,
            column_major: node.flag("storage_order", false)?,
            indices: node.yields(1),
        })
    }
}

impl<'m> Operator<'m> for MaxPool {
    const FORMS: Forms<'m, Self> = &[Spec::onnx("MaxPool", 1, &["X"]).reads(Self::read)];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let mut x = args.value("X")?;
        let window = window_of(to, x, &self.windows)?;
        let padding = to.padding(x, self.windows.auto_pad, &window);
        let padding = match known_padding(&padding) {
            Some(padding) => padding,
            None if self.indices => {
                return Err(RuleError::NotConstant {
                    input: "the spatial size (for the indices)".to_owned(),
                });
            }
            None => {
                let dtype = to.dtype(x);
                x = padded(to, x, padding, least(dtype))?;
                vec![(0, 0); window.kernel.len()]
            }
        };
        let options = PoolOptions {
            kernel: window.kernel,
            stride: window.stride,
            padding,
            dilation: window.dilation,
            ceil_mode: self.ceil_mode,
        };
        if !self.indices {
            return Ok(to.add(Op::Pool(op::Pool { op: PoolOp::Max, options }), &[x])?.into());
        }
        let found =
            to.builder.add_all(Op::MaxPoolWithIndices(op::MaxPoolWithIndices { options }), vec![Some(x)])?;
        let &[maxima, positions] = found.as_slice() else {
            return Err(RuleError::Unsupported { what: "positions of maxima".to_owned() });
        };
        let indices = self.flat_indices(to, x, positions)?;
        Ok(vec![maxima, indices].into())
    }
}

/// The window of a pooling over `x`.
pub(super) fn window_of(to: &Lowering<'_, '_>, x: ValueId, windows: &Windows) -> RuleResult<Window> {
    let spatial = to.spatial("X", x)?;
    let kernel = windows.kernel.clone().ok_or_else(|| invalid("kernel_shape", "is missing"))?;
    windows.over(spatial, kernel)
}

/// The least number of a dtype: it never wins a maximum.
fn least(dtype: DType) -> Scalar {
    match dtype {
        DType::I8 => Scalar::Int(i64::from(i8::MIN)),
        DType::I16 => Scalar::Int(i64::from(i16::MIN)),
        DType::I32 => Scalar::Int(i64::from(i32::MIN)),
        DType::I64 => Scalar::Int(i64::MIN),
        dtype if dtype.is_float() => Scalar::Float(f64::NEG_INFINITY),
        _ => Scalar::Int(0),
    }
}

impl MaxPool {
    /// Positions in a channel to positions in the whole tensor, the channels' offsets added.
    fn flat_indices(&self, to: &mut Lowering<'_, '_>, x: ValueId, positions: ValueId) -> RuleResult<ValueId> {
        let dims = to.dims(x);
        let spatial = &dims[2..];
        let within = if self.column_major { column_major(to, positions, spatial)? } else { positions };
        let channel = Dim::product(spatial);
        let channels = &dims[0] * &dims[1];
        let order =
            to.add(Op::Arange(op::Arange { start: Dim::constant(0), end: channels, step: 1 }), &[])?;
        let mut shape = vec![dims[0].clone(), dims[1].clone()];
        shape.resize(dims.len(), Dim::constant(1));
        let order = to.reshape(order, shape)?;
        let channel = to.builder.host_tensor(vec![channel], Vec::new())?;
        let offsets = to.binary(BinaryOp::Mul, order, channel)?;
        to.binary(BinaryOp::Add, within, offsets)
    }
}

/// Row-major positions to those with the first axis running fastest.
fn column_major(to: &mut Lowering<'_, '_>, positions: ValueId, spatial: &[Dim]) -> RuleResult<ValueId> {
    let mut sum: Option<ValueId> = None;
    for axis in 0..spatial.len() {
        let number = |to: &mut Lowering<'_, '_>, dim: Dim| to.builder.host_tensor(vec![dim], Vec::new());
        let stride = number(to, Dim::product(&spatial[axis + 1..]))?;
        let size = number(to, spatial[axis].clone())?;
        let new_stride = number(to, Dim::product(&spatial[..axis]))?;
        let quotient = to.binary(BinaryOp::Div, positions, stride)?;
        let coordinate = to.binary(BinaryOp::Remainder, quotient, size)?;
        let term = to.binary(BinaryOp::Mul, coordinate, new_stride)?;
        sum = Some(match sum {
            None => term,
            Some(sum) => to.binary(BinaryOp::Add, sum, term)?,
        });
    }
    Ok(sum.unwrap_or(positions))
}
