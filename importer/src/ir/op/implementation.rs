//! What the runtime does for each operation.

mod convolution;
mod elementwise;
mod folds;
mod indexing;
mod linear;
mod making;
mod normalization;
mod recurrence;
mod shape;

use crate::ir::{Arg, Graph, Implementation, Node, Op, TensorType, ValueId, scalars};
use kiln_types::DType;

impl Op {
    /// What the runtime does for a node of this operation.
    pub fn implementation(&self, graph: &Graph, node: &Node) -> Implementation {
        let cx = Cx { graph, node };
        match self {
            Op::Unary(_)
            | Op::Binary(_)
            | Op::Compare(_)
            | Op::Where
            | Op::Activation(_)
            | Op::Clamp { .. }
            | Op::Cast { .. }
            | Op::Elementwise(_) => Implementation::Call(elementwise::call(self, &cx)),
            Op::Reshape { .. }
            | Op::Permute { .. }
            | Op::Expand { .. }
            | Op::Slice { .. }
            | Op::Concat { .. }
            | Op::Pad { .. }
            | Op::Repeat { .. } => Implementation::Call(shape::call(self, &cx)),
            Op::Fill { .. } | Op::Arange { .. } | Op::HostTensor { .. } => {
                Implementation::Call(making::call(self))
            }
            Op::Take { .. } | Op::Gather { .. } | Op::Scatter { .. } => indexing::call(self, &cx),
            Op::Reduce { .. } | Op::ArgReduce { .. } | Op::Cumulative { .. } | Op::Trilu { .. } => {
                Implementation::Call(folds::call(self, &cx))
            }
            Op::MatMul | Op::Linear { .. } | Op::Attention(_) => linear::call(self, &cx),
            Op::Conv { .. }
            | Op::ConvTranspose(_)
            | Op::Pool(..)
            | Op::MaxPoolWithIndices(_)
            | Op::AdaptiveAvgPool { .. }
            | Op::Interpolate { .. } => convolution::call(self, &cx),
            Op::Softmax { .. }
            | Op::LogSoftmax { .. }
            | Op::LayerNorm { .. }
            | Op::RmsNorm { .. }
            | Op::GroupNorm { .. }
            | Op::BatchNorm { .. }
            | Op::Dropout { .. } => normalization::call(self, &cx),
            Op::Rnn(options) => recurrence::call(options, &cx),
            Op::HostRead { .. } | Op::If { .. } => Implementation::Control,
            Op::Call(call) => Implementation::Call(Arg::Call(call.call.clone())),
        }
    }
}

/// A node with its graph, as implementations see it.
struct Cx<'a> {
    graph: &'a Graph,
    node: &'a Node,
}

impl<'a> Cx<'a> {
    /// The `n`-th operand.
    fn input(&self, n: usize) -> Option<ValueId> {
        self.node.inputs.get(n).copied().flatten()
    }

    /// The type of the `n`-th operand.
    fn ty(&self, n: usize) -> Option<&'a TensorType> {
        self.input(n).map(|id| self.graph.ty(id))
    }

    /// The rank of the `n`-th operand.
    fn rank(&self, n: usize) -> usize {
        self.ty(n).map_or(0, TensorType::rank)
    }

    /// The known dims of the `n`-th operand.
    fn shape(&self, n: usize) -> Option<Vec<usize>> {
        self.ty(n).and_then(TensorType::shape)
    }

    /// The dtype of the `n`-th operand.
    fn dtype(&self, n: usize) -> DType {
        self.ty(n).map_or(DType::F32, |ty| ty.dtype)
    }

    /// The type of the first result.
    fn output(&self) -> Option<&'a TensorType> {
        self.node.outputs.first().map(|&id| self.graph.ty(id))
    }

    /// Whether the `n`-th operand is a constant.
    fn is_constant(&self, n: usize) -> bool {
        self.input(n).is_some_and(|id| self.graph.constant(id).is_some())
    }

    /// The `n`-th operand as an `Option`.
    fn option(&self, n: usize) -> Arg {
        Arg::option(self.input(n).map(|_| Arg::Operand(n)))
    }

    /// The one number of the `n`-th operand, when it is a constant of one element that broadcasting would not widen
    /// beyond `rank`, and no parameter.
    fn scalar(&self, n: usize, rank: usize) -> Option<Arg> {
        let id = self.input(n)?;
        let constant = self.graph.constant(id).filter(|constant| constant.provenance.is_none())?;
        let fits = self.graph.ty(id).rank() <= rank;
        match scalars(&constant.data)?.as_slice() {
            &[scalar] if fits => Some(Arg::Scalar(scalar, constant.data.dtype)),
            _ => None,
        }
    }
}
