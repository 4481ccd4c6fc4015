//! Transposed convolution: a matrix product gives what each pixel adds to its window, then the windows are added up.

use super::ConvTransposeShape;
use crate::gemm::{Epilogue, Lhs, Matrix, Rhs, gemm};
use crate::scratch::with_scratch;
use crate::threads::parallel_chunks;

/// Transposed convolution: `x` is `[batch, in, spatial…]`, `weight` `[in, out / groups, kernel…]`, `bias` `[out]`,
/// `out` `[batch, out, spatial…]`, all contiguous.
///
/// # Panics
/// When a slice does not have the shape's size.
pub fn conv_transpose(
    shape: &ConvTransposeShape,
    x: &[f32],
    weight: &[f32],
    bias: Option<&[f32]>,
    out: &mut [f32],
) {
    shape.check(x, weight, bias, out);
    if out.is_empty() {
        return;
    }
    let (input, output): (usize, usize) = (shape.input.iter().product(), shape.output.iter().product());
    let taps: usize = shape.kernel.iter().product();
    let (ic, oc) = (shape.in_channels / shape.groups, shape.out_channels / shape.groups);
    let rows = oc * taps;
    with_scratch(rows * input, |parts| {
        for (job, out) in out.chunks_mut(oc * output).enumerate() {
            let group = job % shape.groups;
            let weight = &weight[group * ic * rows..(group + 1) * ic * rows];
            let a = Matrix { data: weight, row_stride: 1, col_stride: rows };
            let b = Matrix::row_major(&x[job * ic * input..(job + 1) * ic * input], input);
            gemm(rows, input, ic, Lhs::Plain(a), Rhs::Plain(b), parts, input, &Epilogue::default());
            parallel_chunks(out, output, taps * input, |channel, out| {
                out.fill(bias.map_or(0.0, |bias| bias[group * oc + channel]));
                for tap in 0..taps {
                    let part = &parts[(channel * taps + tap) * input..][..input];
                    add_tap(shape, tap, part, out);
                }
            });
        }
    });
}

/// Adds one kernel element's contributions to one channel of the result.
fn add_tap(shape: &ConvTransposeShape, tap: usize, part: &[f32], out: &mut [f32]) {
    let [_, kh, kw] = shape.kernel;
    let tap = [tap / (kh * kw), tap / kw % kh, tap % kw];
    let [depth, height, width] = shape.input;
    let at = |axis: usize, i: usize| {
        let p = i * shape.stride[axis] + tap[axis] * shape.dilation[axis];
        p.checked_sub(shape.padding[axis].0).filter(|&p| p < shape.output[axis])
    };
    // Pixels of a row that land inside: a run, since positions grow.
    let first = (0..width).find(|&x| at(2, x).is_some());
    let last = (0..width).rev().find(|&x| at(2, x).is_some());
    let (Some(first), Some(last)) = (first, last) else { return };
    let Some(start) = at(2, first) else { return };
    for (z, y) in (0..depth * height).map(|i| (i / height, i % height)) {
        let (Some(oz), Some(oy)) = (at(0, z), at(1, y)) else { continue };
        let row = &part[(z * height + y) * width..][first..=last];
        let out = &mut out[(oz * shape.output[1] + oy) * shape.output[2]..][..shape.output[2]];
        for (out, x) in out[start..].iter_mut().step_by(shape.stride[2]).zip(row) {
            *out += x;
        }
    }
}
