//! The first stage: nodes into a tree of modules.
//!
//! Each module is a place of the original network's tree, or of one that is made up where the file tells nothing. It
//! has fields (layers, parameters, children) and steps (nodes of its own, calls of children), in execution order.

mod branches;
mod calls;
mod constants;
mod grouping;
mod keys;
mod layers;
mod nodes;
mod origins;
mod outline;
mod partition;
mod placement;

use crate::ids::{Arena, ModuleId};
use kiln_importer::ir::{Arg, Graph, Layer, NodeId, RepeatedAxes, ValueId};
use layers::Layers;
use nodes::Nodes;

pub use constants::is_literal;
pub use keys::{Keys, below};
pub use nodes::{control_symbols, operands};
pub use origins::{Checkpoints, FieldOrigin, of_list, origin};

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
    Call(ModuleId),
    /// Branches, each with steps of its own.
    Branches {
        /// The node that chooses.
        node: NodeId,
        /// What happens when the condition holds.
        then: Vec<Step>,
        /// What happens when not.
        otherwise: Vec<Step>,
    },
    /// A loop of the network's own.
    Repeat {
        /// The node that repeats.
        node: NodeId,
        /// What happens in each round.
        body: Vec<Step>,
    },
    /// Calls of children in turn, each on the result of the one before.
    Loop {
        /// The children.
        modules: Vec<ModuleId>,
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
    Module(ModuleId),
    /// Layers of one type, or children of one struct, with the keys `0`, `1`, ….
    Sequence(Vec<Content>),
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
    /// Its class, with its Python module where the file tells; empty when unknown.
    pub class: String,
    /// Fields in order of use.
    pub fields: Vec<Field>,
    /// What happens, in order.
    pub steps: Vec<Step>,
    /// The order in which the caller wants some of the outputs.
    pub wanted: Vec<ValueId>,
    /// The same module, when this is a later call of it.
    pub call_of: Option<ModuleId>,
}

impl Module {
    /// The class without its Python module.
    pub fn class_name(&self) -> &str {
        self.class.rsplit('.').next().unwrap_or(&self.class)
    }
}

/// The modules of a model.
pub struct ModuleTree<'g> {
    /// The model.
    pub graph: &'g Graph,
    /// Every module, children before parents.
    pub modules: Arena<ModuleId, Module>,
    /// The model itself.
    pub root: ModuleId,
    /// How it takes checkpoints of the original network.
    pub checkpoints: Checkpoints,
    /// Whether the model is to be trained.
    pub trainable: bool,
    /// Axes of masks that may have size 1, of which no size is read.
    pub repeated: RepeatedAxes,
    nodes: Nodes<'g>,
    layers: Layers,
}

impl<'g> ModuleTree<'g> {
    /// The modules of a graph.
    pub fn new(graph: &'g Graph) -> Self {
        /// Each round takes back the layers that no module can hold; that may move others.
        const ROUNDS: usize = 8;
        let nodes = Nodes::new(graph);
        let mut layers = Layers::choose(&nodes);
        let mut rounds = 0;
        let (modules, root) = loop {
            let placements = placement::placements(&nodes, &layers);
            let grouped = grouping::group(&nodes, &layers, placements);
            if grouped.called_across.is_empty() {
                break (grouped.modules, grouped.root);
            }
            rounds += 1;
            layers.refuse(&if rounds < ROUNDS { grouped.called_across } else { layers.called_again() });
        };
        let (checkpoints, trainable) = (Checkpoints::None, false);
        let repeated = graph.repeated_axes();
        let mut tree = ModuleTree { graph, modules, root, checkpoints, trainable, repeated, nodes, layers };
        constants::place(&mut tree);
        tree.checkpoints = origins::checkpoints(&tree);
        tree
    }

    /// What a node calls; a layer that is no field is called as a plain function.
    pub fn call(&self, node: NodeId) -> Option<&Arg> {
        self.nodes.call(node)
    }

    /// The layer that a node calls and that is a field, and the node by which it is known.
    pub fn layer(&self, node: NodeId) -> Option<(NodeId, &Layer)> {
        Some((self.layers.called_by(node)?, self.nodes.possible_layer(node)?))
    }

    /// What is known of the layers.
    pub fn layers(&self) -> &Layers {
        &self.layers
    }

    /// What is known of the nodes.
    pub fn nodes(&self) -> &Nodes<'g> {
        &self.nodes
    }

    /// The module that is in its parent's fields: the first call's.
    pub fn first_call(&self, module: ModuleId) -> ModuleId {
        let mut first = module;
        while let Some(other) = self.modules[first].call_of {
            first = other;
        }
        first
    }
}

/// The layer that a node calls, while the tree is being built.
fn layer<'n>(nodes: &'n Nodes<'_>, layers: &Layers, node: NodeId) -> Option<&'n Layer> {
    layers.called_by(node).and_then(|_| nodes.possible_layer(node))
}
