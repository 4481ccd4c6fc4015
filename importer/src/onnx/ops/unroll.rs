//! `Loop`, `Scan` and `SequenceMap`.
//!
//! Where it is known, round by round, whether another follows, and there are no more than [`MOST_ROUNDS`] and no more
//! nodes in them than a model may have, the body is written out that many times: then constants fold, and lists may change.
//! All others run as loops, and so do scans of many rounds.

use super::super::lowering::{Initial, Readers, Round, Rounds, names_read, tensors};
use super::super::proto::GraphProto;
use super::prelude::*;
use crate::ir::op;
use std::collections::HashSet;

/// Each round that is written out is a copy of the body.
const MOST_ROUNDS: usize = 1024;

/// As many are read through. A scan of more rounds is written out only where all of it is constant: each round does the same.
const MOST_READ: usize = 32;

enum Kind {
    /// With who reads each value that it carries.
    Loop(Vec<Readers>),
    Scan(ScanAxes),
    /// The first form of `Scan`, over each item of a batch.
    BatchedScan(ScanAxes),
    Map,
}

struct ScanAxes {
    inputs: usize,
    input_axes: Vec<i64>,
    input_backwards: Vec<i64>,
    output_axes: Vec<i64>,
    output_backwards: Vec<i64>,
}

impl ScanAxes {
    /// The inputs with the axes along which they are read.
    fn scanned<'i>(&self, to: &Lowering<'_, '_>, inputs: &'i [ValueId]) -> RuleResult<Scanned<'i>> {
        let mut along = Vec::with_capacity(inputs.len());
        let mut rounds: Option<Dim> = None;
        for (n, &input) in inputs.iter().enumerate() {
            let axis = axis_of(self.input_axes.get(n).copied().unwrap_or(0), to.rank(input))?;
            let size = to.dims(input).get(axis).cloned().unwrap_or(Dim::constant(0));
            match rounds.as_ref().map(|rounds| (rounds, (rounds - &size).as_constant())) {
                Some((_, Some(difference))) if difference != 0 => {
                    return Err(misfit("scan inputs", "have different lengths"));
                }
                // A number says more than a size that must be equal to it.
                Some((rounds, _)) if rounds.as_constant().is_some() => {}
                Some(_) if size.as_constant().is_none() => {}
                _ => rounds = Some(size),
            }
            along.push((axis, self.input_backwards.get(n).is_some_and(|&direction| direction != 0)));
        }
        Ok(Scanned { inputs, along, rounds: rounds.unwrap_or(Dim::constant(0)) })
    }

    /// The axis and the direction along which an output is collected.
    fn output(&self, n: usize) -> (i64, bool) {
        let backwards = self.output_backwards.get(n).is_some_and(|&direction| direction != 0);
        (self.output_axes.get(n).copied().unwrap_or(0), backwards)
    }
}

/// What a scan reads a part of in each round.
struct Scanned<'i> {
    inputs: &'i [ValueId],
    /// The axis and the direction for each.
    along: Vec<(usize, bool)>,
    rounds: Dim,
}

impl Scanned<'_> {
    /// Adds the parts of a round to its operands.
    fn slices(&self, to: &mut Lowering<'_, '_>, n: &Dim, operands: &mut Vec<Operand>) -> RuleResult<()> {
        for (&input, &(axis, backwards)) in self.inputs.iter().zip(&self.along) {
            let at = if backwards { &(&self.rounds - &Dim::constant(1)) - n } else { n.clone() };
            let end = &at + &Dim::constant(1);
            let part = to.slice(input, axis, at, end)?;
            operands.push(Operand::Tensor(to.squeeze(part, &[axis])?));
        }
        Ok(())
    }
}

pub(super) struct Unroll<'m> {
    body: &'m GraphProto,
    kind: Kind,
}

impl<'m> Unroll<'m> {
    fn read(node: &mut SourceNode<'m>, kind: Kind) -> RuleResult<Self> {
        Ok(Self { body: node.graph("body")?, kind })
    }

    fn read_loop(node: &mut SourceNode<'m>) -> RuleResult<Self> {
        let body = node.graph("body")?;
        let read: HashSet<&str> = names_read(body).into_iter().collect();
        // The number of the round and the condition come first.
        let carried = body.input.iter().skip(2).enumerate();
        let readers = carried
            .map(|(n, input)| Readers { rounds: read.contains(input.name.as_str()), after: node.is_read(n) });
        let readers = readers.collect();
        Ok(Self { body, kind: Kind::Loop(readers) })
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

    /// The form with a batch on the first axis of everything, and the rounds on the second one of what is scanned.
    fn read_batched_scan(node: &mut SourceNode<'m>) -> RuleResult<Self> {
        let body = node.graph("body")?;
        let axes = ScanAxes {
            input_axes: Vec::new(),
            input_backwards: node.ints("directions")?.unwrap_or_default(),
            output_axes: Vec::new(),
            output_backwards: Vec::new(),
            inputs: node.size("num_scan_inputs", 0)?,
        };
        Ok(Self { body, kind: Kind::BatchedScan(axes) })
    }
}

impl<'m> Operator<'m> for Unroll<'m> {
    const FORMS: Forms<'m, Self> = &[
        Spec::onnx("Loop", 1, &["M?", "cond?", "v_initial*"]).reads(Self::read_loop),
        Spec::onnx("Scan", 8, &["sequence_lens?", "initial_state_and_scan_inputs*"])
            .until(8)
            .reads(Self::read_batched_scan),
        Spec::onnx("Scan", 9, &["initial_state_and_scan_inputs*"]).reads(Self::read_scan),
        Spec::onnx("SequenceMap", 17, &["input_sequence", "additional_inputs*"])
            .reads(|node| Self::read(node, Kind::Map)),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, 'm>) -> RuleResult<Outputs> {
        match &self.kind {
            Kind::Loop(readers) => self.repeat(args, to, readers),
            Kind::Scan(axes) => self.scan(to, axes, (args.operands("initial_state_and_scan_inputs")?, None)),
            Kind::BatchedScan(axes) => self.batched_scan(args, to, axes),
            Kind::Map => self.map(args, to),
        }
    }
}

/// Operands, without those that nobody reads.
fn those_read(mut operands: Vec<Operand>, readers: &[Readers]) -> Vec<Operand> {
    for (operand, readers) in operands.iter_mut().zip(readers) {
        if !readers.rounds && !readers.after {
            *operand = Operand::Absent;
        }
    }
    operands
}

/// What rounds yielded, as an axis.
fn stack(to: &mut Lowering<'_, '_>, rounds: &[ValueId], axis: i64, backwards: bool) -> RuleResult<ValueId> {
    let missing = || RuleError::MissingInput { input: "what no round yielded".to_owned() };
    let axis = axis_of(axis, to.rank(*rounds.first().ok_or_else(missing)?) + 1)?;
    let mut parts = Vec::with_capacity(rounds.len());
    for &value in rounds {
        parts.push(to.unsqueeze(value, &[axis])?);
    }
    if backwards {
        parts.reverse();
    }
    to.concat(&parts, axis)
}

/// What the rounds of a loop left, with the axis that counts them moved.
fn place(to: &mut Lowering<'_, '_>, rounds: ValueId, axis: i64, backwards: bool) -> RuleResult<ValueId> {
    let rank = to.rank(rounds);
    let axis = axis_of(axis, rank)?;
    let mut value = rounds;
    if backwards {
        let mut ranges = to.full_ranges(rounds);
        if let Some(range) = ranges.first_mut() {
            range.step = -1;
        }
        value = to.add(Op::Slice(op::Slice { ranges }), &[rounds])?;
    }
    let mut axes: Vec<usize> = (1..rank).collect();
    axes.insert(axis, 0);
    to.permute(value, axes)
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

    /// How many of the body's outputs are collected, beside so many others.
    fn collected(&self, others: usize) -> RuleResult<usize> {
        self.body.output.len().checked_sub(others).ok_or_else(|| invalid("body", "yields too few values"))
    }

    /// A round of a loop: whether another follows, what that begins with, and what is collected.
    fn loop_round(
        &self,
        to: &mut Lowering<'_, 'm>,
        (n, scans, readers): (ValueId, usize, &[Readers]),
        carried: Vec<Operand>,
    ) -> RuleResult<(Operand, Vec<Operand>, Vec<ValueId>)> {
        let mut operands = vec![Operand::Tensor(n), Operand::Tensor(to.scalar(true, DType::Bool))];
        operands.extend(carried);
        let mut results = self.round(to, operands)?;
        let left = tensors(results.split_off(results.len().saturating_sub(scans)))?;
        let carried = results.split_off(1.min(results.len()));
        let condition = results.pop().ok_or_else(|| invalid("body", "yields no condition"))?;
        Ok((condition, those_read(carried, readers), left))
    }

    fn repeat(&self, args: &Args, to: &mut Lowering<'_, 'm>, readers: &[Readers]) -> RuleResult<Outputs> {
        let carried = those_read(args.operands("v_initial")?, readers);
        let scans = self.collected(carried.len() + 1)?;
        let (limit, condition) = (args.optional("M")?, args.optional("cond")?);
        let known =
            |value: Option<ValueId>| value.map_or(Some(None), |value| to.known_number(value).map(Some));
        if let (Some(limit), Some(condition)) = (known(limit), known(condition)) {
            // What exporters write where there is no limit.
            let limit = limit.map(Scalar::to_i64).filter(|&limit| limit != i64::MAX);
            let goes = condition.is_none_or(Scalar::to_bool);
            if limit.is_none_or(|limit| limit <= MOST_ROUNDS as i64) {
                let before = to.snapshot();
                match self.written_out(to, (limit, goes), (scans, readers), carried.clone())? {
                    Some(outputs) => return Ok(outputs),
                    None => to.restore(&before),
                }
            }
        }
        let trip_count = limit.map(|limit| to.host_integer(limit, "M")).transpose()?;
        let condition = condition.map(|condition| to.host_integer(condition, "cond")).transpose()?;
        let rounds = Rounds {
            trip_count: trip_count.filter(|most| !most.is(i64::MAX)),
            condition: condition.unwrap_or(Dim::constant(1)),
        };
        let initial = Initial { operands: &carried, readers };
        to.loop_over(rounds, initial, &|to, iteration, carried| {
            let n = to.builder.host_tensor(vec![iteration.clone()], Vec::new())?;
            let (condition, carried, left) = self.loop_round(to, (n, scans, readers), carried)?;
            Ok(Round { condition: to.host_integer(condition.tensor("here")?, "cond")?, carried, left })
        })
    }

    /// A loop whose body is written out; nothing, with what was appended to be undone, where it is not known whether another
    /// round follows, where too many or too large ones do, or where none does and the shape of what it would leave is to be
    /// found.
    fn written_out(
        &self,
        to: &mut Lowering<'_, 'm>,
        (limit, mut goes): (Option<i64>, bool),
        (scans, readers): (usize, &[Readers]),
        mut carried: Vec<Operand>,
    ) -> RuleResult<Option<Outputs>> {
        let mut collected: Vec<Vec<ValueId>> = vec![Vec::new(); scans];
        let left_before = to.left();
        let mut n = 0i64;
        while goes && limit.is_none_or(|limit| n < limit) {
            let rounds = limit.unwrap_or(n + 1);
            if n >= MOST_ROUNDS as i64 || (n > 0 && !to.affords(&left_before, n as u64, rounds as u64)) {
                return Ok(None);
            }
            let at = to.scalar(n, DType::I64);
            let (condition, next, left) = self.loop_round(to, (at, scans, readers), carried)?;
            let Some(condition) = to.known_number(condition.tensor("here")?) else { return Ok(None) };
            goes = condition.to_bool();
            carried = next;
            for (list, value) in collected.iter_mut().zip(left) {
                list.push(value);
            }
            n += 1;
        }
        if n == 0 && scans > 0 {
            return Ok(None);
        }
        for rounds in collected {
            carried.push(Operand::Tensor(stack(to, &rounds, 0, false)?));
        }
        Ok(Some(Outputs(carried)))
    }

    /// A scan of each item of a batch, whose results are items of a batch.
    fn batched_scan(&self, args: &Args, to: &mut Lowering<'_, 'm>, axes: &ScanAxes) -> RuleResult<Outputs> {
        let operands = args.all("initial_state_and_scan_inputs")?;
        let lengths = args.optional("sequence_lens")?;
        if lengths.is_some() && axes.input_backwards.iter().any(|&direction| direction != 0) {
            let what = "a Scan from the end of sequences of different lengths".to_owned();
            return Err(RuleError::Unsupported { what });
        }
        let missing = || RuleError::MissingInput { input: "initial_state_and_scan_inputs".to_owned() };
        let first = operands.last().copied().ok_or_else(missing)?;
        to.need_rank("scan inputs", first, 2)?;
        let batch = to.dims(first).first().cloned().ok_or_else(missing)?;
        for &operand in &operands {
            to.need_rank("initial_state_and_scan_inputs", operand, 1)?;
            let other = to.dims(operand).first().cloned().ok_or_else(missing)?;
            if (&other - &batch).as_constant().is_some_and(|rest| rest != 0) {
                return Err(misfit("batch", format!("has {batch} and {other} items")));
            }
        }
        let item = |to: &mut Lowering<'_, 'm>, n: &Dim| {
            let mut part = |value: ValueId| {
                let part = to.slice(value, 0, n.clone(), n + &Dim::constant(1))?;
                to.squeeze(part, &[0])
            };
            let parts = operands.iter().map(|&value| Ok(Operand::Tensor(part(value)?)));
            let parts = parts.collect::<RuleResult<Vec<_>>>()?;
            let length = lengths.map(part).transpose()?;
            let Outputs(outputs) = self.scan(to, axes, (parts, length))?;
            tensors(outputs)
        };
        if batch.is(1) {
            let outputs = item(to, &Dim::constant(0))?;
            let outputs = outputs.into_iter().map(|value| to.unsqueeze(value, &[0]));
            return Ok(outputs.collect::<RuleResult<Vec<_>>>()?.into());
        }
        let run = Rounds { trip_count: Some(batch), condition: Dim::constant(1) };
        to.loop_over(run, Initial { operands: &[], readers: &[] }, &|to, n, _| {
            Ok(Round { condition: Dim::constant(1), carried: Vec::new(), left: item(to, n)? })
        })
    }

    /// One round of a scan. Beyond the length of a sequence, states stay and zeros are collected.
    fn scan_round(
        &self,
        to: &mut Lowering<'_, 'm>,
        (scanned, n): (&Scanned<'_>, &Dim),
        state: Vec<Operand>,
        length: Option<ValueId>,
    ) -> RuleResult<Vec<Operand>> {
        let mut operands = state.clone();
        scanned.slices(to, n, &mut operands)?;
        let results = self.round(to, operands)?;
        let Some(length) = length else {
            return Ok(results);
        };
        let position = to.builder.host_tensor(vec![n.clone()], Vec::new())?;
        let length = to.cast(length, DType::I64)?;
        let goes = to.compare(CompareOp::Lower, position, length)?;
        let mut before = state.into_iter();
        let mut kept = Vec::with_capacity(results.len());
        for result in results {
            let result = result.tensor("here")?;
            let other = match before.next() {
                Some(state) => state.tensor("here")?,
                None => to.number_like(result, 0),
            };
            kept.push(Operand::Tensor(to.select(goes, result, other)?));
        }
        Ok(kept)
    }

    /// A scan over these operands; of a sequence of some length, where that is given.
    fn scan(
        &self,
        to: &mut Lowering<'_, 'm>,
        axes: &ScanAxes,
        (mut state, length): (Vec<Operand>, Option<ValueId>),
    ) -> RuleResult<Outputs> {
        let states = state.len().checked_sub(axes.inputs).filter(|_| axes.inputs > 0);
        let states = states.ok_or_else(|| invalid("num_scan_inputs", format!("is {}", axes.inputs)))?;
        let inputs = tensors(state.split_off(states))?;
        let scanned = axes.scanned(to, &inputs)?;
        let scans = self.collected(states)?;
        let few = scanned.rounds.as_size().filter(|&count| count <= MOST_ROUNDS);
        let before = to.snapshot();
        if let Some(count) = few.filter(|&count| count > 0 || scans == 0) {
            let folds = state.iter().all(|operand| is_constant(to, operand))
                && inputs.iter().all(|&input| to.constant(input).is_some());
            if count > MOST_READ && !folds {
                // What a loop cannot carry may still be written out.
                match self.scan_in_a_loop(to, (axes, &scanned), &state, length) {
                    Ok(outputs) => return Ok(outputs),
                    Err(_) => to.restore(&before),
                }
            }
            let begin = (state.clone(), scans, length);
            match self.scan_written_out(to, (axes, &scanned), count, begin)? {
                Some(outputs) => return Ok(outputs),
                None => to.restore(&before),
            }
        }
        self.scan_in_a_loop(to, (axes, &scanned), &state, length)
    }

    /// A scan as a loop.
    fn scan_in_a_loop(
        &self,
        to: &mut Lowering<'_, 'm>,
        (axes, scanned): (&ScanAxes, &Scanned<'_>),
        state: &[Operand],
        length: Option<ValueId>,
    ) -> RuleResult<Outputs> {
        let states = state.len();
        let run = Rounds { trip_count: Some(scanned.rounds.clone()), condition: Dim::constant(1) };
        let Outputs(mut outputs) =
            to.loop_over(run, Initial { operands: state, readers: &[] }, &|to, iteration, operands| {
                let mut carried = self.scan_round(to, (scanned, iteration), operands, length)?;
                let left = carried.split_off(states.min(carried.len()));
                let left = tensors(left)?;
                Ok(Round { condition: Dim::constant(1), carried, left })
            })?;
        for (n, left) in outputs.split_off(states.min(outputs.len())).into_iter().enumerate() {
            let (axis, backwards) = axes.output(n);
            outputs.push(Operand::Tensor(place(to, left.tensor("here")?, axis, backwards)?));
        }
        Ok(Outputs(outputs))
    }

    /// A scan whose body is written out; nothing, with what was appended to be undone, where that is too much.
    fn scan_written_out(
        &self,
        to: &mut Lowering<'_, 'm>,
        (axes, scanned): (&ScanAxes, &Scanned<'_>),
        rounds: usize,
        (mut state, scans, length): (Vec<Operand>, usize, Option<ValueId>),
    ) -> RuleResult<Option<Outputs>> {
        let states = state.len();
        let mut collected: Vec<Vec<ValueId>> = vec![Vec::new(); scans];
        let left_before = to.left();
        for n in 0..rounds {
            if n > 0 && !to.affords(&left_before, n as u64, rounds as u64) {
                return Ok(None);
            }
            state = self.scan_round(to, (scanned, &Dim::from(n)), state, length)?;
            for (list, value) in collected.iter_mut().zip(state.split_off(states.min(state.len()))) {
                list.push(value.tensor("here")?);
            }
        }
        for (n, rounds) in collected.iter().enumerate() {
            let (axis, backwards) = axes.output(n);
            state.push(Operand::Tensor(stack(to, rounds, axis, backwards)?));
        }
        Ok(Some(Outputs(state)))
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
                    same @ (Operand::Strings(_) | Operand::Maps(..) | Operand::Absent) => same.clone(),
                });
            }
            for (list, value) in collected.iter_mut().zip(self.round(to, operands)?) {
                list.push(value.tensor("here")?);
            }
        }
        Ok(Outputs(collected.into_iter().map(|list| Operand::Sequence(list.into())).collect()))
    }
}

fn is_constant(to: &Lowering<'_, '_>, operand: &Operand) -> bool {
    match operand {
        Operand::Tensor(value) | Operand::Strings(value) | Operand::Maps(value, _) => {
            to.constant(*value).is_some()
        }
        Operand::Sequence(values) => values.iter().all(|&value| to.constant(value).is_some()),
        Operand::Absent => true,
    }
}
