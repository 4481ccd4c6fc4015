//! `QMoE`: a mixture of experts whose matrices are integers of a few bits, under a scale for each row or for each block of one.

use super::blocks::{Bits, block_size, unpacked};
use super::moe::{Matrices, Mixture};
use super::prelude::*;
use super::quantize_linear::dequantized;

pub(super) struct QMoe {
    mixture: Mixture,
    /// Of the three matrices.
    bits: [Bits; 3],
    /// Numbers of a row under one scale; `None` stands for all of them.
    block: Option<usize>,
}

impl QMoe {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        // How precise a kernel may be at least; what is computed here is as precise as the tokens.
        node.ignore(&["accuracy_level"]);
        let kind = node.string("quant_type", "int")?;
        if kind != "int" {
            let what = format!("`quant_type` \"{kind}\": experts of integers alone are imported");
            return Err(RuleError::Unsupported { what });
        }
        // Left out it means the layout that a provider takes, and a CPU takes this one.
        if node.int("weights_prepacked", -1)? == 1 {
            let what = "`weights_prepacked`, a layout of some GPUs' kernels".to_owned();
            return Err(RuleError::Unsupported { what });
        }
        let bits = Bits::read(node, "expert_weight_bits", Bits::Four)?;
        let names = ["fc1_expert_weight_bits", "fc2_expert_weight_bits", "fc3_expert_weight_bits"];
        let [first, second, third] = names.map(|name| Bits::read(node, name, bits));
        let block = match node.int("block_size", 0)? {
            ..=0 => None,
            _ => Some(block_size(node, None)?),
        };
        Ok(Self { mixture: Mixture::read(node)?, bits: [first?, second?, third?], block })
    }
}

impl<'m> Operator<'m> for QMoe {
    const FORMS: Forms<'m, Self> = &[Spec::microsoft(
        "QMoE",
        &[
            "input",
            "router_probs",
            "fc1_experts_weights",
            "fc1_scales",
            "fc1_experts_bias?",
            "fc2_experts_weights",
            "fc2_scales",
            "fc2_experts_bias?",
            "fc3_experts_weights?",
            "fc3_scales?",
            "fc3_experts_bias?",
            "fc1_zero_points?",
            "fc2_zero_points?",
            "fc3_zero_points?",
            "router_weights?",
        ],
    )
    .reads(Self::read)];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let sizes = self.mixture.sizes(args, to)?;
        let [first, second, third] = self.bits;
        let matrices = Matrices {
            first: self.matrices(args, to, "fc1", first)?,
            second: self.matrices(args, to, "fc2", second)?,
            third: match args.optional("fc3_experts_weights")? {
                Some(_) => Some(self.matrices(args, to, "fc3", third)?),
                None => None,
            },
            router_weights: args.optional("router_weights")?,
        };
        self.mixture.lower(args, to, sizes, matrices)
    }
}

impl QMoe {
    /// The floats `[experts, out, in]` that integers stand for.
    fn matrices(
        &self,
        args: &Args,
        to: &mut Lowering<'_, '_>,
        name: &str,
        bits: Bits,
    ) -> RuleResult<ValueId> {
        let weights = format!("{name}_experts_weights");
        let packed = args.value(&weights)?;
        to.expect_rank(&weights, packed, 3)?;
        let sizes: Option<Vec<usize>> = to.dims(packed).iter().map(Dim::as_size).collect();
        let Some([experts, rows, bytes]) = sizes.as_deref().and_then(|sizes| sizes.first_chunk().copied())
        else {
            return Err(RuleError::NotConstant { input: weights });
        };
        let too_large = || misfit(&weights, "has too many numbers");
        let columns = bytes.checked_mul(bits.per_byte()).ok_or_else(too_large)?;
        let all_rows = experts.checked_mul(rows).ok_or_else(too_large)?;
        let x = unpacked(to, &weights, packed, bits, [all_rows, columns])?;
        let blocks = match self.block {
            Some(block) if columns % block != 0 => {
                let reason = format!("is {block}, which does not divide rows of {columns} numbers");
                return Err(misfit("block_size", reason));
            }
            block => block.map(|block| columns / block),
        };
        let scales = format!("{name}_scales");
        let scale = args.value(&scales)?;
        let mut dims = [experts, rows].map(Dim::from).to_vec();
        let mut per_row = vec![Dim::from(all_rows)];
        for dims in [&mut dims, &mut per_row] {
            dims.extend(blocks.map(Dim::from));
        }
        to.expect_dims(&scales, scale, &dims.iter().cloned().map(Some).collect::<Vec<_>>())?;
        let scale = to.reshape(scale, per_row.clone())?;
        let zeros = format!("{name}_zero_points");
        let zero = match args.optional(&zeros)? {
            Some(zero) => {
                // Those of whole rows lie in bytes together for each expert, those of blocks for each row.
                let lines = blocks.map_or([experts, rows], |blocks| [all_rows, blocks]);
                let zero = unpacked(to, &zeros, zero, bits, lines)?;
                to.reshape(zero, per_row)?
            }
            None => to.number_like(x, bits.middle()),
        };
        let (axis, block) = self.block.map_or((0, 0), |block| (1, block));
        let x = dequantized(to, x, scale, Some(zero), axis, block)?;
        to.reshape(x, [experts, rows, columns].map(Dim::from).to_vec())
    }
}
