//! Recurrent layers whose functions the runtime's layer does not take, step by step.

use super::super::prelude::*;
use super::{Function, Rnn};
use crate::ir::op;
use kiln_types::{Activation, RnnDirection, RnnKind};

/// Each step is a dozen operations.
const MOST_STEPS: usize = 512;

/// One direction's cell: parameters without the direction's axis.
struct Cell<'a> {
    kind: RnnKind,
    functions: &'a [Function],
    clip: Option<f64>,
    hidden: usize,
    /// Input times input weights, biases added: `[seq, batch, gates · hidden]`.
    projected: ValueId,
    /// `[hidden, gates · hidden]`.
    recurrent: ValueId,
    /// `[gates · hidden]`.
    recurrent_bias: Option<ValueId>,
    /// `[3 · hidden]`.
    peepholes: Option<ValueId>,
}

/// Ranks of the inputs.
const RANKS: [(&str, usize); 7] =
    [("X", 3), ("W", 3), ("R", 3), ("B", 2), ("initial_h", 3), ("initial_c", 3), ("P", 2)];

struct State {
    hidden: ValueId,
    cell: Option<ValueId>,
}

pub(super) fn lower(rnn: &Rnn, args: &Args, to: &mut Lowering<'_, '_>, hidden: usize) -> RuleResult<Outputs> {
    if args.optional("sequence_lens")?.is_some() {
        let what = "sequence lengths together with these cell functions".to_owned();
        return Err(RuleError::Unsupported { what });
    }
    let mut x = args.value("X")?;
    for (input, rank) in RANKS {
        let actual = args.optional(input)?.map(|value| to.rank(value));
        if let Some(actual) = actual.filter(|&actual| actual != rank) {
            let expected = format!("expected {rank}");
            return Err(RuleError::Rank { input: input.to_owned(), actual, expected });
        }
    }
    if rnn.batch_first {
        x = to.permute(x, vec![1, 0, 2])?;
    }
    let steps = to.dims(x)[0].as_size().filter(|&steps| steps <= MOST_STEPS);
    let steps = steps.ok_or_else(|| RuleError::Unsupported {
        what: format!(
            "these cell functions for a sequence that is not known to have at most {MOST_STEPS} steps"
        ),
    })?;
    let directions: &[bool] = match rnn.direction {
        RnnDirection::Forward => &[false],
        RnnDirection::Reverse => &[true],
        RnnDirection::Bidirectional => &[false, true],
    };
    let per = rnn.functions.len() / directions.len();
    let (mut all, mut hiddens, mut cells) = (Vec::new(), Vec::new(), Vec::new());
    for (d, &reverse) in directions.iter().enumerate() {
        let cell = cell(rnn, args, to, x, d, hidden, &rnn.functions[per * d..per * (d + 1)])?;
        let mut state = initial(rnn, args, to, x, d, hidden)?;
        let mut outputs = Vec::with_capacity(steps);
        for n in 0..steps {
            let t = if reverse { steps - 1 - n } else { n };
            let step = to.slice(cell.projected, 0, Dim::from(t), Dim::from(t + 1))?;
            let step = to.squeeze(step, &[0])?;
            state = cell.step(to, step, &state)?;
            outputs.push(to.unsqueeze(state.hidden, &[0, 1])?);
        }
        if reverse {
            outputs.reverse();
        }
        all.push(to.concat(&outputs, 0)?);
        hiddens.push(to.unsqueeze(state.hidden, &[0])?);
        if let Some(cell) = state.cell {
            cells.push(to.unsqueeze(cell, &[0])?);
        }
    }
    let mut outputs = vec![to.concat(&all, 1)?, to.concat(&hiddens, 0)?];
    if !cells.is_empty() {
        outputs.push(to.concat(&cells, 0)?);
    }
    if rnn.batch_first {
        outputs[0] = to.permute(outputs[0], vec![2, 0, 1, 3])?;
        for state in &mut outputs[1..] {
            *state = to.permute(*state, vec![1, 0, 2])?;
        }
    }
    Ok(outputs.into())
}

/// One direction of an operand.
fn direction(to: &mut Lowering<'_, '_>, value: ValueId, axis: usize, d: usize) -> RuleResult<ValueId> {
    let part = to.slice(value, axis, Dim::from(d), Dim::from(d + 1))?;
    to.squeeze(part, &[axis])
}

fn cell<'a>(
    rnn: &Rnn,
    args: &Args,
    to: &mut Lowering<'_, '_>,
    x: ValueId,
    d: usize,
    hidden: usize,
    functions: &'a [Function],
) -> RuleResult<Cell<'a>> {
    let weight = direction(to, args.value("W")?, 0, d)?;
    let weight = to.permute(weight, vec![1, 0])?;
    let weight = to.unsqueeze(weight, &[0])?;
    let mut projected = to.add(Op::MatMul, &[x, weight])?;
    let recurrent = direction(to, args.value("R")?, 0, d)?;
    let recurrent = to.permute(recurrent, vec![1, 0])?;
    let mut recurrent_bias = None;
    if let Some(bias) = args.optional("B")? {
        let bias = direction(to, bias, 0, d)?;
        let total = to.dims(bias)[0].clone();
        let half = total.floor_div(&Dim::constant(2));
        let input_bias = to.slice(bias, 0, Dim::constant(0), half.clone())?;
        projected = to.binary(BinaryOp::Add, projected, input_bias)?;
        recurrent_bias = Some(to.slice(bias, 0, half, total)?);
    }
    let peepholes = args.optional("P")?.map(|p| direction(to, p, 0, d)).transpose()?;
    Ok(Cell {
        kind: rnn.kind,
        functions,
        clip: rnn.clip,
        hidden,
        projected,
        recurrent,
        recurrent_bias,
        peepholes,
    })
}

fn initial(
    rnn: &Rnn,
    args: &Args,
    to: &mut Lowering<'_, '_>,
    x: ValueId,
    d: usize,
    hidden: usize,
) -> RuleResult<State> {
    let batch = to.dims(x)[1].clone();
    let dtype = to.dtype(x);
    let axis = usize::from(rnn.batch_first);
    let mut one = |name: &str| match args.optional(name)? {
        Some(state) => direction(to, state, axis, d),
        None => to.fill(vec![batch.clone(), Dim::from(hidden)], Scalar::Float(0.0), dtype),
    };
    let first = one("initial_h")?;
    let cell = if matches!(rnn.kind, RnnKind::Lstm { .. }) { Some(one("initial_c")?) } else { None };
    Ok(State { hidden: first, cell })
}

impl Cell<'_> {
    fn step(&self, to: &mut Lowering<'_, '_>, input: ValueId, state: &State) -> RuleResult<State> {
        let mut product = to.add(Op::MatMul, &[state.hidden, self.recurrent])?;
        if let Some(bias) = self.recurrent_bias {
            product = to.binary(BinaryOp::Add, product, bias)?;
        }
        match (self.kind, state.cell) {
            (RnnKind::Gru { linear_before_reset }, _) => {
                self.gru(to, input, product, state.hidden, linear_before_reset)
            }
            (RnnKind::Lstm { input_forget }, Some(cell)) => self.lstm(to, input, product, cell, input_forget),
            _ => {
                let sum = to.binary(BinaryOp::Add, input, product)?;
                Ok(State { hidden: self.apply(to, 0, sum)?, cell: None })
            }
        }
    }

    fn gate(&self, to: &mut Lowering<'_, '_>, x: ValueId, gate: usize) -> RuleResult<ValueId> {
        to.slice(x, 1, Dim::from(gate * self.hidden), Dim::from((gate + 1) * self.hidden))
    }

    fn sum_of_gate(
        &self,
        to: &mut Lowering<'_, '_>,
        input: ValueId,
        product: ValueId,
        gate: usize,
    ) -> RuleResult<ValueId> {
        let (input, product) = (self.gate(to, input, gate)?, self.gate(to, product, gate)?);
        to.binary(BinaryOp::Add, input, product)
    }

    /// `h' = (1 - z) · n + z · h`.
    fn gru(
        &self,
        to: &mut Lowering<'_, '_>,
        input: ValueId,
        product: ValueId,
        hidden: ValueId,
        linear_before_reset: bool,
    ) -> RuleResult<State> {
        let update = self.sum_of_gate(to, input, product, 0)?;
        let update = self.apply(to, 0, update)?;
        let reset = self.sum_of_gate(to, input, product, 1)?;
        let reset = self.apply(to, 0, reset)?;
        let candidate = if linear_before_reset {
            let product = self.gate(to, product, 2)?;
            to.binary(BinaryOp::Mul, reset, product)?
        } else {
            let kept = to.binary(BinaryOp::Mul, reset, hidden)?;
            let weight = self.gate(to, self.recurrent, 2)?;
            let product = to.add(Op::MatMul, &[kept, weight])?;
            match self.recurrent_bias {
                Some(bias) => {
                    let bias = to.slice(bias, 0, Dim::from(2 * self.hidden), Dim::from(3 * self.hidden))?;
                    to.binary(BinaryOp::Add, product, bias)?
                }
                None => product,
            }
        };
        let input = self.gate(to, input, 2)?;
        let candidate = to.binary(BinaryOp::Add, input, candidate)?;
        let candidate = self.apply(to, 1, candidate)?;
        let difference = to.binary(BinaryOp::Sub, hidden, candidate)?;
        let moved = to.binary(BinaryOp::Mul, update, difference)?;
        Ok(State { hidden: to.binary(BinaryOp::Add, candidate, moved)?, cell: None })
    }

    fn peephole(
        &self,
        to: &mut Lowering<'_, '_>,
        sum: ValueId,
        cell: ValueId,
        index: usize,
    ) -> RuleResult<ValueId> {
        let Some(peepholes) = self.peepholes else {
            return Ok(sum);
        };
        let weight =
            to.slice(peepholes, 0, Dim::from(index * self.hidden), Dim::from((index + 1) * self.hidden))?;
        let seen = to.binary(BinaryOp::Mul, cell, weight)?;
        to.binary(BinaryOp::Add, sum, seen)
    }

    fn lstm(
        &self,
        to: &mut Lowering<'_, '_>,
        input: ValueId,
        product: ValueId,
        cell: ValueId,
        input_forget: bool,
    ) -> RuleResult<State> {
        let sum = self.sum_of_gate(to, input, product, 0)?;
        let sum = self.peephole(to, sum, cell, 0)?;
        let take = self.apply(to, 0, sum)?;
        let keep = if input_forget {
            let one = to.number_like(take, 1.0);
            to.binary(BinaryOp::Sub, one, take)?
        } else {
            let sum = self.sum_of_gate(to, input, product, 2)?;
            let sum = self.peephole(to, sum, cell, 2)?;
            self.apply(to, 0, sum)?
        };
        let sum = self.sum_of_gate(to, input, product, 3)?;
        let candidate = self.apply(to, 1, sum)?;
        let kept = to.binary(BinaryOp::Mul, keep, cell)?;
        let taken = to.binary(BinaryOp::Mul, take, candidate)?;
        let next = to.binary(BinaryOp::Add, kept, taken)?;
        let sum = self.sum_of_gate(to, input, product, 1)?;
        let sum = self.peephole(to, sum, next, 1)?;
        let show = self.apply(to, 0, sum)?;
        let shown = self.function(to, 2, next)?;
        Ok(State { hidden: to.binary(BinaryOp::Mul, show, shown)?, cell: Some(next) })
    }

    /// A function of a clipped sum.
    fn apply(&self, to: &mut Lowering<'_, '_>, n: usize, sum: ValueId) -> RuleResult<ValueId> {
        let sum = match self.clip {
            Some(clip) => {
                let op =
                    Op::Clamp(op::Clamp { min: Some(Scalar::Float(-clip)), max: Some(Scalar::Float(clip)) });
                to.add(op, &[sum])?
            }
            None => sum,
        };
        self.function(to, n, sum)
    }

    fn function(&self, to: &mut Lowering<'_, '_>, n: usize, x: ValueId) -> RuleResult<ValueId> {
        let scaled = |to: &mut Lowering<'_, '_>, x: ValueId, factor: f64| {
            let factor = to.number_like(x, factor);
            to.binary(BinaryOp::Mul, x, factor)
        };
        match self.functions.get(n).copied() {
            None => Ok(x),
            Some(Function::Plain(activation)) => to.activation(activation, x),
            Some(Function::Affine { alpha, beta }) => {
                let product = scaled(to, x, alpha)?;
                let beta = to.number_like(x, beta);
                to.binary(BinaryOp::Add, product, beta)
            }
            Some(Function::ScaledTanh { alpha, beta }) => {
                let inner = scaled(to, x, beta)?;
                let tanh = to.activation(Activation::Tanh, inner)?;
                scaled(to, tanh, alpha)
            }
            Some(Function::Softsign) => {
                let magnitude = to.unary(UnaryOp::Abs, x)?;
                let one = to.number_like(x, 1.0);
                let divisor = to.binary(BinaryOp::Add, magnitude, one)?;
                to.binary(BinaryOp::Div, x, divisor)
            }
            Some(Function::ThresholdedRelu { alpha }) => {
                let (threshold, zero) = (to.number_like(x, alpha), to.number_like(x, 0.0));
                let above = to.compare(CompareOp::Greater, x, threshold)?;
                to.select(above, x, zero)
            }
        }
    }
}
