//! Makes copies of one parameter one parameter again.
//!
//! Exporters fold a transposed weight into a new initializer, once a call: a module that is called twice then has two
//! copies of its matrices, and a language model's head a transposed copy of its embedding table. What is the same
//! parameter is told by where it is used and by its contents; equal contents alone say nothing, since untrained layers
//! are often copies of each other. Passes, too, make a parameter anew at each place where it is used in other dims: what
//! is made of the same in the same way is the same.

mod layouts;
mod parts;

use super::{Pass, PassReport};
use crate::ir::{Graph, NodeId, Op, Origin, Permute, Provenance, Region, TensorType, ValueId};
use kiln_types::{DType, TensorData};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Merges copies, and reads transposed copies from the original.
pub(super) struct TieParameters {
    /// Whether parameters are to learn: then each is there once, in whatever layouts it is used.
    pub(super) trainable: bool,
    /// The parameters as the file has them, where they are to learn.
    pub(super) originals: Originals,
}

/// The contents of parameters by their keys, before anything was made of them.
pub(super) type Originals = BTreeMap<String, TensorData>;

/// The parameters of a graph that nothing was done to yet.
pub(super) fn originals(graph: &Graph) -> Originals {
    let parameters = graph.constants.iter().filter(|constant| constant.data.dtype.is_float());
    let named = parameters.filter_map(|constant| match constant.provenance.as_deref()? {
        Provenance::Key { key, .. } => Some((key.clone(), constant.data.clone())),
        _ => None,
    });
    named.collect()
}

/// Smaller parameters are not worth it, and too likely to be equal by chance.
const MIN_ELEMENTS: usize = 64;

impl Pass for TieParameters {
    fn name(&self) -> &'static str {
        "ties"
    }

    fn run(&self, graph: &mut Graph) -> PassReport {
        let mut report = PassReport::new(self.name());
        let mut uses = Uses::default();
        uses.region(graph, &graph.root);
        let copies = copies(graph, &uses);
        for _ in &copies {
            report.count("copy");
        }
        for (&copy, &original) in &copies {
            replace(graph, &uses, copy, original);
            let users = uses.users.remove(&copy).unwrap_or_default();
            uses.users.entry(original).or_default().extend(users);
        }
        let transposed = transposed_copies(graph, &uses);
        for _ in &transposed {
            report.count("transposed copy");
        }
        read(graph, &transposed);
        if self.trainable {
            let mut uses = Uses::default();
            uses.region(graph, &graph.root);
            let readings = layouts::readings(graph, &uses);
            for _ in &readings {
                report.count("layout");
            }
            read(graph, &readings);
            let mut uses = Uses::default();
            uses.region(graph, &graph.root);
            let readings = parts::readings(graph, &uses, &self.originals);
            for _ in &readings {
                report.count("part");
            }
            read(graph, &readings);
        }
        report
    }
}

/// The nodes that use each parameter, in execution order.
#[derive(Default)]
struct Uses {
    users: BTreeMap<ValueId, Vec<NodeId>>,
}

impl Uses {
    fn region(&mut self, graph: &Graph, region: &Region) {
        for &id in &region.nodes {
            let node = graph.node(id);
            for &input in node.inputs.iter().flatten() {
                if is_parameter(graph, input) {
                    self.users.entry(input).or_default().push(id);
                }
            }
            for inner in node.op.regions() {
                self.region(graph, inner);
            }
        }
        // A result of the model is no use that could read another parameter.
        for output in &region.outputs {
            self.users.remove(output);
        }
    }

    /// The one module in which all uses are, the model itself where nodes have no other.
    fn place<'g>(&self, graph: &'g Graph, value: ValueId) -> Option<&'g str> {
        let mut paths = self.users.get(&value)?.iter().map(|&id| {
            graph.node(id).origin.scope.last().map_or("", |leaf| match leaf.class.is_empty() {
                true => unnumbered(&leaf.path),
                false => &leaf.path,
            })
        });
        let first = paths.next()?;
        paths.all(|path| path == first).then_some(first)
    }

    /// The one module in which all uses are.
    fn module<'g>(&self, graph: &'g Graph, value: ValueId) -> Option<&'g str> {
        let mut paths = self.users.get(&value)?.iter().map(|&id| {
            let leaf = graph.node(id).origin.scope.last().filter(|entry| !entry.path.is_empty())?;
            Some(if leaf.class.is_empty() { unnumbered(&leaf.path) } else { &leaf.path })
        });
        let first = paths.next()??;
        paths.all(|path| path == Some(first)).then_some(first)
    }
}

/// `layer.fc` for `layer.fc_1`, as the TorchScript exporter writes the second call.
fn unnumbered(path: &str) -> &str {
    match path.rsplit_once('_') {
        Some((stem, number)) if !stem.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) => stem,
        _ => path,
    }
}

fn is_parameter(graph: &Graph, value: ValueId) -> bool {
    graph.constant(value).is_some_and(|constant| constant.data.dtype.is_float())
}

/// A matrix (or more) that is not one number repeated: no other parameter is equal to it by chance.
fn is_telling(graph: &Graph, value: ValueId) -> bool {
    let Some(constant) = graph.constant(value) else { return false };
    let data = &constant.data;
    let size = data.dtype.size();
    data.shape.len() >= 2
        && data.num_elements() >= MIN_ELEMENTS
        && data.bytes.len() > size
        && data.bytes[..data.bytes.len() - size] != data.bytes[size..]
}

fn key(graph: &Graph, value: ValueId) -> Option<&str> {
    graph.constant(value)?.name.as_deref().filter(|name| name.contains('.') && !name.starts_with('/'))
}

/// What parameters that may be equal have in common: the type, and the bytes at the beginning and at the end. All bytes of a
/// large model are not read for it.
type Looks<'g> = (&'g TensorType, &'g [u8], &'g [u8]);

fn looks(graph: &Graph, value: ValueId) -> Option<Looks<'_>> {
    const BYTES: usize = 64;
    let bytes = &graph.constant(value)?.data.bytes[..];
    let few = BYTES.min(bytes.len());
    Some((graph.ty(value), &bytes[..few], &bytes[bytes.len() - few..]))
}

/// Parameters that look alike and yet are not the same; of one that has more of them, the rest is not looked at.
const MOST_ALIKE: usize = 32;

/// Copies and what they are copies of: equal parameters that are made of the same, or have one name, or are of one module; equal
/// numbers of one module that are no parameters.
fn copies(graph: &Graph, uses: &Uses) -> BTreeMap<ValueId, ValueId> {
    let mut by_looks: HashMap<Looks<'_>, Vec<ValueId>> = HashMap::new();
    let mut by_key: HashMap<(Looks<'_>, &str), Vec<ValueId>> = HashMap::new();
    let mut by_module: HashMap<(Looks<'_>, &str), Vec<ValueId>> = HashMap::new();
    let mut copies = BTreeMap::new();
    // Where the file tells which constants are the network's, the others are numbers that it computes with.
    let tells = graph.constants.iter().any(|constant| constant.provenance.is_some());
    let mut by_place: HashMap<(Looks<'_>, &str), Vec<ValueId>> = HashMap::new();
    for &value in uses.users.keys() {
        let Some(looks) = looks(graph, value) else { continue };
        let (key, module) = (key(graph, value), uses.module(graph, value));
        let (in_key, in_module) = (key.map(|key| (looks, key)), module.map(|module| (looks, module)));
        // Two names are two parameters; where one of them has none, the module decides.
        let named = in_key.and_then(|place| by_key.get(&place)).into_iter().flatten();
        let nearby = in_module.filter(|_| is_telling(graph, value)).and_then(|place| by_module.get(&place));
        let nearby =
            nearby.into_iter().flatten().filter(|&&other| key.is_none() || self::key(graph, other).is_none());
        let same = |other: &&ValueId| equal(graph, value, **other) && may_be_one(graph, value, **other, None);
        let made = graph.provenance(value);
        let of_the_same = by_looks.get(&looks).into_iter().flatten().take(MOST_ALIKE).filter(|&&other| {
            made.is_some() && graph.provenance(other) == made && equal(graph, value, other)
        });
        let is_large =
            graph.constant(value).is_some_and(|constant| constant.data.num_elements() >= MIN_ELEMENTS);
        let place = uses.place(graph, value).filter(|_| tells && made.is_none() && is_large);
        let place = place.map(|place| (looks, place));
        let of_numbers = place.and_then(|place| by_place.get(&place)).into_iter().flatten();
        let of_numbers = of_numbers.take(MOST_ALIKE).filter(|&&other| equal(graph, value, other));
        let original = named
            .take(MOST_ALIKE)
            .chain(nearby.take(MOST_ALIKE))
            .filter(same)
            .chain(of_the_same)
            .chain(of_numbers)
            .min();
        if let Some(&original) = original {
            copies.insert(value, original);
            continue;
        }
        by_looks.entry(looks).or_default().push(value);
        place.into_iter().for_each(|place| by_place.entry(place).or_default().push(value));
        in_key.into_iter().for_each(|place| by_key.entry(place).or_default().push(value));
        in_module.into_iter().for_each(|place| by_module.entry(place).or_default().push(value));
    }
    copies
}

fn equal(graph: &Graph, a: ValueId, b: ValueId) -> bool {
    match (graph.constant(a), graph.constant(b)) {
        (Some(a), Some(b)) => {
            a.data.dtype == b.data.dtype && a.data.shape == b.data.shape && a.data.bytes == b.data.bytes
        }
        _ => false,
    }
}

/// Whether a parameter may be what another is (after an operation on that): not if the file says that the two are made of
/// different parameters of the network, which happen to be equal.
fn may_be_one(graph: &Graph, value: ValueId, other: ValueId, after: Option<&Op>) -> bool {
    let (Some(made), Some(constant)) = (graph.provenance(value), graph.constant(other)) else { return true };
    let from = match (&constant.provenance, after) {
        (Some(from), Some(op)) => Provenance::of_operation(op, &[(Some(from.clone()), &constant.data)]),
        (from, _) => from.clone(),
    };
    let told = |from: &Provenance| !from.is_exporters();
    from.is_none_or(|from| from == made || !told(&from) || !told(&made))
}

fn replace(graph: &mut Graph, uses: &Uses, from: ValueId, to: ValueId) {
    for &id in uses.users.get(&from).into_iter().flatten() {
        for input in graph.node_mut(id).inputs.iter_mut().filter(|input| **input == Some(from)) {
            *input = Some(to);
        }
    }
}

/// How a parameter is read from others.
#[derive(Clone)]
enum Reading {
    /// It is this one.
    Parameter(ValueId),
    /// A number of the graph.
    Number(TensorData),
    /// What an operation makes of what is read.
    Of { op: Box<Op>, ty: TensorType, operands: Vec<Reading> },
}

impl Reading {
    /// What operations make of a parameter one after another, each with the shape that it makes.
    fn after(parameter: ValueId, dtype: DType, steps: impl IntoIterator<Item = (Op, Vec<usize>)>) -> Self {
        steps.into_iter().fold(Self::Parameter(parameter), |operand, (op, shape)| Self::Of {
            op: Box::new(op),
            ty: TensorType::new(dtype, shape),
            operands: vec![operand],
        })
    }

    /// Adds the nodes that read it.
    fn add(&self, graph: &mut Graph, origin: &Origin, nodes: &mut Vec<NodeId>) -> ValueId {
        match self {
            Self::Parameter(value) => *value,
            Self::Number(data) => graph.add_constant(None, data.clone()),
            Self::Of { op, ty, operands } => {
                let operands =
                    operands.iter().map(|operand| Some(operand.add(graph, origin, nodes))).collect();
                let step = graph.add_node((**op).clone(), operands, vec![ty.clone()], origin.clone());
                nodes.push(step);
                graph.node(step).outputs[0]
            }
        }
    }
}

/// Weights of linear layers that are the transpose of a table which something else looks up.
fn transposed_copies(graph: &Graph, uses: &Uses) -> BTreeMap<ValueId, Reading> {
    let is_weight = |(value, users): &(&ValueId, &Vec<NodeId>)| {
        graph.ty(**value).rank() == 2
            && is_telling(graph, **value)
            && users.iter().all(|&id| {
                let node = graph.node(id);
                matches!(node.op, Op::Linear(_) | Op::MatMul)
                    && node.inputs.get(1).copied().flatten() == Some(**value)
            })
    };
    let is_table = |(value, users): &(&ValueId, &Vec<NodeId>)| {
        graph.ty(**value).rank() == 2
            && users.iter().any(|&id| {
                let node = graph.node(id);
                matches!(node.op, Op::Take(_)) && node.inputs.first().copied().flatten() == Some(**value)
            })
    };
    let mut tables: HashMap<_, Vec<ValueId>> = HashMap::new();
    for (&table, _) in uses.users.iter().filter(is_table) {
        if let Some(corners) = corners(graph, table) {
            tables.entry(corners).or_default().push(table);
        }
    }
    let original = |weight: ValueId| {
        let turned = Op::Permute(Permute { axes: vec![1, 0] });
        let ([rows, columns], first, last) = corners(graph, weight)?;
        let alike = tables.get(&([columns, rows], first, last))?;
        alike.iter().copied().take(MOST_ALIKE).find(|&table| {
            is_transposed(graph, weight, table) && may_be_one(graph, weight, table, Some(&turned))
        })
    };
    let weights = uses.users.iter().filter(is_weight).map(|(&weight, _)| weight);
    let reading = |weight: ValueId| {
        let turned = Op::Permute(Permute { axes: vec![1, 0] });
        let ty = graph.ty(weight);
        Some(Reading::after(original(weight)?, ty.dtype, [(turned, ty.shape()?)]))
    };
    weights.filter_map(|weight| Some((weight, reading(weight)?))).collect()
}

/// The size of a matrix, and its first and last element, which stay where they are when it is transposed.
fn corners(graph: &Graph, matrix: ValueId) -> Option<([usize; 2], &[u8], &[u8])> {
    let data = &graph.constant(matrix)?.data;
    let &[rows, columns] = data.shape.as_slice() else { return None };
    let size = data.dtype.size();
    let last = data.bytes.len().checked_sub(size)?;
    Some(([rows, columns], data.bytes.get(..size)?, data.bytes.get(last..)?))
}

fn is_transposed(graph: &Graph, a: ValueId, b: ValueId) -> bool {
    let (Some(a), Some(b)) = (graph.constant(a), graph.constant(b)) else { return false };
    let (a, b) = (&a.data, &b.data);
    let (&[rows, columns], &[b_rows, b_columns]) = (a.shape.as_slice(), b.shape.as_slice()) else {
        return false;
    };
    if a.dtype != b.dtype || (rows, columns) != (b_columns, b_rows) {
        return false;
    }
    let size = a.dtype.size();
    let (a, b) = (&a.bytes[..], &b.bytes[..]);
    if a.len() != rows * columns * size || b.len() != a.len() {
        return false;
    }
    let at = |bytes: &[u8], i: usize| bytes[i * size..(i + 1) * size].to_vec();
    // A few elements first: other matrices of the shape differ there.
    let probes = (0..rows).step_by((rows / 8).max(1)).map(|row| (row, row % columns));
    probes.clone().all(|(i, j)| at(a, i * columns + j) == at(b, j * rows + i))
        && (0..rows).all(|i| {
            (0..columns).all(|j| {
                let (p, q) = ((i * columns + j) * size, (j * rows + i) * size);
                a[p..p + size] == b[q..q + size]
            })
        })
}

/// Puts what makes a copy of its original before each use of it.
fn read(graph: &mut Graph, readings: &BTreeMap<ValueId, Reading>) {
    if readings.is_empty() {
        return;
    }
    let mut root = std::mem::take(&mut graph.root);
    read_in(graph, &mut root, readings);
    graph.root = root;
}

fn read_in(graph: &mut Graph, region: &mut Region, readings: &BTreeMap<ValueId, Reading>) {
    let mut nodes = Vec::with_capacity(region.nodes.len() + 1);
    for &id in &region.nodes {
        let mut inner: Vec<Region> =
            graph.node_mut(id).op.regions_mut().into_iter().map(std::mem::take).collect();
        for region in &mut inner {
            read_in(graph, region, readings);
        }
        for (slot, region) in graph.node_mut(id).op.regions_mut().into_iter().zip(inner) {
            *slot = region;
        }
        let inputs: BTreeSet<ValueId> = graph.node(id).inputs.iter().flatten().copied().collect();
        for (copy, reading) in inputs.into_iter().filter_map(|input| Some((input, readings.get(&input)?))) {
            let origin = graph.node(id).origin.clone();
            let value = reading.add(graph, &origin, &mut nodes);
            for input in graph.node_mut(id).inputs.iter_mut().filter(|input| **input == Some(copy)) {
                *input = Some(value);
            }
        }
        nodes.push(id);
    }
    region.nodes = nodes;
}

#[cfg(test)]
mod tests {
    use crate::ir::{Op, Reshape, ScopeEntry, Take};
    use crate::passes::testing::{constant, graph, kinds, optimized};

    fn numbers(n: usize) -> Vec<f32> {
        (0..n).map(|i| (i * i % 31) as f32).collect()
    }

    #[test]
    fn a_head_reads_the_embedding_table() {
        let table = numbers(128);
        let turned: Vec<f32> = (0..128).map(|i| table[(i % 16) * 8 + i / 16]).collect();
        let g = graph(&["i64[n]"], |b, x| {
            let wte = constant(b, Some("wte.weight"), &[16, 8], &table);
            let head = constant(b, Some("val_7"), &[8, 16], &turned);
            let h = b.add(Op::Take(Take { axis: 0, wrapped: false }), &[wte, x[0]]).unwrap();
            vec![b.add(Op::MatMul, &[h, head]).unwrap()]
        });
        let g = optimized(g);
        assert_eq!(kinds(&g), ["Take", "Permute", "Linear"]);
        assert_eq!(g.node(g.root.nodes[0]).inputs[0], g.node(g.root.nodes[1]).inputs[0]);
    }

    /// A recurrence that was written out: the products are of one batch, so that each reads the matrix in dims of its own.
    #[test]
    fn a_parameter_that_each_step_reads_in_other_dims_is_one() {
        let g = graph(&["f32[1, n, 2]"], |b, x| {
            let w = constant(b, Some("val_1"), &[2, 2], &[1.0, 2.0, 3.0, 4.0]);
            (0..3).fold(vec![x[0]], |h, _| {
                let w =
                    b.add(Op::Reshape(Reshape { dims: vec![1.into(), 2.into(), 2.into()] }), &[w]).unwrap();
                vec![b.add(Op::MatMul, &[h[0], w]).unwrap()]
            })
        });
        let g = optimized(g);
        assert_eq!(kinds(&g), ["Linear"; 3]);
        let weights: Vec<_> = g.root.nodes.iter().map(|&id| g.node(id).inputs[1]).collect();
        assert!(weights.iter().all(|weight| *weight == weights[0]), "{g}");
    }

    #[test]
    fn copies_of_one_module_are_one_and_those_of_two_are_two() {
        for (second, equal) in [("fc", true), ("other", false)] {
            let g = graph(&["f32[n, 8]"], |b, x| {
                let (v, w) = (
                    constant(b, Some("val_1"), &[8, 8], &numbers(64)),
                    constant(b, Some("val_2"), &[8, 8], &numbers(64)),
                );
                let scope = |path: &str| {
                    ["", path].map(|path| ScopeEntry { path: path.into(), class: String::new() }).to_vec()
                };
                b.origin.scope = scope("fc");
                let h = b.add(Op::MatMul, &[x[0], v]).unwrap();
                b.origin.scope = scope(second);
                vec![b.add(Op::MatMul, &[h, w]).unwrap()]
            });
            let g = optimized(g);
            let weights: Vec<_> = g.root.nodes.iter().map(|&id| g.node(id).inputs[1]).collect();
            assert_eq!(weights[0] == weights[1], equal, "{second}");
        }
    }
}
