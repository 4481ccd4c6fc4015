//! The skeletons that `kiln convert` makes of checkpoints compile, and load the records that it writes beside them.
#![cfg(all(feature = "weights", feature = "ndarray"))]
#![allow(missing_docs)]

use kiln::module::{Module, ModuleVisitor, Param};
use kiln::record::{BinFileRecorder, FullPrecisionSettings, HalfPrecisionSettings, PrettyJsonFileRecorder};
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

skeletons!(kinds kinds_bincode_half net net_bert_encoder net_bincode net_pretty_json net_residual_cnn_unfolded parameters);

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

/// Records in fields, also of layers that no network here has, have the form that the runtime gives them: saved again,
/// they are the same bytes.
#[test]
fn records_have_the_form_of_the_runtimes_layers() {
    let (device, folder) = (Default::default(), std::env::temp_dir());
    let again = |name: &str| folder.join(format!("kiln-skeletons-{name}-{}", std::process::id()));
    let read = |path: &Path| std::fs::read(path).unwrap();

    let path = record("kinds_bincode_half").with_extension("bin");
    let kinds = kinds_bincode_half::Model::<Cpu>::from_file(&path, &device).unwrap();
    let copy = again("kinds").with_extension("bin");
    kinds.clone().save_file(&copy, &BinFileRecorder::<HalfPrecisionSettings>::new()).unwrap();
    assert!(read(&copy) == read(&path));
    let plain = kinds::Model::<Cpu>::from_file(record("kinds"), &device).unwrap();
    assert_eq!(parameters(&kinds), parameters(&plain));

    let path = record("net_bincode").with_extension("bin");
    let net = net_bincode::Model::<Cpu>::from_file(&path, &device).unwrap();
    let copy = again("net").with_extension("bin");
    net.clone().save_file(&copy, &BinFileRecorder::<FullPrecisionSettings>::new()).unwrap();
    assert!(read(&copy) == read(&path));

    let path = record("net_pretty_json").with_extension("json");
    let named = net_pretty_json::Model::<Cpu>::from_file(&path, &device).unwrap();
    let copy = again("net").with_extension("json");
    named.save_file(&copy, &PrettyJsonFileRecorder::<FullPrecisionSettings>::new()).unwrap();
    assert!(read(&copy) == read(&path));
    for name in ["kinds.bin", "net.bin", "net.json"] {
        let (stem, extension) = name.split_once('.').unwrap();
        std::fs::remove_file(again(stem).with_extension(extension)).unwrap();
    }
}
