//! Mean and variance of columns from one look at them.
//!
//! Sums of numbers and of their squares would lose what small deviations have beside a large mean. Each invocation sums up how far its numbers are from the
//! first of them, and the squares of that: it has few, so that the first is not far from their mean, compared with how far they are from each other. What
//! invocations and workgroups find so is joined by their counts (Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample
//! variances", 1979).

use super::super::access::{self, Access, Operand, behind};
use super::super::direct::Side;
use super::super::launch;
use super::columns::{self, Division, ROWS_AT_ONCE};
use super::{By, Cut, Folding, LINE, Walks, kept_first, line_of_groups};
use crate::language::{Buffer, Builder, Builtin, Kernel, Value};
use crate::runtime::Runtime;
use crate::tensor::{GpuTensor, computed_in, held_as};
use kiln_tensor::{DType, Shape};
use smallvec::SmallVec;

/// Means of runs of columns, and the sums of the squares about them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Moments {
    /// The elements' dtype.
    pub dtype: DType,
    /// How the dims that stay are walked, and over how many dims strides are told.
    pub kept: (Access, usize),
    /// Likewise the dims that are folded.
    pub folded: (Access, usize),
    /// How many columns an invocation reads, one or four.
    pub neighbours: u32,
    /// Whether there is one run of each column, so that its variance is written, not the sum of squares.
    pub whole: bool,
}

/// Mean and variance of columns, of those of their runs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct JoinMoments {
    /// The dtype in which they are.
    pub dtype: DType,
}

/// So many numbers, what they are near to and how far their mean is from that, and the sum of the squares about the mean. The mean itself would be rounded more
/// coarsely than numbers differ that are large beside their deviation.
#[derive(Clone, Copy)]
struct Found<'k> {
    count: Value<'k>,
    near: Value<'k>,
    offset: Value<'k>,
    squares: Value<'k>,
}

impl<'k> Found<'k> {
    /// What is found of both together.
    fn join(self, other: Self) -> Self {
        let count = self.count + other.count;
        let share = other.count / count.maximum(one(count));
        let apart = (other.near - self.near) + (other.offset - self.offset);
        let is_none = self.count.equals(count.kernel().whole(0, count.ty()));
        Self {
            count,
            near: is_none.select(other.near, self.near),
            offset: is_none.select(other.offset, self.offset + apart * share),
            squares: self.squares + other.squares + apart * apart * self.count * share,
        }
    }
}

fn one(like: Value<'_>) -> Value<'_> {
    like.kernel().whole(1, like.ty())
}

impl Moments {
    /// The kernel. Buffers: the elements; what the numbers of each run of each column are near to, then how far their means are from that, then the sums of
    /// squares; of whole columns the means, then the variances. Parameters: those of a [fold](super::Reduce) of columns.
    pub fn kernel(&self) -> Kernel {
        Builder::kernel("moments", [LINE, 1], |k| self.write(k))
    }

    fn write<'k>(&self, k: &'k Builder) {
        let (ty, each) = (held_as(self.dtype).value(), self.neighbours);
        let x = Side::declare(k, self.dtype, each == 4);
        let output = k.output(held_as(computed_in(self.dtype)));
        let (results, runs, run, total) = (k.parameter(), k.parameter(), k.parameter(), k.parameter());
        let kept_dims = k.parameters(self.kept.1);
        let kept = Operand::declare(k, self.kept.0, self.kept.1);
        let folded_dims = k.parameters(self.folded.1);
        let folded = Operand::declare(k, self.folded.0, self.folded.1);

        let division = Division::of(k, each, [results, runs, run, total]);
        let Division { rows, first, column, part, own, start, end, .. } = division;
        let base = kept.at(column, &access::coordinates(column, &kept_dims));
        let read = |row: Value<'k>| x.at(base + folded.at(row, &access::coordinates(row, &folded_dims)));
        // How many rows of the run the invocations of a row of them have.
        let count = |first: Value<'k>| ((end - first.min(end) + (rows - 1)) / rows).to(ty);
        let zero = k.whole(0, ty);
        let firsts = read(own.min(end - 1_u32));
        let sums: Vec<_> = (0..each).map(|_| [k.variable(zero), k.variable(zero)]).collect();
        k.range(own, end, ROWS_AT_ONCE * rows, |row| {
            let ask = |n: u32| {
                let row = behind(row, n * rows);
                // Whoever is beyond the last row asks for that.
                (row, read(if n > 0 { row.min(end - 1_u32) } else { row }))
            };
            for (n, (row, elements)) in (0..ROWS_AT_ONCE).map(ask).collect::<Vec<_>>().into_iter().enumerate()
            {
                let add = || {
                    for (([sum, squares], x), &first) in sums.iter().zip(elements).zip(&firsts) {
                        let apart = x - first;
                        sum.set(sum.get() + apart);
                        squares.set(squares.get() + apart * apart);
                    }
                };
                if n > 0 { k.when(row.below(end), add) } else { add() }
            }
        });
        let own_count = count(own);
        let size = LINE * each;
        let shared = k.shared(ty, 3 * size);
        let local = k.builtin(Builtin::LocalIndex);
        for (n, ([sum, squares], &first)) in (0_u32..).zip(sums.iter().zip(&firsts)) {
            let offset = sum.get() / own_count.maximum(one(own_count));
            let at = behind(local * each, n);
            shared.set(at, first);
            shared.set(behind(at, size), offset);
            shared.set(behind(at, 2 * size), (squares.get() - sum.get() * offset).maximum(zero));
        }
        k.barrier();
        let column = first + local;
        let is_one = local.below(columns::COLUMNS) & column.below(results) & part.below(runs);
        k.when(is_one, || {
            let of_row = |row: u32| {
                let at = behind(local, row * columns::COLUMNS);
                let [near, offset, squares] = [0, 1, 2].map(|n| shared.at(behind(at, n * size)));
                Found { count: count(behind(start, row)), near, offset, squares }
            };
            let found = (1..rows).fold(of_row(0), |all, row| all.join(of_row(row)));
            if self.whole {
                write(&output, column, results, found);
            } else {
                let (at, size) = (column * runs + part, results * runs);
                output.set(at, found.near);
                output.set(at + size, found.offset);
                output.set(at + size * 2_u32, found.squares);
            }
        });
    }
}

/// Writes the mean and the variance of one of so many columns.
fn write<'k>(output: &Buffer<'k>, column: Value<'k>, columns: Value<'k>, found: Found<'k>) {
    output.set(column, found.near + found.offset);
    output.set(column + columns, found.squares / found.count);
}

impl JoinMoments {
    /// The kernel: a workgroup a column. Buffers: what [`Moments`] wrote; the means and, behind them, the variances. Parameters: the number of columns, of
    /// the runs of each, the length of a run and that of a column.
    pub fn kernel(&self) -> Kernel {
        Builder::kernel("join_moments", [LINE, 1], |k| self.write(k))
    }

    fn write<'k>(&self, k: &'k Builder) {
        let (ty, storage) = (held_as(self.dtype).value(), held_as(self.dtype));
        let (parts, output) = (k.input(storage), k.output(storage));
        let (results, runs, run, total) = (k.parameter(), k.parameter(), k.parameter(), k.parameter());
        let (local, column) = (k.builtin(Builtin::LocalIndex), k.group());
        // A group beyond the last repeats it, so that none leaves before the barriers.
        let of_column = column.min(results - 1_u32) * runs;
        let zero = k.whole(0, ty);
        let variables = [zero; 4].map(|zero| k.variable(zero));
        let get = || {
            let [count, near, offset, squares] = variables.map(|variable| variable.get());
            Found { count, near, offset, squares }
        };
        let set = |found: Found<'k>| {
            let found = [found.count, found.near, found.offset, found.squares];
            variables.into_iter().zip(found).for_each(|(variable, found)| variable.set(found));
        };
        k.range(local, runs, LINE, |part| {
            let at = of_column + part;
            let count = (total - (part * run).min(total)).min(run).to(ty);
            let size = results * runs;
            let [near, offset, squares] = [at, at + size, at + size * 2_u32].map(|at| parts.at(at));
            set(get().join(Found { count, near, offset, squares }));
        });
        let shared = [ty; 4].map(|ty| k.shared(ty, LINE));
        let share = || {
            let own = variables.map(|variable| variable.get());
            shared.into_iter().zip(own).for_each(|(shared, own)| shared.set(local, own));
        };
        share();
        let mut half = LINE / 2;
        while half > 0 {
            k.barrier();
            k.when(local.below(half), || {
                let [count, near, offset, squares] = shared.map(|shared| shared.at(local + half));
                set(get().join(Found { count, near, offset, squares }));
                share();
            });
            half /= 2;
        }
        k.when(local.equals(0_u32) & column.below(results), || write(&output, column, results, get()));
    }
}

/// The mean and the variance along axes of what stays, one after another each: of floats that are columns, which one kernel looks at. The variance is that of a
/// whole population, and what is not finite makes both NaN.
pub(crate) fn moments<R: Runtime>(x: &GpuTensor<R>, axes: &[usize]) -> Option<[GpuTensor<R>; 2]> {
    let (layout, split) = kept_first(&x.layout, axes);
    let walks = Walks::new(&layout, split);
    let neighbours = walks.columns::<R>(&x.device).filter(|_| x.dtype.is_float() && x.is_visible())?;
    let neighbours = columns::that_fit::<R>(&x.device, neighbours, 3, x.dtype)?;
    let (results, device, dtype) = (walks.results, &x.device, computed_in(x.dtype));
    let cut = Cut::new(By::Columns { neighbours }, columns::runs(results, walks.total), walks.total);
    let Folding { template, words, groups } = Folding::of_columns::<R>(device, x.dtype, &walks, cut);
    let whole = cut.runs == 1;
    let template =
        Moments { dtype: x.dtype, kept: template.kept, folded: template.folded, neighbours, whole };
    let numbers = if whole { 2 } else { 3 };
    let mut found = GpuTensor::empty(Shape::from([numbers * results, cut.runs]), dtype, device);
    launch::<R>(device, template, &[x, &found], &words, groups);
    if !whole {
        let joined = GpuTensor::empty(Shape::from([2 * results]), dtype, device);
        let words: SmallVec<[u32; 4]> =
            [results, cut.runs, cut.run, walks.total].into_iter().map(|n| n as u32).collect();
        let groups = line_of_groups::<R>(device, results);
        launch::<R>(device, JoinMoments { dtype }, &[&found, &joined], &words, groups);
        found = joined;
    }
    Some([0, 1].map(|n| found.part_of(n * results, &Shape::from([results]))))
}
