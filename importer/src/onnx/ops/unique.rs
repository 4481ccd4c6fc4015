//! `Unique`: each value once, or each entry of an axis, with where it is found first and how often.

use super::non_zero;
use super::prelude::*;
use super::top_k::{Order, first_of_order};
use crate::ir::op;
use kiln_types::{CumulativeOp, ScatterOp};

pub(super) struct Unique {
    axis: Option<i64>,
    sorted: bool,
    /// Whether where values are found first is an output.
    indices: bool,
}

/// Numbers that entries of an axis may have: each is sorted by.
const MOST: usize = 64;

impl Unique {
    fn read(node: &mut SourceNode<'_>) -> RuleResult<Self> {
        Ok(Self { axis: node.optional_int("axis")?, sorted: node.flag("sorted", true)?, indices: true })
    }
}

impl<'m> Operator<'m> for Unique {
    const FORMS: Forms<'m, Self> = &[
        Spec::onnx("Unique", 11, &["X"]).reads(Self::read),
        // Of one axis, in the order in which values are found.
        Spec::microsoft("Unique", &["X"]).reads(|_| Ok(Self { axis: None, sorted: false, indices: false })),
    ];

    fn lower(&self, args: &Args, to: &mut Lowering<'_, '_>) -> RuleResult<Outputs> {
        let x = args.value("X")?;
        let dims = to.dims(x);
        let axis = self.axis.map(|axis| axis_of(axis, dims.len())).transpose()?;
        // Entries are rows of a matrix.
        let (moved, rest) = match axis {
            None => (to.reshape(x, vec![Dim::product(&dims)])?, Vec::new()),
            Some(axis) => {
                let mut order: Vec<usize> = (0..dims.len()).filter(|&other| other != axis).collect();
                let rest: Vec<Dim> = order.iter().filter_map(|&other| dims.get(other).cloned()).collect();
                order.insert(0, axis);
                (to.permute(x, order)?, rest)
            }
        };
        let count = to.dims(moved).first().cloned().unwrap_or_else(|| Dim::constant(1));
        let width = Dim::product(&rest);
        let width = width.as_size().filter(|&width| width <= MOST).ok_or_else(|| {
            let what = format!("entries of {width} numbers each, where {MOST} are the most");
            RuleError::Unsupported { what }
        })?;
        to.repeat(width)?;
        let rows = to.reshape(moved, vec![count.clone(), Dim::from(width)])?;
        let order = sorted_order(to, rows, &count, width)?;
        let sorted = take(to, rows, order)?;
        let first = first_of_equals(to, sorted, &count)?;
        let starts = non_zero::positions(to, first)?;
        let starts = to.squeeze(starts, &[1])?;
        let mut indices = take(to, order, starts)?;
        // The number of the group that each entry of the sorted rows is in, and each of those before.
        let group = to.cast(first, DType::I64)?;
        let op = op::Cumulative { op: CumulativeOp::Sum, axis: 0, exclusive: false, reverse: false };
        let group = to.add(Op::Cumulative(op), &[group])?;
        let group = to.formula(|f| f.value(group) - 1.0)?;
        let none = to.fill(vec![count.clone()], 0, DType::I64)?;
        let mut inverse =
            to.add(Op::Scatter(op::Scatter { axis: 0, op: ScatterOp::Assign }), &[none, order, group])?;
        if !self.sorted {
            let found = argsort(to, indices)?;
            let place = argsort(to, found)?;
            indices = take(to, indices, found)?;
            inverse = take(to, place, inverse)?;
        }
        let one = to.fill(vec![count], 1, DType::I64)?;
        let dims = to.dims(indices);
        let none = to.fill(dims, 0, DType::I64)?;
        let counts =
            to.add(Op::Scatter(op::Scatter { axis: 0, op: ScatterOp::Add }), &[none, inverse, one])?;
        let y = take(to, moved, indices)?;
        let y = match axis {
            Some(axis) => {
                let order: Vec<usize> = (1..=axis).chain([0]).chain(axis + 1..to.rank(y)).collect();
                to.permute(y, order)?
            }
            None => y,
        };
        Ok(if self.indices { vec![y, indices, inverse, counts] } else { vec![y, inverse, counts] }.into())
    }
}

fn take(to: &mut Lowering<'_, '_>, x: ValueId, rows: ValueId) -> RuleResult<ValueId> {
    to.add(Op::Take(op::Take { axis: 0, wrapped: false }), &[x, rows])
}

/// The order in which numbers ascend; equal ones stay in theirs.
fn argsort(to: &mut Lowering<'_, '_>, numbers: ValueId) -> RuleResult<ValueId> {
    let numbers = if to.dtype(numbers).is_bool() { to.cast(numbers, DType::U8)? } else { numbers };
    to.expect_rank("X", numbers, 1)?;
    let count = to.dims(numbers)[0].clone();
    let [_, order] = first_of_order(to, numbers, count, 0, Order::Rising)?;
    Ok(order)
}

/// The order in which rows ascend, the first column before the others.
fn sorted_order(to: &mut Lowering<'_, '_>, rows: ValueId, count: &Dim, width: usize) -> RuleResult<ValueId> {
    let mut order = None;
    for column in (0..width).rev() {
        let numbers = to.slice(rows, 1, Dim::from(column), Dim::from(column + 1))?;
        let numbers = to.reshape(numbers, vec![count.clone()])?;
        order = Some(match order {
            None => argsort(to, numbers)?,
            Some(before) => {
                let numbers = take(to, numbers, before)?;
                let next = argsort(to, numbers)?;
                take(to, before, next)?
            }
        });
    }
    match order {
        Some(order) => Ok(order),
        // Rows of nothing are all alike.
        None => to.add(Op::Arange(op::Arange { start: Dim::constant(0), end: count.clone(), step: 1 }), &[]),
    }
}

/// Whether each row differs from the one before it.
fn first_of_equals(to: &mut Lowering<'_, '_>, rows: ValueId, count: &Dim) -> RuleResult<ValueId> {
    let place =
        to.add(Op::Arange(op::Arange { start: Dim::constant(0), end: count.clone(), step: 1 }), &[])?;
    let before = to.formula(|f| (f.value(place) - 1.0).max(0.0))?;
    let before = take(to, rows, before)?;
    let differs = to.compare(CompareOp::NotEqual, rows, before)?;
    let differs = to.cast(differs, DType::I64)?;
    let differs = to.reduce(ReduceOp::Max, differs, &[1], false)?;
    to.formula(|f| {
        let differs = f.value(differs).greater(0.0);
        differs.binary(BinaryOp::Or, f.value(place).equals(0.0))
    })
}
