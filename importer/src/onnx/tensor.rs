//! `TensorProto` to [`TensorData`]: raw, typed, external and sparse contents.

use super::proto::{EXTERNAL, SparseTensorProto, TensorProto};
use super::source::Folder;
use crate::error::ImportErrorKind;
use crate::ir::RuleResult;
use kiln_types::{Bytes, DType, TensorData};
use prost::Message;

/// No operator gives a tensor so many axes.
pub(super) const MAX_RANK: usize = 64;

/// How the elements of an ONNX data type are kept.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Packing {
    /// One element after the other.
    Plain,
    /// Several to a byte, the first in the low bits: bits an element, signed.
    Bits(u32, bool),
}

/// The dtype of a `TensorProto.DataType`; two-bit integers widen to eight.
fn element_type(data_type: i32) -> Result<(DType, Packing), String> {
    let plain = |dtype| Ok((dtype, Packing::Plain));
    match data_type {
        1 => plain(DType::F32),
        2 => plain(DType::U8),
        3 => plain(DType::I8),
        4 => plain(DType::U16),
        5 => plain(DType::I16),
        6 => plain(DType::I32),
        7 => plain(DType::I64),
        9 => plain(DType::Bool),
        10 => plain(DType::F16),
        11 => plain(DType::F64),
        12 => plain(DType::U32),
        13 => plain(DType::U64),
        16 => plain(DType::BF16),
        21 => Ok((DType::U4, Packing::Bits(4, false))),
        22 => Ok((DType::I4, Packing::Bits(4, true))),
        25 => Ok((DType::U8, Packing::Bits(2, false))),
        26 => Ok((DType::I8, Packing::Bits(2, true))),
        _ => Err(format!("has data type {}, which is not supported", type_name(data_type))),
    }
}

/// The dtype of a `TensorProto.DataType`, or what is wrong with it.
pub(crate) fn dtype(data_type: i32) -> Result<DType, String> {
    element_type(data_type).map(|(dtype, _)| dtype)
}

/// Least and greatest number of an integer type that is narrower than the dtype that keeps it.
pub(crate) fn narrow_range(data_type: i32) -> Option<[i64; 2]> {
    match data_type {
        25 => Some([0, 3]),
        26 => Some([-2, 1]),
        _ => None,
    }
}

fn type_name(data_type: i32) -> String {
    match data_type {
        0 => "UNDEFINED".to_owned(),
        8 => "STRING".to_owned(),
        14 => "COMPLEX64".to_owned(),
        15 => "COMPLEX128".to_owned(),
        17..=20 | 24 => "FLOAT8".to_owned(),
        23 => "FLOAT4E2M1".to_owned(),
        other => other.to_string(),
    }
}

/// Reads a tensor; inline raw contents and external ones stay where they are.
pub(crate) fn read(proto: &TensorProto, folder: &Folder) -> Result<TensorData, ImportErrorKind> {
    let fail = |reason: String| ImportErrorKind::Tensor { tensor: proto.name.clone(), reason };
    let (dtype, packing) = element_type(proto.data_type).map_err(fail)?;
    let (shape, count) = shape(&proto.dims).map_err(fail)?;
    let raw = if proto.data_location == EXTERNAL {
        Some(external(proto, folder)?)
    } else if !proto.raw_data.is_empty() {
        Some(folder.contents(&proto.raw_data))
    } else {
        None
    };
    let bytes = match (raw, packing) {
        (Some(raw), Packing::Plain) => plain_bytes(raw, dtype, count).map_err(fail)?,
        (Some(raw), Packing::Bits(bits, signed)) => unpack(&raw, bits, signed, count).map_err(fail)?,
        (None, Packing::Plain) => typed_bytes(proto, dtype, count).map_err(fail)?,
        (None, Packing::Bits(bits, signed)) => {
            let packed: Vec<u8> = proto.int32_data.iter().map(|&x| x as u8).collect();
            unpack(&packed, bits, signed, count).map_err(fail)?
        }
    };
    TensorData::from_bytes(bytes, shape, dtype).map_err(|error| fail(error.to_string()))
}

/// Reads a file that holds one `TensorProto`, as golden data does.
///
/// # Errors
/// When the bytes are not a tensor of a supported dtype.
pub fn read_data(bytes: &[u8]) -> Result<TensorData, ImportErrorKind> {
    let proto = decode(bytes)?;
    read(&proto, &Folder::none())
}

/// The name of the tensor in a file that holds one `TensorProto`.
///
/// # Errors
/// When the bytes are not a tensor.
pub fn value_name(bytes: &[u8]) -> Result<String, ImportErrorKind> {
    Ok(decode(bytes)?.name)
}

fn decode(bytes: &[u8]) -> Result<TensorProto, ImportErrorKind> {
    TensorProto::decode(bytes)
        .map_err(|error| ImportErrorKind::Malformed { format: "TensorProto", reason: error.to_string() })
}

/// Dims as sizes, and their product.
fn shape(dims: &[i64]) -> Result<(Vec<usize>, usize), String> {
    if dims.len() > MAX_RANK {
        return Err(format!("has rank {}", dims.len()));
    }
    let shape: Option<Vec<usize>> = dims.iter().map(|&dim| usize::try_from(dim).ok()).collect();
    let shape = shape.ok_or_else(|| format!("has dims {dims:?}"))?;
    let count = shape.iter().try_fold(1usize, |count, &dim| count.checked_mul(dim));
    // No element is wider than eight bytes.
    let count = count.filter(|&count| count <= isize::MAX as usize / 8);
    Ok((shape, count.ok_or_else(|| format!("has dims {dims:?}, too many elements"))?))
}

fn external(proto: &TensorProto, folder: &Folder) -> Result<Bytes, ImportErrorKind> {
    let entry =
        |key: &str| proto.external_data.iter().find(|entry| entry.key == key).map(|e| e.value.as_str());
    let location = entry("location").unwrap_or_default();
    let number = |key: &str| match entry(key) {
        None => Ok(None),
        Some(text) => text.trim().parse::<u64>().map(Some).map_err(|_| ImportErrorKind::ExternalData {
            location: location.to_owned(),
            reason: format!("`{key}` is not a number of bytes"),
        }),
    };
    folder.read(location, number("offset")?.unwrap_or(0), number("length")?)
}

/// Raw contents, shared; only bools other than 0 and 1 are rewritten.
fn plain_bytes(raw: Bytes, dtype: DType, count: usize) -> Result<Bytes, String> {
    let expected = count * dtype.size();
    if raw.len() != expected {
        return Err(format!("needs {expected} bytes and has {}", raw.len()));
    }
    if dtype == DType::Bool && raw.iter().any(|&byte| byte > 1) {
        return Ok(Bytes::from_vec(raw.iter().map(|&byte| u8::from(byte != 0)).collect()));
    }
    Ok(raw)
}

fn unpack(packed: &[u8], bits: u32, signed: bool, count: usize) -> Result<Bytes, String> {
    let per_byte = (8 / bits) as usize;
    if packed.len() != count.div_ceil(per_byte) {
        return Err(format!("needs {} bytes and has {}", count.div_ceil(per_byte), packed.len()));
    }
    let elements = (0..count).map(|i| {
        let shift = bits * (i % per_byte) as u32;
        let value = packed[i / per_byte] >> shift << (8 - bits);
        if signed { ((value as i8) >> (8 - bits)) as u8 } else { value >> (8 - bits) }
    });
    Ok(Bytes::from_vec(elements.collect()))
}

/// Contents from the typed fields.
fn typed_bytes(proto: &TensorProto, dtype: DType, count: usize) -> Result<Bytes, String> {
    fn convert<T: Copy, const N: usize>(
        elements: &[T],
        count: usize,
        width: usize,
        bytes: impl Fn(T) -> [u8; N],
    ) -> Result<Bytes, String> {
        if elements.len() != count {
            return Err(format!("needs {count} elements and has {}", elements.len()));
        }
        let narrow = elements.iter().flat_map(|&element| bytes(element).into_iter().take(width));
        Ok(Bytes::from_vec(narrow.collect()))
    }
    let width = dtype.size();
    match dtype {
        DType::F32 => convert(&proto.float_data, count, width, f32::to_le_bytes),
        DType::F64 => convert(&proto.double_data, count, width, f64::to_le_bytes),
        DType::I64 => convert(&proto.int64_data, count, width, i64::to_le_bytes),
        DType::U64 | DType::U32 => convert(&proto.uint64_data, count, width, u64::to_le_bytes),
        DType::Bool => convert(&proto.int32_data, count, width, |x| [u8::from(x != 0)]),
        // Narrow integers, and the bits of half-precision floats, in the low bytes of an i32.
        _ => convert(&proto.int32_data, count, width, i32::to_le_bytes),
    }
}

/// Reads a sparse tensor into a dense one. It names its elements but takes memory for all: `reserve` is asked first whether
/// there may be so many bytes.
pub(crate) fn read_sparse(
    proto: &SparseTensorProto,
    folder: &Folder,
    reserve: impl FnOnce(usize) -> RuleResult<()>,
) -> Result<TensorData, ImportErrorKind> {
    let name = proto.values.as_ref().map(|values| values.name.clone()).unwrap_or_default();
    let fail = |reason: String| ImportErrorKind::Tensor { tensor: name.clone(), reason };
    let (Some(values), Some(indices)) = (&proto.values, &proto.indices) else {
        return Err(fail("a sparse tensor needs values and indices".to_owned()));
    };
    let (values, indices) = (read(values, folder)?, read(indices, folder)?);
    let (shape, count) = shape(&proto.dims).map_err(fail)?;
    let width = values.dtype.size();
    reserve(count.saturating_mul(width)).map_err(|error| fail(error.to_string()))?;
    let stored = values.num_elements();
    let coordinates = match indices.shape.as_slice() {
        [n] if *n == stored => 1,
        [n, rank] if *n == stored && *rank == shape.len() => *rank,
        _ => return Err(fail(format!("has {stored} values and indices of shape {:?}", indices.shape))),
    };
    if indices.dtype != DType::I64 {
        return Err(fail(format!("has {} indices, which must be i64", indices.dtype)));
    }
    let mut dense = vec![0u8; count * width];
    let index_bytes: &[u8] = &indices.bytes;
    let value_bytes: &[u8] = &values.bytes;
    if coordinates == 0 {
        return TensorData::from_bytes(Bytes::from_vec(dense), shape, values.dtype)
            .map_err(|error| fail(error.to_string()));
    }
    for (row, value) in index_bytes.chunks_exact(8 * coordinates).zip(value_bytes.chunks_exact(width)) {
        let position = position(row, &shape).filter(|&position| position < count);
        let position = position.ok_or_else(|| fail("has an index outside its dims".to_owned()))?;
        dense[position * width..(position + 1) * width].copy_from_slice(value);
    }
    TensorData::from_bytes(Bytes::from_vec(dense), shape, values.dtype)
        .map_err(|error| fail(error.to_string()))
}

/// The position of one element from its flat index or its coordinates.
fn position(row: &[u8], shape: &[usize]) -> Option<usize> {
    let mut coordinates = row.chunks_exact(8).map(|chunk| {
        let index = i64::from_le_bytes(chunk.try_into().ok()?);
        usize::try_from(index).ok()
    });
    if row.len() == 8 && shape.len() != 1 {
        return coordinates.next()?;
    }
    let mut position = 0usize;
    for &dim in shape {
        let coordinate = coordinates.next()??;
        if coordinate >= dim {
            return None;
        }
        position = position.checked_mul(dim)?.checked_add(coordinate)?;
    }
    Some(position)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::RuleError;

    fn tensor(data_type: i32, dims: &[i64]) -> TensorProto {
        TensorProto { data_type, dims: dims.to_vec(), ..TensorProto::default() }
    }

    #[test]
    fn typed_fields_and_raw_bytes_mean_the_same() {
        let mut typed = tensor(10, &[2]);
        typed.int32_data = vec![0x3c00, 0xc000];
        let mut raw = tensor(10, &[2]);
        raw.raw_data = bytes::Bytes::from_static(&[0x00, 0x3c, 0x00, 0xc0]);
        let folder = Folder::none();
        assert_eq!(read(&typed, &folder).unwrap(), read(&raw, &folder).unwrap());
    }

    #[test]
    fn packed_integers_are_unpacked() {
        let mut proto = tensor(22, &[3]);
        proto.raw_data = bytes::Bytes::from_static(&[0x7f, 0x08]);
        let data = read(&proto, &Folder::none()).unwrap();
        assert_eq!((data.bytes.to_vec(), data.dtype), (vec![0xff, 0x07, 0xf8], DType::I4));
        proto = tensor(21, &[3]);
        proto.int32_data = vec![0x7f, 0x08];
        let data = read(&proto, &Folder::none()).unwrap();
        assert_eq!((data.bytes.to_vec(), data.dtype), (vec![15, 7, 8], DType::U4));
        for (dims, bytes) in [(vec![5], 2), (vec![2], 2), (vec![4], 1), (vec![0], 1), (vec![1 << 60], 8)] {
            for data_type in [21, 22, 25, 26] {
                let mut proto = tensor(data_type, &dims);
                proto.raw_data = vec![0u8; if data_type > 24 { 2 * bytes } else { bytes }].into();
                assert!(read(&proto, &Folder::none()).is_err(), "{data_type} {dims:?}");
                proto.int32_data = vec![0; proto.raw_data.len()];
                proto.raw_data = bytes::Bytes::new();
                assert!(read(&proto, &Folder::none()).is_err(), "{data_type} {dims:?}");
            }
        }
    }

    #[test]
    fn sizes_are_checked_before_memory_is_taken() {
        for dims in [vec![-1], vec![i64::MAX, i64::MAX], vec![1 << 40]] {
            assert!(read(&tensor(1, &dims), &Folder::none()).is_err());
        }
        let sparse = SparseTensorProto {
            values: Some(tensor(1, &[0])),
            indices: Some(tensor(7, &[0])),
            dims: vec![1 << 40],
        };
        let asked = |bytes| match bytes {
            0x400_0000_0000 => Err(RuleError::TooLarge { what: "it".into() }),
            other => panic!("{other}"),
        };
        assert!(read_sparse(&sparse, &Folder::none(), asked).is_err());
    }

    #[test]
    fn sparse_tensors_become_dense() {
        let mut values = tensor(1, &[2]);
        values.float_data = vec![5.0, 7.0];
        let mut indices = tensor(7, &[2, 2]);
        indices.int64_data = vec![0, 1, 1, 2];
        let sparse = SparseTensorProto { values: Some(values), indices: Some(indices), dims: vec![2, 3] };
        let data = read_sparse(&sparse, &Folder::none(), |_| Ok(())).unwrap();
        let expected: Vec<u8> =
            [0.0f32, 5.0, 0.0, 0.0, 0.0, 7.0].iter().flat_map(|x| x.to_le_bytes()).collect();
        assert_eq!(data.bytes.to_vec(), expected);
    }
}
