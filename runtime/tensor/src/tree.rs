//! Decision trees.

use crate::backend::Backend;
use crate::check::ensure;
use crate::compose::Trees;
use crate::{Int, Tensor};

/// The leaf of each tree at which each sample arrives: a number of a node for `[samples, trees]`.
///
/// All trees stand in tables with a row for each node. A sample goes on to the second of a node's `children` where its number
/// `features[node]` is at most `thresholds[node]`, else to the first; if nodes have three children, to the third where that is NaN. The
/// children of a leaf are the leaf itself. Samples begin at the `roots`, and no tree has more than `depth` branches on a way.
///
/// # Panics
/// When the tables do not fit each other.
pub fn leaves<B: Backend>(
    samples: Tensor<B, 2>,
    features: Tensor<B, 1, Int>,
    thresholds: Tensor<B, 1>,
    children: Tensor<B, 2, Int>,
    roots: Tensor<B, 1, Int>,
    depth: usize,
) -> Tensor<B, 2, Int> {
    let [nodes] = features.dims();
    let [rows, ways] = children.dims();
    let fits = thresholds.dims() == [nodes] && rows == nodes && (2..=3).contains(&ways);
    ensure!(
        fits,
        "leaves",
        "{nodes} features, thresholds {} and children {} are no tables of nodes",
        thresholds.shape(),
        children.shape()
    );
    let tables = Trees {
        features: features.into_backend(),
        thresholds: thresholds.into_backend(),
        children: children.into_backend(),
        roots: roots.into_backend(),
    };
    Tensor::from_backend(B::tree_leaves(samples.into_backend(), tables, depth))
}
