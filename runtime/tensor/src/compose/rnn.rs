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
    let directions = options.direction.count();
    let swap_outer = |t: T<B>| if options.batch_first { B::permute(t, &[1, 0, 2]) } else { t };
    let input = swap_outer(operands.input.clone());
    let first_hidden = operands.initial_hidden.clone().map(swap_outer);
    let first_cell = operands.initial_cell.clone().map(swap_outer);
    let masks = operands.sequence_lengths.clone().map(|lengths| step_masks::<B>(lengths, input.shape()[0]));

    let (mut outputs, mut hiddens, mut cells) = (Vec::new(), Vec::new(), Vec::new());
    for direction in 0..directions {
        let reverse = options.direction == RnnDirection::Reverse || direction == 1;
        let layer = Direction::<B>::new(&operands, options, direction);
        let first = |state: &Option<T<B>>| match state {
            Some(state) => nth::<B>(state.clone(), direction),
            None => {
                let dims = Shape::from([input.shape()[1], options.hidden_size]);
                B::full(dims, Scalar::Float(0.0), input.dtype(), &B::device(&input))
            }
        };
        let is_lstm = matches!(options.kind, RnnKind::Lstm { .. });
        let state = State { hidden: first(&first_hidden), cell: is_lstm.then(|| first(&first_cell)) };
        let (output, last) = layer.run(input.clone(), state, masks.as_deref(), reverse);
        outputs.push(output);
        let lead = |t: T<B>| {
            let [batch, hidden] = t.shape().dims();
            reshape::<B>(t, &[1, batch, hidden])
        };
        hiddens.push(lead(last.hidden));
        cells.extend(last.cell.map(lead));
    }
    let output = B::cat(outputs, 1);
    RnnOutput {
        output: if options.batch_first { B::permute(output, &[2, 0, 1, 3]) } else { output },
        hidden: swap_outer(B::cat(hiddens, 0)),
        cell: (!cells.is_empty()).then(|| swap_outer(B::cat(cells, 0))),
    }
}

/// For each step, `[batch, 1]`: whether the row's sequence is still running.
fn step_masks<B: Backend>(lengths: T<B>, steps: usize) -> Vec<T<B>> {
    let batch = lengths.shape().num_elements();
    let lengths = reshape::<B>(lengths, &[batch, 1]);
    (0..steps)
        .map(|step| B::compare_scalar(CompareOp::Greater, lengths.clone(), Scalar::Int(step as i64)))
        .collect()
}

/// What a cell carries from step to step, `[batch, hidden]` each.
struct State<B: Backend> {
    hidden: T<B>,
    cell: Option<T<B>>,
}

impl<B: Backend> Clone for State<B> {
    fn clone(&self) -> Self {
        Self { hidden: self.hidden.clone(), cell: self.cell.clone() }
    }
}

/// One direction of a recurrent layer.
struct Direction<'a, B: Backend> {
    kind: RnnKind,
    hidden: usize,
    clip: Option<f64>,
    /// The cell's activations, in ONNX's order `f, g, h`.
    activations: &'a [Activation],
    /// `[input, gates · hidden]`.
    weight: T<B>,
    /// `[hidden, gates · hidden]`.
    recurrent: T<B>,
    /// `[gates · hidden]`, added to the input's product.
    input_bias: Option<T<B>>,
    /// `[1, gates · hidden]`, added to the recurrent product, where it cannot join the other.
    recurrent_bias: Option<T<B>>,
    /// `[1, 3 · hidden]`, order `iof`.
    peepholes: Option<T<B>>,
}

impl<'a, B: Backend> Direction<'a, B> {
    fn new(operands: &RnnOperands<B>, options: &'a RnnOptions, direction: usize) -> Self {
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
            activations: &options.activations[direction * cells..(direction + 1) * cells],
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
    ) -> (T<B>, State<B>) {
        let [steps, batch, _] = input.shape().dims();
        let (dtype, device) = (input.dtype(), B::device(&input));
        // One product for all steps; only the recurrent one must go step by step.
        let projected = B::linear(input, self.weight.clone(), self.input_bias.clone(), None);
        let mut outputs = Vec::with_capacity(steps);
        for n in 0..steps {
            let step = if reverse { steps - 1 - n } else { n };
            let next = self.step(nth::<B>(projected.clone(), step), state.clone());
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
            B::cat(outputs, 0)
        };
        (output, state)
    }

    fn step(&self, projected: T<B>, state: State<B>) -> State<B> {
        match self.kind {
            RnnKind::Rnn => {
                let recurrent = B::matmul(state.hidden, self.recurrent.clone());
                State { hidden: self.activate(0, add::<B>(projected, recurrent)), cell: None }
            }
            RnnKind::Gru { linear_before_reset } => {
                let hidden = if linear_before_reset {
                    self.gru_linear_before_reset(projected, state.hidden)
                } else {
                    self.gru(projected, state.hidden)
                };
                State { hidden, cell: None }
            }
            RnnKind::Lstm { input_forget } => self.lstm(projected, state, input_forget),
        }
    }

    /// `z`, `r` and `h` from one product of the hidden state.
    fn gru_linear_before_reset(&self, projected: T<B>, hidden: T<B>) -> T<B> {
        let mut recurrent = B::matmul(hidden.clone(), self.recurrent.clone());
        if let Some(bias) = &self.recurrent_bias {
            recurrent = add::<B>(recurrent, bias.clone());
        }
        let both = |n| (self.gate(&projected, n), self.gate(&recurrent, n));
        let sum = |(a, b)| add::<B>(a, b);
        let update = self.activate(0, sum(both(0)));
        let reset = self.activate(0, sum(both(1)));
        let (from_input, from_hidden) = both(2);
        let candidate = self.activate(1, add::<B>(from_input, mul::<B>(reset, from_hidden)));
        blend::<B>(update, candidate, hidden)
    }

    /// The reset gate acts on the hidden state before its product.
    fn gru(&self, projected: T<B>, hidden: T<B>) -> T<B> {
        let size = self.hidden;
        let gates = B::matmul(hidden.clone(), narrow::<B>(self.recurrent.clone(), 1, 0, 2 * size));
        let gate = |n| self.activate(0, add::<B>(self.gate(&projected, n), self.gate(&gates, n)));
        let (update, reset) = (gate(0), gate(1));
        let weight = narrow::<B>(self.recurrent.clone(), 1, 2 * size, size);
        let from_hidden = B::matmul(mul::<B>(reset, hidden.clone()), weight);
        let candidate = self.activate(1, add::<B>(self.gate(&projected, 2), from_hidden));
        blend::<B>(update, candidate, hidden)
    }

    fn lstm(&self, projected: T<B>, state: State<B>, input_forget: bool) -> State<B> {
        let Some(cell) = state.cell else { panic!("rnn: an LSTM without a cell state") };
        let sums = add::<B>(projected, B::matmul(state.hidden, self.recurrent.clone()));
        // Peepholes look at the cell state: `i` and `f` at the old one, `o` at the new one.
        let peep = |n: usize, sum: T<B>, cell: &T<B>| match &self.peepholes {
            Some(peepholes) => add::<B>(sum, mul::<B>(self.gate(peepholes, n), cell.clone())),
            None => sum,
        };
        let input = self.activate(0, peep(0, self.gate(&sums, 0), &cell));
        let forget = if input_forget {
            one_minus::<B>(input.clone())
        } else {
            self.activate(0, peep(2, self.gate(&sums, 2), &cell))
        };
        let candidate = self.activate(1, self.gate(&sums, 3));
        let cell = add::<B>(mul::<B>(forget, cell), mul::<B>(input, candidate));
        let output = self.activate(0, peep(1, self.gate(&sums, 1), &cell));
        let shown = B::activation(self.activations[2], cell.clone());
        State { hidden: mul::<B>(output, shown), cell: Some(cell) }
    }

    /// The columns of the `n`-th gate.
    fn gate(&self, all: &T<B>, n: usize) -> T<B> {
        narrow::<B>(all.clone(), 1, n * self.hidden, self.hidden)
    }

    /// Bounds a pre-activation and applies the `n`-th activation.
    fn activate(&self, n: usize, x: T<B>) -> T<B> {
        let x = match self.clip {
            Some(clip) => B::clamp(x, Some(Scalar::Float(-clip)), Some(Scalar::Float(clip))),
            None => x,
        };
        B::activation(self.activations[n], x)
    }
}

/// `(1 - update) · candidate + update · hidden`.
fn blend<B: Backend>(update: T<B>, candidate: T<B>, hidden: T<B>) -> T<B> {
    let kept = mul::<B>(update.clone(), hidden);
    add::<B>(mul::<B>(one_minus::<B>(update), candidate), kept)
}
