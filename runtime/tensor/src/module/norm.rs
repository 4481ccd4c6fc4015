//! Normalizations, and dropout.

use crate::Tensor;
use crate::backend::Backend;
use crate::check::ensure;

/// Parameters that cover the last dims of the input.
#[track_caller]
fn check_last_dims(op: &str, x: &[usize], weight: &[usize], bias: Option<&[usize]>) {
    let fits = !weight.is_empty() && x.ends_with(weight);
    ensure!(fits, op, "a weight {weight:?} does not cover the last dims of {x:?}");
    if let Some(bias) = bias {
        ensure!(bias == weight, op, "a bias {bias:?} does not fit a weight {weight:?}");
    }
}

/// Parameters with one number a channel.
#[track_caller]
fn check_channels(op: &str, x: &[usize], parameters: &[Option<&[usize]>]) {
    ensure!(x.len() >= 2, op, "{x:?} should be [batch, channels, …]");
    for parameter in parameters.iter().flatten() {
        ensure!(
            parameter[0] == x[1],
            op,
            "a parameter {parameter:?} does not fit the {} channels of {x:?}",
            x[1]
        );
    }
}

/// Mean 0 and variance 1 over the last dims, which `weight` covers; then scaled and shifted.
pub fn layer_norm<B: Backend, const D: usize, const DW: usize>(
    x: Tensor<B, D>,
    weight: Tensor<B, DW>,
    bias: Option<Tensor<B, DW>>,
    epsilon: f64,
) -> Tensor<B, D> {
    check_last_dims("layer_norm", x.sizes(), weight.sizes(), bias.as_ref().map(Tensor::sizes));
    let bias = bias.map(Tensor::into_backend);
    Tensor::wrap(B::layer_norm(x.into_backend(), weight.into_backend(), bias, epsilon))
}

/// Divided by the root of the mean square over the last dims, which `weight` covers; then scaled.
pub fn rms_norm<B: Backend, const D: usize, const DW: usize>(
    x: Tensor<B, D>,
    weight: Tensor<B, DW>,
    epsilon: f64,
) -> Tensor<B, D> {
    check_last_dims("rms_norm", x.sizes(), weight.sizes(), None);
    Tensor::wrap(B::rms_norm(x.into_backend(), weight.into_backend(), epsilon))
}

/// Mean 0 and variance 1 over each group of channels (dim 1) and all dims after; then scaled and shifted by channel.
pub fn group_norm<B: Backend, const D: usize>(
    x: Tensor<B, D>,
    weight: Option<Tensor<B, 1>>,
    bias: Option<Tensor<B, 1>>,
    groups: usize,
    epsilon: f64,
) -> Tensor<B, D> {
    let shape = x.sizes();
    let parameters = [&weight, &bias].map(|parameter| parameter.as_ref().map(Tensor::sizes));
    check_channels("group_norm", shape, &parameters);
    ensure!(
        groups > 0 && shape[1].is_multiple_of(groups),
        "group_norm",
        "{groups} groups do not divide the {} channels of {shape:?}",
        shape[1]
    );
    let [weight, bias] = [weight, bias].map(|parameter| parameter.map(Tensor::into_backend));
    Tensor::wrap(B::group_norm(x.into_backend(), weight, bias, groups, epsilon))
}

/// [`group_norm`] with each channel its own group.
pub fn instance_norm<B: Backend, const D: usize>(
    x: Tensor<B, D>,
    weight: Option<Tensor<B, 1>>,
    bias: Option<Tensor<B, 1>>,
    epsilon: f64,
) -> Tensor<B, D> {
    ensure!(D >= 2, "instance_norm", "{} should be [batch, channels, …]", x.shape());
    let channels = x.sizes()[1];
    group_norm(x, weight, bias, channels, epsilon)
}

/// `(x - mean) / √(variance + epsilon) · weight + bias`, by channel (dim 1).
pub fn batch_norm<B: Backend, const D: usize>(
    x: Tensor<B, D>,
    weight: Tensor<B, 1>,
    bias: Tensor<B, 1>,
    mean: Tensor<B, 1>,
    variance: Tensor<B, 1>,
    epsilon: f64,
) -> Tensor<B, D> {
    let parameters = [&weight, &bias, &mean, &variance].map(|parameter| Some(parameter.sizes()));
    check_channels("batch_norm", x.sizes(), &parameters);
    let [weight, bias, mean, variance] = [weight, bias, mean, variance].map(Tensor::into_backend);
    Tensor::wrap(B::batch_norm(x.into_backend(), weight, bias, mean, variance, epsilon))
}

/// [`batch_norm`] with the statistics of the batch, which come behind it: mean and variance (over the batch as a whole
/// population) of each channel, as constants.
pub fn batch_norm_train<B: Backend, const D: usize>(
    x: Tensor<B, D>,
    weight: Tensor<B, 1>,
    bias: Tensor<B, 1>,
    epsilon: f64,
) -> (Tensor<B, D>, Tensor<B, 1>, Tensor<B, 1>) {
    check_channels("batch_norm_train", x.sizes(), &[Some(weight.sizes()), Some(bias.sizes())]);
    let [weight, bias] = [weight, bias].map(Tensor::into_backend);
    let trained = B::batch_norm_train(x.into_backend(), weight, bias, epsilon);
    (Tensor::wrap(trained.output), Tensor::wrap(trained.mean), Tensor::wrap(trained.variance))
}

/// Zeros elements with the given probability and divides the others by that of staying. Which ones follows from a number drawn
/// on the device, and is computed again on the way back: no mask is kept.
pub fn dropout<B: Backend, const D: usize>(x: Tensor<B, D>, probability: f64) -> Tensor<B, D> {
    ensure!((0.0..=1.0).contains(&probability), "dropout", "{probability} is not between 0 and 1");
    let key = B::random_key(&x.device());
    Tensor::wrap(B::dropout(x.into_backend(), probability, key))
}
