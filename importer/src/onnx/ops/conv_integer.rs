//! `ConvInteger` and `QLinearConv`: convolutions of quantized tensors. The latter is in ONNX Runtime's domain too, where it
//! may have the channels last.

use super::super::lowering::{WindowAttributes, known_padding};
use super::conv::{kernel_of, padded};
use super::matmul_integer::{centered, requantized};
use super::prelude::*;
use crate::ir::op;
use kiln_types::ConvOptions;

pub(super) struct ConvInteger {
    windows: WindowAttributes,
    groups: usize,
    requantize: bool,
    channels_last: bool,
}

const QLINEAR: &[&str] =
    &["x", "x_scale", "x_zero_point", "w", "w_scale", "w_zero_point", "y_scale", "y_zero_point", "B?"];

impl ConvInteger {
    fn read(node: &mut SourceNode<'_>, requantize: bool) -> RuleResult<Self> {
        let groups = node.size("group", 1)?;
        Ok(Self { windows: WindowAttributes::read(node)?, groups, requantize, channels_last: false })
    }

    fn read_microsoft(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        let channels_last = node.flag("channels_last", false)?;
        Ok(Self { channels_last, ..Self::read(node, true)? })
    }
}

impl<'m> Operator<'m> for ConvInteger {
    const FORMS: Forms<'m, Self> = &[
        Spec::onnx("ConvInteger", 10, &["x", "w", "x_zero_point?", "w_zero_point?"])
            .reads(|node| Self::read(node, false)),
        Spec::onnx("QLinearConv", 10, QLINEAR).reads(|node| Self::read(node, true)),
        Spec::microsoft("QLinearConv", QLINEAR).reads(Self::read_microsoft),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let weight = args.value("w")?;
        let channels = to.dims(weight).first().cloned().unwrap_or(Dim::constant(1));
        let mut x = args.value("x")?;
        if self.channels_last {
            x = to.channels_first(x)?;
        }
        let mut x_zero =
            args.optional("x_zero_point")?.map(|zero| to.reshape(zero, Vec::new())).transpose()?;
        let w_zero =
            args.optional("w_zero_point")?.map(|zero| first_axis(to, zero, to.rank(weight))).transpose()?;
        let spatial = to.spatial("x", x)?;
        let kernel = kernel_of(to, weight, spatial, &self.windows)?;
        let window = self.windows.over(spatial, kernel)?;
        let padding = to.padding(x, self.windows.auto_pad, &window);
        let padding = match known_padding(&padding) {
            Some(padding) => padding,
            None => {
                // The border stands for 0, and the zero point may not be known before the run.
                let centered = centered(to, x, x_zero.take())?;
                x = padded(to, centered, padding, Scalar::Int(0))?;
                vec![(0, 0); spatial]
            }
        };
        let options = ConvOptions {
            stride: window.stride.into(),
            padding: padding.into(),
            dilation: window.dilation.into(),
            groups: self.groups,
        };
        let operands = [Some(x), Some(weight), x_zero, w_zero];
        let mut sum = to.add_optional(Op::ConvInteger(op::ConvInteger { options }), &operands)?;
        if !self.requantize {
            return Ok(sum.into());
        }
        let rank = spatial + 2;
        if let Some(bias) = args.optional("B")? {
            let bias = channel_axis(to, bias, &channels, rank)?;
            sum = to.binary(BinaryOp::Add, sum, bias)?;
        }
        let w_scale = args.value("w_scale")?;
        let w_scale = if to.ty(w_scale).num_elements().is(1) {
            to.reshape(w_scale, Vec::new())?
        } else {
            channel_axis(to, w_scale, &channels, rank)?
        };
        let x_scale = to.reshape(args.value("x_scale")?, Vec::new())?;
        let scale = to.binary(BinaryOp::Mul, w_scale, x_scale)?;
        let y = requantized(to, sum, scale, args.value("y_scale")?, args.value("y_zero_point")?)?;
        Ok(if self.channels_last { to.channels_last(y)? } else { y }.into())
    }
}

/// A parameter an entry of the first axis.
fn first_axis(to: &mut Lowering<'_, '_>, value: ValueId, rank: usize) -> RuleResult<ValueId> {
    let mut dims = to.dims(value);
    if dims.len() == 1 && !dims[0].is(1) {
        dims.resize(rank, Dim::constant(1));
        return to.reshape(value, dims);
    }
    to.reshape(value, Vec::new())
}

/// A parameter a channel.
fn channel_axis(
    to: &mut Lowering<'_, '_>,
    value: ValueId,
    channels: &Dim,
    rank: usize,
) -> RuleResult<ValueId> {
    let mut dims = vec![Dim::constant(1); rank];
    dims[1] = channels.clone();
    to.reshape(value, dims)
}
