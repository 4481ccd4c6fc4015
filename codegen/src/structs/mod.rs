//! The second stage: code for every module, and structs that modules of equal code share.
//!
//! It works from the leaves of the tree to its root, since a module's code says which structs its children have: modules
//! of one height get their code, then those that are equal up to numbers (or up to optional parts) get one struct.

mod build;
mod field_names;
mod flatten;
mod parameters;
mod places;
mod sequence;
mod signature;
mod statements;
mod variants;

pub use field_names::field_names;

use crate::code::{Body, Literal, Statement};
use crate::ids::{Arena, FieldId, ModuleId, SlotId, StructId, VarId};
use crate::tree::{Field, FieldOrigin, ModuleTree, Step, origin};
use crate::{CodegenError, Defect};
use kiln_importer::ir::{Graph, NodeId, TensorType, ValueId};
use places::Places;
use std::collections::{BTreeMap, HashSet};

/// A model as structs and functions.
pub struct Program<'g> {
    /// The modules of the original network.
    pub tree: ModuleTree<'g>,
    /// What each of them holds in the fields of its struct.
    pub modules: Arena<ModuleId, Module>,
    /// Every struct, children before parents.
    pub structs: Arena<StructId, Struct>,
    /// The model itself.
    pub root: StructId,
}

/// A module of a struct.
#[derive(Clone, Debug)]
pub struct Module {
    /// Its struct.
    pub structure: StructId,
    /// The struct's fields.
    pub fields: Arena<FieldId, Field>,
    /// The values of the struct's variables.
    pub vars: Arena<VarId, ValueId>,
}

/// A struct that equal modules share, or a function when they hold nothing.
#[derive(Clone, Debug)]
pub struct Struct {
    /// Its modules; what is printed is the first one's code, comments aside.
    pub members: Vec<ModuleId>,
    /// What its constructor takes.
    pub parameters: Vec<Parameter>,
    /// Whether its modules hold nothing, so that it is a function and no struct.
    pub is_function: bool,
    /// The code.
    pub body: Body,
    /// Types of what `forward` yields, in the first module.
    pub outputs: Vec<TensorType>,
    /// Fields that some modules do not have, with the literals that say so.
    pub optional: BTreeMap<FieldId, SlotId>,
    /// How checkpoints fill each field.
    pub origins: Arena<FieldId, Option<FieldOrigin>>,
}

/// A parameter of a struct's constructor: literals that are equal in each module.
#[derive(Clone, Debug)]
pub struct Parameter {
    /// Its name.
    pub name: String,
    /// The literals.
    pub slots: Vec<SlotId>,
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

impl Parameter {
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
            Self::Number | Self::Choice(_) => Literal::Number(0),
        }
    }
}

impl Struct {
    /// The parameter that a literal belongs to, where modules differ in it.
    pub fn parameter_of(&self, slot: SlotId) -> Option<&Parameter> {
        self.parameters.iter().find(|parameter| parameter.slots.contains(&slot))
    }

    /// The module whose code is printed.
    pub fn first(&self) -> Result<ModuleId, CodegenError> {
        self.members.first().copied().ok_or_else(|| Defect::NoMembers.into())
    }
}

impl<'g> Program<'g> {
    /// The model.
    pub fn graph(&self) -> &'g Graph {
        self.tree.graph
    }

    /// Makes the structs of a tree.
    pub fn new(tree: ModuleTree<'g>) -> Result<Self, CodegenError> {
        let (drafts, structs) = build::build(&tree)?;
        let mut modules = Arena::default();
        for (id, draft) in drafts.into_iter().enumerate() {
            let path = &tree.modules[crate::ids::Id::at(id)].path;
            let structure = draft.structure.ok_or_else(|| Defect::module(path, "no struct"))?;
            modules.push(Module { structure, fields: draft.fields, vars: draft.body.vars });
        }
        let root = modules[tree.root].structure;
        Ok(Program { tree, modules, structs, root })
    }
}

/// A module while structs are being made.
#[derive(Clone, Debug, Default)]
struct Draft {
    /// Fields, after children were written out and collected.
    fields: Arena<FieldId, Field>,
    /// Steps, likewise.
    steps: Vec<Step>,
    /// The same module, when this is a later call of it.
    call_of: Option<ModuleId>,
    /// Values that the caller passes.
    inputs: Vec<ValueId>,
    /// Values that the caller gets.
    outputs: Vec<ValueId>,
    /// Its code, when that was made.
    body: Body,
    /// Where things are in its fields.
    places: Places,
    /// How checkpoints fill each of its fields, when it has its code and no struct yet.
    origins: Arena<FieldId, Option<FieldOrigin>>,
    /// Its struct, when it has one.
    structure: Option<StructId>,
}

/// The stage in the making.
struct Sharing<'t, 'g> {
    tree: &'t ModuleTree<'g>,
    modules: Arena<ModuleId, Draft>,
    structs: Arena<StructId, Struct>,
    /// Layers whose parameters something besides their calls reads.
    read_elsewhere: HashSet<NodeId>,
    /// How many statements may still be compared to find variants.
    comparisons: usize,
    /// Whether nothing in the model tells in which order it is computed.
    is_repeatable: bool,
}

impl Sharing<'_, '_> {
    /// The module that is in its parent's fields: the first call's.
    fn first_call(&self, module: ModuleId) -> ModuleId {
        let mut first = module;
        while let Some(other) = self.modules[first].call_of {
            first = other;
        }
        first
    }

    /// The struct of a module below the one in hand.
    fn structure_of(&self, module: ModuleId) -> Result<StructId, CodegenError> {
        let missing = || Defect::module(&self.tree.modules[module].path, "no struct").into();
        self.modules[module].structure.ok_or_else(missing)
    }

    /// Whether a module below the one in hand holds nothing.
    fn is_function(&self, module: ModuleId) -> bool {
        self.modules[module].structure.is_some_and(|id| self.structs[id].is_function)
    }

    /// How checkpoints fill fields of a module.
    fn origins(
        &self,
        module: ModuleId,
        fields: &Arena<FieldId, Field>,
    ) -> Arena<FieldId, Option<FieldOrigin>> {
        let base = &self.tree.modules[module].path;
        fields.iter().map(|field| origin(self.tree, base, field)).collect()
    }
}

/// The optional fields that statements look for.
fn optional_fields(body: &Body) -> BTreeMap<FieldId, SlotId> {
    let optional = |statement: &Statement| match statement {
        Statement::Optional { flag, field: Some(field), .. } => Some((*field, *flag)),
        _ => None,
    };
    body.block.statements.iter().filter_map(optional).rev().collect()
}
