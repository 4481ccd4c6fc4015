//! `TensorProto` to [`TensorData`]: raw, typed, external and sparse contents.

use super::proto::{EXTERNAL, SparseTensorProto, TensorProto};
use super::source::Folder;
use crate::error::ImportErrorKind;
use crate::ir::RuleResult;
use kiln_types::{Bytes, DType, Minifloat, TensorData};

/// The `TensorProto.DataType` of strings.
pub(super) const STRING: i32 = 8;

/// No operator gives a tensor so many axes.
pub(super) const MAX_RANK: usize = 64;

/// How the elements of an ONNX data type are kept.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Packing {
    /// One element after the other.
    Plain,
    /// Integers of few bits, one behind the other, the first in the low bits of the first byte: bits an element, signed.
    Bits(u32, bool),
    /// Floats of few bits, likewise.
    Floats(Minifloat),
}

/// What an ONNX data type can hold that is narrower than the dtype that keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Narrow {
    /// Integers from the least to the greatest.
    Integers([i64; 2]),
    /// Floats of a format.
    Floats(Minifloat),
}

/// The dtype of a `TensorProto.DataType`; two-bit integers widen to eight, floats of eight bits and fewer to sixteen.
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
        _ if let Some(format) = minifloat(data_type) => Ok((format.dtype(), Packing::Floats(format))),
        _ => Err(format!("has data type {}, which is not supported", type_name(data_type))),
    }
}

/// The dtype of a `TensorProto.DataType`, or what is wrong with it.
pub(crate) fn dtype(data_type: i32) -> Result<DType, String> {
    element_type(data_type).map(|(dtype, _)| dtype)
}

/// What operators convert to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DataType {
    /// What tensors hold.
    pub(crate) dtype: DType,
    /// What of that there is, if not all.
    pub(crate) narrow: Option<Narrow>,
}

impl DataType {
    /// That of a `TensorProto.DataType`, or what is wrong with it.
    pub(crate) fn of(data_type: i32) -> Result<Self, String> {
        Ok(Self { dtype: dtype(data_type)?, narrow: narrow(data_type) })
    }
}

/// What a `TensorProto.DataType` can hold, where that is less than the dtype that keeps it.
pub(crate) fn narrow(data_type: i32) -> Option<Narrow> {
    match data_type {
        25 => Some(Narrow::Integers([0, 3])),
        26 => Some(Narrow::Integers([-2, 1])),
        _ => minifloat(data_type).map(Narrow::Floats),
    }
}

/// The format of a `TensorProto.DataType` of floats of eight bits or fewer.
fn minifloat(data_type: i32) -> Option<Minifloat> {
    match data_type {
        17 => Some(Minifloat::E4M3Fn),
        18 => Some(Minifloat::E4M3Fnuz),
        19 => Some(Minifloat::E5M2),
        20 => Some(Minifloat::E5M2Fnuz),
        23 => Some(Minifloat::E2M1Fn),
        24 => Some(Minifloat::E8M0Fnu),
        27 => Some(Minifloat::E2M3Fn),
        28 => Some(Minifloat::E3M2Fn),
        _ => None,
    }
}

fn type_name(data_type: i32) -> String {
    match data_type {
        0 => "UNDEFINED".to_owned(),
        STRING => "STRING".to_owned(),
        14 => "COMPLEX64".to_owned(),
        15 => "COMPLEX128".to_owned(),
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
        (None, Packing::Plain) => typed_bytes(proto, dtype, count).map_err(fail)?,
        (raw, Packing::Bits(bits, signed)) => {
            let packed = packed_bytes(raw, proto);
            let extend = |x: u8| if signed { ((x << (8 - bits)) as i8 >> (8 - bits)) as u8 } else { x };
            Bytes::from_vec(unpack(&packed, bits, count).map_err(fail)?.map(extend).collect())
        }
        (raw, Packing::Floats(format)) => {
            let packed = packed_bytes(raw, proto);
            let values = format.widened();
            let value = |bits: u8| values.get(usize::from(bits)).copied().unwrap_or_default().to_le_bytes();
            Bytes::from_vec(unpack(&packed, format.bits(), count).map_err(fail)?.flat_map(value).collect())
        }
    };
    TensorData::from_bytes(bytes, shape, dtype).map_err(|error| fail(error.to_string()))
}

/// Reads a tensor of strings, and its shape.
pub(crate) fn strings(proto: &TensorProto) -> Result<(Vec<String>, Vec<usize>), ImportErrorKind> {
    let fail = |reason: String| ImportErrorKind::Tensor { tensor: proto.name.clone(), reason };
    let (shape, count) = shape(&proto.dims).map_err(fail)?;
    if proto.string_data.len() != count {
        return Err(fail(format!("needs {count} elements and has {}", proto.string_data.len())));
    }
    let texts = proto.string_data.iter().map(|text| std::str::from_utf8(text).map(str::to_owned));
    let texts =
        texts.collect::<Result<_, _>>().map_err(|_| fail("has strings that are not UTF-8".to_owned()))?;
    Ok((texts, shape))
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

/// Packed elements, which the typed fields have byte by byte.
fn packed_bytes(raw: Option<Bytes>, proto: &TensorProto) -> Bytes {
    raw.unwrap_or_else(|| Bytes::from_vec(proto.int32_data.iter().map(|&byte| byte as u8).collect()))
}

/// Elements of so many bits each, eight at most, as whole bytes.
fn unpack(packed: &[u8], bits: u32, count: usize) -> Result<impl Iterator<Item = u8> + '_, String> {
    let bits = bits as usize;
    let expected = (count * bits).div_ceil(8);
    if packed.len() != expected {
        return Err(format!("needs {expected} bytes and has {}", packed.len()));
    }
    Ok((0..count).map(move |i| {
        let (at, shift) = (i * bits / 8, i * bits % 8);
        let byte = |at: usize| u16::from(packed.get(at).copied().unwrap_or_default());
        let window = byte(at) | byte(at + 1) << 8;
        (window >> shift & ((1 << bits) - 1)) as u8
    }))
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
    fn packed_floats_are_unpacked() {
        let of = |data_type, dims: &[i64], bytes: &'static [u8]| {
            let mut raw = tensor(data_type, dims);
            raw.raw_data = bytes::Bytes::from_static(bytes);
            let mut typed = tensor(data_type, dims);
            typed.int32_data = bytes.iter().map(|&byte| byte.into()).collect();
            let data = read(&raw, &Folder::none());
            assert_eq!(data.as_ref().ok(), read(&typed, &Folder::none()).ok().as_ref());
            data.map(|data| (data.dtype, crate::data::Elements::load(&data).floats()))
        };
        assert_eq!(
            of(17, &[3], &[0x38, 0x7e, 0x81]).unwrap(),
            (DType::F16, vec![1.0, 448.0, -0.001_953_125])
        );
        assert_eq!(of(19, &[2], &[0xfc, 0x3c]).unwrap(), (DType::F16, vec![f64::NEG_INFINITY, 1.0]));
        assert_eq!(of(24, &[2], &[0, 254]).unwrap(), (DType::BF16, vec![2f64.powi(-127), 2f64.powi(127)]));
        assert_eq!(of(23, &[3], &[0xf2, 0x01]).unwrap(), (DType::F16, vec![1.0, -6.0, 0.5]));
        // Four to three bytes: 001000, 111111, 000001 and 100000 from the lowest bits on, and the first again.
        let six = &[0b1100_1000, 0b0001_1111, 0b1000_0000, 0b0000_1000];
        assert_eq!(of(27, &[5], six).unwrap(), (DType::F16, vec![1.0, -7.5, 0.125, -0.0, 1.0]));
        for (data_type, dims, bytes) in [(17, 2, 1), (24, 1, 2), (23, 3, 1), (27, 5, 3), (28, 4, 4)] {
            assert!(of(data_type, &[dims], &[0; 8][..bytes]).is_err(), "{data_type} {dims}");
        }
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
            for data_type in [21, 22, 23, 25, 26] {
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
