//! The kernels: functions as text, which source brings along as they are.

use crate::program::rust_type;
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

/// What begins an item's code.
const KINDS: [&str; 3] = ["fn ", "struct ", "const "];

/// A function, a type or a number, with its documentation.
struct Item {
    text: &'static str,
    /// What else of the kernels it names.
    uses: BTreeSet<&'static str>,
    /// Of a function, what its parameters are slices of: `f32`, or the name of a type parameter.
    elements: Vec<Option<&'static str>>,
}

static ITEMS: LazyLock<BTreeMap<&'static str, Item>> = LazyLock::new(items);

/// All items by their names. One begins with its documentation at the beginning of a line.
fn items() -> BTreeMap<&'static str, Item> {
    let texts = FILES.iter().flat_map(|file| {
        let starts: Vec<usize> = file.match_indices("\n\n///").map(|(at, _)| at + 2).collect();
        let ends = starts.iter().skip(1).copied().chain([file.len()]).collect::<Vec<_>>();
        starts.into_iter().zip(ends).map(|(start, end)| file[start..end].trim_end())
    });
    let named: BTreeMap<&str, &str> = texts.filter_map(|text| Some((name(text)?, text))).collect();
    let item = |(&name, &text): (&&'static str, &&'static str)| {
        let uses = words(text).filter(|word| *word != name && named.contains_key(word)).collect();
        (name, Item { text, uses, elements: elements(text) })
    };
    named.iter().map(item).collect()
}

/// The lines of an item that are no documentation.
fn code(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.trim_start().starts_with("//"))
}

/// When an item says that it ends the program: the lines behind that heading of its documentation.
pub(crate) fn panics(text: &'static str) -> impl Iterator<Item = &'static str> {
    let docs = text.lines().map_while(|line| line.strip_prefix("///"));
    docs.skip_while(|line| line.trim() != "# Panics").skip(1)
}

/// What an item is called.
fn name(text: &'static str) -> Option<&'static str> {
    let line = code(text).find_map(|line| KINDS.iter().find_map(|kind| line.strip_prefix(kind)))?;
    words(line).next()
}

/// The identifiers of a text but those of methods and fields.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    let words = code(text).flat_map(move |line| line.split(move |c| !is_part(c)));
    words.filter_map(|word| word.split('.').next()).filter(|word| !word.is_empty())
}

/// What each parameter of a function is a slice of.
fn elements(text: &'static str) -> Vec<Option<&'static str>> {
    let parameters =
        text.split_once("fn ").and_then(|(_, rest)| rest.split_once('(')).map_or("", |(_, rest)| rest);
    let parameters = parameters.split_once(") {").map_or(parameters, |(inside, _)| inside);
    parameters
        .split(',')
        .filter(|parameter| parameter.contains(':'))
        .map(|parameter| {
            let ty = parameter.split_once(':')?.1;
            let (_, element) = ty.split_once("&[").or_else(|| ty.split_once("&mut ["))?;
            element.split_once(']').map(|(element, _)| element)
        })
        .collect()
}

/// Whether a kernel takes operands of these dtypes.
pub(crate) fn takes(kernel: &Kernel, dtype: &dyn Fn(usize) -> Option<DType>) -> bool {
    let Some(item) = ITEMS.get(kernel.function) else { return false };
    // What a type parameter stands for.
    let mut stands_for: BTreeMap<&str, &str> = BTreeMap::new();
    kernel.args.iter().zip(&item.elements).all(|(arg, element)| {
        let (operand, element) = match (arg, element) {
            (KernelArg::Operand(n) | KernelArg::Optional(n), Some(element)) => (dtype(*n), *element),
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
        if let Some((&name, item)) = ITEMS.get_key_value(name)
            && wanted.insert(name)
        {
            waiting.extend(&item.uses);
        }
    }
    wanted.into_iter().filter_map(|name| ITEMS.get(name).map(|item| item.text)).collect()
}

/// The names of all items, which nothing else in a source may have.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    ITEMS.keys().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_of_the_files_is_one() {
        let found: usize = FILES
            .iter()
            .map(|file| file.lines().filter(|line| KINDS.iter().any(|kind| line.starts_with(kind))).count())
            .sum();
        assert_eq!(ITEMS.len(), found);
        for (name, item) in ITEMS.iter() {
            assert!(syn::parse_str::<syn::Item>(item.text).is_ok(), "{name}");
        }
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
        assert!(of("quantized_matmul", &[DType::U8, DType::I8, DType::U8, DType::I8]));
        assert!(!of("quantized_matmul", &[DType::U8, DType::I8, DType::I8, DType::I8]));
        assert!(!of("nothing", &[]));
    }
}
