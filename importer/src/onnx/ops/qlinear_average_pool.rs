//! `QLinearAveragePool` and `QLinearGlobalAveragePool`: means of integers that stand for numbers.

use super::super::lowering::{WindowAttributes, WindowOptions};
use super::average_pool::pool;
use super::max_pool::window_of;
use super::prelude::*;
use super::quantization::Quantization;
use kiln_types::PoolOp;

pub(super) struct QLinearAveragePool {
    /// None over everything spatial.
    local: Option<Local>,
    channels_last: bool,
}

/// Means over windows.
struct Local {
    windows: WindowAttributes,
    ceil_mode: bool,
    include_pad: bool,
}

impl QLinearAveragePool {
    fn read_local(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        let local = Local {
            windows: WindowAttributes::read(node)?,
            ceil_mode: node.flag("ceil_mode", false)?,
            include_pad: node.flag("count_include_pad", false)?,
        };
        Ok(Self { local: Some(local), channels_last: node.flag("channels_last", false)? })
    }

    fn read_global(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self { local: None, channels_last: node.flag("channels_last", false)? })
    }
}

impl<'m> Operator<'m> for QLinearAveragePool {
    const FORMS: Forms<'m, Self> = &[
        Spec::microsoft("QLinearAveragePool", &["X", "x_scale", "x_zero_point?", "y_scale", "y_zero_point?"])
            .reads(Self::read_local),
        Spec::microsoft(
            "QLinearGlobalAveragePool",
            &["X", "x_scale", "x_zero_point", "y_scale", "y_zero_point"],
        )
        .reads(Self::read_global),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let x = args.value("X")?;
        let dtype = to.dtype(x);
        let of_x = Quantization::read(args, to, dtype, ["x_scale", "x_zero_point"])?;
        let of_y = Quantization::read(args, to, dtype, ["y_scale", "y_zero_point"])?;
        to.need_rank("X", x, 3)?;
        let x = if self.channels_last { to.channels_first(x)? } else { x };
        let y = match &self.local {
            None => global(to, x, of_x, of_y)?,
            Some(local) => local.mean(to, x, of_x, of_y)?,
        };
        Ok(if self.channels_last { to.channels_last(y)? } else { y }.into())
    }
}

impl Local {
    fn mean(
        &self,
        to: &mut Lowering<'_, '_>,
        x: ValueId,
        of_x: Quantization,
        of_y: Quantization,
    ) -> RuleResult<ValueId> {
        let window = window_of(to, x, &self.windows)?;
        let mut padding = to.padding(x, self.windows.auto_pad, &window);
        let sizes = to.dims(x);
        let zero = Dim::constant(0);
        let covers = |(size, &kernel): (&Dim, &usize)| *size == Dim::from(kernel);
        let is_padded = padding.iter().any(|(before, after)| *before != zero || *after != zero);
        if !is_padded && sizes.iter().skip(2).zip(&window.kernel).all(covers) {
            return global(to, x, of_x, of_y);
        }
        let mut ceil_mode = self.ceil_mode;
        if ceil_mode && self.include_pad {
            // What a window that hangs over the padding misses counts as well.
            for (axis, (before, after)) in padding.iter_mut().enumerate() {
                *after = &*after + &missing(to, &window, axis, &sizes[axis + 2], (before, after));
            }
            ceil_mode = false;
        }
        let op = PoolOp::Average { include_pad: self.include_pad };
        let numbers = of_x.dequantized(to, x)?;
        let means = pool(to, numbers, op, window, padding, ceil_mode)?;
        to.formula(|f| of_y.shifted_before(f, f.value(means) / f.value(of_y.scale)))
    }
}

/// How far the last window of an axis hangs over its padding, when places are counted up.
fn missing(
    to: &Lowering<'_, '_>,
    window: &WindowOptions,
    axis: usize,
    size: &Dim,
    (before, after): (&Dim, &Dim),
) -> Dim {
    let (one, stride, extent) = (Dim::constant(1), Dim::from(window.stride[axis]), window.extent(axis));
    let before = size + before;
    let padded = &before + after;
    // The last window starts before the padding behind the axis.
    let steps = (&padded - &extent).ceil_div(&stride).minimum(&(&before.ceil_div(&stride) - &one));
    let reach = &(&steps * &stride) + &extent;
    to.builder.graph.maximum(&(&reach - &padded), &Dim::constant(0))
}

/// Means over everything spatial: exact sums, then one rounding.
fn global(
    to: &mut Lowering<'_, '_>,
    x: ValueId,
    of_x: Quantization,
    of_y: Quantization,
) -> RuleResult<ValueId> {
    let axes: Vec<usize> = (2..to.rank(x)).collect();
    let count = Dim::product(to.dims(x).get(2..).unwrap_or_default());
    let count = to.builder.host_tensor(vec![count], Vec::new())?;
    let steps = to.formula(|f| {
        let sum = of_x.centered(f, x).cast(DType::I32).sum(&axes).cast(DType::F32);
        let step = f.value(of_x.scale) / (f.value(of_y.scale) * f.value(count).cast(DType::F32));
        sum * step
    })?;
    of_y.quantized_steps(to, steps)
}
