//! Recurrent layers whose functions the runtime's layer does not take, step by step.

use super::super::prelude::*;
use super::{Function, Rnn};
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
        let &State { hidden, cell } = state;
        match (self.kind, cell) {
            (RnnKind::Gru { linear_before_reset }, _) => {
                let hidden = to.formula(|f| {
                    let [input, hidden] = f.values([input, hidden]);
                    self.gru(f, input, hidden, linear_before_reset)
                })?;
                Ok(State { hidden, cell: None })
            }
            (RnnKind::Lstm { input_forget }, Some(cell)) => {
                let [hidden, cell] =
                    to.formulas(|f| self.lstm(f, f.values([input, hidden, cell]), input_forget))?;
                Ok(State { hidden, cell: Some(cell) })
            }
            (RnnKind::Rnn | RnnKind::Lstm { .. }, _) => {
                let hidden = to.formula(|f| {
                    let [input, hidden] = f.values([input, hidden]);
                    self.apply(0, input + self.product(f, hidden))
                })?;
                Ok(State { hidden, cell: None })
            }
        }
    }

    /// What the state before adds to the gates.
    fn product<'f>(&self, f: Formula<'f>, hidden: Value<'f>) -> Value<'f> {
        let product = hidden.matmul(f.value(self.recurrent));
        self.recurrent_bias.map_or(product, |bias| product + f.value(bias))
    }

    /// A gate's part of an axis.
    fn gate<'f>(&self, x: Value<'f>, axis: usize, gate: usize) -> Value<'f> {
        x.slice(axis, gate * self.hidden..(gate + 1) * self.hidden)
    }

    /// `h' = (1 - z) · n + z · h`.
    fn gru<'f>(
        &self,
        f: Formula<'f>,
        input: Value<'f>,
        hidden: Value<'f>,
        linear_before_reset: bool,
    ) -> Value<'f> {
        let product = self.product(f, hidden);
        let sum = |gate: usize| self.gate(input, 1, gate) + self.gate(product, 1, gate);
        let (update, reset) = (self.apply(0, sum(0)), self.apply(0, sum(1)));
        let candidate = if linear_before_reset {
            reset * self.gate(product, 1, 2)
        } else {
            let kept = reset * hidden;
            let product = kept.matmul(self.gate(f.value(self.recurrent), 1, 2));
            self.recurrent_bias.map_or(product, |bias| product + self.gate(f.value(bias), 0, 2))
        };
        let candidate = self.apply(1, self.gate(input, 1, 2) + candidate);
        candidate + update * (hidden - candidate)
    }

    /// `c' = f · c + i · n`, `h' = o · act(c')`.
    fn lstm<'f>(
        &self,
        f: Formula<'f>,
        [input, hidden, cell]: [Value<'f>; 3],
        input_forget: bool,
    ) -> [Value<'f>; 2] {
        let product = self.product(f, hidden);
        let sum = |gate: usize| self.gate(input, 1, gate) + self.gate(product, 1, gate);
        let take = self.apply(0, self.peephole(f, sum(0), cell, 0));
        let keep = if input_forget {
            take.number(1.0) - take
        } else {
            self.apply(0, self.peephole(f, sum(2), cell, 2))
        };
        let candidate = self.apply(1, sum(3));
        let next = keep * cell + take * candidate;
        let show = self.apply(0, self.peephole(f, sum(1), next, 1));
        [show * self.function(2, next), next]
    }

    /// A gate that sees the cell.
    fn peephole<'f>(&self, f: Formula<'f>, sum: Value<'f>, cell: Value<'f>, gate: usize) -> Value<'f> {
        match self.peepholes {
            Some(weights) => sum + cell * self.gate(f.value(weights), 0, gate),
            None => sum,
        }
    }

    /// A function of a clipped sum.
    fn apply<'f>(&self, n: usize, sum: Value<'f>) -> Value<'f> {
        self.function(n, self.clip.map_or(sum, |clip| sum.clamp(-clip, clip)))
    }

    fn function<'f>(&self, n: usize, x: Value<'f>) -> Value<'f> {
        match self.functions.get(n).copied() {
            None => x,
            Some(Function::Plain(activation)) => x.activation(activation),
            Some(Function::Affine { alpha, beta }) => x * alpha + beta,
            Some(Function::ScaledTanh { alpha, beta }) => (x * beta).activation(Activation::Tanh) * alpha,
            Some(Function::Softsign) => x / (x.abs() + 1.0),
            Some(Function::ThresholdedRelu { alpha }) => x.greater(alpha).where_(x, x.number(0.0)),
        }
    }
}
