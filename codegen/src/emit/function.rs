//! The body of a `forward`.

use super::locals::Locals;
use super::{Emitter, comments, dims, tensor_type};
use crate::code::{Block, Code, Statement};
use crate::literals;
use crate::names::ident;
use kiln_importer::ir::{Symbol, TensorType, ValueId};
use proc_macro2::TokenStream;
use quote::quote;

/// Writes the code of one module.
pub struct FunctionEmitter<'e, 'p, 'g> {
    pub emitter: &'e mut Emitter<'p, 'g>,
    /// The module that stands for its struct.
    pub module: usize,
    pub locals: Locals,
    /// Whether `self` is there, or numbers are the constructor's parameters.
    pub in_init: bool,
    /// Whether the function is the one for browsers.
    pub asynchronous: bool,
    /// Whether something was made on the device.
    pub uses_device: bool,
}

impl FunctionEmitter<'_, '_, '_> {
    /// The statements of a block and its result.
    pub fn block(&mut self, block: &Block) -> TokenStream {
        let mut tokens = TokenStream::new();
        let last = ends_with_branches(block);
        for (i, statement) in block.statements.iter().enumerate() {
            if i + 1 == block.statements.len() && last {
                let branches = self.branches(statement);
                return quote!(#tokens #branches);
            }
            self.locals.name_outputs(self.emitter.plan, self.module, block, i);
            tokens.extend(self.statement(statement));
            for &output in statement.outputs() {
                tokens.extend(self.symbols_of(output));
            }
        }
        let results: Vec<TokenStream> = block.results.iter().map(|code| self.code(code)).collect();
        if let [Code::Use(_) | Code::Clone(_)] | [] = block.results.as_slice() {
        } else if let Some(text) = self.result_comment(block) {
            tokens.extend(comments::result(&text));
        }
        tokens.extend(match results.as_slice() {
            [result] => quote!(#result),
            results => quote!((#(#results),*)),
        });
        tokens
    }

    /// The dims of a result that is more than a name.
    fn result_comment(&mut self, block: &Block) -> Option<String> {
        let outputs = &self.emitter.plan.modules[self.module].outputs;
        (std::ptr::eq(block, &self.emitter.plan.modules[self.module].body.block) && outputs.len() == 1)
            .then(|| outputs[0])
            .and_then(|value| self.emitter.shape_comment(self.module, value))
    }

    fn statement(&mut self, statement: &Statement) -> TokenStream {
        match statement {
            Statement::Bind { outputs, code } => {
                let value = self.code(code);
                let pattern = self.pattern(outputs);
                let comment = self.bind_comment(outputs, code);
                quote!(let #pattern = #value; #comment)
            }
            Statement::Read { code, symbols } => self.read(code, symbols),
            Statement::If { outputs, .. } => {
                let branches = self.branches(statement);
                let pattern = self.pattern(outputs);
                quote!(let #pattern = #branches;)
            }
            Statement::Loop { output, init, modules, args } => self.repeat(*output, init, modules, args),
        }
    }

    /// `if … { … } else { … }`
    fn branches(&mut self, statement: &Statement) -> TokenStream {
        let Statement::If { condition, then, otherwise, .. } = statement else { return TokenStream::new() };
        let condition = dims::condition(condition, &self.locals);
        let before = self.locals.clone();
        self.locals.nest();
        let then = self.block(then);
        self.locals = before.clone();
        self.locals.nest();
        let otherwise = self.block(otherwise);
        self.locals = before;
        quote!(if #condition { #then } else { #otherwise })
    }

    fn pattern(&self, outputs: &[ValueId]) -> TokenStream {
        let names = outputs.iter().map(|value| match self.locals.name(*value).as_str() {
            "_" => quote!(_),
            name => {
                let name = ident(name);
                quote!(#name)
            }
        });
        match outputs {
            [_] => quote!(#(#names)*),
            _ => quote!((#(#names),*)),
        }
    }

    /// The shape, where it differs from that of the value it was made of.
    fn bind_comment(&mut self, outputs: &[ValueId], code: &Code) -> TokenStream {
        let &[output] = outputs else { return TokenStream::new() };
        let graph = self.emitter.plan.graph;
        let before = code.values().first().map(|&value| &graph.ty(value).dims);
        if before == Some(&graph.ty(output).dims) {
            return TokenStream::new();
        }
        self.emitter.shape_comment(self.module, output).map(|text| comments::tail(&text)).unwrap_or_default()
    }

    /// `let [batch, _] = x.dims();` when a value's dims are symbols that are needed.
    pub fn symbols_of(&self, value: ValueId) -> TokenStream {
        let body = &self.emitter.plan.modules[self.module].body;
        let sources: Vec<_> = body.sources.iter().filter(|(_, source, _)| *source == value).collect();
        if sources.is_empty() {
            return TokenStream::new();
        }
        let rank = self.emitter.plan.graph.ty(value).rank();
        let names = (0..rank).map(|axis| match sources.iter().find(|(_, _, at)| *at == axis) {
            Some((symbol, _, _)) => {
                let name = ident(&self.locals.symbol_name(symbol));
                quote!(#name)
            }
            None => quote!(_),
        });
        let value = ident(&self.locals.name(value));
        quote!(let [#(#names),*] = #value.dims();)
    }

    fn read(&mut self, code: &Code, symbols: &[Symbol]) -> TokenStream {
        let value = self.operand(code);
        let names: Vec<_> = symbols.iter().map(|symbol| ident(&self.locals.symbol_name(symbol))).collect();
        let read = if self.asynchronous {
            quote!(#value.into_integers_async().await)
        } else {
            quote!(#value.into_integers())
        };
        quote!(let [#(#names),*] = #read;)
    }

    fn repeat(&mut self, output: ValueId, init: &Code, modules: &[usize], args: &[Code]) -> TokenStream {
        let init = self.code(init);
        let name = ident(&self.locals.name(output));
        let first = modules.first().copied().unwrap_or_default();
        let (field, position, length) = self.emitter.sequence_field(self.module, first);
        let item = ident(&self.locals.item_name(&field));
        self.locals.set_carried(&self.locals.name(output));
        self.emitter.note_arguments(first, args, &self.locals);
        let call = self.emitter.forward_name(first, self.asynchronous);
        let args: Vec<_> = args.iter().map(|arg| self.code(arg)).collect();
        let field = ident(&field);
        let (from, to) = (position, position + modules.len());
        let items = match (from == 0, to == length) {
            (true, true) => quote!(&self.#field),
            (false, true) => {
                let from = literals::int(from as i64);
                quote!(&self.#field[#from..])
            }
            (_, _) => {
                let (from, to) = (literals::int(from as i64), literals::int(to as i64));
                quote!(&self.#field[#from..#to])
            }
        };
        let wait = self.emitter.waiting(first, self.asynchronous);
        quote! {
            let mut #name = #init;
            for #item in #items {
                #name = #item.#call(#(#args),*) #wait;
            }
        }
    }

    /// An expression.
    pub fn code(&mut self, code: &Code) -> TokenStream {
        match code {
            Code::Use(value) | Code::Name(value) => {
                let name = ident(&self.locals.name(*value));
                quote!(#name)
            }
            Code::Clone(value) => {
                let name = ident(&self.locals.name(*value));
                quote!(#name.clone())
            }
            Code::Carried => {
                let name = ident(&self.locals.carried());
                quote!(#name)
            }
            Code::Parameter(_) => {
                let field = self.emitter.field_ident(self.module, code);
                quote!(self.#field.val())
            }
            Code::Slot(index) => self.slot(*index),
            Code::Int(value) => literals::int(*value),
            Code::Scalar(value, dtype) => literals::scalar(*value, *dtype),
            Code::Float(value) => literals::float(*value),
            Code::Bool(value) => quote!(#value),
            Code::Str(value) => literals::string(value),
            Code::DType(dtype) => {
                let (path, variant) = (self.emitter.uses.path("tensor::DType"), ident(&format!("{dtype:?}")));
                quote!(#path::#variant)
            }
            Code::Path(path) => self.emitter.uses.path(path),
            Code::Local(name) => {
                let name = ident(name);
                quote!(#name)
            }
            Code::Device => {
                self.uses_device = true;
                quote!(device)
            }
            Code::Size(dim) => dims::size(dim, &self.locals),
            Code::Integer(dim) => dims::integer(dim, &self.locals),
            Code::Symbol(symbol) => {
                let name = ident(&self.locals.symbol_name(symbol));
                quote!(#name)
            }
            Code::Layer(_, method, args) => {
                let field = self.emitter.field_ident(self.module, code);
                let (method, args) = (ident(method), self.all(args));
                quote!(self.#field.#method(#(#args),*))
            }
            Code::Module(child, args) => self.call_module(code, *child, args),
            _ => self.compound(code),
        }
    }

    fn compound(&mut self, code: &Code) -> TokenStream {
        match code {
            Code::Array(items) => {
                let items = self.all(items);
                // An empty array says no type.
                if items.is_empty() { quote!([0usize; 0]) } else { quote!([#(#items),*]) }
            }
            Code::Vec(items) => {
                let items = self.all(items);
                quote!(vec![#(#items),*])
            }
            Code::Tuple(items) => {
                let items = self.all(items);
                quote!((#(#items),*))
            }
            Code::Range(a, b) => {
                let (a, b) = (self.code(a), self.code(b));
                quote!(#a..#b)
            }
            Code::Ref(inner) => {
                let inner = self.operand(inner);
                quote!(&#inner)
            }
            Code::Call(path, args) => {
                let (path, args) = (self.emitter.uses.path(path), self.all(args));
                quote!(#path(#(#args),*))
            }
            Code::Method(receiver, name, generics, args) => {
                let (receiver, name, args) = (self.operand(receiver), ident(name), self.all(args));
                let generics = generics.iter().map(|n| literals::int(*n as i64));
                match generics.len() {
                    0 => quote!(#receiver.#name(#(#args),*)),
                    _ => quote!(#receiver.#name::<#(#generics),*>(#(#args),*)),
                }
            }
            Code::Infix(a, op, b) => {
                let left = match a.as_ref() {
                    // A bare number before an operator leaves the type of the result open.
                    Code::Scalar(value, dtype) => literals::typed(*value, *dtype),
                    a if keeps_left(a, op) => self.code(a),
                    a => self.operand(a),
                };
                let (right, op) = (self.operand(b), operator(op));
                quote!(#left #op #right)
            }
            Code::Prefix(op, inner) => {
                let (inner, op) = (self.operand(inner), operator(op));
                quote!(#op #inner)
            }
            Code::Struct(path, fields) => {
                let path = self.emitter.uses.path(path);
                let fields: Vec<_> = fields
                    .iter()
                    .map(|(name, value)| {
                        let (name, value) = (ident(name), self.code(value));
                        quote!(#name: #value)
                    })
                    .collect();
                quote!(#path { #(#fields),* })
            }
            Code::Make(ty, name, args) => self.make(ty, name, args),
            Code::Field(inner, name) => {
                let (inner, name) = (self.operand(inner), ident(name));
                quote!(#inner.#name)
            }
            Code::Block(bindings, result) => {
                let mut tokens = TokenStream::new();
                for (name, value) in bindings {
                    let (name, value) = (ident(name), self.code(value));
                    tokens.extend(quote!(let #name = #value;));
                }
                let result = self.code(result);
                quote!({ #tokens #result })
            }
            Code::Closure(names, body) => {
                let names = names.iter().map(|name| ident(name));
                let body = self.code(body);
                quote!(|[#(#names),*]| #body)
            }
            _ => TokenStream::new(),
        }
    }

    fn make(&mut self, ty: &TensorType, name: &str, args: &[Code]) -> TokenStream {
        let tensor = tensor_type(&mut self.emitter.uses, ty, true);
        let (name, args) = (ident(name), self.all(args));
        quote!(#tensor::#name(#(#args),*))
    }

    fn call_module(&mut self, code: &Code, child: usize, args: &[Code]) -> TokenStream {
        self.emitter.note_arguments(child, args, &self.locals);
        let args = self.all(args);
        let wait = self.emitter.waiting(child, self.asynchronous);
        let call = self.emitter.forward_name(child, self.asynchronous);
        if self.emitter.is_function(child) {
            return quote!(#call(#(#args),*) #wait);
        }
        let field = self.emitter.field_ident(self.module, code);
        match self.emitter.position_in_sequence(self.module, child) {
            Some(position) => {
                let position = literals::int(position as i64);
                quote!(self.#field[#position].#call(#(#args),*) #wait)
            }
            None => quote!(self.#field.#call(#(#args),*) #wait),
        }
    }

    fn slot(&mut self, index: usize) -> TokenStream {
        let plan = self.emitter.plan;
        let data = &plan.modules[self.module];
        let parameter = plan.structs[data.struct_id].parameters.iter().find(|p| p.slots.contains(&index));
        match parameter {
            Some(parameter) => {
                let name = ident(&parameter.name);
                if self.in_init { quote!(#name) } else { quote!(self.#name) }
            }
            None => literals::int(data.body.slots.get(index).map_or(0, |slot| slot.value)),
        }
    }

    fn all(&mut self, items: &[Code]) -> Vec<TokenStream> {
        items.iter().map(|item| self.code(item)).collect()
    }

    /// An expression where a call or an operator binds to it.
    fn operand(&mut self, code: &Code) -> TokenStream {
        let tokens = self.code(code);
        let loose = match code {
            Code::Infix(..) | Code::Prefix(..) | Code::Range(..) | Code::Ref(_) | Code::Closure(..) => true,
            Code::Size(dim) => dim.as_size().is_none() && dim.as_symbol().is_none(),
            Code::Integer(dim) => dim.as_constant().is_none(),
            Code::Int(value) => *value < 0,
            _ => false,
        };
        if loose { quote!((#tokens)) } else { tokens }
    }
}

/// Whether a block yields what branches at its end yield.
fn ends_with_branches(block: &Block) -> bool {
    match block.statements.last() {
        Some(Statement::If { outputs, .. }) => {
            outputs.iter().copied().map(Code::Use).eq(block.results.iter().cloned())
        }
        _ => false,
    }
}

/// Whether `a` may stand on the left of an operator without parentheses.
fn keeps_left(a: &Code, op: &str) -> bool {
    match (a, op) {
        (Code::Infix(_, inner, _), "+" | "-") => matches!(*inner, "+" | "-" | "*" | "/"),
        (Code::Infix(_, inner, _), "*" | "/") => matches!(*inner, "*" | "/"),
        (Code::Prefix("-", _), "+" | "-" | "*" | "/") => true,
        _ => false,
    }
}

fn operator(op: &str) -> TokenStream {
    match op {
        "+" => quote!(+),
        "-" => quote!(-),
        "*" => quote!(*),
        "/" => quote!(/),
        "%" => quote!(%),
        "&" => quote!(&),
        "|" => quote!(|),
        "^" => quote!(^),
        "<<" => quote!(<<),
        ">>" => quote!(>>),
        _ => quote!(!),
    }
}
