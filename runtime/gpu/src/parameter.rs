//! Values for kernels that users write.

/// A value that a user's kernel gets: 4 bytes.
pub trait Parameter: sealed::Sealed {
    /// Its bits.
    fn word(self) -> u32;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! parameters {
    ($($value:ty, $to_bits:expr;)*) => {
        $(
            impl sealed::Sealed for $value {}

            impl Parameter for $value {
                fn word(self) -> u32 {
                    $to_bits(self)
                }
            }
        )*
    };
}

parameters! {
    u32, core::convert::identity;
    i32, i32::cast_unsigned;
    f32, f32::to_bits;
}
