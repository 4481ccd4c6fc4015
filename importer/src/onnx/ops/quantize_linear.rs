//! `QuantizeLinear`, `DequantizeLinear` and `DynamicQuantizeLinear`, in floating point.

use super::super::tensor::{DataType, Narrow};
use super::detach::detached;
use super::prelude::*;
use crate::ir::{Provenance, is_anonymous};
use kiln_types::TensorData;
use std::sync::Arc;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Quantize,
    Dequantize,
    Dynamic,
}

pub(super) struct QuantizeLinear {
    kind: Kind,
    axis: i64,
    block: usize,
    /// The data type of the result, where it does not follow from the others.
    output: Option<DataType>,
    /// Whether floats of few bits are the greatest where numbers are beyond it.
    saturate: bool,
}

impl QuantizeLinear {
    fn read(node: &mut SourceNode<'_>, kind: Kind) -> RuleResult<Self> {
        // That of one division.
        node.ignore(&["precision"]);
        let saturate = node.flag("saturate", true)?;
        // 0 is none.
        let output = match node.int("output_dtype", 0)? {
            0 => None,
            _ => node.data_type("output_dtype")?,
        };
        Ok(Self { kind, axis: node.int("axis", 1)?, block: node.size("block_size", 0)?, output, saturate })
    }
}

impl<'m> Operator<'m> for QuantizeLinear {
    const FORMS: Forms<'m, Self> = &[
        Spec::onnx("DequantizeLinear", 10, &["x", "x_scale", "x_zero_point?"])
            .reads(|node| Self::read(node, Kind::Dequantize)),
        Spec::onnx("DynamicQuantizeLinear", 11, &["x"]).reads(|node| Self::read(node, Kind::Dynamic)),
        Spec::onnx("QuantizeLinear", 10, &["x", "y_scale", "y_zero_point?"])
            .reads(|node| Self::read(node, Kind::Quantize)),
        Spec::microsoft("DequantizeLinear", &["x", "x_scale", "x_zero_point?"])
            .reads(|node| Self::read(node, Kind::Dequantize)),
        Spec::microsoft("QuantizeLinear", &["x", "y_scale", "y_zero_point?"])
            .reads(|node| Self::read(node, Kind::Quantize)),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let x = args.value("x")?;
        if self.kind == Kind::Dynamic {
            return Ok(dynamic(to, x)?.to_vec().into());
        }
        let quantize = self.kind == Kind::Quantize;
        let scale = args.value(if quantize { "y_scale" } else { "x_scale" })?;
        let zero = args.optional(if quantize { "y_zero_point" } else { "x_zero_point" })?;
        Ok(self.apply(to, x, scale, zero)?.into())
    }
}

/// The floats that integers stand for under scales and zero points, of the scales' dtype: one for each entry of an axis, or
/// for each block of so many.
pub(super) fn dequantized(
    to: &mut Lowering<'_, '_>,
    x: ValueId,
    scale: ValueId,
    zero: Option<ValueId>,
    axis: i64,
    block: usize,
) -> RuleResult<ValueId> {
    QuantizeLinear { kind: Kind::Dequantize, axis, block, output: None, saturate: true }
        .apply(to, x, scale, zero)
}

impl QuantizeLinear {
    /// What it yields under a scale and a zero point.
    fn apply(
        &self,
        to: &mut Lowering<'_, '_>,
        x: ValueId,
        scale: ValueId,
        zero: Option<ValueId>,
    ) -> RuleResult<ValueId> {
        if to.trainable && self.block == 0 {
            return self.trained(to, x, scale, zero);
        }
        let dims = to.dims(x);
        if let Some(blocks) = self.blocks(&dims)? {
            let x = to.reshape(x, blocks)?;
            let y = self.computed(to, x, (scale, zero), true)?;
            return to.reshape(y, dims);
        }
        self.computed(to, x, (scale, zero), false)
    }

    /// What it yields in a model that is to be trained: numbers that are rounded to those which integers stand for learn as if they were
    /// not, as those of `torch.fake_quantize_per_tensor_affine` do.
    fn trained(
        &self,
        to: &mut Lowering<'_, '_>,
        x: ValueId,
        scale: ValueId,
        zero: Option<ValueId>,
    ) -> RuleResult<ValueId> {
        if self.kind == Kind::Quantize {
            // Else a parameter's integers would be computed once, before it learns.
            let fixed = detached(to, x)?;
            let integers = self.computed(to, fixed, (scale, zero), false)?;
            to.quantized_from.insert(integers, x);
            return Ok(integers);
        }
        let y = self.computed(to, x, (scale, zero), false)?;
        let range = match to.data_type(x).narrow {
            Some(Narrow::Integers(range)) => Some(range),
            Some(Narrow::Floats(_)) => None,
            None => range_of(to.dtype(x)),
        };
        let (Some(&from), Some(range)) = (to.quantized_from.get(&x), range) else { return Ok(y) };
        let (scale, zero) = self.numbers(to, (scale, zero), from, false)?;
        let fixed = detached(to, from)?;
        let wide = to.cast(fixed, DType::F32)?;
        let whole = to.formula(|f| {
            let whole = (f.value(wide) / f.value(scale)).round();
            zero.map_or(whole, |zero| whole + f.value(zero))
        })?;
        straight_through(to, from, y, whole, range)
    }

    /// The scale and the zero point in f32, with dims that broadcast to those of `x`.
    fn numbers(
        &self,
        to: &mut Lowering<'_, '_>,
        (scale, zero): (ValueId, Option<ValueId>),
        x: ValueId,
        in_blocks: bool,
    ) -> RuleResult<(ValueId, Option<ValueId>)> {
        let mut number = |value: ValueId| {
            let wide = to.cast(value, DType::F32)?;
            self.along(to, wide, x, in_blocks)
        };
        Ok((number(scale)?, zero.map(number).transpose()?))
    }

    /// The dims of an input whose blocks are all of one size, with these as an axis of their own.
    fn blocks(&self, dims: &[Dim]) -> RuleResult<Option<Vec<Dim>>> {
        if self.block == 0 {
            return Ok(None);
        }
        let axis = axis_of(self.axis, dims.len())?;
        let size = dims.get(axis).and_then(Dim::as_size).filter(|size| *size > 0 && size % self.block == 0);
        Ok(size.map(|size| {
            let mut blocks = dims.to_vec();
            blocks.splice(axis..=axis, [Dim::from(size / self.block), Dim::from(self.block)]);
            blocks
        }))
    }

    /// What it yields for `x`, which may have its blocks as an axis of their own.
    fn computed(
        &self,
        to: &mut Lowering<'_, '_>,
        x: ValueId,
        (scale, zero): (ValueId, Option<ValueId>),
        in_blocks: bool,
    ) -> RuleResult<ValueId> {
        if let Some(value) = self.measured(to, x, scale, zero)? {
            return Ok(value);
        }
        let number = of_no_parameter(to, x);
        let (x, scale, zero) = match self.kind {
            Kind::Dequantize if number != x => {
                (number, of_no_parameter(to, scale), zero.map(|zero| of_no_parameter(to, zero)))
            }
            Kind::Dequantize | Kind::Quantize | Kind::Dynamic => (x, scale, zero),
        };
        let result = to.dtype(scale);
        let (scale, points) = self.numbers(to, (scale, zero), x, in_blocks)?;
        let wide = to.cast(x, DType::F32)?;
        if self.kind == Kind::Quantize {
            let output = match (self.output, zero) {
                (Some(output), _) => output,
                (None, Some(zero)) => to.data_type(zero),
                (None, None) => DataType { dtype: DType::U8, narrow: None },
            };
            let range = match output.narrow {
                Some(Narrow::Floats(format)) => {
                    let y = to.formula(|f| {
                        let y = f.value(wide) / f.value(scale);
                        points.map_or(y, |points| y + f.value(points))
                    })?;
                    return to.round_to(y, format, self.saturate);
                }
                Some(Narrow::Integers(range)) => range,
                None => range_of(output.dtype).ok_or_else(|| unsupported(output.dtype))?,
            };
            return quantized(to, wide, scale, points, output.dtype, range);
        }
        let dtype = self.output.map_or(result, |output| output.dtype);
        to.formula(|f| {
            let wide = f.value(wide);
            let centered = points.map_or(wide, |points| wide - f.value(points));
            (centered * f.value(scale)).cast(dtype)
        })
    }
}

impl QuantizeLinear {
    /// What it yields of values that are computed, under one scale and one zero point that were measured beforehand.
    fn measured(
        &self,
        to: &mut Lowering<'_, '_>,
        x: ValueId,
        scale: ValueId,
        zero: Option<ValueId>,
    ) -> RuleResult<Option<ValueId>> {
        let quantize = self.kind == Kind::Quantize;
        let [floats, integers] = if quantize { [x, zero.unwrap_or(x)] } else { [scale, x] };
        let dtype = match zero {
            _ if !quantize => to.dtype(integers),
            Some(zero) => to.dtype(zero),
            None => DType::U8,
        };
        let plain = self.output.is_none()
            && zero.is_none_or(|zero| to.dtype(zero) == dtype && to.data_type(zero).narrow.is_none())
            && [floats, scale].iter().all(|&id| to.dtype(id) == DType::F32)
            && matches!(dtype, DType::U8 | DType::I8 | DType::U16 | DType::I16);
        if !plain || to.rank(x) == 0 || to.builder.graph.constant(x).is_some() {
            return Ok(None);
        }
        let Some(scale) = measured_number(to, scale) else { return Ok(None) };
        let zero = match zero {
            Some(zero) => measured_number(to, zero),
            None => Some(measured_zero(to, dtype)),
        };
        let Some(zero) = zero else { return Ok(None) };
        let op = if quantize { Op::Quantize } else { Op::Dequantize };
        to.add(op, &[x, scale, zero]).map(Some)
    }
}

/// The numbers `y` to which those of `x` are rounded, with the gradient of `x` where the nearest integer, `whole`, is in range, and none elsewhere.
pub(super) fn straight_through(
    to: &mut Lowering<'_, '_>,
    x: ValueId,
    y: ValueId,
    whole: ValueId,
    [low, high]: [i64; 2],
) -> RuleResult<ValueId> {
    let (y, fixed) = (detached(to, y)?, detached(to, x)?);
    let dtype = to.dtype(y);
    to.formula(|f| {
        let inside = f.value(whole).equals(f.value(whole).clamp(low as f64, high as f64));
        // 0, but for the gradient.
        let nothing = (f.value(x) - f.value(fixed)).cast(dtype);
        f.value(y) + inside.where_(nothing, nothing.number(0.0))
    })
}

/// A constant of one number as what was measured: it belongs to the record, and each place has its own.
pub(super) fn measured_number(to: &mut Lowering<'_, '_>, value: ValueId) -> Option<ValueId> {
    let constant = to.builder.graph.constant(value).filter(|constant| constant.data.num_elements() == 1)?;
    let (name, mut data) = (constant.name.clone(), constant.data.clone());
    data.shape = vec![1];
    let made = Provenance::Exporter { name: name.clone().unwrap_or_default(), keys: Vec::new() };
    Some(to.builder.graph.add_derived(None, data, Some(Arc::new(made))))
}

/// A number that the network's own code has, a root or a half, is none of its parameters, though it was quantized as these were.
fn of_no_parameter(to: &mut Lowering<'_, '_>, value: ValueId) -> ValueId {
    let own = to.builder.graph.constant(value).filter(|constant| {
        let anonymous = constant.name.as_deref().is_none_or(is_anonymous);
        let exporters = matches!(constant.provenance.as_deref(), Some(Provenance::Exporter { keys, .. }) if keys.is_empty());
        constant.data.num_elements() == 1 && anonymous && (exporters || constant.provenance.is_none())
    });
    match own.map(|constant| constant.data.clone()) {
        Some(data) => to.builder.graph.add_derived(None, data, None),
        None => value,
    }
}

/// A zero point of 0, likewise.
pub(super) fn measured_zero(to: &mut Lowering<'_, '_>, dtype: DType) -> ValueId {
    let data = TensorData::new(vec![0i64], [1]).convert_dtype(dtype);
    let made = Provenance::Exporter { name: String::new(), keys: Vec::new() };
    to.builder.graph.add_derived(None, data, Some(Arc::new(made)))
}

fn unsupported(dtype: DType) -> RuleError {
    RuleError::Unsupported { what: format!("quantization to {dtype}") }
}

/// Least and greatest number of a narrow integer dtype.
pub(super) fn range_of(dtype: DType) -> Option<[i64; 2]> {
    match dtype {
        DType::I8 | DType::U8 | DType::I16 | DType::U16 | DType::I32 | DType::I4 | DType::U4 => {
            let (least, greatest) = dtype.integers()?;
            Some([i64::try_from(least).ok()?, i64::try_from(greatest).ok()?])
        }
        _ => None,
    }
}

/// `clamp(round(x / scale) + zero)`.
fn quantized(
    to: &mut Lowering<'_, '_>,
    x: ValueId,
    scale: ValueId,
    zero: Option<ValueId>,
    dtype: DType,
    [low, high]: [i64; 2],
) -> RuleResult<ValueId> {
    to.formula(|f| {
        let mut y = (f.value(x) / f.value(scale)).round();
        if let Some(zero) = zero {
            y = y + f.value(zero);
        }
        y.clamp(low as f64, high as f64).cast(dtype)
    })
}

impl QuantizeLinear {
    /// A parameter for all of `x`, for each entry of an axis, or for each block of an axis.
    fn along(
        &self,
        to: &mut Lowering<'_, '_>,
        parameter: ValueId,
        x: ValueId,
        in_blocks: bool,
    ) -> RuleResult<ValueId> {
        let rank = to.rank(x) - usize::from(in_blocks);
        let dims = to.dims(parameter);
        if dims.is_empty() || (dims.len() == 1 && dims[0].is(1)) {
            return to.reshape(parameter, Vec::new());
        }
        let axis = axis_of(self.axis, rank)?;
        if self.block == 0 {
            let [size] = dims.as_slice() else {
                return Err(misfit("scale", format!("has rank {}", dims.len())));
            };
            let mut shape = vec![Dim::constant(1); rank];
            shape[axis] = size.clone();
            return to.reshape(parameter, shape);
        }
        if dims.len() != rank {
            return Err(misfit("scale", format!("has rank {}, the input {rank}", dims.len())));
        }
        let column = to.unsqueeze(parameter, &[axis + 1])?;
        if in_blocks {
            return Ok(column);
        }
        let block = Dim::from(self.block);
        let mut wide = to.dims(column);
        wide[axis + 1] = block.clone();
        let repeated = to.expand(column, wide)?;
        let mut joined = dims;
        joined[axis] = &joined[axis] * &block;
        let repeated = to.reshape(repeated, joined)?;
        let end = to.dims(x)[axis].clone();
        to.slice(repeated, axis, Dim::constant(0), end)
    }
}

/// Integers, scale and zero point; these from the range of the data, zero included.
pub(super) fn dynamic(to: &mut Lowering<'_, '_>, x: ValueId) -> RuleResult<[ValueId; 3]> {
    if to.rank(x) > 0 && to.dtype(x) == DType::F32 {
        let parts = to.add_all(Op::QuantizeDynamic, &[x])?;
        return parts.try_into().map_err(|_| misfit("x", "is no tensor".to_owned()));
    }
    let axes: Vec<usize> = (0..to.rank(x)).collect();
    let [scale, below] = to.formulas(|f| {
        let x = f.value(x);
        let low = x.reduce_squeezed(ReduceOp::Min, &axes).min(0.0);
        let high = x.reduce_squeezed(ReduceOp::Max, &axes).max(0.0);
        [(high - low) / 255.0, -low]
    })?;
    let zero_point = quantized(to, below, scale, None, DType::U8, [0, 255])?;
    let shift = to.cast(zero_point, DType::F32)?;
    let y = quantized(to, x, scale, Some(shift), DType::U8, [0, 255])?;
    Ok([y, scale, zero_point])
}
