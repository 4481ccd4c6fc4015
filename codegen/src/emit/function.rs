//! The body of a `forward`.

use super::locals::Locals;
use super::{Emitter, dims};
use crate::code::{Block, Code, Statement};
use crate::literals;
use crate::names::ident;
use crate::print::markers;
use kiln_importer::ir::{Symbol, ValueId};
use proc_macro2::{Ident, TokenStream};
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
    /// The optional field that is known to be there, and the variable for it.
    pub bound: Option<(usize, Ident)>,
}

impl FunctionEmitter<'_, '_, '_> {
    /// The statements of a block and its result.
    pub fn block(&mut self, block: &Block) -> TokenStream {
        let mut tokens = TokenStream::new();
        let last = ends_with_branches(block);
        for (i, statement) in block.statements.iter().enumerate() {
            if i + 1 == block.statements.len() && last {
                let branches = match statement {
                    Statement::Optional { .. } => self.optional(statement),
                    _ => self.branches(statement),
                };
                return quote!(#tokens #branches);
            }
            let goes_on = |output| block.statements[i + 1..].iter().any(|next| begins_with(next, output));
            let looped = matches!(statement.outputs(), &[output] if goes_on(output))
                || matches!(statement, Statement::Loop { .. });
            self.locals.name_outputs(self.emitter.plan, self.module, block, i, looped);
            if let Statement::Bind { outputs, .. } | Statement::If { outputs, .. } = statement
                && let &[output] = outputs.as_slice()
                && looped
            {
                self.locals.make_mutable(output);
            }
            tokens.extend(self.statement(statement));
            for &output in statement.outputs() {
                tokens.extend(self.symbols_of(output));
            }
        }
        let results: Vec<TokenStream> = block.results.iter().map(|code| self.code(code)).collect();
        if let [Code::Use(_) | Code::Clone(_)] | [] = block.results.as_slice() {
        } else if let Some(text) = self.result_comment(block) {
            tokens.extend(markers::result(&text));
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
            Statement::Optional { output, .. } => {
                let value = self.optional(statement);
                let pattern = self.pattern(&[*output]);
                quote!(let #pattern = #value;)
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

    /// `match &self.field { Some(field) => …, None => … }` or `if self.flag { … } else { … }`
    fn optional(&mut self, statement: &Statement) -> TokenStream {
        let Statement::Optional { code, otherwise, flag, field, .. } = statement else {
            return TokenStream::new();
        };
        let plan = self.emitter.plan;
        let without = self.code(otherwise);
        let Some(field) = *field else {
            let (flag, with) = (self.code(&Code::Slot(*flag)), self.code(code));
            return quote!(if #flag { #with } else { #without });
        };
        let text = &self.emitter.fields[plan.modules[self.module].struct_id][field];
        let (name, item) = (ident(text), ident(&self.locals.item_name(text)));
        self.bound = Some((field, item.clone()));
        let with = self.code(code);
        self.bound = None;
        quote!(match &self.#name { Some(#item) => #with, None => #without })
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
            [output] if self.locals.is_mutable(*output) => quote!(mut #(#names)*),
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
        self.emitter.shape_comment(self.module, output).map(|text| markers::tail(&text)).unwrap_or_default()
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
        let name = ident(&self.locals.name(output));
        let start = match init {
            Code::Use(value) if self.locals.is_mutable(*value) => TokenStream::new(),
            init => {
                let init = self.code(init);
                quote!(let mut #name = #init;)
            }
        };
        self.locals.make_mutable(output);
        let first = modules.first().copied().unwrap_or_default();
        let plan = self.emitter.plan;
        let again = modules.get(1).is_some_and(|&next| plan.first_call(next) == plan.first_call(first));
        let (field, position, length) = self.emitter.sequence_field(self.module, first);
        let item = ident(&self.locals.item_name(&field));
        self.locals.set_carried(&self.locals.name(output));
        self.emitter.note_arguments(first, args, &self.locals);
        let call = self.emitter.forward_name(first, self.asynchronous);
        if again {
            let (call, times) = (Code::Module(first, args.to_vec()), literals::int(modules.len() as i64));
            let call = self.code(&call);
            return quote! {
                #start
                for _ in 0..#times {
                    #name = #call;
                }
            };
        }
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
            #start
            for #item in #items {
                #name = #item.#call(#(#args),*) #wait;
            }
        }
    }
}

/// Whether a statement is a loop that goes on with a value's variable.
fn begins_with(statement: &Statement, value: ValueId) -> bool {
    matches!(statement, Statement::Loop { init: Code::Use(init), .. } if *init == value)
}

/// Whether a block yields what branches at its end yield.
fn ends_with_branches(block: &Block) -> bool {
    match block.statements.last() {
        Some(statement @ (Statement::If { .. } | Statement::Optional { .. })) => {
            statement.outputs().iter().copied().map(Code::Use).eq(block.results.iter().cloned())
        }
        _ => false,
    }
}
