//! Gradients of operations that are defined outside of this crate: a type that implements [`Backward`] says how a gradient
//! goes back, and [`Backward::prepare`] puts the operation on the tape.
//!
//! ```
//! use kiln_autodiff::checkpoint::CheckpointStrategy;
//! use kiln_autodiff::ops::{Backward, Checkpointer, Ops, OpsKind};
//! use kiln_autodiff::{Autodiff, AutodiffTensor, Gradients, NodeId};
//! use kiln_tensor::BinaryOp;
//! use kiln_tensor::backend::Backend;
//!
//! /// x²
//! fn square<B: Backend, C: CheckpointStrategy>(x: AutodiffTensor<B>) -> AutodiffTensor<B> {
//!     #[derive(Debug)]
//!     struct Square;
//!
//!     impl<B: Backend> Backward<B, 1> for Square {
//!         type State = NodeId;
//!
//!         fn backward(
//!             self,
//!             ops: Ops<NodeId, 1>,
//!             gradients: &mut Gradients,
//!             checkpointer: &mut Checkpointer,
//!         ) {
//!             let [node] = ops.parents;
//!             let gradient = gradients.consume::<B>(&ops.node);
//!             let x: B::Primitive = checkpointer.retrieve_node_output(ops.state);
//!             let slope = B::binary(BinaryOp::Add, x.clone(), x);
//!             if let Some(node) = node {
//!                 gradients.register::<B>(node.id, B::binary(BinaryOp::Mul, gradient, slope));
//!             }
//!         }
//!     }
//!
//!     let forward = |x: B::Primitive| B::binary(BinaryOp::Mul, x.clone(), x);
//!     match Square.prepare::<C>([x.node.clone()]).compute_bound().stateful() {
//!         OpsKind::Tracked(mut prep) => {
//!             let state = prep.checkpoint(&x);
//!             prep.finish(state, forward(x.primitive))
//!         }
//!         OpsKind::UnTracked(prep) => prep.finish(forward(x.primitive)),
//!     }
//! }
//! ```

use crate::checkpoint::{CheckpointStrategy, Saved};
use crate::gradients::Gradients;
use crate::tape::{Node, NodeId, NodeRef, Parents};
use crate::tensor::AutodiffTensor;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use core::any::{Any, type_name};
use core::fmt::Debug;
use core::marker::PhantomData;
use kiln_tensor::Shape;
use kiln_tensor::backend::Backend;

pub use crate::operation::sum_to;

/// Sums a gradient over the dims along which its operand was broadcast: [`sum_to`], under Burn's name.
pub fn broadcast_shape<B: Backend>(gradient: B::Primitive, shape: &Shape) -> B::Primitive {
    sum_to::<B>(gradient, shape)
}

/// Goes back through an operation with one operand, whose gradient `function` makes of the result's if it is wanted.
pub fn unary<B: Backend, F>(parents: [Option<NodeRef>; 1], node: NodeRef, grads: &mut Gradients, function: F)
where
    F: FnOnce(B::Primitive) -> B::Primitive,
{
    let [parent] = parents;
    let gradient = grads.consume::<B>(&node);
    if let Some(parent) = parent {
        grads.register::<B>(parent.id, function(gradient));
    }
}

/// As [`unary`], through an operation with two operands.
pub fn binary<B: Backend, FLhs, FRhs>(
    parents: [Option<NodeRef>; 2],
    node: NodeRef,
    grads: &mut Gradients,
    of_lhs: FLhs,
    of_rhs: FRhs,
) where
    FLhs: FnOnce(B::Primitive) -> B::Primitive,
    FRhs: FnOnce(B::Primitive) -> B::Primitive,
{
    let [lhs, rhs] = parents;
    let gradient = grads.consume::<B>(&node);
    if let Some(lhs) = lhs {
        grads.register::<B>(lhs.id, of_lhs(gradient.clone()));
    }
    if let Some(rhs) = rhs {
        grads.register::<B>(rhs.id, of_rhs(gradient));
    }
}

/// How a gradient goes back through an operation with `N` operands.
pub trait Backward<B: Backend, const N: usize>: Sized + Debug + Send + 'static {
    /// What the operation keeps for it.
    type State: Send + 'static;

    /// Takes the gradient of `ops.node` out of the gradients ([`Gradients::consume`]) and registers that of each operand
    /// which has a node ([`Gradients::register`]), with the operand's shape.
    fn backward(self, ops: Ops<Self::State, N>, grads: &mut Gradients, checkpointer: &mut Checkpointer);

    /// Prepares the operation, given the nodes of its operands.
    fn prepare<C: CheckpointStrategy>(self, nodes: [Option<NodeRef>; N]) -> OpsPrep<Self, B, C, Init, N> {
        OpsPrep { backward: self, nodes, checkpointer: Checkpointer::default(), stage: PhantomData }
    }
}

/// An operation on the way back.
#[derive(Debug)]
pub struct Ops<S, const N: usize> {
    /// The nodes of the operands; nothing for a constant.
    pub parents: [Option<NodeRef>; N],
    /// The node of the result.
    pub node: NodeRef,
    /// What was kept.
    pub state: S,
}

/// What gives back a kept tensor: at once, or by computing it again.
type Kept = Box<dyn FnOnce() -> Box<dyn Any> + Send>;

/// The tensors that an operation keeps, by the ids that [`OpsPrep::checkpoint`] gave them.
#[derive(Default)]
pub struct Checkpointer {
    kept: BTreeMap<NodeId, Kept>,
}

impl Checkpointer {
    /// A kept tensor; each can be had once.
    ///
    /// # Panics
    /// When nothing was kept under the id, or a tensor of another backend.
    pub fn retrieve_node_output<T: 'static>(&mut self, id: NodeId) -> T {
        let Some(kept) = self.kept.remove(&id) else {
            panic!(
                "nothing is kept under this id: `OpsPrep::checkpoint` gives one for each tensor, to be used once"
            )
        };
        match kept().downcast::<T>() {
            Ok(tensor) => *tensor,
            Err(_) => panic!("what is kept under this id is no {}", type_name::<T>()),
        }
    }
}

/// An operation of which nothing is decided.
#[derive(Debug)]
pub struct Init;

/// An operation that is not computed again.
#[derive(Debug)]
pub struct ComputeBound;

/// An operation with a tracked operand.
#[derive(Debug)]
pub struct Tracked;

/// An operation on constants.
#[derive(Debug)]
pub struct UnTracked;

/// An operation on its way onto the tape.
pub struct OpsPrep<K, B, C, Stage, const N: usize> {
    backward: K,
    nodes: [Option<NodeRef>; N],
    checkpointer: Checkpointer,
    stage: PhantomData<(B, C, Stage)>,
}

/// Whether an operand is tracked, so that the operation has to keep what its gradient needs.
pub enum OpsKind<K, B, C, const N: usize> {
    /// One is.
    Tracked(OpsPrep<K, B, C, Tracked, N>),
    /// None is.
    UnTracked(OpsPrep<K, B, C, UnTracked, N>),
}

impl<K, B, C, Stage, const N: usize> OpsPrep<K, B, C, Stage, N> {
    fn at<Next>(self) -> OpsPrep<K, B, C, Next, N> {
        let Self { backward, nodes, checkpointer, stage: _ } = self;
        OpsPrep { backward, nodes, checkpointer, stage: PhantomData }
    }
}

impl<K: Backward<B, N>, B: Backend, C: CheckpointStrategy, const N: usize> OpsPrep<K, B, C, Init, N> {
    /// The result takes long to compute: it is never computed again.
    pub fn compute_bound(self) -> OpsPrep<K, B, C, ComputeBound, N> {
        self.at()
    }
}

impl<K: Backward<B, N>, B: Backend, C: CheckpointStrategy, const N: usize> OpsPrep<K, B, C, ComputeBound, N> {
    /// For an operation that keeps something.
    pub fn stateful(self) -> OpsKind<K, B, C, N> {
        if self.nodes.iter().any(Option::is_some) {
            OpsKind::Tracked(self.at())
        } else {
            OpsKind::UnTracked(self.at())
        }
    }

    /// For an operation that keeps nothing: its result.
    pub fn stateless(self, output: B::Primitive) -> AutodiffTensor<B>
    where
        K: Backward<B, N, State = ()>,
    {
        match self.stateful() {
            OpsKind::Tracked(prep) => prep.finish((), output),
            OpsKind::UnTracked(prep) => prep.finish(output),
        }
    }
}

impl<K: Backward<B, N>, B: Backend, C: CheckpointStrategy, const N: usize> OpsPrep<K, B, C, Tracked, N> {
    /// Keeps a tensor; the id is for [`Checkpointer::retrieve_node_output`].
    pub fn checkpoint(&mut self, tensor: &AutodiffTensor<B>) -> NodeId {
        let (id, saved) = (NodeId::fresh(), Saved::of(tensor));
        self.checkpointer.kept.insert(id, Box::new(move || Box::new(saved.get())));
        id
    }

    /// The result, on the tape.
    pub fn finish(self, state: K::State, output: B::Primitive) -> AutodiffTensor<B> {
        let Self { backward, nodes, mut checkpointer, stage: _ } = self;
        let step = move |node: &NodeRef, parents: Parents, gradients: &mut Gradients| {
            let Ok(parents) = <[Option<NodeRef>; N]>::try_from(parents) else {
                unreachable!("a node keeps the nodes of its operands")
            };
            backward.backward(Ops { parents, node: node.clone(), state }, gradients, &mut checkpointer);
        };
        let node = Node::operation(type_name::<K>(), nodes.into(), Box::new(step));
        AutodiffTensor { node: Some(node), ..AutodiffTensor::constant(output) }
    }
}

impl<K: Backward<B, N>, B: Backend, C: CheckpointStrategy, const N: usize> OpsPrep<K, B, C, UnTracked, N> {
    /// The result, a constant.
    pub fn finish(self, output: B::Primitive) -> AutodiffTensor<B> {
        AutodiffTensor::constant(output)
    }
}
