//! Which modules the source will have: a tree of them, and the structs that equal ones share.

mod branches;
mod calls;
mod constants;
mod cut;
mod dissolve;
mod fields;
mod group;
mod home;
mod layers;
mod live;
mod origins;
mod parameters;
mod sequence;
mod share;
mod signature;
mod statements;
mod variants;

use crate::code::{Body, Literal, Statement};
use kiln_importer::ir::{Arg, Graph, Implementation, Layer, NodeId, ValueId};
use std::collections::BTreeMap;

pub use fields::field_names;
pub use live::operands;
pub use origins::{Checkpoints, FieldOrigin, origin};
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
    /// Branches, each with steps of its own.
    Branches {
        /// The node that chooses.
        node: NodeId,
        /// What happens when the condition holds.
        then: Vec<Step>,
        /// What happens when not.
        otherwise: Vec<Step>,
    },
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
    /// An optional part that this module does not have.
    Absent,
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
    /// The order in which the caller wants some of the outputs.
    pub wanted: Vec<ValueId>,
    /// The same module, when this is a later call of it.
    pub call_of: Option<usize>,
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
    /// Whether it differs from call to call, so that `forward` takes it and not the constructor.
    pub passed: bool,
    /// What it is.
    pub kind: ParameterKind,
    /// What it follows from, so that nobody needs to give it.
    pub derived: Option<Derived>,
}

/// How one parameter follows from others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Derived {
    /// Half of a number: a padding that keeps the size.
    Half(String),
    /// Whether two numbers are equal: a sum with the input.
    Equal(String, String),
    /// Whether they differ: a projected shortcut.
    Differ(String, String),
}

impl StructParameter {
    /// Whether the constructor takes it.
    pub fn is_given(&self) -> bool {
        !self.passed && self.derived.is_none()
    }
}

/// The type of a constructor's parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterKind {
    /// `usize`
    Number,
    /// `bool`
    Flag,
    /// A type of the runtime.
    Choice(&'static str),
}

impl ParameterKind {
    fn of(literal: &Literal) -> Self {
        match literal {
            Literal::Number(_) => Self::Number,
            Literal::Flag(_) => Self::Flag,
            Literal::Choice(ty, _) => Self::Choice(ty),
        }
    }

    /// What stands for a parameter that a module has no use for.
    fn unused(self) -> Literal {
        match self {
            Self::Flag => Literal::Flag(false),
            _ => Literal::Number(0),
        }
    }
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
    /// What the runtime does for each node that runs.
    pub implementations: BTreeMap<NodeId, Implementation>,
    /// Nodes that call a layer held in a field, each with the first node that calls the same layer.
    pub layers: BTreeMap<NodeId, NodeId>,
    /// Parameters that layers hold: the layer, and its field.
    pub held: BTreeMap<ValueId, (NodeId, &'static str)>,
    /// How often each value is used.
    pub uses: BTreeMap<ValueId, usize>,
    /// Every module; the root is [`Plan::root`].
    pub modules: Vec<Module>,
    /// Every struct, children before parents.
    pub structs: Vec<Struct>,
    /// The model itself.
    pub root: usize,
    /// How it takes checkpoints of the original network.
    pub checkpoints: Checkpoints,
}

impl<'g> Plan<'g> {
    /// Plans the source of a graph.
    pub fn new(graph: &'g Graph) -> Self {
        let mut plan = Plan {
            graph,
            implementations: BTreeMap::new(),
            layers: BTreeMap::new(),
            held: BTreeMap::new(),
            uses: BTreeMap::new(),
            modules: Vec::new(),
            structs: Vec::new(),
            root: 0,
            checkpoints: Checkpoints::None,
        };
        let nodes = live::live_nodes(graph);
        plan.count_uses(&nodes);
        let mut all = Vec::new();
        plan.implement(&nodes, &mut all);
        layers::choose(&mut plan, &all);
        loop {
            plan.modules.clear();
            let homes = home::homes(&plan, &nodes, &all);
            let (root, homeless) = group::group(&mut plan, homes, nodes.clone());
            plan.root = root;
            if homeless.is_empty() {
                break;
            }
            homeless.into_iter().for_each(|layer| layers::refuse(&mut plan, layer));
        }
        constants::place(&mut plan);
        plan.checkpoints = origins::checkpoints(&plan);
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

    /// Asks every node what the runtime does for it, those of branches too, and lists them in execution order.
    fn implement(&mut self, nodes: &[NodeId], all: &mut Vec<NodeId>) {
        for &id in nodes {
            let node = self.graph.node(id);
            all.push(id);
            self.implementations.insert(id, node.op.implementation(self.graph, node));
            for region in live::regions(&node.op) {
                self.implement(&region.nodes, all);
            }
        }
    }

    /// What a node calls; a layer that is no field is called as a plain function.
    pub fn call(&self, node: NodeId) -> Option<&Arg> {
        self.implementations.get(&node)?.call()
    }

    /// The layer of a node that is a field.
    pub fn layer(&self, node: NodeId) -> Option<&Layer> {
        match self.implementations.get(&node)? {
            Implementation::Layer(layer) if self.layers.contains_key(&node) => Some(layer),
            _ => None,
        }
    }

    /// The module that is in its parent's fields: the first call's.
    pub fn first_call(&self, module: usize) -> usize {
        self.modules[module].call_of.map_or(module, |first| self.first_call(first))
    }

    /// The fields on the way from a module to a layer that it holds, itself or in its children, with the position in
    /// a sequence.
    pub fn way_to(&self, module: usize, layer: NodeId) -> Option<Vec<(usize, usize, Option<usize>)>> {
        self.modules[module].fields.iter().enumerate().find_map(|(i, field)| match &field.content {
            Content::Layer(node) => (*node == layer).then(|| vec![(module, i, None)]),
            Content::Parameter(_) | Content::Absent => None,
            Content::Module(child) => {
                let rest = self.way_to(*child, layer)?;
                Some([vec![(module, i, None)], rest].concat())
            }
            Content::Sequence(children) => children.iter().enumerate().find_map(|(n, &child)| {
                let rest = self.way_to(child, layer)?;
                Some([vec![(module, i, Some(n))], rest].concat())
            }),
        })
    }

    /// The slot that says whether an optional field of a struct is there.
    pub fn optional(&self, struct_id: usize, field: usize) -> Option<usize> {
        let block = &self.modules[self.structs[struct_id].members[0]].body.block;
        block.statements.iter().find_map(|statement| match statement {
            Statement::Optional { flag, field: at, .. } if *at == Some(field) => Some(*flag),
            _ => None,
        })
    }

    /// The index of the field with a content.
    pub fn field_of(&self, module: usize, content: &Content) -> Option<usize> {
        self.modules[module].fields.iter().position(|field| field.content == *content)
    }
}
