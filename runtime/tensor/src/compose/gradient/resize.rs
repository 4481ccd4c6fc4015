//! Gradients of resizing: what each tap read gets its weight's share.

use crate::backend::{Backend, Primitive};
use crate::compose::calc::{T, along, indices, mul, weights};
use crate::compose::resize::{MAX_GATHERED_TAPS, outside, times_matrix};
use crate::compose::{Taps, resized_axes};
use crate::{InterpolateOptions, Scalar, ScatterOp, Shape};
use alloc::{vec, vec::Vec};

/// Default of [`Backend::interpolate_gradient`].
pub fn interpolate_gradient<B: Backend>(gradient: T<B>, input: &Shape, options: &InterpolateOptions) -> T<B> {
    let gradient = match outside::<B>(&input.dims, options, &gradient) {
        Some(outside) => B::mask_fill(gradient, outside, Scalar::Int(0)),
        None => gradient,
    };
    resized_axes(&input.dims, options).fold(gradient, |gradient, (axis, resized)| {
        let taps: Vec<Taps> = resized.taps().collect();
        spread_taps::<B>(gradient, axis, input[axis], &taps)
    })
}

/// The adjoint of mixing samples along `axis`: adds each element's taps, times the element, to `size` places.
pub(super) fn spread_taps<B: Backend>(x: T<B>, axis: usize, size: usize, taps: &[Taps]) -> T<B> {
    let most = taps.iter().map(|taps| taps.len()).max().unwrap_or(0);
    if most <= MAX_GATHERED_TAPS {
        by_scattering::<B>(x, axis, size, taps, most)
    } else {
        by_matrix::<B>(x, axis, size, taps)
    }
}

fn by_scattering<B: Backend>(x: T<B>, axis: usize, size: usize, taps: &[Taps], most: usize) -> T<B> {
    let (mut shape, rank) = (x.shape(), x.shape().rank());
    shape.dims[axis] = size;
    let mut result = super::zeros::<B>(&shape, &x);
    for n in 0..most {
        let nth = |taps: &Taps| taps.get(n).copied().unwrap_or((taps.first().map_or(0, |tap| tap.0), 0.0));
        let positions = taps.iter().map(|taps| nth(taps).0 as i64).collect();
        let factors = taps.iter().map(|taps| nth(taps).1).collect();
        let factors = along::<B>(weights::<B>(factors, vec![taps.len()], &x), axis, rank);
        let positions = indices::<B>(positions, &x);
        let part = mul::<B>(x.clone(), factors);
        result = B::select_assign(result, axis, positions, part, ScatterOp::Add);
    }
    result
}

fn by_matrix<B: Backend>(x: T<B>, axis: usize, size: usize, taps: &[Taps]) -> T<B> {
    let mut matrix = vec![0.0; taps.len() * size];
    for (row, taps) in taps.iter().enumerate() {
        for &(column, weight) in taps {
            matrix[row * size + column] += weight;
        }
    }
    times_matrix::<B>(x, axis, matrix, size)
}
