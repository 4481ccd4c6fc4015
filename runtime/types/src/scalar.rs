//! One number of any dtype, as operations take it beside tensors.

use serde::{Deserialize, Serialize};

/// A number whose exact value is kept until it meets a tensor's dtype.
///
/// Equality is that of the bits: NaN equals itself, 0 and -0 differ, and 1 is not 1.0.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Scalar {
    /// A floating-point number.
    Float(f64),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer above `i64::MAX` (smaller ones are [`Scalar::Int`]).
    UInt(u64),
    /// A boolean.
    Bool(bool),
}

impl core::fmt::Display for Scalar {
    /// The number alone.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Scalar::Float(value) => value.fmt(f),
            Scalar::Int(value) => value.fmt(f),
            Scalar::UInt(value) => value.fmt(f),
            Scalar::Bool(value) => value.fmt(f),
        }
    }
}

impl PartialEq for Scalar {
    fn eq(&self, other: &Self) -> bool {
        core::mem::discriminant(self) == core::mem::discriminant(other) && self.bits() == other.bits()
    }
}

impl Eq for Scalar {}

impl core::hash::Hash for Scalar {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        core::mem::discriminant(self).hash(state);
        self.bits().hash(state);
    }
}

impl Scalar {
    /// The number's bits; with its kind, they say which number it is.
    fn bits(self) -> u64 {
        match self {
            Scalar::Float(x) => x.to_bits(),
            Scalar::Int(x) => x as u64,
            Scalar::UInt(x) => x,
            Scalar::Bool(x) => u64::from(x),
        }
    }

    /// As `f64`; `true` is 1.
    pub fn to_f64(self) -> f64 {
        match self {
            Scalar::Float(x) => x,
            Scalar::Int(x) => x as f64,
            Scalar::UInt(x) => x as f64,
            Scalar::Bool(x) => f64::from(u8::from(x)),
        }
    }

    /// As `i64`, saturating; a float is truncated.
    pub fn to_i64(self) -> i64 {
        match self {
            Scalar::Float(x) => x as i64,
            Scalar::Int(x) => x,
            Scalar::UInt(x) => i64::try_from(x).unwrap_or(i64::MAX),
            Scalar::Bool(x) => i64::from(x),
        }
    }

    /// Whether it is not zero.
    pub fn to_bool(self) -> bool {
        match self {
            Scalar::Float(x) => x != 0.0,
            Scalar::Int(x) => x != 0,
            Scalar::UInt(x) => x != 0,
            Scalar::Bool(x) => x,
        }
    }
}

macro_rules! from_number {
    ($($ty:ty => $variant:ident as $as:ty),* $(,)?) => {
        $(impl From<$ty> for Scalar {
            fn from(value: $ty) -> Self {
                Scalar::$variant(value as $as)
            }
        })*
    };
}

from_number!(
    f64 => Float as f64, f32 => Float as f64, i64 => Int as i64, i32 => Int as i64, i16 => Int as i64,
    i8 => Int as i64, u32 => Int as i64, u16 => Int as i64, u8 => Int as i64,
);

impl From<u64> for Scalar {
    fn from(value: u64) -> Self {
        i64::try_from(value).map_or(Scalar::UInt(value), Scalar::Int)
    }
}

impl From<usize> for Scalar {
    fn from(value: usize) -> Self {
        Scalar::from(value as u64)
    }
}

impl From<bool> for Scalar {
    fn from(value: bool) -> Self {
        Scalar::Bool(value)
    }
}

impl From<half::f16> for Scalar {
    fn from(value: half::f16) -> Self {
        Scalar::Float(value.to_f64())
    }
}

impl From<half::bf16> for Scalar {
    fn from(value: half::bf16) -> Self {
        Scalar::Float(value.to_f64())
    }
}
