//! Integer tensors.

use super::base::Tensor;
use super::kind::{Float, Int, TensorKind};
use super::numeric::{binary_operations, unary_operations};
use crate::backend::Backend;
use crate::check::ensure;
use crate::{BinaryOp, Distribution, Scalar, Shape, TensorData, UnaryOp, check, erased};
use alloc::vec::Vec;
use core::ops::Range;

impl<B: Backend, const D: usize> Tensor<B, D, Int> {
    binary_operations! {
        /// Bitwise and; broadcasts.
        bitwise_and,
        /// Bitwise and with one number.
        bitwise_and_scalar => BitwiseAnd;
        /// Bitwise or; broadcasts.
        bitwise_or,
        /// Bitwise or with one number.
        bitwise_or_scalar => BitwiseOr;
        /// Bitwise exclusive or; broadcasts.
        bitwise_xor,
        /// Bitwise exclusive or with one number.
        bitwise_xor_scalar => BitwiseXor;
        /// Shifts towards the high bits; broadcasts.
        bitwise_left_shift,
        /// Shifts towards the high bits by one number.
        bitwise_left_shift_scalar => ShiftLeft;
        /// Shifts towards the low bits, keeping the sign; broadcasts.
        bitwise_right_shift,
        /// Shifts towards the low bits by one number.
        bitwise_right_shift_scalar => ShiftRight;
    }

    unary_operations! {
        /// Bitwise not.
        bitwise_not => BitwiseNot;
    }

    /// A tensor from integers, converted to the usual dtype.
    pub fn from_ints<A: Into<TensorData>>(ints: A, device: &B::Device) -> Self {
        Self::from_data(ints, device)
    }

    /// Random integers; the same as [`Tensor::random`].
    pub fn int_random<S: Into<Shape>>(shape: S, distribution: Distribution, device: &B::Device) -> Self {
        Self::random(shape, distribution, device)
    }

    /// Converts to the usual integer dtype, from any other.
    pub fn int(self) -> Self {
        self.cast(<Int as TensorKind<B>>::default_dtype())
    }

    /// Converts to the usual float dtype.
    pub fn float(self) -> Tensor<B, D> {
        self.convert(<Float as TensorKind<B>>::default_dtype())
    }

    /// The indices of all places of a tensor of the given shape: `[shape…, rank]`.
    ///
    /// # Panics
    /// When `D2` is not one more than the rank of `shape`, which is `D`.
    pub fn cartesian_grid<S: Into<Shape>, const D2: usize>(
        shape: S,
        device: &B::Device,
    ) -> Tensor<B, D2, Int> {
        let shape = shape.into();
        check::rank("cartesian_grid", &shape, D);
        let indices: Vec<Tensor<B, D, Int>> = (0..D)
            .map(|dim| {
                let mut along = [1; D];
                along[dim] = shape[dim];
                Tensor::<B, 1, Int>::arange(0..shape[dim] as i64, device).reshape(along).expand(shape.clone())
            })
            .collect();
        Tensor::stack(indices, D)
    }
}

impl<B: Backend> Tensor<B, 1, Int> {
    /// The integers of a range.
    pub fn arange(range: Range<i64>, device: &B::Device) -> Self {
        Self::range(range.start, range.end, 1, device)
    }

    /// Every `step`-th integer of a range.
    pub fn arange_step(range: Range<i64>, step: usize, device: &B::Device) -> Self {
        Self::range(range.start, range.end, step as i64, device)
    }

    /// `start, start + step, …` before `end` (after it, for a negative step).
    ///
    /// # Panics
    /// When the step is 0.
    pub fn range(start: i64, end: i64, step: i64, device: &B::Device) -> Self {
        ensure!(step != 0, "range", "the step is 0");
        Self::wrap(B::arange(start, end, step, <Int as TensorKind<B>>::default_dtype(), device))
    }
}
