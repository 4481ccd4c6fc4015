//! Caches of keys and values, `[batch, heads, length, size]`: those that grow or have room for all there will be, those that keep
//! a window of the newest, and those that keep integers under scales.

use super::heads::{dims_of, positions};
use super::prelude::*;
use crate::ir::op;
use kiln_types::{PadMode, ScatterOp};

/// How many bits an integer of a cache has.
#[derive(Clone, Copy)]
pub(super) enum Width {
    /// Two lie in a byte, the first in its low bits, and count from -8.
    Four,
    Eight,
}

/// How a cache keeps numbers, by attributes.
#[derive(Clone, Copy)]
pub(super) enum Format {
    Floats,
    Integers {
        width: Width,
        /// Whether each feature of each head has a scale of its own.
        per_channel: bool,
    },
}

impl Format {
    /// That of the cache whose attribute `name` is.
    pub(super) fn read(node: &mut SourceNode<'_>, name: &str) -> RuleResult<Self> {
        let scales = [("NONE", None), ("PER_TENSOR", Some(false)), ("PER_CHANNEL", Some(true))];
        let Some(per_channel) = node.choice(name, "NONE", &scales)? else {
            // It says nothing of a cache of floats.
            node.ignore(&["kv_cache_bit_width"]);
            return Ok(Self::Floats);
        };
        let width = match node.int("kv_cache_bit_width", 8)? {
            4 => Width::Four,
            // Nobody set it.
            0 | 8 => Width::Eight,
            other => return Err(invalid("kv_cache_bit_width", format!("is {other}, must be 4 or 8"))),
        };
        Ok(Self::Integers { width, per_channel })
    }
}

/// A cache of keys or of values.
pub(super) struct Cache {
    name: &'static str,
    integers: Option<Integers>,
    /// What it holds before the step.
    past: Option<ValueId>,
}

/// How numbers are kept as integers.
struct Integers {
    width: Width,
    scale: ValueId,
}

impl Cache {
    /// The cache that the input `name` is, whose scales are the input `scale`, for `new` entries.
    pub(super) fn new(
        args: &Args,
        to: &mut Lowering<'_, '_>,
        [name, scale]: [&'static str; 2],
        format: Format,
        new: ValueId,
    ) -> RuleResult<Self> {
        let past = args.optional(name)?;
        if let Some(past) = past {
            to.expect_rank(name, past, 4)?;
        }
        let integers = match format {
            Format::Floats if args.optional(scale)?.is_some() => {
                return Err(misfit(scale, "is given for a cache that is not quantized"));
            }
            Format::Floats => None,
            Format::Integers { width, per_channel } => {
                let of_width = match width {
                    Width::Four => DType::U8,
                    Width::Eight => DType::I8,
                };
                if let Some(actual) = past.map(|past| to.dtype(past)).filter(|&actual| actual != of_width) {
                    let expected = format!("expected {of_width}");
                    return Err(RuleError::DType { input: name.to_owned(), actual, expected });
                }
                let [_, heads, _, size] = dims_of(to, new)?;
                let dims = if per_channel { vec![heads, Dim::constant(1), size] } else { Vec::new() };
                let given = args.value(scale)?;
                if to.ty(given).num_elements() != Dim::product(&dims) {
                    let reason = format!("is {}, must have {} numbers", to.ty(given), Dim::product(&dims));
                    return Err(misfit(scale, reason));
                }
                let given = to.cast(given, DType::F32)?;
                Some(Integers { width, scale: to.reshape(given, dims)? })
            }
        };
        Ok(Self { name, integers, past })
    }

    /// New entries as the cache keeps them.
    pub(super) fn kept(&self, to: &mut Lowering<'_, '_>, new: ValueId) -> RuleResult<ValueId> {
        let Some(Integers { width, scale }) = self.integers else { return Ok(new) };
        let [low, high] = match width {
            Width::Four => [-8.0, 7.0],
            Width::Eight => [-128.0, 127.0],
        };
        let rounded = to.formula(|f| {
            let [new, scale] = f.values([new, scale]);
            (new.cast(DType::F32) / scale).round().clamp(low, high)
        })?;
        match width {
            Width::Eight => to.cast(rounded, DType::I8),
            Width::Four => {
                let [first, second] = self.halves(to, rounded)?;
                to.formula(|f| {
                    let [first, second] = f.values([first, second]).map(|half| half - low);
                    (first + second * 16.0).cast(DType::U8)
                })
            }
        }
    }

    /// The features at even and at odd places, which share bytes.
    fn halves(&self, to: &mut Lowering<'_, '_>, x: ValueId) -> RuleResult<[ValueId; 2]> {
        let [batch, heads, length, size] = dims_of(to, x)?;
        let Some(half) = size.as_constant().filter(|size| size % 2 == 0).map(|size| size / 2) else {
            return Err(misfit(
                self.name,
                format!("has {size} features a head, which bytes cannot hold in pairs"),
            ));
        };
        let pairs = to.reshape(x, vec![batch, heads, length, Dim::constant(half), Dim::constant(2)])?;
        let mut part = |n: i64| {
            let part = to.slice(pairs, 4, Dim::constant(n), Dim::constant(n + 1))?;
            to.squeeze(part, &[4])
        };
        Ok([part(0)?, part(1)?])
    }

    /// The floats that a cache's contents stand for.
    pub(super) fn floats(
        &self,
        to: &mut Lowering<'_, '_>,
        kept: ValueId,
        dtype: DType,
    ) -> RuleResult<ValueId> {
        let Some(Integers { width, scale }) = self.integers else { return Ok(kept) };
        let integers = match width {
            Width::Eight => to.cast(kept, DType::F32)?,
            Width::Four => {
                let [first, second] = to.formulas(|f| {
                    let bytes = f.value(kept).cast(DType::F32);
                    let second = (bytes / 16.0).unary(UnaryOp::Floor);
                    [bytes - second * 16.0, second].map(|half| half - 8.0)
                })?;
                let [batch, heads, length, half] = dims_of(to, first)?;
                let (first, second) = (to.unsqueeze(first, &[4])?, to.unsqueeze(second, &[4])?);
                let pairs = to.concat(&[first, second], 4)?;
                to.reshape(pairs, vec![batch, heads, length, &half * &Dim::constant(2)])?
            }
        };
        to.formula(|f| (f.value(integers) * f.value(scale)).cast(dtype))
    }

    /// How many entries there is room for where there are so many after the step: the cache is as long as it was, or as these.
    pub(super) fn room(&self, to: &Lowering<'_, '_>, total: &Dim) -> RuleResult<Dim> {
        let Some(past) = self.past else { return Ok(total.clone()) };
        let [_, _, length, _] = dims_of(to, past)?;
        Ok(length.maximum(total))
    }

    /// The cache, made so long, with new entries as it keeps them at their rows.
    pub(super) fn with(
        &self,
        to: &mut Lowering<'_, '_>,
        kept: ValueId,
        rows: ValueId,
        room: &Dim,
    ) -> RuleResult<ValueId> {
        let Some(past) = self.past else { return Ok(kept) };
        let [_, _, length, _] = dims_of(to, past)?;
        let past = pad_end(to, past, 2, room - &length)?;
        let places = to.expand(rows, to.dims(kept))?;
        to.add(Op::Scatter(op::Scatter { axis: 2, op: ScatterOp::Assign }), &[past, places, kept])
    }
}

/// How a cache of a window drops what is old: so many entries at once as it has rows beside the window and one more, when they
/// are full. Those that stay begin at its first row.
pub(super) struct Sliding {
    /// Entries that were dropped before the step, `[batch, 1, 1, 1]`.
    pub(super) before: ValueId,
    /// And after it.
    after: ValueId,
    capacity: Dim,
}

impl Sliding {
    /// For a cache, the positions of the new entries and how many there are after the step, both `[batch, 1, …]`.
    pub(super) fn new(
        to: &mut Lowering<'_, '_>,
        cache: &Cache,
        window: i64,
        rows: ValueId,
        count: ValueId,
    ) -> RuleResult<Self> {
        let missing = || RuleError::MissingInput { input: cache.name.to_owned() };
        let [_, _, capacity, _] = dims_of(to, cache.past.ok_or_else(missing)?)?;
        if capacity.as_constant().is_some_and(|capacity| capacity < window) {
            let reason = format!("has {capacity} rows, too few for a window of {window}");
            return Err(misfit(cache.name, reason));
        }
        let step = (&capacity - &Dim::constant(window - 1)).maximum(&Dim::constant(1));
        let start = to.slice(rows, 2, Dim::constant(0), Dim::constant(1))?;
        let mut dropped = |tokens: ValueId| {
            let beyond = to.formula(|f| (f.value(tokens) - window as f64).max(0.0))?;
            if step.is(1) {
                return Ok(beyond);
            }
            let step = to.builder.host_tensor(vec![step.clone()], Vec::new())?;
            to.formula(|f| {
                let [beyond, step] = f.values([beyond, step]);
                beyond - beyond.binary(BinaryOp::Remainder, step)
            })
        };
        Ok(Self { before: dropped(start)?, after: dropped(count)?, capacity })
    }

    /// How many entries the cache holds.
    pub(super) fn capacity(&self) -> &Dim {
        &self.capacity
    }

    /// What stays of a cache behind which the new entries were written.
    pub(super) fn staying(&self, to: &mut Lowering<'_, '_>, all: ValueId) -> RuleResult<ValueId> {
        let row = positions(to, 2, Dim::constant(0), self.capacity.clone())?;
        let [_, _, length, _] = dims_of(to, all)?;
        let last = to.builder.host_tensor(vec![&length - &Dim::constant(1)], Vec::new())?;
        let from = to.formula(|f| {
            let [row, after, before, last] = f.values([row, self.after, self.before, last]);
            (row + (after - before)).min(last)
        })?;
        along(to, all, 2, from, &self.capacity)
    }

    /// What is told of each position, for each row of a cache that holds `columns` of them: `[batch, heads, rows, columns]`.
    pub(super) fn of_rows(
        &self,
        to: &mut Lowering<'_, '_>,
        told: ValueId,
        batch: &Dim,
        columns: &Dim,
    ) -> RuleResult<ValueId> {
        let [_, heads, rows, total] = dims_of(to, told)?;
        let told = to.expand(told, vec![batch.clone(), heads, rows, total.clone()])?;
        let column = positions(to, 3, Dim::constant(0), columns.clone())?;
        let last = to.builder.host_tensor(vec![&total - &Dim::constant(1)], Vec::new())?;
        let from = to.formula(|f| {
            let [column, before, last] = f.values([column, self.before, last]);
            (column + before).min(last)
        })?;
        along(to, told, 3, from, columns)
    }
}

/// The parts of an axis at places of each batch entry.
fn along(
    to: &mut Lowering<'_, '_>,
    x: ValueId,
    axis: usize,
    places: ValueId,
    count: &Dim,
) -> RuleResult<ValueId> {
    let mut dims = to.dims(x);
    if dims.first().is_some_and(|batch| batch.is(1)) {
        let places = to.reshape(places, vec![count.clone()])?;
        return to.add(Op::Take(op::Take { axis, wrapped: false }), &[x, places]);
    }
    let rank = dims.len();
    *dims.get_mut(axis).ok_or(RuleError::Axis { axis: axis as i64, rank })? = count.clone();
    let places = to.expand(places, dims)?;
    to.add(Op::Gather(op::Gather { axis }), &[x, places])
}

/// So many zeros at the end of an axis.
pub(super) fn pad_end(to: &mut Lowering<'_, '_>, x: ValueId, axis: usize, count: Dim) -> RuleResult<ValueId> {
    if count.is(0) {
        return Ok(x);
    }
    let mut padding = vec![(Dim::constant(0), Dim::constant(0)); to.rank(x)];
    let rank = padding.len();
    let of_axis = padding.get_mut(axis).ok_or(RuleError::Axis { axis: axis as i64, rank })?;
    of_axis.1 = count;
    let value = match to.dtype(x).is_float() {
        true => Scalar::Float(0.0),
        false => Scalar::Int(0),
    };
    to.add(Op::Pad(op::Pad { padding, mode: PadMode::Constant, value }), &[x])
}
