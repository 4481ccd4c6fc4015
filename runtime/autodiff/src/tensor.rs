//! [`AutodiffTensor`]: a tensor and where it came from.

use crate::checkpoint::Recipe;
use crate::rules::norm::BatchNormalization;
use crate::tape::{Node, NodeRef};
use alloc::sync::Arc;
use core::fmt;
use kiln_tensor::DType;
use kiln_tensor::backend::{Backend, Primitive};

/// A tensor of the inner backend and, if gradients flow through it, its node.
pub struct AutodiffTensor<B: Backend> {
    /// The tensor.
    pub primitive: B::Primitive,
    /// Nothing for a constant: a tensor that no leaf led to.
    pub node: Option<NodeRef>,
    /// How to compute it again, if that is cheap and wanted.
    pub(crate) recipe: Option<Arc<Recipe<B>>>,
    /// The batch normalization that yielded it, if an activation of it is differentiated with that.
    pub(crate) normalization: Option<Arc<BatchNormalization<B>>>,
}

impl<B: Backend> AutodiffTensor<B> {
    /// A constant.
    pub(crate) fn constant(primitive: B::Primitive) -> Self {
        Self { primitive, node: None, recipe: None, normalization: None }
    }

    /// A tensor whose gradient is wanted, without a history.
    pub(crate) fn leaf(primitive: B::Primitive) -> Self {
        Self { node: Some(Node::leaf()), ..Self::constant(primitive) }
    }

    /// Whether gradients flow through it.
    pub(crate) fn is_tracked(&self) -> bool {
        self.node.is_some()
    }
}

impl<B: Backend> Clone for AutodiffTensor<B> {
    fn clone(&self) -> Self {
        Self {
            primitive: self.primitive.clone(),
            node: self.node.clone(),
            recipe: self.recipe.clone(),
            normalization: self.normalization.clone(),
        }
    }
}

impl<B: Backend> fmt::Debug for AutodiffTensor<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AutodiffTensor")
            .field("primitive", &self.primitive)
            .field("node", &self.node)
            .finish_non_exhaustive()
    }
}

impl<B: Backend> Primitive for AutodiffTensor<B> {
    fn dims(&self) -> &[usize] {
        self.primitive.dims()
    }

    fn dtype(&self) -> DType {
        self.primitive.dtype()
    }
}
