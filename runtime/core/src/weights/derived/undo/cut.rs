//! Contents on their way back through a derivation.

use super::super::Undone;
use crate::tensor::backend::{Backend, Primitive, SliceRange};
use crate::tensor::{BinaryOp, DType, Scalar, Shape, UnaryOp};
use alloc::string::ToString;
use alloc::{vec, vec::Vec};

/// Contents of which perhaps only a part is known: where the mask is true.
pub(super) struct Cut<B: Backend> {
    pub(super) value: B::Primitive,
    pub(super) mask: Option<B::Primitive>,
}

impl<B: Backend> Clone for Cut<B> {
    fn clone(&self) -> Self {
        Self { value: self.value.clone(), mask: self.mask.clone() }
    }
}

impl<B: Backend> Cut<B> {
    pub(super) fn whole(value: B::Primitive) -> Self {
        Self { value, mask: None }
    }

    /// After elements were moved.
    pub(super) fn moved(self, by: impl Fn(B::Primitive) -> B::Primitive) -> Self {
        Self { value: by(self.value), mask: self.mask.map(by) }
    }

    /// After elements were computed.
    pub(super) fn computed(self, by: impl FnOnce(B::Primitive) -> B::Primitive) -> Self {
        Self { value: by(self.value), mask: self.mask }
    }

    pub(super) fn reshaped(self, shape: &[usize]) -> Self {
        self.moved(|x| B::reshape(x, Shape::from(shape.to_vec())))
    }

    /// How many elements are known, of how many.
    pub(super) fn counts(&self) -> Result<(usize, usize), Undone> {
        let all = self.value.dims().iter().product();
        let Some(mask) = self.mask.clone() else { return Ok((all, all)) };
        let mask = B::into_data(mask).map_err(|error| Undone::Backend(error.to_string()))?;
        Ok((mask.bytes.iter().filter(|&&known| known != 0).count(), all))
    }
}

/// Whether two tensors are equal, or differ by at most a part of their largest element. What is no number is equal to what is none.
pub(super) fn is_close<B: Backend>(a: B::Primitive, b: B::Primitive, tolerance: f32) -> bool {
    let numbers = |x: B::Primitive| {
        let x = if x.dtype() == DType::F32 { x } else { B::cast(x, DType::F32) };
        let shape = x.dims().to_vec();
        Some((B::into_data(x).ok()?.to_vec::<f32>().ok()?, shape))
    };
    let (Some((a, from)), Some((b, to))) = (numbers(a), numbers(b)) else { return false };
    let largest = b.iter().filter(|x| x.is_finite()).fold(0.0f32, |largest, x| largest.max(x.abs()));
    let close =
        |(a, b): (&f32, &f32)| a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= tolerance * largest;
    from == to && a.iter().zip(&b).all(close)
}

/// What an operation was applied to.
pub(super) fn unary<B: Backend>(op: UnaryOp, cut: Cut<B>) -> Result<Cut<B>, Undone> {
    Ok(match op {
        UnaryOp::Neg | UnaryOp::Recip => cut.computed(|x| B::unary(op, x)),
        UnaryOp::Exp => cut.computed(|x| B::unary(UnaryOp::Log, x)),
        UnaryOp::Log => cut.computed(|x| B::unary(UnaryOp::Exp, x)),
        UnaryOp::Log1p => {
            cut.computed(|x| B::binary_scalar(BinaryOp::Sub, B::unary(UnaryOp::Exp, x), Scalar::Float(1.0)))
        }
        UnaryOp::Sqrt => cut.computed(|x| B::binary(BinaryOp::Mul, x.clone(), x)),
        _ => return Err(Undone::Operation(op.name().into())),
    })
}

/// The permutation that undoes another.
pub(super) fn inverse(order: &[usize]) -> Vec<usize> {
    let mut back = vec![0; order.len()];
    for (to, &from) in order.iter().enumerate() {
        if let Some(slot) = back.get_mut(from) {
            *slot = to;
        }
    }
    back
}

/// A part of an axis.
pub(super) fn narrowed<B: Backend>(
    x: B::Primitive,
    axis: usize,
    start: usize,
    length: usize,
) -> B::Primitive {
    let mut ranges: Vec<_> = x.dims().iter().map(|&size| SliceRange::full(size)).collect();
    if let Some(range) = ranges.get_mut(axis) {
        *range = SliceRange { start, end: start + length, step: 1 };
    }
    B::slice(x, &ranges)
}

/// What was broadcast from a shape: the first of equal elements.
pub(super) fn unspread<B: Backend>(mut x: B::Primitive, shape: &[usize]) -> B::Primitive {
    let more = x.dims().len().saturating_sub(shape.len());
    for axis in 0..x.dims().len() {
        let wanted = axis.checked_sub(more).and_then(|axis| shape.get(axis)).copied().unwrap_or(1);
        if wanted == 1 && x.dims().get(axis).is_some_and(|&size| size > 1) {
            x = narrowed::<B>(x, axis, 0, 1);
        }
    }
    if x.dims() == shape { x } else { B::reshape(x, Shape::from(shape.to_vec())) }
}
