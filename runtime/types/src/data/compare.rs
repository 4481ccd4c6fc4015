//! Assertions on tensor data, for tests.

use super::TensorData;
use crate::{DType, Element, Scalar};
use alloc::{format, string::String, vec::Vec};
use core::marker::PhantomData;

/// How many differing elements an assertion names.
const NAMED: usize = 5;

/// How far two numbers may lie apart: `|a - b| ≤ max(absolute, relative · max(|a|, |b|))`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance<F> {
    relative: f64,
    absolute: f64,
    element: PhantomData<F>,
}

impl<F: Element> Default for Tolerance<F> {
    fn default() -> Self {
        Self::balanced()
    }
}

impl<F: Element> Tolerance<F> {
    /// The spacing of floats around 1.
    fn epsilon() -> f64 {
        match F::DTYPE {
            DType::F64 => f64::EPSILON,
            DType::F16 => 9.765_625e-4,
            DType::BF16 => 7.812_5e-3,
            _ => f64::from(f32::EPSILON),
        }
    }

    fn of(relative: f64, absolute: f64) -> Self {
        Self { relative, absolute, element: PhantomData }
    }

    /// For results that differ by a few roundings only.
    pub fn strict() -> Self {
        Self::of(4.0 * Self::epsilon(), 2.0 * Self::epsilon())
    }

    /// For most results; the default.
    pub fn balanced() -> Self {
        match F::DTYPE {
            DType::F64 => Self::of(1e-8, 1e-8),
            DType::F16 => Self::of(1e-2, 2e-3),
            DType::BF16 => Self::of(5e-2, 1e-2),
            _ => Self::of(5e-3, 1e-5),
        }
    }

    /// For results of long or ill-conditioned computations.
    pub fn permissive() -> Self {
        match F::DTYPE {
            DType::F64 => Self::of(1e-5, 1e-6),
            DType::F16 => Self::of(5e-2, 1e-2),
            DType::BF16 => Self::of(1e-1, 5e-2),
            _ => Self::of(1e-2, 1e-2),
        }
    }

    /// Both bounds.
    pub fn rel_abs<T: Into<Scalar>>(relative: T, absolute: T) -> Self {
        Self::of(relative.into().to_f64(), absolute.into().to_f64())
    }

    /// A relative bound only.
    pub fn relative<T: Into<Scalar>>(relative: T) -> Self {
        Self::of(relative.into().to_f64(), 0.0)
    }

    /// An absolute bound only.
    pub fn absolute<T: Into<Scalar>>(absolute: T) -> Self {
        Self::of(0.0, absolute.into().to_f64())
    }

    /// With another relative bound.
    pub fn set_relative<T: Into<Scalar>>(self, relative: T) -> Self {
        Self::of(relative.into().to_f64(), self.absolute)
    }

    /// With another absolute bound.
    pub fn set_absolute<T: Into<Scalar>>(self, absolute: T) -> Self {
        Self::of(self.relative, absolute.into().to_f64())
    }

    /// With another relative bound, for `f16` and `bf16` only.
    pub fn set_half_precision_relative<T: Into<Scalar>>(self, relative: T) -> Self {
        if F::DTYPE.size() == 2 { self.set_relative(relative) } else { self }
    }

    /// With another absolute bound, for `f16` and `bf16` only.
    pub fn set_half_precision_absolute<T: Into<Scalar>>(self, absolute: T) -> Self {
        if F::DTYPE.size() == 2 { self.set_absolute(absolute) } else { self }
    }

    /// Whether two numbers are close; NaN is close to NaN, an infinity to itself.
    pub fn approx_eq(&self, a: F, b: F) -> bool {
        let (a, b) = (a.into().to_f64(), b.into().to_f64());
        if a == b || (a.is_nan() && b.is_nan()) {
            return true;
        }
        (a - b).abs() <= self.absolute.max(self.relative * a.abs().max(b.abs()))
            && a.is_finite()
            && b.is_finite()
    }
}

impl TensorData {
    /// Asserts equal shapes and elements; with `strict`, equal dtypes too (else the other's elements are converted).
    ///
    /// # Panics
    /// When they differ.
    #[track_caller]
    pub fn assert_eq(&self, other: &Self, strict: bool) {
        if strict {
            assert_eq!(self.dtype, other.dtype, "the dtypes differ");
        }
        let converted = other.clone().convert_dtype(self.dtype);
        let same = |a: Scalar, b: Scalar| a == b || (a.to_f64().is_nan() && b.to_f64().is_nan());
        self.assert_elements(&converted, self.scalars().zip(converted.scalars()), same);
    }

    /// Asserts equal shapes and elements within a tolerance, both read as `F`.
    ///
    /// # Panics
    /// When they differ.
    #[track_caller]
    pub fn assert_approx_eq<F: Element>(&self, other: &Self, tolerance: Tolerance<F>) {
        let pairs = self.iter::<F>().zip(other.iter::<F>());
        self.assert_elements(other, pairs, |a, b| tolerance.approx_eq(a, b));
    }

    /// Asserts that every element lies in a range.
    ///
    /// # Panics
    /// When one does not.
    #[track_caller]
    pub fn assert_within_range<E: Element>(&self, range: core::ops::Range<E>) {
        for (at, element) in self.iter::<E>().enumerate() {
            assert!(range.contains(&element), "element {at} is {element}, outside {range:?}");
        }
    }

    /// Asserts that every element lies in a range that includes its end.
    ///
    /// # Panics
    /// When one does not.
    #[track_caller]
    pub fn assert_within_range_inclusive<E: Element>(&self, range: core::ops::RangeInclusive<E>) {
        for (at, element) in self.iter::<E>().enumerate() {
            assert!(range.contains(&element), "element {at} is {element}, outside {range:?}");
        }
    }

    #[track_caller]
    fn assert_elements<T: Copy + core::fmt::Debug>(
        &self,
        other: &Self,
        pairs: impl Iterator<Item = (T, T)>,
        same: impl Fn(T, T) -> bool,
    ) {
        assert_eq!(self.shape, other.shape, "the shapes differ");
        let differing: Vec<(usize, (T, T))> = pairs.enumerate().filter(|&(_, (a, b))| !same(a, b)).collect();
        let named: Vec<String> = differing
            .iter()
            .take(NAMED)
            .map(|(at, (a, b))| format!("\n  at {:?}: {a:?} and {b:?}", position(*at, &self.shape)))
            .collect();
        assert!(
            differing.is_empty(),
            "{} of {} elements differ:{}",
            differing.len(),
            self.num_elements(),
            named.concat()
        );
    }
}

/// The index of the `at`-th element in row-major order.
fn position(mut at: usize, shape: &[usize]) -> Vec<usize> {
    let mut index: Vec<usize> = shape
        .iter()
        .rev()
        .map(|&size| {
            let i = at % size.max(1);
            at /= size.max(1);
            i
        })
        .collect();
    index.reverse();
    index
}
