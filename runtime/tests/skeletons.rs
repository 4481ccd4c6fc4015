//! The skeletons that `kiln convert` makes of checkpoints compile, and load the records that it writes beside them.
#![cfg(all(feature = "weights", feature = "ndarray"))]
#![allow(missing_docs)]

use kiln::module::{Module, ModuleVisitor, Param};
use kiln::nn::attention::MhaInput;
use kiln::nn::{LayerNorm, Linear};
use kiln::record::Safetensors;
use kiln::record::{BinFileRecorder, FullPrecisionSettings, HalfPrecisionSettings, PrettyJsonFileRecorder};
use kiln::tensor::backend::Backend;
use kiln::tensor::{Bool, Int, Tensor, TensorData, Tolerance, activation};
use kiln::weights::{AdapterType, LoadArgs, load_weights, save_weights, save_weights_like};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

type Cpu = kiln::backend::NdArray;

/// A skeleton as it was written.
macro_rules! skeletons {
    ($($name:ident)*) => {$(
        mod $name {
            include!(concat!("../../codegen/skeletons/tests/expected/", stringify!($name), ".rs"));
        }
    )*};
}

skeletons!(kinds kinds_bincode_half layers net net_bert_encoder net_bincode net_pretty_json net_residual_cnn_unfolded parameters);

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
        .join("../codegen/skeletons/tests/expected")
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

/// Inputs, and what PyTorch's layers make of them.
struct Io(Safetensors);

impl Io {
    fn get<const D: usize>(&self, name: &str) -> Tensor<Cpu, D> {
        let data = self.0.tensor(name).unwrap();
        Tensor::from_data(TensorData::new(data.iter::<f32>().collect(), data.shape), &Default::default())
    }

    fn check<const D: usize>(&self, name: &str, found: Tensor<Cpu, D>) {
        let expected = self.get::<D>(&format!("{name}.out"));
        assert_eq!(found.dims(), expected.dims(), "{name}");
        let off = (found - expected).abs().max().into_scalar();
        assert!(off < 2e-6, "{name}: {off}");
    }
}

/// Every layer of PyTorch's is recognized as the layer that computes the same.
#[test]
fn layers_compute_what_pytorchs_do() {
    let device = Default::default();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/weights");
    let io = Io(Safetensors::open(&fixtures.join("layers.io.safetensors")).unwrap());
    let model = layers::Model::<Cpu>::from_file(record("layers"), &device).unwrap();
    let (rows, line, wide) = (io.get::<3>("rows"), io.get::<3>("line"), io.get::<3>("wide"));
    let (image, cube) = (io.get::<4>("image"), io.get::<5>("cube"));

    io.check("conv1d", model.conv1d.forward(line.clone()));
    io.check("conv3d", model.conv3d.forward(cube.clone()));
    io.check("dw", model.dw.forward(image.clone()));
    io.check("deconv1d", model.deconv1d.forward(line.clone()));
    io.check("deconv2d", model.deconv2d.forward(image.slice_dim(1, 0..4)));
    io.check("deconv3d", model.deconv3d.forward(cube));
    io.check("weighted", model.weighted.forward(line.clone()));
    io.check("weighted_up", model.weighted_up.forward(line.clone()));
    io.check("spectral_before", model.spectral_before.forward(line.clone()));
    io.check("spectral", model.spectral.forward(rows.clone()));
    io.check("pruned", model.pruned.forward(rows.clone()));
    io.check("weighted_before", model.weighted_before.forward(rows.clone()));

    io.check("group_norm", model.group_norm.forward(line.clone()));
    io.check("instance_norm", model.instance_norm.forward(line.clone()));
    io.check("tracked_norm", model.tracked_norm.forward(line.clone()));
    io.check("plain_norm", model.plain_norm.forward(line.clone()));
    io.check("rms_norm", model.rms_norm.forward(rows.clone()));
    io.check("prelu", model.prelu.forward(line));
    io.check("act", model.act.forward(rows.clone()));

    let bag = Tensor::<Cpu, 2, Int>::from_data([[0, 3], [6, 1]], &device);
    io.check("embedding", model.embedding.forward(bag).mean_dim(1).squeeze_dim::<2>(1));
    io.check("tied", model.tied.forward(rows.clone()));
    io.check("match", model.match_.forward(rows.clone()));
    io.check("größe-1", model.gr_e_1.forward(rows.clone()));
    let inner = activation::relu(model.steps.layer_0.forward(rows.clone()));
    io.check("steps", model.steps.layer_2.forward(inner));
    let blocks = model.blocks.iter().fold(rows, |x, block| {
        let kept = block.shortcut.as_ref().map_or_else(|| x.clone(), |shortcut| shortcut.forward(x.clone()));
        kept + block.norm.forward(block.fc.forward(x))
    });
    io.check("blocks", blocks);

    let encoded = model.encoder.layers.iter().fold(wide, |x, layer| {
        let norm = |norm: &LayerNorm<Cpu>, x| norm.forward(x);
        let linear = |linear: &Linear<Cpu>, x| linear.forward(x);
        let attended = layer.self_attn.forward(MhaInput::self_attn(x.clone())).context;
        let x = norm(&layer.norm1, x + attended);
        let inner = activation::gelu(linear(&layer.linear1, x.clone()));
        norm(&layer.norm2, x + linear(&layer.linear2, inner))
    });
    io.check("encoder", encoded);
}

#[test]
fn recurrent_layers_and_attention_compute_what_pytorchs_do() {
    let device = Default::default();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/weights");
    let io = Io(Safetensors::open(&fixtures.join("layers.io.safetensors")).unwrap());
    let model = layers::Model::<Cpu>::from_file(record("layers"), &device).unwrap();
    let (rows, wide, keys) = (io.get::<3>("rows"), io.get::<3>("wide"), io.get::<3>("keys"));

    // The sequence comes first in PyTorch unless one says otherwise.
    let turned = rows.clone().swap_dims(0, 1);
    let x = model.rnn.iter().fold(turned.clone(), |x, layer| layer.forward(x, None).0);
    io.check("rnn", x.swap_dims(0, 1));
    io.check("bi_rnn", model.bi_rnn.forward(turned, None).0.swap_dims(0, 1));
    io.check("gru", model.gru.iter().fold(rows.clone(), |x, layer| layer.forward(x, None).0));
    io.check("lstm", model.lstm.iter().fold(rows.clone(), |x, layer| layer.forward(x, None).0));
    let first = rows.slice_dim(1, 0..1);
    io.check("rnn_cell", model.rnn_cell.forward(first.clone(), None).1.hidden);
    io.check("gru_cell", model.gru_cell.forward(first.clone(), None).squeeze_dim::<2>(1));
    io.check("lstm_cell", model.lstm_cell.forward(first, None).1.hidden);

    io.check("attention", model.attention.forward(MhaInput::self_attn(wide.clone())).context);
    io.check("unbiased", model.unbiased.forward(MhaInput::self_attn(wide.clone())).context);
    let across = MhaInput::new(wide, keys.clone().slice_dim(2, 0..3), keys.slice_dim(2, 3..8));
    io.check("across", model.across.forward(across).context);
}

/// The checkpoint itself loads as well; normalized weights are computed there too.
#[test]
fn a_checkpoint_with_every_layer_loads_into_its_skeleton() {
    let device = Default::default();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/weights/layers.pt");
    let args = LoadArgs::new(path).with_strict(true);
    let loaded = load_weights(layers::Model::<Cpu>::new(&device), args, &device).unwrap();
    let made = layers::Model::<Cpu>::from_file(record("layers"), &device).unwrap();
    let (loaded, made) = (parameters(&loaded), parameters(&made));
    assert_eq!(loaded.len(), made.len());
    for (loaded, made) in loaded.iter().zip(&made) {
        loaded.assert_approx_eq::<f32>(made, Tolerance::absolute(1e-6));
    }
}

/// The tensors of a file of Safetensors.
fn tensors(path: &Path) -> BTreeMap<String, TensorData> {
    let file = Safetensors::open(path).unwrap();
    file.paths().map(|name| (name.to_owned(), file.tensor(name).unwrap())).collect()
}

/// What was read comes back under PyTorch's names, bit for bit; in the form of the checkpoint, the whole checkpoint does.
#[test]
fn a_skeleton_goes_back_to_pytorch() {
    let device = Default::default();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/weights");
    let checkpoint = fixtures.join("layers.pt");
    let original = tensors(&fixtures.join("layers.expected.safetensors"));
    let model = load_weights(layers::Model::<Cpu>::new(&device), checkpoint.as_path(), &device).unwrap();
    let file = std::env::temp_dir().join(format!("kiln-skeletons-back-{}.safetensors", std::process::id()));

    save_weights(&model, &file, AdapterType::PyTorch).unwrap();
    let saved = tensors(&file);
    let mut others = BTreeSet::new();
    for (key, data) in &saved {
        match original.get(key) {
            Some(original) if key.ends_with("num_batches_tracked") => assert_eq!(data.shape, original.shape),
            Some(original) => assert_eq!(data, original, "{key}"),
            None => drop(others.insert(key.split('.').next().unwrap_or_default())),
        }
    }
    // A cell is saved as the layer that it is a step of, a normalized weight as what it comes to.
    let expected = [
        "gru_cell",
        "lstm_cell",
        "pruned",
        "rnn_cell",
        "spectral",
        "spectral_before",
        "weighted",
        "weighted_before",
        "weighted_up",
    ];
    assert_eq!(others.into_iter().collect::<Vec<_>>(), expected);
    for key in [
        "across.k_proj_weight",
        "across.in_proj_bias",
        "attention.in_proj_weight",
        "gru.weight_hh_l1_reverse",
    ] {
        assert!(saved.contains_key(key), "{key}");
    }

    save_weights_like(&model, checkpoint, &file).unwrap();
    let saved = tensors(&file);
    for (key, data) in &saved {
        assert_eq!(Some(data), original.get(key), "{key}");
    }
    assert_eq!(saved.len(), original.len());
    std::fs::remove_file(file).unwrap();
}
