//! `EmbedLayerNormalization`: what BERT's tables hold of words, positions and segments, added and normalized. The tables and the
//! norm's parameters of `QEmbedLayerNormalization` are integers under scales.

use super::layer_normalization::layer_norm;
use super::prelude::*;
use super::quantization::Quantization;
use crate::ir::op;

pub(super) struct EmbedLayerNormalization {
    epsilon: f64,
    quantized: bool,
}

impl EmbedLayerNormalization {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        // Whether the mask's index is an output, which the outputs tell.
        node.ignore(&["mask_index_type"]);
        Ok(Self { epsilon: node.float("epsilon", 1e-12)?, quantized: false })
    }

    fn read_quantized(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self { epsilon: node.float("epsilon", 1e-12)?, quantized: true })
    }
}

impl<'m> Operator<'m> for EmbedLayerNormalization {
    const FORMS: Forms<'m, Self> = &[
        Spec::microsoft(
            "EmbedLayerNormalization",
            &[
                "input_ids",
                "segment_ids?",
                "word_embedding",
                "position_embedding",
                "segment_embedding?",
                "gamma",
                "beta",
                "mask?",
                "position_ids?",
            ],
        )
        .reads(Self::read),
        Spec::microsoft(
            "QEmbedLayerNormalization",
            &[
                "input_ids",
                "segment_ids?",
                "word_embedding",
                "position_embedding",
                "segment_embedding?",
                "gamma",
                "beta",
                "mask?",
                "word_embedding_scale",
                "position_embedding_scale",
                "segment_embedding_scale?",
                "gamma_scale",
                "beta_scale",
                "word_embedding_zero_point",
                "position_embedding_zero_point",
                "segment_embedding_zero_point?",
                "gamma_zero_point",
                "beta_zero_point",
            ],
        )
        .reads(Self::read_quantized),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let ids = args.value("input_ids")?;
        let dims = to.dims(ids);
        let [batch, seq] = dims.as_slice() else {
            let expected = "expected 2".to_owned();
            return Err(RuleError::Rank { input: "input_ids".to_owned(), actual: dims.len(), expected });
        };
        // Rows are taken of a table of integers before these are made numbers: the table is larger.
        let take = |to: &mut Lowering<'_, '_>, name: &str, rows: ValueId| {
            let rows = to.add(Op::Take(op::Take { axis: 0, wrapped: false }), &[args.value(name)?, rows])?;
            self.numbers(args, to, name, rows)
        };
        let words = take(to, "word_embedding", ids)?;
        let positions = match args.optional("position_ids")? {
            Some(rows) => take(to, "position_embedding", rows)?,
            None => {
                let table = args.value("position_embedding")?;
                let rows = to.slice(table, 0, Dim::constant(0), seq.clone())?;
                self.numbers(args, to, "position_embedding", rows)?
            }
        };
        let mut sum = to.binary(BinaryOp::Add, words, positions)?;
        if let Some(rows) = args.optional("segment_ids")? {
            let segments = take(to, "segment_embedding", rows)?;
            sum = to.binary(BinaryOp::Add, sum, segments)?;
        }
        let mut parameter = |name: &str| self.numbers(args, to, name, args.value(name)?);
        let (gamma, beta) = (parameter("gamma")?, parameter("beta")?);
        let mut outputs = layer_norm(to, sum, gamma, beta, self.epsilon)?;
        // The number of words that each entry has.
        let count = match args.optional("mask")? {
            Some(mask) => {
                let one = to.number_like(mask, 1);
                let words = to.compare(CompareOp::Equal, mask, one)?;
                let words = to.cast(words, DType::I32)?;
                to.reduce(ReduceOp::Sum, words, &[1], false)?
            }
            None => to.fill(vec![batch.clone()], 0, DType::I32)?,
        };
        outputs.0.extend([count, sum].map(Operand::Tensor));
        Ok(outputs)
    }
}

impl EmbedLayerNormalization {
    /// What `values` of the input `name` stand for.
    fn numbers(
        &self,
        args: &Args,
        to: &mut Lowering<'_, '_>,
        name: &str,
        values: ValueId,
    ) -> RuleResult<ValueId> {
        if !self.quantized {
            return Ok(values);
        }
        let [scale, zero] = [format!("{name}_scale"), format!("{name}_zero_point")];
        let quantization = Quantization::read(args, to, to.dtype(values), [&scale, &zero])?;
        to.formula(|f| quantization.numbers(f, values))
    }
}
