//! Structs: fields, constructor, `forward`.

use super::expression::derived_value;
use super::function::FunctionEmitter;
use super::locals::Locals;
use super::{Emitter, tensor_type};
use crate::code::{Code, Init};
use crate::literals;
use crate::names::{comment, ident};
use crate::plan::{Field, FieldOrigin, ParameterKind, StructParameter, origin};
use crate::print::markers;
use kiln_types::DType;
use proc_macro2::TokenStream;
use quote::quote;
use std::collections::BTreeSet;

/// Constructors with more parameters take them as a struct.
const MAX_ARGUMENTS: usize = 6;

impl<'p, 'g> Emitter<'p, 'g> {
    /// Every item of the file, the model first.
    pub(super) fn items(&mut self) -> TokenStream {
        let mut items = TokenStream::new();
        let reachable: BTreeSet<usize> = super::reachable(self.plan)
            .into_iter()
            .map(|module| self.plan.modules[module].struct_id)
            .collect();
        for id in reachable.into_iter().rev() {
            items.extend(markers::blank());
            let member = self.plan.structs[id].members[0];
            items.extend(if member == self.plan.root {
                self.model()
            } else if self.plan.structs[id].function {
                self.free_function(id)
            } else {
                self.module_struct(id)
            });
        }
        items.extend(std::mem::take(&mut self.alias_items));
        items
    }

    fn module_struct(&mut self, id: usize) -> TokenStream {
        let data = &self.plan.structs[id];
        let (member, name) = (data.members[0], ident(&data.name));
        let doc = self.struct_doc(id);
        let fields = self.field_declarations(id);
        let constructor = self.constructor(id);
        let forward = self.forward(member, false);
        let forward_async = if self.reads(member) { self.forward(member, true) } else { TokenStream::new() };
        let (module, backend) =
            (self.uses.path("module::Module"), self.uses.path("tensor::backend::Backend"));
        let blank = markers::blank();
        let config = self.config_struct(id);
        quote! {
            #[doc = #doc]
            #[derive(#module, Debug)]
            pub struct #name<B: #backend> { #fields }

            #config

            #blank
            impl<B: #backend> #name<B> {
                #constructor
                #blank
                #forward
                #forward_async
            }
        }
    }

    /// What a struct is: its class in the original, and where it stands there.
    pub(super) fn struct_doc(&self, id: usize) -> String {
        let mut members = self.plan.structs[id].members.clone();
        members.sort_unstable();
        let mut paths: Vec<&str> = Vec::new();
        for &member in &members {
            let path = self.plan.modules[member].path.as_str();
            if !paths.contains(&path) {
                paths.push(path);
            }
        }
        let class = comment(&self.plan.modules[members[0]].class);
        let class = if class.contains('.') { format!(" `{class}`:") } else { String::new() };
        match paths.as_slice() {
            [] | ["", ..] => format!(" Part of [`{}`].", self.model_name()),
            [path] => format!("{class} `{}`.", comment(path)),
            [a, b] => format!("{class} `{}` and `{}`.", comment(a), comment(b)),
            [path, others @ ..] => format!("{class} `{}` and {} more.", comment(path), others.len()),
        }
    }

    /// The name of the model's struct.
    pub(super) fn model_name(&self) -> &str {
        &self.plan.structs[self.plan.modules[self.plan.root].struct_id].name
    }

    /// The fields of a struct.
    pub(super) fn field_declarations(&mut self, id: usize) -> TokenStream {
        let plan = self.plan;
        let member = plan.structs[id].members[0];
        let mut tokens = TokenStream::new();
        for (i, field) in plan.modules[member].fields.iter().enumerate() {
            let text = self.fields[id][i].clone();
            let name = ident(&text);
            let attribute = attribute((text != field.key).then_some(&field.key), origin(plan, member, field));
            let ty = self.field_type(member, field, i);
            let ty = if plan.optional(id, i).is_some() { quote!(Option<#ty>) } else { ty };
            tokens.extend(quote!(#attribute #name: #ty,));
        }
        for parameter in plan.structs[id].parameters.iter().filter(|parameter| parameter.kept) {
            let (name, ty) = (ident(&parameter.name), self.parameter_type(parameter));
            tokens.extend(quote!(#name: #ty,));
        }
        tokens
    }

    /// The type of a constructor's or function's parameter.
    pub(super) fn parameter_type(&mut self, parameter: &StructParameter) -> TokenStream {
        match parameter.kind {
            ParameterKind::Number => quote!(usize),
            ParameterKind::Flag => quote!(bool),
            ParameterKind::Choice(ty) => self.uses.path(ty),
        }
    }

    /// `name: usize` for every parameter of a struct's constructor.
    fn constructor_parameters(&mut self, id: usize) -> Vec<TokenStream> {
        let plan = self.plan;
        let parameters = plan.structs[id].parameters.iter().filter(|parameter| parameter.is_given());
        parameters
            .map(|parameter| {
                let (name, ty) = (ident(&parameter.name), self.parameter_type(parameter));
                quote!(#name: #ty)
            })
            .collect()
    }

    fn field_type(&mut self, member: usize, field: &Field, index: usize) -> TokenStream {
        let plan = self.plan;
        match (&field.content, &plan.modules[member].body.inits[index]) {
            (_, Init::Layer { ty, generic, .. }) => {
                let ty = self.uses.path(ty);
                if *generic { quote!(#ty<B>) } else { ty }
            }
            (_, Init::Parameter { ty, .. }) => {
                let param = self.uses.path("module::Param");
                let tensor = tensor_type(&mut self.uses, ty, false);
                quote!(#param<#tensor>)
            }
            (_, Init::Module { class, .. }) => {
                let name = ident(&plan.structs[*class].name);
                quote!(#name<B>)
            }
            (_, Init::Sequence { class, .. }) => {
                let name = ident(&plan.structs[*class].name);
                quote!(Vec<#name<B>>)
            }
        }
    }

    /// `fn new(…, device)`.
    fn constructor(&mut self, id: usize) -> TokenStream {
        let plan = self.plan;
        let data = &plan.structs[id];
        let values = self.field_values(id);
        let names: Vec<_> =
            data.parameters.iter().filter(|p| p.is_given()).map(|parameter| ident(&parameter.name)).collect();
        let parameters = self.constructor_parameters(id);
        let kept: Vec<_> = data
            .parameters
            .iter()
            .filter(|parameter| parameter.kept)
            .map(|parameter| {
                let name = ident(&parameter.name);
                match parameter.derived.as_ref().map(derived_value) {
                    Some(value) => quote!(#name: #value),
                    None => quote!(#name),
                }
            })
            .collect();
        if names.len() <= MAX_ARGUMENTS {
            return quote! {
                /// Makes it with fresh parameters.
                pub fn new(#(#parameters,)* device: &B::Device) -> Self {
                    Self { #values #(#kept),* }
                }
            };
        }
        let config = ident(&format!("{}Config", data.name));
        quote! {
            /// Makes it with fresh parameters.
            pub fn new(config: &#config, device: &B::Device) -> Self {
                let &#config { #(#names),* } = config;
                Self { #values #(#kept),* }
            }
        }
    }

    fn config_struct(&mut self, id: usize) -> TokenStream {
        let plan = self.plan;
        let data = &plan.structs[id];
        let parameters = self.constructor_parameters(id);
        if parameters.len() <= MAX_ARGUMENTS {
            return TokenStream::new();
        }
        let config = ident(&format!("{}Config", data.name));
        let doc = format!(" Sizes of a [`{}`].", data.name);
        let blank = markers::blank();
        quote! {
            #blank
            #[doc = #doc]
            #[derive(Clone, Debug)]
            pub struct #config { #(#parameters),* }
        }
    }

    /// `field: value,` for every field.
    pub(super) fn field_values(&mut self, id: usize) -> TokenStream {
        let plan = self.plan;
        let member = plan.structs[id].members[0];
        let mut tokens = TokenStream::new();
        for (i, init) in plan.modules[member].body.inits.iter().enumerate() {
            let name = ident(&self.fields[id][i]);
            let value = self.field_value(member, init);
            let value = match plan.optional(id, i) {
                Some(flag) => {
                    let mut function = self.function(member, Locals::default(), false);
                    function.in_init = true;
                    let flag = function.code(&Code::Slot(flag));
                    // A comparison binds less than a method.
                    let flag = if flag.to_string().contains('=') { quote!((#flag)) } else { flag };
                    quote!(#flag.then(|| #value))
                }
                None => value,
            };
            tokens.extend(quote!(#name: #value,));
        }
        tokens
    }

    fn field_value(&mut self, member: usize, init: &Init) -> TokenStream {
        let plan = self.plan;
        let mut function = self.function(member, Locals::default(), false);
        function.in_init = true;
        match init {
            Init::Layer { generic, config, dtype, .. } => {
                let config = function.code(config);
                let dtype = self.unusual_dtype(*dtype).map(|dtype| quote!(.with_float_dtype(#dtype)));
                if *generic { quote!(#config.init(device) #dtype) } else { quote!(#config.init()) }
            }
            Init::Parameter { ty, dims } => {
                let dims: Vec<_> = dims.iter().map(|dim| function.code(dim)).collect();
                let dtype = self.unusual_dtype(ty.dtype);
                if ty.dtype.is_float() {
                    let zeros = self.uses.path("nn::Initializer");
                    let dtype = dtype.map(|dtype| quote!(.with_dtype(#dtype)));
                    return quote!(#zeros::Zeros.init([#(#dims),*], device) #dtype);
                }
                let (param, id) = (self.uses.path("module::Param"), self.uses.path("module::ParamId"));
                let tensor = tensor_type(&mut self.uses, ty, true);
                let options = dtype.map_or(quote!(device), |dtype| quote!((device, #dtype)));
                quote!(#param::initialized(#id::new(), #tensor::empty([#(#dims),*], #options)))
            }
            Init::Module { class, args } => self.construct(member, *class, args),
            Init::Sequence { class, elements } => {
                let calls: Vec<_> =
                    elements.iter().map(|args| self.construct(member, *class, args).to_string()).collect();
                let equal = calls.iter().all(|call| *call == calls[0]);
                let items: Vec<_> =
                    elements.iter().map(|args| self.construct(member, *class, args)).collect();
                let length = literals::int(elements.len() as i64);
                let _ = plan;
                if equal {
                    let item = &items[0];
                    quote!((0..#length).map(|_| #item).collect())
                } else {
                    markers::list(&items)
                }
            }
        }
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

    /// A call of a struct's constructor.
    fn construct(&mut self, member: usize, class: usize, args: &[Code]) -> TokenStream {
        let data = &self.plan.structs[class];
        let name = ident(&data.name);
        let mut function = self.function(member, Locals::default(), false);
        function.in_init = true;
        let args: Vec<_> = args.iter().map(|arg| function.code(arg)).collect();
        if args.len() <= MAX_ARGUMENTS {
            return quote!(#name::new(#(#args,)* device));
        }
        let config = ident(&format!("{}Config", data.name));
        let names = data.parameters.iter().filter(|p| p.is_given()).map(|parameter| ident(&parameter.name));
        let fields = names
            .zip(&args)
            .map(|(name, arg)| if name == arg.to_string() { quote!(#name) } else { quote!(#name: #arg) });
        quote!(#name::new(&#config { #(#fields),* }, device))
    }

    pub(super) fn function<'e>(
        &'e mut self,
        module: usize,
        locals: Locals,
        asynchronous: bool,
    ) -> FunctionEmitter<'e, 'p, 'g> {
        FunctionEmitter {
            emitter: self,
            module,
            locals,
            in_init: false,
            asynchronous,
            uses_device: false,
            bound: None,
        }
    }
}

/// `#[module(…)]`: the name in records, and what the field's parameters were made of.
fn attribute(rename: Option<&String>, origin: Option<FieldOrigin>) -> TokenStream {
    let mut parts: Vec<TokenStream> = Vec::new();
    if let Some(key) = rename {
        let key = literals::string(key);
        parts.push(quote!(rename = #key));
    }
    match origin {
        None => {}
        Some(FieldOrigin::Constant) => parts.push(quote!(constant)),
        Some(FieldOrigin::BatchNorm { path, epsilon, biased }) => {
            let path = literals::string(&path);
            parts.push(quote!(batch_norm = #path));
            if epsilon != 1e-5 {
                let epsilon = literals::float(epsilon);
                parts.push(quote!(epsilon = #epsilon));
            }
            if biased {
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
