//! Recognizes masks that hide what comes after each position, however they are computed, and masks that leave each query a
//! key.

use super::attention::hides;
use crate::data::{Elements, Strided};
use crate::ir::{Arange, Dim, Fill, Op, Slice, Trilu, ValueId};
use crate::passes::Rewrite;
use crate::passes::identities::holds_all;
use kiln_types::{BinaryOp, CompareOp, DType, UnaryOp, bf16, f16};

/// Whether a mask over `[…, s, s]` keeps exactly the keys up to the query's own position.
pub(super) fn is_causal(cx: &Rewrite<'_>, mask: ValueId) -> bool {
    let ty = cx.ty(mask);
    let Some((lead, [rows, columns])) = ty.dims.split_last_chunk::<2>() else {
        return false;
    };
    if rows != columns || !lead.iter().all(|dim| dim.is(1)) {
        return false;
    }
    let triangle = triangle(cx, mask, MAX_DEPTH);
    triangle.is_some_and(|t| match ty.dtype.is_bool() {
        true => t.lower != 0.0 && t.upper == 0.0,
        false => t.lower == 0.0 && hides(t.upper, ty.dtype),
    })
}

/// Operations between a triangle's making and the mask.
const MAX_DEPTH: usize = 10;

/// A square matrix of two numbers: one on and below the diagonal, one above it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Triangle {
    lower: f64,
    upper: f64,
}

impl Triangle {
    fn map(self, f: impl Fn(f64) -> f64) -> Self {
        Self { lower: f(self.lower), upper: f(self.upper) }
    }

    /// The same numbers in a dtype; `None` where an integer would wrap.
    fn in_dtype(self, dtype: DType) -> Option<Self> {
        let number = |x: f64| match dtype {
            DType::Bool => Some(truth(x)),
            DType::F16 => Some(f16::from_f64(x).to_f64()),
            DType::BF16 => Some(bf16::from_f64(x).to_f64()),
            DType::F32 => Some(f64::from(x as f32)),
            DType::F64 => Some(x),
            integer => {
                let (least, most) = integer.integers()?;
                let x = x.trunc();
                (x >= least as f64 && x <= most as f64).then_some(x)
            }
        };
        Some(Self { lower: number(self.lower)?, upper: number(self.upper)? })
    }
}

fn triangle(cx: &Rewrite<'_>, id: ValueId, depth: usize) -> Option<Triangle> {
    if let Some(constant) = cx.constant(id) {
        if constant.provenance.is_some() {
            return None;
        }
        cx.look(constant.data.num_elements())?;
        return of_data(&constant.data.shape, &Elements::load(&constant.data).floats());
    }
    let depth = depth.checked_sub(1)?;
    let node = cx.producer(id)?;
    let operand = |n: usize| node.inputs.get(n).copied().flatten();
    let of = |n: usize| triangle(cx, operand(n)?, depth);
    let number = |n: usize| cx.scalar(operand(n)?);
    match &node.op {
        Op::Trilu(Trilu { upper, k }) => {
            let value = number(0)?;
            match (upper, k) {
                (false, 0) => Some(Triangle { lower: value, upper: 0.0 }),
                (true, 1) => Some(Triangle { lower: 0.0, upper: value }),
                _ => None,
            }
        }
        // The last two axes stay what they are.
        Op::Reshape(_) | Op::Expand(_) => {
            let from = &cx.ty(operand(0)?).dims;
            let (_, matrix) = cx.ty(id).dims.split_last_chunk::<2>()?;
            if from.ends_with(matrix) { of(0) } else { None }
        }
        Op::Cast(_) => of(0)?.in_dtype(cx.ty(id).dtype),
        Op::Unary(UnaryOp::Not) => of(0).map(|t| t.map(|x| 1.0 - x)),
        Op::Unary(UnaryOp::Neg) => of(0).map(|t| t.map(|x| -x)),
        Op::Compare(op) => match positions(cx, operand(0)?, operand(1)?).or_else(|| {
            // The difference of two is compared with none.
            let node = cx.producer(operand(0)?).filter(|node| node.op == Op::Binary(BinaryOp::Sub))?;
            let &[Some(a), Some(b)] = &node.inputs[..] else { return None };
            if number(1)? == 0.0 { positions(cx, a, b) } else { None }
        }) {
            Some(swapped) => compared(*op, swapped),
            None => {
                let bound = number(1)?;
                of(0).map(|t| t.map(|x| f64::from(u8::from(op.holds(x, bound)))))
            }
        },
        Op::Where => {
            let (yes, no) = (number(1)?, number(2)?);
            of(0).map(|t| t.map(|x| if x != 0.0 { yes } else { no }))
        }
        Op::Binary(op) => {
            let f: fn(f64, f64) -> f64 = match op {
                BinaryOp::Add => |x, y| x + y,
                BinaryOp::Sub => |x, y| x - y,
                // 0 · -∞ is no mask.
                BinaryOp::Mul => |x, y| x * y,
                _ => return None,
            };
            let result = match (number(0), number(1)) {
                (_, Some(y)) => of(0)?.map(|x| f(x, y)),
                (Some(x), None) => of(1)?.map(|y| f(x, y)),
                (None, None) => return None,
            };
            result.in_dtype(cx.ty(id).dtype)
        }
        _ => None,
    }
}

/// Whether a condition on `[…, queries, keys]` is `wanted` at the first key of every query, as far as can be told.
pub(super) fn keeps_first_key(cx: &Rewrite<'_>, condition: ValueId, wanted: bool) -> bool {
    first_column(cx, condition, wanted, MAX_DEPTH) == Some(true)
}

/// Whether the first column is `wanted` throughout; `None` when that cannot be told.
fn first_column(cx: &Rewrite<'_>, id: ValueId, wanted: bool, depth: usize) -> Option<bool> {
    if let Some(constant) = cx.constant(id) {
        let columns = constant.data.shape.last().copied().filter(|&columns| columns > 0)?;
        let values = Elements::load(&constant.data).floats();
        let fits = values.iter().step_by(columns).all(|&value| (value != 0.0) == wanted);
        return Some(constant.provenance.is_none() && fits);
    }
    let depth = depth.checked_sub(1)?;
    let node = cx.producer(id)?;
    let operand = |n: usize| node.inputs.get(n).copied().flatten();
    let of = |n: usize, wanted: bool| first_column(cx, operand(n)?, wanted, depth);
    let last = |id: ValueId| cx.ty(id).dims.last();
    match &node.op {
        Op::Fill(Fill { value, .. }) => Some(value.to_bool() == wanted),
        Op::Cast(_) if keeps_truth(cx.ty(operand(0)?).dtype, cx.ty(id).dtype) => of(0, wanted),
        Op::Unary(UnaryOp::Not) => of(0, !wanted),
        Op::Binary(op @ (BinaryOp::And | BinaryOp::Or)) => {
            let (a, b) = (of(0, wanted) == Some(true), of(1, wanted) == Some(true));
            Some(if (*op == BinaryOp::And) == wanted { a && b } else { a || b })
        }
        Op::Reshape(_) if last(id) == last(operand(0)?) => of(0, wanted),
        Op::Expand(_) => of(0, wanted),
        Op::Slice(Slice { ranges }) => {
            ranges.last().is_some_and(|range| range.start.is(0) && range.step > 0).then(|| of(0, wanted))?
        }
        Op::Trilu(Trilu { upper: false, k }) if *k >= 0 => of(0, wanted),
        Op::Trilu(Trilu { upper: true, k }) if *k > 0 => Some(!wanted),
        Op::Compare(op) => {
            let op = if wanted { *op } else { op.opposite() };
            let (low, high) = match op {
                CompareOp::LowerEqual | CompareOp::Lower => (operand(0)?, operand(1)?),
                CompareOp::GreaterEqual | CompareOp::Greater => (operand(1)?, operand(0)?),
                CompareOp::Equal | CompareOp::NotEqual => return None,
            };
            let strict = i64::from(matches!(op, CompareOp::Lower | CompareOp::Greater));
            // The first of the columns, and the least of the rows.
            let ((0, column), (1, row)) = (line(cx, low)?, line(cx, high)?) else { return None };
            Some(cx.graph().least(&(&row - &column), 0).is_some_and(|least| least >= strict))
        }
        _ => None,
    }
}

/// The axis, counted from the last, along which a value counts upwards by one, and the number that it starts with.
fn line(cx: &Rewrite<'_>, id: ValueId) -> Option<(usize, Dim)> {
    let dims = &cx.ty(id).dims;
    let axis = dims.iter().rev().position(|dim| !dim.is(1))?;
    let alone = dims.iter().filter(|dim| !dim.is(1)).count() == 1;
    let (mut source, mut offset) = (id, 0i64);
    for _ in 0..MAX_DEPTH {
        let node = cx.producer(source)?;
        let operand = |n: usize| node.inputs.get(n).copied().flatten();
        let number = |n: usize| cx.scalar(operand(n)?).filter(|x| x.fract() == 0.0).map(|x| x as i64);
        match &node.op {
            Op::Arange(Arange { start, step: 1, .. }) => {
                return alone.then(|| (axis, start + &Dim::constant(offset)));
            }
            Op::Reshape(_) => source = operand(0)?,
            Op::Binary(BinaryOp::Add) => {
                let (n, more) = number(1).map(|more| (0, more)).or_else(|| Some((1, number(0)?)))?;
                (source, offset) = (operand(n)?, offset.checked_add(more)?);
            }
            Op::Binary(BinaryOp::Sub) => (source, offset) = (operand(0)?, offset.checked_sub(number(1)?)?),
            _ => return None,
        }
    }
    None
}

/// Whether a number becomes 0 where it is 0, and nowhere else: a half would be no integer, and 256 no byte.
fn keeps_truth(from: DType, to: DType) -> bool {
    to.is_bool() || (from.is_int() && to.is_float()) || holds_all(to, from)
}

fn truth(x: f64) -> f64 {
    f64::from(u8::from(x != 0.0))
}

/// `column op row`, or, swapped, `row op column`.
fn compared(op: CompareOp, swapped: bool) -> Option<Triangle> {
    let keeps = Some(Triangle { lower: 1.0, upper: 0.0 });
    let hides = Some(Triangle { lower: 0.0, upper: 1.0 });
    match (op, swapped) {
        (CompareOp::LowerEqual, false) | (CompareOp::GreaterEqual, true) => keeps,
        (CompareOp::Greater, false) | (CompareOp::Lower, true) => hides,
        _ => None,
    }
}

/// Whether two values are the column and the row of each cell (`false`), or the row and the column (`true`).
fn positions(cx: &Rewrite<'_>, a: ValueId, b: ValueId) -> Option<bool> {
    match (position(cx, a)?, position(cx, b)?) {
        (0, 1) => Some(false),
        (1, 0) => Some(true),
        _ => None,
    }
}

/// The axis, counted from the last, along which a value counts `0, 1, …`; all others have size 1.
fn position(cx: &Rewrite<'_>, id: ValueId) -> Option<usize> {
    let dims = &cx.ty(id).dims;
    let axis = dims.iter().rev().position(|dim| !dim.is(1))?;
    let alone = dims.iter().filter(|dim| !dim.is(1)).count() == 1;
    let mut source = id;
    while let Some(node) = cx.producer(source).filter(|node| matches!(node.op, Op::Reshape(_))) {
        source = node.inputs.first().copied().flatten()?;
    }
    let counts = match &cx.producer(source)?.op {
        Op::Arange(Arange { start, step: 1, .. }) => *start == Dim::constant(0),
        _ => false,
    };
    (alone && counts).then_some(axis)
}

/// Reads a triangle off a constant.
fn of_data(shape: &[usize], values: &[f64]) -> Option<Triangle> {
    let (lead, &[rows, columns]) = shape.split_last_chunk::<2>()?;
    // A matrix of one cell says nothing about what is above its diagonal.
    if rows != columns || rows < 2 || lead.iter().any(|&size| size != 1) {
        return None;
    }
    let found = Triangle { lower: *values.first()?, upper: *values.get(columns - 1)? };
    let mut cell = 0;
    let mut fits = true;
    Strided::new(&[rows, columns]).for_each(|at| {
        let wanted = if cell % columns <= cell / columns { found.lower } else { found.upper };
        fits &= values.get(at) == Some(&wanted);
        cell += 1;
    });
    fits.then_some(found)
}
