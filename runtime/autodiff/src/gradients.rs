//! [`Gradients`]: what a backward pass yields.

use crate::tape::{NodeId, NodeRef};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use core::any::Any;
use core::fmt;
use kiln_tensor::BinaryOp;
use kiln_tensor::backend::Backend;

/// The gradients of the leaves that a tensor was computed from.
///
/// The container does not name the backend whose tensors it holds, so that it can be sent and stored without it; a
/// tensor of an `Autodiff` backend finds its own gradient in it ([`kiln_tensor::Tensor::grad`]).
#[derive(Default)]
pub struct Gradients {
    tensors: BTreeMap<NodeId, Box<dyn Any + Send>>,
}

impl fmt::Debug for Gradients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gradients").field("tensors", &self.tensors.len()).finish()
    }
}

impl Gradients {
    /// Whether a node has a gradient.
    pub(crate) fn contains(&self, id: NodeId) -> bool {
        self.tensors.contains_key(&id)
    }

    /// Adds to the gradient of a node: a tensor that is used twice gets the sum of what both uses say.
    ///
    /// # Panics
    /// When the node has a gradient of another backend.
    pub fn register<B: Backend>(&mut self, id: NodeId, gradient: B::Primitive) {
        match self.tensors.entry(id) {
            Entry::Vacant(none) => {
                none.insert(Box::new(gradient));
            }
            Entry::Occupied(other) => {
                let sum = B::binary(BinaryOp::Add, of_backend::<B>(other.remove()), gradient);
                self.tensors.insert(id, Box::new(sum));
            }
        }
    }

    /// Takes the gradient of an operation's result, for the step that turns it into those of the operands.
    ///
    /// # Panics
    /// When there is none, or when it belongs to another backend.
    pub fn consume<B: Backend>(&mut self, node: &NodeRef) -> B::Primitive {
        match self.remove::<B>(node.id) {
            Some(gradient) => gradient,
            None => panic!("backward: no gradient has reached {node:?}"),
        }
    }

    /// The gradient of a node.
    pub(crate) fn get<B: Backend>(&self, id: NodeId) -> Option<B::Primitive> {
        self.tensors.get(&id).map(|tensor| match tensor.downcast_ref::<B::Primitive>() {
            Some(gradient) => gradient.clone(),
            None => foreign(),
        })
    }

    /// Takes the gradient of a node out.
    pub(crate) fn remove<B: Backend>(&mut self, id: NodeId) -> Option<B::Primitive> {
        self.tensors.remove(&id).map(of_backend::<B>)
    }

    /// Puts a gradient in place of what is there.
    pub(crate) fn replace<B: Backend>(&mut self, id: NodeId, gradient: B::Primitive) {
        self.tensors.insert(id, Box::new(gradient));
    }
}

/// A gradient as a tensor of the backend that asks for it.
fn of_backend<B: Backend>(gradient: Box<dyn Any + Send>) -> B::Primitive {
    match gradient.downcast::<B::Primitive>() {
        Ok(gradient) => *gradient,
        Err(_) => foreign(),
    }
}

fn foreign() -> ! {
    panic!(
        "these gradients were computed on another backend than the one of the tensor that asks for its own"
    )
}
