//! Calls of modules that tell the runtime's profiler which module they are of.

use super::function::FunctionEmitter;
use super::{Result, syntax};
use crate::code::{Place, Position};
use crate::dims;
use crate::ids::FieldId;
use crate::{Defect, literals};
use proc_macro2::{Ident, Span};
use quote::quote;
use syn::{Expr, ExprClosure};

/// The variable of a position in a sequence. Names of models have no underscore at their beginning.
pub(super) fn position() -> Ident {
    Ident::new("_position", Span::call_site())
}

impl FunctionEmitter<'_, '_> {
    /// Whether calls tell. Those that wait for the device do not: they would need to across threads.
    pub(super) fn is_profiled(&self) -> bool {
        self.emitter.options.profiled && !self.asynchronous
    }

    /// A call of what a field holds.
    pub(super) fn called(
        &mut self,
        place: Place,
        args: Vec<Expr>,
        call: impl FnOnce(Vec<Expr>) -> Expr,
    ) -> Result<Expr> {
        let position = match place.position {
            None => None,
            Some(Position::At(position)) => Some(syntax::int(position as i64)?),
            Some(Position::OfRound) => Some(match self.counted.get(&place.field) {
                Some(number) => syntax::parsed(dims::size(number, self.variables)?)?,
                None => syntax::variable(position()),
            }),
        };
        let key = self.key(place.field)?;
        self.scoped(&key, position, args, call)
    }

    /// A call of an item of what a field holds, in a loop over [`position`].
    pub(super) fn called_at(
        &mut self,
        field: FieldId,
        args: Vec<Expr>,
        call: impl FnOnce(Vec<Expr>) -> Expr,
    ) -> Result<Expr> {
        let key = self.key(field)?;
        self.scoped(&key, Some(syntax::variable(position())), args, call)
    }

    /// `profile::scope("key", Some(position), (args,), |(_0,)| call(_0))`: arguments are computed before, and belong to the caller.
    pub(super) fn scoped(
        &mut self,
        key: &str,
        position: Option<Expr>,
        args: Vec<Expr>,
        call: impl FnOnce(Vec<Expr>) -> Expr,
    ) -> Result<Expr> {
        if !self.is_profiled() {
            return Ok(call(args));
        }
        let path = self.emitter.uses.path("backend::profile::scope");
        let names: Vec<Ident> =
            (0..args.len()).map(|n| Ident::new(&format!("_{n}"), Span::call_site())).collect();
        let mut closure: ExprClosure = syntax::parsed(quote!(|(#(#names,)*)| ()))?;
        closure.body = Box::new(call(names.into_iter().map(syntax::variable).collect()));
        let key = literals::string(key);
        let position = position.map_or(quote!(None), |position| quote!(Some(#position)));
        let key = syntax::parsed(quote!(#key))?;
        let args = syntax::parsed(quote!((#(#args,)*)))?;
        let args = vec![key, syntax::parsed(position)?, args, Expr::Closure(closure)];
        Ok(syntax::call(syntax::path(path), args))
    }

    /// What records call a field.
    fn key(&self, field: FieldId) -> Result<String> {
        let program = self.emitter.program;
        let first = self.emitter.structure(self.id).first()?;
        Ok(program.modules[first].fields.get(field).ok_or(Defect::Unnamed)?.key.clone())
    }
}
