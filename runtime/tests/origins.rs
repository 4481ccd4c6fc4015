//! Modules whose parameters were made of those of another network, loaded from that network's checkpoints.
#![cfg(all(feature = "pytorch", feature = "safetensors", feature = "ndarray"))]
#![allow(missing_docs)]

use kiln::backend::NdArray;
use kiln::module::{Module, Param};
use kiln::nn::conv::{Conv2d, Conv2dConfig, ConvTranspose2d, ConvTranspose2dConfig};
use kiln::nn::{Initializer, LayerNorm, LayerNormConfig, Linear, LinearConfig};
use kiln::record::{FullPrecisionSettings, Recorder, Safetensors};
use kiln::tensor::{Tensor, TensorData, backend::Backend};
use kiln::weights::{AdapterType, ImportError, LoadArgs, SafetensorsFileRecorder};
use kiln::weights::{load_weights, save_weights, save_weights_like};
use kiln_backend_tests::devices::{Place, Several};
use kiln_record::safetensors::{TensorToWrite, save};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

type Cpu = NdArray;

#[derive(Module, Debug)]
struct Block<B: Backend> {
    #[module(rename = "0", batch_norm = "1", epsilon = 0.5)]
    conv: Conv2d<B>,
    #[module(batch_norm = "up_norm", biased)]
    up: ConvTranspose2d<B>,
    #[module(from(weight = "attn.w"))]
    square: Linear<B>,
    #[module(from(
        weight = "cat(1, transpose(q.weight), transpose(k.weight))",
        bias = "cat(0, q.bias, k.bias)"
    ))]
    joined: Linear<B>,
}

#[derive(Module, Debug)]
struct Model<B: Backend> {
    blocks: Vec<Block<B>>,
    #[module(from(gamma = "1", beta = "norm.bias * ::factor[]"))]
    norm: LayerNorm<B>,
    #[module(from = "exp(-slice(table[3, 2], 0, 1, 3)) + 0.5")]
    decay: Param<Tensor<B, 2>>,
    #[module(constant)]
    mask: Param<Tensor<B, 1>>,
}

impl<B: Backend> Block<B> {
    fn new(device: &B::Device) -> Self {
        Self {
            conv: Conv2dConfig::new([1, 2], [1, 1]).init(device),
            up: ConvTranspose2dConfig::new([2, 4], [1, 1]).with_groups(2).init(device),
            square: LinearConfig::new(2, 2).with_bias(false).init(device),
            joined: LinearConfig::new(1, 2).init(device),
        }
    }
}

impl<B: Backend> Model<B> {
    fn new(device: &B::Device) -> Self {
        Self {
            blocks: (0..2).map(|_| Block::new(device)).collect(),
            norm: LayerNormConfig::new(2).init(device),
            decay: Initializer::Zeros.init([2, 2], device),
            mask: Initializer::Constant { value: 7.0 }.init([3], device),
        }
    }

    kiln::from_checkpoints!(Self::new);
}

#[derive(Debug)]
struct Refusing<B: Backend>(core::marker::PhantomData<B>);

impl<B: Backend> Refusing<B> {
    kiln::no_checkpoints!("the exporter folded `conv`");
}

fn temporary(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("kiln-origins-{name}-{}.safetensors", std::process::id()))
}

type Tensors = Vec<(String, Vec<f32>, Vec<usize>)>;

fn checkpoint() -> Tensors {
    let mut tensors: Tensors = Vec::new();
    let mut add =
        |key: String, values: &[f32], shape: &[usize]| tensors.push((key, values.to_vec(), shape.to_vec()));
    for (n, by) in [(0, 1.0), (1, 2.0)] {
        let key = |name: &str| format!("blocks.{n}.{name}");
        add(key("0.weight"), &[1.0 * by, 2.0], &[2, 1, 1, 1]);
        add(key("1.weight"), &[3.0, 4.0], &[2]);
        add(key("1.bias"), &[0.25, 0.5], &[2]);
        add(key("1.running_mean"), &[1.0, -1.0], &[2]);
        add(key("1.running_var"), &[0.5, 3.5], &[2]);
        add(key("up.weight"), &[1.0, 2.0, 3.0, 4.0], &[2, 2, 1, 1]);
        add(key("up.bias"), &[1.0; 4], &[4]);
        add(key("up_norm.weight"), &[1.0, 2.0, 3.0, 4.0], &[4]);
        add(key("up_norm.bias"), &[0.5; 4], &[4]);
        add(key("up_norm.running_mean"), &[0.0; 4], &[4]);
        add(key("up_norm.running_var"), &[1.0 - 1e-5; 4], &[4]);
        add(key("attn.w"), &[1.0, 2.0, 3.0, 4.0], &[2, 2]);
        add(key("q.weight"), &[5.0], &[1, 1]);
        add(key("k.weight"), &[6.0], &[1, 1]);
        add(key("q.bias"), &[7.0], &[1]);
        add(key("k.bias"), &[8.0], &[1]);
    }
    add("norm.bias".into(), &[1.0, 2.0], &[2]);
    add("factor".into(), &[3.0], &[]);
    add("table".into(), &[9.0, 9.0, 0.0, 0.0, 0.0, 0.0], &[3, 2]);
    tensors
}

fn written(name: &str, tensors: Tensors) -> PathBuf {
    let path = temporary(name);
    let tensors: Vec<_> = tensors
        .into_iter()
        .map(|(key, values, shape)| TensorToWrite::new(key, TensorData::new(values, shape)))
        .collect();
    save(&path, &tensors, &BTreeMap::new()).unwrap();
    path
}

fn numbers<const D: usize>(param: &Param<Tensor<Cpu, D>>) -> Vec<f32> {
    param.val().into_data().to_vec().unwrap()
}

#[track_caller]
fn assert_close(actual: &[f32], expected: &[f32]) {
    let close = actual.iter().zip(expected).all(|(a, e)| (a - e).abs() < 1e-5);
    assert!(actual.len() == expected.len() && close, "{actual:?}, expected {expected:?}");
}

#[test]
fn parameters_are_made_as_their_fields_say() {
    let path = written("made", checkpoint());
    let device = Default::default();
    let model = Model::<Cpu>::from_safetensors(path.as_path(), &device).unwrap();
    for (block, by) in model.blocks.iter().zip([1.0, 2.0]) {
        // gamma / sqrt(variance + 0.5) is 3 and 2.
        assert_close(&numbers(&block.conv.weight), &[3.0 * by, 4.0]);
        assert_close(&numbers(block.conv.bias.as_ref().unwrap()), &[0.25 - 3.0, 0.5 + 2.0]);
        assert_close(&numbers(&block.up.weight), &[1.0, 4.0, 9.0, 16.0]);
        assert_close(&numbers(block.up.bias.as_ref().unwrap()), &[1.5, 2.5, 3.5, 4.5]);
        assert_close(&numbers(&block.square.weight), &[1.0, 2.0, 3.0, 4.0]);
        assert_close(&numbers(&block.joined.weight), &[5.0, 6.0]);
        assert_close(&numbers(block.joined.bias.as_ref().unwrap()), &[7.0, 8.0]);
    }
    assert_close(&numbers(&model.norm.gamma), &[1.0, 1.0]);
    assert_close(&numbers(model.norm.beta.as_ref().unwrap()), &[3.0, 6.0]);
    assert_close(&numbers(&model.decay), &[1.5; 4]);
    assert_close(&numbers(&model.mask), &[7.0; 3]);
    std::fs::remove_file(path).unwrap();
}

#[test]
fn one_report_names_what_computations_lack() {
    let mut tensors = checkpoint();
    tensors.retain(|(key, ..)| key != "blocks.1.1.running_var");
    for (key, values, shape) in &mut tensors {
        match key.as_str() {
            "blocks.0.k.weight" => (*values, *shape) = (vec![1.0; 2], vec![1, 2]),
            "blocks.0.attn.w" => (*values, *shape) = (vec![1.0; 6], vec![3, 2]),
            "table" => (*values, *shape) = (vec![1.0; 4], vec![2, 2]),
            _ => {}
        }
    }
    let path = written("lacking", tensors);
    let error = Model::<Cpu>::from_pytorch(path.as_path(), &Default::default()).unwrap_err().to_string();
    for part in [
        "missing: blocks.1.0.weight, looked for as blocks.1.1.running_var",
        "missing: blocks.1.0.bias, looked for as blocks.1.1.running_var",
        "wrong: blocks.0.square.weight needs float [2, 2], blocks.0.attn.w in the file is f32 [3, 2]",
        "wrong: blocks.0.joined.weight cannot be computed: [1, 1] and [2, 1] cannot be joined along axis 1",
        "wrong: decay cannot be computed: 1..3 is not in an axis of size 2",
    ] {
        assert!(error.contains(part), "{part}\n{error}");
    }
    std::fs::remove_file(path).unwrap();
}

#[test]
fn models_that_cannot_take_checkpoints_say_why() {
    let error = Refusing::<Cpu>::from_pytorch("nowhere.pt", &Default::default()).unwrap_err();
    assert!(matches!(&error, ImportError::Rewritten(_)));
    assert_eq!(error.to_string(), "the model takes no checkpoints: the exporter folded `conv`");
    assert!(Refusing::<Cpu>::from_safetensors("nowhere.safetensors", &Default::default()).is_err());
}

/// A record does not know what its module's parameters are made of.
#[test]
fn recorders_refuse_what_is_made_of_other_parameters() {
    let (path, device) = (written("recorder", checkpoint()), Default::default());
    let recorder = SafetensorsFileRecorder::<FullPrecisionSettings>::new();
    let load = |args: LoadArgs| {
        let record: Result<<Model<Cpu> as Module<Cpu>>::Record, _> = recorder.load(args, &device);
        record.map(|record| Model::new(&device).load_record(record))
    };
    let error = load(path.clone().into()).unwrap_err().to_string();
    assert!(
        error.starts_with("`norm` is made of other parameters") && error.contains("from_pytorch"),
        "{error}"
    );
    // The module's own parameters, under its own names.
    kiln::record::save_safetensors(&Model::<Cpu>::new(&device), &path).unwrap();
    let own = LoadArgs::new(path.clone()).with_adapter_type(AdapterType::NoAdapter);
    assert_close(&numbers(&load(own).unwrap().mask), &[7.0; 3]);
    std::fs::remove_file(path).unwrap();

    // Below a list, and of a field that is there without an attribute too.
    let path = written("recorder_below", vec![("list.0.0.weight".into(), vec![1.0], vec![1, 1, 1, 1])]);
    #[derive(Module, Debug)]
    struct Outer<B: Backend> {
        list: Vec<Block<B>>,
    }
    let record: Result<<Outer<Cpu> as Module<Cpu>>::Record, _> =
        recorder.load(path.as_path().into(), &device);
    let error = record.err().unwrap().to_string();
    assert!(error.starts_with("`list.0.0` is made of other parameters"), "{error}");
    std::fs::remove_file(path).unwrap();
}

/// The tensors of a file.
fn read(path: &Path) -> BTreeMap<String, (Vec<f32>, Vec<usize>)> {
    let file = Safetensors::open(path).unwrap();
    let tensors = file.paths().map(|path| (path.to_owned(), file.tensor(path).unwrap()));
    let floats = tensors.filter(|(_, data)| data.dtype.is_float());
    floats.map(|(key, data)| (key, (data.to_vec().unwrap(), data.shape))).collect()
}

/// A module with every float parameter doubled.
fn doubled<M: Module<Cpu>>(module: M) -> M {
    struct Double;
    impl kiln::module::ModuleMapper<Cpu> for Double {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<Cpu, D>>) -> Param<Tensor<Cpu, D>> {
            param.map(|tensor| tensor * 2.0)
        }
    }
    module.map(&mut Double)
}

/// All parameters of a block.
fn parameters(block: &Block<Cpu>) -> Vec<f32> {
    let biases = [&block.conv.bias, &block.up.bias, &block.joined.bias];
    let mut all = [numbers(&block.conv.weight), numbers(&block.up.weight)].concat();
    all.extend([numbers(&block.square.weight), numbers(&block.joined.weight)].concat());
    all.extend(biases.into_iter().flatten().flat_map(numbers));
    all
}

#[test]
fn saving_takes_parameters_apart() {
    let tensors = checkpoint()
        .into_iter()
        .filter_map(|(key, values, shape)| Some((key.strip_prefix("blocks.1.")?.to_owned(), values, shape)));
    let (original, saved) = (written("apart", tensors.collect()), temporary("apart-saved"));
    let device = Default::default();
    let loaded = |path: &PathBuf| {
        load_weights(Block::<Cpu>::new(&device), LoadArgs::from(path.as_path()), &device).unwrap()
    };
    for block in [loaded(&original), doubled(loaded(&original))] {
        save_weights(&block, &saved, AdapterType::PyTorch).unwrap();
        let shapes = |path| -> BTreeMap<_, _> {
            read(path).into_iter().map(|(key, (_, shape))| (key, shape)).collect()
        };
        assert_eq!(shapes(&saved), shapes(&original));
        assert_close(&parameters(&loaded(&saved)), &parameters(&block));
        // The layer has taken the normalization over, which does nothing.
        assert_eq!(read(&saved)["0.weight"].0, numbers(&block.conv.weight));
        assert_eq!(read(&saved)["1.weight"].0, [1.0, 1.0]);
        assert_eq!(read(&saved)["1.running_mean"].0, [0.0, 0.0]);
        assert_eq!(read(&saved)["1.bias"].0, numbers(block.conv.bias.as_ref().unwrap()));
        assert_eq!(read(&saved)["attn.w"].0, numbers(&block.square.weight));
    }
    std::fs::remove_file(original).unwrap();
    std::fs::remove_file(saved).unwrap();
}

#[test]
fn what_the_module_lacks_comes_from_the_original() {
    let (original, saved) = (written("like", checkpoint()), temporary("like-saved"));
    let device = Default::default();
    let load = |path: &PathBuf| Model::<Cpu>::from_safetensors(path.as_path(), &device).unwrap();
    // The normalization's factor was folded away: it has to stay 1.
    let mut model = load(&original);
    save_weights_like(&model, original.as_path(), &saved).unwrap();
    assert_eq!(read(&saved), read(&original));

    model.blocks = model.blocks.into_iter().map(doubled).collect();
    model.decay = model.decay.map(|tensor| tensor + 1.0);
    save_weights_like(&model, original.as_path(), &saved).unwrap();
    let (before, after) = (read(&original), read(&saved));
    for (path, again) in [(&original, false), (&saved, true)] {
        let same = parameters(&load(path).blocks[1]) == parameters(&model.blocks[1]);
        assert_eq!(same, again);
    }
    assert_close(&numbers(&load(&saved).decay), &numbers(&model.decay));
    let same = ["blocks.1.1.weight", "blocks.1.1.running_var", "norm.bias", "factor"];
    assert!(same.iter().all(|key| before[*key] == after[*key]));
    // A row that no parameter has.
    assert_eq!(after["table"].0[..2], [9.0, 9.0]);
    assert!(after["table"].0[2..] != before["table"].0[2..]);
    std::fs::remove_file(original).unwrap();
    std::fs::remove_file(saved).unwrap();
}

#[test]
fn one_report_names_what_cannot_be_saved() {
    let path = written("unsaved", checkpoint());
    let mut model = Model::<Cpu>::from_safetensors(path.as_path(), &Default::default()).unwrap();
    model.norm.gamma = model.norm.gamma.map(|tensor| tensor * 3.0);
    let error =
        save_weights(&model, temporary("unsaved-saved"), AdapterType::PyTorch).unwrap_err().to_string();
    for part in [
        "norm.gamma, made of 1: no tensors make it what it has become",
        "decay, made of exp(-slice(::table[3, 2], 0, 1, 3)) + 0.5: the model has 4 of the 6 elements of table",
        "`save_weights_like` takes the others from the original",
    ] {
        assert!(error.contains(part), "{part}\n{error}");
    }
    assert!(!error.contains("blocks"), "{error}");
    std::fs::remove_file(path).unwrap();
}

/// A weight of a direction and a length, one matrix for two layers, one layer under two names, one tensor in two places.
#[derive(Module, Debug)]
struct Shared<B: Backend> {
    #[module(from(weight = "transpose(v * (g[3, 1] / sqrt(sum(v * v, 1))))"))]
    normed: Linear<B>,
    #[module(from(weight = "transpose(slice(qk[4, 2], 0, 0, 2))"))]
    q: Linear<B>,
    #[module(from(weight = "transpose(slice(qk[4, 2], 0, 2, 4))"))]
    k: Linear<B>,
    #[module(from(weight = "first(here.weight, ::there.weight)"))]
    tied: Linear<B>,
    #[module(from(weight = "1 / (1 + exp(-twice))", bias = "-scale"))]
    gate: Linear<B>,
    #[module(from(weight = "transpose(twice)"))]
    again: Linear<B>,
}

impl<B: Backend> Shared<B> {
    fn new(device: &B::Device) -> Self {
        let linear = |inputs, outputs| LinearConfig::new(inputs, outputs).with_bias(false).init(device);
        let gate = LinearConfig::new(2, 2).init(device);
        let (q, k, tied, again) = (linear(2, 2), linear(2, 2), linear(2, 1), linear(2, 2));
        Self { normed: linear(2, 3), q, k, tied, gate, again }
    }
}

#[test]
fn tensors_come_back_from_everything_that_was_made_of_them() {
    let tensors = vec![
        ("v".into(), vec![1.0, 2.0, 3.0, 4.0, -5.0, 0.0], vec![3, 2]),
        ("g".into(), vec![1.0, 2.0, 3.0], vec![3, 1]),
        ("qk".into(), (0..8).map(|x| x as f32).collect(), vec![4, 2]),
        ("here.weight".into(), vec![1.0, -1.0], vec![2, 1]),
        ("twice".into(), vec![0.5, -1.0, 2.0, 0.0], vec![2, 2]),
        ("scale".into(), vec![3.0, 4.0], vec![2]),
    ];
    let (original, saved) = (written("shared", tensors), temporary("shared-saved"));
    let device = Default::default();
    let loaded =
        |path: &Path| load_weights(Shared::<Cpu>::new(&device), LoadArgs::from(path), &device).unwrap();
    let mut model = loaded(&original);
    model.normed = doubled(model.normed);
    model.q = doubled(model.q);
    model.tied = doubled(model.tied);
    save_weights(&model, &saved, AdapterType::PyTorch).unwrap();
    let after = read(&saved);
    assert_close(&after["g"].0, &[2.0, 4.0, 6.0]);
    assert_close(&after["qk"].0, &[0.0, 2.0, 4.0, 6.0, 4.0, 5.0, 6.0, 7.0]);
    assert_eq!(after["here.weight"], after["there.weight"]);
    assert_close(&after["twice"].0, &[0.5, -1.0, 2.0, 0.0]);
    assert_close(&after["scale"].0, &[3.0, 4.0]);
    assert_close(&numbers(&loaded(&saved).normed.weight), &numbers(&model.normed.weight));
    // One half of a tensor has changed, and the other one is still the original's.
    save_weights_like(&model, original.as_path(), &saved).unwrap();
    assert_close(&read(&saved)["qk"].0, &[0.0, 2.0, 4.0, 6.0, 4.0, 5.0, 6.0, 7.0]);

    // Two parameters that were made of one tensor, which have become different.
    model.again = doubled(model.again);
    let error = save_weights(&model, &saved, AdapterType::PyTorch).unwrap_err().to_string();
    assert!(error.contains("again.weight, made of transpose(::twice): no tensors make it"), "{error}");
    assert_eq!(error.lines().count(), 3, "{error}");
    std::fs::remove_file(original).unwrap();
    std::fs::remove_file(saved).unwrap();
}

/// What a parameter is made of may lie beside the module that holds it, in each item of a list another.
#[test]
fn parameters_are_made_of_what_lies_above_their_module() {
    #[derive(Module, Debug)]
    struct Attention<B: Backend> {
        #[module(from(weight = "scaled(transpose(out.weight), super::scale)"))]
        out: Linear<B>,
    }
    #[derive(Module, Debug)]
    struct Layers<B: Backend> {
        #[module(rename = "attention")]
        layers: Vec<Attention<B>>,
    }
    let tensors = vec![
        ("attention.0.out.weight".into(), vec![1.0, 2.0], vec![2, 1]),
        ("attention.1.out.weight".into(), vec![3.0, 4.0], vec![2, 1]),
        ("attention.scale".into(), vec![10.0, 100.0], vec![2]),
    ];
    let (original, saved, device) = (written("above", tensors), temporary("above-saved"), Default::default());
    let linear = || LinearConfig::new(1, 2).with_bias(false).init(&device);
    let model = Layers::<Cpu> { layers: vec![Attention { out: linear() }, Attention { out: linear() }] };
    let model = load_weights(model, LoadArgs::from(original.as_path()), &device).unwrap();
    assert_close(&numbers(&model.layers[0].out.weight), &[10.0, 200.0]);
    assert_close(&numbers(&model.layers[1].out.weight), &[30.0, 400.0]);
    save_weights(&model, &saved, AdapterType::PyTorch).unwrap();
    let after = read(&saved);
    let scale = &after["attention.scale"].0;
    let back = after["attention.1.out.weight"].0.iter().zip(scale).map(|(weight, scale)| weight * scale);
    assert_close(&back.collect::<Vec<_>>(), &[30.0, 400.0]);

    // There is nothing above the root.
    let alone = load_weights(Attention::<Cpu> { out: linear() }, LoadArgs::from(original.as_path()), &device);
    let error = alone.unwrap_err().to_string();
    assert!(error.contains("super::scale"), "{error}");
    std::fs::remove_file(original).unwrap();
    std::fs::remove_file(saved).unwrap();
}

/// Indices of a list with gaps, and a dtype of its own, are the original's.
#[test]
fn a_list_keeps_the_numbers_of_the_original() {
    #[derive(Module, Debug)]
    struct List<B: Backend> {
        layers: Vec<Linear<B>>,
    }
    let original = temporary("gaps");
    let tensors = ["layers.1.weight", "layers.4.weight"].map(|key| {
        TensorToWrite::new(key, TensorData::new(vec![1.0f32, 2.0], [1, 2]).convert::<half::f16>())
    });
    save(&original, &tensors, &BTreeMap::new()).unwrap();
    let device = Default::default();
    let linear = || LinearConfig::new(2, 1).with_bias(false).init(&device);
    let list =
        load_weights(List::<Cpu> { layers: vec![linear(), linear()] }, original.as_path(), &device).unwrap();
    let saved = temporary("gaps-saved");
    save_weights_like(&doubled(list), original.as_path(), &saved).unwrap();
    let file = Safetensors::open(&saved).unwrap();
    let tensor = file.tensor("layers.4.weight").unwrap();
    assert_eq!(file.paths().count(), 2);
    assert_eq!(tensor, TensorData::new(vec![2.0f32, 4.0], [1, 2]).convert::<half::f16>());
    std::fs::remove_file(original).unwrap();
    std::fs::remove_file(saved).unwrap();
}

/// How many batches a norm has seen is the original's to know: the module does not count.
#[test]
fn counts_of_batches_stay_the_originals() {
    let original = temporary("count");
    let mut tensors: Vec<_> = ["weight", "bias", "running_mean", "running_var"]
        .map(|key| TensorToWrite::new(key, TensorData::new(vec![1.0f32, 2.0], [2])))
        .into();
    tensors.push(TensorToWrite::new("num_batches_tracked", TensorData::new(vec![7i64], [0; 0])));
    save(&original, &tensors, &BTreeMap::new()).unwrap();
    let (device, saved) = (Default::default(), temporary("count-saved"));
    let norm = kiln::nn::BatchNormConfig::new(2).init::<Cpu>(&device);
    let norm = load_weights(norm, original.as_path(), &device).unwrap();
    save_weights_like(&norm, original.as_path(), &saved).unwrap();
    let count = |path: &Path| Safetensors::open(path).unwrap().tensor("num_batches_tracked").unwrap();
    assert_eq!(count(&saved), count(&original));
    save_weights(&norm, &saved, AdapterType::PyTorch).unwrap();
    assert_eq!(count(&saved), TensorData::new(vec![0i64], [0; 0]));
    std::fs::remove_file(original).unwrap();
    std::fs::remove_file(saved).unwrap();
}

/// A module is saved where it lies, which may be on several devices.
#[test]
fn parameters_come_from_any_device() {
    let tensors = vec![
        ("v".into(), vec![1.0, 2.0, 3.0, 4.0, -5.0, 0.0], vec![3, 2]),
        ("g".into(), vec![1.0, 2.0, 3.0], vec![3, 1]),
        ("qk".into(), (0..8).map(|x| x as f32).collect(), vec![4, 2]),
        ("here.weight".into(), vec![1.0, -1.0], vec![2, 1]),
        ("twice".into(), vec![0.5, -1.0, 2.0, 0.0], vec![2, 2]),
        ("scale".into(), vec![3.0, 4.0], vec![2]),
    ];
    let (original, saved) = (written("devices", tensors), temporary("devices-saved"));
    let device = Place(1);
    let args = LoadArgs::from(original.as_path());
    let model = load_weights(Shared::<Several>::new(&device), args, &device).unwrap();
    let spread = Shared { k: model.k.clone().fork(&Place(2)), ..model.clone() };
    for model in [model, spread] {
        save_weights(&model, &saved, AdapterType::PyTorch).unwrap();
        let after = read(&saved);
        assert_close(&after["qk"].0, &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
        save_weights_like(&model, original.as_path(), &saved).unwrap();
        assert_eq!(read(&saved)["qk"], after["qk"]);
    }
    std::fs::remove_file(original).unwrap();
    std::fs::remove_file(saved).unwrap();
}

/// A weight that became no number is saved as it is.
#[test]
fn what_is_no_number_has_not_changed() {
    #[derive(Module, Debug)]
    struct Turned<B: Backend> {
        #[module(from(weight = "transpose(w) * scale[2]"))]
        linear: Linear<B>,
    }
    let tensors = vec![
        ("w".into(), vec![1.0, f32::NAN, 3.0, f32::INFINITY], vec![2, 2]),
        ("scale".into(), vec![1.0, 2.0], vec![2]),
    ];
    let (original, saved, device) = (written("nan", tensors), temporary("nan-saved"), Default::default());
    let linear = LinearConfig::new(2, 2).with_bias(false).init(&device);
    let model = load_weights(Turned::<Cpu> { linear }, LoadArgs::from(original.as_path()), &device).unwrap();
    save_weights(&model, &saved, AdapterType::PyTorch).unwrap();
    let after = read(&saved);
    assert!(after["w"].0[1].is_nan() && after["w"].0[3].is_infinite(), "{after:?}");
    // What has not changed stays the original's.
    save_weights_like(&model, original.as_path(), &saved).unwrap();
    let after = read(&saved);
    assert_close(&after["scale"].0, &[1.0, 2.0]);
    assert!(after["w"].0[1].is_nan(), "{after:?}");
    std::fs::remove_file(original).unwrap();
    std::fs::remove_file(saved).unwrap();
}
