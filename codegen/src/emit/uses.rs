//! The imports of a source file.

use crate::names::ident;
use crate::spelling::import;
use proc_macro2::TokenStream;
use quote::quote;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use syn::{Path, PathSegment};

/// Paths of the runtime that the source mentions, collected as they are printed.
#[derive(Clone, Debug, Default)]
pub struct Uses {
    /// Imported names by module: `nn::conv` has `Conv2d`.
    imports: BTreeMap<String, BTreeSet<String>>,
    /// How each path is written.
    written: HashMap<String, Path>,
}

impl Uses {
    /// Writes a path of the runtime and notes its import.
    pub fn path(&mut self, path: &str) -> Path {
        if let Some(written) = self.written.get(path) {
            return written.clone();
        }
        let written = self.write(path);
        self.written.insert(path.to_owned(), written.clone());
        written
    }

    fn write(&mut self, path: &str) -> Path {
        let written = match import(path) {
            None => path.split("::").collect(),
            Some(import) => {
                let names = self.imports.entry(import.module.join("::")).or_default();
                names.insert(import.name.to_owned());
                import.written
            }
        };
        let segments = written.into_iter().map(|segment| PathSegment::from(ident(segment))).collect();
        Path { leading_colon: None, segments }
    }

    /// The `use` items.
    pub fn items(&self, runtime: &str) -> TokenStream {
        let runtime = ident(runtime);
        let items = self.imports.iter().map(|(module, names)| {
            let module = module.split("::").filter(|segment| !segment.is_empty()).map(ident);
            let names: Vec<_> = names.iter().map(|name| ident(name)).collect();
            match names.as_slice() {
                [name] => quote!(use #runtime #(::#module)*::#name;),
                names => quote!(use #runtime #(::#module)*::{#(#names),*};),
            }
        });
        quote!(#(#items)*)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quote::ToTokens;

    #[test]
    fn types_by_name_and_functions_by_module() {
        let mut uses = Uses::default();
        let mut written = |path| uses.path(path).to_token_stream().to_string();
        assert_eq!(written("nn::conv::Conv2dConfig::new"), "Conv2dConfig :: new");
        assert_eq!(written("tensor::activation::relu"), "activation :: relu");
        assert_eq!(written("None"), "None");
        assert_eq!(
            uses.items("kiln").to_string(),
            "use kiln :: nn :: conv :: Conv2dConfig ; use kiln :: tensor :: activation ;"
        );
    }
}
