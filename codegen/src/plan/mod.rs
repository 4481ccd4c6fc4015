//! Which modules the source will have: a tree of them, and the structs that equal ones share.

mod constants;
mod cut;
mod dissolve;
mod fields;
mod group;
mod home;
mod live;
mod sequence;
mod share;
mod signature;
mod statements;

use crate::code::Body;
use kiln_importer::ir::spelling::Spelling;
use kiln_importer::ir::{Graph, NodeId, ValueId};
use std::collections::{BTreeMap, BTreeSet};

pub use fields::field_names;
pub use live::operands;
pub use share::field_index;

/// Whether a class only holds other modules, so that its name says nothing.
pub fn is_container_class(class: &str) -> bool {
    matches!(class, "" | "Sequential" | "ModuleList" | "ModuleDict")
}

/// What happens at one place of a module's `forward`.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// A node of the module itself.
    Node(NodeId),
    /// A call of a child.
    Call(usize),
    /// Calls of children in turn, each on the result of the one before.
    Loop {
        /// The children.
        modules: Vec<usize>,
        /// Which input is the result of the one before.
        carried: usize,
    },
}

/// What a field of a module holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// The layer of a node.
    Layer(NodeId),
    /// A parameter.
    Parameter(ValueId),
    /// A child.
    Module(usize),
    /// Children with the keys `0`, `1`, ….
    Sequence(Vec<usize>),
}

/// A field of a module.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// Its path below the module; dots where levels were left out.
    pub key: String,
    /// What it holds.
    pub content: Content,
}

/// One module: a place in the tree.
#[derive(Clone, Debug, Default)]
pub struct Module {
    /// Full path as in `named_modules()`.
    pub path: String,
    /// Its class; empty when unknown.
    pub class: String,
    /// Fields in order of use.
    pub fields: Vec<Field>,
    /// What happens, in order.
    pub steps: Vec<Step>,
    /// Values that the caller passes.
    pub inputs: Vec<ValueId>,
    /// Values that the caller gets.
    pub outputs: Vec<ValueId>,
    /// Its code, when that was made.
    pub body: Body,
    /// Its struct.
    pub struct_id: usize,
}

/// A parameter of a struct's constructor: slots that have one number in each module.
#[derive(Clone, Debug)]
pub struct StructParameter {
    /// Its name.
    pub name: String,
    /// The slots it fills.
    pub slots: Vec<usize>,
    /// Whether `forward` needs it, so that it becomes a field.
    pub kept: bool,
}

/// A struct that equal modules share.
#[derive(Clone, Debug)]
pub struct Struct {
    /// Its modules; the first one is what is printed.
    pub members: Vec<usize>,
    /// What its constructor takes.
    pub parameters: Vec<StructParameter>,
    /// Whether it holds nothing, so that it is a function.
    pub function: bool,
    /// Its name.
    pub name: String,
}

/// The plan of a source file.
pub struct Plan<'g> {
    /// The graph.
    pub graph: &'g Graph,
    /// Spelling of each node that runs.
    pub spellings: BTreeMap<NodeId, Spelling>,
    /// Nodes that become fields.
    pub layers: BTreeSet<NodeId>,
    /// How often each value is used.
    pub uses: BTreeMap<ValueId, usize>,
    /// Every module; the root is [`Plan::root`].
    pub modules: Vec<Module>,
    /// Every struct, children before parents.
    pub structs: Vec<Struct>,
    /// The model itself.
    pub root: usize,
}

impl<'g> Plan<'g> {
    /// Plans the source of a graph.
    pub fn new(graph: &'g Graph) -> Self {
        let mut plan = Plan {
            graph,
            spellings: BTreeMap::new(),
            layers: BTreeSet::new(),
            uses: BTreeMap::new(),
            modules: Vec::new(),
            structs: Vec::new(),
            root: 0,
        };
        let nodes = live::live_nodes(graph);
        plan.count_uses(&nodes);
        plan.spell(&nodes);
        let homes = home::homes(&plan, &nodes);
        plan.root = group::group(&mut plan, homes, nodes);
        constants::place(&mut plan);
        share::share(&mut plan);
        plan
    }

    fn count_uses(&mut self, nodes: &[NodeId]) {
        let mut count = |values: Vec<ValueId>| {
            for value in values {
                *self.uses.entry(value).or_insert(0) += 1;
            }
        };
        for &node in nodes {
            count(operands(self.graph, node));
        }
        count(self.graph.root.outputs.clone());
    }

    /// Spells every node, those of branches too.
    fn spell(&mut self, nodes: &[NodeId]) {
        for &id in nodes {
            let node = self.graph.node(id);
            let spelling = node.op.spell(self.graph, node);
            if let Spelling::Layer(layer) = &spelling
                && self.can_be_field(layer)
            {
                self.layers.insert(id);
            }
            self.spellings.insert(id, spelling);
            for region in live::regions(&node.op) {
                // Fields made in branches would hide in them: a plain call is right there.
                let inner = region.nodes.clone();
                let layers = self.layers.clone();
                self.spell(&inner);
                self.layers = layers;
            }
        }
    }

    /// Whether the layer's constants belong to it alone and are named as its fields are.
    fn can_be_field(&self, layer: &kiln_importer::ir::spelling::Layer) -> bool {
        let mut parameters =
            layer.fields.iter().filter_map(|(name, field)| Some((name, field.value()?))).peekable();
        parameters.peek().is_some()
            && parameters.all(|(field, value)| {
                let Some(constant) = self.graph.constant(value) else { return false };
                let name = constant.name.as_deref().filter(|name| name.contains('.'));
                self.uses.get(&value) == Some(&1) && name.is_none_or(|name| home::names_field(name, field))
            })
    }

    /// The spelling of a node as an expression: a layer that is no field becomes its plain call.
    pub fn expression(&self, node: NodeId) -> Option<&kiln_importer::ir::spelling::Expr> {
        match self.spellings.get(&node)? {
            Spelling::Expr(expr) => Some(expr),
            Spelling::Layer(layer) => Some(&layer.function),
        }
    }

    /// The layer of a node that is a field.
    pub fn layer(&self, node: NodeId) -> Option<&kiln_importer::ir::spelling::Layer> {
        match self.spellings.get(&node)? {
            Spelling::Layer(layer) if self.layers.contains(&node) => Some(layer),
            _ => None,
        }
    }

    /// The index of the field with a content.
    pub fn field_of(&self, module: usize, content: &Content) -> Option<usize> {
        self.modules[module].fields.iter().position(|field| field.content == *content)
    }
}
