//! The numbers of an array, written as elements of a tensor or shared with one.

use crate::dtype;
use crate::number::Number;
use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef};
use arrow_buffer::{Buffer, NullBuffer};
use arrow_schema::DataType;
use half::{bf16, f16};
use kiln_core::tensor::{Bytes, DType, Element};
use std::fmt::Display;
use std::ops::Range;

/// Why an element was not written.
#[derive(Debug)]
pub(crate) struct Misfit {
    /// The place of the element among those that were to be written.
    pub(crate) index: usize,
    pub(crate) reason: Reason,
}

/// What is wrong with an element.
#[derive(Debug)]
pub(crate) enum Reason {
    Null,
    /// The dtype does not hold this number.
    Number(String),
    /// A list has another length.
    Length {
        actual: usize,
        expected: usize,
    },
    /// An array is not of the type that was planned with.
    Type(DataType),
}

impl Misfit {
    pub(crate) fn new(index: usize, reason: Reason) -> Self {
        Self { index, reason }
    }

    /// The same among elements of which `before` stand before those that it counted.
    pub(crate) fn after(self, before: usize) -> Self {
        Self { index: self.index + before, ..self }
    }
}

/// Some elements of an array, and what stands in for those that are null.
pub(crate) struct Source<'a, T> {
    pub(crate) array: &'a dyn Array,
    pub(crate) range: Range<usize>,
    pub(crate) null: Option<T>,
}

/// Elements that are written from arrays.
pub(crate) trait Target: Element {
    /// Writes elements to every `stride`-th place, from the first on.
    fn write(source: Source<'_, Self>, out: &mut [Self], stride: usize) -> Result<(), Misfit>;
}

/// Writes an array of one of these types, or of booleans as 0 and 1.
macro_rules! write_numbers {
    ($source:ident, $out:ident, $stride:ident: $($type:ident => $arrow:ident)*) => {
        match $source.array.data_type() {
            $(DataType::$type => primitives::<$arrow, _>($source, $out, $stride),)*
            _ => booleans($source, $out, $stride, |bit| u8::from(bit).convert()),
        }
    };
}

macro_rules! floats {
    ($($target:ident)*) => {
        $(impl Target for $target {
            fn write(source: Source<'_, Self>, out: &mut [Self], stride: usize) -> Result<(), Misfit> {
                write_numbers!(source, out, stride:
                    Float64 => Float64Type Float32 => Float32Type Float16 => Float16Type
                    Int64 => Int64Type Int32 => Int32Type Int16 => Int16Type Int8 => Int8Type
                    UInt64 => UInt64Type UInt32 => UInt32Type UInt16 => UInt16Type UInt8 => UInt8Type)
            }
        })*
    };
}

macro_rules! integers {
    ($($target:ident)*) => {
        $(impl Target for $target {
            fn write(source: Source<'_, Self>, out: &mut [Self], stride: usize) -> Result<(), Misfit> {
                write_numbers!(source, out, stride:
                    Int64 => Int64Type Int32 => Int32Type Int16 => Int16Type Int8 => Int8Type
                    UInt64 => UInt64Type UInt32 => UInt32Type UInt16 => UInt16Type UInt8 => UInt8Type)
            }
        })*
    };
}

floats!(f64 f32 f16 bf16);
integers!(i64 i32 i16 i8 u64 u32 u16 u8);

impl Target for bool {
    fn write(source: Source<'_, Self>, out: &mut [Self], stride: usize) -> Result<(), Misfit> {
        booleans(source, out, stride, Some)
    }
}

fn primitives<S, T>(source: Source<'_, T>, out: &mut [T], stride: usize) -> Result<(), Misfit>
where
    S: ArrowPrimitiveType,
    S::Native: Number<T> + Display,
    T: Element,
{
    let values =
        source.array.as_primitive_opt::<S>().and_then(|array| array.values().get(source.range.clone()));
    let values = values.ok_or_else(|| other_type(source.array))?;
    write(values.iter().copied(), &source, out, stride, |value| {
        value.convert().ok_or_else(|| Reason::Number(value.to_string()))
    })
}

fn booleans<T: Element>(
    source: Source<'_, T>,
    out: &mut [T],
    stride: usize,
    convert: impl Fn(bool) -> Option<T>,
) -> Result<(), Misfit> {
    let array = source.array.as_boolean_opt().filter(|array| source.range.end <= array.len());
    let array = array.ok_or_else(|| other_type(source.array))?;
    let bits = array.values().slice(source.range.start, source.range.len());
    write(bits.iter(), &source, out, stride, |bit| {
        convert(bit).ok_or_else(|| Reason::Number(bit.to_string()))
    })
}

fn other_type(array: &dyn Array) -> Misfit {
    Misfit::new(0, Reason::Type(array.data_type().clone()))
}

/// Writes values where the array has no nulls, and what stands in for nulls elsewhere.
fn write<V, T: Element>(
    values: impl Iterator<Item = V>,
    source: &Source<'_, T>,
    out: &mut [T],
    stride: usize,
    convert: impl Fn(V) -> Result<T, Reason>,
) -> Result<(), Misfit> {
    let places = out.iter_mut().step_by(stride).zip(values).enumerate();
    let Some(nulls) = nulls(source.array, &source.range) else {
        for (index, (place, value)) in places {
            *place = convert(value).map_err(|reason| Misfit::new(index, reason))?;
        }
        return Ok(());
    };
    for ((index, (place, value)), valid) in places.zip(nulls.iter()) {
        let number = if valid { convert(value) } else { source.null.ok_or(Reason::Null) };
        *place = number.map_err(|reason| Misfit::new(index, reason))?;
    }
    Ok(())
}

/// The nulls within a range; `None` where there are none.
pub(crate) fn nulls(array: &dyn Array, range: &Range<usize>) -> Option<NullBuffer> {
    let nulls = array.nulls().filter(|nulls| nulls.null_count() > 0 && range.end <= nulls.len())?;
    Some(nulls.slice(range.start, range.len())).filter(|nulls| nulls.null_count() > 0)
}

/// Memory of Arrow's that a tensor reads.
struct Shared(Buffer);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        self.0.as_slice()
    }
}

/// The memory of some elements, where these are as a tensor of the dtype has them: nothing is copied.
pub(crate) fn share(array: &ArrayRef, range: &Range<usize>, dtype: DType) -> Option<Bytes> {
    if dtype::dtype(array.data_type()) != Some(dtype) || dtype.is_bool() || nulls(array, range).is_some() {
        return None;
    }
    // Buffers are cut by the array's offset when it is taken apart.
    let data = array.to_data();
    let start = data.offset().checked_add(range.start)?.checked_mul(dtype.size())?;
    let bytes = Bytes::from_owner(Shared(data.buffers().first()?.clone()));
    bytes.slice(start..start.checked_add(range.len().checked_mul(dtype.size())?)?)
}
