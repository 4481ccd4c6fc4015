//! The skeleton's text.

use super::types::{Content, Struct, StructField, Type, Typed};
use super::{SkeletonError, SkeletonOptions};
use crate::RecordFormat;
use crate::names::{self, ident};
use proc_macro2::TokenStream;
use quote::{format_ident, quote};

/// The source of a skeleton.
pub(super) fn emit(
    typed: &Typed,
    model_name: &str,
    options: &SkeletonOptions,
) -> Result<String, SkeletonError> {
    let mut items =
        typed.structs.iter().rev().map(|known| typed.item(known)).collect::<Result<Vec<_>, _>>()?;
    // The model's struct is the last, and so the first here.
    items.insert(items.len().min(1), typed.model(model_name, options)?);
    let uses = typed.uses(options);
    let file =
        syn::parse2(quote!(#uses #(#items)*)).map_err(|error| SkeletonError::Internal(error.to_string()))?;
    let printed = spaced(&prettyplease::unparse(&file));
    let version = env!("CARGO_PKG_VERSION");
    let from = match names::comment(&options.source_name) {
        name if name.is_empty() => String::new(),
        name => format!(" from `{name}`"),
    };
    Ok(format!(
        "// A skeleton that Kiln {version} made{from}. It is yours to complete: a checkpoint holds weights, but not what\n\
         // is done with them. Strides, paddings, dilations, groups and epsilons are the layers' defaults, and every\n\
         // `forward` is missing.\n\n{printed}"
    ))
}

/// The text with an empty line after each item and each function, which the printer leaves out.
fn spaced(text: &str) -> String {
    let mut spaced = String::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        spaced.push_str(line);
        spaced.push('\n');
        let next = lines.peek().copied().unwrap_or_default();
        let imports_end = line.starts_with("use ") && !next.starts_with("use ");
        let item_ends = line == "}" || (line == "    }" && next != "}");
        if (imports_end || item_ends) && !next.is_empty() {
            spaced.push('\n');
        }
    }
    spaced
}

/// A path below the runtime that is a constant of Kiln's.
fn path(path: &str) -> Result<TokenStream, SkeletonError> {
    path.parse().map_err(|error: proc_macro2::LexError| SkeletonError::Internal(error.to_string()))
}

impl Typed {
    /// The imports that the skeleton needs.
    fn uses(&self, options: &SkeletonOptions) -> TokenStream {
        let runtime = ident(&options.runtime_crate);
        let types: Vec<&Type> =
            self.structs.iter().flat_map(|known| &known.fields).map(|field| innermost(&field.ty)).collect();
        let has = |test: fn(&Type) -> bool| types.iter().any(|ty| test(ty));
        let param = has(|ty| matches!(ty, Type::Param(..)));
        let initializer = has(|ty| matches!(ty, Type::Param(_, "")));
        let (int, bool) =
            (has(|ty| matches!(ty, Type::Param(_, "Int"))), has(|ty| matches!(ty, Type::Param(_, "Bool"))));
        let layer = has(|ty| matches!(ty, Type::Layer(_)));
        let tokens = |on: bool, tokens: TokenStream| if on { tokens } else { TokenStream::new() };
        let module = tokens(param, quote!(, Param));
        let nn = tokens(layer, quote!(use #runtime::nn;));
        let initializer = tokens(initializer, quote!(use #runtime::nn::Initializer;));
        let id = tokens(int || bool, quote!(, ParamId));
        let (int, data) = (
            tokens(int, quote!(use #runtime::tensor::Int;)),
            tokens(bool, quote!(use #runtime::tensor::{Bool, TensorData};)),
        );
        let tensor = tokens(param, quote!(use #runtime::tensor::Tensor;));
        let records = record_names(options).into_iter().map(ident);
        quote! {
            use #runtime::config::Config;
            use #runtime::module::{Module #module #id};
            #nn
            #initializer
            use #runtime::record::{#(#records),*};
            use #runtime::tensor::backend::Backend;
            #data
            #int
            #tensor
        }
    }

    /// A struct, its config, and how one makes the other.
    fn item(&self, known: &Struct) -> Result<TokenStream, SkeletonError> {
        let name = ident(&known.name);
        let config = format_ident!("{}Config", known.name);
        let what = format!("Configuration of [`{}`].", known.name);
        let (mut fields, mut sizes, mut values) = (Vec::new(), Vec::new(), Vec::new());
        for field in &known.fields {
            let member = ident(&field.name);
            let doc = format!(" {}", describe(field));
            let rename = (field.name != field.key).then(|| {
                let key = &field.key;
                quote!(#[module(rename = #key)])
            });
            let (ty, config_ty) = (self.ty(&field.ty)?, self.config_ty(&field.ty)?);
            let value = self.init(&field.ty, quote!(self.#member))?;
            fields.push(quote!(#[doc = #doc] #rename pub #member: #ty));
            sizes.push(quote!(#[doc = #doc] pub #member: #config_ty));
            values.push(quote!(#member: #value));
        }
        let doc = if known.name == self.root_name() { " The model." } else { " A part of the model." };
        let what = format!(" {what}");
        Ok(quote! {
            #[doc = #doc]
            #[derive(Module, Debug)]
            pub struct #name<B: Backend> { #(#fields),* }

            #[doc = #what]
            #[derive(Config, Debug)]
            pub struct #config { #(#sizes),* }

            impl #config {
                /// A module whose parameters are made when first used.
                pub fn init<B: Backend>(&self, device: &B::Device) -> #name<B> {
                    #name { #(#values),* }
                }
            }
        })
    }

    fn root_name(&self) -> &str {
        self.structs.last().map_or("", |known| known.name.as_str())
    }

    /// How the model is made and loaded.
    fn model(&self, model_name: &str, options: &SkeletonOptions) -> Result<TokenStream, SkeletonError> {
        let name = ident(model_name);
        let config = format_ident!("{model_name}Config");
        let sizes = self.config(&self.root)?;
        let load = load(options)?;
        Ok(quote! {
            impl<B: Backend> #name<B> {
                /// The model of the checkpoint's sizes, with parameters that are made when first used.
                pub fn new(device: &B::Device) -> Self {
                    #config::of_checkpoint().init(device)
                }

                /// The model with the weights of the record that was written beside this file.
                ///
                /// # Errors
                /// When the file is no such record.
                pub fn from_file(path: impl AsRef<std::path::Path>, device: &B::Device) -> Result<Self, RecorderError> {
                    #load
                }
            }

            impl #config {
                /// The sizes of the checkpoint.
                pub fn of_checkpoint() -> Self {
                    #sizes
                }
            }
        })
    }

    fn struct_name(&self, id: usize) -> &str {
        self.structs.get(id).map_or("", |known| known.name.as_str())
    }

    /// The type of a field.
    fn ty(&self, ty: &Type) -> Result<TokenStream, SkeletonError> {
        Ok(match ty {
            Type::Layer(layer) => {
                let layer = path(layer)?;
                quote!(#layer<B>)
            }
            Type::List(item) => {
                let item = self.ty(item)?;
                quote!(Vec<#item>)
            }
            Type::Module(id) => {
                let name = ident(self.struct_name(*id));
                quote!(#name<B>)
            }
            Type::Param(rank, kind) => {
                let rank = proc_macro2::Literal::usize_unsuffixed(*rank);
                let kind = (!kind.is_empty()).then(|| ident(kind)).map(|kind| quote!(, #kind));
                quote!(Param<Tensor<B, #rank #kind>>)
            }
        })
    }

    /// The type of a field's configuration.
    fn config_ty(&self, ty: &Type) -> Result<TokenStream, SkeletonError> {
        Ok(match ty {
            Type::Layer(layer) => path(&format!("{layer}Config"))?,
            Type::List(item) => {
                let item = self.config_ty(item)?;
                quote!(Vec<#item>)
            }
            Type::Module(id) => {
                let name = format_ident!("{}Config", self.struct_name(*id));
                quote!(#name)
            }
            Type::Param(rank, _) => {
                let rank = proc_macro2::Literal::usize_unsuffixed(*rank);
                quote!([usize; #rank])
            }
        })
    }

    /// What a field starts as, from its configuration.
    fn init(&self, ty: &Type, config: TokenStream) -> Result<TokenStream, SkeletonError> {
        Ok(match ty {
            Type::Layer(_) | Type::Module(_) => quote!(#config.init(device)),
            Type::List(item) => {
                let item = self.init(item, quote!(item))?;
                quote!(#config.iter().map(|item| #item).collect())
            }
            Type::Param(_, "") => quote!(Initializer::Zeros.init(#config, device)),
            Type::Param(_, "Int") => {
                quote!(Param::initialized(ParamId::new(), Tensor::zeros(#config, device)))
            }
            Type::Param(..) => quote! {
                Param::initialized(ParamId::new(), Tensor::from_data(TensorData::zeros::<bool, _>(#config), device))
            },
        })
    }

    /// The configuration of what a field holds in the checkpoint.
    fn config(&self, content: &Content) -> Result<TokenStream, SkeletonError> {
        Ok(match content {
            Content::Layer(layer) => {
                let (path, arguments) =
                    (path(&format!("{}Config", layer.path))?, unsuffixed(layer.config.clone()));
                quote!(#path::#arguments)
            }
            Content::List(items) => {
                let items = items.iter().map(|item| self.config(item)).collect::<Result<Vec<_>, _>>()?;
                let texts: Vec<String> = items.iter().map(ToString::to_string).collect();
                let same = texts.windows(2).all(|pair| pair.first() == pair.last());
                match items.first() {
                    Some(first) if same && items.len() > 1 => {
                        let count = proc_macro2::Literal::usize_unsuffixed(items.len());
                        quote!(vec![#first; #count])
                    }
                    _ => quote!(vec![#(#items),*]),
                }
            }
            Content::Module(id, contents) => {
                let name = format_ident!("{}Config", self.struct_name(*id));
                let fields = self.structs.get(*id).map(|known| known.fields.as_slice()).unwrap_or_default();
                let mut values = Vec::new();
                for (field, content) in fields.iter().zip(contents) {
                    let (member, value) = (ident(&field.name), self.config(content)?);
                    values.push(quote!(#member: #value));
                }
                quote!(#name { #(#values),* })
            }
            Content::Param(tensor) => {
                let dims = tensor.shape().iter().map(|dim| proc_macro2::Literal::usize_unsuffixed(*dim));
                quote!([#(#dims),*])
            }
        })
    }
}

/// What the skeleton imports from the runtime's `record`, in order.
fn record_names(options: &SkeletonOptions) -> Vec<&'static str> {
    match (options.record, options.record.named()) {
        (_, Some(_)) => vec!["Format", "RecorderError", "load_named"],
        (RecordFormat::Safetensors, _) => vec!["RecorderError", "load_safetensors"],
        _ => vec!["BinFileRecorder", settings(options), "Recorder", "RecorderError"],
    }
}

/// The precision of a record, as a type of the runtime's.
fn settings(options: &SkeletonOptions) -> &'static str {
    if options.half_precision { "HalfPrecisionSettings" } else { "FullPrecisionSettings" }
}

/// The body of `from_file`.
fn load(options: &SkeletonOptions) -> Result<TokenStream, SkeletonError> {
    Ok(match (options.record, options.record.named()) {
        (_, Some(format)) => {
            let format = path(format.trim_start_matches("record::"))?;
            quote!(load_named(Self::new(device), path, #format, device))
        }
        (RecordFormat::Safetensors, _) => quote!(load_safetensors(Self::new(device), path, device)),
        _ => {
            let settings = ident(settings(options));
            quote! {
                let recorder = BinFileRecorder::<#settings>::new();
                let record = recorder.load(path.as_ref().to_path_buf(), device)?;
                Self::new(device).try_load_record(record)
            }
        }
    })
}

/// The type that lists are of.
fn innermost(ty: &Type) -> &Type {
    match ty {
        Type::List(item) => innermost(item),
        ty => ty,
    }
}

/// What a field's documentation says.
fn describe(field: &StructField) -> String {
    let key = names::comment(&field.key);
    match &field.note {
        Some(note) => format!("`{key}`: {note}."),
        None => format!("`{key}`."),
    }
}

/// Numbers without the suffix that `quote` gives them.
fn unsuffixed(tokens: TokenStream) -> TokenStream {
    use proc_macro2::{Group, Literal, TokenTree};
    tokens
        .into_iter()
        .map(|token| match token {
            TokenTree::Literal(literal) => {
                let text = literal.to_string();
                match text.strip_suffix("usize").and_then(|digits| digits.parse().ok()) {
                    Some(number) => TokenTree::Literal(Literal::usize_unsuffixed(number)),
                    None => TokenTree::Literal(literal),
                }
            }
            TokenTree::Group(group) => {
                TokenTree::Group(Group::new(group.delimiter(), unsuffixed(group.stream())))
            }
            token => token,
        })
        .collect()
}
