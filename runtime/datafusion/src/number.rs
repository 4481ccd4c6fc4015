//! Conversions of numbers between the types of columns and the dtypes of tensors.

use half::{bf16, f16};

/// A number that a `T` may hold: integers exactly, finite floats rounded but not to infinity.
pub(crate) trait Number<T>: Copy {
    /// The number as `T`; `None` where it has no place there.
    fn convert(self) -> Option<T>;
}

macro_rules! integers {
    ($($from:ident)*) => {
        $(
            from_integer!($from, |x| x.try_into().ok() => i8 i16 i32 i64 u8 u16 u32 u64);
            from_integer!($from, |x| Some(x as f32) => f32);
            from_integer!($from, |x| Some(x as f64) => f64);
            from_integer!($from, |x| Some(f16::from_f64(x as f64)).filter(|number| number.is_finite()) => f16);
            from_integer!($from, |x| Some(bf16::from_f64(x as f64)) => bf16);
        )*
    };
}

macro_rules! from_integer {
    ($from:ident, $convert:expr => $($to:ident)*) => {
        $(impl Number<$to> for $from {
            fn convert(self) -> Option<$to> {
                let convert: fn($from) -> Option<$to> = $convert;
                convert(self)
            }
        })*
    };
}

integers!(i8 i16 i32 i64 u8 u16 u32 u64);

macro_rules! floats {
    ($($from:ty => $to:ty, $convert:expr;)*) => {
        $(impl Number<$to> for $from {
            fn convert(self) -> Option<$to> {
                let convert: fn($from) -> $to = $convert;
                let number = convert(self);
                (number.is_finite() || !self.is_finite()).then_some(number)
            }
        })*
    };
}

floats! {
    f64 => f64, |x| x;
    f64 => f32, |x| x as f32;
    f64 => f16, f16::from_f64;
    f64 => bf16, bf16::from_f64;
    f32 => f64, f64::from;
    f32 => f32, |x| x;
    f32 => f16, f16::from_f32;
    f32 => bf16, bf16::from_f32;
    f16 => f64, f16::to_f64;
    f16 => f32, f16::to_f32;
    f16 => f16, |x| x;
    f16 => bf16, |x| bf16::from_f32(x.to_f32());
    bf16 => f64, bf16::to_f64;
    bf16 => f32, bf16::to_f32;
    bf16 => f16, |x| f16::from_f32(x.to_f32());
    bf16 => bf16, |x| x;
}
