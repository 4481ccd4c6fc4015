//! Running folds, and what is built on running sums: the positions where something is true.

use super::access::{self, Access, Operand, Walk};
use super::reduce::Fold;
use super::{LINE, elementwise, launch, line_of, line_of_groups};
use crate::language::{Builder, Builtin, Kernel, Storage, Type};
use crate::runtime::Runtime;
use crate::tensor::{GpuTensor, element_bytes, held_as};
use kiln_tensor::backend::{Layout, Primitive};
use kiln_tensor::{CumulativeOp, DType, Shape};

/// A running fold along one dim; a workgroup goes along each lane, as many elements at a time as it has invocations.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Scan {
    /// How elements join.
    pub fold: Fold,
    /// The elements' dtype.
    pub dtype: DType,
    /// Whether the element itself is left out.
    pub exclusive: bool,
    /// Whether it runs from the end.
    pub reverse: bool,
    /// How the other dims are walked in operand and result, and over how many dims strides are told.
    pub kept: (Access, Access, usize),
}

impl Scan {
    /// The kernel. Parameters: the number of lanes, the dims of what stays, operand and result; the length of a lane, the strides
    /// along it in operand and result.
    pub fn kernel(&self) -> Kernel {
        let ty = held_as(self.dtype).value();
        Builder::kernel("scan", [LINE, 1], |k| {
            let (input, output) = (k.input(held_as(self.dtype)), k.output(held_as(self.dtype)));
            let lanes = k.parameter();
            let dims = k.parameters(self.kept.2);
            let from = Operand::declare(k, self.kept.0, self.kept.2);
            let to = Operand::declare(k, self.kept.1, self.kept.2);
            let (length, from_stride, to_stride) = (k.parameter(), k.parameter(), k.parameter());
            let shared = k.shared(ty, LINE);
            let local = k.builtin(Builtin::LocalIndex);
            let group = k.group();
            // A group beyond the last repeats it, so that none leaves before the barriers.
            let lane = group.min(lanes - 1_u32);
            let coordinates = access::coordinates(lane, &dims);
            let (from, to) = (from.at(lane, &coordinates), to.at(lane, &coordinates));
            let neutral = self.fold.neutral(k, ty);
            let before = k.variable(neutral);
            k.range(0_u32, length, LINE, |start| {
                let step = start + local;
                let inside = step.below(length);
                let position = if self.reverse { length - 1_u32 - step } else { step };
                let x = k.variable(neutral);
                k.when(inside, || x.set(input.at(from + position * from_stride)));
                shared.set(local, x.get());
                // Each round joins what lies twice as far (Hillis & Steele 1986).
                let mut distance = 1;
                while distance < LINE {
                    k.barrier();
                    let far = local.at_least(distance);
                    let other = far.select(shared.at(local.max(distance) - distance), neutral);
                    k.barrier();
                    shared.set(local, self.fold.join(other, shared.at(local)));
                    distance *= 2;
                }
                k.barrier();
                let running = if self.exclusive {
                    local.above(0_u32).select(shared.at(local.max(1_u32) - 1_u32), neutral)
                } else {
                    shared.at(local)
                };
                let result = self.fold.join(before.get(), running);
                k.when(inside & group.below(lanes), || output.set(to + position * to_stride, result));
                before.set(self.fold.join(before.get(), shared.at(k.value(LINE - 1))));
                k.barrier();
            });
        })
    }
}

/// A running fold along `dim`.
pub(crate) fn cumulative<R: Runtime>(
    op: CumulativeOp,
    tensor: &GpuTensor<R>,
    dim: usize,
    exclusive: bool,
    reverse: bool,
) -> GpuTensor<R> {
    let out = GpuTensor::empty(tensor.shape(), tensor.dtype, &tensor.device);
    if out.is_empty() {
        return out;
    }
    let mut dims = tensor.dims().to_vec();
    let length = core::mem::replace(&mut dims[dim], 1);
    let walk = Walk::new(&dims, &[&tensor.layout.strides, &out.layout.strides]);
    let access = [walk.access(0), walk.access(1)];
    let strided = access.contains(&Access::Strided);
    let lanes: usize = dims.iter().product();
    let mut words = vec![lanes as u32];
    words.extend(walk.dim_words().filter(|_| strided));
    for (n, layout) in [&tensor.layout, &out.layout].into_iter().enumerate() {
        words.push(layout.offset as u32);
        words.extend(walk.stride_words(n));
    }
    words.push(length as u32);
    words.extend([&tensor.layout, &out.layout].map(|layout| access::word(layout.strides[dim])));
    let rank = if strided { walk.dims.len() } else { 0 };
    let template = Scan {
        fold: Fold::of(op),
        dtype: tensor.dtype,
        exclusive,
        reverse,
        kept: (access[0], access[1], rank),
    };
    let groups = line_of_groups::<R>(&tensor.device, lanes);
    launch::<R>(&tensor.device, template, &[tensor, &out], &words, groups);
    out
}

/// Writes the coordinates of elements that count, each at the place that a running sum gives it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Compact {
    /// Number of dims.
    pub rank: usize,
    /// The coordinates' dtype.
    pub index: DType,
}

impl Compact {
    /// The kernel. Buffers: the flags as 0 and 1 in i32, their running sums, the coordinates. Parameters: the number of
    /// elements, the dims.
    pub fn kernel(&self) -> Kernel {
        let index = held_as(self.index);
        Builder::kernel("compact", [LINE, 1], |k| {
            let (flags, sums) = (k.input(Storage::I32), k.input(Storage::I32));
            let output = k.output(index);
            let count = k.parameter();
            let dims = k.parameters(self.rank);
            let position = k.position(LINE);
            k.when(position.below(count), || {
                k.when(flags.at(position).equals(1), || {
                    let row = (sums.at(position) - 1).to(Type::U32) * self.rank as u32;
                    for (axis, coordinate) in access::coordinates(position, &dims).into_iter().enumerate() {
                        output.set(row + axis as u32, coordinate.to(index.value()));
                    }
                });
            });
        })
    }
}

/// The running sums of where something is true, and those flags: what [`nonzero`] needs before it knows how many there are.
pub(crate) struct Flags<R: Runtime> {
    flags: GpuTensor<R>,
    sums: GpuTensor<R>,
}

impl<R: Runtime> Flags<R> {
    /// Of the elements that are not 0.
    pub(crate) fn new(tensor: &GpuTensor<R>) -> Self {
        let truth = elementwise::cast(tensor, DType::Bool);
        let flags = elementwise::cast(&truth, DType::I32);
        let line = Layout::contiguous(Shape::from([flags.len()]));
        let sums = cumulative(CumulativeOp::Sum, &flags.clone().with_layout(line), 0, false, false);
        Self { flags, sums }
    }

    /// Where their number stands; nowhere if there are no elements.
    pub(crate) fn count_at(&self) -> Option<(R::Memory, core::ops::Range<usize>)> {
        let bytes = element_bytes(DType::I32);
        let last = self.flags.len().checked_sub(1)?;
        Some((self.sums.memory.clone(), last * bytes..(last + 1) * bytes))
    }

    /// The coordinates of the `count` elements, `[count, rank]`.
    pub(crate) fn coordinates(&self, count: usize, index: DType) -> GpuTensor<R> {
        let rank = self.flags.dims().len();
        let out = GpuTensor::empty(Shape::from([count, rank]), index, &self.flags.device);
        if out.is_empty() {
            return out;
        }
        let mut words = vec![self.flags.len() as u32];
        words.extend(self.flags.dims().iter().map(|&dim| dim as u32));
        let tensors = [&self.flags, &self.sums, &out];
        let groups = line_of::<R>(&self.flags.device, self.flags.len());
        launch::<R>(&self.flags.device, Compact { rank, index }, &tensors, &words, groups);
        out
    }
}
