//! Decision trees.

use super::calc::T;
use crate::backend::Backend;
use crate::{Int, Tensor};

/// The nodes of decision trees in tables; see [`tree::leaves`](crate::tree::leaves).
#[derive(Clone, Debug)]
pub struct Trees<T> {
    /// The number of the feature that each node asks for, of any integer dtype.
    pub features: T,
    /// What each node compares it with.
    pub thresholds: T,
    /// Two or three nodes for each, `[nodes, ways]`.
    pub children: T,
    /// The first node of each tree.
    pub roots: T,
}

impl<T> Trees<T> {
    /// With other tensors.
    pub fn map<U>(self, with: impl Fn(T) -> U) -> Trees<U> {
        Trees {
            features: with(self.features),
            thresholds: with(self.thresholds),
            children: with(self.children),
            roots: with(self.roots),
        }
    }
}

/// Default of [`Backend::tree_leaves`]: all samples go down all trees together, level by level, as many as the deepest tree has. What is
/// done is the same for every sample, so that it suits any device.
pub fn tree_leaves<B: Backend>(samples: T<B>, trees: Trees<T<B>>, depth: usize) -> T<B> {
    let samples = Tensor::<B, 2>::from_backend(samples);
    let features = Tensor::<B, 1, Int>::from_backend(trees.features);
    let thresholds = Tensor::<B, 1>::from_backend(trees.thresholds);
    let children = Tensor::<B, 2, Int>::from_backend(trees.children);
    let roots = Tensor::<B, 1, Int>::from_backend(trees.roots);
    let ([count, _], [trees], [nodes, ways]) = (samples.dims(), roots.dims(), children.dims());
    let roots: Tensor<B, 2, Int> = roots.reshape([1, trees]).expand([count, trees]);
    if count * trees == 0 {
        return roots.into_backend();
    }
    let mut node: Tensor<B, 1, Int> = roots.reshape([count * trees]);
    let children: Tensor<B, 1, Int> = children.reshape([nodes * ways]);
    for _ in 0..depth {
        let feature: Tensor<B, 2, Int> = features.clone().select(0, node.clone()).reshape([count, trees]);
        let threshold: Tensor<B, 2> = thresholds.clone().select(0, node.clone()).reshape([count, trees]);
        let value = samples.clone().gather(1, feature);
        let mut way = value.clone().lower_equal(threshold).int();
        if ways == 3 {
            way = way.mask_fill(value.is_nan(), 2);
        }
        let place = node.mul_scalar(ways as i64).add(way.reshape([count * trees]));
        node = children.clone().select(0, place);
    }
    node.reshape([count, trees]).into_backend()
}
