//! Every network under `fixtures/checkpoints`, generated from ONNX, loads a checkpoint of the original: with other weights
//! than those in the ONNX file. Outputs are compared with PyTorch's for the checkpoint.
#![cfg(test)]

use kiln::backend::NdArray;
use kiln::record::Safetensors;
use kiln::tensor::{Int, Tensor, TensorData};
use kiln::weights::ImportError;
use std::path::Path;

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
