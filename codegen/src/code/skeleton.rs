//! The form of a body without its numbers and names: bodies of equal form can share a struct.
//!
//! Symbols are counted like values: an encoder's layer over `source` and a decoder's over `target` are one.

use super::{Block, Body, Code, Init, Statement};
use kiln_importer::ir::{Dim, Graph, Symbol, TensorType, ValueId};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Says which field a call goes to.
type FieldOf<'a> = dyn Fn(&Code) -> String + 'a;

/// Writes parts of one module's body as text that is equal for equal forms.
pub struct Text<'a> {
    graph: &'a Graph,
    numbers: BTreeMap<ValueId, usize>,
    /// What stands for each symbol that the body finds or gets.
    symbols: BTreeMap<Symbol, Symbol>,
    next: usize,
    text: String,
    class_of: Box<dyn Fn(usize) -> usize + 'a>,
    field_of: Box<FieldOf<'a>>,
}

impl<'a> Text<'a> {
    /// For one module; `class_of` says which struct a module has.
    pub fn new(
        graph: &'a Graph,
        class_of: impl Fn(usize) -> usize + 'a,
        field_of: impl Fn(&Code) -> String + 'a,
    ) -> Self {
        let (class_of, field_of) = (Box::new(class_of), Box::new(field_of));
        let (numbers, symbols) = (BTreeMap::new(), BTreeMap::new());
        Text { graph, numbers, symbols, next: 0, text: String::new(), class_of, field_of }
    }

    /// With the numbers of values met so far.
    pub fn numbered(self, numbers: BTreeMap<ValueId, usize>, next: usize) -> Self {
        Self { numbers, next, ..self }
    }

    /// The form of a whole body.
    pub fn body(mut self, body: &Body, keys: &[String], inputs: &[ValueId], outputs: &[ValueId]) -> String {
        for &input in inputs {
            self.define(input);
        }
        for (key, init) in keys.iter().zip(&body.inits) {
            self.push(&format!("{key:?}"));
            self.write_init(init);
        }
        let sources = body.sources.iter();
        let mut sources: Vec<(usize, usize, &Symbol)> =
            sources.map(|(symbol, value, axis)| (self.number(*value), *axis, symbol)).collect();
        sources.sort_unstable();
        for (value, axis, symbol) in sources {
            let symbol = self.symbol(symbol);
            self.push(&format!("{symbol}={value}@{axis}"));
        }
        for symbol in &body.symbols {
            let symbol = self.symbol(symbol);
            self.push(&symbol);
        }
        self.write_block(&body.block);
        for &output in outputs {
            self.ty(self.graph.ty(output));
        }
        self.text
    }

    /// The form of a field's initialization.
    pub fn init(mut self, init: &Init) -> String {
        self.write_init(init);
        self.text
    }

    /// The form of a statement.
    pub fn statement(mut self, statement: &Statement) -> String {
        self.write_statement(statement);
        self.text
    }

    /// The form of an expression.
    pub fn code(mut self, code: &Code) -> String {
        self.write_code(code);
        self.text
    }

    fn push(&mut self, text: &str) {
        self.text.push_str(text);
        self.text.push(' ');
    }

    fn number(&mut self, value: ValueId) -> usize {
        let number = *self.numbers.entry(value).or_insert(self.next);
        self.next += usize::from(number == self.next);
        number
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

    fn write_init(&mut self, init: &Init) {
        match init {
            Init::Layer { ty, config, dtype, .. } => {
                self.push(ty);
                self.push(dtype.name());
                self.write_code(config);
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

    fn write_block(&mut self, block: &Block) {
        self.push("{");
        for statement in &block.statements {
            self.write_statement(statement);
        }
        self.push("=>");
        for code in &block.results {
            self.write_code(code);
        }
        self.push("}");
    }

    fn write_statement(&mut self, statement: &Statement) {
        match statement {
            Statement::Bind { code, .. } => {
                self.push("let");
                self.write_code(code);
            }
            Statement::Read { code, symbols } => {
                self.push("read");
                self.write_code(code);
                for symbol in symbols {
                    let symbol = self.symbol(symbol);
                    self.push(&symbol);
                }
            }
            Statement::If { condition, then, otherwise, .. } => {
                self.push(&format!("if {}", self.dim(condition)));
                self.write_block(then);
                self.write_block(otherwise);
            }
            Statement::Optional { code, otherwise, .. } => {
                self.push("optional");
                self.write_code(code);
                self.write_code(otherwise);
            }
            Statement::Loop { init, modules, args, .. } => {
                self.push(&format!("loop {}", modules.len()));
                for &module in modules.iter().take(2) {
                    let field = (self.field_of)(&Code::Module(module, Vec::new()));
                    self.push(&format!("{field}:{}", (self.class_of)(module)));
                }
                self.write_code(init);
                for arg in args {
                    self.write_code(arg);
                }
            }
        }
        for &output in statement.outputs() {
            self.define(output);
        }
    }

    fn write_code(&mut self, code: &Code) {
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
            Code::Setting(_, name, ..) => self.push(name),
            Code::Call(path, _) => self.push(path),
            Code::Method(_, name, generics, _) => self.push(&format!(".{name}{generics:?}")),
            Code::Infix(_, op, _) | Code::Prefix(op, _) => self.push(op),
            Code::Struct(path, _) => self.push(path),
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
                self.write_code(part);
            }
            self.push(")");
        }
    }
}
