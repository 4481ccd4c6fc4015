//! What operators on matrices have in common.

use super::prelude::*;

/// The rank of matrices of floats.
pub(super) fn expect_matrices(to: &Lowering<'_, '_>, input: &str, x: ValueId) -> RuleResult<usize> {
    let ty = to.ty(x);
    if !ty.dtype.is_float() {
        return Err(misfit(input, format!("is {ty}, must be floats")));
    }
    to.need_rank(input, x, 2)
}

/// The rank of square matrices of floats.
pub(super) fn expect_square(to: &Lowering<'_, '_>, x: ValueId) -> RuleResult<usize> {
    let rank = expect_matrices(to, "X", x)?;
    let dims = to.dims(x);
    let [rows, columns] = [rank - 2, rank - 1].map(|axis| dims[axis].as_size());
    match (rows, columns) {
        (Some(rows), Some(columns)) if rows != columns => Err(misfit(
            "X",
            format!("has matrices of {rows} rows and {columns} columns, must have square ones"),
        )),
        _ => Ok(rank),
    }
}

/// The smaller one of the sizes of matrices.
pub(super) fn smaller_size(rows: &Dim, columns: &Dim) -> RuleResult<Dim> {
    match (rows.as_size(), columns.as_size()) {
        (Some(rows), Some(columns)) => Ok(Dim::from(rows.min(columns))),
        _ if rows == columns => Ok(rows.clone()),
        _ => {
            let what = format!(
                "matrices of {rows} rows and {columns} columns, of which nobody knows which are fewer"
            );
            Err(RuleError::Unsupported { what })
        }
    }
}

/// A triangle of matrices, as the runtime's functions take it.
pub(super) fn triangle(is_upper: bool) -> Arg {
    let name = if is_upper { "Upper" } else { "Lower" };
    Arg::Variant(format!("tensor::linalg::Triangle::{name}").into(), Vec::new())
}

/// How many columns orthonormal ones are, as the runtime's functions take it.
pub(super) fn columns(is_complete: bool) -> Arg {
    let name = if is_complete { "Complete" } else { "Reduced" };
    Arg::Variant(format!("tensor::linalg::Columns::{name}").into(), Vec::new())
}
