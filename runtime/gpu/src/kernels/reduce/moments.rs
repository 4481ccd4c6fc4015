//! Mean and variance of columns from one look at them.
//!
//! Sums of numbers and of their squares would lose what small deviations have beside a large mean. Each invocation sums up how far its numbers are from the
//! first of them, and the squares of that: it has few, so that the first is not far from their mean, compared with how far they are from each other. What
//! invocations and workgroups find so is joined by their counts (Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample
//! variances", 1979).

use super::super::access::{self, Access, Operand, behind};
use super::super::direct::Side;
use super::super::launch;
use super::columns::{self, Division, Parts};
use super::finish::{Finish, Finishing};
use super::{Cut, LINE, Reduction, Walks, kept_first, line_of_groups, without};
use crate::language::{Array, Builder, Builtin, Kernel, Type, Value, Variable};
use crate::runtime::Runtime;
use crate::tensor::{GpuTensor, computed_in, held_as};
use kiln_tensor::backend::Primitive;
use kiln_tensor::compose::ElementwiseProgram;
use kiln_tensor::{DType, InlineVec, Shape};
use smallvec::SmallVec;

/// What is made of means and variances of columns, or what is found of each of their runs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Moments {
    /// The elements' dtype.
    pub dtype: DType,
    /// How the dims that stay are walked, and over how many dims strides are told.
    pub kept: (Access, usize),
    /// Likewise the dims that are reduced.
    pub reduced: (Access, usize),
    /// How many columns an invocation reads, one or four.
    pub neighbours: u32,
    /// What becomes of what a workgroup finds.
    pub found: Found,
}

/// What becomes of what workgroups find of columns.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Found {
    /// It is of whole columns: something is made of means and variances.
    OfColumns(Finish),
    /// It is of runs, for [another kernel](JoinMoments).
    OfRuns,
    /// It is of runs, and the last workgroup joins it and makes something of means and variances.
    Joined(Finish),
}

/// What is made of means and variances of columns, of what was found of their runs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct JoinMoments {
    /// The dtype in which they are.
    pub dtype: DType,
    /// What is made of mean and variance.
    pub finish: Finish,
}

/// So many numbers, what they are near to and how far their mean is from that, and the sum of the squares about the mean. The mean itself would be rounded more
/// coarsely than numbers differ that are large beside their deviation.
#[derive(Clone, Copy)]
struct Sample<'k> {
    count: Value<'k>,
    near: Value<'k>,
    offset: Value<'k>,
    squares: Value<'k>,
}

impl<'k> Sample<'k> {
    /// What is known of both together.
    fn join(self, other: Self) -> Self {
        let count = self.count + other.count;
        let share = other.count / count.maximum(one(count));
        let apart = (other.near - self.near) + (other.offset - self.offset);
        let is_none = self.count.equals(count.kernel().whole(0, count.ty()));
        Self {
            count,
            near: is_none.select(other.near, self.near),
            offset: is_none.select(other.offset, self.offset + apart * share),
            // 0 where one of both has no numbers, however far they are apart: the square alone may be infinite.
            squares: self.squares + other.squares + apart * (self.count * share) * apart,
        }
    }

    fn numbers(self) -> [Value<'k>; 4] {
        [self.count, self.near, self.offset, self.squares]
    }

    /// Mean and variance.
    fn moments(self) -> [Value<'k>; 2] {
        [self.near + self.offset, self.squares / self.count]
    }
}

impl<'k> From<[Value<'k>; 4]> for Sample<'k> {
    fn from([count, near, offset, squares]: [Value<'k>; 4]) -> Self {
        Self { count, near, offset, squares }
    }
}

fn one(like: Value<'_>) -> Value<'_> {
    like.kernel().whole(1, like.ty())
}

/// A sample that grows.
#[derive(Clone, Copy)]
struct Growing<'k>([Variable<'k>; 4]);

impl<'k> Growing<'k> {
    /// Of no number yet.
    fn empty(k: &'k Builder, ty: Type) -> Self {
        Self([(); 4].map(|()| k.variable(k.whole(0, ty))))
    }

    fn get(&self) -> Sample<'k> {
        self.0.map(|variable| variable.get()).into()
    }

    fn join(&self, other: Sample<'k>) {
        let joined = self.get().join(other).numbers();
        self.0.into_iter().zip(joined).for_each(|(variable, value)| variable.set(value));
    }
}

/// The samples of a workgroup's invocations: a number of each after the other.
struct Shared<'k>([Array<'k>; 4]);

impl<'k> Shared<'k> {
    fn new(k: &'k Builder, ty: Type, length: u32) -> Self {
        Self([(); 4].map(|()| k.shared(ty, length)))
    }

    fn set(&self, at: Value<'k>, sample: Sample<'k>) {
        self.0.iter().zip(sample.numbers()).for_each(|(array, number)| array.set(at, number));
    }

    fn at(&self, at: Value<'k>) -> Sample<'k> {
        self.0.map(|array| array.at(at)).into()
    }

    /// Has invocations share what they know of their rows of columns, and hands each column with what is known of it on.
    fn of_columns(
        &self,
        k: &'k Builder,
        division: &Division<'k>,
        results: Value<'k>,
        own: &[Sample<'k>],
        then: impl FnOnce(Value<'k>, Sample<'k>),
    ) {
        let first = k.builtin(Builtin::LocalIndex) * own.len() as u32;
        (0..).zip(own).for_each(|(n, &own)| self.set(behind(first, n), own));
        k.barrier();
        division.each_column(k, results, |local, column| {
            let of_row = |row: u32| self.at(behind(local, row * columns::COLUMNS));
            then(column, (1..division.rows).fold(of_row(0), |all, row| all.join(of_row(row))));
        });
    }
}

/// How many of `total` numbers one of their runs of a length has.
fn count_of<'k>(part: Value<'k>, run: Value<'k>, total: Value<'k>) -> Value<'k> {
    (total - (part * run).min(total)).min(run)
}

impl Moments {
    /// The kernel. Buffers: the elements; of runs what the numbers of each of each column are near to, then how far their means are from that, then the sums of
    /// squares; what [finishes](Finish) means and variances. Parameters: those of a [reduction](super::Reduce) of columns, and of what finishes.
    pub fn kernel(&self) -> Kernel {
        Builder::kernel("moments", [LINE, 1], |k| self.write(k))
    }

    fn write<'k>(&self, k: &'k Builder) {
        let (ty, each) = (held_as(self.dtype).value(), self.neighbours);
        let x = Side::declare(k, self.dtype, each == 4);
        let wide = held_as(computed_in(self.dtype));
        let buffer = match self.found {
            Found::OfColumns(_) => None,
            Found::OfRuns | Found::Joined(_) => Some(k.output(wide)),
        };
        let size @ [results, runs, run, total] = [(); 4].map(|()| k.parameter());
        let kept_dims = k.parameters(self.kept.1);
        let kept = Operand::declare(k, self.kept.0, self.kept.1);
        let reduced_dims = k.parameters(self.reduced.1);
        let reduced = Operand::declare(k, self.reduced.0, self.reduced.1);
        let finish = match &self.found {
            Found::OfColumns(finish) | Found::Joined(finish) => Some(finish.declare(k)),
            Found::OfRuns => None,
        };
        let parts = buffer.map(|buffer| Parts { buffer, results, runs });

        let division = Division::of(k, each, size);
        let Division { rows, column, part, start, end, .. } = division;
        let base = kept.at(column, &access::coordinates(column, &kept_dims));
        let read = |row: Value<'k>| x.at(base + reduced.at(row, &access::coordinates(row, &reduced_dims)));
        let zero = k.whole(0, ty);
        let own = start + division.own;
        let firsts = read(own.min(end - 1_u32));
        let sums: Vec<_> = (0..each).map(|_| [k.variable(zero), k.variable(zero)]).collect();
        division.each_row(k, read, |_, elements| {
            for (([sum, squares], x), &first) in sums.iter().zip(elements).zip(&firsts) {
                let apart = x - first;
                sum.set(sum.get() + apart);
                squares.set(squares.get() + apart * apart);
            }
        });
        let count = ((end - own.min(end) + (rows - 1)) / rows).to(ty);
        let sample = |([sum, squares], &near): (&[Variable<'k>; 2], &Value<'k>)| {
            let offset = sum.get() / count.maximum(one(count));
            Sample { count, near, offset, squares: (squares.get() - sum.get() * offset).maximum(zero) }
        };
        let samples: Vec<_> = sums.iter().zip(&firsts).map(sample).collect();
        let shared = Shared::new(k, ty, LINE * each);
        shared.of_columns(k, &division, results, &samples, |column, sample| {
            k.when(part.below(runs), || match (&parts, &finish) {
                (Some(parts), _) => {
                    let [_, numbers @ ..] = sample.numbers();
                    parts.leave(part, column, &numbers);
                }
                (None, Some(finish)) => finish.write(k, column, &sample.moments()),
                (None, None) => {}
            });
        });
        if let (Some(parts), Some(finish)) = (parts, &finish) {
            k.counters().when_last(division.place, runs, || {
                let division = division.of_runs(k, [results, runs], 3);
                let all = Growing::empty(k, ty);
                let read = |part| [0, 1, 2].map(|number| parts.at(number, part, division.column));
                division.each_row(k, read, |part, [near, offset, squares]| {
                    all.join(Sample { count: count_of(part, run, total).to(ty), near, offset, squares });
                });
                shared.of_columns(k, &division, results, &[all.get()], |column, sample| {
                    finish.write(k, column, &sample.moments());
                });
            });
        }
    }
}

impl JoinMoments {
    /// The kernel: a workgroup a column. Buffers: what [`Moments`] wrote of runs; what finishes means and variances. Parameters: the number of columns, of
    /// the runs of each, the length of a run and that of a column; those of what finishes.
    pub fn kernel(&self) -> Kernel {
        Builder::kernel("join_moments", [LINE, 1], |k| self.write(k))
    }

    fn write(&self, k: &Builder) {
        let ty = held_as(self.dtype).value();
        let parts = k.input(held_as(self.dtype));
        let [results, runs, run, total] = [(); 4].map(|()| k.parameter());
        let finish = self.finish.declare(k);
        let (local, column) = (k.builtin(Builtin::LocalIndex), k.group());
        let parts = Parts { buffer: parts, results, runs };
        // A group beyond the last repeats it, so that none leaves before the barriers.
        let column_in = column.min(results - 1_u32);
        let all = Growing::empty(k, ty);
        k.range(local, runs, LINE, |part| {
            let [near, offset, squares] = [0, 1, 2].map(|number| parts.at(number, part, column_in));
            all.join(Sample { count: count_of(part, run, total).to(ty), near, offset, squares });
        });
        let shared = Shared::new(k, ty, LINE);
        shared.set(local, all.get());
        let mut half = LINE / 2;
        while half > 0 {
            k.barrier();
            k.when(local.below(half), || {
                all.join(shared.at(local + half));
                shared.set(local, all.get());
            });
            half /= 2;
        }
        k.when(local.equals(0_u32) & column.below(results), || {
            finish.write(k, column, &all.get().moments());
        });
    }
}

/// What a program makes of the mean and the variance along axes of what stays: of floats that are columns, which one kernel looks at. The variance is that of a
/// whole population, and what is not finite makes both NaN. The program is handed back where there is no such kernel.
pub(crate) fn moments<'a, R: Runtime>(
    x: &GpuTensor<R>,
    axes: &[usize],
    then: ElementwiseProgram<'a, GpuTensor<R>>,
) -> Result<InlineVec<GpuTensor<R>>, ElementwiseProgram<'a, GpuTensor<R>>> {
    columns_of(x, axes, &then).ok_or(then)
}

fn columns_of<R: Runtime>(
    x: &GpuTensor<R>,
    axes: &[usize],
    then: &ElementwiseProgram<'_, GpuTensor<R>>,
) -> Option<InlineVec<GpuTensor<R>>> {
    let (layout, split) = kept_first(&x.layout, axes);
    let walks = Walks::new(&layout, split);
    let neighbours = walks.columns::<R>(&x.device).filter(|_| x.dtype.is_float() && x.is_visible())?;
    let neighbours = columns::that_fit::<R>(&x.device, neighbours, 4, x.dtype)?;
    let (results, device, dtype) = (walks.results, &x.device, computed_in(x.dtype));
    let finishing = Finishing::new(device, &[dtype; 2], &without(&x.shape(), axes), then)?;
    // With the elements, and what is left of runs.
    if finishing.tensors().count() + 2 > R::limits(device).bindings {
        return None;
    }
    let cut = Cut::of_columns::<R>(device, neighbours, &walks, 3);
    let Reduction { template, mut words, groups } = Reduction::of_columns::<R>(device, x.dtype, &walks, cut);
    let (dtype_of_x, kept, reduced) = (x.dtype, template.kept, template.reduced);
    let of = |found| Moments { dtype: dtype_of_x, kept, reduced, neighbours, found };
    let of_runs = || GpuTensor::empty(Shape::from([3, cut.runs, results]), dtype, device);
    if cut.runs == 1 {
        words.extend_from_slice(&finishing.words);
        let tensors: SmallVec<[_; 8]> = [x].into_iter().chain(finishing.tensors()).collect();
        launch::<R>(device, of(Found::OfColumns(finishing.template.clone())), &tensors, &words, groups);
    } else if cut.joins {
        words.extend_from_slice(&finishing.words);
        let parts = of_runs();
        let tensors: SmallVec<[_; 8]> = [x, &parts].into_iter().chain(finishing.tensors()).collect();
        launch::<R>(device, of(Found::Joined(finishing.template.clone())), &tensors, &words, groups);
    } else {
        let parts = of_runs();
        launch::<R>(device, of(Found::OfRuns), &[x, &parts], &words, groups);
        let counts = [results, cut.runs, cut.run, walks.total].into_iter().map(|n| n as u32);
        let words: SmallVec<[u32; 16]> = counts.chain(finishing.words.iter().copied()).collect();
        let tensors: SmallVec<[_; 8]> = [&parts].into_iter().chain(finishing.tensors()).collect();
        let groups = line_of_groups::<R>(device, results);
        launch::<R>(
            device,
            JoinMoments { dtype, finish: finishing.template.clone() },
            &tensors,
            &words,
            groups,
        );
    }
    Some(finishing.results)
}
