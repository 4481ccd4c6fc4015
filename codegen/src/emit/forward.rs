//! `forward` and its kin: parameters, result, body.

use super::function::FunctionEmitter;
use super::locals::Locals;
use super::{Emitter, tensor_type};
use crate::code::decide_moves;
use crate::names::{ident, pascal};
use crate::plan::{Content, Plan};
use crate::print::markers;
use kiln_importer::ir::{SymbolOrigin, ValueId};
use proc_macro2::TokenStream;
use quote::quote;

/// Tuples of more tensors get a name.
const MAX_RESULTS: usize = 3;

impl Emitter<'_, '_> {
    /// The parameters of a module's `forward`, and its variables.
    pub(super) fn signature(&mut self, module: usize) -> (Vec<TokenStream>, Locals) {
        let plan = self.plan;
        let hints = self.input_names(module);
        let locals = Locals::new(plan, module, &hints);
        let data = &plan.modules[module];
        let mut parameters: Vec<TokenStream> = Vec::new();
        for &input in &data.inputs {
            let name = ident(&locals.name(input));
            let ty = tensor_type(&mut self.uses, plan.graph.ty(input), false);
            parameters.push(quote!(#name: #ty));
        }
        for parameter in plan.structs[data.struct_id].parameters.iter().filter(|parameter| parameter.passed) {
            let (name, ty) = (ident(&parameter.name), self.parameter_type(parameter));
            parameters.push(quote!(#name: #ty));
        }
        for symbol in &data.body.symbols {
            let name = ident(&locals.symbol_name(symbol));
            let read = matches!(plan.origin(symbol), Some(SymbolOrigin::Read { .. }));
            parameters.push(if read { quote!(#name: i64) } else { quote!(#name: usize) });
        }
        (parameters, locals)
    }

    /// The type of what a module yields; more than `most` tensors get a name.
    pub(super) fn result_type(&mut self, module: usize, most: usize) -> TokenStream {
        let (plan, values) = (self.plan, &self.plan.modules[module].outputs);
        let tuple = self.tuple_type(values);
        if values.len() <= most {
            return tuple;
        }
        let id = plan.modules[module].struct_id;
        if let Some(name) = self.aliases.get(&id) {
            let name = ident(name);
            return quote!(#name<B>);
        }
        let text = self.types.fresh(&format!("{}Output", pascal(&plan.structs[id].name, "Module")));
        let (name, blank) = (ident(&text), markers::blank());
        let doc = format!(" What [`{}`] yields.", plan.structs[id].name);
        self.alias_items.extend(quote!(#blank #[doc = #doc] pub type #name<B> = #tuple;));
        self.aliases.insert(id, text);
        quote!(#name<B>)
    }

    fn tuple_type(&mut self, values: &[ValueId]) -> TokenStream {
        let plan = self.plan;
        let types: Vec<_> =
            values.iter().map(|&value| tensor_type(&mut self.uses, plan.graph.ty(value), false)).collect();
        match types.as_slice() {
            [ty] => ty.clone(),
            types => quote!((#(#types),*)),
        }
    }

    /// The statements of a module's `forward`, with everything that stands before them.
    pub(super) fn body(&mut self, module: usize, locals: Locals, asynchronous: bool) -> TokenStream {
        let plan = self.plan;
        let data = &plan.modules[module];
        let mut block = data.body.block.clone();
        decide_moves(&mut block);
        let mut function = self.function(module, locals, asynchronous);
        let mut start = TokenStream::new();
        for &input in &data.inputs {
            start.extend(function.symbols_of(input));
        }
        let statements = function.block(&block);
        if function.uses_device {
            let device = device(plan, module, &function, data.inputs.first().copied());
            return quote!(#device #start #statements);
        }
        quote!(#start #statements)
    }

    pub(super) fn forward(&mut self, module: usize, asynchronous: bool) -> TokenStream {
        let (parameters, locals) = self.signature(module);
        let result = self.result_type(module, MAX_RESULTS);
        let body = self.body(module, locals, asynchronous);
        let name = ident(if asynchronous { "forward_async" } else { "forward" });
        let (start, blank) = if asynchronous {
            (quote!(pub async fn), markers::blank())
        } else {
            (quote!(pub fn), TokenStream::new())
        };
        let doc = if asynchronous { " Runs it without blocking the thread." } else { " Runs it." };
        let allow = too_many(parameters.len() + 1);
        quote!(#blank #[doc = #doc] #allow #start #name(&self, #(#parameters),*) -> #result { #body })
    }

    pub(super) fn free_function(&mut self, id: usize) -> TokenStream {
        let member = self.plan.structs[id].members[0];
        let doc = self.struct_doc(id);
        let backend = self.uses.path("tensor::backend::Backend");
        let result = self.result_type(member, MAX_RESULTS);
        let mut tokens = TokenStream::new();
        let variants = if self.reads(member) { vec![false, true] } else { vec![false] };
        for asynchronous in variants {
            let (parameters, locals) = self.signature(member);
            let body = self.body(member, locals, asynchronous);
            let name = self.forward_name(member, asynchronous);
            let allow = too_many(parameters.len());
            let start = if asynchronous { quote!(async fn) } else { quote!(fn) };
            tokens.extend(
                quote!(#[doc = #doc] #allow #start #name<B: #backend>(#(#parameters),*) -> #result { #body }),
            );
        }
        tokens
    }
}

/// Allows as many parameters as there are.
fn too_many(parameters: usize) -> TokenStream {
    if parameters <= 7 {
        return TokenStream::new();
    }
    quote!(#[allow(clippy::too_many_arguments, reason = "so many values enter this part of the model")])
}

/// `let device = &x.device();`
fn device(
    plan: &Plan<'_>,
    module: usize,
    function: &FunctionEmitter<'_, '_, '_>,
    input: Option<ValueId>,
) -> TokenStream {
    if let Some(input) = input {
        let name = ident(&function.locals.name(input));
        return quote!(let device = &#name.device(););
    }
    let data = &plan.modules[module];
    let parameter = data.fields.iter().position(|field| matches!(field.content, Content::Parameter(_)));
    match parameter {
        Some(i) => {
            let name = ident(&function.emitter.fields[data.struct_id][i]);
            quote!(let device = &self.#name.device();)
        }
        None => quote!(let device = &B::Device::default();),
    }
}
