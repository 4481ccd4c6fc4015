//! The skeleton's text.

use super::config::Sizes;
use super::content::Part;
use super::layers::Origin;
use super::naming::{Named, NamedField, Naming};
use super::types::{Field, Type, Types, innermost};
use super::{SkeletonError, SkeletonOptions};
use kiln_codegen::RecordType;
use kiln_codegen::names::{self, ident};
use kiln_codegen::print::{markers, print};
use kiln_types::{Derivation, KeyBase};
use proc_macro2::TokenStream;
use quote::{format_ident, quote};

/// How long lines of comments become.
const WIDTH: usize = 100;

/// Everything about a skeleton but its text.
pub(super) struct Typed<'a> {
    pub(super) types: &'a Types,
    pub(super) naming: &'a Naming,
    /// The model's struct.
    pub(super) root: usize,
    /// The model's contents.
    pub(super) parts: &'a [Part],
}

/// The head of the source.
fn head(options: &SkeletonOptions) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let from = match names::comment(&options.source_name) {
        name if name.is_empty() => String::new(),
        name => format!(" from `{name}`"),
    };
    // The file's name, which may be of any length, has the first line.
    let text = "It is yours to complete: a checkpoint holds weights, but not what is done with them. Strides, paddings, \
                dilations, epsilons, and whether the batch comes first are the layers' defaults, groups and heads are \
                what the sizes suggest, and every `forward` is missing.";
    let rest: String = wrapped(text).iter().map(|line| format!("// {line}\n")).collect();
    format!("// A skeleton that Kiln {version} made{from}.\n{rest}")
}

/// Text in lines of bearable length; what stands between backticks stays together.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut word = String::new();
    for part in text.split(' ') {
        if !word.is_empty() {
            word.push(' ');
        }
        word.push_str(part);
        if word.matches('`').count() % 2 == 1 {
            continue;
        }
        let word = std::mem::take(&mut word);
        match lines.last_mut() {
            Some(line) if line.chars().count() + word.chars().count() < WIDTH => {
                line.push(' ');
                line.push_str(&word);
            }
            _ => lines.push(word),
        }
    }
    if !word.is_empty() {
        lines.push(word);
    }
    lines
}

/// A documentation comment.
fn doc(text: &str) -> TokenStream {
    let lines = wrapped(text).into_iter().map(|line| format!(" {line}"));
    quote!(#(#[doc = #lines])*)
}

/// A path below the runtime that is a constant of Kiln's.
pub(super) fn path(path: &str) -> Result<TokenStream, SkeletonError> {
    path.parse().map_err(|error: proc_macro2::LexError| SkeletonError::Internal(error.to_string()))
}

/// Whether the items of lists of this type are structs.
pub(super) fn is_module(ty: &Type) -> bool {
    matches!(innermost(ty), Type::Module(_))
}

impl Typed<'_> {
    /// The source of a skeleton.
    pub(super) fn emit(&self, options: &SkeletonOptions) -> Result<String, SkeletonError> {
        let mut items = Vec::new();
        for id in self.types.reachable(self.root) {
            items.push(self.item(id)?);
            if id == self.root {
                items.push(self.model(options)?);
            }
        }
        let uses = self.uses(options);
        print(&format!("{}\n", head(options)), quote!(#uses #(#items)*))
            .map_err(|error| SkeletonError::Internal(error.to_string()))
    }

    /// A struct's name.
    pub(super) fn name(&self, id: usize) -> &str {
        self.naming.structs.get(&id).map_or("", |named| named.name.as_str())
    }

    /// A struct's fields.
    pub(super) fn fields(&self, id: usize) -> impl Iterator<Item = (&Field, &NamedField)> {
        let fields = self.types.structs.get(id).into_iter().flatten();
        fields.zip(self.naming.structs.get(&id).into_iter().flat_map(|named| &named.fields))
    }

    /// The imports that the skeleton needs.
    fn uses(&self, options: &SkeletonOptions) -> TokenStream {
        let runtime = ident(&options.runtime_crate);
        let reachable = self.types.reachable(self.root);
        let fields = reachable.iter().filter_map(|id| self.types.structs.get(*id)).flatten();
        let types: Vec<&Type> = fields.map(|field| innermost(&field.ty)).collect();
        let has = |test: fn(&Type) -> bool| types.iter().any(|ty| test(ty));
        let param = has(|ty| matches!(ty, Type::Param(..)));
        let initializer = has(|ty| matches!(ty, Type::Param(_, "")));
        let (int, bool) =
            (has(|ty| matches!(ty, Type::Param(_, "Int"))), has(|ty| matches!(ty, Type::Param(_, "Bool"))));
        let layer = has(|ty| matches!(ty, Type::Layer(_)));
        let tokens = |on: bool, tokens: TokenStream| if on { tokens } else { TokenStream::new() };
        let module = match (param, int || bool) {
            (false, _) => quote!(Module),
            (true, false) => quote!({Module, Param}),
            (true, true) => quote!({Module, Param, ParamId}),
        };
        let nn = tokens(layer, quote!(use #runtime::nn;));
        let initializer = tokens(initializer, quote!(use #runtime::nn::Initializer;));
        let (int, data) = (
            tokens(int, quote!(use #runtime::tensor::Int;)),
            tokens(bool, quote!(use #runtime::tensor::{Bool, TensorData};)),
        );
        let tensor = tokens(param, quote!(use #runtime::tensor::Tensor;));
        let records = record_names(options).into_iter().map(ident);
        quote! {
            use #runtime::config::Config;
            use #runtime::module::#module;
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
    fn item(&self, id: usize) -> Result<TokenStream, SkeletonError> {
        let Some(Named { name, places, .. }) = self.naming.structs.get(&id) else {
            return Ok(TokenStream::new());
        };
        let (config, name) = (format_ident!("{name}Config"), ident(name));
        let (mut fields, mut sizes, mut values) = (Vec::new(), Vec::new(), Vec::new());
        for (field, named) in self.fields(id) {
            let member = ident(&named.name);
            let key = names::comment(&field.key);
            let (text, short) = (doc(&format!("`{key}`{}", named.doc)), doc(&format!("Of `{key}`.")));
            let attributes = attributes(field, named);
            let (ty, config_ty) = (self.ty(&field.ty)?, self.config_ty(&field.ty)?);
            let (ty, config_ty) = match field.optional {
                true => (quote!(Option<#ty>), quote!(Option<#config_ty>)),
                false => (ty, config_ty),
            };
            let value = init_field(field, quote!(self.#member))?;
            fields.push(quote!(#text #attributes pub #member: #ty));
            sizes.push(quote!(#short pub #member: #config_ty));
            values.push(quote!(#member: #value));
        }
        let text = if id == self.root { doc("The model.") } else { doc(&format!("{places}.")) };
        let what = doc(&format!("Configuration of [`{name}`]."));
        let blank = markers::blank();
        Ok(quote! {
            #blank
            #text
            #[derive(Module, Debug)]
            pub struct #name<B: Backend> { #(#fields),* }

            #blank
            #what
            #[derive(Config, Debug)]
            pub struct #config { #(#sizes),* }

            #blank
            impl #config {
                /// A module whose parameters are made when first used.
                pub fn init<B: Backend>(&self, device: &B::Device) -> #name<B> {
                    #name { #(#values),* }
                }
            }
        })
    }

    /// How the model is made and loaded.
    fn model(&self, options: &SkeletonOptions) -> Result<TokenStream, SkeletonError> {
        let name = ident(self.name(self.root));
        let config = format_ident!("{name}Config");
        let sizes = Sizes::of(self)?;
        let load = load(options)?;
        let blank = markers::blank();
        Ok(quote! {
            #blank
            impl<B: Backend> #name<B> {
                /// The model of the checkpoint's sizes, with parameters that are made when first used.
                pub fn new(device: &B::Device) -> Self {
                    #config::of_checkpoint().init(device)
                }

                #blank
                /// The model with the weights of the record that was written beside this file.
                ///
                /// # Errors
                /// When the file is no such record.
                pub fn from_file(path: impl AsRef<std::path::Path>, device: &B::Device) -> Result<Self, RecorderError> {
                    #load
                }
            }

            #blank
            impl #config {
                /// The sizes of the checkpoint.
                pub fn of_checkpoint() -> Self {
                    #sizes
                }
            }
        })
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
                let name = ident(self.name(*id));
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
                let name = format_ident!("{}Config", self.name(*id));
                quote!(#name)
            }
            Type::Param(rank, _) => {
                let rank = proc_macro2::Literal::usize_unsuffixed(*rank);
                quote!([usize; #rank])
            }
        })
    }
}

/// What a field starts as, from its configuration.
fn init_field(field: &Field, config: TokenStream) -> Result<TokenStream, SkeletonError> {
    match (&field.ty, field.optional) {
        (ty, false) => init(ty, config.clone(), config),
        (ty, true) => {
            let value = init(ty, quote!(item), quote!(*item))?;
            Ok(quote!(#config.as_ref().map(|item| #value)))
        }
    }
}

/// What starts from a configuration, which is given as a place and as a value.
fn init(ty: &Type, place: TokenStream, value: TokenStream) -> Result<TokenStream, SkeletonError> {
    Ok(match ty {
        Type::Layer(_) | Type::Module(_) => quote!(#place.init(device)),
        Type::List(item) => {
            let item = init(item, quote!(item), quote!(*item))?;
            quote!(#place.iter().map(|item| #item).collect())
        }
        Type::Param(_, "") => quote!(Initializer::Zeros.init(#value, device)),
        Type::Param(_, "Int") => {
            quote!(Param::initialized(ParamId::new(), Tensor::zeros(#value, device)))
        }
        Type::Param(..) => quote! {
            Param::initialized(ParamId::new(), Tensor::from_data(TensorData::zeros::<bool, _>(#value), device))
        },
    })
}

/// What the module has to know about a field.
fn attributes(field: &Field, named: &NamedField) -> TokenStream {
    let mut attributes = Vec::new();
    if named.name != field.key {
        let key = &field.key;
        attributes.push(quote!(rename = #key));
    }
    let from = field.from.iter().map(|(parameter, origin)| {
        let parameter = ident(parameter);
        let text = match origin {
            Origin::Key(name) => {
                Derivation::key(format!("{}.{name}", field.key), KeyBase::Module).to_string()
            }
            Origin::Number(number) => (*number).to_owned(),
        };
        quote!(#parameter = #text)
    });
    if !field.from.is_empty() {
        attributes.push(quote!(from(#(#from),*)));
    }
    if attributes.is_empty() { TokenStream::new() } else { quote!(#[module(#(#attributes),*)]) }
}

/// What the skeleton imports from the runtime's `record`, in order.
fn record_names(options: &SkeletonOptions) -> Vec<&'static str> {
    match (options.record, options.record.named()) {
        (_, Some(_)) => vec!["Format", "RecorderError", "load_named"],
        (RecordType::Safetensors, _) => vec!["RecorderError", "load_safetensors"],
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
        (RecordType::Safetensors, _) => quote!(load_safetensors(Self::new(device), path, device)),
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

/// Numbers without the suffix that `quote` gives them.
pub(super) fn unsuffixed(tokens: TokenStream) -> TokenStream {
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
