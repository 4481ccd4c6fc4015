//! Positions of extremes.

use super::super::access::{self, Access, Operand, Walk};
use super::super::source::{Program, Reader, Reads, Source};
use super::super::{LINE, launch_open, line_of, line_of_groups};
use super::{FEW, run_of};
use crate::language::{Builder, Builtin, Kernel, Storage, Value, Variable};
use crate::runtime::Runtime;
use crate::tensor::{GpuTensor, MOST_READ, counted, held_as};
use kiln_tensor::backend::Primitive;
use kiln_tensor::{ArgReduceOp, DType, Shape};

/// The position of an extreme along one dim, in runs of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ArgReduce {
    /// Which extreme.
    pub op: ArgReduceOp,
    /// Whether the last among equals counts.
    pub select_last: bool,
    /// The elements' dtype.
    pub dtype: DType,
    /// The positions' dtype.
    pub index: DType,
    /// How the other dims are walked, and over how many dims strides are told.
    pub kept: (Access, usize),
    /// Whether a workgroup goes over each run, rather than an invocation.
    pub wide: bool,
    /// Whether the extremes of runs, whose positions a kernel like this wrote, are compared rather than all elements.
    pub among: bool,
    /// What yields the elements.
    pub from: Program,
}

impl ArgReduce {
    /// The kernel. Buffers: the elements, the positions that it is looked among, the result. Parameters: those of what yields the elements; the
    /// number of results, of runs a lane, the length of a run and that of a lane; dims and operand of what stays, the stride along a lane.
    pub fn kernel(&self) -> Kernel {
        Builder::kernel("arg_reduce", [LINE, 1], |k| self.write(k))
    }

    fn write<'k>(&self, k: &'k Builder) {
        let input = Source::declare(k, self.dtype, &self.from, 1);
        let among = self.among.then(|| k.input(Storage::U32));
        let output = k.output(held_as(self.index));
        let (results, runs, run, total) = (k.parameter(), k.parameter(), k.parameter(), k.parameter());
        let dims = k.parameters(self.kept.1);
        let kept = Operand::declare(k, self.kept.0, self.kept.1);
        let stride = k.parameter();

        // The extreme of every so many-th element of a run from a place in it on, with its position; a place beyond the run is its last.
        let extreme = |result: Value<'k>, first: Value<'k>, step: Value<'k>| {
            let (place, part) = (result / runs, result % runs);
            let base = kept.at(place, &access::coordinates(place, &dims));
            let [start, end] = run_of(part, run, total);
            let element = |number: Value<'k>| {
                let at = among.map_or(number, |among| among.at(place * total + number));
                [input.at(base + at * stride).ordered(), at]
            };
            let first = (start + first).min(end - 1_u32);
            let best = element(first).map(|x| k.variable(x));
            k.range(first + step, end, step, |number| self.choose(k, best, element(number)));
            best
        };
        let write = |result: Value<'k>, at: Variable<'k>| {
            output.set(result, at.get().to(held_as(self.index).value()))
        };
        if self.wide {
            let (result, local) = (k.group(), k.builtin(Builtin::LocalIndex));
            // A group beyond the last repeats it, so that none leaves before the barriers.
            let best = extreme(result.min(results - 1_u32), local, k.value(LINE));
            let shared = best.map(|best| k.shared(best.get().ty(), LINE));
            let share =
                || shared.into_iter().zip(best).for_each(|(shared, best)| shared.set(local, best.get()));
            share();
            let mut half = LINE / 2;
            while half > 0 {
                k.barrier();
                k.when(local.below(half), || {
                    self.choose(k, best, shared.map(|shared| shared.at(local + half)));
                    share();
                });
                half /= 2;
            }
            k.when(local.equals(0_u32) & result.below(results), || write(result, best[1]));
        } else {
            let result = k.position(LINE);
            k.when(result.below(results), || {
                write(result, extreme(result, k.value(0_u32), k.value(1_u32))[1])
            });
        }
    }

    /// Takes the next number with its place where that is the one that counts. A NaN is the extreme of its lane.
    fn choose<'k>(&self, k: &'k Builder, best: [Variable<'k>; 2], next: [Value<'k>; 2]) {
        let ([known, known_at], [x, at]) = (best.map(|best| best.get()), next);
        let better = match self.op {
            ArgReduceOp::Max => x.above(known),
            ArgReduceOp::Min => x.below(known),
        };
        let beats = (better | x.is_nan()) & !known.is_nan();
        let ties = x.equals(known) | (x.is_nan() & known.is_nan());
        let comes = if self.select_last { at.above(known_at) } else { at.below(known_at) };
        k.when(beats | (ties & comes), || {
            best.into_iter().zip(next).for_each(|(best, next)| best.set(next));
        });
    }
}

/// Elements from which on a workgroup looks for an extreme, rather than an invocation.
const LEAST_OF_WIDE: usize = 64;
/// Elements that a workgroup goes over: more are runs of several. An invocation that went over 128,256 alone took 4.3 ms on an H200.
const LONGEST_RUN: usize = 4096;

/// Positions of extremes along `dim`, which stays with size 1.
///
/// # Panics
/// When the dim is empty.
pub(crate) fn arg_reduce<R: Runtime>(
    op: ArgReduceOp,
    tensor: GpuTensor<R>,
    dim: usize,
    select_last: bool,
    index: DType,
) -> GpuTensor<R> {
    let mut shape = tensor.shape();
    counted(&shape, MOST_READ);
    let length = core::mem::replace(&mut shape.dims[dim], 1);
    let results = shape.num_elements();
    assert!(length > 0 || results == 0, "{}: dim {dim} has no elements", op.name());
    if results == 0 {
        return GpuTensor::empty(shape, index, &tensor.device);
    }
    let device = tensor.device.clone();
    // Neighbouring invocations read neighbours: along the lane where it lies together, else along the results.
    let together = tensor.layout.strides[dim].unsigned_abs() == 1;
    let wide = R::limits(&device).shared_memory && length >= LEAST_OF_WIDE && (together || results < FEW);
    let runs = if wide { length.div_ceil(LONGEST_RUN) } else { 1 };
    let kept = Walk::new(&shape.dims, &[&tensor.layout.strides]);
    let access = kept.access(0);
    let strided = access == Access::Strided;
    let words_of = |runs: usize, total: usize| {
        let mut words = [results * runs, runs, total.div_ceil(runs), total].map(|n| n as u32).to_vec();
        words.extend(kept.dim_words().filter(|_| strided));
        words.push(tensor.layout.offset as u32);
        words.extend(kept.stride_words(0));
        words.push(access::word(tensor.layout.strides[dim]));
        words
    };
    let groups = |results: usize| match wide {
        true => line_of_groups::<R>(&device, results),
        false => line_of::<R>(&device, results),
    };
    let rank = if strided { kept.dims.len() } else { 0 };
    let (dtype, kept) = (tensor.dtype, (access, rank));
    let template = |index, among, from| ArgReduce { op, select_last, dtype, index, kept, wide, among, from };
    let out = GpuTensor::empty(shape, index, &device);
    if runs == 1 {
        let words = words_of(1, length);
        let groups = groups(results);
        let reader = Reader {
            reads: Reads::Once,
            shares: false,
            neighbours: 1,
            others: &[],
            left: None,
            words: &words,
            groups,
        };
        return reader.launch(tensor, out, |from, _| template(index, false, from));
    }
    // What yields the elements would have to yield those of the second launch again: they are in memory.
    let of_runs = GpuTensor::empty(Shape::from([results, runs]), DType::U32, &device);
    let first = (template(DType::U32, false, None), words_of(runs, length));
    launch_open::<R>(&device, first.0, &[&tensor, &of_runs], &first.1, groups(results * runs));
    let last = (template(index, true, None), words_of(1, runs));
    launch_open::<R>(&device, last.0, &[&tensor, &of_runs, &out], &last.1, groups(results));
    out
}
