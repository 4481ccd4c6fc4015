//! The derive macros of Kiln: `Module`, `Config` and `Record`.
//!
//! They are re-exported, with their documentation, by the `kiln` crate; nothing else should depend on this one. Each
//! macro writes paths through whatever name the user's manifest gives to `kiln`, or to the core below it.
#![forbid(unsafe_code)]

mod config;
mod fields;
mod module;
mod record;
mod runtime;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// A derive: from the runtime's path and the type to the code.
type Expand = fn(&proc_macro2::TokenStream, &DeriveInput) -> syn::Result<proc_macro2::TokenStream>;

/// Runs a derive and turns its error into one that the compiler shows.
fn run(input: &DeriveInput, expand: Expand) -> TokenStream {
    expand(&runtime::path(), input).unwrap_or_else(|error| error.to_compile_error()).into()
}

/// Implements `Module` for a struct or an enum; see `kiln::module::Module`.
#[proc_macro_derive(Module, attributes(module))]
pub fn derive_module(input: TokenStream) -> TokenStream {
    run(&parse_macro_input!(input as DeriveInput), module::expand)
}

/// Implements `Config`, a constructor, builder methods and serialization; see `kiln::config::Config`.
#[proc_macro_derive(Config, attributes(config))]
pub fn derive_config(input: TokenStream) -> TokenStream {
    run(&parse_macro_input!(input as DeriveInput), config::expand)
}

/// Implements `Record` for a struct or an enum; see `kiln::record::Record`.
#[proc_macro_derive(Record, attributes(record))]
pub fn derive_record(input: TokenStream) -> TokenStream {
    run(&parse_macro_input!(input as DeriveInput), record::expand)
}
