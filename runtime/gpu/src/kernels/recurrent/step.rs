//! A step of layers whose weights are more than one workgroup reads in good time: many of them share its product.
//!
//! Each has all gates of a few units, so that it goes on from their sums to the units' new states. It reads their weights once for all
//! rows that it serves: a line of invocations has a gate of a unit, of which neighbours read neighbours. States go from launch to launch
//! through memory. The hidden state has two places, since all workgroups read the old one while they write the new one.

use super::Recurrent;
use super::unit::Unit;
use crate::kernels::block;
use crate::kernels::direct::Side;
use crate::language::{Array, Buffer, Builder, Builtin, Kernel, Type, Value};
use crate::tensor::{computed_in, held_as};
use kiln_tensor::{DType, RnnKind};

/// Invocations that share the depth of a product.
const LANES: u32 = 32;
/// Products of a workgroup for each row, at most.
const MOST_PRODUCTS: u32 = 8;
/// Rows of a workgroup, at most: every device has 16 KiB for their sums.
const MOST_ROWS: usize = 8;
/// From the first of a product's parts to that of the next in shared memory: an odd number, so that what belongs to several units is read
/// at once.
const LINE_OF_PARTS: u32 = LANES + 1;

/// What a launch computes of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StepPart {
    /// All of it.
    Whole,
    /// The gates of a [`RnnKind::Gru`] whose candidate needs the reset states of all units.
    Gates,
    /// Its candidate, and the new state.
    Candidate,
}

/// A step of a layer, or a part of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RecurrentStep {
    /// The layer.
    pub layer: Recurrent,
    /// Which part.
    pub part: StepPart,
    /// Rows of a batch that a workgroup serves, at least as many as it has.
    pub rows: u32,
    /// Whether weights and states are read four at a time.
    pub fours: bool,
}

impl StepPart {
    /// The parts of a cell's step, in order.
    pub fn of(kind: RnnKind) -> &'static [Self] {
        match kind {
            RnnKind::Gru { linear_before_reset: false } => &[Self::Gates, Self::Candidate],
            RnnKind::Gru { linear_before_reset: true } | RnnKind::Rnn | RnnKind::Lstm { .. } => {
                &[Self::Whole]
            }
        }
    }
}

/// The rows that a workgroup serves of so many.
pub(super) fn rows(dtype: DType, batch: usize) -> u32 {
    batch.next_power_of_two().min(MOST_ROWS / held_as(dtype).value().words()) as u32
}

impl RecurrentStep {
    /// The gates that the part multiplies.
    fn gates(&self) -> core::ops::Range<u32> {
        match self.part {
            StepPart::Whole => 0..self.layer.kind.gates() as u32,
            StepPart::Gates => 0..2,
            StepPart::Candidate => 2..3,
        }
    }

    /// Units of a workgroup.
    pub(super) fn units(&self) -> u32 {
        MOST_PRODUCTS / self.gates().len() as u32
    }

    /// Products of a workgroup for each row.
    fn products(&self) -> u32 {
        self.units() * self.gates().len() as u32
    }

    /// The kernel. Buffers: what the input contributes to the gates, the recurrent weights `[directions, gates · hidden, hidden]`, their
    /// bias, peepholes and the rows' lengths where there are such, the hidden state before the step; for [`StepPart::Candidate`] the update
    /// gates, and the hidden state times the reset gates. Then what it writes: for [`StepPart::Gates`] these two, else the output of every
    /// step, the new hidden state and for an LSTM the cell state, which before is the old one. Parameters: the workgroup's `block` (units,
    /// rows, direction); which step it is, how many the sequence has, which direction reads it from its end; rows of the batch; where the
    /// weights begin; the strides of what the input contributes along steps, rows and directions, those of the output, those of a state
    /// along rows and directions.
    pub fn kernel(&self) -> Kernel {
        Builder::kernel("recurrent_step", [LANES, self.products()], |k| {
            if self.layer.dtype == DType::F64 {
                k.resident(4);
            }
            let buffers = Buffers::declare(k, self);
            let [units, rows, direction] = block(k);
            let (n, steps, reversed) = (k.parameter(), k.parameter(), k.parameter());
            let (batch, first_weight) = (k.parameter(), k.parameter());
            let strides = || [k.parameter(), k.parameter(), k.parameter()];
            let (of_input, of_output) = (strides(), strides());
            let of_state = [k.parameter(), k.parameter()];
            let group = Group {
                template: self,
                k,
                buffers,
                direction,
                first_unit: units * self.units(),
                first_row: rows * self.rows,
                batch,
                at: reversed.equals(direction + 1_u32).select(steps - 1_u32 - n, n),
                first_weight,
                of_input,
                of_output,
                of_state,
            };
            group.step();
        })
    }
}

/// What a step reads and writes.
struct Buffers<'k> {
    projected: Buffer<'k>,
    weights: Side<'k>,
    bias: Option<Buffer<'k>>,
    peepholes: Option<Buffer<'k>>,
    lengths: Option<Buffer<'k>>,
    hidden: Side<'k>,
    /// A GRU's update gates and reset states, to read.
    gates: Option<(Buffer<'k>, Side<'k>)>,
    written: [Buffer<'k>; 2],
    cell: Option<Buffer<'k>>,
}

impl<'k> Buffers<'k> {
    fn declare(k: &'k Builder, template: &RecurrentStep) -> Self {
        let RecurrentStep { layer, part, fours, .. } = template;
        let (storage, kept_as) = (held_as(layer.dtype), computed_in(layer.dtype));
        let kept = held_as(kept_as);
        Self {
            projected: k.input(storage),
            weights: Side::declare(k, layer.dtype, *fours),
            bias: layer.bias.then(|| k.input(storage)),
            peepholes: layer.peepholes.then(|| k.input(storage)),
            lengths: layer.lengths.then(|| k.input(held_as(DType::I32))),
            hidden: Side::declare(k, kept_as, *fours),
            gates: (*part == StepPart::Candidate).then(|| (k.input(kept), Side::declare(k, kept_as, *fours))),
            written: [k.output(if *part == StepPart::Gates { kept } else { storage }), k.output(kept)],
            cell: matches!(layer.kind, RnnKind::Lstm { .. }).then(|| k.output(kept)),
        }
    }
}

/// What the invocations of a workgroup know.
struct Group<'t, 'k> {
    template: &'t RecurrentStep,
    k: &'k Builder,
    buffers: Buffers<'k>,
    direction: Value<'k>,
    first_unit: Value<'k>,
    first_row: Value<'k>,
    /// Rows of the batch.
    batch: Value<'k>,
    /// The step's place in the sequence.
    at: Value<'k>,
    first_weight: Value<'k>,
    of_input: [Value<'k>; 3],
    of_output: [Value<'k>; 3],
    of_state: [Value<'k>; 2],
}

impl<'k> Group<'_, 'k> {
    /// Where a row begins in what has all steps, and strides along steps, rows and directions.
    fn in_sequence(&self, strides: [Value<'k>; 3], row: Value<'k>) -> Value<'k> {
        self.at * strides[0] + row * strides[1] + self.direction * strides[2]
    }

    /// Where the state of a row begins.
    fn in_state(&self, row: Value<'k>) -> Value<'k> {
        row * self.of_state[0] + self.direction * self.of_state[1]
    }

    fn step(&self) {
        let (k, template, buffers) = (self.k, self.template, &self.buffers);
        let (layer, gates, units) = (&template.layer, template.gates(), template.units());
        let (hidden, ty) = (layer.hidden, held_as(layer.dtype).value());
        // The unit and the row for which an invocation goes on from the sums, if any.
        let local = k.builtin(Builtin::LocalIndex);
        let (own_unit, own_row) = (local % units, local / units);
        let (unit, row) = (self.first_unit + own_unit, self.first_row + own_row);
        let is_one = local.below(units * template.rows) & unit.below(hidden) & row.below(self.batch);
        // What it needs for that is on its way while the products are computed.
        let early = |read: &dyn Fn() -> Value<'k>| {
            let early = k.variable(k.whole(0, ty));
            k.when(is_one, || early.set(read()));
            early.get()
        };
        let of_gates = |buffer: Buffer<'k>, start: Value<'k>, count: u32| -> Vec<_> {
            (0..count).map(|gate| early(&|| buffer.at(start + (unit + gate * hidden)))).collect()
        };
        let (count, direction) = (layer.kind.gates() as u32, self.direction);
        let of_input = of_gates(buffers.projected, self.in_sequence(self.of_input, row), count);
        let bias = buffers.bias.map(|bias| of_gates(bias, direction * (count * hidden), count));
        let peepholes = buffers.peepholes.map(|weights| of_gates(weights, direction * (3 * hidden), 3));
        let kept = self.in_state(row) + unit;
        let old = early(&|| buffers.hidden.one(kept));
        let old_cell = buffers.cell.map(|cell| early(&|| cell.at(kept)));
        let update = buffers.gates.as_ref().map(|(update, _)| early(&|| update.at(kept)));
        let running = buffers.lengths.map(|lengths| self.at.to(Type::I32).below(lengths.at(row)));

        let sums = self.sums();
        k.when(is_one, || {
            let unit_of = Unit {
                layer,
                k,
                ty,
                of_input: &|gate| of_input[gate as usize],
                of_state: &|gate| {
                    let product = own_row * template.products() + (own_unit + (gate - gates.start) * units);
                    let first = product * LINE_OF_PARTS;
                    let sum = sums.at(first) + sums.at(first + 1_u32);
                    bias.as_ref().map_or(sum, |bias| sum + bias[gate as usize])
                },
                peephole: &|gate| peepholes.as_ref().map(|peepholes| peepholes[gate as usize]),
            };
            if template.part == StepPart::Gates {
                buffers.written[0].set(kept, unit_of.update());
                buffers.written[1].set(kept, unit_of.reset() * old);
                return;
            }
            let (new, new_cell) = match update {
                Some(update) => (unit_of.gru(update, old, (unit_of.of_state)(2)), None),
                None => unit_of.next(old, old_cell),
            };
            // Where the row's sequence is over, its states stay, and nothing is shown.
            let or = |new: Value<'k>, otherwise: Value<'k>| {
                running.map_or(new, |running| running.select(new, otherwise))
            };
            let shown = self.in_sequence(self.of_output, row) + unit;
            buffers.written[0].set(shown, or(new, k.whole(0, ty)));
            buffers.written[1].set(kept, or(new, old));
            if let (Some(cell), Some(old), Some(new)) = (buffers.cell, old_cell, new_cell) {
                cell.set(kept, or(new, old));
            }
        });
    }

    /// The products of all rows with the gates of all units, each in two parts that follow each other.
    fn sums(&self) -> Array<'k> {
        let (k, template, buffers) = (self.k, self.template, &self.buffers);
        let (layer, products) = (&template.layer, template.products());
        let (hidden, ty) = (layer.hidden, held_as(layer.dtype).value());
        let (lane, own) = (k.builtin(Builtin::LocalX), k.builtin(Builtin::LocalY));
        // What lies beyond the last unit or row repeats it, and is not looked at.
        let unit = (self.first_unit + own % template.units()).min(hidden - 1);
        let gate = own / template.units() + template.gates().start;
        let column = self.direction * (layer.kind.gates() as u32 * hidden) + gate * hidden + unit;
        let weights = self.first_weight + column * hidden;
        let factors = buffers.gates.as_ref().map_or(&buffers.hidden, |(_, reset)| reset);
        let rows: Vec<_> = (0..template.rows)
            .map(|row| self.in_state((self.first_row + row).min(self.batch - 1_u32)))
            .collect();
        let totals: Vec<_> = rows.iter().map(|_| k.variable(k.whole(0, ty))).collect();
        let add = |at: Value<'k>| {
            let weights = buffers.weights.at(weights + at);
            for (total, &row) in totals.iter().zip(&rows) {
                for (&weight, factor) in weights.iter().zip(factors.at(row + at)) {
                    total.set(weight.fma(factor, total.get()));
                }
            }
        };
        let each = if template.fours { 4 } else { 1 };
        let whole = hidden / (LANES * each) * (LANES * each);
        k.range(0_u32, whole, LANES * each, |first| add(first + lane * each));
        if whole < hidden {
            let last = lane * each + whole;
            k.when(last.below(hidden), || add(last));
        }

        let parts = k.shared(ty, template.rows * products * LINE_OF_PARTS);
        let place = |row: u32| (own + row * products) * LINE_OF_PARTS + lane;
        for (row, total) in (0..).zip(&totals) {
            parts.set(place(row), total.get());
        }
        let mut left = LANES;
        while left > 2 {
            left /= 4;
            k.barrier();
            k.when(lane.below(left), || {
                for at in (0..template.rows).map(place) {
                    let [a, b, c, d] = [0, 1, 2, 3].map(|n| parts.at(at + n * left));
                    parts.set(at, (a + b) + (c + d));
                }
            });
        }
        k.barrier();
        parts
    }
}
