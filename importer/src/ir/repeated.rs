//! Masks that may be given once for all: inputs with axes of size 1 where the file declares the queries' size.
//!
//! A network that does nothing with such an axis but broadcast computes with size 1 what it computes with that row repeated.

use super::op::moved_by_ones;
use super::{Dim, Expand, Graph, NodeId, Op, Pad, Permute, Region, Reshape, SymbolOrigin, ValueDef, ValueId};

/// A set of axes, a bit each; tensors have no more than 64.
type Axes = u64;

/// Axes that have the size that a symbol names, or 1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepeatedAxes {
    /// By value; empty when no value has such an axis.
    of: Vec<Axes>,
}

impl RepeatedAxes {
    /// Whether an axis of a value may have size 1 in place of its declared size.
    pub fn contains(&self, value: ValueId, axis: usize) -> bool {
        has(self.axes(value), axis)
    }

    fn axes(&self, value: ValueId) -> Axes {
        self.of.get(value.index()).copied().unwrap_or(0)
    }
}

impl Graph {
    /// The axes of the inputs that masks of attention are made of, and of what is made of those, that may have size 1 at run
    /// time: nothing that is computed with them needs more than that they broadcast, and another input has the size.
    pub fn repeated_axes(&self) -> RepeatedAxes {
        let has_attention = |&node: &NodeId| matches!(self.node(node).op, Op::Attention(_));
        if !self.root.nodes.iter().any(has_attention) {
            return RepeatedAxes::default();
        }
        // What may be 1 if all inputs might be, to see which of them may.
        let of_inputs = |of_input: &dyn Fn(ValueId, usize) -> bool| {
            let mut of = vec![0; self.values.len()];
            for &input in &self.inputs {
                of[input.index()] = set((0..self.ty(input).rank()).filter(|&axis| of_input(input, axis)));
            }
            self.follow(RepeatedAxes { of })
        };
        let suspects = of_inputs(&|input, axis| self.has_size_elsewhere(input, axis));
        let needs = self.needs(&suspects);
        of_inputs(&|input, axis| {
            let need = needs[input.index()];
            suspects.contains(input, axis) && need.is_mask && !has(need.whole, axis)
        })
    }

    /// Whether a symbol that another dim defines is the size of an input's axis.
    fn has_size_elsewhere(&self, input: ValueId, axis: usize) -> bool {
        let symbol = self.ty(input).dims.get(axis).and_then(|dim| dim.as_symbol());
        match symbol.and_then(|symbol| self.symbols.get(symbol)) {
            Some(&SymbolOrigin::Dim { value, axis: at }) => {
                (value, at) != (input, axis) && matches!(self.value(value).def, ValueDef::Input(_))
            }
            Some(SymbolOrigin::Read { .. } | SymbolOrigin::Iteration { .. }) | None => false,
        }
    }

    /// Adds the axes of all values that are 1 when those of the inputs are.
    fn follow(&self, mut axes: RepeatedAxes) -> RepeatedAxes {
        for &node in &self.root.nodes {
            let data = self.node(node);
            let &[output] = data.outputs.as_slice() else { continue };
            let operands: Vec<ValueId> = data.inputs.iter().copied().flatten().collect();
            if operands.iter().all(|&operand| axes.axes(operand) == 0) {
                continue;
            }
            let dims = &self.ty(output).dims;
            let is_one =
                |value: ValueId, axis: usize| axes.contains(value, axis) || self.ty(value).dims[axis].is(1);
            let found = match self.way(node) {
                Way::Elementwise => {
                    // A constant without axes goes with all.
                    let whole = |axis: usize| {
                        let of_rank =
                            operands.iter().filter(|&&operand| self.ty(operand).rank() == dims.len());
                        of_rank.into_iter().any(|&operand| !is_one(operand, axis))
                    };
                    set((0..dims.len()).filter(|&axis| !dims[axis].is(1) && !whole(axis)))
                }
                Way::Moved(from) => {
                    let moved = |axis: &usize| {
                        from[*axis].is_some_and(|from| operands.iter().any(|&x| axes.contains(x, from)))
                    };
                    set((0..dims.len()).filter(moved))
                }
                Way::Repeated | Way::Attention | Way::Other => 0,
            };
            axes.of[output.index()] = found;
        }
        axes
    }

    /// What the uses of each value need, when these axes may have size 1.
    fn needs(&self, axes: &RepeatedAxes) -> Vec<Need> {
        let mut needs = vec![Need::default(); self.values.len()];
        for &output in &self.root.outputs {
            needs[output.index()].whole = ALL;
        }
        let mut inner: Vec<&Region> =
            self.root.nodes.iter().flat_map(|&n| self.node(n).op.regions()).collect();
        while let Some(region) = inner.pop() {
            let of_nodes = region.nodes.iter().flat_map(|&node| self.node(node).inputs.iter().flatten());
            for value in of_nodes.chain(&region.outputs) {
                needs[value.index()].whole = ALL;
            }
            inner.extend(region.nodes.iter().flat_map(|&node| self.node(node).op.regions()));
        }
        for &node in self.root.nodes.iter().rev() {
            let data = self.node(node);
            let way = self.way(node);
            // Where the result has its whole size anyway, nothing depends on the operand's.
            let after = match *data.outputs.as_slice() {
                [output] => {
                    let need = needs[output.index()];
                    Need { whole: need.whole & axes.axes(output), ..need }
                }
                _ => Need::default(),
            };
            for (n, &operand) in data.inputs.iter().enumerate() {
                let Some(operand) = operand else { continue };
                let need = match &way {
                    Way::Elementwise | Way::Repeated => after,
                    Way::Moved(from) => {
                        let axes = |wanted: &dyn Fn(usize) -> bool| {
                            let moved = from.iter().enumerate().filter(|&(axis, _)| wanted(axis));
                            set(moved.filter_map(|(_, &from)| from))
                        };
                        let whole = axes(&|axis| has(after.whole, axis)) | !axes(&|_| true);
                        Need { whole, ..after }
                    }
                    Way::Attention if n == 3 => Need { whole: 0, is_mask: true },
                    Way::Attention | Way::Other => Need { whole: ALL, is_mask: false },
                };
                let known = &mut needs[operand.index()];
                known.whole |= need.whole;
                known.is_mask |= need.is_mask;
            }
        }
        needs
    }

    /// What a node does with its operands' axes.
    fn way(&self, node: NodeId) -> Way {
        let data = self.node(node);
        let dims = |value: &Option<ValueId>| value.map(|value| self.ty(value).dims.as_slice());
        let from = data.inputs.first().and_then(dims).unwrap_or_default();
        match &data.op {
            Op::Unary(_)
            | Op::Binary(_)
            | Op::Compare(_)
            | Op::Activation(_)
            | Op::Clamp(_)
            | Op::Cast(_)
            | Op::Where
            | Op::Elementwise(_) => Way::Elementwise,
            Op::Reshape(Reshape { dims }) => moved_by_ones(from, dims).map_or(Way::Other, Way::Moved),
            Op::Permute(Permute { axes }) => Way::Moved(axes.iter().copied().map(Some).collect()),
            Op::Pad(Pad { padding, .. }) => {
                let axis = |(axis, (before, after)): (usize, &(Dim, Dim))| {
                    (before.is(0) && after.is(0)).then_some(axis)
                };
                Way::Moved(padding.iter().enumerate().map(axis).collect())
            }
            Op::Expand(Expand { dims })
                if from.iter().zip(dims).all(|(from, to)| from.is(1) || from == to) =>
            {
                Way::Repeated
            }
            Op::Attention(_) => Way::Attention,
            _ => Way::Other,
        }
    }
}

/// What the uses of a value need.
#[derive(Clone, Copy, Debug, Default)]
struct Need {
    /// The axes that must have their declared size.
    whole: Axes,
    /// Whether a mask of attention is made of it.
    is_mask: bool,
}

/// What becomes of the axes of operands.
enum Way {
    /// Operands broadcast.
    Elementwise,
    /// Each axis of the result is one of the first operand's, or none.
    Moved(Vec<Option<usize>>),
    /// Axes of size 1 are repeated.
    Repeated,
    /// The last operand is a mask, which broadcasts.
    Attention,
    /// Sizes may matter.
    Other,
}

const ALL: Axes = Axes::MAX;

fn has(axes: Axes, axis: usize) -> bool {
    axes.checked_shr(axis as u32).is_some_and(|rest| rest & 1 == 1)
}

fn set(axes: impl Iterator<Item = usize>) -> Axes {
    axes.fold(0, |set, axis| set | 1_u64.checked_shl(axis as u32).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: [usize; 0] = [];

    /// The axes of a mask that may be 1 where it is used like this.
    fn axes(body: &str, outputs: &str) -> Vec<usize> {
        let text = format!(
            "graph \"masks\" {{
              %q: f32[b, 1, s, 4] = input \"q\"
              %k: f32[b, 1, t, 4] = input \"k\"
              %mask: f32[b, 1, s, t] = input \"mask\"
              %other: f32[b, 1, s, t] = input \"other\"
              symbol b = dim 0 of %q
              symbol s = dim 2 of %q
              symbol t = dim 2 of %k
              {body}
              return {outputs}
            }}"
        );
        let graph = Graph::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(graph.verify(), Ok(()), "{text}");
        let repeated = graph.repeated_axes();
        (0..4).filter(|&axis| repeated.contains(graph.inputs[2], axis)).collect()
    }

    #[test]
    fn what_only_broadcasts_into_a_mask_may_be_one() {
        let attend = |mask: &str| {
            format!("%y: f32[b, 1, s, 4] = Attention {{ is_causal: false }} %q, %k, %k, %{mask}")
        };
        let made = |line: &str| format!("{line}\n{}", attend("m"));
        let of_one = |line: &str| axes(&made(line), "%y \"y\"");
        let beside = |line: &str, outputs: &str| axes(&format!("{line}\n{}", attend("mask")), outputs);
        assert_eq!(axes(&attend("mask"), "%y \"y\""), [0, 2, 3]);
        assert_eq!(of_one("%m: f32[b, 1, s, t] = Unary(Neg) %mask"), [0, 2, 3]);
        assert_eq!(of_one("%m: f32[b, 1, s, t] = Binary(Add) %other, %mask"), [0, 2, 3]);
        assert_eq!(of_one("%m: f32[b, 1, s, t] = Expand { dims: [b, 1, s, t] } %mask"), [0, 2, 3]);
        let twice = "%flat: f32[b, s, t] = Reshape { dims: [b, s, t] } %mask
                     %m: f32[b, 1, s, t] = Reshape { dims: [b, 1, s, t] } %flat";
        assert_eq!(of_one(twice), [0, 2, 3]);
        let scores = "%keys: f32[b, 1, 4, t] = Permute { axes: [0, 1, 3, 2] } %k
                      %scores: f32[b, 1, s, t] = MatMul %q, %keys
                      %z: f32[b, 1, s, t] = Binary(Add) %scores, %mask";
        assert_eq!(beside(scores, "%y \"y\", %z \"z\""), [0, 2, 3]);

        // Its own size is seen.
        assert_eq!(beside("", "%y \"y\", %mask \"mask\""), NONE);
        assert_eq!(beside("%z: f32[b, 1, s, t] = Unary(Neg) %mask", "%y \"y\", %z \"z\""), NONE);
        assert_eq!(of_one("%m: f32[b, 1, s, t] = Softmax { axis: 3 } %mask"), NONE);
        let flat = "%flat: f32[b*s*t] = Reshape { dims: [b*s*t] } %mask";
        assert_eq!(beside(flat, "%y \"y\", %flat \"z\""), NONE);
        // What is no mask has its declared sizes.
        assert_eq!(axes("%y: f32[b, 1, s, t] = Binary(Add) %other, %mask", "%y \"y\""), NONE);
        let elsewhere = "%y: f32[b, 1, s, 4] = Attention { is_causal: false } %q, %k, %k, %other
                         %z: f32[b, 1, s, t] = Unary(Neg) %mask";
        assert_eq!(axes(elsewhere, "%y \"y\", %z \"z\""), NONE);
    }

    #[test]
    fn a_size_that_nothing_else_has_is_that_of_the_mask() {
        let text = "graph \"masks\" {
          %mask: bool[b, 1, 1, 3] = input \"mask\"
          %q: f32[b, 1, 2, 4] = input \"q\"
          %k: f32[b, 1, 3, 4] = input \"k\"
          symbol b = dim 0 of %mask
          %y: f32[b, 1, 2, 4] = Attention { is_causal: false } %q, %k, %k, %mask
          return %y \"y\"
        }";
        let graph = Graph::parse(text).unwrap_or_else(|error| panic!("{error}"));
        assert!(!graph.repeated_axes().contains(graph.inputs[0], 0));
    }
}
