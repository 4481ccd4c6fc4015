//! `Loop`, `Scan` and `SequenceMap` with a number of rounds that is known: the body, that many times.

use super::super::proto::GraphProto;
use super::prelude::*;

/// Each round is a copy of the body.
const MOST_ROUNDS: usize = 1024;

enum Kind {
    Loop,
    Scan(ScanAxes),
    Map,
}

struct ScanAxes {
    inputs: usize,
    input_axes: Vec<i64>,
    input_backwards: Vec<i64>,
    output_axes: Vec<i64>,
    output_backwards: Vec<i64>,
}

pub(super) struct Unroll<'m> {
    body: &'m GraphProto,
    kind: Kind,
}

impl<'m> Unroll<'m> {
    fn read(node: &mut SourceNode<'m>, kind: Kind) -> RuleResult<Self> {
        Ok(Self { body: node.graph("body")?, kind })
    }

    fn read_scan(node: &mut SourceNode<'m>) -> RuleResult<Self> {
        let body = node.graph("body")?;
        let mut list = |name: &str| Ok(node.ints(name)?.unwrap_or_default());
        let axes = ScanAxes {
            input_axes: list("scan_input_axes")?,
            input_backwards: list("scan_input_directions")?,
            output_axes: list("scan_output_axes")?,
            output_backwards: list("scan_output_directions")?,
            inputs: node.size("num_scan_inputs", 0)?,
        };
        Ok(Self { body, kind: Kind::Scan(axes) })
    }
}

impl<'m> Operator<'m> for Unroll<'m> {
    const FORMS: Forms<'m, Self> = &[
        Spec::onnx("Loop", 1, &["M?", "cond?", "v_initial*"]).reads(|node| Self::read(node, Kind::Loop)),
        Spec::onnx("Scan", 9, &["initial_state_and_scan_inputs*"]).reads(Self::read_scan),
        Spec::onnx("SequenceMap", 17, &["input_sequence", "additional_inputs*"])
            .reads(|node| Self::read(node, Kind::Map)),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, 'm>) -> RuleResult<Outputs> {
        match &self.kind {
            Kind::Loop => self.repeat(args, to),
            Kind::Scan(axes) => self.scan(args, to, axes),
            Kind::Map => self.map(args, to),
        }
    }
}

fn unknown(what: &str) -> RuleError {
    RuleError::Unsupported { what: format!("{what} that is not known when the model is compiled") }
}

/// What rounds yielded, as an axis.
fn stack(to: &mut Lowering<'_, '_>, rounds: Vec<ValueId>, axis: i64, backwards: bool) -> RuleResult<ValueId> {
    let first = *rounds.first().ok_or_else(|| unknown("the shape of what no round yielded, one"))?;
    let axis = axis_of(axis, to.rank(first) + 1)?;
    let mut parts = Vec::with_capacity(rounds.len());
    for value in rounds {
        parts.push(to.unsqueeze(value, &[axis])?);
    }
    if backwards {
        parts.reverse();
    }
    to.concat(&parts, axis)
}

impl<'m> Unroll<'m> {
    fn round(&self, to: &mut Lowering<'_, 'm>, operands: Vec<Operand>) -> RuleResult<Vec<Operand>> {
        if operands.len() != self.body.input.len() {
            let reason = format!("has {} inputs, {} are given", self.body.input.len(), operands.len());
            return Err(invalid("body", reason));
        }
        let result = to.subgraph_with(self.body, operands);
        to.inner(result)
    }

    fn repeat(&self, args: &Args, to: &mut Lowering<'_, 'm>) -> RuleResult<Outputs> {
        let limit = match args.optional("M")? {
            None => None,
            Some(limit) => {
                Some(to.known_number(limit).ok_or_else(|| unknown("a number of rounds"))?.to_i64())
            }
        };
        let mut go_on = match args.optional("cond")? {
            None => true,
            Some(condition) => {
                to.known_number(condition).ok_or_else(|| unknown("a condition of a loop"))?.to_bool()
            }
        };
        let mut carried = args.operands("v_initial")?;
        let scans = self.body.output.len().checked_sub(carried.len() + 1);
        let scans = scans.ok_or_else(|| invalid("body", "yields too few values"))?;
        let mut collected: Vec<Vec<ValueId>> = vec![Vec::new(); scans];
        let mut n = 0i64;
        while go_on && limit.is_none_or(|limit| n < limit) {
            if n >= MOST_ROUNDS as i64 {
                return Err(RuleError::TooLarge {
                    what: format!("a loop of more than {MOST_ROUNDS} rounds"),
                });
            }
            let mut operands = vec![
                Operand::Tensor(to.scalar(n, DType::I64)),
                Operand::Tensor(to.scalar(true, DType::Bool)),
            ];
            operands.append(&mut carried);
            let mut results = self.round(to, operands)?;
            let scanned = results.split_off(results.len() - scans);
            let condition = match results.first() {
                Some(Operand::Tensor(condition)) => to.known_number(*condition),
                _ => None,
            };
            go_on = condition.ok_or_else(|| unknown("a condition of a loop"))?.to_bool();
            carried = results.split_off(1);
            for (list, value) in collected.iter_mut().zip(scanned) {
                list.push(tensor(value)?);
            }
            n += 1;
        }
        for rounds in collected {
            carried.push(Operand::Tensor(stack(to, rounds, 0, false)?));
        }
        Ok(Outputs(carried))
    }

    fn scan(&self, args: &Args, to: &mut Lowering<'_, 'm>, axes: &ScanAxes) -> RuleResult<Outputs> {
        let mut state = args.operands("initial_state_and_scan_inputs")?;
        let states = state.len().checked_sub(axes.inputs).filter(|_| axes.inputs > 0);
        let states = states.ok_or_else(|| invalid("num_scan_inputs", format!("is {}", axes.inputs)))?;
        let inputs = state.split_off(states).into_iter().map(tensor).collect::<RuleResult<Vec<_>>>()?;
        let scans = self.body.output.len().checked_sub(states);
        let scans = scans.ok_or_else(|| invalid("body", "yields too few values"))?;
        let mut along = Vec::with_capacity(inputs.len());
        let mut rounds = None;
        for (n, &input) in inputs.iter().enumerate() {
            let axis = axis_of(axes.input_axes.get(n).copied().unwrap_or(0), to.rank(input))?;
            let size = to.dims(input)[axis].as_size().ok_or_else(|| unknown("a number of rounds"))?;
            if rounds.replace(size).is_some_and(|other| other != size) {
                return Err(invalid("scan inputs", "have different lengths"));
            }
            along.push((axis, axes.input_backwards.get(n).is_some_and(|&direction| direction != 0)));
        }
        let rounds = rounds.unwrap_or(0);
        if rounds > MOST_ROUNDS {
            return Err(RuleError::TooLarge { what: format!("a scan of more than {MOST_ROUNDS} rounds") });
        }
        let mut collected: Vec<Vec<ValueId>> = vec![Vec::new(); scans];
        for n in 0..rounds {
            let mut operands = std::mem::take(&mut state);
            for (&input, &(axis, backwards)) in inputs.iter().zip(&along) {
                let at = if backwards { rounds - 1 - n } else { n };
                let part = to.slice(input, axis, Dim::from(at), Dim::from(at + 1))?;
                operands.push(Operand::Tensor(to.squeeze(part, &[axis])?));
            }
            state = self.round(to, operands)?;
            for (list, value) in collected.iter_mut().zip(state.split_off(states)) {
                list.push(tensor(value)?);
            }
        }
        for (n, rounds) in collected.into_iter().enumerate() {
            let axis = axes.output_axes.get(n).copied().unwrap_or(0);
            let backwards = axes.output_backwards.get(n).is_some_and(|&direction| direction != 0);
            state.push(Operand::Tensor(stack(to, rounds, axis, backwards)?));
        }
        Ok(Outputs(state))
    }

    fn map(&self, args: &Args, to: &mut Lowering<'_, 'm>) -> RuleResult<Outputs> {
        let elements = args.sequence("input_sequence")?;
        let others = args.operands("additional_inputs")?;
        let mut collected: Vec<Vec<ValueId>> = vec![Vec::new(); self.body.output.len()];
        for (n, &element) in elements.iter().enumerate() {
            let mut operands = vec![Operand::Tensor(element)];
            for other in &others {
                operands.push(match other {
                    Operand::Tensor(value) => Operand::Tensor(*value),
                    Operand::Sequence(values) => {
                        let value =
                            values.get(n).ok_or_else(|| invalid("additional_inputs", "are shorter"))?;
                        Operand::Tensor(*value)
                    }
                    Operand::Absent => Operand::Absent,
                });
            }
            for (list, value) in collected.iter_mut().zip(self.round(to, operands)?) {
                list.push(tensor(value)?);
            }
        }
        Ok(Outputs(collected.into_iter().map(|list| Operand::Sequence(list.into())).collect()))
    }
}

fn tensor(operand: Operand) -> RuleResult<ValueId> {
    match operand {
        Operand::Tensor(value) => Ok(value),
        Operand::Sequence(_) => Err(RuleError::Unsupported { what: "a sequence here".to_owned() }),
        Operand::Absent => {
            Err(RuleError::Unsupported { what: "an optional without a value here".to_owned() })
        }
    }
}
