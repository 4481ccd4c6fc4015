//! What is computed of whole rows: softmax and norms over the last dim.

use super::direct::LANES;
use super::epilogue::{self, EpilogueProgram};
use super::reduce::{Group, Reducer, subgroups_of};
use super::source::{Program, Reader, Reads, Source};
use super::tiles::WARP;
use super::{LINE, elementwise, line_of_groups, program};
use crate::language::{Builder, Builtin, Kernel, Type, Value};
use crate::runtime::{Runtime, Subgroups};
use crate::tensor::{GpuTensor, computed_in, held_as};
use kiln_tensor::backend::{Layout, Primitive};
use kiln_tensor::{DType, Scalar};

/// What is computed of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RowOp {
    /// `e^(x - max) / Σ e^(x - max)`.
    Softmax,
    /// `x - max - ln Σ e^(x - max)`.
    LogSoftmax,
    /// `(x - mean) / √(variance + ε) · weight`, and a bias if there is one.
    LayerNorm {
        /// Whether a bias is added.
        bias: bool,
    },
    /// `x / √(mean of x² + ε) · weight`.
    RmsNorm,
}

impl RowOp {
    /// Sums that are found together.
    fn sums(self) -> u32 {
        match self {
            RowOp::LayerNorm { .. } => 2,
            RowOp::Softmax | RowOp::LogSoftmax | RowOp::RmsNorm => 1,
        }
    }
}

/// A row of each workgroup, or of each of its warps.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rows {
    /// What is computed.
    pub op: RowOp,
    /// The elements' dtype.
    pub dtype: DType,
    /// Invocations of a row.
    pub lanes: u32,
    /// Rows of a workgroup: several where each is a warp's.
    pub rows: u32,
    /// Elements of a row that an invocation keeps, so that memory is asked for all of them at once, and only once; nothing where rows are
    /// too long for that, or their kernels run on a CPU, whose caches keep them.
    pub kept: Option<u32>,
    /// What joins the numbers of a row's invocations.
    pub subgroups: Subgroups,
    /// What yields the elements.
    pub from: Program,
    /// Whether they are written too, for who else reads them: of those that are kept.
    pub shares: bool,
    /// What is done to each result after that.
    pub epilogues: Vec<EpilogueProgram>,
}

impl Rows {
    /// The kernel. Buffers: the rows, or what yields them and, if it is shared, what that is; then weight and bias where the operation has them, then the result. Parameters: those of
    /// what yields the elements; the number of rows, their length, where the first starts; ε and where weight and bias start, where the operation has them.
    pub fn kernel(&self) -> Kernel {
        Builder::kernel("rows", [self.lanes * self.rows, 1], |k| self.write(k))
    }

    fn write<'k>(&self, k: &'k Builder) {
        let storage = held_as(self.dtype);
        let ty = storage.value();
        let x = Source::declare_shared(k, self.dtype, &self.from, self.shares);
        let (weighted, biased) = match self.op {
            RowOp::Softmax | RowOp::LogSoftmax => (false, false),
            RowOp::LayerNorm { bias } => (true, bias),
            RowOp::RmsNorm => (true, false),
        };
        let weight = weighted.then(|| k.input(storage));
        let bias = biased.then(|| k.input(storage));
        let output = k.output(storage);
        let (rows, length, start) = (k.parameter(), k.parameter(), k.parameter());
        let epsilon = weighted.then(|| k.parameter_of(ty));
        let weight = weight.map(|weight| (weight, k.parameter()));
        let bias = bias.map(|bias| (bias, k.parameter()));
        let epilogues = epilogue::declare(k, &self.epilogues);

        let (local, number) = Division::place(k, self.lanes, self.rows);
        // What is beyond the last row repeats it, so that no invocation leaves before numbers are joined.
        let row = number.min(rows - 1_u32) * length;
        let group = Group::of_several(k, ty, local, self.lanes, self.subgroups, self.op.sums());
        let read = |at: Value<'k>| x.at(start + row + at);
        let elements = match self.kept {
            Some(kept) => Elements::kept(kept, &group, length, read),
            None => Elements::Read(&read),
        };
        let sums = Sums { group, ty, length };
        if self.shares {
            k.when(number.below(rows), || {
                sums.each(&elements, |at, element| x.write_shared(start + row + at, element))
            });
        }
        let write =
            |at: Value<'k>, y: Value<'k>| output.set(row + at, epilogue::apply(&epilogues, row + at, y));
        let each = |result: &dyn Fn(Value<'k>, Value<'k>) -> Value<'k>| {
            k.when(number.below(rows), || sums.each(&elements, |at, x| write(at, result(at, x))));
        };
        match self.op {
            RowOp::Softmax | RowOp::LogSoftmax => {
                let largest = sums.reduce_all(Reducer::Max, &elements, |x| x);
                let sum = sums.reduce_all(Reducer::Sum, &elements, |x| (x - largest).exp());
                let logarithm = sum.log();
                each(&|_, x| {
                    let shifted = x - largest;
                    match self.op {
                        RowOp::LogSoftmax => shifted - logarithm,
                        RowOp::Softmax | RowOp::LayerNorm { .. } | RowOp::RmsNorm => shifted.exp() / sum,
                    }
                });
            }
            RowOp::LayerNorm { .. } | RowOp::RmsNorm => {
                let epsilon = epsilon.unwrap_or_else(|| k.whole(0, ty));
                let centered = matches!(self.op, RowOp::LayerNorm { .. });
                let (center, variance) = sums.moments(&elements, centered, |x| x);
                let scale = k.whole(1, ty) / (variance + epsilon).sqrt();
                each(&|at, x| {
                    let mut y = center.map_or(x, |center| center.from(x)) * scale;
                    if let Some((weight, first)) = weight {
                        y = y * weight.at(first + at);
                    }
                    if let Some((bias, first)) = bias {
                        y = y + bias.at(first + at);
                    }
                    y
                });
            }
        }
    }
}

/// The elements of a row that an invocation has, every so many-th: a number of each, or several.
pub(super) enum Elements<'e, 'k, T> {
    /// Read whenever they are needed.
    Read(&'e dyn Fn(Value<'k>) -> T),
    /// Read once: the position of each, the element, and, of one that the row may be too short for, whether it is there.
    Kept(Vec<(Value<'k>, T, Option<Value<'k>>)>),
}

impl<'k, T> Elements<'_, 'k, T> {
    /// So many elements of each invocation of a group, of a row that has elements for all of them but the last.
    pub(super) fn kept(
        count: u32,
        group: &Group<'k>,
        length: Value<'k>,
        read: impl Fn(Value<'k>) -> T,
    ) -> Self {
        let element = |n: u32| {
            let at = group.local + n * group.lanes;
            let is_there = (n + 1 == count).then(|| at.below(length));
            (at, read(at.min(length - 1_u32)), is_there)
        };
        Elements::Kept((0..count).map(element).collect())
    }
}

/// The mean of a row. Where elements have much in common, their sum is rounded by more than they differ: what that lost is the mean of how far they
/// are from what it yielded.
#[derive(Clone, Copy)]
pub(super) struct Center<'k> {
    rounded: Value<'k>,
    rest: Value<'k>,
}

impl<'k> Center<'k> {
    /// How far a number is from the mean.
    pub fn from(self, x: Value<'k>) -> Value<'k> {
        x - self.rounded - self.rest
    }

    /// The mean, as near as one number comes to it.
    pub fn value(self) -> Value<'k> {
        self.rounded + self.rest
    }
}

/// Reductions of a row by the invocations that share it.
pub(super) struct Sums<'k> {
    pub group: Group<'k>,
    pub ty: Type,
    pub length: Value<'k>,
}

impl<'k> Sums<'k> {
    /// The reduction of what `element` yields of each position; for all invocations.
    pub fn reduce(&self, reducer: Reducer, element: impl Fn(Value<'k>) -> Value<'k>) -> Value<'k> {
        let Group { k, local, lanes, .. } = self.group;
        let own = k.variable(reducer.neutral(k, self.ty));
        k.range(local, self.length, lanes, |at| own.set(reducer.join(own.get(), element(at))));
        self.group.settle();
        self.group.join(reducer, own.get())
    }

    /// The reduction of what `number` makes of each element.
    pub fn reduce_all<T: Copy>(
        &self,
        reducer: Reducer,
        elements: &Elements<'_, 'k, T>,
        number: impl Fn(T) -> Value<'k>,
    ) -> Value<'k> {
        let kept = match elements {
            Elements::Read(read) => return self.reduce(reducer, |at| number(read(at))),
            Elements::Kept(kept) => kept,
        };
        let neutral = reducer.neutral(self.group.k, self.ty);
        let own = kept.iter().fold(neutral, |own, &(_, x, is_there)| {
            let number = number(x);
            reducer.join(own, is_there.map_or(number, |is_there| is_there.select(number, neutral)))
        });
        self.group.settle();
        self.group.join(reducer, own)
    }

    /// The sums of what `numbers` makes of each element; of as many as the group has room for.
    pub fn sum_all<T: Copy, const N: usize>(
        &self,
        elements: &Elements<'_, 'k, T>,
        numbers: impl Fn(T) -> [Value<'k>; N],
    ) -> [Value<'k>; N] {
        let Group { k, local, lanes, .. } = self.group;
        let zero = Reducer::Sum.neutral(k, self.ty);
        let own = match elements {
            Elements::Read(read) => {
                let own = [(); N].map(|()| k.variable(zero));
                k.range(local, self.length, lanes, |at| {
                    own.iter().zip(numbers(read(at))).for_each(|(own, number)| own.set(own.get() + number));
                });
                own.map(|own| own.get())
            }
            Elements::Kept(kept) => kept.iter().fold([zero; N], |own, &(_, x, is_there)| {
                let numbers = numbers(x);
                core::array::from_fn(|n| {
                    own[n] + is_there.map_or(numbers[n], |is_there| is_there.select(numbers[n], zero))
                })
            }),
        };
        self.group.settle();
        self.group.join_all(Reducer::Sum, own)
    }

    /// The mean of a number of each element, if that is to be taken away, and the mean of the squares of what is left. A group has room for two sums where
    /// it is.
    pub fn moments<T: Copy>(
        &self,
        elements: &Elements<'_, 'k, T>,
        centered: bool,
        number: impl Fn(T) -> Value<'k>,
    ) -> (Option<Center<'k>>, Value<'k>) {
        let count = self.length.to(self.ty);
        if !centered {
            let square = |x| number(x) * number(x);
            return (None, self.reduce_all(Reducer::Sum, elements, square) / count);
        }
        let rounded = self.reduce_all(Reducer::Sum, elements, &number) / count;
        let [rest, squares] = self.sum_all(elements, |x| {
            let apart = number(x) - rounded;
            [apart, apart * apart]
        });
        let rest = rest / count;
        // What is left of two numbers that are almost the same may be negative.
        let variance = (squares / count - rest * rest).maximum(self.group.k.whole(0, self.ty));
        (Some(Center { rounded, rest }), variance)
    }

    /// Does something with each element and its position.
    pub fn each<T: Copy>(&self, elements: &Elements<'_, 'k, T>, then: impl Fn(Value<'k>, T)) {
        let Group { k, local, lanes, .. } = self.group;
        match elements {
            Elements::Read(read) => k.range(local, self.length, lanes, |at| then(at, read(at))),
            Elements::Kept(kept) => {
                for &(at, x, is_there) in kept {
                    match is_there {
                        Some(is_there) => k.when(is_there, || then(at, x)),
                        None => then(at, x),
                    }
                }
            }
        }
    }
}

/// The longest row of a warp: of a longer one a whole workgroup has more than an element each.
const MOST_OF_WARP: usize = LINE as usize;
/// The same of many rows, whose warps leave no multiprocessor idle: a warp alone waits for no barrier. Layer norms of 48,000 rows of 384
/// took 126 µs on an H200 with a workgroup each, which read each element three times, where memory alone takes 18.
const MOST_OF_ONE_OF_MANY: usize = 1024;
/// So many are many.
const MANY: usize = 1024;
/// Words of elements that an invocation keeps at most.
const MOST_KEPT: usize = 32;

/// Invocations of a workgroup that has a row.
pub(super) fn lanes_of_row<R: Runtime>(device: &R::Device) -> u32 {
    // Without shared memory a barrier costs more than what waits for it: few invocations have few rounds of them.
    if R::limits(device).shared_memory { LINE } else { LANES }
}

/// How rows are divided among invocations.
pub(super) struct Division {
    /// Invocations of a row.
    pub lanes: u32,
    /// Rows of a workgroup: several where each is a warp's.
    pub rows: u32,
    /// Elements that an invocation keeps, if it does.
    pub kept: Option<u32>,
    pub groups: [u32; 3],
}

impl Division {
    /// Of so many rows of `length` elements.
    pub fn of<R: Runtime>(device: &R::Device, dtype: DType, rows: usize, length: usize) -> Self {
        let most_of_warp = if rows >= MANY { MOST_OF_ONE_OF_MANY } else { MOST_OF_WARP };
        let lanes = match subgroups_of::<R>(device, dtype) {
            Subgroups::Warps if length <= most_of_warp => WARP,
            Subgroups::None | Subgroups::OfAnySize | Subgroups::Warps => lanes_of_row::<R>(device),
        };
        let each = length.div_ceil(lanes as usize);
        let is_kept = R::limits(device).shared_memory && each * held_as(dtype).value().words() <= MOST_KEPT;
        let together = if lanes == WARP { LINE / WARP } else { 1 };
        let groups = line_of_groups::<R>(device, rows.div_ceil(together as usize));
        Self { lanes, rows: together, kept: is_kept.then_some(each as u32), groups }
    }

    /// An invocation's place in its row, and the number of that.
    pub fn place(k: &Builder, lanes: u32, rows: u32) -> (Value<'_>, Value<'_>) {
        let (local, group) = (k.builtin(Builtin::LocalIndex), k.group());
        match rows {
            1 => (local, group),
            several => (local % lanes, group * several + local / lanes),
        }
    }
}

/// Rows of `length` elements, row-major, through an operation.
fn run<R: Runtime>(
    op: RowOp,
    x: GpuTensor<R>,
    length: usize,
    parameters: &[GpuTensor<R>],
    epsilon: f64,
) -> GpuTensor<R> {
    let out = GpuTensor::empty(x.shape(), x.dtype, &x.device);
    if out.is_empty() {
        return out;
    }
    let x = elementwise::contiguous(x);
    let rows = x.len() / length;
    let mut words = [rows, length, x.layout.offset].map(|n| n as u32).to_vec();
    if !parameters.is_empty() {
        words.extend(program::scalar_words(Scalar::Float(epsilon), computed_in(x.dtype)));
        words.extend(parameters.iter().map(|parameter| parameter.layout.offset as u32));
    }
    let (dtype, subgroups) = (x.dtype, subgroups_of::<R>(&x.device, x.dtype));
    let Division { lanes, rows, kept, groups } = Division::of::<R>(&x.device, dtype, rows, length);
    let reader = Reader {
        reads: Reads::Again,
        shares: kept.is_some(),
        neighbours: 1,
        others: parameters,
        left: None,
        words: &words,
        groups,
    };
    let template = |from, shares| {
        let epilogues = Vec::new();
        Rows { op, dtype, lanes, rows, kept, subgroups, from, shares, epilogues }
    };
    reader.launch(x, out, template)
}

/// A softmax along `dim`.
pub(crate) fn softmax<R: Runtime>(op: RowOp, x: GpuTensor<R>, dim: usize) -> GpuTensor<R> {
    let rank = x.dims().len();
    let swapped = |layout: &Layout| {
        let mut axes: Vec<usize> = (0..rank).collect();
        axes.swap(dim, rank - 1);
        layout.permute(&axes)
    };
    let (length, layout) = (x.dims()[dim], swapped(&x.layout));
    let y = run(op, x.with_layout(layout), length, &[], 0.0);
    let layout = swapped(&y.layout);
    y.with_layout(layout)
}

/// A norm over the last dims: as many elements as the weight has.
pub(crate) fn norm<R: Runtime>(
    op: RowOp,
    x: GpuTensor<R>,
    weight: GpuTensor<R>,
    bias: Option<GpuTensor<R>>,
    epsilon: f64,
) -> GpuTensor<R> {
    let length = weight.len();
    let parameters: Vec<GpuTensor<R>> =
        [Some(weight), bias].into_iter().flatten().map(elementwise::contiguous).collect();
    run(op, x, length, &parameters, epsilon)
}
