//! Module skeletons: from a checkpoint's keys to structs that hold its tensors, with everything but `forward`.
//!
//! The key tree becomes structs (`tree`); a branch whose tensors look like a layer's becomes that layer (`content`, `layers`),
//! equal branches become one struct, numbered ones a `Vec`, whose items may differ in parts that some have not (`types`).
//! What a file does not tell (strides, heads, what is done with the modules) is left at its default or to the user, and
//! the source says so (`naming`, `emit`).
#![forbid(unsafe_code)]

mod attention;
mod config;
mod content;
mod convolutions;
mod emit;
mod layers;
mod naming;
mod normalized;
mod norms;
mod record;
mod recurrent;
mod settled;
mod tree;
mod types;

pub use record::layer_names;
pub use tree::MAX_DEPTH;

use kiln_codegen::names;
use kiln_codegen::{Generated, RecordType};
use kiln_record::RecordError;
use kiln_record::safetensors::BACKEND_DTYPES_KEY;
use kiln_weights::{LazyTensor, WeightsError};
use std::collections::BTreeMap;
use std::path::Path;

/// How a skeleton is generated.
#[derive(Clone, Debug)]
pub struct SkeletonOptions {
    /// The name under which the user's crate knows the runtime.
    pub runtime_crate: String,
    /// Name of the model's struct.
    pub model_name: String,
    /// Name of the checkpoint's file, for the head of the source; without folders.
    pub source_name: String,
    /// Whether the layers follow PyTorch's conventions; else Kiln's own.
    pub pytorch: bool,
    /// Layers that are settled by the user, by key: `("head", "Embedding")`. `Param` is no layer; a part of a key that is
    /// `*` stands for any: `("layers.*.act", "PRelu")`.
    pub settled: BTreeMap<String, String>,
    /// Format of the record.
    pub record: RecordType,
    /// Whether the record holds floats as f16.
    pub half_precision: bool,
}

impl Default for SkeletonOptions {
    fn default() -> Self {
        Self {
            runtime_crate: "kiln".to_owned(),
            model_name: "Model".to_owned(),
            source_name: String::new(),
            pytorch: true,
            settled: BTreeMap::new(),
            record: RecordType::Safetensors,
            half_precision: false,
        }
    }
}

/// A skeleton and its record.
#[derive(Clone, Debug)]
pub struct Skeleton {
    /// The Rust source, and the parameters in the form of its structs.
    pub generated: Generated,
    /// Keys whose layer could be another one, with what the source says about it. A part that is `*` stands for the numbers of
    /// a list.
    pub ambiguous: Vec<(String, String)>,
    /// What all keys begin with, if it is what a wrapper around the network puts there: `module`.
    pub wrapper: Option<&'static str>,
}

impl Skeleton {
    /// Writes the record to a file; one that is there is replaced.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write_record(&self, path: &Path) -> Result<(), RecordError> {
        if self.generated.format != RecordType::Safetensors {
            return self.generated.write_record(path);
        }
        // The dtypes of a checkpoint say how it was stored; nothing tells that its model computes in them.
        let metadata = BTreeMap::from([(BACKEND_DTYPES_KEY.to_owned(), "true".to_owned())]);
        kiln_record::safetensors::save(path, &self.generated.tensors(), &metadata)
    }
}

/// Most structs of a skeleton. Layers of one kind share one; networks have dozens.
const MAX_STRUCTS: usize = 4096;

/// Why there is no skeleton.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SkeletonError {
    /// The runtime crate's name is no identifier.
    #[error("the runtime crate cannot be called {0:?}")]
    RuntimeName(String),
    /// There are no tensors.
    #[error("the checkpoint has no tensors")]
    Empty,
    /// A key is that of a tensor and the beginning of another one's.
    #[error("{0:?} is a tensor, and there are others below it")]
    TensorAndModule(String),
    /// A key has too many parts.
    #[error("{key:?} has more than {limit} parts", limit = tree::MAX_DEPTH)]
    TooDeep {
        /// The key, cut.
        key: String,
    },
    /// The keys' parts have too little in common.
    #[error(
        "its keys would become {structs} different structs, and the limit is {MAX_STRUCTS}; a network has some hundreds at most: are these its keys?"
    )]
    TooManyStructs {
        /// How many.
        structs: usize,
    },
    /// The user settled a key that is no branch of the checkpoint.
    #[error("there is no layer {key:?} in the checkpoint; {candidates}")]
    NoSuchLayer {
        /// The key.
        key: String,
        /// What there is, as a sentence.
        candidates: String,
    },
    /// The user settled a layer that the tensors cannot be.
    #[error("{key:?} cannot be a {wanted}: {reason}")]
    DoesNotFit {
        /// The key.
        key: String,
        /// What the user wants.
        wanted: String,
        /// What it can be.
        reason: String,
    },
    /// A tensor could not be read.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// Generated tokens are no Rust file: a defect of Kiln's.
    #[error("internal error, please report it: generated code does not parse: {0}")]
    Internal(String),
}

/// Generates the skeleton for tensors, which are given in the order of the file by their dotted keys.
///
/// # Errors
/// When the keys form no tree, a settled layer does not fit, or a tensor cannot be read.
pub fn skeleton(
    tensors: Vec<(String, LazyTensor)>,
    options: &SkeletonOptions,
) -> Result<Skeleton, SkeletonError> {
    if syn::parse_str::<proc_macro2::Ident>(&options.runtime_crate).is_err() {
        return Err(SkeletonError::RuntimeName(options.runtime_crate.clone()));
    }
    if tensors.is_empty() {
        return Err(SkeletonError::Empty);
    }
    let root = tree::build(tensors)?;
    let wrapper = wrapper(&root);
    let parts = content::read(root, options)?;
    let mut types = types::Types::default();
    let (parts, id) = types.root(parts);
    let structs = types.reachable(id).len();
    if structs > MAX_STRUCTS {
        return Err(SkeletonError::TooManyStructs { structs });
    }
    let model_name = names::pascal(&options.model_name, "Model");
    let naming = naming::name(&types, id, &parts, &model_name);
    let typed = emit::Typed { types: &types, naming: &naming, root: id, parts: &parts };
    let source = typed.emit(options)?;
    let record = record::record(&types, id, &parts)?;
    let generated =
        Generated { source, record, format: options.record, half_precision: options.half_precision };
    Ok(Skeleton { generated, ambiguous: naming.ambiguous, wrapper })
}

/// Wrappers that put their own name before every key: data parallel training, `torch.compile`, averages of weights.
const WRAPPERS: &[&str] = &["module", "_orig_mod", "_forward_module", "averaged_model"];

/// The wrapper around the whole network, if there is one.
fn wrapper(root: &tree::Branch) -> Option<&'static str> {
    match root.parts.as_slice() {
        [(name, tree::Tree::Branch(_))] => WRAPPERS.iter().find(|wrapper| *wrapper == name).copied(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_limits_tests::bounded;
    use kiln_types::{DType, TensorData};

    /// Everything but the text of a skeleton of so many keys, which takes time that grows with their number.
    fn read(keys: impl Iterator<Item = String>, shape: impl Fn(usize) -> Vec<usize>) {
        let tensor = |(index, key): (usize, String)| {
            let data = TensorData::from_bytes(Default::default(), shape(index), DType::F32);
            let tensor = LazyTensor::whole(data.expect("no elements"), &key);
            (key, tensor)
        };
        let root = tree::build(keys.enumerate().map(tensor).collect()).expect("a tree");
        let parts = content::read(root, &SkeletonOptions::default()).expect("contents");
        let mut types = types::Types::default();
        let (parts, id) = types.root(parts);
        naming::name(&types, id, &parts, "Model");
        record::record(&types, id, &parts).expect("a record");
    }

    fn vectors(keys: impl Iterator<Item = String>) {
        read(keys, |_| vec![0]);
    }

    #[test]
    fn many_parameters() {
        bounded(|| vectors((0..40_000).map(|n| format!("p{n}"))));
    }

    #[test]
    fn many_modules_alike() {
        bounded(|| vectors((0..40_000).map(|n| format!("m{}.{}", n / 2, ["a", "b"][n % 2]))));
    }

    /// Names without letters, so that all structs have the same.
    #[test]
    fn many_modules_without_names() {
        let marks = |n: usize| -> String { (0..14).map(|bit| ['!', '?'][n >> bit & 1]).collect() };
        bounded(move || vectors((0..10_000).map(move |n| format!("{}.p{n}", marks(n)))));
    }

    #[test]
    fn many_parameters_of_items() {
        bounded(|| vectors((0..40_000).map(|n| format!("list.{}.p{}", n / 20_000, n * 3 % 20_011))));
    }

    #[test]
    fn many_lists() {
        bounded(|| {
            vectors((0..20_000).map(|n| format!("l{}.0.{}", n / 2, ["p".to_owned(), format!("q{n}")][n % 2])))
        });
    }

    #[test]
    fn many_normalized_weights() {
        let key = |n: usize| format!("m.w{}_{}", n / 2, ["g", "v"][n % 2]);
        bounded(move || read((0..40_000).map(key), |n| [vec![0, 1], vec![0, 3]][n % 2].clone()));
    }

    #[test]
    fn many_convolutions() {
        bounded(|| read((0..40_000).map(|n| format!("c{n}.weight")), |n| vec![n, 0, 3]));
    }

    /// Long keys that have little in common, each part of which would be a struct.
    #[test]
    fn many_structs() {
        bounded(|| {
            let part = |at: usize| (b'a' + ((at as u64 * 2_654_435_761) >> 9) as u8 % 26) as char;
            let key = |n: usize| -> Vec<String> { (0..62).map(|at| part(n * 62 + at).to_string()).collect() };
            let tensor = |n: usize| {
                let data = TensorData::from_bytes(Default::default(), vec![0], DType::F32);
                let key = key(n).join(".");
                let tensor = LazyTensor::whole(data.expect("no elements"), &key);
                (key, tensor)
            };
            let error = skeleton((0..2_000).map(tensor).collect(), &SkeletonOptions::default());
            assert!(matches!(error, Err(SkeletonError::TooManyStructs { .. })));
        });
    }
}
