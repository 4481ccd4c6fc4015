//! How far what a model computes may be off from golden data.

use crate::{DType, Precision};

/// How far an element may be off: `|actual - expected| ≤ absolute + relative · |expected| + of_largest · max |expected|`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// For elements near zero.
    pub absolute: f64,
    /// In proportion to the expected element.
    pub relative: f64,
    /// In proportion to the largest finite expected element: for sums that are rounded as their terms are.
    pub of_largest: f64,
}

impl Default for Tolerance {
    /// `1e-4 + 1e-3 · |expected|`.
    fn default() -> Self {
        Self { absolute: 1e-4, relative: 1e-3, of_largest: 0.0 }
    }
}

impl Tolerance {
    /// What results of a model that computes in a float dtype may be off from those in f32: about twenty times the distance between
    /// neighbouring numbers of a narrow dtype, of elements near zero too, since they are sums of others.
    pub fn computed_in(dtype: DType) -> Self {
        match dtype {
            DType::F16 => Self { absolute: 0.02, relative: 0.02, of_largest: 0.0 },
            DType::BF16 => Self { absolute: 0.15, relative: 0.15, of_largest: 0.0 },
            _ => Self::default(),
        }
    }

    /// What results of a model may be off whose weights a record holds in a narrower dtype: for f16 ten times the distance between neighbouring numbers
    /// as large as the largest result. It was up to 0.4 hundredths for the networks of `fixtures/cases` that are not quantized.
    pub fn weights_in(dtype: DType) -> Self {
        match dtype {
            DType::F16 => Self { of_largest: 0.01, ..Self::default() },
            DType::BF16 => Self { of_largest: 0.08, ..Self::default() },
            _ => Self::default(),
        }
    }

    /// What results of a model may be off whose products are computed so: for bf16 five times the distance between neighbouring numbers as
    /// large as the largest result. It was 0.4 to 1.4 hundredths for networks of 6 to 50 layers.
    pub fn products_of(precision: Precision) -> Self {
        match precision {
            Precision::F32 => Self::default(),
            Precision::Bf16 => Self { of_largest: 0.04, ..Self::default() },
        }
    }
}
