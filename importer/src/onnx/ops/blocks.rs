//! Integers of a few bits that lie packed in bytes, as ONNX Runtime's tools write weights under scales of blocks.

use super::prelude::*;
use crate::ir::Provenance;
use kiln_types::{Bytes, TensorData};
use std::sync::Arc;

/// How many bits an integer has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Bits {
    Two,
    Four,
    Eight,
}

impl Bits {
    /// An attribute.
    pub(super) fn read(node: &mut SourceNode<'_>, name: &str, default: Self) -> RuleResult<Self> {
        match node.int(name, i64::from(default.count()))? {
            2 => Ok(Self::Two),
            4 => Ok(Self::Four),
            8 => Ok(Self::Eight),
            other => Err(invalid(name, format!("is {other}, must be 2, 4 or 8"))),
        }
    }

    fn count(self) -> u32 {
        match self {
            Self::Two => 2,
            Self::Four => 4,
            Self::Eight => 8,
        }
    }

    /// How many a byte holds.
    pub(super) fn per_byte(self) -> usize {
        (u8::BITS / self.count()) as usize
    }

    /// What they are kept as.
    fn dtype(self) -> DType {
        match self {
            Self::Four => DType::U4,
            Self::Two | Self::Eight => DType::U8,
        }
    }

    /// What stands for 0 unless zero points say otherwise.
    pub(super) fn middle(self) -> i64 {
        1 << (self.count() - 1)
    }
}

/// The attribute `block_size`: a power of two from 16 on.
pub(super) fn block_size(node: &mut SourceNode<'_>, default: Option<i64>) -> RuleResult<usize> {
    let name = "block_size";
    let size = match default {
        Some(default) => node.int(name, default)?,
        None => node.required_int(name)?,
    };
    let fits = usize::try_from(size).ok().filter(|size| *size >= 16 && size.is_power_of_two());
    fits.ok_or_else(|| invalid(name, format!("is {size}, must be a power of two of at least 16")))
}

/// The integers that a constant of bytes holds, `[rows, columns]`: each row begins with a byte of its own, and a byte holds the
/// first of its integers in its lowest bits.
pub(super) fn unpacked(
    to: &mut Lowering<'_, '_>,
    input: &str,
    packed: ValueId,
    bits: Bits,
    [rows, columns]: [usize; 2],
) -> RuleResult<ValueId> {
    let data = to.constant(packed).ok_or_else(|| RuleError::NotConstant { input: input.to_owned() })?;
    if data.dtype != DType::U8 {
        let expected = "expected u8".to_owned();
        return Err(RuleError::DType { input: input.to_owned(), actual: data.dtype, expected });
    }
    let bytes_per_row = columns.div_ceil(bits.per_byte());
    if rows.checked_mul(bytes_per_row) != Some(data.bytes.len()) {
        let reason =
            format!("has {} bytes, must have {bytes_per_row} for each of {rows} rows", data.bytes.len());
        return Err(invalid(input, reason));
    }
    if bits == Bits::Eight {
        return to.reshape(packed, vec![Dim::from(rows), Dim::from(columns)]);
    }
    // A few times the bytes that were found, so that this cannot overflow.
    let count = rows * columns;
    to.reserve(count)?;
    let mut integers = Vec::with_capacity(count);
    let mask = (1u8 << bits.count()) - 1;
    for row in data.bytes.chunks_exact(bytes_per_row.max(1)) {
        let of_byte = |byte: &u8| {
            let byte = *byte;
            (0..bits.per_byte() as u32).map(move |place| byte >> (place * bits.count()) & mask)
        };
        integers.extend(row.iter().flat_map(of_byte).take(columns));
    }
    let graph = &mut *to.builder.graph;
    let name = graph.constant(packed).and_then(|constant| constant.name.clone());
    // No checkpoint holds them so: the tool that packed them made them of floats.
    let made =
        |_| Arc::new(Provenance::Exporter { name: name.clone().unwrap_or_default(), keys: Vec::new() });
    let provenance = graph.provenance(packed).map(made);
    let data =
        TensorData { bytes: Bytes::from_vec(integers), shape: vec![rows, columns], dtype: bits.dtype() };
    Ok(graph.add_derived(name, data, provenance))
}
