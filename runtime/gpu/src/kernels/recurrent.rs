//! Recurrent layers: all steps of a sequence in one kernel, by a workgroup for each row of a batch and direction; where that would read
//! many weights in each step, a kernel for each ([`RecurrentStep`]) by many workgroups.
//!
//! What the input contributes to the gates is one product for all steps, computed before. The kernel adds to it what the hidden state
//! contributes. In one kernel for all steps its workgroup shares that, and between two steps there is no more than a barrier.

mod step;
mod unit;

pub use step::{RecurrentStep, StepPart};

use super::direct::fours_along;
use super::elementwise::{self, from_start};
use super::{LINE, block, launch_blocks, matmul};
use crate::language::{Array, Buffer, Builder, Builtin, Kernel, Type, Value, Variable};
use crate::runtime::{Derived, Order, Runtime};
use crate::tensor::{GpuTensor, computed_in, held_as};
use kiln_tensor::backend::{Backend, Layout, Primitive, SliceRange};
use kiln_tensor::compose::RnnOperands;
use kiln_tensor::{Activation, DType, RnnDirection, RnnKind, RnnOptions, Scalar, Shape};
use smallvec::SmallVec;
use unit::Unit;

/// Words that a workgroup shares at most: every device has 16 KiB for them.
const MOST_SHARED: usize = 4096;

/// Steps of one launch. Devices that also draw what a screen shows stop kernels that run for seconds.
const MOST_STEPS: usize = 512;

/// Recurrent weights of a direction from which on each step is a kernel of its own. One workgroup reads them at what one multiprocessor
/// gets from its cache, some 28 bytes a nanosecond on an H100: that of so many takes longer than a further launch of a graph.
const LARGE: usize = 1 << 15;

/// A layer whose directions have the same activations.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Recurrent {
    /// The dtype of all operands but the lengths, which are `i32`.
    pub dtype: DType,
    /// Which cell.
    pub kind: RnnKind,
    /// Elements of a hidden state.
    pub hidden: u32,
    /// What bounds the gates' sums.
    pub clip: Option<Activation>,
    /// What bounds the state from step to step.
    pub state_clip: Option<Activation>,
    /// A direction's activations, in ONNX's order.
    pub activations: Vec<Activation>,
    /// Whether a bias is added to the recurrent product: where a gate is multiplied with it, the input's cannot hold it.
    pub bias: bool,
    /// Whether the gates see an LSTM's cell state.
    pub peepholes: bool,
    /// Whether rows have lengths of their own.
    pub lengths: bool,
}

/// Words that the workgroup of a cell shares: the state, the gates' sums, and what the last gate of a [`RnnKind::Gru`] is multiplied with.
fn shared_words(dtype: DType, kind: RnnKind, hidden: usize) -> usize {
    let besides = match kind {
        RnnKind::Gru { linear_before_reset: false } => 2,
        RnnKind::Gru { linear_before_reset: true } | RnnKind::Rnn | RnnKind::Lstm { .. } => 1,
    };
    ((kind.gates() + besides) * held_as(dtype).value().words()).saturating_mul(hidden)
}

/// What the invocations of a workgroup have at hand in a step.
struct Step<'t, 'k> {
    template: &'t Recurrent,
    k: &'k Builder,
    /// In which the layer is computed.
    ty: Type,
    local: Value<'k>,
    direction: Value<'k>,
    weights: Buffer<'k>,
    bias: Option<Buffer<'k>>,
    peepholes: Option<Buffer<'k>>,
    projected: Buffer<'k>,
    /// Where what the input contributes to this step begins.
    from: Value<'k>,
    sums: Array<'k>,
}

impl<'k> Step<'_, 'k> {
    fn hidden(&self) -> u32 {
        self.template.hidden
    }

    /// All gates' columns.
    fn columns(&self) -> u32 {
        self.template.kind.gates() as u32 * self.hidden()
    }

    /// Adds up columns of a vector's product with the recurrent weights, for the workgroup to read after a barrier.
    fn product(&self, of: Array<'k>, columns: core::ops::Range<u32>) {
        let k = self.k;
        let first = self.direction * (self.hidden() * self.columns());
        // Neighbouring invocations have neighbouring columns; each keeps a few of them, so that what is shared is read once for all.
        let (count, mut start) = (columns.end - columns.start, 0);
        while start < count {
            let slots = (count - start).div_ceil(LINE).min(4);
            let column = |slot: u32| self.local + (columns.start + start + slot * LINE);
            // What is beyond the last column is computed of the last, and not kept.
            let read: Vec<_> = (0..slots).map(|slot| first + column(slot).min(columns.end - 1)).collect();
            let totals: Vec<_> = (0..slots).map(|_| k.variable(k.whole(0, self.ty))).collect();
            k.range(0_u32, self.hidden(), 1_u32, |depth| {
                let (factor, row) = (of.at(depth), depth * self.columns());
                for (total, &read) in totals.iter().zip(&read) {
                    total.set(self.weights.at(read + row).fma(factor, total.get()));
                }
            });
            for (slot, total) in (0..slots).zip(&totals) {
                let column = column(slot);
                k.when(column.below(columns.end), || {
                    let bias = self.bias.map(|bias| bias.at(self.direction * self.columns() + column));
                    self.sums.set(column, bias.map_or(total.get(), |bias| total.get() + bias));
                });
            }
            start += slots * LINE;
        }
    }

    /// Hands over a unit, once its gates' sums are there.
    fn of_unit<T>(&self, unit: Value<'k>, then: impl FnOnce(&Unit<'_, 'k>) -> T) -> T {
        let first = self.direction * (3 * self.hidden());
        then(&Unit {
            layer: self.template,
            k: self.k,
            ty: self.ty,
            of_input: &|gate| self.projected.at(self.from + (unit + gate * self.hidden())),
            of_state: &|gate| self.sums.at(unit + gate * self.hidden()),
            peephole: &|gate| self.peepholes.map(|weights| weights.at(first + (unit + gate * self.hidden()))),
        })
    }
}

impl Recurrent {
    /// The kernel. Buffers: what the input contributes to the gates, the recurrent weights `[directions, hidden, gates · hidden]`, their
    /// bias, peepholes and the rows' lengths where there are such, the output of every step, the hidden state and for an LSTM the cell
    /// state, which are those before the first step and after the last. Parameters: the workgroup's `block` (row, direction); which
    /// step the launch begins with, how many it does, how many the sequence has, which direction reads it from its end; the strides of
    /// what the input contributes along steps, rows and directions, those of the output, those of a state along rows and directions.
    pub fn kernel(&self) -> Kernel {
        let storage = held_as(self.dtype);
        let ty = storage.value();
        Builder::kernel("recurrent", [LINE, 1], |k| {
            let (projected, weights) = (k.input(storage), k.input(storage));
            let bias = self.bias.then(|| k.input(storage));
            let peepholes = self.peepholes.then(|| k.input(storage));
            let lengths = self.lengths.then(|| k.input(held_as(DType::I32)));
            let (output, last_hidden) = (k.output(storage), k.output(storage));
            let last_cell = matches!(self.kind, RnnKind::Lstm { .. }).then(|| k.output(storage));
            let [row, direction, _] = block(k);
            let (first, count, steps, reversed) =
                (k.parameter(), k.parameter(), k.parameter(), k.parameter());
            let place = || row * k.parameter() + direction * k.parameter();
            let (in_step, from) = (k.parameter(), place());
            let (out_step, to) = (k.parameter(), place());
            let kept = place();

            let numbers = |count: u32| k.shared(ty, count);
            let (state, sums) = (numbers(self.hidden), numbers(self.kind.gates() as u32 * self.hidden));
            let reset_with = match self.kind {
                RnnKind::Gru { linear_before_reset: false } => Some(numbers(self.hidden)),
                RnnKind::Gru { linear_before_reset: true } | RnnKind::Rnn | RnnKind::Lstm { .. } => None,
            };
            let local = k.builtin(Builtin::LocalIndex);
            let units: Vec<Value<'_>> =
                (0..self.hidden.div_ceil(LINE)).map(|slot| local + slot * LINE).collect();
            let each = |then: &dyn Fn(usize, Value<'_>)| {
                for (slot, &unit) in units.iter().enumerate() {
                    k.when(unit.below(self.hidden), || then(slot, unit));
                }
            };
            each(&|_, unit| state.set(unit, last_hidden.at(kept + unit)));
            let cells: Vec<Variable<'_>> = match last_cell {
                Some(cell) => {
                    units.iter().map(|&unit| k.variable(cell.at(kept + unit.min(self.hidden - 1)))).collect()
                }
                None => Vec::new(),
            };
            let length = lengths.map(|lengths| lengths.at(row));
            k.barrier();

            k.range(first, first + count, 1_u32, |n| {
                let at = reversed.equals(direction + 1_u32).select(steps - 1_u32 - n, n);
                let step = Step {
                    template: self,
                    k,
                    ty,
                    local,
                    direction,
                    weights,
                    bias,
                    peepholes,
                    projected,
                    from: from + at * in_step,
                    sums,
                };
                let running = length.map(|length| at.to(Type::I32).below(length));
                // What a unit's new hidden state is kept as, and shown as where the row's sequence is over.
                let keep = |unit: Value<'_>, new: Value<'_>| {
                    let (shown, new) = match running {
                        Some(running) => {
                            (running.select(new, k.whole(0, ty)), running.select(new, state.at(unit)))
                        }
                        None => (new, new),
                    };
                    output.set(to + at * out_step + unit, shown);
                    state.set(unit, new);
                };
                match reset_with {
                    Some(reset_with) => {
                        step.product(state, 0..2 * self.hidden);
                        k.barrier();
                        each(&|_, unit| {
                            let reset = step.of_unit(unit, |of| of.reset());
                            reset_with.set(unit, reset * state.at(unit));
                        });
                        k.barrier();
                        step.product(reset_with, 2 * self.hidden..3 * self.hidden);
                    }
                    None => step.product(state, 0..step.columns()),
                }
                k.barrier();
                each(&|slot, unit| {
                    let cell = cells.get(slot);
                    let old = cell.map(|cell| cell.get());
                    let (new, new_cell) = step.of_unit(unit, |of| of.next(state.at(unit), old));
                    if let (Some(cell), Some(old), Some(new)) = (cell, old, new_cell) {
                        cell.set(running.map_or(new, |running| running.select(new, old)));
                    }
                    keep(unit, new);
                });
                k.barrier();
            });

            each(&|slot, unit| {
                last_hidden.set(kept + unit, state.at(unit));
                if let Some(cell) = last_cell {
                    cell.set(kept + unit, cells[slot].get());
                }
            });
        })
    }
}

/// The output of every step, and the last hidden and cell state.
pub(crate) type Results<R> = (GpuTensor<R>, GpuTensor<R>, Option<GpuTensor<R>>);

/// Computes a layer; nothing where no kernel serves: for wide states of devices on which workgroups do not share memory of their own,
/// nothing to do, operands that the device does not see whole, and directions that differ in their activations.
pub(crate) fn recurrent<R: Runtime, B: Backend<Primitive = GpuTensor<R>>>(
    operands: &RnnOperands<B>,
    options: &RnnOptions,
) -> Option<Results<R>> {
    let RnnOperands { input, weight, .. } = operands;
    let (hidden, gates, directions) = (options.hidden_size, options.kind.gates(), options.direction.count());
    let dtype = input.dtype;
    let (activations, others) = options.activations.split_at(options.activations.len() / directions);
    if !dtype.is_float() || input.is_empty() || hidden == 0 || (directions == 2 && activations != others) {
        return None;
    }
    let fits = shared_words(dtype, options.kind, hidden) <= MOST_SHARED;
    let is_large = gates.saturating_mul(hidden).saturating_mul(hidden) >= LARGE;
    let by_steps = R::limits(&input.device).shared_memory && (is_large || !fits);
    if !by_steps && !fits {
        return None;
    }
    let [outer, inner, size] = *input.dims() else { return None };
    let (steps, batch) = if options.batch_first { (inner, outer) } else { (outer, inner) };
    let columns = gates * hidden;

    let view = |x: &GpuTensor<R>, dims: &[usize]| {
        let x = elementwise::contiguous(x.clone());
        let layout = Layout { offset: x.layout.offset, ..Layout::contiguous(dims.into()) };
        x.with_layout(layout)
    };
    let half = |bias: &GpuTensor<R>, n: usize| {
        let range = SliceRange { start: n * columns, end: (n + 1) * columns, step: 1 };
        let layout = bias.layout.slice(&[SliceRange::full(directions), range]);
        bias.clone().with_layout(layout)
    };
    let apart = matches!(options.kind, RnnKind::Gru { linear_before_reset: true });
    // What goes into the input's product, and what into the kernel.
    let (bias, own_bias) = match &operands.bias {
        None => (None, None),
        Some(bias) if apart => (Some(half(bias, 0)), Some(from_start(half(bias, 1)))),
        Some(bias) => (Some(joined(bias, [half(bias, 0), half(bias, 1)])), None),
    };
    let bias = bias.map(|bias| view(&bias, &[directions * columns]));
    let wide = view(weight, &[directions * columns, size]);
    let layout = wide.layout.permute(&[1, 0]);
    let x = view(input, &[outer * inner, size]);
    let projected = matmul::matmul(&x, &wide.with_layout(layout), bias.as_ref(), None);

    let lengths =
        operands.sequence_lengths.as_ref().map(|lengths| from_start(elementwise::cast(lengths, DType::I32)));
    let peepholes = operands.peepholes.clone().map(from_start);
    let bound = |clip: Option<f64>| clip.map(|clip| Activation::Clamp { min: -clip, max: clip });
    let template = Recurrent {
        dtype,
        kind: options.kind,
        hidden: hidden as u32,
        clip: bound(options.clip),
        state_clip: bound(options.state_clip),
        activations: activations.to_vec(),
        bias: own_bias.is_some(),
        peepholes: peepholes.is_some(),
        lengths: lengths.is_some(),
    };
    let reversed = match options.direction {
        RnnDirection::Forward => 0,
        RnnDirection::Reverse => 1,
        RnnDirection::Bidirectional => 2,
    };
    let (along, all) = (directions * hidden, directions * columns);
    let (state, of_state, strides) = if options.batch_first {
        let strides = [[all, steps * all, columns], [along, steps * along, hidden]];
        ([batch, directions, hidden], [along, hidden], strides)
    } else {
        let strides = [[batch * all, all, columns], [batch * along, hidden, batch * hidden]];
        ([directions, batch, hidden], [hidden, batch * hidden], strides)
    };
    let output = match options.batch_first {
        true => [batch, steps, directions, hidden],
        false => [steps, directions, batch, hidden],
    };
    let call = Call {
        size: [steps, batch, directions],
        template,
        projected,
        besides: own_bias.into_iter().chain(peepholes).chain(lengths).collect(),
        reversed,
        strides: strides.into_iter().flatten().chain(of_state).map(|stride| stride as u32).collect(),
        state: state.into(),
        output: GpuTensor::empty(output.into(), dtype, &input.device),
    };
    if by_steps { call.by_steps(operands) } else { call.at_once(operands) }
}

/// A layer whose input was multiplied with its weights.
struct Call<R: Runtime> {
    template: Recurrent,
    /// Steps, rows and directions.
    size: [usize; 3],
    projected: GpuTensor<R>,
    /// The recurrent product's bias, the peepholes and the lengths, where there are such.
    besides: Vec<GpuTensor<R>>,
    /// Which direction reads the sequence from its end, as kernels are told.
    reversed: usize,
    /// Those of what the input contributes, of the output, and of a state.
    strides: SmallVec<[u32; 8]>,
    /// The shape of a state.
    state: Shape,
    output: GpuTensor<R>,
}

impl<R: Runtime> Call<R> {
    /// A state before the first step that may be written to, in a dtype.
    fn first(&self, given: Option<&GpuTensor<R>>, dtype: DType) -> GpuTensor<R> {
        match given {
            Some(given) if given.dtype == dtype => elementwise::copy(given),
            Some(given) => elementwise::cast(given, dtype),
            None => elementwise::full(self.state.clone(), Scalar::Float(0.0), dtype, &self.output.device),
        }
    }

    fn is_lstm(&self) -> bool {
        matches!(self.template.kind, RnnKind::Lstm { .. })
    }

    /// All steps in one kernel, or in few.
    fn at_once<B: Backend<Primitive = GpuTensor<R>>>(self, operands: &RnnOperands<B>) -> Option<Results<R>> {
        let ([steps, batch, directions], dtype) = (self.size, self.template.dtype);
        let last = self.first(operands.initial_hidden.as_ref(), dtype);
        let cell = self.is_lstm().then(|| self.first(operands.initial_cell.as_ref(), dtype));
        let weights = transposed(&operands.recurrent, directions);
        let mut tensors = vec![&self.projected, &weights];
        tensors.extend(&self.besides);
        tensors.extend([&self.output, &last]);
        tensors.extend(&cell);
        if !tensors.iter().all(|tensor| tensor.is_visible()) {
            return None;
        }
        for begin in (0..steps).step_by(MOST_STEPS) {
            let count = (steps - begin).min(MOST_STEPS);
            let words = [begin, count, steps, self.reversed].map(|word| word as u32);
            let words: SmallVec<[u32; 16]> = words.into_iter().chain(self.strides.iter().copied()).collect();
            let (device, template) = (&self.output.device, self.template.clone());
            launch_blocks::<R>(device, template, &tensors, &words, [batch, directions, 1], false);
        }
        Some((self.output, last, cell))
    }

    /// A kernel for each step, or two.
    fn by_steps<B: Backend<Primitive = GpuTensor<R>>>(self, operands: &RnnOperands<B>) -> Option<Results<R>> {
        let ([steps, batch, directions], dtype) = (self.size, self.template.dtype);
        let (device, kept_as) = (&self.output.device, computed_in(dtype));
        let new = || GpuTensor::<R>::empty(self.state.clone(), kept_as, device);
        let mut old = match &operands.initial_hidden {
            Some(given) if given.dtype == kept_as => from_start(given.clone()),
            given => self.first(given.as_ref(), kept_as),
        };
        let cell = self.is_lstm().then(|| self.first(operands.initial_cell.as_ref(), kept_as));
        let weights = elementwise::contiguous(operands.recurrent.clone());
        let parts = StepPart::of(self.template.kind);
        let gates = (parts.len() > 1).then(|| [new(), new()]);
        let visible = [&self.projected, &weights, &self.output, &old].into_iter().chain(&self.besides);
        if !visible.chain(&cell).all(|tensor| tensor.is_visible()) {
            return None;
        }
        let fours = fours_along(&weights.layout);
        let rows = step::rows(dtype, batch);
        let templates =
            parts.iter().map(|&part| RecurrentStep { layer: self.template.clone(), part, rows, fours });
        let templates: SmallVec<[RecurrentStep; 2]> = templates.collect();
        let first_weight = weights.layout.offset;
        // Two take turns, once the first state was read, which may be somebody's.
        let mut spare = None;
        for step in 0..steps {
            let fresh = spare.take().unwrap_or_else(new);
            let words = [step, steps, self.reversed, batch, first_weight].map(|word| word as u32);
            let words: SmallVec<[u32; 16]> = words.into_iter().chain(self.strides.iter().copied()).collect();
            for template in &templates {
                let mut tensors: SmallVec<[&GpuTensor<R>; 12]> = SmallVec::new();
                tensors.extend([&self.projected, &weights]);
                tensors.extend(&self.besides);
                tensors.push(&old);
                match (template.part, &gates) {
                    (StepPart::Gates, Some(gates)) => tensors.extend(gates),
                    (StepPart::Whole | StepPart::Gates | StepPart::Candidate, gates) => {
                        tensors.extend(gates.iter().flatten());
                        tensors.extend([&self.output, &fresh]);
                        tensors.extend(&cell);
                    }
                }
                let blocks =
                    [template.layer.hidden.div_ceil(template.units()), (batch as u32).div_ceil(rows)];
                let blocks = [blocks[0] as usize, blocks[1] as usize, directions];
                launch_blocks::<R>(device, template.clone(), &tensors, &words, blocks, false);
            }
            let before = core::mem::replace(&mut old, fresh);
            spare = (step > 0).then_some(before);
        }
        let own = |state: GpuTensor<R>| elementwise::cast(&state, dtype);
        Some((self.output, own(old), cell.map(own)))
    }
}

/// Recurrent weights with the columns of all gates side by side, `[directions, hidden, gates · hidden]`; made once, and kept with their
/// memory.
fn transposed<R: Runtime>(weights: &GpuTensor<R>, directions: usize) -> GpuTensor<R> {
    let layout = weights.layout.permute(&[0, 2, 1]);
    let sizes = [weights.layout.offset, directions, layout.shape.dims[1], layout.shape.dims[2]];
    let what = Derived { order: Order::ColumnsOfGates, sizes };
    kept(weights, what, layout.shape.clone(), || elementwise::copy(&weights.clone().with_layout(layout)))
}

/// The sum of both biases, `[directions, gates · hidden]`, likewise.
fn joined<R: Runtime>(bias: &GpuTensor<R>, halves: [GpuTensor<R>; 2]) -> GpuTensor<R> {
    let shape = halves[0].shape();
    let [input, recurrent] = halves;
    let sizes = [bias.layout.offset, shape.dims[0], shape.dims[1], 0];
    let what = Derived { order: Order::SumOfBiases, sizes };
    kept(bias, what, shape, || elementwise::add(&input, &recurrent))
}

/// What was made of a row-major tensor; anew of one that is not, which shares its memory with who knows what.
fn kept<R: Runtime>(
    of: &GpuTensor<R>,
    what: Derived,
    shape: Shape,
    make: impl FnOnce() -> GpuTensor<R>,
) -> GpuTensor<R> {
    if !of.layout.is_contiguous() {
        return make();
    }
    let memory = R::derived(&of.memory, what, || make().memory);
    GpuTensor {
        memory,
        layout: Layout::contiguous(shape).into(),
        dtype: of.dtype(),
        device: of.device.clone(),
    }
}
