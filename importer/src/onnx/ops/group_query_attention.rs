//! `GroupQueryAttention`: causal attention over a cache of keys and values that grows, or has room for all there will be.
//!
//! How many keys each batch entry has, the run tells (`seqlens_k`, one less than that). New keys and values go behind the
//! entry's old ones, and a query sees what is not behind its own position.

use super::attention::{all_of, both};
use super::heads::{dims_of, head_count, positions, scaled, split_heads, together, without_heads};
use super::prelude::*;
use super::rotary_embedding::rotated_by;
use crate::ir::op;
use kiln_types::{AttentionOptions, PadMode, ScatterOp};

pub(super) struct GroupQueryAttention {
    heads: i64,
    kv_heads: i64,
    options: AttentionOptions,
    causal: bool,
    /// Keys that a query sees at most, its own among them.
    window: Option<i64>,
    /// Whether queries and keys are turned, and whether pairs of features lie beside each other then.
    rotary: Option<bool>,
    /// Whether the softmax has a 1 more to divide by.
    smooth: bool,
}

impl GroupQueryAttention {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        // What it says of a cache of floats is nothing.
        node.ignore(&["kv_cache_bit_width", "qk_norm_epsilon"]);
        for name in ["k_quant_type", "v_quant_type"] {
            node.choice(name, "NONE", &[("NONE", ())])?;
        }
        let unsupported = |what: &str| Err(RuleError::Unsupported { what: what.to_owned() });
        if node.int("qk_output", 0)? != 0 || node.is_read(3) {
            return unsupported("the scores as an output");
        }
        if node.flag("sliding_window_cache", false)? {
            return unsupported("`sliding_window_cache`, a cache that drops old keys");
        }
        let (heads, kv_heads) = (head_count(node, "num_heads")?, head_count(node, "kv_num_heads")?);
        if heads % kv_heads != 0 {
            return Err(invalid("kv_num_heads", format!("is {kv_heads}, of which {heads} is no multiple")));
        }
        let softcap = node.float("softcap", 0.0)?;
        let interleaved = node.flag("rotary_interleaved", false)?;
        Ok(Self {
            heads,
            kv_heads,
            options: AttentionOptions { softcap: (softcap > 0.0).then_some(softcap), ..scaled(node)? },
            causal: node.flag("causal", true)?,
            window: Some(node.int("local_window_size", -1)?).filter(|&window| window > 0),
            rotary: node.flag("do_rotary", false)?.then_some(interleaved),
            smooth: node.int("smooth_softmax", -1)? == 1,
        })
    }
}

impl<'m> Operator<'m> for GroupQueryAttention {
    const FORMS: Forms<'m, Self> = &[Spec::microsoft(
        "GroupQueryAttention",
        &[
            "query",
            "key?",
            "value?",
            "past_key?",
            "past_value?",
            "seqlens_k",
            "total_sequence_length",
            "cos_cache?",
            "sin_cache?",
            "position_ids?",
            "attention_bias?",
            "head_sink?",
            "k_scale?",
            "v_scale?",
            "q_norm_weight?",
            "k_norm_weight?",
        ],
    )
    .reads(Self::read)];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        for name in ["k_scale", "v_scale", "q_norm_weight", "k_norm_weight"] {
            if args.optional(name)?.is_some() {
                return Err(RuleError::Unsupported { what: format!("the input `{name}`") });
            }
        }
        let [mut q, mut k, mut v] = self.projections(args, to)?;
        let past = together(args, ["past_key", "past_value"])?;
        let [batch, _, rows, _] = dims_of(to, q)?;
        let one = || Dim::constant(1);
        let lengths = to.cast(args.value("seqlens_k")?, DType::I64)?;
        let lengths = to.reshape(lengths, vec![batch.clone(), one(), one(), one()])?;
        // The position of each query, `[batch or 1, 1, rows, 1]`: they are the last that their entry has. Of a first prompt
        // shorter entries end in padding.
        let mut row = positions(to, 2, Dim::constant(0), rows.clone())?;
        if past.is_some() {
            let from_last = positions(to, 2, &one() - &rows, one())?;
            row = to.formula(|f| (f.value(lengths) + f.value(from_last)).max(f.value(row)))?;
        }
        if let Some(interleaved) = self.rotary {
            let angles = self.angles(args, to, (row, past.is_some()), [&batch, &rows])?;
            q = rotated_by(to, q, angles, interleaved)?;
            k = rotated_by(to, k, angles, interleaved)?;
        }
        if let Some([past_key, past_value]) = past {
            let total = to.host_integer(args.value("total_sequence_length")?, "total_sequence_length")?;
            k = cached(to, ("past_key", past_key), k, row, &total)?;
            v = cached(to, ("past_value", past_value), v, row, &total)?;
        }
        let [_, _, columns, _] = dims_of(to, k)?;
        let mut options = self.options;
        let bias = args.optional("attention_bias")?;
        let sink = args.optional("head_sink")?;
        let plain = bias.is_none() && sink.is_none() && !self.smooth && self.window.is_none();
        let mut mask = None;
        if plain && self.causal && past.is_none() {
            options.is_causal = true;
        } else {
            let allowed = self.allowed(to, row, &columns, lengths)?;
            let bias = bias.map(|bias| padded(to, "attention_bias", bias, q, &columns)).transpose()?;
            mask = Some(both(to, allowed, bias)?);
        }
        let (mut keys, mut values) = (k, v);
        if let Some(allowed) = mask.filter(|_| sink.is_some() || self.smooth) {
            mask = Some(self.with_sink(to, allowed, sink, [q, k])?);
            for x in [&mut keys, &mut values] {
                *x = pad_end(to, *x, 2, one())?;
            }
        }
        let mut inputs = vec![q, keys, values];
        inputs.extend(mask);
        let y = to.add(Op::Attention(options), &inputs)?;
        Ok(vec![without_heads(to, y)?, k, v].into())
    }
}

impl GroupQueryAttention {
    /// Queries, keys and values with their heads: of an input each, or side by side in one.
    fn projections(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<[ValueId; 3]> {
        let query = args.value("query")?;
        if let Some([key, value]) = together(args, ["key", "value"])? {
            return Ok([
                split_heads(to, "query", query, self.heads)?,
                split_heads(to, "key", key, self.kv_heads)?,
                split_heads(to, "value", value, self.kv_heads)?,
            ]);
        }
        let all = split_heads(to, "query", query, self.heads + 2 * self.kv_heads)?;
        let ends =
            [0, self.heads, self.heads + self.kv_heads, self.heads + 2 * self.kv_heads].map(Dim::constant);
        let [start, keys, values, end] = ends;
        Ok([
            to.slice(all, 1, start, keys.clone())?,
            to.slice(all, 1, keys, values.clone())?,
            to.slice(all, 1, values, end)?,
        ])
    }

    /// Cosines and sines of each position: `[batch or 1, 1, rows, half]`.
    fn angles(
        &self,
        args: &Args,
        to: &mut Lowering<'_, '_>,
        (row, follows): (ValueId, bool),
        [batch, rows]: [&Dim; 2],
    ) -> RuleResult<[ValueId; 2]> {
        let caches = together(args, ["cos_cache", "sin_cache"])?
            .ok_or_else(|| RuleError::MissingInput { input: "cos_cache".to_owned() })?;
        let places = match args.optional("position_ids")? {
            Some(given) => Some(given),
            None if follows => Some(to.reshape(row, vec![batch.clone(), rows.clone()])?),
            None => None,
        };
        let mut angles = caches;
        for (name, angle) in ["cos_cache", "sin_cache"].into_iter().zip(&mut angles) {
            let actual = to.rank(*angle);
            if actual != 2 {
                let expected = "expected 2".to_owned();
                return Err(RuleError::Rank { input: name.to_owned(), actual, expected });
            }
            let found = match places {
                Some(places) => to.add(Op::Take(op::Take { axis: 0, wrapped: false }), &[*angle, places])?,
                None => {
                    let first = to.slice(*angle, 0, Dim::constant(0), rows.clone())?;
                    to.with_rank(first, 3)?
                }
            };
            *angle = to.unsqueeze(found, &[1])?;
        }
        Ok(angles)
    }

    /// True where a query may see a key.
    fn allowed(
        &self,
        to: &mut Lowering<'_, '_>,
        row: ValueId,
        columns: &Dim,
        lengths: ValueId,
    ) -> RuleResult<ValueId> {
        let column = positions(to, 3, Dim::constant(0), columns.clone())?;
        let first = match self.causal {
            true => to.compare(CompareOp::LowerEqual, column, row)?,
            false => to.compare(CompareOp::LowerEqual, column, lengths)?,
        };
        let Some(window) = self.window else { return Ok(first) };
        let window = to.scalar(window, DType::I64);
        let before = to.binary(BinaryOp::Sub, row, window)?;
        let near = to.compare(CompareOp::Greater, column, before)?;
        Ok(all_of(to, [first, near])?.unwrap_or(first))
    }

    /// A mask of one key more, whose score is each head's own: what it takes of the softmax, nothing gets.
    fn with_sink(
        &self,
        to: &mut Lowering<'_, '_>,
        mask: ValueId,
        sink: Option<ValueId>,
        [q, k]: [ValueId; 2],
    ) -> RuleResult<ValueId> {
        let (dtype, [batch, heads, rows, _]) = (to.dtype(q), dims_of(to, q)?);
        let [_, _, columns, _] = dims_of(to, k)?;
        let mask = match to.dtype(mask).is_bool() {
            true => {
                let [seen, hidden] = [0.0, f64::NEG_INFINITY].map(|number| to.scalar(number, dtype));
                to.select(mask, seen, hidden)?
            }
            false => mask,
        };
        let mask = to.expand(mask, vec![batch.clone(), heads.clone(), rows.clone(), columns])?;
        let dims = vec![batch, heads.clone(), rows, Dim::constant(1)];
        let column = match sink {
            Some(sink) => {
                let sink = to.cast(sink, dtype)?;
                let sink =
                    to.reshape(sink, vec![Dim::constant(1), heads, Dim::constant(1), Dim::constant(1)])?;
                to.expand(sink, dims)?
            }
            None => to.fill(dims, 0.0, dtype)?,
        };
        to.concat(&[mask, column], 3)
    }
}

/// A cache into which the new entries are written, at their positions. It is as long as it was, or as all that there is now.
fn cached(
    to: &mut Lowering<'_, '_>,
    (name, past): (&str, ValueId),
    new: ValueId,
    row: ValueId,
    total: &Dim,
) -> RuleResult<ValueId> {
    let dims = to.dims(past);
    let [_, _, length, _] = dims.as_slice() else {
        let expected = "expected 4".to_owned();
        return Err(RuleError::Rank { input: name.to_owned(), actual: dims.len(), expected });
    };
    let longer = &length.maximum(total) - length;
    let room = pad_end(to, past, 2, longer)?;
    let places = to.expand(row, to.dims(new))?;
    to.add(Op::Scatter(op::Scatter { axis: 2, op: ScatterOp::Assign }), &[room, places, new])
}

/// What is added to scores, for each of so many keys; those that it does not reach are hidden anyway.
fn padded(
    to: &mut Lowering<'_, '_>,
    name: &str,
    bias: ValueId,
    q: ValueId,
    columns: &Dim,
) -> RuleResult<ValueId> {
    let actual = to.rank(bias);
    if actual != 4 {
        let expected = "expected 4".to_owned();
        return Err(RuleError::Rank { input: name.to_owned(), actual, expected });
    }
    let bias = to.cast(bias, to.dtype(q))?;
    let [_, _, _, given] = dims_of(to, bias)?;
    pad_end(to, bias, 3, columns - &given)
}

/// So many zeros at the end of an axis.
fn pad_end(to: &mut Lowering<'_, '_>, x: ValueId, axis: usize, count: Dim) -> RuleResult<ValueId> {
    if count.is(0) {
        return Ok(x);
    }
    let mut padding = vec![(Dim::constant(0), Dim::constant(0)); to.rank(x)];
    let rank = padding.len();
    let of_axis = padding.get_mut(axis).ok_or(RuleError::Axis { axis: axis as i64, rank })?;
    of_axis.1 = count;
    let value = Scalar::Float(0.0);
    to.add(Op::Pad(op::Pad { padding, mode: PadMode::Constant, value }), &[x])
}
