//! Reading and converting the elements of tensor data.

use crate::{Bytes, DType, Element, Scalar, TensorData, bf16, f16};
use alloc::vec::Vec;

/// Reads one element from its bytes, which need not be aligned.
type Read = fn(&[u8]) -> Scalar;

/// How elements of a dtype are read.
fn reader(dtype: DType) -> Read {
    /// An element of a type that takes any bytes.
    fn read<E: Element + bytemuck::AnyBitPattern>(bytes: &[u8]) -> Scalar {
        bytemuck::try_pod_read_unaligned::<E>(bytes).unwrap_or_default().into()
    }
    match dtype {
        DType::F64 => read::<f64>,
        DType::F32 => read::<f32>,
        DType::F16 => read::<f16>,
        DType::BF16 => read::<bf16>,
        DType::I64 => read::<i64>,
        DType::I32 => read::<i32>,
        DType::I16 => read::<i16>,
        DType::I8 => read::<i8>,
        DType::U64 => read::<u64>,
        DType::U32 => read::<u32>,
        DType::U16 => read::<u16>,
        DType::U8 => read::<u8>,
        DType::Bool => |bytes| Scalar::Bool(bytes.first().is_some_and(|byte| *byte != 0)),
    }
}

/// The integers of an integer dtype.
fn integers(dtype: DType) -> core::ops::RangeInclusive<i128> {
    let bits = 8 * dtype.size() as u32;
    match dtype {
        DType::U64 | DType::U32 | DType::U16 | DType::U8 => 0..=(1 << bits) - 1,
        _ => -(1 << (bits - 1))..=(1 << (bits - 1)) - 1,
    }
}

impl TensorData {
    /// The elements in row-major order, converted to `E` (see [`Element::from_scalar`]).
    pub fn iter<E: Element>(&self) -> impl Iterator<Item = E> + '_ {
        let read = reader(self.dtype);
        self.bytes.chunks_exact(self.dtype.size()).map(move |bytes| E::from_scalar(read(bytes)))
    }

    /// The elements in row-major order as scalars.
    pub fn scalars(&self) -> impl Iterator<Item = Scalar> + '_ {
        self.bytes.chunks_exact(self.dtype.size()).map(reader(self.dtype))
    }

    /// The same numbers in another dtype: floats to integers truncate and saturate, anything non-zero is `true`.
    ///
    /// Data that has the dtype already is not copied.
    #[must_use]
    pub fn convert_dtype(self, dtype: DType) -> Self {
        match (self.dtype, dtype) {
            (from, to) if from == to => self,
            // What half-precision records need, for many elements.
            (DType::F32, DType::F16) => self.map_elements(f16::from_f32),
            (DType::F16, DType::F32) => self.map_elements(f16::to_f32),
            (DType::F32, DType::BF16) => self.map_elements(bf16::from_f32),
            (DType::BF16, DType::F32) => self.map_elements(bf16::to_f32),
            (_, DType::F64) => self.collect_as::<f64>(),
            (_, DType::F32) => self.collect_as::<f32>(),
            (_, DType::F16) => self.collect_as::<f16>(),
            (_, DType::BF16) => self.collect_as::<bf16>(),
            (_, DType::I64) => self.collect_as::<i64>(),
            (_, DType::I32) => self.collect_as::<i32>(),
            (_, DType::I16) => self.collect_as::<i16>(),
            (_, DType::I8) => self.collect_as::<i8>(),
            (_, DType::U64) => self.collect_as::<u64>(),
            (_, DType::U32) => self.collect_as::<u32>(),
            (_, DType::U16) => self.collect_as::<u16>(),
            (_, DType::U8) => self.collect_as::<u8>(),
            (_, DType::Bool) => self.collect_as::<bool>(),
        }
    }

    /// Whether every number has its place in a dtype: an integer exactly, a finite float without becoming infinite.
    pub fn fits(&self, dtype: DType) -> bool {
        if self.dtype == dtype || dtype == DType::Bool {
            return true;
        }
        if let (DType::F16, Ok(elements)) = (dtype, self.as_slice::<f32>()) {
            // What half-precision records ask for every weight: the first f32 that rounds to infinity.
            return elements.iter().all(|x| x.abs() < 65_520.0 || !x.is_finite());
        }
        self.scalars().all(|scalar| match (scalar, dtype) {
            (Scalar::Float(x), DType::F16) => f16::from_f64(x).is_finite() == x.is_finite(),
            (Scalar::Float(x), DType::BF16) => bf16::from_f64(x).is_finite() == x.is_finite(),
            (Scalar::Float(x), DType::F32) => (x as f32).is_finite() == x.is_finite(),
            (_, dtype) if dtype.is_float() => true,
            (Scalar::Int(x), dtype) => integers(dtype).contains(&i128::from(x)),
            (Scalar::UInt(x), dtype) => integers(dtype).contains(&i128::from(x)),
            // Truncated first, as conversion does; 2^64 and more saturates, and so do infinities.
            (Scalar::Float(x), dtype) => integers(dtype).contains(&(x as i128)),
            (Scalar::Bool(_), _) => true,
        })
    }

    /// The same numbers as elements of `E`; see [`TensorData::convert_dtype`].
    #[must_use]
    pub fn convert<E: Element>(self) -> Self {
        self.convert_dtype(E::DTYPE)
    }

    fn collect_as<E: Element + bytemuck::NoUninit>(self) -> Self {
        let elements: Vec<E> = self.iter().collect();
        Self { bytes: Bytes::from_elements(elements), shape: self.shape, dtype: E::DTYPE }
    }

    /// Applies a function to elements that are known to be `A`.
    fn map_elements<A, E>(self, function: impl Fn(A) -> E) -> Self
    where
        A: Element + bytemuck::AnyBitPattern,
        E: Element + bytemuck::NoUninit,
    {
        let read = |bytes: &[u8]| bytemuck::try_pod_read_unaligned::<A>(bytes).unwrap_or_default();
        let elements: Vec<E> =
            self.bytes.chunks_exact(size_of::<A>()).map(|bytes| function(read(bytes))).collect();
        Self { bytes: Bytes::from_elements(elements), shape: self.shape, dtype: E::DTYPE }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn every_pair_of_dtypes_converts() {
        for from in DType::ALL {
            let data = TensorData::new(vec![0_u8, 1, 1], [3]).convert_dtype(from);
            for to in DType::ALL {
                let converted = data.clone().convert_dtype(to);
                assert_eq!((converted.dtype, converted.bytes.len()), (to, 3 * to.size()));
                assert_eq!(converted.iter::<f64>().collect::<Vec<_>>(), [0.0, 1.0, 1.0], "{from} to {to}");
            }
        }
    }

    #[test]
    fn floats_truncate_and_saturate() {
        let data = TensorData::new(vec![-1.9_f32, 300.0, f32::NAN, 2.5], [4]);
        assert_eq!(data.clone().convert::<i8>(), TensorData::new(vec![-1_i8, 127, 0, 2], [4]));
        assert_eq!(data.clone().convert::<u8>(), TensorData::new(vec![0_u8, 255, 0, 2], [4]));
        assert_eq!(data.convert::<bool>(), TensorData::new(vec![true, true, true, true], [4]));
    }

    #[test]
    fn bytes_need_no_alignment() {
        let bytes = Bytes::from_vec(vec![9, 0, 0, 128, 63, 0, 0, 0, 64]).slice(1..9).unwrap();
        let data = TensorData::from_bytes(bytes, vec![2], DType::F32).unwrap();
        assert_eq!(data.iter::<f32>().collect::<Vec<_>>(), [1.0, 2.0]);
        assert_eq!(data.convert::<f16>().iter::<f32>().collect::<Vec<_>>(), [1.0, 2.0]);
    }
}
