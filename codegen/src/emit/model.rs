//! The model's own struct: how it is made, loaded, and run with checks.

use super::{Emitter, MOST_PARAMETERS, Result, syntax};
use crate::names::{comment, ident};
use crate::print::markers;
use crate::tree::Checkpoints;
use crate::{RecordType, literals};
use kiln_importer::ir::{Dim, Key, ValueId};
use kiln_types::Precision;
use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::{Expr, ImplItem, ImplItemFn, Item, ItemImpl, ItemStruct, Stmt};

/// Documentation lists no more of anything.
const MOST_SHOWN: usize = 12;

/// What the columns of an output stand for, as a part of a sentence.
fn columns(keys: &[Key]) -> String {
    let shown: Vec<String> =
        keys.iter().take(MOST_SHOWN).map(|key| format!("`{}`", comment(&key.to_string()))).collect();
    let rest = if keys.len() > MOST_SHOWN { ", …" } else { "" };
    format!(", a column for each of {}{rest}", shown.join(", "))
}

impl Emitter<'_> {
    pub(super) fn model(&mut self) -> Result<Vec<Item>> {
        let id = self.program.root;
        let name = ident(self.struct_name(id));
        let docs = self.model_docs();
        let mut fields = self.field_declarations(id)?;
        let mut values = self.field_values(id)?;
        if fields.is_empty() {
            // A struct with a backend must hold something of it.
            let (backend, marker) = (ident("backend"), quote!(core::marker::PhantomData));
            fields.push(syntax::declaration(
                Vec::new(),
                backend.clone(),
                syntax::parsed(quote!(#marker<B>))?,
            ));
            values.push(syntax::field_value(backend, Some(syntax::parsed(marker)?)));
        }
        let device = ident(if self.structure(id).body.inits.is_empty() { "_device" } else { "device" });
        let (module, backend) =
            (self.uses.path("module::Module"), self.uses.path("tensor::backend::Backend"));
        let (loading, checkpoints) = (self.loading(), self.checkpoints());
        let (specs, strings) = (self.input_specs(), self.strings());
        let runs = self.runs()?;
        let default = self.default_impl(&name);
        let blank = markers::blank();
        let replaceable = self.replaceable();
        let mut structure: ItemStruct = syntax::parsed(quote! {
            #(#[doc = #docs])*
            #[derive(#module, Debug)]
            #replaceable
            pub struct #name<B: #backend> {}
        })?;
        structure.fields = syntax::fields(fields);
        let mut new: ImplItemFn = syntax::parsed(quote! {
            /// Makes the model with fresh parameters.
            pub fn new(#device: &B::Device) -> Self {}
        })?;
        new.block = syntax::block(Vec::new(), syntax::structure(ident("Self").into(), values));
        let mut implementation: ItemImpl = syntax::parsed(quote! {
            #[allow(dead_code, reason = "a program needs some of the ways to load and to run a model")]
            impl<B: #backend> #name<B> {
                #loading
                #checkpoints
            }
        })?;
        implementation.items.insert(0, ImplItem::Fn(new));
        implementation.items.extend(runs);
        let mut items = vec![Item::Struct(structure)];
        items.extend(syntax::items(quote!(#specs #strings #default #blank))?);
        items.push(Item::Impl(implementation));
        Ok(items)
    }

    /// The documentation of the struct: what it is, inputs, outputs.
    fn model_docs(&self) -> Vec<String> {
        let graph = self.program.graph();
        let strings = &graph.strings;
        let describe = |name: &str, value: ValueId, note: Option<String>| {
            let ty = comment(&graph.ty(value).to_string());
            format!(" - `{}`: `{ty}`{}", comment(name), note.unwrap_or_default())
        };
        let places = |are_strings: bool| are_strings.then(|| ", places in [`STRINGS`]".to_owned());
        let title = match comment(&graph.name) {
            name if name.is_empty() => " A model.".to_owned(),
            name => format!(" The model `{name}`."),
        };
        let mut docs = vec![title, String::new(), " Inputs:".to_owned()];
        docs.extend(graph.inputs.iter().enumerate().map(|(at, &input)| {
            describe(&graph.value(input).name, input, places(strings.inputs.contains(&at)))
        }));
        if !graph.bound_inputs.is_empty() {
            docs.extend([String::new(), " Inputs of the file that are constants:".to_owned()]);
            docs.extend(graph.bound_inputs.iter().map(|bound| {
                let shown: Vec<String> =
                    bound.data.scalars().take(MOST_SHOWN).map(|x| x.to_string()).collect();
                let rest = if bound.data.num_elements() > MOST_SHOWN { ", …" } else { "" };
                format!(" - `{}`: `{}{rest}`", comment(&bound.name), shown.join(", "))
            }));
        }
        docs.extend([String::new(), " Outputs:".to_owned()]);
        let names = graph.output_names.iter().map(String::as_str).chain(std::iter::repeat("output"));
        docs.extend(graph.root.outputs.iter().zip(names).enumerate().map(|(at, (&output, name))| {
            let columns = || strings.columns.get(&at).map(|keys| columns(keys));
            describe(name, output, places(strings.outputs.contains(&at)).or_else(columns))
        }));
        match self.options.precision {
            Precision::F32 => {}
            Precision::Bf16 => docs.extend([
                String::new(),
                " Products are computed of operands rounded to bf16, where the backend has them faster."
                    .to_owned(),
            ]),
        }
        docs
    }

    /// The body of a run, within the precision that it is to have.
    fn in_precision(&mut self, asynchronous: bool, body: (Vec<Stmt>, Expr)) -> Result<(Vec<Stmt>, Expr)> {
        let (statements, value) = body;
        let precision = match self.options.precision {
            Precision::F32 => return Ok((statements, value)),
            Precision::Bf16 => {
                let precision = self.uses.path("tensor::Precision");
                quote!(#precision::Bf16)
            }
        };
        let body = syntax::block(statements, value);
        let (bind, run) = match asynchronous {
            false => (quote!(let run = || #body;), quote!(#precision.run(run))),
            true => (quote!(let run = async #body;), quote!(#precision.run_async(run).await)),
        };
        Ok((syntax::statements(bind)?, syntax::parsed(run)?))
    }

    /// `from_file` and `from_embedded`.
    fn loading(&mut self) -> TokenStream {
        let mut methods = TokenStream::new();
        if !self.options.no_std {
            methods.extend(self.loading_a_file());
        }
        if self.options.embed.is_some() {
            methods.extend(self.loading_what_is_embedded());
        }
        methods
    }

    fn loading_a_file(&mut self) -> TokenStream {
        let blank = markers::blank();
        let record = self.options.record;
        let load = if let Some(format) = record.named() {
            let (load, format) = (self.uses.path("record::load_named"), self.uses.path(format));
            quote!(#load(Self::new(device), path.as_ref(), #format, device))
        } else if record == RecordType::Safetensors {
            let load = self.uses.path("record::load_safetensors");
            quote!(#load(Self::new(device), path.as_ref(), device))
        } else {
            self.recorder_load("record::BinFileRecorder", &quote!(path.as_ref().to_path_buf()))
        };
        quote! {
            #blank
            /// Loads the parameters from a record.
            ///
            /// # Panics
            /// When the record cannot be read or is not this model's.
            pub fn from_file(path: impl AsRef<std::path::Path>, device: &B::Device) -> Self {
                let loaded = #load;
                loaded.unwrap_or_else(|error| panic!("{}: {error}", path.as_ref().display()))
            }
        }
    }

    fn loading_what_is_embedded(&mut self) -> TokenStream {
        let blank = markers::blank();
        let record = self.options.record;
        let load = if let Some(format) = record.named() {
            let (load, format) = (self.uses.path("record::load_named_bytes"), self.uses.path(format));
            quote!(#load(Self::new(device), RECORD, #format, device))
        } else if record == RecordType::Safetensors {
            let load = self.uses.path("record::load_safetensors_bytes");
            quote!(#load(Self::new(device), RECORD, device))
        } else {
            self.recorder_load("record::BinBytesRecorder", &quote!(RECORD.to_vec()))
        };
        quote! {
            #blank
            /// Loads the parameters that are part of the program.
            pub fn from_embedded(device: &B::Device) -> Self {
                #load.unwrap_or_else(|error| panic!("embedded record: {error}"))
            }
        }
    }

    /// `from_pytorch` and `from_safetensors`, which exist when the runtime has those features.
    fn checkpoints(&self) -> TokenStream {
        let runtime = ident(&self.options.runtime_crate);
        let blank = markers::blank();
        let refused = |reason: &str| {
            let reason = literals::string(reason);
            quote!(#blank #runtime::no_checkpoints!(#reason);)
        };
        let start = match (&self.program.tree.checkpoints, &self.options.embed, &self.options.default_record)
        {
            (Checkpoints::None, ..) => return TokenStream::new(),
            (Checkpoints::Refused(reason), ..) => return refused(reason),
            (Checkpoints::Taken { constants: false }, ..) => quote!(Self::new),
            (_, Some(_), _) => quote!(Self::from_embedded),
            (_, None, Some(path)) if !self.options.no_std => {
                let path = path.tokens();
                quote!(Self::from_file, #path)
            }
            (_, None, Some(_)) => {
                return refused(
                    "the model has constants that only its record holds, which source without the standard library reads from no file: embed it",
                );
            }
            (_, None, None) => {
                return refused("the model has constants that only its record holds, and no default record");
            }
        };
        quote!(#blank #runtime::from_checkpoints!(#start);)
    }

    /// A recorder's load, the record being put into a fresh model.
    fn recorder_load(&mut self, recorder: &'static str, from: &TokenStream) -> TokenStream {
        let settings =
            if self.options.half_precision { "HalfPrecisionSettings" } else { "FullPrecisionSettings" };
        let settings = self.uses.path(&format!("record::{settings}"));
        let (recorder, load) = (self.uses.path(recorder), self.uses.path("record::Recorder"));
        let module = self.uses.path("module::Module");
        quote! {
            #load::<B>::load(&#recorder::<#settings>::default(), #from, device)
                .and_then(|record| #module::<B>::try_load_record(Self::new(device), record))
        }
    }

    /// `impl Default`, and the embedded record.
    fn default_impl(&mut self, name: &proc_macro2::Ident) -> TokenStream {
        let blank = markers::blank();
        let backend = self.uses.path("tensor::backend::Backend");
        let record = self.options.embed.as_ref().map(|path| {
            let path = path.tokens();
            let runtime = ident(&self.options.runtime_crate);
            quote! {
                #blank
                /// The record, as part of the program.
                static RECORD: &[u8] = #runtime::include_record!(#path);
            }
        });
        let body = match (&self.options.embed, &self.options.default_record) {
            (Some(_), _) => quote!(Self::from_embedded(&B::Device::default())),
            (None, Some(path)) if !self.options.no_std => {
                let path = path.tokens();
                quote!(Self::from_file(#path, &B::Device::default()))
            }
            _ => return TokenStream::new(),
        };
        quote! {
            #record
            #blank
            impl<B: #backend> Default for #name<B> {
                fn default() -> Self {
                    #body
                }
            }
        }
    }

    /// The declared inputs, for checks.
    fn input_specs(&mut self) -> TokenStream {
        let graph = self.program.graph();
        if graph.inputs.is_empty() {
            return TokenStream::new();
        }
        let spec = self.uses.path("input::InputSpec");
        let has_axes = graph.inputs.iter().any(|&input| graph.ty(input).rank() > 0);
        let dim = has_axes.then(|| self.uses.path("input::InputDim"));
        let specs: Vec<_> = graph
            .inputs
            .iter()
            .map(|&input| {
                let value = graph.value(input);
                let name = literals::string(&comment(&value.name));
                let is_repeated = |axis| self.program.tree.repeated.contains(input, axis);
                let dims = dim.iter().flat_map(|dim| {
                    let dims = value.ty.dims.iter().enumerate();
                    dims.map(move |(axis, size)| input_dim(dim, size, is_repeated(axis)))
                });
                quote!(#spec { name: #name, dims: &[#(#dims),*] })
            })
            .collect();
        let count = literals::int(specs.len() as i64);
        let blank = markers::blank();
        quote!(#blank #[doc = " What the model takes."] const INPUTS: [#spec; #count] = [#(#specs),*];)
    }

    /// The table of strings, where inputs or outputs are some.
    fn strings(&self) -> TokenStream {
        let strings = &self.program.graph().strings;
        if !strings.are_told() {
            return TokenStream::new();
        }
        let count = literals::int(strings.table.len() as i64);
        let table = strings.table.iter().map(|text| literals::string(text));
        let blank = markers::blank();
        quote! {
            #blank
            /// The strings that the model knows: tensors hold their places in this list, and -1 for any other.
            #[allow(dead_code, reason = "a program may do with places alone")]
            pub const STRINGS: [&str; #count] = [#(#table),*];
        }
    }

    /// `forward`, `try_forward` and, where the device is read, their asynchronous forms.
    fn runs(&mut self) -> Result<Vec<ImplItem>> {
        let mut methods = self.run(false)?;
        if self.reads[self.program.root] {
            methods.extend(self.run(true)?);
        }
        Ok(methods)
    }

    fn run(&mut self, asynchronous: bool) -> Result<Vec<ImplItem>> {
        let root = self.program.root;
        let parameters = self.signature(root)?;
        let variables = self.names.variables(root)?;
        let inputs = self.structure(root).body.inputs.iter();
        let inputs: Vec<_> = inputs.map(|&input| Ok(ident(variables.name(input)?))).collect::<Result<_>>()?;
        let result = self.result_type(root)?;
        let body = self.body(root, asynchronous)?;
        let (mut statements, mut value) = self.in_precision(asynchronous, body)?;
        let allow = (inputs.len() + 1 > MOST_PARAMETERS)
            .then(|| quote!(#[allow(clippy::too_many_arguments, reason = "the model has as many inputs")]));
        let (forward, try_forward) = match asynchronous {
            false => (ident("forward"), ident("try_forward")),
            true => (ident("forward_async"), ident("try_forward_async")),
        };
        let function = if asynchronous { quote!(pub async fn) } else { quote!(pub fn) };
        let doc =
            if asynchronous { " Runs the model without blocking the thread." } else { " Runs the model." };
        let mut methods = vec![syntax::parsed(markers::blank())?];
        let frame = if inputs.is_empty() {
            quote!(#[doc = #doc] #function #forward(&self) -> #result {})
        } else {
            let (error, check) = (self.uses.path("input::InputError"), self.uses.path("input::check_inputs"));
            let wait = if asynchronous { quote!(.await) } else { TokenStream::new() };
            methods.push(syntax::parsed(quote! {
                #[doc = #doc]
                ///
                /// # Panics
                /// When an input does not have the declared shape.
                #allow
                #function #forward(&self, #(#parameters),*) -> #result {
                    self.#try_forward(#(#inputs),*)#wait.unwrap_or_else(|error| panic!("{error}"))
                }
            })?);
            methods.push(syntax::parsed(markers::blank())?);
            let check = quote!(#check(&INPUTS, &[#(&#inputs.dims()),*])?;);
            statements.splice(0..0, syntax::statements(check)?);
            value = syntax::call(syntax::variable(ident("Ok")), vec![value]);
            quote! {
                #[doc = #doc]
                ///
                /// # Errors
                /// When an input does not have the declared shape.
                #allow
                #function #try_forward(&self, #(#parameters),*) -> Result<#result, #error> {}
            }
        };
        let mut function: ImplItemFn = syntax::parsed(frame)?;
        syntax::set_body(&mut function.sig, &mut function.block, statements, value);
        methods.push(ImplItem::Fn(function));
        Ok(methods)
    }
}

fn input_dim(ty: &impl ToTokens, dim: &Dim, is_repeated: bool) -> TokenStream {
    match (dim.as_size(), dim.as_symbol()) {
        (Some(size), _) => {
            let size = literals::int(size as i64);
            quote!(#ty::Size(#size))
        }
        (None, Some(symbol)) => {
            let symbol = literals::string(&comment(symbol));
            if is_repeated { quote!(#ty::Repeated(#symbol)) } else { quote!(#ty::Symbol(#symbol)) }
        }
        _ => quote!(#ty::Any),
    }
}
