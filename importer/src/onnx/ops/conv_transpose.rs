//! `ConvTranspose`: one to three spatial axes; padding given, or found from the wanted size.

use super::super::lowering::{AutoPad, WindowAttributes, WindowOptions};
use super::super::node::{MAX_SIZE, sizes_of};
use super::conv::kernel_of;
use super::prelude::*;
use crate::ir::op;
use kiln_types::{ConvTransposeOptions, PadMode};

pub(super) struct ConvTranspose {
    windows: WindowAttributes,
    groups: usize,
    output_padding: Option<Vec<i64>>,
    output_shape: Option<Vec<i64>>,
}

impl ConvTranspose {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self {
            windows: WindowAttributes::read(node)?,
            groups: node.size("group", 1)?,
            output_padding: node.ints("output_padding")?,
            output_shape: node.ints("output_shape")?,
        })
    }
}

impl<'m> Operator<'m> for ConvTranspose {
    const FORMS: Forms<'m, Self> = &[Spec::onnx("ConvTranspose", 1, &["X", "W", "B?"]).reads(Self::read)];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let (x, weight) = (args.value("X")?, args.value("W")?);
        let spatial = to.spatial("X", x)?;
        let kernel = kernel_of(to, weight, spatial, &self.windows)?;
        let window = self.windows.over(spatial, kernel)?;
        let sizes = |name: &str, values: &[i64]| sizes_of(name, values, 0..=MAX_SIZE, Some(spatial));
        let mut extra = match &self.output_padding {
            Some(extra) => sizes("output_padding", extra)?,
            None => vec![0; spatial],
        };
        let shape = match &self.output_shape {
            // Batch and channels may be named too.
            Some(shape) if shape.len() == spatial + 2 => {
                Some(sizes("output_shape", shape.get(2..).unwrap_or_default())?)
            }
            Some(shape) => Some(sizes("output_shape", shape)?),
            None => None,
        };
        self.grow(to, x, &window, &mut extra, shape.as_deref());
        let cut = self.cut(to, x, &window, &extra, shape.as_deref())?;
        let known: Option<Vec<(usize, usize)>> =
            cut.iter().map(|(before, after)| Some((before.as_size()?, after.as_size()?))).collect();
        let options = ConvTransposeOptions {
            stride: window.stride.into(),
            padding: known.clone().unwrap_or_else(|| vec![(0, 0); spatial]).into(),
            output_padding: extra.into(),
            dilation: window.dilation.into(),
            groups: self.groups,
        };
        let bias = args.optional("B")?;
        if known.is_some() {
            let inputs = [x, weight].into_iter().chain(bias).map(Some).collect();
            return Ok(to.builder.add_all(Op::ConvTranspose(options), inputs)?.into());
        }
        // What no window reaches has the bias, too.
        let apart = bias.filter(|_| shape.is_some());
        let within = bias.filter(|_| shape.is_none());
        let operands: Vec<ValueId> = [x, weight].into_iter().chain(within).collect();
        let mut y = to.add(Op::ConvTranspose(options), &operands)?;
        for (axis, (before, after)) in cut.iter().enumerate() {
            let full = to.dims(y)[axis + 2].clone();
            y = match shape.as_ref().and_then(|shape| shape.get(axis)) {
                Some(&wanted) => to_size(to, y, axis + 2, (before, &full), wanted)?,
                None => to.slice(y, axis + 2, before.clone(), &full - after)?,
            };
        }
        if let Some(bias) = apart {
            let bias = to.unsqueeze(bias, &(1..=spatial).collect::<Vec<_>>())?;
            let bias = to.unsqueeze(bias, &[0])?;
            y = to.binary(BinaryOp::Add, y, bias)?;
        }
        Ok(y.into())
    }
}

impl ConvTranspose {
    /// A size larger than the full result is reached by more output padding.
    fn grow(
        &self,
        to: &Lowering<'_, '_>,
        x: ValueId,
        window: &WindowOptions,
        extra: &mut [usize],
        shape: Option<&[usize]>,
    ) {
        let input = to.dims(x);
        for (axis, extra) in extra.iter_mut().enumerate() {
            let extent = window.extent(axis).as_size().unwrap_or(usize::MAX);
            let size = input[axis + 2].as_size().filter(|&size| size > 0);
            if let (Some(shape), Some(size)) = (shape, size) {
                let full = (size - 1).saturating_mul(window.stride[axis]).saturating_add(extent);
                *extra = (*extra).max(shape[axis].saturating_sub(full));
            }
        }
    }

    /// What is cut off before and after each axis of the full result.
    fn cut(
        &self,
        to: &Lowering<'_, '_>,
        x: ValueId,
        window: &WindowOptions,
        extra: &[usize],
        shape: Option<&[usize]>,
    ) -> RuleResult<Vec<(Dim, Dim)>> {
        let same = matches!(self.windows.auto_pad, AutoPad::SameUpper | AutoPad::SameLower);
        if shape.is_none() && !same {
            return Ok(window.explicit.iter().map(|&(a, b)| (Dim::from(a), Dim::from(b))).collect());
        }
        let input = to.dims(x);
        let two = Dim::constant(2);
        let mut cut = Vec::with_capacity(extra.len());
        for axis in 0..window.kernel.len() {
            let (size, stride) = (&input[axis + 2], Dim::from(window.stride[axis]));
            let extent = &window.extent(axis) + &Dim::from(extra[axis]);
            let full = &(&(size - &Dim::constant(1)) * &stride) + &extent;
            let wanted = shape.map_or_else(|| size * &stride, |shape| Dim::from(shape[axis]));
            let total = to.builder.graph.maximum(&(&full - &wanted), &Dim::constant(0));
            let half = total.floor_div(&two);
            let rest = &total - &half;
            cut.push(if self.windows.auto_pad == AutoPad::SameUpper { (half, rest) } else { (rest, half) });
        }
        Ok(cut)
    }
}

/// An axis of a full result, whose size only the run tells, cut from `before` on, or filled up with zeros at its end, to the wanted size.
fn to_size(
    to: &mut Lowering<'_, '_>,
    y: ValueId,
    axis: usize,
    (before, full): (&Dim, &Dim),
    wanted: usize,
) -> RuleResult<ValueId> {
    let lacking = to.builder.graph.maximum(&(&Dim::from(wanted) - full), &Dim::constant(0));
    let mut padding = vec![(Dim::constant(0), Dim::constant(0)); to.rank(y)];
    padding[axis] = (Dim::constant(0), lacking);
    let pad = op::Pad { padding, mode: PadMode::Constant, value: Scalar::Int(0) };
    let filled = to.add(Op::Pad(pad), &[y])?;
    to.slice(filled, axis, before.clone(), before + &Dim::from(wanted))
}
