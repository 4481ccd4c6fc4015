//! Code between the IR and tokens: statements over values, with names, moves and literals still open.

mod body;
mod builder;
mod inline;
mod moves;
mod number;
mod rounds;

pub use body::{Body, Form, Init, Literal, Slot, Source};
pub use builder::{CodeBuilder, Owner};
pub use inline::inline;
pub use moves::decide_moves;
pub use number::Number;
pub use rounds::{Around, roll};

use crate::ids::{FieldId, SlotId, StructId, VarId};
use kiln_importer::ir::{Dim, Name, Symbol, TensorType};
use kiln_types::DType;
use std::collections::{BTreeSet, HashMap};

/// An expression in a function of a module.
///
/// It names nothing but what is in the module's own body (variables, fields, literals), so that the code of modules that
/// do the same is equal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    /// A value of the function, moved.
    Use(VarId),
    /// A value of the function, cloned.
    Clone(VarId),
    /// A value of the function, by name alone: behind `&`.
    Name(VarId),
    /// The carried variable of a loop.
    Carried,
    /// A parameter of the module itself.
    Parameter(FieldId),
    /// A parameter that a layer of the module, or of a module in it, holds: the way to the layer, and its field.
    Held(Vec<Place>, &'static str),
    /// A number that may differ between modules of one struct.
    Slot(SlotId),
    Int(i64),
    Scalar(Number, DType),
    Float(Number),
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
    /// A list of the runtime's options.
    List(Vec<Code>),
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
    /// `self.field.method(args)` on a layer.
    Layer(Place, &'static str, Vec<Code>),
    /// A call of a module's `forward`, values first, then literals, then symbols.
    Module(Callee, Vec<Code>),
    /// A variable that holds a symbol, as it is.
    Symbol(Symbol),
}

/// One step on the way to something in a module: a field, and the position in it when it is a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    pub field: FieldId,
    pub position: Option<Position>,
}

/// Which item of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Position {
    /// One by its number.
    At(usize),
    /// The one of a loop's round, see [`Repeat::items`].
    OfRound,
}

/// A module that is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Callee {
    /// Its struct.
    pub structure: StructId,
    /// Where it is held; a struct without fields is a function, and needs no place.
    pub place: Option<Place>,
}

/// The parts of an expression; one match for reading and for changing.
macro_rules! parts {
    ($(#[$doc:meta])* $each:ident, $(#[$list_doc:meta])* $list:ident $(, $mut:tt)?) => {
        $(#[$doc])*
        fn $each<'c>(&'c $($mut)? self, f: &mut dyn FnMut(&'c $($mut)? Code)) {
            match self {
                Code::Use(_)
                | Code::Clone(_)
                | Code::Name(_)
                | Code::Carried
                | Code::Parameter(_)
                | Code::Held(..)
                | Code::Slot(_)
                | Code::Int(_)
                | Code::Scalar(..)
                | Code::Float(_)
                | Code::Bool(_)
                | Code::DType(_)
                | Code::Path(_)
                | Code::Local(_)
                | Code::Device
                | Code::Size(_)
                | Code::Integer(_)
                | Code::Symbol(_) => {}
                Code::Array(items)
                | Code::List(items)
                | Code::Tuple(items)
                | Code::Call(_, items)
                | Code::Make(_, _, items)
                | Code::Layer(_, _, items)
                | Code::Module(_, items) => items.into_iter().for_each(f),
                Code::Range(a, b) | Code::Infix(a, _, b) => {
                    f(a);
                    f(b);
                }
                Code::Ref(a) | Code::Prefix(_, a) | Code::Closure(_, a) => f(a),
                Code::Method(receiver, _, _, args) | Code::Setting(receiver, _, args, _) => {
                    f(receiver);
                    args.into_iter().for_each(f);
                }
                Code::Struct(_, fields) => fields.into_iter().for_each(|(_, value)| f(value)),
                Code::Block(bindings, result) => {
                    bindings.into_iter().for_each(|(_, value)| f(value));
                    f(result);
                }
            }
        }

        $(#[$list_doc])*
        pub fn $list(&$($mut)? self) -> Vec<&$($mut)? Code> {
            let mut parts = Vec::new();
            self.$each(&mut |part| parts.push(part));
            parts
        }
    };
}

impl Code {
    /// Where the layer or the module is held that this part itself calls.
    pub fn callee(&self) -> Option<Place> {
        match self {
            Code::Layer(place, ..) => Some(*place),
            Code::Module(callee, _) => callee.place,
            _ => None,
        }
    }

    /// Likewise, to change.
    pub fn callee_mut(&mut self) -> Option<&mut Place> {
        match self {
            Code::Layer(place, ..) => Some(place),
            Code::Module(callee, _) => callee.place.as_mut(),
            _ => None,
        }
    }

    parts!(
        /// Calls `f` with the parts, in the order in which Rust evaluates them.
        each_part,
        /// The parts, in the order in which Rust evaluates them.
        parts
    );

    parts!(
        /// Calls `f` with the parts, to change, in the order in which Rust evaluates them.
        each_part_mut,
        /// The parts, to change, in the order in which Rust evaluates them.
        parts_mut,
        mut
    );

    /// Visits it and everything in it, parents first.
    pub fn visit(&self, f: &mut dyn FnMut(&Code)) {
        f(self);
        self.each_part(&mut |part| part.visit(f));
    }

    /// Visits it and everything in it, to change, parents first.
    pub fn visit_mut(&mut self, f: &mut dyn FnMut(&mut Code)) {
        f(self);
        self.each_part_mut(&mut |part| part.visit_mut(f));
    }

    /// The variable that this leaf stands for.
    pub fn var(&self) -> Option<VarId> {
        match self {
            Code::Use(var) | Code::Clone(var) | Code::Name(var) => Some(*var),
            _ => None,
        }
    }

    /// Every variable in it, in order, with repetitions.
    pub fn vars(&self) -> Vec<VarId> {
        let mut vars = Vec::new();
        self.visit(&mut |code| vars.extend(code.var()));
        vars
    }

    /// The first variable in it, in the order of evaluation.
    pub fn first_var(&self) -> Option<VarId> {
        self.var().or_else(|| self.parts().into_iter().find_map(Code::first_var))
    }

    /// The literals in it, in order.
    pub fn slots(&self) -> Vec<SlotId> {
        let mut slots = Vec::new();
        self.visit(&mut |part| {
            if let Code::Slot(id) = part {
                slots.push(*id);
            }
        });
        slots
    }

    /// Forgets its numbers: what is left is equal for code that does the same with other sizes.
    pub fn erase_numbers(&mut self) {
        self.visit_mut(&mut |code| match code {
            Code::Int(_)
            | Code::Scalar(..)
            | Code::Float(_)
            | Code::Slot(_)
            | Code::Size(_)
            | Code::Integer(_) => *code = Code::Int(0),
            code => code.normalize(),
        });
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
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Statement {
    /// `let (a, b) = code;`
    Bind { outputs: Vec<VarId>, code: Code },
    /// Reads a small tensor back into host integers.
    Read { code: Code, symbols: Vec<Symbol> },
    /// `let (a, b) = if condition { … } else { … };`
    If { outputs: Vec<VarId>, condition: Dim, then: Block, otherwise: Block },
    /// A loop of the network's own.
    Repeat(Box<Repeat>),
    /// `let mut list = vec![a, b];`: what rounds add to.
    List { output: VarId, items: Vec<Code> },
    /// `list.push(value);`
    Push { list: VarId, value: Code },
    /// `let x = match &self.field { Some(field) => code, None => otherwise };`, or an `if` with a field of its own.
    Optional {
        output: VarId,
        code: Code,
        otherwise: Code,
        /// The literal that says whether it happens.
        flag: SlotId,
        /// The field of the module that is there when it happens.
        field: Option<FieldId>,
    },
    /// `let mut x = init; for layer in &self.layers { x = layer.forward(x, …); }`
    Loop {
        output: VarId,
        init: Code,
        /// The first module that is called.
        callee: Callee,
        /// Whether the same module is called each time, and not the next of its sequence.
        again: bool,
        /// The number of calls.
        times: usize,
        /// The first call's arguments, with [`Code::Carried`].
        args: Vec<Code>,
    },
}

/// `let mut x = init; for i in start..start + trip_count { …; x = result; }`
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Repeat {
    /// What it yields: what was carried, then what all rounds left.
    pub outputs: Vec<VarId>,
    /// What a round begins with.
    pub parameters: Vec<VarId>,
    /// What the first begins with.
    pub init: Vec<Code>,
    /// The number of the first round.
    pub start: i64,
    /// The most rounds.
    pub trip_count: Option<Dim>,
    /// Whether the first round runs.
    pub condition: Dim,
    /// The number of the round.
    pub iteration: Symbol,
    /// Sequences of which each round calls the next item, and the first round's.
    pub items: Vec<(FieldId, usize)>,
    /// Whether another follows.
    pub again: Option<Dim>,
    /// What a round does. Its results are what it leaves, then what it carries on.
    pub body: Block,
    /// What is left when there is no round; nothing where there always is one.
    pub none: Vec<Code>,
}

impl Repeat {
    /// The variables for what the rounds leave.
    pub fn left(&self) -> &[VarId] {
        self.outputs.get(self.parameters.len()..).unwrap_or_default()
    }

    /// Whether the number of the round is read.
    pub fn counts(&self) -> bool {
        let is_read = |symbols: BTreeSet<Symbol>| symbols.contains(&self.iteration);
        is_read(self.body.symbols()) || self.again.as_ref().is_some_and(|again| is_read(again.symbols()))
    }

    /// The only sequence, where rounds need no number besides: they have its items in hand.
    pub fn in_hand(&self) -> Option<(FieldId, usize)> {
        match *self.items.as_slice() {
            [only] if !self.counts() => Some(only),
            _ => None,
        }
    }

    fn dims(&self) -> impl Iterator<Item = &Dim> {
        self.trip_count.iter().chain([&self.condition]).chain(&self.again)
    }
}

/// The body of a function, of a branch or of a loop.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Block {
    pub statements: Vec<Statement>,
    /// What it yields.
    pub results: Vec<Code>,
}

impl Statement {
    /// The variables it defines for the statements after it.
    pub fn outputs(&self) -> &[VarId] {
        match self {
            Statement::Bind { outputs, .. } | Statement::If { outputs, .. } => outputs,
            Statement::Read { .. } | Statement::Push { .. } => &[],
            Statement::Repeat(repeat) => &repeat.outputs,
            Statement::Loop { output, .. }
            | Statement::Optional { output, .. }
            | Statement::List { output, .. } => std::slice::from_ref(output),
        }
    }

    /// The result of a loop over modules, and the variable that it begins with, if that is one.
    pub fn carried(&self) -> Option<[VarId; 2]> {
        match self {
            Statement::Loop { output, init: Code::Use(begin), .. } => Some([*output, *begin]),
            Statement::Bind { .. }
            | Statement::Read { .. }
            | Statement::If { .. }
            | Statement::Optional { .. }
            | Statement::List { .. }
            | Statement::Push { .. }
            | Statement::Loop { .. }
            | Statement::Repeat(_) => None,
        }
    }

    /// The variables that it defines for the statements in it alone.
    pub fn parameters(&self) -> &[VarId] {
        match self {
            Statement::Repeat(repeat) => &repeat.parameters,
            Statement::Bind { .. }
            | Statement::Read { .. }
            | Statement::If { .. }
            | Statement::Optional { .. }
            | Statement::List { .. }
            | Statement::Push { .. }
            | Statement::Loop { .. } => &[],
        }
    }

    /// The symbols that it defines.
    pub fn symbols(&self) -> &[Symbol] {
        match self {
            Statement::Read { symbols, .. } => symbols,
            Statement::Repeat(repeat) => std::slice::from_ref(&repeat.iteration),
            Statement::Bind { .. }
            | Statement::If { .. }
            | Statement::Optional { .. }
            | Statement::List { .. }
            | Statement::Push { .. }
            | Statement::Loop { .. } => &[],
        }
    }

    /// The blocks in it.
    pub fn blocks(&self) -> Vec<&Block> {
        match self {
            Statement::If { then, otherwise, .. } => vec![then, otherwise],
            Statement::Repeat(repeat) => vec![&repeat.body],
            Statement::Bind { .. }
            | Statement::Read { .. }
            | Statement::Optional { .. }
            | Statement::List { .. }
            | Statement::Push { .. }
            | Statement::Loop { .. } => Vec::new(),
        }
    }

    /// Every expression in it, nested statements' too, in order.
    pub fn codes(&self) -> Vec<&Code> {
        match self {
            Statement::Bind { code, .. } | Statement::Read { code, .. } => vec![code],
            Statement::Optional { code, otherwise, .. } => vec![code, otherwise],
            Statement::List { items, .. } => items.iter().collect(),
            Statement::Push { value, .. } => vec![value],
            Statement::If { then, otherwise, .. } => {
                then.codes().into_iter().chain(otherwise.codes()).collect()
            }
            Statement::Repeat(repeat) => {
                repeat.init.iter().chain(repeat.body.codes()).chain(&repeat.none).collect()
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
        match self {
            Statement::If { condition, .. } => dims.push(condition.clone()),
            Statement::Repeat(repeat) => dims.extend(repeat.dims().cloned()),
            Statement::Bind { .. }
            | Statement::Read { .. }
            | Statement::Optional { .. }
            | Statement::List { .. }
            | Statement::Push { .. }
            | Statement::Loop { .. } => {}
        }
        for statement in self.blocks().into_iter().flat_map(|block| &block.statements) {
            statement.conditions(dims);
        }
    }

    /// Whether it, or a statement in it, reads the device back.
    pub fn reads(&self) -> bool {
        match self {
            Statement::Read { .. } => true,
            Statement::If { .. } | Statement::Repeat(_) => {
                self.blocks().into_iter().flat_map(|block| &block.statements).any(Statement::reads)
            }
            Statement::Bind { .. }
            | Statement::Optional { .. }
            | Statement::List { .. }
            | Statement::Push { .. }
            | Statement::Loop { .. } => false,
        }
    }
}

impl Block {
    /// Every expression in it.
    pub fn codes(&self) -> Vec<&Code> {
        self.statements.iter().flat_map(Statement::codes).chain(&self.results).collect()
    }

    /// Every expression in it, to change.
    pub fn visit_mut(&mut self, f: &mut dyn FnMut(&mut Code)) {
        for statement in &mut self.statements {
            match statement {
                Statement::Bind { code, .. } | Statement::Read { code, .. } => code.visit_mut(f),
                Statement::If { then, otherwise, .. } => {
                    then.visit_mut(f);
                    otherwise.visit_mut(f);
                }
                Statement::Optional { code, otherwise, .. } => {
                    code.visit_mut(f);
                    otherwise.visit_mut(f);
                }
                Statement::Repeat(repeat) => {
                    repeat.init.iter_mut().for_each(|code| code.visit_mut(f));
                    repeat.body.visit_mut(f);
                    repeat.none.iter_mut().for_each(|code| code.visit_mut(f));
                }
                Statement::List { items, .. } => items.iter_mut().for_each(|item| item.visit_mut(f)),
                Statement::Push { value, .. } => value.visit_mut(f),
                Statement::Loop { init, args, .. } => {
                    init.visit_mut(f);
                    args.iter_mut().for_each(|arg| arg.visit_mut(f));
                }
            }
        }
        self.results.iter_mut().for_each(|code| code.visit_mut(f));
    }

    /// Every variable in it, to change.
    pub fn visit_vars(&mut self, f: &mut dyn FnMut(&mut VarId)) {
        self.visit_mut(&mut |code| {
            if let Code::Use(var) | Code::Clone(var) | Code::Name(var) = code {
                f(var);
            }
        });
        self.visit_outputs(f);
    }

    fn visit_outputs(&mut self, f: &mut dyn FnMut(&mut VarId)) {
        for statement in &mut self.statements {
            match statement {
                Statement::Bind { outputs, .. } => outputs.iter_mut().for_each(&mut *f),
                Statement::If { outputs, then, otherwise, .. } => {
                    outputs.iter_mut().for_each(&mut *f);
                    then.visit_outputs(f);
                    otherwise.visit_outputs(f);
                }
                Statement::Repeat(repeat) => {
                    repeat.outputs.iter_mut().chain(&mut repeat.parameters).for_each(&mut *f);
                    repeat.body.visit_outputs(f);
                }
                Statement::Optional { output, .. }
                | Statement::List { output, .. }
                | Statement::Loop { output, .. } => f(output),
                Statement::Push { list, .. } => f(list),
                Statement::Read { .. } => {}
            }
        }
    }

    /// Every statement in it, those of branches and of bodies after the `if` or the loop around them.
    pub fn all_statements(&self) -> Vec<&Statement> {
        let mut all = Vec::new();
        for statement in &self.statements {
            all.push(statement);
            all.extend(statement.blocks().into_iter().flat_map(Block::all_statements));
        }
        all
    }

    /// Whether it yields what branches at its end yield.
    pub fn ends_with_branches(&self) -> bool {
        match self.statements.last() {
            Some(statement @ (Statement::If { .. } | Statement::Optional { .. })) => {
                statement.outputs().iter().copied().map(Code::Use).eq(self.results.iter().cloned())
            }
            _ => false,
        }
    }

    /// The symbols that are used in it.
    pub fn symbols(&self) -> BTreeSet<Symbol> {
        let dims = self.statements.iter().flat_map(Statement::dims);
        dims.chain(self.results.iter().flat_map(Code::dims)).flat_map(|dim| dim.symbols()).collect()
    }

    /// How often each variable is used.
    pub fn uses(&self) -> HashMap<VarId, usize> {
        let mut uses = HashMap::new();
        for var in self.codes().into_iter().flat_map(Code::vars) {
            *uses.entry(var).or_insert(0) += 1;
        }
        uses
    }
}
