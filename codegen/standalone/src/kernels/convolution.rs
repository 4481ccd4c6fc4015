// Convolutions.

/// The sizes of a convolution, each of height and width; images of one line have height 1. `channels` are those of the image and the result.
struct Conv2d {
    batch: usize,
    channels: [usize; 2],
    groups: usize,
    size: [usize; 2],
    result: [usize; 2],
    kernel: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 2],
    dilation: [usize; 2],
}

/// A window's element along one axis.
struct Tap {
    places: core::ops::Range<usize>,
    first: usize,
}

/// The places of a window at which its element `at` is inside the image, and what it sees at the first.
fn tap(sizes: &Conv2d, axis: usize, at: usize) -> Tap {
    let (size, stride, padding) = (sizes.size[axis], sizes.stride[axis], sizes.padding[axis]);
    let offset = at * sizes.dilation[axis];
    let start = padding.saturating_sub(offset).div_ceil(stride);
    let end = (size + padding).saturating_sub(offset).div_ceil(stride).min(sizes.result[axis]);
    let places = if start < end { start..end } else { 0..0 };
    Tap { places, first: (start * stride + offset - padding).min(size) }
}

/// A convolution of an image `[batch, channels, height, width]`, to which a residual may be added before its activation.
fn conv2d(
    x: &[f32],
    weight: &[f32],
    bias: Option<&[f32]>,
    residual: Option<&[f32]>,
    sizes: &Conv2d,
    activation: impl Fn(f32) -> f32,
    out: &mut [f32],
) {
    let &Conv2d { batch, channels: [inputs, outputs], groups, size, result, kernel, .. } = sizes;
    let (image, plane, window) = (size[0] * size[1], result[0] * result[1], kernel[0] * kernel[1]);
    let inputs_of_group = inputs / groups;
    for at in 0..batch * outputs {
        let (n, channel) = (at / outputs, at % outputs);
        let first = n * inputs + channel / (outputs / groups) * inputs_of_group;
        let out = &mut out[at * plane..][..plane];
        out.fill(bias.map_or(0.0, |bias| bias[channel]));
        let images = x[first * image..].chunks_exact(image);
        let weights = weight[channel * inputs_of_group * window..][..inputs_of_group * window].chunks_exact(window);
        for (image, weights) in images.zip(weights) {
            add_windows(image, weights, sizes, out);
        }
        match residual {
            Some(residual) => {
                for (out, &residual) in out.iter_mut().zip(&residual[at * plane..]) {
                    *out = activation(*out + residual);
                }
            }
            None => {
                for out in out {
                    *out = activation(*out);
                }
            }
        }
    }
}

/// Adds what one channel's window yields: element by element of the window, a line of the image at a time.
fn add_windows(image: &[f32], weights: &[f32], sizes: &Conv2d, out: &mut [f32]) {
    let (width, columns, stride) = (sizes.size[1], sizes.result[1], sizes.stride);
    for (i, weights) in weights.chunks_exact(sizes.kernel[1]).enumerate() {
        let rows = tap(sizes, 0, i);
        for (j, &weight) in weights.iter().enumerate() {
            let across = tap(sizes, 1, j);
            for (line, row) in rows.places.clone().enumerate() {
                let out = &mut out[row * columns..][across.places.clone()];
                let image = &image[(rows.first + line * stride[0]) * width..][..width];
                add_line(&image[across.first..], weight, stride[1], out);
            }
        }
    }
}

/// Adds a line times a weight; of the line each `stride`-th element counts.
fn add_line(line: &[f32], weight: f32, stride: usize, out: &mut [f32]) {
    if stride == 1 {
        for (out, &x) in out.iter_mut().zip(line) {
            *out += weight * x;
        }
    } else {
        for (out, &x) in out.iter_mut().zip(line.iter().step_by(stride)) {
            *out += weight * x;
        }
    }
}

/// A convolution of integers less their zero points: one for the image, one for the weight or one for each of the result's channels.
fn quantized_conv2d<X: Copy + Into<i32>, W: Copy + Into<i32>>(
    x: &[X],
    weight: &[W],
    x_zero: Option<&[X]>,
    weight_zero: Option<&[W]>,
    sizes: &Conv2d,
    out: &mut [i32],
) {
    let &Conv2d { batch, channels: [inputs, outputs], groups, size, result, kernel, stride, .. } = sizes;
    let (image, plane, window) = (size[0] * size[1], result[0] * result[1], kernel[0] * kernel[1]);
    let inputs_of_group = inputs / groups;
    let x_zero: i32 = x_zero.map_or(0, |zero| zero[0].into());
    for at in 0..batch * outputs {
        let (n, channel) = (at / outputs, at % outputs);
        let first = n * inputs + channel / (outputs / groups) * inputs_of_group;
        let zero: i32 = weight_zero.map_or(0, |zero| zero[channel % zero.len()].into());
        let out = &mut out[at * plane..][..plane];
        out.fill(0);
        let weights = &weight[channel * inputs_of_group * window..][..inputs_of_group * window];
        for (place, &weight) in weights.iter().enumerate() {
            let image = &x[(first + place / window) * image..][..image];
            let (rows, across) = (tap(sizes, 0, place % window / kernel[1]), tap(sizes, 1, place % kernel[1]));
            let weight: i32 = weight.into() - zero;
            for (line, row) in rows.places.clone().enumerate() {
                let out = &mut out[row * result[1]..][across.places.clone()];
                let line = &image[(rows.first + line * stride[0]) * size[1]..][..size[1]];
                for (out, &x) in out.iter_mut().zip(line[across.first..].iter().step_by(stride[1])) {
                    *out = out.wrapping_add(weight.wrapping_mul(x.into() - x_zero));
                }
            }
        }
    }
}

/// The sizes of a transposed convolution, as those of a convolution; `padding` is cut off before the result.
struct ConvTranspose2d {
    batch: usize,
    channels: [usize; 2],
    groups: usize,
    size: [usize; 2],
    result: [usize; 2],
    kernel: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 2],
    dilation: [usize; 2],
}

/// A transposed convolution: each element of the image adds its window to the result.
fn conv_transpose2d(x: &[f32], weight: &[f32], bias: Option<&[f32]>, sizes: &ConvTranspose2d, out: &mut [f32]) {
    let &ConvTranspose2d { batch, channels: [inputs, outputs], groups, size, result, kernel, stride, padding, dilation } =
        sizes;
    let (image, plane, window) = (size[0] * size[1], result[0] * result[1], kernel[0] * kernel[1]);
    let (inputs_of_group, outputs_of_group) = (inputs / groups, outputs / groups);
    for (at, out) in out.chunks_exact_mut(plane).take(batch * outputs).enumerate() {
        let (n, channel) = (at / outputs, at % outputs);
        let (group, of_group) = (channel / outputs_of_group, channel % outputs_of_group);
        out.fill(bias.map_or(0.0, |bias| bias[channel]));
        for input in group * inputs_of_group..(group + 1) * inputs_of_group {
            let image = &x[(n * inputs + input) * image..][..image];
            let weights = &weight[(input * outputs_of_group + of_group) * window..][..window];
            for (place, &x) in image.iter().enumerate() {
                let (top, left) = (place / size[1] * stride[0], place % size[1] * stride[1]);
                for (element, &weight) in weights.iter().enumerate() {
                    let row = (top + element / kernel[1] * dilation[0]).wrapping_sub(padding[0]);
                    let column = (left + element % kernel[1] * dilation[1]).wrapping_sub(padding[1]);
                    if row < result[0] && column < result[1] {
                        out[row * result[1] + column] += weight * x;
                    }
                }
            }
        }
    }
}
