//! Scans, and what is built on running sums: the positions where something is true.

use super::access::{self, Access, Operand, Walk};
use super::reduce::{Reducer, reduce_runs};
use super::{LINE, elementwise, launch, line_of, line_of_groups};
use crate::language::{Builder, Builtin, Kernel, Storage, Type};
use crate::runtime::Runtime;
use crate::tensor::{GpuTensor, computed_in, element_bytes, held_as};
use kiln_tensor::backend::{Layout, Primitive};
use kiln_tensor::{CumulativeOp, DType, Shape};

/// A scan along one dim; a workgroup goes along each lane, or each part of one, as many elements at a time as it has
/// invocations.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Scan {
    /// How elements join.
    pub reducer: Reducer,
    /// The elements' dtype.
    pub dtype: DType,
    /// Whether the element itself is left out.
    pub exclusive: bool,
    /// How the other dims are walked in operand and result, and over how many dims strides are told.
    pub kept: (Access, Access, usize),
    /// Whether a lane has several parts: what stands before each is read then.
    pub parts: bool,
}

impl Scan {
    /// The kernel. Buffers: the elements, what stands before each part where there are parts (as numbers are computed), the result.
    /// Parameters: the number of lanes, the dims of what stays, operand and result; the length of a lane, the strides along it in
    /// operand and result; where there are parts, how many a lane has, and the length of one.
    pub fn kernel(&self) -> Kernel {
        let ty = held_as(self.dtype).value();
        Builder::kernel("scan", [LINE, 1], |k| {
            let input = k.input(held_as(self.dtype));
            let befores = self.parts.then(|| k.input(held_as(computed_in(self.dtype))));
            let output = k.output(held_as(self.dtype));
            let lanes = k.parameter();
            let dims = k.parameters(self.kept.2);
            let from = Operand::declare(k, self.kept.0, self.kept.2);
            let to = Operand::declare(k, self.kept.1, self.kept.2);
            let (length, from_stride, to_stride) = (k.parameter(), k.parameter(), k.parameter());
            let befores = befores.map(|befores| (befores, k.parameter(), k.parameter()));
            let shared = k.shared(ty, LINE);
            let local = k.builtin(Builtin::LocalIndex);
            let group = k.group();
            // A group beyond the last repeats it, so that none leaves before the barriers.
            let last = match befores {
                Some((_, parts, _)) => lanes * parts - 1_u32,
                None => lanes - 1_u32,
            };
            let part = group.min(last);
            let neutral = self.reducer.neutral_of(k, held_as(self.dtype));
            let (lane, first, end, before) = match befores {
                Some((befores, parts, size)) => {
                    let first = part % parts * size;
                    (part / parts, first, (first + size).min(length), befores.at(part))
                }
                None => (part, k.value(0_u32), length, neutral),
            };
            let coordinates = access::coordinates(lane, &dims);
            let (from, to) = (from.at(lane, &coordinates), to.at(lane, &coordinates));
            let before = k.variable(before);
            k.range(first, end, LINE, |start| {
                let position = start + local;
                let inside = position.below(end);
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
                    shared.set(local, self.reducer.join(other, shared.at(local)));
                    distance *= 2;
                }
                k.barrier();
                let running = if self.exclusive {
                    local.above(0_u32).select(shared.at(local.max(1_u32) - 1_u32), neutral)
                } else {
                    shared.at(local)
                };
                let result = self.reducer.join(before.get(), running);
                k.when(inside & group.at_most(last), || output.set(to + position * to_stride, result));
                before.set(self.reducer.join(before.get(), shared.at(k.value(LINE - 1))));
                k.barrier();
            });
        })
    }
}

/// The shortest lane that several workgroups share: shorter ones take one of them no longer than three kernels in its place.
const SHORTEST: usize = 4096;
/// The shortest part of a lane.
const SHORTEST_PART: usize = 1024;
/// Parts that a device has use for at a time, those of all lanes together.
const MOST_PARTS: usize = 1024;

/// How many parts a lane is walked in, and how long they are.
fn parts_of(lanes: usize, length: usize) -> (usize, usize) {
    let most = MOST_PARTS / lanes.max(1);
    if length < SHORTEST || most < 2 {
        return (1, length);
    }
    let size = length.div_ceil(most).max(SHORTEST_PART).next_multiple_of(LINE as usize);
    (length.div_ceil(size), size)
}

/// The layout walked backwards along a dim.
fn reversed(layout: &Layout, dim: usize) -> Layout {
    let mut layout = layout.clone();
    let reach = (layout.shape.dims[dim] as isize - 1) * layout.strides[dim];
    layout.offset = layout.offset.wrapping_add_signed(reach);
    layout.strides[dim] = -layout.strides[dim];
    layout
}

/// A scan along `dim`. A lane of which few make a long tensor is reduced in parts: what each makes in all, the scan of
/// that, then each part from there on.
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
    let layouts = match reverse {
        true => [&tensor.layout, &out.layout].map(|layout| reversed(layout, dim)),
        false => [&tensor.layout, &out.layout].map(|layout| (**layout).clone()),
    };
    let [from, to] = layouts;
    scan(Reducer::of(op), &tensor.clone().with_layout(from), &out.clone().with_layout(to), dim, exclusive);
    out
}

/// Writes the scan of `tensor` along `dim` to `out`, whose elements are as many.
fn scan<R: Runtime>(
    reducer: Reducer,
    tensor: &GpuTensor<R>,
    out: &GpuTensor<R>,
    dim: usize,
    exclusive: bool,
) {
    let mut dims = tensor.dims().to_vec();
    let length = core::mem::replace(&mut dims[dim], 1);
    let walk = Walk::new(&dims, &[&tensor.layout.strides, &out.layout.strides]);
    let access = [walk.access(0), walk.access(1)];
    let strided = access.contains(&Access::Strided);
    let lanes: usize = dims.iter().product();
    let (parts, size) = parts_of(lanes, length);
    let befores = (parts > 1).then(|| {
        let lane_last: Vec<usize> = (0..dims.len()).filter(|&axis| axis != dim).chain([dim]).collect();
        let lanes_first = tensor.clone().with_layout(tensor.layout.permute(&lane_last));
        let totals =
            reduce_runs(reducer, lanes_first, dims.len() - 1, (parts, size), computed_in(tensor.dtype));
        let befores = GpuTensor::empty(totals.shape(), totals.dtype, &totals.device);
        scan(reducer, &totals, &befores, 1, true);
        befores
    });

    let mut words = vec![lanes as u32];
    words.extend(walk.dim_words().filter(|_| strided));
    for (n, layout) in [&tensor.layout, &out.layout].into_iter().enumerate() {
        words.push(layout.offset as u32);
        words.extend(walk.stride_words(n));
    }
    words.push(length as u32);
    words.extend([&tensor.layout, &out.layout].map(|layout| access::word(layout.strides[dim])));
    if befores.is_some() {
        words.extend([parts as u32, size as u32]);
    }
    let rank = if strided { walk.dims.len() } else { 0 };
    let kept = (access[0], access[1], rank);
    let template = Scan { reducer, dtype: tensor.dtype, exclusive, kept, parts: befores.is_some() };
    let tensors: Vec<&GpuTensor<R>> =
        [Some(tensor), befores.as_ref(), Some(out)].into_iter().flatten().collect();
    let groups = line_of_groups::<R>(&tensor.device, lanes * parts);
    launch::<R>(&tensor.device, template, &tensors, &words, groups);
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

/// The running sums of where something is true, and those flags: what `nonzero` needs before it knows how many there are.
pub(crate) struct Flags<R: Runtime> {
    flags: GpuTensor<R>,
    sums: GpuTensor<R>,
}

impl<R: Runtime> Flags<R> {
    /// Of the elements that are not 0.
    pub(crate) fn new(tensor: &GpuTensor<R>) -> Self {
        let truth = elementwise::cast(tensor, DType::Bool);
        let flags = elementwise::contiguous(elementwise::cast(&truth, DType::I32));
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
