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

/// How many places of a window are computed together: their sums, for four channels, fit the registers.
const PLACES: usize = if cfg!(target_arch = "arm") { 4 } else { 8 };

/// Places of a window, one behind the other: where each begins in the image, which may be before it.
struct Places {
    top: [i32; PLACES],
    left: [i32; PLACES],
    /// Whether all lie in one line, an element apart.
    is_line: bool,
}

/// The places from `first` on; those behind the last are the last again.
fn places_from(first: usize, sizes: &Conv2d) -> Places {
    let &Conv2d { result: [rows, columns], stride, padding, .. } = sizes;
    let at: [usize; PLACES] = core::array::from_fn(|n| (first + n).min(rows * columns - 1));
    let start = |axis: usize, place: usize| (place * stride[axis]) as i32 - padding[axis] as i32;
    Places {
        top: at.map(|at| start(0, at / columns)),
        left: at.map(|at| start(1, at % columns)),
        is_line: stride[1] == 1 && first % columns + PLACES <= columns,
    }
}

/// Adds, for `N` channels whose weights are one behind the other, what the window sees at each place.
fn add_places<const N: usize, X: Copy, W: Copy, S: Copy>(
    (images, weights): (&[X], [&[W]; N]),
    sizes: &Conv2d,
    places: &Places,
    (outside, add): (X, impl Fn(S, X, W, usize) -> S),
    mut sums: [[S; PLACES]; N],
) -> [[S; PLACES]; N] {
    let &Conv2d { size: [height, width], kernel, dilation, .. } = sizes;
    let (image, window) = (height * width, kernel[0] * kernel[1]);
    let (rows, columns) = (0..height as i32, 0..width as i32);
    for tap in 0..window {
        let (down, right) = ((tap / kernel[1] * dilation[0]) as i32, (tap % kernel[1] * dilation[1]) as i32);
        let (row, column) = (places.top[0] + down, places.left[0] + right);
        let is_inside = column >= 0 && column as usize + PLACES <= width;
        if places.is_line && !rows.contains(&row) {
            continue;
        }
        let first = row.max(0) as usize * width + column.max(0) as usize;
        // Where the elements are; no place in memory is that of one outside of the image.
        let at: [usize; PLACES] = core::array::from_fn(|n| {
            let (row, column) = (places.top[n] + down, places.left[n] + right);
            let is_inside = rows.contains(&row) && columns.contains(&column);
            if is_inside { row as usize * width + column as usize } else { usize::MAX }
        });
        for (channel, image) in images.chunks_exact(image).enumerate() {
            let line: [X; PLACES] = match image.get(first..).and_then(|line| line.first_chunk::<PLACES>()) {
                Some(line) if places.is_line && is_inside => *line,
                _ => at.map(|at| image.get(at).copied().unwrap_or(outside)),
            };
            for (n, sums) in sums.iter_mut().enumerate() {
                let weight = weights[n][channel * window + tap];
                for (sum, x) in sums.iter_mut().zip(line) {
                    *sum = add(*sum, x, weight, n);
                }
            }
        }
    }
    sums
}

/// Adds the results of `N` channels from `channel` on, of one image.
fn add_channels<const N: usize, X: Copy, W: Copy, S: Copy>(
    (images, weight): (&[X], &[W]),
    sizes: &Conv2d,
    channel: usize,
    (outside, add): (X, impl Fn(S, X, W, usize) -> S),
    out: &mut [S],
) {
    let &Conv2d { channels: [inputs, outputs], groups, size, result, kernel, .. } = sizes;
    let (inputs, image, plane) = (inputs / groups, size[0] * size[1], result[0] * result[1]);
    let images = &images[channel / (outputs / groups) * inputs * image..][..inputs * image];
    let of_channel = inputs * kernel[0] * kernel[1];
    let weights: [&[W]; N] = core::array::from_fn(|n| &weight[(channel + n) * of_channel..][..of_channel]);
    for first in (0..plane).step_by(PLACES) {
        let count = PLACES.min(plane - first);
        let start = |n: usize| (channel + n) * plane + first;
        let sums = core::array::from_fn(|n| core::array::from_fn(|place| out[start(n) + place.min(count - 1)]));
        let add = |sum: S, x: X, weight: W, n: usize| add(sum, x, weight, channel + n);
        let sums = add_places((images, weights), sizes, &places_from(first, sizes), (outside, add), sums);
        for (n, sums) in sums.iter().enumerate() {
            out[start(n)..][..count].copy_from_slice(&sums[..count]);
        }
    }
}

/// Adds a convolution of images of several channels, four of the result's channels at a time. `add` adds the product of an element and a weight of the
/// channel of that number; elements outside of the images are `outside`.
fn add_convolution<X: Copy, W: Copy, S: Copy>(
    (x, weight): (&[X], &[W]),
    sizes: &Conv2d,
    (outside, add): (X, impl Fn(S, X, W, usize) -> S),
    out: &mut [S],
) {
    let (outputs, of_group) = (sizes.channels[1], sizes.channels[1] / sizes.groups);
    for (x, out) in x.chunks_exact(x.len() / sizes.batch).zip(out.chunks_exact_mut(out.len() / sizes.batch)) {
        let mut channel = 0;
        while channel < outputs {
            if of_group - channel % of_group >= 4 {
                add_channels::<4, _, _, _>((x, weight), sizes, channel, (outside, &add), out);
                channel += 4;
            } else {
                add_channels::<1, _, _, _>((x, weight), sizes, channel, (outside, &add), out);
                channel += 1;
            }
        }
    }
}

/// A window's element along one axis.
struct Tap {
    /// The places at which it is inside the image.
    places: core::ops::Range<usize>,
    /// What it sees at the first of them.
    first: usize,
}

/// The element `at` of a window along an axis.
fn tap_at(sizes: &Conv2d, axis: usize, at: usize) -> Tap {
    let (size, stride, padding) = (sizes.size[axis], sizes.stride[axis], sizes.padding[axis]);
    let offset = at * sizes.dilation[axis];
    let start = padding.saturating_sub(offset).div_ceil(stride);
    let end = (size + padding).saturating_sub(offset).div_ceil(stride).min(sizes.result[axis]);
    let places = if start < end { start..end } else { 0..0 };
    Tap { places, first: (start * stride + offset - padding).min(size) }
}

/// Adds a convolution of images each of whose channels is a group: element by element of the window, a line of the image at a time.
fn add_lines<X: Copy, W: Copy, S: Copy>(
    (x, weight): (&[X], &[W]),
    sizes: &Conv2d,
    add: impl Fn(S, X, W, usize) -> S,
    out: &mut [S],
) {
    let &Conv2d { batch, channels: [_, outputs], groups, size, result, kernel, stride, .. } = sizes;
    let (image, plane, window) = (size[0] * size[1], result[0] * result[1], kernel[0] * kernel[1]);
    for (at, out) in out.chunks_exact_mut(plane).enumerate().take(batch * outputs) {
        let (n, channel) = (at / outputs, at % outputs);
        let image = &x[(n * groups + channel / (outputs / groups)) * image..][..image];
        for (tap, &weight) in weight[channel * window..][..window].iter().enumerate() {
            let (down, across) = (tap_at(sizes, 0, tap / kernel[1]), tap_at(sizes, 1, tap % kernel[1]));
            for (line, row) in down.places.enumerate() {
                let out = &mut out[row * result[1]..][across.places.clone()];
                let line = &image[(down.first + line * stride[0]) * size[1]..][..size[1]];
                if stride[1] == 1 {
                    for (out, &x) in out.iter_mut().zip(&line[across.first..]) {
                        *out = add(*out, x, weight, channel);
                    }
                } else {
                    for (out, &x) in out.iter_mut().zip(line[across.first..].iter().step_by(stride[1])) {
                        *out = add(*out, x, weight, channel);
                    }
                }
            }
        }
    }
}

/// Adds a convolution by wide windows, whose lines are one behind the other in the image, too. `dot` is the sum of products of a channel of that number.
fn add_windows<X: Copy, W: Copy, S: Copy>(
    (x, weight): (&[X], &[W]),
    sizes: &Conv2d,
    dot: impl Fn(S, &[X], &[W], usize) -> S,
    out: &mut [S],
) {
    let &Conv2d { channels: [inputs, outputs], groups, size, result, kernel, stride, padding, dilation, .. } = sizes;
    let (inputs_of_group, image, plane) = (inputs / groups, size[0] * size[1], result[0] * result[1]);
    let of_channel = inputs_of_group * kernel[0] * kernel[1];
    for (at, out) in out.iter_mut().enumerate() {
        let (n, channel, row, column) =
            (at / plane / outputs, at / plane % outputs, at % plane / result[1], at % result[1]);
        let first = n * inputs + channel / (outputs / groups) * inputs_of_group;
        // What of a line of the window is inside the image.
        let left = column * stride[1];
        let start = padding[1].saturating_sub(left).min(kernel[1]);
        let end = kernel[1].min((size[1] + padding[1]).saturating_sub(left)).max(start);
        let lines = weight[channel * of_channel..][..of_channel].chunks_exact(kernel[1]).enumerate();
        for (line, weights) in lines {
            let row = (row * stride[0] + line % kernel[0] * dilation[0]).wrapping_sub(padding[0]);
            if row < size[0] && start < end {
                let image = &x[(first + line / kernel[0]) * image + row * size[1]..][..size[1]];
                *out = dot(*out, &image[left + start - padding[1]..][..end - start], &weights[start..end], channel);
            }
        }
    }
}

/// Adds a product; a function of its own, so that all convolutions share what calls it.
fn add_product(sum: f32, x: f32, weight: f32, _: usize) -> f32 {
    sum + x * weight
}

/// Adds a sum of products.
fn add_dot(sum: f32, x: &[f32], weights: &[f32], _: usize) -> f32 {
    sum + dot(x, weights)
}

/// Begins a convolution with its bias.
fn start_channels(bias: Option<&[f32]>, sizes: &Conv2d, out: &mut [f32]) {
    for (at, out) in out.chunks_exact_mut(sizes.result[0] * sizes.result[1]).enumerate() {
        out.fill(bias.map_or(0.0, |bias| bias[at % bias.len()]));
    }
}

/// Ends a convolution with a residual and its activation.
fn finish_channels(residual: Option<&[f32]>, activation: impl Fn(f32) -> f32, out: &mut [f32]) {
    if let Some(residual) = residual {
        for (out, &residual) in out.iter_mut().zip(residual) {
            *out += residual;
        }
    }
    for out in out {
        *out = activation(*out);
    }
}

/// A convolution of images `[batch, channels, height, width]`, to which a residual may be added before its activation.
fn conv2d(
    x: &[f32],
    weight: &[f32],
    bias: Option<&[f32]>,
    residual: Option<&[f32]>,
    sizes: &Conv2d,
    activation: impl Fn(f32) -> f32,
    out: &mut [f32],
) {
    start_channels(bias, sizes, out);
    add_convolution((x, weight), sizes, (0.0, add_product), out);
    finish_channels(residual, activation, out);
}

/// The same where each channel of the image is a group.
fn conv2d_depthwise(
    x: &[f32],
    weight: &[f32],
    bias: Option<&[f32]>,
    residual: Option<&[f32]>,
    sizes: &Conv2d,
    activation: impl Fn(f32) -> f32,
    out: &mut [f32],
) {
    start_channels(bias, sizes, out);
    add_lines((x, weight), sizes, add_product, out);
    finish_channels(residual, activation, out);
}

/// The same by wide windows, whose elements are one behind the other.
fn conv2d_wide(
    x: &[f32],
    weight: &[f32],
    bias: Option<&[f32]>,
    residual: Option<&[f32]>,
    sizes: &Conv2d,
    activation: impl Fn(f32) -> f32,
    out: &mut [f32],
) {
    start_channels(bias, sizes, out);
    add_windows((x, weight), sizes, add_dot, out);
    finish_channels(residual, activation, out);
}

/// A convolution of integers less their zero points: one for the image, one for the weight or one for each of the result's channels.
fn conv2d_integer<X: Copy + Default + Into<i32>, W: Copy + Into<i32>>(
    x: &[X],
    weight: &[W],
    x_zero: Option<&[X]>,
    weight_zero: Option<&[W]>,
    sizes: &Conv2d,
    out: &mut [i32],
) {
    let outside = x_zero.map_or(X::default(), |zero| zero[0]);
    let (x_zero, zero): (i32, _) = (outside.into(), |channel: usize| -> i32 {
        weight_zero.map_or(0, |zero| zero[channel % zero.len()].into())
    });
    out.fill(0);
    let add = |sum: i32, x: X, weight: W, channel: usize| {
        sum.wrapping_add((x.into() - x_zero).wrapping_mul(weight.into() - zero(channel)))
    };
    if sizes.channels[0] == sizes.groups {
        add_lines((x, weight), sizes, add, out);
    } else {
        add_convolution((x, weight), sizes, (outside, add), out);
    }
}

/// [`conv2d_integer`] whose sums are scaled, with what is added to them, and an activation.
#[allow(clippy::too_many_arguments, reason = "a layer of integers has as many operands")]
fn quantized_conv2d<X: Copy + Into<i32>, W: Copy + Into<i32>>(
    x: &[X],
    weight: &[W],
    x_zero: Option<&[X]>,
    x_scale: Option<&[f32]>,
    weight_zero: Option<&[W]>,
    scale: &[f32],
    bias: Option<&[f32]>,
    integer_bias: Option<&[i32]>,
    residual: Option<&[f32]>,
    sizes: &Conv2d,
    activation: impl Fn(f32) -> f32,
    out: &mut [f32],
) {
    let scaled = Scaled { x_scale: x_scale.map_or(1.0, |scale| scale[0]), scale, bias, integer_bias };
    let finish = |at: usize, channel: usize, sum: i32| {
        out[at] = activation(scaled_sum(&scaled, sum, channel) + residual.map_or(0.0, |residual| residual[at]));
    };
    let x_zero: i32 = x_zero.map_or(0, |zero| zero[0].into());
    each_quantized_sum((x, weight), (|x: X| x.into() - x_zero, weight_zero), sizes, finish);
}

/// [`quantized_conv2d`] of numbers that are quantized by their range first.
#[allow(clippy::too_many_arguments, reason = "a layer of integers has as many operands")]
fn quantized_conv2d_of_floats<W: Copy + Into<i32>>(
    x: &[f32],
    weight: &[W],
    weight_zero: Option<&[W]>,
    scale: &[f32],
    bias: Option<&[f32]>,
    integer_bias: Option<&[i32]>,
    residual: Option<&[f32]>,
    sizes: &Conv2d,
    activation: impl Fn(f32) -> f32,
    centered: &mut [f32],
    out: &mut [f32],
) {
    let (x_scale, zero) = byte_range(x);
    for (centered, &x) in centered.iter_mut().zip(x) {
        *centered = nearest_byte(x, x_scale, zero) - zero;
    }
    let scaled = Scaled { x_scale, scale, bias, integer_bias };
    let finish = |at: usize, channel: usize, sum: i32| {
        out[at] = activation(scaled_sum(&scaled, sum, channel) + residual.map_or(0.0, |residual| residual[at]));
    };
    each_quantized_sum((&*centered, weight), (|x: f32| x as i32, weight_zero), sizes, finish);
}

/// [`quantized_conv2d`] that yields integers: numbers are steps of these.
#[allow(clippy::too_many_arguments, reason = "a layer of integers has as many operands")]
fn requantized_conv2d<X: Copy + Default + Into<i32> + TryFrom<i32>, W: Copy + Into<i32>>(
    x: &[X],
    weight: &[W],
    x_zero: Option<&[X]>,
    x_scale: Option<&[f32]>,
    weight_zero: Option<&[W]>,
    scale: &[f32],
    bias: Option<&[f32]>,
    integer_bias: Option<&[i32]>,
    sizes: &Conv2d,
    activation: impl Fn(f32) -> f32,
    zero: &[X],
    least: f32,
    greatest: f32,
    out: &mut [X],
) {
    let scaled = Scaled { x_scale: x_scale.map_or(1.0, |scale| scale[0]), scale, bias, integer_bias };
    let finish = |at: usize, channel: usize, sum: i32| {
        out[at] = nearest_integer(activation(scaled_sum(&scaled, sum, channel)), zero[0], [least, greatest]);
    };
    let x_zero: i32 = x_zero.map_or(0, |zero| zero[0].into());
    each_quantized_sum((x, weight), (|x: X| x.into() - x_zero, weight_zero), sizes, finish);
}

/// The sums of a convolution of what `centered` makes of numbers and a weight less its zero points, each with its place in the result and its channel.
fn each_quantized_sum<X: Copy, W: Copy + Into<i32>>(
    (x, weight): (&[X], &[W]),
    (centered, weight_zero): (impl Fn(X) -> i32, Option<&[W]>),
    sizes: &Conv2d,
    mut finish: impl FnMut(usize, usize, i32),
) {
    let &Conv2d { batch, channels: [inputs, outputs], groups, size, result, kernel, stride, padding, dilation } = sizes;
    let (of_group, outputs_of_group) = (inputs / groups, outputs / groups);
    for line in 0..batch * outputs * result[0] {
        let (row, channel, image) = (line % result[0], line / result[0] % outputs, line / result[0] / outputs);
        let zero: i32 = weight_zero.map_or(0, |zero| zero[channel % zero.len()].into());
        for first in (0..result[1]).step_by(PLACES) {
            let width = PLACES.min(result[1] - first);
            let mut sums = [0i32; PLACES];
            for input in 0..of_group {
                let plane = image * inputs + channel / outputs_of_group * of_group + input;
                for tap in 0..kernel[0] * kernel[1] {
                    let y = (row * stride[0] + tap / kernel[1] * dilation[0]).wrapping_sub(padding[0]);
                    if y >= size[0] {
                        continue;
                    }
                    let line = &x[(plane * size[0] + y) * size[1]..][..size[1]];
                    let weight = weight[(channel * of_group + input) * kernel[0] * kernel[1] + tap].into() - zero;
                    let left = first * stride[1] + tap % kernel[1] * dilation[1];
                    for (place, sum) in sums[..width].iter_mut().enumerate() {
                        // What is beyond the borders stands for 0.
                        if let Some(&x) = line.get((left + place * stride[1]).wrapping_sub(padding[1])) {
                            *sum = sum.wrapping_add(centered(x).wrapping_mul(weight));
                        }
                    }
                }
            }
            for (place, sum) in sums[..width].iter().enumerate() {
                finish(line * result[1] + first + place, channel, *sum);
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
