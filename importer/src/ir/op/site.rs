//! A node as its implementation sees it.

use crate::data::elements;
use crate::ir::{Arg, Graph, Node, TensorType, ValueId, scalars};
use kiln_types::DType;

/// A node with its graph.
pub(super) struct Site<'a> {
    pub(super) graph: &'a Graph,
    pub(super) node: &'a Node,
}

impl<'a> Site<'a> {
    /// The `n`-th operand.
    pub(super) fn input(&self, n: usize) -> Option<ValueId> {
        self.node.inputs.get(n).copied().flatten()
    }

    /// The type of the `n`-th operand.
    pub(super) fn ty(&self, n: usize) -> Option<&'a TensorType> {
        self.input(n).map(|id| self.graph.ty(id))
    }

    /// The rank of the `n`-th operand.
    pub(super) fn rank(&self, n: usize) -> usize {
        self.ty(n).map_or(0, TensorType::rank)
    }

    /// The known dims of the `n`-th operand.
    pub(super) fn shape(&self, n: usize) -> Option<Vec<usize>> {
        self.ty(n).and_then(TensorType::shape)
    }

    /// The known dims of the first result.
    pub(super) fn result_shape(&self) -> Option<Vec<usize>> {
        self.output().and_then(TensorType::shape)
    }

    /// The elements of the first operand before an axis, along it, and behind it.
    pub(super) fn around(&self, axis: usize) -> Option<[usize; 3]> {
        let shape = self.shape(0)?;
        Some([elements(shape.get(..axis)?), *shape.get(axis)?, elements(shape.get(axis + 1..)?)])
    }

    /// The dtype of the `n`-th operand.
    pub(super) fn dtype(&self, n: usize) -> DType {
        self.ty(n).map_or(DType::F32, |ty| ty.dtype)
    }

    /// The type of the first result.
    pub(super) fn output(&self) -> Option<&'a TensorType> {
        self.node.outputs.first().map(|&id| self.graph.ty(id))
    }

    /// Whether the `n`-th operand is a constant.
    pub(super) fn is_constant(&self, n: usize) -> bool {
        self.input(n).is_some_and(|id| self.graph.constant(id).is_some())
    }

    /// The `n`-th operand as an `Option`.
    pub(super) fn option(&self, n: usize) -> Arg {
        Arg::option(self.input(n).map(|_| Arg::Operand(n)))
    }

    /// The one number of the `n`-th operand, when it is a constant of one element that broadcasting would not widen
    /// beyond `rank`, and no parameter.
    pub(super) fn scalar(&self, n: usize, rank: usize) -> Option<Arg> {
        let id = self.input(n)?;
        let constant = self.graph.constant(id).filter(|constant| constant.provenance.is_none())?;
        let fits = self.graph.ty(id).rank() <= rank;
        match scalars(&constant.data)?.as_slice() {
            &[scalar] if fits => Some(Arg::Scalar(scalar, constant.data.dtype)),
            _ => None,
        }
    }
}
