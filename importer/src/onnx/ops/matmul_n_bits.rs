//! `MatMulNBits`: a product whose right side is of integers of a few bits, under a scale and a zero point for each block.

use super::blocks::{Bits, block_size, unpacked};
use super::matmul::product;
use super::prelude::*;
use super::quantize_linear::dequantized;

pub(super) struct MatMulNBits {
    bits: Bits,
    block: usize,
    /// Numbers that are summed over.
    depth: usize,
    columns: usize,
}

impl MatMulNBits {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        // How precise a kernel may be at least; what is computed here is as precise as the left side.
        node.ignore(&["accuracy_level"]);
        if node.int("weight_prepacked", 0)? != 0 {
            let what = "`weight_prepacked`, a layout of some GPUs' kernels".to_owned();
            return Err(RuleError::Unsupported { what });
        }
        let mut size = |name: &str| {
            let size = node.required_int(name)?;
            let fits = usize::try_from(size).ok().filter(|&size| size > 0 && size <= i32::MAX as usize);
            fits.ok_or_else(|| invalid(name, format!("is {size}, must be the size of an axis")))
        };
        let (depth, columns) = (size("K")?, size("N")?);
        Ok(Self {
            bits: Bits::read(node, "bits", Bits::Four)?,
            block: block_size(node, None)?,
            depth,
            columns,
        })
    }
}

impl<'m> Operator<'m> for MatMulNBits {
    const FORMS: Forms<'m, Self> =
        &[Spec::microsoft("MatMulNBits", &["A", "B", "scales", "zero_points?", "g_idx?", "bias?"])
            .reads(Self::read)];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        if args.optional("g_idx")?.is_some() {
            let what = "`g_idx`, which puts rows of the weight into other blocks than their own".to_owned();
            return Err(RuleError::Unsupported { what });
        }
        let a = args.value("A")?;
        let (columns, blocks) = (self.columns, self.depth.div_ceil(self.block));
        let rows =
            columns.checked_mul(blocks).ok_or_else(|| invalid("N", format!("is {columns}, too large")))?;
        let weight = unpacked(to, "B", args.value("B")?, self.bits, [rows, self.block])?;
        let whole = &Dim::from(blocks) * &Dim::from(self.block);
        let weight = to.reshape(weight, vec![Dim::from(columns), whole])?;
        let scales = self.one_each(to, "scales", args.value("scales")?, a, blocks)?;
        let zero = match args.optional("zero_points")? {
            Some(zero) if to.dtype(zero).is_float() => self.one_each(to, "zero_points", zero, a, blocks)?,
            Some(zero) => unpacked(to, "zero_points", zero, self.bits, [columns, blocks])?,
            None => to.number_like(weight, self.bits.middle()),
        };
        let weight = dequantized(to, weight, scales, Some(zero), 1, self.block)?;
        let weight = to.slice(weight, 1, Dim::constant(0), Dim::from(self.depth))?;
        let weight = to.permute(weight, vec![1, 0])?;
        let y = product(to, a, weight)?;
        Ok(match args.optional("bias")? {
            Some(bias) => to.binary(BinaryOp::Add, y, bias)?,
            None => y,
        }
        .into())
    }
}

impl MatMulNBits {
    /// A parameter of the left side's dtype, one number a block: `[columns, blocks]`. Some files have it without axes.
    fn one_each(
        &self,
        to: &mut Lowering<'_, '_>,
        name: &str,
        parameter: ValueId,
        a: ValueId,
        blocks: usize,
    ) -> RuleResult<ValueId> {
        let (ty, expected) = (to.ty(parameter), to.dtype(a));
        if ty.dtype != expected {
            let expected = format!("expected {expected}, that of `A`");
            return Err(RuleError::DType { input: name.to_owned(), actual: ty.dtype, expected });
        }
        let dims = vec![Dim::from(self.columns), Dim::from(blocks)];
        if ty.num_elements() != Dim::product(&dims) {
            let reason = format!("is {ty}, must have {blocks} numbers for each of {} columns", self.columns);
            return Err(invalid(name, reason));
        }
        to.reshape(parameter, dims)
    }
}
