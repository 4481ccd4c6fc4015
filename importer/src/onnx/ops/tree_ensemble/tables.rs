//! The nodes of a file's trees as tables for the runtime, whose nodes all ask whether a number is at most a threshold.
//!
//! Numbers below a threshold are at most the next smaller number. What is above a threshold, or at it, is not below, so that the children
//! change places. Members of a set are found by halving it.

use super::super::prelude::*;
use std::collections::HashSet;

/// The question of a branch.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Test {
    AtMost(f64),
    Below(f64),
    AtLeast(f64),
    Above(f64),
    /// Whether it is one of these.
    Member(Vec<f64>),
    /// Whether it is another number.
    Not(f64),
}

/// A node of a file's trees.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Node {
    Branch {
        feature: usize,
        test: Test,
        /// Where samples go on that pass the test, and those that do not: numbers of nodes.
        yes: usize,
        no: usize,
        /// Whether a missing number passes.
        missing_passes: bool,
    },
    Leaf,
}

/// All trees of a file.
#[derive(Clone, Debug, Default)]
pub(super) struct Forest {
    pub(super) nodes: Vec<Node>,
    pub(super) roots: Vec<usize>,
    /// What leaves add to targets.
    pub(super) weights: Vec<Weight>,
}

impl Forest {
    /// One weight for each leaf, where there is one target: of several ONNX Runtime takes the first, and 0 where there is none.
    pub(super) fn weigh_once(&mut self) {
        self.weights.sort_by_key(|weight| weight.leaf);
        self.weights.dedup_by_key(|weight| weight.leaf);
        let weighed: HashSet<usize> = self.weights.iter().map(|weight| weight.leaf).collect();
        let leaves = self.nodes.iter().enumerate().filter(|(_, node)| **node == Node::Leaf);
        let others = leaves.map(|(leaf, _)| leaf).filter(|leaf| !weighed.contains(leaf));
        self.weights.extend(others.map(|leaf| Weight { leaf, target: 0, value: 0.0 }));
    }
}

/// What a leaf adds to a target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Weight {
    pub(super) leaf: usize,
    pub(super) target: usize,
    pub(super) value: f64,
}

/// A row of the tables: a node that the runtime knows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Row {
    pub(super) feature: usize,
    pub(super) threshold: f64,
    /// The rows of those above the threshold, of those at most at it, and of those whose number is missing.
    pub(super) children: [usize; 3],
}

/// What the runtime walks down.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tables {
    /// The leaves, whose children are themselves, then the branches.
    pub(super) rows: Vec<Row>,
    pub(super) leaves: usize,
    pub(super) roots: Vec<usize>,
    pub(super) depth: usize,
    /// The number of a leaf of the file among the rows; `None` if no sample arrives there.
    pub(super) row_of: Vec<Option<usize>>,
    /// The tree to which each leaf belongs; `None` where several trees share one.
    pub(super) trees: Option<Vec<usize>>,
}

impl Row {
    fn leaf(at: usize) -> Self {
        Self { feature: 0, threshold: 0.0, children: [at; 3] }
    }

    fn is_leaf(&self, at: usize) -> bool {
        self.children == [at; 3]
    }
}

impl Tables {
    /// Tables for samples of f32, or `wide` ones of f64. Takes time in proportion to the nodes.
    pub(super) fn of(forest: &Forest, wide: bool) -> RuleResult<Self> {
        let leads_to_itself = |(at, node): (usize, &Node)| match *node {
            Node::Branch { yes, no, .. } => yes == at || no == at,
            Node::Leaf => false,
        };
        if forest.nodes.iter().enumerate().any(leads_to_itself) {
            return Err(cycle());
        }
        let rows = rows_of(&forest.nodes, wide);
        let visit = Visit::of(&rows, &forest.roots)?;
        // Leaves first, so that a leaf's number is its place among the leaves' weights.
        let (leaves, branches): (Vec<usize>, Vec<usize>) =
            visit.order.iter().partition(|&&at| rows.get(at).is_some_and(|row| row.is_leaf(at)));
        let mut places = vec![None; rows.len()];
        for (place, &at) in leaves.iter().chain(&branches).enumerate() {
            set(&mut places, at, Some(place));
        }
        let place = |at: usize| places.get(at).copied().flatten().unwrap_or(0);
        let moved = |&at: &usize| {
            let row = rows.get(at).copied().unwrap_or_else(|| Row::leaf(at));
            Row { children: row.children.map(place), ..row }
        };
        let trees = leaves.iter().map(|&leaf| visit.tree.get(leaf).copied().flatten()).collect();
        Ok(Self {
            leaves: leaves.len(),
            roots: forest.roots.iter().map(|&root| place(root)).collect(),
            depth: visit.depth,
            row_of: places.get(..forest.nodes.len()).unwrap_or_default().to_vec(),
            trees: if visit.shared { None } else { trees },
            rows: leaves.iter().chain(&branches).map(moved).collect(),
        })
    }

    /// Whether missing numbers go another way than large ones.
    pub(super) fn tells_missing(&self) -> bool {
        self.rows.iter().any(|row| row.children[2] != row.children[0])
    }

    /// The largest number of a feature, if there is a branch.
    pub(super) fn last_feature(&self) -> Option<usize> {
        self.rows.get(self.leaves..).unwrap_or_default().iter().map(|row| row.feature).max()
    }
}

fn cycle() -> RuleError {
    invalid("nodes_truenodeids", "and `nodes_falsenodeids` lead back to a node above")
}

fn set<T>(list: &mut [T], at: usize, value: T) {
    if let Some(slot) = list.get_mut(at) {
        *slot = value;
    }
}

/// A row for each node under the node's number, and more behind them where one row does not do.
fn rows_of(nodes: &[Node], wide: bool) -> Vec<Row> {
    let mut rows: Vec<Row> = (0..nodes.len()).map(Row::leaf).collect();
    for (at, node) in nodes.iter().enumerate() {
        let Node::Branch { feature, ref test, yes, no, missing_passes } = *node else { continue };
        let missing = if missing_passes { yes } else { no };
        let row = |threshold, children| Row { feature, threshold, children };
        match test {
            // No number is above NaN, or at least it.
            Test::Above(limit) | Test::AtLeast(limit) if limit.is_nan() => {
                set(&mut rows, at, row(*limit, [no, yes, missing]));
            }
            Test::AtMost(limit) => set(&mut rows, at, row(*limit, [no, yes, missing])),
            Test::Below(limit) => set(&mut rows, at, row(below(*limit, wide), [no, yes, missing])),
            Test::Above(limit) => set(&mut rows, at, row(*limit, [yes, no, missing])),
            Test::AtLeast(limit) => set(&mut rows, at, row(below(*limit, wide), [yes, no, missing])),
            // A missing number is another number.
            Test::Not(number) => halve(
                &mut rows,
                at,
                &[*number],
                wide,
                |threshold, [above, at_most]| row(threshold, [above, at_most, yes]),
                [yes, no],
            ),
            Test::Member(numbers) => halve(
                &mut rows,
                at,
                numbers,
                wide,
                |threshold, [above, at_most]| row(threshold, [above, at_most, missing]),
                [no, yes],
            ),
        }
    }
    rows
}

/// Rows that look for a number in a list, the first of them at a place: `[miss, hit]` are where samples go on.
fn halve(
    rows: &mut Vec<Row>,
    at: usize,
    numbers: &[f64],
    wide: bool,
    row: impl Fn(f64, [usize; 2]) -> Row,
    [miss, hit]: [usize; 2],
) {
    let mut sorted: Vec<f64> = numbers.iter().copied().filter(|number| !number.is_nan()).collect();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted.dedup();
    let mut work = vec![(at, sorted.as_slice())];
    while let Some((at, part)) = work.pop() {
        let (smaller, rest) = part.split_at(part.len() / 2);
        let Some((&middle, larger)) = rest.split_first() else {
            set(rows, at, row(f64::NAN, [miss, miss]));
            continue;
        };
        let mut place = |rows: &mut Vec<Row>, part| {
            let at = rows.len();
            rows.push(Row::leaf(at));
            work.extend([(at, part)]);
            at
        };
        let above = if larger.is_empty() { miss } else { place(rows, larger) };
        let under = if smaller.is_empty() { miss } else { place(rows, smaller) };
        let exact = rows.len();
        rows.push(row(below(middle, wide), [hit, under]));
        set(rows, at, row(middle, [above, exact]));
    }
}

/// The next smaller number, so that what is at most it is below the limit.
fn below(limit: f64, wide: bool) -> f64 {
    match (limit, wide) {
        // Nothing is below, and nothing is at most NaN.
        (f64::NEG_INFINITY, _) => f64::NAN,
        // GPUs take subnormal numbers for 0.
        (0.0, true) => -f64::MIN_POSITIVE,
        (0.0, false) => -f64::from(f32::MIN_POSITIVE),
        (limit, true) => limit.next_down(),
        (limit, false) => f64::from((limit as f32).next_down()),
    }
}

/// What is found on the way down all trees.
struct Visit {
    /// Rows in the order in which they are met.
    order: Vec<usize>,
    /// The tree that met a row first.
    tree: Vec<Option<usize>>,
    /// Whether a row belongs to several trees.
    shared: bool,
    /// Branches on the longest way.
    depth: usize,
}

impl Visit {
    /// Goes down from the roots; a way that leads back is an error. Without recursion: a tree may be as deep as the file is long.
    fn of(rows: &[Row], roots: &[usize]) -> RuleResult<Self> {
        let mut found = Self { order: Vec::new(), tree: vec![None; rows.len()], shared: false, depth: 0 };
        // How many branches lie below a row, once all of them are known.
        let mut heights: Vec<Option<usize>> = vec![None; rows.len()];
        for (tree, &root) in roots.iter().enumerate() {
            let mut work = vec![(root, false)];
            while let Some((at, is_left)) = work.pop() {
                let Some(row) = rows.get(at) else { continue };
                let children = row.children.iter().filter(|&&child| child != at);
                if is_left {
                    let below = children.filter_map(|&child| heights.get(child).copied().flatten()).max();
                    set(&mut heights, at, Some(below.map_or(0, |height| height + 1)));
                    continue;
                }
                match found.tree.get(at).copied().flatten() {
                    None => {
                        set(&mut found.tree, at, Some(tree));
                        found.order.push(at);
                        work.push((at, true));
                        work.extend(children.rev().map(|&child| (child, false)));
                    }
                    Some(_) if heights.get(at).copied().flatten().is_none() => {
                        return Err(cycle());
                    }
                    Some(other) => found.shared |= other != tree,
                }
            }
            found.depth = found.depth.max(heights.get(root).copied().flatten().unwrap_or(0));
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Where a sample arrives by the tables.
    fn walk(tables: &Tables, root: usize, sample: &[f64]) -> usize {
        let mut at = tables.roots[root];
        for _ in 0..tables.depth {
            let row = tables.rows[at];
            let number = sample[row.feature];
            let way = match number.is_nan() {
                true if tables.tells_missing() => 2,
                _ => usize::from(number <= row.threshold),
            };
            at = row.children[way];
        }
        at
    }

    /// Where it arrives by the nodes.
    fn arrive(nodes: &[Node], root: usize, sample: &[f64]) -> usize {
        let mut at = root;
        while let Node::Branch { feature, test, yes, no, missing_passes } = &nodes[at] {
            let x = sample[*feature];
            let passes = match test {
                Test::AtMost(limit) => x <= *limit,
                Test::Below(limit) => x < *limit,
                Test::AtLeast(limit) => x >= *limit,
                Test::Above(limit) => x > *limit,
                Test::Member(numbers) => numbers.contains(&x),
                Test::Not(number) => x != *number,
            };
            at = if passes || (*missing_passes && x.is_nan()) { *yes } else { *no };
        }
        at
    }

    fn number() -> impl Strategy<Value = f64> {
        prop_oneof![
            (-3..4i32).prop_map(f64::from),
            Just(f64::INFINITY),
            Just(f64::NEG_INFINITY),
            Just(f64::NAN),
            Just(-0.0),
            Just(f64::from(1.0f32.next_down())),
        ]
    }

    fn test() -> impl Strategy<Value = Test> {
        prop_oneof![
            number().prop_map(Test::AtMost),
            number().prop_map(Test::Below),
            number().prop_map(Test::AtLeast),
            number().prop_map(Test::Above),
            prop::collection::vec(number(), 0..6).prop_map(Test::Member),
            number().prop_map(Test::Not),
        ]
    }

    /// Nodes whose children lie behind them, or anywhere if `wild`.
    fn nodes(wild: bool) -> impl Strategy<Value = Vec<Node>> {
        let node = (0..3usize, test(), any::<[u16; 2]>(), any::<bool>(), 0..4u8);
        prop::collection::vec(node, 1..24).prop_map(move |drawn| {
            let count = drawn.len();
            let node = |(at, drawn): (usize, (usize, Test, [u16; 2], bool, u8))| {
                let (feature, test, children, missing_passes, kind) = drawn;
                let left = if wild { count } else { count - at - 1 };
                if left == 0 || kind == 0 {
                    return Node::Leaf;
                }
                let first = if wild { 0 } else { at + 1 };
                let [yes, no] = children.map(|child: u16| first + usize::from(child) % left);
                Node::Branch { feature, test, yes, no, missing_passes }
            };
            drawn.into_iter().enumerate().map(node).collect()
        })
    }

    proptest! {
        #[test]
        fn tables_lead_where_nodes_do(
            nodes in nodes(false),
            samples in prop::collection::vec([number(), number(), number()], 1..8),
            wide in any::<bool>(),
        ) {
            let forest = Forest { nodes, roots: vec![0], weights: Vec::new() };
            let tables = Tables::of(&forest, wide).unwrap();
            for sample in samples {
                let leaf = arrive(&forest.nodes, 0, &sample);
                prop_assert_eq!(Some(walk(&tables, 0, &sample)), tables.row_of[leaf]);
            }
        }

        #[test]
        fn cycles_are_errors(nodes in nodes(true)) {
            let forest = Forest { nodes, roots: vec![0], weights: Vec::new() };
            if let Ok(tables) = Tables::of(&forest, false) {
                prop_assert!(walk(&tables, 0, &[0.0; 3]) < tables.leaves);
            }
        }
    }

    #[test]
    fn a_deep_tree_needs_no_stack() {
        let count = 200_000;
        let branch = |at| Node::Branch {
            feature: 0,
            test: Test::AtMost(0.0),
            yes: at + 1,
            no: at + 1,
            missing_passes: false,
        };
        let mut nodes: Vec<Node> = (0..count).map(branch).collect();
        nodes.push(Node::Leaf);
        let forest = Forest { nodes, roots: vec![0], weights: Vec::new() };
        let tables = Tables::of(&forest, false).unwrap();
        assert_eq!((tables.depth, tables.leaves), (count, 1));
    }
}
