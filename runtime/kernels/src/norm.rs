//! Normalizations.

use crate::InOut;
use num_traits::Float;

/// Mean and `1 / √(variance + epsilon)`.
fn statistics(x: &[f32], epsilon: f32) -> (f32, f32) {
    let n = x.len() as f32;
    let mean = x.iter().sum::<f32>() / n;
    let variance = x.iter().map(|x| (x - mean) * (x - mean)).sum::<f32>() / n;
    (mean, 1.0 / Float::sqrt(variance + epsilon))
}

/// Normalizes rows of `weight.len()` elements to mean 0 and variance 1, then scales and shifts elementwise.
///
/// # Panics
/// When the data is not whole rows, or `bias` has another length than `weight`.
pub fn layer_norm(weight: &[f32], bias: Option<&[f32]>, epsilon: f32, data: InOut<'_>) {
    assert!(bias.is_none_or(|b| b.len() == weight.len()), "size of the layer norm's bias");
    assert!(data.len() == 0 || data.len().is_multiple_of(weight.len()), "whole rows");
    for row in data.into_place().chunks_mut(weight.len().max(1)) {
        let (mean, scale) = statistics(row, epsilon);
        for (i, x) in row.iter_mut().enumerate() {
            *x = (*x - mean) * scale * weight[i] + bias.map_or(0.0, |b| b[i]);
        }
    }
}

/// Divides rows of `weight.len()` elements by the root of their mean square, then scales elementwise.
///
/// # Panics
/// When the data is not whole rows.
pub fn rms_norm(weight: &[f32], epsilon: f32, data: InOut<'_>) {
    assert!(data.len() == 0 || data.len().is_multiple_of(weight.len()), "whole rows");
    for row in data.into_place().chunks_mut(weight.len().max(1)) {
        let square = row.iter().map(|x| x * x).sum::<f32>() / row.len() as f32;
        let scale = 1.0 / Float::sqrt(square + epsilon);
        for (x, w) in row.iter_mut().zip(weight) {
            *x = *x * scale * w;
        }
    }
}

/// Group normalization of `[batch, channels, spatial]`; `weight` and `bias` are `[channels]`. Instance normalization is
/// `groups = channels`.
///
/// # Panics
/// When sizes do not fit, or `groups` does not divide `channels`.
pub fn group_norm(
    channels: usize,
    spatial: usize,
    groups: usize,
    weight: Option<&[f32]>,
    bias: Option<&[f32]>,
    epsilon: f32,
    data: InOut<'_>,
) {
    assert!(groups > 0 && channels.is_multiple_of(groups), "{channels} channels in {groups} groups");
    assert!(weight.is_none_or(|w| w.len() == channels), "size of the group norm's weight");
    assert!(bias.is_none_or(|b| b.len() == channels), "size of the group norm's bias");
    let group = channels / groups * spatial;
    assert!(data.len() == 0 || data.len().is_multiple_of(groups * group), "whole images");
    for (i, x) in data.into_place().chunks_mut(group.max(1)).enumerate() {
        let (mean, scale) = statistics(x, epsilon);
        for (j, x) in x.chunks_mut(spatial).enumerate() {
            let channel = i % groups * (channels / groups) + j;
            let scale = scale * weight.map_or(1.0, |w| w[channel]);
            let shift = bias.map_or(0.0, |b| b[channel]);
            x.iter_mut().for_each(|x| *x = (*x - mean) * scale + shift);
        }
    }
}

/// `x · scale + shift` per channel of `[batch, channels, spatial]`: a batch normalization with its statistics folded in.
///
/// # Panics
/// When sizes do not fit.
pub fn scale_shift(spatial: usize, scale: &[f32], shift: &[f32], data: InOut<'_>) {
    assert_eq!(scale.len(), shift.len(), "one scale and one shift a channel");
    assert!(data.len() == 0 || data.len().is_multiple_of(scale.len() * spatial), "whole images");
    for (i, x) in data.into_place().chunks_mut(spatial.max(1)).enumerate() {
        let (scale, shift) = (scale[i % scale.len()], shift[i % shift.len()]);
        x.iter_mut().for_each(|x| *x = *x * scale + shift);
    }
}
