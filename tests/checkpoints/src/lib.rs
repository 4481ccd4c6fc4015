//! Every network under `fixtures/checkpoints`, generated from ONNX, loads a checkpoint of the original: with other weights
//! than those in the ONNX file. Outputs are compared with PyTorch's for the checkpoint, and once more after the model was
//! saved under the original's names and loaded again. `scripts/round_trip.py` gives what was saved to PyTorch.
#![cfg(test)]

use kiln::backend::NdArray;
use kiln::module::Module;
use kiln::record::Safetensors;
use kiln::tensor::{Int, Tensor, TensorData};
use kiln::weights::{AdapterType, ImportError, Undone, save_weights, save_weights_like};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

type Cpu = NdArray;

include!(concat!(env!("OUT_DIR"), "/cases.rs"));

fn floats<const D: usize>(data: TensorData) -> Tensor<Cpu, D> {
    Tensor::from_data(data, &Default::default())
}

fn integers<const D: usize>(data: TensorData) -> Tensor<Cpu, D, Int> {
    Tensor::from_data(data, &Default::default())
}

/// Runs a model and compares with PyTorch's output.
fn check(folder: &Path, run: impl FnOnce(TensorData) -> TensorData) {
    let io = Safetensors::open(&folder.join("io.safetensors")).expect("io.safetensors");
    let expected = io.tensor("output").expect("the output");
    let actual = run(io.tensor("input").expect("the input"));
    assert_eq!(actual.shape, expected.shape);
    let numbers = |data: TensorData| data.to_vec::<f32>().expect("floats");
    for (actual, expected) in numbers(actual).into_iter().zip(numbers(expected)) {
        let close = (actual - expected).abs() <= 1e-5 + 1e-4 * expected.abs();
        assert!(close, "{actual}, expected {expected}");
    }
}

/// What the exporter folded is refused with advice.
fn check_refusal(error: Option<ImportError>) {
    let error = error.map(|error| error.to_string()).unwrap_or_default();
    for part in ["the exporter changed", "optimize=False", "do_constant_folding=False"] {
        assert!(error.contains(part), "{error:?}");
    }
}

/// Saves a model that was loaded from a checkpoint, by itself and like the checkpoint, and loads it again.
fn check_saving<M: Module<Cpu>>(
    model: &M,
    name: &str,
    checkpoint: &Path,
    whole: bool,
    check_again: impl Fn(&Path),
) {
    // The name tells apart what tests save at the same time.
    let kept = std::env::var_os("KILN_SAVED").map(PathBuf::from);
    let folder = kept.clone().unwrap_or_else(std::env::temp_dir);
    let source = checkpoint.extension().and_then(|extension| extension.to_str()).expect("an extension");
    let file = |how: &str| folder.join(format!("{name}.{source}.{how}.safetensors"));

    let like = file("like");
    save_weights_like(model, checkpoint, &like).unwrap();
    let original = checkpoint.with_extension("safetensors");
    let (original, saved) = (tensors(&original), tensors(&like));
    // Of tied tensors, one file has both and the other one.
    assert!(original.iter().all(|(key, data)| saved.get(key) == Some(data)));
    check_again(&like);

    let alone = file("alone");
    match save_weights(model, &alone, AdapterType::PyTorch) {
        Ok(()) => {
            assert!(whole);
            let saved = tensors(&alone);
            for (key, data) in &original {
                let shape = saved.get(key).map(|data| &data.shape);
                assert_eq!(shape, Some(&data.shape), "{key}");
            }
            check_again(&alone);
        }
        Err(ImportError::Unsaved(report)) => {
            assert!(!whole, "{report}");
            let expected = |reason: &Undone| match reason {
                Undone::Partial { .. } => true,
                // Weights that were standardized, states that were multiplied.
                Undone::Changed | Undone::Operation(_) => ["computed", "cells_torchscript"].contains(&name),
                _ => false,
            };
            assert!(report.unsaved.iter().all(|unsaved| expected(&unsaved.reason)), "{report}");
        }
        Err(error) => panic!("{error}"),
    }
    if kept.is_none() {
        std::fs::remove_file(like).unwrap();
        let _ = std::fs::remove_file(alone);
    }
}

/// The tensors of a file.
fn tensors(path: &Path) -> BTreeMap<String, TensorData> {
    let file = Safetensors::open(path).unwrap();
    file.paths().map(|path| (path.to_owned(), file.tensor(path).unwrap())).collect()
}
