//! The first steps of a tutorial: tensors, layers, losses.

use burn::backend::NdArray;
use burn::nn::conv::Conv2dConfig;
use burn::nn::loss::{CrossEntropyLossConfig, MseLoss, Reduction};
use burn::nn::pool::{AdaptiveAvgPool2dConfig, MaxPool2dConfig};
use burn::nn::{
    BatchNormConfig, DropoutConfig, EmbeddingConfig, LayerNormConfig, LinearConfig, LstmConfig,
    PaddingConfig2d,
};
use burn::prelude::*;
use burn::tensor::{Distribution, Tolerance, activation, check_closeness};

type B = NdArray;

#[test]
fn tensors_are_made_and_printed() {
    let device = Default::default();
    let a = Tensor::<B, 2>::from_data([[1.0, 2.0], [3.0, 4.0]], &device);
    let b = Tensor::<B, 1>::from_floats([10.0, 20.0, 30.0], &device);
    let zeros = Tensor::<B, 2>::zeros([3, 4], &device);
    let full = Tensor::<B, 1>::full([5], 3.5, &device);
    let like_a = Tensor::<B, 2>::ones_like(&a);
    let like_z = Tensor::<B, 2>::zeros_like(&zeros);
    let uniform = Tensor::<B, 2>::random([4, 4], Distribution::Uniform(0.0, 1.0), &device);
    let labels = Tensor::<B, 1, Int>::from_data(TensorData::from([0i32, 1, 2, 1]), &device);
    let range = Tensor::<B, 1, Int>::arange(0..5, &device);
    let mask = a.clone().greater_elem(2.0);
    assert_eq!((like_a + a.clone()).into_data(), TensorData::from([[2.0_f32, 3.0], [4.0, 5.0]]));
    assert_eq!((like_z.shape().dims::<2>(), full.dims(), uniform.dims()), ([3, 4], [5], [4, 4]));
    assert_eq!(range.into_data(), TensorData::from([0_i64, 1, 2, 3, 4]));
    assert_eq!(mask.to_data(), TensorData::from([[false, false], [true, true]]));
    for text in [format!("{a}"), format!("{labels}"), format!("{mask}"), format!("{b:.2}")] {
        assert!(text.starts_with("Tensor {\n"), "{text}");
    }
    let scalar: f32 = Tensor::<B, 1>::from_floats([42.0], &device).into_scalar();
    assert_eq!(scalar, 42.0);
}

#[test]
fn tensors_compute() {
    let device = Default::default();
    let a = Tensor::<B, 2>::from_data([[1.0, 2.0], [3.0, 4.0]], &device);
    let b = Tensor::<B, 2>::from_data([[10.0, 20.0], [30.0, 40.0]], &device);
    let all = (a.clone() + b.clone()) * 2.0 - b.clone() / a.clone() + 1.0;
    let same = -(-(all.clone()));
    assert_eq!(all.into_data(), same.into_data());
    assert_eq!(a.clone().matmul(b).into_data(), TensorData::from([[70.0_f32, 100.0], [150.0, 220.0]]));
    let t = Tensor::<B, 2>::from_data([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], &device);
    assert_eq!(t.clone().sum().into_scalar(), 21.0);
    assert_eq!((t.clone().sum_dim(0).dims(), t.clone().mean_dim(1).dims()), ([1, 3], [2, 1]));
    assert_eq!(t.clone().argmax(1).into_data(), TensorData::from([[2_i64], [2]]));
    let r = t.clone().reshape([3, 2]);
    let f: Tensor<B, 1> = r.clone().flatten(0, 1);
    let u: Tensor<B, 3> = r.clone().unsqueeze_dim(0);
    let s: Tensor<B, 2> = u.squeeze_dim(0);
    assert_eq!((f.dims(), s.dims(), r.transpose().dims()), ([6], [3, 2], [2, 3]));
    let stacked: Tensor<B, 3> = Tensor::stack(vec![a.clone(), a.clone()], 0);
    assert_eq!((Tensor::cat(vec![a.clone(), a], 0).dims(), stacked.dims()), ([4, 2], [2, 2, 2]));
    assert_eq!(t.clone().slice([1..2, 0..2]).into_data(), TensorData::from([[4.0_f32, 5.0]]));
    assert_eq!(t.slice(s![.., 1..]).dims(), [2, 2]);
}

fn min_max_normalize(t: Tensor<B, 1>) -> Tensor<B, 1> {
    let min = t.clone().min();
    let max = t.clone().max();
    (t - min.clone()) / (max - min)
}

#[test]
fn an_exercise_is_solved() {
    let normalized = min_max_normalize(Tensor::from_floats([2.0, 4.0, 6.0, 8.0, 10.0], &Default::default()));
    assert_eq!(normalized.into_data(), TensorData::from([0.0_f32, 0.25, 0.5, 0.75, 1.0]));
}

#[test]
fn layers_keep_their_shapes() {
    let device = Default::default();
    let random = |shape: [usize; 4]| Tensor::<B, 4>::random(shape, Distribution::Normal(0.0, 1.0), &device);
    let linear = LinearConfig::new(7, 5).with_bias(true).init::<B>(&device);
    assert_eq!(linear.forward(Tensor::<B, 2>::zeros([3, 7], &device)).dims(), [3, 5]);
    let conv = Conv2dConfig::new([1, 6], [3, 3])
        .with_padding(PaddingConfig2d::Same)
        .with_stride([1, 1])
        .init::<B>(&device);
    let x = conv.forward(random([2, 1, 9, 7]));
    assert_eq!(x.dims(), [2, 6, 9, 7]);
    let x = BatchNormConfig::new(6).init::<B>(&device).forward(x);
    let x = DropoutConfig::new(0.5).init().forward(x);
    let x = MaxPool2dConfig::new([2, 2]).with_strides([2, 2]).init().forward(x);
    assert_eq!(x.dims(), [2, 6, 4, 3]);
    let same = MaxPool2dConfig::new([2, 2]).with_stride([1, 1]).init().forward(x.clone());
    assert_eq!(same.dims(), [2, 6, 3, 2]);
    let x = AdaptiveAvgPool2dConfig::new([1, 1]).init().forward(x);
    assert_eq!(x.dims(), [2, 6, 1, 1]);
    let tokens = Tensor::<B, 2, Int>::from_data([[1, 2, 3], [4, 5, 6]], &device);
    let x = EmbeddingConfig::new(10, 4).init::<B>(&device).forward(tokens);
    let x = LayerNormConfig::new(4).init::<B>(&device).forward(x);
    let (x, state) = LstmConfig::new(4, 8, true).init::<B>(&device).forward(x, None);
    assert_eq!((x.dims(), state.hidden.dims()), ([2, 3, 8], [2, 8]));
}

/// Binary cross-entropy from logits.
fn bce_with_logits<B: Backend>(logits: Tensor<B, 2>, targets: Tensor<B, 2>) -> Tensor<B, 1> {
    let zeros = Tensor::zeros_like(&logits);
    let max_val = logits.clone().max_pair(zeros);
    let abs_logits = logits.clone().abs();
    let loss = max_val - logits * targets + ((-abs_logits).exp() + 1.0).log();
    loss.mean()
}

#[test]
fn losses_agree_with_their_definitions() {
    let device = Default::default();
    let logits = Tensor::<B, 2>::from_data([[0.5, -1.0, 2.0], [1.0, 0.0, -0.5]], &device);
    let targets = Tensor::<B, 1, Int>::from_data([2, 0], &device);
    let loss: Tensor<B, 1> =
        CrossEntropyLossConfig::new().init(&device).forward(logits.clone(), targets.clone());
    let by_hand = activation::log_softmax(logits.clone(), 1).gather(1, targets.reshape([2, 1])).mean().neg();
    by_hand.to_data().assert_approx_eq::<f32>(&loss.to_data(), Tolerance::default());
    check_closeness(&loss, &by_hand);

    let targets = Tensor::<B, 2>::from_data([[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]], &device);
    let mse = MseLoss::new().forward(logits.clone(), targets.clone(), Reduction::Mean);
    let by_hand = (logits.clone() - targets.clone()).powf_scalar(2.0).mean();
    by_hand.to_data().assert_approx_eq::<f32>(&mse.to_data(), Tolerance::default());

    let probabilities = activation::sigmoid(logits.clone());
    let one = |t: Tensor<B, 2>| t.neg() + 1.0;
    let by_hand =
        targets.clone() * probabilities.clone().log() + one(targets.clone()) * one(probabilities).log();
    let loss = bce_with_logits(logits, targets);
    by_hand.mean().neg().to_data().assert_approx_eq::<f32>(&loss.to_data(), Tolerance::default());
}
