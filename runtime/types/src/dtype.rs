//! The element types of tensors.

/// The element type of a tensor; a property of the value, not of the Rust type.
///
/// The serde representation (variant names and indices) is the one of Burn's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DType {
    /// IEEE 754 binary64.
    F64,
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary16.
    F16,
    /// The upper half of a binary32 ("brain float").
    BF16,
    /// Signed 64-bit integer.
    I64,
    /// Signed 32-bit integer.
    I32,
    /// Signed 16-bit integer.
    I16,
    /// Signed 8-bit integer.
    I8,
    /// Unsigned 64-bit integer.
    U64,
    /// Unsigned 32-bit integer.
    U32,
    /// Unsigned 16-bit integer.
    U16,
    /// Unsigned 8-bit integer.
    U8,
    /// Signed 4-bit integer, of -8 to 7. In memory each takes a byte, as an `i8` in that range, so that views and copies are those of any
    /// dtype; files hold two to a byte ([`TensorData::packed`](crate::TensorData::packed)). Devices hold them as [`DType::I8`].
    I4,
    /// Unsigned 4-bit integer, of 0 to 15; otherwise like [`DType::I4`].
    U4,
    /// One byte, 0 or 1.
    Bool,
}

/// What a [`DType`] is for: the kinds of `Tensor<B, D, K>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DTypeKind {
    /// Floating point.
    Float,
    /// Signed or unsigned integer.
    Int,
    /// Boolean.
    Bool,
}

impl DType {
    /// The bytes that elements of this dtype take in a shape. `None` when they are more than memory can have, or would be if the dims
    /// that are 0 were not there: strides and products of some of the dims are numbers too.
    pub fn bytes_of(self, shape: &[usize]) -> Option<usize> {
        let mut dims = shape.iter().filter(|dim| **dim > 0);
        let bytes = dims.try_fold(self.size(), |bytes, dim| bytes.checked_mul(*dim))?;
        let bytes = Some(bytes).filter(|bytes| isize::try_from(*bytes).is_ok())?;
        Some(if shape.contains(&0) { 0 } else { bytes })
    }

    /// Every dtype, in declaration order.
    pub const ALL: [DType; 15] = [
        DType::F64,
        DType::F32,
        DType::F16,
        DType::BF16,
        DType::I64,
        DType::I32,
        DType::I16,
        DType::I8,
        DType::U64,
        DType::U32,
        DType::U16,
        DType::U8,
        DType::I4,
        DType::U4,
        DType::Bool,
    ];

    /// Size of one element in memory, in bytes.
    pub const fn size(self) -> usize {
        match self {
            DType::F64 | DType::I64 | DType::U64 => 8,
            DType::F32 | DType::I32 | DType::U32 => 4,
            DType::F16 | DType::BF16 | DType::I16 | DType::U16 => 2,
            DType::I8 | DType::U8 | DType::I4 | DType::U4 | DType::Bool => 1,
        }
    }

    /// Whether files hold two elements to a byte.
    pub const fn is_packed(self) -> bool {
        matches!(self, DType::I4 | DType::U4)
    }

    /// The dtype of one byte for integers of four bits; any other dtype is its own.
    #[must_use]
    pub const fn widened(self) -> Self {
        match self {
            DType::I4 => DType::I8,
            DType::U4 => DType::U8,
            other => other,
        }
    }

    /// Least and greatest number of an integer dtype.
    pub const fn integers(self) -> Option<(i128, i128)> {
        let (bits, signed) = match self {
            DType::I64 => (64, true),
            DType::I32 => (32, true),
            DType::I16 => (16, true),
            DType::I8 => (8, true),
            DType::I4 => (4, true),
            DType::U64 => (64, false),
            DType::U32 => (32, false),
            DType::U16 => (16, false),
            DType::U8 => (8, false),
            DType::U4 => (4, false),
            DType::F64 | DType::F32 | DType::F16 | DType::BF16 | DType::Bool => return None,
        };
        Some(match signed {
            true => (-(1 << (bits - 1)), (1 << (bits - 1)) - 1),
            false => (0, (1 << bits) - 1),
        })
    }

    /// The kind of tensor that holds this dtype.
    pub const fn kind(self) -> DTypeKind {
        match self {
            DType::F64 | DType::F32 | DType::F16 | DType::BF16 => DTypeKind::Float,
            DType::Bool => DTypeKind::Bool,
            DType::I64
            | DType::I32
            | DType::I16
            | DType::I8
            | DType::I4
            | DType::U64
            | DType::U32
            | DType::U16
            | DType::U8
            | DType::U4 => DTypeKind::Int,
        }
    }

    /// Whether this is a floating-point dtype.
    pub const fn is_float(self) -> bool {
        matches!(self.kind(), DTypeKind::Float)
    }

    /// Whether this is a signed or unsigned integer dtype (not bool).
    pub const fn is_int(self) -> bool {
        matches!(self.kind(), DTypeKind::Int)
    }

    /// Whether this is [`DType::Bool`].
    pub const fn is_bool(self) -> bool {
        matches!(self.kind(), DTypeKind::Bool)
    }

    /// The name used in messages and generated comments: `f32`, `i64`, `bool`, ….
    pub const fn name(self) -> &'static str {
        match self {
            DType::F64 => "f64",
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::I64 => "i64",
            DType::I32 => "i32",
            DType::I16 => "i16",
            DType::I8 => "i8",
            DType::U64 => "u64",
            DType::U32 => "u32",
            DType::U16 => "u16",
            DType::U8 => "u8",
            DType::I4 => "i4",
            DType::U4 => "u4",
            DType::Bool => "bool",
        }
    }
}

/// Declares the dtypes of one kind as an enum of their own.
macro_rules! dtypes_of_kind {
    ($(#[$doc:meta])* $name:ident: $($variant:ident)*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs, reason = "the variants are those of DType")]
        pub enum $name {
            $($variant,)*
        }

        impl From<$name> for DType {
            fn from(dtype: $name) -> Self {
                match dtype {
                    $($name::$variant => DType::$variant,)*
                }
            }
        }
    };
}

dtypes_of_kind! {
    /// The floating-point dtypes.
    FloatDType: F64 F32 F16 BF16
}

dtypes_of_kind! {
    /// The signed and unsigned integer dtypes.
    IntDType: I64 I32 I16 I8 U64 U32 U16 U8 I4 U4
}

impl core::fmt::Display for DType {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(self.name())
    }
}
