//! The trees of a file: versions 1 to 4 list nodes under numbers of trees and of nodes, version 5 by their places.

use super::super::super::proto::TensorProto;
use super::super::prelude::*;
use super::tables::{Forest, Node, Test, Weight};
use crate::onnx::lowering::numbers;
use std::collections::{HashMap, HashSet};

/// Floats of an attribute, or of the tensor that newer versions have instead.
pub(super) enum Floats<'m> {
    List(Vec<f64>),
    Tensor(&'m TensorProto),
}

impl<'m> Floats<'m> {
    pub(super) fn read(node: &mut SourceNode<'m>, name: &str) -> RuleResult<Self> {
        let list = node.floats(name)?.unwrap_or_default();
        let tensor = node.tensor(&format!("{name}_as_tensor"))?;
        Ok(tensor.filter(|_| list.is_empty()).map_or(Self::List(list), Self::Tensor))
    }

    pub(super) fn numbers(&self, to: &Lowering<'_, 'm>, name: &str) -> RuleResult<Vec<f64>> {
        match self {
            Self::List(list) => Ok(list.clone()),
            Self::Tensor(proto) => {
                let data = to.read(proto).map_err(|error| invalid(name, error.to_string()))?;
                to.reserve(data.num_elements().saturating_mul(8))?;
                Ok(numbers(&data).into_iter().map(Scalar::to_f64).collect())
            }
        }
    }
}

/// Nodes and weights as attributes of one operator have them.
pub(super) enum Source<'m> {
    Listed(Listed<'m>),
    Placed(Placed<'m>),
}

impl<'m> Source<'m> {
    pub(super) fn forest(&self, to: &Lowering<'_, 'm>) -> RuleResult<Forest> {
        let forest = match self {
            Self::Listed(listed) => listed.forest(to)?,
            Self::Placed(placed) => placed.forest(to)?,
        };
        if forest.roots.is_empty() { Err(invalid("nodes_modes", "has no nodes")) } else { Ok(forest) }
    }
}

/// An error unless a list has a length.
fn of_length<T>(name: &str, list: &[T], length: usize) -> RuleResult<()> {
    if list.len() == length {
        return Ok(());
    }
    Err(invalid(name, format!("has {} entries, must have {length}", list.len())))
}

fn feature(id: i64) -> RuleResult<usize> {
    usize::try_from(id).map_err(|_| invalid("nodes_featureids", format!("has {id}")))
}

/// The attributes of versions 1 to 4.
pub(super) struct Listed<'m> {
    modes: Vec<String>,
    trees: Vec<i64>,
    nodes: Vec<i64>,
    features: Vec<i64>,
    values: Floats<'m>,
    yes: Vec<i64>,
    no: Vec<i64>,
    missing: Vec<i64>,
    weight_trees: Vec<i64>,
    weight_nodes: Vec<i64>,
    weight_targets: Vec<i64>,
    weights: Floats<'m>,
}

impl<'m> Listed<'m> {
    /// The names of weights begin with `class` or `target`.
    pub(super) fn read(node: &mut SourceNode<'m>, what: &str) -> RuleResult<Self> {
        node.ignore(&["nodes_hitrates", "nodes_hitrates_as_tensor"]);
        let values = Floats::read(node, "nodes_values")?;
        let weights = Floats::read(node, &format!("{what}_weights"))?;
        let modes = node.strings("nodes_modes")?.unwrap_or_default();
        let mut ints = |name: &str| node.ints(name).map(Option::unwrap_or_default);
        Ok(Self {
            modes,
            trees: ints("nodes_treeids")?,
            nodes: ints("nodes_nodeids")?,
            features: ints("nodes_featureids")?,
            values,
            yes: ints("nodes_truenodeids")?,
            no: ints("nodes_falsenodeids")?,
            missing: ints("nodes_missing_value_tracks_true")?,
            weight_trees: ints(&format!("{what}_treeids"))?,
            weight_nodes: ints(&format!("{what}_nodeids"))?,
            weight_targets: ints(&format!("{what}_ids"))?,
            weights,
        })
    }

    fn forest(&self, to: &Lowering<'_, 'm>) -> RuleResult<Forest> {
        let count = self.modes.len();
        let values = self.values.numbers(to, "nodes_values")?;
        for (name, list) in [
            ("nodes_treeids", &self.trees),
            ("nodes_nodeids", &self.nodes),
            ("nodes_featureids", &self.features),
            ("nodes_truenodeids", &self.yes),
            ("nodes_falsenodeids", &self.no),
        ] {
            of_length(name, list, count)?;
        }
        of_length("nodes_values", &values, count)?;
        let mut places = HashMap::with_capacity(count);
        for (at, (&tree, &node)) in self.trees.iter().zip(&self.nodes).enumerate() {
            if places.insert((tree, node), at).is_some() {
                return Err(invalid("nodes_nodeids", format!("has node {node} of tree {tree} twice")));
            }
        }
        let find = |name: &str, tree: i64, node: i64| {
            let missing = || invalid(name, format!("has node {node} of tree {tree}, which is not there"));
            places.get(&(tree, node)).copied().ok_or_else(missing)
        };
        let mut forest = Forest { nodes: Vec::with_capacity(count), ..Forest::default() };
        let mut children = HashSet::new();
        let lists = self.trees.iter().zip(&self.features).zip(self.yes.iter().zip(&self.no)).zip(&values);
        for ((at, mode), (((&tree, &id), (&yes, &no)), &value)) in self.modes.iter().enumerate().zip(lists) {
            let Some(test) = test(mode, value)? else {
                forest.nodes.push(Node::Leaf);
                continue;
            };
            let yes = find("nodes_truenodeids", tree, yes)?;
            let no = find("nodes_falsenodeids", tree, no)?;
            children.extend([yes, no]);
            let missing_passes = self.missing.get(at) == Some(&1);
            forest.nodes.push(Node::Branch { feature: feature(id)?, test, yes, no, missing_passes });
        }
        // A tree's root is its first node that is no child.
        let mut rooted = HashSet::new();
        for (at, &tree) in self.trees.iter().enumerate() {
            if !children.contains(&at) && rooted.insert(tree) {
                forest.roots.push(at);
            }
        }
        if let Some(tree) = self.trees.iter().find(|tree| !rooted.contains(tree)) {
            return Err(invalid(
                "nodes_treeids",
                format!("has tree {tree} without a root: each node is a child"),
            ));
        }
        let weights = self.weights.numbers(to, "weights")?;
        of_length("treeids of weights", &self.weight_trees, weights.len())?;
        of_length("nodeids of weights", &self.weight_nodes, weights.len())?;
        of_length("ids of weights", &self.weight_targets, weights.len())?;
        let ids = self.weight_trees.iter().zip(&self.weight_nodes).zip(&self.weight_targets);
        for (((&tree, &node), &target), value) in ids.zip(weights) {
            let leaf = find("nodeids of weights", tree, node)?;
            let target =
                usize::try_from(target).map_err(|_| invalid("ids of weights", format!("has {target}")))?;
            forest.weights.push(Weight { leaf, target, value });
        }
        Ok(forest)
    }
}

/// The test of a mode; `None` for a leaf.
fn test(mode: &str, value: f64) -> RuleResult<Option<Test>> {
    Ok(Some(match mode {
        "LEAF" => return Ok(None),
        "BRANCH_LEQ" => Test::AtMost(value),
        "BRANCH_LT" => Test::Below(value),
        "BRANCH_GTE" => Test::AtLeast(value),
        "BRANCH_GT" => Test::Above(value),
        "BRANCH_EQ" => Test::Member(vec![value]),
        "BRANCH_NEQ" => Test::Not(value),
        other => return Err(invalid("nodes_modes", format!("has {}", kiln_types::quoted(other)))),
    }))
}

/// The attributes of version 5.
pub(super) struct Placed<'m> {
    modes: Option<&'m TensorProto>,
    splits: Option<&'m TensorProto>,
    members: Option<&'m TensorProto>,
    features: Vec<i64>,
    yes: Vec<i64>,
    no: Vec<i64>,
    yes_are_leaves: Vec<i64>,
    no_are_leaves: Vec<i64>,
    missing: Vec<i64>,
    roots: Vec<i64>,
    targets: Vec<i64>,
    weights: Option<&'m TensorProto>,
}

impl<'m> Placed<'m> {
    pub(super) fn read(node: &mut SourceNode<'m>) -> RuleResult<Self> {
        node.ignore(&["nodes_hitrates"]);
        let [modes, splits, members, weights] =
            ["nodes_modes", "nodes_splits", "membership_values", "leaf_weights"]
                .map(|name| node.tensor(name));
        let mut ints = |name: &str| node.ints(name).map(Option::unwrap_or_default);
        Ok(Self {
            modes: modes?,
            splits: splits?,
            members: members?,
            features: ints("nodes_featureids")?,
            yes: ints("nodes_truenodeids")?,
            no: ints("nodes_falsenodeids")?,
            yes_are_leaves: ints("nodes_trueleafs")?,
            no_are_leaves: ints("nodes_falseleafs")?,
            missing: ints("nodes_missing_value_tracks_true")?,
            roots: ints("tree_roots")?,
            targets: ints("leaf_targetids")?,
            weights: weights?,
        })
    }

    fn forest(&self, to: &Lowering<'_, 'm>) -> RuleResult<Forest> {
        let read = |name: &str, tensor: Option<&'m TensorProto>| {
            tensor.map_or(Ok(Vec::new()), |proto| Floats::Tensor(proto).numbers(to, name))
        };
        let modes = read("nodes_modes", self.modes)?;
        let splits = read("nodes_splits", self.splits)?;
        let weights = read("leaf_weights", self.weights)?;
        let members = read("membership_values", self.members)?;
        let (count, leaves) = (modes.len(), self.targets.len());
        for (name, list) in [
            ("nodes_featureids", &self.features),
            ("nodes_truenodeids", &self.yes),
            ("nodes_falsenodeids", &self.no),
            ("nodes_trueleafs", &self.yes_are_leaves),
            ("nodes_falseleafs", &self.no_are_leaves),
        ] {
            of_length(name, list, count)?;
        }
        of_length("nodes_splits", &splits, count)?;
        of_length("leaf_weights", &weights, leaves)?;
        // Leaves behind the nodes.
        let place = |name: &str, id: i64, is_leaf: bool| {
            let (first, most) = if is_leaf { (count, leaves) } else { (0, count) };
            let id = usize::try_from(id).ok().filter(|&at| at < most);
            id.map(|at| first + at).ok_or_else(|| invalid(name, "has a number of no node"))
        };
        // The sets of nodes that ask for members, each ended by NaN.
        let mut sets = members.split(|number| number.is_nan());
        let mut forest = Forest { nodes: Vec::with_capacity(count + leaves), ..Forest::default() };
        let children = self.yes.iter().zip(&self.yes_are_leaves).zip(self.no.iter().zip(&self.no_are_leaves));
        let lists = modes.iter().zip(&splits).zip(&self.features).zip(children);
        for (at, (((&mode, &split), &id), ((&yes, &yes_is_leaf), (&no, &no_is_leaf)))) in lists.enumerate() {
            let test = match mode as i64 {
                0 => Test::AtMost(split),
                1 => Test::Below(split),
                2 => Test::AtLeast(split),
                3 => Test::Above(split),
                4 => Test::Member(vec![split]),
                5 => Test::Not(split),
                6 => Test::Member(sets.next().unwrap_or_default().to_vec()),
                other => return Err(invalid("nodes_modes", format!("has {other}"))),
            };
            forest.nodes.push(Node::Branch {
                feature: feature(id)?,
                test,
                yes: place("nodes_truenodeids", yes, yes_is_leaf != 0)?,
                no: place("nodes_falsenodeids", no, no_is_leaf != 0)?,
                missing_passes: self.missing.get(at) == Some(&1),
            });
        }
        for (at, (&target, value)) in self.targets.iter().zip(weights).enumerate() {
            let target =
                usize::try_from(target).map_err(|_| invalid("leaf_targetids", format!("has {target}")))?;
            forest.nodes.push(Node::Leaf);
            forest.weights.push(Weight { leaf: count + at, target, value });
        }
        for &root in &self.roots {
            forest.roots.push(place("tree_roots", root, false)?);
        }
        Ok(forest)
    }
}
