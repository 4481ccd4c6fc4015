//! Tensors with a border.

use super::indexing::rows;
use super::join::concat;
use super::prelude::*;
use crate::ir::builder::MAX_HOST_ELEMENTS;
use kiln_types::{Expression, PadMode, Scalar, Step};

attributes! {
    /// A border.
    pub struct Pad {
        /// Before and after each axis; not negative.
        pub padding: Vec<(Dim, Dim)>,
        /// What stands outside.
        pub mode: PadMode,
        /// For [`PadMode::Constant`].
        pub value: Scalar,
    }
}

impl Operation for Pad {
    facts!(operands: ["x"], effect: Pure, folding: PerElement(1), result: Computed);
    none!(derivation);

    fn infer(&self, cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        let (padding, mode) = (self.padding.as_slice(), self.mode);
        let x = cx.ty(0)?;
        if padding.len() != x.rank() {
            return Err(misfit("pads", format!("are {} for a tensor of rank {}", padding.len(), x.rank())));
        }
        let mut dims = Vec::with_capacity(padding.len());
        for ((before, after), size) in padding.iter().zip(&x.dims) {
            for pad in [before, after] {
                if pad.as_constant().is_some_and(|pad| pad < 0) {
                    return Err(attribute("pads", "are negative"));
                }
                let short = mode == PadMode::Reflect
                    && pad
                        .as_constant()
                        .zip(size.as_constant())
                        .is_some_and(|(pad, size)| pad > 0 && pad >= size);
                let empty = mode != PadMode::Constant && size.is(0) && !pad.is(0);
                if short || empty {
                    return Err(misfit(
                        "pads",
                        format!("of {pad} cannot be taken from an axis of size {size}"),
                    ));
                }
            }
            dims.push(&(before + size) + after);
        }
        Ok(vec![x.with_dims(dims)])
    }

    fn host(&self, cx: &Host<'_>) -> Option<Vec<Dim>> {
        (self.mode == PadMode::Constant).then(|| host_pad(cx, &self.padding, self.value))?
    }

    fn evaluate(&self, operands: &Known<'_>) -> Option<Vec<TensorData>> {
        let (x, padding, mode, value) = (operands.get(0)?, self.padding.as_slice(), self.mode, self.value);
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
        Some(vec![result])
    }

    fn loops(&self, cx: &Site<'_>) -> Option<Loops> {
        if self.mode != PadMode::Constant {
            return repeated(self.mode, &self.padding, cx);
        }
        let (x, result) = (cx.shape(0)?, Strided::new(&cx.result_shape()?));
        let mut inside = result.clone();
        for (axis, ((before, _), &size)) in self.padding.iter().zip(&x).enumerate() {
            let before = before.as_size()?;
            inside = inside.slice(axis, before, before.checked_add(size)?, 1)?;
        }
        let expression = Expression::new(vec![Step::Constant(self.value, cx.dtype(0))]);
        let border = ElementLoop { result, operands: Vec::new(), expression };
        Some(Loops::Elementwise(vec![border, ElementLoop::copy(0, Strided::new(&x), inside)]))
    }

    fn implementation(&self, cx: &Site<'_>) -> Implementation {
        // An amount that turns out negative cuts.
        let is_size = |pad: &Dim| cx.graph.least(pad, 0).is_some_and(|least| least >= 0);
        let (name, amount): (_, fn(Dim) -> Arg) =
            match self.padding.iter().all(|(before, after)| is_size(before) && is_size(after)) {
                true => ("pad_with", Arg::Size),
                false => ("pad_or_crop", Arg::Integer),
            };
        let pair =
            |(before, after): &(Dim, Dim)| Arg::Tuple(vec![amount(before.clone()), amount(after.clone())]);
        let padding = Arg::List(self.padding.iter().map(pair).collect());
        let value = Arg::Scalar(self.value, cx.dtype(0));
        Implementation::Call(Arg::Operand(0).then(name, [padding, Arg::options(&self.mode), value]))
    }
}

fn host_pad(cx: &Host<'_>, padding: &[(Dim, Dim)], value: Scalar) -> Option<Vec<Dim>> {
    let x = cx.operand(0)?;
    let mut dims = Vec::with_capacity(padding.len());
    let mut inner: Vec<(usize, usize)> = Vec::with_capacity(padding.len());
    for ((before, after), &size) in padding.iter().zip(&x.dims) {
        let (before, after) = (before.as_size()?, after.as_size()?);
        dims.push(size.checked_add(before)?.checked_add(after)?);
        inner.push((before, before + size));
    }
    let count = dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d))?;
    if count > MAX_HOST_ELEMENTS {
        return None;
    }
    let mut values = vec![Dim::constant(value.to_i64()); count];
    let mut view = Strided::new(&dims);
    for (axis, &(start, end)) in inner.iter().enumerate() {
        view = view.slice(axis, start, end, 1)?;
    }
    let mut source = x.values.iter();
    view.for_each(|at| values[at] = source.next().cloned().unwrap_or_else(|| Dim::constant(0)));
    Some(values)
}

/// Loops that copy an image, and what of it stands in each part of its border.
fn repeated(mode: PadMode, padding: &[(Dim, Dim)], cx: &Site<'_>) -> Option<Loops> {
    /// Parts of two axes' borders, and of a third one's.
    const MOST: usize = 27;
    let x = cx.shape(0)?;
    let mut parts = vec![(Strided::new(&x), Strided::new(&cx.result_shape()?))];
    for (axis, ((before, after), &size)) in padding.iter().zip(&x).enumerate() {
        let (before, after) = (before.as_size()?, after.as_size()?);
        let end = before.checked_add(size)?;
        // Where each part of the axis is in the result, and what of the operand it shows: from where up to where, by which step.
        let shown = match mode {
            PadMode::Constant => return None,
            PadMode::Edge => [(0, 1, 1), (size.checked_sub(1)?, size, 1)],
            PadMode::Reflect if size == 1 => [(0, 1, 1), (0, 1, 1)],
            PadMode::Reflect => {
                let last = size.checked_sub(1)?;
                [(1, before.checked_add(1)?, -1), (last.checked_sub(after)?, last, -1)]
            }
            PadMode::Wrap => [(size.checked_sub(before)?, size, 1), (0, after, 1)],
        };
        let [first, last] = shown;
        let ranges = [(0, before, first), (before, end, (0, size, 1)), (end, end.checked_add(after)?, last)];
        let mut next = Vec::new();
        for (from, to) in &parts {
            for &(start, end, (first, last, step)) in ranges.iter().filter(|(start, end, _)| start < end) {
                let mut from = from.slice(axis, first, last, step)?;
                if from.dims().get(axis) == Some(&1) {
                    let mut dims = from.dims().to_vec();
                    *dims.get_mut(axis)? = end - start;
                    from = from.expand(&dims)?;
                }
                next.push((from, to.slice(axis, start, end, 1)?));
            }
        }
        parts = Some(next).filter(|parts| parts.len() <= MOST)?;
    }
    Some(Loops::Elementwise(parts.into_iter().map(|(from, to)| ElementLoop::copy(0, from, to)).collect()))
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
    let places: Vec<usize> = (0..wanted).map(|at| source(mode, at, before, size)).collect::<Option<_>>()?;
    rows(x, axis, &places)
}

/// Where along an axis of `size` elements what stands at a place comes from, `before` of whose elements are padding.
fn source(mode: PadMode, at: usize, before: usize, size: usize) -> Option<usize> {
    let (at, size) = (at as i64 - before as i64, size as i64);
    let at = match mode {
        PadMode::Edge => at.clamp(0, size - 1),
        PadMode::Wrap => at.checked_rem_euclid(size)?,
        PadMode::Reflect | PadMode::Constant if size == 1 => 0,
        PadMode::Reflect | PadMode::Constant => {
            let period = 2 * (size - 1);
            let at = at.rem_euclid(period);
            if at < size { at } else { period - at }
        }
    };
    usize::try_from(at).ok()
}
