//! Under which name the user's crate knows the runtime.

use proc_macro_crate::{FoundCrate, crate_name};
use proc_macro2::{Ident, Span, TokenStream};
use quote::quote;

/// The crates that have all that a derive's output names, each under the same paths. The facade comes last: a crate below it,
/// which depends on the core, may use the facade in its tests.
const RUNTIMES: [&str; 2] = ["kiln-core", "kiln"];

/// The absolute path of the runtime: `::kiln`, `::burn` for `burn = { package = "kiln" }`, or `::kiln_core` in the crates
/// that the facade re-exports.
///
/// When the manifest names neither, `::kiln` is what the compiler then reports as missing.
pub fn path() -> TokenStream {
    let found = RUNTIMES.into_iter().find_map(|package| match crate_name(package) {
        Ok(FoundCrate::Name(name)) => Some(name),
        // The core declares itself under its own name; so do the facade's tests.
        Ok(FoundCrate::Itself) => Some(package.replace('-', "_")),
        Err(_) => None,
    });
    let name = Ident::new(found.as_deref().unwrap_or("kiln"), Span::call_site());
    quote!(::#name)
}
