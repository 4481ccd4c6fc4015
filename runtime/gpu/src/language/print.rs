//! Writes kernels down as source: the walk, which languages of the C family share, and what each says in its own way.

use super::{Binary, Comparison, Id, Kernel, MatrixStep, Op, Statement, Storage, Type};
use std::fmt::Write;

/// How a language says what kernels are made of.
pub(super) trait Dialect: Sized {
    /// Waits for the workgroup.
    const BARRIER: &'static str;

    /// A number, from its operands.
    fn number(printer: &Printer<'_, Self>, id: Id, op: &Op) -> Written;

    /// What introduces a number that has a name and does not change: all before `=`.
    fn constant(ty: Type, name: &str) -> String;

    /// What introduces a variable: all before `=`.
    fn variable(ty: Type, name: &str) -> String;

    /// Reads four elements of a buffer of fours.
    fn load_four(printer: &Printer<'_, Self>, name: &str, buffer: u32, index: &str) -> String;

    /// Writes an element of a buffer.
    fn store(printer: &Printer<'_, Self>, buffer: u32, index: &str, value: &str) -> String;

    /// Orders what an invocation writes before and reads behind it.
    fn fence() -> String;

    /// Makes an element of a buffer of maxima at least as large as a number.
    fn raise(buffer: u32, index: &str, value: &str) -> String;

    /// A number as it is written into a shared array.
    fn shared(_storage: Storage, value: &str) -> String {
        value.to_owned()
    }

    /// Writes four elements of a buffer of fours.
    fn store_four(printer: &Printer<'_, Self>, buffer: u32, index: &str, values: [String; 4]) -> String;

    /// What a warp does with matrices.
    fn matrix(printer: &Printer<'_, Self>, step: &MatrixStep) -> String;

    /// How a branch begins, up to its brace.
    fn branch(condition: &str) -> String;

    /// How a loop begins, up to its brace.
    fn count(counter: &str, start: &str, end: &str, step: &str) -> String;
}

/// A number as it is written down.
pub(super) enum Written {
    /// Where it is used: constants, parameters, places.
    Inline(String),
    /// Once, with a name.
    Named(String),
}

pub(super) struct Printer<'a, D> {
    pub kernel: &'a Kernel,
    pub out: String,
    /// Numbers that are written where they are used.
    inline: Vec<Option<String>>,
    depth: usize,
    dialect: std::marker::PhantomData<D>,
}

impl<'a, D: Dialect> Printer<'a, D> {
    pub fn new(kernel: &'a Kernel) -> Self {
        let inline = vec![None; kernel.types.len()];
        Self { kernel, out: String::new(), inline, depth: 1, dialect: std::marker::PhantomData }
    }

    /// A number, as it is written where it is used.
    pub fn use_of(&self, id: Id) -> String {
        self.inline[id.0 as usize].clone().unwrap_or_else(|| name(id))
    }

    pub fn ty(&self, id: Id) -> Type {
        self.kernel.types[id.0 as usize]
    }

    fn line(&mut self, text: &str) {
        let indent = 4 * self.depth;
        let _ = writeln!(self.out, "{:indent$}{text}", "");
    }

    pub fn block(&mut self, statements: &[Statement]) {
        for statement in statements {
            self.statement(statement);
        }
    }

    fn nested(&mut self, statements: &[Statement]) {
        self.depth += 1;
        self.block(statements);
        self.depth -= 1;
    }

    fn statement(&mut self, statement: &Statement) {
        let line = match statement {
            Statement::Let(id, op) => match D::number(self, *id, op) {
                Written::Named(text) => format!("{} = {text};", D::constant(self.ty(*id), &name(*id))),
                Written::Inline(text) => {
                    self.inline[id.0 as usize] = Some(text);
                    return;
                }
            },
            Statement::Variable(id, first) => {
                format!("{} = {};", D::variable(self.ty(*id), &name(*id)), self.use_of(*first))
            }
            Statement::Set(id, value) => format!("{} = {};", name(*id), self.use_of(*value)),
            Statement::Store { buffer, index, value } => {
                D::store(self, *buffer, &self.use_of(*index), &self.use_of(*value))
            }
            Statement::Raise { buffer, index, value } => {
                D::raise(*buffer, &self.use_of(*index), &self.use_of(*value))
            }
            Statement::LoadFour { four, buffer, index } => {
                D::load_four(self, &name(*four), *buffer, &self.use_of(*index))
            }
            Statement::StoreFour { buffer, index, values } => {
                D::store_four(self, *buffer, &self.use_of(*index), values.map(|value| self.use_of(value)))
            }
            Statement::StoreShared { array, index, value } => {
                let storage = self.kernel.shared[*array as usize].0;
                let value = D::shared(storage, &self.use_of(*value));
                format!("shared_{array}[{}] = {value};", self.use_of(*index))
            }
            Statement::If(condition, then, otherwise) => {
                let header = D::branch(&self.use_of(*condition));
                self.line(&format!("{header} {{"));
                self.nested(then);
                if !otherwise.is_empty() {
                    self.line("} else {");
                    self.nested(otherwise);
                }
                String::from("}")
            }
            Statement::For { counter, start, end, step, body } => {
                let (start, end, step) = (self.use_of(*start), self.use_of(*end), self.use_of(*step));
                self.line(&format!("{} {{", D::count(&name(*counter), &start, &end, &step)));
                self.nested(body);
                String::from("}")
            }
            Statement::Barrier => D::BARRIER.to_owned(),
            Statement::Fence => D::fence(),
            Statement::Matrix(step) => D::matrix(self, step),
        };
        self.line(&line);
    }
}

/// The name of a number or a variable.
pub(super) fn name(id: Id) -> String {
    format!("v{}", id.0)
}

/// The place of one of four.
pub(super) fn component(place: u32) -> &'static str {
    ["x", "y", "z", "w"][place as usize % 4]
}

/// An operation of two numbers, as the languages write it alike: with a sign between them, or as a function.
pub(super) fn binary(op: Binary, a: &str, b: &str) -> String {
    let sign = match op {
        Binary::Add => "+",
        Binary::Sub => "-",
        Binary::Mul => "*",
        Binary::Div => "/",
        Binary::Rem => "%",
        Binary::And => "&",
        Binary::Or => "|",
        Binary::Xor => "^",
        Binary::ShiftLeft => "<<",
        Binary::ShiftRight => ">>",
        Binary::Min => return format!("min({a}, {b})"),
        Binary::Max => return format!("max({a}, {b})"),
        Binary::Pow => return format!("pow({a}, {b})"),
        Binary::Atan2 => return format!("atan2({a}, {b})"),
    };
    format!("{a} {sign} {b}")
}

/// The sign of a comparison.
pub(super) fn comparison(op: Comparison) -> &'static str {
    match op {
        Comparison::Equal => "==",
        Comparison::NotEqual => "!=",
        Comparison::Less => "<",
        Comparison::LessEqual => "<=",
    }
}
