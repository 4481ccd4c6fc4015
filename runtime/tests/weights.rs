//! Checkpoints of PyTorch and Safetensors in modules, compared with what PyTorch computes.
#![cfg(all(feature = "weights", feature = "ndarray"))]
#![allow(missing_docs)]

use kiln::config::Config;
use kiln::module::{Module, Param, ParamId};
use kiln::nn::conv::{Conv2d, Conv2dConfig};
use kiln::nn::{Linear, LinearConfig, LinearLayout, PRelu, PReluConfig, Relu};
use kiln::record::{
    FullPrecisionSettings, NamedMpkFileRecorder, PrettyJsonFileRecorder, Recorder, RecorderError, Safetensors,
};
use kiln::tensor::backend::Backend;
use kiln::tensor::{DType, Int, Tensor, TensorData};
use kiln::weights::{
    AdapterType, LoadArgs, PyTorchFileRecorder, SafetensorsFileRecorder, config_from_file, load_weights,
    save_weights, save_weights_like,
};
use kiln_record::safetensors::{TensorToWrite, save};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

#[path = "shared/net.rs"]
mod net;

use net::{Cpu, Net, check_answer};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/weights").join(name)
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
    check_answer(&load_weights(Net::<Cpu>::new(&device), path.as_path(), &device).unwrap(), 1e-5, "saved");
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
struct Rest<B: Backend> {
    freqs: Param<Tensor<B, 1>>,
}

/// A module of which the file has only one part in a way that Kiln can read.
#[derive(Module, Debug)]
struct Partly<B: Backend> {
    linear: Linear<B>,
    other: Option<Rest<B>>,
}

impl<B: Backend> Partly<B> {
    fn new(other: bool, device: &B::Device) -> Self {
        let rest = || Rest { freqs: Param::initialized(ParamId::new(), Tensor::zeros([2], device)) };
        Self { linear: LinearConfig::new(3, 2).init(device), other: other.then(rest) }
    }
}

#[test]
fn what_no_tensor_holds_is_refused_where_it_is_needed() {
    let device = Default::default();
    let args = LoadArgs::new(fixture("unsupported.pt"));
    let load = |other: bool, args: LoadArgs| load_weights(Partly::<Cpu>::new(other, &device), args, &device);
    load(false, args.clone()).unwrap();
    let error = load(true, args.clone()).unwrap_err().to_string();
    let wrong = "wrong: other.freqs cannot be read: other.freqs is a tensor of complex numbers (complex64); convert it";
    assert!(error.contains(wrong) && error.contains("unused: other.sparse, a sparse tensor"), "{error}");
    let error = load(true, args.clone().with_partial(true)).unwrap_err().to_string();
    assert!(error.contains(wrong), "{error}");
    let error = load(false, args.clone().with_strict(true)).unwrap_err().to_string();
    assert!(error.contains("unused: other.freqs, a tensor of complex numbers"), "{error}");
    let recorder = PyTorchFileRecorder::<FullPrecisionSettings>::default();
    type PartlyRecord = <Partly<Cpu> as Module<Cpu>>::Record;
    let record = Recorder::<Cpu>::load::<PartlyRecord>(&recorder, args, &device);
    // A parameter that a module need not have, and that has another name in the file.
    let renamed = LoadArgs::new(fixture("unsupported.pt"))
        .with_key_remap("^linear.bias$", "spare")
        .with_key_remap("^other.freqs$", "linear.bias");
    let optional = Recorder::<Cpu>::load::<PartlyRecord>(&recorder, renamed, &device);
    let error = optional.err().unwrap().to_string();
    assert!(error.contains(r#"key "other.freqs": a tensor of complex numbers"#), "{error}");
    let module = Partly::<Cpu>::new(false, &device);
    let saved = save_weights_like(&module, fixture("unsupported.pt"), temporary("partly"));
    let lacks = saved.unwrap_err().to_string();
    assert!(
        lacks.contains(
            "other.bits, a tensor of bits without a meaning (bits8), which the saved file would lack"
        )
    );
    let error = record.err().unwrap().to_string();
    assert!(
        error.contains(r#"key "other.freqs": a tensor of complex numbers (complex64) cannot be read"#),
        "{error}"
    );
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
    let error = load_weights(small.clone(), broken, &device).unwrap_err().to_string();
    assert!(error.contains("the pattern \"(\" cannot be used: it is no regular expression"), "{error}");
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
  wrong: conv2.weight needs float [2, 2, 2, 2], conv2.weight in the file is f32 [2, 2, 3, 3]
  unused: net.conv1.bias [2]
  unused: net.conv1.weight [2, 2, 2, 2]
  try --map '^net\\.(.*)=${{1}}', or .with_key_remap(\"^net\\\\.(.*)\", \"${{1}}\")",
        file.display()
    );
    assert_eq!(error, expected);
    let recorder = PyTorchFileRecorder::<FullPrecisionSettings>::default();
    let record =
        Recorder::<Cpu>::load::<<Small<Cpu> as Module<Cpu>>::Record>(&recorder, file.clone().into(), &device);
    let error = record.err().unwrap().to_string();
    assert!(
        error.contains("missing: conv1.weight of 4 dims (the file has net.conv1.weight [2, 2, 2, 2])"),
        "{error}"
    );
    std::fs::remove_file(file).unwrap();
    let gone =
        Recorder::<Cpu>::load::<<Small<Cpu> as Module<Cpu>>::Record>(&recorder, "no/such.pt".into(), &device);
    assert!(matches!(gone, Err(RecorderError::FileNotFound(_))));
}

/// A module whose parameters are of no layer that the library knows.
#[derive(Module, Debug)]
struct Own<B: Backend> {
    table: Param<Tensor<B, 3>>,
    steps: Param<Tensor<B, 1, Int>>,
}

impl<B: Backend> Own<B> {
    fn new(device: &B::Device) -> Self {
        Self {
            table: Param::initialized(ParamId::new(), Tensor::zeros([2, 3, 4], device)),
            steps: Param::initialized(ParamId::new(), Tensor::zeros([2], device)),
        }
    }
}

#[test]
fn a_record_of_another_rank_or_kind_is_an_error_of_the_recorder() {
    let device = Default::default();
    let file = written("ranks", &[("table", &[6, 4]), ("steps", &[2])]);
    let record = PyTorchFileRecorder::<FullPrecisionSettings>::default()
        .load::<<Own<Cpu> as Module<Cpu>>::Record>(file.clone().into(), &device);
    let error = record.err().unwrap().to_string();
    assert!(error.contains("wrong: table needs float of 3 dims, table in the file is f32 [6, 4]"), "{error}");
    assert!(error.contains("wrong: steps needs int of 1 dims, steps in the file is f32 [2]"), "{error}");
    std::fs::remove_file(file).unwrap();

    // The same in a record of fields: a module of the same names, with other ranks.
    #[derive(Module, Debug)]
    struct Other<B: Backend> {
        table: Param<Tensor<B, 2>>,
        steps: Param<Tensor<B, 1, Int>>,
    }
    let other = Other::<Cpu> {
        table: Param::initialized(ParamId::new(), Tensor::zeros([6, 4], &device)),
        steps: Param::initialized(ParamId::new(), Tensor::zeros([2], &device)),
    };
    let path = temporary("other").with_extension("mpk");
    let recorder = NamedMpkFileRecorder::<FullPrecisionSettings>::default();
    other.save_file(&path, &recorder).unwrap();
    let error = Own::<Cpu>::new(&device).load_file(&path, &recorder, &device).unwrap_err().to_string();
    let expected = "the module has a tensor of 3 dims where the record has one of shape [6, 4]";
    assert!(error.contains(expected), "{error}");
    std::fs::remove_file(path).unwrap();
}

#[test]
fn matrices_the_other_way_round_are_recognised() {
    let device = Default::default();
    let file = written("turned", &[("weight", &[3, 2])]);
    let linear = LinearConfig::new(3, 2).with_bias(false).init::<Cpu>(&device);
    let error = load_weights(linear, file.as_path(), &device).unwrap_err().to_string();
    assert!(error.contains("wrong: weight needs float [2, 3], weight in the file is f32 [3, 2]"), "{error}");
    assert!(error.ends_with("the other way round: try --adapter, or .with_adapter_type"), "{error}");
    std::fs::remove_file(file).unwrap();
}

/// An LSTM's record names its activations, which a checkpoint does not have; Burn would refuse others.
#[test]
fn the_activations_of_an_lstm_are_those_of_pytorch() {
    let device = Default::default();
    let file = fixture("net.pt");
    let recorder = PyTorchFileRecorder::<FullPrecisionSettings>::default();
    let record: <Net<Cpu> as Module<Cpu>>::Record = recorder.load(file.into(), &device).unwrap();
    let path = temporary("activations").with_extension("json");
    Recorder::<Cpu>::record(
        &PrettyJsonFileRecorder::<FullPrecisionSettings>::default(),
        record,
        path.clone(),
    )
    .unwrap();
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    for direction in ["forward", "reverse"] {
        let lstm = &json["item"]["lstm"][direction];
        assert!(lstm["gate_activation"].get("Sigmoid").is_some(), "{}", lstm["gate_activation"]);
        assert!(lstm["cell_activation"].get("Tanh").is_some(), "{}", lstm["cell_activation"]);
        assert!(lstm["hidden_activation"].get("Tanh").is_some(), "{}", lstm["hidden_activation"]);
    }
    std::fs::remove_file(path).unwrap();
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

/// Each could be of any variant; all are tried together.
#[test]
fn a_list_of_many_enums() {
    #[derive(Module, Debug)]
    struct List<B: Backend> {
        parts: Vec<Part<B>>,
    }
    const COUNT: usize = 4_000;
    let device = Default::default();
    let path = temporary("enums");
    let tensors: Vec<_> = (0..COUNT)
        .map(|i| TensorToWrite::new(format!("parts.{i}.weight"), TensorData::new(vec![i as f32], [1, 1])))
        .collect();
    save(&path, &tensors, &BTreeMap::new()).unwrap();
    let record =
        SafetensorsFileRecorder::<FullPrecisionSettings>::default().load(path.as_path().into(), &device);
    let linear = || Part::Linear(LinearConfig::new(1, 1).with_bias(false).init(&device));
    let list = List::<Cpu> { parts: (0..COUNT).map(|_| linear()).collect() }.load_record(record.unwrap());
    for (i, part) in list.parts.iter().enumerate() {
        let Part::Linear(linear) = part else { panic!("part {i} is no linear layer") };
        assert_eq!(linear.weight.val().into_scalar(), i as f32);
    }
    std::fs::remove_file(path).unwrap();
}

/// A variant may hold an enum, which has no name of its own in the file.
#[test]
fn an_enum_within_an_enum() {
    #[derive(Module, Debug)]
    enum Outer<B: Backend> {
        Nested(Part<B>),
        Plain(PRelu<B>),
    }
    #[derive(Module, Debug)]
    struct Two<B: Backend> {
        layer: Outer<B>,
    }
    let device = Default::default();
    let path = temporary("nested-enums");
    save(&path, &[TensorToWrite::new("layer.weight", TensorData::new(vec![0.5_f32], [1]))], &BTreeMap::new())
        .unwrap();
    let record =
        SafetensorsFileRecorder::<FullPrecisionSettings>::default().load(path.as_path().into(), &device);
    let two = Two::<Cpu> { layer: Outer::Plain(PReluConfig::new().init(&device)) };
    let two = two.load_record(record.unwrap());
    let Outer::Plain(layer) = &two.layer else { panic!("{two:?}") };
    assert_eq!(layer.alpha.val().into_scalar(), 0.5);
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

/// PyTorch's scalars have no dims; Burn's modules have no tensors without any.
#[test]
fn scalars_have_no_dims_or_one() {
    #[derive(Module, Debug)]
    struct Scalars<B: Backend> {
        one: Param<Tensor<B, 1>>,
        none: Param<Tensor<B, 0>>,
        list: Param<Tensor<B, 1>>,
    }
    let device = Default::default();
    let new = || Scalars::<Cpu> {
        one: Param::initialized(ParamId::new(), Tensor::zeros([1], &device)),
        none: Param::initialized(
            ParamId::new(),
            Tensor::from_data(TensorData::new(vec![0.0_f32], []), &device),
        ),
        list: Param::initialized(ParamId::new(), Tensor::zeros([2], &device)),
    };
    let path = temporary("scalars");
    let scalar = |key: &str, value: f32, shape: &[usize]| {
        TensorToWrite::new(key, TensorData::new(vec![value; shape.iter().product()], shape.to_vec()))
    };
    let save = |list: &[usize]| {
        let tensors = [scalar("one", 2.5, &[]), scalar("none", 0.5, &[1]), scalar("list", 1.0, list)];
        save(&path, &tensors, &BTreeMap::new()).unwrap();
    };
    save(&[2]);
    let recorder = SafetensorsFileRecorder::<FullPrecisionSettings>::default();
    let record = recorder.load(path.as_path().into(), &device).unwrap();
    for loaded in
        [load_weights(new(), path.as_path(), &device).unwrap(), new().try_load_record(record).unwrap()]
    {
        assert_eq!(loaded.one.val().into_data(), TensorData::new(vec![2.5_f32], [1]));
        assert_eq!(loaded.none.val().into_data(), TensorData::new(vec![0.5_f32], []));
    }
    save(&[]);
    let error = load_weights(new(), path.as_path(), &device).unwrap_err().to_string();
    assert!(error.contains("wrong: list needs float [2], list in the file is f32 []"), "{error}");
    std::fs::remove_file(path).unwrap();
}

/// Those that are known how to compute are computed; `tests/skeletons.rs` has the normalized ones.
#[test]
fn a_pruned_weight_is_what_is_left_of_it() {
    let linear = LinearConfig::new(2, 2).with_bias(false).init::<Cpu>(&Default::default());
    let file = written("pruned", &[("weight_orig", &[2, 2][..]), ("weight_mask", &[2, 2][..])]);
    let loaded = load_weights(linear, LoadArgs::from(file.as_path()).with_strict(true), &Default::default());
    let [a, b, c, d] = [0.0_f32, 1.0, 4.0, 9.0];
    assert_eq!(loaded.unwrap().weight.val().into_data(), TensorData::new(vec![a, c, b, d], [2, 2]));
    std::fs::remove_file(file).unwrap();
}

#[test]
fn weights_that_pytorch_computes_are_told() {
    let device = Default::default();
    let linear = || LinearConfig::new(2, 2).with_bias(false).init::<Cpu>(&device);
    for (keys, says) in [
        (
            ["parametrizations.weight.original0", "parametrizations.weight.original1"],
            "remove_parametrizations",
        ),
        (["weight_g", "weight_v"], "remove_weight_norm"),
        (["weight_orig", "weight_more"], "prune.remove"),
    ] {
        let file = written("parametrized", &keys.map(|key| (key, &[2, 2][..])));
        let error = load_weights(linear(), file.as_path(), &device).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
        std::fs::remove_file(file).unwrap();
    }
}

#[derive(Config, Debug, PartialEq)]
enum Activation {
    Relu,
    Leaky { slope: f64 },
    Scaled(f64),
}

#[derive(Config, Debug, PartialEq)]
struct Inner {
    name: String,
    #[config(default = 3)]
    depth: usize,
}

/// Namespaces, nested types, enums, options, and defaults of what Python's side does not have.
#[test]
fn configurations_have_defaults_enums_and_nested_types() {
    #[derive(Config, Debug)]
    struct Arguments {
        lr: f64,
        sizes: Vec<usize>,
        inner: Inner,
        absent: Option<Inner>,
        #[config(default = "Activation::Leaky { slope: 0.5 }")]
        activation: Activation,
        #[config(default = "vec![Activation::Relu, Activation::Scaled(2.0)]")]
        more: Vec<Activation>,
        #[config(default = 0.25)]
        dropout: f64,
    }
    let config: Arguments = config_from_file(fixture("namespace.pt"), Some("args")).unwrap();
    assert_eq!((config.lr, config.sizes, config.dropout), (0.1, vec![1, 2], 0.25));
    assert_eq!(config.inner, Inner::new("x".into()));
    assert!(config.absent.is_none());
    assert_eq!(config.activation, Activation::Leaky { slope: 0.5 });
    assert_eq!(config.more, [Activation::Relu, Activation::Scaled(2.0)]);
    #[derive(Config, Debug)]
    struct Wrong {
        lr: usize,
    }
    let error = config_from_file::<Wrong, _>(fixture("namespace.pt"), Some("args")).unwrap_err().to_string();
    let expected = r#"namespace.pt, key "args": invalid type: floating point `0.1`, expected usize"#;
    assert!(error.ends_with(expected), "{error}");
}

/// Each number goes to its parameter's dtype by one conversion at most.
#[test]
fn numbers_keep_the_precision_that_is_asked_for() {
    #[derive(Module, Debug)]
    struct Wide<B: Backend> {
        first: Param<Tensor<B, 1>>,
        pending: Linear<B>,
        count: Param<Tensor<B, 1, Int>>,
    }
    let device = Default::default();
    let third = TensorData::new(vec![1.0_f64 / 3.0], [1]);
    let count = TensorData::new(vec![u64::MAX], [1]);
    let path = temporary("precision");
    let tensors = [
        TensorToWrite::new("first", third.clone()),
        TensorToWrite::new("pending.weight", TensorData::new(vec![1.0_f64 / 3.0], [1, 1])),
        TensorToWrite::new("count", count.clone()),
    ];
    save(&path, &tensors, &BTreeMap::new()).unwrap();
    let wide = |dtype| Wide::<Cpu> {
        first: Param::initialized(ParamId::new(), Tensor::zeros([1], &device)).with_dtype(dtype),
        pending: LinearConfig::new(1, 1).with_bias(false).init(&device).with_float_dtype(dtype),
        count: Param::initialized(ParamId::new(), Tensor::zeros([1], &device)).with_dtype(DType::U64),
    };
    for dtype in [DType::F64, DType::F32, DType::F16] {
        let loaded = load_weights(wide(dtype), path.as_path(), &device).unwrap();
        let expected = third.clone().convert_dtype(dtype);
        assert_eq!(loaded.first.val().into_data(), expected);
        assert_eq!(loaded.pending.weight.val().into_data().bytes, expected.bytes);
        assert_eq!(loaded.count.val().into_data(), count);
    }
    std::fs::remove_file(path).unwrap();
}

/// PyTorch writes a parameter that layers share under the key of each.
#[test]
fn what_the_original_has_under_two_keys_is_saved_under_both() {
    #[derive(Module, Debug)]
    struct Head<B: Backend> {
        head: Linear<B>,
    }
    let original = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/weights/tied.pt");
    let device = Default::default();
    let head = Head::<Cpu> { head: LinearConfig::new(3, 5).init(&device) };
    let mut model = load_weights(head, original.as_path(), &device).unwrap();
    model.head.weight = model.head.weight.map(|weight| weight + 1.0);
    let saved = temporary("tied");
    save_weights_like(&model, original.as_path(), &saved).unwrap();
    let file = Safetensors::open(&saved).unwrap();
    let tensor = |key: &str| file.tensor(key).unwrap();
    assert_eq!(tensor("embedding.weight"), tensor("head.weight"));
    let expected = model.head.weight.val().transpose().into_data();
    assert_eq!(tensor("head.weight").to_vec::<f32>(), expected.to_vec::<f32>());
    std::fs::remove_file(saved).unwrap();
}
