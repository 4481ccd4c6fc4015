//! Graphs: values, nodes, constants, regions.

use super::dim::Bounds;
use super::{Budget, Dim, Op, Provenance, Strings, Symbol, TensorType};
use kiln_types::{CompareOp, TensorData};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $letter:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub(crate) u32);

        impl $name {
            /// Position in its arena.
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!($letter, "{}"), self.0)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Debug::fmt(self, f)
            }
        }
    };
}

id!(
    /// Names a value of a [`Graph`].
    ValueId, "%"
);
id!(
    /// Names a node of a [`Graph`].
    NodeId, "n"
);
id!(
    /// Names a constant of a [`Graph`].
    ConstantId, "c"
);

/// What one node (or input, or constant) yields.
#[derive(Clone, Debug)]
pub struct Value {
    /// Name in the source file, a hint for generated names; may be empty or anything else.
    pub name: String,
    /// Dtype and dims.
    pub ty: TensorType,
    /// Where it comes from.
    pub def: ValueDef,
    /// The contents in row-major order, when it is a small integer (or bool: 0, 1) tensor whose contents are known as
    /// expressions over symbols. Shape arithmetic lives here and needs no tensors.
    pub host: Option<Vec<Dim>>,
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueDef {
    /// The `n`-th input of the graph.
    Input(u32),
    /// An output of a node.
    Node(NodeId, u32),
    /// A constant of the file, or one folded.
    Constant(ConstantId),
    /// The `n`-th parameter of a node's region (the body of a loop).
    RegionParameter(NodeId, u32),
}

/// Data known at build time.
#[derive(Clone, Debug)]
pub struct Constant {
    /// The initializer's name in the file: a `state_dict` key when the exporter kept it. Folding a layout change
    /// (transpose, reshape, cast) keeps the name; any other folding drops it, except that a layer that absorbs a
    /// normalization or a scale keeps its parameters' names (its bias is `x.bias` when its weight is `x.weight`).
    pub name: Option<String>,
    /// The contents; often borrowed from the mapped file.
    pub data: TensorData,
    /// How it was made of the original network's parameters; `None` when the graph alone tells what it holds. No pass may
    /// take floats of a constant with a provenance for given: they are others after fine-tuning, or in a checkpoint.
    pub provenance: Option<Arc<Provenance>>,
}

impl Constant {
    /// Whether data are so few numbers that source spells them out, rather than to have a name for them in the record: eight integers at
    /// most, or one float, as several are weights.
    pub fn are_few(data: &TensorData) -> bool {
        let most = if data.dtype.is_float() { 1 } else { 8 };
        (1..=most).contains(&data.num_elements())
    }
}

/// One level of the exporter's module path.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ScopeEntry {
    /// Full path of the module as in `named_modules()`: `encoder.layer.0.attention`; empty for the root.
    pub path: String,
    /// Class of the module, with its Python module where the file tells: `transformers.models.bert.BertAttention`; empty
    /// when unknown.
    pub class: String,
}

impl ScopeEntry {
    /// The class without its Python module: `BertAttention`.
    pub fn class_name(&self) -> &str {
        self.class.rsplit('.').next().unwrap_or(&self.class)
    }
}

/// Where a node comes from, for messages and for module-tree recovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// Name of the node in the file.
    pub name: String,
    /// Operator in the file: `Conv`, `com.microsoft.Gelu`.
    pub operator: String,
    /// Modules around it, outermost (the root) first; empty when the file says nothing.
    pub scope: Vec<ScopeEntry>,
}

/// One operation.
#[derive(Clone, Debug)]
pub struct Node {
    /// What it does.
    pub op: Op,
    /// Operands; an optional operand may be absent.
    pub inputs: Vec<Option<ValueId>>,
    /// Results.
    pub outputs: Vec<ValueId>,
    /// Where it comes from.
    pub origin: Origin,
}

/// A list of nodes in execution order, with its own parameters and results: a graph's body, a branch, a loop's body.
///
/// Nodes of a region may use values of the regions around it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Region {
    /// Parameters (a loop body's); empty for a branch.
    pub parameters: Vec<ValueId>,
    /// Nodes in execution order.
    pub nodes: Vec<NodeId>,
    /// Results.
    pub outputs: Vec<ValueId>,
}

/// Where generated code finds the value of a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SymbolOrigin {
    /// `value.dims()[axis]`.
    Dim {
        /// A graph input, an output whose size depends on data, or what a loop carries, inside its body.
        value: ValueId,
        /// The axis.
        axis: usize,
    },
    /// The `index`-th integer (or bool) that an [`Op::HostRead`] node reads back.
    Read {
        /// The node.
        node: NodeId,
        /// Position in the row-major order of its operand.
        index: usize,
    },
    /// The number of the round that an [`Op::Loop`] node is in, known inside its body.
    Iteration {
        /// The node.
        node: NodeId,
    },
}

/// An input of the file that was bound to contents when it was imported.
#[derive(Clone, Debug, PartialEq)]
pub struct BoundInput {
    /// Its position among all inputs of the file.
    pub position: usize,
    /// Its name.
    pub name: String,
    /// Its contents.
    pub data: TensorData,
}

/// A model: arenas of values, nodes and constants, and the root region.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// The model's name; a hint.
    pub name: String,
    /// Every value; ids index it.
    pub values: Vec<Value>,
    /// Every node, those no longer in a region among them; ids index it.
    pub nodes: Vec<Node>,
    /// Every constant; ids index it.
    pub constants: Vec<Constant>,
    /// Graph inputs in the file's order.
    pub inputs: Vec<ValueId>,
    /// Names of the graph's outputs in the file's order (the values are `root.outputs`).
    pub output_names: Vec<String>,
    /// The body.
    pub root: Region,
    /// Every symbol and where its value comes from.
    pub symbols: BTreeMap<Symbol, SymbolOrigin>,
    /// Keys of the original network's parameters that the file has under other names: those of tied parameters.
    pub tied_keys: BTreeSet<String>,
    /// For the key that a tied parameter is stored under the others, as far as the modules that use it tell them.
    pub ties: BTreeMap<String, BTreeSet<String>>,
    /// Keys of the original network's state that training does not change: buffers, and parameters without gradients.
    pub buffers: BTreeSet<String>,
    /// Inputs of the file that are constants here, in the file's order.
    pub bound_inputs: Vec<BoundInput>,
    /// Outputs that are the items of one sequence in the file, in order.
    pub output_sequences: Vec<Range<usize>>,
    /// Strings that tensors hold the places of.
    pub strings: Strings,
    /// What may still be made and computed while the graph is built and optimized.
    pub budget: Budget,
}

impl Graph {
    /// The value with an id.
    pub fn value(&self, id: ValueId) -> &Value {
        &self.values[id.index()]
    }

    /// The value with an id, to change.
    pub fn value_mut(&mut self, id: ValueId) -> &mut Value {
        &mut self.values[id.index()]
    }

    /// The node with an id.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// The node with an id, to change.
    pub fn node_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id.index()]
    }

    /// The type of a value.
    pub fn ty(&self, id: ValueId) -> &TensorType {
        &self.value(id).ty
    }

    /// The constant that a value is, if it is one.
    pub fn constant(&self, id: ValueId) -> Option<&Constant> {
        match self.value(id).def {
            ValueDef::Constant(constant) => self.constants.get(constant.index()),
            _ => None,
        }
    }

    /// How a value was made of the original network's parameters, if it is a constant that was.
    pub fn provenance(&self, id: ValueId) -> Option<Arc<Provenance>> {
        self.constant(id)?.provenance.clone()
    }

    /// The one number that a constant holds, when it is known from the graph alone.
    pub fn number(&self, id: ValueId) -> Option<kiln_types::Scalar> {
        let constant = self.constant(id).filter(|constant| constant.provenance.is_none())?;
        crate::data::scalar(&constant.data)
    }

    /// The node that defines a value, if one does.
    pub fn producer(&self, id: ValueId) -> Option<NodeId> {
        match self.value(id).def {
            ValueDef::Node(node, _) => Some(node),
            _ => None,
        }
    }

    /// Adds a constant that is known from the graph alone, and its value.
    pub fn add_constant(&mut self, name: Option<String>, data: TensorData) -> ValueId {
        self.add_derived(name, data, None)
    }

    /// Adds a constant that was made of the original network's parameters, and its value.
    pub fn add_derived(
        &mut self,
        name: Option<String>,
        data: TensorData,
        provenance: Option<Arc<Provenance>>,
    ) -> ValueId {
        let ty = TensorType::new(data.dtype, data.shape.iter().copied());
        let host = super::builder::host_of(&data);
        let constant = ConstantId(self.constants.len() as u32);
        let hint = name.clone().unwrap_or_default();
        self.constants.push(Constant { name, data, provenance });
        self.add_value(Value { name: hint, ty, def: ValueDef::Constant(constant), host })
    }

    /// Adds a value.
    pub fn add_value(&mut self, value: Value) -> ValueId {
        let id = ValueId(self.values.len() as u32);
        self.values.push(value);
        id
    }

    /// Adds a node that is not yet in a region, with outputs of the given types.
    pub fn add_node(
        &mut self,
        op: Op,
        inputs: Vec<Option<ValueId>>,
        outputs: Vec<TensorType>,
        origin: Origin,
    ) -> NodeId {
        let id = NodeId(self.nodes.len() as u32);
        let outputs = outputs
            .into_iter()
            .enumerate()
            .map(|(i, ty)| {
                self.add_value(Value {
                    name: String::new(),
                    ty,
                    def: ValueDef::Node(id, i as u32),
                    host: None,
                })
            })
            .collect();
        self.nodes.push(Node { op, inputs, outputs, origin });
        id
    }

    /// The least value of a dim, if there is one. Symbols that are sizes count as at least `size` (0, or 1 where empty
    /// tensors do not matter); integers read back at run time may be anything.
    pub fn least(&self, dim: &Dim, size: i64) -> Option<i64> {
        dim.bounds(&|symbol| self.symbol_bounds(symbol, size)).0
    }

    fn symbol_bounds(&self, symbol: &Symbol, size: i64) -> Bounds {
        match self.symbols.get(symbol) {
            Some(SymbolOrigin::Read { .. }) => (None, None),
            Some(SymbolOrigin::Iteration { .. }) => (Some(0), None),
            Some(SymbolOrigin::Dim { .. }) | None => (Some(size), None),
        }
    }

    /// The larger of two; decided where sizes being non-negative decides it.
    pub fn maximum(&self, a: &Dim, b: &Dim) -> Dim {
        match self.sign_of_difference(a, b) {
            (true, _) => a.clone(),
            (_, true) => b.clone(),
            _ => a.maximum(b),
        }
    }

    /// The smaller of two; decided where sizes being non-negative decides it, or where one is so large that it stands
    /// for "to the end".
    pub fn minimum(&self, a: &Dim, b: &Dim) -> Dim {
        /// What exporters write for the end of an axis of unknown size is this or more; no axis is.
        const BEYOND: i64 = 1_000_000_000;
        let beyond = |dim: &Dim| dim.as_constant().is_some_and(|value| value >= BEYOND);
        match (beyond(a), beyond(b)) {
            (true, false) if b.as_constant().is_none() => return b.clone(),
            (false, true) if a.as_constant().is_none() => return a.clone(),
            _ => {}
        }
        match self.sign_of_difference(a, b) {
            (true, _) => b.clone(),
            (_, true) => a.clone(),
            _ => a.minimum(b),
        }
    }

    /// Whether `a >= b` and whether `a <= b` for certain.
    fn sign_of_difference(&self, a: &Dim, b: &Dim) -> (bool, bool) {
        let (low, high) = (a - b).bounds(&|symbol| self.symbol_bounds(symbol, 0));
        (low.is_some_and(|low| low >= 0), high.is_some_and(|high| high <= 0))
    }

    /// 1 when a comparison holds, 0 when not; decided where sizes being non-negative decides it.
    pub fn compare(&self, op: CompareOp, a: &Dim, b: &Dim) -> Dim {
        let (low, high) = (a - b).bounds(&|symbol| self.symbol_bounds(symbol, 0));
        let (low, high) = (low.unwrap_or(i64::MIN), high.unwrap_or(i64::MAX));
        let apart = low > 0 || high < 0;
        let decided = match op {
            CompareOp::Equal if apart => Some(false),
            CompareOp::NotEqual if apart => Some(true),
            CompareOp::Greater => (low > 0).then_some(true).or((high <= 0).then_some(false)),
            CompareOp::GreaterEqual => (low >= 0).then_some(true).or((high < 0).then_some(false)),
            CompareOp::Lower => (high < 0).then_some(true).or((low >= 0).then_some(false)),
            CompareOp::LowerEqual => (high <= 0).then_some(true).or((low > 0).then_some(false)),
            _ => None,
        };
        decided.map_or_else(|| Dim::compare(op, a, b), |holds| Dim::constant(i64::from(holds)))
    }

    /// A symbol name that is not taken yet, starting from a hint.
    pub fn fresh_symbol(&self, hint: &str) -> Symbol {
        let taken = |n: u64| match n {
            1 => self.symbols.contains_key(hint),
            n => self.symbols.contains_key(format!("{hint}_{n}").as_str()),
        };
        if !taken(1) {
            return hint.into();
        }
        // Names of one hint are taken in order, so that the end of the row is found by halving.
        let (mut last, mut free) = (1, 2);
        while taken(free) {
            (last, free) = (free, free * 2);
        }
        while free - last > 1 {
            let middle = last + (free - last) / 2;
            if taken(middle) { last = middle } else { free = middle }
        }
        format!("{hint}_{free}").into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fresh_symbols_are_numbered_without_gaps() {
        let mut graph = Graph::default();
        let origin = SymbolOrigin::Dim { value: ValueId(0), axis: 0 };
        for n in 1..100 {
            let symbol = graph.fresh_symbol("n");
            assert_eq!(symbol.to_string(), if n == 1 { "n".to_owned() } else { format!("n_{n}") });
            graph.symbols.insert(symbol, origin);
        }
    }
}
