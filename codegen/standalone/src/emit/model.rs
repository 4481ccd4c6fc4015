//! The file: weights, the model's struct, and the kernels.

use super::Emitter;
use crate::MOST_BYTES;
use crate::error::StandaloneError;
use crate::spelling::{add_identifiers, int, may_divide_by_zero, rust_type};
use crate::{Options, Standalone, library};
use kiln_codegen::names::{comment, ident};
use kiln_codegen::print::markers;
use kiln_codegen::{GENERATED_MARK, MOST_PARAMETERS, print};
use kiln_importer::ir::{Loops, ValueId};
use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use std::collections::BTreeSet;

/// Types of more parts are a clippy finding.
const MAX_OUTPUTS: usize = 3;

impl Emitter<'_, '_> {
    /// The source of a model, and its weights.
    pub(crate) fn finish(mut self, options: &Options) -> Result<Standalone, StandaloneError> {
        let body = self.body()?;
        let size = self.weights.size();
        if size > MOST_BYTES {
            return Err(StandaloneError::TooLarge { what: "bytes of weights", size, most: MOST_BYTES });
        }
        let weights = self.weights.bytes();
        let mut words = BTreeSet::new();
        add_identifiers(body.clone(), &mut words);
        let kernels = library::texts(words.iter().map(String::as_str));
        let panics = self.panics(&kernels);
        let model = ident(&options.model_name);
        let (structure, new) = self.memory_of_model()?;
        let docs = self.docs(weights.len());
        let statics = self.weights_of_model(&weights, options);
        let (parameters, result) = self.signature()?;
        let many_inputs = (parameters.len() + 1 > MOST_PARAMETERS)
            .then(|| quote!(#[allow(clippy::too_many_arguments, reason = "the model has as many inputs")]));
        let many_outputs = (self.program.outputs.len() > MAX_OUTPUTS)
            .then(|| quote!(#[allow(clippy::type_complexity, reason = "the model has as many outputs")]));
        let blank = markers::blank();
        let tokens = quote! {
            #statics
            #(#[doc = #docs])*
            pub struct #model { #structure }
            #blank
            impl #model {
                /// A model that has computed nothing yet: its memory, which may be a `static`.
                pub const fn new() -> Self {
                    Self { #new }
                }
                #blank
                /// Runs the model. What it returns is in its memory, until it runs again.
                #panics
                #many_inputs
                #many_outputs
                #[allow(clippy::needless_range_loop, reason = "a loop may look up elements of several tensors")]
                #[allow(clippy::eq_op, reason = "the model may compute with one number twice")]
                pub fn forward(&mut self, #(#parameters),*) -> #result { #body }
            }
            #blank
            impl Default for #model {
                fn default() -> Self {
                    Self::new()
                }
            }
        };
        let needs_libm = kernels.iter().any(|kernel| kernel.contains("libm::"));
        let mut source = print::print(&header(options, needs_libm), tokens)?;
        for kernel in kernels {
            source.push('\n');
            source.push_str(kernel);
            source.push('\n');
        }
        Ok(Standalone { source, weights })
    }

    /// When `forward` ends the program: what its kernels say of themselves, and integers that are divided by what may be 0.
    fn panics(&self, kernels: &[&'static str]) -> Option<TokenStream> {
        let mut reasons: BTreeSet<&str> = kernels.iter().flat_map(|kernel| library::panics(kernel)).collect();
        let divides = self.program.steps.iter().any(|step| {
            let Loops::Elementwise(loops) = &step.loops else { return false };
            loops.iter().any(|element_loop| {
                let dtype = |n: usize| Some(self.program.tensors.get((*step.operands.get(n)?)?)?.dtype);
                let dtypes: Option<Vec<_>> = element_loop.operands.iter().map(|(n, _)| dtype(*n)).collect();
                dtypes.is_some_and(|dtypes| may_divide_by_zero(&element_loop.expression, &dtypes))
            })
        });
        if divides {
            reasons.insert(" When an integer is divided by 0.");
        }
        (!reasons.is_empty()).then(|| {
            let reasons = reasons.into_iter();
            quote! {
                ///
                /// # Panics
                #(#[doc = #reasons])*
            }
        })
    }

    /// The statements of `forward`, and its result.
    fn body(&mut self) -> Result<TokenStream, StandaloneError> {
        let program = self.program;
        let mut body = TokenStream::new();
        for step in &program.steps {
            body.extend(self.step(step)?);
        }
        let mut outputs = Vec::new();
        for &output in &program.outputs {
            let at = self.memory.buffer(output).ok_or(StandaloneError::Missing("a buffer"))?;
            let field = &self.fields[at];
            outputs.push(quote!(&*#field));
        }
        let fields = &self.fields;
        let result =
            if let [output] = outputs.as_slice() { quote!(#output) } else { quote!((#(#outputs),*)) };
        Ok(quote! {
            let Self { #(#fields),* } = self;
            #body
            #result
        })
    }

    /// The struct's fields, and their values at first.
    fn memory_of_model(&self) -> Result<(TokenStream, TokenStream), StandaloneError> {
        let (mut declarations, mut values) = (TokenStream::new(), TokenStream::new());
        for (field, buffer) in self.fields.iter().zip(&self.memory.buffers) {
            let ty = ident(rust_type(buffer.dtype).ok_or(StandaloneError::Missing("a type"))?);
            let len = int(buffer.len);
            let zero = match rust_type(buffer.dtype) {
                Some("bool") => quote!(false),
                Some("f32") => quote!(0.0),
                Some(_) | None => quote!(0),
            };
            declarations.extend(quote!(#field: [#ty; #len],));
            values.extend(quote!(#field: [#zero; #len],));
        }
        Ok((declarations, values))
    }

    /// The parameters of `forward`, and its type.
    fn signature(&self) -> Result<(Vec<TokenStream>, TokenStream), StandaloneError> {
        let graph = self.program.graph;
        let array = |value: ValueId| {
            let ty = graph.ty(value);
            let element = ident(rust_type(ty.dtype).ok_or(StandaloneError::Missing("a type"))?);
            let len = int(ty.num_elements().as_size().ok_or(StandaloneError::Missing("a size"))?);
            Ok::<_, StandaloneError>(quote!(&[#element; #len]))
        };
        let mut parameters = Vec::new();
        for (n, (name, &value)) in self.inputs.iter().zip(&graph.inputs).enumerate() {
            let (ty, unread) = (array(value)?, format_ident!("_{name}"));
            let name = if self.read.contains(&n) { name } else { &unread };
            parameters.push(quote!(#name: #ty));
        }
        let results = graph.root.outputs.iter().map(|&value| array(value)).collect::<Result<Vec<_>, _>>()?;
        let result =
            if let [result] = results.as_slice() { quote!(#result) } else { quote!((#(#results),*)) };
        Ok((parameters, result))
    }

    /// The documentation of the struct.
    fn docs(&self, weights: usize) -> Vec<String> {
        let graph = self.program.graph;
        let describe = |name: &str, value: ValueId| {
            format!(" - `{}`: `{}`, row-major", comment(name), comment(&graph.ty(value).to_string()))
        };
        let title = match comment(&graph.name) {
            name if name.is_empty() => " A model that needs no runtime and allocates nothing.".to_owned(),
            name => format!(" The model `{name}`, which needs no runtime and allocates nothing."),
        };
        let memory = format!(
            " It has {weights} bytes of weights, which are constant, and {} bytes of memory.",
            self.memory.bytes()
        );
        let mut docs = vec![title, memory, String::new(), " Inputs:".to_owned()];
        docs.extend(graph.inputs.iter().map(|&input| describe(&graph.value(input).name, input)));
        docs.extend([String::new(), " Outputs:".to_owned()]);
        let names = graph.output_names.iter().map(String::as_str).chain(std::iter::repeat("output"));
        docs.extend(graph.root.outputs.iter().zip(names).map(|(&output, name)| describe(name, output)));
        docs
    }

    /// The weights, read from the file beside the source when it is compiled.
    fn weights_of_model(&self, weights: &[u8], options: &Options) -> TokenStream {
        let fields = self.weights.declarations();
        if fields.is_empty() {
            return TokenStream::new();
        }
        let (len, path) = (int(weights.len()), options.weights.tokens());
        let blank = markers::blank();
        let safety = match self.weights.have_flags() {
            false => {
                " SAFETY: the struct's fields have the order and sizes of the file's numbers, with nothing between them, and any bytes are numbers."
            }
            true => {
                " SAFETY: the struct's fields have the order and sizes of the file's numbers and flags, with nothing between them; any bytes are numbers, and bytes that are no flag the compiler refuses."
            }
        };
        let safety = quote!(#[doc = #safety]);
        quote! {
            #[cfg(target_endian = "big")]
            compile_error!("the weights are little-endian");
            #blank
            /// The numbers of the file with the weights, in its order.
            #[repr(C)]
            struct Weights { #(#fields),* }
            #blank
            #safety
            #[allow(unsafe_code)]
            static WEIGHTS: Weights = unsafe { core::mem::transmute::<[u8; #len], Weights>(*include_bytes!(#path)) };
            #blank
        }
    }
}

/// Says what the file is.
fn header(options: &Options, needs_libm: bool) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let source = match comment(&options.source_name) {
        name if name.is_empty() => String::new(),
        name => format!(" from `{name}`"),
    };
    let needs = if needs_libm { "It needs the crate `libm`" } else { "It needs no crate" };
    format!("{GENERATED_MARK}{version}{source}. Do not edit.\n// {needs}, and no standard library.\n\n")
}
