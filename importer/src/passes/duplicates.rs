//! Merges nodes that compute the same from the same.

use super::{Pass, PassReport};
use crate::ir::{Constant, Graph, NodeId, Region, SymbolOrigin, ValueId};
use kiln_types::TensorData;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

/// Common subexpressions, within a region and those around it.
pub(super) struct MergeDuplicates;

/// Constants of more bytes are compared by identity.
const SMALL: usize = 256;

impl Pass for MergeDuplicates {
    fn name(&self) -> &'static str {
        "duplicates"
    }

    fn run(&self, graph: &mut Graph) -> PassReport {
        let mut merge = Merge {
            seen: Vec::new(),
            alias: BTreeMap::new(),
            constants: Constants::default(),
            report: PassReport::new(self.name()),
        };
        let mut root = std::mem::take(&mut graph.root);
        merge.region(graph, &mut root);
        graph.root = root;
        for origin in graph.symbols.values_mut() {
            if let SymbolOrigin::Dim { value, .. } = origin {
                *value = merge.resolve(*value);
            }
        }
        merge.report
    }
}

struct Merge {
    /// What was computed so far; one table a region.
    seen: Vec<HashMap<Outline, Alike>>,
    alias: BTreeMap<ValueId, ValueId>,
    constants: Constants,
    report: PassReport,
}

/// What nodes that compute the same have equal, and most others have not: the kind, and the operands that are no constants.
#[derive(PartialEq, Eq, Hash)]
struct Outline(&'static str, Vec<Option<ValueId>>);

/// Nodes of one outline.
struct Alike {
    /// The first, until there is another to be compared with.
    alone: Option<NodeId>,
    /// By what computes them.
    nodes: HashMap<String, NodeId>,
}

/// Numbers for what constants hold: equal ones have the same.
#[derive(Default)]
struct Constants {
    numbers: HashMap<String, usize>,
    known: HashMap<ValueId, usize>,
    /// What the first parameter holds of those that are made of the same.
    firsts: HashMap<String, TensorData>,
    /// For each number and module, the constant that comes first in it.
    in_modules: HashMap<(usize, String), ValueId>,
}

impl Constants {
    /// The constant of several numbers, known from the graph alone, that a module uses first of those that are equal to an operand of one of its
    /// nodes. What modules have each for themselves stays theirs.
    fn first(&mut self, graph: &Graph, node: NodeId, operand: ValueId) -> ValueId {
        let constant = graph.constant(operand);
        let constant = constant.filter(|it| it.provenance.is_none() && it.data.num_elements() > 1);
        let (Some(constant), Some(module)) = (constant, graph.node(node).origin.scope.last()) else {
            return operand;
        };
        let Some(number) = self.number(operand, constant) else { return operand };
        *self.in_modules.entry((number, module.path.clone())).or_insert(operand)
    }

    /// The number of a constant; `None` for one that is equal to nothing but itself.
    fn number(&mut self, value: ValueId, constant: &Constant) -> Option<usize> {
        if let Some(&number) = self.known.get(&value) {
            return Some(number);
        }
        let Constant { data, provenance, .. } = constant;
        let text = match provenance {
            // Parameters that hold the same are two all the same, unless they are made of the same. That does not tell all: names may be those
            // of several subgraphs, and of what is too much only the keys are known.
            Some(provenance) => {
                let text = format!("{provenance:?}");
                if self.firsts.entry(text.clone()).or_insert_with(|| data.clone()) != data {
                    return None;
                }
                text
            }
            None if data.bytes.len() <= SMALL => format!("{}{:?}{:?}", data.dtype, data.shape, &*data.bytes),
            None => return None,
        };
        let fresh = self.numbers.len();
        let number = *self.numbers.entry(text).or_insert(fresh);
        self.known.insert(value, number);
        Some(number)
    }
}

impl Merge {
    fn resolve(&self, mut id: ValueId) -> ValueId {
        while let Some(&other) = self.alias.get(&id) {
            id = other;
        }
        id
    }

    fn region(&mut self, graph: &mut Graph, region: &mut Region) {
        self.seen.push(HashMap::new());
        let mut kept = Vec::with_capacity(region.nodes.len());
        for &id in &region.nodes {
            for n in 0..graph.node(id).inputs.len() {
                let resolved = graph.node(id).inputs[n].map(|value| self.resolve(value));
                let resolved = resolved.map(|value| self.constants.first(graph, id, value));
                graph.node_mut(id).inputs[n] = resolved;
            }
            let mut inner: Vec<Region> =
                graph.node_mut(id).op.regions_mut().into_iter().map(std::mem::take).collect();
            for region in &mut inner {
                self.region(graph, region);
            }
            for (slot, merged) in graph.node_mut(id).op.regions_mut().into_iter().zip(inner) {
                *slot = merged;
            }
            if !self.merge(graph, id) {
                kept.push(id);
            }
        }
        region.nodes = kept;
        for output in &mut region.outputs {
            *output = self.resolve(*output);
        }
        self.seen.pop();
    }

    /// Whether an equal node came before and takes over.
    fn merge(&mut self, graph: &Graph, id: NodeId) -> bool {
        let node = graph.node(id);
        if !node.op.effect().is_repeatable() || node.outputs.is_empty() {
            return false;
        }
        let Some(earlier) = self.earlier(graph, id) else {
            return false;
        };
        let earlier = graph.node(earlier);
        let same = node.outputs.iter().zip(&earlier.outputs).all(|(&a, &b)| graph.ty(a) == graph.ty(b));
        if !same {
            return false;
        }
        for (&output, &other) in node.outputs.iter().zip(&earlier.outputs) {
            self.alias.insert(output, other);
        }
        self.report.count(node.op.kind());
        true
    }

    /// The node before this one that computes the same; without one, this is known from now on.
    fn earlier(&mut self, graph: &Graph, id: NodeId) -> Option<NodeId> {
        let node = graph.node(id);
        let varying = |input: &Option<ValueId>| input.filter(|&id| graph.constant(id).is_none());
        let outline = Outline(node.op.variant(), node.inputs.iter().map(varying).collect());
        let mut key = None;
        for table in &mut self.seen {
            let Some(alike) = table.get_mut(&outline) else { continue };
            if let Some(alone) = alike.alone.take() {
                alike.nodes.insert(self.constants.key(graph, alone), alone);
            }
            let key = key.get_or_insert_with(|| self.constants.key(graph, id));
            if let Some(&earlier) = alike.nodes.get(key) {
                return Some(earlier);
            }
        }
        let here = self.seen.last_mut()?.entry(outline);
        let alike = here.or_insert_with(|| Alike { alone: Some(id), nodes: HashMap::new() });
        if let Some(key) = key.filter(|_| alike.alone.is_none()) {
            alike.nodes.insert(key, id);
        }
        None
    }
}

impl Constants {
    /// Text that is equal for nodes that compute the same.
    fn key(&mut self, graph: &Graph, id: NodeId) -> String {
        let node = graph.node(id);
        let mut key = format!("{:?}", node.op);
        for &input in &node.inputs {
            let constant = input.and_then(|id| Some((id, graph.constant(id)?)));
            let number = constant.and_then(|(id, constant)| self.number(id, constant));
            // Writing to a string cannot fail.
            let _ = match (number, input) {
                (Some(number), _) => write!(key, " constant {number}"),
                (None, Some(input)) => write!(key, " {input}"),
                (None, None) => write!(key, " _"),
            };
        }
        key
    }
}

#[cfg(test)]
mod tests {
    use crate::ir::{Op, Origin, ScopeEntry};
    use crate::passes::testing::{constant, graph, kinds, optimized};
    use kiln_types::{BinaryOp, UnaryOp};

    #[test]
    fn equal_operations_on_equal_constants_merge() {
        let g = graph(&["f32[n]"], |b, x| {
            let (c, d) = (constant(b, None, &[1], &[3.0]), constant(b, None, &[1], &[3.0]));
            let p = b.add(Op::Binary(BinaryOp::Add), &[x[0], c]).unwrap();
            let q = b.add(Op::Binary(BinaryOp::Add), &[x[0], d]).unwrap();
            let p = b.add(Op::Unary(UnaryOp::Sin), &[p]).unwrap();
            let q = b.add(Op::Unary(UnaryOp::Sin), &[q]).unwrap();
            vec![p, q]
        });
        let g = optimized(g);
        assert_eq!(kinds(&g), ["Binary(Add)", "Unary(Sin)"]);
        assert_eq!(g.root.outputs[0], g.root.outputs[1]);
    }

    #[test]
    fn equal_tables_are_one() {
        let g = graph(&["f32[3]"], |b, x| {
            let module = ScopeEntry { path: "head".to_owned(), class: "Head".to_owned() };
            b.origin = Origin { scope: vec![module], ..Origin::default() };
            let tables = [(); 2].map(|()| constant(b, None, &[3], &[1.0, 2.0, 4.0]));
            let ops = [BinaryOp::Add, BinaryOp::Mul];
            let both: Vec<_> = ops.iter().zip(tables).map(|(&op, table)| (op, [x[0], table])).collect();
            both.into_iter().map(|(op, operands)| b.add(Op::Binary(op), &operands).unwrap()).collect()
        });
        let g = optimized(g);
        let table = |n: usize| g.node(g.root.nodes[n]).inputs[1];
        assert_eq!(table(0), table(1), "{g}");
    }

    #[test]
    fn parameters_that_hold_the_same_are_two() {
        let g = graph(&["f32[n]"], |b, x| {
            let parameters = ["a", "b", "b"].map(|name| constant(b, Some(name), &[1], &[3.0]));
            parameters.map(|p| b.add(Op::Binary(BinaryOp::Add), &[x[0], p]).unwrap()).to_vec()
        });
        let g = optimized(g);
        assert_eq!(kinds(&g), ["Binary(Add)", "Binary(Add)"]);
        assert_eq!(g.root.outputs[1], g.root.outputs[2]);
    }

    /// Names are a file's: two subgraphs may have the same ones for what differs.
    #[test]
    fn parameters_of_one_name_that_differ_are_two() {
        for name in ["a", "val_1"] {
            let g = graph(&["f32[n]"], |b, x| {
                let parameters = [3.0, 4.0, 3.0].map(|number| constant(b, Some(name), &[1], &[number]));
                parameters.map(|p| b.add(Op::Binary(BinaryOp::Add), &[x[0], p]).unwrap()).to_vec()
            });
            let g = optimized(g);
            assert_eq!(kinds(&g), ["Binary(Add)", "Binary(Add)"]);
            assert_ne!(g.root.outputs[0], g.root.outputs[1]);
            assert_eq!(g.root.outputs[0], g.root.outputs[2]);
        }
    }
}
