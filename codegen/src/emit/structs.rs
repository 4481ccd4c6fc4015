//! Structs: fields, constructor, `forward`.

use super::expression::derived_value;
use super::{Emitter, Result, field_ids, tensor_type};
use crate::code::{Code, Init, Literal};
use crate::ids::{FieldId, StructId};
use crate::names::{comment, ident};
use crate::print::markers;
use crate::structs::{Derived, Parameter, ParameterKind, Struct};
use crate::tree::FieldOrigin;
use crate::{Defect, literals};
use kiln_types::{DType, DTypeKind};
use proc_macro2::TokenStream;
use quote::quote;
use std::collections::HashSet;

/// Constructors with more parameters take them as a struct.
const MAX_ARGUMENTS: usize = 6;

/// What an argument of a constructor is.
#[derive(PartialEq)]
enum Argument<'p> {
    Parameter(&'p str),
    Literal(Option<&'p Literal>),
}

impl<'p> Emitter<'p> {
    /// Every item of the file, the model first.
    pub(super) fn items(&mut self) -> Result<TokenStream> {
        let mut items = TokenStream::new();
        for &id in self.used.iter().rev() {
            items.extend(markers::blank());
            items.extend(if id == self.program.root {
                self.model()?
            } else if self.structure(id).is_function {
                self.free_function(id)?
            } else {
                self.module_struct(id)?
            });
        }
        items.extend(self.result_names());
        Ok(items)
    }

    fn module_struct(&mut self, id: StructId) -> Result<TokenStream> {
        let name = ident(self.struct_name(id));
        let doc = self.struct_doc(id)?;
        let fields = self.field_declarations(id)?;
        let constructor = self.constructor(id)?;
        let forward = self.forward(id, false)?;
        let forward_async = if self.reads[id] { Some(self.forward(id, true)?) } else { None };
        let (module, backend) =
            (self.uses.path("module::Module"), self.uses.path("tensor::backend::Backend"));
        let blank = markers::blank();
        let config = self.config_struct(id);
        let replaceable = self.replaceable();
        Ok(quote! {
            #[doc = #doc]
            #[derive(#module, Debug)]
            #replaceable
            pub struct #name<B: #backend> { #fields }

            #config

            #blank
            impl<B: #backend> #name<B> {
                #constructor
                #blank
                #forward
                #forward_async
            }
        })
    }

    /// What gives a struct a method for each field that replaces it: of models that are to be trained.
    pub(super) fn replaceable(&self) -> Option<TokenStream> {
        self.program.tree.trainable.then(|| quote!(#[module(replaceable)]))
    }

    /// What a struct is: its class in the original, and where it stands there.
    pub(super) fn struct_doc(&self, id: StructId) -> Result<String> {
        let modules = &self.program.tree.modules;
        let structure = self.structure(id);
        let mut members = structure.members.clone();
        members.sort_unstable();
        let mut seen = HashSet::new();
        let paths = members.iter().map(|&member| modules[member].path.as_str());
        let paths: Vec<&str> = paths.filter(|path| seen.insert(*path)).collect();
        let class = comment(&modules[structure.first()?].class);
        let class = if class.contains('.') { format!(" `{class}`:") } else { String::new() };
        Ok(match paths.as_slice() {
            [] | ["", ..] => format!(" Part of [`{}`].", self.struct_name(self.program.root)),
            [path] => format!("{class} `{}`.", comment(path)),
            [a, b] => format!("{class} `{}` and `{}`.", comment(a), comment(b)),
            [path, others @ ..] => format!("{class} `{}` and {} more.", comment(path), others.len()),
        })
    }

    /// The fields of a struct.
    pub(super) fn field_declarations(&mut self, id: StructId) -> Result<TokenStream> {
        let structure = self.structure(id);
        let keys = &self.program.modules[structure.first()?].fields;
        let mut tokens = TokenStream::new();
        for (field, init) in structure.body.inits.enumerate() {
            let text = self.names.field(id, field)?;
            let name = ident(text);
            let key = keys.get(field).map(|field| field.key.as_str()).filter(|key| *key != text);
            let attribute = attribute(key, structure.origins.get(field).and_then(Option::as_ref));
            let ty = self.field_type(init);
            let ty = if structure.optional.contains_key(&field) { quote!(Option<#ty>) } else { ty };
            tokens.extend(quote!(#attribute #name: #ty,));
        }
        for parameter in structure.parameters.iter().filter(|parameter| parameter.kept) {
            let (name, ty) = (ident(&parameter.name), self.parameter_type(parameter));
            tokens.extend(quote!(#name: #ty,));
        }
        Ok(tokens)
    }

    /// The type of a constructor's or function's parameter.
    pub(super) fn parameter_type(&mut self, parameter: &Parameter) -> TokenStream {
        match parameter.kind {
            ParameterKind::Number => quote!(usize),
            ParameterKind::Flag => quote!(bool),
            ParameterKind::Choice(ty) => self.uses.path(ty),
        }
    }

    /// `name: usize` for every parameter of a struct's constructor.
    fn constructor_parameters(&mut self, id: StructId) -> Vec<TokenStream> {
        let parameters = given(self.structure(id));
        parameters
            .map(|parameter| {
                let (name, ty) = (ident(&parameter.name), self.parameter_type(parameter));
                quote!(#name: #ty)
            })
            .collect()
    }

    fn field_type(&mut self, init: &Init) -> TokenStream {
        match init {
            Init::Layer { ty, .. } => {
                let ty = self.uses.path(ty);
                quote!(#ty<B>)
            }
            Init::Parameter { dtype, rank, .. } => {
                let param = self.uses.path("module::Param");
                let tensor = tensor_type(&mut self.uses, dtype.kind(), *rank, false);
                quote!(#param<#tensor>)
            }
            Init::Module { structure, .. } => {
                let name = ident(self.struct_name(*structure));
                quote!(#name<B>)
            }
            Init::Sequence { structure, .. } => {
                let name = ident(self.struct_name(*structure));
                quote!(Vec<#name<B>>)
            }
        }
    }

    /// `fn new(…, device)`.
    fn constructor(&mut self, id: StructId) -> Result<TokenStream> {
        let structure = self.structure(id);
        let values = self.field_values(id)?;
        let names: Vec<_> = given(structure).map(|parameter| ident(&parameter.name)).collect();
        let parameters = self.constructor_parameters(id);
        let kept = structure.parameters.iter().filter(|parameter| parameter.kept).map(|parameter| {
            let name = ident(&parameter.name);
            match parameter.derived.as_ref().map(derived_value) {
                Some(value) => quote!(#name: #value),
                None => quote!(#name),
            }
        });
        let kept: Vec<_> = kept.collect();
        if names.len() <= MAX_ARGUMENTS {
            return Ok(quote! {
                /// Makes it with fresh parameters.
                pub fn new(#(#parameters,)* device: &B::Device) -> Self {
                    Self { #values #(#kept),* }
                }
            });
        }
        let config = self.config_name(id);
        Ok(quote! {
            /// Makes it with fresh parameters.
            pub fn new(config: &#config, device: &B::Device) -> Self {
                let &#config { #(#names),* } = config;
                Self { #values #(#kept),* }
            }
        })
    }

    /// The name of the struct that holds a constructor's parameters.
    fn config_name(&self, id: StructId) -> proc_macro2::Ident {
        ident(&format!("{}Config", self.struct_name(id)))
    }

    fn config_struct(&mut self, id: StructId) -> TokenStream {
        let parameters = self.constructor_parameters(id);
        if parameters.len() <= MAX_ARGUMENTS {
            return TokenStream::new();
        }
        let config = self.config_name(id);
        let doc = format!(" Sizes of a [`{}`].", self.struct_name(id));
        let blank = markers::blank();
        quote! {
            #blank
            #[doc = #doc]
            #[derive(Clone, Debug)]
            pub struct #config { #(#parameters),* }
        }
    }

    /// `field: value,` for every field.
    pub(super) fn field_values(&mut self, id: StructId) -> Result<TokenStream> {
        let structure = self.structure(id);
        let mut tokens = TokenStream::new();
        for field in field_ids(structure) {
            let name = ident(self.names.field(id, field)?);
            let value = self.field_value(id, field)?;
            let Some(&slot) = structure.optional.get(&field) else {
                tokens.extend(quote!(#name: #value,));
                continue;
            };
            let flag = self.initializer(id)?.code(&Code::Slot(slot))?;
            let derived = structure.parameter_of(slot).and_then(|parameter| parameter.derived.as_ref());
            // A comparison binds less than a method.
            let flag = match derived {
                Some(Derived::Equal(..) | Derived::Differ(..)) => quote!((#flag)),
                Some(Derived::Half(_)) | None => flag,
            };
            tokens.extend(quote!(#name: #flag.then(|| #value),));
        }
        Ok(tokens)
    }

    fn field_value(&mut self, id: StructId, field: FieldId) -> Result<TokenStream> {
        let structure = self.structure(id);
        let init = structure.body.inits.get(field).ok_or(Defect::Unnamed)?;
        Ok(match init {
            Init::Layer { config, dtype, fixed, .. } => {
                let config = self.initializer(id)?.code(config)?;
                let dtype = self.unusual_dtype(*dtype).map(|dtype| quote!(.with_float_dtype(#dtype)));
                let names = fixed.iter().map(|name| literals::string(name));
                let fixed = (!fixed.is_empty()).then(|| quote!(.with_fixed(&[#(#names),*])));
                quote!(#config.init(device) #dtype #fixed)
            }
            Init::Parameter { dtype, rank, dims, fixed } => {
                let dims = self.initializer(id)?.all(dims)?;
                let unusual = self.unusual_dtype(*dtype);
                if dtype.kind() == DTypeKind::Float {
                    let zeros = self.uses.path("nn::Initializer");
                    let dtype = unusual.map(|dtype| quote!(.with_dtype(#dtype)));
                    let fixed = fixed.then(|| quote!(.set_require_grad(false)));
                    return Ok(quote!(#zeros::Zeros.init([#(#dims),*], device) #dtype #fixed));
                }
                let (param, id) = (self.uses.path("module::Param"), self.uses.path("module::ParamId"));
                let tensor = tensor_type(&mut self.uses, dtype.kind(), *rank, true);
                let options = unusual.map_or(quote!(device), |dtype| quote!((device, #dtype)));
                quote!(#param::initialized(#id::new(), #tensor::empty([#(#dims),*], #options)))
            }
            Init::Module { structure, args } => self.construct(id, *structure, args)?,
            Init::Sequence { structure: child, elements } => {
                let arguments: Vec<Vec<Argument<'_>>> = elements
                    .iter()
                    .map(|args| args.iter().map(|arg| argument(structure, arg)).collect())
                    .collect();
                let equal = arguments.iter().all(|other| *other == arguments[0]);
                let shown = if equal { &elements[..1] } else { elements };
                let items: Vec<_> =
                    shown.iter().map(|args| self.construct(id, *child, args)).collect::<Result<_>>()?;
                let length = literals::int(elements.len() as i64);
                match items.as_slice() {
                    [item] => quote!((0..#length).map(|_| #item).collect()),
                    items => markers::list(items),
                }
            }
        })
    }

    /// A dtype that a backend does not give to parameters of its kind when nothing is said. It must be said: not every
    /// record format knows it.
    fn unusual_dtype(&mut self, dtype: DType) -> Option<TokenStream> {
        if matches!(dtype, DType::F32 | DType::I64 | DType::Bool) {
            return None;
        }
        let (path, variant) = (self.uses.path("tensor::DType"), ident(&format!("{dtype:?}")));
        Some(quote!(#path::#variant))
    }

    /// A call of a child's constructor.
    fn construct(&mut self, id: StructId, child: StructId, args: &[Code]) -> Result<TokenStream> {
        let name = ident(self.struct_name(child));
        let values = self.initializer(id)?.all(args)?;
        if values.len() <= MAX_ARGUMENTS {
            return Ok(quote!(#name::new(#(#values,)* device)));
        }
        let config = self.config_name(child);
        let structure = self.structure(id);
        let fields = given(self.structure(child)).zip(args).zip(&values).map(|((parameter, arg), value)| {
            let name = ident(&parameter.name);
            match argument(structure, arg) {
                Argument::Parameter(same) if same == parameter.name => quote!(#name),
                _ => quote!(#name: #value),
            }
        });
        Ok(quote!(#name::new(&#config { #(#fields),* }, device)))
    }
}

/// The parameters that a struct's constructor takes.
fn given(structure: &Struct) -> impl Iterator<Item = &Parameter> {
    structure.parameters.iter().filter(|parameter| parameter.is_given())
}

/// What an argument in a struct's constructor is.
fn argument<'p>(structure: &'p Struct, arg: &Code) -> Argument<'p> {
    let Code::Slot(slot) = arg else { return Argument::Literal(None) };
    match structure.parameter_of(*slot) {
        Some(parameter) => Argument::Parameter(&parameter.name),
        None => Argument::Literal(structure.body.slots.get(*slot).and_then(|slot| slot.value.as_ref())),
    }
}

/// `#[module(…)]`: the name in records, and what the field's parameters were made of.
fn attribute(rename: Option<&str>, origin: Option<&FieldOrigin>) -> TokenStream {
    let mut parts: Vec<TokenStream> = Vec::new();
    if let Some(key) = rename {
        let key = literals::string(key);
        parts.push(quote!(rename = #key));
    }
    match origin {
        None => {}
        Some(FieldOrigin::Constant) => parts.push(quote!(constant)),
        Some(FieldOrigin::BatchNorm { path, epsilon, biased }) => {
            let path = literals::string(path);
            parts.push(quote!(batch_norm = #path));
            if epsilon.0.to_f64() != 1e-5 {
                let epsilon = literals::float(epsilon.0.to_f64());
                parts.push(quote!(epsilon = #epsilon));
            }
            if *biased {
                parts.push(quote!(biased));
            }
        }
        Some(FieldOrigin::Derived(texts)) => {
            let named = texts.iter().map(|(name, text)| {
                let text = literals::string(text);
                if name.is_empty() {
                    return quote!(#text);
                }
                let name = ident(name);
                quote!(#name = #text)
            });
            let named: Vec<TokenStream> = named.collect();
            let alone = texts.iter().any(|(name, _)| name.is_empty());
            parts.push(if alone { quote!(from = #(#named)*) } else { quote!(from(#(#named),*)) });
        }
    }
    if parts.is_empty() { TokenStream::new() } else { quote!(#[module(#(#parts),*)]) }
}
