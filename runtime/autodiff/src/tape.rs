//! The tape: which operations led to a tensor, and how gradients go back through them.
//!
//! There is no tape as an object of its own. Each tracked tensor holds the node of the operation that made it, each node
//! the nodes of its operands; what nobody can go back through any more is freed by reference counting.

use crate::gradients::Gradients;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};
use kiln_tensor::InlineVec;
use spin::Mutex;

/// Identifies a node. An operation's id is greater than those of the operations that made its operands, so that
/// descending ids are an order in which gradients can be computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(u64);

impl NodeId {
    /// The next id of this process.
    pub(crate) fn fresh() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// A node that is shared by the tensor it belongs to and the operations that use that tensor.
pub type NodeRef = Arc<Node>;

/// The nodes of an operation's operands; nothing for a constant.
pub(crate) type Parents = InlineVec<Option<NodeRef>>;

/// Takes the gradient of its own node out of the gradients, and registers those of the operands. It must not hold nodes:
/// they are dropped one after the other, and a step is not.
pub(crate) type BackwardStep = Box<dyn FnOnce(&NodeRef, Parents, &mut Gradients) + Send>;

/// What a node does when gradients reach it.
enum State {
    /// A tensor whose gradient is wanted: it stays among the gradients.
    Leaf,
    /// An operation.
    Operation { name: &'static str, parents: Parents, step: BackwardStep },
    /// An operation that `backward` has been through; what it had saved is freed.
    Done { name: &'static str },
}

/// One tracked tensor: a leaf, or the result of an operation with a tracked operand.
pub struct Node {
    /// Its place in the order of all nodes.
    pub id: NodeId,
    state: Mutex<State>,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match &*self.state.lock() {
            State::Leaf => "leaf",
            State::Operation { name, .. } | State::Done { name } => name,
        };
        f.debug_struct("Node").field("id", &self.id.0).field("operation", &name).finish()
    }
}

impl Node {
    /// A tensor whose gradient is wanted.
    pub(crate) fn leaf() -> NodeRef {
        Arc::new(Self { id: NodeId::fresh(), state: Mutex::new(State::Leaf) })
    }

    /// The result of an operation on tracked operands.
    pub(crate) fn operation(name: &'static str, parents: Parents, step: BackwardStep) -> NodeRef {
        let state = State::Operation { name, parents, step };
        Arc::new(Self { id: NodeId::fresh(), state: Mutex::new(state) })
    }

    /// Whether this is a tensor whose gradient is wanted.
    pub(crate) fn is_leaf(&self) -> bool {
        matches!(*self.state.lock(), State::Leaf)
    }

    /// The operands' nodes and the step of an operation, which is done with that; nothing for a leaf.
    ///
    /// # Panics
    /// When a `backward` has been here before.
    fn take(&self) -> Option<(Parents, BackwardStep)> {
        let mut state = self.state.lock();
        let name = match &*state {
            State::Leaf => return None,
            State::Operation { name, .. } => *name,
            State::Done { name } => {
                let name = *name;
                drop(state);
                panic!(
                    "backward: the result of `{name}` belongs to a graph that an earlier `backward` went through, \
                     which freed what it had saved. Compute the loss again, or add the losses and go back once."
                )
            }
        };
        match core::mem::replace(&mut *state, State::Done { name }) {
            State::Operation { parents, step, .. } => Some((parents, step)),
            State::Leaf | State::Done { .. } => None,
        }
    }
}

impl Drop for Node {
    /// Frees a chain of nodes one after the other: left to the compiler, a long one would overflow the stack.
    fn drop(&mut self) {
        let mut orphans = match self.state.get_mut() {
            State::Operation { parents, .. } => core::mem::take(parents),
            State::Leaf | State::Done { .. } => return,
        };
        while let Some(parent) = orphans.pop() {
            if let Some(mut parent) = parent.and_then(Arc::into_inner)
                && let State::Operation { parents, .. } = parent.state.get_mut()
            {
                orphans.extend(core::mem::take(parents));
            }
        }
    }
}

/// Goes back from a node whose gradient is registered, operation by operation, until only leaves have gradients.
///
/// Nodes are visited by descending id: when one is reached, every operation that used its tensor has been visited. What
/// a node saved is freed as soon as it was visited.
pub(crate) fn walk(root: NodeRef, gradients: &mut Gradients) {
    let mut reached = BTreeMap::from([(root.id, root)]);
    while let Some((id, node)) = reached.pop_last() {
        let Some((parents, step)) = node.take() else { continue };
        reached.extend(parents.iter().flatten().map(|parent| (parent.id, parent.clone())));
        if gradients.contains(id) {
            step(&node, parents, gradients);
        }
    }
}
