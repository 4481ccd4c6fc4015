//! `forward` and the functions beside it: parameters, result, body.

use super::function::FunctionEmitter;
use super::{Emitter, MOST_PARAMETERS, Result, field_ids, syntax, tensor_type};
use crate::code::Init;
use crate::dims;
use crate::ids::{FieldId, StructId};
use crate::names::ident;
use crate::print::markers;
use kiln_importer::ir::TensorType;
use kiln_types::layers::{Layer, Slot};
use proc_macro2::TokenStream;
use quote::quote;
use syn::{Expr, ImplItemFn, Item, ItemFn, Stmt};

impl Emitter<'_> {
    /// The parameters of a struct's `forward`.
    pub(super) fn signature(&mut self, id: StructId) -> Result<Vec<TokenStream>> {
        let (program, structure, variables) = (self.program, self.structure(id), self.names.variables(id)?);
        let body = &structure.body;
        let mut parameters: Vec<TokenStream> = Vec::new();
        for &input in &body.inputs {
            let name = ident(variables.name(input)?);
            let ty = program.graph().ty(body.vars[input]);
            let ty = tensor_type(&mut self.uses, ty.dtype.kind(), ty.rank(), false)?;
            parameters.push(quote!(#name: #ty));
        }
        for parameter in structure.parameters.iter().filter(|parameter| parameter.passed) {
            let (name, ty) = (ident(&parameter.name), self.parameter_type(parameter));
            parameters.push(quote!(#name: #ty));
        }
        for symbol in &body.symbols {
            let (name, _) = dims::variable(symbol, variables)?;
            parameters.push(if dims::is_signed(program.graph(), symbol) {
                quote!(#name: i64)
            } else {
                quote!(#name: usize)
            });
        }
        if self.takes_device[id] {
            parameters.push(quote!(device: &B::Device));
        }
        Ok(parameters)
    }

    /// The type of what a struct's `forward` yields; that of many tensors has a name.
    pub(super) fn result_type(&mut self, id: StructId) -> Result<TokenStream> {
        match self.names.results().get(&id) {
            Some(name) => {
                let name = ident(name);
                Ok(quote!(#name<B>))
            }
            None => self.tuple_type(id),
        }
    }

    /// The names for types of results.
    pub(super) fn result_names(&mut self) -> Result<TokenStream> {
        let mut tokens = TokenStream::new();
        for (&id, name) in self.names.results().iter().rev() {
            let (name, blank, tuple) = (ident(name), markers::blank(), self.tuple_type(id)?);
            let doc = format!(" What [`{}`] yields.", self.struct_name(id));
            tokens.extend(quote!(#blank #[doc = #doc] pub type #name<B> = #tuple;));
        }
        Ok(tokens)
    }

    fn tuple_type(&mut self, id: StructId) -> Result<TokenStream> {
        let outputs = self.structure(id).outputs.iter();
        let ty = |ty: &TensorType| tensor_type(&mut self.uses, ty.dtype.kind(), ty.rank(), false);
        let types: Vec<_> = outputs.map(ty).collect::<Result<_>>()?;
        Ok(match types.as_slice() {
            [ty] => quote!(#ty),
            types => quote!((#(#types),*)),
        })
    }

    /// The statements of a struct's `forward`, with everything that stands before them, and its result.
    pub(super) fn body(&mut self, id: StructId, asynchronous: bool) -> Result<(Vec<Stmt>, Expr)> {
        let body = &self.structure(id).body;
        let mut function = self.function(id, asynchronous)?;
        let mut start = Vec::new();
        for &input in &body.inputs {
            start.extend(function.symbols_of(input)?);
        }
        let (statements, result) = function.block(&body.block, true)?;
        if function.uses_device && !function.emitter.takes_device[id] {
            start.insert(0, device(&function)?);
        }
        start.extend(statements);
        Ok((start, result))
    }

    pub(super) fn forward(&mut self, id: StructId, asynchronous: bool) -> Result<ImplItemFn> {
        let parameters = self.signature(id)?;
        let result = self.result_type(id)?;
        let (statements, value) = self.body(id, asynchronous)?;
        let name = ident(if asynchronous { "forward_async" } else { "forward" });
        let start = if asynchronous { quote!(pub async fn) } else { quote!(pub fn) };
        let doc = if asynchronous { " Runs it without blocking the thread." } else { " Runs it." };
        let allow = too_many(parameters.len() + 1);
        let frame = quote!(#[doc = #doc] #allow #start #name(&self, #(#parameters),*) -> #result {});
        let mut function: ImplItemFn = syntax::parsed(frame)?;
        syntax::set_body(&mut function.sig, &mut function.block, statements, value);
        Ok(function)
    }

    pub(super) fn free_function(&mut self, id: StructId) -> Result<Vec<Item>> {
        let doc = self.struct_doc(id)?;
        let backend = self.uses.path("tensor::backend::Backend");
        let result = self.result_type(id)?;
        let mut items = Vec::new();
        let variants: &[bool] = if self.reads[id] { &[false, true] } else { &[false] };
        for &asynchronous in variants {
            let parameters = self.signature(id)?;
            let (statements, value) = self.body(id, asynchronous)?;
            let name = self.forward_name(id, asynchronous);
            let allow = too_many(parameters.len());
            let start = if asynchronous { quote!(async fn) } else { quote!(fn) };
            let frame =
                quote!(#[doc = #doc] #allow #start #name<B: #backend>(#(#parameters),*) -> #result {});
            let mut function: ItemFn = syntax::parsed(frame)?;
            syntax::set_body(&mut function.sig, &mut function.block, statements, value);
            items.push(Item::Fn(function));
        }
        Ok(items)
    }
}

/// Allows as many parameters as there are.
fn too_many(parameters: usize) -> TokenStream {
    if parameters <= MOST_PARAMETERS {
        return TokenStream::new();
    }
    quote!(#[allow(clippy::too_many_arguments, reason = "so many values enter this part of the model")])
}

/// `let device = &x.device();`, of what the function has there: an input, or a parameter.
fn device(function: &FunctionEmitter<'_, '_>) -> Result<Stmt> {
    let structure = function.emitter.structure(function.id);
    if let Some(&input) = structure.body.inputs.first() {
        let name = ident(function.variables.name(input)?);
        return syntax::parsed(quote!(let device = &#name.device();));
    }
    syntax::parsed(match parameter(function.emitter, function.id, syntax::this())? {
        Some(parameter) => quote!(let device = &#parameter.device();),
        None => quote!(let device = &B::Device::default();),
    })
}

/// A parameter of a struct, which `this` is one of: its own sooner than one of its layers or modules.
fn parameter(emitter: &Emitter<'_>, id: StructId, this: Expr) -> Result<Option<Expr>> {
    let structure = emitter.structure(id);
    let inits = &structure.body.inits;
    let is_there = |field: &FieldId| !structure.optional.contains_key(field);
    let (own, parts): (Vec<FieldId>, Vec<FieldId>) = field_ids(structure)
        .filter(is_there)
        .partition(|&field| matches!(inits[field], Init::Parameter { .. }));
    for field in own.into_iter().chain(parts) {
        let mut part = syntax::field(this.clone(), ident(emitter.names.field(id, field)?));
        if let Init::Sequence(_) = &inits[field] {
            part = syntax::item(part, syntax::int(0)?);
        }
        let found = match inits[field].items().first() {
            Some(Init::Parameter { .. }) => Some(part),
            Some(Init::Layer { ty, .. }) => {
                let name = ty.rsplit("::").next().unwrap_or_default();
                Layer::find(name).and_then(|layer| parameter_of_layer(layer, part))
            }
            Some(Init::Module { structure, .. }) => parameter(emitter, *structure, part)?,
            Some(Init::Sequence(_)) | None => None,
        };
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// A parameter that a layer always has.
fn parameter_of_layer(layer: &Layer, this: Expr) -> Option<Expr> {
    layer.fields.iter().find_map(|field| {
        let part = || syntax::field(this.clone(), ident(field.name));
        match field.slot {
            Slot::Parameter => Some(part()),
            Slot::Layer(layer) => parameter_of_layer(layer, part()),
            Slot::Optional | Slot::Constant | Slot::Constants(_) | Slot::Activation(..) => None,
        }
    })
}
