//! Golden data: files of one tensor, of one sequence of tensors, or of one of maps.

use super::lowering::numbers;
use super::proto::{MapProto, SequenceProto, TensorProto};
use super::source::Folder;
use super::{tensor, wire};
use crate::error::ImportErrorKind;
use crate::ir::{Key, Strings};
use bytes::Bytes;
use kiln_types::TensorData;
use std::collections::BTreeMap;
use std::ops::Range;

/// A tensor of golden data.
#[derive(Clone, Debug, PartialEq)]
pub struct GoldenTensor {
    /// Its name in the file; may be empty.
    pub name: String,
    /// Its contents.
    pub data: TensorData,
}

/// Reads a file that holds one `TensorProto`. Strings become their places in a model's table.
///
/// # Errors
/// When the bytes are not a tensor of a supported dtype.
pub fn read_tensor(bytes: &[u8], strings: &Strings) -> Result<GoldenTensor, ImportErrorKind> {
    let proto: TensorProto = wire::decode(Bytes::copy_from_slice(bytes))?;
    if proto.data_type != tensor::STRING {
        let data = tensor::read(&proto, &Folder::none())?;
        return Ok(GoldenTensor { name: proto.name, data });
    }
    let (texts, shape) = tensor::strings(&proto)?;
    let places = strings.places();
    let place = |text: &String| places.get(text.as_str()).copied().unwrap_or(-1);
    let data = TensorData::new(texts.iter().map(place).collect::<Vec<i64>>(), shape.as_slice());
    Ok(GoldenTensor { name: proto.name, data })
}

/// Reads a file that holds what a graph yields from the output at a position on: that one, or all items of one of its sequences
/// ([`Graph::output_sequences`](crate::ir::Graph::output_sequences)).
///
/// # Errors
/// When the bytes are not what the graph yields there.
pub fn read_output(
    bytes: &[u8],
    at: usize,
    strings: &Strings,
    sequences: &[Range<usize>],
) -> Result<Vec<GoldenTensor>, ImportErrorKind> {
    if sequences.binary_search_by_key(&at, |items| items.start).is_ok() {
        return read_sequence(bytes);
    }
    let read = match strings.columns.get(&at) {
        Some(keys) => read_maps(bytes, keys),
        None => read_tensor(bytes, strings),
    };
    Ok(vec![read?])
}

/// Reads one `SequenceProto` of tensors.
fn read_sequence(bytes: &[u8]) -> Result<Vec<GoldenTensor>, ImportErrorKind> {
    let sequence: SequenceProto = wire::decode(Bytes::copy_from_slice(bytes))?;
    let read = |item: TensorProto| {
        let data = tensor::read(&item, &Folder::none())?;
        Ok(GoldenTensor { name: item.name, data })
    };
    sequence.tensor_values.into_iter().map(read).collect()
}

/// Reads one `SequenceProto` of maps from keys to numbers, as `ZipMap` makes it: a row of `f32` for each map, a column for each key.
fn read_maps(bytes: &[u8], keys: &[Key]) -> Result<GoldenTensor, ImportErrorKind> {
    let sequence: SequenceProto = wire::decode(Bytes::copy_from_slice(bytes))?;
    let fail =
        |reason: &str| ImportErrorKind::Tensor { tensor: sequence.name.clone(), reason: reason.to_owned() };
    let mut rows: Vec<f32> = Vec::new();
    for map in &sequence.map_values {
        let numbers = numbers_of(map)?;
        let row: Option<Vec<f32>> = keys.iter().map(|key| numbers.get(key).copied()).collect();
        match row {
            Some(row) if numbers.len() == row.len() => rows.extend(row),
            _ => {
                return Err(fail(
                    "has a map of other keys than the model's, or one without a number for each",
                ));
            }
        }
    }
    let data = TensorData::new(rows, [sequence.map_values.len(), keys.len()]);
    Ok(GoldenTensor { name: sequence.name, data })
}

/// The numbers of a map, which has its keys in any order.
fn numbers_of(map: &MapProto) -> Result<BTreeMap<Key, f32>, ImportErrorKind> {
    let texts = map.string_keys.iter().map(|text| Key::String(String::from_utf8_lossy(text).into_owned()));
    let keys = map.keys.iter().copied().map(Key::Integer).chain(texts);
    let values = map.values.as_deref().map(|values| values.tensor_values.as_slice()).unwrap_or_default();
    let mut found = BTreeMap::new();
    for (key, value) in keys.zip(values) {
        let data = tensor::read(value, &Folder::none())?;
        found.extend(numbers(&data).first().map(|number| (key, number.to_f64() as f32)));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message;

    fn number(value: f64) -> TensorProto {
        TensorProto { data_type: 11, double_data: vec![value], ..TensorProto::default() }
    }

    fn map(keys: &[&'static str], values: &[f64]) -> MapProto {
        let values = SequenceProto {
            tensor_values: values.iter().copied().map(number).collect(),
            ..SequenceProto::default()
        };
        MapProto {
            string_keys: keys.iter().map(|key| Bytes::from_static(key.as_bytes())).collect(),
            values: Some(Box::new(values)),
            ..MapProto::default()
        }
    }

    #[test]
    fn strings_become_places() {
        let strings = Strings { table: vec!["a".to_owned(), "b".to_owned()], ..Strings::default() };
        let texts = ["b", "a", "c"].map(|text| Bytes::from_static(text.as_bytes())).to_vec();
        let mut proto =
            TensorProto { dims: vec![3, 1], data_type: 8, string_data: texts, ..TensorProto::default() };
        let read = read_tensor(&proto.encode_to_vec(), &strings).unwrap();
        assert_eq!(read.data, TensorData::new(vec![1i64, 0, -1], [3, 1]));
        proto.dims = vec![4];
        assert!(read_tensor(&proto.encode_to_vec(), &strings).is_err());
    }

    #[test]
    fn maps_become_rows_of_the_models_columns() {
        let keys = ["a", "b"].map(|key| Key::String(key.to_owned()));
        let read = |maps: Vec<MapProto>| {
            let sequence =
                SequenceProto { name: "p".to_owned(), map_values: maps, ..SequenceProto::default() };
            read_maps(&sequence.encode_to_vec(), &keys)
        };
        let rows = read(vec![map(&["a", "b"], &[0.5, 0.25]), map(&["b", "a"], &[1.0, 0.0])]).unwrap();
        assert_eq!(rows.name, "p");
        assert_eq!(rows.data, TensorData::new(vec![0.5f32, 0.25, 0.0, 1.0], [2, 2]));
        assert!(read(vec![map(&["a", "b", "c"], &[0.5, 0.25, 1.0])]).is_err());
        assert!(read(vec![map(&["a", "b"], &[0.5])]).is_err());
        assert!(read(vec![map(&["a"], &[0.5])]).is_err());
    }
}
