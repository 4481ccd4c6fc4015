//! Folds of columns: runs that lie across memory, whose neighbours lie beside them.
//!
//! A workgroup folds a run of each of [`COLUMNS`] neighbours, so that it reads rows of whole lines of memory. Its invocations share out the columns, one or
//! four each, and the rows; what those of a column make of their rows is joined at last. Each asks for [several rows](ROWS_AT_ONCE) at once: there are fewer
//! invocations than would keep a memory busy with an element each.
//!
//! When each invocation read a part of one column, and its neighbours other parts of that, the sums of channels took 27.6 of the 44.5 ms of a training step of
//! ResNet-50 on an H100 (64 images, bf16): of every sector of memory they used two bytes. Times of these kernels there are yet to be measured.

use super::super::access::{Walk, behind};
use super::super::elementwise::LEAST_OF_FOURS;
use super::super::source::Source;
use super::{Fold, LINE};
use crate::language::{Builder, Builtin, Type, Value};
use crate::runtime::Runtime;
use crate::tensor::computed_in;
use kiln_tensor::DType;

/// Columns that a workgroup folds together.
pub(super) const COLUMNS: u32 = 64;
/// Rows of which an invocation asks for elements before it waits for any.
pub(super) const ROWS_AT_ONCE: u32 = 4;
/// Columns from which on it is worth it.
const LEAST_COLUMNS: usize = COLUMNS as usize / 2;
/// Rows from which on it is worth it.
const LEAST_ROWS: usize = 64;
/// Workgroups that keep a device busy.
const BUSY: usize = 1024;
/// The rows of a run are no fewer than this, where there are so many: an invocation then asks for as many as it can several times.
const SHORTEST: usize = 256;
/// And no more: the error of a sum grows with them.
const LONGEST: usize = 1 << 14;

/// How many columns an invocation reads, if folds along `folded` are of columns, of which those of `kept` lie side by side from `start` on.
pub(super) fn neighbours(kept: &Walk, folded: &Walk, start: usize) -> Option<u32> {
    let (results, total): (usize, usize) = (kept.dims.iter().product(), folded.dims.iter().product());
    let (&last, outer) = kept.strides[0].split_last()?;
    if results < LEAST_COLUMNS || total < LEAST_ROWS || last != 1 {
        return None;
    }
    let aligned = outer.iter().chain(&folded.strides[0]).all(|stride| stride % 4 == 0);
    let whole = kept.dims.last().is_some_and(|&dim| dim % 4 == 0);
    // So many as programs compute four of at a time, which may yield what is folded.
    let many = results * total >= LEAST_OF_FOURS;
    Some(if many && aligned && whole && start.is_multiple_of(4) { 4 } else { 1 })
}

/// How many columns an invocation reads, of as many or one, so that what a workgroup shares fits: of each column so many numbers of a dtype.
pub(super) fn that_fit<R: Runtime>(
    device: &R::Device,
    neighbours: u32,
    numbers: usize,
    dtype: DType,
) -> Option<u32> {
    let bytes = |neighbours: u32| LINE as usize * neighbours as usize * numbers * computed_in(dtype).size();
    let most = R::limits(device).shared_bytes as usize;
    [neighbours, 1].into_iter().find(|&neighbours| bytes(neighbours) <= most)
}

/// Into how many runs columns of `total` elements are cut, beside each other so many.
pub(super) fn runs(results: usize, total: usize) -> usize {
    let enough = (BUSY / groups(results)).max(1);
    (total / SHORTEST).clamp(1, enough).max(total.div_ceil(LONGEST))
}

/// Workgroups side by side.
pub(super) fn groups(results: usize) -> usize {
    results.div_ceil(COLUMNS as usize)
}

/// How a workgroup shares out the run that it folds of neighbouring columns.
pub(super) struct Division<'k> {
    /// Invocations of a column.
    pub rows: u32,
    /// The first column.
    pub first: Value<'k>,
    /// The first of those that the invocation reads.
    pub column: Value<'k>,
    /// Which run it is; of a group beyond the last, one beyond the last.
    pub part: Value<'k>,
    /// The first row of the run, and the one behind its last.
    pub start: Value<'k>,
    pub end: Value<'k>,
    /// The invocation's first row.
    pub own: Value<'k>,
}

impl<'k> Division<'k> {
    /// Of so many columns, runs of each, elements of a run and of a column, where each invocation reads so many columns.
    pub fn of(k: &'k Builder, each: u32, [results, runs, run, total]: [Value<'k>; 4]) -> Self {
        let lanes = COLUMNS / each;
        let across = (results + (COLUMNS - 1)) / COLUMNS;
        let (group, local) = (k.group(), k.builtin(Builtin::LocalIndex));
        let (first, part) = (group % across * COLUMNS, group / across);
        // A group beyond the last repeats it, so that none leaves before the barrier, and so do columns.
        let part_in = part.min(runs - 1_u32);
        let column = (first + local % lanes * each).min(results - each);
        let start = part_in * run;
        let end = (start + run).min(total);
        Self { rows: LINE / lanes, first, column, part, start, end, own: start + local / lanes }
    }
}

/// What a workgroup folds.
pub(super) struct Columns<'a, 't, 'k> {
    pub k: &'k Builder,
    pub fold: Fold,
    pub input: &'a Source<'t, 'k>,
    /// How many tensors the input yields elements of: the results of each follow those of the one before.
    pub tensors: u32,
    /// How many columns an invocation reads.
    pub neighbours: u32,
    /// The number of columns, and of runs of each.
    pub results: Value<'k>,
    pub runs: Value<'k>,
    /// The length of a run, and of a column.
    pub run: Value<'k>,
    pub total: Value<'k>,
}

impl<'k> Columns<'_, '_, 'k> {
    /// Folds runs whose first element is at `base` of their column, and further ones so far behind it as `at` says of their place in the column; `write` is
    /// handed each result's place and number. What changes no number is a `neutral` one.
    pub fn write(
        &self,
        (neutral, ty): (Value<'k>, Type),
        base: impl FnOnce(Value<'k>) -> Value<'k>,
        at: impl Fn(Value<'k>) -> Value<'k>,
        write: impl Fn(Value<'k>, Value<'k>),
    ) {
        let (k, each, tensors) = (self.k, self.neighbours, self.tensors);
        let division = Division::of(k, each, [self.results, self.runs, self.run, self.total]);
        let Division { rows, first, column, part, own, end, .. } = division;
        let local = k.builtin(Builtin::LocalIndex);
        let base = base(column);
        let sums: Vec<_> = (0..each * tensors).map(|_| k.variable(neutral)).collect();
        k.range(own, end, ROWS_AT_ONCE * rows, |row| {
            let read = |n: u32| {
                let row = behind(row, n * rows);
                // Whoever is beyond the last row asks for that.
                let inside = if n > 0 { row.min(end - 1_u32) } else { row };
                (row, self.input.neighbours(base + at(inside), each))
            };
            for (n, (row, elements)) in
                (0..ROWS_AT_ONCE).map(read).collect::<Vec<_>>().into_iter().enumerate()
            {
                let join = || {
                    sums.iter().zip(elements).for_each(|(sum, x)| sum.set(self.fold.join(sum.get(), x)));
                };
                if n > 0 { k.when(row.below(end), join) } else { join() }
            }
        });
        // One tensor's after the other's, each a row of columns for every row of invocations.
        let size = LINE * each;
        let shared = k.shared(ty, size * tensors);
        for (n, sum) in (0..).zip(&sums) {
            shared.set(behind(local * each, n / each * size + n % each), sum.get());
        }
        k.barrier();
        let column = first + local;
        let is_one = local.below(COLUMNS) & column.below(self.results) & part.below(self.runs);
        k.when(is_one, || {
            for tensor in 0..tensors {
                let of_rows = (0..rows).map(|row| shared.at(behind(local, tensor * size + row * COLUMNS)));
                let joined = of_rows.reduce(|all, own| self.fold.join(all, own)).unwrap_or(neutral);
                let column = if tensor > 0 { column + self.results * tensor } else { column };
                write(column * self.runs + part, joined);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_lie_side_by_side() {
        let walks = |dims: &[usize], strides: &[isize], split: usize| {
            let walk = |range: core::ops::Range<usize>| Walk::new(&dims[range.clone()], &[&strides[range]]);
            [walk(0..split), walk(split..dims.len())]
        };
        let of = |dims: &[usize], strides: &[isize], start: usize| {
            let [kept, folded] = walks(dims, strides, 1);
            neighbours(&kept, &folded, start)
        };
        assert_eq!(of(&[64, 2, 2100], &[1, 134_400, 64], 0), Some(4));
        assert_eq!(of(&[64, 2, 2100], &[1, 134_400, 64], 2), Some(1));
        assert_eq!(of(&[62, 2, 2200], &[1, 136_400, 62], 0), Some(1));
        assert_eq!(of(&[64, 2, 100], &[1, 6400, 64], 0), Some(1));
        assert_eq!(of(&[64, 200], &[200, 1], 0), None);
        assert_eq!(of(&[16, 200], &[1, 16], 0), None);
        assert_eq!(of(&[64, 20], &[1, 64], 0), None);
    }

    #[test]
    fn runs_are_neither_too_short_nor_too_long() {
        // Channels of ResNet-50's first images, 64 of them, and of its last; what a workgroup does.
        assert_eq!([runs(64, 64 * 56 * 56), runs(2048, 64 * 7 * 7), runs(768, 100)], [784, 12, 1]);
        for (results, total) in [(32, 1_usize << 30), (1 << 20, 1 << 11), (1 << 20, 1 << 20)] {
            assert!(total.div_ceil(runs(results, total)) <= LONGEST);
        }
    }
}
