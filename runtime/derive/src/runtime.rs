//! Under which name the user's crate knows the runtime.

use proc_macro_crate::{FoundCrate, crate_name};
use proc_macro2::{Ident, Span, TokenStream};
use quote::quote;

/// The absolute path of the `kiln` crate: `::kiln`, or `::burn` for `burn = { package = "kiln" }`.
///
/// Inside `kiln` itself it is `::kiln` too, since that crate declares `extern crate self as kiln`. When the manifest
/// does not name it, `::kiln` is what the compiler then reports as missing.
pub fn path() -> TokenStream {
    match crate_name("kiln") {
        Ok(FoundCrate::Name(name)) => {
            let name = Ident::new(&name, Span::call_site());
            quote!(::#name)
        }
        Ok(FoundCrate::Itself) | Err(_) => quote!(::kiln),
    }
}
