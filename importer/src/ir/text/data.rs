//! The contents of constants as text, and back.

use super::{Cursor, TextErrorKind, TextResult};
use crate::data::Elements;
use kiln_types::{Bytes, DType, TensorData};
use std::fmt::Write;

/// Longer lists are written as bytes.
const MOST_LISTED: usize = 64;

/// The contents of a constant; exact.
pub(super) fn text(data: &TensorData) -> String {
    let width = data.dtype.size();
    let mut elements = data.bytes.chunks_exact(width);
    let first = elements.next();
    let splat = data.num_elements() > 1 && elements.all(|element| Some(element) == first);
    let shown = match (splat, first) {
        (true, Some(first)) => {
            TensorData { bytes: Bytes::from_vec(first.to_vec()), shape: Vec::new(), dtype: data.dtype }
        }
        _ if data.num_elements() <= MOST_LISTED => data.clone(),
        _ => return hex(&data.bytes),
    };
    let elements = Elements::load(&shown);
    let list: Vec<String> = match elements {
        Elements::Float(values) => values.into_iter().map(|x| float(x, data.dtype)).collect(),
        Elements::Int(values) if data.dtype == DType::Bool => {
            values.into_iter().map(|x| (x != 0).to_string()).collect()
        }
        Elements::Int(values) => values.into_iter().map(|x| x.to_string()).collect(),
    };
    // Only a NaN may come back with other bits, or a bool that is neither 0 nor 1.
    let again: TextResult<Vec<Element>> =
        list.iter().map(|text| element(&mut Cursor::new(text), data.dtype)).collect();
    if again.is_ok_and(|again| elements_of(again, data.dtype) != shown.bytes[..]) {
        return hex(&data.bytes);
    }
    if splat { format!("splat {}", list.concat()) } else { format!("[{}]", list.join(", ")) }
}

/// The shortest text that rounds to the same number.
fn float(value: f64, dtype: DType) -> String {
    if dtype == DType::F64 { format!("{value:?}") } else { format!("{:?}", value as f32) }
}

/// Bytes as they stand in the text.
pub(super) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2 + 8);
    text.push_str("hex \"");
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text.push('"');
    text
}

/// Reads the contents of a constant of this dtype and shape.
pub(super) fn parse(cursor: &mut Cursor<'_>, dtype: DType, shape: Vec<usize>) -> TextResult<TensorData> {
    let start = cursor.position();
    let count = shape.iter().try_fold(1usize, |count, &dim| count.checked_mul(dim));
    let wrong = |cursor: &Cursor<'_>, what: String| cursor.fail_at(start, TextErrorKind::Invalid(what));
    let size =
        count.and_then(|count| count.checked_mul(dtype.size())).filter(|&size| size <= isize::MAX as usize);
    let (Some(count), Some(size)) = (count, size) else {
        return Err(wrong(cursor, "a constant of this type is too large".to_owned()));
    };
    let bytes = match () {
        () if cursor.eat_word("splat") => {
            let one = elements_of(vec![element(cursor, dtype)?], dtype);
            // A few letters must not stand for more than a test can want.
            const LARGEST_SPLAT: usize = 1 << 28;
            if size > LARGEST_SPLAT {
                return Err(wrong(cursor, "a splat of this type is too large".to_owned()));
            }
            one.repeat(count)
        }
        () if cursor.peek_word() == "hex" => parse_hex(cursor)?,
        () => elements_of(list(cursor, dtype)?, dtype),
    };
    if bytes.len() != size {
        let what = format!("{} bytes are given, the type needs {size}", bytes.len());
        return Err(wrong(cursor, what));
    }
    TensorData::from_bytes(Bytes::from_vec(bytes), shape, dtype)
        .map_err(|error| wrong(cursor, error.to_string()))
}

/// One element, wide enough for every dtype.
enum Element {
    Float(f64),
    Int(i128),
}

fn list(cursor: &mut Cursor<'_>, dtype: DType) -> TextResult<Vec<Element>> {
    cursor.expect("[")?;
    let mut found = Vec::new();
    while !cursor.eat("]") {
        if !found.is_empty() {
            cursor.expect(",")?;
        }
        found.push(element(cursor, dtype)?);
    }
    Ok(found)
}

fn element(cursor: &mut Cursor<'_>, dtype: DType) -> TextResult<Element> {
    if dtype == DType::Bool {
        return match () {
            () if cursor.eat_word("true") => Ok(Element::Int(1)),
            () if cursor.eat_word("false") => Ok(Element::Int(0)),
            () => Err(cursor.expected("`true` or `false`")),
        };
    }
    let start = cursor.position();
    let number = cursor.number()?;
    let read = match dtype.is_float() {
        true => number.parse().ok().map(Element::Float),
        false => number.parse().ok().filter(|&x| fits(x, dtype)).map(Element::Int),
    };
    read.ok_or_else(|| cursor.fail_at(start, TextErrorKind::Invalid(format!("{number} is no {dtype}"))))
}

/// Whether an integer dtype holds a number: what it stores is what it was given.
fn fits(value: i128, dtype: DType) -> bool {
    Elements::load(&Elements::Int(vec![value]).store(dtype, Vec::new())) == Elements::Int(vec![value])
}

fn elements_of(list: Vec<Element>, dtype: DType) -> Vec<u8> {
    let count = list.len();
    let wide = match dtype.is_float() {
        true => Elements::Float(
            list.into_iter().map(|x| if let Element::Float(x) = x { x } else { f64::NAN }).collect(),
        ),
        false => {
            Elements::Int(list.into_iter().map(|x| if let Element::Int(x) = x { x } else { 0 }).collect())
        }
    };
    wide.store(dtype, vec![count]).bytes.to_vec()
}

/// Reads bytes: `hex "00ff"`.
pub(super) fn parse_hex(cursor: &mut Cursor<'_>) -> TextResult<Vec<u8>> {
    let start = cursor.position();
    cursor.expect("hex")?;
    let text = cursor.string()?;
    let wrong = TextErrorKind::Invalid("these are no bytes in hexadecimal".to_owned());
    unhex(&text).ok_or_else(|| cursor.fail_at(start, wrong))
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    let digit = |c: u8| char::from(c).to_digit(16).map(|d| d as u8);
    let (pairs, rest) = digits.as_chunks::<2>();
    let bytes: Option<Vec<u8>> = pairs.iter().map(|&[a, b]| Some(digit(a)? << 4 | digit(b)?)).collect();
    bytes.filter(|_| rest.is_empty())
}
