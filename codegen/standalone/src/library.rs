//! The kernels: functions as text, which source brings along as they are.

use crate::spelling::{add_identifiers, rust_type};
use kiln_importer::ir::{Kernel, KernelArg};
use kiln_types::DType;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

/// The files in `kernels`, which the tests of this crate compile.
const FILES: [&str; 9] = [
    include_str!("kernels/products.rs"),
    include_str!("kernels/convolution.rs"),
    include_str!("kernels/pooling.rs"),
    include_str!("kernels/norms.rs"),
    include_str!("kernels/axes.rs"),
    include_str!("kernels/indexing.rs"),
    include_str!("kernels/attention.rs"),
    include_str!("kernels/recurrent.rs"),
    include_str!("kernels/numbers.rs"),
];

/// A function, a type or a number, with its documentation.
struct Item {
    text: &'static str,
    /// What else of the kernels it names.
    uses: BTreeSet<String>,
    /// Of a function, what its parameters are slices of: `f32`, or the name of a type parameter.
    elements: Vec<Option<String>>,
}

static ITEMS: LazyLock<BTreeMap<String, Item>> = LazyLock::new(items);

/// All items by their names.
fn items() -> BTreeMap<String, Item> {
    let parsed: Vec<(String, &'static str, syn::Item)> =
        FILES.iter().flat_map(|file| texts_of(file)).filter_map(parsed).collect();
    let named: BTreeSet<&str> = parsed.iter().map(|(name, ..)| name.as_str()).collect();
    let item = |(name, text, item): &(String, &'static str, syn::Item)| {
        let mut uses = BTreeSet::new();
        add_identifiers(quote::quote!(#item), &mut uses);
        uses.retain(|used| used != name && named.contains(used.as_str()));
        (name.clone(), Item { text, uses, elements: elements(item) })
    };
    parsed.iter().map(item).collect()
}

/// The texts of a file's items. One begins with its documentation at the beginning of a line, behind an empty line, as other text of a file never does.
fn texts_of(file: &'static str) -> impl Iterator<Item = &'static str> {
    let starts: Vec<usize> = file.match_indices("\n\n///").map(|(at, _)| at + 2).collect();
    let ends = starts.iter().skip(1).copied().chain([file.len()]).collect::<Vec<_>>();
    starts.into_iter().zip(ends).map(|(start, end)| file[start..end].trim_end())
}

/// An item with its name; a test sees to it that the files have no others.
fn parsed(text: &'static str) -> Option<(String, &'static str, syn::Item)> {
    let item = syn::parse_str(text).ok()?;
    let name = match &item {
        syn::Item::Fn(function) => &function.sig.ident,
        syn::Item::Struct(structure) => &structure.ident,
        syn::Item::Const(number) => &number.ident,
        _ => return None,
    };
    Some((name.to_string(), text, item))
}

/// What each parameter of a function is a slice of.
fn elements(item: &syn::Item) -> Vec<Option<String>> {
    let syn::Item::Fn(function) = item else { return Vec::new() };
    let parameters = function.sig.inputs.iter().filter_map(|parameter| match parameter {
        syn::FnArg::Typed(parameter) => Some(&*parameter.ty),
        syn::FnArg::Receiver(_) => None,
    });
    parameters.map(|ty| element(ty).map(ToString::to_string)).collect()
}

/// The type of a slice's elements: of one that is borrowed, or that there may be.
fn element(ty: &syn::Type) -> Option<&syn::Ident> {
    match ty {
        syn::Type::Reference(reference) => match &*reference.elem {
            syn::Type::Slice(slice) => match &*slice.elem {
                syn::Type::Path(element) => element.path.get_ident(),
                _ => None,
            },
            _ => None,
        },
        syn::Type::Path(path) => match &path.path.segments.last()?.arguments {
            syn::PathArguments::AngleBracketed(arguments) => {
                arguments.args.iter().find_map(|argument| match argument {
                    syn::GenericArgument::Type(ty) => element(ty),
                    _ => None,
                })
            }
            _ => None,
        },
        _ => None,
    }
}

/// When an item says that it ends the program: the lines behind that heading of its documentation.
pub(crate) fn panics(text: &'static str) -> impl Iterator<Item = &'static str> {
    let docs = text.lines().map_while(|line| line.strip_prefix("///"));
    docs.skip_while(|line| line.trim() != "# Panics").skip(1)
}

/// Whether a kernel takes operands of these dtypes.
pub(crate) fn takes(kernel: &Kernel, dtype: &dyn Fn(usize) -> Option<DType>) -> bool {
    let Some(item) = ITEMS.get(kernel.function) else { return false };
    // What a type parameter stands for.
    let mut stands_for: BTreeMap<&str, &str> = BTreeMap::new();
    kernel.args.iter().zip(&item.elements).all(|(arg, element)| {
        let (operand, element) = match (arg, element) {
            (KernelArg::Operand(n) | KernelArg::Optional(n), Some(element)) => (dtype(*n), element.as_str()),
            _ => return true,
        };
        let Some(actual) = operand.and_then(rust_type) else { return matches!(arg, KernelArg::Optional(_)) };
        match element {
            // Sums are of 32 bits; places are integers.
            "A" | "B" | "X" | "W" if !matches!(actual, "i8" | "u8" | "i16" | "u16" | "i32") => false,
            "I" if !matches!(actual, "i32" | "i64") => false,
            "A" | "B" | "X" | "W" | "I" | "T" => *stands_for.entry(element).or_insert(actual) == actual,
            element => element == actual,
        }
    })
}

/// The texts of some items and all that they use, in the order of their names.
pub(crate) fn texts<'n>(names: impl IntoIterator<Item = &'n str>) -> Vec<&'static str> {
    let mut wanted: BTreeSet<&str> = BTreeSet::new();
    let mut waiting: Vec<&str> = names.into_iter().collect();
    while let Some(name) = waiting.pop() {
        if let Some((name, item)) = ITEMS.get_key_value(name)
            && wanted.insert(name)
        {
            waiting.extend(item.uses.iter().map(String::as_str));
        }
    }
    wanted.into_iter().filter_map(|name| ITEMS.get(name).map(|item| item.text)).collect()
}

/// The names of all items, which nothing else in a source may have.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    ITEMS.keys().map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_of_the_files_is_one() {
        let is_known =
            |item: &syn::Item| matches!(item, syn::Item::Fn(_) | syn::Item::Struct(_) | syn::Item::Const(_));
        let mut found = 0;
        for file in FILES {
            let items = syn::parse_file(file).unwrap().items;
            assert!(items.iter().all(|item| is_known(item) || matches!(item, syn::Item::Use(_))));
            found += items.iter().filter(|item| is_known(item)).count();
        }
        assert_eq!(ITEMS.len(), found);
    }

    #[test]
    fn items_bring_what_they_use() {
        let texts = texts(["softmax"]).join("\n");
        for name in ["struct Axis", "fn lines", "fn exp", "fn max_pair", "fn softmax"] {
            assert!(texts.contains(name), "{name}");
        }
        assert!(!texts.contains("fn argmax"));
    }

    #[test]
    fn kernels_know_what_they_take() {
        let of = |function, dtypes: &[DType]| {
            let args = (0..dtypes.len()).map(KernelArg::Operand).collect();
            takes(&Kernel { function, args }, &|n| dtypes.get(n).copied())
        };
        assert!(of("matmul", &[DType::F32, DType::F32]) && !of("matmul", &[DType::I32, DType::I32]));
        assert!(of("take", &[DType::U8, DType::I64]) && !of("take", &[DType::U8, DType::F32]));
        assert!(of("matmul_integer", &[DType::U8, DType::I8, DType::U8, DType::I8]));
        assert!(!of("matmul_integer", &[DType::U8, DType::I8, DType::I8, DType::I8]));
        assert!(!of("nothing", &[]));
    }
}
