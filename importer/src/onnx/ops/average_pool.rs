//! `AveragePool` and `LpPool`.

use super::super::lowering::{Lowering, Windows, known_padding};
use super::super::node::{SourceNode, invalid};
use super::super::operator::{Args, Operator, Outputs, Spec};
use super::conv::padded;
use super::max_pool::window_of;
use crate::ir::{Op, RuleError, RuleResult};
use kiln_types::{PoolOp, PoolOptions, Scalar};

pub(super) struct AveragePool {
    windows: Windows,
    ceil_mode: bool,
    op: PoolOp,
}

impl Operator<'_> for AveragePool {
    const SPECS: &'static [Spec] = &[Spec::onnx("AveragePool", 1, &["X"]), Spec::onnx("LpPool", 2, &["X"])];

    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        let op = if node.operator() == "AveragePool" {
            PoolOp::Average { include_pad: node.flag("count_include_pad", false)? }
        } else {
            let p = node.int("p", 2)?;
            let order = u32::try_from(p).ok().filter(|&p| p >= 1);
            PoolOp::Lp { p: order.ok_or_else(|| invalid("p", format!("is {p}, must be at least 1")))? }
        };
        Ok(Self { windows: Windows::read(node)?, ceil_mode: node.flag("ceil_mode", false)?, op })
    }

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let mut x = args.value("X")?;
        let window = window_of(to, x, &self.windows)?;
        let padding = to.padding(x, self.windows.auto_pad, &window);
        let padding = match known_padding(&padding) {
            Some(padding) => padding,
            // Padding counts in the divisor only when it is meant to.
            None if self.op == (PoolOp::Average { include_pad: false }) => {
                let what = "AveragePool that keeps an unknown size (`auto_pad`) with strides; bind the size";
                return Err(RuleError::Unsupported { what: what.to_owned() });
            }
            None => {
                x = padded(to, x, padding, Scalar::Float(0.0))?;
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
        Ok(to.add(Op::Pool(self.op, options), &[x])?.into())
    }
}
