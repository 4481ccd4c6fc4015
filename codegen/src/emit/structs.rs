//! Structs: fields, constructor, `forward`.

use super::expression::derived_value;
use super::{Emitter, MOST_PARAMETERS, Result, field_ids, syntax, tensor_type};
use crate::code::{Code, Init, Literal};
use crate::ids::{Id, SlotId, StructId};
use crate::names::{comment, ident};
use crate::print::markers;
use crate::structs::{Derived, Parameter, ParameterKind, Struct};
use crate::tree::FieldOrigin;
use crate::{Defect, literals};
use kiln_types::{DType, DTypeKind};
use proc_macro2::TokenStream;
use quote::quote;
use std::collections::HashSet;
use syn::{Attribute, Expr, FieldValue, ImplItem, ImplItemFn, Item, ItemImpl, ItemStruct, Path};

/// Constructors with more parameters take them as a struct; the device is one more.
const MAX_ARGUMENTS: usize = MOST_PARAMETERS - 1;

/// What an argument of a constructor is.
#[derive(PartialEq)]
enum Argument<'p> {
    Parameter(&'p str),
    Literal(Option<&'p Literal>),
}

impl<'p> Emitter<'p> {
    /// Every item of the file, the model first.
    pub(super) fn items(&mut self) -> Result<Vec<Item>> {
        let mut items = Vec::new();
        for &id in self.used.iter().rev() {
            items.push(syntax::parsed(markers::blank())?);
            items.extend(if id == self.program.root {
                self.model()?
            } else if self.structure(id).is_function {
                self.free_function(id)?
            } else {
                self.module_struct(id)?
            });
        }
        items.extend(syntax::items(self.result_names()?)?);
        Ok(items)
    }

    fn module_struct(&mut self, id: StructId) -> Result<Vec<Item>> {
        let name = ident(self.struct_name(id));
        let doc = self.struct_doc(id)?;
        let fields = self.field_declarations(id)?;
        let mut methods = vec![ImplItem::Fn(self.constructor(id)?)];
        methods.push(syntax::parsed(markers::blank())?);
        methods.push(ImplItem::Fn(self.forward(id, false)?));
        if self.reads[id] {
            methods.push(syntax::parsed(markers::blank())?);
            methods.push(ImplItem::Fn(self.forward(id, true)?));
        }
        let (module, backend) =
            (self.uses.path("module::Module"), self.uses.path("tensor::backend::Backend"));
        let replaceable = self.replaceable();
        let mut structure: ItemStruct = syntax::parsed(quote! {
            #[doc = #doc]
            #[derive(#module, Debug)]
            #replaceable
            pub struct #name<B: #backend> {}
        })?;
        structure.fields = syntax::fields(fields);
        let mut items = vec![Item::Struct(structure)];
        items.extend(syntax::items(self.config_struct(id))?);
        items.push(syntax::parsed(markers::blank())?);
        let mut implementation: ItemImpl = syntax::parsed(quote!(impl<B: #backend> #name<B> {}))?;
        implementation.items = methods;
        items.push(Item::Impl(implementation));
        Ok(items)
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
    pub(super) fn field_declarations(&mut self, id: StructId) -> Result<Vec<syn::Field>> {
        let structure = self.structure(id);
        let keys = &self.program.modules[structure.first()?].fields;
        let mut fields = Vec::with_capacity(structure.body.inits.len());
        for (field, init) in structure.body.inits.enumerate() {
            let text = self.names.field(id, field)?;
            let name = ident(text);
            let key = keys.get(field).map(|field| field.key.as_str()).filter(|key| *key != text);
            let attribute = attribute(key, structure.origins.get(field).and_then(Option::as_ref));
            let mut ty = self.field_type(init)?;
            if structure.optional.contains_key(&field) {
                let some = vec![syntax::type_argument(ty)];
                ty = syntax::generic(ident("Option").into(), some, false);
            }
            fields.push(syntax::declaration(attribute.into_iter().collect(), name, syntax::ty(ty)));
        }
        for parameter in structure.parameters.iter().filter(|parameter| parameter.kept) {
            let ty = syntax::ty(self.parameter_type(parameter));
            fields.push(syntax::declaration(Vec::new(), ident(&parameter.name), ty));
        }
        Ok(fields)
    }

    /// The type of a constructor's or function's parameter.
    pub(super) fn parameter_type(&mut self, parameter: &Parameter) -> Path {
        match parameter.kind {
            ParameterKind::Number => ident("usize").into(),
            ParameterKind::Flag => ident("bool").into(),
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

    fn field_type(&mut self, init: &Init) -> Result<Path> {
        let of_backend = |path| syntax::generic(path, vec![syntax::type_argument(ident("B").into())], false);
        Ok(match init {
            Init::Layer { ty, .. } => of_backend(self.uses.path(ty)),
            Init::Parameter { dtype, rank, .. } => {
                let param = self.uses.path("module::Param");
                let tensor = tensor_type(&mut self.uses, dtype.kind(), *rank, false)?;
                syntax::generic(param, vec![syntax::type_argument(tensor)], false)
            }
            Init::Module { structure, .. } => of_backend(ident(self.struct_name(*structure)).into()),
            Init::Sequence(items) => {
                let item = self.field_type(items.first().ok_or(Defect::EmptyLoop)?)?;
                syntax::generic(ident("Vec").into(), vec![syntax::type_argument(item)], false)
            }
        })
    }

    /// `fn new(…, device)`.
    fn constructor(&mut self, id: StructId) -> Result<ImplItemFn> {
        let structure = self.structure(id);
        let mut values = self.field_values(id)?;
        let names: Vec<_> = given(structure).map(|parameter| ident(&parameter.name)).collect();
        let parameters = self.constructor_parameters(id);
        for parameter in structure.parameters.iter().filter(|parameter| parameter.kept) {
            let value = parameter.derived.as_ref().map(derived_value);
            let value = value.map(syntax::parsed).transpose()?;
            values.push(syntax::field_value(ident(&parameter.name), value));
        }
        let made = syntax::structure(ident("Self").into(), values);
        let (frame, start) = if names.len() <= MAX_ARGUMENTS {
            let frame = quote! {
                /// Makes it with fresh parameters.
                pub fn new(#(#parameters,)* device: &B::Device) -> Self {}
            };
            (frame, Vec::new())
        } else {
            let config = self.config_name(id);
            let frame = quote! {
                /// Makes it with fresh parameters.
                pub fn new(config: &#config, device: &B::Device) -> Self {}
            };
            (frame, vec![syntax::parsed(quote!(let &#config { #(#names),* } = config;))?])
        };
        let mut function: ImplItemFn = syntax::parsed(frame)?;
        function.block = syntax::block(start, made);
        Ok(function)
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

    /// `field: value` for every field.
    pub(super) fn field_values(&mut self, id: StructId) -> Result<Vec<FieldValue>> {
        let structure = self.structure(id);
        let mut values = Vec::with_capacity(structure.body.inits.len());
        for field in field_ids(structure) {
            let name = ident(self.names.field(id, field)?);
            let init = structure.body.inits.get(field).ok_or(Defect::Unnamed)?;
            let mut value = self.initial(id, init)?;
            if let Some(&slot) = structure.optional.get(&field) {
                let flag = self.initializer(id)?.code(&Code::Slot(slot))?;
                let derived = structure.parameter_of(slot).and_then(|parameter| parameter.derived.as_ref());
                // A comparison binds less than a method.
                let flag = match derived {
                    Some(Derived::Equal(..) | Derived::Differ(..)) => syntax::paren(flag),
                    Some(Derived::Half(_)) | None => flag,
                };
                value = syntax::parsed(quote!(#flag.then(|| #value)))?;
            }
            values.push(syntax::field_value(name, Some(value)));
        }
        Ok(values)
    }

    /// What a field, or an item of one, is made with.
    fn initial(&mut self, id: StructId, init: &Init) -> Result<Expr> {
        let structure = self.structure(id);
        let device = || syntax::variable(ident("device"));
        Ok(match init {
            Init::Layer { config, dtype, fixed, .. } => {
                let config = self.initializer(id)?.code(config)?;
                let mut value = syntax::method(config, ident("init"), vec![device()]);
                if let Some(dtype) = self.unusual_dtype(*dtype) {
                    value = syntax::method(value, ident("with_float_dtype"), vec![dtype]);
                }
                if !fixed.is_empty() {
                    let names = fixed.iter().map(|name| literals::string(name));
                    let names = syntax::parsed(quote!(&[#(#names),*]))?;
                    value = syntax::method(value, ident("with_fixed"), vec![names]);
                }
                value
            }
            Init::Parameter { dtype, rank, dims, fixed } => {
                let dims = syntax::array(self.initializer(id)?.all(dims)?);
                let unusual = self.unusual_dtype(*dtype);
                if dtype.kind() == DTypeKind::Float {
                    let zeros = syntax::below(self.uses.path("nn::Initializer"), ident("Zeros"));
                    let mut value = syntax::method(syntax::path(zeros), ident("init"), vec![dims, device()]);
                    if let Some(dtype) = unusual {
                        value = syntax::method(value, ident("with_dtype"), vec![dtype]);
                    }
                    if *fixed {
                        let no = vec![syntax::bool(false)];
                        value = syntax::method(value, ident("set_require_grad"), no);
                    }
                    return Ok(value);
                }
                let (param, id) = (self.uses.path("module::Param"), self.uses.path("module::ParamId"));
                let tensor = tensor_type(&mut self.uses, dtype.kind(), *rank, true)?;
                let options = unusual.map_or(quote!(device), |dtype| quote!((device, #dtype)));
                syntax::parsed(quote!(#param::initialized(#id::new(), #tensor::empty(#dims, #options))))?
            }
            Init::Module { structure, args } => self.construct(id, *structure, args)?,
            Init::Sequence(items) => {
                let length = literals::int(items.len() as i64);
                let shown = match items.split_first() {
                    Some((first, others))
                        if others.iter().all(|other| is_made_alike(structure, first, other)) =>
                    {
                        std::slice::from_ref(first)
                    }
                    _ => items,
                };
                let items: Vec<_> = shown.iter().map(|item| self.initial(id, item)).collect::<Result<_>>()?;
                syntax::parsed(match items.as_slice() {
                    [item] => quote!((0..#length).map(|_| #item).collect()),
                    items => markers::list(items),
                })?
            }
        })
    }

    /// A dtype that a backend does not give to parameters of its kind when nothing is said. It must be said: not every
    /// record format knows it.
    fn unusual_dtype(&mut self, dtype: DType) -> Option<Expr> {
        if matches!(dtype, DType::F32 | DType::I64 | DType::Bool) {
            return None;
        }
        let variant = ident(&format!("{dtype:?}"));
        Some(syntax::path(syntax::below(self.uses.path("tensor::DType"), variant)))
    }

    /// A call of a child's constructor.
    fn construct(&mut self, id: StructId, child: StructId, args: &[Code]) -> Result<Expr> {
        let name = ident(self.struct_name(child));
        let new = syntax::path(syntax::below(name.into(), ident("new")));
        let mut values = self.initializer(id)?.all(args)?;
        let device = syntax::variable(ident("device"));
        if values.len() <= MAX_ARGUMENTS {
            values.push(device);
            return Ok(syntax::call(new, values));
        }
        let config = self.config_name(child);
        let structure = self.structure(id);
        let fields = given(self.structure(child)).zip(args).zip(values).map(|((parameter, arg), value)| {
            // What follows from other parameters here is no variable.
            let own = if let Code::Slot(slot) = arg { structure.parameter_of(*slot) } else { None };
            let is_variable = own.is_some_and(|own| own.is_given() && own.name == parameter.name);
            syntax::field_value(ident(&parameter.name), (!is_variable).then_some(value))
        });
        let config = syntax::structure(config.into(), fields.collect());
        Ok(syntax::call(new, vec![syntax::reference(config), device]))
    }
}

/// The parameters that a struct's constructor takes.
fn given(structure: &Struct) -> impl Iterator<Item = &Parameter> {
    structure.parameters.iter().filter(|parameter| parameter.is_given())
}

/// Whether two items of a sequence are made by the same expression.
fn is_made_alike(structure: &Struct, a: &Init, b: &Init) -> bool {
    let without_literals = |init: &Init| {
        let mut init = init.clone();
        init.visit_mut(&mut |code| {
            if let Code::Slot(slot) = code {
                *slot = SlotId::at(0);
            }
        });
        init
    };
    let literals = |init: &Init| init.slots().into_iter().map(Code::Slot).collect::<Vec<_>>();
    let equal = |(a, b): (&Code, &Code)| argument(structure, a) == argument(structure, b);
    without_literals(a) == without_literals(b) && literals(a).iter().zip(&literals(b)).all(equal)
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
fn attribute(rename: Option<&str>, origin: Option<&FieldOrigin>) -> Option<Attribute> {
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
    (!parts.is_empty()).then(|| syntax::attribute(ident("module"), quote!(#(#parts),*)))
}
