//! `#[derive(Record)]`, and the record types of modules.

use crate::fields::{
    Field, Variant, has_backend, read_fields, read_variants, suffixed, union_error, with_param,
};
use proc_macro2::{Ident, TokenStream};
use quote::quote;
use syn::{Data, DeriveInput, Fields, Generics, Result, Visibility};

/// A record to declare, whether the user wrote it or a module has it.
pub struct RecordDeclaration<'a> {
    /// Path of the runtime.
    pub kiln: &'a TokenStream,
    /// Visibility of the record and of its item.
    pub vis: &'a Visibility,
    /// Name of the record.
    pub name: &'a Ident,
    /// Its generics.
    pub generics: &'a Generics,
    /// A field whose contents in a checkpoint are others than the record's: the item's name for serde ends with it, so that
    /// a recorder of checkpoints can refuse. No format stores the name.
    pub derived: Option<&'a str>,
}

/// Implements `Record` for the type.
pub fn expand(kiln: &TokenStream, input: &DeriveInput) -> Result<TokenStream> {
    let record = RecordDeclaration {
        kiln,
        vis: &input.vis,
        name: &input.ident,
        generics: &input.generics,
        derived: None,
    };
    match &input.data {
        Data::Struct(data) => {
            record.implement_struct(&read_fields(&data.fields, "record")?, is_tuple(&data.fields))
        }
        Data::Enum(data) => record.implement_enum(&read_variants(data)?),
        Data::Union(_) => Err(union_error(input)),
    }
}

/// Whether the fields have no names.
pub fn is_tuple(fields: &Fields) -> bool {
    matches!(fields, Fields::Unnamed(_))
}

/// A struct's declaration from its fields' declarations.
pub fn declare_struct(
    vis: &Visibility,
    name: &Ident,
    generics: &Generics,
    fields: &[TokenStream],
    tuple: bool,
) -> TokenStream {
    let (params, _, clause) = generics.split_for_impl();
    if tuple {
        quote!(#vis struct #name #params (#(#fields),*) #clause;)
    } else {
        quote!(#vis struct #name #params #clause { #(#fields),* })
    }
}

impl RecordDeclaration<'_> {
    /// The item of a struct and the conversions.
    pub fn implement_struct(&self, fields: &[Field], tuple: bool) -> Result<TokenStream> {
        let kiln = self.kiln;
        let item_name = suffixed(self.name, "Item");
        let generics = self.item_generics()?;
        let declared: Vec<_> = fields
            .iter()
            .map(|field| {
                let ty = &field.ty;
                let ty = quote!(<#ty as #kiln::record::Record<B>>::Item<__Precision>);
                match (&field.member, field.renamed) {
                    (syn::Member::Named(name), true) => {
                        let key = &field.key;
                        quote!(#[serde(rename = #key)] pub #name: #ty)
                    }
                    (syn::Member::Named(name), false) => quote!(pub #name: #ty),
                    (syn::Member::Unnamed(_), _) => quote!(pub #ty),
                }
            })
            .collect();
        let item = declare_struct(self.vis, &item_name, &generics, &declared, tuple);
        let members: Vec<_> = fields.iter().map(|field| &field.member).collect();
        let into_item = quote!(#item_name {
            #(#members: #kiln::record::Record::<B>::into_item::<__Precision>(self.#members)),*
        });
        let from_item = quote!(Self {
            #(#members: #kiln::record::Record::<B>::from_item::<__Precision>(item.#members, device)),*
        });
        self.implement(&item_name, &generics, item, into_item, from_item, fields.is_empty())
    }

    /// The item of an enum and the conversions.
    pub fn implement_enum(&self, variants: &[Variant]) -> Result<TokenStream> {
        let kiln = self.kiln;
        let item_name = suffixed(self.name, "Item");
        let generics = self.item_generics()?;
        let (params, _, clause) = generics.split_for_impl();
        let vis = self.vis;
        let declared = variants.iter().map(|Variant { name, ty }| match ty {
            Some(ty) => quote!(#name(<#ty as #kiln::record::Record<B>>::Item<__Precision>)),
            None => quote!(#name),
        });
        let item = quote!(#vis enum #item_name #params #clause { #(#declared),* });
        let into_arms = variants.iter().map(|Variant { name, ty }| match ty {
            Some(_) => quote! {
                Self::#name(value) => #item_name::#name(#kiln::record::Record::<B>::into_item::<__Precision>(value))
            },
            None => quote!(Self::#name => #item_name::#name),
        });
        let into_item = quote!(match self { #(#into_arms),* });
        let from_arms = variants.iter().map(|Variant { name, ty }| match ty {
            Some(_) => quote! {
                #item_name::#name(value) =>
                    Self::#name(#kiln::record::Record::<B>::from_item::<__Precision>(value, device))
            },
            None => quote!(#item_name::#name => Self::#name),
        });
        let from_item = quote!(match item { #(#from_arms),* });
        let empty = variants.iter().all(|variant| variant.ty.is_none());
        self.implement(&item_name, &generics, item, into_item, from_item, empty)
    }

    /// The generics of the item: those of the record, the precision `__Precision`, and the backend where it is missing.
    fn item_generics(&self) -> Result<Generics> {
        let kiln = self.kiln;
        let generics = with_param(self.generics, quote!(__Precision: #kiln::record::PrecisionSettings))?;
        if has_backend(&generics) {
            return Ok(generics);
        }
        with_param(&generics, quote!(B: #kiln::tensor::backend::Backend))
    }

    /// Puts the parts together. An item with no content (`empty`) cannot use its parameters; a plain name of the
    /// variant, or nothing, stands for it then.
    fn implement(
        &self,
        item_name: &Ident,
        item_generics: &Generics,
        item: TokenStream,
        into_item: TokenStream,
        from_item: TokenStream,
        empty: bool,
    ) -> Result<TokenStream> {
        let (kiln, name) = (self.kiln, self.name);
        let record_generics = if has_backend(self.generics) {
            self.generics.clone()
        } else {
            with_param(self.generics, quote!(B: #kiln::tensor::backend::Backend))?
        };
        let (impl_params, _, clause) = record_generics.split_for_impl();
        let (_, args, _) = self.generics.split_for_impl();
        let (_, item_args, _) = item_generics.split_for_impl();
        let serde_path = quote!(#kiln::serde).to_string().replace(' ', "");
        let doc = format!("What a record of [`{name}`] holds, in one precision.");
        let item = if empty { strip_generics(item, item_name, self.vis) } else { item };
        let item_type = if empty { quote!(#item_name) } else { quote!(#item_name #item_args) };
        let renamed = self.derived.map(|field| {
            let name = format!("{item_name} {field}");
            quote!(rename = #name,)
        });
        let unused = if empty { quote!(let _ = device;) } else { quote!() };
        Ok(quote! {
            #[doc = #doc]
            #[allow(missing_docs, clippy::large_enum_variant)]
            #[derive(#kiln::serde::Serialize, #kiln::serde::Deserialize)]
            #[serde(#renamed crate = #serde_path, bound = "")]
            #item

            #[automatically_derived]
            impl #impl_params #kiln::record::Record<B> for #name #args #clause {
                type Item<__Precision: #kiln::record::PrecisionSettings> = #item_type;

                #[allow(unused_variables)]
                fn into_item<__Precision: #kiln::record::PrecisionSettings>(self) -> Self::Item<__Precision> {
                    #into_item
                }

                #[allow(unused_variables)]
                fn from_item<__Precision: #kiln::record::PrecisionSettings>(
                    item: Self::Item<__Precision>,
                    device: &B::Device,
                ) -> Self {
                    #unused
                    #from_item
                }
            }
        })
    }
}

/// Declares an item without content again, without generics.
fn strip_generics(item: TokenStream, name: &Ident, vis: &Visibility) -> TokenStream {
    match syn::parse2::<syn::Item>(item) {
        Ok(syn::Item::Enum(declared)) => {
            let variants = declared.variants;
            quote!(#vis enum #name { #variants })
        }
        Ok(_) => quote!(#vis struct #name {}),
        Err(error) => error.to_compile_error(),
    }
}
