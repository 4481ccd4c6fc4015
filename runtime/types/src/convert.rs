//! Reading and converting the elements of tensor data.

use crate::{Bytes, DType, DataError, Element, Scalar, TensorData, bf16, f16};
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
        DType::I8 | DType::I4 => read::<i8>,
        DType::U64 => read::<u64>,
        DType::U32 => read::<u32>,
        DType::U16 => read::<u16>,
        DType::U8 | DType::U4 => read::<u8>,
        DType::Bool => |bytes| Scalar::Bool(bytes.first().is_some_and(|byte| *byte != 0)),
    }
}

/// Whether an integer dtype has an integer; every other dtype has all.
fn holds(dtype: DType, integer: i128) -> bool {
    dtype.integers().is_none_or(|(least, greatest)| (least..=greatest).contains(&integer))
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
            (_, DType::I4) => self.narrowed::<i8>(DType::I4, |x| (x << 4) >> 4),
            (_, DType::U4) => self.narrowed::<u8>(DType::U4, |x| x & 15),
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
            (Scalar::Int(x), dtype) => holds(dtype, x.into()),
            (Scalar::UInt(x), dtype) => holds(dtype, x.into()),
            // Truncated first, as conversion does; 2^64 and more saturates, and so do infinities.
            (Scalar::Float(x), dtype) => holds(dtype, x as i128),
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

    /// Elements of four bits: floats saturate there, and of integers the lowest bits stay, which `wrap` finds.
    fn narrowed<E: Element + bytemuck::NoUninit>(self, dtype: DType, wrap: impl Fn(E) -> E) -> Self {
        let (least, greatest) = dtype.integers().unwrap_or_default();
        let narrow = |scalar| match scalar {
            Scalar::Float(x) => E::from_scalar(Scalar::Int((x as i128).clamp(least, greatest) as i64)),
            Scalar::Int(x) => wrap(E::from_scalar(Scalar::Int(x & 15))),
            Scalar::UInt(x) => wrap(E::from_scalar(Scalar::UInt(x & 15))),
            Scalar::Bool(x) => E::from_scalar(Scalar::Bool(x)),
        };
        let elements: Vec<E> = self.scalars().map(narrow).collect();
        Self { bytes: Bytes::from_elements(elements), shape: self.shape, dtype }
    }

    /// The bytes as files hold them: integers of four bits are two to a byte, the first in the lower half; what is left over is 0.
    pub fn packed(&self) -> Bytes {
        if !self.dtype.is_packed() {
            return self.bytes.clone();
        }
        let joined = |pair: &[u8]| match pair {
            [first, second] => first & 15 | second << 4,
            rest => rest.iter().fold(0, |_, last| last & 15),
        };
        Bytes::from_vec(self.bytes.chunks(2).map(joined).collect())
    }

    /// Data from the bytes of a file; the inverse of [`TensorData::packed`].
    ///
    /// # Errors
    /// When there are more or fewer bytes than shape and dtype need.
    pub fn from_packed(bytes: Bytes, shape: Vec<usize>, dtype: DType) -> Result<Self, DataError> {
        if !dtype.is_packed() {
            return Self::from_bytes(bytes, shape, dtype);
        }
        // In memory they take a byte each: `None` is more than that can have.
        let count = dtype.bytes_of(&shape);
        let expected = count.map(|count| count.div_ceil(2));
        match (count, expected) {
            (Some(count), Some(expected)) if expected == bytes.len() => {
                let low =
                    |half: u8| if dtype == DType::I4 { ((half << 4) as i8 >> 4) as u8 } else { half & 15 };
                let mut elements = Vec::with_capacity(2 * bytes.len());
                bytes.iter().for_each(|&pair| elements.extend([low(pair), low(pair >> 4)]));
                elements.truncate(count);
                Ok(Self { bytes: Bytes::from_vec(elements), shape, dtype })
            }
            _ => Err(DataError::SizeMismatch {
                expected: expected.unwrap_or(usize::MAX),
                actual: bytes.len(),
                shape,
                dtype,
            }),
        }
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
    fn integers_of_four_bits() {
        let data = TensorData::new(vec![-9_i32, -8, -1, 0, 7, 8, 300], [7]);
        let i4 = data.clone().convert_dtype(DType::I4);
        assert_eq!(i4.iter::<i64>().collect::<Vec<_>>(), [7, -8, -1, 0, 7, -8, -4]);
        assert_eq!(data.convert_dtype(DType::U4).iter::<i64>().collect::<Vec<_>>(), [7, 8, 15, 0, 7, 8, 12]);
        let floats = TensorData::new(vec![-9.5_f32, f32::NAN, 3.9, 100.0], [4]);
        assert_eq!(floats.clone().convert_dtype(DType::I4).iter::<i64>().collect::<Vec<_>>(), [-8, 0, 3, 7]);
        assert_eq!(floats.convert_dtype(DType::U4).iter::<i64>().collect::<Vec<_>>(), [0, 0, 3, 15]);
        assert!(!TensorData::new(vec![8_i64], [1]).fits(DType::I4));
        assert!(TensorData::new(vec![15_i64], [1]).fits(DType::U4));
    }

    #[test]
    fn files_hold_two_integers_of_four_bits_in_a_byte() {
        let data = TensorData::new(vec![-8_i32, 7, -1], [3]).convert_dtype(DType::I4);
        assert_eq!(data.packed()[..], [0x78, 0x0f]);
        assert_eq!(TensorData::from_packed(data.packed(), vec![3], DType::I4), Ok(data.clone()));
        let unsigned = TensorData::new(vec![1_i32, 15], [2]).convert_dtype(DType::U4);
        assert_eq!(TensorData::from_packed(unsigned.packed(), vec![2], DType::U4), Ok(unsigned));
        for shape in [vec![5], vec![2], vec![usize::MAX], vec![usize::MAX, 4], vec![0]] {
            assert!(TensorData::from_packed(data.packed(), shape, DType::I4).is_err());
        }
    }

    #[test]
    fn bytes_need_no_alignment() {
        let bytes = Bytes::from_vec(vec![9, 0, 0, 128, 63, 0, 0, 0, 64]).slice(1..9).unwrap();
        let data = TensorData::from_bytes(bytes, vec![2], DType::F32).unwrap();
        assert_eq!(data.iter::<f32>().collect::<Vec<_>>(), [1.0, 2.0]);
        assert_eq!(data.convert::<f16>().iter::<f32>().collect::<Vec<_>>(), [1.0, 2.0]);
    }
}
