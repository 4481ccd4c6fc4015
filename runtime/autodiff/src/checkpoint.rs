//! What a node keeps of its operands until gradients reach it: the tensors themselves, or how to compute them again.
//!
//! Recomputing trades time for memory (Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016). Under
//! [`BalancedCheckpointing`] what is cheap to compute, elementwise operations and views, is computed again from the
//! nearest results of operations that are not. Random numbers are results of the latter kind: they are never drawn twice.

use crate::tensor::AutodiffTensor;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt::Debug;
use kiln_tensor::backend::Backend;
use spin::Mutex;

/// Whether cheap results are kept for the way back or computed again.
pub trait CheckpointStrategy: Clone + Copy + Debug + Default + Send + Sync + 'static {
    /// Whether they are computed again.
    const RECOMPUTES: bool;
}

/// Keeps what the way back needs.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoCheckpointing;

impl CheckpointStrategy for NoCheckpointing {
    const RECOMPUTES: bool = false;
}

/// Computes elementwise operations and views again on the way back.
#[derive(Clone, Copy, Debug, Default)]
pub struct BalancedCheckpointing;

impl CheckpointStrategy for BalancedCheckpointing {
    const RECOMPUTES: bool = true;
}

/// The strategies, where Burn keeps them.
pub mod strategy {
    pub use super::{BalancedCheckpointing, CheckpointStrategy, NoCheckpointing};
}

/// What holds kept tensors, where Burn keeps it.
pub mod base {
    pub use crate::ops::Checkpointer;
}

/// An operation on the tensors of a backend.
pub(crate) type Forward<B> =
    Arc<dyn Fn(Vec<<B as Backend>::Primitive>) -> <B as Backend>::Primitive + Send + Sync>;

/// A tensor that is kept for the way back.
#[derive(Clone)]
pub(crate) enum Saved<B: Backend> {
    /// The tensor.
    Value(B::Primitive),
    /// How to compute it again.
    Recipe(Arc<Recipe<B>>),
}

impl<B: Backend> Saved<B> {
    /// Keeps a tensor: by its recipe, if it has one.
    pub(crate) fn of(tensor: &AutodiffTensor<B>) -> Self {
        match &tensor.recipe {
            Some(recipe) => Self::Recipe(recipe.clone()),
            None => Self::Value(tensor.primitive.clone()),
        }
    }

    /// The tensor.
    pub(crate) fn get(self) -> B::Primitive {
        match self {
            Self::Value(value) => value,
            Self::Recipe(recipe) => recipe.value(),
        }
    }
}

enum State<B: Backend> {
    Pending { inputs: Vec<Saved<B>>, forward: Forward<B> },
    Ready(B::Primitive),
}

/// How a cheap result is computed again; at most once, since the recipes of later results may need it too.
pub(crate) struct Recipe<B: Backend>(Mutex<State<B>>);

impl<B: Backend> Recipe<B> {
    pub(crate) fn new(inputs: Vec<Saved<B>>, forward: Forward<B>) -> Arc<Self> {
        Arc::new(Self(Mutex::new(State::Pending { inputs, forward })))
    }

    /// A recipe that has to be followed before this one.
    fn missing(&self) -> Option<Arc<Self>> {
        let State::Pending { inputs, .. } = &*self.0.lock() else { return None };
        inputs.iter().find_map(|input| match input {
            Saved::Recipe(recipe) if !recipe.is_ready() => Some(recipe.clone()),
            Saved::Recipe(_) | Saved::Value(_) => None,
        })
    }

    fn is_ready(&self) -> bool {
        matches!(*self.0.lock(), State::Ready(_))
    }

    /// Computes it from inputs that are there.
    fn follow(&self) {
        let mut state = self.0.lock();
        if let State::Pending { inputs, forward } = &mut *state {
            let inputs = core::mem::take(inputs).into_iter().map(Saved::get).collect();
            let value = forward(inputs);
            *state = State::Ready(value);
        }
    }

    /// The tensor. A chain of recipes is followed one by one: it may be longer than a stack is deep.
    fn value(self: &Arc<Self>) -> B::Primitive {
        let mut open = vec![self.clone()];
        while let Some(recipe) = open.last() {
            match recipe.missing() {
                Some(before) => open.push(before),
                None => {
                    recipe.follow();
                    open.pop();
                }
            }
        }
        match &*self.0.lock() {
            State::Ready(value) => value.clone(),
            State::Pending { .. } => unreachable!("the loop ends when this recipe was followed"),
        }
    }
}

impl<B: Backend> Drop for Recipe<B> {
    /// Frees a chain of recipes one after the other, as the nodes of the tape are.
    fn drop(&mut self) {
        let State::Pending { inputs, .. } = self.0.get_mut() else { return };
        let mut orphans = core::mem::take(inputs);
        while let Some(input) = orphans.pop() {
            if let Saved::Recipe(recipe) = input
                && let Some(mut recipe) = Arc::into_inner(recipe)
                && let State::Pending { inputs, .. } = recipe.0.get_mut()
            {
                orphans.append(inputs);
            }
        }
    }
}
