//! `Attention`: scaled-dot-product attention, with heads in an axis of their own or in the last one.

use super::super::lowering::Lowering;
use super::super::node::{SourceNode, invalid};
use super::super::operator::{Args, Operator, Outputs, Spec};
use crate::ir::{Dim, Op, RuleError, RuleResult, ValueId};
use kiln_types::{AttentionOptions, BinaryOp, CompareOp};

pub(super) struct Attention {
    options: AttentionOptions,
    q_heads: Option<i64>,
    kv_heads: Option<i64>,
    present: bool,
}

impl Operator<'_> for Attention {
    const SPECS: &'static [Spec] =
        &[Spec::onnx("Attention", 23, &["Q", "K", "V", "attn_mask?", "past_key?", "past_value?"])];

    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        // The backend decides in what precision it computes the softmax.
        node.ignore(&["softmax_precision", "qk_matmul_output_mode"]);
        if node.yields(3) {
            return Err(RuleError::Unsupported { what: "the scores of Attention as an output".to_owned() });
        }
        let softcap = node.float("softcap", 0.0)?;
        let options = AttentionOptions {
            scale: node.optional_float("scale")?,
            is_causal: node.flag("is_causal", false)?,
            softcap: (softcap != 0.0).then_some(softcap),
        };
        Ok(Self {
            options,
            q_heads: node.optional_int("q_num_heads")?,
            kv_heads: node.optional_int("kv_num_heads")?,
            present: node.yields(1) || node.yields(2),
        })
    }

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let (q, k, v) = (args.value("Q")?, args.value("K")?, args.value("V")?);
        let flat = to.rank(q) == 3;
        let q = heads(to, "Q", q, self.q_heads, "q_num_heads")?;
        let mut k = heads(to, "K", k, self.kv_heads, "kv_num_heads")?;
        let mut v = heads(to, "V", v, self.kv_heads, "kv_num_heads")?;
        let mut past = Dim::constant(0);
        if let (Some(past_key), Some(past_value)) = (args.optional("past_key")?, args.optional("past_value")?)
        {
            let actual = to.rank(past_key);
            if actual != 4 {
                let expected = "expected 4".to_owned();
                return Err(RuleError::Rank { input: "past_key".to_owned(), actual, expected });
            }
            past = to.dims(past_key)[2].clone();
            k = to.concat(&[past_key, k], 2)?;
            v = to.concat(&[past_value, v], 2)?;
        }
        let mut options = self.options;
        let mut mask = args.optional("attn_mask")?;
        if options.is_causal && (mask.is_some() || to.dims(q)[2] != to.dims(k)[2]) {
            // The operator aligns the triangle at the first key; the backend's flag at the last one.
            let causal = causal(to, q, k, &past)?;
            mask = Some(both(to, causal, mask)?);
            options.is_causal = false;
        }
        let mut inputs = vec![Some(q), Some(k), Some(v)];
        if let Some(mask) = mask {
            inputs.push(Some(to.with_rank(mask, 4)?));
        }
        let mut outputs = to.builder.add_all(Op::Attention(options), inputs)?;
        if flat {
            for y in &mut outputs {
                let moved = to.permute(*y, vec![0, 2, 1, 3])?;
                let dims = to.dims(moved);
                *y = to.reshape(moved, vec![dims[0].clone(), dims[1].clone(), &dims[2] * &dims[3]])?;
            }
        }
        if self.present {
            outputs.extend([k, v]);
        }
        Ok(outputs.into())
    }
}

/// `[batch, seq, heads · size]` to `[batch, heads, seq, size]`.
fn heads(
    to: &mut Lowering<'_, '_>,
    name: &str,
    x: ValueId,
    count: Option<i64>,
    attribute: &str,
) -> RuleResult<ValueId> {
    let dims = to.dims(x);
    match dims.as_slice() {
        [_, _, _, _] => Ok(x),
        [batch, seq, width] => {
            let count = count.filter(|&count| count > 0).ok_or_else(|| invalid(attribute, "is missing"))?;
            let count = Dim::constant(count);
            let split = vec![batch.clone(), seq.clone(), count.clone(), width.floor_div(&count)];
            let split = to.reshape(x, split)?;
            to.permute(split, vec![0, 2, 1, 3])
        }
        _ => Err(RuleError::Rank {
            input: name.to_owned(),
            actual: dims.len(),
            expected: "expected 3 or 4".to_owned(),
        }),
    }
}

/// True where a key does not come after its query, the first `past` keys before all.
fn causal(to: &mut Lowering<'_, '_>, q: ValueId, k: ValueId, past: &Dim) -> RuleResult<ValueId> {
    let (rows, columns) = (to.dims(q)[2].clone(), to.dims(k)[2].clone());
    let row = to.add(Op::Arange { start: past.clone(), end: past + &rows, step: 1 }, &[])?;
    let row = to.reshape(row, vec![Dim::constant(1), Dim::constant(1), rows, Dim::constant(1)])?;
    let column = to.add(Op::Arange { start: Dim::constant(0), end: columns.clone(), step: 1 }, &[])?;
    let column = to.reshape(column, vec![Dim::constant(1), Dim::constant(1), Dim::constant(1), columns])?;
    to.compare(CompareOp::GreaterEqual, row, column)
}

/// The causal mask and another one, which may be additive.
fn both(to: &mut Lowering<'_, '_>, causal: ValueId, mask: Option<ValueId>) -> RuleResult<ValueId> {
    let Some(mask) = mask else {
        return Ok(causal);
    };
    if to.dtype(mask).is_bool() {
        return to.binary(BinaryOp::And, causal, mask);
    }
    let hidden = to.number_like(mask, f64::NEG_INFINITY);
    to.select(causal, mask, hidden)
}
