//! `RotaryEmbedding`: positions as rotations of pairs of features.

use super::heads::dims_of;
use super::prelude::*;
use crate::ir::op;
use kiln_types::TensorData;

pub(super) struct RotaryEmbedding {
    /// What the schema calls the input.
    input: &'static str,
    heads: i64,
    rotated: i64,
    interleaved: bool,
    /// Whether heads that are not counted are as wide as what the caches turn.
    by_caches: bool,
    /// Which of several positions of a token turns which features.
    streams: Option<Streams>,
}

/// Time, height and width of a token in a picture or a film, each of which turns some of the pairs of features.
struct Streams {
    counts: [usize; 3],
    /// Whether pairs take turns, instead of lying in three sections.
    interleaved: bool,
}

impl Streams {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        let name = "mrope_section";
        let given = node.ints(name)?.unwrap_or_default();
        let counts = match given.as_slice() {
            &[time, height, width] => {
                [time, height, width].map(|count| u16::try_from(count).map(usize::from))
            }
            _ => return Err(invalid(name, "must be three numbers of pairs of features")),
        };
        let [Ok(time), Ok(height), Ok(width)] = counts else {
            return Err(invalid(name, format!("is {given:?}, must be numbers of pairs of features")));
        };
        Ok(Self { counts: [time, height, width], interleaved: node.flag("mrope_layout", false)? })
    }

    /// The stream of each pair of features.
    fn of_pairs(&self, half: usize) -> RuleResult<Vec<i64>> {
        let [time, height, width] = self.counts;
        let pairs = time.checked_add(height).and_then(|pairs| pairs.checked_add(width));
        if pairs != Some(half) {
            let reason = format!("has {time} + {height} + {width} pairs, and the caches {half}");
            return Err(invalid("mrope_section", reason));
        }
        let stream = |pair: usize| match self.interleaved {
            true if pair % 3 == 1 && pair < height * 3 => 1,
            true if pair % 3 == 2 && pair < width * 3 => 2,
            true => 0,
            false => i64::from(pair >= time) + i64::from(pair >= time + height),
        };
        Ok((0..half).map(stream).collect())
    }

    /// Cosines or sines: `[batch, seq, 1, half]`.
    fn angles(
        &self,
        to: &mut Lowering<'_, '_>,
        args: &Args,
        name: &str,
        positions: ValueId,
    ) -> RuleResult<ValueId> {
        let cache = args.value(name)?;
        to.expect_rank(name, cache, 2)?;
        to.expect_rank("position_ids", positions, 3)?;
        let half = to.dims(cache).last().and_then(Dim::as_size);
        let half =
            half.ok_or_else(|| RuleError::NotConstant { input: format!("the last size of `{name}`") })?;
        to.reserve(half.saturating_mul(8))?;
        let streams = TensorData::new(self.of_pairs(half)?, [half]);
        let streams = to.listed("streams", streams)?;
        let places = to.add(Op::Take(op::Take { axis: 0, wrapped: false }), &[positions, streams])?;
        let places = to.permute(places, vec![1, 2, 0])?;
        let mut dims = to.dims(places);
        let rows = Dim::product(dims.get(..2).unwrap_or_default());
        let rows = to.reshape(places, vec![rows, Dim::from(half)])?;
        let found = to.add(Op::Gather(op::Gather { axis: 0 }), &[cache, rows])?;
        dims.insert(2, Dim::constant(1));
        to.reshape(found, dims)
    }
}

impl RotaryEmbedding {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self {
            input: "X",
            heads: node.int("num_heads", 0)?,
            rotated: node.int("rotary_embedding_dim", 0)?,
            interleaved: node.flag("interleaved", false)?,
            by_caches: false,
            streams: None,
        })
    }

    fn read_contrib(node: &mut SourceNode<'_>, streams: Option<Streams>) -> RuleResult<Self> {
        // Sequences of any length may lie one behind the other then; their positions say all.
        node.ignore(&["is_packed_batching"]);
        let scale = node.float("scale", 1.0)?;
        if scale != 1.0 {
            return Err(RuleError::Unsupported { what: format!("a `scale` of {scale}") });
        }
        let own = Self { input: "input", by_caches: true, streams, ..Self::read(node)? };
        if own.rotated > 0 && own.heads <= 0 {
            return Err(invalid("num_heads", "is missing, beside `rotary_embedding_dim`"));
        }
        Ok(own)
    }
}

impl<'m> Operator<'m> for RotaryEmbedding {
    const FORMS: Forms<'m, Self> = &[
        Spec::onnx("RotaryEmbedding", 23, &["X", "cos_cache", "sin_cache", "position_ids?"])
            .reads(Self::read),
        Spec::microsoft("RotaryEmbedding", &["input", "position_ids", "cos_cache", "sin_cache"])
            .reads(|node| Self::read_contrib(node, None)),
        Spec::microsoft("MRotaryEmbedding", &["input", "position_ids", "cos_cache", "sin_cache"]).reads(
            |node| {
                let streams = Streams::read(node)?;
                Self::read_contrib(node, Some(streams))
            },
        ),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let original = args.value(self.input)?;
        let dims = to.dims(original);
        // `[batch, seq, heads, size]`.
        let x = match dims.as_slice() {
            [_, _, _, _] => to.permute(original, vec![0, 2, 1, 3])?,
            [batch, seq, width] => {
                let split = self.split(args, to, width)?;
                to.reshape(original, [vec![batch.clone(), seq.clone()], split.to_vec()].concat())?
            }
            _ => {
                let expected = "expected 3 or 4".to_owned();
                return Err(RuleError::Rank { input: self.input.to_owned(), actual: dims.len(), expected });
            }
        };
        let [_, seq, _, size] = dims_of(to, x)?;
        let rotated = if self.rotated > 0 { Dim::constant(self.rotated) } else { size };
        let half = rotated.floor_div(&Dim::constant(2));
        let positions = match args.optional("position_ids")? {
            // The position of the first token of each sequence.
            Some(first) if self.by_caches && to.rank(first) == 1 => {
                let line =
                    to.add(Op::Arange(op::Arange { start: Dim::constant(0), end: seq, step: 1 }), &[])?;
                let places = to.binary(BinaryOp::Add, line, first)?;
                Some(to.with_rank(places, 2)?)
            }
            given => given,
        };
        let mut of = |name: &str| match (&self.streams, positions) {
            (Some(streams), Some(positions)) => streams.angles(to, args, name, positions),
            _ => angles(to, args, name, positions, &half),
        };
        let (cos, sin) = (of("cos_cache")?, of("sin_cache")?);
        let whole = rotated_by(to, x, [cos, sin], self.interleaved)?;
        let whole = if dims.len() == 4 { to.permute(whole, vec![0, 2, 1, 3])? } else { whole };
        Ok(to.reshape(whole, dims)?.into())
    }
}

impl RotaryEmbedding {
    /// The number of heads of a width, and their size.
    fn split(&self, args: &Args, to: &Lowering<'_, '_>, width: &Dim) -> RuleResult<[Dim; 2]> {
        if self.heads > 0 {
            let heads = Dim::constant(self.heads);
            return Ok([heads.clone(), width.floor_div(&heads)]);
        }
        let half = to.dims(args.value("cos_cache")?).pop().filter(|half| self.by_caches && !half.is(0));
        let half = half.ok_or_else(|| invalid("num_heads", "is missing"))?;
        let size = &half * &Dim::constant(2);
        Ok([width.floor_div(&size), size])
    }
}

/// Turns the first features of each head by angles, whose cosines and sines broadcast to half of them.
pub(super) fn rotated_by(
    to: &mut Lowering<'_, '_>,
    x: ValueId,
    [cos, sin]: [ValueId; 2],
    interleaved: bool,
) -> RuleResult<ValueId> {
    let [_, _, _, size] = dims_of(to, x)?;
    let [_, _, _, half] = dims_of(to, cos)?;
    let rotated = &half * &Dim::constant(2);
    let part = to.slice(x, 3, Dim::constant(0), rotated.clone())?;
    let turned = if interleaved {
        let mut pairs = to.dims(part);
        pairs[3] = half;
        pairs.push(Dim::constant(2));
        let pairs = to.reshape(part, pairs)?;
        let first = to.slice(pairs, 4, Dim::constant(0), Dim::constant(1))?;
        let second = to.slice(pairs, 4, Dim::constant(1), Dim::constant(2))?;
        let (cos, sin) = (to.unsqueeze(cos, &[4])?, to.unsqueeze(sin, &[4])?);
        let parts = to.formulas(|f| {
            let [first, second, cos, sin] = f.values([first, second, cos, sin]);
            [first * cos - second * sin, first * sin + second * cos]
        })?;
        let pairs = to.concat(&parts, 4)?;
        let dims = to.dims(part);
        to.reshape(pairs, dims)?
    } else {
        // Spelt as most decoders have it, which is raised.
        let first = to.slice(part, 3, Dim::constant(0), half.clone())?;
        let second = to.slice(part, 3, half, rotated.clone())?;
        let minus = to.unary(UnaryOp::Neg, second)?;
        let other = to.concat(&[minus, first], 3)?;
        let (cos, sin) = (to.concat(&[cos, cos], 3)?, to.concat(&[sin, sin], 3)?);
        to.formula(|f| f.value(part) * f.value(cos) + f.value(other) * f.value(sin))?
    };
    if rotated == size {
        return Ok(turned);
    }
    let rest = to.slice(x, 3, rotated, size)?;
    to.concat(&[turned, rest], 3)
}

/// Cosines or sines of each position: `[batch, seq, 1, half]`.
fn angles(
    to: &mut Lowering<'_, '_>,
    args: &Args,
    name: &str,
    positions: Option<ValueId>,
    half: &Dim,
) -> RuleResult<ValueId> {
    let cache = args.value(name)?;
    let found = match positions {
        Some(positions) => to.add(Op::Take(op::Take { axis: 0, wrapped: false }), &[cache, positions])?,
        None => cache,
    };
    if to.rank(found) != 3 {
        let expected = "expected 3, or 2 with positions".to_owned();
        return Err(RuleError::Rank { input: name.to_owned(), actual: to.rank(cache), expected });
    }
    let found = to.slice(found, 2, Dim::constant(0), half.clone())?;
    to.unsqueeze(found, &[2])
}
