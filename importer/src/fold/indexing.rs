//! Reads and writes at indices.

use super::{Elements, Strided, elements, movement};
use kiln_types::{ScatterOp, TensorData};

/// Indices as places on an axis of the given size; negative ones count from the end. `None` when one is outside.
fn places(indices: &TensorData, size: usize) -> Option<Vec<usize>> {
    let Elements::Int(indices) = Elements::load(indices) else {
        return None;
    };
    let place =
        |i: i128| usize::try_from(if i < 0 { i + size as i128 } else { i }).ok().filter(|&i| i < size);
    indices.into_iter().map(place).collect()
}

pub(super) fn take(x: &TensorData, indices: &TensorData, axis: usize) -> Option<TensorData> {
    let places = places(indices, *x.shape.get(axis)?)?;
    let rows = movement::rows(x, axis, &places)?;
    let shape = x.shape[..axis].iter().chain(&indices.shape).chain(&x.shape[axis + 1..]).copied().collect();
    TensorData::from_bytes(rows.bytes, shape, x.dtype).ok()
}

/// For each index, the place in `x` that it names, in row-major order of the indices.
fn gather_places(x: &TensorData, indices: &TensorData, axis: usize) -> Option<Vec<usize>> {
    let size = *x.shape.get(axis)?;
    let named = places(indices, size)?;
    if x.shape.len() != indices.shape.len() {
        return None;
    }
    let stride: usize = elements(&x.shape[axis + 1..]);
    // Walk `x` along all axes but the one that is indexed.
    let mut view = Strided::new(&x.shape).slice(axis, 0, size.min(1), 1)?;
    for (i, &count) in indices.shape.iter().enumerate().filter(|&(i, _)| i != axis) {
        view = view.slice(i, 0, count, 1)?;
    }
    let view = view.expand(&indices.shape)?;
    let mut named = named.into_iter();
    let mut all = Vec::with_capacity(view.len());
    view.for_each(|at| all.push(named.next().map(|row| at + row * stride)));
    all.into_iter().collect()
}

pub(super) fn gather(x: &TensorData, indices: &TensorData, axis: usize) -> Option<TensorData> {
    let places = gather_places(x, indices, axis)?;
    movement::pick(x, indices.shape.clone(), places.len(), |visit| places.iter().for_each(|&at| visit(at)))
}

pub(super) fn scatter(
    x: &TensorData,
    indices: &TensorData,
    updates: &TensorData,
    axis: usize,
    op: ScatterOp,
) -> Option<TensorData> {
    let places = gather_places(x, indices, axis)?;
    macro_rules! each {
        ($kind:ident, $into:expr, $from:expr, $mul:expr) => {{
            for (&at, &new) in places.iter().zip(&$from) {
                let old = $into[at];
                $into[at] = match op {
                    ScatterOp::Assign => new,
                    ScatterOp::Add => old + new,
                    ScatterOp::Mul => $mul(old, new),
                    ScatterOp::Max => old.max(new),
                    ScatterOp::Min => old.min(new),
                };
            }
            Elements::$kind($into)
        }};
    }
    let result = match (Elements::load(x), Elements::load(updates)) {
        (Elements::Float(mut into), Elements::Float(from)) => each!(Float, into, from, |a: f64, b| a * b),
        (Elements::Int(mut into), Elements::Int(from)) => each!(Int, into, from, i128::wrapping_mul),
        _ => return None,
    };
    Some(result.store(x.dtype, x.shape.clone()))
}
