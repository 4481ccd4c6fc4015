//! Recurrent layers in training: back through time, with the gates computed again from the states that were kept.

use crate::backend::{Backend, Primitive};
use crate::compose::calc::{T, add, mul, narrow, nth, one_minus, reshape, sub};
use crate::compose::rnn::{
    CellStep, Direction, Gate, GruStep, LstmStep, RnnOperands, RnnOutput, State, is_reversed, run, step_masks,
};
use crate::{Activation, ReduceOp, RnnKind, RnnOptions, Scalar, Shape};
use alloc::{vec, vec::Vec};

/// What a recurrent layer yields in training.
pub struct RnnTrained<B: Backend> {
    /// The results.
    pub output: RnnOutput<B>,
    /// What its gradient needs.
    pub states: RnnStates<B>,
}

/// What a recurrent layer keeps for its gradient.
#[derive(Clone)]
pub struct RnnStates<B: Backend> {
    /// The hidden state that each step started from, in the order of the sequence: `[directions, seq, batch, hidden]`.
    pub hidden: B::Primitive,
    /// Likewise the cell state (LSTM).
    pub cell: Option<B::Primitive>,
    /// What else a backend keeps, in a form of its own; without it the gates are computed again.
    pub gates: Option<B::Primitive>,
}

/// Gradients of a recurrent layer, laid out like its operands.
pub struct RnnGradients<B: Backend> {
    /// Of the input.
    pub input: B::Primitive,
    /// Of the input weights.
    pub weight: B::Primitive,
    /// Of the recurrent weights.
    pub recurrent: B::Primitive,
    /// Of the biases, if there are any.
    pub bias: Option<B::Primitive>,
    /// Of the first hidden state, whether it was given or not.
    pub initial_hidden: B::Primitive,
    /// Of the first cell state (LSTM).
    pub initial_cell: Option<B::Primitive>,
    /// Of the peephole weights, if there are any.
    pub peepholes: Option<B::Primitive>,
}

/// Default of [`Backend::rnn_train`].
pub fn rnn_train<B: Backend>(operands: RnnOperands<B>, options: &RnnOptions) -> RnnTrained<B> {
    let directions = options.direction.count();
    let mut hidden: Vec<Vec<T<B>>> = vec![Vec::new(); directions];
    let mut cell: Vec<Vec<T<B>>> = vec![Vec::new(); directions];
    let output = run::<B>(&operands, options, None, |direction, state| {
        hidden[direction].push(state.hidden.clone());
        cell[direction].extend(state.cell.clone());
    });
    let [_, batch, size] = operands_dims::<B>(&operands, options);
    let like = &output.hidden;
    let stacked = |mut states: Vec<Vec<T<B>>>| {
        let steps = states.first().map_or(0, Vec::len);
        // They were seen in the order in which the steps ran.
        let reversed = (0..directions).filter(|direction| is_reversed(options, *direction));
        reversed.for_each(|direction| states[direction].reverse());
        let states: Vec<T<B>> = states.into_iter().flatten().collect();
        if states.is_empty() {
            return super::zeros::<B>(&Shape::from([directions, 0, batch, size]), like);
        }
        reshape::<B>(B::cat(&states, 0), &[directions, steps, batch, size])
    };
    let cell = matches!(options.kind, RnnKind::Lstm { .. }).then(|| stacked(cell));
    let states = RnnStates { hidden: stacked(hidden), cell, gates: None };
    RnnTrained { output, states }
}

/// Steps, batch and hidden size.
fn operands_dims<B: Backend>(operands: &RnnOperands<B>, options: &RnnOptions) -> [usize; 3] {
    let [first, second, _] = operands.input.shape().dims();
    let [steps, batch] = if options.batch_first { [second, first] } else { [first, second] };
    [steps, batch, options.hidden_size]
}

/// Default of [`Backend::rnn_gradient`].
pub fn rnn_gradient<B: Backend>(
    gradient: RnnOutput<B>,
    operands: RnnOperands<B>,
    states: RnnStates<B>,
    options: &RnnOptions,
) -> RnnGradients<B> {
    let RnnStates { hidden: hidden_states, cell: cell_states, .. } = states;
    let swap_outer = |t: T<B>| if options.batch_first { B::permute(t, &[1, 0, 2]) } else { t };
    let input = swap_outer(operands.input.clone());
    let masks = operands.sequence_lengths.clone().map(|lengths| step_masks::<B>(lengths, input.shape()[0]));
    // `[seq, directions, batch, hidden]`
    let outputs = match options.batch_first {
        true => B::permute(gradient.output, &[1, 2, 0, 3]),
        false => gradient.output,
    };
    let (hidden, cell) = (swap_outer(gradient.hidden), gradient.cell.map(swap_outer));

    let mut sums: Vec<Sums<B>> = Vec::new();
    for direction in 0..options.direction.count() {
        let of_direction = |t: &T<B>| nth::<B>(t.clone(), direction);
        let back = Backward {
            layer: Direction::new(&operands, options, direction),
            kind: options.kind,
            input: input.clone(),
            hidden_states: of_direction(&hidden_states),
            cell_states: cell_states.as_ref().map(of_direction),
            masks: masks.as_deref(),
            reverse: is_reversed(options, direction),
        };
        let [steps, _, batch, size] = outputs.shape().dims();
        let outputs = reshape::<B>(narrow::<B>(outputs.clone(), 1, direction, 1), &[steps, batch, size]);
        let last = State { hidden: of_direction(&hidden), cell: cell.as_ref().map(of_direction) };
        sums.push(back.run(outputs, last));
    }
    joined(sums, &operands, swap_outer)
}

/// Gradients of one direction.
struct Sums<B: Backend> {
    /// `[seq, batch, input]`.
    input: T<B>,
    weight: T<B>,
    recurrent: T<B>,
    /// `[2 · gates · hidden]`.
    bias: T<B>,
    first: State<B>,
    /// `[3 · hidden]`.
    peepholes: Option<T<B>>,
}

/// The directions' gradients under each other.
fn joined<B: Backend>(
    sums: Vec<Sums<B>>,
    operands: &RnnOperands<B>,
    swap_outer: impl Fn(T<B>) -> T<B>,
) -> RnnGradients<B> {
    let lead = |t: T<B>| {
        let mut dims = vec![1];
        dims.extend_from_slice(t.dims());
        reshape::<B>(t, &dims)
    };
    let stacked = |part: &dyn Fn(&Sums<B>) -> Option<T<B>>| -> Option<T<B>> {
        let parts: Option<Vec<T<B>>> = sums.iter().map(|sums| part(sums).map(lead)).collect();
        parts.map(|parts| B::cat(&parts, 0))
    };
    let whole = |part: &dyn Fn(&Sums<B>) -> T<B>| {
        B::cat(&sums.iter().map(|sums| lead(part(sums))).collect::<Vec<_>>(), 0)
    };
    let input = B::reduce(ReduceOp::Sum, whole(&|sums| sums.input.clone()), &[0]);
    let [_, steps, batch, size] = input.shape().dims();
    RnnGradients {
        input: swap_outer(reshape::<B>(input, &[steps, batch, size])),
        weight: whole(&|sums| sums.weight.clone()),
        recurrent: whole(&|sums| sums.recurrent.clone()),
        bias: operands.bias.as_ref().map(|_| whole(&|sums| sums.bias.clone())),
        initial_hidden: swap_outer(whole(&|sums| sums.first.hidden.clone())),
        initial_cell: stacked(&|sums| sums.first.cell.clone()).map(&swap_outer),
        peepholes: stacked(&|sums| sums.peepholes.clone()),
    }
}

/// One direction on its way back.
struct Backward<'a, B: Backend> {
    layer: Direction<'a, B>,
    kind: RnnKind,
    /// `[seq, batch, input]`.
    input: T<B>,
    /// `[seq, batch, hidden]`.
    hidden_states: T<B>,
    cell_states: Option<T<B>>,
    masks: Option<&'a [T<B>]>,
    reverse: bool,
}

/// What one step hands back.
struct StepGradients<B: Backend> {
    /// Of the input's product, `[batch, gates · hidden]`.
    projected: T<B>,
    /// Of the recurrent product.
    recurrent: T<B>,
    /// What the recurrent product of the candidate was taken of, where that is not the hidden state.
    multiplied: Option<T<B>>,
    /// Of the state before the step.
    state: State<B>,
    /// `[3 · hidden]`.
    peepholes: Option<T<B>>,
}

impl<B: Backend> Backward<'_, B> {
    /// All steps, from the gradients of their outputs `[seq, batch, hidden]` and of the last state.
    fn run(&self, outputs: T<B>, last: State<B>) -> Sums<B> {
        let [steps, batch, size] = self.input.shape().dims();
        let width = self.layer.weight.shape()[1];
        let projected =
            B::linear(self.input.clone(), &self.layer.weight, self.layer.input_bias.as_ref(), None);
        let mut state = last;
        let (mut of_projected, mut of_recurrent) = (Vec::new(), Vec::new());
        let mut multiplied = Vec::new();
        let mut peepholes: Option<T<B>> = None;
        for n in (0..steps).rev() {
            let at = if self.reverse { steps - 1 - n } else { n };
            let before = State {
                hidden: nth::<B>(self.hidden_states.clone(), at),
                cell: self.cell_states.as_ref().map(|states| nth::<B>(states.clone(), at)),
            };
            let computed = self.layer.step(nth::<B>(projected.clone(), at), &before);
            let (mut new, passed) = self.arrived(nth::<B>(outputs.clone(), at), state, at);
            let gradients = self.step(computed, &before, &mut new);
            state = match passed {
                Some(passed) => sum_of(gradients.state, passed),
                None => gradients.state,
            };
            peepholes = match (peepholes, gradients.peepholes) {
                (Some(sum), Some(own)) => Some(add::<B>(sum, own)),
                (sum, own) => sum.or(own),
            };
            of_projected.push(gradients.projected);
            of_recurrent.push(gradients.recurrent);
            multiplied.extend(gradients.multiplied);
        }
        if !self.reverse {
            // The last step of the sequence came first.
            of_projected.reverse();
            of_recurrent.reverse();
            multiplied.reverse();
        }
        let joined = |parts: Vec<T<B>>| match parts.is_empty() {
            true => super::zeros::<B>(&Shape::from([0, width]), &self.input),
            false => B::cat(&parts, 0),
        };
        let (of_projected, of_recurrent) = (joined(of_projected), joined(of_recurrent));
        let rows = |t: T<B>, width: usize| reshape::<B>(t, &[steps * batch, width]);
        let turned = |t: T<B>| B::permute(t, &[1, 0]);
        let bias = |t: &T<B>| reshape::<B>(B::reduce(ReduceOp::Sum, t.clone(), &[0]), &[width]);
        let bias = B::cat(&[bias(&of_projected), bias(&of_recurrent)], 0);
        let input = B::matmul(of_projected.clone(), turned(self.layer.weight.clone()));
        Sums {
            input: reshape::<B>(input, &[steps, batch, size]),
            weight: B::matmul(turned(of_projected), rows(self.input.clone(), size)),
            recurrent: self.of_recurrent_weight(
                of_recurrent,
                rows(self.hidden_states.clone(), self.layer.hidden),
                multiplied,
            ),
            bias,
            first: state,
            peepholes: match (&self.layer.peepholes, peepholes) {
                (Some(given), None) => {
                    Some(super::zeros::<B>(&Shape::from([given.shape().num_elements()]), given))
                }
                (_, peepholes) => peepholes,
            },
        }
    }

    /// `[gates · hidden, hidden]`.
    fn of_recurrent_weight(&self, gradients: T<B>, hidden: T<B>, multiplied: Vec<T<B>>) -> T<B> {
        let product = |gradients: T<B>, x: T<B>| B::matmul(B::permute(gradients, &[1, 0]), x);
        if multiplied.is_empty() {
            return product(gradients, hidden);
        }
        let size = self.layer.hidden;
        let gates = product(narrow::<B>(gradients.clone(), 1, 0, 2 * size), hidden);
        let candidate = product(narrow::<B>(gradients, 1, 2 * size, size), B::cat(&multiplied, 0));
        B::cat(&[gates, candidate], 0)
    }

    /// The gradients of the state that a step computed, and of the state before it where the step did not count.
    fn arrived(&self, output: T<B>, state: State<B>, at: usize) -> (State<B>, Option<State<B>>) {
        let Some(masks) = self.masks else {
            return (State { hidden: add::<B>(state.hidden, output), cell: state.cell }, None);
        };
        let running = masks[at].clone();
        let counts =
            |t: T<B>| B::mask_fill(t, B::unary(crate::UnaryOp::Not, running.clone()), Scalar::Int(0));
        let passes = |t: T<B>| B::mask_fill(t, running.clone(), Scalar::Int(0));
        let passed = State { hidden: passes(state.hidden.clone()), cell: state.cell.clone().map(passes) };
        let new = State { hidden: counts(add::<B>(state.hidden, output)), cell: state.cell.map(counts) };
        (new, Some(passed))
    }

    /// The gradient of a gate's sum.
    fn of_sum(&self, n: usize, gate: Gate<B>, gradient: T<B>) -> T<B> {
        let Some(clip) = self.layer.clip else {
            return B::activation_gradient(self.layer.activations[n], gradient, gate.sum);
        };
        let bounded = B::activation(bounds(clip), gate.sum.clone());
        let gradient = B::activation_gradient(self.layer.activations[n], gradient, bounded);
        B::activation_gradient(bounds(clip), gradient, gate.sum)
    }

    /// The gradient of a state before it was bounded, which was `sum`.
    fn of_state(&self, gradient: T<B>, sum: impl FnOnce() -> T<B>) -> T<B> {
        match self.layer.state_clip {
            Some(clip) => B::activation_gradient(bounds(clip), gradient, sum()),
            None => gradient,
        }
    }

    /// Through the recurrent product, whose columns these are.
    fn to_hidden(&self, gradient: T<B>, columns: core::ops::Range<usize>) -> T<B> {
        let weight = narrow::<B>(self.layer.recurrent.clone(), 1, columns.start, columns.len());
        B::matmul(gradient, B::permute(weight, &[1, 0]))
    }

    fn step(&self, computed: CellStep<B>, before: &State<B>, new: &mut State<B>) -> StepGradients<B> {
        let gradient = new.hidden.clone();
        match computed {
            CellStep::Rnn(gate) => {
                let gradient = self.of_state(gradient, || gate.value.clone());
                let sum = self.of_sum(0, gate, gradient);
                let hidden = self.to_hidden(sum.clone(), 0..self.layer.hidden);
                let state = State { hidden, cell: None };
                StepGradients {
                    projected: sum.clone(),
                    recurrent: sum,
                    multiplied: None,
                    state,
                    peepholes: None,
                }
            }
            CellStep::Gru(step) => {
                let gradient = self.of_state(gradient, || step.blend(before.hidden.clone()));
                self.gru(step, before, gradient)
            }
            CellStep::Lstm(step) => self.lstm(step, before, gradient, new.cell.clone()),
        }
    }

    fn gru(&self, step: GruStep<B>, before: &State<B>, gradient: T<B>) -> StepGradients<B> {
        let GruStep { update, reset, candidate, reset_with } = step;
        let size = self.layer.hidden;
        // h' = (1 - z) · n + z · h
        let (z, r, n) = (update.value.clone(), reset.value.clone(), candidate.value.clone());
        let of_update = mul::<B>(gradient.clone(), sub::<B>(before.hidden.clone(), n));
        let of_candidate = mul::<B>(gradient.clone(), one_minus::<B>(z.clone()));
        let kept = mul::<B>(gradient, z);
        let update = self.of_sum(0, update, of_update);
        let candidate = self.of_sum(1, candidate, of_candidate);
        let state = |hidden| State { hidden, cell: None };
        if let RnnKind::Gru { linear_before_reset: true } = self.kind {
            // n = g(x + r · (h R + b))
            let reset = self.of_sum(0, reset, mul::<B>(candidate.clone(), reset_with));
            let recurrent = B::cat(&[update.clone(), reset.clone(), mul::<B>(candidate.clone(), r)], 1);
            let hidden = add::<B>(kept, self.to_hidden(recurrent.clone(), 0..3 * size));
            let projected = B::cat(&[update, reset, candidate], 1);
            return StepGradients {
                projected,
                recurrent,
                multiplied: None,
                state: state(hidden),
                peepholes: None,
            };
        }
        // n = g(x + (r · h) R)
        let of_product = self.to_hidden(candidate.clone(), 2 * size..3 * size);
        let reset = self.of_sum(0, reset, mul::<B>(of_product.clone(), before.hidden.clone()));
        let gates = B::cat(&[update, reset], 1);
        let hidden =
            add::<B>(add::<B>(kept, mul::<B>(of_product, r)), self.to_hidden(gates.clone(), 0..2 * size));
        let projected = B::cat(&[gates, candidate], 1);
        StepGradients {
            projected: projected.clone(),
            recurrent: projected,
            multiplied: Some(reset_with),
            state: state(hidden),
            peepholes: None,
        }
    }

    fn lstm(
        &self,
        step: LstmStep<B>,
        before: &State<B>,
        gradient: T<B>,
        of_cell: Option<T<B>>,
    ) -> StepGradients<B> {
        let LstmStep { input, forget, candidate, output, kept, sum, cell, shown } = step;
        let Some(old) = before.cell.clone() else { panic!("rnn: an LSTM without a cell state") };
        // h' = o · h(c')
        let of_shown = mul::<B>(gradient.clone(), output.value.clone());
        let output = self.of_sum(0, output, mul::<B>(gradient, shown));
        let mut of_new = B::activation_gradient(self.layer.activations[2], of_shown, cell.clone());
        if let Some(of_cell) = of_cell {
            of_new = add::<B>(of_new, of_cell);
        }
        let peephole = |n: usize| self.layer.peepholes.as_ref().map(|all| self.layer.gate(all, n));
        let through = |sum: T<B>, gate: &T<B>, n: usize| match peephole(n) {
            Some(weight) => add::<B>(sum, mul::<B>(gate.clone(), weight)),
            None => sum,
        };
        of_new = self.of_state(through(of_new, &output, 1), || sum);
        // c' = f · c + i · g
        let of_forget = mul::<B>(of_new.clone(), old.clone());
        let mut of_input = mul::<B>(of_new.clone(), candidate.value.clone());
        let candidate = self.of_sum(1, candidate, mul::<B>(of_new.clone(), input.value.clone()));
        let mut of_old = mul::<B>(of_new, kept);
        let forget = match forget {
            Some(forget) => self.of_sum(0, forget, of_forget),
            None => {
                of_input = sub::<B>(of_input, of_forget.clone());
                super::zeros::<B>(&of_forget.shape(), &of_forget)
            }
        };
        let input = self.of_sum(0, input, of_input);
        of_old = through(through(of_old, &input, 0), &forget, 2);
        let peepholes = self.layer.peepholes.as_ref().map(|_| {
            let seen = [(&input, &old), (&output, &cell), (&forget, &old)];
            let sums = seen.map(|(gate, cell)| {
                let sum = B::reduce(ReduceOp::Sum, mul::<B>(gate.clone(), cell.clone()), &[0]);
                reshape::<B>(sum, &[self.layer.hidden])
            });
            B::cat(&sums, 0)
        });
        let sums = B::cat(&[input, output, forget, candidate], 1);
        let hidden = self.to_hidden(sums.clone(), 0..4 * self.layer.hidden);
        StepGradients {
            projected: sums.clone(),
            recurrent: sums,
            multiplied: None,
            state: State { hidden, cell: Some(of_old) },
            peepholes,
        }
    }
}

/// `clamp(x, -clip, clip)`.
fn bounds(clip: f64) -> Activation {
    Activation::Clamp { min: -clip, max: clip }
}

/// The sums of both states' gradients.
fn sum_of<B: Backend>(a: State<B>, b: State<B>) -> State<B> {
    State {
        hidden: add::<B>(a.hidden, b.hidden),
        cell: match (a.cell, b.cell) {
            (Some(a), Some(b)) => Some(add::<B>(a, b)),
            (a, b) => a.or(b),
        },
    }
}
