//! Expressions.

use super::function::FunctionEmitter;
use super::{Result, dims, tensor_type};
use crate::Defect;
use crate::code::{Callee, Code, Literal, Place};
use crate::ids::{FieldId, SlotId};
use crate::literals;
use crate::names::ident;
use crate::structs::Derived;
use kiln_importer::ir::{Name, TensorType};
use kiln_types::DType;
use proc_macro2::TokenStream;
use quote::quote;

impl FunctionEmitter<'_, '_> {
    /// An expression.
    pub(super) fn code(&mut self, code: &Code) -> Result<TokenStream> {
        Ok(match code {
            Code::Use(var) | Code::Name(var) => {
                let name = ident(self.variables.name(*var)?);
                quote!(#name)
            }
            Code::Clone(var) => {
                let name = ident(self.variables.name(*var)?);
                quote!(#name.clone())
            }
            Code::Carried => {
                let name = ident(self.variables.name(self.carried.ok_or(Defect::EmptyLoop)?)?);
                quote!(#name)
            }
            Code::Parameter(field) => {
                let field = self.field(*field)?;
                quote!(#field.val())
            }
            Code::Held(way, field) => self.held(way, field)?,
            Code::Slot(slot) => self.slot(*slot)?,
            Code::Int(value) => literals::int(*value),
            Code::Scalar(value, dtype) => literals::scalar(value.0, *dtype),
            Code::Float(value) => literals::float(value.0.to_f64()),
            Code::Bool(value) => quote!(#value),
            Code::DType(dtype) => self.dtype(*dtype),
            Code::Path(path) => self.emitter.uses.path(path),
            Code::Local(name) => {
                let name = ident(name);
                quote!(#name)
            }
            Code::Device => {
                self.uses_device = true;
                quote!(device)
            }
            Code::Size(dim) => dims::size(dim, self.variables)?,
            Code::Integer(dim) => dims::integer(dim, self.variables)?,
            Code::Symbol(symbol) => {
                let (name, _) = dims::variable(symbol, self.variables)?;
                quote!(#name)
            }
            Code::Layer(field, method, args) => {
                let field = self.field(*field)?;
                let (method, args) = (ident(method), self.all(args)?);
                quote!(#field.#method(#(#args),*))
            }
            Code::Module(callee, args) => self.call_module(*callee, args)?,
            Code::Array(items) => {
                let items = self.all(items)?;
                // An empty array says no type.
                if items.is_empty() { quote!([0usize; 0]) } else { quote!([#(#items),*]) }
            }
            Code::Vec(items) => {
                let items = self.all(items)?;
                quote!(vec![#(#items),*])
            }
            Code::Tuple(items) => {
                let items = self.all(items)?;
                quote!((#(#items),*))
            }
            Code::Range(a, b) => {
                let (a, b) = (self.code(a)?, self.code(b)?);
                quote!(#a..#b)
            }
            Code::Ref(inner) => {
                let inner = self.operand(inner)?;
                quote!(&#inner)
            }
            Code::Call(path, args) => {
                let (twin, wait) = self.twin(path);
                let (path, args) = (self.emitter.uses.path(&twin), self.all(args)?);
                quote!(#path(#(#args),*)#wait)
            }
            Code::Method(receiver, name, generics, args) => self.method(receiver, name, generics, args)?,
            Code::Setting(receiver, name, args, default) => {
                if *default && !args.iter().any(|arg| self.varies(arg)) {
                    return self.operand(receiver);
                }
                self.method(receiver, name, &[], args)?
            }
            Code::Infix(a, op, b) => {
                let left = match a.as_ref() {
                    // A bare number before an operator leaves the type of the result open.
                    Code::Scalar(value, dtype) => literals::typed(value.0, *dtype),
                    a if keeps_left(a, op) => self.code(a)?,
                    a => self.operand(a)?,
                };
                let (right, op) = (self.operand(b)?, operator(op)?);
                quote!(#left #op #right)
            }
            Code::Prefix(op, inner) => {
                let (inner, op) = (self.operand(inner)?, operator(op)?);
                quote!(#op #inner)
            }
            Code::Struct(path, fields) => self.literal_struct(path, fields)?,
            Code::Make(ty, name, args) => self.make(ty, name, args)?,
            Code::Block(bindings, result) => {
                let mut tokens = TokenStream::new();
                for (name, value) in bindings {
                    let (name, value) = (ident(name), self.code(value)?);
                    tokens.extend(quote!(let #name = #value;));
                }
                let result = self.code(result)?;
                quote!({ #tokens #result })
            }
            Code::Closure(names, body) => {
                let names = names.iter().map(|name| ident(name));
                let body = self.code(body)?;
                quote!(|[#(#names),*]| #body)
            }
        })
    }

    fn dtype(&mut self, dtype: DType) -> TokenStream {
        let (path, variant) = (self.emitter.uses.path("tensor::DType"), ident(&format!("{dtype:?}")));
        quote!(#path::#variant)
    }

    fn method(
        &mut self,
        receiver: &Code,
        name: &str,
        generics: &[usize],
        args: &[Code],
    ) -> Result<TokenStream> {
        let (twin, wait) = self.twin(name);
        let (receiver, name, args) = (self.operand(receiver)?, ident(&twin), self.all(args)?);
        let generics = generics.iter().map(|n| literals::int(*n as i64));
        Ok(match generics.len() {
            0 => quote!(#receiver.#name(#(#args),*)#wait),
            _ => quote!(#receiver.#name::<#(#generics),*>(#(#args),*)#wait),
        })
    }

    /// The function to call where a function that waits for the device is called, and what follows the call.
    fn twin(&self, name: &str) -> (String, TokenStream) {
        if self.asynchronous && self.emitter.waiting.contains(name) {
            (format!("{name}_async"), quote!(.await))
        } else {
            (name.to_owned(), TokenStream::new())
        }
    }

    fn literal_struct(&mut self, path: &str, fields: &[(Name, Code)]) -> Result<TokenStream> {
        let path = self.emitter.uses.path(path);
        let mut tokens = Vec::new();
        for (name, value) in fields {
            let (name, value) = (ident(name), self.code(value)?);
            tokens.push(quote!(#name: #value));
        }
        Ok(quote!(#path { #(#tokens),* }))
    }

    fn make(&mut self, ty: &TensorType, name: &str, args: &[Code]) -> Result<TokenStream> {
        let tensor = tensor_type(&mut self.emitter.uses, ty.dtype.kind(), ty.rank(), true);
        let (name, args) = (ident(name), self.all(args)?);
        Ok(quote!(#tensor::#name(#(#args),*)))
    }

    fn call_module(&mut self, callee: Callee, args: &[Code]) -> Result<TokenStream> {
        let args = self.all(args)?;
        let wait = self.emitter.waiting(callee.structure, self.asynchronous);
        let call = self.emitter.forward_name(callee.structure, self.asynchronous);
        let Some(Place { field, position }) = callee.place else {
            return Ok(quote!(#call(#(#args),*) #wait));
        };
        let (field, position) = (self.field(field)?, index(position));
        Ok(quote!(#field #position.#call(#(#args),*) #wait))
    }

    /// `self.conv1`, or the variable of an optional field that is there.
    fn field(&self, field: FieldId) -> Result<TokenStream> {
        if let Some((_, name)) = self.bound.as_ref().filter(|(bound, _)| *bound == field) {
            return Ok(quote!(#name));
        }
        let name = ident(self.emitter.names.field(self.id, field)?);
        Ok(quote!(self.#name))
    }

    /// `self.wte.weight.val()`
    fn held(&self, way: &[Place], field: &str) -> Result<TokenStream> {
        let program = self.emitter.program;
        let mut structure = Some(self.id);
        let mut tokens = quote!(self);
        for place in way {
            let id = structure.ok_or(Defect::Unnamed)?;
            let (name, position) = (ident(self.emitter.names.field(id, place.field)?), index(place.position));
            tokens.extend(quote!(.#name #position));
            structure = program.structs[id].body.struct_at(place.field);
        }
        let field = ident(field);
        Ok(quote!(#tokens.#field.val()))
    }

    /// Whether modules of the struct differ in it.
    fn varies(&self, code: &Code) -> bool {
        let structure = self.emitter.structure(self.id);
        let mut varies = false;
        code.visit(&mut |part| {
            if let Code::Slot(slot) = part {
                varies |= structure.parameter_of(*slot).is_some();
            }
        });
        varies
    }

    fn slot(&mut self, slot: SlotId) -> Result<TokenStream> {
        let structure = self.emitter.structure(self.id);
        if let Some(parameter) = structure.parameter_of(slot) {
            if let Some(derived) = parameter.derived.as_ref().filter(|_| self.in_init) {
                return Ok(derived_value(derived));
            }
            let name = ident(&parameter.name);
            return Ok(if self.in_init || parameter.passed { quote!(#name) } else { quote!(self.#name) });
        }
        match structure.body.slots.get(slot).and_then(|slot| slot.value.as_ref()) {
            Some(Literal::Number(value)) => Ok(literals::int(*value)),
            Some(Literal::Flag(value)) => Ok(quote!(#value)),
            Some(Literal::Choice(_, code)) => self.code(code),
            None => Err(Defect::NoLiteral.into()),
        }
    }

    pub(super) fn all(&mut self, items: &[Code]) -> Result<Vec<TokenStream>> {
        items.iter().map(|item| self.code(item)).collect()
    }

    /// An expression where a call or an operator binds to it.
    pub(super) fn operand(&mut self, code: &Code) -> Result<TokenStream> {
        let tokens = self.code(code)?;
        let loose = match code {
            Code::Infix(..) | Code::Prefix(..) | Code::Range(..) | Code::Ref(_) | Code::Closure(..) => true,
            Code::Size(dim) => dim.as_size().is_none() && dim.as_symbol().is_none(),
            Code::Integer(dim) => dim.as_constant().is_none(),
            Code::Int(value) => *value < 0,
            Code::Use(_)
            | Code::Clone(_)
            | Code::Name(_)
            | Code::Carried
            | Code::Parameter(_)
            | Code::Held(..)
            | Code::Slot(_)
            | Code::Scalar(..)
            | Code::Float(_)
            | Code::Bool(_)
            | Code::DType(_)
            | Code::Path(_)
            | Code::Local(_)
            | Code::Device
            | Code::Array(_)
            | Code::Vec(_)
            | Code::Tuple(_)
            | Code::Call(..)
            | Code::Method(..)
            | Code::Struct(..)
            | Code::Make(..)
            | Code::Setting(..)
            | Code::Block(..)
            | Code::Layer(..)
            | Code::Module(..)
            | Code::Symbol(_) => false,
        };
        Ok(if loose { quote!((#tokens)) } else { tokens })
    }
}

/// `[2]` for an item of a sequence.
fn index(position: Option<usize>) -> TokenStream {
    position.map_or_else(TokenStream::new, |position| {
        let position = literals::int(position as i64);
        quote!([#position])
    })
}

/// What a parameter is that follows from others.
pub(super) fn derived_value(derived: &Derived) -> TokenStream {
    match derived {
        Derived::Half(whole) => {
            let whole = ident(whole);
            quote!(#whole / 2)
        }
        Derived::Equal(a, b) => {
            let (a, b) = (ident(a), ident(b));
            quote!(#a == #b)
        }
        Derived::Differ(a, b) => {
            let (a, b) = (ident(a), ident(b));
            quote!(#a != #b)
        }
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

fn operator(op: &'static str) -> Result<TokenStream> {
    Ok(match op {
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
        "!" => quote!(!),
        other => return Err(Defect::Operator(other).into()),
    })
}
