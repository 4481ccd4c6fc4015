// Products of matrices.

/// The sizes of products of matrices: `count` of `[m, k]` by `[k, n]`, and how far apart those of either side are.
struct Product {
    count: usize,
    m: usize,
    k: usize,
    n: usize,
    a_step: usize,
    b_step: usize,
}

/// Products of matrices.
fn matmul(a: &[f32], b: &[f32], sizes: &Product, out: &mut [f32]) {
    let &Product { count, m, k, n, a_step, b_step } = sizes;
    for at in 0..count {
        let (a, b) = (&a[at * a_step..][..m * k], &b[at * b_step..][..k * n]);
        multiply(a, b, [k, n], None, &mut out[at * m * n..][..m * n]);
    }
}

/// Squared distances of each row of `a` from each of `b`, matrix by matrix.
fn squared_distances(a: &[f32], b: &[f32], sizes: &Product, out: &mut [f32]) {
    let &Product { count, m, k, n, a_step, b_step } = sizes;
    for at in 0..count {
        let (a, b) = (&a[at * a_step..][..m * k], &b[at * b_step..][..k * n]);
        for (row, out) in out[at * m * n..][..m * n].chunks_exact_mut(n.max(1)).enumerate() {
            let row = &a[row * k..][..k];
            for (other, out) in out.iter_mut().enumerate() {
                let mut sum = 0.0;
                for (&a, &b) in row.iter().zip(&b[other * k..][..k]) {
                    sum += (a - b) * (a - b);
                }
                *out = sum;
            }
        }
    }
}

/// A linear layer on rows of `inputs` numbers, with a weight `[inputs, outputs]`.
fn linear(
    x: &[f32],
    weight: &[f32],
    bias: Option<&[f32]>,
    inputs: usize,
    activation: impl Fn(f32) -> f32,
    out: &mut [f32],
) {
    multiply(x, weight, [inputs, weight.len() / inputs], bias, out);
    for out in out {
        *out = activation(*out);
    }
}

/// A product of rows of `k` numbers and `[k, n]`, four rows at a time, with a bias for each column.
fn multiply(
    a: &[f32],
    b: &[f32],
    [k, n]: [usize; 2],
    bias: Option<&[f32]>,
    out: &mut [f32],
) {
    let four = out.len() / (4 * n) * 4;
    for (a, out) in a.chunks_exact(4 * k).zip(out.chunks_exact_mut(4 * n)) {
        multiply_rows::<4>(a, b, [k, n], bias, out);
    }
    for (a, out) in a[four * k..].chunks_exact(k).zip(out[four * n..].chunks_exact_mut(n)) {
        multiply_rows::<1>(a, b, [k, n], bias, out);
    }
}

/// How many columns of one row are computed together: their sums fit the registers.
const WIDE: usize = if cfg!(target_arch = "arm") { 16 } else { 32 };

/// A product of `R` rows, in blocks of columns whose sums stay in registers.
fn multiply_rows<const R: usize>(
    a: &[f32],
    b: &[f32],
    [k, n]: [usize; 2],
    bias: Option<&[f32]>,
    out: &mut [f32],
) {
    let mut column = 0;
    while column < n {
        column += match n - column {
            WIDE.. if R == 1 => multiply_block::<R, WIDE>(a, b, [k, n, column], bias, out),
            8.. => multiply_block::<R, 8>(a, b, [k, n, column], bias, out),
            4.. => multiply_block::<R, 4>(a, b, [k, n, column], bias, out),
            _ => multiply_block::<R, 1>(a, b, [k, n, column], bias, out),
        };
    }
}

/// A product of `R` rows and `C` columns from `column` on; it yields `C`.
fn multiply_block<const R: usize, const C: usize>(
    a: &[f32],
    b: &[f32],
    [k, n, column]: [usize; 3],
    bias: Option<&[f32]>,
    out: &mut [f32],
) -> usize {
    let mut sums = [[0.0; C]; R];
    if let Some(bias) = bias {
        sums.fill(core::array::from_fn(|c| bias[column + c]));
    }
    for (at, b) in b.chunks_exact(n).enumerate() {
        let Some(b) = b[column..].first_chunk::<C>() else { return C };
        for (row, sums) in sums.iter_mut().enumerate() {
            let x = a[row * k + at];
            for (sum, &b) in sums.iter_mut().zip(b) {
                *sum += x * b;
            }
        }
    }
    for (row, sums) in sums.into_iter().enumerate() {
        for (out, sum) in out[row * n + column..].iter_mut().zip(sums) {
            *out = sum;
        }
    }
    C
}

/// The sum of products of numbers, as eight sums that are added up at last.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let ((a, last_a), (b, last_b)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    let mut sums = [0.0; 8];
    for (a, b) in a.iter().zip(b) {
        for ((sum, &a), &b) in sums.iter_mut().zip(a).zip(b) {
            *sum += a * b;
        }
    }
    let last: f32 = last_a.iter().zip(last_b).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f32>() + last
}

/// A product of matrices of integers less their zero points: one for `a`, one for `b` or one for each of its columns.
fn matmul_integer<A: Copy + Into<i32>, B: Copy + Into<i32>>(
    a: &[A],
    b: &[B],
    a_zero: Option<&[A]>,
    b_zero: Option<&[B]>,
    sizes: &Product,
    out: &mut [i32],
) {
    let &Product { count, m, k, n, a_step, b_step } = sizes;
    let a_zero: i32 = a_zero.map_or(0, |zero| zero[0].into());
    for at in 0..count {
        let (a, b) = (&a[at * a_step..][..m * k], &b[at * b_step..][..k * n]);
        let out = &mut out[at * m * n..][..m * n];
        for (row, out) in a.chunks_exact(k).zip(out.chunks_exact_mut(n)) {
            out.fill(0);
            let mut sum = 0i32;
            for (&a, b) in row.iter().zip(b.chunks_exact(n)) {
                let a = a.into() - a_zero;
                sum = sum.wrapping_add(a);
                for (out, &b) in out.iter_mut().zip(b) {
                    *out = out.wrapping_add(a.wrapping_mul(b.into()));
                }
            }
            if let Some(zero) = b_zero {
                for (out, &zero) in out.iter_mut().zip(zero.iter().cycle()) {
                    *out = out.wrapping_sub(sum.wrapping_mul(zero.into()));
                }
            }
        }
    }
}

/// How many outputs of one row of integers are computed together.
const WIDE_SUMS: usize = 16;

/// A linear layer of integers less their zero points, on rows of `inputs` of them, with a weight `[inputs, outputs]`: its zero points and scales
/// are one number or one for each output.
#[allow(clippy::too_many_arguments, reason = "a layer of integers has as many operands")]
fn quantized_linear<A: Copy + Into<i32>, B: Copy + Into<i32>>(
    x: &[A],
    weight: &[B],
    x_zero: Option<&[A]>,
    x_scale: Option<&[f32]>,
    weight_zero: Option<&[B]>,
    scale: &[f32],
    bias: Option<&[f32]>,
    integer_bias: Option<&[i32]>,
    residual: Option<&[f32]>,
    inputs: usize,
    activation: impl Fn(f32) -> f32,
    out: &mut [f32],
) {
    let x_zero: i32 = x_zero.map_or(0, |zero| zero[0].into());
    let scaled = Scaled { x_scale: x_scale.map_or(1.0, |scale| scale[0]), scale, bias, integer_bias };
    let finish = |at: usize, channel: usize, sum: i32| {
        out[at] = activation(scaled_sum(&scaled, sum, channel) + residual.map_or(0.0, |residual| residual[at]));
    };
    add_quantized(x, |x| (*x).into() - x_zero, weight, weight_zero, inputs, finish);
}

/// [`quantized_linear`] of numbers that are quantized by their range first.
#[allow(clippy::too_many_arguments, reason = "a layer of integers has as many operands")]
fn quantized_linear_of_floats<B: Copy + Into<i32>>(
    x: &[f32],
    weight: &[B],
    weight_zero: Option<&[B]>,
    scale: &[f32],
    bias: Option<&[f32]>,
    integer_bias: Option<&[i32]>,
    residual: Option<&[f32]>,
    inputs: usize,
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
    add_quantized(centered, |x| *x as i32, weight, weight_zero, inputs, finish);
}

/// [`quantized_linear`] that yields integers: numbers are steps of these.
#[allow(clippy::too_many_arguments, reason = "a layer of integers has as many operands")]
fn requantized_linear<A: Copy + Default + Into<i32> + TryFrom<i32>, B: Copy + Into<i32>>(
    x: &[A],
    weight: &[B],
    x_zero: Option<&[A]>,
    x_scale: Option<&[f32]>,
    weight_zero: Option<&[B]>,
    scale: &[f32],
    bias: Option<&[f32]>,
    integer_bias: Option<&[i32]>,
    inputs: usize,
    activation: impl Fn(f32) -> f32,
    zero: &[A],
    least: f32,
    greatest: f32,
    out: &mut [A],
) {
    let x_zero: i32 = x_zero.map_or(0, |zero| zero[0].into());
    let scaled = Scaled { x_scale: x_scale.map_or(1.0, |scale| scale[0]), scale, bias, integer_bias };
    let finish = |at: usize, channel: usize, sum: i32| {
        out[at] = nearest_integer(activation(scaled_sum(&scaled, sum, channel)), zero[0], [least, greatest]);
    };
    add_quantized(x, |x| (*x).into() - x_zero, weight, weight_zero, inputs, finish);
}

/// What the sums of a layer of integers stand for: scales and biases are one number or one for each output.
struct Scaled<'a> {
    x_scale: f32,
    scale: &'a [f32],
    bias: Option<&'a [f32]>,
    integer_bias: Option<&'a [i32]>,
}

/// What such a sum stands for.
fn scaled_sum(scaled: &Scaled<'_>, sum: i32, channel: usize) -> f32 {
    let sum = sum.wrapping_add(scaled.integer_bias.map_or(0, |bias| bias[channel]));
    let scale = scaled.x_scale * scaled.scale[channel % scaled.scale.len()];
    sum as f32 * scale + scaled.bias.map_or(0.0, |bias| bias[channel])
}

/// The integer that stands for a number of steps, within bounds.
fn nearest_integer<A: Copy + Default + Into<i32> + TryFrom<i32>>(steps: f32, zero: A, bounds: [f32; 2]) -> A {
    let zero: i32 = zero.into();
    let [least, greatest] = bounds;
    A::try_from((round(steps) + zero as f32).clamp(least, greatest) as i32).unwrap_or_default()
}

/// The sums of products of a weight and what `centered` makes of numbers, each with its place and its output.
fn add_quantized<A, B: Copy + Into<i32>>(
    x: &[A],
    centered: impl Fn(&A) -> i32,
    weight: &[B],
    weight_zero: Option<&[B]>,
    inputs: usize,
    mut finish: impl FnMut(usize, usize, i32),
) {
    let outputs = weight.len() / inputs;
    for (row, x) in x.chunks_exact(inputs).enumerate() {
        let start = row * outputs;
        for first in (0..outputs).step_by(WIDE_SUMS) {
            let width = WIDE_SUMS.min(outputs - first);
            let (mut sums, mut sum) = ([0i32; WIDE_SUMS], 0i32);
            for (x, weight) in x.iter().zip(weight.chunks_exact(outputs)) {
                let x = centered(x);
                sum = sum.wrapping_add(x);
                for (sum, &weight) in sums.iter_mut().zip(&weight[first..first + width]) {
                    *sum = sum.wrapping_add(x.wrapping_mul(weight.into()));
                }
            }
            for (column, total) in (first..).zip(&sums[..width]) {
                let zero: i32 = weight_zero.map_or(0, |zero| zero[column % zero.len()].into());
                finish(start + column, column, total.wrapping_sub(sum.wrapping_mul(zero)));
            }
        }
    }
}

/// The scale and the zero point of the range of numbers, 0 included, for bytes.
fn byte_range(x: &[f32]) -> (f32, f32) {
    let low = x.iter().fold(0.0, |low, &x| min_pair(low, x));
    let high = x.iter().fold(0.0, |high, &x| max_pair(high, x));
    let scale = (high - low) / 255.0;
    // What is no number is 0.
    (scale, f32::from(round(-low / scale).clamp(0.0, 255.0) as u8))
}

/// The byte that stands for a number.
fn nearest_byte(x: f32, scale: f32, zero: f32) -> f32 {
    f32::from((round(x / scale) + zero).clamp(0.0, 255.0) as u8)
}

/// Bytes that stand for numbers, with their scale and zero point: those of the numbers' range, 0 included.
fn quantize_dynamic(x: &[f32], out: &mut [u8], scale: &mut [f32], zero: &mut [u8]) {
    let (step, shift) = byte_range(x);
    (scale[0], zero[0]) = (step, shift as u8);
    for (out, &x) in out.iter_mut().zip(x) {
        *out = nearest_byte(x, step, shift) as u8;
    }
}
