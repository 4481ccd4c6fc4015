//! How an operation gets onto the tape: one way for all of them.

use crate::checkpoint::{CheckpointStrategy, Forward, Recipe, Saved};
use crate::tape::{Node, NodeRef, Parents};
use crate::tensor::AutodiffTensor;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use kiln_tensor::backend::{Backend, Primitive};
use kiln_tensor::{DType, InlineVec, ReduceOp, Scalar, Shape};

/// Gradients of an operation's operands, in their order; nothing for one whose gradient is not wanted, or is 0.
pub(crate) type Gradients<B> = Vec<Option<<B as Backend>::Primitive>>;

/// An operation that is about to run.
pub(crate) struct Operation<B: Backend> {
    name: &'static str,
    operands: Vec<AutodiffTensor<B>>,
    /// Which operands the way back needs.
    keeps: InlineVec<bool>,
    keeps_result: bool,
    cheap: bool,
    accumulates: bool,
}

/// What an operation knows on the way back.
pub(crate) struct Context<B: Backend> {
    /// The gradient of the result.
    pub gradient: B::Primitive,
    /// For each operand, whether its gradient is wanted.
    pub wanted: InlineVec<bool>,
    /// The dims of each operand.
    pub shapes: InlineVec<Shape>,
    /// The gradient that the first operand of an accumulating operation has from its other uses so far.
    pub present: Option<B::Primitive>,
    operands: Vec<Option<Saved<B>>>,
    result: Option<Saved<B>>,
}

impl<B: Backend> Context<B> {
    /// An operand that was kept.
    pub(crate) fn operand(&self, n: usize) -> B::Primitive {
        match self.operands.get(n) {
            Some(Some(saved)) => saved.clone().get(),
            _ => unreachable!("an operation keeps every operand that its way back asks for"),
        }
    }

    /// [`Context::operand`], for the last time: if no other operation keeps it, its memory may be written.
    pub(crate) fn take_operand(&mut self, n: usize) -> B::Primitive {
        match self.operands.get_mut(n).and_then(Option::take) {
            Some(saved) => saved.get(),
            None => unreachable!("an operation keeps every operand that its way back takes, once"),
        }
    }

    /// The result, if it was kept.
    pub(crate) fn result(&self) -> B::Primitive {
        match &self.result {
            Some(saved) => saved.clone().get(),
            None => unreachable!("an operation keeps its result if its way back asks for it"),
        }
    }
}

impl<B: Backend> Operation<B> {
    /// An operation of which the way back needs nothing but the dims of its operands.
    pub(crate) fn new(name: &'static str, operands: Vec<AutodiffTensor<B>>) -> Self {
        let keeps = InlineVec::repeat(false, operands.len());
        Self { name, operands, keeps, keeps_result: false, cheap: false, accumulates: false }
    }

    /// The tensors that it computes on.
    pub(crate) fn operands(&self) -> &[AutodiffTensor<B>] {
        &self.operands
    }

    /// The way back needs an operand.
    pub(crate) fn keep(mut self, n: usize) -> Self {
        self.keeps[n] = true;
        self
    }

    /// The way back needs an operand, for the gradient of another.
    pub(crate) fn keep_for(self, n: usize, of: usize) -> Self {
        if self.operands[of].is_tracked() { self.keep(n) } else { self }
    }

    /// The way back needs the result.
    pub(crate) fn keep_result(mut self) -> Self {
        self.keeps_result = true;
        self
    }

    /// The result can be computed again for little.
    pub(crate) fn cheap(mut self) -> Self {
        self.cheap = true;
        self
    }

    /// The way back of this operation adds the gradient of its first operand, of which it may touch few elements, to what that has from other uses
    /// ([`Context::present`]), and yields the sum.
    pub(crate) fn accumulate(mut self) -> Self {
        self.accumulates = true;
        self
    }

    /// Whether no gradient flows through any operand.
    pub(crate) fn is_constant(&self) -> bool {
        !self.operands.iter().any(AutodiffTensor::is_tracked)
    }

    /// Computes the result, and records the way back if an operand is tracked.
    ///
    /// A gradient of broadcast dims is summed over those that the operand did not have.
    pub(crate) fn run<C: CheckpointStrategy>(
        self,
        forward: impl Fn(Vec<B::Primitive>) -> B::Primitive + Send + Sync + 'static,
        backward: impl FnOnce(Context<B>) -> Gradients<B> + Send + 'static,
    ) -> AutodiffTensor<B> {
        if self.is_constant() {
            let operands = self.operands.into_iter().map(|operand| operand.primitive).collect();
            return AutodiffTensor::constant(forward(operands));
        }
        let parents: Parents = self.operands.iter().map(|operand| operand.node.clone()).collect();
        let types: Vec<(Shape, DType)> =
            self.operands.iter().map(|operand| (operand.shape(), operand.dtype())).collect();
        let kept = |(operand, keep): (&AutodiffTensor<B>, &bool)| keep.then(|| Saved::of(operand));
        let operands: Vec<_> = match self.keeps.contains(&true) {
            true => self.operands.iter().zip(&self.keeps).map(kept).collect(),
            false => Vec::new(),
        };
        let primitives = |operands: Vec<AutodiffTensor<B>>| {
            operands.into_iter().map(|operand| operand.primitive).collect::<Vec<_>>()
        };
        let (primitive, recipe) = if C::RECOMPUTES && self.cheap {
            let forward: Forward<B> = Arc::new(forward);
            let recipe = Recipe::new(self.operands.iter().map(Saved::of).collect(), forward.clone());
            (forward(primitives(self.operands)), Some(recipe))
        } else {
            (forward(primitives(self.operands)), None)
        };
        let mut result = AutodiffTensor { recipe, ..AutodiffTensor::constant(primitive) };
        let saved_result = self.keeps_result.then(|| Saved::of(&result));

        let accumulates = self.accumulates;
        let step = move |node: &NodeRef, parents: Parents, gradients: &mut crate::Gradients| {
            let gradient = gradients.consume::<B>(node);
            let wanted = parents.iter().map(Option::is_some).collect();
            let device = B::device(&gradient);
            let shapes = types.iter().map(|(shape, _)| shape.clone()).collect();
            let present = match parents.first() {
                Some(Some(operand)) if accumulates => gradients.remove::<B>(operand.id),
                _ => None,
            };
            let context = Context { gradient, wanted, shapes, present, operands, result: saved_result };
            let found = backward(context);
            for ((parent, gradient), (shape, dtype)) in parents.iter().zip(found).zip(types) {
                let Some(parent) = parent else { continue };
                let gradient = match gradient {
                    Some(gradient) => sum_to::<B>(gradient, &shape),
                    None => B::full(shape, Scalar::Float(0.0), dtype, &device),
                };
                gradients.register::<B>(parent.id, gradient);
            }
        };
        result.node = Some(Node::operation(self.name, parents, Box::new(step)));
        result
    }
}

/// Sums a gradient over the dims along which its operand was broadcast.
pub fn sum_to<B: Backend>(gradient: B::Primitive, shape: &Shape) -> B::Primitive {
    let from = gradient.shape();
    if from == *shape {
        return gradient;
    }
    let added = from.rank().saturating_sub(shape.rank());
    let axes: Vec<usize> =
        (0..from.rank()).filter(|&axis| axis < added || from[axis] != shape[axis - added]).collect();
    let sum = B::reduce(ReduceOp::Sum, gradient, &axes);
    if sum.shape() == *shape { sum } else { B::reshape(sum, shape.clone()) }
}
