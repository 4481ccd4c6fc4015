//! The dims and regions inside operations.

use super::AxisRange;
use crate::ir::{Dim, Op, Region, Symbol};
use std::collections::BTreeSet;

impl Op {
    /// Visits every dim that the operation needs at run time (not those of its results).
    pub fn for_each_dim(&self, visit: &mut dyn FnMut(&Dim)) {
        // One walk serves reading and changing; the copy is small.
        self.clone().map_dims(&mut |dim| {
            visit(dim);
            dim.clone()
        });
    }

    /// Replaces every dim of the operation, but not those in the nodes of its regions.
    pub fn map_dims(&mut self, map: &mut dyn FnMut(&Dim) -> Dim) {
        let mut all = |dims: &mut Vec<Dim>| dims.iter_mut().for_each(|dim| *dim = map(dim));
        match self {
            Op::Reshape { dims } | Op::Expand { dims } | Op::Fill { dims, .. } => all(dims),
            Op::Repeat { times } => all(times),
            Op::HostTensor { values, .. } => all(values),
            Op::Interpolate { sizes, .. } => all(sizes),
            Op::Slice { ranges } => {
                for AxisRange { start, end, .. } in ranges {
                    (*start, *end) = (map(start), map(end));
                }
            }
            Op::Pad { padding, .. } => {
                for (before, after) in padding {
                    (*before, *after) = (map(before), map(after));
                }
            }
            Op::Arange { start, end, .. } => (*start, *end) = (map(start), map(end)),
            Op::If { condition, .. } => *condition = map(condition),
            Op::Call(call) => call.call.args.iter_mut().for_each(|arg| arg.map_dims(map)),
            _ => {}
        }
    }

    /// Every symbol that the operation needs at run time.
    pub fn symbols(&self) -> BTreeSet<Symbol> {
        let mut symbols = BTreeSet::new();
        self.for_each_dim(&mut |dim| symbols.extend(dim.symbols()));
        symbols
    }

    /// The regions inside, in order.
    pub fn regions(&self) -> Vec<&Region> {
        match self {
            Op::If { then_region, else_region, .. } => vec![then_region, else_region],
            _ => Vec::new(),
        }
    }

    /// The regions inside, to change.
    pub fn regions_mut(&mut self) -> Vec<&mut Region> {
        match self {
            Op::If { then_region, else_region, .. } => vec![then_region, else_region],
            _ => Vec::new(),
        }
    }

    /// The variant's name and no more: `Conv`, `Binary(Add)`.
    pub fn kind(&self) -> String {
        let text = format!("{self:?}");
        match self {
            Op::Unary(_) | Op::Binary(_) | Op::Compare(_) => text,
            _ => text.chars().take_while(|c| c.is_alphanumeric()).collect(),
        }
    }
}
