// Normalizations.

/// Mean and variance of numbers.
fn moments(x: &[f32]) -> (f32, f32) {
    let count = x.len() as f32;
    let mean = x.iter().sum::<f32>() / count;
    let variance = x.iter().map(|&x| (x - mean) * (x - mean)).sum::<f32>() / count;
    (mean, variance)
}

/// Normalizes rows as long as the weight.
fn layer_norm(x: &[f32], weight: &[f32], bias: Option<&[f32]>, epsilon: f32, out: &mut [f32]) {
    for (x, out) in x.chunks_exact(weight.len()).zip(out.chunks_exact_mut(weight.len())) {
        let (mean, variance) = moments(x);
        let scale = 1.0 / sqrt(variance + epsilon);
        for ((out, &x), &weight) in out.iter_mut().zip(x).zip(weight) {
            *out = (x - mean) * scale * weight;
        }
        if let Some(bias) = bias {
            for (out, &bias) in out.iter_mut().zip(bias) {
                *out += bias;
            }
        }
    }
}

/// Scales rows as long as the weight by the root of their mean square.
fn rms_norm(x: &[f32], weight: &[f32], epsilon: f32, out: &mut [f32]) {
    for (x, out) in x.chunks_exact(weight.len()).zip(out.chunks_exact_mut(weight.len())) {
        let mean = x.iter().map(|&x| x * x).sum::<f32>() / x.len() as f32;
        let scale = 1.0 / sqrt(mean + epsilon);
        for ((out, &x), &weight) in out.iter_mut().zip(x).zip(weight) {
            *out = x * scale * weight;
        }
    }
}

/// The sizes of a normalization over groups of channels, each of `inner` elements.
struct Groups {
    groups: usize,
    channels: usize,
    inner: usize,
}

/// Normalizes groups of channels; weight and bias are a number for each channel.
fn group_norm(
    x: &[f32],
    weight: Option<&[f32]>,
    bias: Option<&[f32]>,
    sizes: &Groups,
    epsilon: f32,
    out: &mut [f32],
) {
    let &Groups { groups, channels, inner } = sizes;
    let group = channels / groups * inner;
    for (at, (x, out)) in x.chunks_exact(group).zip(out.chunks_exact_mut(group)).enumerate() {
        let (mean, variance) = moments(x);
        let scale = 1.0 / sqrt(variance + epsilon);
        for (n, (x, out)) in x.chunks_exact(inner).zip(out.chunks_exact_mut(inner)).enumerate() {
            let channel = at % groups * (channels / groups) + n;
            let scale = scale * weight.map_or(1.0, |weight| weight[channel]);
            let shift = bias.map_or(0.0, |bias| bias[channel]);
            for (out, &x) in out.iter_mut().zip(x) {
                *out = (x - mean) * scale + shift;
            }
        }
    }
}

/// Normalizes channels of `inner` elements by given means and variances.
#[allow(clippy::too_many_arguments, reason = "a normalization has as many parameters")]
fn batch_norm(
    x: &[f32],
    weight: &[f32],
    bias: &[f32],
    mean: &[f32],
    variance: &[f32],
    inner: usize,
    epsilon: f32,
    out: &mut [f32],
) {
    for (at, (x, out)) in x.chunks_exact(inner).zip(out.chunks_exact_mut(inner)).enumerate() {
        let channel = at % weight.len();
        let scale = weight[channel] / sqrt(variance[channel] + epsilon);
        for (out, &x) in out.iter_mut().zip(x) {
            *out = (x - mean[channel]) * scale + bias[channel];
        }
    }
}
