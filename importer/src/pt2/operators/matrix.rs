//! Operators on matrices: diagonals, inverses, determinants.

use super::reduce::{flattened, operand, reduce_axes};
use super::shape::{joined, reshaped};
use super::{Sharing, Table, ViewTable};
use crate::pt2::call::{Call, Int, Outputs, Result, Tensor, axis, int, unsupported};
use crate::pt2::views::put_back;
use kiln_types::Scalar;

pub(super) const RULES: Table = &[
    ("_linalg_det.default", determinant),
    ("_linalg_slogdet.default", log_determinant),
    ("det.default", determinant),
    ("diag.default", diag),
    ("diag_embed.default", diag_embed),
    ("inverse.default", inverse),
    ("linalg_det.default", determinant),
    ("linalg_inv.default", inverse),
    ("linalg_slogdet.default", log_determinant),
    ("logdet.default", |call| {
        let determinant = determinant(call)?;
        Ok(determinant.iter().map(|x| call.op("Log", &[x], Vec::new())).collect())
    }),
    ("slogdet.default", log_determinant),
    ("trace.default", trace),
    ("tril.default", |call| triangle(call, 0)),
    ("triu.default", |call| triangle(call, 1)),
    ("block_diag.default", block_diagonal),
    ("diagflat.default", |call| {
        let x = call.tensor("self")?;
        let (flat, offset) = (flattened(call, &x), call.int_or("offset", 0)?);
        Ok(vec![diagonal_matrix(call, &flat, offset)])
    }),
    ("fill_diagonal.default", |call| {
        let x = call.tensor("self")?;
        if x.rank() != 2 || call.bool_or("wrap", false)? {
            return Err(unsupported(
                "`fill_diagonal_` of other than a matrix, or of one that it wraps around",
            ));
        }
        let value = call.operand("fill_value", x.dtype)?;
        let eye = call.op("EyeLike", &[&x], vec![int("dtype", 9)]);
        Ok(vec![call.op("Where", &[&eye, &value, &x], Vec::new())])
    }),
    ("linalg_inv_ex.default", |call| {
        let mut results = inverse(call)?;
        results.extend(no_errors(call, 1)?);
        Ok(results)
    }),
    ("linalg_matrix_power.default", matrix_power),
    ("linalg_solve.default", solve),
    ("linalg_solve_ex.default", |call| {
        let mut results = solve(call)?;
        results.extend(no_errors(call, 1)?);
        Ok(results)
    }),
    ("matrix_power.default", matrix_power),
];

/// Operators whose results share elements with what they are given.
pub(super) const VIEWS: ViewTable = &[
    ("diagonal.default", diagonal, Sharing::Always, put_back::diagonal),
    (
        "linalg_diagonal.default",
        |call| {
            let x = call.tensor("A")?;
            let (rows, columns) = (call.axis("dim1", -2, &x)?, call.axis("dim2", -1, &x)?);
            let offset = call.int_or("offset", 0)?;
            diagonal_of(call, &x, rows, columns, offset)
        },
        Sharing::Always,
        put_back::unchangeable,
    ),
];

fn triangle(call: &mut Call<'_, '_>, upper: i64) -> Result<Outputs> {
    let x = call.tensor("self")?;
    let diagonal = call.size_or("diagonal", 0)?;
    let diagonal = call.size_value(&diagonal);
    Ok(vec![call.op("Trilu", &[&x, &diagonal], vec![int("upper", upper)])])
}

fn diagonal(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = call.tensor("self")?;
    let (rows, columns) = (call.axis("dim1", 0, &x)?, call.axis("dim2", 1, &x)?);
    let offset = call.int_or("offset", 0)?;
    diagonal_of(call, &x, rows, columns, offset)
}

/// The elements `(i, i + offset)` of two axes, along a new last one.
fn diagonal_of(call: &mut Call<'_, '_>, x: &Tensor, rows: i64, columns: i64, offset: i64) -> Result<Outputs> {
    let (Some(height), Some(width)) = (x.size(rows), x.size(columns)) else {
        return Err(unsupported("the diagonal of a matrix of unknown size"));
    };
    let others = (0..).take(x.rank()).filter(|&axis| axis != rows && axis != columns);
    let order: Vec<i64> = others.chain([rows, columns]).collect();
    let last = i64::try_from(x.rank()).unwrap_or(i64::MAX) - 2;
    let mut shape: Vec<Int> = Vec::new();
    for &axis in order.iter().take(x.rank().saturating_sub(2)) {
        shape.push(call.size_of(x, axis));
    }
    shape.push(Int::Known(height.saturating_mul(width)));
    let turned = call.transpose(x, &order);
    let lines = reshaped(call, &turned, &shape);
    let first = if offset < 0 { offset.saturating_neg().saturating_mul(width) } else { offset };
    let below = height.saturating_add(offset.min(0));
    let count = below.min(width.saturating_sub(offset.max(0))).max(0);
    let (start, end) =
        (Int::Known(first), Int::Known(first.saturating_add(count.saturating_mul(width.saturating_add(1)))));
    Ok(vec![call.slice(&lines, last, [&start, &end], width.saturating_add(1))])
}

/// A matrix of a diagonal, or the diagonal of a matrix.
fn diag(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = call.tensor("self")?;
    let offset = call.int_or("diagonal", 0)?;
    if x.rank() == 2 {
        diagonal_of(call, &x, 0, 1, offset)
    } else {
        Ok(vec![diagonal_matrix(call, &x, offset)])
    }
}

fn diag_embed(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = call.tensor("self")?;
    let rank = x.rank() + 1;
    let dims = (axis(call.int_or("dim1", -2)?, rank)?, axis(call.int_or("dim2", -1)?, rank)?);
    let offset = call.int_or("offset", 0)?;
    let result = diagonal_matrix(call, &x, offset);
    // Where the axes of the result are among those of the matrices, which come last.
    let mut rest = 0..i64::try_from(rank).unwrap_or(i64::MAX) - 2;
    let last = i64::try_from(rank).unwrap_or(i64::MAX) - 1;
    let order: Vec<i64> = (0..=last)
        .filter_map(|axis| match axis {
            axis if axis == dims.0 => Some(last - 1),
            axis if axis == dims.1 => Some(last),
            _ => rest.next(),
        })
        .collect();
    Ok(vec![call.transpose(&result, &order)])
}

/// Square matrices that have the last axis on a diagonal and zeros elsewhere.
fn diagonal_matrix(call: &mut Call<'_, '_>, x: &Tensor, offset: i64) -> String {
    let last = i64::try_from(x.rank()).unwrap_or(i64::MAX) - 1;
    let more = i64::try_from(offset.unsigned_abs()).unwrap_or(i64::MAX);
    let size = call.size_of(x, last);
    let size = call.size_op("Add", &size, &Int::Known(more));
    let size = call.size_list(&size);
    let shape = call.op("Concat", &[&size, &size], vec![int("axis", 0)]);
    let ones = call.op("ConstantOfShape", &[&shape], Vec::new());
    let eye = call.op("EyeLike", &[&ones], vec![int("dtype", 9), int("k", offset)]);
    let zero = call.scalar(Scalar::Int(0), x.dtype);
    let mut line = x.name.clone();
    if more > 0 {
        let pads = call.int64s(&[0, more]);
        let axes = call.int64s(&[last]);
        line = call.op("Pad", &[&line, &pads, &zero, &axes], Vec::new());
    }
    // Above the main diagonal elements are counted by rows, otherwise by columns.
    let spread = call.unsqueeze(&line, &[if offset > 0 { last + 1 } else { last }]);
    call.op("Where", &[&eye, &spread, &zero], Vec::new())
}

/// Matrices along a diagonal, zeros elsewhere.
fn block_diagonal(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let dtype = call.result_dtype()?;
    let tensors = call.tensors("tensors")?;
    let mut columns = Int::Known(0);
    let mut widths = Vec::with_capacity(tensors.len());
    for tensor in &tensors {
        let width = match tensor.rank() {
            0 => Int::Known(1),
            rank => call.size_of(tensor, i64::try_from(rank).unwrap_or(i64::MAX) - 1),
        };
        columns = call.size_op("Add", &columns, &width);
        widths.push(width);
    }
    let mut before = Int::Known(0);
    let zero = call.scalar(Scalar::Int(0), dtype);
    let one = call.int64s(&[1]);
    let mut rows = Vec::with_capacity(tensors.len());
    for (tensor, width) in tensors.iter().zip(&widths) {
        let block = call.cast_tensor(tensor, dtype);
        let missing: Vec<i64> = (0..).take(2usize.saturating_sub(tensor.rank())).collect();
        let block = call.unsqueeze(&block, &missing);
        let until = call.size_op("Add", &before, width);
        let behind = call.size_op("Sub", &columns, &until);
        let pads = call.sizes_value(&[before, behind]);
        rows.push(call.op("Pad", &[&block, &pads, &zero, &one], Vec::new()));
        before = until;
    }
    Ok(vec![joined(call, &rows, 0)])
}

/// A product of as many equal matrices, or of their inverses.
fn matrix_power(call: &mut Call<'_, '_>) -> Result<Outputs> {
    const MOST: u64 = 1 << 16;
    let x = matrix(call)?;
    let exponent = call.int("n")?;
    let mut left = exponent.unsigned_abs();
    if left > MOST {
        return Err(unsupported(format!("the power {exponent} of a matrix")));
    }
    let last = i64::try_from(x.rank()).unwrap_or(i64::MAX) - 1;
    if left == 0 {
        let size = call.size_of(&x, last);
        let shape = call.sizes_value(&[size.clone(), size]);
        let like = call.filled(&shape, Scalar::Int(0), x.dtype);
        let eye = call.op("EyeLike", &[&like], Vec::new());
        let shape = call.shape(&x);
        return Ok(vec![call.op("Expand", &[&eye, &shape], Vec::new())]);
    }
    let mut square = if exponent < 0 { call.contrib("Inverse", &[&x], Vec::new()) } else { x.name };
    let mut power: Option<String> = None;
    while left > 0 {
        if left % 2 == 1 {
            power = Some(match power {
                Some(power) => call.op("MatMul", &[&power, &square], Vec::new()),
                None => square.clone(),
            });
        }
        left /= 2;
        if left > 0 {
            square = call.op("MatMul", &[&square, &square], Vec::new());
        }
    }
    Ok(power.into_iter().collect())
}

/// `A · X = B`, or `X · A = B` from the right, by the inverse of `A`.
pub(super) fn solve(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let (a, b) = (call.tensor("A")?, call.tensor("B")?);
    let inverse = call.contrib("Inverse", &[&a], Vec::new());
    // One vector for each matrix; others are the columns of matrices.
    let is_vector = b.rank() == 1
        || (b.rank() + 1 == a.rank() && (0..).take(b.rank()).all(|axis| a.size(axis) == b.size(axis)));
    if !call.bool_or("left", true)? {
        return Ok(vec![call.op("MatMul", &[&b, &inverse], Vec::new())]);
    }
    if !is_vector {
        return Ok(vec![call.op("MatMul", &[&inverse, &b], Vec::new())]);
    }
    let column = call.unsqueeze(&b, &[-1]);
    let product = call.op("MatMul", &[&inverse, &column], Vec::new());
    Ok(vec![call.squeeze(&product, &[-1])])
}

fn trace(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = operand(call)?;
    let mask = call.op("EyeLike", &[&x], vec![int("dtype", 9)]);
    let zero = call.scalar(Scalar::Int(0), x.dtype);
    let diagonal = call.op("Where", &[&mask, &x, &zero], Vec::new());
    Ok(vec![reduce_axes(call, "ReduceSum", &Tensor { name: diagonal, ..x }, &[], false)])
}

/// What says which matrices something failed for, if anything reads it: none ever. It has the axes of the first result before the matrices'.
pub(super) fn no_errors(call: &mut Call<'_, '_>, position: usize) -> Result<Option<String>> {
    if !call.is_used(position) {
        return Ok(None);
    }
    let info = call.result(position)?;
    let x = matrix(call)?;
    let shape = call.shape(&x);
    let (zero, end) = (Int::Known(0), Int::Known(-2));
    let shape = call.slice(&shape, 0, [&zero, &end], 1);
    Ok(Some(call.filled(&shape, Scalar::Int(0), info.dtype)))
}

pub(super) fn matrix(call: &mut Call<'_, '_>) -> Result<Tensor> {
    let name = ["A", "input"].into_iter().find(|name| call.has(name)).unwrap_or("self");
    call.tensor(name)
}

fn determinant(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = matrix(call)?;
    Ok(vec![call.op("Det", &[&x], Vec::new())])
}

/// The sign of a determinant, and the logarithm of its size.
fn log_determinant(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = matrix(call)?;
    let determinant = call.op("Det", &[&x], Vec::new());
    let sign = call.op("Sign", &[&determinant], Vec::new());
    let size = call.op("Abs", &[&determinant], Vec::new());
    Ok(vec![sign, call.op("Log", &[&size], Vec::new())])
}

fn inverse(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = matrix(call)?;
    Ok(vec![call.contrib("Inverse", &[&x], Vec::new())])
}
