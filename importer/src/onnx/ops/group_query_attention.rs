//! `GroupQueryAttention`: causal attention over a cache of keys and values that grows, or has room for all there will be.
//!
//! How many keys each batch entry has, the run tells (`seqlens_k`, one less than that). New keys and values go behind the
//! entry's old ones, and a query sees what is not behind its own position.

use super::attention::{all_of, both, composed};
use super::heads::{dims_of, head_count, positions, scaled, split_heads, together, without_heads};
use super::kv_cache::{Cache, Format, Sliding, pad_end};
use super::prelude::*;
use super::rotary_embedding::rotated_by;
use crate::ir::op;
use kiln_types::AttentionOptions;

pub(super) struct GroupQueryAttention {
    heads: i64,
    kv_heads: i64,
    options: AttentionOptions,
    causal: bool,
    /// Keys that a query sees at most, its own among them.
    window: Option<i64>,
    /// Whether caches keep what that window needs alone.
    sliding: bool,
    /// Whether queries and keys are turned, and whether pairs of features lie beside each other then.
    rotary: Option<bool>,
    /// Whether the softmax has a 1 more to divide by.
    smooth: bool,
    /// What queries and keys are normalized with, where there are weights for it.
    epsilons: [f64; 2],
    /// How keys and values are kept.
    formats: [Format; 2],
    /// Which scores are an output too.
    scores: Option<Scores>,
}

/// Scores that are an output; those of keys that a query does not see are 0.
#[derive(Clone, Copy)]
enum Scores {
    BeforeSoftmax,
    AfterSoftmax,
}

impl GroupQueryAttention {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        let (heads, kv_heads) = (head_count(node, "num_heads")?, head_count(node, "kv_num_heads")?);
        if heads % kv_heads != 0 {
            return Err(invalid("kv_num_heads", format!("is {kv_heads}, of which {heads} is no multiple")));
        }
        let scores = match node.int("qk_output", 0)? {
            0 => None,
            1 => Some(Scores::BeforeSoftmax),
            2 => Some(Scores::AfterSoftmax),
            other => return Err(invalid("qk_output", format!("is {other}, must be 0, 1 or 2"))),
        };
        let scores = scores.filter(|_| node.is_read(3));
        if scores.is_none() && node.is_read(3) {
            return Err(invalid("qk_output", "is 0, and the scores are an output"));
        }
        let causal = node.flag("causal", true)?;
        let window = Some(node.int("local_window_size", -1)?).filter(|&window| window > 0);
        let sliding = node.flag("sliding_window_cache", false)?;
        if sliding && (window.is_none() || !causal) {
            let reason = "is set without `local_window_size`, or beside queries that see what is behind them";
            return Err(invalid("sliding_window_cache", reason));
        }
        if sliding && scores.is_some() {
            let what = "the scores as an output beside `sliding_window_cache`".to_owned();
            return Err(RuleError::Unsupported { what });
        }
        let softcap = node.float("softcap", 0.0)?;
        let interleaved = node.flag("rotary_interleaved", false)?;
        let epsilon = node.float("qk_norm_epsilon", 1e-6)?;
        Ok(Self {
            heads,
            kv_heads,
            options: AttentionOptions { softcap: (softcap > 0.0).then_some(softcap), ..scaled(node)? },
            causal,
            window,
            sliding,
            rotary: node.flag("do_rotary", false)?.then_some(interleaved),
            smooth: node.int("smooth_softmax", -1)? == 1,
            epsilons: [node.float("q_norm_epsilon", epsilon)?, node.float("k_norm_epsilon", epsilon)?],
            formats: [Format::read(node, "k_quant_type")?, Format::read(node, "v_quant_type")?],
            scores,
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
            "query_seqlens?",
        ],
    )
    .reads(Self::read)];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let [mut q, mut k, v] = self.projections(args, to)?;
        if let Some(weights) = together(args, ["q_norm_weight", "k_norm_weight"])? {
            for ((x, weight), epsilon) in [&mut q, &mut k].into_iter().zip(weights).zip(self.epsilons) {
                *x = to.add(Op::RmsNorm(op::RmsNorm { epsilon }), &[*x, weight])?;
            }
        }
        let follows = together(args, ["past_key", "past_value"])?.is_some();
        let [batch, _, rows, _] = dims_of(to, q)?;
        let one = || Dim::constant(1);
        let of_batch = |to: &mut Lowering<'_, '_>, numbers: ValueId| {
            let numbers = to.cast(numbers, DType::I64)?;
            to.reshape(numbers, vec![batch.clone(), one(), one(), one()])
        };
        let lengths = of_batch(to, args.value("seqlens_k")?)?;
        // The position of each query, `[batch or 1, 1, rows, 1]`: they are the last that their entry has. Of a first prompt
        // shorter entries end in padding, and so does any where the run tells how many queries there are.
        let mut row = positions(to, 2, Dim::constant(0), rows.clone())?;
        match args.optional("query_seqlens")? {
            Some(_) if !follows => return Err(RuleError::MissingInput { input: "past_key".to_owned() }),
            Some(counts) => {
                let counts = of_batch(to, counts)?;
                row = to.formula(|f| f.value(lengths) + 1.0 - f.value(counts) + f.value(row))?;
            }
            None if follows => {
                let from_last = positions(to, 2, &one() - &rows, one())?;
                row = to.formula(|f| (f.value(lengths) + f.value(from_last)).max(f.value(row)))?;
            }
            None => {}
        }
        if let Some(interleaved) = self.rotary {
            let angles = self.angles(args, to, (row, follows), [&batch, &rows])?;
            q = rotated_by(to, q, angles, interleaved)?;
            k = rotated_by(to, k, angles, interleaved)?;
        }
        let dtype = to.dtype(q);
        let caches = [
            Cache::new(args, to, ["past_key", "k_scale"], self.formats[0], k)?,
            Cache::new(args, to, ["past_value", "v_scale"], self.formats[1], v)?,
        ];
        let mut all = [caches[0].kept(to, k)?, caches[1].kept(to, v)?];
        let total = match follows && !self.sliding {
            true => to.host_integer(args.value("total_sequence_length")?, "total_sequence_length")?,
            false => rows.clone(),
        };
        let sliding = match self.window.filter(|_| self.sliding) {
            Some(window) => {
                let count = to.formula(|f| f.value(lengths) + 1.0)?;
                let sliding = Sliding::new(to, &caches[0], window, row, count)?;
                row = to.binary(BinaryOp::Sub, row, sliding.before)?;
                Some(sliding)
            }
            None => None,
        };
        if follows {
            for (kept, cache) in all.iter_mut().zip(&caches) {
                let room = match &sliding {
                    Some(sliding) => sliding.capacity() + &rows,
                    None => cache.room(to, &total)?,
                };
                *kept = cache.with(to, *kept, row, &room)?;
            }
        }
        let mut present = all;
        if let Some(sliding) = &sliding {
            for kept in &mut present {
                *kept = sliding.staying(to, *kept)?;
            }
        }
        let (k, v) = (caches[0].floats(to, all[0], dtype)?, caches[1].floats(to, all[1], dtype)?);
        let (y, scores) = self.attend(args, to, [q, k, v], (row, lengths, sliding), follows)?;
        let mut outputs = vec![without_heads(to, y)?, present[0], present[1]];
        if let Some(scores) = scores {
            // Rows of a cache that nothing was written to have none.
            outputs.push(to.slice(scores, 3, Dim::constant(0), total)?);
        }
        Ok(outputs.into())
    }
}

impl GroupQueryAttention {
    /// The result, and the scores where they are an output.
    fn attend(
        &self,
        args: &Args,
        to: &mut Lowering<'_, '_>,
        [q, k, v]: [ValueId; 3],
        (row, lengths, sliding): (ValueId, ValueId, Option<Sliding>),
        follows: bool,
    ) -> RuleResult<(ValueId, Option<ValueId>)> {
        let [batch, _, _, _] = dims_of(to, q)?;
        let [_, _, columns, _] = dims_of(to, k)?;
        let mut options = self.options;
        let bias = args.optional("attention_bias")?;
        let sink = args.optional("head_sink")?;
        let plain = bias.is_none() && sink.is_none() && !self.smooth && self.window.is_none();
        if plain && self.causal && !follows && self.scores.is_none() {
            options.is_causal = true;
            return Ok((to.add(Op::Attention(options), &[q, k, v])?, None));
        }
        let allowed = self.allowed(to, row, &columns, lengths)?;
        let bias = match bias {
            Some(bias) => {
                to.expect_rank("attention_bias", bias, 4)?;
                let bias = to.cast(bias, to.dtype(q))?;
                Some(match &sliding {
                    Some(sliding) => sliding.of_rows(to, bias, &batch, &columns)?,
                    None => padded(to, bias, &columns)?,
                })
            }
            None => None,
        };
        let mut mask = both(to, allowed, bias)?;
        let (mut keys, mut values) = (k, v);
        if sink.is_some() || self.smooth {
            mask = self.with_sink(to, mask, sink, [q, k])?;
            for x in [&mut keys, &mut values] {
                *x = pad_end(to, *x, 2, Dim::constant(1))?;
            }
        }
        let Some(scores) = self.scores else {
            return Ok((to.add(Op::Attention(options), &[q, keys, values, mask])?, None));
        };
        let stage = match scores {
            Scores::BeforeSoftmax => 2,
            Scores::AfterSoftmax => 3,
        };
        let [y, found] = composed(to, [q, keys, values], Some(mask), &options, stage)?;
        let seen = to.slice(found, 3, Dim::constant(0), columns)?;
        let hidden = to.number_like(seen, 0.0);
        Ok((y, Some(to.select(allowed, seen, hidden)?)))
    }

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

/// What is added to scores, for each of so many keys; those that it does not reach are hidden anyway.
fn padded(to: &mut Lowering<'_, '_>, bias: ValueId, columns: &Dim) -> RuleResult<ValueId> {
    let [_, _, _, given] = dims_of(to, bias)?;
    pad_end(to, bias, 3, columns - &given)
}
