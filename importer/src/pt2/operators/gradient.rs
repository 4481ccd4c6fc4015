//! `torch.gradient`: slopes along axes, by differences of neighbours.

use super::Table;
use super::shape::joined;
use crate::pt2::call::{Call, Int, Outputs, Result, Tensor, invalid, unsupported};

pub(super) const RULES: Table = &[
    ("gradient.array", gradient),
    ("gradient.scalararray", gradient),
    ("gradient.scalarint", gradient),
    ("gradient.scalarrayarray", gradient),
    ("gradient.scalarrayint", gradient),
];

/// A tensor for each axis: of inner elements half the difference of both neighbours, at either end that to one neighbour, or the slope of a parabola through the
/// last three; by how far elements are apart.
fn gradient(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = call.tensor("self")?;
    let dtype = call.result_dtype()?;
    let x = Tensor { name: call.cast_tensor(&x, dtype), dtype, ..x };
    let axes = match call.has("dim") {
        true => call.axes("dim", &x)?,
        false => (0..).take(x.rank()).collect(),
    };
    let parabola = match call.int_or("edge_order", 1)? {
        1 => false,
        2 => true,
        _ => return Err(invalid("edge_order", "is neither 1 nor 2")),
    };
    let spacing = call.floats_or("spacing", &[1.0])?;
    let spacing_of = |axis: usize| match spacing.as_slice() {
        &[spacing] => Ok(spacing),
        all => all.get(axis).copied().ok_or_else(|| invalid("spacing", "is not given for each axis")),
    };
    let mut results = Vec::with_capacity(axes.len());
    for (n, &axis) in axes.iter().enumerate() {
        if x.size(axis).is_some_and(|size| size < if parabola { 3 } else { 2 }) {
            return Err(unsupported("slopes along an axis with fewer elements than its ends take"));
        }
        results.push(slopes(call, &x, axis, spacing_of(n)?, parabola));
    }
    Ok(results)
}

fn slopes(call: &mut Call<'_, '_>, x: &Tensor, axis: i64, spacing: f64, parabola: bool) -> String {
    // From one element on, counted from the end where it is negative, up to another.
    let part = |call: &mut Call<'_, '_>, start: i64, end: i64| {
        call.slice(x, axis, [&Int::Known(start), &Int::Known(end)], 1)
    };
    let sum = |call: &mut Call<'_, '_>, terms: &[(f64, String)]| {
        let mut sum: Option<String> = None;
        for (factor, term) in terms {
            let factor = call.number_of(factor / spacing, x.dtype);
            let term = call.op("Mul", &[term, &factor], Vec::new());
            sum = Some(match sum {
                Some(sum) => call.op("Add", &[&sum, &term], Vec::new()),
                None => term,
            });
        }
        sum.unwrap_or_default()
    };
    let end = i64::MAX;
    let [first, second] = [part(call, 0, 1), part(call, 1, 2)];
    let [last, before] = [part(call, -1, end), part(call, -2, -1)];
    let [head, tail] = if parabola {
        let [third, earlier] = [part(call, 2, 3), part(call, -3, -2)];
        [vec![(-1.5, first), (2.0, second), (-0.5, third)], vec![(1.5, last), (-2.0, before), (0.5, earlier)]]
    } else {
        [vec![(-1.0, first), (1.0, second)], vec![(1.0, last), (-1.0, before)]]
    };
    let [after, ahead] = [part(call, 2, end), part(call, 0, -2)];
    let inner = sum(call, &[(0.5, after), (-0.5, ahead)]);
    let parts = [sum(call, &head), inner, sum(call, &tail)];
    joined(call, &parts, axis)
}
