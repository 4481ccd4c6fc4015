//! Walks down decision trees.

use crate::size::elements;
use crate::threads::parallel_chunks;
use alloc::vec::Vec;

/// Walks that go on side by side, so that none waits for the memory that another reads.
const LANES: usize = 8;

/// Samples that a thread takes down one tree before it goes on to the next: the tree stays in its core's caches meanwhile.
const BLOCK: usize = 8 * LANES;

/// The nodes of decision trees in tables, and where each tree begins.
#[derive(Clone, Copy, Debug)]
pub struct Trees<'a, T> {
    /// The number of the feature that each node asks for.
    pub features: &'a [i64],
    /// What each node compares it with.
    pub thresholds: &'a [T],
    /// Where a sample goes on from each node: where its number is above the threshold, where it is at most that, and, of three ways, where it is
    /// missing. A leaf goes on to itself.
    pub children: &'a [i64],
    /// The first node of each tree.
    pub roots: &'a [i64],
}

/// A node, with all that a step reads side by side.
#[derive(Clone, Copy)]
struct Node<T> {
    threshold: T,
    feature: u32,
    /// Where samples go on whose number is above the threshold, at most at it, or missing.
    children: [u32; 3],
}

/// The leaves, `[samples, trees]`, at which samples of `width` features, `[samples, width]`, arrive after at most `depth` steps.
///
/// # Panics
/// When a slice does not have its size, or a table names what there is not.
pub fn leaves<T: Copy + PartialOrd + Send + Sync>(
    samples: &[T],
    width: usize,
    trees: &Trees<'_, T>,
    depth: usize,
    out: &mut [i64],
) {
    let &Trees { features, thresholds, children, roots } = trees;
    let nodes = thresholds.len();
    if out.is_empty() {
        return;
    }
    let count = out.len().checked_div(roots.len()).unwrap_or(0);
    assert_eq!(out.len(), elements(&[count, roots.len()]), "a leaf for each sample and tree");
    assert_eq!(samples.len(), elements(&[count, width]), "the samples' size");
    let ways = children.len().checked_div(nodes).unwrap_or(2);
    assert!((2..=3).contains(&ways) && children.len() == ways * nodes, "two or three ways from each node");
    assert_eq!(features.len(), nodes, "a feature for each node");
    let place = |at: i64| usize::try_from(at).unwrap_or(usize::MAX);
    let way = |number: T, threshold: T| match number.partial_cmp(&number) {
        None if ways == 3 => 2,
        _ => usize::from(number <= threshold),
    };
    // Nodes are put side by side where more steps read them than there are nodes.
    let steps = count.saturating_mul(roots.len()).saturating_mul(depth);
    let fits = [nodes, width].into_iter().all(|size| u32::try_from(size).is_ok());
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    /// Trees of full levels, one behind the other, whose leaves go on to themselves.
    fn full(
        trees: usize,
        depth: usize,
        width: usize,
        ways: usize,
    ) -> (Vec<i64>, Vec<f32>, Vec<i64>, Vec<i64>) {
        let of_tree = (1 << (depth + 1)) - 1;
        let (mut features, mut thresholds, mut children) = (vec![], vec![], vec![]);
        for node in 0..trees * of_tree {
            let (tree, at) = (node / of_tree, node % of_tree);
            features.push((node * 7 % width) as i64);
            thresholds.push((node * 31 % 17) as f32 - 8.0);
            let next = |side: usize| if 2 * at + 2 < of_tree { tree * of_tree + 2 * at + side } else { node };
            children.extend([next(1), next(2), next(1)].into_iter().take(ways).map(|child| child as i64));
        }
        (features, thresholds, children, (0..trees).map(|tree| (tree * of_tree) as i64).collect())
    }

    #[test]
    fn samples_arrive_where_single_steps_lead() {
        for (count, trees, depth, ways) in [(1, 3, 4, 2), (200, 9, 5, 3), (130, 70, 2, 2), (3, 0, 1, 2)] {
            let width = 5;
            let (features, thresholds, children, roots) = full(trees, depth, width, ways);
            let number = |n: usize| if n.is_multiple_of(13) { f32::NAN } else { (n * 29 % 19) as f32 - 9.0 };
            let samples: Vec<f32> = (0..count * width).map(number).collect();
            let expected = (0..count * trees).map(|at| {
                let mut node = roots[at % trees] as usize;
                for _ in 0..depth {
                    let x = samples[at / trees * width + features[node] as usize];
                    let way = if x.is_nan() && ways == 3 { 2 } else { usize::from(x <= thresholds[node]) };
                    node = children[node * ways + way] as usize;
                }
                node as i64
            });
            let tables =
                Trees { features: &features, thresholds: &thresholds, children: &children, roots: &roots };
            let mut out = vec![-1; count * trees];
            leaves(&samples, width, &tables, depth, &mut out);
            assert_eq!(out, expected.collect::<Vec<_>>(), "{count} samples, {trees} trees");
        }
    }

    #[test]
    #[should_panic(expected = "index out of bounds")]
    fn nodes_that_there_are_not_are_not_read() {
        let tables = Trees { features: &[0], thresholds: &[0.0], children: &[7, 7], roots: &[0] };
        leaves(&[1.0], 1, &tables, 2, &mut [0]);
    }
}
