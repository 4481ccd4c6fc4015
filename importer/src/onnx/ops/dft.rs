//! `DFT` and `STFT`: Fourier transforms as products with matrices of cosines and sines.

use super::matmul::product;
use super::prelude::*;
use crate::ir::{Symbol, op};
use kiln_types::{PadMode, TensorData};
use std::f64::consts::TAU;

/// Length of a transform: the matrices have its square elements.
const LONGEST: usize = 4096;

pub(super) struct Dft {
    short_time: bool,
    inverse: bool,
    one_sided: bool,
    axis: Option<i64>,
}

impl Dft {
    fn read(node: &mut SourceNode<'_>, axis: Option<i64>) -> RuleResult<Self> {
        let (inverse, one_sided) = (node.flag("inverse", false)?, node.flag("onesided", false)?);
        Ok(Self { short_time: false, inverse, one_sided, axis })
    }

    /// The form with the axis as an attribute.
    fn read_old(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        let axis = node.int("axis", 1)?;
        Self::read(node, Some(axis))
    }

    fn read_short_time(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self { short_time: true, inverse: false, one_sided: node.flag("onesided", true)?, axis: None })
    }
}

impl<'m> Operator<'m> for Dft {
    const FORMS: Forms<'m, Self> = &[
        Spec::onnx("DFT", 17, &["input", "dft_length?"]).until(19).reads(Self::read_old),
        Spec::onnx("DFT", 20, &["input", "dft_length?", "axis?"]).reads(|node| Self::read(node, None)),
        Spec::onnx("STFT", 17, &["signal", "frame_step", "window?", "frame_length?"])
            .reads(Self::read_short_time),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let result = if self.short_time { self.short_time(args, to)? } else { self.whole(args, to)? };
        Ok(result.into())
    }
}

/// A wave around the circle.
#[derive(Clone, Copy)]
enum Wave {
    Cosine,
    Sine,
    /// Clockwise.
    NegativeSine,
}

impl Wave {
    fn at(self, angle: f64) -> f64 {
        match self {
            Wave::Cosine => angle.cos(),
            Wave::Sine => angle.sin(),
            Wave::NegativeSine => -angle.sin(),
        }
    }

    fn of(self, to: &mut Lowering<'_, '_>, angles: ValueId) -> RuleResult<ValueId> {
        match self {
            Wave::Cosine => to.unary(UnaryOp::Cos, angles),
            Wave::Sine => to.unary(UnaryOp::Sin, angles),
            Wave::NegativeSine => {
                let sines = to.unary(UnaryOp::Sin, angles)?;
                to.unary(UnaryOp::Neg, sines)
            }
        }
    }
}

/// The length of a transform: what a build knows of it becomes tables, what only the run tells is computed there.
enum Length {
    Known(usize),
    Varying(Dim),
}

impl Length {
    fn of(length: &Dim) -> RuleResult<Self> {
        match length.as_constant() {
            None => Ok(Length::Varying(length.clone())),
            Some(known) => {
                let known = usize::try_from(known).ok().filter(|known| (1..=LONGEST).contains(known));
                known.map(Length::Known).ok_or_else(|| RuleError::Unsupported {
                    what: format!("a transform whose length is not 1 to {LONGEST}"),
                })
            }
        }
    }

    /// The numbers of half a spectrum.
    fn half(&self) -> Self {
        match self {
            Length::Known(length) => Length::Known(length / 2 + 1),
            Length::Varying(length) => {
                Length::Varying(&length.floor_div(&Dim::constant(2)) + &Dim::constant(1))
            }
        }
    }

    fn dim(&self) -> Dim {
        match self {
            Length::Known(length) => Dim::from(*length),
            Length::Varying(length) => length.clone(),
        }
    }

    /// As a scalar.
    fn number(&self, to: &mut Lowering<'_, '_>, dtype: DType) -> RuleResult<ValueId> {
        match self {
            Length::Known(length) => Ok(to.scalar(*length, dtype)),
            Length::Varying(length) => {
                let length = to.builder.host_tensor(vec![length.clone()], Vec::new())?;
                to.cast(length, dtype)
            }
        }
    }

    /// A matrix `[rows, columns]` of waves of `row · column / length` turns.
    fn matrix(
        &self,
        to: &mut Lowering<'_, '_>,
        [rows, columns]: [&Length; 2],
        dtype: DType,
        wave: Wave,
    ) -> RuleResult<ValueId> {
        // The product is reduced first: large angles lose digits, and there are no more than `length` different ones.
        if let (Length::Known(length), Length::Known(rows), Length::Known(columns)) = (self, rows, columns) {
            let turn: Vec<f64> =
                (0..*length).map(|part| wave.at(TAU * part as f64 / *length as f64)).collect();
            return to
                .table(vec![*rows, *columns], dtype, |at| turn[(at / columns * (at % columns)) % length]);
        }
        let (rows, columns) = (places(to, rows)?, places(to, columns)?);
        let rows = to.unsqueeze(rows, &[1])?;
        let product = to.binary(BinaryOp::Mul, rows, columns)?;
        let part = remainder(to, product, self)?;
        let part = to.cast(part, dtype)?;
        let (turn, length) = (to.scalar(TAU, dtype), self.number(to, dtype)?);
        let step = to.binary(BinaryOp::Div, turn, length)?;
        let angles = to.binary(BinaryOp::Mul, part, step)?;
        wave.of(to, angles)
    }
}

/// `0, 1, …` up to a length.
fn places(to: &mut Lowering<'_, '_>, length: &Length) -> RuleResult<ValueId> {
    to.add(Op::Arange(op::Arange { start: Dim::constant(0), end: length.dim(), step: 1 }), &[])
}

/// What is left of integers that are not negative.
fn remainder(to: &mut Lowering<'_, '_>, x: ValueId, length: &Length) -> RuleResult<ValueId> {
    let length = length.number(to, DType::I64)?;
    let quotient = to.binary(BinaryOp::Div, x, length)?;
    let whole = to.binary(BinaryOp::Mul, quotient, length)?;
    to.binary(BinaryOp::Sub, x, whole)
}

impl Dft {
    /// Real and imaginary part of the transform of the last axis, as a new last axis.
    fn transform(
        &self,
        to: &mut Lowering<'_, '_>,
        real: ValueId,
        imaginary: Option<ValueId>,
    ) -> RuleResult<ValueId> {
        let dtype = to.dtype(real);
        let length = to.ty(real).dims.last().map(Length::of);
        let length = length.ok_or_else(|| misfit("input", "has no axis"))??;
        let half = length.half();
        let bins = if self.one_sided { &half } else { &length };
        let cosines = length.matrix(to, [&length, bins], dtype, Wave::Cosine)?;
        // Forward turns go clockwise.
        let sines = if self.inverse { Wave::Sine } else { Wave::NegativeSine };
        let sines = length.matrix(to, [&length, bins], dtype, sines)?;
        let mut y = [product(to, real, cosines)?, product(to, real, sines)?];
        if let Some(imaginary) = imaginary {
            let (a, b) = (product(to, imaginary, sines)?, product(to, imaginary, cosines)?);
            y = [to.binary(BinaryOp::Sub, y[0], a)?, to.binary(BinaryOp::Add, y[1], b)?];
        }
        let last = to.rank(y[0]);
        let mut parts = Vec::with_capacity(2);
        for part in y {
            let scaled = if self.inverse {
                let count = length.number(to, dtype)?;
                to.binary(BinaryOp::Div, part, count)?
            } else {
                part
            };
            parts.push(to.unsqueeze(scaled, &[last])?);
        }
        to.concat(&parts, last)
    }

    fn whole(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<ValueId> {
        let x = args.value("input")?;
        let rank = to.need_rank("input", x, 2)?;
        let axis = match (self.axis, args.optional("axis")?) {
            (Some(axis), _) => axis,
            (None, Some(axis)) => {
                *to.known_ints(axis, "axis")?.first().ok_or_else(|| invalid("axis", "is empty"))?
            }
            (None, None) => -2,
        };
        let axis = axis_of(axis, rank)?;
        if axis + 1 == rank {
            return Err(misfit("axis", "is the one of real and imaginary parts"));
        }
        let real_again = self.inverse && self.one_sided;
        let mut length = to.dims(x)[axis].clone();
        let mut elements = length.clone();
        if real_again {
            // Without a length, that of an even number of elements.
            length = &Dim::constant(2) * &(&length - &Dim::constant(1));
        }
        if let Some(given) = args.optional("dft_length")? {
            length = to.host_integer(given, "dft_length")?;
            let bins = &length.floor_div(&Dim::constant(2)) + &Dim::constant(1);
            elements = if real_again { bins } else { length.clone() };
        }
        // The transformed axis goes last, the parts apart.
        let mut order: Vec<usize> = (0..rank - 1).filter(|&other| other != axis).collect();
        order.push(axis);
        order.push(rank - 1);
        let moved = to.permute(x, order)?;
        let parts = to.dims(moved)[rank - 1].as_size();
        let take = |to: &mut Lowering<'_, '_>, n: usize| {
            let part = to.slice(moved, rank - 1, Dim::from(n), Dim::from(n + 1))?;
            let part = to.squeeze(part, &[rank - 1])?;
            resized(to, part, rank - 2, &elements)
        };
        let (real, imaginary) = match parts {
            Some(1) => (take(to, 0)?, None),
            Some(2) => (take(to, 0)?, Some(take(to, 1)?)),
            _ => return Err(invalid("input", "must have a last axis of size 1 or 2")),
        };
        let y = match (real_again, imaginary) {
            (false, _) => self.transform(to, real, imaginary)?,
            (true, Some(imaginary)) => signal(to, [real, imaginary], &length)?,
            (true, None) => {
                return Err(misfit("onesided", "and `inverse` are 1, so that the input must be complex"));
            }
        };
        let mut back: Vec<usize> = (0..rank - 2).collect();
        back.insert(axis, rank - 2);
        back.push(rank - 1);
        to.permute(y, back)
    }

    fn short_time(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<ValueId> {
        let signal = args.value("signal")?;
        let known = |to: &Lowering<'_, '_>, value: ValueId, name: &str| -> RuleResult<usize> {
            let number = to.known_ints(value, name)?.first().and_then(|&n| usize::try_from(n).ok());
            number.filter(|&n| n > 0).ok_or_else(|| invalid(name, "must be positive"))
        };
        let step = known(to, args.value("frame_step")?, "frame_step")?;
        let window = args.optional("window")?;
        let length = match (args.optional("frame_length")?, window) {
            (Some(length), _) => known(to, length, "frame_length")?,
            (None, Some(window)) => {
                let size = to.ty(window).dims.first().and_then(Dim::as_size);
                size.ok_or_else(|| RuleError::NotConstant { input: "size of the window".to_owned() })?
            }
            (None, None) => return Err(RuleError::MissingInput { input: "frame_length".to_owned() }),
        };
        let dims = to.dims(signal);
        let total = dims.get(1).ok_or_else(|| misfit("signal", "must have a batch and a time axis"))?;
        if total.as_size().is_some_and(|total| total < length) {
            return Err(misfit("signal", "is shorter than a frame"));
        }
        let positions = positions(to, total, length, step)?;
        let framed = to.add(Op::Take(op::Take { axis: 1, wrapped: false }), &[signal, positions])?;
        let mut parts = Vec::new();
        match dims.get(2).map(Dim::as_size) {
            None => parts.push(framed),
            Some(Some(count @ (1 | 2))) => {
                for n in 0..count {
                    let part = to.slice(framed, 3, Dim::from(n), Dim::from(n + 1))?;
                    parts.push(to.squeeze(part, &[3])?);
                }
            }
            Some(_) => return Err(invalid("signal", "must have a last axis of size 1 or 2")),
        }
        for part in &mut parts {
            if let Some(window) = window {
                *part = to.binary(BinaryOp::Mul, *part, window)?;
            }
        }
        let real = *parts.first().ok_or_else(|| invalid("signal", "is empty"))?;
        self.transform(to, real, parts.get(1).copied())
    }
}

/// The real signal of a length that has these real and imaginary parts as the first half of its spectrum, as a new last axis
/// of size 1.
fn signal(to: &mut Lowering<'_, '_>, parts: [ValueId; 2], length: &Dim) -> RuleResult<ValueId> {
    let (length, dtype) = (Length::of(length)?, to.dtype(parts[0]));
    let [cosines, sines] =
        [Wave::Cosine, Wave::NegativeSine].map(|wave| waves_back(to, &length, dtype, wave));
    let (a, b) = (product(to, parts[0], cosines?)?, product(to, parts[1], sines?)?);
    let sum = to.binary(BinaryOp::Add, a, b)?;
    let last = to.rank(sum);
    to.unsqueeze(sum, &[last])
}

/// A row of waves for each number of half a spectrum, as high as it counts: the other half is conjugate to this one, but for the
/// first number and, of an even length, the last one.
fn waves_back(to: &mut Lowering<'_, '_>, length: &Length, dtype: DType, wave: Wave) -> RuleResult<ValueId> {
    let bins = length.half();
    if let (Length::Known(length), Length::Known(bins)) = (length, &bins) {
        let count = |bin: usize| if bin == 0 || 2 * bin == *length { 1.0 } else { 2.0 };
        let turn = |part: usize| wave.at(TAU * (part % length) as f64 / *length as f64);
        return to.table(vec![*bins, *length], dtype, |at| {
            let (bin, n) = (at / length, at % length);
            count(bin) * turn(bin * n) / *length as f64
        });
    }
    let waves = length.matrix(to, [&bins, length], dtype, wave)?;
    let bin = places(to, &bins)?;
    let twice = to.binary(BinaryOp::Add, bin, bin)?;
    let rest = remainder(to, twice, length)?;
    let zero = to.scalar(0i64, DType::I64);
    let alone = to.compare(CompareOp::Equal, rest, zero)?;
    let (one, two) = (to.scalar(1.0, dtype), to.scalar(2.0, dtype));
    let counts = to.select(alone, one, two)?;
    let length = length.number(to, dtype)?;
    let heights = to.binary(BinaryOp::Div, counts, length)?;
    let heights = to.unsqueeze(heights, &[1])?;
    to.binary(BinaryOp::Mul, waves, heights)
}

/// Where the elements of each frame stand, `[frames, length]`.
fn positions(to: &mut Lowering<'_, '_>, total: &Dim, length: usize, step: usize) -> RuleResult<ValueId> {
    let frames = &(total - &Dim::from(length)).floor_div(&Dim::from(step)) + &Dim::constant(1);
    if let Some(frames) = frames.as_size() {
        to.reserve(frames.saturating_mul(length).saturating_mul(size_of::<i64>()))?;
        let positions: Vec<i64> =
            (0..frames).flat_map(|frame| (0..length).map(move |n| (frame * step + n) as i64)).collect();
        return Ok(to.builder.constant(TensorData::new(positions, [frames, length])));
    }
    let mut range =
        |end: Dim, step: i64| to.add(Op::Arange(op::Arange { start: Dim::constant(0), end, step }), &[]);
    let starts = range(&frames * &Dim::from(step), i64::try_from(step).unwrap_or(i64::MAX))?;
    let within = range(Dim::from(length), 1)?;
    let starts = to.unsqueeze(starts, &[1])?;
    to.binary(BinaryOp::Add, starts, within)
}

/// Cuts an axis, or pads it with zeros.
fn resized(to: &mut Lowering<'_, '_>, x: ValueId, axis: usize, length: &Dim) -> RuleResult<ValueId> {
    let size = to.dims(x)[axis].clone();
    let missing = length - &size;
    // The axis's own size is not negative, whatever else is.
    let own = |symbol: &Symbol| if size.as_symbol() == Some(symbol) { (Some(0), None) } else { (None, None) };
    let (pads, cuts) = match missing.bounds(&own) {
        (Some(0), Some(0)) => return Ok(x),
        (Some(0..), _) => (true, false),
        (_, Some(..=0)) => (false, true),
        _ => (true, true),
    };
    let mut x = x;
    if cuts {
        x = to.slice(x, axis, Dim::constant(0), length.minimum(&size))?;
    }
    if pads {
        let mut padding = vec![(Dim::constant(0), Dim::constant(0)); to.rank(x)];
        padding[axis].1 = if cuts { missing.maximum(&Dim::constant(0)) } else { missing };
        x = to.add(Op::Pad(op::Pad { padding, mode: PadMode::Constant, value: Scalar::Float(0.0) }), &[x])?;
    }
    // However it was computed.
    let mut dims = to.dims(x).clone();
    dims[axis] = length.clone();
    to.reshape(x, dims)
}
