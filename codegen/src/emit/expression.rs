//! Expressions.

use super::function::FunctionEmitter;
use super::{Result, syntax, tensor_type};
use crate::Defect;
use crate::code::{Callee, Code, Literal, Place, Position};
use crate::dims;
use crate::ids::{FieldId, SlotId};
use crate::literals;
use crate::names::{self, ident};
use crate::structs::Derived;
use kiln_importer::ir::Name;
use kiln_types::DType;
use proc_macro2::TokenStream;
use quote::quote;
use std::borrow::Cow;
use syn::{Expr, ExprClosure};

impl FunctionEmitter<'_, '_> {
    /// An expression.
    pub(super) fn code(&mut self, code: &Code) -> Result<Expr> {
        Ok(match code {
            Code::Use(var) | Code::Name(var) => syntax::variable(ident(self.variables.name(*var)?)),
            Code::Clone(var) => {
                let name = syntax::variable(ident(self.variables.name(*var)?));
                syntax::method(name, ident("clone"), Vec::new())
            }
            Code::Carried => {
                let carried = self.carried.ok_or(Defect::EmptyLoop)?;
                syntax::variable(ident(self.variables.name(carried)?))
            }
            Code::Parameter(field) => syntax::method(self.field(*field)?, ident("val"), Vec::new()),
            Code::Held(way, field) => self.held(way, field)?,
            Code::Slot(slot) => self.slot(*slot)?,
            Code::Int(value) => syntax::int(*value)?,
            Code::Scalar(value, dtype) => syntax::parsed(literals::scalar(value.0, *dtype))?,
            Code::Float(value) => syntax::parsed(literals::float(value.0.to_f64()))?,
            Code::Bool(value) => syntax::bool(*value),
            Code::DType(dtype) => self.dtype(*dtype),
            Code::Path(path) => syntax::path(self.emitter.uses.path(path)),
            Code::Local(name) => syntax::variable(ident(name)),
            Code::Device => {
                self.uses_device = true;
                syntax::variable(ident("device"))
            }
            Code::Size(dim) => syntax::parsed(dims::size(dim, self.variables)?)?,
            Code::Integer(dim) => syntax::parsed(dims::integer(dim, self.variables)?)?,
            Code::Symbol(symbol) => syntax::variable(dims::variable(symbol, self.variables)?.0),
            Code::Layer(place, method, args) => {
                let args = self.all(args)?;
                let layer = self.callee(*place)?;
                self.called(*place, args, |args| syntax::method(layer, ident(method), args))?
            }
            Code::Module(callee, args) => self.call_module(*callee, args)?,
            // An empty array says no type.
            Code::Array(items) if items.is_empty() => syntax::parsed(quote!([0usize; 0]))?,
            Code::Array(items) => syntax::array(self.all(items)?),
            Code::List(items) => {
                let items = self.all(items)?;
                syntax::parsed(quote!([#(#items),*].into()))?
            }
            Code::Tuple(items) => syntax::tuple(self.all(items)?),
            Code::Range(a, b) => {
                let start = self.code(a)?;
                syntax::range(start, self.code(b)?)
            }
            Code::Ref(inner) => syntax::reference(self.operand(inner)?),
            Code::Call(path, args) => {
                let (twin, waits) = self.twin(path);
                let path = syntax::path(self.emitter.uses.path(&twin));
                syntax::awaited(syntax::call(path, self.all(args)?), waits)
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
                    Code::Scalar(value, dtype) => syntax::parsed(literals::typed(value.0, *dtype))?,
                    a if keeps_left(a, op) => self.code(a)?,
                    a => self.operand(a)?,
                };
                syntax::infix(left, op, self.operand(b)?)?
            }
            Code::Prefix(op, inner) => syntax::prefix(op, self.operand(inner)?)?,
            Code::Struct(path, fields) => {
                let path = self.emitter.uses.path(path);
                let field = |(name, value): &(Name, Code)| {
                    Ok(syntax::field_value(ident(name), Some(self.code(value)?)))
                };
                syntax::structure(path, fields.iter().map(field).collect::<Result<_>>()?)
            }
            Code::Make(ty, name, args) => {
                let tensor = tensor_type(&mut self.emitter.uses, ty.dtype.kind(), ty.rank(), true)?;
                syntax::call(syntax::path(syntax::below(tensor, ident(name))), self.all(args)?)
            }
            Code::Block(bindings, result) => {
                let bind = |(name, value): &(String, Code)| {
                    Ok(syntax::bind(syntax::bound(ident(name), false), self.code(value)?))
                };
                let bindings = bindings.iter().map(bind).collect::<Result<_>>()?;
                syntax::in_braces(syntax::block(bindings, self.code(result)?))
            }
            Code::Closure(names, body) => {
                let names = names.iter().map(|name| ident(name));
                let mut closure: ExprClosure = syntax::parsed(quote!(|[#(#names),*]| ()))?;
                closure.body = Box::new(self.code(body)?);
                Expr::Closure(closure)
            }
        })
    }

    fn dtype(&mut self, dtype: DType) -> Expr {
        let path = self.emitter.uses.path("tensor::DType");
        syntax::path(syntax::below(path, ident(&format!("{dtype:?}"))))
    }

    fn method(&mut self, receiver: &Code, name: &str, generics: &[usize], args: &[Code]) -> Result<Expr> {
        let (twin, waits) = self.twin(name);
        let receiver = self.operand(receiver)?;
        let generics = generics.iter().map(|&n| syntax::number_argument(n)).collect::<Result<_>>()?;
        Ok(syntax::awaited(syntax::generic_method(receiver, ident(&twin), generics, self.all(args)?), waits))
    }

    /// The function to call where a function that waits for the device is called, and whether the call is awaited.
    fn twin<'n>(&self, name: &'n str) -> (Cow<'n, str>, bool) {
        if self.asynchronous && self.emitter.waiting.contains(name) {
            (Cow::Owned(names::twin(name)), true)
        } else {
            (Cow::Borrowed(name), false)
        }
    }

    fn call_module(&mut self, callee: Callee, args: &[Code]) -> Result<Expr> {
        let mut args = self.all(args)?;
        if self.emitter.takes_device[callee.structure] {
            args.push(self.code(&Code::Device)?);
        }
        let waits = self.emitter.waits(callee.structure, self.asynchronous);
        let name = self.emitter.forward_name(callee.structure, self.asynchronous);
        let call = match callee.place {
            None => {
                let function = name.to_string();
                let call = |args| syntax::call(syntax::variable(name), args);
                self.scoped(&function, None, args, call)?
            }
            Some(place) => {
                let module = self.callee(place)?;
                self.called(place, args, |args| syntax::method(module, name, args))?
            }
        };
        Ok(syntax::awaited(call, waits))
    }

    /// `self.conv1`, `self.layers[2]`, or the variable of the item that a loop has in hand.
    fn callee(&self, place: Place) -> Result<Expr> {
        match (place.position, self.counted.get(&place.field)) {
            (Some(Position::OfRound), None) => {
                Ok(syntax::variable(ident(self.variables.in_hand(place.field)?)))
            }
            (Some(Position::OfRound), Some(number)) => {
                let number = syntax::parsed(dims::size(number, self.variables)?)?;
                Ok(syntax::item(self.field(place.field)?, number))
            }
            (position, _) => at(self.field(place.field)?, position),
        }
    }

    /// `self.conv1`, or the variable of an optional field that is there.
    fn field(&self, field: FieldId) -> Result<Expr> {
        if let Some((_, name)) = self.bound.as_ref().filter(|(bound, _)| *bound == field) {
            return Ok(syntax::variable(name.clone()));
        }
        Ok(syntax::field(syntax::this(), ident(self.emitter.names.field(self.id, field)?)))
    }

    /// `self.wte.weight.val()`
    fn held(&self, way: &[Place], field: &str) -> Result<Expr> {
        let program = self.emitter.program;
        let mut structure = Some(self.id);
        let mut held = syntax::this();
        for place in way {
            let id = structure.ok_or(Defect::Unnamed)?;
            let name = ident(self.emitter.names.field(id, place.field)?);
            held = at(syntax::field(held, name), place.position)?;
            structure = program.structs[id].body.struct_at(place.field);
        }
        Ok(syntax::method(syntax::field(held, ident(field)), ident("val"), Vec::new()))
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

    fn slot(&mut self, slot: SlotId) -> Result<Expr> {
        let structure = self.emitter.structure(self.id);
        if let Some(parameter) = structure.parameter_of(slot) {
            if let Some(derived) = parameter.derived.as_ref().filter(|_| self.in_init) {
                return syntax::parsed(derived_value(derived));
            }
            let name = ident(&parameter.name);
            return Ok(if self.in_init || parameter.passed {
                syntax::variable(name)
            } else {
                syntax::field(syntax::this(), name)
            });
        }
        match structure.body.slots.get(slot).and_then(|slot| slot.value.as_ref()) {
            Some(Literal::Number(value)) => syntax::int(*value),
            Some(Literal::Flag(value)) => Ok(syntax::bool(*value)),
            Some(Literal::Choice(_, code)) => self.code(code),
            None => Err(Defect::NoLiteral.into()),
        }
    }

    pub(super) fn all(&mut self, items: &[Code]) -> Result<Vec<Expr>> {
        items.iter().map(|item| self.code(item)).collect()
    }

    /// An expression where a call or an operator binds to it.
    pub(super) fn operand(&mut self, code: &Code) -> Result<Expr> {
        let value = self.code(code)?;
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
            | Code::List(_)
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
        Ok(if loose { syntax::paren(value) } else { value })
    }
}

/// `of[2]` for an item of a sequence.
fn at(of: Expr, position: Option<Position>) -> Result<Expr> {
    match position {
        None => Ok(of),
        Some(Position::OfRound) => Err(Defect::Unnamed.into()),
        Some(Position::At(position)) => Ok(syntax::item(of, syntax::int(position as i64)?)),
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
