//! `#[derive(Module)]`.
//!
//! A type with a parameter called `B` holds parameters or other modules: all its fields are modules. A type without
//! one is a constant: it has no parameters, and its record is empty.

mod constant;
mod display;
mod methods;
mod subject;

use crate::fields::{
    Field, Variant, backend_bounds, has_backend, other_types, read_fields, read_variants,
    refuse_other_backend, suffixed, union_error, unraw, with_predicates,
};
use crate::record::{RecordDeclaration, declare_struct, is_tuple};
use proc_macro2::{Ident, TokenStream};
use quote::quote;
use subject::Subject;
use syn::{Data, DeriveInput, GenericParam, Generics, Result};

/// What kind of type a module is, with its parts.
enum Parts {
    Struct { fields: Vec<Field>, tuple: bool },
    Enum(Vec<Variant>),
}

/// Implements `Module` and what belongs to it.
pub fn expand(kiln: &TokenStream, input: &DeriveInput) -> Result<TokenStream> {
    let TypeAttributes { custom_display, replaceable } = read_attributes(input)?;
    if !has_backend(&input.generics) {
        refuse_other_backend(&input.generics)?;
        if replaceable {
            let message = "a type without a backend is a constant, of which nothing is replaced";
            return Err(syn::Error::new_spanned(&input.ident, message));
        }
        return constant::expand(kiln, input, custom_display);
    }
    let parts = match &input.data {
        Data::Struct(data) => {
            Parts::Struct { fields: read_fields(&data.fields, "module")?, tuple: is_tuple(&data.fields) }
        }
        Data::Enum(data) => Parts::Enum(read_variants(data)?),
        Data::Union(_) => return Err(union_error(input)),
    };
    let name = &input.ident;
    let record_name = suffixed(name, "Record");
    let generics = module_generics(kiln, &input.generics)?;
    let inner = autodiff_generics(kiln, &input.generics)?;
    let subject = Subject { kiln, name, parts: &parts };

    let methods = subject.module_methods(&record_name);
    let valid = subject.valid_method();
    let clone = subject.clone_method();
    let display = display::implement(kiln, input, &generics, true, custom_display)?;
    let replacements = match &parts {
        Parts::Struct { fields, tuple: false } if replaceable => replacements(input, fields),
        _ if replaceable => {
            let message = "only a struct whose fields have names can be `replaceable`";
            return Err(syn::Error::new_spanned(&input.ident, message));
        }
        _ => TokenStream::new(),
    };
    let record = declare_record(kiln, input, &record_name, &generics, &parts)?;
    let inner_args = inner_arguments(kiln, &input.generics);
    let (params, args, clause) = generics.split_for_impl();
    let (inner_params, _, inner_clause) = inner.split_for_impl();
    Ok(quote! {
        #[automatically_derived]
        impl #params #kiln::module::Module<B> for #name #args #clause {
            type Record = #record_name #args;

            #methods
        }

        #[automatically_derived]
        impl #inner_params #kiln::module::AutodiffModule<B> for #name #args #inner_clause {
            type InnerModule = #name<#inner_args>;

            #valid
        }

        #[automatically_derived]
        impl #params ::core::clone::Clone for #name #args #clause {
            #clone
        }

        #replacements

        #display

        #record
    })
}

/// What attributes of the type say.
#[derive(Default)]
struct TypeAttributes {
    /// The user implements `ModuleDisplay`.
    custom_display: bool,
    /// There is a method for each field that replaces it.
    replaceable: bool,
}

/// Reads `#[module(custom_display, replaceable)]`.
fn read_attributes(input: &DeriveInput) -> Result<TypeAttributes> {
    let mut found = TypeAttributes::default();
    for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("module")) {
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("custom_display") {
                found.custom_display = true;
            } else if meta.path.is_ident("replaceable") {
                found.replaceable = true;
            } else {
                return Err(meta.error("the attributes of a module are `custom_display` and `replaceable`"));
            }
            Ok(())
        })?;
    }
    Ok(found)
}

/// What follows `with_` in the names of methods that every module has: a field of such a name gets none, which would hide it.
const METHODS: [&str; 3] = ["fixed", "float_dtype", "low_rank"];

/// `with_<field>` for every field of a struct that is no plain number.
fn replacements(input: &DeriveInput, fields: &[Field]) -> TokenStream {
    let vis = &input.vis;
    let is_method = |field: &Field| METHODS.contains(&unraw(&field.binding).as_str());
    let methods = fields.iter().filter(|field| !is_plain(&field.ty) && !is_method(field)).map(
        |Field { member, binding, ty, .. }| {
            let method = Ident::new(&format!("with_{}", unraw(binding)), binding.span());
            let doc = format!("The module with another `{}`; the rest is kept.", unraw(binding));
            quote! {
                #[doc = #doc]
                #[allow(dead_code, reason = "a program replaces some parts")]
                #[must_use]
                #vis fn #method(mut self, #binding: #ty) -> Self {
                    self.#member = #binding;
                    self
                }
            }
        },
    );
    let name = &input.ident;
    let (params, args, clause) = input.generics.split_for_impl();
    quote! {
        #[automatically_derived]
        impl #params #name #args #clause {
            #(#methods)*
        }
    }
}

/// Whether a type is one of Rust's own numbers or `bool`: they have names in small letters.
fn is_plain(ty: &syn::Type) -> bool {
    let syn::Type::Path(path) = ty else { return false };
    path.path.get_ident().is_some_and(|name| name.to_string().starts_with(|c: char| c.is_ascii_lowercase()))
}

/// The record type of a module and its `Record` implementation.
fn declare_record(
    kiln: &TokenStream,
    input: &DeriveInput,
    record_name: &Ident,
    generics: &Generics,
    parts: &Parts,
) -> Result<TokenStream> {
    let vis = &input.vis;
    let doc = format!("The record of [`{}`]: its parameters.", input.ident);
    let derived = match parts {
        Parts::Struct { fields, .. } => fields.iter().find(|field| !field.origins.is_empty()),
        Parts::Enum(_) => None,
    };
    let derived = derived.map(|field| field.key.as_str());
    let record = RecordDeclaration { kiln, vis, name: record_name, generics, derived };
    let of_module = |ty: &syn::Type| quote!(<#ty as #kiln::module::Module<B>>::Record);
    let (declaration, implementation) = match parts {
        Parts::Struct { fields, tuple } => {
            let declared: Vec<_> = fields
                .iter()
                .map(|field| {
                    let ty = of_module(&field.ty);
                    match &field.member {
                        syn::Member::Named(name) => quote!(pub #name: #ty),
                        syn::Member::Unnamed(_) => quote!(pub #ty),
                    }
                })
                .collect();
            let fields: Vec<_> =
                fields.iter().map(|field| record_field(field, of_module(&field.ty))).collect();
            (
                declare_struct(vis, record_name, generics, &declared, *tuple),
                record.implement_struct(&fields, *tuple)?,
            )
        }
        Parts::Enum(variants) => {
            let (params, _, clause) = generics.split_for_impl();
            let variants: Vec<_> = variants
                .iter()
                .map(|Variant { name, ty }| Variant {
                    name: name.clone(),
                    ty: ty.as_ref().map(|ty| syn::Type::Verbatim(of_module(ty))),
                })
                .collect();
            let declared = variants.iter().map(|Variant { name, ty }| match ty {
                Some(ty) => quote!(#name(#ty)),
                None => quote!(#name),
            });
            let declaration = quote!(#vis enum #record_name #params #clause { #(#declared),* });
            (declaration, record.implement_enum(&variants)?)
        }
    };
    Ok(quote! {
        #[doc = #doc]
        #[allow(missing_docs, clippy::large_enum_variant)]
        #declaration

        #implementation
    })
}

/// A module's field as its record has it.
fn record_field(field: &Field, ty: TokenStream) -> Field {
    Field {
        member: field.member.clone(),
        binding: field.binding.clone(),
        key: field.key.clone(),
        renamed: field.renamed,
        origins: Vec::new(),
        ty: syn::Type::Verbatim(ty),
    }
}

/// The generics of the `Module` implementation: each type parameter is a module.
fn module_generics(kiln: &TokenStream, generics: &Generics) -> Result<Generics> {
    let predicates = other_types(generics)
        .into_iter()
        .map(|ty| quote!(#ty: #kiln::module::Module<B> + #kiln::module::ModuleDisplay));
    with_predicates(generics, predicates)
}

/// The generics of the `AutodiffModule` implementation.
fn autodiff_generics(kiln: &TokenStream, generics: &Generics) -> Result<Generics> {
    let bounds = backend_bounds(generics);
    let backend = quote!(#kiln::tensor::backend::AutodiffBackend);
    let mut predicates = vec![quote!(B: #backend)];
    if !bounds.is_empty() {
        predicates.push(quote!(<B as #backend>::InnerBackend: #bounds));
    }
    for ty in other_types(generics) {
        let module = quote!(#kiln::module::AutodiffModule<B>);
        predicates.push(quote!(#ty: #module + #kiln::module::ModuleDisplay));
        predicates.push(quote! {
            <#ty as #module>::InnerModule:
                #kiln::module::Module<<B as #backend>::InnerBackend> + #kiln::module::ModuleDisplay
        });
    }
    with_predicates(generics, predicates)
}

/// The arguments of the module's type on the inner backend.
fn inner_arguments(kiln: &TokenStream, generics: &Generics) -> TokenStream {
    let arguments = generics.params.iter().map(|param| match param {
        GenericParam::Lifetime(param) => {
            let lifetime = &param.lifetime;
            quote!(#lifetime)
        }
        GenericParam::Type(param) if param.ident == "B" => {
            quote!(<B as #kiln::tensor::backend::AutodiffBackend>::InnerBackend)
        }
        GenericParam::Type(param) => {
            let ty = &param.ident;
            quote!(<#ty as #kiln::module::AutodiffModule<B>>::InnerModule)
        }
        GenericParam::Const(param) => {
            let name = &param.ident;
            quote!(#name)
        }
    });
    quote!(#(#arguments),*)
}

#[cfg(test)]
mod tests {
    use super::{METHODS, expand};
    use quote::quote;
    use std::path::Path;

    #[test]
    fn a_backend_of_another_name_is_refused() {
        let error =
            |input| expand(&quote!(kiln), &syn::parse_quote!(#input)).map_err(|error| error.to_string());
        let message = "the backend of a module is called `B`: write `B` for `Bk`";
        assert_eq!(
            error(quote!(
                struct A<Bk: Backend> {
                    l: Linear<Bk>,
                }
            ))
            .unwrap_err(),
            message
        );
        let bound = quote!(
            struct A<Bk>
            where
                Bk: burn::tensor::backend::AutodiffBackend,
            {
                l: Linear<Bk>,
            }
        );
        assert_eq!(error(bound).unwrap_err(), message);
        assert!(
            error(quote!(
                struct A<T: Clone> {
                    rate: T,
                }
            ))
            .is_ok()
        );
        assert!(
            error(quote!(
                struct A<B: Backend, O: OtherBackend> {
                    l: Linear<B>,
                    other: O,
                }
            ))
            .is_ok()
        );
    }

    #[test]
    fn fields_hide_no_method_of_the_trait() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../core/src/module/traits.rs");
        let source = std::fs::read_to_string(path).expect("the trait");
        let (_, module) = source.split_once("pub trait Module<").expect("the trait");
        let (module, _) = module.split_once("\n}").expect("its end");
        let mut methods: Vec<&str> = module
            .split("fn with_")
            .skip(1)
            .filter_map(|rest| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next())
            .collect();
        methods.sort_unstable();
        assert_eq!(methods, METHODS);
    }
}
