//! What the leaves of trees add to targets, laid out so that ordinary tensor operations sum it up.

use super::super::prelude::*;
use super::tables::{Forest, Row, Tables};
use std::collections::HashMap;

/// How what leaves say of targets comes together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aggregate {
    Sum,
    Average,
    Min,
    Max,
}

impl Aggregate {
    pub(super) fn reduction(self) -> ReduceOp {
        match self {
            Self::Sum | Self::Average => ReduceOp::Sum,
            Self::Min => ReduceOp::Min,
            Self::Max => ReduceOp::Max,
        }
    }

    pub(super) fn is_sum(self) -> bool {
        match self {
            Self::Sum | Self::Average => true,
            Self::Min | Self::Max => false,
        }
    }

    /// What changes nothing.
    fn neutral(self) -> f64 {
        match self {
            Self::Sum | Self::Average => 0.0,
            Self::Min => f64::INFINITY,
            Self::Max => f64::NEG_INFINITY,
        }
    }

    fn meet(self, a: f64, b: f64) -> f64 {
        match self {
            Self::Sum | Self::Average => a + b,
            Self::Min => a.min(b),
            Self::Max => a.max(b),
        }
    }
}

/// How often the leaf at which a sample arrives says something about a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coverage {
    Never,
    Sometimes,
    Always,
}

/// The weights of the leaves.
pub(super) struct Targets {
    /// A line for each leaf.
    pub(super) weights: Vec<f64>,
    pub(super) layout: Layout,
    pub(super) coverage: Vec<Coverage>,
    /// Whether a leaf says something of a target, a line for each leaf; nothing where a leaf has one weight.
    pub(super) tells: Vec<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// A leaf has one weight. The trees of each target, so many, stand side by side.
    Grouped { trees: usize },
    /// A leaf has a weight for each target.
    Dense,
}

/// Lays out the weights of a number of targets; trees change places if they are grouped.
pub(super) fn lay_out(
    to: &Lowering<'_, '_>,
    forest: &Forest,
    tables: &mut Tables,
    count: usize,
    aggregate: Aggregate,
) -> RuleResult<Targets> {
    // Weights in the order of leaves, each leaf's by target.
    let mut weights: Vec<(usize, usize, f64)> = Vec::with_capacity(forest.weights.len());
    for weight in &forest.weights {
        let target = weight.target;
        if target >= count {
            return Err(invalid("ids of weights", format!("has {target} for {count} targets")));
        }
        let row = tables.row_of.get(weight.leaf).copied().flatten().filter(|&row| row < tables.leaves);
        weights.extend(row.map(|row| (row, target, weight.value)));
    }
    weights.sort_by_key(|&(row, target, _)| (row, target));
    weights.dedup_by(|next, kept| {
        let same = (next.0, next.1) == (kept.0, kept.1);
        if same {
            kept.2 = aggregate.meet(kept.2, next.2);
        }
        same
    });
    if let Some(targets) = grouped(&weights, tables, count, aggregate) {
        return Ok(targets);
    }
    let size = tables.leaves.checked_mul(count).filter(|size| size.checked_mul(8).is_some());
    let size = size.ok_or_else(|| RuleError::TooLarge { what: format!("weights of {count} targets") })?;
    to.reserve(size.saturating_mul(8))?;
    let coverage = coverage(&weights, tables, count);
    let mut dense = vec![aggregate.neutral(); size];
    let mut tells = vec![false; size];
    for (row, target, value) in weights {
        if let (Some(slot), Some(tells)) =
            (dense.get_mut(row * count + target), tells.get_mut(row * count + target))
        {
            (*slot, *tells) = (value, true);
        }
    }
    Ok(Targets { weights: dense, layout: Layout::Dense, coverage, tells })
}

/// One weight for each leaf, all of a tree's leaves for the same target; `None` where that is not so, or most trees would be made up.
fn grouped(
    weights: &[(usize, usize, f64)],
    tables: &mut Tables,
    count: usize,
    aggregate: Aggregate,
) -> Option<Targets> {
    let one_each =
        weights.len() == tables.leaves && weights.iter().enumerate().all(|(at, weight)| weight.0 == at);
    let mut line: Vec<f64> = weights.iter().map(|weight| weight.2).collect();
    if !one_each {
        return None;
    }
    if count == 1 {
        let layout = Layout::Grouped { trees: tables.roots.len() };
        return Some(Targets { weights: line, layout, coverage: vec![Coverage::Always], tells: Vec::new() });
    }
    let mut target_of: Vec<Option<usize>> = vec![None; tables.roots.len()];
    for (&tree, &(_, target, _)) in tables.trees.as_ref()?.iter().zip(weights) {
        let slot = target_of.get_mut(tree)?;
        if slot.is_some_and(|other| other != target) {
            return None;
        }
        *slot = Some(target);
    }
    // A few trees may be made up, so that each target has as many; of many targets without a tree none is.
    let most = tables.roots.len().checked_mul(2)?.checked_add(16)?;
    if count > most {
        return None;
    }
    let mut of_target: Vec<Vec<usize>> = vec![Vec::new(); count];
    for (&root, target) in tables.roots.iter().zip(target_of) {
        of_target.get_mut(target?)?.push(root);
    }
    let longest = of_target.iter().map(Vec::len).max()?;
    if longest.checked_mul(count)? > most {
        return None;
    }
    if !aggregate.is_sum() && of_target.iter().any(Vec::is_empty) {
        return None;
    }
    let tell = |roots: &Vec<usize>| if roots.is_empty() { Coverage::Never } else { Coverage::Always };
    let coverage = of_target.iter().map(tell).collect();
    if of_target.iter().any(|roots| roots.len() < longest) {
        // A tree of one leaf that changes nothing, behind the other leaves.
        let at = tables.leaves;
        let moved = |place: usize| if place < at { place } else { place + 1 };
        for row in &mut tables.rows {
            row.children = row.children.map(moved);
        }
        tables.rows.insert(at, Row { feature: 0, threshold: 0.0, children: [at; 3] });
        tables.leaves += 1;
        line.push(aggregate.neutral());
        for roots in &mut of_target {
            for root in roots.iter_mut() {
                *root = moved(*root);
            }
            roots.resize(longest, at);
        }
    }
    tables.roots = of_target.concat();
    Some(Targets { weights: line, layout: Layout::Grouped { trees: longest }, coverage, tells: Vec::new() })
}

/// How often leaves tell of each target. Where trees share leaves, all of them are taken for one.
fn coverage(weights: &[(usize, usize, f64)], tables: &Tables, count: usize) -> Vec<Coverage> {
    let tree_of = |leaf: usize| tables.trees.as_ref().map_or(Some(0), |trees| trees.get(leaf).copied());
    let mut leaves_of = HashMap::new();
    for tree in (0..tables.leaves).filter_map(tree_of) {
        *leaves_of.entry(tree).or_insert(0usize) += 1;
    }
    let mut tells = HashMap::new();
    for &(leaf, target, _) in weights {
        *tells.entry((tree_of(leaf), target)).or_insert(0usize) += 1;
    }
    let mut coverage = vec![Coverage::Never; count];
    for ((tree, target), leaves) in tells {
        let all = tree.and_then(|tree| leaves_of.get(&tree)) == Some(&leaves);
        if let Some(slot) = coverage.get_mut(target) {
            *slot = if all || *slot == Coverage::Always { Coverage::Always } else { Coverage::Sometimes };
        }
    }
    coverage
}
