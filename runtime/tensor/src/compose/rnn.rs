//! Recurrent layers, as ONNX's `RNN`, `GRU` and `LSTM` define them.

use super::calc::{T, add, mul, narrow, nth, one_minus, reshape, scalar_like};
use crate::backend::{Backend, Primitive};
use crate::{Activation, CompareOp, RnnDirection, RnnKind, RnnOptions, Scalar, Shape};
use alloc::vec::Vec;

/// Operands of [`Backend::rnn`], laid out as ONNX's `RNN`, `GRU` and `LSTM` operators do.
pub struct RnnOperands<B: Backend> {
    /// `[seq, batch, input]`, or `[batch, seq, input]` when batch comes first.
    pub input: B::Primitive,
    /// Input weights `W`: `[directions, gates · hidden, input]`.
    pub weight: B::Primitive,
    /// Recurrent weights `R`: `[directions, gates · hidden, hidden]`.
    pub recurrent: B::Primitive,
    /// Biases `[directions, 2 · gates · hidden]`: `Wb` then `Rb`.
    pub bias: Option<B::Primitive>,
    /// `[batch]`, an integer dtype: how many steps of each row count.
    pub sequence_lengths: Option<B::Primitive>,
    /// First hidden state `[directions, batch, hidden]` (batch first: `[batch, directions, hidden]`).
    pub initial_hidden: Option<B::Primitive>,
    /// First cell state, likewise (LSTM).
    pub initial_cell: Option<B::Primitive>,
    /// Peephole weights `[directions, 3 · hidden]`, order `iof` (LSTM).
    pub peepholes: Option<B::Primitive>,
}

/// What [`Backend::rnn`] yields.
pub struct RnnOutput<B: Backend> {
    /// Every step's hidden state.
    pub output: B::Primitive,
    /// The last hidden state, shaped like the initial one.
    pub hidden: B::Primitive,
    /// The last cell state (LSTM).
    pub cell: Option<B::Primitive>,
}

/// Default of [`Backend::rnn`].
pub fn rnn<B: Backend>(operands: RnnOperands<B>, options: &RnnOptions) -> RnnOutput<B> {
    run::<B>(&operands, options, None, |_, _| {})
}

/// [`rnn`] with other functions than [`Activation`] names: `functions` takes the place of `options.activations`, each under
/// its position there.
pub fn rnn_with<B: Backend>(
    operands: RnnOperands<B>,
    options: &RnnOptions,
    functions: &dyn Fn(usize, B::Primitive) -> B::Primitive,
) -> RnnOutput<B> {
    run::<B>(&operands, options, Some(functions), |_, _| {})
}

/// Runs a layer; `visit` sees the direction and the state that each step starts from, in the order in which they run.
pub(super) fn run<B: Backend>(
    operands: &RnnOperands<B>,
    options: &RnnOptions,
    functions: Option<Functions<'_, B>>,
    mut visit: impl FnMut(usize, &State<B>),
) -> RnnOutput<B> {
    let directions = options.direction.count();
    let swap_outer = |t: T<B>| if options.batch_first { B::permute(t, &[1, 0, 2]) } else { t };
    let input = swap_outer(operands.input.clone());
    let first_hidden = operands.initial_hidden.clone().map(swap_outer);
    let first_cell = operands.initial_cell.clone().map(swap_outer);
    let masks = operands.sequence_lengths.clone().map(|lengths| step_masks::<B>(lengths, input.shape()[0]));

    let (mut outputs, mut hiddens, mut cells) = (Vec::new(), Vec::new(), Vec::new());
    for direction in 0..directions {
        let reverse = is_reversed(options, direction);
        let layer = Direction::<B> { functions, ..Direction::new(operands, options, direction) };
        let first = |state: &Option<T<B>>| match state {
            Some(state) => nth::<B>(state.clone(), direction),
            None => {
                let dims = Shape::from([input.shape()[1], options.hidden_size]);
                B::full(dims, Scalar::Float(0.0), input.dtype(), &B::device(&input))
            }
        };
        let is_lstm = matches!(options.kind, RnnKind::Lstm { .. });
        let state = State { hidden: first(&first_hidden), cell: is_lstm.then(|| first(&first_cell)) };
        let (output, last) =
            layer.run(input.clone(), state, masks.as_deref(), reverse, |state| visit(direction, state));
        outputs.push(output);
        let lead = |t: T<B>| {
            let [batch, hidden] = t.shape().dims();
            reshape::<B>(t, &[1, batch, hidden])
        };
        hiddens.push(lead(last.hidden));
        cells.extend(last.cell.map(lead));
    }
    let output = B::cat(&outputs, 1);
    RnnOutput {
        output: if options.batch_first { B::permute(output, &[2, 0, 1, 3]) } else { output },
        hidden: swap_outer(B::cat(&hiddens, 0)),
        cell: (!cells.is_empty()).then(|| swap_outer(B::cat(&cells, 0))),
    }
}

/// Whether a direction reads the sequence from its end.
pub(super) fn is_reversed(options: &RnnOptions, direction: usize) -> bool {
    options.direction == RnnDirection::Reverse || direction == 1
}

/// For each step, `[batch, 1]`: whether the row's sequence is still running.
pub(super) fn step_masks<B: Backend>(lengths: T<B>, steps: usize) -> Vec<T<B>> {
    let batch = lengths.shape().num_elements();
    let lengths = reshape::<B>(lengths, &[batch, 1]);
    (0..steps)
        .map(|step| B::compare_scalar(CompareOp::Greater, lengths.clone(), Scalar::Int(step as i64)))
        .collect()
}

/// What a cell carries from step to step, `[batch, hidden]` each.
pub(super) struct State<B: Backend> {
    pub(super) hidden: T<B>,
    pub(super) cell: Option<T<B>>,
}

impl<B: Backend> Clone for State<B> {
    fn clone(&self) -> Self {
        Self { hidden: self.hidden.clone(), cell: self.cell.clone() }
    }
}

/// A gate at one step: a sum, and what the gate's activation makes of it once it is bounded.
pub(super) struct Gate<B: Backend> {
    pub(super) sum: T<B>,
    pub(super) value: T<B>,
}

/// A step of a gated recurrent unit.
pub(super) struct GruStep<B: Backend> {
    pub(super) update: Gate<B>,
    pub(super) reset: Gate<B>,
    pub(super) candidate: Gate<B>,
    /// What the reset gate was multiplied with, if that came after the recurrent product; else the product of both that
    /// went into it.
    pub(super) reset_with: T<B>,
}

/// A step of a long short-term memory.
pub(super) struct LstmStep<B: Backend> {
    pub(super) input: Gate<B>,
    /// Absent when coupled to the input gate.
    pub(super) forget: Option<Gate<B>>,
    pub(super) candidate: Gate<B>,
    pub(super) output: Gate<B>,
    /// The share of the old cell state that stays.
    pub(super) kept: T<B>,
    /// The new cell state before it is bounded.
    pub(super) sum: T<B>,
    /// The new cell state, and what the output gate shows of it.
    pub(super) cell: T<B>,
    pub(super) shown: T<B>,
}

/// What a cell computed in one step.
pub(super) enum CellStep<B: Backend> {
    Rnn(Gate<B>),
    Gru(GruStep<B>),
    Lstm(LstmStep<B>),
}

impl<B: Backend> GruStep<B> {
    /// The new hidden state before it is bounded: `(1 - update) · candidate + update · hidden`.
    pub(super) fn blend(&self, hidden: T<B>) -> T<B> {
        let new = mul::<B>(one_minus::<B>(self.update.value.clone()), self.candidate.value.clone());
        add::<B>(new, mul::<B>(self.update.value.clone(), hidden))
    }
}

impl<B: Backend> CellStep<B> {
    /// The state after the step, from that before it. An LSTM's is bounded already.
    fn next(self, hidden: T<B>, clip: Option<f64>) -> State<B> {
        match self {
            CellStep::Rnn(gate) => State { hidden: bounded::<B>(gate.value, clip), cell: None },
            CellStep::Gru(step) => State { hidden: bounded::<B>(step.blend(hidden), clip), cell: None },
            CellStep::Lstm(LstmStep { output, cell, shown, .. }) => {
                State { hidden: mul::<B>(output.value, shown), cell: Some(cell) }
            }
        }
    }
}

/// What stands for activations, given the position of one.
type Functions<'a, B> = &'a dyn Fn(usize, T<B>) -> T<B>;

/// One direction of a recurrent layer.
pub(super) struct Direction<'a, B: Backend> {
    kind: RnnKind,
    pub(super) hidden: usize,
    pub(super) clip: Option<f64>,
    pub(super) state_clip: Option<f64>,
    /// The cell's activations, in ONNX's order `f, g, h`.
    pub(super) activations: &'a [Activation],
    /// What stands for all directions' activations, of which this one's begin at `first_activation`.
    functions: Option<Functions<'a, B>>,
    first_activation: usize,
    /// `[input, gates · hidden]`.
    pub(super) weight: T<B>,
    /// `[hidden, gates · hidden]`.
    pub(super) recurrent: T<B>,
    /// `[gates · hidden]`, added to the input's product.
    pub(super) input_bias: Option<T<B>>,
    /// `[1, gates · hidden]`, added to the recurrent product, where it cannot join the other.
    recurrent_bias: Option<T<B>>,
    /// `[1, 3 · hidden]`, order `iof`.
    pub(super) peepholes: Option<T<B>>,
}

impl<'a, B: Backend> Direction<'a, B> {
    pub(super) fn new(operands: &RnnOperands<B>, options: &'a RnnOptions, direction: usize) -> Self {
        let hidden = options.hidden_size;
        let transposed = |t: &T<B>| B::permute(nth::<B>(t.clone(), direction), &[1, 0]);
        let weight = transposed(&operands.weight);
        let gates = weight.shape()[1];
        let biases = operands.bias.clone().map(|bias| {
            let bias = nth::<B>(bias, direction);
            (narrow::<B>(bias.clone(), 0, 0, gates), narrow::<B>(bias, 0, gates, gates))
        });
        let apart = matches!(options.kind, RnnKind::Gru { linear_before_reset: true });
        let (input_bias, recurrent_bias) = match biases {
            None => (None, None),
            Some((w, r)) if apart => (Some(w), Some(reshape::<B>(r, &[1, gates]))),
            Some((w, r)) => (Some(add::<B>(w, r)), None),
        };
        let cells = options.activations.len() / if operands.weight.shape()[0] == 2 { 2 } else { 1 };
        Self {
            kind: options.kind,
            hidden,
            clip: options.clip,
            state_clip: options.state_clip,
            activations: &options.activations[direction * cells..(direction + 1) * cells],
            functions: None,
            first_activation: direction * cells,
            weight,
            recurrent: transposed(&operands.recurrent),
            input_bias,
            recurrent_bias,
            peepholes: operands
                .peepholes
                .clone()
                .map(|p| reshape::<B>(nth::<B>(p, direction), &[1, 3 * hidden])),
        }
    }

    /// Runs all steps of `[seq, batch, input]`; yields `[seq, 1, batch, hidden]` and the last state.
    fn run(
        &self,
        input: T<B>,
        mut state: State<B>,
        masks: Option<&[T<B>]>,
        reverse: bool,
        mut visit: impl FnMut(&State<B>),
    ) -> (T<B>, State<B>) {
        let [steps, batch, _] = input.shape().dims();
        let (dtype, device) = (input.dtype(), B::device(&input));
        // One product for all steps; only the recurrent one must go step by step.
        let projected = B::linear(input, &self.weight, self.input_bias.as_ref(), None);
        let mut outputs = Vec::with_capacity(steps);
        for n in 0..steps {
            let step = if reverse { steps - 1 - n } else { n };
            visit(&state);
            let computed = self.step(nth::<B>(projected.clone(), step), &state);
            let next = computed.next(state.hidden.clone(), self.state_clip);
            let output = match masks {
                None => {
                    state = next;
                    state.hidden.clone()
                }
                Some(masks) => {
                    let running = masks[step].clone();
                    let keep = |new: T<B>, old: T<B>| B::select_where(running.clone(), new, old);
                    let zero = scalar_like::<B>(&next.hidden, Scalar::Float(0.0), dtype, 2);
                    let output = keep(next.hidden.clone(), zero);
                    state.hidden = keep(next.hidden, state.hidden);
                    state.cell = next.cell.zip(state.cell).map(|(new, old)| keep(new, old));
                    output
                }
            };
            outputs.push(reshape::<B>(output, &[1, 1, batch, self.hidden]));
        }
        if reverse {
            outputs.reverse();
        }
        let output = if outputs.is_empty() {
            B::full(Shape::from([0, 1, batch, self.hidden]), Scalar::Float(0.0), dtype, &device)
        } else {
            B::cat(&outputs, 0)
        };
        (output, state)
    }

    /// Computes a step from the input's product and the state before it.
    pub(super) fn step(&self, projected: T<B>, state: &State<B>) -> CellStep<B> {
        match self.kind {
            RnnKind::Rnn => {
                let recurrent = B::matmul(state.hidden.clone(), self.recurrent.clone());
                CellStep::Rnn(self.activated(0, add::<B>(projected, recurrent)))
            }
            RnnKind::Gru { linear_before_reset: true } => {
                CellStep::Gru(self.gru_linear_before_reset(projected, state))
            }
            RnnKind::Gru { linear_before_reset: false } => CellStep::Gru(self.gru(projected, state)),
            RnnKind::Lstm { input_forget } => CellStep::Lstm(self.lstm(projected, state, input_forget)),
        }
    }

    /// `z`, `r` and `h` from one product of the hidden state.
    fn gru_linear_before_reset(&self, projected: T<B>, state: &State<B>) -> GruStep<B> {
        let mut recurrent = B::matmul(state.hidden.clone(), self.recurrent.clone());
        if let Some(bias) = &self.recurrent_bias {
            recurrent = add::<B>(recurrent, bias.clone());
        }
        let sum = |n| add::<B>(self.gate(&projected, n), self.gate(&recurrent, n));
        let (update, reset) = (self.activated(0, sum(0)), self.activated(0, sum(1)));
        let reset_with = self.gate(&recurrent, 2);
        let from_hidden = mul::<B>(reset.value.clone(), reset_with.clone());
        let candidate = self.activated(1, add::<B>(self.gate(&projected, 2), from_hidden));
        GruStep { update, reset, candidate, reset_with }
    }

    /// The reset gate acts on the hidden state before its product.
    fn gru(&self, projected: T<B>, state: &State<B>) -> GruStep<B> {
        let size = self.hidden;
        let gates = B::matmul(state.hidden.clone(), narrow::<B>(self.recurrent.clone(), 1, 0, 2 * size));
        let gate = |n| self.activated(0, add::<B>(self.gate(&projected, n), self.gate(&gates, n)));
        let (update, reset) = (gate(0), gate(1));
        let weight = narrow::<B>(self.recurrent.clone(), 1, 2 * size, size);
        let reset_with = mul::<B>(reset.value.clone(), state.hidden.clone());
        let from_hidden = B::matmul(reset_with.clone(), weight);
        let candidate = self.activated(1, add::<B>(self.gate(&projected, 2), from_hidden));
        GruStep { update, reset, candidate, reset_with }
    }

    fn lstm(&self, projected: T<B>, state: &State<B>, input_forget: bool) -> LstmStep<B> {
        let Some(cell) = state.cell.clone() else { panic!("rnn: an LSTM without a cell state") };
        let sums = add::<B>(projected, B::matmul(state.hidden.clone(), self.recurrent.clone()));
        // Peepholes look at the cell state: `i` and `f` at the old one, `o` at the new one.
        let peep = |n: usize, sum: T<B>, cell: &T<B>| match &self.peepholes {
            Some(peepholes) => add::<B>(sum, mul::<B>(self.gate(peepholes, n), cell.clone())),
            None => sum,
        };
        let input = self.activated(0, peep(0, self.gate(&sums, 0), &cell));
        let forget = (!input_forget).then(|| self.activated(0, peep(2, self.gate(&sums, 2), &cell)));
        let kept = match &forget {
            Some(forget) => forget.value.clone(),
            None => one_minus::<B>(input.value.clone()),
        };
        let candidate = self.activated(1, self.gate(&sums, 3));
        let new = mul::<B>(input.value.clone(), candidate.value.clone());
        let sum = add::<B>(mul::<B>(kept.clone(), cell), new);
        let cell = bounded::<B>(sum.clone(), self.state_clip);
        let output = self.activated(0, peep(1, self.gate(&sums, 1), &cell));
        let shown = self.function(2, cell.clone());
        LstmStep { input, forget, candidate, output, kept, sum, cell, shown }
    }

    /// The columns of the `n`-th gate.
    pub(super) fn gate(&self, all: &T<B>, n: usize) -> T<B> {
        narrow::<B>(all.clone(), 1, n * self.hidden, self.hidden)
    }

    /// Bounds a sum and applies the `n`-th activation.
    fn activated(&self, n: usize, sum: T<B>) -> Gate<B> {
        let value = self.function(n, bounded::<B>(sum.clone(), self.clip));
        Gate { sum, value }
    }

    /// Applies the `n`-th activation, or what stands for it.
    fn function(&self, n: usize, x: T<B>) -> T<B> {
        match self.functions {
            Some(functions) => functions(self.first_activation + n, x),
            None => B::activation(self.activations[n], x),
        }
    }
}

/// `clamp(x, -clip, clip)`.
fn bounded<B: Backend>(x: T<B>, clip: Option<f64>) -> T<B> {
    match clip {
        Some(clip) => B::clamp(x, Some(Scalar::Float(-clip)), Some(Scalar::Float(clip))),
        None => x,
    }
}
