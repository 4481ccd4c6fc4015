//! `#[derive(Config)]`.

use crate::fields::{suffixed, union_error, unraw};
use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::{format_ident, quote};
use syn::{Attribute, Data, DeriveInput, Error, Expr, ExprLit, Fields, Lit, LitStr, Result, Type};

/// How a field of a config gets its first value.
enum Initial {
    /// As an argument of `new`.
    Argument,
    /// `None`, since it is an `Option`.
    None,
    /// From `#[config(default = …)]`.
    Default(TokenStream),
}

/// A field of a config.
struct ConfigField<'a> {
    name: &'a Ident,
    ty: &'a Type,
    initial: Initial,
    docs: Vec<&'a Attribute>,
}

/// Implements `Config` and what belongs to it.
pub fn expand(kiln: &TokenStream, input: &DeriveInput) -> Result<TokenStream> {
    if !input.generics.params.is_empty() {
        return Err(Error::new_spanned(&input.generics, "a config has no generic parameters"));
    }
    let name = &input.ident;
    let (methods, clone, remote) = match &input.data {
        Data::Struct(data) => expand_struct(name, &data.fields)?,
        Data::Enum(data) => expand_enum(name, data),
        Data::Union(_) => return Err(union_error(input)),
    };
    let remote_name = suffixed(name, "Fields");
    let serde_path = quote!(#kiln::serde).to_string().replace(' ', "");
    let written_name = unraw(name);
    Ok(quote! {
        #methods

        #[automatically_derived]
        impl ::core::clone::Clone for #name {
            fn clone(&self) -> Self {
                #clone
            }
        }

        #[automatically_derived]
        impl ::core::fmt::Display for #name {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                f.write_str(&#kiln::config::config_to_json(self))
            }
        }

        #[automatically_derived]
        impl #kiln::config::Config for #name {}

        const _: () = {
            // The order of the fields in a file is not the one of the declaration, so serde gets a twin of the type.
            #[derive(#kiln::serde::Serialize, #kiln::serde::Deserialize)]
            #[serde(crate = #serde_path, remote = #written_name, rename = #written_name)]
            #[allow(dead_code)]
            #remote

            #[automatically_derived]
            impl #kiln::serde::Serialize for #name {
                fn serialize<S: #kiln::serde::Serializer>(
                    &self,
                    serializer: S,
                ) -> ::core::result::Result<S::Ok, S::Error> {
                    #remote_name::serialize(self, serializer)
                }
            }

            #[automatically_derived]
            impl<'de> #kiln::serde::Deserialize<'de> for #name {
                fn deserialize<D: #kiln::serde::Deserializer<'de>>(
                    deserializer: D,
                ) -> ::core::result::Result<Self, D::Error> {
                    #remote_name::deserialize(deserializer)
                }
            }
        };
    })
}

/// The methods, the body of `clone` and the serde twin of a struct.
fn expand_struct(name: &Ident, fields: &Fields) -> Result<(TokenStream, TokenStream, TokenStream)> {
    let mut fields = match fields {
        Fields::Named(fields) => fields.named.iter().map(read_field).collect::<Result<Vec<_>>>()?,
        Fields::Unit => Vec::new(),
        Fields::Unnamed(_) => return Err(Error::new_spanned(fields, "a config has named fields")),
    };
    let arguments = fields.iter().filter(|field| matches!(field.initial, Initial::Argument));
    let arguments = arguments.map(|ConfigField { name, ty, .. }| quote!(#name: #ty));
    let values = fields.iter().map(|ConfigField { name, initial, .. }| match initial {
        Initial::Argument => quote!(#name),
        Initial::None => quote!(#name: ::core::option::Option::None),
        Initial::Default(value) => quote!(#name: #value),
    });
    let builders = fields.iter().filter(|field| !matches!(field.initial, Initial::Argument)).map(builder);
    let methods = quote! {
        #[automatically_derived]
        impl #name {
            /// A config with these values, and the defaults of everything else.
            #[allow(clippy::too_many_arguments, clippy::new_without_default)]
            pub fn new(#(#arguments),*) -> Self {
                Self { #(#values),* }
            }

            #(#builders)*
        }
    };
    let names = fields.iter().map(|field| field.name);
    let clone = quote!(Self { #(#names: ::core::clone::Clone::clone(&self.#names)),* });
    // Burn's files have the fields in this order: required, optional, with a default.
    fields.sort_by_key(|field| match field.initial {
        Initial::Argument => 0,
        Initial::None => 1,
        Initial::Default(_) => 2,
    });
    let remote_name = suffixed(name, "Fields");
    let known: Vec<_> = fields.iter().map(|field| field.name).collect();
    let declared = fields.iter().map(|field| {
        let (name, ty) = (field.name, field.ty);
        let default = fallback(field, &known).map(|(function, _)| {
            let function = function.to_string();
            quote!(#[serde(default = #function)])
        });
        quote!(#default #name: #ty)
    });
    let remote = quote!(struct #remote_name { #(#declared),* });
    // What is missing in a file that others wrote has its default, as it has in `new`.
    let fallbacks = fields.iter().filter_map(|field| {
        let (function, value) = fallback(field, &known)?;
        let ty = field.ty;
        Some(quote!(fn #function() -> #ty { #value }))
    });
    Ok((methods, clone, quote!(#remote #(#fallbacks)*)))
}

/// The function that gives a field its default where a file lacks it, and its value; none for a default that refers to other
/// fields.
fn fallback<'a>(field: &'a ConfigField<'_>, known: &[&Ident]) -> Option<(Ident, &'a TokenStream)> {
    let Initial::Default(value) = &field.initial else { return None };
    let alone = !mentions(value.clone(), known);
    alone.then(|| (format_ident!("default_{}", unraw(field.name)), value))
}

/// Whether one of some names stands in an expression.
fn mentions(value: TokenStream, names: &[&Ident]) -> bool {
    value.into_iter().any(|token| match token {
        TokenTree::Group(group) => mentions(group.stream(), names),
        TokenTree::Ident(ident) => names.iter().any(|name| **name == ident),
        _ => false,
    })
}

/// The `with_…` method of a field, under the field's documentation.
fn builder(field: &ConfigField<'_>) -> TokenStream {
    let ConfigField { name, ty, docs, .. } = field;
    let method = format_ident!("with_{}", unraw(name));
    let doc = format!("Sets `{}`.", unraw(name));
    let docs = if docs.is_empty() { quote!(#[doc = #doc]) } else { quote!(#(#docs)*) };
    quote! {
        #docs
        #[must_use]
        pub fn #method(mut self, #name: #ty) -> Self {
            self.#name = #name;
            self
        }
    }
}

/// Reads a field and its `#[config(default = …)]`.
fn read_field(field: &syn::Field) -> Result<ConfigField<'_>> {
    let Some(name) = &field.ident else {
        return Err(Error::new_spanned(field, "a config has named fields"));
    };
    let mut default = None;
    for attribute in field.attrs.iter().filter(|attribute| attribute.path().is_ident("config")) {
        attribute.parse_nested_meta(|meta| {
            if !meta.path.is_ident("default") {
                return Err(meta.error("the attribute of a config's field is `default = …`"));
            }
            default = Some(read_default(meta.value()?.parse()?, name, &field.ty)?);
            Ok(())
        })?;
    }
    let initial = match default {
        Some(value) => Initial::Default(value),
        None if is_option(&field.ty) => Initial::None,
        None => Initial::Argument,
    };
    let docs = field.attrs.iter().filter(|attribute| attribute.path().is_ident("doc")).collect();
    Ok(ConfigField { name, ty: &field.ty, initial, docs })
}

/// A default is an expression, or a string that holds one: `"Initializer::Zeros"`. For a `String`, a string that is no
/// more than a name, or no expression, is the text itself.
fn read_default(value: Expr, name: &Ident, ty: &Type) -> Result<TokenStream> {
    let text = match value {
        // What a macro's fragment becomes.
        Expr::Group(group) => return read_default(*group.expr, name, ty),
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => text,
        value => return Ok(quote!(#value)),
    };
    let is_text = matches!(ty, Type::Path(path) if path.path.is_ident("String"));
    // The expression may name other fields, so it is read as if it stood beside them, in a macro too.
    let beside = LitStr::new(&text.value(), text.span().resolved_at(name.span()));
    match beside.parse::<Expr>() {
        Ok(Expr::Path(path)) if is_text && path.path.get_ident().is_some() => Ok(quote!(#text.into())),
        Err(_) if is_text => Ok(quote!(#text.into())),
        parsed => parsed.map(|value| quote!(#value)),
    }
}

/// Whether the type is spelled as an `Option`.
fn is_option(ty: &Type) -> bool {
    matches!(ty, Type::Path(path) if path.path.segments.last().is_some_and(|last| last.ident == "Option"))
}

/// The methods (none), the body of `clone` and the serde twin of an enum.
fn expand_enum(name: &Ident, data: &syn::DataEnum) -> (TokenStream, TokenStream, TokenStream) {
    let arms = data.variants.iter().map(|variant| {
        let variant_name = &variant.ident;
        let (members, bindings): (Vec<_>, Vec<_>) = variant
            .fields
            .members()
            .enumerate()
            .map(|(index, member)| (member, format_ident!("field_{index}")))
            .unzip();
        quote! {
            Self::#variant_name { #(#members: #bindings),* } =>
                Self::#variant_name { #(#members: ::core::clone::Clone::clone(#bindings)),* }
        }
    });
    let clone = quote!(match self { #(#arms),* });
    let variants = data.variants.iter().map(|variant| {
        let mut variant = variant.clone();
        variant.attrs.clear();
        variant.fields.iter_mut().for_each(|field| field.attrs.clear());
        variant
    });
    let remote_name = suffixed(name, "Fields");
    (quote!(), clone, quote!(enum #remote_name { #(#variants),* }))
}
