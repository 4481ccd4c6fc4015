//! Decision trees.

use crate::backend::Backend;
use crate::check::ensure;
use crate::{Int, Tensor};

/// The leaf of each tree at which each sample arrives: a number of a node for `[samples, trees]`.
///
/// All trees stand in tables with a row for each node. A sample goes on to the second of a node's `children` where its number
/// `features[node]` is at most `thresholds[node]`, else to the first; if nodes have three children, to the third where that is NaN. The
/// children of a leaf are the leaf itself. All samples go down all trees together, from their `roots`, level by level, as many as the
/// deepest tree has: what is done is the same for every sample, so that it suits any device.
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
    let ([count, _], [nodes], [trees]) = (samples.dims(), features.dims(), roots.dims());
    let [rows, ways] = children.dims();
    let fits = thresholds.dims() == [nodes] && rows == nodes && (2..=3).contains(&ways);
    ensure!(
        fits,
        "leaves",
        "{nodes} features, thresholds {} and children {} are no tables of nodes",
        thresholds.shape(),
        children.shape()
    );
    let roots: Tensor<B, 2, Int> = roots.reshape([1, trees]).expand([count, trees]);
    if count * trees == 0 {
        return roots;
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
    node.reshape([count, trees])
}
