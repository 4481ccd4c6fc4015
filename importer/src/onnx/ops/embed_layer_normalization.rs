//! `EmbedLayerNormalization`: what BERT's tables hold of words, positions and segments, added and normalized.

use super::layer_normalization::layer_norm;
use super::prelude::*;
use crate::ir::op;

pub(super) struct EmbedLayerNormalization {
    epsilon: f64,
}

impl EmbedLayerNormalization {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        // Whether the mask's index is an output, which the outputs tell.
        node.ignore(&["mask_index_type"]);
        Ok(Self { epsilon: node.float("epsilon", 1e-12)? })
    }
}

impl<'m> Operator<'m> for EmbedLayerNormalization {
    const FORMS: Forms<'m, Self> = &[Spec::microsoft(
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
    .reads(Self::read)];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let ids = args.value("input_ids")?;
        let dims = to.dims(ids);
        let [batch, seq] = dims.as_slice() else {
            let expected = "expected 2".to_owned();
            return Err(RuleError::Rank { input: "input_ids".to_owned(), actual: dims.len(), expected });
        };
        let take = |to: &mut Lowering<'_, '_>, table: ValueId, rows: ValueId| {
            to.add(Op::Take(op::Take { axis: 0, wrapped: false }), &[table, rows])
        };
        let words = take(to, args.value("word_embedding")?, ids)?;
        let table = args.value("position_embedding")?;
        let positions = match args.optional("position_ids")? {
            Some(rows) => take(to, table, rows)?,
            None => to.slice(table, 0, Dim::constant(0), seq.clone())?,
        };
        let mut sum = to.binary(BinaryOp::Add, words, positions)?;
        if let Some(rows) = args.optional("segment_ids")? {
            let segments = take(to, args.value("segment_embedding")?, rows)?;
            sum = to.binary(BinaryOp::Add, sum, segments)?;
        }
        let mut outputs = layer_norm(to, sum, args.value("gamma")?, args.value("beta")?, self.epsilon)?;
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
