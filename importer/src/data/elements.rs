//! Elements of constants as numbers wide enough to compute with.

use kiln_types::{Bytes, DType, Scalar, TensorData, bf16, f16};

/// The elements of a tensor, widened: floats exactly as f64, integers and bools (0, 1) as i128.
///
/// `+ - * / sqrt` on f32, f16 and bf16 elements, computed in f64 and rounded once, equal the arithmetic of the narrow
/// type: f64 has more than twice its digits.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Elements {
    /// Of a float dtype.
    Float(Vec<f64>),
    /// Of an integer dtype or bool.
    Int(Vec<i128>),
}

impl Elements {
    /// Widens.
    pub(crate) fn load(data: &TensorData) -> Self {
        let bytes: &[u8] = &data.bytes;
        macro_rules! each {
            ($kind:ident, $ty:ty, $to:expr) => {{
                const N: usize = size_of::<$ty>();
                let (chunks, _) = bytes.as_chunks::<N>();
                Elements::$kind(chunks.iter().map(|&chunk| ($to)(<$ty>::from_le_bytes(chunk))).collect())
            }};
        }
        let elements = match data.dtype {
            DType::F64 => each!(Float, f64, |x| x),
            DType::F32 => each!(Float, f32, f64::from),
            DType::F16 => each!(Float, f16, f16::to_f64),
            DType::BF16 => each!(Float, bf16, bf16::to_f64),
            DType::I64 => each!(Int, i64, i128::from),
            DType::I32 => each!(Int, i32, i128::from),
            DType::I16 => each!(Int, i16, i128::from),
            DType::I8 | DType::I4 => each!(Int, i8, i128::from),
            DType::U64 => each!(Int, u64, i128::from),
            DType::U32 => each!(Int, u32, i128::from),
            DType::U16 => each!(Int, u16, i128::from),
            DType::U8 | DType::U4 => each!(Int, u8, i128::from),
            DType::Bool => each!(Int, u8, |x| i128::from(x != 0)),
        };
        super::release(data);
        elements
    }

    /// As floats.
    pub(crate) fn floats(&self) -> Vec<f64> {
        match self {
            Elements::Float(x) => x.clone(),
            Elements::Int(x) => x.iter().map(|&x| x as f64).collect(),
        }
    }

    /// Rounds (or wraps) to a dtype. A float becomes an integer by truncation and saturation; anything but zero is true.
    pub(crate) fn store(self, dtype: DType, shape: Vec<usize>) -> TensorData {
        macro_rules! int {
            ($ty:ty) => {
                match self {
                    Elements::Float(x) => {
                        Bytes::from_elements(x.into_iter().map(|x| x as $ty).collect::<Vec<$ty>>())
                    }
                    Elements::Int(x) => {
                        Bytes::from_elements(x.into_iter().map(|x| x as $ty).collect::<Vec<$ty>>())
                    }
                }
            };
        }
        macro_rules! float {
            ($to:expr) => {
                Bytes::from_elements(match self {
                    Elements::Float(x) => x.into_iter().map($to).collect::<Vec<_>>(),
                    Elements::Int(x) => x.into_iter().map(|x| ($to)(x as f64)).collect(),
                })
            };
        }
        let bytes = match dtype {
            DType::F64 => float!(|x: f64| x),
            DType::F32 => float!(|x: f64| x as f32),
            DType::F16 => float!(f16::from_f64),
            DType::BF16 => float!(bf16::from_f64),
            DType::I64 => int!(i64),
            DType::I32 => int!(i32),
            DType::I16 => int!(i16),
            DType::I8 => int!(i8),
            DType::U64 => int!(u64),
            DType::U32 => int!(u32),
            DType::U16 => int!(u16),
            DType::U8 => int!(u8),
            // A nibble's lowest bits, or the end of its range, as in wider integers.
            DType::I4 | DType::U4 => {
                let (least, greatest) = dtype.integers().unwrap_or_default();
                let wrapped = |x: i128| (x - least).rem_euclid(greatest - least + 1) + least;
                let nibbles: Vec<u8> = match self {
                    Elements::Float(x) => {
                        x.into_iter().map(|x| (x as i128).clamp(least, greatest) as u8).collect()
                    }
                    Elements::Int(x) => x.into_iter().map(|x| wrapped(x) as u8).collect(),
                };
                Bytes::from_elements(nibbles)
            }
            DType::Bool => Bytes::from_elements(match self {
                Elements::Float(x) => x.into_iter().map(|x| u8::from(x != 0.0)).collect::<Vec<u8>>(),
                Elements::Int(x) => x.into_iter().map(|x| u8::from(x != 0)).collect(),
            }),
        };
        TensorData { bytes, shape, dtype }
    }
}

/// The element of a one-element tensor.
pub(crate) fn scalar(data: &TensorData) -> Option<Scalar> {
    if data.num_elements() != 1 || data.bytes.len() != data.dtype.size() {
        return None;
    }
    match Elements::load(data) {
        Elements::Float(x) => x.first().map(|&x| Scalar::Float(x)),
        Elements::Int(x) => x.first().map(|&x| match data.dtype {
            DType::Bool => Scalar::Bool(x != 0),
            DType::U64 => Scalar::from(x as u64),
            _ => Scalar::Int(x as i64),
        }),
    }
}

/// A scalar as people write it.
pub(crate) fn scalar_text(scalar: Scalar) -> String {
    match scalar {
        Scalar::Float(x) => format!("{x:?}"),
        Scalar::Int(x) => x.to_string(),
        Scalar::UInt(x) => x.to_string(),
        Scalar::Bool(x) => x.to_string(),
    }
}
