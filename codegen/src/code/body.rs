//! What a struct and its functions are made of.

use super::{Block, Code, Statement};
use crate::dims::is_signed;
use crate::ids::{Arena, FieldId, SlotId, StructId, VarId};
use kiln_importer::ir::{Dim, Graph, Symbol, TensorType, ValueId};
use kiln_types::{DType, DTypeKind};
use std::collections::{BTreeSet, HashMap};

/// What may differ between modules of one struct.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Literal {
    Number(i64),
    Flag(bool),
    /// A value of a type of the runtime: an activation.
    Choice(&'static str, Box<Code>),
}

/// A literal in a body, which may be another one in a module of the same struct.
#[derive(Clone, Debug, PartialEq)]
pub struct Slot {
    /// Nothing where it belongs to an optional part that this module does not have.
    pub value: Option<Literal>,
    /// What the number is, if the spelling says so.
    pub hint: Option<String>,
    /// The field in whose initialization it stands; `None` in `forward`.
    pub field: Option<FieldId>,
}

/// How a field is made.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Init {
    /// A layer: type, config, dtype of its parameters, and those of them that are not trained.
    Layer { ty: &'static str, config: Code, dtype: DType, fixed: Vec<&'static str> },
    /// A parameter with its dims, and whether it is not trained.
    Parameter { dtype: DType, rank: usize, dims: Vec<Code>, fixed: bool },
    /// A module of a struct, with the arguments of its constructor.
    Module { structure: StructId, args: Vec<Code> },
    /// Several layers of one type, or modules of one struct; at least one.
    Sequence(Vec<Init>),
}

impl Init {
    /// The expressions in it.
    pub fn codes(&self) -> Vec<&Code> {
        match self {
            Init::Layer { config, .. } => vec![config],
            Init::Parameter { dims, .. } => dims.iter().collect(),
            Init::Module { args, .. } => args.iter().collect(),
            Init::Sequence(items) => items.iter().flat_map(Init::codes).collect(),
        }
    }

    /// Visits every expression in it, to change, parents first.
    pub fn visit_mut(&mut self, f: &mut dyn FnMut(&mut Code)) {
        match self {
            Init::Layer { config, .. } => config.visit_mut(f),
            Init::Parameter { dims, .. } => dims.iter_mut().for_each(|dim| dim.visit_mut(f)),
            Init::Module { args, .. } => args.iter_mut().for_each(|arg| arg.visit_mut(f)),
            Init::Sequence(items) => items.iter_mut().for_each(|item| item.visit_mut(f)),
        }
    }

    /// The literals in it, in order.
    pub fn slots(&self) -> Vec<SlotId> {
        self.codes().into_iter().flat_map(Code::slots).collect()
    }

    /// The layers and modules in it: the items of a sequence, or itself.
    pub fn items(&self) -> &[Init] {
        match self {
            Init::Sequence(items) => items,
            Init::Layer { .. } | Init::Parameter { .. } | Init::Module { .. } => std::slice::from_ref(self),
        }
    }

    /// The struct of the modules in it.
    fn structure(&self) -> Option<StructId> {
        match self {
            Init::Module { structure, .. } => Some(*structure),
            Init::Sequence(items) => items.first()?.structure(),
            Init::Layer { .. } | Init::Parameter { .. } => None,
        }
    }
}

/// A symbol that is found in the dims of a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Source {
    pub symbol: Symbol,
    pub var: VarId,
    pub axis: usize,
}

/// The code of a module, and what its variables and literals are in that module.
#[derive(Clone, Debug, Default)]
pub struct Body {
    /// How each field is made.
    pub inits: Arena<FieldId, Init>,
    /// What the caller passes.
    pub inputs: Vec<VarId>,
    /// The forward function.
    pub block: Block,
    /// Symbols that the caller passes.
    pub symbols: Vec<Symbol>,
    /// Symbols found in the dims of values.
    pub sources: Vec<Source>,
    /// The literals.
    pub slots: Arena<SlotId, Slot>,
    /// The values of variables; of the parts that a module does not have, another value of the same type.
    pub vars: Arena<VarId, ValueId>,
    /// Names for variables, where the use tells.
    pub hints: HashMap<VarId, String>,
}

/// The code of a module without what is its own alone: modules of equal forms can share a struct.
///
/// Symbols are counted like variables: an encoder's layer over `source` and a decoder's over `target` are one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Form {
    pub inits: Vec<Init>,
    pub inputs: Vec<VarId>,
    pub block: Block,
    pub symbols: Vec<Symbol>,
    pub sources: Vec<Source>,
    pub vars: Vec<(DTypeKind, usize)>,
}

impl Body {
    /// The structs that it holds or calls.
    pub fn structs(&self) -> BTreeSet<StructId> {
        let mut structs: BTreeSet<StructId> =
            self.inits.ids().filter_map(|field| self.struct_at(field)).collect();
        for statement in self.block.all_statements() {
            if let Statement::Loop { callee, .. } = statement {
                structs.insert(callee.structure);
            }
        }
        for code in self.block.codes() {
            code.visit(&mut |part| {
                if let Code::Module(callee, _) = part {
                    structs.insert(callee.structure);
                }
            });
        }
        structs
    }

    /// The struct of the modules in a field.
    pub fn struct_at(&self, field: FieldId) -> Option<StructId> {
        self.inits.get(field)?.structure()
    }

    /// The number of items in a field that is a sequence.
    pub fn length_at(&self, field: FieldId) -> usize {
        match self.inits.get(field) {
            Some(Init::Sequence(items)) => items.len(),
            Some(Init::Layer { .. } | Init::Parameter { .. } | Init::Module { .. }) | None => 0,
        }
    }

    /// The form of it.
    pub fn form(&self, graph: &Graph) -> Form {
        let mut sources = self.sources.clone();
        sources.sort_unstable_by_key(|source| (source.var, source.axis));
        let mut numbers: HashMap<Symbol, Symbol> = HashMap::new();
        let mut number = |symbol: &Symbol| {
            let next = numbers.len();
            // One type of integers is not passed for the other.
            let kind = if is_signed(graph, symbol) { "integer" } else { "size" };
            numbers.entry(symbol.clone()).or_insert_with(|| format!("{kind}{next}").into());
        };
        sources.iter().for_each(|source| number(&source.symbol));
        self.symbols.iter().for_each(&mut number);
        for statement in self.block.all_statements() {
            statement.symbols().iter().for_each(&mut number);
        }
        let numbered = |symbol: &Symbol| numbers.get(symbol).cloned();
        let mut block = self.block.clone();
        block.visit_mut(&mut |code| {
            code.normalize();
            code.rename_symbols(&numbered);
        });
        block.rename_symbols(&numbered);
        for source in &mut sources {
            source.symbol = numbered(&source.symbol).unwrap_or_else(|| source.symbol.clone());
        }
        let inits = self.inits.iter().cloned().map(|mut init| {
            init.visit_mut(&mut Code::normalize);
            init
        });
        let ty = |&value: &ValueId| (graph.ty(value).dtype.kind(), graph.ty(value).rank());
        Form {
            inits: inits.collect(),
            inputs: self.inputs.clone(),
            block,
            symbols: self
                .symbols
                .iter()
                .map(|symbol| numbered(symbol).unwrap_or_else(|| symbol.clone()))
                .collect(),
            sources,
            vars: self.vars.iter().map(ty).collect(),
        }
    }
}

impl Code {
    /// Takes away what modules of equal code may have different: whether a setting is the default, and sizes of tensors
    /// that are made (the call's arguments say those).
    pub fn normalize(&mut self) {
        match self {
            Code::Setting(.., default) => *default = false,
            Code::Make(ty, ..) => {
                let dtype = match ty.dtype.kind() {
                    DTypeKind::Float => DType::F32,
                    DTypeKind::Int => DType::I64,
                    DTypeKind::Bool => DType::Bool,
                };
                *ty = TensorType { dtype, dims: vec![Dim::constant(0); ty.rank()] };
            }
            _ => {}
        }
    }

    /// Renames the symbols in it.
    fn rename_symbols(&mut self, numbered: &dyn Fn(&Symbol) -> Option<Symbol>) {
        match self {
            Code::Size(dim) | Code::Integer(dim) => *dim = renamed(dim, numbered),
            Code::Symbol(symbol) => {
                if let Some(other) = numbered(symbol) {
                    *symbol = other;
                }
            }
            _ => {}
        }
    }
}

fn renamed(dim: &Dim, numbered: &dyn Fn(&Symbol) -> Option<Symbol>) -> Dim {
    dim.substitute(&|symbol| numbered(symbol).map(Dim::symbol))
}

impl Block {
    /// Renames the symbols that statements themselves name.
    fn rename_symbols(&mut self, numbered: &dyn Fn(&Symbol) -> Option<Symbol>) {
        for statement in &mut self.statements {
            match statement {
                Statement::Read { symbols, .. } => {
                    for symbol in symbols {
                        *symbol = numbered(symbol).unwrap_or_else(|| symbol.clone());
                    }
                }
                Statement::If { condition, then, otherwise, .. } => {
                    *condition = renamed(condition, numbered);
                    then.rename_symbols(numbered);
                    otherwise.rename_symbols(numbered);
                }
                Statement::Repeat(repeat) => {
                    let iteration = numbered(&repeat.iteration);
                    repeat.iteration = iteration.unwrap_or_else(|| repeat.iteration.clone());
                    repeat.condition = renamed(&repeat.condition, numbered);
                    for dim in repeat.trip_count.iter_mut().chain(&mut repeat.again) {
                        *dim = renamed(dim, numbered);
                    }
                    repeat.body.rename_symbols(numbered);
                }
                Statement::Bind { .. }
                | Statement::Optional { .. }
                | Statement::List { .. }
                | Statement::Push { .. }
                | Statement::Loop { .. } => {}
            }
        }
    }
}
