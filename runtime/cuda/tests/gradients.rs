//! Loss and gradients that are captured are those that are computed operation by operation.

#![cfg(target_os = "linux")]

mod host;

use kiln_autodiff::Autodiff;
use kiln_core::module::{Module, Param};
use kiln_core::nn::conv::{Conv2d, Conv2dConfig};
use kiln_core::nn::loss::CrossEntropyLossConfig;
use kiln_core::nn::{
    BatchNorm, BatchNormConfig, Embedding, EmbeddingConfig, Linear, LinearConfig, Lstm, LstmConfig,
    PaddingConfig2d,
};
use kiln_cuda::{CaptureError, CapturedError, CapturedGradients, Cuda, CudaDevice, statistics};
use kiln_optim::{AdamWConfig, GradientsAccumulator, GradientsParams, Optimizer};
use kiln_tensor::backend::Backend;
use kiln_tensor::{Int, Tensor, TensorData, activation, module};
use std::sync::{Mutex, MutexGuard, PoisonError};

type B = Autodiff<Cuda>;
type Tokens = Tensor<B, 2, Int>;
type Targets = Tensor<B, 1, Int>;

/// Counts are the device's, and so are random numbers, which the tests share.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A table of words that is the last layer too, batch normalization, and a bias that nothing reads.
#[derive(Module, Debug)]
struct Network<B: Backend> {
    words: Embedding<B>,
    inner: Linear<B>,
    norm: BatchNorm<B>,
    unused: Param<Tensor<B, 1>>,
}

impl<B: Backend> Network<B> {
    fn new(device: &B::Device) -> Self {
        B::seed(device, 3);
        Self {
            words: EmbeddingConfig::new(7, 6).init(device),
            inner: LinearConfig::new(6, 6).init(device),
            norm: BatchNormConfig::new(6).init(device),
            unused: Param::from_tensor(Tensor::zeros([4], device)),
        }
    }

    /// `[batch, 7]` of `[batch, words]`.
    fn forward(&self, tokens: Tensor<B, 2, Int>) -> Tensor<B, 2> {
        let words = self.words.forward(tokens).sum_dim(1).squeeze_dim::<2>(1);
        let hidden = activation::relu(self.norm.forward::<2>(self.inner.forward(words)));
        hidden.matmul(self.words.weight.val().transpose())
    }
}

fn batch(rows: usize, seed: usize) -> (Tokens, Targets) {
    let device = CudaDevice::default();
    let numbers = |count: usize, times: usize| -> Vec<i64> {
        (0..count).map(|n| ((n * 31 + seed * times) % 1009 % 7) as i64).collect()
    };
    let tokens = Tensor::from_data(TensorData::new(numbers(rows * 3, 17), [rows, 3]), &device);
    (tokens, Tensor::from_data(TensorData::new(numbers(rows, 5), [rows]), &device))
}

fn loss(network: &Network<B>, (tokens, targets): (Tokens, Targets)) -> (Tensor<B, 1>, Tensor<B, 2>) {
    let logits = network.forward(tokens);
    let loss = CrossEntropyLossConfig::new().init(&logits.device()).forward(logits.clone(), targets);
    (loss, logits)
}

fn floats<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Vec<f32> {
    tensor.into_data().to_vec().expect("floats")
}

/// All numbers of a network, its statistics with them.
fn all(network: &Network<B>) -> Vec<Vec<f32>> {
    let Network { words, inner, norm, unused } = network;
    let statistics = [norm.running_mean.value(), norm.running_var.value()];
    let vectors = [norm.gamma.val(), norm.beta.val(), unused.val()].into_iter().chain(statistics);
    let bias = inner.bias.as_ref().map(Param::val);
    let matrices = [words.weight.val(), inner.weight.val()].into_iter().map(floats);
    matrices.chain(vectors.chain(bias).map(floats)).collect()
}

/// A step by what is captured, and one without, on networks that are equal before; whether they are afterwards.
struct Twins<O> {
    captured: Network<B>,
    plain: Network<B>,
    optimizers: [O; 2],
}

impl<O: Optimizer<Network<B>, B>> Twins<O> {
    fn new(network: &Network<B>, optimizer: O) -> Self {
        // Statistics are shared by clones, but not by records.
        let copy = Network::new(&CudaDevice::default()).load_record(network.clone().into_record());
        Self { captured: network.clone(), plain: copy, optimizers: [optimizer.clone(), optimizer] }
    }

    fn step<F>(
        mut self,
        backward: &mut CapturedGradients<F, Network<B>, (Tokens, Targets), Tensor<B, 2>, B>,
        batch: (Tokens, Targets),
    ) -> Self
    where
        F: FnMut(&Network<B>, (Tokens, Targets)) -> (Tensor<B, 1>, Tensor<B, 2>),
    {
        let (found, logits, gradients) = backward.run(&self.captured, batch.clone()).expect("a graph");
        let (expected, of_expected) = loss(&self.plain, batch);
        let expected_gradients = GradientsParams::from_grads(expected.backward(), &self.plain);
        assert_eq!(gradients.len(), expected_gradients.len());
        assert_eq!(floats(found), floats(expected));
        assert!(!logits.is_tracked());
        assert_eq!(floats(logits), floats(of_expected));
        let [first, second] = &mut self.optimizers;
        self.captured = first.step(0.1, self.captured, gradients);
        self.plain = second.step(0.1, self.plain, expected_gradients);
        assert_eq!(all(&self.captured), all(&self.plain));
        self
    }
}

#[test]
fn steps_are_those_that_are_not_captured() {
    let _alone = alone();
    let network = Network::new(&CudaDevice::default());
    let mut backward = CapturedGradients::new(loss);
    let mut twins = Twins::new(&network, AdamWConfig::new().init());
    for seed in 0..5 {
        twins = twins.step(&mut backward, batch(4, seed));
        assert_eq!(backward.graphs(), 1);
    }
    // The first step moved the network's own statistics.
    assert_ne!(floats(network.norm.running_mean.value()), [0.0; 6]);
    // What came with other rows has a graph of its own, and the first is there still.
    for (rows, seed) in [(2, 7), (4, 8), (2, 9)] {
        twins = twins.step(&mut backward, batch(rows, seed));
        assert_eq!(backward.graphs(), 2);
    }
}

/// Layers whose weights kernels take in another order than they lie in: convolutions of images with channels last, of channels for themselves too, and a
/// recurrent layer.
#[derive(Module, Debug)]
struct Reader<B: Backend> {
    all: Conv2d<B>,
    each: Conv2d<B>,
    steps: Lstm<B>,
    last: Linear<B>,
}

impl<B: Backend> Reader<B> {
    fn new(device: &B::Device) -> Self {
        B::seed(device, 4);
        let same = PaddingConfig2d::Same;
        Self {
            all: Conv2dConfig::new([8, 8], [3, 3]).with_padding(same).init(device),
            each: Conv2dConfig::new([8, 8], [3, 3]).with_groups(8).with_padding(same).init(device),
            steps: LstmConfig::new(8, 5, true).init(device),
            last: LinearConfig::new(5, 3).init(device),
        }
    }

    /// `[batch, 3]` of images `[batch, height, width, 8]`.
    fn forward(&self, images: Tensor<B, 4>) -> Tensor<B, 2> {
        let images = self.all.forward(images.permute([0, 3, 1, 2]));
        let rows = images.permute([0, 2, 3, 1]);
        let images = self.each.forward((rows.clone() + 1.0).permute([0, 3, 1, 2]));
        let [batch, channels, height, width] = images.dims();
        let steps = images.permute([0, 2, 3, 1]).reshape([batch, height * width, channels]);
        let (states, _) = self.steps.forward(steps, None);
        self.last.forward(states.mean_dim(1).squeeze_dim::<2>(1))
    }
}

#[test]
fn weights_in_another_order_are_those_of_the_step() {
    let _alone = alone();
    let device = CudaDevice::default();
    let new = || Reader::<B>::new(&device).load_record(Reader::<B>::new(&device).into_record());
    let loss = |reader: &Reader<B>, (images, targets): (Tensor<B, 4>, Targets)| {
        let logits = reader.forward(images);
        (CrossEntropyLossConfig::new().init(&device).forward(logits.clone(), targets), logits)
    };
    let mut backward = CapturedGradients::new(loss);
    let [mut captured, mut plain] = [new(), new()];
    let [mut first, mut second] = [AdamWConfig::new().init(), AdamWConfig::new().init()];
    for seed in 0..4_i64 {
        let values: Vec<f32> =
            (0..2 * 4 * 5 * 8).map(|n| ((n * 31 + seed * 17) % 1009 % 9) as f32 - 4.0).collect();
        let images = Tensor::<B, 4>::from_data(TensorData::new(values, [2, 4, 5, 8]), &device);
        let targets = Targets::from_data([seed % 3, (seed + 1) % 3], &device);
        let (_, logits, gradients) =
            backward.run(&captured, (images.clone(), targets.clone())).expect("a graph");
        let (expected, of_expected) = loss(&plain, (images, targets));
        assert_eq!(floats(logits), floats(of_expected), "step {seed}");
        captured = first.step(0.1, captured, gradients);
        let gradients = GradientsParams::from_grads(expected.backward(), &plain);
        plain = second.step(0.1, plain, gradients);
    }
    assert_eq!(backward.graphs(), 1);
}

/// A table of words that is the last layer too, as a parameter of its own with the same id.
#[derive(Module, Debug)]
struct Tied<B: Backend> {
    words: Embedding<B>,
    inner: Linear<B>,
    last: Param<Tensor<B, 2>>,
}

impl<B: Backend> Tied<B> {
    fn new(device: &B::Device) -> Self {
        B::seed(device, 6);
        let words = EmbeddingConfig::new(7, 6).init(device);
        Self { last: words.weight.clone(), words, inner: LinearConfig::new(6, 6).init(device) }
    }

    fn loss(
        &self,
        (tokens, targets): (Tensor<B, 2, Int>, Tensor<B, 1, Int>),
    ) -> (Tensor<B, 1>, Tensor<B, 2>) {
        let words = self.words.forward(tokens).sum_dim(1).squeeze_dim::<2>(1);
        let logits = activation::relu(self.inner.forward(words)).matmul(self.last.val().transpose());
        (CrossEntropyLossConfig::new().init(&logits.device()).forward(logits.clone(), targets), logits)
    }
}

#[test]
fn a_parameter_in_two_places_is_one() {
    let _alone = alone();
    let device = CudaDevice::default();
    let same = |found: Vec<f32>, expected: Vec<f32>| {
        let differ = found.iter().zip(&expected).any(|(a, b)| (a - b).abs() > 1e-4 * (1.0 + b.abs()));
        assert!(!differ, "{found:?} instead of {expected:?}");
    };
    let tied = Tied::<B>::new(&device);
    // Loaded, each place has a tensor of its own, of the same numbers.
    let loaded = || Tied::<B>::new(&device).load_record(tied.clone().into_record());
    for [mut captured, mut plain] in [[tied.clone(), loaded()], [loaded(), tied.clone()]] {
        let mut backward = CapturedGradients::new(|tied: &Tied<B>, batch| tied.loss(batch));
        let [mut first, mut second] = [AdamWConfig::new().init(), AdamWConfig::new().init()];
        for seed in 0..4 {
            let batch = batch(4, seed);
            let (_, logits, gradients) = backward.run(&captured, batch.clone()).expect("a graph");
            let (expected, of_expected) = plain.loss(batch);
            let of_plain = GradientsParams::from_grads(expected.backward(), &plain);
            assert_eq!((gradients.len(), of_plain.len()), (3, 3));
            same(floats(logits), floats(of_expected));
            captured = first.step(0.1, captured, gradients);
            plain = second.step(0.1, plain, of_plain);
            for tied in [&captured, &plain] {
                assert_eq!(floats(tied.last.val()), floats(tied.words.weight.val()), "step {seed}");
            }
            same(floats(captured.last.val()), floats(plain.last.val()));
        }
        assert_eq!(backward.graphs(), 1);
    }
}

#[test]
fn what_is_frozen_on_the_way_has_another_graph() {
    let _alone = alone();
    let mut backward = CapturedGradients::new(loss);
    let network = Network::new(&CudaDevice::default());
    let mut twins = Twins::new(&network, AdamWConfig::new().init()).step(&mut backward, batch(4, 1));
    let freeze = |network: Network<B>, pattern: &str| network.freeze(pattern).expect("a parameter");
    // Then batch normalization works with its statistics, which stay; then all thaws.
    for (pattern, graphs) in [("inner", 2), ("norm", 3)] {
        twins.captured = freeze(twins.captured, pattern);
        twins.plain = freeze(twins.plain, pattern);
        for seed in 2..4 {
            twins = twins.step(&mut backward, batch(4, seed));
            assert_eq!(backward.graphs(), graphs);
        }
    }
    twins.captured = twins.captured.unfreeze("*").expect("parameters");
    twins.plain = twins.plain.unfreeze("*").expect("parameters");
    twins = twins.step(&mut backward, batch(4, 5));
    // Low-rank pairs are parameters too; the same ones, made before they are used.
    let with_pair = |network: Network<B>| {
        B::seed(&CudaDevice::default(), 5);
        let network = network.with_low_rank("inner", 2, 4.0).expect("a weight");
        network.inner.weight.val();
        network
    };
    twins.captured = with_pair(twins.captured);
    twins.plain = with_pair(twins.plain);
    for seed in 6..8 {
        twins = twins.step(&mut backward, batch(4, seed));
    }
}

#[test]
fn frozen_parameters_are_read_where_they_are() {
    let _alone = alone();
    let device = CudaDevice::default();
    let frozen = |seed| {
        let mut network = Network::new(&device).no_grad();
        network.unused = network.unused.set_require_grad(true);
        B::seed(&device, seed);
        network.words = EmbeddingConfig::new(7, 6).init::<B>(&device).no_grad();
        network.words.weight.val();
        network
    };
    let mut backward = CapturedGradients::new(|network: &Network<B>, batch| {
        let (loss, logits) = loss(network, batch);
        (loss * network.unused.val().sum(), logits)
    });
    let network = frozen(1);
    let check = |backward: &mut CapturedGradients<_, _, _, _, _>, network: &Network<B>| {
        let inputs = batch(4, 2);
        let (_, logits, gradients) = backward.run(network, inputs.clone()).expect("a graph");
        assert_eq!(gradients.len(), 1);
        assert_eq!(floats(logits), floats(loss(network, inputs).1));
    };
    check(&mut backward, &network);
    check(&mut backward, &network);
    assert_eq!(backward.graphs(), 1);
    // Another table is another graph's, and the first one's is still there.
    check(&mut backward, &frozen(2));
    assert_eq!(backward.graphs(), 2);
    check(&mut backward, &network);
    assert_eq!(backward.graphs(), 2);
}

#[test]
fn gradients_are_kept_beyond_the_next_step() {
    let _alone = alone();
    let network = Network::new(&CudaDevice::default());
    let mut backward = CapturedGradients::new(loss);
    let (mut found, mut expected) = (GradientsAccumulator::new(), GradientsAccumulator::new());
    for seed in 0..3 {
        let (_, _, gradients) = backward.run(&network, batch(4, seed)).expect("a graph");
        found.accumulate(&network, gradients);
        let (loss, _) = loss(&network, batch(4, seed));
        expected.accumulate(&network, GradientsParams::from_grads(loss.backward(), &network));
    }
    let of_words = |mut sums: GradientsAccumulator<Network<B>>| {
        let sum = sums.grads().get::<Cuda, 2>(network.words.weight.id);
        floats(sum.expect("a gradient"))
    };
    assert_eq!(of_words(found), of_words(expected));
}

#[test]
fn a_replay_is_one_launch_beside_copies() {
    let _alone = alone();
    let device = CudaDevice::default();
    let network = Network::new(&device);
    let mut backward = CapturedGradients::new(loss);
    for seed in 0..2 {
        backward.run(&network, batch(4, seed)).expect("a graph");
    }
    let inputs = batch(4, 2);
    B::sync(&device).expect("a device");
    let before = statistics(&device);
    let results = backward.run(&network, inputs).expect("a graph");
    B::sync(&device).expect("a device");
    let after = statistics(&device);
    assert_eq!(after.replays - before.replays, 1);
    // Seven tensors and two inputs go in, and the two statistics that the network has are copied before they are moved on: those of one kind together. Nothing else comes
    // out by a copy.
    assert!(after.launches - before.launches <= 5, "{}", after.launches - before.launches);
    assert_eq!(after.buffers, before.buffers);
    drop(results);
}

#[test]
fn what_dropout_drops_has_no_gradient() {
    let _alone = alone();
    let device = CudaDevice::default();
    let network = Network::new(&device);
    let mut backward = CapturedGradients::new(|network: &Network<B>, ()| {
        // Of a bias of zeros, those that stay add 2 each to the loss.
        let dropped = module::dropout(network.unused.val() + 1.0, 0.5);
        (dropped.clone().sum(), dropped)
    });
    let mut seen = std::collections::HashSet::new();
    for _ in 0..20 {
        let (loss, dropped, gradients) = backward.run(&network, ()).expect("a graph");
        let gradient = gradients.get::<Cuda, 1>(network.unused.id).expect("a gradient");
        let (dropped, gradient) = (floats(dropped), floats(gradient));
        assert_eq!(gradient, dropped);
        assert_eq!(floats(loss), [dropped.iter().sum::<f32>()]);
        seen.insert(dropped.iter().map(|value| *value > 0.0).collect::<Vec<_>>());
    }
    assert!(seen.len() > 4, "{seen:?}");
}

#[test]
fn what_cannot_be_captured_is_refused_by_name() {
    let _alone = alone();
    let network = Network::new(&CudaDevice::default());
    let mut reads = CapturedGradients::new(|network: &Network<B>, batch| {
        let (loss, logits) = loss(network, batch);
        let _ = B::sync(&CudaDevice::default());
        (loss, logits)
    });
    let error = reads.run(&network, batch(4, 1)).expect_err("a read");
    assert!(matches!(error, CapturedError::Capture(CaptureError::Read)), "{error}");
    assert_eq!(reads.graphs(), 0);
}
