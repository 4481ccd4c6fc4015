//! Structs: fields, constructor, `forward`.

use super::function::FunctionEmitter;
use super::locals::Locals;
use super::{Emitter, comments, tensor_type, uses};
use crate::code::{Code, Init, decide_moves};
use crate::literals;
use crate::names::{Names, comment, ident, pascal, snake};
use crate::plan::{Content, Field, Plan};
use kiln_importer::ir::{SymbolOrigin, ValueId};
use proc_macro2::TokenStream;
use quote::quote;

/// Constructors with more parameters take them as a struct.
const MAX_ARGUMENTS: usize = 6;

/// Tuples of more tensors get a name.
const MAX_RESULTS: usize = 3;

/// Names that generated source uses for other things.
const TAKEN: &[&str] = &[
    "B",
    "Backend",
    "Bool",
    "Box",
    "Clone",
    "DType",
    "Debug",
    "Default",
    "Err",
    "Float",
    "InputDim",
    "InputError",
    "InputSpec",
    "Int",
    "Module",
    "None",
    "Ok",
    "Option",
    "Param",
    "Path",
    "Result",
    "Self",
    "Send",
    "Some",
    "String",
    "Sync",
    "Tensor",
    "Vec",
];

/// Decides the name of every struct, parents first.
pub fn name_structs(plan: &mut Plan<'_>, model: &str) -> Names {
    let mut types = Names::with(TAKEN.iter().copied());
    let mut functions = Names::with(["core", "forward", "std"]);
    for path in mentioned_paths(plan) {
        if let Some(name) = uses::imported_name(path) {
            types.fresh(name);
            functions.fresh(name);
        }
    }
    // Of structs that want one name, the smallest gets it as it is.
    let mut order: Vec<usize> = (0..plan.structs.len()).rev().collect();
    order.sort_by_key(|&id| plan.modules[plan.structs[id].members[0]].fields.len());
    let root = plan.modules[plan.root].struct_id;
    plan.structs[root].name = types.fresh(&pascal(model, "Model"));
    for id in order.into_iter().filter(|&id| id != root) {
        plan.structs[id].name = if plan.structs[id].function {
            functions.fresh(&snake(&wanted(plan, id), "step"))
        } else {
            let wanted = pascal(&wanted(plan, id), "Module");
            let suffix = if types.contains(&wanted) { distinction(plan, id, &wanted) } else { String::new() };
            let name = types.fresh(&format!("{wanted}{suffix}"));
            types.fresh(&format!("{name}Record"));
            name
        };
    }
    types
}

/// Every path that the modules mention.
fn mentioned_paths(plan: &Plan<'_>) -> Vec<&'static str> {
    let mut paths = Vec::new();
    let mut collect = |code: &Code| {
        if let Code::Call(path, _) | Code::Path(path) | Code::Struct(path, _) = code {
            paths.push(*path);
        }
    };
    for module in &plan.modules {
        for init in &module.body.inits {
            if let Init::Layer { config, .. } = init {
                config.visit(&mut collect);
            }
        }
        for code in module.body.block.codes() {
            code.visit(&mut collect);
        }
    }
    for module in &plan.modules {
        for init in &module.body.inits {
            if let Init::Layer { ty, .. } = init {
                paths.push(ty);
            }
        }
    }
    paths.sort_unstable();
    paths.dedup();
    paths
}

/// What a struct would be called if nothing else were.
fn wanted(plan: &Plan<'_>, id: usize) -> String {
    let members = &plan.structs[id].members;
    let data = &plan.modules[members[0]];
    let class = data.class.rsplit('.').next().unwrap_or(&data.class);
    if !crate::plan::is_container_class(class) {
        return class.to_owned();
    }
    let words = data.path.rsplit('.');
    let word =
        words.into_iter().find(|word| word.chars().any(|c| c.is_ascii_alphabetic())).unwrap_or("Block");
    let stem = word.trim_end_matches(|c: char| c.is_ascii_digit());
    match members.len() {
        1 => word.to_owned(),
        _ if stem.len() < 3 => "Block".to_owned(),
        _ => stem.to_owned(),
    }
}

/// What a struct has that the others of its name do not: `Downsample`.
fn distinction(plan: &Plan<'_>, id: usize, wanted: &str) -> String {
    let keys = |id: usize| -> Vec<&str> {
        plan.modules[plan.structs[id].members[0]].fields.iter().map(|field| field.key.as_str()).collect()
    };
    let named: Vec<usize> =
        (0..plan.structs.len()).filter(|&other| plan.structs[other].name.starts_with(wanted)).collect();
    let extra = keys(id).into_iter().find(|key| named.iter().all(|&other| !keys(other).contains(key)));
    let word =
        extra.and_then(|key| key.split('.').find(|part| part.chars().any(|c| c.is_ascii_alphabetic())));
    word.map(|word| pascal(word.trim_end_matches(|c: char| c.is_ascii_digit()), "")).unwrap_or_default()
}

impl<'p, 'g> Emitter<'p, 'g> {
    /// Every item of the file, the model first.
    pub(super) fn items(&mut self) -> TokenStream {
        let mut items = TokenStream::new();
        for id in (0..self.plan.structs.len()).rev() {
            if !self.is_used(id) {
                continue;
            }
            items.extend(comments::blank());
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

    /// Whether a struct is still called: its modules may have been written out in their parents.
    fn is_used(&self, id: usize) -> bool {
        let members = &self.plan.structs[id].members;
        members.contains(&self.plan.root) || self.reachable().iter().any(|module| members.contains(module))
    }

    fn reachable(&self) -> Vec<usize> {
        let mut found = vec![self.plan.root];
        let mut next = 0;
        while next < found.len() {
            let children = self.children(found[next]);
            for child in children {
                if !found.contains(&child) {
                    found.push(child);
                }
            }
            next += 1;
        }
        found
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
        let blank = comments::blank();
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

    fn struct_doc(&self, id: usize) -> String {
        let members = &self.plan.structs[id].members;
        let data = &self.plan.modules[members[0]];
        let path = comment(&data.path);
        match members.len() {
            _ if path.is_empty() => format!(" Part of [`{}`].", self.model_name()),
            1 => format!(" `{path}`."),
            2 => format!(" `{path}` and `{}`.", comment(&self.plan.modules[members[1]].path)),
            n => format!(" `{path}` and {} more.", n - 1),
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
            let rename = if text == field.key {
                TokenStream::new()
            } else {
                let key = literals::string(&field.key);
                quote!(#[module(rename = #key)])
            };
            let ty = self.field_type(member, field, i);
            tokens.extend(quote!(#rename #name: #ty,));
        }
        for parameter in plan.structs[id].parameters.iter().filter(|parameter| parameter.kept) {
            let name = ident(&parameter.name);
            tokens.extend(quote!(#name: usize,));
        }
        tokens
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
        let names: Vec<_> = data.parameters.iter().map(|parameter| ident(&parameter.name)).collect();
        let kept: Vec<_> = data.parameters.iter().filter(|p| p.kept).map(|p| ident(&p.name)).collect();
        if names.len() <= MAX_ARGUMENTS {
            return quote! {
                /// Makes it with fresh parameters.
                pub fn new(#(#names: usize,)* device: &B::Device) -> Self {
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
        let data = &self.plan.structs[id];
        if data.parameters.len() <= MAX_ARGUMENTS {
            return TokenStream::new();
        }
        let config = ident(&format!("{}Config", data.name));
        let doc = format!(" Sizes of a [`{}`].", data.name);
        let names = data.parameters.iter().map(|parameter| ident(&parameter.name));
        let blank = comments::blank();
        quote! {
            #blank
            #[doc = #doc]
            #[derive(Clone, Debug)]
            pub struct #config { #(#names: usize),* }
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
            tokens.extend(quote!(#name: #value,));
        }
        tokens
    }

    fn field_value(&mut self, member: usize, init: &Init) -> TokenStream {
        let plan = self.plan;
        let mut function = self.function(member, Locals::default(), false);
        function.in_init = true;
        match init {
            Init::Layer { generic, config, .. } => {
                let config = function.code(config);
                if *generic { quote!(#config.init(device)) } else { quote!(#config.init()) }
            }
            Init::Parameter { ty, dims } => {
                let dims: Vec<_> = dims.iter().map(|dim| function.code(dim)).collect();
                if ty.dtype.is_float() {
                    let zeros = self.uses.path("nn::Initializer");
                    return quote!(#zeros::Zeros.init([#(#dims),*], device));
                }
                let (param, id) = (self.uses.path("module::Param"), self.uses.path("module::ParamId"));
                let tensor = tensor_type(&mut self.uses, ty, true);
                quote!(#param::initialized(#id::new(), #tensor::empty([#(#dims),*], device)))
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
                    quote!(vec![#(#items),*])
                }
            }
        }
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
        let names = data.parameters.iter().map(|parameter| ident(&parameter.name));
        quote!(#name::new(&#config { #(#names: #args),* }, device))
    }

    fn function<'e>(
        &'e mut self,
        module: usize,
        locals: Locals,
        asynchronous: bool,
    ) -> FunctionEmitter<'e, 'p, 'g> {
        FunctionEmitter { emitter: self, module, locals, in_init: false, asynchronous, uses_device: false }
    }

    /// The parameters of a module's `forward`, and its variables.
    pub(super) fn signature(&mut self, module: usize) -> (Vec<TokenStream>, Locals) {
        let plan = self.plan;
        let hints = self.input_names(module);
        let locals = Locals::new(plan, module, &hints);
        let data = &plan.modules[module];
        let mut parameters: Vec<TokenStream> = Vec::new();
        for &input in &data.inputs {
            let name = ident(&locals.name(input));
            let ty = tensor_type(&mut self.uses, plan.graph.ty(input), false);
            parameters.push(quote!(#name: #ty));
        }
        for symbol in &data.body.symbols {
            let name = ident(&locals.symbol_name(symbol));
            let read = matches!(plan.origin(symbol), Some(SymbolOrigin::Read { .. }));
            parameters.push(if read { quote!(#name: i64) } else { quote!(#name: usize) });
        }
        (parameters, locals)
    }

    /// The type of what a module yields; more than `most` tensors get a name.
    pub(super) fn result_type(&mut self, module: usize, most: usize) -> TokenStream {
        let (plan, values) = (self.plan, &self.plan.modules[module].outputs);
        let tuple = self.tuple_type(values);
        if values.len() <= most {
            return tuple;
        }
        let id = plan.modules[module].struct_id;
        if let Some(name) = self.aliases.get(&id) {
            let name = ident(name);
            return quote!(#name<B>);
        }
        let text = self.types.fresh(&format!("{}Output", pascal(&plan.structs[id].name, "Module")));
        let (name, blank) = (ident(&text), comments::blank());
        let doc = format!(" What [`{}`] yields.", plan.structs[id].name);
        self.alias_items.extend(quote!(#blank #[doc = #doc] pub type #name<B> = #tuple;));
        self.aliases.insert(id, text);
        quote!(#name<B>)
    }

    fn tuple_type(&mut self, values: &[ValueId]) -> TokenStream {
        let plan = self.plan;
        let types: Vec<_> =
            values.iter().map(|&value| tensor_type(&mut self.uses, plan.graph.ty(value), false)).collect();
        match types.as_slice() {
            [ty] => ty.clone(),
            types => quote!((#(#types),*)),
        }
    }

    /// The statements of a module's `forward`, with everything that stands before them.
    pub(super) fn body(&mut self, module: usize, locals: Locals, asynchronous: bool) -> TokenStream {
        let plan = self.plan;
        let data = &plan.modules[module];
        let mut block = data.body.block.clone();
        decide_moves(&mut block);
        let mut function = self.function(module, locals, asynchronous);
        let mut start = TokenStream::new();
        for &input in &data.inputs {
            start.extend(function.symbols_of(input));
        }
        let statements = function.block(&block);
        if function.uses_device {
            let device = device(plan, module, &function, data.inputs.first().copied());
            return quote!(#device #start #statements);
        }
        quote!(#start #statements)
    }

    fn forward(&mut self, module: usize, asynchronous: bool) -> TokenStream {
        let (parameters, locals) = self.signature(module);
        let result = self.result_type(module, MAX_RESULTS);
        let body = self.body(module, locals, asynchronous);
        let name = ident(if asynchronous { "forward_async" } else { "forward" });
        let (start, blank) = if asynchronous {
            (quote!(pub async fn), comments::blank())
        } else {
            (quote!(pub fn), TokenStream::new())
        };
        let doc = if asynchronous { " Runs it without blocking the thread." } else { " Runs it." };
        let allow = too_many(parameters.len() + 1);
        quote!(#blank #[doc = #doc] #allow #start #name(&self, #(#parameters),*) -> #result { #body })
    }

    fn free_function(&mut self, id: usize) -> TokenStream {
        let member = self.plan.structs[id].members[0];
        let doc = self.struct_doc(id);
        let backend = self.uses.path("tensor::backend::Backend");
        let result = self.result_type(member, MAX_RESULTS);
        let mut tokens = TokenStream::new();
        let variants = if self.reads(member) { vec![false, true] } else { vec![false] };
        for asynchronous in variants {
            let (parameters, locals) = self.signature(member);
            let body = self.body(member, locals, asynchronous);
            let name = self.forward_name(member, asynchronous);
            let allow = too_many(parameters.len());
            let start = if asynchronous { quote!(async fn) } else { quote!(fn) };
            tokens.extend(
                quote!(#[doc = #doc] #allow #start #name<B: #backend>(#(#parameters),*) -> #result { #body }),
            );
        }
        tokens
    }
}

/// Allows as many parameters as there are.
fn too_many(parameters: usize) -> TokenStream {
    if parameters <= 7 {
        return TokenStream::new();
    }
    quote!(#[allow(clippy::too_many_arguments, reason = "so many values enter this part of the model")])
}

/// `let device = &x.device();`
fn device(
    plan: &Plan<'_>,
    module: usize,
    function: &FunctionEmitter<'_, '_, '_>,
    input: Option<ValueId>,
) -> TokenStream {
    if let Some(input) = input {
        let name = ident(&function.locals.name(input));
        return quote!(let device = &#name.device(););
    }
    let data = &plan.modules[module];
    let parameter = data.fields.iter().position(|field| matches!(field.content, Content::Parameter(_)));
    match parameter {
        Some(i) => {
            let name = ident(&function.emitter.fields[data.struct_id][i]);
            quote!(let device = &self.#name.device();)
        }
        None => quote!(let device = &B::Device::default();),
    }
}
