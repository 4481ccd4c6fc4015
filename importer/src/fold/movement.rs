//! Operations that move elements, on bytes.

use super::{Elements, Strided, elements, fill};
use crate::ir::{AxisRange, Dim};
use kiln_types::{Bytes, PadMode, Scalar, TensorData};

/// The elements of a view of `x`, with the view's dims.
pub(super) fn view(x: &TensorData, view: Strided) -> Option<TensorData> {
    pick(x, view.dims().to_vec(), view.len(), |visit| view.for_each(visit))
}

/// Elements of `x` at the places that `walk` visits.
pub(super) fn pick(
    x: &TensorData,
    shape: Vec<usize>,
    count: usize,
    walk: impl FnOnce(&mut dyn FnMut(usize)),
) -> Option<TensorData> {
    fn run<const N: usize>(
        x: &[u8],
        count: usize,
        walk: impl FnOnce(&mut dyn FnMut(usize)),
    ) -> Option<Vec<u8>> {
        let (elements, _) = x.as_chunks::<N>();
        let mut out: Vec<[u8; N]> = Vec::with_capacity(count);
        let mut inside = true;
        walk(&mut |at| match elements.get(at) {
            Some(element) => out.push(*element),
            None => inside = false,
        });
        inside.then(|| out.into_flattened())
    }
    let bytes = match x.dtype.size() {
        1 => run::<1>(&x.bytes, count, walk),
        2 => run::<2>(&x.bytes, count, walk),
        4 => run::<4>(&x.bytes, count, walk),
        _ => run::<8>(&x.bytes, count, walk),
    }?;
    TensorData::from_bytes(Bytes::from_vec(bytes), shape, x.dtype).ok()
}

pub(super) fn slice(x: &TensorData, ranges: &[AxisRange]) -> Option<TensorData> {
    let mut strided = Strided::new(&x.shape);
    for (axis, range) in ranges.iter().enumerate() {
        strided = strided.slice(axis, range.start.as_size()?, range.end.as_size()?, range.step)?;
    }
    view(x, strided)
}

pub(super) fn repeat(x: &TensorData, times: &[usize]) -> Option<TensorData> {
    let shape = x.shape.iter().zip(times).map(|(&d, &t)| d.checked_mul(t)).collect::<Option<Vec<_>>>()?;
    let repeated = view(x, Strided::new(&x.shape).repeat(times))?;
    TensorData::from_bytes(repeated.bytes, shape, x.dtype).ok()
}

pub(super) fn concat(parts: &[&TensorData], axis: usize) -> Option<TensorData> {
    let first = parts.first()?;
    let mut shape = first.shape.clone();
    *shape.get_mut(axis)? = parts.iter().try_fold(0usize, |n, part| n.checked_add(*part.shape.get(axis)?))?;
    let outer: usize = elements(&shape[..axis]);
    let mut bytes = Vec::new();
    for row in 0..outer {
        for part in parts {
            let run = part.bytes.len() / outer;
            bytes.extend_from_slice(part.bytes.get(row * run..(row + 1) * run)?);
        }
    }
    TensorData::from_bytes(Bytes::from_vec(bytes), shape, first.dtype).ok()
}

pub(super) fn pad(
    x: &TensorData,
    padding: &[(Dim, Dim)],
    mode: PadMode,
    value: Scalar,
) -> Option<TensorData> {
    let mut result = x.clone();
    for (axis, (before, after)) in padding.iter().enumerate() {
        let (before, after) = (before.as_constant()?, after.as_constant()?);
        let size = |pad: i64| usize::try_from(pad.max(0)).ok();
        if before < 0 || after < 0 {
            // What only the run told to be negative cuts.
            let end = result.shape.get(axis)?.checked_sub(size(after.saturating_neg())?)?;
            let kept: Vec<usize> = (size(before.saturating_neg())?..end).collect();
            result = rows(&result, axis, &kept)?;
        }
        let (before, after) = (size(before)?, size(after)?);
        if before > 0 || after > 0 {
            result = pad_axis(&result, axis, before, after, mode, value)?;
        }
    }
    Some(result)
}

fn pad_axis(
    x: &TensorData,
    axis: usize,
    before: usize,
    after: usize,
    mode: PadMode,
    value: Scalar,
) -> Option<TensorData> {
    let size = *x.shape.get(axis)?;
    if mode != PadMode::Constant && size == 0 {
        return None;
    }
    if mode == PadMode::Constant {
        let block = |count: usize| {
            let mut shape = x.shape.clone();
            shape[axis] = count;
            fill(&shape, value, x.dtype)
        };
        return concat(&[&block(before)?, x, &block(after)?], axis);
    }
    let wanted = before.checked_add(size)?.checked_add(after)?;
    let source = |i: usize| -> Option<usize> {
        let (i, size) = (i as i64 - before as i64, size as i64);
        let at = match mode {
            PadMode::Edge => i.clamp(0, size - 1),
            PadMode::Wrap => i.checked_rem_euclid(size)?,
            _ if size == 1 => 0,
            _ => {
                let period = 2 * (size - 1);
                let i = i.rem_euclid(period);
                if i < size { i } else { period - i }
            }
        };
        usize::try_from(at).ok()
    };
    let places: Vec<usize> = (0..wanted).map(source).collect::<Option<_>>()?;
    rows(x, axis, &places)
}

/// The rows of an axis at the given places.
pub(super) fn rows(x: &TensorData, axis: usize, places: &[usize]) -> Option<TensorData> {
    let mut shape = x.shape.clone();
    let size = std::mem::replace(shape.get_mut(axis)?, places.len());
    let outer: usize = elements(&x.shape[..axis]);
    let inner: usize = elements(&x.shape[axis + 1..]).saturating_mul(x.dtype.size());
    let mut bytes = Vec::with_capacity(outer * places.len() * inner);
    for o in 0..outer {
        for &place in places {
            let start = (o * size + place) * inner;
            bytes.extend_from_slice(x.bytes.get(start..start + inner).filter(|_| place < size)?);
        }
    }
    TensorData::from_bytes(Bytes::from_vec(bytes), shape, x.dtype).ok()
}

pub(super) fn trilu(x: &TensorData, upper: bool, k: i64) -> Option<TensorData> {
    let [.., rows, columns] = x.shape.as_slice() else {
        return None;
    };
    let size = rows.checked_mul(*columns)?.max(1);
    let keep = |at: usize| {
        let (row, column) = ((at % size / columns) as i64, (at % columns) as i64);
        if upper { column >= row.saturating_add(k) } else { column <= row.saturating_add(k) }
    };
    let elements = match Elements::load(x) {
        Elements::Float(x) => {
            Elements::Float(x.into_iter().enumerate().map(|(i, v)| if keep(i) { v } else { 0.0 }).collect())
        }
        Elements::Int(x) => {
            Elements::Int(x.into_iter().enumerate().map(|(i, v)| if keep(i) { v } else { 0 }).collect())
        }
    };
    Some(elements.store(x.dtype, x.shape.clone()))
}
