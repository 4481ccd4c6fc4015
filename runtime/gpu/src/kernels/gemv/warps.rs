//! Products of few rows on devices with warps. What counts is how much of the right side is on its way at a time: each invocation asks for several
//! runs of 16 bytes before it uses the first, and there are enough workgroups for all multiprocessors, each with all of the depth, so that
//! no second launch adds up parts.
//!
//! H200: of a row and bf16 weights, cuBLASLt took 10.2 µs for 2048 x 8192 (33.5 MB, of which memory at 4.3 TB/s takes 7.8), 12.0 with its second launch for
//! 8192 x 2048, 5.5 for 2048 x 2048 (2.0), 5.3 for 2048 x 512 (0.5), and 125 for the 525 MB of 128256 columns (122). On an H100, whose memory has 0.7 of that speed, these
//! kernels took 11.9 µs on average of a layer's 2048 x 2048 (5.6 at least), two 2048 x 8192 and 8192 x 2048, and 7.6 for 2048 x 2048 and twice 2048 x 512 in one launch.

use super::{Gemv, Sides};
use crate::kernels::reduce::Reducer;
use crate::kernels::tiles::WARP;
use crate::kernels::wide;
use crate::language::{Builder, Builtin, Value};
use crate::tensor::held_as;

/// Columns of a workgroup where each is a warp's.
const COLUMNS: u32 = 8;
/// Invocations of a workgroup that share the depth of its columns: with [`UNROLLED`] runs each, 64 KB are on their way, so that one
/// workgroup keeps its multiprocessor's share of the memory busy (4.3 TB/s over 132 of them with 0.7 µs of delay are 23 KB each).
const INVOCATIONS: u32 = 512;
/// Runs that an invocation asks for before it uses the first, at most.
const UNROLLED: u32 = 8;
/// Likewise where a warp has a column: there are several workgroups a multiprocessor, and the left side is read along with the right one.
const UNROLLED_OF_COLUMNS: u32 = 4;
/// Workgroups that large GPUs should have at least.
const WORKGROUPS: usize = 96;

/// How neighbours of a warp share the columns of a product.
pub(in crate::kernels) struct Division {
    /// Columns of the result.
    pub columns: usize,
    /// Products.
    pub count: usize,
    /// Columns that each of them reads at once.
    pub width: u32,
}

impl Division {
    /// How many of them have columns of their own: as many as read whole lines of memory, or fewer where workgroups would be too few.
    pub fn across(&self) -> u32 {
        // Memory is read by 32 bytes at least.
        let candidates = if self.width > 1 { [8, 4, 2].as_slice() } else { [32, 16, 8].as_slice() };
        let groups = |across: u32| self.columns.div_ceil((across * self.width) as usize) * self.count;
        let is_enough = |across: &&u32| groups(**across) >= WORKGROUPS;
        let across = candidates.iter().find(is_enough).or(candidates.last()).copied().unwrap_or(1);
        across.min(self.columns.div_ceil(self.width as usize).next_power_of_two() as u32)
    }
}

/// Columns that an invocation reads at once where they lie one beside another.
fn width(template: &Gemv) -> u32 {
    if template.wide[1] { wide::width(template.dtype) } else { 1 }
}

/// Runs that an invocation asks for before it uses the first: fewer where they take more registers, for several rows and numbers of 64 bits.
fn unrolled(template: &Gemv) -> u32 {
    let most = if template.by_columns { UNROLLED_OF_COLUMNS } else { UNROLLED };
    let for_rows = if template.rows > 1 { 2 } else { 1 };
    most / for_rows / held_as(template.dtype).value().words() as u32
}

/// Tells the compiler how many workgroups a multiprocessor is to hold. Left to itself it takes so few registers that what was read is used before the
/// next is asked for.
fn declare_resident(template: &Gemv, k: &Builder) {
    let most = if template.by_columns { 4 } else { 2 };
    k.resident(match (held_as(template.dtype).value().words(), template.rows) {
        (1, 1) => most,
        (1, _) => most / 2,
        _ => 1,
    });
}

/// Columns of a workgroup.
pub(super) fn columns(template: &Gemv) -> u32 {
    if template.by_columns { COLUMNS } else { template.across * width(template) }
}

/// Invocations of a workgroup.
pub(super) fn invocations(template: &Gemv) -> u32 {
    if template.by_columns { COLUMNS * WARP } else { INVOCATIONS }
}

/// A warp has a column whose elements lie together, and each of its lanes runs of the depth.
pub(super) fn of_columns<'k>(
    template: &Gemv,
    k: &'k Builder,
    sides: &Sides<'_, 'k>,
    first_column: Value<'k>,
    write: impl Fn(Value<'k>, Value<'k>, Value<'k>),
) {
    declare_resident(template, k);
    let (width, unrolled) = (width(template), unrolled(template));
    let local = k.builtin(Builtin::LocalIndex);
    let (column, lane) = (first_column + local / WARP, local % WARP);
    let right = (sides.right)(column);
    let runs = sides.depth / width;
    let sums: Vec<_> = sides.lefts.iter().map(|_| k.variable(k.whole(0, sides.ty))).collect();
    k.range(lane, runs, unrolled * WARP, |first| {
        let read = |n: u32| {
            let run = first + n * WARP;
            let of_column = sides.rhs.room(k, width);
            let of_rows: Vec<_> = sides.lefts.iter().map(|_| sides.lhs.room(k, width)).collect();
            k.when(run.below(runs), || {
                let at = run * width;
                sides.rhs.read(right + at * sides.strides[1], sides.strides[1], width, &of_column);
                for (&left, to) in sides.lefts.iter().zip(&of_rows) {
                    sides.lhs.read(left + at * sides.strides[0], sides.strides[0], width, to);
                }
            });
            (of_column, of_rows)
        };
        let read: Vec<_> = (0..unrolled).map(read).collect();
        for (of_column, of_rows) in &read {
            let of_column = sides.rhs.elements(of_column);
            for (sum, of_row) in sums.iter().zip(of_rows) {
                for (&a, &b) in sides.lhs.elements(of_row).iter().zip(&of_column) {
                    sum.set(a.fma(b, sum.get()));
                }
            }
        }
    });
    let sums: Vec<_> = sums.into_iter().map(|sum| Reducer::Sum.join_warp(sum.get())).collect();
    k.when(lane.equals(0_u32), || {
        for (row, &sum) in (0_u32..).zip(&sums) {
            write(k.value(row), column, sum);
        }
    });
}

/// Each invocation has a run of columns, and rows of the right side that no other of its workgroup has of them.
pub(super) fn of_rows<'k>(
    template: &Gemv,
    k: &'k Builder,
    sides: &Sides<'_, 'k>,
    first_column: Value<'k>,
    write: impl Fn(Value<'k>, Value<'k>, Value<'k>),
) {
    declare_resident(template, k);
    let (width, across, unrolled) = (width(template), template.across, unrolled(template));
    let parts = INVOCATIONS / across;
    let local = k.builtin(Builtin::LocalIndex);
    let (own, part) = (local % across, local / across);
    // A run beyond the last column repeats that one's, which begins a whole run where runs are read at once.
    let right = (sides.right)(first_column + own * width);
    let zero = || k.variable(k.whole(0, sides.ty));
    let sums: Vec<Vec<_>> = sides.lefts.iter().map(|_| (0..width).map(|_| zero()).collect()).collect();
    k.range(part, sides.depth, unrolled * parts, |first| {
        let read = |n: u32| {
            let at = first + n * parts;
            let of_columns = sides.rhs.room(k, width);
            let of_rows: Vec<_> = sides.lefts.iter().map(|_| zero()).collect();
            k.when(at.below(sides.depth), || {
                sides.rhs.read(right + at * sides.strides[1], k.value(1_u32), width, &of_columns);
                for (&left, to) in sides.lefts.iter().zip(&of_rows) {
                    to.set(sides.lhs.at(left + at * sides.strides[0], k.value(1_u32), 1)[0]);
                }
            });
            (of_columns, of_rows)
        };
        let read: Vec<_> = (0..unrolled).map(read).collect();
        for (of_columns, of_rows) in &read {
            let of_columns = sides.rhs.elements(of_columns);
            for (sums, of_row) in sums.iter().zip(of_rows) {
                for (sum, &of_column) in sums.iter().zip(&of_columns) {
                    sum.set(of_row.get().fma(of_column, sum.get()));
                }
            }
        }
    });

    let sums: Vec<_> = sums.iter().flatten().map(|sum| sum.get()).collect();
    let count = sums.len() as u32;
    let (sums, first) = join_lanes(sums, local, across);
    let all = count * across;
    let shared = k.shared(sides.ty, INVOCATIONS / WARP * all);
    let place = local / WARP * all + own * count + first;
    for (n, &sum) in (0_u32..).zip(&sums) {
        shared.set(place + n, sum);
    }
    k.barrier();
    k.when(local.below(all), || {
        let of_warp = |warp: u32| shared.at(local + warp * all);
        let sum = (1..INVOCATIONS / WARP).fold(of_warp(0), |sum, warp| sum + of_warp(warp));
        let (own, n) = (local / count, local % count);
        write(n / width, first_column + own * width + n % width, sum);
    });
}

/// Adds up what lanes of a warp have that are multiples of `across` apart. As long as there are several sums, two lanes keep half of them each;
/// yields those that the lane has at last, and the number of the first.
fn join_lanes<'k>(sums: Vec<Value<'k>>, local: Value<'k>, across: u32) -> (Vec<Value<'k>>, Value<'k>) {
    let k = local.kernel();
    let (mut sums, mut first) = (sums, k.value(0_u32));
    for lanes in (0..WARP.ilog2()).map(|bit| 1 << bit).filter(|&lanes| lanes >= across) {
        if sums.len() == 1 {
            sums = vec![sums[0] + sums[0].exchanged(lanes)];
            continue;
        }
        let half = sums.len() / 2;
        let is_upper = (local & lanes).differs(0_u32);
        let (lower, upper) = sums.split_at(half);
        let kept = |(&lower, &upper): (&Value<'k>, &Value<'k>)| {
            is_upper.select(upper, lower) + is_upper.select(lower, upper).exchanged(lanes)
        };
        let kept: Vec<_> = lower.iter().zip(upper).map(kept).collect();
        first = first + is_upper.select(half as u32, 0_u32);
        sums = kept;
    }
    (sums, first)
}
