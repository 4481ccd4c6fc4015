//! Parts of tensors.

use super::layout::view;
use super::prelude::*;

attributes! {
    /// The part of one axis that a slice keeps; in range, `start <= end`. A negative step walks `start..end` backwards from
    /// `end - 1`.
    pub struct AxisRange {
        /// First element.
        pub start: Dim,
        /// One past the last element.
        pub end: Dim,
        /// Distance; never 0.
        pub step: i64,
    }
}

attributes! {
    /// A part.
    pub struct Slice {
        /// One per axis.
        pub ranges: Vec<AxisRange>,
    }
}

impl Operation for Slice {
    facts!(operands: ["x"], effect: Pure, folding: Picks, result: Joined);

    fn infer(&self, cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        let ranges = self.ranges.as_slice();
        let x = cx.ty(0)?;
        if ranges.len() != x.rank() {
            return Err(misfit("ranges", format!("are {} for a tensor of rank {}", ranges.len(), x.rank())));
        }
        let mut dims = Vec::with_capacity(ranges.len());
        for (range, size) in ranges.iter().zip(&x.dims) {
            let step = i64::try_from(range.step.unsigned_abs()).unwrap_or(i64::MAX);
            let (start, end) = (range.start.as_constant(), range.end.as_constant());
            let inside = start.is_none_or(|s| s >= 0)
                && (&range.end - &range.start).as_constant().is_none_or(|len| len >= 0)
                && end.zip(size.as_constant()).is_none_or(|(end, size)| end <= size);
            if step == 0 || !inside {
                let text = format!("{}..{} by {} are outside 0..{size}", range.start, range.end, range.step);
                return Err(misfit("ranges", text));
            }
            let kept = size.kept(&range.start, &range.end).filter(|_| range.step > 0);
            let length = kept.unwrap_or_else(|| &range.end - &range.start);
            dims.push(length.ceil_div(&Dim::constant(step)));
        }
        Ok(vec![x.with_dims(dims)])
    }

    fn host(&self, cx: &Host<'_>) -> Option<Vec<Dim>> {
        cx.view(|x| cut(x, &self.ranges))
    }

    fn evaluate(&self, operands: &Known<'_>) -> Option<Vec<TensorData>> {
        let x = operands.get(0)?;
        Some(vec![view(x, cut(Strided::new(&x.shape), &self.ranges)?)?])
    }

    fn derivation(&self, of: &Sources<'_>) -> Result<Derivation, String> {
        let mut cut = of.of(0)?;
        for (axis, range) in self.ranges.iter().enumerate() {
            let (start, end) = (range.start.as_size(), range.end.as_size());
            let (Some(start), Some(end), Ok(step @ 1..)) = (start, end, usize::try_from(range.step)) else {
                return Err(of.unknown());
            };
            let size = of.shape(0).and_then(|shape| shape.get(axis).copied());
            if (start, step) == (0, 1) && size == Some(end) {
                continue;
            }
            cut = Derivation::Slice { of: Box::new(cut), axis, start, end, step };
        }
        Ok(cut)
    }

    fn loops(&self, cx: &Site<'_>) -> Option<Loops> {
        Some(Loops::copy(cut(Strided::new(&cx.shape(0)?), &self.ranges)?))
    }

    fn implementation(&self, cx: &Site<'_>) -> Implementation {
        Implementation::Call(call(&self.ranges, cx))
    }
}

/// The part of a view.
fn cut(mut view: Strided, ranges: &[AxisRange]) -> Option<Strided> {
    for (axis, range) in ranges.iter().enumerate() {
        view = view.slice(axis, range.start.as_size()?, range.end.as_size()?, range.step)?;
    }
    Some(view)
}

/// One `slice_dim` for each axis that is cut.
fn call(ranges: &[AxisRange], cx: &Site<'_>) -> Arg {
    let dims = cx.ty(0).map(|ty| ty.dims.as_slice()).unwrap_or_default();
    let mut expr = Arg::Operand(0);
    for (axis, range) in ranges.iter().enumerate() {
        let all = range.start.is(0) && range.step == 1 && dims.get(axis) == Some(&range.end);
        if all {
            continue;
        }
        let bounds = Arg::range(Arg::Size(range.start.clone()), Arg::Size(range.end.clone()));
        let range = match range.step {
            1 => bounds,
            step => Arg::call("tensor::Slice::from_range_stepped", [bounds, Arg::Int(step)]),
        };
        expr = expr.then("slice_dim", [Arg::axis(axis), range]);
    }
    expr
}
