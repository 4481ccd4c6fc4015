//! Imported networks train as they do in PyTorch: from the same weights on the same data, twenty steps of an optimizer end
//! at the same weights, by losses that agree at every step. `scripts/training_goldens.py` writes what PyTorch does.
#![cfg(test)]

use kiln::backend::{Autodiff, NdArray, Wgpu};
use kiln::module::{AutodiffModule, Module};
use kiln::nn::loss::CrossEntropyLossConfig;
use kiln::optim::momentum::MomentumConfig;
use kiln::optim::{AdamWConfig, GradientsParams, Optimizer, SgdConfig};
use kiln::tensor::backend::{AutodiffBackend, Backend};
use kiln::tensor::{ElementConversion, Int, Tensor, TensorData};
use kiln::weights::{AdapterType, load_low_rank, save_low_rank, save_weights};
use kiln_record::safetensors::Safetensors;

type Cpu = Autodiff<NdArray>;
type Gpu = Autodiff<Wgpu>;

/// How far a loss may be from PyTorch's, relative to it.
const LOSS: f64 = 1e-4;
/// How far an element of a weight may be, relative to the largest of the weight's.
const WEIGHT: f32 = 1e-3;

/// Declares a network's module with a test for each optimizer, on the CPU and on a GPU: nothing but the order of sums differs.
macro_rules! case {
    ($name:ident, |$model:ident, $batch:ident| $forward:expr) => {
        mod $name {
            use super::*;
            include!(concat!(env!("OUT_DIR"), "/cases/", stringify!($name), "/model.rs"));

            pub fn logits<B: Backend>($model: &Model<B>, $batch: &Batch) -> Tensor<B, 2> {
                $forward
            }

            fn trained<B: AutodiffBackend>(optimizer: &str, mut optim: impl Optimizer<Model<B>, B>) {
                let case = Case::open(stringify!($name), optimizer);
                let model = case.train(Model::<B>::default(), logits, &mut optim);
                case.check_weights(&model.valid());
            }

            #[test]
            fn sgd() {
                trained::<Cpu>("sgd", super::sgd().init());
            }

            #[test]
            fn adamw() {
                trained::<Cpu>("adamw", super::adamw().init());
            }

            #[test]
            fn sgd_on_a_gpu() {
                trained::<Gpu>("sgd", super::sgd().init());
            }

            #[test]
            fn adamw_on_a_gpu() {
                trained::<Gpu>("adamw", super::adamw().init());
            }
        }
    };
}

case!(mlp_tiny, |model, batch| model.forward(batch.floats(0)));
case!(resnet, |model, batch| model.forward(batch.floats(0)));
case!(resnet_torchscript, |model, batch| model.forward(batch.floats(0)));
case!(bert, |model, batch| model.forward(batch.integers(0), batch.integers(1)));
case!(gpt, |model, batch| model.forward(batch.integers(0)).flatten(0, 1));
case!(tagger, |model, batch| model.forward(batch.integers(0)).flatten(0, 1));
case!(program, |model, batch| model.forward(batch.floats(0)));
case!(shared, |model, batch| model.forward(batch.integers(0)).flatten(0, 1));
case!(fake_quantized, |model, batch| model.forward(batch.floats(0)));
case!(parts, |model, batch| model.forward(batch.integers(0)).flatten(0, 1));

fn sgd() -> SgdConfig {
    SgdConfig::new().with_momentum(Some(MomentumConfig::new().with_dampening(0.0)))
}

fn adamw() -> AdamWConfig {
    AdamWConfig::new().with_epsilon(1e-5).with_weight_decay(0.01)
}

fn folder(case: &str) -> std::path::PathBuf {
    std::path::Path::new(env!("TRAINING_CASES")).join(case)
}

fn open(path: &std::path::Path) -> Safetensors {
    Safetensors::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// What a network is trained on.
struct Batch(Safetensors);

impl Batch {
    fn tensor(&self, name: &str) -> TensorData {
        self.0.tensor(name).unwrap_or_else(|| panic!("no {name}"))
    }

    fn floats<B: Backend, const D: usize>(&self, index: usize) -> Tensor<B, D> {
        Tensor::from_data(self.tensor(&format!("input_{index}")), &Default::default())
    }

    fn integers<B: Backend, const D: usize>(&self, index: usize) -> Tensor<B, D, Int> {
        Tensor::from_data(self.tensor(&format!("input_{index}")), &Default::default())
    }
}

/// A network with what PyTorch does with it.
struct Case {
    name: String,
    batch: Batch,
    /// The weights after the last step.
    expected: Safetensors,
    rate: f64,
    losses: Vec<f64>,
}

impl Case {
    /// `how` is the file of an optimizer.
    fn open(name: &str, how: &str) -> Self {
        let expected = open(&folder(name).join(format!("{how}.safetensors")));
        let (rate, losses) = steps(&expected);
        let batch = Batch(open(&folder(name).join("batch.safetensors")));
        Self { name: format!("{name}, {how}"), batch, expected, rate, losses }
    }

    /// Takes as many steps as there are losses, and compares each.
    fn train<B: AutodiffBackend, M: AutodiffModule<B>>(
        &self,
        mut model: M,
        logits: impl Fn(&M, &Batch) -> Tensor<B, 2>,
        optim: &mut impl Optimizer<M, B>,
    ) -> M {
        let device = Default::default();
        let targets = Tensor::<B, 1, Int>::from_data(self.batch.tensor("targets"), &device);
        let criterion = CrossEntropyLossConfig::new().init(&device);
        let mut worst = 0.0_f64;
        for (step, &expected) in self.losses.iter().enumerate() {
            let loss = criterion.forward(logits(&model, &self.batch), targets.clone());
            let grads = GradientsParams::from_grads(loss.backward(), &model);
            model = optim.step(self.rate, model, grads);
            let loss: f64 = loss.into_scalar().elem();
            let error = (loss - expected).abs() / expected;
            assert!(error <= LOSS, "{}: step {step}: loss {loss}, PyTorch's is {expected}", self.name);
            worst = worst.max(error);
        }
        println!("{}: losses agree to {worst:.1e}", self.name);
        model
    }

    /// Compares the weights, under the names that PyTorch has for them.
    fn check_weights<B: Backend>(&self, model: &impl Module<B>) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("model.safetensors");
        save_weights(model, &path, AdapterType::PyTorch).unwrap_or_else(|error| panic!("{error}"));
        let found = open(&path);
        let keys = self.expected.paths().filter(|key| !["rate", "losses"].contains(key));
        let (of_roundings, keys): (Vec<_>, Vec<_>) = keys.partition(|key| self.moves_by_roundings(key));
        compare(&self.name, &found, &self.expected, keys.into_iter());
        // Each side's steps are at most the rate long, whatever the gradient's size (Kingma and Ba, section 2.1).
        let bound = 2.0 * self.rate * self.losses.len() as f64;
        for key in of_roundings {
            let [found, expected] = [&found, &self.expected]
                .map(|file| file.tensor(key).and_then(|data| data.to_vec::<f32>().ok()).expect("floats"));
            assert_eq!(found.len(), expected.len(), "{}: {key}", self.name);
            let apart =
                found.iter().zip(&expected).map(|(a, b)| f64::from((a - b).abs())).fold(0.0, f64::max);
            assert!(
                apart <= bound,
                "{}: `{key}` is {apart} off, where its steps are {bound} long",
                self.name
            );
        }
    }

    /// Whether only roundings move a parameter: a bias of keys adds the same number to all scores of a query, which softmax does not
    /// notice, so that its gradient is zero. Adam divides what roundings leave of it by its own size.
    fn moves_by_roundings(&self, key: &str) -> bool {
        self.name.ends_with("adamw") && key.ends_with(".key.bias")
    }
}

/// The learning rate and the loss before each step.
fn steps(file: &Safetensors) -> (f64, Vec<f64>) {
    let numbers = |name: &str| file.tensor(name).and_then(|data| data.to_vec::<f64>().ok()).expect("numbers");
    (numbers("rate")[0], numbers("losses"))
}

/// Compares tensors of a file with PyTorch's.
fn compare<'k>(name: &str, found: &Safetensors, expected: &Safetensors, keys: impl Iterator<Item = &'k str>) {
    let mut worst = (0.0, "");
    for key in keys {
        let expected = expected.tensor(key).expect("a tensor");
        let found = found.tensor(key).unwrap_or_else(|| panic!("{name}: `{key}` was not saved"));
        assert_eq!(found.shape, expected.shape, "{name}: {key}");
        let [found, expected] = [found, expected].map(|data| data.to_vec::<f32>().expect("floats"));
        let largest = expected.iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
        let differences = found.iter().zip(&expected).map(|(a, b)| (a - b).abs());
        let error = differences.fold(0.0_f32, f32::max) / largest.max(f32::MIN_POSITIVE);
        // Zeros that stay zeros have nothing to be relative to.
        let error = if largest == 0.0 && found.iter().all(|value| *value == 0.0) { 0.0 } else { error };
        assert!(error <= WEIGHT, "{name}: `{key}` differs by {error} of its largest element");
        if error > worst.0 {
            worst = (error, key);
        }
    }
    println!("{name}: weights agree to {:.1e} ({})", worst.0, worst.1);
}

mod untied {
    use super::*;
    include!(concat!(env!("OUT_DIR"), "/cases/untied/model.rs"));

    /// A head that was the embedding's table is another layer: replaced, it leaves the table, and both learn.
    #[test]
    fn an_untied_head_is_replaced() {
        let device = Default::default();
        let batch = Batch(open(&folder("gpt").join("batch.safetensors")));
        let (tied, model) = (gpt::Model::<Cpu>::default(), Model::<Cpu>::default());
        let logits = model.forward(batch.integers(0));
        let expected = gpt::logits(&tied, &batch).into_data();
        logits
            .flatten::<2>(0, 1)
            .into_data()
            .assert_approx_eq::<f32>(&expected, kiln::tensor::Tolerance::default());
        assert!(model.num_params() > tied.num_params());
        let [vocabulary, size] = model.transformer.wte.weight.dims();
        let head = LinearConfig::new(size, 5).with_bias(false).init(&device);
        let model = model.with_lm_head(head);
        let loss = model.forward(batch.integers(0)).powf_scalar(2.0).mean();
        let grads = GradientsParams::from_grads(loss.backward(), &model);
        let gradient = grads.get::<NdArray, 2>(model.lm_head.weight.id).expect("the head's gradient");
        assert_eq!(gradient.dims(), [size, 5]);
        assert_eq!(model.transformer.wte.weight.dims(), [vocabulary, size]);
    }
}

mod dropout {
    include!(concat!(env!("OUT_DIR"), "/cases/dropout/model.rs"));
}

/// Dropout drops in training alone, and another part each time.
#[test]
fn dropout_is_for_training() {
    let batch = Batch(open(&folder("dropout").join("batch.safetensors")));
    let model = dropout::Model::<Cpu>::default();
    Cpu::seed(&Default::default(), 4);
    let run = || model.forward(batch.floats(0)).into_data();
    assert_ne!(run(), run());
    // The statistics that moved are those of the trained model: a fresh one yields PyTorch's output.
    let fresh = dropout::Model::<Cpu>::default().valid();
    let output = fresh.forward(batch.floats::<Cpu, 2>(0).inner()).into_data();
    output.assert_approx_eq::<f32>(&batch.tensor("output"), kiln::tensor::Tolerance::rel_abs(1e-4, 1e-5));
    // Without batch statistics, the mean of many runs is what inference yields: what is kept is scaled.
    let frozen = model.freeze("bn").expect("a norm");
    let plain = frozen.valid().forward(batch.floats::<Cpu, 2>(0).inner());
    let runs: Vec<Tensor<NdArray, 2>> = (0..2000).map(|_| frozen.forward(batch.floats(0)).inner()).collect();
    let mean = Tensor::stack::<3>(runs, 0).mean_dim(0).squeeze_dim::<2>(0);
    let error = (mean - plain.clone()).abs().mean().into_scalar() / plain.abs().mean().into_scalar();
    assert!(error < 0.05, "{error}");
}

/// Pairs that PyTorch made learn as they do there.
#[test]
fn low_rank_pairs() {
    let case = folder("gpt");
    let (rate, losses) = steps(&open(&case.join("lora_after/steps.safetensors")));
    let batch = Batch(open(&case.join("batch.safetensors")));
    let case = Case {
        name: "gpt, low rank".into(),
        batch,
        rate,
        losses,
        expected: open(&case.join("lora_after/adapter_model.safetensors")),
    };
    let device = Default::default();
    let model = load_low_rank(gpt::Model::<Cpu>::default(), folder("gpt").join("lora_before"), &device);
    let model = model.unwrap_or_else(|error| panic!("{error}"));
    let mut optim = adamw().init();
    let model = case.train(model, gpt::logits, &mut optim);
    let saved = tempfile::tempdir().expect("a folder");
    save_low_rank(&model, saved.path()).unwrap_or_else(|error| panic!("{error}"));
    let found = open(&saved.path().join("adapter_model.safetensors"));
    assert!(found.paths().eq(case.expected.paths()));
    compare(&case.name, &found, &case.expected, case.expected.paths());
    // Added to their weights, they compute the same.
    let merged = gpt::logits(&model.clone().merge_low_rank(), &case.batch).into_data();
    let apart = gpt::logits(&model, &case.batch).into_data();
    merged.assert_approx_eq::<f32>(&apart, kiln::tensor::Tolerance::rel_abs(1e-4, 1e-5));
    // The same pattern as PyTorch's, from scratch.
    let fresh = gpt::Model::<Cpu>::default().with_low_rank("*.attn.*", 2, 4.0).expect("attention");
    assert_eq!(fresh.num_params(), model.num_params());
}
