//! Normalizations.

use super::{Elements, Strided, elements};
use kiln_types::TensorData;

pub(super) fn softmax(x: &TensorData, axis: usize, log: bool) -> Option<TensorData> {
    let size = *x.shape.get(axis)?;
    let inner: usize = elements(&x.shape[axis + 1..]);
    let outer: usize = elements(&x.shape[..axis]);
    let mut values = Elements::load(x).floats();
    for o in 0..outer {
        for i in 0..inner {
            let at = |row: usize| (o * size + row) * inner + i;
            let most = (0..size).map(|row| values[at(row)]).fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = (0..size).map(|row| (values[at(row)] - most).exp()).sum();
            for row in 0..size {
                let shifted = values[at(row)] - most;
                values[at(row)] = if log { shifted - sum.ln() } else { shifted.exp() / sum };
            }
        }
    }
    Some(Elements::Float(values).store(x.dtype, x.shape.clone()))
}

/// Rows of `run` elements normalized to mean 0 and variance 1.
fn standardize(values: &mut [f64], run: usize, epsilon: f64) {
    for row in values.chunks_mut(run.max(1)) {
        let n = row.len() as f64;
        let mean = row.iter().sum::<f64>() / n;
        let variance = row.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n;
        let scale = 1.0 / (variance + epsilon).sqrt();
        row.iter_mut().for_each(|x| *x = (*x - mean) * scale);
    }
}

/// Weights and biases broadcast to the shape of `x`, applied.
fn affine(
    values: &mut [f64],
    shape: &[usize],
    weight: Option<&TensorData>,
    bias: Option<&TensorData>,
) -> Option<()> {
    let spread = |data: &TensorData| {
        Some(Strided::new(&data.shape).expand(shape)?.gather(&Elements::load(data).floats()))
    };
    if let Some(weight) = weight {
        values.iter_mut().zip(spread(weight)?).for_each(|(x, w)| *x *= w);
    }
    if let Some(bias) = bias {
        values.iter_mut().zip(spread(bias)?).for_each(|(x, b)| *x += b);
    }
    Some(())
}

/// A parameter of one number a channel, shaped to broadcast.
fn per_channel(data: &TensorData, rank: usize) -> Option<TensorData> {
    let mut shape = vec![1; rank];
    *shape.get_mut(1)? = data.num_elements();
    TensorData::from_bytes(data.bytes.clone(), shape, data.dtype).ok()
}

pub(super) fn layer_norm(
    x: &TensorData,
    weight: &TensorData,
    bias: Option<&TensorData>,
    epsilon: f64,
) -> Option<TensorData> {
    let mut values = Elements::load(x).floats();
    standardize(&mut values, weight.num_elements(), epsilon);
    affine(&mut values, &x.shape, Some(weight), bias)?;
    Some(Elements::Float(values).store(x.dtype, x.shape.clone()))
}

pub(super) fn rms_norm(x: &TensorData, weight: &TensorData, epsilon: f64) -> Option<TensorData> {
    let mut values = Elements::load(x).floats();
    for row in values.chunks_mut(weight.num_elements().max(1)) {
        let mean = row.iter().map(|x| x * x).sum::<f64>() / row.len() as f64;
        let scale = 1.0 / (mean + epsilon).sqrt();
        row.iter_mut().for_each(|x| *x *= scale);
    }
    affine(&mut values, &x.shape, Some(weight), None)?;
    Some(Elements::Float(values).store(x.dtype, x.shape.clone()))
}

pub(super) fn group_norm(
    x: &TensorData,
    weight: Option<&TensorData>,
    bias: Option<&TensorData>,
    groups: usize,
    epsilon: f64,
) -> Option<TensorData> {
    let mut values = Elements::load(x).floats();
    let rows = x.shape.first()?.checked_mul(groups)?;
    standardize(&mut values, x.num_elements().checked_div(rows)?, epsilon);
    let channel = |data: Option<&TensorData>| data.map(|data| per_channel(data, x.shape.len()));
    let (weight, bias) = (channel(weight).flatten(), channel(bias).flatten());
    affine(&mut values, &x.shape, weight.as_ref(), bias.as_ref())?;
    Some(Elements::Float(values).store(x.dtype, x.shape.clone()))
}

/// Parameters: weight, bias, mean, variance.
pub(super) fn batch_norm(x: &TensorData, parameters: [&TensorData; 4], epsilon: f64) -> Option<TensorData> {
    let [weight, bias, mean, variance] = parameters.map(|data| Elements::load(data).floats());
    let channels = *x.shape.get(1)?;
    let inner: usize = elements(&x.shape[2..]);
    let mut values = Elements::load(x).floats();
    for (i, value) in values.iter_mut().enumerate() {
        let c = (i / inner.max(1)) % channels.max(1);
        *value =
            (*value - mean.get(c)?) / (variance.get(c)? + epsilon).sqrt() * weight.get(c)? + bias.get(c)?;
    }
    Some(Elements::Float(values).store(x.dtype, x.shape.clone()))
}
