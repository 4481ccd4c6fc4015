//! The sizes of the checkpoint, as an expression.

use super::content::{Content, Part, by_key};
use super::emit::{Typed, path, unsuffixed};
use super::types::Type;
use super::{SkeletonError, emit};
use kiln_codegen::names::{self, Names, ident};
use proc_macro2::{Literal, TokenStream};
use quote::{format_ident, quote};

/// Statements and the expression behind them.
pub(super) struct Sizes<'a> {
    typed: &'a Typed<'a>,
    /// Configurations that stand several times in a list.
    lets: Vec<TokenStream>,
    names: Names,
}

impl<'a> Sizes<'a> {
    /// The body of a function that yields the model's configuration.
    pub(super) fn of(typed: &'a Typed<'a>) -> Result<TokenStream, SkeletonError> {
        let mut sizes = Self { typed, lets: Vec::new(), names: Names::default() };
        let whole = sizes.module(typed.root, typed.parts)?;
        let lets = sizes.lets;
        Ok(quote!(#(#lets)* #whole))
    }

    fn module(&mut self, id: usize, parts: &[Part]) -> Result<TokenStream, SkeletonError> {
        let typed = self.typed;
        let config = format_ident!("{}Config", typed.name(id));
        let parts = by_key(parts);
        let mut values = Vec::new();
        for (field, named) in typed.fields(id) {
            let member = ident(&named.name);
            let value = match parts.get(field.key.as_str()) {
                Some(part) => {
                    let value = self.content(&field.ty, &part.content)?;
                    if field.optional { quote!(Some(#value)) } else { value }
                }
                None => quote!(None),
            };
            // `a: a` is written `a`.
            let same = value.to_string() == named.name;
            values.push(if same { quote!(#member) } else { quote!(#member: #value) });
        }
        Ok(quote!(#config { #(#values),* }))
    }

    fn content(&mut self, ty: &Type, content: &Content) -> Result<TokenStream, SkeletonError> {
        match (content, ty) {
            (Content::Layer(layer), _) => {
                let path = path(&format!("{}Config", layer.declared.path))?;
                let arguments = unsuffixed(layer.config.clone());
                Ok(quote!(#path::#arguments))
            }
            (Content::List(items), Type::List(item)) => self.list(item, items),
            (Content::Module(parts), Type::Module(id)) => self.module(*id, parts),
            (Content::Param(tensor), _) => {
                let dims = tensor.shape().iter().map(|dim| Literal::usize_unsuffixed(*dim));
                Ok(quote!([#(#dims),*]))
            }
            (Content::List(_) | Content::Module(_), _) => {
                Err(SkeletonError::Internal("a content has another type".to_owned()))
            }
        }
    }

    /// Equal items are written once.
    fn list(&mut self, ty: &Type, items: &[Content]) -> Result<TokenStream, SkeletonError> {
        let mut runs: Vec<(String, TokenStream, usize)> = Vec::new();
        for item in items {
            let value = self.content(ty, item)?;
            let text = value.to_string();
            match runs.last_mut() {
                Some((last, _, count)) if *last == text => *count += 1,
                _ => runs.push((text, value, 1)),
            }
        }
        let long = emit::is_module(ty);
        let repeated = |sizes: &mut Self, value: TokenStream, count: usize| {
            let count = Literal::usize_unsuffixed(count);
            if !long {
                return quote!(vec![#value; #count]);
            }
            let name = sizes.bound(ty, value);
            quote!(vec![#name; #count])
        };
        if runs.len() == 1 && items.len() > 1 {
            let (_, value, count) = runs.remove(0);
            return Ok(repeated(self, value, count));
        }
        if 2 * runs.len() <= items.len() {
            let runs = runs.into_iter().map(|(_, value, count)| repeated(self, value, count));
            let runs: Vec<TokenStream> = runs.collect();
            return Ok(quote!([#(#runs),*].concat()));
        }
        let values = runs.into_iter().flat_map(|(_, value, count)| std::iter::repeat_n(value, count));
        let values: Vec<TokenStream> = values.collect();
        // The printer lays out what stands in a function's parentheses, but not what stands in a macro's.
        let short = values.iter().map(|value| value.to_string().len()).sum::<usize>() < 60;
        Ok(if short { quote!(vec![#(#values),*]) } else { quote!(Vec::from([#(#values),*])) })
    }

    /// A variable that holds a configuration.
    fn bound(&mut self, ty: &Type, value: TokenStream) -> TokenStream {
        let wanted = match super::types::innermost(ty) {
            Type::Module(id) => names::snake(self.typed.name(*id), "layer"),
            _ => "layer".to_owned(),
        };
        let name = ident(&self.names.fresh(&wanted));
        self.lets.push(quote!(let #name = #value;));
        quote!(#name)
    }
}
