//! Rust types that can be tensor elements.

use crate::{DType, Scalar};
use core::fmt::{Debug, Display};
use half::{bf16, f16};

/// A Rust type that is the element of some dtype.
///
/// `bool` has no valid bit pattern but 0 and 1, so reading typed slices of `Bool` data checks the bytes.
pub trait Element:
    Copy
    + Debug
    + Display
    + Default
    + PartialEq
    + PartialOrd
    + Send
    + Sync
    + 'static
    + Into<Scalar>
    + bytemuck::NoUninit
    + bytemuck::CheckedBitPattern
{
    /// The dtype of this type.
    const DTYPE: DType;

    /// The dtype of this type.
    fn dtype() -> DType {
        Self::DTYPE
    }

    /// Converts a number: floats to integers truncate and saturate, anything non-zero is `true`.
    fn from_scalar(scalar: Scalar) -> Self;
}

/// Conversions between element types: `x.elem::<f32>()`.
pub trait ElementConversion {
    /// Converts to another element type (see [`Element::from_scalar`]).
    fn elem<E: Element>(self) -> E;

    /// Converts from another number.
    fn from_elem<S: Into<Scalar>>(number: S) -> Self
    where
        Self: Element,
    {
        Self::from_scalar(number.into())
    }
}

impl<T: Into<Scalar>> ElementConversion for T {
    fn elem<E: Element>(self) -> E {
        E::from_scalar(self.into())
    }
}

macro_rules! to_element {
    ($($method:ident -> $ty:ty),* $(,)?) => {
        /// Conversions of one number to a named Rust type: `x.to_f32()`.
        pub trait ToElement {
            $(
                /// Converts to this type (see [`Element::from_scalar`]).
                fn $method(&self) -> $ty;
            )*

            /// Converts to a size; negative numbers become 0.
            fn to_usize(&self) -> usize;
        }

        impl<T: Copy + Into<Scalar>> ToElement for T {
            $(fn $method(&self) -> $ty {
                <$ty>::from_scalar((*self).into())
            })*

            fn to_usize(&self) -> usize {
                usize::try_from(self.to_u64()).unwrap_or(usize::MAX)
            }
        }
    };
}

to_element!(
    to_f64 -> f64, to_f32 -> f32, to_i64 -> i64, to_i32 -> i32, to_i16 -> i16, to_i8 -> i8, to_u64 -> u64,
    to_u32 -> u32, to_u16 -> u16, to_u8 -> u8, to_bool -> bool,
);

macro_rules! int_element {
    ($($ty:ty => $dtype:ident),*) => {
        $(impl Element for $ty {
            const DTYPE: DType = DType::$dtype;

            fn from_scalar(scalar: Scalar) -> Self {
                match scalar {
                    Scalar::Float(x) => x as $ty,
                    Scalar::Int(x) => x as $ty,
                    Scalar::UInt(x) => x as $ty,
                    Scalar::Bool(x) => x as $ty,
                }
            }
        })*
    };
}

int_element!(i64 => I64, i32 => I32, i16 => I16, i8 => I8, u64 => U64, u32 => U32, u16 => U16, u8 => U8);

macro_rules! float_element {
    ($($ty:ty => $dtype:ident, $from:expr;)*) => {
        $(impl Element for $ty {
            const DTYPE: DType = DType::$dtype;

            fn from_scalar(scalar: Scalar) -> Self {
                ($from)(scalar.to_f64())
            }
        })*
    };
}

float_element!(f64 => F64, |x| x; f32 => F32, |x| x as f32; f16 => F16, f16::from_f64; bf16 => BF16, bf16::from_f64;);

impl Element for bool {
    const DTYPE: DType = DType::Bool;

    fn from_scalar(scalar: Scalar) -> Self {
        scalar.to_bool()
    }
}
