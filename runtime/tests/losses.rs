//! Losses and their gradients as PyTorch's (`scripts/loss_goldens.py`), also where they have corners.
#![cfg(all(feature = "ndarray", feature = "autodiff"))]
#![allow(missing_docs)]

use kiln::backend::{Autodiff, NdArray};
use kiln::nn::loss::{
    BinaryCrossEntropyLossConfig, CTCLossConfig, CosineEmbeddingLossConfig, CrossEntropyLossConfig,
    HuberLossConfig, MseLoss, PoissonNllLossConfig, Reduction,
};
use kiln::tensor::activation::log_softmax;
use kiln::tensor::backend::AutodiffBackend;
use kiln::tensor::module::{self, CrossEntropyOptions};
use kiln::tensor::{DType, Int, Tensor, TensorData};
use serde_json::Value;
use std::collections::BTreeMap;

type B = Autodiff<NdArray<f64>>;

struct Goldens {
    cases: BTreeMap<String, Value>,
    tolerance: f64,
}

/// JSON has no infinities: they are texts.
fn number(value: &Value) -> f64 {
    match value {
        Value::String(text) => text.parse().expect("a number"),
        value => value.as_f64().expect("a number"),
    }
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().expect("numbers").iter().map(number).collect()
}

/// A case with one of its reductions.
struct Case<'a> {
    name: String,
    case: &'a Value,
    expected: &'a Value,
    /// How far from PyTorch's results in f64 a result may be, relative to 1 and to itself.
    tolerance: f64,
}

impl Case<'_> {
    fn dims<const D: usize>(&self, n: usize) -> [usize; D] {
        let dims: Vec<usize> = numbers(&self.case["dims"][n]).into_iter().map(|size| size as usize).collect();
        dims.try_into().expect("the rank")
    }

    fn float<B: AutodiffBackend, const D: usize>(&self, n: usize) -> Tensor<B, D> {
        let data = TensorData::new(numbers(&self.case["operands"][n]), self.dims::<D>(n));
        Tensor::from_data(data, &Default::default())
    }

    fn int<B: AutodiffBackend, const D: usize>(&self, n: usize) -> Tensor<B, D, Int> {
        let values: Vec<i64> = numbers(&self.case["operands"][n]).into_iter().map(|x| x as i64).collect();
        Tensor::from_data(TensorData::new(values, self.dims::<D>(n)), &Default::default())
    }

    fn compare(&self, what: &str, actual: TensorData, expected: &Value) {
        let (actual, expected) = (actual.iter::<f64>().collect::<Vec<_>>(), numbers(expected));
        assert_eq!(actual.len(), expected.len(), "{}: {what}", self.name);
        for (i, (a, b)) in actual.iter().zip(expected).enumerate() {
            let close = (a - b).abs() <= self.tolerance * (1.0 + b.abs()) || *a == b;
            assert!(close, "{}: {what}[{i}] is {a} instead of {b}", self.name);
        }
    }

    /// The loss of the first `N` operands, and its gradients with regard to these.
    fn check<B: AutodiffBackend, const N: usize, const D: usize>(
        &self,
        loss: impl FnOnce([Tensor<B, D>; N]) -> Tensor<B, 1>,
    ) {
        let leaves: [Tensor<B, D>; N] = std::array::from_fn(|n| self.float(n).require_grad());
        let loss = loss(leaves.clone());
        self.compare("loss", loss.clone().into_data(), &self.expected["loss"]);
        let gradients = loss.sum().backward();
        for (n, leaf) in leaves.iter().enumerate() {
            let gradient = leaf.grad(&gradients).expect("a gradient").into_data();
            self.compare(&format!("gradient {n}"), gradient, &self.expected["gradients"][n]);
        }
    }
}

impl Goldens {
    fn read(tolerance: f64) -> Self {
        Self { cases: serde_json::from_str(include_str!("losses.json")).expect("goldens"), tolerance }
    }

    /// Takes a case out and goes through its reductions; `None` is no reduction.
    fn each(&mut self, name: &str, check: impl Fn(&Case<'_>, Option<Reduction>)) {
        let case = self.cases.remove(name).unwrap_or_else(|| panic!("no case {name}"));
        let kinds = [("none", None), ("mean", Some(Reduction::Mean)), ("sum", Some(Reduction::Sum))];
        let mut some = false;
        for (kind, reduction) in kinds {
            if let Some(expected) = case.get(kind) {
                let name = format!("{name}, {kind}");
                check(&Case { name, case: &case, expected, tolerance: self.tolerance }, reduction);
                some = true;
            }
        }
        assert!(some, "{name} has no reduction");
    }
}

fn class_weights(case: &Case<'_>, n: usize) -> Option<Vec<f32>> {
    Some(numbers(&case.case["operands"][n]).into_iter().map(|w| w as f32).collect())
}

fn weights() -> Option<Vec<f32>> {
    Some(vec![0.5, 1.0, 2.0, 0.25])
}

fn cross_entropy<B: AutodiffBackend>(goldens: &mut Goldens) {
    let config = CrossEntropyLossConfig::new;
    for (name, config) in [
        ("ce", config()),
        ("ce_weights", config().with_weights(weights())),
        ("ce_smoothing", config().with_smoothing(Some(0.2))),
        ("ce_smoothing_weights", config().with_smoothing(Some(0.2)).with_weights(weights())),
        ("ce_pad", config().with_pad_tokens(Some(vec![1, 2]))),
        (
            "ce_pad_smoothing_weights",
            config().with_pad_tokens(Some(vec![1])).with_weights(weights()).with_smoothing(Some(0.1)),
        ),
        ("ce_probabilities", config().with_logits(false).with_weights(weights())),
    ] {
        let loss = config.init::<B>(&Default::default());
        goldens.each(name, |case, _| case.check(|[x]: [Tensor<B, 2>; 1]| loss.forward(x, case.int(1))));
    }
    for (name, weighted, padding, smoothing) in [
        ("ce_far", false, None, None),
        ("ce_far_weights", true, Some(vec![3]), None),
        ("ce_far_smoothing", true, Some(vec![250]), Some(0.1)),
    ] {
        goldens.each(name, |case, _| {
            let weights = if weighted { class_weights(case, 2) } else { None };
            let config = config().with_weights(weights).with_pad_tokens(padding.clone());
            let loss = config.with_smoothing(smoothing).init::<B>(&Default::default());
            case.check(|[x]: [Tensor<B, 2>; 1]| loss.forward(x, case.int(1)));
        });
    }
}

fn binary_cross_entropy(goldens: &mut Goldens) {
    let config = BinaryCrossEntropyLossConfig::new;
    let class_weights = || Some(vec![0.5, 2.0, 1.0]);
    for (name, config) in [
        ("bce_logits", config().with_logits(true)),
        ("bce_logits_smoothing", config().with_logits(true).with_smoothing(Some(0.2))),
        ("bce_weights", config().with_logits(true).with_weights(class_weights())),
        ("bce", config()),
        ("bce_sure", config()),
        ("bce_wrong", config()),
    ] {
        let loss = config.init::<B>(&Default::default());
        goldens.each(name, |case, _| case.check(|[x]: [Tensor<B, 2>; 1]| loss.forward(x, case.int(1))));
    }
    let loss = config().with_logits(true).with_weights(class_weights()).init::<B>(&Default::default());
    goldens.each("bce_weights_line", |case, _| {
        case.check(|[x]: [Tensor<B, 1>; 1]| loss.forward(x, case.int(1)));
    });
}

fn others(goldens: &mut Goldens) {
    for (name, margin) in [("cosine", 0.0), ("cosine_margin", 0.4)] {
        goldens.each(name, |case, reduction| {
            let mut config = CosineEmbeddingLossConfig::new().with_margin(margin);
            config.reduction = reduction.expect("a reduction");
            case.check(|[a, b]: [Tensor<B, 2>; 2]| config.init().forward(a, b, case.int(2)));
        });
    }
    goldens.each("mse", |case, reduction| {
        case.check(|[p, t]: [Tensor<B, 2>; 2]| MseLoss::new().forward(p, t, reduction.expect("a reduction")));
    });
    let huber = HuberLossConfig::new(0.5).init();
    goldens.each("huber", |case, reduction| {
        case.check(|[p, t]: [Tensor<B, 2>; 2]| huber.forward(p, t, reduction.expect("a reduction")));
    });
    let config = PoissonNllLossConfig::new;
    for (name, config) in [
        ("poisson", config()),
        ("poisson_full", config().with_full(true)),
        ("poisson_rates", config().with_full(true).with_log_input(false).with_eps(1e-6)),
    ] {
        goldens.each(name, |case, reduction| {
            let reduction = reduction.expect("a reduction");
            case.check(|[p]: [Tensor<B, 2>; 1]| config.init().forward(p, case.float(1), reduction));
        });
    }
}

fn ctc(goldens: &mut Goldens) {
    let config = CTCLossConfig::new;
    for (name, config) in [
        ("ctc", config()),
        ("ctc_blank", config().with_blank(3)),
        ("ctc_zero_infinity", config().with_zero_infinity(true)),
        ("ctc_long", config()),
    ] {
        let loss = config.init();
        goldens.each(name, |case, reduction| {
            let (targets, inputs, lengths) = (case.int(1), case.int(2), case.int(3));
            case.check(|[x]: [Tensor<B, 3>; 1]| {
                let x = log_softmax(x, 2);
                match reduction {
                    Some(reduction) => loss.forward_with_reduction(x, targets, inputs, lengths, reduction),
                    None => loss.forward(x, targets, inputs, lengths),
                }
            });
        });
    }
}

#[test]
fn losses_and_gradients_are_pytorchs() {
    let mut goldens = Goldens::read(1e-7);
    cross_entropy::<B>(&mut goldens);
    binary_cross_entropy(&mut goldens);
    others(&mut goldens);
    ctc(&mut goldens);
    assert!(goldens.cases.is_empty(), "untested: {:?}", goldens.cases.keys());
}

/// The kernels of f32 are others than what f64 is composed of.
#[test]
fn cross_entropy_in_f32() {
    cross_entropy::<Autodiff<NdArray>>(&mut Goldens::read(2e-6));
}

/// A target that does not count may be no class, and what its row holds is not looked at.
#[test]
fn padding_beyond_the_classes() {
    fn check<B: AutodiffBackend>() {
        let device = Default::default();
        let values = TensorData::new(vec![1.0, 2.0, f64::NAN, 0.5, 0.25, 3.0], [3, 2]);
        for weights in [None, Some(vec![0.5, 2.0])] {
            for smoothing in [None, Some(0.1)] {
                let loss = |rows: TensorData, targets: &[i64]| {
                    let config = CrossEntropyLossConfig::new().with_pad_tokens(Some(vec![7]));
                    let loss = config.with_weights(weights.clone()).with_smoothing(smoothing).init(&device);
                    let x = Tensor::<B, 2>::from_data(rows, &device).require_grad();
                    let targets = Tensor::<B, 1, Int>::from_data(TensorData::from(targets), &device);
                    let loss = loss.forward(x.clone(), targets);
                    let gradient = x.grad(&loss.backward()).expect("a gradient").into_data();
                    (
                        loss.into_data().iter::<f64>().next().expect("a loss"),
                        gradient.iter::<f64>().collect::<Vec<_>>(),
                    )
                };
                let (padded, gradient) = loss(values.clone(), &[1, 7, 0]);
                let (expected, kept) = loss(TensorData::new(vec![1.0, 2.0, 0.25, 3.0], [2, 2]), &[1, 0]);
                assert!((padded - expected).abs() < 1e-6, "{padded} {expected}");
                assert_eq!(gradient[2..4], [0.0, 0.0]);
                let others = gradient[..2].iter().chain(&gradient[4..]);
                assert!(others.zip(&kept).all(|(a, b)| (a - b).abs() < 1e-6), "{gradient:?} {kept:?}");
            }
        }
    }
    check::<Autodiff<NdArray>>();
    check::<Autodiff<NdArray<f64>>>();
}

fn int<const D: usize>(values: &[i64], dims: [usize; D]) -> Tensor<B, D, Int> {
    Tensor::from_data(TensorData::new(values.to_vec(), dims), &Default::default())
}

/// A target of more labels than there are steps has no alignment; what is beyond lengths counts nothing, whatever it is.
#[test]
fn targets_without_an_alignment() {
    let x = Tensor::<B, 3>::full([2, 3, 4], 0.5, &Default::default()).require_grad();
    let targets = int(&[1, 2, 3, 1, 1, -100, 3, 1 << 40, -1], [3, 3]);
    let losses = CTCLossConfig::new().init().forward(
        log_softmax(x.clone(), 2),
        targets,
        int(&[2, 2, 0], [3]),
        int(&[3, 2, 0], [3]),
    );
    // A repeated label needs a blank in between; no steps yield no labels for certain.
    assert_eq!(losses.clone().into_data().to_vec::<f64>().expect("f64"), [f64::INFINITY, f64::INFINITY, 0.0]);
    let gradient = x.grad(&losses.sum().backward()).expect("a gradient");
    assert_eq!(gradient.into_data().to_vec::<f64>().expect("f64"), [0.0; 24]);
}

#[test]
fn no_steps_and_no_labels() {
    let none = Tensor::<B, 3>::zeros([0, 2, 3], &Default::default());
    let loss = CTCLossConfig::new().init();
    let losses = loss.forward(none, int(&[1, 1], [2, 1]), int(&[0, 0], [2]), int(&[0, 1], [2]));
    assert_eq!(losses.into_data().to_vec::<f64>().expect("f64"), [0.0, f64::INFINITY]);
    let x = Tensor::<B, 3>::full([3, 1, 2], 0.5_f64.ln(), &Default::default());
    let losses = loss.forward(x, int(&[], [1, 0]), int(&[3], [1]), int(&[0], [1]));
    assert!((losses.into_scalar() - 3.0 * 2.0_f64.ln()).abs() < 1e-12);
}

/// A class that cannot be is like one of very small probability, with a gradient too.
#[test]
fn logarithms_of_0() {
    let losses = |impossible: f64| {
        let mut values: Vec<f64> = (0..12).map(|n| f64::from(n * 5 % 7)).collect();
        values[4] = impossible;
        let x =
            Tensor::<B, 3>::from_data(TensorData::new(values, [4, 1, 3]), &Default::default()).require_grad();
        let loss = CTCLossConfig::new().init();
        let loss =
            loss.forward(log_softmax(x.clone(), 2), int(&[1, 2], [1, 2]), int(&[4], [1]), int(&[2], [1]));
        let gradient =
            x.grad(&loss.backward()).expect("a gradient").into_data().to_vec::<f64>().expect("f64");
        (loss.into_scalar(), gradient)
    };
    let (expected, expected_gradient) = losses(-1e3);
    let (loss, gradient) = losses(f64::NEG_INFINITY);
    assert!((loss - expected).abs() < 1e-12);
    assert!(gradient.iter().zip(&expected_gradient).all(|(a, b)| (a - b).abs() < 1e-12), "{gradient:?}");
}

/// The derivative of the loss itself, not of that behind a softmax, against finite differences.
#[test]
fn the_gradient_is_the_derivative() {
    let values: Vec<f64> = (0..5 * 2 * 3).map(|n| -0.1 - (n * 7 % 11) as f64 * 0.3).collect();
    let tensor = |values: &[f64]| {
        Tensor::<B, 3>::from_data(TensorData::new(values.to_vec(), [5, 2, 3]), &Default::default())
            .require_grad()
    };
    let loss = |x: Tensor<B, 3>| {
        let loss = CTCLossConfig::new().init();
        loss.forward(x, int(&[1, 1, 2, 0], [2, 2]), int(&[5, 4], [2]), int(&[2, 1], [2])).sum()
    };
    let x = tensor(&values);
    let gradient =
        x.grad(&loss(x.clone()).backward()).expect("a gradient").into_data().to_vec::<f64>().expect("f64");
    for (n, expected) in gradient.iter().enumerate() {
        let moved = |by: f64| {
            let mut values = values.clone();
            values[n] += by;
            loss(tensor(&values)).into_scalar()
        };
        let slope = (moved(1e-5) - moved(-1e-5)) / 2e-5;
        assert!((slope - expected).abs() < 1e-7, "{n}: {slope}, {expected}");
    }
}

/// -100 of eight bits would be the class 156.
#[test]
fn what_no_target_can_be_is_no_class() {
    let logits = Tensor::<B, 2>::zeros([1, 200], &Default::default());
    let targets =
        Tensor::<B, 1, Int>::from_data_dtype(TensorData::from([156_u8]), &Default::default(), DType::U8);
    let options = CrossEntropyOptions { ignored: vec![-100], smoothing: 0.0 };
    let loss = module::cross_entropy(logits, targets, None, &options).into_data().iter::<f64>().next();
    assert!(loss.is_some_and(|loss| (loss - 200_f64.ln()).abs() < 1e-9), "{loss:?}");
}

/// Sums of the losses of a batch, or of its weights, are more than 16 bits hold; their quotient is not.
#[test]
fn weighted_means_of_large_batches_are_finite_in_16_bits() {
    type B = NdArray;
    let (device, rows) = (Default::default(), 100_000_usize);
    let logits = Tensor::<B, 2>::zeros([rows, 2], &device).cast(DType::F16);
    let targets = Tensor::<B, 1, Int>::zeros([rows], &device);
    let one = |loss: Tensor<B, 1>| loss.into_data().iter::<f64>().next().expect("one");
    let padded = CrossEntropyLossConfig::new().with_pad_tokens(Some(vec![1])).init(&device);
    let weighted = CrossEntropyLossConfig::new().with_weights(Some(vec![3.0, 1.0])).init(&device);
    for loss in
        [padded.forward(logits.clone(), targets.clone()), weighted.forward(logits.clone(), targets.clone())]
    {
        assert_eq!(loss.dtype(), DType::F16);
        let loss = one(loss);
        assert!((loss - 2.0_f64.ln()).abs() < 1e-3, "{loss}");
    }
    let binary = BinaryCrossEntropyLossConfig::new()
        .with_logits(true)
        .with_weights(Some(vec![3.0, 1.0]))
        .init(&device);
    let loss = one(binary.forward(logits, targets.reshape([rows, 1]).repeat_dim(1, 2)));
    assert!((loss - 2.0_f64.ln()).abs() < 1e-3, "{loss}");
}

/// Two classes have two weights, also where a target is one number.
#[test]
#[should_panic(expected = "BinaryCrossEntropyLoss: 2 classes and 1 weights")]
fn a_weight_for_each_of_two_classes() {
    let device = Default::default();
    let loss = BinaryCrossEntropyLossConfig::new().with_weights(Some(vec![2.0])).init(&device);
    let _ = loss.forward(Tensor::<B, 1>::from_data([0.5, 0.25], &device), int(&[1, 0], [2]));
}
