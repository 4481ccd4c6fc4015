//! What is known of each node that runs: what the runtime does for it, what it uses, and on which nodes it depends.

use kiln_importer::ir::{
    Arg, Graph, Implementation, Layer, NodeId, Op, Region, Symbol, SymbolOrigin, ValueId,
};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// The nodes that the model's outputs need.
pub struct Nodes<'g> {
    /// Where they are.
    pub graph: &'g Graph,
    /// Those of the root region, in execution order.
    pub root: Vec<NodeId>,
    /// The same, each followed by those of its branches.
    pub all: Vec<NodeId>,
    implementations: HashMap<NodeId, Implementation>,
    symbols: HashMap<NodeId, BTreeSet<Symbol>>,
    uses: HashMap<ValueId, usize>,
}

impl<'g> Nodes<'g> {
    /// Of a graph.
    pub fn new(graph: &'g Graph) -> Self {
        let mut nodes = Nodes {
            graph,
            root: Vec::new(),
            all: Vec::new(),
            implementations: HashMap::new(),
            symbols: HashMap::new(),
            uses: HashMap::new(),
        };
        nodes.find_live();
        for i in 0..nodes.root.len() {
            let node = nodes.root[i];
            nodes.list(node);
        }
        let used = nodes.root.iter().flat_map(|&node| operands(graph, node));
        for value in used.chain(graph.root.outputs.iter().copied()) {
            *nodes.uses.entry(value).or_insert(0) += 1;
        }
        nodes
    }

    /// Finds the nodes of the root that are needed, from the last to the first.
    fn find_live(&mut self) {
        let graph = self.graph;
        let mut values: HashSet<ValueId> = graph.root.outputs.iter().copied().collect();
        let mut readers: HashSet<NodeId> = HashSet::new();
        for &node in graph.root.nodes.iter().rev() {
            let outputs = &graph.node(node).outputs;
            if !readers.contains(&node) && !outputs.iter().any(|value| values.contains(value)) {
                continue;
            }
            self.root.push(node);
            self.implement(node);
            values.extend(operands(graph, node));
            for symbol in self.symbols(node) {
                match graph.symbols.get(symbol) {
                    Some(SymbolOrigin::Read { node, .. }) => {
                        readers.insert(*node);
                    }
                    Some(SymbolOrigin::Dim { value, .. }) => {
                        values.insert(*value);
                    }
                    Some(SymbolOrigin::Iteration { .. }) | None => {}
                }
            }
        }
        self.root.reverse();
    }

    /// Asks a node, and those of its branches, what the runtime does for it, and finds the symbols in that.
    fn implement(&mut self, id: NodeId) {
        let node = self.graph.node(id);
        let implementation = node.op.implementation(self.graph, node);
        let mut symbols = BTreeSet::new();
        if let Implementation::Call(call) = &implementation {
            call.visit_dims(&mut |dim| symbols.extend(dim.symbols()));
        }
        symbols.extend(control_symbols(self.graph, id));
        for inner in node.op.regions().into_iter().flat_map(|region| &region.nodes) {
            self.implement(*inner);
            symbols.extend(self.symbols(*inner).cloned());
        }
        self.implementations.insert(id, implementation);
        self.symbols.insert(id, symbols);
    }

    fn list(&mut self, node: NodeId) {
        self.all.push(node);
        for region in self.graph.node(node).op.regions() {
            region.nodes.iter().for_each(|&inner| self.list(inner));
        }
    }

    /// What a node calls; a layer that is no field is called as a plain function.
    pub fn call(&self, node: NodeId) -> Option<&Arg> {
        self.implementations.get(&node)?.call()
    }

    /// The layer that a node could be a call of.
    pub fn possible_layer(&self, node: NodeId) -> Option<&Layer> {
        match self.implementations.get(&node)? {
            Implementation::Layer(layer) => Some(layer),
            Implementation::Call(_) | Implementation::Control => None,
        }
    }

    /// The symbols in a node's call, its conditions and its regions.
    pub fn symbols(&self, node: NodeId) -> impl Iterator<Item = &Symbol> {
        self.symbols.get(&node).into_iter().flatten()
    }

    /// How often a value is used by the nodes of the root and as an output.
    pub fn uses(&self, value: ValueId) -> usize {
        self.uses.get(&value).copied().unwrap_or(0)
    }

    /// The nodes on whose results or symbols a node depends.
    pub fn dependencies(&self, node: NodeId) -> Vec<NodeId> {
        let graph = self.graph;
        let operands = operands(graph, node);
        let mut found: Vec<NodeId> = operands.into_iter().filter_map(|value| graph.producer(value)).collect();
        for symbol in self.symbols(node) {
            match graph.symbols.get(symbol) {
                Some(SymbolOrigin::Read { node, .. }) => found.push(*node),
                Some(SymbolOrigin::Dim { value, .. }) => found.extend(graph.producer(*value)),
                Some(SymbolOrigin::Iteration { .. }) | None => {}
            }
        }
        found
    }

    /// Which symbols are the dims of each value.
    pub fn symbols_of_values(&self) -> BTreeMap<ValueId, Vec<&'g Symbol>> {
        let mut found: BTreeMap<ValueId, Vec<&Symbol>> = BTreeMap::new();
        for (symbol, origin) in &self.graph.symbols {
            if let SymbolOrigin::Dim { value, .. } = origin {
                found.entry(*value).or_default().push(symbol);
            }
        }
        found
    }
}

/// The symbols that a node of control flow needs itself: those of conditions and numbers of rounds, and the sizes of what a
/// loop leaves.
pub fn control_symbols(graph: &Graph, node: NodeId) -> BTreeSet<Symbol> {
    match &graph.node(node).op {
        op @ (Op::If(_) | Op::LoopCondition(_)) => op.symbols(),
        op @ Op::Loop(repeated) => {
            let left = repeated.left_dims(graph);
            let sizes = left.iter().flatten().flatten().flat_map(|dim| dim.symbols());
            op.symbols().into_iter().chain(sizes).collect()
        }
        _ => BTreeSet::new(),
    }
}

/// The values that a node uses, with repetitions: its operands, and what its branches take from around them.
pub fn operands(graph: &Graph, node: NodeId) -> Vec<ValueId> {
    let data = graph.node(node);
    let mut values: Vec<ValueId> = data.inputs.iter().copied().flatten().collect();
    for region in data.op.regions() {
        values.extend(captured(graph, region));
    }
    values
}

/// The values that a branch takes from around it, with repetitions.
fn captured(graph: &Graph, region: &Region) -> Vec<ValueId> {
    let mut defined: BTreeSet<ValueId> = region.parameters.iter().copied().collect();
    let mut values = Vec::new();
    for &node in &region.nodes {
        values.extend(operands(graph, node).into_iter().filter(|value| !defined.contains(value)));
        defined.extend(&graph.node(node).outputs);
    }
    values.extend(region.outputs.iter().copied().filter(|value| !defined.contains(value)));
    values
}
