//! Reductions of dims.

use super::access::{self, Access, Operand, Walk};
use super::elementwise;
use super::epilogue::{self, EpilogueProgram};
use super::rows::Division;
use super::source::{Computed, Program, Reader, Reads, Source};
use super::tiles::WARP;
use super::{LINE, line_of, line_of_groups, program};
use crate::language::{Array, Binary, Builder, Builtin, Kernel, Storage, Type, Value};
use crate::runtime::{Runtime, Subgroups};
use crate::tensor::{GpuTensor, MOST_READ, computed_in, counted, held_as};
use columns::{Columns, Parts};
use core::ops::RangeInclusive;
use kiln_tensor::backend::{Layout, Primitive};
use kiln_tensor::{CumulativeOp, DType, Dims, ReduceOp, Scalar, ScatterOp, Shape};
use smallvec::SmallVec;

mod columns;
mod extremes;
mod finish;
mod moments;
mod sums;

pub use extremes::ArgReduce;
pub(crate) use extremes::arg_reduce;
pub use finish::Finish;
pub(crate) use moments::moments;
pub use moments::{Found, JoinMoments, Moments};
pub(crate) use sums::sums;

/// How two numbers become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reducer {
    /// Sum.
    Sum,
    /// Product.
    Prod,
    /// Larger; NaN if either is.
    Max,
    /// Smaller; NaN if either is.
    Min,
    /// Either is true.
    Any,
    /// Both are.
    All,
}

impl Reducer {
    pub(super) fn of(op: CumulativeOp) -> Self {
        match op {
            CumulativeOp::Sum => Reducer::Sum,
            CumulativeOp::Prod => Reducer::Prod,
            CumulativeOp::Max => Reducer::Max,
            CumulativeOp::Min => Reducer::Min,
        }
    }

    /// How values meet that are scattered to one place, unless they replace each other.
    pub(super) fn of_scattered(op: ScatterOp) -> Option<Self> {
        match op {
            ScatterOp::Add => Some(Reducer::Sum),
            ScatterOp::Mul => Some(Reducer::Prod),
            ScatterOp::Max => Some(Reducer::Max),
            ScatterOp::Min => Some(Reducer::Min),
            ScatterOp::Assign => None,
        }
    }

    /// What changes no element of a kind, and is one itself.
    pub(super) fn neutral_of(self, k: &Builder, storage: Storage) -> Value<'_> {
        match (self, storage) {
            (Reducer::Max, Storage::I16) => k.value(i32::from(i16::MIN)),
            (Reducer::Max, Storage::I8) => k.value(i32::from(i8::MIN)),
            (Reducer::Min, Storage::I16) => k.value(i32::from(i16::MAX)),
            (Reducer::Min, Storage::I8) => k.value(i32::from(i8::MAX)),
            (Reducer::Min, Storage::U16) => k.value(u32::from(u16::MAX)),
            (Reducer::Min, Storage::U8) => k.value(u32::from(u8::MAX)),
            (Reducer::Sum | Reducer::Prod | Reducer::Max | Reducer::Min | Reducer::Any | Reducer::All, _) => {
                self.neutral(k, storage.value())
            }
        }
    }

    /// What changes no number of a type.
    pub(super) fn neutral(self, k: &Builder, ty: Type) -> Value<'_> {
        match (self, ty) {
            (Reducer::Max, Type::F64) => k.double(f64::NEG_INFINITY),
            (Reducer::Min, Type::F64) => k.double(f64::INFINITY),
            (Reducer::Max, Type::F32) => k.value(f32::NEG_INFINITY),
            (Reducer::Min, Type::F32) => k.value(f32::INFINITY),
            (Reducer::Max, Type::I64) => k.value(i64::MIN),
            (Reducer::Min, Type::I64) => k.value(i64::MAX),
            (Reducer::Max, Type::I32) => k.value(i32::MIN),
            (Reducer::Min, Type::I32) => k.value(i32::MAX),
            (Reducer::Min, Type::U64) => k.value(u64::MAX),
            (Reducer::Min, Type::U32) => k.value(u32::MAX),
            // A sum of truth values is their "or", a product their "and".
            (Reducer::Any, _) | (Reducer::Sum | Reducer::Max, Type::Bool) => k.value(false),
            (Reducer::All, _) | (Reducer::Prod | Reducer::Min, Type::Bool) => k.value(true),
            (Reducer::Sum, Type::F64 | Type::F32 | Type::I64 | Type::I32 | Type::U64 | Type::U32)
            | (Reducer::Max, Type::U64 | Type::U32) => k.whole(0, ty),
            (Reducer::Prod, Type::F64 | Type::F32 | Type::I64 | Type::I32 | Type::U64 | Type::U32) => {
                k.whole(1, ty)
            }
        }
    }

    /// Two numbers as one.
    pub(super) fn join<'k>(self, a: Value<'k>, b: Value<'k>) -> Value<'k> {
        match self {
            Reducer::Sum | Reducer::Max | Reducer::Any if a.ty() == Type::Bool => a | b,
            Reducer::Prod | Reducer::Min | Reducer::All if a.ty() == Type::Bool => a & b,
            Reducer::Sum => a + b,
            Reducer::Prod => a * b,
            Reducer::Max => a.maximum(b),
            Reducer::Min => a.minimum(b),
            Reducer::Any => a | b,
            Reducer::All => a & b,
        }
    }

    /// The numbers of all lanes of a warp as one, the same for each of them.
    pub(super) fn join_warp(self, x: Value<'_>) -> Value<'_> {
        [16, 8, 4, 2, 1].into_iter().fold(x, |x, lanes| self.join(x, x.exchanged(lanes)))
    }

    /// The numbers of all invocations of a subgroup as one.
    fn join_subgroup(self, x: Value<'_>) -> Value<'_> {
        let truths = x.ty() == Type::Bool;
        let op = match self {
            Reducer::Sum if !truths => Binary::Add,
            Reducer::Prod if !truths => Binary::Mul,
            Reducer::Any | Reducer::Sum => Binary::Or,
            Reducer::All | Reducer::Prod => Binary::And,
            Reducer::Max if truths => Binary::Or,
            Reducer::Min if truths => Binary::And,
            Reducer::Max => Binary::Max,
            Reducer::Min => Binary::Min,
        };
        let joined = x.join_subgroup(op);
        // What a device makes of NaN is its own.
        match self {
            Reducer::Max | Reducer::Min if x.ty().is_float() => {
                x.is_nan().join_subgroup(Binary::Or).select(f32::NAN, joined)
            }
            Reducer::Sum | Reducer::Prod | Reducer::Max | Reducer::Min | Reducer::Any | Reducer::All => {
                joined
            }
        }
    }
}

/// A reduction of a run of positions into one, for each of the dims that stay.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reduce {
    /// How.
    pub reducer: Reducer,
    /// Whether the result is divided by a number that is told.
    pub mean: bool,
    /// The elements' dtype.
    pub dtype: DType,
    /// The results' dtype, which is computed as the elements' is.
    pub result: DType,
    /// How the dims that stay are walked, and over how many dims strides are told.
    pub kept: (Access, usize),
    /// Likewise the dims that are reduced.
    pub reduced: (Access, usize),
    /// What reduces a run.
    pub by: By,
    /// What joins the numbers of a workgroup that reduces one.
    pub subgroups: Subgroups,
    /// What yields the elements. Each of its results is reduced, the results of one after those of the other.
    pub from: Program,
    /// What yields an operand of that, of which each element is read once.
    pub computed: Option<Computed>,
    /// Whether the workgroup that is the last with a run of its [columns](By::Columns) joins what all of them found.
    pub joins: bool,
    /// What is made of the numbers of all tensors, if they are not the results.
    pub finish: Option<Finish>,
    /// What is done to each result after that.
    pub epilogues: Vec<EpilogueProgram>,
}

/// What reduces a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum By {
    /// An invocation.
    Invocation,
    /// A warp.
    Warp,
    /// A workgroup.
    Workgroup,
    /// A workgroup, together with those that lie beside it.
    Columns {
        /// So many of them an invocation reads, one or four.
        neighbours: u32,
    },
}

impl Reduce {
    /// The buffers that it writes beside that of its result: of what it computes for others, and of what it finds of runs.
    pub(super) fn written_beside(&self) -> SmallVec<[usize; 2]> {
        let mut written = SmallVec::new();
        let mut read = self.from.as_ref().map_or(1, |program| program.buffers());
        if let Some(Computed { by, .. }) = &self.computed {
            written.push(by.place_of_result());
            // In the place of the operand that it yields.
            read += by.buffers();
        }
        written.extend(self.joins.then_some(read));
        written
    }

    /// The kernel. Buffers: of what yields the elements; what is found of runs, if it joins that; the result, or those of what [finishes](Finish) it.
    /// Parameters: those of what yields the elements; the number of results (of [columns](By::Columns): of one tensor's, without their
    /// runs), of runs a result, the length of a run and that of all of a result's runs; dims and operand of what stays, dims and operand of what is
    /// reduced; the divisor; those of what finishes.
    pub fn kernel(&self) -> Kernel {
        let ty = held_as(self.dtype).value();
        Builder::kernel("reduce", [LINE, 1], |k| {
            let neighbours = match self.by {
                By::Columns { neighbours } => neighbours,
                By::Invocation | By::Warp | By::Workgroup => 1,
            };
            let tensors = self.from.as_ref().map_or(1, |program| program.results.len()) as u32;
            let input = Source::declare_of(k, self.dtype, &self.from, neighbours, &self.computed);
            let left = self.joins.then(|| k.output(held_as(computed_in(self.dtype))));
            let output = self.finish.is_none().then(|| k.output(held_as(self.result)));
            let (results, runs, run, total) = (k.parameter(), k.parameter(), k.parameter(), k.parameter());
            let kept_dims = k.parameters(self.kept.1);
            let kept = Operand::declare(k, self.kept.0, self.kept.1);
            let reduced_dims = k.parameters(self.reduced.1);
            let reduced = Operand::declare(k, self.reduced.0, self.reduced.1);
            let divisor = self.mean.then(|| k.parameter_of(ty));
            let finish = self.finish.as_ref().map(|finish| finish.declare(k));
            let epilogues = epilogue::declare(k, &self.epilogues);

            // Reduces a run of each tensor from its `first` position on, in steps.
            let neutral = self.reducer.neutral_of(k, held_as(self.dtype));
            let reduce = |result: Value<'_>, first: Value<'_>, step: Value<'_>| -> Vec<_> {
                let (place, part) = (result / runs, result % runs);
                let base = kept.at(place, &access::coordinates(place, &kept_dims));
                let [start, end] = run_of(part, run, total);
                let sums: Vec<_> = (0..tensors).map(|_| k.variable(neutral)).collect();
                k.range(start + first, end, step, |position| {
                    let at = reduced.at(position, &access::coordinates(position, &reduced_dims));
                    let elements = input.neighbours(base + at, 1);
                    sums.iter().zip(elements).for_each(|(sum, x)| sum.set(self.reducer.join(sum.get(), x)));
                });
                sums.iter().map(|sum| sum.get()).collect()
            };
            // Writes the sums of a place, of which there are so many for each tensor.
            let write_all = |place: Value<'_>, places: Value<'_>, sums: &[Value<'_>]| {
                let sums: Vec<_> =
                    sums.iter().map(|&sum| divisor.map_or(sum, |divisor| sum / divisor)).collect();
                match (&finish, &output) {
                    (Some(finish), _) => finish.write(k, place, &sums),
                    (None, Some(output)) => {
                        for (tensor, &sum) in (0_u32..).zip(&sums) {
                            let result = if tensor > 0 { place + places * tensor } else { place };
                            output.set(result, epilogue::apply(&epilogues, result, sum));
                        }
                    }
                    (None, None) => {}
                }
            };
            match self.by {
                By::Invocation => {
                    let result = k.position(LINE);
                    k.when(result.below(results), || {
                        write_all(result, results, &reduce(result, k.value(0_u32), k.value(1_u32)));
                    });
                }
                By::Warp | By::Workgroup => {
                    let lanes = if self.by == By::Warp { WARP } else { LINE };
                    let (lane, result) = Division::place(k, lanes, LINE / lanes);
                    // Who is beyond the last repeats it, so that none leaves before the barriers.
                    let result_in = result.min(results - 1_u32);
                    let mut sums = reduce(result_in, lane, k.value(lanes));
                    let group = Group::new(k, ty, lane, lanes, self.subgroups);
                    for (tensor, sum) in sums.iter_mut().enumerate() {
                        if tensor > 0 {
                            group.settle();
                        }
                        *sum = group.join(self.reducer, *sum);
                    }
                    k.when(lane.equals(0_u32) & result.below(results), || write_all(result, results, &sums));
                }
                By::Columns { .. } => {
                    let base = |column| kept.at(column, &access::coordinates(column, &kept_dims));
                    let at = |row| reduced.at(row, &access::coordinates(row, &reduced_dims));
                    let (reducer, input, size) = (self.reducer, &input, [results, runs, run, total]);
                    let parts = left.map(|buffer| Parts { buffer, results, runs });
                    let columns = Columns { k, reducer, input, tensors, neighbours, size, parts };
                    let places = if self.joins { results } else { results * runs };
                    columns.write((neutral, ty), base, at, |column, part, sums| {
                        let place = if self.joins { column } else { column * runs + part };
                        write_all(place, places, sums);
                    });
                }
            }
        })
    }
}

/// Invocations that make one number of theirs.
pub(super) struct Group<'k> {
    pub k: &'k Builder,
    /// For the numbers that a workgroup shares, and how many of each there are; a single warp has no use for it.
    shared: Option<(Array<'k>, u32)>,
    /// The invocation's place among them.
    pub local: Value<'k>,
    /// How many there are.
    pub lanes: u32,
    subgroups: Subgroups,
}

impl<'k> Group<'k> {
    /// All `lanes` of a workgroup, or those of each of its warps, with numbers of a type.
    pub(super) fn new(k: &'k Builder, ty: Type, local: Value<'k>, lanes: u32, subgroups: Subgroups) -> Self {
        Self::of_several(k, ty, local, lanes, subgroups, 1)
    }

    /// Likewise with room for several numbers of each, which are [joined together](Self::join_all).
    pub(super) fn of_several(
        k: &'k Builder,
        ty: Type,
        local: Value<'k>,
        lanes: u32,
        subgroups: Subgroups,
        numbers: u32,
    ) -> Self {
        let length = match subgroups {
            // Subgroups may have a lane each.
            Subgroups::None | Subgroups::OfAnySize => Some(lanes),
            Subgroups::Warps => (lanes > WARP).then_some(lanes / WARP),
        };
        let shared = length.map(|length| (k.shared(ty, length * numbers), length));
        Self { k, shared, local, lanes, subgroups }
    }

    /// Waits until all have read what the last [`join`](Self::join) shared, so that the next overwrites nothing.
    pub(super) fn settle(&self) {
        if self.shared.is_some() {
            self.k.barrier();
        }
    }

    /// What the numbers of all invocations make together; for all of them. What was shared before was read.
    pub(super) fn join(&self, reducer: Reducer, own: Value<'k>) -> Value<'k> {
        let [joined] = self.join_all(reducer, [own]);
        joined
    }

    /// [`Group::join`] of several numbers of each, between the same barriers: of as many as there is room for.
    pub(super) fn join_all<const N: usize>(&self, reducer: Reducer, own: [Value<'k>; N]) -> [Value<'k>; N] {
        let (k, local) = (self.k, self.local);
        let own = own.map(|own| match self.subgroups {
            Subgroups::None => own,
            Subgroups::OfAnySize => reducer.join_subgroup(own),
            Subgroups::Warps => reducer.join_warp(own),
        });
        let Some((shared, length)) = self.shared else { return own };
        // The numbers of all invocations one after another, then the next ones.
        let at = |n: usize, place: Value<'k>| if n > 0 { place + length * n as u32 } else { place };
        let share = |place: Value<'k>| {
            own.iter().enumerate().for_each(|(n, &own)| shared.set(at(n, place), own));
        };
        let all = core::array::from_fn::<usize, N, _>(|n| n);
        match self.subgroups {
            Subgroups::None => {
                share(local);
                let mut half = self.lanes / 2;
                while half > 0 {
                    k.barrier();
                    k.when(local.below(half), || {
                        for n in all {
                            let own = at(n, local);
                            let left = shared.at(own);
                            shared.set(own, reducer.join(left, shared.at(at(n, local + half))));
                        }
                    });
                    half /= 2;
                }
                k.barrier();
                all.map(|n| shared.at(k.value(n as u32 * length)))
            }
            Subgroups::OfAnySize => {
                k.when(k.builtin(Builtin::SubgroupLane).equals(0_u32), || {
                    share(k.builtin(Builtin::Subgroup))
                });
                k.barrier();
                // However many subgroups a device makes of a workgroup.
                let joined = all.map(|n| k.variable(shared.at(k.value(n as u32 * length))));
                k.range(1_u32, k.builtin(Builtin::Subgroups), 1_u32, |subgroup| {
                    for (n, joined) in joined.iter().enumerate() {
                        joined.set(reducer.join(joined.get(), shared.at(at(n, subgroup))));
                    }
                });
                joined.map(|joined| joined.get())
            }
            Subgroups::Warps => {
                k.when((local % WARP).equals(0_u32), || share(local / WARP));
                k.barrier();
                all.map(|n| {
                    let of_warp = |warp: u32| shared.at(k.value(n as u32 * length + warp));
                    (1..self.lanes / WARP).fold(of_warp(0), |all, warp| reducer.join(all, of_warp(warp)))
                })
            }
        }
    }
}

/// What joins numbers of a dtype. Those of 64 bits may be pairs of words, of which subgroups of any size know nothing.
pub(super) fn subgroups_of<R: Runtime>(device: &R::Device, dtype: DType) -> Subgroups {
    match R::limits(device).subgroups {
        Subgroups::OfAnySize if held_as(dtype).value().words() > 1 => Subgroups::None,
        subgroups @ (Subgroups::None | Subgroups::OfAnySize | Subgroups::Warps) => subgroups,
    }
}

/// The longest run that one invocation reduces: the error of a sum grows with it.
const LONGEST: usize = 1024;
/// Elements that a warp reduces, where there are warps: a workgroup would have nothing for most of its invocations to do.
const OF_WARP: RangeInclusive<usize> = 16..=LINE as usize;
/// Results of which invocations for each fill a device.
const MANY: usize = 1 << 15;
/// Results of which a workgroup for each is worth it, though its invocations read elements far apart.
const FEW: usize = 1024;

/// The first position of a part of so many runs, and the first behind it: none is beyond the last of all, and no sum more than 32 bits hold.
fn run_of<'k>(part: Value<'k>, run: Value<'k>, total: Value<'k>) -> [Value<'k>; 2] {
    let start = (part * run).min(total);
    [start, start + run.min(total - start)]
}

/// Reduces the dims in `axes`, which stay with size 1.
pub(crate) fn reduce<R: Runtime>(op: ReduceOp, tensor: GpuTensor<R>, axes: &[usize]) -> GpuTensor<R> {
    counted(&tensor.shape(), MOST_READ);
    let shape = without(&tensor.shape(), axes);
    let count: usize = axes.iter().map(|&axis| tensor.dims()[axis]).product();
    let mean = op == ReduceOp::Mean;
    if count == 0 && mean && tensor.dtype.is_float() {
        return elementwise::full(shape, Scalar::Float(f64::NAN), tensor.dtype, &tensor.device);
    }
    let reducer = match op {
        ReduceOp::Sum | ReduceOp::Mean => Reducer::Sum,
        ReduceOp::Prod => Reducer::Prod,
        ReduceOp::Max => Reducer::Max,
        ReduceOp::Min => Reducer::Min,
        ReduceOp::Any => Reducer::Any,
        ReduceOp::All => Reducer::All,
    };
    let (layout, split) = kept_first(&tensor.layout, axes);
    let divisor = mean.then_some(count.max(1));
    let dtype = tensor.dtype;
    let reduced = reduce_last(reducer, divisor, tensor.with_layout(layout), split, dtype);
    reduced.with_layout(Layout::contiguous(shape))
}

/// A shape in which the dims in `axes` have size 1.
fn without(shape: &Shape, axes: &[usize]) -> Shape {
    let mut shape = shape.clone();
    axes.iter().for_each(|&axis| shape.dims[axis] = 1);
    shape
}

/// A layout with the dims first that stay, and how many those are.
fn kept_first(layout: &Layout, axes: &[usize]) -> (Layout, usize) {
    let rank = layout.shape.rank();
    let kept = (0..rank).filter(|axis| !axes.contains(axis));
    let order: Dims = kept.chain(axes.iter().copied()).collect();
    (layout.permute(&order), rank - axes.len())
}

/// How a tensor is walked whose last dims are reduced.
struct Walks {
    /// The dims that stay.
    kept: Walk,
    reduced: Walk,
    /// Number of positions along the dims that stay.
    results: usize,
    /// And along those that are reduced.
    total: usize,
    /// Where the first element is.
    start: usize,
}

impl Walks {
    /// The dims from `split` on are reduced.
    fn new(layout: &Layout, split: usize) -> Self {
        let (kept, reduced) = layout.shape.dims.split_at(split);
        let (kept_strides, reduced_strides) = layout.strides.split_at(split);
        Self {
            kept: Walk::new(kept, &[kept_strides]),
            reduced: Walk::new(reduced, &[reduced_strides]),
            results: kept.iter().product(),
            total: reduced.iter().product(),
            start: layout.offset,
        }
    }

    /// Whether what is reduced lies together: then neighbouring invocations read neighbours along the run, else along the results.
    fn lie_together(&self) -> bool {
        self.reduced.strides[0].last().is_none_or(|stride| stride.unsigned_abs() == 1)
    }

    /// How many columns an invocation reads, if a device reduces them [as such](columns).
    fn columns<R: Runtime>(&self, device: &R::Device) -> Option<u32> {
        let may = !self.lie_together() && R::limits(device).shared_memory;
        if may { columns::neighbours(&self.kept, &self.reduced, self.start) } else { None }
    }
}

/// What reduces runs, how many of them there are a result, and how long they are.
#[derive(Clone, Copy)]
struct Cut {
    by: By,
    runs: usize,
    run: usize,
    /// Whether the kernel also joins what it finds of them.
    joins: bool,
}

impl Cut {
    /// So many runs of `total` elements; one at least.
    fn new(by: By, runs: usize, total: usize) -> Self {
        let runs = runs.max(1);
        Self { by, runs, run: total.div_ceil(runs), joins: false }
    }

    /// Columns of which an invocation reads so many, and so many numbers are left of each run.
    fn of_columns<R: Runtime>(device: &R::Device, neighbours: u32, walks: &Walks, numbers: usize) -> Self {
        let runs = columns::runs(R::limits(device).multiprocessors, walks.results, walks.total);
        let cut = Self::new(By::Columns { neighbours }, runs, walks.total);
        Self { joins: columns::joins::<R>(device, walks.results, cut.runs, numbers), ..cut }
    }

    /// Runs of each result that are left to be joined by another kernel, one where there are none.
    fn left(&self) -> usize {
        if self.joins { 1 } else { self.runs }
    }
}

/// What reduces the dims that `walks` goes over, of so many tensors of elements of a dtype.
fn cut<R: Runtime>(device: &R::Device, dtype: DType, walks: &Walks, tensors: usize) -> Cut {
    if let Some(neighbours) = walks.columns::<R>(device) {
        return Cut::of_columns::<R>(device, neighbours, walks, tensors);
    }
    let &Walks { results, total, .. } = walks;
    // Where there are not many results, an invocation for each leaves a device waiting for memory.
    let least = if R::limits(device).shared_memory && results < MANY { 16 } else { 64 };
    let has_warps = subgroups_of::<R>(device, dtype) == Subgroups::Warps;
    let (by, runs) = if has_warps && walks.lie_together() && OF_WARP.contains(&total) {
        (By::Warp, 1)
    } else if total >= least && (walks.lie_together() || results < FEW) {
        (By::Workgroup, total.div_ceil(LONGEST * LINE as usize))
    } else {
        (By::Invocation, total.div_ceil(LONGEST))
    };
    Cut::new(by, runs, total)
}

/// Reduces the dims from `split` on into one number of `dtype`, and divides the result.
fn reduce_last<R: Runtime>(
    reducer: Reducer,
    divisor: Option<usize>,
    tensor: GpuTensor<R>,
    split: usize,
    dtype: DType,
) -> GpuTensor<R> {
    let walks = Walks::new(&tensor.layout, split);
    let cut = cut::<R>(&tensor.device, tensor.dtype, &walks, 1);
    if cut.left() == 1 {
        return reduce_walked(reducer, divisor, tensor, &walks, cut, dtype);
    }
    // What is reduced so far is kept as it is computed: narrow integers would wrap, halves lose digits.
    let parts = reduce_walked(reducer, None, tensor, &walks, cut, computed_in(dtype));
    reduce_last(reducer, divisor, parts, 1, dtype)
}

impl<R: Runtime> GpuTensor<R> {
    /// A row-major tensor of a shape that begins at an element of this one, which lies from the start of its memory.
    fn part_of(&self, start: usize, shape: &Shape) -> Self {
        let layout = Layout { offset: start, ..Layout::contiguous(shape.clone()) };
        self.clone().with_layout(layout)
    }
}

/// The sums of parts, `[parts, …]`, as a tensor of `dtype` and a shape; a single part, which has the dtype, is that.
pub(super) fn reduce_leading<R: Runtime>(parts: GpuTensor<R>, dtype: DType, shape: &Shape) -> GpuTensor<R> {
    if parts.dims()[0] == 1 {
        let layout = Layout { offset: parts.layout.offset, ..Layout::contiguous(shape.clone()) };
        return parts.with_layout(layout);
    }
    let layout = parts.layout.permute(&[1, 0]);
    let reduced = reduce_last(Reducer::Sum, None, parts.with_layout(layout), 1, dtype);
    reduced.with_layout(Layout::contiguous(shape.clone()))
}

/// Reduces the dims from `split` on in `runs` of a length, a workgroup each, into one number of `dtype`: `[results, runs]`.
pub(super) fn reduce_runs<R: Runtime>(
    reducer: Reducer,
    tensor: GpuTensor<R>,
    split: usize,
    (runs, run): (usize, usize),
    dtype: DType,
) -> GpuTensor<R> {
    let walks = Walks::new(&tensor.layout, split);
    reduce_walked(reducer, None, tensor, &walks, Cut { by: By::Workgroup, runs, run, joins: false }, dtype)
}

/// Reduces runs of a tensor.
fn reduce_walked<R: Runtime>(
    reducer: Reducer,
    divisor: Option<usize>,
    tensor: GpuTensor<R>,
    walks: &Walks,
    cut: Cut,
    dtype: DType,
) -> GpuTensor<R> {
    let device = &tensor.device.clone();
    let out = GpuTensor::empty(Shape::from([walks.results, cut.left()]), dtype, device);
    if walks.results == 0 {
        return out;
    }
    let left = cut
        .joins
        .then(|| GpuTensor::empty(Shape::from([cut.runs, walks.results]), computed_in(tensor.dtype), device));
    let Reduction { template, words, groups } =
        Reduction::new::<R>(device, (reducer, divisor), (tensor.dtype, dtype), walks, cut);
    let neighbours = match cut.by {
        By::Columns { neighbours } => neighbours,
        By::Invocation | By::Warp | By::Workgroup => 1,
    };
    let reader =
        Reader { reads: Reads::Once, shares: false, neighbours, others: &[], left, words: &words, groups };
    reader.launch(tensor, out, |from, _| Reduce { from, ..template.clone() })
}

/// A reduction of runs, but for what yields the elements.
struct Reduction {
    /// The kernel, of elements in memory.
    template: Reduce,
    /// Its parameters.
    words: SmallVec<[u32; 32]>,
    groups: [u32; 3],
}

impl Reduction {
    /// A reduction of elements of one dtype into numbers of another, which are divided at last if there is a divisor.
    fn new<R: Runtime>(
        device: &R::Device,
        (reducer, divisor): (Reducer, Option<usize>),
        (own, dtype): (DType, DType),
        &Walks { ref kept, ref reduced, results, total, start }: &Walks,
        Cut { by, runs, run, joins }: Cut,
    ) -> Self {
        let word = |n: usize| n as u32;
        let mut words: SmallVec<[u32; 32]> = SmallVec::new();
        let (counted, groups) = match by {
            By::Invocation => (results * runs, line_of::<R>(device, results * runs)),
            By::Warp => {
                let groups = (results * runs).div_ceil((LINE / WARP) as usize);
                (results * runs, line_of_groups::<R>(device, groups))
            }
            By::Workgroup => (results * runs, line_of_groups::<R>(device, results * runs)),
            By::Columns { .. } => (results, line_of_groups::<R>(device, columns::groups(results) * runs)),
        };
        words.extend([word(counted), word(runs), word(run), word(total)]);
        for (walk, start) in [(kept, start), (reduced, 0)] {
            if walk.access(0) == Access::Strided {
                words.extend(walk.dim_words());
            }
            words.push(word(start));
            words.extend(walk.stride_words(0));
        }
        if let Some(divisor) = divisor {
            words.extend(program::scalar_words(Scalar::from(divisor), computed_in(own)));
        }
        let rank = |walk: &Walk| match walk.access(0) {
            Access::Strided => (Access::Strided, walk.dims.len()),
            access => (access, 0),
        };
        let subgroups = match by {
            By::Warp | By::Workgroup => subgroups_of::<R>(device, own),
            By::Invocation | By::Columns { .. } => Subgroups::None,
        };
        let template = Reduce {
            reducer,
            mean: divisor.is_some(),
            dtype: own,
            result: dtype,
            kept: rank(kept),
            reduced: rank(reduced),
            by,
            subgroups,
            from: None,
            computed: None,
            joins,
            finish: None,
            epilogues: Vec::new(),
        };
        Self { template, words, groups }
    }

    /// What a reduction of columns, in runs of so many rows, is told of them.
    fn of_columns<R: Runtime>(device: &R::Device, dtype: DType, walks: &Walks, cut: Cut) -> Self {
        Self::new::<R>(device, (Reducer::Sum, None), (dtype, computed_in(dtype)), walks, cut)
    }
}
