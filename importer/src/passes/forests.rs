//! Ensembles of trees over the same samples whose results are added or joined: one ensemble.
//!
//! Some converters write an operator for each tree of a forest and add what comes out.

use super::tables::{is_only_exporters, origin};
use super::{Rewrite, Rule};
use crate::data::Elements;
use crate::ir::{Concat, Op, Reduce, Take, TreeLeaves, ValueId};
use kiln_types::{BinaryOp, DType, ReduceOp, TensorData};
use std::collections::{HashMap, HashSet};

pub(super) const RULE: Rule = Rule { apply };

fn apply(cx: &mut Rewrite<'_>) -> Option<&'static str> {
    match cx.op() {
        Op::Binary(BinaryOp::Add) => added(cx),
        Op::Concat(Concat { axis: 1 }) => joined(cx),
        _ => None,
    }
}

/// What is looked up for the leaves at which samples arrive.
struct Lookup {
    /// A number for each leaf.
    table: ValueId,
    /// Samples, features, thresholds, children, roots.
    trees: [ValueId; 5],
    depth: usize,
}

/// How a value is looked up, if nobody needs anything else of it.
fn lookup(cx: &Rewrite<'_>, result: ValueId) -> Option<Lookup> {
    let node = cx.producer(result).filter(|_| cx.used_once(result))?;
    let (Op::Take(Take { axis: 0, .. }), &[Some(table), Some(leaves)]) = (&node.op, node.inputs.as_slice())
    else {
        return None;
    };
    let fixed = match &cx.constant(table)?.provenance {
        None => true,
        Some(made) => is_only_exporters(made),
    };
    let node = cx.producer(leaves).filter(|_| fixed && cx.used_once(leaves) && cx.ty(table).rank() == 1)?;
    let (Op::TreeLeaves(TreeLeaves { depth }), &[Some(samples), Some(a), Some(b), Some(c), Some(d)]) =
        (&node.op, node.inputs.as_slice())
    else {
        return None;
    };
    let tables = [a, b, c, d];
    let known = |&id: &ValueId| cx.constant(id).is_some_and(|constant| constant.provenance.is_none());
    tables.iter().all(known).then_some(Lookup { table, trees: [samples, a, b, c, d], depth: *depth })
}

/// `a + b + c + …` where some are what one tree says, or the sum of what several do.
fn added(cx: &mut Rewrite<'_>) -> Option<&'static str> {
    let output = cx.output()?;
    let dims = cx.ty(output).dims.clone();
    let add = |id: ValueId| {
        let node = cx.producer(id).filter(|node| node.op == Op::Binary(BinaryOp::Add))?;
        let [Some(a), Some(b)] = node.inputs[..] else { return None };
        (cx.ty(id).dims == dims).then_some([a, b])
    };
    // The last of a sum takes it all.
    let is_last = |user: &crate::ir::Node| user.op != Op::Binary(BinaryOp::Add);
    if cx.used_once(output) && !cx.only_user(output).is_none_or(is_last) {
        return None;
    }
    let mut work = vec![output];
    let mut addends = Vec::new();
    while let Some(id) = work.pop() {
        match add(id).filter(|_| id == output || cx.used_once(id)) {
            Some([a, b]) => work.extend([b, a]),
            None => addends.push(id),
        }
    }
    let says = |&addend: &ValueId| {
        let lookup = match cx.producer(addend).map(|node| (&node.op, node.inputs.as_slice())) {
            Some((Op::Reduce(reduce), &[Some(x)])) => {
                let over_trees = reduce.op == ReduceOp::Sum
                    && reduce.axes == [1]
                    && reduce.keep_dims
                    && cx.used_once(addend);
                lookup(cx, x).filter(|_| over_trees)?
            }
            _ => lookup(cx, addend).filter(|_| cx.ty(addend).dims.get(1).is_some_and(|dim| dim.is(1)))?,
        };
        (cx.ty(addend).dims == dims).then_some((addend, lookup))
    };
    // Those of one samples' trees, whose numbers have one dtype; none is looked at twice.
    let mut groups: Vec<Vec<(ValueId, Lookup)>> = Vec::new();
    let mut places: HashMap<(ValueId, DType), usize> = HashMap::new();
    for (addend, lookup) in addends.iter().filter_map(says) {
        let place = *places.entry((lookup.trees[0], cx.ty(lookup.table).dtype)).or_insert(groups.len());
        if place == groups.len() {
            groups.push(Vec::new());
        }
        groups[place].push((addend, lookup));
    }
    let mut merged: HashSet<ValueId> = HashSet::new();
    let mut sums = Vec::new();
    for group in groups.into_iter().filter(|group| group.len() > 1) {
        let (said, found): (Vec<ValueId>, Vec<Lookup>) = group.into_iter().unzip();
        let Some((table, leaves)) = tables(cx, &found) else { continue };
        let joint = cx.insert(Op::Take(Take { axis: 0, wrapped: false }), &[table, leaves])?;
        sums.push(joint);
        merged.extend(said);
    }
    let last = sums.pop()?;
    let sum = || Op::Reduce(Reduce { op: ReduceOp::Sum, axes: vec![1], keep_dims: true });
    let mut rest: Vec<ValueId> = addends.into_iter().filter(|addend| !merged.contains(addend)).collect();
    for joint in sums {
        rest.push(cx.insert(sum(), &[joint])?);
    }
    let mut rest = rest.into_iter();
    match rest.next() {
        None => cx.replace(sum(), vec![Some(last)])?,
        Some(first) => {
            let mut y = first;
            for addend in rest {
                y = cx.insert(Op::Binary(BinaryOp::Add), &[y, addend])?;
            }
            let last = cx.insert(sum(), &[last])?;
            cx.replace(Op::Binary(BinaryOp::Add), vec![Some(y), Some(last)])?;
        }
    }
    Some("forest of trees that are added")
}

/// `[a, b, c, …]` where all are what trees say.
fn joined(cx: &mut Rewrite<'_>) -> Option<&'static str> {
    let found: Option<Vec<Lookup>> = cx.node().inputs.iter().map(|input| lookup(cx, (*input)?)).collect();
    let found = found.filter(|found| found.len() > 1)?;
    let kind = |lookup: &Lookup| (lookup.trees[0], cx.ty(lookup.table).dtype);
    if !found.iter().all(|lookup| kind(lookup) == kind(&found[0])) {
        return None;
    }
    let (table, leaves) = tables(cx, &found)?;
    cx.replace(Op::Take(Take { axis: 0, wrapped: false }), vec![Some(table), Some(leaves)])?;
    Some("forest of trees that are joined")
}

/// One table of numbers for leaves, and the leaves of one ensemble, whose rows are the leaves of all, then their branches.
fn tables(cx: &mut Rewrite<'_>, found: &[Lookup]) -> Option<(ValueId, ValueId)> {
    let same_dtype = |n: usize| {
        let dtype = |lookup: &Lookup| cx.ty(lookup.trees[n]).dtype;
        found.iter().all(|lookup| dtype(lookup) == dtype(&found[0]))
    };
    if !(same_dtype(1) && same_dtype(2)) {
        return None;
    }
    let size = |cx: &Rewrite<'_>, id: ValueId, axis: usize| cx.ty(id).dims.get(axis)?.as_size();
    let mut sizes = Vec::with_capacity(found.len());
    for lookup in found {
        let [_, features, thresholds, children, _] = lookup.trees;
        let (leaves, nodes) = (size(cx, lookup.table, 0)?, size(cx, features, 0)?);
        let fits = size(cx, thresholds, 0)? == nodes && size(cx, children, 0)? == nodes;
        sizes.push((leaves, nodes.checked_sub(leaves).filter(|_| fits)?, size(cx, children, 1)?));
    }
    let ways = sizes.iter().map(|&(.., ways)| ways).max().filter(|ways| (2..=3).contains(ways))?;
    let all_leaves: usize = sizes.iter().map(|&(leaves, ..)| leaves).sum();
    let (mut before_leaves, mut before_branches) = (0, all_leaves);
    let mut roots: Vec<i64> = Vec::new();
    let mut children: [Vec<i64>; 2] = Default::default();
    for (lookup, &(leaves, branches, own_ways)) in found.iter().zip(&sizes) {
        let [.., children_of, roots_of] = lookup.trees;
        let place = |row: i64| -> Option<i64> {
            let row = usize::try_from(row).ok().filter(|&row| row < leaves + branches)?;
            i64::try_from(if row < leaves { row + before_leaves } else { row - leaves + before_branches })
                .ok()
        };
        let integers = |id: ValueId| -> Option<Vec<i64>> {
            let data = &cx.constant(id)?.data;
            cx.look(data.num_elements())?;
            Elements::load(data).floats().into_iter().map(|row| place(row as i64)).collect()
        };
        roots.extend(integers(roots_of)?);
        for (row, rows) in integers(children_of)?.chunks_exact(own_ways).enumerate() {
            let (part, own) = if row < leaves { (0, row + before_leaves) } else { (1, usize::MAX) };
            let is_leaf = rows.iter().all(|&child| usize::try_from(child).is_ok_and(|child| child == own));
            // A leaf is a row of the table of numbers, and nothing else is.
            if is_leaf != (part == 0) {
                return None;
            }
            children[part].extend(rows);
            // What has two ways goes the first where a number is missing.
            children[part].extend(rows.iter().take(ways - own_ways));
        }
        (before_leaves, before_branches) = (before_leaves + leaves, before_branches + branches);
    }
    let nodes = before_branches;
    let children = TensorData::new(children.concat(), [nodes, ways]);
    let roots_shape = [roots.len()];
    let roots = TensorData::new(roots, roots_shape);
    let split = |cx: &Rewrite<'_>, n: usize| -> Option<TensorData> {
        let parts = |at: usize| {
            let part = found.iter().zip(&sizes).map(move |(lookup, &(leaves, branches, _))| {
                let data = &cx.constant(lookup.trees[n])?.data;
                let (start, end) = if at == 0 { (0, leaves) } else { (leaves, leaves + branches) };
                let size = data.dtype.size();
                data.bytes.get(start * size..end * size)
            });
            part.collect::<Option<Vec<&[u8]>>>()
        };
        let bytes = [parts(0)?.concat(), parts(1)?.concat()].concat();
        TensorData::from_bytes(
            kiln_types::Bytes::from_vec(bytes),
            vec![nodes],
            cx.ty(found.first()?.trees[n]).dtype,
        )
        .ok()
    };
    let parts: Option<Vec<&[u8]>> =
        found.iter().map(|lookup| Some(&*cx.constant(lookup.table)?.data.bytes)).collect();
    let dtype: DType = cx.ty(found[0].table).dtype;
    let table =
        TensorData::from_bytes(kiln_types::Bytes::from_vec(parts?.concat()), vec![all_leaves], dtype).ok()?;
    let (features, thresholds) = (split(cx, 1)?, split(cx, 2)?);
    let depth = found.iter().map(|lookup| lookup.depth).max()?;
    let mut operands = vec![found[0].trees[0]];
    for (n, data) in [(1, features), (2, thresholds), (3, children), (4, roots)] {
        cx.remake(&data)?;
        let sources: Vec<ValueId> = found.iter().map(|lookup| lookup.trees[n]).collect();
        let (name, provenance) = origin(cx, &sources);
        operands.push(cx.add_derived(name, data, provenance));
    }
    cx.remake(&table)?;
    let sources: Vec<ValueId> = found.iter().map(|lookup| lookup.table).collect();
    let (name, provenance) = origin(cx, &sources);
    let table = cx.add_derived(name, table, provenance);
    Some((table, cx.insert(Op::TreeLeaves(TreeLeaves { depth }), &operands)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{Builder, Graph};
    use crate::passes::testing::{checked, constant, graph, kinds};

    fn fixed(b: &mut Builder<'_>, name: &str, data: TensorData) -> ValueId {
        b.graph.add_constant(Some(name.to_owned()), data)
    }

    /// What so many trees of one branch say, which asks for a feature: `[samples, trees]`.
    fn stumps(b: &mut Builder<'_>, x: ValueId, feature: i64, trees: i64, ways: usize) -> ValueId {
        let leaves = 2 * trees;
        let nodes = (leaves + trees) as usize;
        let mut children: Vec<i64> = (0..leaves).flat_map(|leaf| vec![leaf; ways]).collect();
        for tree in 0..trees {
            let (no, yes) = (2 * tree, 2 * tree + 1);
            children.extend(&[no, yes, yes][..ways]);
        }
        let features = fixed(b, "features", TensorData::new(vec![feature; nodes], [nodes]));
        let limits = (0..nodes).map(|node| node as f32 / 10.0 - 0.5 * feature as f32).collect::<Vec<f32>>();
        let thresholds = fixed(b, "thresholds", TensorData::new(limits, [nodes]));
        let children = fixed(b, "children", TensorData::new(children, [nodes, ways]));
        let roots = TensorData::new((leaves..leaves + trees).collect::<Vec<i64>>(), [trees as usize]);
        let roots = fixed(b, "roots", roots);
        let leaf =
            b.add(Op::TreeLeaves(TreeLeaves { depth: 1 }), &[x, features, thresholds, children, roots]);
        let table: Vec<f32> = (0..leaves).map(|leaf| (leaf + 3 * feature) as f32).collect();
        let table = fixed(b, "values", TensorData::new(table, [leaves as usize]));
        b.add(Op::Take(Take { axis: 0, wrapped: false }), &[table, leaf.unwrap()]).unwrap()
    }

    fn sum(b: &mut Builder<'_>, values: &[ValueId]) -> ValueId {
        let add = |a, c| b.add(Op::Binary(BinaryOp::Add), &[a, c]).unwrap();
        values.iter().copied().reduce(add).unwrap()
    }

    /// The operations on data: roots that count are made.
    fn computed(graph: &Graph) -> Vec<String> {
        kinds(graph).into_iter().filter(|kind| kind != "Arange").collect()
    }

    fn count(graph: &Graph, kind: &str) -> usize {
        kinds(graph).iter().filter(|other| *other == kind).count()
    }

    #[test]
    fn trees_that_are_added_are_one_forest() {
        let g = graph(&["f32[n, 4]", "f32[n, 1]"], |b, x| {
            let several = stumps(b, x[0], 3, 2, 2);
            let over_trees = Reduce { op: ReduceOp::Sum, axes: vec![1], keep_dims: true };
            let several = b.add(Op::Reduce(over_trees), &[several]).unwrap();
            let said = [stumps(b, x[0], 0, 1, 2), stumps(b, x[0], 1, 1, 3), x[1], several];
            vec![sum(b, &said)]
        });
        let g = checked(g, &[("n", 9)]);
        assert_eq!(computed(&g), ["TreeLeaves", "Take", "Reduce", "Binary(Add)"]);
        let leaves = g.root.nodes.iter().map(|&id| g.node(id));
        let leaves = leaves.into_iter().find(|node| matches!(node.op, Op::TreeLeaves(_))).unwrap();
        assert_eq!(g.ty(leaves.outputs[0]).dims[1].as_size(), Some(4), "trees");
        // Where a number is missing those of two ways go on as they did.
        assert_eq!(g.ty(leaves.inputs[3].unwrap()).dims[1].as_size(), Some(3), "ways");
    }

    #[test]
    fn trees_that_are_joined_are_one_forest() {
        let g = graph(&["f32[n, 4]"], |b, x| {
            let said = [(0, 1), (1, 3), (2, 1)].map(|(feature, trees)| stumps(b, x[0], feature, trees, 2));
            vec![b.add(Op::Concat(Concat { axis: 1 }), &said).unwrap()]
        });
        assert_eq!(computed(&checked(g, &[("n", 9)])), ["TreeLeaves", "Take"]);
    }

    #[test]
    fn other_samples_and_what_is_needed_elsewhere_stay_apart() {
        let g = graph(&["f32[n, 4]", "f32[n, 4]"], |b, x| {
            let said = [stumps(b, x[0], 0, 1, 2), stumps(b, x[1], 1, 1, 2)];
            vec![sum(b, &said)]
        });
        assert_eq!(count(&checked(g, &[("n", 5)]), "TreeLeaves"), 2);
        let g = graph(&["f32[n, 4]"], |b, x| {
            let said = [stumps(b, x[0], 0, 1, 2), stumps(b, x[0], 1, 1, 2)];
            vec![sum(b, &said), said[0]]
        });
        assert_eq!(count(&checked(g, &[("n", 5)]), "TreeLeaves"), 2);
        // A vector that is spread over all samples is no tree's.
        let g = graph(&["f32[n, 4]"], |b, x| {
            let bias = constant(b, None, &[1, 1], &[0.5]);
            let said = [stumps(b, x[0], 0, 1, 2), stumps(b, x[0], 1, 1, 2), bias];
            vec![sum(b, &said)]
        });
        assert_eq!(count(&checked(g, &[("n", 5)]), "TreeLeaves"), 1);
    }
}
