//! `GatherBlockQuantized`: rows of a table of integers of a few bits, which are made numbers after they were looked up.

use super::blocks::{Bits, block_size, unpacked};
use super::gather::may_be_negative;
use super::prelude::*;
use super::quantize_linear::dequantized;
use crate::ir::op;

pub(super) struct GatherBlockQuantized {
    bits: Bits,
    block: usize,
    gather_axis: i64,
    quantize_axis: i64,
}

impl GatherBlockQuantized {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self {
            bits: Bits::read(node, "bits", Bits::Four)?,
            block: block_size(node, Some(128))?,
            gather_axis: node.int("gather_axis", 0)?,
            quantize_axis: node.int("quantize_axis", 1)?,
        })
    }
}

impl<'m> Operator<'m> for GatherBlockQuantized {
    const FORMS: Forms<'m, Self> =
        &[Spec::microsoft("GatherBlockQuantized", &["data", "indices", "scales", "zero_points?"])
            .reads(Self::read)];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let (data, indices) = (args.value("data")?, args.value("indices")?);
        let (scales, zeros) = (args.value("scales")?, args.optional("zero_points")?);
        let rank = to.rank(data);
        let [gather, quantize] = [axis_of(self.gather_axis, rank)?, axis_of(self.quantize_axis, rank)?];
        if gather == quantize {
            let what = "`gather_axis` and `quantize_axis` that are the same".to_owned();
            return Err(RuleError::Unsupported { what });
        }
        let (table, zeros) = match to.dtype(data) {
            // Zero points lie packed along the axis of the blocks, as the integers do.
            DType::U8 if quantize + 1 != rank => {
                let what = format!("packed integers whose blocks lie along axis {quantize} of {rank}");
                return Err(RuleError::Unsupported { what });
            }
            DType::U8 => {
                let table = self.integers(to, "data", data, None)?;
                let blocks = to.dims(scales).last().cloned();
                let zeros = match zeros {
                    Some(zeros) => self.integers(to, "zero_points", zeros, blocks)?,
                    None => to.number_like(table, self.bits.middle()),
                };
                (table, Some(zeros))
            }
            DType::I4 | DType::U4 => (data, zeros),
            actual => {
                let expected = "expected u8, i4 or u4".to_owned();
                return Err(RuleError::DType { input: "data".to_owned(), actual, expected });
            }
        };
        let wrapped = may_be_negative(to, indices);
        let mut rows = |x: ValueId| match to.rank(x) {
            0 => Ok(x),
            _ => to.add(Op::Take(op::Take { axis: gather, wrapped }), &[x, indices]),
        };
        let (table, scales, zeros) = (rows(table)?, rows(scales)?, zeros.map(rows).transpose()?);
        // The axes of the indices stand where the looked-up one was.
        let axis = if quantize > gather { quantize + to.rank(indices) - 1 } else { quantize };
        Ok(dequantized(to, table, scales, zeros, axis as i64, self.block)?.into())
    }
}

impl GatherBlockQuantized {
    /// The integers of a table of bytes, in whose last axis they lie packed: `last` of them, or as many as there are.
    fn integers(
        &self,
        to: &mut Lowering<'_, '_>,
        name: &str,
        packed: ValueId,
        last: Option<Dim>,
    ) -> RuleResult<ValueId> {
        let mut dims = to.dims(packed);
        let unknown = || RuleError::NotConstant { input: name.to_owned() };
        let bytes = dims.pop().ok_or_else(unknown)?;
        let last = last.unwrap_or_else(|| &bytes * &Dim::from(self.bits.per_byte()));
        let sizes = Dim::product(&dims).as_size().zip(last.as_size());
        let (rows, columns) = sizes.ok_or_else(unknown)?;
        let integers = unpacked(to, name, packed, self.bits, [rows, columns])?;
        dims.push(last);
        to.reshape(integers, dims)
    }
}
