//! What a record is, and in which precision it is stored.

use crate::tensor::Element;
use crate::tensor::backend::Backend;
use kiln_record::Precision;
use serde::{Serialize, de::DeserializeOwned};

pub use kiln_derive::Record;

/// The state of something, away from its structure and, once it is an item, from the backend.
///
/// Modules have a derived record; `#[derive(Record)]` implements it for other structs and enums of records, such as the
/// state of an optimizer. `#[record(rename = "…")]` on a field changes its name in files.
pub trait Record<B: Backend>: Send {
    /// What is stored, in a given precision.
    type Item<S: PrecisionSettings>: Serialize + DeserializeOwned;

    /// Converts to what is stored.
    fn into_item<S: PrecisionSettings>(self) -> Self::Item<S>;

    /// Converts from what is stored.
    fn from_item<S: PrecisionSettings>(item: Self::Item<S>, device: &B::Device) -> Self;
}

/// The element types that records are stored in, whatever the backend computes with.
pub trait PrecisionSettings: Send + Sync + core::fmt::Debug + Default + Clone {
    /// The type of floats.
    type FloatElem: Element + Serialize + DeserializeOwned;
    /// The type of integers.
    type IntElem: Element + Serialize + DeserializeOwned;

    /// The precision, as the formats know it.
    const PRECISION: Precision;

    /// Whether float tensors are stored in the dtype that they have, and come back in it, rather than in the settings' and
    /// the backend's.
    const KEEPS_FLOAT_DTYPES: bool = false;
}

/// Floats are stored as f32, integers as i32.
#[derive(Debug, Default, Clone)]
pub struct FullPrecisionSettings;

/// Floats are stored as f16, integers as i16.
#[derive(Debug, Default, Clone)]
pub struct HalfPrecisionSettings;

/// Floats are stored as f64, integers as i64.
#[derive(Debug, Default, Clone)]
pub struct DoublePrecisionSettings;

/// Float tensors are stored in the dtype that they have, and come back in it: whatever the backend's usual one is, nothing
/// is rounded. Integers are stored as i64. The metadata, which has no word for this, says double precision.
#[derive(Debug, Default, Clone)]
pub struct ExactPrecisionSettings;

impl PrecisionSettings for FullPrecisionSettings {
    type FloatElem = f32;
    type IntElem = i32;
    const PRECISION: Precision = Precision::Full;
}

impl PrecisionSettings for HalfPrecisionSettings {
    type FloatElem = half::f16;
    type IntElem = i16;
    const PRECISION: Precision = Precision::Half;
}

impl PrecisionSettings for DoublePrecisionSettings {
    type FloatElem = f64;
    type IntElem = i64;
    const PRECISION: Precision = Precision::Double;
}

impl PrecisionSettings for ExactPrecisionSettings {
    type FloatElem = f64;
    type IntElem = i64;
    const PRECISION: Precision = Precision::Double;
    const KEEPS_FLOAT_DTYPES: bool = true;
}
