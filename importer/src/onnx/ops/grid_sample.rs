//! `GridSample`: an image or volume, sampled at given places.

use super::super::lowering::Lowering;
use super::super::node::SourceNode;
use super::super::operator::{Args, Operator, Outputs, Spec};
use crate::ir::{Dim, Op, RuleError, RuleResult, ValueId};
use kiln_types::{BinaryOp, CompareOp, DType, Scalar, UnaryOp};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Nearest,
    Linear,
    Cubic,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Padding {
    Zeros,
    Border,
    Reflection,
}

pub(super) struct GridSample {
    mode: Mode,
    padding: Padding,
    align_corners: bool,
}

/// A sample along one axis: its index, how much it counts, and whether it lies inside.
struct Tap {
    index: ValueId,
    weight: Option<ValueId>,
    inside: Option<ValueId>,
}

impl Operator<'_> for GridSample {
    const SPECS: &'static [Spec] = &[Spec::onnx("GridSample", 16, &["X", "grid"])];

    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        let modes = [
            ("linear", Mode::Linear),
            ("bilinear", Mode::Linear),
            ("nearest", Mode::Nearest),
            ("cubic", Mode::Cubic),
            ("bicubic", Mode::Cubic),
        ];
        let paddings =
            [("zeros", Padding::Zeros), ("border", Padding::Border), ("reflection", Padding::Reflection)];
        Ok(Self {
            mode: node.choice("mode", "linear", &modes)?,
            padding: node.choice("padding_mode", "zeros", &paddings)?,
            align_corners: node.flag("align_corners", false)?,
        })
    }

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let (x, grid) = (args.value("X")?, args.value("grid")?);
        let spatial = to.spatial("X", x)?;
        let (dims, places) = (to.dims(x), to.dims(grid));
        if places.len() != dims.len() || !places[spatial + 1].is(spatial as i64) {
            let expected = format!("expected {}, its last dim {spatial}", dims.len());
            return Err(RuleError::Rank { input: "grid".to_owned(), actual: places.len(), expected });
        }
        let points = Dim::product(&places[1..=spatial]);
        let grid = to.reshape(grid, vec![places[0].clone(), points.clone(), places[spatial + 1].clone()])?;
        let mut taps = Vec::with_capacity(spatial);
        for axis in 0..spatial {
            // The last axis comes first in the grid.
            let at = spatial - 1 - axis;
            let place = to.slice(grid, 2, Dim::from(at), Dim::from(at + 1))?;
            let place = to.squeeze(place, &[2])?;
            taps.push(self.taps(to, place, &dims[axis + 2])?);
        }
        let flat = to.reshape(x, vec![dims[0].clone(), dims[1].clone(), Dim::product(&dims[2..])])?;
        let sum = combine(to, flat, &taps, &dims)?;
        let mut shape = vec![dims[0].clone(), dims[1].clone()];
        shape.extend_from_slice(&places[1..=spatial]);
        Ok(to.reshape(sum, shape)?.into())
    }
}

/// The weighted sum of samples over all combinations of taps.
fn combine(to: &mut Lowering<'_, '_>, flat: ValueId, taps: &[Vec<Tap>], dims: &[Dim]) -> RuleResult<ValueId> {
    let combinations: usize = taps.iter().map(Vec::len).product();
    let mut sum = None;
    for mut n in 0..combinations {
        let (mut position, mut weight, mut inside): (Option<ValueId>, Option<ValueId>, Option<ValueId>) =
            (None, None, None);
        for (axis, taps) in taps.iter().enumerate() {
            let tap = &taps[n % taps.len()];
            n /= taps.len();
            position = Some(match position {
                None => tap.index,
                Some(before) => {
                    let size = to.builder.host_tensor(vec![dims[axis + 2].clone()], Vec::new())?;
                    let row = to.binary(BinaryOp::Mul, before, size)?;
                    to.binary(BinaryOp::Add, row, tap.index)?
                }
            });
            weight = joined(to, BinaryOp::Mul, weight, tap.weight)?;
            inside = joined(to, BinaryOp::And, inside, tap.inside)?;
        }
        let Some(position) = position else {
            continue;
        };
        let column = to.unsqueeze(position, &[1])?;
        let mut wide = to.dims(column);
        wide[1] = dims[1].clone();
        let column = to.expand(column, wide)?;
        let mut sample = to.add(Op::Gather { axis: 2 }, &[flat, column])?;
        if let Some(inside) = inside {
            let inside = to.unsqueeze(inside, &[1])?;
            let zero = to.number_like(sample, 0.0);
            sample = to.select(inside, sample, zero)?;
        }
        if let Some(weight) = weight {
            let weight = to.unsqueeze(weight, &[1])?;
            let dtype = to.dtype(sample);
            let weight = to.cast(weight, dtype)?;
            sample = to.binary(BinaryOp::Mul, sample, weight)?;
        }
        sum = joined(to, BinaryOp::Add, sum, Some(sample))?;
    }
    sum.ok_or_else(|| RuleError::MissingInput { input: "grid".to_owned() })
}

fn joined(
    to: &mut Lowering<'_, '_>,
    op: BinaryOp,
    a: Option<ValueId>,
    b: Option<ValueId>,
) -> RuleResult<Option<ValueId>> {
    match (a, b) {
        (Some(a), Some(b)) => to.binary(op, a, b).map(Some),
        (a, b) => Ok(a.or(b)),
    }
}

/// A size as a number of a dtype.
fn size_like(to: &mut Lowering<'_, '_>, size: &Dim, x: ValueId) -> RuleResult<ValueId> {
    let dtype = to.dtype(x);
    match size.as_constant() {
        Some(size) => Ok(to.scalar(size, dtype)),
        None => {
            let size = to.builder.host_tensor(vec![size.clone()], Vec::new())?;
            to.cast(size, dtype)
        }
    }
}

impl GridSample {
    /// Samples along one axis for places in -1 to 1.
    fn taps(&self, to: &mut Lowering<'_, '_>, place: ValueId, size: &Dim) -> RuleResult<Vec<Tap>> {
        let (one, two) = (to.number_like(place, 1.0), to.number_like(place, 2.0));
        let length = size_like(to, size, place)?;
        let shifted = to.binary(BinaryOp::Add, place, one)?;
        let coordinate = if self.align_corners {
            let last = to.binary(BinaryOp::Sub, length, one)?;
            let scaled = to.binary(BinaryOp::Mul, shifted, last)?;
            to.binary(BinaryOp::Div, scaled, two)?
        } else {
            let scaled = to.binary(BinaryOp::Mul, shifted, length)?;
            let scaled = to.binary(BinaryOp::Sub, scaled, one)?;
            to.binary(BinaryOp::Div, scaled, two)?
        };
        match self.mode {
            Mode::Nearest => {
                let nearest = to.unary(UnaryOp::Round, coordinate)?;
                Ok(vec![self.tap(to, nearest, size, None)?])
            }
            Mode::Linear => {
                // Beyond the border both neighbours are the border's.
                let coordinate = self.bounded(to, coordinate, size)?;
                let first = to.unary(UnaryOp::Floor, coordinate)?;
                let part = to.binary(BinaryOp::Sub, coordinate, first)?;
                let rest = to.unary(UnaryOp::Neg, part)?;
                let rest = to.binary(BinaryOp::Add, rest, one)?;
                let second = to.binary(BinaryOp::Add, first, one)?;
                Ok(vec![self.tap(to, first, size, Some(rest))?, self.tap(to, second, size, Some(part))?])
            }
            Mode::Cubic => {
                let first = to.unary(UnaryOp::Floor, coordinate)?;
                let part = to.binary(BinaryOp::Sub, coordinate, first)?;
                let mut taps = Vec::with_capacity(4);
                for offset in -1..3i32 {
                    let distance = to.number_like(part, f64::from(offset));
                    let index = to.binary(BinaryOp::Add, first, distance)?;
                    let away = to.binary(BinaryOp::Sub, part, distance)?;
                    let away = to.unary(UnaryOp::Abs, away)?;
                    let weight = keys(to, away, (0..2).contains(&offset))?;
                    taps.push(self.tap(to, index, size, Some(weight))?);
                }
                Ok(taps)
            }
        }
    }

    /// A whole coordinate as an index inside the axis.
    fn tap(
        &self,
        to: &mut Lowering<'_, '_>,
        coordinate: ValueId,
        size: &Dim,
        weight: Option<ValueId>,
    ) -> RuleResult<Tap> {
        let coordinate = self.bounded(to, coordinate, size)?;
        let (zero, one) = (to.number_like(coordinate, 0.0), to.number_like(coordinate, 1.0));
        let length = size_like(to, size, coordinate)?;
        let mut inside = None;
        if self.padding == Padding::Zeros {
            let above = to.compare(CompareOp::GreaterEqual, coordinate, zero)?;
            let below = to.compare(CompareOp::Lower, coordinate, length)?;
            inside = Some(to.binary(BinaryOp::And, above, below)?);
        }
        let last = to.binary(BinaryOp::Sub, length, one)?;
        let low = to.binary(BinaryOp::Max, coordinate, zero)?;
        let index = to.binary(BinaryOp::Min, low, last)?;
        Ok(Tap { index: to.cast(index, DType::I64)?, weight, inside })
    }

    /// A coordinate moved into the axis, as the padding says.
    fn bounded(&self, to: &mut Lowering<'_, '_>, coordinate: ValueId, size: &Dim) -> RuleResult<ValueId> {
        let zero = to.number_like(coordinate, 0.0);
        let one = to.number_like(coordinate, 1.0);
        let length = size_like(to, size, coordinate)?;
        let last = to.binary(BinaryOp::Sub, length, one)?;
        let mirrored = match self.padding {
            Padding::Zeros => return Ok(coordinate),
            Padding::Border => coordinate,
            Padding::Reflection => {
                // Mirrors stand at the outermost samples' centers, or at their outer edges.
                let edge = to.number_like(coordinate, if self.align_corners { 0.0 } else { -0.5 });
                let span = if self.align_corners { last } else { length };
                let period = to.binary(BinaryOp::Add, span, span)?;
                let from_edge = to.binary(BinaryOp::Sub, coordinate, edge)?;
                let phase = to.binary(BinaryOp::Remainder, from_edge, period)?;
                let back = to.binary(BinaryOp::Sub, period, phase)?;
                let near = to.binary(BinaryOp::Min, phase, back)?;
                to.binary(BinaryOp::Add, near, edge)?
            }
        };
        let low = to.binary(BinaryOp::Max, mirrored, zero)?;
        to.binary(BinaryOp::Min, low, last)
    }
}

/// The cubic convolution kernel (Keys 1981) with parameter -0.75 at a distance below 1, or from 1 to 2.
fn keys(to: &mut Lowering<'_, '_>, distance: ValueId, near: bool) -> RuleResult<ValueId> {
    const A: f64 = -0.75;
    let coefficients = if near { [A + 2.0, -(A + 3.0), 0.0, 1.0] } else { [A, -5.0 * A, 8.0 * A, -4.0 * A] };
    let mut value = to.number_like(distance, coefficients[0]);
    for coefficient in &coefficients[1..] {
        let coefficient = to.number_like(distance, Scalar::Float(*coefficient));
        let product = to.binary(BinaryOp::Mul, distance, value)?;
        value = to.binary(BinaryOp::Add, product, coefficient)?;
    }
    Ok(value)
}
