//! Golden data: known inputs and outputs of a model, held against what it computes.
//!
//! The tests in generated source and `kiln verify` are written against this module.

use crate::tensor::{DType, TensorData};
use kiln_record::RecordError;
use kiln_record::safetensors::Safetensors;
use std::path::Path;

pub use kiln_types::golden::Tolerance;

/// Inputs and expected outputs in one Safetensors file, as `input_0`, `input_1`, …, `output_0`, ….
pub struct Golden {
    file: Safetensors,
}

/// How two tensors of one shape and dtype differ.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Difference {
    /// Number of elements.
    pub elements: usize,
    /// Elements that differ by more than the tolerance.
    pub mismatches: usize,
    /// Row-major position of the first of them.
    pub first: Option<usize>,
    /// Largest absolute difference.
    pub max_abs: f64,
    /// Largest difference in proportion to the expected element.
    pub max_rel: f64,
    /// Largest difference in proportion to the largest finite expected element.
    pub of_largest: f64,
}

impl Golden {
    /// Opens a file.
    ///
    /// # Errors
    /// When it cannot be read or is not a Safetensors file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, RecordError> {
        Ok(Self { file: Safetensors::open(path.as_ref())? })
    }

    /// The `n`-th input, if there is one.
    pub fn input(&self, n: usize) -> Option<TensorData> {
        self.file.tensor(&alloc::format!("input_{n}"))
    }

    /// The `n`-th expected output, if there is one.
    pub fn output(&self, n: usize) -> Option<TensorData> {
        self.file.tensor(&alloc::format!("output_{n}"))
    }

    /// Compares what a model computed as its `n`-th output.
    ///
    /// # Panics
    /// When shapes or dtypes differ, or elements by more than the tolerance; the message says which and by how much.
    pub fn assert_output(&self, n: usize, actual: &TensorData, tolerance: Tolerance) {
        let Some(expected) = self.output(n) else { panic!("the golden data has no output {n}") };
        match compare(actual, &expected, tolerance) {
            Ok(difference) if difference.mismatches == 0 => {}
            Ok(difference) => panic!(
                "output {n}: {} of {} elements differ by more than {} + {} · |expected| + {} · the largest; the first is element {}; \
                 the largest difference is {:e} absolute, {:e} relative",
                difference.mismatches,
                difference.elements,
                tolerance.absolute,
                tolerance.relative,
                tolerance.of_largest,
                difference.first.unwrap_or_default(),
                difference.max_abs,
                difference.max_rel
            ),
            Err(reason) => panic!("output {n}: {reason}"),
        }
    }
}

/// Two tensors cannot be compared element by element.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("got {actual_dtype}{actual:?}, expected {expected_dtype}{expected:?}")]
pub struct TypeMismatch {
    /// Shape of what was computed.
    pub actual: Vec<usize>,
    /// Its dtype.
    pub actual_dtype: DType,
    /// Expected shape.
    pub expected: Vec<usize>,
    /// Expected dtype.
    pub expected_dtype: DType,
}

/// Compares element by element; NaN equals NaN, integers and bools must be equal.
///
/// # Errors
/// When shapes or dtypes differ.
pub fn compare(
    actual: &TensorData,
    expected: &TensorData,
    tolerance: Tolerance,
) -> Result<Difference, TypeMismatch> {
    if actual.shape != expected.shape || actual.dtype != expected.dtype {
        return Err(TypeMismatch {
            actual: actual.shape.clone(),
            actual_dtype: actual.dtype,
            expected: expected.shape.clone(),
            expected_dtype: expected.dtype,
        });
    }
    let mut difference = Difference::default();
    if !expected.dtype.is_float() {
        // Integers beyond 2^53 would be rounded by a comparison as floats.
        for (i, (a, b)) in actual.iter::<i64>().zip(expected.iter::<i64>()).enumerate() {
            difference.elements += 1;
            if a != b {
                difference.add(i, (a as f64 - b as f64).abs(), b as f64, false);
            }
        }
        return Ok(difference);
    }
    let largest = expected.iter::<f64>().map(f64::abs).filter(|x| x.is_finite()).fold(0.0, f64::max);
    let everywhere = tolerance.absolute + tolerance.of_largest * largest;
    for (i, (a, b)) in actual.iter::<f64>().zip(expected.iter::<f64>()).enumerate() {
        difference.elements += 1;
        if a == b || (a.is_nan() && b.is_nan()) {
            continue;
        }
        let distance = (a - b).abs();
        // An infinite or NaN distance is within no tolerance, not even an infinite one.
        let within = distance.is_finite() && distance <= everywhere + tolerance.relative * b.abs();
        difference.add(i, distance, b, within);
    }
    if largest > 0.0 {
        difference.of_largest = difference.max_abs / largest;
    }
    Ok(difference)
}

impl Difference {
    fn add(&mut self, position: usize, distance: f64, expected: f64, within: bool) {
        let larger = |old: f64, new: f64| if new.is_nan() || new > old { new } else { old };
        self.max_abs = larger(self.max_abs, distance);
        if expected != 0.0 {
            self.max_rel = larger(self.max_rel, distance / expected.abs());
        }
        if !within {
            self.mismatches += 1;
            self.first.get_or_insert(position);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(values: &[f32]) -> TensorData {
        TensorData::new(values.to_vec(), [values.len()])
    }

    #[test]
    fn tolerance_is_absolute_plus_relative() {
        let tolerance = Tolerance { absolute: 0.1, relative: 0.01, of_largest: 0.0 };
        let difference = compare(&floats(&[0.05, 101.0, 103.0]), &floats(&[0.0, 100.0, 100.0]), tolerance);
        let difference = difference.unwrap();
        assert_eq!((difference.mismatches, difference.first), (1, Some(2)));
        assert_eq!(difference.max_abs, 3.0);
    }

    #[test]
    fn tolerance_may_be_of_the_largest() {
        let tolerance = Tolerance { absolute: 0.0, relative: 0.0, of_largest: 0.02 };
        let expected = floats(&[0.0, -100.0, 1.0, f32::INFINITY]);
        let difference = compare(&floats(&[1.5, -102.5, 3.0, f32::INFINITY]), &expected, tolerance).unwrap();
        assert_eq!((difference.mismatches, difference.first), (1, Some(1)));
        assert_eq!(difference.of_largest, 0.025);
    }

    #[test]
    fn nan_and_infinity_must_be_met() {
        let (nan, inf) = (f32::NAN, f32::INFINITY);
        let difference =
            compare(&floats(&[nan, inf, 1.0, -inf]), &floats(&[nan, inf, nan, inf]), Tolerance::default());
        assert_eq!(difference.unwrap().mismatches, 2);
    }

    #[test]
    fn types_must_be_equal() {
        let ints = TensorData::new(vec![1i64], [1]);
        assert!(compare(&floats(&[1.0]), &ints, Tolerance::default()).is_err());
        assert!(compare(&floats(&[1.0]), &floats(&[1.0, 1.0]), Tolerance::default()).is_err());
    }
}
