//! Checkpoints of PyTorch and Safetensors in modules, compared with what PyTorch computes.
#![cfg(all(feature = "weights", feature = "ndarray"))]
#![allow(missing_docs)]

use kiln::config::Config;
use kiln::module::{Module, Param, ParamId};
use kiln::nn::conv::{Conv1d, Conv1dConfig, Conv2d, Conv2dConfig, ConvTranspose2d, ConvTranspose2dConfig};
use kiln::nn::{
    BatchNorm, BatchNormConfig, BiLstm, BiLstmConfig, Embedding, EmbeddingConfig, GroupNorm, GroupNormConfig,
    Gru, GruConfig, LayerNorm, LayerNormConfig, Linear, LinearConfig, LinearLayout, PRelu, PReluConfig,
    PaddingConfig1d, PaddingConfig2d, Relu,
};
use kiln::record::{FullPrecisionSettings, Recorder, RecorderError, Safetensors};
use kiln::tensor::backend::Backend;
use kiln::tensor::{Int, Tensor, TensorData, activation};
use kiln::weights::{
    AdapterType, ImportError, LoadArgs, PyTorchFileRecorder, SafetensorsFileRecorder, config_from_file,
    load_weights, save_weights,
};
use kiln_record::safetensors::{TensorToWrite, save};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

type Cpu = kiln::backend::NdArray;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/weights").join(name)
}

/// The network that `scripts/weight_fixtures/network.py` saves.
#[derive(Module, Debug)]
struct Net<B: Backend> {
    conv: Conv2d<B>,
    bn: BatchNorm<B>,
    up: ConvTranspose2d<B>,
    group_norm: GroupNorm<B>,
    emb: Embedding<B>,
    conv1d: Conv1d<B>,
    norm: LayerNorm<B>,
    lstm: BiLstm<B>,
    gru: Gru<B>,
    layers: Vec<Linear<B>>,
    fc: Linear<B>,
}

impl<B: Backend> Net<B> {
    fn new(device: &B::Device) -> Self {
        Self {
            conv: Conv2dConfig::new([3, 4], [3, 3])
                .with_padding(PaddingConfig2d::Explicit(1, 1))
                .init(device),
            bn: BatchNormConfig::new(4).init(device),
            up: ConvTranspose2dConfig::new([4, 6], [2, 2]).with_stride([2, 2]).init(device),
            group_norm: GroupNormConfig::new(3, 6).init(device),
            emb: EmbeddingConfig::new(10, 6).init(device),
            conv1d: Conv1dConfig::new(6, 6, 3)
                .with_padding(PaddingConfig1d::Explicit(1))
                .with_groups(2)
                .init(device),
            norm: LayerNormConfig::new(6).init(device),
            lstm: BiLstmConfig::new(6, 5, true).init(device),
            gru: GruConfig::new(10, 4, true).init(device),
            layers: (0..3).map(|_| LinearConfig::new(4, 4).init(device)).collect(),
            fc: LinearConfig::new(10, 3).with_bias(false).init(device),
        }
    }

    fn forward(&self, image: Tensor<B, 4>, tokens: Tensor<B, 2, Int>) -> Tensor<B, 2> {
        let seen = self.bn.forward(self.conv.forward(image));
        let seen = self.group_norm.forward(self.up.forward(activation::relu(seen)));
        let [batch, channels, ..] = seen.dims();
        let seen = seen.mean_dim(3).mean_dim(2).reshape([batch, channels]);
        let x = self.conv1d.forward(self.emb.forward(tokens).swap_dims(1, 2)).swap_dims(1, 2);
        let (x, _) = self.lstm.forward(self.norm.forward(x), None);
        let mut x = self.gru.forward(x, None);
        for layer in &self.layers {
            x = layer.forward(x).tanh();
        }
        let [_, steps, size] = x.dims();
        let last = x.slice([0..batch, steps - 1..steps, 0..size]).reshape([batch, size]);
        self.fc.forward(Tensor::cat(vec![seen, last], 1))
    }
}

/// Runs a network on the recorded inputs and compares with PyTorch's answer.
fn check_answer(net: &Net<Cpu>, tolerance: f64) {
    let io = Safetensors::open(&fixture("net.io.safetensors")).unwrap();
    let device = Default::default();
    let image = Tensor::from_data(io.tensor("image").unwrap(), &device);
    let tokens = Tensor::from_data(io.tensor("tokens").unwrap(), &device);
    let answer = net.forward(image, tokens).into_data();
    let expected = io.tensor("answer").unwrap();
    assert_eq!(answer.shape, expected.shape);
    for (found, expected) in answer.iter::<f64>().zip(expected.iter::<f64>()) {
        assert!((found - expected).abs() <= tolerance, "{found} is not {expected}");
    }
}

#[test]
fn every_kind_of_checkpoint_loads_into_a_module() {
    let device = Default::default();
    let files = [
        ("net.pt", 1e-5),
        ("net_legacy.pt", 1e-5),
        ("net_tar.pt", 1e-5),
        ("net_torchscript.pt", 1e-5),
        ("net_traced.pt", 1e-5),
        ("net_sharded", 1e-5),
        ("net_sharded_bin/pytorch_model.bin.index.json", 1e-5),
        ("net.safetensors", 1e-5),
        ("net_half.pt", 5e-3),
        ("net_bfloat16.pt", 5e-2),
    ];
    for (file, tolerance) in files {
        let args = LoadArgs::from(fixture(file)).with_strict(true);
        let net = load_weights(Net::<Cpu>::new(&device), args, &device);
        check_answer(&net.unwrap_or_else(|error| panic!("{file}: {error}")), tolerance);
    }
    let args = LoadArgs::from(fixture("net_nested.pt")).with_top_level_key("model.state_dict");
    check_answer(&load_weights(Net::<Cpu>::new(&device), args, &device).unwrap(), 1e-5);
}

#[test]
fn every_kind_of_checkpoint_loads_as_a_record() {
    let device = Default::default();
    let net = |record| Net::<Cpu>::new(&device).load_record(record);
    for file in ["net.pt", "net_legacy.pt", "net_tar.pt", "net_torchscript.pt", "net_sharded_bin"] {
        let recorder = PyTorchFileRecorder::<FullPrecisionSettings>::default();
        check_answer(&net(recorder.load(fixture(file).into(), &device).unwrap()), 1e-5);
    }
    for file in ["net.safetensors", "net_sharded"] {
        let recorder = SafetensorsFileRecorder::<FullPrecisionSettings>::default();
        check_answer(&net(recorder.load(fixture(file).into(), &device).unwrap()), 1e-5);
    }
    let args = LoadArgs::new(fixture("net_nested_legacy.pt")).with_top_level_key("model.state_dict");
    let record = PyTorchFileRecorder::<FullPrecisionSettings>::default().load(args, &device);
    check_answer(&net(record.unwrap()), 1e-5);
}

#[test]
fn a_saved_module_is_the_checkpoint_again() {
    let device = Default::default();
    let net = load_weights(Net::<Cpu>::new(&device), fixture("net.pt"), &device).unwrap();
    let path = temporary("saved");
    save_weights(&net, &path, AdapterType::PyTorch).unwrap();
    let (saved, original) =
        (Safetensors::open(&path).unwrap(), Safetensors::open(&fixture("net.safetensors")).unwrap());
    assert!(saved.paths().eq(original.paths()));
    for key in original.paths() {
        let (saved, original) = (saved.tensor(key).unwrap(), original.tensor(key).unwrap());
        assert_eq!(saved.shape, original.shape, "{key}");
        if !key.ends_with("num_batches_tracked") {
            assert_eq!(saved, original, "{key}");
        }
    }
    check_answer(&load_weights(Net::<Cpu>::new(&device), path.as_path(), &device).unwrap(), 1e-5);
    std::fs::remove_file(path).unwrap();
}

fn temporary(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("kiln-weights-{name}-{}.safetensors", std::process::id()))
}

/// A file with tensors of these shapes, counting up.
fn written(name: &str, tensors: &[(&str, &[usize])]) -> PathBuf {
    let path = temporary(name);
    let tensors: Vec<_> = tensors
        .iter()
        .map(|(key, shape)| {
            let elements: Vec<f32> = (0..shape.iter().product()).map(|i: usize| i as f32).collect();
            TensorToWrite::new(*key, TensorData::new(elements, shape.to_vec()))
        })
        .collect();
    save(&path, &tensors, &BTreeMap::new()).unwrap();
    path
}

#[derive(Module, Debug)]
struct Small<B: Backend> {
    conv1: Conv2d<B>,
    conv2: Conv2d<B>,
}

impl<B: Backend> Small<B> {
    fn new(device: &B::Device) -> Self {
        Self {
            conv1: Conv2dConfig::new([2, 2], [2, 2]).init(device),
            conv2: Conv2dConfig::new([2, 2], [2, 2]).with_bias(false).init(device),
        }
    }
}

#[test]
fn keys_are_remapped_one_pattern_after_the_other() {
    let device = Default::default();
    let shape: &[usize] = &[2, 2, 2, 2];
    let file = written("remap", &[("net.a1.weight", shape), ("net.a1.bias", &[2]), ("net.a2.weight", shape)]);
    let args =
        LoadArgs::new(file.clone()).with_key_remap("net\\.(.*)", "$1").with_key_remap("^a(\\d)", "conv$1");
    let small = load_weights(Small::<Cpu>::new(&device), args.clone(), &device).unwrap();
    assert_eq!(small.conv1.bias.unwrap().val().into_data().to_vec::<f32>().unwrap(), [0.0, 1.0]);
    let record =
        PyTorchFileRecorder::<FullPrecisionSettings>::default().load(args.with_debug_print(), &device);
    let small = Small::<Cpu>::new(&device).load_record(record.unwrap());
    assert!(small.conv2.bias.is_none());
    let broken = LoadArgs::new(file.clone()).with_key_remap("(", "");
    assert!(matches!(load_weights(small.clone(), broken, &device), Err(ImportError::Pattern { .. })));
    let one = LoadArgs::new(file.clone()).with_key_remap("a[12]", "a");
    let error = load_weights(small, one, &device).unwrap_err().to_string();
    assert!(
        error.ends_with(r#"the keys "net.a1.weight" and "net.a2.weight" both become "net.a.weight""#),
        "{error}"
    );
    std::fs::remove_file(file).unwrap();
}

#[test]
fn what_does_not_fit_is_one_report() {
    let device = Default::default();
    let file = written(
        "report",
        &[("net.conv1.weight", &[2, 2, 2, 2]), ("net.conv1.bias", &[2]), ("conv2.weight", &[2, 2, 3, 3])],
    );
    let load = |args: LoadArgs| load_weights(Small::<Cpu>::new(&device), args, &device);
    let error = load(LoadArgs::new(file.clone())).unwrap_err().to_string();
    let expected = format!(
        "{} does not fit the module
  missing: conv1.weight [2, 2, 2, 2] (the file has net.conv1.weight [2, 2, 2, 2])
  missing: conv1.bias [2] (the file has net.conv1.bias [2])
  wrong: conv2.weight is float [2, 2, 2, 2], conv2.weight in the file is f32 [2, 2, 3, 3]
  unused: net.conv1.bias [2]
  unused: net.conv1.weight [2, 2, 2, 2]
  try --map '^net\\.(.*)=$1', or .with_key_remap(\"^net\\\\.(.*)\", \"$1\")",
        file.display()
    );
    assert_eq!(error, expected);
    let recorder = PyTorchFileRecorder::<FullPrecisionSettings>::default();
    let record =
        Recorder::<Cpu>::load::<<Small<Cpu> as Module<Cpu>>::Record>(&recorder, file.clone().into(), &device);
    let error = record.err().unwrap().to_string();
    assert!(error.contains("missing: conv1.weight (the file has net.conv1.weight [2, 2, 2, 2])"), "{error}");
    std::fs::remove_file(file).unwrap();
    let gone =
        Recorder::<Cpu>::load::<<Small<Cpu> as Module<Cpu>>::Record>(&recorder, "no/such.pt".into(), &device);
    assert!(matches!(gone, Err(RecorderError::FileNotFound(_))));
}

#[test]
fn a_part_of_a_module_is_loaded_when_asked_for() {
    let device = Default::default();
    let file = written("partial", &[("conv1.weight", &[2, 2, 2, 2]), ("conv1.bias", &[2]), ("other", &[1])]);
    let args = LoadArgs::new(file.clone()).with_partial(true);
    let before = Small::<Cpu>::new(&device);
    let kept = before.conv2.weight.val().into_data();
    let small = load_weights(before, args.clone(), &device).unwrap();
    assert_eq!(small.conv2.weight.val().into_data(), kept);
    assert_eq!(small.conv1.bias.as_ref().unwrap().val().into_data().to_vec::<f32>().unwrap(), [0.0, 1.0]);
    let error = load_weights(small, args.with_strict(true), &device).unwrap_err().to_string();
    assert!(error.contains("unused: other [1]"), "{error}");
    std::fs::remove_file(file).unwrap();
}

#[derive(Module, Debug)]
enum Part<B: Backend> {
    Relu(Relu),
    PRelu(PRelu<B>),
    Linear(Linear<B>),
}

#[derive(Module, Debug)]
struct Parts<B: Backend> {
    layers: Vec<Linear<B>>,
    first: Part<B>,
    second: Part<B>,
    third: Part<B>,
    optional: Option<Linear<B>>,
    steps: Param<Tensor<B, 1, Int>>,
}

impl<B: Backend> Parts<B> {
    fn new(device: &B::Device) -> Self {
        Self {
            layers: (0..3).map(|_| LinearConfig::new(1, 1).with_bias(false).init(device)).collect(),
            first: Part::Linear(
                LinearConfig::new(2, 3).with_layout(LinearLayout::Col).with_bias(false).init(device),
            ),
            second: Part::PRelu(PReluConfig::new().init(device)),
            third: Part::Relu(Relu::new()),
            optional: None,
            steps: Param::initialized(
                ParamId::new(),
                Tensor::from_data(TensorData::new(vec![0_i64], [1]), device),
            ),
        }
    }
}

#[test]
fn gaps_enums_optional_parts_and_kinds() {
    let device = Default::default();
    let path = temporary("parts");
    let mut tensors: Vec<_> = [0, 2, 10]
        .into_iter()
        .map(|i| TensorToWrite::new(format!("layers.{i}.weight"), TensorData::new(vec![i as f32], [1, 1])))
        .collect();
    let weight = TensorData::new(vec![1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0], [3, 2]);
    tensors.push(TensorToWrite::new("first.weight", weight));
    tensors.push(TensorToWrite::new("second.weight", TensorData::new(vec![0.5_f64], [1])));
    tensors.push(TensorToWrite::new("steps", TensorData::new(vec![7_i32], [1])));
    save(&path, &tensors, &BTreeMap::new()).unwrap();

    let check = |parts: &Parts<Cpu>| {
        let weights: Vec<f32> = parts.layers.iter().map(|layer| layer.weight.val().into_scalar()).collect();
        assert_eq!(weights, [0.0, 2.0, 10.0]);
        assert!(matches!(&parts.second, Part::PRelu(layer) if layer.alpha.val().into_scalar() == 0.5));
        assert!(matches!(parts.third, Part::Relu(_)));
        assert_eq!(parts.steps.val().into_data().iter::<i64>().collect::<Vec<_>>(), [7]);
    };
    let parts = load_weights(Parts::<Cpu>::new(&device), path.as_path(), &device).unwrap();
    check(&parts);
    let Part::Linear(first) = &parts.first else { panic!("the variant changed") };
    assert_eq!(first.weight.val().into_data().to_vec::<f32>().unwrap(), [1.0, 3.0, 5.0, 2.0, 4.0, 6.0]);

    let mut plain = Parts::<Cpu>::new(&device);
    plain.first = Part::Linear(LinearConfig::new(2, 3).with_bias(false).init(&device));
    let record =
        SafetensorsFileRecorder::<FullPrecisionSettings>::default().load(path.as_path().into(), &device);
    let parts = plain.load_record(record.unwrap());
    check(&parts);
    let Part::Linear(first) = &parts.first else { panic!("the variant changed") };
    assert_eq!(first.weight.val().into_data().to_vec::<f32>().unwrap(), [1.0, 3.0, 5.0, 2.0, 4.0, 6.0]);
    std::fs::remove_file(path).unwrap();
}

#[test]
fn without_an_adapter_tensors_are_taken_as_they_are() {
    let device = Default::default();
    let file = written("plain", &[("weight", &[2, 3])]);
    let args = LoadArgs::new(file.clone()).with_adapter_type(AdapterType::NoAdapter);
    let linear = || LinearConfig::new(2, 3).with_bias(false).init::<Cpu>(&device);
    let loaded = load_weights(linear(), args.clone(), &device).unwrap();
    assert_eq!(loaded.weight.val().into_data().to_vec::<f32>().unwrap(), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    assert!(load_weights(linear(), file.as_path(), &device).is_err());
    std::fs::remove_file(file).unwrap();
}

#[test]
fn a_configuration_is_read_from_a_checkpoint() {
    #[derive(Config, Debug)]
    struct NetConfig {
        name: String,
        hidden: usize,
        dropout: f64,
        sizes: Vec<i32>,
        nested: bool,
    }
    let wrong = config_from_file::<NetConfig, _>(fixture("net_nested.pt"), Some("config"));
    assert!(wrong.is_err(), "`nested` is a dict");
    #[derive(Config, Debug)]
    struct Fitting {
        name: String,
        hidden: usize,
        dropout: f64,
        sizes: Vec<i32>,
    }
    let config: Fitting = config_from_file(fixture("net_nested.pt"), Some("config")).unwrap();
    assert_eq!(
        (config.name.as_str(), config.hidden, config.dropout, config.sizes),
        ("net", 4, 0.1, vec![3, 4, 6])
    );
}
