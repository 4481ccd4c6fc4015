//! Expressions.

use super::function::FunctionEmitter;
use super::{dims, tensor_type};
use crate::code::{Code, Literal};
use crate::literals;
use crate::names::ident;
use crate::plan::Derived;
use kiln_importer::ir::{TensorType, ValueId};
use proc_macro2::TokenStream;
use quote::quote;

impl FunctionEmitter<'_, '_, '_> {
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
                let field = self.field(code);
                quote!(#field.val())
            }
            Code::Held(value) => self.held(*value),
            Code::Slot(index) => self.slot(*index),
            Code::Int(value) => literals::int(*value),
            Code::Scalar(value, dtype) => literals::scalar(*value, *dtype),
            Code::Float(value) => literals::float(*value),
            Code::Bool(value) => quote!(#value),
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
                let field = self.field(code);
                let (method, args) = (ident(method), self.all(args));
                quote!(#field.#method(#(#args),*))
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
            Code::Setting(receiver, name, args, default) => {
                let receiver = self.operand(receiver);
                if *default && !args.iter().any(|arg| self.varies(arg)) {
                    return receiver;
                }
                let (name, args) = (ident(name), self.all(args));
                quote!(#receiver.#name(#(#args),*))
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
        let field = self.field(code);
        match self.emitter.position_in_sequence(self.module, child) {
            Some(position) => {
                let position = literals::int(position as i64);
                quote!(#field[#position].#call(#(#args),*) #wait)
            }
            None => quote!(#field.#call(#(#args),*) #wait),
        }
    }

    /// `self.conv1`, or the variable of an optional field that is there.
    fn field(&self, code: &Code) -> TokenStream {
        let index = crate::plan::field_index(self.emitter.plan, self.module, code);
        match &self.bound {
            Some((bound, name)) if Some(*bound) == index => quote!(#name),
            _ => {
                let field = self.emitter.field_ident(self.module, code);
                quote!(self.#field)
            }
        }
    }

    /// `self.wte.weight.val()`
    fn held(&mut self, value: ValueId) -> TokenStream {
        let plan = self.emitter.plan;
        let Some((layer, field)) = plan.held.get(&value) else { return TokenStream::new() };
        let way = plan.way_to(self.module, *layer).unwrap_or_default();
        let steps = way.into_iter().map(|(module, index, position)| {
            let name = ident(&self.emitter.fields[plan.modules[module].struct_id][index]);
            let position = position.map(|position| {
                let position = literals::int(position as i64);
                quote!([#position])
            });
            quote!(.#name #position)
        });
        let field = ident(field);
        quote!(self #(#steps)* .#field.val())
    }

    /// Whether modules of the struct differ in it.
    fn varies(&self, code: &Code) -> bool {
        let shared = &self.emitter.plan.structs[self.emitter.plan.modules[self.module].struct_id];
        let mut varies = false;
        code.visit(&mut |part| {
            if let Code::Slot(index) = part {
                varies |= shared.parameters.iter().any(|parameter| parameter.slots.contains(index));
            }
        });
        varies
    }

    fn slot(&mut self, index: usize) -> TokenStream {
        let plan = self.emitter.plan;
        let data = &plan.modules[self.module];
        let parameter = plan.structs[data.struct_id].parameters.iter().find(|p| p.slots.contains(&index));
        match parameter {
            Some(parameter) => {
                if let Some(derived) = parameter.derived.as_ref().filter(|_| self.in_init) {
                    return derived_value(derived);
                }
                let name = ident(&parameter.name);
                if self.in_init || parameter.passed { quote!(#name) } else { quote!(self.#name) }
            }
            None => match data.body.slots.get(index).and_then(|slot| slot.value.clone()) {
                Some(Literal::Number(value)) => literals::int(value),
                Some(Literal::Flag(value)) => quote!(#value),
                Some(Literal::Choice(_, code)) => self.code(&code),
                None => literals::int(0),
            },
        }
    }

    fn all(&mut self, items: &[Code]) -> Vec<TokenStream> {
        items.iter().map(|item| self.code(item)).collect()
    }

    /// An expression where a call or an operator binds to it.
    pub(super) fn operand(&mut self, code: &Code) -> TokenStream {
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
