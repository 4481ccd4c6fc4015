//! `Attention`: scaled-dot-product attention, with heads in an axis of their own or in the last one.

use super::heads::{positions, without_heads};
use super::prelude::*;
use crate::ir::op;
use kiln_types::{Activation, AttentionOptions, FullyMasked, PadMode};

pub(super) struct Attention {
    options: AttentionOptions,
    q_heads: Option<i64>,
    kv_heads: Option<i64>,
    /// Keys before and after a query's position that it may see; negative is all.
    window: [i64; 2],
    present: bool,
    /// Which stage of the scores is an output too.
    scores: Option<i64>,
}

/// Where queries stand among keys.
struct Places {
    /// Keys before the first query.
    past: Dim,
    /// Number of keys of each batch entry that are no padding.
    valid: Option<ValueId>,
}

impl Attention {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        // The backend decides in what precision it computes the softmax.
        node.ignore(&["softmax_precision"]);
        let softcap = node.float("softcap", 0.0)?;
        let options = AttentionOptions {
            scale: node.optional_float("scale")?,
            is_causal: node.flag("is_causal", false)?,
            softcap: (softcap != 0.0).then_some(softcap),
            fully_masked: None,
        };
        let stage = node.int("qk_matmul_output_mode", 0)?;
        if !(0..=3).contains(&stage) {
            return Err(invalid("qk_matmul_output_mode", format!("is {stage}, must be 0 to 3")));
        }
        Ok(Self {
            options,
            q_heads: node.optional_int("q_num_heads")?,
            kv_heads: node.optional_int("kv_num_heads")?,
            window: [node.int("left_window_size", -1)?, node.int("right_window_size", -1)?],
            present: node.output_count() > 1,
            scores: node.is_read(3).then_some(stage),
        })
    }
}

impl<'m> Operator<'m> for Attention {
    const FORMS: Forms<'m, Self> = &[Spec::onnx(
        "Attention",
        23,
        &["Q", "K", "V", "attn_mask?", "past_key?", "past_value?", "nonpad_kv_seqlen?"],
    )
    .reads(Self::read)];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let (q, k, v) = (args.value("Q")?, args.value("K")?, args.value("V")?);
        let flat = to.rank(q) == 3;
        let q = heads(to, "Q", q, self.q_heads, "q_num_heads")?;
        let mut k = heads(to, "K", k, self.kv_heads, "kv_num_heads")?;
        let mut v = heads(to, "V", v, self.kv_heads, "kv_num_heads")?;
        let mut places = Places { past: Dim::constant(0), valid: args.optional("nonpad_kv_seqlen")? };
        if let (Some(past_key), Some(past_value)) = (args.optional("past_key")?, args.optional("past_value")?)
        {
            let actual = to.rank(past_key);
            if actual != 4 {
                let expected = "expected 4".to_owned();
                return Err(RuleError::Rank { input: "past_key".to_owned(), actual, expected });
            }
            places.past = to.dims(past_key)[2].clone();
            k = to.concat(&[past_key, k], 2)?;
            v = to.concat(&[past_value, v], 2)?;
        }
        let mut options = self.options;
        let mut mask = args.optional("attn_mask")?.map(|mask| full_mask(to, mask, q, k)).transpose()?;
        let unbounded = self.window.iter().all(|&size| size < 0);
        let square = to.dims(q)[2] == to.dims(k)[2] && places.past.is(0) && places.valid.is_none();
        if !(unbounded && square && mask.is_none() && self.scores.is_none()) {
            // The operator counts from the first key; the backend's flag aligns the triangle at the last one.
            options.is_causal = false;
            if let Some(allowed) = self.allowed(to, q, k, &places)? {
                mask = Some(both(to, allowed, mask)?);
            }
        }
        let mut outputs = match self.scores {
            Some(stage) => composed(to, [q, k, v], mask, &options, stage)?.to_vec(),
            None => {
                let mut inputs = vec![Some(q), Some(k), Some(v)];
                inputs.extend(mask.map(Some));
                // A query to which the mask leaves no key yields zeros.
                if mask.is_some_and(|mask| to.dtype(mask).is_float()) {
                    options.fully_masked = Some(FullyMasked::Zeros);
                }
                to.builder.add_all(Op::Attention(options), inputs)?
            }
        };
        if let (true, Some(y)) = (flat, outputs.first_mut()) {
            *y = without_heads(to, *y)?;
        }
        if self.present {
            outputs.splice(1..1, [k, v]);
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

/// A mask of rank 4 in the queries' dtype (or bool), long enough for all keys: those beyond it are hidden.
fn full_mask(to: &mut Lowering<'_, '_>, mask: ValueId, q: ValueId, k: ValueId) -> RuleResult<ValueId> {
    let dtype = to.dtype(q);
    let mask = if to.dtype(mask).is_float() { to.cast(mask, dtype)? } else { mask };
    let mask = to.with_rank(mask, 4)?;
    let keys = to.dims(k)[2].clone();
    let missing = (&keys - &to.dims(mask)[3]).as_constant().unwrap_or(0);
    if missing <= 0 || to.dims(mask)[3].is(1) {
        return Ok(mask);
    }
    let mut padding = vec![(Dim::constant(0), Dim::constant(0)); 4];
    padding[3].1 = Dim::constant(missing);
    let value = if to.dtype(mask).is_bool() { Scalar::Bool(false) } else { Scalar::Float(f64::NEG_INFINITY) };
    to.add(Op::Pad(op::Pad { padding, mode: PadMode::Constant, value }), &[mask])
}

impl Attention {
    /// True where a query may see a key, by position; `None` when it may see all.
    fn allowed(
        &self,
        to: &mut Lowering<'_, '_>,
        q: ValueId,
        k: ValueId,
        places: &Places,
    ) -> RuleResult<Option<ValueId>> {
        let one = Dim::constant(1);
        let (rows, columns) = (to.dims(q)[2].clone(), to.dims(k)[2].clone());
        let past = &places.past;
        let mut row = positions(to, 2, past.clone(), past + &rows)?;
        let column = positions(to, 3, Dim::constant(0), columns)?;
        let mut rules = Vec::new();
        if let Some(valid) = places.valid {
            let valid = to.cast(valid, DType::I64)?;
            let batch = to.ty(valid).num_elements();
            let valid = to.reshape(valid, vec![batch, one.clone(), one.clone(), one])?;
            rules.push(to.compare(CompareOp::Lower, column, valid)?);
            if past.is(0) {
                // The queries are the last of the valid keys.
                let count = to.builder.host_tensor(vec![rows], Vec::new())?;
                let offset = to.binary(BinaryOp::Sub, valid, count)?;
                row = to.binary(BinaryOp::Add, row, offset)?;
            }
        }
        if self.options.is_causal {
            rules.push(to.compare(CompareOp::LowerEqual, column, row)?);
        }
        let [left, right] = self.window;
        if left >= 0 {
            let left = to.scalar(left, DType::I64);
            let first = to.binary(BinaryOp::Sub, row, left)?;
            rules.push(to.compare(CompareOp::GreaterEqual, column, first)?);
        }
        if right >= 0 {
            let right = to.scalar(right, DType::I64);
            let last = to.binary(BinaryOp::Add, row, right)?;
            rules.push(to.compare(CompareOp::LowerEqual, column, last)?);
        }
        all_of(to, rules)
    }
}

/// Where all rules hold; `None` where there are none.
pub(super) fn all_of(
    to: &mut Lowering<'_, '_>,
    rules: impl IntoIterator<Item = ValueId>,
) -> RuleResult<Option<ValueId>> {
    let mut rules = rules.into_iter();
    let Some(first) = rules.next() else { return Ok(None) };
    rules.try_fold(first, |before, rule| to.binary(BinaryOp::And, before, rule)).map(Some)
}

/// The positions' mask and another one, which may be additive.
pub(super) fn both(
    to: &mut Lowering<'_, '_>,
    allowed: ValueId,
    mask: Option<ValueId>,
) -> RuleResult<ValueId> {
    let Some(mask) = mask else {
        return Ok(allowed);
    };
    if to.dtype(mask).is_bool() {
        return to.binary(BinaryOp::And, allowed, mask);
    }
    let hidden = to.number_like(mask, f64::NEG_INFINITY);
    to.select(allowed, mask, hidden)
}

/// Step by step, for the scores are an output: the result and the scores after a stage.
pub(super) fn composed(
    to: &mut Lowering<'_, '_>,
    [q, k, v]: [ValueId; 3],
    mask: Option<ValueId>,
    options: &AttentionOptions,
    stage: i64,
) -> RuleResult<[ValueId; 2]> {
    let unknown = || RuleError::NotConstant { input: "the size of a head".to_owned() };
    let size = to.dims(q)[3].as_size().filter(|&size| size > 0);
    let scale = match options.scale {
        Some(scale) => scale,
        None => 1.0 / (size.ok_or_else(unknown)? as f64).sqrt(),
    };
    let (k, v) = (per_query_head(to, k, q)?, per_query_head(to, v, q)?);
    let keys = to.permute(k, vec![0, 1, 3, 2])?;
    let product = to.add(Op::MatMul, &[q, keys])?;
    let mut scores = to.formula(|f| f.value(product) * scale)?;
    let mut stages = vec![scores];
    if let Some(cap) = options.softcap {
        scores = to.formula(|f| (f.value(scores) / cap).activation(Activation::Tanh) * cap)?;
    }
    stages.push(scores);
    if let Some(mask) = mask {
        scores = if to.dtype(mask).is_bool() {
            let hidden = to.number_like(scores, f64::NEG_INFINITY);
            to.select(mask, scores, hidden)?
        } else {
            to.binary(BinaryOp::Add, scores, mask)?
        };
    }
    stages.push(scores);
    let weights = to.add(Op::Softmax(op::Softmax { axis: 3 }), &[scores])?;
    // A query that sees no key yields zeros.
    let weights = to.formula(|f| {
        let [scores, weights] = f.values([scores, weights]);
        let blind = scores.reduce(ReduceOp::Max, &[3]).equals(f64::NEG_INFINITY);
        blind.where_(scores.number(0.0), weights)
    })?;
    stages.push(weights);
    let y = to.add(Op::MatMul, &[weights, v])?;
    let shown = usize::try_from(stage).ok().and_then(|stage| stages.get(stage).copied());
    Ok([y, shown.unwrap_or(scores)])
}

/// Keys or values for each query head: those of a group share one.
fn per_query_head(to: &mut Lowering<'_, '_>, x: ValueId, q: ValueId) -> RuleResult<ValueId> {
    let (have, want) = (to.dims(x)[1].clone(), to.dims(q)[1].clone());
    if have == want {
        return Ok(x);
    }
    let group = want.floor_div(&have);
    let mut dims = to.dims(x);
    let column = to.unsqueeze(x, &[2])?;
    let mut wide = to.dims(column);
    wide[2] = group;
    let wide = to.expand(column, wide)?;
    dims[1] = want;
    to.reshape(wide, dims)
}
