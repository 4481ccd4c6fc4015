//! Parts of a module: frozen, replaced, trained through low-rank pairs.
#![cfg(all(feature = "train", feature = "weights"))]
#![allow(missing_docs)]

use kiln::backend::{Autodiff, NdArray};
use kiln::module::{AutodiffModule, Module, ModuleMapper, ModuleVisitor, Param};
use kiln::nn::conv::{Conv2d, Conv2dConfig};
use kiln::nn::{
    BatchNorm, BatchNormConfig, Embedding, EmbeddingConfig, Linear, LinearConfig, Lstm, LstmConfig,
};
use kiln::optim::{AdamConfig, GradientsParams, SgdConfig};
use kiln::record::{
    BinBytesRecorder, FullPrecisionSettings, Recorder, load_safetensors_bytes, save_safetensors_bytes,
};
use kiln::tensor::backend::Backend;
use kiln::tensor::{Distribution, Int, Tensor, TensorData, Tolerance, activation};
use kiln::weights::{AdapterType, load_low_rank, load_weights, save_low_rank, save_weights};

type Cpu = NdArray;
type Trained = Autodiff<Cpu>;

#[derive(Module, Debug)]
#[module(replaceable)]
struct Net<B: Backend> {
    table: Embedding<B>,
    conv: Conv2d<B>,
    bn: BatchNorm<B>,
    hidden: Vec<Linear<B>>,
    fc: Linear<B>,
    width: usize,
}

impl<B: Backend> Net<B> {
    fn new(device: &B::Device) -> Self {
        Self {
            table: EmbeddingConfig::new(7, 5).init(device),
            conv: Conv2dConfig::new([1, 4], [3, 3]).init(device),
            bn: BatchNormConfig::new(4).init(device),
            hidden: (0..2).map(|_| LinearConfig::new(4, 4).init(device)).collect(),
            fc: LinearConfig::new(4, 3).init(device),
            width: 5,
        }
    }

    fn forward(&self, ids: Tensor<B, 2, Int>) -> Tensor<B, 2> {
        let x = self.table.forward(ids).unsqueeze_dim::<4>(1);
        let x = activation::relu(self.bn.forward(self.conv.forward(x)));
        let mut x = x.mean_dims(&[2, 3]).flatten::<2>(1, 3);
        for layer in &self.hidden {
            x = x.clone() + layer.forward_activated(x, kiln::tensor::Activation::Tanh);
        }
        self.fc.forward(x)
    }
}

fn ids<B: Backend>() -> Tensor<B, 2, Int> {
    let ids: Vec<i64> = (0..24).map(|i| (i * i + i / 3) % 7).collect();
    Tensor::from_data(TensorData::new(ids, [4, 6]), &Default::default())
}

/// The paths of parameters, and whether each is trained.
#[derive(Default)]
struct Paths {
    path: Vec<String>,
    found: Vec<(String, bool)>,
}

impl<B: Backend> ModuleVisitor<B> for Paths {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.path.push(name.to_string());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        self.found.push((self.path.join("."), param.lazy_is_require_grad()));
    }
}

fn trained(net: &Net<Trained>) -> Vec<String> {
    let mut paths = Paths::default();
    net.visit(&mut paths);
    paths.found.into_iter().filter_map(|(path, trained)| trained.then_some(path)).collect()
}

fn step(net: Net<Trained>) -> (Net<Trained>, usize) {
    let loss = net.forward(ids()).powf_scalar(2.0).mean();
    let grads = GradientsParams::from_grads(loss.backward(), &net);
    let count = grads.len();
    (SgdConfig::new().init().step(0.1, net, grads), count)
}

fn same(a: TensorData, b: TensorData) {
    a.assert_approx_eq::<f32>(&b, Tolerance::default());
}

#[test]
fn what_is_frozen_has_no_gradient_and_keeps_its_statistics() {
    let device = Default::default();
    Trained::seed(&device, 1);
    let net = Net::<Trained>::new(&device);
    let (net, count) = step(net);
    assert_eq!(count, 11);
    let net = net.freeze("bn").unwrap().freeze("hidden.*.weight").unwrap().freeze("t?ble.*").unwrap();
    assert_eq!(
        trained(&net),
        ["conv.weight", "conv.bias", "hidden.0.bias", "hidden.1.bias", "fc.weight", "fc.bias"]
    );
    let before = net.bn.running_mean.value().into_data();
    let frozen = net.forward(ids()).into_data();
    let (net, count) = step(net);
    assert_eq!(count, 6);
    assert_eq!(net.bn.running_mean.value().into_data(), before);
    // A frozen norm works as in inference, moved to another device or not.
    let net = net.fork(&device);
    assert!(net.bn.running_var.is_frozen() && net.valid().bn.running_mean.is_frozen());
    same(net.forward(ids()).into_data(), net.valid().forward(ids()).into_data());
    assert_ne!(net.forward(ids()).into_data(), frozen);

    // By the name that PyTorch has for it, and back.
    let net = net.unfreeze("bn.weight").unwrap();
    assert!(trained(&net).contains(&"bn.gamma".to_string()));
    let (net, count) = step(net.unfreeze("*").unwrap());
    assert_eq!(count, 11);
    assert_ne!(net.bn.running_mean.value().into_data(), before);

    let error = net.freeze("layer1.*").unwrap_err();
    assert_eq!(error.pattern, "layer1.*");
    assert!(error.to_string().contains("conv.weight"), "{error}");
}

#[test]
fn a_head_is_replaced_and_the_rest_is_kept() {
    let device = Default::default();
    let net = Net::<Trained>::new(&device);
    let conv = net.conv.weight.val().into_data();
    let id = net.conv.weight.id;
    let net = net.no_grad().with_fc(LinearConfig::new(4, 9).init(&device));
    assert_eq!(net.forward(ids()).dims(), [4, 9]);
    assert_eq!(net.conv.weight.val().into_data(), conv);
    assert_eq!((net.conv.weight.id, net.width), (id, 5));
    assert_eq!(trained(&net), ["fc.weight", "fc.bias"]);
}

/// Pairs beside four weights, some steps on.
fn adapted() -> (Net<Trained>, Net<Trained>) {
    let device = Default::default();
    Trained::seed(&device, 3);
    let net = Net::<Trained>::new(&device);
    let plain = net.clone();
    let mut net = net.with_low_rank("hidden.*", 2, 4.0).unwrap();
    net = net.with_low_rank("conv", 3, 3).unwrap().with_low_rank("table", 1, 2).unwrap();
    // At first nothing changes, but that norms are frozen.
    same(net.forward(ids()).into_data(), plain.valid().forward(ids()).into_data());
    for _ in 0..3 {
        let (stepped, count) = step(net);
        assert_eq!(count, 8);
        net = stepped;
    }
    (plain, net)
}

#[test]
fn low_rank_pairs_learn_beside_frozen_weights() {
    let (plain, net) = adapted();
    let pairs = ["table", "conv", "hidden.0", "hidden.1"];
    let expected: Vec<String> =
        pairs.iter().flat_map(|path| ["A", "B"].map(|side| format!("{path}.weight.lora_{side}"))).collect();
    assert_eq!(trained(&net), expected);
    let added = (7 + 5) + 3 * (9 + 4) + 2 * 2 * (4 + 4);
    assert_eq!(net.num_params(), plain.num_params() + added);

    // The weights' own values are what they were; the whole ones are not.
    assert_eq!(net.conv.weight.base_val().into_data(), plain.conv.weight.val().into_data());
    assert_eq!(net.fc.weight.val().into_data(), plain.fc.weight.val().into_data());
    let [a, b] = net.hidden[0].weight.low_rank().map(|pair| [pair.a.val(), pair.b.val()]).unwrap();
    let whole = plain.hidden[0].weight.val() + b.matmul(a).transpose() * 2.0;
    same(net.hidden[0].weight.val().into_data(), whole.into_data());

    // Validation, copies and merged weights compute the same.
    let output = net.forward(ids()).into_data();
    assert_ne!(output, plain.valid().forward(ids()).into_data());
    same(net.valid().forward(ids()).into_data(), output.clone());
    same(net.clone().fork(&Default::default()).forward(ids()).into_data(), output.clone());
    let merged = net.merge_low_rank();
    assert!(trained(&merged).is_empty() && merged.hidden[0].weight.low_rank().is_none());
    same(merged.forward(ids()).into_data(), output);
}

#[test]
fn records_and_checkpoints_hold_the_whole_weights() {
    let device = Default::default();
    let (_, net) = adapted();
    let output = net.forward(ids()).into_data();
    let recorder = BinBytesRecorder::<FullPrecisionSettings>::default();
    let bytes = Recorder::<Trained>::record(&recorder, net.clone().into_record(), ()).unwrap();
    let record = Recorder::<Cpu>::load(&recorder, bytes.clone(), &device).unwrap();
    let fresh = Net::<Cpu>::new(&device).try_load_record(record).unwrap();
    same(fresh.forward(ids()).into_data(), output.clone());
    // What still has pairs begins them anew, and they learn.
    let record = Recorder::<Trained>::load(&recorder, bytes, &device).unwrap();
    let again = net.clone().try_load_record(record).unwrap();
    same(again.forward(ids()).into_data(), output.clone());
    let (_, count) = step(again);
    assert_eq!(count, 8);

    let bytes: &'static [u8] = save_safetensors_bytes::<Trained, _>(&net).unwrap().leak();
    let fresh = load_safetensors_bytes::<Cpu, _>(Net::new(&device), bytes, &device).unwrap();
    same(fresh.forward(ids()).into_data(), output.clone());
    let again = load_safetensors_bytes::<Trained, _>(net.clone(), bytes, &device).unwrap();
    same(again.forward(ids()).into_data(), output.clone());

    let folder = tempdir("checkpoint");
    let path = folder.0.join("model.safetensors");
    save_weights(&net, &path, AdapterType::PyTorch).unwrap();
    let fresh = load_weights(Net::<Cpu>::new(&device), path, &device).unwrap();
    same(fresh.forward(ids()).into_data(), output);
}

#[test]
fn pairs_are_saved_alone() {
    let device = Default::default();
    let (plain, net) = adapted();
    let folder = tempdir("pairs");
    save_low_rank(&net, &folder.0).unwrap();
    let file =
        kiln_record::safetensors::Safetensors::open(&folder.0.join("adapter_model.safetensors")).unwrap();
    let found: Vec<(&str, Vec<usize>)> =
        file.paths().map(|path| (path, file.entry(path).unwrap().shape.clone())).collect();
    let expected = [
        ("base_model.model.conv.lora_A.weight", vec![3, 1, 3, 3]),
        ("base_model.model.conv.lora_B.weight", vec![4, 3, 1, 1]),
        ("base_model.model.hidden.0.lora_A.weight", vec![2, 4]),
        ("base_model.model.hidden.0.lora_B.weight", vec![4, 2]),
        ("base_model.model.hidden.1.lora_A.weight", vec![2, 4]),
        ("base_model.model.hidden.1.lora_B.weight", vec![4, 2]),
        ("base_model.model.table.lora_embedding_A", vec![1, 7]),
        ("base_model.model.table.lora_embedding_B", vec![5, 1]),
    ];
    assert_eq!(found, expected);
    // A configuration takes another's place in one step: whoever has opened the old one keeps it.
    let (config, opened) = (folder.0.join("adapter_config.json"), folder.0.join("opened.json"));
    let text = std::fs::read_to_string(&config).unwrap();
    assert!(text.contains(r#""^hidden\\.0": 2"#), "{text}");
    std::fs::write(&config, "old").unwrap();
    std::fs::hard_link(&config, &opened).unwrap();
    save_low_rank(&net, &folder.0).unwrap();
    assert_eq!(std::fs::read_to_string(&opened).unwrap(), "old");
    assert_eq!(std::fs::read_to_string(&config).unwrap(), text);
    let loaded = load_low_rank(plain.valid(), &folder.0, &device).unwrap();
    same(loaded.forward(ids()).into_data(), net.forward(ids()).into_data());
    // Into one that has pairs already, and on.
    let loaded = load_low_rank(net, &folder.0, &device).unwrap();
    let (_, count) = step(loaded);
    assert_eq!(count, 8);

    let other = plain.valid().with_fc(LinearConfig::new(4, 2).init(&device));
    let other = Net { hidden: vec![LinearConfig::new(4, 6).init(&device)], ..other };
    let error = load_low_rank(other, &folder.0, &device).unwrap_err().to_string();
    for part in ["hidden.1.lora_A.weight`: the module has no layer", "are no pair for a weight of [4, 6]"] {
        assert!(error.contains(part), "{error}");
    }
    let error = save_low_rank(&plain, &folder.0).unwrap_err().to_string();
    assert!(error.contains("with_low_rank"), "{error}");
    let error = plain.with_low_rank("bn", 2, 1).unwrap_err().to_string();
    assert!(error.contains("weight of a linear layer") && error.contains("table.weight"), "{error}");
}

/// An LSTM joins its gates' weights once: not over pairs that change.
#[test]
fn joined_weights_follow_their_pairs() {
    let device = Default::default();
    Trained::seed(&device, 9);
    let lstm: Lstm<Trained> = LstmConfig::new(3, 4, true).init(&device);
    let mut lstm = lstm.with_low_rank("*.input_transform", 2, 2).unwrap();
    let x = Tensor::<Trained, 3>::random([2, 5, 3], Distribution::Normal(0.0, 1.0), &device);
    let mut optim = AdamConfig::new().init::<Trained, Lstm<Trained>>();
    let mut losses = Vec::new();
    for _ in 0..4 {
        let loss = lstm.forward(x.clone(), None).0.powf_scalar(2.0).mean();
        let grads = GradientsParams::from_grads(loss.backward(), &lstm);
        assert_eq!(grads.len(), 8);
        lstm = optim.step(0.05, lstm, grads);
        losses.push(loss.into_scalar());
        let inner = lstm.valid().forward(x.clone().inner(), None).0;
        same(inner.into_data(), lstm.forward(x.clone(), None).0.into_data());
    }
    assert!(losses.is_sorted_by(|a, b| a > b), "{losses:?}");
}

/// A mapper that knows nothing of pairs sees three parameters.
#[test]
fn mappers_see_the_parts() {
    struct Zeros(usize);
    impl<B: Backend> ModuleMapper<B> for Zeros {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
            self.0 += 1;
            let (id, value, mapper) = param.consume();
            Param::from_mapped_value(id, value.zeros_like(), mapper)
        }
    }
    let layer: Linear<Cpu> = LinearConfig::new(3, 2).init(&Default::default());
    let mut zeros = Zeros(0);
    let layer = layer.with_low_rank("weight", 1, 1).unwrap().map(&mut zeros);
    assert_eq!(zeros.0, 4);
    assert!(layer.weight.low_rank().is_some());
    assert_eq!(layer.weight.val().into_data(), TensorData::new(vec![0.0_f32; 6], [3, 2]));
}

/// A folder that is gone at the end.
struct TempDir(std::path::PathBuf);

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn tempdir(name: &str) -> TempDir {
    let folder = std::env::temp_dir().join(format!("kiln-fine-tuning-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    TempDir(folder)
}
