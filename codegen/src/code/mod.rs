//! Code between the IR and tokens: statements over values, with names, moves and literals still open.

mod inline;
mod lower;
mod moves;
mod skeleton;

pub use inline::inline;
pub use lower::{Lowering, Owner};
pub use moves::decide_moves;
pub use skeleton::Text;

use kiln_importer::ir::{Dim, Name, NodeId, Symbol, TensorType, ValueId};
use kiln_types::{DType, Scalar};
use std::collections::BTreeMap;

/// An expression.
#[derive(Clone, Debug, PartialEq)]
pub enum Code {
    /// A value of the function, moved.
    Use(ValueId),
    /// A value of the function, cloned.
    Clone(ValueId),
    /// A value of the function, by name alone: behind `&`.
    Name(ValueId),
    /// The carried variable of a loop.
    Carried,
    /// A parameter of the module itself.
    Parameter(ValueId),
    /// A parameter that a layer of the module, or of a module in it, holds.
    Held(ValueId),
    /// A number that may differ between modules of one struct: an index into [`Body::slots`].
    Slot(usize),
    Int(i64),
    Scalar(Scalar, DType),
    Float(f64),
    Bool(bool),
    DType(DType),
    Path(Name),
    Local(String),
    Device,
    /// A size as `usize`.
    Size(Dim),
    /// A size as `i64`.
    Integer(Dim),
    Array(Vec<Code>),
    Vec(Vec<Code>),
    Tuple(Vec<Code>),
    Range(Box<Code>, Box<Code>),
    Ref(Box<Code>),
    Call(Name, Vec<Code>),
    Method(Box<Code>, Name, Vec<usize>, Vec<Code>),
    Infix(Box<Code>, &'static str, Box<Code>),
    Prefix(&'static str, Box<Code>),
    Struct(Name, Vec<(Name, Code)>),
    /// `Tensor::<B, D, K>::name(args)` for a tensor of this type.
    Make(TensorType, Name, Vec<Code>),
    Closure(Vec<String>, Box<Code>),
    /// A builder's call with literals: `config.with_stride([2, 2])`. It is left out where all modules of the struct
    /// have the default.
    Setting(Box<Code>, Name, Vec<Code>, bool),
    /// `{ let a = …; result }`
    Block(Vec<(String, Code)>, Box<Code>),
    /// `self.field.method(args)` on the layer of a node.
    Layer(NodeId, &'static str, Vec<Code>),
    /// A call of a module's `forward`, values first, then symbols.
    Module(usize, Vec<Code>),
    /// A variable that holds a symbol, as it is.
    Symbol(Symbol),
}

impl Code {
    /// The parts, in the order in which Rust evaluates them.
    pub fn parts(&self) -> Vec<&Code> {
        match self {
            Code::Array(items) | Code::Vec(items) | Code::Tuple(items) | Code::Call(_, items) => {
                items.iter().collect()
            }
            Code::Make(_, _, items) | Code::Layer(_, _, items) | Code::Module(_, items) => {
                items.iter().collect()
            }
            Code::Range(a, b) | Code::Infix(a, _, b) => vec![a, b],
            Code::Ref(a) | Code::Prefix(_, a) | Code::Closure(_, a) => vec![a],
            Code::Method(receiver, _, _, args) | Code::Setting(receiver, _, args, _) => {
                std::iter::once(receiver.as_ref()).chain(args).collect()
            }
            Code::Struct(_, fields) => fields.iter().map(|(_, value)| value).collect(),
            Code::Block(bindings, result) => {
                bindings.iter().map(|(_, value)| value).chain([result.as_ref()]).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The parts, to change, in the order in which Rust evaluates them.
    pub fn parts_mut(&mut self) -> Vec<&mut Code> {
        match self {
            Code::Array(items) | Code::Vec(items) | Code::Tuple(items) | Code::Call(_, items) => {
                items.iter_mut().collect()
            }
            Code::Make(_, _, items) | Code::Layer(_, _, items) | Code::Module(_, items) => {
                items.iter_mut().collect()
            }
            Code::Range(a, b) | Code::Infix(a, _, b) => vec![a, b],
            Code::Ref(a) | Code::Prefix(_, a) | Code::Closure(_, a) => vec![a],
            Code::Method(receiver, _, _, args) | Code::Setting(receiver, _, args, _) => {
                std::iter::once(receiver.as_mut()).chain(args).collect()
            }
            Code::Struct(_, fields) => fields.iter_mut().map(|(_, value)| value).collect(),
            Code::Block(bindings, result) => {
                bindings.iter_mut().map(|(_, value)| value).chain([result.as_mut()]).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Visits it and everything in it, parents first.
    pub fn visit(&self, f: &mut dyn FnMut(&Code)) {
        f(self);
        for part in self.parts() {
            part.visit(f);
        }
    }

    fn replace(&mut self, swap: &dyn Fn(&mut ValueId)) {
        if let Code::Use(value) | Code::Clone(value) | Code::Name(value) = self {
            swap(value);
        }
        self.parts_mut().into_iter().for_each(|part| part.replace(swap));
    }

    /// How often a value occurs.
    pub fn count(&self, value: ValueId) -> usize {
        let mut n = 0;
        self.visit(&mut |code| n += usize::from(code.value() == Some(value)));
        n
    }

    /// The value that this leaf stands for.
    pub fn value(&self) -> Option<ValueId> {
        match self {
            Code::Use(value) | Code::Clone(value) | Code::Name(value) => Some(*value),
            _ => None,
        }
    }

    /// Every value in it, in order, with repetitions.
    pub fn values(&self) -> Vec<ValueId> {
        let mut values = Vec::new();
        self.visit(&mut |code| values.extend(code.value()));
        values
    }

    /// The sizes in it.
    pub fn dims(&self) -> Vec<Dim> {
        let mut dims = Vec::new();
        self.visit(&mut |code| match code {
            Code::Size(dim) | Code::Integer(dim) => dims.push(dim.clone()),
            Code::Symbol(symbol) => dims.push(Dim::symbol(symbol.clone())),
            _ => {}
        });
        dims
    }
}

/// A statement.
#[derive(Clone, Debug, PartialEq)]
pub enum Statement {
    /// `let (a, b) = code;`
    Bind { outputs: Vec<ValueId>, code: Code },
    /// Reads a small tensor back into host integers.
    Read { code: Code, symbols: Vec<Symbol> },
    /// `let (a, b) = if condition { … } else { … };`
    If { outputs: Vec<ValueId>, condition: Dim, then: Block, otherwise: Block },
    /// `let x = match &self.field { Some(field) => code, None => otherwise };`, or an `if` with a field of its own.
    Optional {
        output: ValueId,
        code: Code,
        otherwise: Code,
        /// The slot that says whether it happens.
        flag: usize,
        /// The field of the module that is there when it happens.
        field: Option<usize>,
    },
    /// `let mut x = init; for layer in &self.layers { x = layer.forward(x, …); }`
    Loop {
        output: ValueId,
        init: Code,
        /// Modules called in turn: all of the sequence or a part of it.
        modules: Vec<usize>,
        /// The first call's arguments, with [`Code::Carried`].
        args: Vec<Code>,
    },
}

/// A branch.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Block {
    pub statements: Vec<Statement>,
    /// What it yields.
    pub results: Vec<Code>,
}

impl Statement {
    /// The values it defines for the statements after it.
    pub fn outputs(&self) -> &[ValueId] {
        match self {
            Statement::Bind { outputs, .. } | Statement::If { outputs, .. } => outputs,
            Statement::Read { .. } => &[],
            Statement::Loop { output, .. } | Statement::Optional { output, .. } => {
                std::slice::from_ref(output)
            }
        }
    }

    /// Every expression in it, nested statements' too, in order.
    pub fn codes(&self) -> Vec<&Code> {
        match self {
            Statement::Bind { code, .. } | Statement::Read { code, .. } => vec![code],
            Statement::Optional { code, otherwise, .. } => vec![code, otherwise],
            Statement::If { then, otherwise, .. } => {
                then.codes().into_iter().chain(otherwise.codes()).collect()
            }
            Statement::Loop { init, args, .. } => std::iter::once(init).chain(args).collect(),
        }
    }

    /// The sizes in it.
    pub fn dims(&self) -> Vec<Dim> {
        let mut dims: Vec<Dim> = self.codes().into_iter().flat_map(Code::dims).collect();
        self.conditions(&mut dims);
        dims
    }

    fn conditions(&self, dims: &mut Vec<Dim>) {
        if let Statement::If { condition, then, otherwise, .. } = self {
            dims.push(condition.clone());
            for statement in then.statements.iter().chain(&otherwise.statements) {
                statement.conditions(dims);
            }
        }
    }

    /// Whether it, or a statement in it, reads the device back.
    pub fn reads(&self) -> bool {
        match self {
            Statement::Read { .. } => true,
            Statement::If { then, otherwise, .. } => {
                then.statements.iter().chain(&otherwise.statements).any(Statement::reads)
            }
            _ => false,
        }
    }
}

impl Block {
    /// The same with other values.
    pub fn with_values(&self, values: &BTreeMap<ValueId, ValueId>) -> Self {
        let mut block = self.clone();
        block.replace(values);
        block
    }

    fn replace(&mut self, values: &BTreeMap<ValueId, ValueId>) {
        let swap = |value: &mut ValueId| *value = values.get(value).copied().unwrap_or(*value);
        for statement in &mut self.statements {
            match statement {
                Statement::Bind { outputs, code } => {
                    outputs.iter_mut().for_each(swap);
                    code.replace(&swap);
                }
                Statement::Read { code, .. } => code.replace(&swap),
                Statement::If { outputs, then, otherwise, .. } => {
                    outputs.iter_mut().for_each(swap);
                    then.replace(values);
                    otherwise.replace(values);
                }
                Statement::Optional { output, code, otherwise, .. } => {
                    swap(output);
                    code.replace(&swap);
                    otherwise.replace(&swap);
                }
                Statement::Loop { output, init, args, .. } => {
                    swap(output);
                    init.replace(&swap);
                    args.iter_mut().for_each(|arg| arg.replace(&swap));
                }
            }
        }
        self.results.iter_mut().for_each(|code| code.replace(&swap));
    }

    /// Every expression in it.
    pub fn codes(&self) -> Vec<&Code> {
        self.statements.iter().flat_map(Statement::codes).chain(&self.results).collect()
    }

    /// How often a value is used.
    pub fn count(&self, value: ValueId) -> usize {
        self.codes().into_iter().map(|code| code.count(value)).sum()
    }
}

/// What may differ between modules of one struct.
#[derive(Clone, Debug, PartialEq)]
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
    pub field: Option<String>,
}

/// How a field is made.
#[derive(Clone, Debug, PartialEq)]
pub enum Init {
    /// A layer: type, whether it takes the backend, config, dtype of its parameters.
    Layer { ty: &'static str, generic: bool, config: Code, dtype: DType },
    /// A parameter with its dims.
    Parameter { ty: TensorType, dims: Vec<Code> },
    /// A module of a struct, with the arguments of its constructor.
    Module { class: usize, args: Vec<Code> },
    /// Several modules of one struct.
    Sequence { class: usize, elements: Vec<Vec<Code>> },
}

/// Everything that a module's struct and functions are made of.
#[derive(Clone, Debug, Default)]
pub struct Body {
    /// Per field of the module, in order.
    pub inits: Vec<Init>,
    /// The forward function.
    pub block: Block,
    /// The numbers in it.
    pub slots: Vec<Slot>,
    /// Symbols that the caller passes.
    pub symbols: Vec<Symbol>,
    /// Symbols found in the dims of values: symbol, value, axis.
    pub sources: Vec<(Symbol, ValueId, usize)>,
    /// Names for variables, where the use tells.
    pub hints: BTreeMap<ValueId, String>,
    /// For a form without some optional parts: its values for those of the struct's first module.
    pub values: Option<BTreeMap<ValueId, ValueId>>,
}
