//! `AveragePool` and `LpPool`.

use super::super::lowering::{WindowAttributes, WindowOptions, known_padding};
use super::conv::padded;
use super::global_pool::order;
use super::max_pool::window_of;
use super::prelude::*;
use crate::ir::op;
use kiln_types::{PoolOp, PoolOptions};

pub(super) struct AveragePool {
    windows: WindowAttributes,
    ceil_mode: bool,
    op: PoolOp,
}

impl AveragePool {
    fn read(node: &mut SourceNode<'_>, op: PoolOp) -> RuleResult<Self> {
        Ok(Self { windows: WindowAttributes::read(node)?, ceil_mode: node.flag("ceil_mode", false)?, op })
    }

    fn read_average(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        let include_pad = node.flag("count_include_pad", false)?;
        Self::read(node, PoolOp::Average { include_pad })
    }

    fn read_lp(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        let p = order(node)?;
        let order = u32::try_from(p).ok().filter(|&p| p >= 1);
        let p = order.ok_or_else(|| invalid("p", format!("is {p}, must be at least 1")))?;
        Self::read(node, PoolOp::Lp { p })
    }
}

impl<'m> Operator<'m> for AveragePool {
    const FORMS: Forms<'m, Self> = &[
        Spec::onnx("AveragePool", 1, &["X"]).reads(Self::read_average),
        Spec::onnx("LpPool", 1, &["X"]).reads(Self::read_lp),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let x = args.value("X")?;
        let window = window_of(to, x, &self.windows)?;
        let padding = to.padding(x, self.windows.auto_pad, &window);
        Ok(pool(to, x, self.op, window, padding, self.ceil_mode)?.into())
    }
}

/// A pooling over windows whose padding may not be known before the run.
pub(super) fn pool(
    to: &mut Lowering<'_, '_>,
    x: ValueId,
    op: PoolOp,
    window: WindowOptions,
    padding: Vec<(Dim, Dim)>,
    ceil_mode: bool,
) -> RuleResult<ValueId> {
    let known = known_padding(&padding);
    let options = PoolOptions {
        padding: known.clone().unwrap_or_else(|| vec![(0, 0); window.kernel.len()]).into(),
        kernel: window.kernel.into(),
        stride: window.stride.into(),
        dilation: window.dilation.into(),
        ceil_mode,
    };
    if known.is_some() {
        return to.add(Op::Pool(op::Pool { op, options }), &[x]);
    }
    let zeros = padded(to, x, padding.clone(), Scalar::Float(0.0))?;
    if op != (PoolOp::Average { include_pad: false }) {
        return to.add(Op::Pool(op::Pool { op, options }), &[zeros]);
    }
    // Padding does not count: the mean with its zeros over the share of the window that is no padding.
    let mut dims = to.dims(x);
    dims.iter_mut().take(2).for_each(|dim| *dim = Dim::constant(1));
    let ones = to.fill(dims, 1.0, to.dtype(x))?;
    let ones = padded(to, ones, padding, Scalar::Float(0.0))?;
    let mean = PoolOp::Average { include_pad: true };
    let sum = to.add(Op::Pool(op::Pool { op: mean, options: options.clone() }), &[zeros])?;
    let share = to.add(Op::Pool(op::Pool { op: mean, options }), &[ones])?;
    to.binary(BinaryOp::Div, sum, share)
}
