//! Reads of 16 bytes, the most that an invocation reads at once: neighbours along the last dim of an operand. All that a loop reads is asked for
//! before the first of it is used, so that memory has enough to do where there are few invocations.

use super::access;
use crate::language::{Buffer, Builder, Factors, Fours, Storage, Type, Value, Variable};
use crate::tensor::held_as;
use kiln_tensor::DType;
use kiln_tensor::backend::Layout;

/// Elements that are read at once: 16 bytes of floats of 16 and of 32 bits, of others four elements.
pub(super) fn width(dtype: DType) -> u32 {
    if words(dtype).is_some() { 8 } else { 4 }
}

/// As what words of two elements are taken apart.
fn words(dtype: DType) -> Option<Factors> {
    match dtype {
        DType::F16 => Some(Factors::F16),
        DType::BF16 => Some(Factors::BF16),
        DType::F64
        | DType::F32
        | DType::I64
        | DType::I32
        | DType::I16
        | DType::I8
        | DType::U64
        | DType::U32
        | DType::U16
        | DType::U8
        | DType::I4
        | DType::U4
        | DType::Bool => None,
    }
}

/// Whether the elements along the last dim can be read so: whole runs of neighbours, all of which start at multiples of their length. A dim of
/// one is never walked.
pub(super) fn is_wide(layout: &Layout, dtype: DType) -> bool {
    let width = width(dtype) as usize;
    let (Some((&size, outer)), Some((&last, strides))) =
        (layout.shape.dims.split_last(), layout.strides.split_last())
    else {
        return false;
    };
    let aligned =
        |(&size, &stride): (&usize, &isize)| size == 1 || stride.unsigned_abs().is_multiple_of(width);
    last == 1
        && size.is_multiple_of(width)
        && layout.offset.is_multiple_of(width)
        && outer.iter().zip(strides).all(aligned)
}

/// A buffer of which neighbours are read: one by one, or so, on devices with warps.
#[derive(Clone, Copy)]
pub(super) struct Runs<'k> {
    buffer: Elements<'k>,
    dtype: DType,
}

#[derive(Clone, Copy)]
enum Elements<'k> {
    Single(Buffer<'k>),
    Wide(Fours<'k>),
}

impl<'k> Runs<'k> {
    /// The next buffer.
    pub fn declare(k: &'k Builder, dtype: DType, is_wide: bool) -> Self {
        let buffer = match is_wide {
            true => Elements::Wide(k.input_of_fours(words(dtype).map_or(held_as(dtype), |_| Storage::U32))),
            false => Elements::Single(k.input(held_as(dtype))),
        };
        Self { buffer, dtype }
    }

    /// So many elements from a position on, a stride apart; of [wide](is_wide) ones, whole runs of neighbours.
    pub fn at(&self, start: Value<'k>, along: Value<'k>, count: u32) -> Vec<Value<'k>> {
        self.taken_apart(self.raw(start, along, count))
    }

    /// Room for so many elements as they lie in memory; zeros until they are read.
    pub fn room(&self, k: &'k Builder, count: u32) -> Vec<Variable<'k>> {
        let element = held_as(self.dtype).value();
        let (ty, count) = match (self.buffer, words(self.dtype)) {
            (Elements::Wide(_), Some(factors)) => (Type::U32, count / factors.per_word()),
            (Elements::Wide(_), None) | (Elements::Single(_), _) => (element, count),
        };
        (0..count).map(|_| k.variable(k.whole(0, ty))).collect()
    }

    /// Reads the elements from a position on into room for them.
    pub fn read(&self, start: Value<'k>, along: Value<'k>, count: u32, room: &[Variable<'k>]) {
        for (to, x) in room.iter().zip(self.raw(start, along, count)) {
            to.set(x);
        }
    }

    /// The elements that are there.
    pub fn elements(&self, room: &[Variable<'k>]) -> Vec<Value<'k>> {
        self.taken_apart(room.iter().map(|x| x.get()).collect())
    }

    fn raw(&self, start: Value<'k>, along: Value<'k>, count: u32) -> Vec<Value<'k>> {
        match self.buffer {
            Elements::Single(buffer) => {
                let position = |n| if n == 0 { start } else { start + along * n };
                (0..count).map(|n| buffer.at(position(n))).collect()
            }
            Elements::Wide(buffer) => {
                let width = width(self.dtype);
                let first = start / width;
                (0..count / width).flat_map(|n| buffer.at(access::behind(first, n))).collect()
            }
        }
    }

    fn taken_apart(&self, raw: Vec<Value<'k>>) -> Vec<Value<'k>> {
        match (self.buffer, words(self.dtype)) {
            (Elements::Wide(_), Some(factors)) => {
                raw.into_iter().flat_map(|word| factors.floats(word)).collect()
            }
            (Elements::Wide(_), None) | (Elements::Single(_), _) => raw,
        }
    }
}
