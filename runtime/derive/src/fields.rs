//! What the derives know of a type: its fields, its variants, its generics.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote};
use std::collections::HashSet;
use syn::meta::ParseNestedMeta;
use syn::punctuated::Punctuated;
use syn::{
    Attribute, DeriveInput, Error, Fields, GenericParam, Generics, LitFloat, LitStr, Member, Result, Token,
    Type, TypeParamBound,
};

/// One field of a struct.
pub struct Field {
    /// How it is accessed: a name or an index.
    pub member: Member,
    /// A variable that can hold its value.
    pub binding: Ident,
    /// Its name in records and in the paths that visitors see.
    pub key: String,
    /// Whether `key` was given by an attribute.
    pub renamed: bool,
    /// How its parameters were made of others: values of the runtime's `module::Origin`, without its path.
    pub origins: Vec<TokenStream>,
    /// Its type.
    pub ty: Type,
}

/// One variant of an enum that holds one value or none.
pub struct Variant {
    /// Its name.
    pub name: Ident,
    /// The type of its value, if it has one.
    pub ty: Option<Type>,
}

/// Reads the fields of a struct; `attribute` is the one that may hold `rename = "…"`.
pub fn read_fields(fields: &Fields, attribute: &str) -> Result<Vec<Field>> {
    let read = |(index, field): (usize, &syn::Field)| {
        let Attributes { rename, origins } = read_attributes(&field.attrs, attribute)?;
        let (member, binding, name) = match &field.ident {
            Some(name) => (Member::Named(name.clone()), name.clone(), unraw(name)),
            None => (Member::Unnamed(index.into()), format_ident!("field_{index}"), index.to_string()),
        };
        let renamed = rename.is_some();
        let key = rename.unwrap_or(name);
        Ok(Field { member, binding, key, renamed, origins, ty: field.ty.clone() })
    };
    let read = fields.iter().enumerate().map(read).collect::<Result<Vec<Field>>>()?;
    let mut keys = HashSet::new();
    match read.iter().zip(fields).find(|(field, _)| !keys.insert(&field.key)) {
        Some((field, at)) => {
            let message =
                format!("another field has the name \"{}\" in records; rename one of them", field.key);
            Err(Error::new_spanned(at, message))
        }
        None => Ok(read),
    }
}

/// Reads the variants of an enum, each of which has one unnamed field or none.
pub fn read_variants(data: &syn::DataEnum) -> Result<Vec<Variant>> {
    let read = |variant: &syn::Variant| {
        let mut fields = variant.fields.iter();
        let ty = match (&variant.fields, fields.next(), fields.next()) {
            (Fields::Unit, ..) => None,
            (Fields::Unnamed(_), Some(field), None) => Some(field.ty.clone()),
            _ => {
                let message = "a variant here holds one unnamed value, as in `Linear(Linear<B>)`, or none";
                return Err(Error::new_spanned(variant, message));
            }
        };
        Ok(Variant { name: variant.ident.clone(), ty })
    };
    data.variants.iter().map(read).collect()
}

/// What the attributes of a field say.
struct Attributes {
    rename: Option<String>,
    origins: Vec<TokenStream>,
}

/// Reads `rename = "…"`, and for modules what [`Field::origins`] says, from the attribute called `attribute`.
fn read_attributes(attributes: &[Attribute], attribute: &str) -> Result<Attributes> {
    let mut read = Attributes { rename: None, origins: Vec::new() };
    let mut norm = Norm::default();
    for found in attributes.iter().filter(|found| found.path().is_ident(attribute)) {
        found.parse_nested_meta(|meta| {
            if meta.path.is_ident("rename") {
                read.rename = Some(meta.value()?.parse::<LitStr>()?.value());
            } else if attribute == "module" && !read_origin(&meta, &mut read.origins, &mut norm)? {
                let known = "`rename`, `from`, `batch_norm` (with `epsilon` and `biased`) and `constant`";
                return Err(meta.error(format!("the attributes of a module's field are {known}")));
            } else if attribute != "module" {
                return Err(meta.error("the attribute of a field is `rename = \"…\"`"));
            }
            Ok(())
        })?;
    }
    read.origins.extend(norm.origin());
    Ok(read)
}

/// A batch normalization that was folded into the field.
#[derive(Default)]
struct Norm {
    path: Option<String>,
    epsilon: Option<LitFloat>,
    biased: bool,
}

impl Norm {
    fn origin(&self) -> Option<TokenStream> {
        let Self { path, epsilon, biased } = self;
        let path = path.as_ref()?;
        let epsilon = epsilon.as_ref().map_or_else(|| quote!(1e-5), |epsilon| quote!(#epsilon));
        Some(quote!(BatchNorm { path: #path, epsilon: #epsilon, biased: #biased }))
    }
}

/// Reads one part of an attribute that says what a field's parameters were made of; `false` when it is something else.
fn read_origin(meta: &ParseNestedMeta<'_>, origins: &mut Vec<TokenStream>, norm: &mut Norm) -> Result<bool> {
    if meta.path.is_ident("batch_norm") {
        norm.path = Some(meta.value()?.parse::<LitStr>()?.value());
    } else if meta.path.is_ident("epsilon") {
        norm.epsilon = Some(meta.value()?.parse()?);
    } else if meta.path.is_ident("biased") {
        norm.biased = true;
    } else if meta.path.is_ident("constant") {
        origins.push(quote!(Constant));
    } else if meta.path.is_ident("from") && meta.input.peek(Token![=]) {
        let text: LitStr = meta.value()?.parse()?;
        origins.push(quote!(Derived { parameter: "", from: #text }));
    } else if meta.path.is_ident("from") {
        meta.parse_nested_meta(|inner| {
            let parameter = inner.path.require_ident().map(unraw)?;
            let text: LitStr = inner.value()?.parse()?;
            origins.push(quote!(Derived { parameter: #parameter, from: #text }));
            Ok(())
        })?;
    } else {
        return Ok(false);
    }
    Ok(true)
}

/// A name without the `r#` of a raw identifier.
pub fn unraw(name: &Ident) -> String {
    let name = name.to_string();
    name.strip_prefix("r#").map(str::to_owned).unwrap_or(name)
}

/// Whether the type has the backend parameter, which is called `B`.
pub fn has_backend(generics: &Generics) -> bool {
    generics.type_params().any(|param| param.ident == "B")
}

/// The type parameters apart from the backend.
pub fn other_types(generics: &Generics) -> Vec<Ident> {
    generics.type_params().filter(|param| param.ident != "B").map(|param| param.ident.clone()).collect()
}

/// `generics` with one more type parameter, bounded as written.
pub fn with_param(generics: &Generics, param: TokenStream) -> Result<Generics> {
    let mut generics = generics.clone();
    generics.params.push(GenericParam::Type(syn::parse2(param)?));
    Ok(generics)
}

/// `generics` with more predicates in the where clause.
pub fn with_predicates(
    generics: &Generics,
    predicates: impl IntoIterator<Item = TokenStream>,
) -> Result<Generics> {
    let mut generics = generics.clone();
    let clause = generics.make_where_clause();
    for predicate in predicates {
        clause.predicates.push(syn::parse2(predicate)?);
    }
    Ok(generics)
}

/// The bounds of the backend parameter, as tokens: `Backend` or a trait of the user's.
pub fn backend_bounds(generics: &Generics) -> TokenStream {
    let bounds = bounds_of(generics, "B");
    quote!(#bounds)
}

/// The bounds of a type parameter, where it stands and in the where clause.
fn bounds_of(generics: &Generics, name: &str) -> Punctuated<TypeParamBound, Token![+]> {
    let param = generics.type_params().find(|param| param.ident == name);
    let mut bounds = param.map(|param| param.bounds.clone()).unwrap_or_default();
    if let Some(clause) = &generics.where_clause {
        for predicate in &clause.predicates {
            if let syn::WherePredicate::Type(predicate) = predicate
                && matches!(&predicate.bounded_ty, Type::Path(path) if path.path.is_ident(name))
            {
                bounds.extend(predicate.bounds.clone());
            }
        }
    }
    bounds
}

/// Refuses a backend parameter of another name than `B`: the type would be taken for one without parameters, and lose them silently.
pub fn refuse_other_backend(generics: &Generics) -> Result<()> {
    for name in other_types(generics) {
        let is_backend = |bound: &TypeParamBound| match bound {
            TypeParamBound::Trait(bound) => {
                let last = bound.path.segments.last();
                last.is_some_and(|segment| unraw(&segment.ident).ends_with("Backend"))
            }
            _ => false,
        };
        if bounds_of(generics, &unraw(&name)).iter().any(is_backend) {
            let message = format!("the backend of a module is called `B`: write `B` for `{name}`");
            return Err(Error::new_spanned(name, message));
        }
    }
    Ok(())
}

/// The error for a `union`.
pub fn union_error(input: &DeriveInput) -> Error {
    Error::new_spanned(&input.ident, "this cannot be derived for a union")
}

/// An identifier made of a type's name and a suffix.
pub fn suffixed(name: &Ident, suffix: &str) -> Ident {
    Ident::new(&format!("{}{suffix}", unraw(name)), Span::call_site())
}
