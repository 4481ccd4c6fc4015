//! Derivations, computed.

use super::super::ImportError;
use crate::tensor::backend::{Backend, Primitive, SliceRange};
use crate::tensor::{BinaryOp, DType, Scalar, Shape};
use alloc::string::ToString;
use alloc::{vec, vec::Vec};
use kiln_types::{Derivation, DerivationTarget, Misfit};

/// Where the tensors of a computation come from, by their keys.
pub(super) type Fetch<'a, B> = &'a dyn Fn(&str) -> Result<<B as Backend>::Primitive, ImportError>;

/// Computes a derivation, floats in `f32` at least. Shapes were checked by [`Derivation::shape`].
///
/// # Errors
/// When a tensor cannot be fetched.
pub(super) fn compute<B: Backend>(
    derivation: &Derivation,
    target: &DerivationTarget,
    device: &B::Device,
    fetch: Fetch<'_, B>,
) -> Result<B::Primitive, ImportError> {
    Computation::<B> { target, device, fetch }.value(derivation)
}

/// Computes a parameter: as [`compute`], and a number is all of it.
///
/// # Errors
/// When a tensor cannot be fetched.
pub(super) fn compute_parameter<B: Backend>(
    derivation: &Derivation,
    target: &DerivationTarget,
    device: &B::Device,
    fetch: Fetch<'_, B>,
) -> Result<B::Primitive, ImportError> {
    let computed = compute::<B>(derivation, target, device, fetch)?;
    Ok(match derivation {
        Derivation::Number(_) => B::expand(computed, Shape::from(target.shape.clone())),
        _ => computed,
    })
}

struct Computation<'a, B: Backend> {
    target: &'a DerivationTarget,
    device: &'a B::Device,
    fetch: Fetch<'a, B>,
}

impl<B: Backend> Computation<'_, B> {
    fn value(&self, derivation: &Derivation) -> Result<B::Primitive, ImportError> {
        let of = |part: &Derivation| self.value(part);
        Ok(match derivation {
            Derivation::Key { path, .. } => widened::<B>((self.fetch)(path)?),
            Derivation::Number(number) => {
                B::full(Shape::from(Vec::new()), Scalar::Float(*number), DType::F32, self.device)
            }
            Derivation::Constant | Derivation::First(_) => {
                return Err(misfit(Misfit::Misplaced));
            }
            Derivation::Unary(op, x) => B::unary(*op, of(x)?),
            Derivation::Binary(op, a, b) => binary::<B>(*op, of(a)?, of(b)?),
            Derivation::Reduce(op, x, axes) => {
                let mut axes = axes.clone();
                axes.sort_unstable();
                axes.dedup();
                B::reduce(*op, of(x)?, &axes)
            }
            Derivation::Permute(x, axes) => B::permute(of(x)?, axes),
            Derivation::Squeeze(x, axes) => {
                let x = of(x)?;
                let shape = Derivation::squeezed(x.dims(), axes).map_err(misfit)?;
                B::reshape(x, Shape::from(shape))
            }
            Derivation::Unsqueeze(x, axes) => {
                let x = of(x)?;
                let shape = Derivation::unsqueezed(x.dims(), axes).map_err(misfit)?;
                B::reshape(x, Shape::from(shape))
            }
            Derivation::Reshape(x, sizes) => {
                let sizes = sizes.as_ref().unwrap_or(&self.target.shape);
                B::reshape(of(x)?, Shape::from(sizes.clone()))
            }
            Derivation::Expand(x, sizes) => B::expand(of(x)?, Shape::from(sizes.clone())),
            Derivation::Slice { of: x, axis, start, end, step } => {
                let x = of(x)?;
                let mut ranges: Vec<_> = x.dims().iter().map(|&size| SliceRange::full(size)).collect();
                if let Some(range) = ranges.get_mut(*axis) {
                    *range = SliceRange { start: *start, end: *end, step: *step as isize };
                }
                B::slice(x, &ranges)
            }
            Derivation::Concat(axis, parts) => {
                B::cat(&parts.iter().map(of).collect::<Result<Vec<_>, _>>()?, *axis)
            }
            Derivation::Stack(parts) => {
                let parts = parts.iter().map(|part| {
                    let x = of(part)?;
                    let dims = [&[1], x.dims()].concat();
                    Ok(B::reshape(x, Shape::from(dims)))
                });
                B::cat(&parts.collect::<Result<Vec<_>, ImportError>>()?, 0)
            }
            Derivation::Parts(x, order) => reordered::<B>(of(x)?, order),
            Derivation::MatMul(a, b) => B::matmul(of(a)?, of(b)?),
            Derivation::Scaled(weight, factors) => scaled::<B>(self.target, of(weight)?, of(factors)?),
        })
    }
}

fn misfit(misfit: Misfit) -> ImportError {
    ImportError::Record(misfit.to_string())
}

/// At least `f32`, if it is a float.
pub(super) fn widened<B: Backend>(x: B::Primitive) -> B::Primitive {
    if matches!(x.dtype(), DType::F16 | DType::BF16) { B::cast(x, DType::F32) } else { x }
}

/// A weight with its output channels scaled.
pub(super) fn scaled<B: Backend>(
    target: &DerivationTarget,
    weight: B::Primitive,
    factors: B::Primitive,
) -> B::Primitive {
    let shape = weight.dims().to_vec();
    let count = factors.dims().iter().product();
    let (axis, groups) = target.channels(&shape, count).unwrap_or((0, 1));
    if groups == 1 {
        let mut along = vec![1; shape.len()];
        if let Some(size) = along.get_mut(axis) {
            *size = count;
        }
        return binary::<B>(BinaryOp::Mul, weight, B::reshape(factors, Shape::from(along)));
    }
    // `[groups, in / groups, out / groups, …]` times `[groups, 1, out / groups, 1, …]`.
    let (inputs, outputs) = (shape[0] / groups, shape[1]);
    let mut apart = vec![groups, inputs];
    apart.extend_from_slice(&shape[1..]);
    let mut along = vec![1; apart.len()];
    (along[0], along[2]) = (groups, outputs);
    let (weight, factors) = (B::reshape(weight, Shape::from(apart)), B::reshape(factors, Shape::from(along)));
    B::reshape(B::binary(BinaryOp::Mul, weight, factors), Shape::from(shape))
}

/// The equal parts of the first axis in another order.
pub(super) fn reordered<B: Backend>(x: B::Primitive, order: &[usize]) -> B::Primitive {
    let size = x.dims().first().copied().unwrap_or(0) / order.len().max(1);
    let full: Vec<SliceRange> = x.dims().iter().map(|&size| SliceRange::full(size)).collect();
    let part = |&n: &usize| {
        let mut ranges = full.clone();
        if let Some(range) = ranges.first_mut() {
            *range = SliceRange { start: n * size, end: (n + 1) * size, step: 1 };
        }
        B::slice(x.clone(), &ranges)
    };
    B::cat(&order.iter().map(part).collect::<Vec<_>>(), 0)
}

/// A binary operation on operands of any rank.
pub(super) fn binary<B: Backend>(op: BinaryOp, a: B::Primitive, b: B::Primitive) -> B::Primitive {
    let rank = a.dims().len().max(b.dims().len());
    let dtype = match (a.dtype(), b.dtype()) {
        (a, b) if a == DType::F64 || b == DType::F64 => DType::F64,
        (a, b) if a.is_float() || b.is_float() => DType::F32,
        (a, _) => a,
    };
    let alike = |x: B::Primitive| {
        let mut dims = vec![1; rank - x.dims().len()];
        dims.extend_from_slice(x.dims());
        let x = if x.dtype() == dtype { x } else { B::cast(x, dtype) };
        if dims.len() == x.dims().len() { x } else { B::reshape(x, Shape::from(dims)) }
    };
    B::binary(op, alike(a), alike(b))
}
