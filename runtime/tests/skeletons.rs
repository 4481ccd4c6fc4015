//! The skeletons that `kiln convert` makes of checkpoints compile, and load the records that it writes beside them.
#![cfg(all(feature = "weights", feature = "ndarray"))]
#![allow(missing_docs)]

use kiln::module::{Module, ModuleVisitor, Param};
use kiln::tensor::backend::Backend;
use kiln::tensor::{Bool, Int, Tensor, TensorData};
use kiln::weights::{LoadArgs, load_weights};
use std::path::{Path, PathBuf};

type Cpu = kiln::backend::NdArray;

/// A skeleton as it was written.
macro_rules! skeletons {
    ($($name:ident)*) => {$(
        mod $name {
            include!(concat!("../../codegen/tests/skeletons/", stringify!($name), ".rs"));
        }
    )*};
}

skeletons!(net net_bert_encoder net_residual_cnn_unfolded parameters);

/// All parameters, in order.
#[derive(Default)]
struct All(Vec<TensorData>);

impl<B: Backend> ModuleVisitor<B> for All {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        self.0.push(param.val().into_data());
    }

    fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<B, D, Int>>) {
        self.0.push(param.val().into_data());
    }

    fn visit_bool<const D: usize>(&mut self, param: &Param<Tensor<B, D, Bool>>) {
        self.0.push(param.val().into_data());
    }
}

fn parameters<M: Module<Cpu>>(module: &M) -> Vec<TensorData> {
    let mut all = All::default();
    module.visit(&mut all);
    all.0
}

fn record(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../codegen/tests/skeletons")
        .join(format!("{name}.safetensors"))
}

/// The record's way and the checkpoint's lead to the same module.
fn check<M: Module<Cpu>>(from_record: M, fresh: M, checkpoint: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/weights").join(checkpoint);
    let loaded = load_weights(fresh, LoadArgs::new(path).with_strict(true), &Default::default()).unwrap();
    assert_eq!(parameters(&from_record), parameters(&loaded), "{checkpoint}");
}

#[test]
fn skeletons_load_their_records_and_their_checkpoints() {
    let device = Default::default();
    check(net::Model::<Cpu>::from_file(record("net"), &device).unwrap(), net::Model::new(&device), "net.pt");
    check(
        net_bert_encoder::Model::<Cpu>::from_file(record("net_bert_encoder"), &device).unwrap(),
        net_bert_encoder::Model::new(&device),
        "of_cases/net_bert_encoder.pt",
    );
    check(
        net_residual_cnn_unfolded::Model::<Cpu>::from_file(record("net_residual_cnn_unfolded"), &device)
            .unwrap(),
        net_residual_cnn_unfolded::Model::new(&device),
        "of_cases/net_residual_cnn_unfolded.pt",
    );
    check(
        parameters::Model::<Cpu>::from_file(record("parameters"), &device).unwrap(),
        parameters::Model::new(&device),
        "parameters.pt",
    );
}
