//! Reductions of columns: runs that lie across memory, whose neighbours lie beside them.
//!
//! A workgroup reduces a run of each of [`COLUMNS`] neighbours, so that it reads rows of whole lines of memory. Its invocations share out the columns, one or
//! four each, and the rows; what those of a column make of their rows is joined at last. Each asks for [several rows](ROWS_AT_ONCE) at once: there are fewer
//! invocations than would keep a memory busy with an element each.
//!
//! When each invocation read a part of one column, and its neighbours other parts of that, the sums of channels took 27.6 of the 44.5 ms of a training step of
//! ResNet-50 on an H100 (64 images, bf16): of every sector of memory they used two bytes. Times of these kernels there are yet to be measured.

use super::super::access::{Walk, behind};
use super::super::elementwise::LEAST_OF_FOURS;
use super::super::source::Source;
use super::{LINE, Reducer, run_of};
use crate::language::{Array, Buffer, Builder, Builtin, Type, Value};
use crate::runtime::Runtime;
use crate::tensor::computed_in;
use kiln_tensor::DType;

/// Columns that a workgroup reduces together.
pub(super) const COLUMNS: u32 = 64;
/// Rows of which an invocation asks for elements before it waits for any.
pub(super) const ROWS_AT_ONCE: u32 = 4;
/// Columns from which on it is worth it.
const LEAST_COLUMNS: usize = COLUMNS as usize / 2;
/// Rows from which on it is worth it.
const LEAST_ROWS: usize = 64;
/// Workgroups of a multiprocessor: all of them run at once, with what [they ask for](ROWS_AT_ONCE) more is on its way than a memory's latency takes (4 · 256 · 32
/// bytes; the 3.35 TB/s of an H100 are 18 KB of each of its multiprocessors in 700 ns).
const EACH: usize = 4;
/// Multiprocessors where a device does not say how many it has.
const USUAL: u32 = 128;
/// The rows of a run are no fewer than this, where there are so many: an invocation then asks for as many as it can twice.
const SHORTEST: usize = 128;
/// And no more: the error of a sum grows with them.
const LONGEST: usize = 1 << 14;

/// How many columns an invocation reads, if reductions along `reduced` are of columns, of which those of `kept` lie side by side from `start` on.
pub(super) fn neighbours(kept: &Walk, reduced: &Walk, start: usize) -> Option<u32> {
    let (results, total): (usize, usize) = (kept.dims.iter().product(), reduced.dims.iter().product());
    let (&last, outer) = kept.strides[0].split_last()?;
    if results < LEAST_COLUMNS || total < LEAST_ROWS || last != 1 {
        return None;
    }
    let aligned = outer.iter().chain(&reduced.strides[0]).all(|stride| stride % 4 == 0);
    let whole = kept.dims.last().is_some_and(|&dim| dim % 4 == 0);
    // So many as programs compute four of at a time, which may yield what is reduced.
    let many = results * total >= LEAST_OF_FOURS;
    Some(if many && aligned && whole && start.is_multiple_of(4) { 4 } else { 1 })
}

/// Beside the columns a workgroup shares whether it is the last.
const FLAG_BYTES: u32 = 16;

/// How many columns an invocation reads, of as many or one, so that what a workgroup shares fits: of each column so many numbers of a dtype.
pub(super) fn that_fit<R: Runtime>(
    device: &R::Device,
    neighbours: u32,
    numbers: usize,
    dtype: DType,
) -> Option<u32> {
    let bytes = |neighbours: u32| LINE as usize * neighbours as usize * numbers * computed_in(dtype).size();
    let most = (R::limits(device).shared_bytes - FLAG_BYTES) as usize;
    [neighbours, 1].into_iter().find(|&neighbours| bytes(neighbours) <= most)
}

/// Into how many runs columns of `total` elements are cut, beside each other so many, on a device of so many multiprocessors.
pub(super) fn runs(multiprocessors: Option<u32>, results: usize, total: usize) -> usize {
    let enough = (EACH * multiprocessors.unwrap_or(USUAL) as usize / groups(results)).max(1);
    (total / SHORTEST).clamp(1, enough).max(total.div_ceil(LONGEST))
}

/// Workgroups side by side.
pub(super) fn groups(results: usize) -> usize {
    results.div_ceil(COLUMNS as usize)
}

/// Numbers of runs of a column that the workgroup reads which is the last: that takes it no longer than another kernel would.
const MOST_JOINED: usize = 768;
/// Of these an invocation asks for so many before it waits for any.
const NUMBERS_AT_ONCE: u32 = 16;

/// Whether the workgroup that is the last to reduce a run of its columns also joins what all of them found, so that there is no other kernel for that: of so many
/// columns in so many runs, of each of which so many numbers are left.
pub(super) fn joins<R: Runtime>(device: &R::Device, results: usize, runs: usize, numbers: usize) -> bool {
    let limits = R::limits(device);
    let groups = groups(results);
    // A grid of one line has no more workgroups than are counted.
    let fits = groups <= limits.counters as usize && groups * runs <= limits.groups as usize;
    fits && runs > 1 && runs * numbers <= MOST_JOINED
}

/// How a workgroup shares out the run that it reduces of neighbouring columns.
pub(super) struct Division<'k> {
    /// How many columns an invocation reads.
    pub each: u32,
    /// Invocations of a column.
    pub rows: u32,
    /// Rows of which an invocation asks for elements before it waits for any.
    at_once: u32,
    /// Which of the groups that lie side by side.
    pub place: Value<'k>,
    /// The first column.
    pub first: Value<'k>,
    /// The first of those that the invocation reads.
    pub column: Value<'k>,
    /// Which run it is; of a group beyond the last, one beyond the last.
    pub part: Value<'k>,
    /// The first row of the run, and the one behind its last.
    pub start: Value<'k>,
    pub end: Value<'k>,
    /// Which of the rows are the invocation's: so many behind the first.
    pub own: Value<'k>,
}

impl<'k> Division<'k> {
    /// Of so many columns, runs of each, elements of a run and of a column, where each invocation reads so many columns.
    pub fn of(k: &'k Builder, each: u32, [results, runs, run, total]: [Value<'k>; 4]) -> Self {
        let across = (results + (COLUMNS - 1)) / COLUMNS;
        let group = k.group();
        let (place, part) = (group % across, group / across);
        let first = place * COLUMNS;
        let (column, own) = Self::share(k, each, first, results);
        // A group beyond the last repeats it, so that none leaves before the barrier.
        let [start, end] = run_of(part.min(runs - 1_u32), run, total);
        let rows = LINE * each / COLUMNS;
        Self { each, rows, at_once: ROWS_AT_ONCE, place, first, column, part, start, end, own }
    }

    /// The same of all runs, each of which is a row of so many numbers, where each invocation reads one column.
    pub fn of_runs(&self, k: &'k Builder, [results, runs]: [Value<'k>; 2], numbers: u32) -> Self {
        let (column, own) = Self::share(k, 1, self.first, results);
        let (rows, at_once) = (LINE / COLUMNS, (NUMBERS_AT_ONCE / numbers).max(1));
        Self { each: 1, rows, at_once, column, own, start: k.value(0_u32), end: runs, ..*self }
    }

    /// The first column that an invocation reads, and which of the rows of invocations it is in. Columns beyond the last repeat it.
    fn share(k: &'k Builder, each: u32, first: Value<'k>, results: Value<'k>) -> (Value<'k>, Value<'k>) {
        let (lanes, local) = (COLUMNS / each, k.builtin(Builtin::LocalIndex));
        ((first + local % lanes * each).min(results - each), local / lanes)
    }

    /// Hands each row that is the invocation's to `add`, with what was `read` of it: of several before any is added.
    pub fn each_row<T>(&self, k: &'k Builder, read: impl Fn(Value<'k>) -> T, add: impl Fn(Value<'k>, T)) {
        let &Self { rows, at_once, start, end, own, .. } = self;
        k.range(start + own, end, at_once * rows, |row| {
            let ask = |n: u32| {
                let row = behind(row, n * rows);
                // Whoever is beyond the last row asks for that.
                (row, read(if n > 0 { row.min(end - 1_u32) } else { row }))
            };
            for (n, (row, elements)) in (0..at_once).map(ask).collect::<Vec<_>>().into_iter().enumerate() {
                if n > 0 { k.when(row.below(end), || add(row, elements)) } else { add(row, elements) }
            }
        });
    }

    /// Does something for each column of the workgroup in one invocation: that is handed how far it is behind the first, and the column.
    pub fn each_column(&self, k: &'k Builder, results: Value<'k>, then: impl FnOnce(Value<'k>, Value<'k>)) {
        let local = k.builtin(Builtin::LocalIndex);
        let column = self.first + local;
        k.when(local.below(COLUMNS) & column.below(results), || then(local, column));
    }
}

/// Where workgroups leave what they found of runs for the last of them: so many numbers of each, a row of columns for each run of each number.
#[derive(Clone, Copy)]
pub(super) struct Parts<'k> {
    pub buffer: Buffer<'k>,
    pub results: Value<'k>,
    pub runs: Value<'k>,
}

impl<'k> Parts<'k> {
    fn place(&self, number: u32, part: Value<'k>, column: Value<'k>) -> Value<'k> {
        let row = if number > 0 { self.runs * number + part } else { part };
        row * self.results + column
    }

    /// Leaves the numbers of a run of a column.
    pub fn leave(&self, part: Value<'k>, column: Value<'k>, numbers: &[Value<'k>]) {
        (0..).zip(numbers).for_each(|(n, &number)| self.buffer.set(self.place(n, part, column), number));
    }

    /// A number of a run of a column.
    pub fn at(&self, number: u32, part: Value<'k>, column: Value<'k>) -> Value<'k> {
        self.buffer.at(self.place(number, part, column))
    }
}

/// What a workgroup reduces.
pub(super) struct Columns<'a, 't, 'k> {
    pub k: &'k Builder,
    pub reducer: Reducer,
    pub input: &'a Source<'t, 'k>,
    /// How many tensors the input yields elements of.
    pub tensors: u32,
    /// How many columns an invocation reads.
    pub neighbours: u32,
    /// The number of columns, of runs of each, the length of a run and of a column.
    pub size: [Value<'k>; 4],
    /// Where runs are left, if the last workgroup joins them.
    pub parts: Option<Parts<'k>>,
}

impl<'k> Columns<'_, '_, 'k> {
    /// Reduces runs whose first element is at `base` of their column, and further ones so far behind it as `at` says of their place in the column; `write` is
    /// handed a column, which run it is, and the number of each tensor: those of whole columns, as run 0, where runs are joined. What changes no number is a
    /// `neutral` one.
    pub fn write(
        &self,
        (neutral, ty): (Value<'k>, Type),
        base: impl FnOnce(Value<'k>) -> Value<'k>,
        at: impl Fn(Value<'k>) -> Value<'k>,
        write: impl Fn(Value<'k>, Value<'k>, &[Value<'k>]),
    ) {
        let (k, each, tensors) = (self.k, self.neighbours, self.tensors);
        let [results, runs, ..] = self.size;
        let division = Division::of(k, each, self.size);
        let part = division.part;
        let base = base(division.column);
        // One tensor's after the other's, each a row of columns for every row of invocations.
        let shared = k.shared(ty, LINE * each * tensors);
        let read = |row| self.input.neighbours(base + at(row), each);
        self.reduce_rows((neutral, &shared), &division, read, |column, numbers| {
            k.when(part.below(runs), || match self.parts {
                Some(parts) => parts.leave(part, column, numbers),
                None => write(column, part, numbers),
            });
        });
        let Some(parts) = self.parts else { return };
        k.counters().when_last(division.place, runs, || {
            let division = division.of_runs(k, [results, runs], tensors);
            let read = |part| (0..tensors).map(|n| parts.at(n, part, division.column)).collect();
            self.reduce_rows((neutral, &shared), &division, read, |column, numbers| {
                write(column, k.value(0_u32), numbers);
            });
        });
    }

    /// Reduces rows, and hands each column with its numbers on.
    fn reduce_rows(
        &self,
        (neutral, shared): (Value<'k>, &Array<'k>),
        division: &Division<'k>,
        read: impl Fn(Value<'k>) -> Vec<Value<'k>>,
        then: impl FnOnce(Value<'k>, &[Value<'k>]),
    ) {
        let (k, each, tensors) = (self.k, division.each, self.tensors);
        let sums: Vec<_> = (0..each * tensors).map(|_| k.variable(neutral)).collect();
        division.each_row(k, read, |_, elements| {
            sums.iter().zip(elements).for_each(|(sum, x)| sum.set(self.reducer.join(sum.get(), x)));
        });
        let (size, local) = (LINE * each, k.builtin(Builtin::LocalIndex));
        for (n, sum) in (0..).zip(&sums) {
            shared.set(behind(local * each, n / each * size + n % each), sum.get());
        }
        k.barrier();
        division.each_column(k, self.size[0], |local, column| {
            let of_tensor = |tensor: u32| {
                let of_row = |row: u32| shared.at(behind(local, tensor * size + row * COLUMNS));
                (1..division.rows).fold(of_row(0), |all, row| self.reducer.join(all, of_row(row)))
            };
            then(column, &(0..tensors).map(of_tensor).collect::<Vec<_>>());
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
            let [kept, reduced] = walks(dims, strides, 1);
            neighbours(&kept, &reduced, start)
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
        let runs = |results: usize, total: usize| runs(Some(132), results, total);
        // Channels of ResNet-50's first images, 64 of them, and of its last; rows of BERT-base; what a workgroup does.
        let found = [(64, 64 * 56 * 56), (2048, 64 * 7 * 7), (768, 32 * 128), (768, 100)];
        assert_eq!(found.map(|(results, total)| runs(results, total)), [528, 16, 32, 1]);
        for (results, total) in [(32, 1_usize << 30), (1 << 20, 1 << 11), (1 << 20, 1 << 20)] {
            assert!(total.div_ceil(runs(results, total)) <= LONGEST);
        }
    }
}
