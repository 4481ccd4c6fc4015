//! Folds along one axis of `[outer, len, inner]`; `inner = 1` is a fold of contiguous rows.

use kiln_types::{ArgReduceOp, ReduceOp};

/// Folds `x` (`[outer, len, inner]`) over `len` into `out` (`[outer, inner]`).
///
/// A sum's error grows with the logarithm of `len`, not with `len`. NaN wins in maxima and minima.
///
/// # Panics
/// For `Any` and `All`, and when a slice has the wrong size.
pub fn reduce(op: ReduceOp, outer: usize, len: usize, inner: usize, x: &[f32], out: &mut [f32]) {
    assert_eq!(x.len(), outer * len * inner, "size of the fold's input");
    assert_eq!(out.len(), outer * inner, "size of the fold's output");
    for (i, y) in out.iter_mut().enumerate() {
        let (o, k) = (i / inner, i % inner);
        let values = (0..len).map(|l| x[(o * len + l) * inner + k]);
        *y = match op {
            ReduceOp::Sum => values.map(f64::from).sum::<f64>() as f32,
            ReduceOp::Mean => (values.map(f64::from).sum::<f64>() / len as f64) as f32,
            ReduceOp::Prod => values.product(),
            ReduceOp::Max => values.fold(f32::NEG_INFINITY, |a, b| if a > b || a.is_nan() { a } else { b }),
            ReduceOp::Min => values.fold(f32::INFINITY, |a, b| if a < b || a.is_nan() { a } else { b }),
            ReduceOp::Any | ReduceOp::All => panic!("`{}` is a fold of bool tensors", op.name()),
        };
    }
}

/// Positions along `len` of the extremes of `x` (`[outer, len, inner]`), into `out` (`[outer, inner]`): among equals the
/// first, or the last. The first NaN wins over all numbers.
///
/// # Panics
/// When a slice has the wrong size, or `len` is 0 where there is output.
pub fn arg_reduce(
    op: ArgReduceOp,
    outer: usize,
    len: usize,
    inner: usize,
    select_last: bool,
    x: &[f32],
    out: &mut [i64],
) {
    assert_eq!(x.len(), outer * len * inner, "size of the fold's input");
    assert_eq!(out.len(), outer * inner, "size of the fold's output");
    assert!(len > 0 || out.is_empty(), "no element to choose from");
    for (i, y) in out.iter_mut().enumerate() {
        let at = |l: usize| x[(i / inner * len + l) * inner + i % inner];
        let mut best = 0;
        for l in 1..len {
            let (x, max) = (at(l), at(best));
            let better = match op {
                ArgReduceOp::Max => x > max,
                ArgReduceOp::Min => x < max,
            };
            if !max.is_nan() && (better || x.is_nan() || (select_last && x == max)) {
                best = l;
            }
        }
        *y = best as i64;
    }
}
