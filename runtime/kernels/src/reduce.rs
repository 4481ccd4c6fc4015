//! Reductions along one axis of `[outer, len, inner]`; `inner = 1` is a reduction of contiguous rows.

use crate::scratch::with_scratch;
use crate::simd::{Simd, dispatched};
use crate::size::elements;
use crate::threads::{self, SharedMut, parallel_for};
use alloc::vec;
use core::ops::Range;
use kiln_types::{ArgReduceOp, ReduceOp};

/// Elements of a row that are reduced by plain accumulators; longer rows are halved, so that a sum's error grows with the
/// logarithm of their length only. With AVX-512's 64 accumulators that is 64 sums each; NEON and WebAssembly have a quarter of them.
const PLAIN: usize = if cfg!(any(target_arch = "aarch64", target_arch = "wasm32")) { 1024 } else { 4096 };
/// Columns that one piece of work has at most.
const COLUMNS: usize = 256;
/// Rows from which on threads share them instead of the columns.
const LONG: usize = 128;

/// A reduction of f32.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reducer {
    Sum,
    Prod,
    Max,
    Min,
}

impl Reducer {
    /// The reduction of nothing.
    fn neutral(self) -> f32 {
        match self {
            Reducer::Sum => 0.0,
            Reducer::Prod => 1.0,
            Reducer::Max => f32::NEG_INFINITY,
            Reducer::Min => f32::INFINITY,
        }
    }

    /// The reduction of two; NaN wins.
    fn join(self, a: f32, b: f32) -> f32 {
        match self {
            Reducer::Sum => a + b,
            Reducer::Prod => a * b,
            Reducer::Max if a > b || a.is_nan() => a,
            Reducer::Min if a < b || a.is_nan() => a,
            _ => b,
        }
    }
}

/// Reduces `x` (`[outer, len, inner]`) over `len` into `out` (`[outer, inner]`).
///
/// A sum's error grows with the logarithm of `len`, not with `len`. NaN wins in maxima and minima.
///
/// # Panics
/// For `Any` and `All`, and when a slice has the wrong size.
pub fn reduce(op: ReduceOp, outer: usize, len: usize, inner: usize, x: &[f32], out: &mut [f32]) {
    assert_eq!(x.len(), elements(&[outer, len, inner]), "size of the reducer's input");
    assert_eq!(out.len(), elements(&[outer, inner]), "size of the reducer's output");
    let reducer = match op {
        ReduceOp::Sum | ReduceOp::Mean => Reducer::Sum,
        ReduceOp::Prod => Reducer::Prod,
        ReduceOp::Max => Reducer::Max,
        ReduceOp::Min => Reducer::Min,
        ReduceOp::Any | ReduceOp::All => panic!("`{}` is a reducer of bool tensors", op.name()),
    };
    if inner > 1 && outer < threads::sharing() && len >= LONG {
        // Images with their channels last: threads have pixels of their own, as in other operations.
        for (x, out) in x.chunks_exact(len * inner).zip(out.chunks_exact_mut(inner)) {
            reduce_stretches(reducer, len, x, out);
        }
    } else if inner != 1 {
        let shared = SharedMut::new(out);
        let blocks = inner.div_ceil(COLUMNS);
        parallel_for(outer * blocks, len * inner.min(COLUMNS) / 8 + 5, |range| {
            for (o, block) in range.map(|i| (i / blocks, i % blocks)) {
                let (start, end) = (block * COLUMNS, inner.min((block + 1) * COLUMNS));
                // SAFETY: columns lie inside; each is written by one piece.
                unsafe {
                    let from = x.as_ptr().add(o * len * inner + start);
                    let to = shared.ptr(o * inner + start);
                    reduce_columns(reducer, from, len, stretches(len), inner, end - start, to);
                }
            }
        });
    } else if outer == 1 && len >= 16 * PLAIN {
        let mut parts = vec![0.0; len.div_ceil(PLAIN)];
        let shared = SharedMut::new(&mut parts);
        parallel_for(len.div_ceil(PLAIN), PLAIN / 8, |range| {
            for part in range {
                let row = &x[part * PLAIN..len.min((part + 1) * PLAIN)];
                // SAFETY: each part is written once.
                unsafe { *shared.ptr(part) = reduce_row(reducer, row) };
            }
        });
        out[0] = reduce_long(reducer, &parts);
    } else {
        let shared = SharedMut::new(out);
        parallel_for(outer, len / 8 + 5, |range| {
            for o in range {
                // SAFETY: each row is written once.
                unsafe { *shared.ptr(o) = reduce_long(reducer, &x[o * len..(o + 1) * len]) };
            }
        });
    }
    if op == ReduceOp::Mean {
        let count = len as f32;
        out.iter_mut().for_each(|x| *x /= count);
    }
}

/// How many stretches of rows [`reduce_columns`] reduces for themselves: a sum's error then grows with the root of the length. Enough to be shared out.
fn stretches(len: usize) -> usize {
    len.div_ceil(len.isqrt().max(128)).max(8.min(len / 16)).max(1)
}

/// The rows of a stretch.
fn stretch(len: usize, stretches: usize, i: usize) -> Range<usize> {
    len * i / stretches..len * (i + 1) / stretches
}

/// Reduces `x` (`[len, inner]`) over `len`, to the bit as [`reduce_columns`] does; threads share the stretches.
fn reduce_stretches(reducer: Reducer, len: usize, x: &[f32], out: &mut [f32]) {
    let (count, inner) = (stretches(len), out.len());
    with_scratch(count * inner, |parts| {
        let shared = SharedMut::new(parts);
        parallel_for(count, len / count * inner / 8 + 5, |range| {
            for i in range {
                let rows = stretch(len, count, i);
                // SAFETY: the rows lie inside; each stretch has its own part.
                unsafe {
                    let from = x.as_ptr().add(rows.start * inner);
                    reduce_columns(reducer, from, rows.len(), 1, inner, inner, shared.ptr(i * inner));
                }
            }
        });
        // SAFETY: there are as many parts, and room for their reduction.
        unsafe { reduce_columns(reducer, parts.as_ptr(), count, 1, inner, inner, out.as_mut_ptr()) };
    });
}

/// The sum of a row, as [`reduce`] computes it.
pub(crate) fn sum(row: &[f32]) -> f32 {
    reduce_long(Reducer::Sum, row)
}

/// Reduces a row of any length.
fn reduce_long(reducer: Reducer, row: &[f32]) -> f32 {
    if row.len() <= PLAIN {
        // SAFETY: a slice is valid for its length.
        return unsafe { reduce_row(reducer, row) };
    }
    let (first, second) = row.split_at(row.len() / 2 / PLAIN.min(64) * PLAIN.min(64));
    reducer.join(reduce_long(reducer, first), reduce_long(reducer, second))
}

/// The reduction of two vectors; NaN wins.
#[inline(always)]
fn join<S: Simd>(s: S, reducer: Reducer, a: S::F, b: S::F) -> S::F {
    match reducer {
        Reducer::Sum => s.add(a, b),
        Reducer::Prod => s.mul(a, b),
        // `max` yields its second operand for NaN; a NaN in the first is put back.
        Reducer::Max => s.select(s.eq(a, a), s.max(a, b), a),
        Reducer::Min => s.select(s.eq(a, a), s.min(a, b), a),
    }
}

/// Calls a macro-like body with a constant reduction, so that loops have no choice inside.
macro_rules! for_each_fold {
    ($reducer:expr, $call:ident($($arg:expr),*)) => {
        match $reducer {
            Reducer::Sum => $call($($arg),*, Reducer::Sum),
            Reducer::Prod => $call($($arg),*, Reducer::Prod),
            Reducer::Max => $call($($arg),*, Reducer::Max),
            Reducer::Min => $call($($arg),*, Reducer::Min),
        }
    };
}

#[inline(always)]
unsafe fn row_of<S: Simd>(s: S, row: &[f32], reducer: Reducer) -> f32 {
    const V: usize = 4;
    let mut sums = [s.splat(reducer.neutral()); V];
    let mut i = 0;
    // SAFETY: `i` and what is read from there lie inside of the row.
    unsafe {
        while i + V * S::LANES <= row.len() {
            for v in 0..V {
                sums[v] = join(s, reducer, sums[v], s.load(row.as_ptr().add(i + v * S::LANES)));
            }
            i += V * S::LANES;
        }
        while i + S::LANES <= row.len() {
            sums[0] = join(s, reducer, sums[0], s.load(row.as_ptr().add(i)));
            i += S::LANES;
        }
    }
    let all = join(s, reducer, join(s, reducer, sums[0], sums[1]), join(s, reducer, sums[2], sums[3]));
    let mut lanes = s.to_array(all);
    let mut n = S::LANES;
    while n > 1 {
        n /= 2;
        for lane in 0..n {
            lanes[lane] = reducer.join(lanes[lane], lanes[lane + n]);
        }
    }
    row[i..].iter().fold(lanes[0], |sum, x| reducer.join(sum, *x))
}

dispatched! {
    /// Reduces a row.
    ///
    /// # Safety
    /// None beyond the slice's own.
    unsafe fn reduce_row<S>(s, reducer: Reducer, row: &[f32]) -> f32 {
        for_each_fold!(reducer, row_of(s, row))
    }
}

#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "the arguments of `reduce_columns`, of which it is the body")]
unsafe fn columns_of<S: Simd>(
    s: S,
    x: *const f32,
    len: usize,
    stretches: usize,
    step: usize,
    cols: usize,
    out: *mut f32,
    reducer: Reducer,
) {
    // Several vectors of a row at once, since neighbouring rows may be far apart.
    const V: usize = 4;
    let mut col = 0;
    while col < cols {
        let count: [usize; V] =
            core::array::from_fn(|v| cols.saturating_sub(col + v * S::LANES).min(S::LANES));
        let whole = count[V - 1] == S::LANES;
        let mut totals = [s.splat(reducer.neutral()); V];
        for i in 0..stretches {
            let mut sums = [s.splat(reducer.neutral()); V];
            for l in stretch(len, stretches, i) {
                for v in 0..V {
                    // SAFETY: the caller's promise; for vectors beyond the columns nothing is read.
                    let x = unsafe {
                        let from = x.add(l * step + col);
                        if whole {
                            s.load(from.add(v * S::LANES))
                        } else {
                            s.load_up_to(from.wrapping_add(v * S::LANES), count[v])
                        }
                    };
                    sums[v] = join(s, reducer, sums[v], x);
                }
            }
            for v in 0..V {
                totals[v] = join(s, reducer, totals[v], sums[v]);
            }
        }
        for v in 0..V {
            // SAFETY: as above.
            unsafe { s.store_up_to(out.wrapping_add(col + v * S::LANES), count[v], totals[v]) };
        }
        col += V * S::LANES;
    }
}

dispatched! {
    /// `out[c] = reduction over l of x[l · step + c]` for `cols` columns: first of the rows of each stretch, then of the stretches.
    ///
    /// # Safety
    /// `x` holds `len` rows of `cols` elements, `step` apart; `out` holds `cols`.
    unsafe fn reduce_columns<S>(
        s,
        reducer: Reducer,
        x: *const f32,
        len: usize,
        stretches: usize,
        step: usize,
        cols: usize,
        out: *mut f32,
    ) {
        for_each_fold!(reducer, columns_of(s, x, len, stretches, step, cols, out));
    }
}

/// Positions along `len` of the extremes of `x` (`[outer, len, inner]`), into `out` (`[outer, inner]`): among equals the
/// first, or the last. NaN wins over all numbers, and equals NaN here.
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
    assert_eq!(x.len(), elements(&[outer, len, inner]), "size of the reducer's input");
    assert_eq!(out.len(), elements(&[outer, inner]), "size of the reducer's output");
    assert!(len > 0 || out.is_empty(), "no element to choose from");
    let shared = SharedMut::new(out);
    if inner == 1 {
        return parallel_for(outer, len + 5, |range| {
            for row in range {
                let at = arg_of_row(op, &x[row * len..(row + 1) * len], select_last);
                // SAFETY: each position is written once.
                unsafe { *shared.ptr(row) = at as i64 };
            }
        });
    }
    let width = block_width(outer, inner);
    let blocks = inner.div_ceil(width);
    parallel_for(outer * blocks, len.saturating_mul(width), |range| {
        let mut extremes = [0.0; MOST_COLUMNS];
        for piece in range {
            let (outer, first) = (piece / blocks, piece % blocks * width);
            let columns = width.min(inner - first);
            let rows = &x[outer * len * inner + first..];
            // SAFETY: these columns belong to this piece alone.
            let places = unsafe { shared.slice(outer * inner + first..outer * inner + first + columns) };
            // SAFETY: both have as many elements.
            unsafe {
                arg_of_columns(
                    rows,
                    inner,
                    len,
                    op == ArgReduceOp::Min,
                    select_last,
                    &mut extremes[..columns],
                    places,
                )
            };
        }
    });
}

/// Columns whose values so far are kept side by side at most, in the first-level cache.
pub(crate) const MOST_COLUMNS: usize = 512;

/// Columns that a piece of the work has, of `inner` beside each other, `outer` times: fewer than there may be where threads would have nothing to do, but
/// enough of them for some vectors.
pub(crate) fn block_width(outer: usize, inner: usize) -> usize {
    const LEAST: usize = 32;
    let pieces = (2 * threads::sharing()).div_ceil(outer.max(1));
    inner.div_ceil(pieces).clamp(LEAST, MOST_COLUMNS).min(inner.max(1))
}

dispatched! {
    /// The places of the columns' extremes, of rows that lie `step` apart.
    ///
    /// # Safety
    /// Extremes and places have as many elements.
    unsafe fn arg_of_columns<S>(
        _s,
        rows: &[f32],
        step: usize,
        len: usize,
        least: bool,
        last: bool,
        extremes: &mut [f32],
        places: &mut [i64],
    ) {
        extremes.copy_from_slice(&rows[..extremes.len()]);
        places.fill(0);
        for at in 1..len {
            let row = &rows[at * step..][..extremes.len()];
            for ((&x, extreme), place) in row.iter().zip(&mut *extremes).zip(&mut *places) {
                let most = *extreme;
                let better = if least { x < most } else { x > most };
                let wins = (better | x.is_nan()) & !most.is_nan();
                let ties = (x == most) | (x.is_nan() & most.is_nan());
                let taken = wins | (last & ties);
                *extreme = if taken { x } else { most };
                *place = if taken { at as i64 } else { *place };
            }
        }
    }
}

/// Finds the extreme first, then where it is: both loops are fast.
fn arg_of_row(op: ArgReduceOp, row: &[f32], select_last: bool) -> usize {
    let reducer = match op {
        ArgReduceOp::Max => Reducer::Max,
        ArgReduceOp::Min => Reducer::Min,
    };
    let extreme = reduce_long(reducer, row);
    let first_or_last = |is_extreme: fn(&f32, f32) -> bool| match select_last {
        true => row.iter().rposition(|x| is_extreme(x, extreme)),
        false => row.iter().position(|x| is_extreme(x, extreme)),
    };
    let found = match extreme.is_nan() {
        true => first_or_last(|x, _| x.is_nan()),
        false => first_or_last(|x, extreme| *x == extreme),
    };
    found.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm::noise;
    use crate::simd::forced::at_each_level;

    #[test]
    fn reductions_equal_their_definition() {
        let x = noise(200_000, 1);
        let run = || {
            for &(outer, len, inner) in &[
                (1, 1, 1),
                (3, 37, 1),
                (2, 300, 5),
                (1, 5, 700),
                (1, 90_000, 1),
                (4, 9001, 1),
                (2, 0, 3),
                (0, 4, 2),
            ] {
                let x = &x[..outer * len * inner];
                for op in [ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Prod, ReduceOp::Max, ReduceOp::Min] {
                    let mut out = vec![9.0; outer * inner];
                    reduce(op, outer, len, inner, x, &mut out);
                    for (i, got) in out.iter().enumerate() {
                        let values =
                            (0..len).map(|l| f64::from(x[(i / inner * len + l) * inner + i % inner]));
                        let want = match op {
                            ReduceOp::Sum => values.sum(),
                            ReduceOp::Mean => values.sum::<f64>() / len as f64,
                            ReduceOp::Prod => values.product(),
                            ReduceOp::Max => values.fold(f64::NEG_INFINITY, f64::max),
                            _ => values.fold(f64::INFINITY, f64::min),
                        } as f32;
                        let close = (got - want).abs() <= 1e-5 * (1.0 + want.abs()) || *got == want;
                        assert!(
                            close || got.is_nan() && want.is_nan(),
                            "{op:?} {outer} {len} {inner}: {got} {want}"
                        );
                    }
                }
            }
        };
        at_each_level(|_| run());
        run();
    }

    #[test]
    fn long_sums_stay_accurate() {
        let x = vec![0.1f32; 1 << 22];
        let mut out = [0.0];
        reduce(ReduceOp::Sum, 1, x.len(), 1, &x, &mut out);
        let exact = f64::from(0.1f32) * x.len() as f64;
        assert!((f64::from(out[0]) - exact).abs() / exact < 2e-6);
        let mut out = [0.0; 2];
        reduce(ReduceOp::Sum, 1, x.len() / 2, 2, &x, &mut out);
        assert!((f64::from(out[1]) * 2.0 - exact).abs() / exact < 1e-4);
    }

    #[test]
    fn nan_wins_wherever_it_is() {
        at_each_level(|_| {
            for at in [0, 3, 17, 63, 64, 99] {
                let mut x = noise(100, 1);
                x[at] = f32::NAN;
                for op in [ReduceOp::Max, ReduceOp::Min] {
                    let mut out = [0.0];
                    reduce(op, 1, 100, 1, &x, &mut out);
                    assert!(out[0].is_nan(), "{op:?} {at}");
                    let mut columns = [0.0; 2];
                    reduce(op, 1, 50, 2, &x, &mut columns);
                    assert!(columns[at % 2].is_nan() && !columns[1 - at % 2].is_nan());
                }
                let mut out = [0];
                arg_reduce(ArgReduceOp::Max, 1, 100, 1, false, &x, &mut out);
                assert_eq!(out[0], at as i64);
            }
        });
    }

    /// Columns around those of a block, of numbers of which many are equal, and some are none.
    #[test]
    fn places_in_columns_are_those_in_rows() {
        let test = |level: &str| {
            for (outer, len, inner) in [(2, 7, 3), (1, 40, 512), (3, 5, 700), (1, 1, 9), (2, 300, 200)] {
                let number = |at: usize| match at * 2_654_435_761 % 97 {
                    at @ 0..90 => (at % 9) as f32 - 4.0,
                    90 => f32::NAN,
                    91 => f32::INFINITY,
                    _ => -0.0,
                };
                let x: Vec<f32> = (0..outer * len * inner).map(number).collect();
                let turned: Vec<f32> = (0..outer * inner * len)
                    .map(|at| x[(at / (inner * len) * len + at % len) * inner + at / len % inner])
                    .collect();
                for (op, last) in
                    [ArgReduceOp::Max, ArgReduceOp::Min].into_iter().flat_map(|op| [(op, false), (op, true)])
                {
                    let mut found = [vec![-1; outer * inner], vec![-1; outer * inner]];
                    let [columns, rows] = &mut found;
                    arg_reduce(op, outer, len, inner, last, &x, columns);
                    arg_reduce(op, outer * inner, len, 1, last, &turned, rows);
                    assert_eq!(found[0], found[1], "{level}: {op:?} {outer} {len} {inner}");
                }
            }
        };
        test("on all threads");
        at_each_level(|level| test(&alloc::format!("{level:?}")));
    }

    #[test]
    fn ties_go_to_the_first_or_the_last() {
        let x = [1.0, 3.0, 3.0, -1.0, -1.0, 0.0];
        for (op, last, want) in [
            (ArgReduceOp::Max, false, 1),
            (ArgReduceOp::Max, true, 2),
            (ArgReduceOp::Min, false, 3),
            (ArgReduceOp::Min, true, 4),
        ] {
            let mut out = [0];
            arg_reduce(op, 1, 6, 1, last, &x, &mut out);
            assert_eq!(out[0], want);
            let twice: Vec<f32> = x.iter().flat_map(|x| [*x, 0.0]).collect();
            let mut out = [0; 2];
            arg_reduce(op, 1, 6, 2, last, &twice, &mut out);
            assert_eq!(out, [want, if last { 5 } else { 0 }]);
        }
    }
}
