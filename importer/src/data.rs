//! Contents of constants: numbers to compute with, and views of them.

mod elements;
mod strided;

pub(crate) use elements::{Elements, scalar, scalar_text};
pub use strided::Strided;

use kiln_types::{DType, Scalar, TensorData, bf16, f16};

/// Lets the pages of a large weight go that was read from a mapped file: otherwise a model that is rewritten tensor by
/// tensor would fill the memory with pages that nobody looks at again.
pub(crate) fn release(data: &TensorData) {
    /// Below this, asking costs more than the memory is worth.
    const LARGE: usize = 1 << 20;
    if data.bytes.len() >= LARGE {
        data.bytes.release();
    }
}

/// The number that all elements of a tensor are.
pub fn uniform(data: &TensorData) -> Option<f64> {
    let size = data.dtype.size();
    let first = data.bytes.get(..size)?;
    if !data.bytes.chunks_exact(size).all(|element| element == first) {
        return None;
    }
    let first = TensorData::from_bytes(data.bytes.slice(0..size)?, vec![1], data.dtype).ok()?;
    scalar(&first).map(|scalar| scalar.to_f64())
}

/// The short form of a number that came as f32: `9.999999747378752e-6` is meant to be `1e-5`.
pub fn shortest(value: f64) -> f64 {
    let narrow = value as f32;
    match narrow.to_string().parse::<f64>() {
        Ok(short) if f64::from(narrow) == value || (short - value).abs() <= value.abs() * 1e-7 => short,
        _ => value,
    }
}

/// Number of elements; saturates, since one empty axis lets the others be of any size.
pub(crate) fn elements(shape: &[usize]) -> usize {
    if shape.contains(&0) { 0 } else { shape.iter().fold(1, |count, &dim| count.saturating_mul(dim)) }
}

/// Whether a shape without elements has axes so long that walking along them takes time, which no byte of a file paid for.
/// Nothing is computed of such tensors at build time: every loop over an axis is one over elements then.
pub(crate) fn is_long_and_empty(shape: &[usize]) -> bool {
    const LONG: usize = 1 << 12;
    shape.contains(&0) && shape.iter().fold(1usize, |area, &dim| area.saturating_mul(dim.max(1))) > LONG
}

/// The bytes of one number of a dtype.
pub(crate) fn scalar_bytes(value: Scalar, dtype: DType) -> Vec<u8> {
    let unsigned = match value {
        Scalar::UInt(x) => x,
        other => other.to_i64() as u64,
    };
    match dtype {
        DType::F64 => value.to_f64().to_le_bytes().to_vec(),
        DType::F32 => (value.to_f64() as f32).to_le_bytes().to_vec(),
        DType::F16 => f16::from_f64(value.to_f64()).to_le_bytes().to_vec(),
        DType::BF16 => bf16::from_f64(value.to_f64()).to_le_bytes().to_vec(),
        DType::Bool => vec![u8::from(value.to_bool())],
        // The low bytes of the two's complement.
        _ => unsigned.to_le_bytes()[..dtype.size()].to_vec(),
    }
}

/// A tensor of one value.
pub(crate) fn fill(shape: &[usize], value: Scalar, dtype: DType) -> Option<TensorData> {
    let count = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d))?;
    let element = match value {
        Scalar::Float(x) => Elements::Float(vec![x]),
        Scalar::Int(x) => Elements::Int(vec![x.into()]),
        Scalar::UInt(x) => Elements::Int(vec![x.into()]),
        Scalar::Bool(x) => Elements::Int(vec![x.into()]),
    };
    let bytes = element.store(dtype, vec![1]).bytes.repeat(count);
    TensorData::from_bytes(kiln_types::Bytes::from_vec(bytes), shape.to_vec(), dtype).ok()
}
