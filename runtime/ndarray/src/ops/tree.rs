//! Walks down decision trees.

use crate::ops::index;
use crate::tensor::NdArrayTensor;
use alloc::vec::Vec;
use kiln_kernels::threads::parallel_chunks;
use kiln_tensor::backend::Primitive;
use kiln_tensor::compose::Trees;
use kiln_tensor::{DType, Shape};

/// Walks that go on side by side, so that none waits for the memory that another reads.
const LANES: usize = 8;

/// Samples that a thread takes down one tree before it goes on to the next: the tree stays in its core's caches meanwhile.
const BLOCK: usize = 8 * LANES;

/// See [`Backend::tree_leaves`](kiln_tensor::backend::Backend::tree_leaves): positions of i64; `None` for other dtypes than f32 and f64.
pub(crate) fn leaves(
    samples: &NdArrayTensor,
    trees: &Trees<NdArrayTensor>,
    depth: usize,
) -> Option<NdArrayTensor> {
    if samples.dtype() != trees.thresholds.dtype() {
        return None;
    }
    match samples.dtype() {
        DType::F32 => Some(walked::<f32>(samples, trees, depth)),
        DType::F64 => Some(walked::<f64>(samples, trees, depth)),
        _ => None,
    }
}

/// A node, with all that a step reads side by side.
#[derive(Clone, Copy)]
struct Node<T> {
    threshold: T,
    feature: u32,
    /// Where samples go on whose number is above the threshold, at most at it, or missing.
    children: [u32; 3],
}

fn walked<T: bytemuck::Pod + PartialOrd + Send + Sync>(
    samples: &NdArrayTensor,
    trees: &Trees<NdArrayTensor>,
    depth: usize,
) -> NdArrayTensor {
    let samples = samples.clone().into_contiguous();
    let thresholds = trees.thresholds.clone().into_contiguous();
    let [features, children, roots] =
        [&trees.features, &trees.children, &trees.roots].map(|table| index::indices(table.clone()));
    let (&[count, width], &[nodes]) = (samples.dims(), thresholds.dims()) else {
        panic!("tree_leaves: samples are {}, thresholds {}", samples.shape(), thresholds.shape())
    };
    let shape = Shape::from([count, roots.dims()[0]]);
    let (samples, thresholds) = (samples.slice::<T>(), thresholds.slice::<T>());
    let [features, children, roots] = [&features, &children, &roots].map(|table| table.slice::<i64>());
    let ways = children.len().checked_div(nodes).unwrap_or(2);
    let place = |at: i64| usize::try_from(at).unwrap_or(usize::MAX);
    let way = |number: T, threshold: T| match number.partial_cmp(&number) {
        None if ways == 3 => 2,
        _ => usize::from(number <= threshold),
    };
    // Nodes are put side by side where more steps read them than there are nodes.
    let steps = count.saturating_mul(roots.len()).saturating_mul(depth);
    let fits = [nodes, width].into_iter().all(|size| u32::try_from(size).is_ok());
    NdArrayTensor::build(shape, DType::I64, |out: &mut [i64]| {
        let walk = Walk { samples, width, roots, depth };
        if !fits || steps < nodes.saturating_mul(8) {
            return walk.all(out, |node, sample| {
                let way = way(sample[place(features[node])], thresholds[node]);
                place(children[node * ways + way])
            });
        }
        let number = |at: i64| u32::try_from(at).unwrap_or(u32::MAX);
        let node = |((&threshold, &feature), children): ((&T, &i64), &[i64])| Node {
            threshold,
            feature: number(feature),
            children: core::array::from_fn(|way| children.get(way).map_or(u32::MAX, |&child| number(child))),
        };
        let nodes: Vec<Node<T>> =
            thresholds.iter().zip(features).zip(children.chunks_exact(ways)).map(node).collect();
        walk.all(out, |node, sample| {
            let node = &nodes[node];
            node.children[way(sample[node.feature as usize], node.threshold)] as usize
        });
    })
}

struct Walk<'a, T> {
    samples: &'a [T],
    width: usize,
    roots: &'a [i64],
    depth: usize,
}

impl<T: Copy + Send + Sync> Walk<'_, T> {
    /// Takes each sample down each tree; `next` is where a sample goes on from a node.
    fn all(&self, out: &mut [i64], next: impl Fn(usize, &[T]) -> usize + Sync) {
        let trees = self.roots.len();
        if out.is_empty() {
            return;
        }
        let sample = |at: usize| &self.samples[at * self.width..][..self.width];
        if out.len() < BLOCK * trees {
            // Few samples: the trees of each are taken side by side.
            let work = trees * self.depth * 4;
            return parallel_chunks(out, trees.max(1), work, |at, out| {
                for (out, roots) in out.chunks_mut(LANES).zip(self.roots.chunks(LANES)) {
                    self.down(
                        roots.len(),
                        |lane| (roots[lane], sample(at)),
                        &next,
                        |lane, leaf| out[lane] = leaf,
                    );
                }
            });
        }
        parallel_chunks(out, BLOCK * trees, BLOCK * trees * self.depth * 4, |block, out| {
            let first = block * BLOCK;
            let count = out.len() / trees;
            for (tree, &root) in self.roots.iter().enumerate() {
                for start in (0..count).step_by(LANES) {
                    let lanes = LANES.min(count - start);
                    self.down(
                        lanes,
                        |lane| (root, sample(first + start + lane)),
                        &next,
                        |lane, leaf| out[(start + lane) * trees + tree] = leaf,
                    );
                }
            }
        });
    }

    /// Takes some samples down a tree each, until none of them goes on.
    fn down<'s>(
        &self,
        lanes: usize,
        begin: impl Fn(usize) -> (i64, &'s [T]),
        next: impl Fn(usize, &[T]) -> usize,
        mut arrive: impl FnMut(usize, i64),
    ) where
        T: 's,
    {
        let walks: [(i64, &[T]); LANES] = core::array::from_fn(|lane| begin(lane.min(lanes - 1)));
        let mut nodes = walks.map(|(root, _)| root as usize);
        for _ in 0..self.depth {
            let mut moves = false;
            for (node, (_, sample)) in nodes.iter_mut().zip(&walks) {
                let then = next(*node, sample);
                moves |= then != *node;
                *node = then;
            }
            if !moves {
                break;
            }
        }
        for (lane, &node) in nodes.iter().take(lanes).enumerate() {
            arrive(lane, node as i64);
        }
    }
}
