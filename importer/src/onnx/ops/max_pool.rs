//! `MaxPool`, with the positions of the maxima when they are asked for, and ONNX Runtime's `NhwcMaxPool` of quantized images.

use super::super::lowering::{WindowAttributes, WindowOptions, known_padding};
use super::conv::padded;
use super::prelude::*;
use crate::ir::op;
use kiln_types::{PoolOp, PoolOptions};

pub(super) struct MaxPool {
    windows: WindowAttributes,
    ceil_mode: bool,
    column_major: bool,
    indices: bool,
    channels_last: bool,
}

impl MaxPool {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self {
            windows: WindowAttributes::read(node)?,
            ceil_mode: node.flag("ceil_mode", false)?,
            column_major: node.flag("storage_order", false)?,
            indices: node.is_read(1),
            channels_last: false,
        })
    }

    fn read_channels_last(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self {
            windows: WindowAttributes::read(node)?,
            ceil_mode: node.flag("ceil_mode", false)?,
            column_major: false,
            indices: false,
            channels_last: true,
        })
    }
}

impl<'m> Operator<'m> for MaxPool {
    const FORMS: Forms<'m, Self> = &[
        Spec::onnx("MaxPool", 1, &["X"]).reads(Self::read),
        Spec::microsoft("NhwcMaxPool", &["X"]).reads(Self::read_channels_last),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let mut x = args.value("X")?;
        if self.channels_last {
            x = to.channels_first(x)?;
        }
        let spatial = to.dims(x).get(2..).unwrap_or_default().to_vec();
        // Where the padding is part of what is pooled.
        let mut before = Vec::new();
        let window = window_of(to, x, &self.windows)?;
        let padding = to.padding(x, self.windows.auto_pad, &window);
        let padding = match known_padding(&padding) {
            Some(padding) => padding,
            // The least integer may be a number of the input too, and stand before it.
            None if self.indices && !to.dtype(x).is_float() => {
                return Err(RuleError::NotConstant {
                    input: "the spatial size (for the indices of integers)".to_owned(),
                });
            }
            None => {
                let dtype = to.dtype(x);
                before = padding.iter().map(|(before, _)| before.clone()).collect();
                x = padded(to, x, padding, least(dtype))?;
                vec![(0, 0); window.kernel.len()]
            }
        };
        let options = PoolOptions {
            kernel: window.kernel.into(),
            stride: window.stride.into(),
            padding: padding.into(),
            dilation: window.dilation.into(),
            ceil_mode: self.ceil_mode,
        };
        if !self.indices {
            let y = to.add(Op::Pool(op::Pool { op: PoolOp::Max, options }), &[x])?;
            return Ok(if self.channels_last { to.channels_last(y)? } else { y }.into());
        }
        let found =
            to.builder.add_all(Op::MaxPoolWithIndices(op::MaxPoolWithIndices { options }), vec![Some(x)])?;
        let &[maxima, positions] = found.as_slice() else {
            return Err(RuleError::Unsupported { what: "positions of maxima".to_owned() });
        };
        let pooled = to.dims(x).get(2..).unwrap_or_default().to_vec();
        let positions = match self.column_major || !before.is_empty() {
            true => placed(to, positions, &pooled, &before, &spatial, self.column_major)?,
            false => positions,
        };
        let channels = to.dims(x).get(..2).unwrap_or_default().to_vec();
        let indices = flat_indices(to, positions, &channels, &spatial)?;
        Ok(vec![maxima, indices].into())
    }
}

/// The window of a pooling over `x`.
pub(super) fn window_of(
    to: &Lowering<'_, '_>,
    x: ValueId,
    windows: &WindowAttributes,
) -> RuleResult<WindowOptions> {
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

/// Positions in a channel to positions in the whole tensor, the channels' offsets added.
fn flat_indices(
    to: &mut Lowering<'_, '_>,
    positions: ValueId,
    channels: &[Dim],
    spatial: &[Dim],
) -> RuleResult<ValueId> {
    let end = Dim::product(channels);
    let order = to.add(Op::Arange(op::Arange { start: Dim::constant(0), end, step: 1 }), &[])?;
    let mut shape = channels.to_vec();
    shape.resize(channels.len() + spatial.len(), Dim::constant(1));
    let order = to.reshape(order, shape)?;
    let channel = to.builder.host_tensor(vec![Dim::product(spatial)], Vec::new())?;
    let offsets = to.binary(BinaryOp::Mul, order, channel)?;
    to.binary(BinaryOp::Add, positions, offsets)
}

/// Row-major positions in what is pooled to those in what it was padded from, with the last axis running fastest or the first.
fn placed(
    to: &mut Lowering<'_, '_>,
    positions: ValueId,
    pooled: &[Dim],
    before: &[Dim],
    spatial: &[Dim],
    column_major: bool,
) -> RuleResult<ValueId> {
    let mut sum: Option<ValueId> = None;
    for axis in 0..spatial.len() {
        let number = |to: &mut Lowering<'_, '_>, dim: Dim| to.builder.host_tensor(vec![dim], Vec::new());
        let stride = number(to, Dim::product(&pooled[axis + 1..]))?;
        let size = number(to, pooled[axis].clone())?;
        let others = if column_major { &spatial[..axis] } else { &spatial[axis + 1..] };
        let new_stride = number(to, Dim::product(others))?;
        let quotient = to.binary(BinaryOp::Div, positions, stride)?;
        let mut coordinate = to.binary(BinaryOp::Remainder, quotient, size)?;
        if let Some(before) = before.get(axis) {
            let before = number(to, before.clone())?;
            coordinate = to.binary(BinaryOp::Sub, coordinate, before)?;
        }
        let term = to.binary(BinaryOp::Mul, coordinate, new_stride)?;
        sum = Some(match sum {
            None => term,
            Some(sum) => to.binary(BinaryOp::Add, sum, term)?,
        });
    }
    Ok(sum.unwrap_or(positions))
}
