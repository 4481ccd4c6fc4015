//! The form of a body without its numbers and names: bodies of equal form can share a struct.
//!
//! Symbols are counted like values: an encoder's layer over `source` and a decoder's over `target` are one.

use super::{Block, Body, Code, Init, Statement};
use kiln_importer::ir::{Dim, Graph, Symbol, TensorType, ValueId};
use std::collections::BTreeMap;
use std::fmt::Write;

/// The form of a module's body. `keys` are its fields' keys, `class_of` says which struct a module has.
pub fn skeleton(
    graph: &Graph,
    body: &Body,
    keys: &[String],
    inputs: &[ValueId],
    outputs: &[ValueId],
    class_of: &dyn Fn(usize) -> usize,
    field_of: &dyn Fn(&Code) -> String,
) -> String {
    let mut writer = Writer {
        graph,
        numbers: BTreeMap::new(),
        symbols: BTreeMap::new(),
        text: String::new(),
        class_of,
        field_of,
    };
    for &input in inputs {
        writer.define(input);
    }
    for (key, init) in keys.iter().zip(&body.inits) {
        writer.push(&format!("{key:?}"));
        writer.init(init);
    }
    let sources = body.sources.iter();
    let mut sources: Vec<(usize, usize, &Symbol)> =
        sources.map(|(symbol, value, axis)| (writer.number(*value), *axis, symbol)).collect();
    sources.sort_unstable();
    for (value, axis, symbol) in sources {
        let symbol = writer.symbol(symbol);
        writer.push(&format!("{symbol}={value}@{axis}"));
    }
    for symbol in &body.symbols {
        let symbol = writer.symbol(symbol);
        writer.push(&symbol);
    }
    writer.block(&body.block);
    for &output in outputs {
        writer.ty(graph.ty(output));
    }
    writer.text
}

struct Writer<'a> {
    graph: &'a Graph,
    numbers: BTreeMap<ValueId, usize>,
    /// What stands for each symbol that the body finds or gets.
    symbols: BTreeMap<Symbol, Symbol>,
    text: String,
    class_of: &'a dyn Fn(usize) -> usize,
    field_of: &'a dyn Fn(&Code) -> String,
}

impl Writer<'_> {
    fn push(&mut self, text: &str) {
        self.text.push_str(text);
        self.text.push(' ');
    }

    fn number(&mut self, value: ValueId) -> usize {
        let next = self.numbers.len();
        *self.numbers.entry(value).or_insert(next)
    }

    fn symbol(&mut self, symbol: &Symbol) -> Symbol {
        let next = Symbol::from(format!("symbol{}", self.symbols.len()));
        self.symbols.entry(symbol.clone()).or_insert(next).clone()
    }

    fn dim(&self, dim: &Dim) -> Dim {
        dim.substitute(&|symbol| self.symbols.get(symbol).cloned().map(Dim::symbol))
    }

    fn define(&mut self, value: ValueId) {
        let number = self.number(value);
        self.push(&format!("%{number}"));
        self.ty(self.graph.ty(value));
    }

    /// Rank and kind: what the Rust type says.
    fn ty(&mut self, ty: &TensorType) {
        let text = format!("{:?}{}", ty.dtype.kind(), ty.rank());
        self.push(&text);
    }

    fn init(&mut self, init: &Init) {
        match init {
            Init::Layer { ty, config, dtype, .. } => {
                self.push(ty);
                self.push(dtype.name());
                self.code(config);
            }
            Init::Parameter { ty, .. } => {
                self.push("param");
                let text = format!("{:?}{}", ty.dtype, ty.rank());
                self.push(&text);
            }
            Init::Module { class, args } => self.push(&format!("class{class}({})", args.len())),
            Init::Sequence { class, elements } => self.push(&format!("class{class}[{}]", elements.len())),
        }
    }

    fn block(&mut self, block: &Block) {
        self.push("{");
        for statement in &block.statements {
            self.statement(statement);
        }
        self.push("=>");
        for code in &block.results {
            self.code(code);
        }
        self.push("}");
    }

    fn statement(&mut self, statement: &Statement) {
        match statement {
            Statement::Bind { code, .. } => {
                self.push("let");
                self.code(code);
            }
            Statement::Read { code, symbols } => {
                self.push("read");
                self.code(code);
                for symbol in symbols {
                    let symbol = self.symbol(symbol);
                    self.push(&symbol);
                }
            }
            Statement::If { condition, then, otherwise, .. } => {
                self.push(&format!("if {}", self.dim(condition)));
                self.block(then);
                self.block(otherwise);
            }
            Statement::Loop { init, modules, args, .. } => {
                self.push(&format!("loop {}", modules.len()));
                for &module in modules.iter().take(2) {
                    let field = (self.field_of)(&Code::Module(module, Vec::new()));
                    self.push(&format!("{field}:{}", (self.class_of)(module)));
                }
                self.code(init);
                for arg in args {
                    self.code(arg);
                }
            }
        }
        for &output in statement.outputs() {
            self.define(output);
        }
    }

    fn code(&mut self, code: &Code) {
        match code {
            Code::Use(value) | Code::Clone(value) | Code::Name(value) => {
                let number = self.number(*value);
                self.push(&format!("%{number}"));
            }
            Code::Parameter(_) | Code::Held(_) => {
                let field = (self.field_of)(code);
                self.push(&format!("param{field}"));
            }
            Code::Layer(_, method, _) => {
                let field = (self.field_of)(code);
                self.push(&format!("layer{field}.{method}"));
            }
            Code::Module(module, _) => {
                let (field, class) = ((self.field_of)(code), (self.class_of)(*module));
                self.push(&format!("module{field}:{class}"));
            }
            Code::Slot(_) => self.push("#"),
            Code::Size(dim) => self.push(&format!("size {}", self.dim(dim))),
            Code::Integer(dim) => self.push(&format!("integer {}", self.dim(dim))),
            Code::Symbol(symbol) => {
                let symbol = self.symbol(symbol);
                self.push(&symbol);
            }
            Code::Call(path, _) => self.push(path),
            Code::Method(_, name, generics, _) => self.push(&format!(".{name}{generics:?}")),
            Code::Infix(_, op, _) | Code::Prefix(op, _) => self.push(op),
            Code::Struct(path, _) => self.push(path),
            Code::Field(_, name) => self.push(name),
            Code::Make(ty, name, _) => {
                let text = format!("{name}:{:?}{}", ty.dtype.kind(), ty.rank());
                self.push(&text);
            }
            Code::Closure(names, _) => self.push(&format!("{names:?}")),
            Code::Block(bindings, _) => self.push(&format!("block{}", bindings.len())),
            Code::Array(_) => self.push("array"),
            Code::Vec(_) => self.push("vec"),
            Code::Tuple(_) => self.push("tuple"),
            Code::Range(..) => self.push("range"),
            Code::Ref(_) => self.push("&"),
            leaf => {
                // Infallible: writing to a string.
                let _ = write!(self.text, "{leaf:?} ");
            }
        }
        let parts = code.parts();
        if !parts.is_empty() {
            self.push("(");
            for part in parts {
                self.code(part);
            }
            self.push(")");
        }
    }
}
