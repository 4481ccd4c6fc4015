//! Chains of elementwise operations as one program.
//!
//! Comes after the raises, which people read; a program pays when it saves passes over memory, so it has at least
//! [`MIN_STEPS`] operations, all of the result's own dims.

use super::{Rewrite, Rule};
use crate::ir::{Node, Op, ValueId};
use kiln_types::{Activation, BinaryOp, DType, Expression, Step, StepId};

pub(super) const RULE: Rule = Rule { apply };

/// Fewer operations stay as they are.
const MIN_STEPS: usize = 3;
/// More instructions do not fit registers well.
const MAX_STEPS: usize = 16;
/// More operands do not fit caches well.
const MAX_OPERANDS: usize = 6;

fn apply(cx: &mut Rewrite<'_>) -> Option<&'static str> {
    let output = cx.output()?;
    if !fusible(cx, cx.node()) {
        return None;
    }
    // The last of a chain takes it all.
    if cx.used_once(output) && cx.only_user(output).is_some_and(|user| takes(cx, user, output)) {
        return None;
    }
    let mut chain =
        Chain { root: output, steps: Vec::new(), operands: Vec::new(), operations: 0, visited: 0 };
    let node = cx.node().clone();
    chain.node(cx, &node)?;
    if chain.operations < MIN_STEPS || chain.steps.len() > MAX_STEPS || chain.operands.len() > MAX_OPERANDS {
        return None;
    }
    let operands = chain.operands.into_iter().map(Some).collect();
    cx.replace(Op::Elementwise(Expression::new(chain.steps)), operands)?;
    Some("elementwise chain")
}

/// Whether an operation can be a step: f32, over f32.
fn fusible(cx: &Rewrite<'_>, node: &Node) -> bool {
    // In a program, a number is a bound, whose gradient where both are equal is another one.
    let is_number = |id: &Option<ValueId>| id.is_some_and(|id| cx.graph().number(id).is_some());
    let shares = matches!(node.op, Op::Binary(BinaryOp::Max | BinaryOp::Min));
    if shares && cx.options.trainable && node.inputs.iter().any(is_number) {
        return false;
    }
    let shape = matches!(
        node.op,
        Op::Unary(_) | Op::Binary(_) | Op::Activation(_) | Op::Clamp(_) | Op::Compare(_) | Op::Where
    );
    let operand = |id: &Option<ValueId>| id.is_some_and(|id| cx.ty(id).dtype == DType::F32);
    let condition = usize::from(node.op == Op::Where);
    shape && node.inputs.iter().skip(condition).all(operand)
}

/// Whether `user` would take the node that computes `id` into its own chain.
fn takes(cx: &Rewrite<'_>, user: &Node, id: ValueId) -> bool {
    let same = user.outputs.first().is_some_and(|&output| cx.ty(output).dims == cx.ty(id).dims);
    same && fusible(cx, user)
}

struct Chain {
    root: ValueId,
    steps: Vec<Step>,
    operands: Vec<ValueId>,
    operations: usize,
    /// Operations that were looked at, those not yet a step among them.
    visited: usize,
}

impl Chain {
    fn push(&mut self, step: Step) -> Option<StepId> {
        let found = self.steps.iter().position(|old| *old == step);
        let at = found.unwrap_or_else(|| {
            self.steps.push(step);
            self.steps.len() - 1
        });
        StepId::try_from(at).ok()
    }

    /// The step that yields a value: a number, an operand, or an operation that nobody else needs.
    fn value(&mut self, cx: &Rewrite<'_>, id: ValueId) -> Option<StepId> {
        if cx.ty(id).rank() == 0
            && let Some(number) = cx.graph().number(id)
        {
            return self.push(Step::Constant(number, cx.ty(id).dtype));
        }
        let room = self.steps.len() + 4 < MAX_STEPS;
        if room
            && cx.used_once(id)
            && cx.ty(id).dims == cx.ty(self.root).dims
            && let Some(node) = cx.producer(id)
            && fusible(cx, node)
        {
            let node = node.clone();
            return self.node(cx, &node);
        }
        let n = self.operands.iter().position(|&operand| operand == id).unwrap_or_else(|| {
            self.operands.push(id);
            self.operands.len() - 1
        });
        self.push(Step::Input(u16::try_from(n).ok()?))
    }

    fn node(&mut self, cx: &Rewrite<'_>, node: &Node) -> Option<StepId> {
        // A chain that is too long is not followed to its end. (Equal steps are one, so that a few more may fit.)
        self.visited += 1;
        if self.visited > 2 * MAX_STEPS {
            return None;
        }
        let mut operands = Vec::with_capacity(3);
        for &input in &node.inputs {
            operands.push(self.value(cx, input?)?);
        }
        let at = |n: usize| operands.get(n).copied();
        let step = match &node.op {
            Op::Unary(op) => Step::Unary(*op, at(0)?),
            Op::Binary(op) => Step::Binary(*op, at(0)?, at(1)?),
            Op::Compare(op) => Step::Compare(*op, at(0)?, at(1)?),
            Op::Activation(activation) => Step::Activation(*activation, at(0)?),
            Op::Where => Step::Where(at(0)?, at(1)?, at(2)?),
            Op::Clamp(clamp) => {
                let (min, max) = clamp.bounds(cx.ty(node.inputs.first().copied().flatten()?).dtype);
                Step::Activation(Activation::Clamp { min, max }, at(0)?)
            }
            _ => return None,
        };
        self.operations += 1;
        self.push(step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::testing::{checked, constant, graph, kinds};
    use kiln_types::UnaryOp;

    #[test]
    fn long_chains_are_fused_and_short_ones_stay() {
        for (length, expected) in [(2, vec!["Unary(Exp)", "Unary(Sin)"]), (3, vec!["Elementwise"])] {
            let g = graph(&["f32[n, 3]", "f32[1, 3]"], |b, x| {
                let mut y = b.add(Op::Unary(UnaryOp::Exp), &[x[0]]).unwrap();
                if length > 2 {
                    let c = constant(b, None, &[], &[0.3]);
                    y = b.add(Op::Binary(BinaryOp::Mul), &[y, c]).unwrap();
                    y = b.add(Op::Binary(BinaryOp::Sub), &[x[1], y]).unwrap();
                }
                vec![b.add(Op::Unary(UnaryOp::Sin), &[y]).unwrap()]
            });
            assert_eq!(kinds(&checked(g, &[("n", 4)])), expected);
        }
    }
}
