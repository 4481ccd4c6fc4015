//! `Display`, `ModuleDisplayDefault` and `ModuleDisplay` of a derived module.

use crate::fields::unraw;
use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{Data, DeriveInput, Fields, Generics, Result};

/// Implements the three traits; a type that `has_parameters` counts them.
pub fn implement(
    kiln: &TokenStream,
    input: &DeriveInput,
    generics: &Generics,
    has_parameters: bool,
    custom_display: bool,
) -> Result<TokenStream> {
    let name = &input.ident;
    let (params, args, clause) = generics.split_for_impl();
    let content = content(input)?;
    let num_params = has_parameters.then(|| {
        quote! {
            fn num_params(&self) -> usize {
                #kiln::module::Module::<B>::num_params(self)
            }
        }
    });
    let module_display = (!custom_display).then(|| {
        quote! {
            #[automatically_derived]
            impl #params #kiln::module::ModuleDisplay for #name #args #clause {}
        }
    });
    Ok(quote! {
        #[automatically_derived]
        impl #params ::core::fmt::Display for #name #args #clause {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                f.write_str(&#kiln::module::ModuleDisplay::format(
                    self,
                    ::core::default::Default::default(),
                ))
            }
        }

        #[automatically_derived]
        impl #params #kiln::module::ModuleDisplayDefault for #name #args #clause {
            fn content(
                &self,
                content: #kiln::module::Content,
            ) -> ::core::option::Option<#kiln::module::Content> {
                #content
            }

            #num_params
        }

        #module_display
    })
}

/// The body of `content`: each field under its name.
fn content(input: &DeriveInput) -> Result<TokenStream> {
    match &input.data {
        Data::Struct(data) => {
            let name = unraw(&input.ident);
            let fields = data.fields.iter().zip(data.fields.members()).map(|(field, member)| {
                let label = label(field, &member);
                quote!(.add(#label, &self.#member))
            });
            Ok(quote!(content.set_top_level_type(#name) #(#fields)* .optional()))
        }
        Data::Enum(data) => {
            let arms = data.variants.iter().map(|variant| {
                let (name, text) = (&variant.ident, unraw(&variant.ident));
                if let Fields::Unit = variant.fields {
                    return quote!(Self::#name => content.add_formatted(&#text).optional());
                }
                let (mut members, mut bindings, mut labels) = (Vec::new(), Vec::new(), Vec::new());
                for (index, (field, member)) in
                    variant.fields.iter().zip(variant.fields.members()).enumerate()
                {
                    labels.push(match field.ident {
                        Some(_) => label(field, &member),
                        None => format!("_{index}"),
                    });
                    bindings.push(format_ident!("field_{index}"));
                    members.push(member);
                }
                quote! {
                    Self::#name { #(#members: #bindings),* } =>
                        content.set_top_level_type(#text) #(.add(#labels, #bindings))* .optional()
                }
            });
            Ok(quote!(match self { #(#arms),* }))
        }
        Data::Union(_) => Err(crate::fields::union_error(input)),
    }
}

/// The name under which a field is shown.
fn label(field: &syn::Field, member: &syn::Member) -> String {
    match (&field.ident, member) {
        (Some(name), _) => unraw(name),
        (None, syn::Member::Unnamed(index)) => index.index.to_string(),
        (None, syn::Member::Named(name)) => unraw(name),
    }
}
