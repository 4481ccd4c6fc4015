//! The type that a derive works on.

use super::Parts;
use crate::fields::{Field, unraw};
use proc_macro2::{Ident, TokenStream};
use quote::quote;

/// A module type with the runtime's path.
pub struct Subject<'a> {
    /// Path of the runtime.
    pub kiln: &'a TokenStream,
    /// The type's name.
    pub name: &'a Ident,
    /// Its fields or variants.
    pub parts: &'a Parts,
}

/// How one part of a module is reached: in code, and in a visitor's path.
pub struct Part<'a> {
    /// The expression.
    pub value: TokenStream,
    /// The name in paths.
    pub key: &'a str,
    /// See [`Field::origins`].
    pub origins: &'a [TokenStream],
}

impl Subject<'_> {
    /// What visitors learn about the container: `Struct:Name` or `Enum:Name`.
    pub fn container(&self) -> String {
        let kind = match self.parts {
            Parts::Struct { .. } => "Struct",
            Parts::Enum(_) => "Enum",
        };
        format!("{kind}:{}", unraw(self.name))
    }

    /// Statements for each part of `&self`; for an enum, of the variant that it is.
    pub fn for_each_ref(&self, statement: impl Fn(Part<'_>) -> TokenStream) -> TokenStream {
        match self.parts {
            Parts::Struct { fields, .. } => {
                let statements = fields.iter().map(|Field { member, key, origins, .. }| {
                    statement(Part { value: quote!(&self.#member), key, origins })
                });
                quote!(#(#statements)*)
            }
            Parts::Enum(variants) => {
                let arms = variants.iter().map(|variant| {
                    let (name, key) = (&variant.name, unraw(&variant.name));
                    match &variant.ty {
                        Some(_) => {
                            let statement =
                                statement(Part { value: quote!(module), key: &key, origins: &[] });
                            quote!(Self::#name(module) => { #statement })
                        }
                        None => quote!(Self::#name => {}),
                    }
                });
                quote!(match self { #(#arms)* })
            }
        }
    }

    /// A value of `target` made from each part of `self`.
    ///
    /// The parts are converted in the order of the fields, each by one expression.
    pub fn convert(
        &self,
        target: &TokenStream,
        by_ref: bool,
        convert: impl Fn(Part<'_>) -> TokenStream,
    ) -> TokenStream {
        match self.parts {
            Parts::Struct { fields, .. } => {
                let values = fields.iter().map(|Field { member, key, origins, .. }| {
                    let value = if by_ref { quote!(&self.#member) } else { quote!(self.#member) };
                    let value = convert(Part { value, key, origins });
                    quote!(#member: #value)
                });
                quote!(#target { #(#values),* })
            }
            Parts::Enum(variants) => {
                let arms = variants.iter().map(|variant| {
                    let (name, key) = (&variant.name, unraw(&variant.name));
                    match &variant.ty {
                        Some(_) => {
                            let value = convert(Part { value: quote!(module), key: &key, origins: &[] });
                            quote!(Self::#name(module) => #target::#name(#value))
                        }
                        None => quote!(Self::#name => #target::#name),
                    }
                });
                quote!(match self { #(#arms),* })
            }
        }
    }
}
