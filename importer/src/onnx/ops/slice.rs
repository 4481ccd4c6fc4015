//! `Slice`: attributes before version 10, inputs since.

use super::prelude::*;
use crate::ir::{AxisRange, op};

/// Bounds beyond this mean "to the end": exporters write the greatest integer of 32 or 64 bits.
const BEYOND: i64 = i32::MAX as i64;

/// The first form's attributes.
struct Attributes {
    starts: Vec<i64>,
    ends: Vec<i64>,
    axes: Option<Vec<i64>>,
}

pub(super) struct Slice {
    attributes: Option<Attributes>,
}

impl Slice {
    /// The form with bounds as attributes.
    fn read_old(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        let required = |name: &str, value: Option<Vec<i64>>| value.ok_or_else(|| invalid(name, "is missing"));
        let starts = node.ints("starts")?;
        let ends = node.ints("ends")?;
        let attributes = Attributes {
            starts: required("starts", starts)?,
            ends: required("ends", ends)?,
            axes: node.ints("axes")?,
        };
        Ok(Self { attributes: Some(attributes) })
    }
}

impl<'m> Operator<'m> for Slice {
    const FORMS: Forms<'m, Self> = &[
        Spec::onnx("Slice", 1, &["data"]).until(9).moves().reads(Self::read_old),
        Spec::onnx("Slice", 10, &["data", "starts", "ends", "axes?", "steps?"])
            .moves()
            .reads(|_| Ok(Self { attributes: None })),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let x = args.value("data")?;
        let (starts, ends, axes, steps) = match &self.attributes {
            Some(Attributes { starts, ends, axes }) => {
                let dims = |values: &[i64]| values.iter().map(|&value| Dim::constant(value)).collect();
                (dims(starts), dims(ends), axes.clone(), None)
            }
            None => {
                let known = |name: &str| args.optional(name)?.map(|v| to.known_ints(v, name)).transpose();
                let (axes, steps) = (known("axes")?, known("steps")?);
                let starts: Vec<Dim> = to.host(args.value("starts")?, "starts")?;
                (starts, to.host(args.value("ends")?, "ends")?, axes, steps)
            }
        };
        let axes = axes.unwrap_or_else(|| (0..starts.len() as i64).collect());
        let steps = steps.unwrap_or_else(|| vec![1; starts.len()]);
        if [ends.len(), axes.len(), steps.len()] != [starts.len(); 3] {
            return Err(invalid("starts", "has another number of entries than ends, axes or steps"));
        }
        let mut ranges = to.full_ranges(x);
        let mut changed = false;
        for (((start, end), axis), step) in starts.iter().zip(&ends).zip(axes).zip(steps) {
            let axis = axis_of(axis, ranges.len())?;
            let size = ranges[axis].end.clone();
            let range = shortest(range(to, start, end, step, &size)?);
            changed |= range != ranges[axis];
            ranges[axis] = range;
        }
        if !changed {
            return Ok(x.into());
        }
        Ok(to.add(Op::Slice(op::Slice { ranges }), &[x])?.into())
    }
}

/// One axis: negative bounds count from the end, and all are clamped into the axis.
fn range(to: &Lowering<'_, '_>, start: &Dim, end: &Dim, step: i64, size: &Dim) -> RuleResult<AxisRange> {
    let zero = Dim::constant(0);
    let one = Dim::constant(1);
    let graph = &*to.builder.graph;
    if step == 0 {
        return Err(invalid("steps", "holds 0"));
    }
    // No axis has so many elements; the least integer has no opposite, and no literal in Rust.
    let step = step.max(-i64::MAX);
    if step > 0 {
        let bounds = start.as_constant().zip(end.as_constant());
        let in_order = bounds.is_some_and(|(start, end)| (start < 0) == (end < 0) && start <= end);
        // The first element alone and the last one alone are one element of an axis of unknown size: such parts are squeezed and
        // broadcast, for which a size of none or one would be no use.
        let unknown = size.as_constant().is_none();
        if unknown && start.is(0) && end.is(1) {
            return Ok(AxisRange { start: zero, end: one, step });
        }
        let last = unknown && start.is(-1) && reaches_end(end, size);
        let start = if last { size - &one } else { clamped(to, start, size, &zero, size) };
        let end = clamped(to, end, size, &zero, size);
        // The start is inside the axis, so its end is no less; and bounds in order stay so when both are clamped.
        let end = if end == *size || in_order { end } else { graph.maximum(&end, &start) };
        return Ok(AxisRange { start, end, step });
    }
    // Backwards from `start` down to, without, `end`: the same elements as `end + 1 .. start + 1`.
    let last = size - &one;
    let start = clamped(to, start, size, &zero, &last);
    let end = clamped(to, end, size, &-&one, &last);
    let (low, high) = (&end + &one, &start + &one);
    let high = if high == *size { high } else { graph.maximum(&high, &low) };
    Ok(AxisRange { start: low, end: high, step })
}

/// Of a step that leaves one element, that element: exporters write `x[:, 0::4]` for each of four columns.
fn shortest(range: AxisRange) -> AxisRange {
    let length = (&range.end - &range.start).as_constant();
    let step = range.step.unsigned_abs();
    if step == 1 || !length.is_some_and(|length| length > 0 && length.unsigned_abs() <= step) {
        return range;
    }
    let one = Dim::constant(1);
    let start = if range.step > 0 { range.start } else { &range.end - &one };
    AxisRange { end: &start + &one, start, step: 1 }
}

/// Whether a bound is the end of its axis or beyond it.
fn reaches_end(bound: &Dim, size: &Dim) -> bool {
    bound == size || bound.as_constant().is_some_and(|bound| bound >= BEYOND)
}

/// A bound inside `low..=high`.
fn clamped(to: &Lowering<'_, '_>, bound: &Dim, size: &Dim, low: &Dim, high: &Dim) -> Dim {
    let graph = &*to.builder.graph;
    match bound.as_constant() {
        Some(bound) if bound >= BEYOND => return high.clone(),
        Some(bound) if bound < -BEYOND => return low.clone(),
        Some(0) if high == size => return Dim::constant(0),
        Some(-1) => return last_position(to, size, high),
        Some(known) if known < 0 => {
            return graph.minimum(&graph.maximum(&(size + bound), low), high);
        }
        Some(_) => return graph.minimum(bound, high),
        None => {}
    }
    if bound == size {
        return high.clone();
    }
    if (size - bound).is(1) {
        return last_position(to, size, high);
    }
    let from_start = graph.least(bound, 1).is_some_and(|least| least >= 0);
    let position = if from_start {
        bound.clone()
    } else if graph.least(&-bound, 1).is_some_and(|least| least > 0) {
        size + bound
    } else {
        let negative = graph.compare(CompareOp::Lower, bound, &Dim::constant(0));
        bound + &(&negative * size)
    };
    let raised =
        if graph.least(&position, 1).is_some_and(|least| low.as_constant().is_some_and(|low| least >= low)) {
            position
        } else {
            graph.maximum(&position, low)
        };
    graph.minimum(&raised, high)
}

/// The last position of an axis, as a bound up to `high`: of an empty axis walked forwards 0, and the one before that backwards.
fn last_position(to: &Lowering<'_, '_>, size: &Dim, high: &Dim) -> Dim {
    let one = Dim::constant(1);
    // Written so that `x[:-1]` and `x[1:]` have the same number of elements.
    if high == size { size - &to.builder.graph.minimum(&one, size) } else { size - &one }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_beyond_the_part_leaves_one_element() {
        let range = |[start, end, step]: [i64; 3]| AxisRange {
            start: Dim::constant(start),
            end: Dim::constant(end),
            step,
        };
        for (given, expected) in [
            ([0, 4, 4], [0, 1, 1]),
            ([3, 4, 4], [3, 4, 1]),
            ([2, 6, -9], [5, 6, 1]),
            ([0, 4, -4], [3, 4, 1]),
            ([0, 5, 4], [0, 5, 4]),
            ([0, 5, -4], [0, 5, -4]),
            ([2, 3, 1], [2, 3, 1]),
            ([2, 3, -1], [2, 3, -1]),
            ([2, 2, 4], [2, 2, 4]),
        ] {
            assert_eq!(shortest(range(given)), range(expected), "{given:?}");
        }
    }
}
