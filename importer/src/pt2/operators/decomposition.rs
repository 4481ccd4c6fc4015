//! Decompositions of matrices, and what is computed by them.

use super::Table;
use super::matrix::{matrix, no_errors, solve};
use super::reduce::{flattened, reduce_axes};
use super::shape::reshaped;
use crate::pt2::call::{Call, Int, Outputs, Result, Tensor, flag, int, invalid, unsupported};
use kiln_types::{DType, Scalar};

pub(super) const RULES: Table = &[
    ("_linalg_eigh.default", eigenvectors),
    ("_linalg_svd.default", |call| singular_vectors(call, false)),
    ("_linalg_solve_ex.default", |call| {
        let mut results = solve(call)?;
        results.extend(lu_factor(call)?);
        results.extend(no_errors(call, 3)?);
        Ok(results)
    }),
    ("cholesky.default", cholesky),
    ("cholesky_inverse.default", |call| {
        let factors = call.tensor("self")?;
        let eye = identity(call, &factors);
        cholesky_solved(call, factors, eye)
    }),
    ("cholesky_solve.default", |call| {
        let [b, factors] = same_batches(call, ["self", "input2"])?;
        cholesky_solved(call, factors, b.name)
    }),
    ("linalg_cholesky.default", cholesky),
    ("linalg_cholesky_ex.default", |call| {
        let mut results = cholesky(call)?;
        results.extend(no_errors(call, 1)?);
        Ok(results)
    }),
    ("linalg_cond.default", condition),
    ("linalg_eigh.default", eigenvectors),
    ("linalg_eigvalsh.default", eigenvectors),
    ("linalg_householder_product.default", |call| reflections(call, ["input", "tau"])),
    ("linalg_lu.default", |call| {
        let x = pivoting(call)?;
        let [lu, order] = factors_and_order(call, &x)?;
        unpacked(call, &Tensor { name: lu, ..x }, &order)
    }),
    ("linalg_lu_factor.default", lu_factor),
    ("linalg_lu_factor_ex.default", |call| {
        let mut results = lu_factor(call)?;
        results.extend(no_errors(call, 2)?);
        Ok(results)
    }),
    ("linalg_lu_solve.default", |call| lu_solved(call, ["LU", "pivots", "B"])),
    ("linalg_matrix_exp.default", exponential),
    ("linalg_matrix_rank.atol_rtol_float", rank),
    ("linalg_matrix_rank.atol_rtol_tensor", rank),
    ("linalg_matrix_rank.default", rank),
    ("linalg_pinv.atol_rtol_float", pseudo_inverse),
    ("linalg_pinv.atol_rtol_tensor", pseudo_inverse),
    ("linalg_pinv.default", pseudo_inverse),
    ("linalg_qr.default", |call| {
        let x = matrix(call)?;
        let complete = match call.string_or("mode", "reduced")? {
            "reduced" | "r" => false,
            "complete" => true,
            _ => return Err(invalid("mode", "is none of `reduced`, `complete` and `r`")),
        };
        Ok(call.kiln_ops("QR", &[&x.name], vec![flag("complete", complete)], 2))
    }),
    ("linalg_solve_triangular.default", |call| {
        let [a, b] = same_batches(call, ["self", "B"])?;
        let (upper, unit) = (call.bool_or("upper", false)?, call.bool_or("unitriangular", false)?);
        if call.bool_or("left", true)? {
            return Ok(vec![triangular(call, &a.name, &b.name, upper, unit)]);
        }
        let [a, b] = [turned(call, &a), turned(call, &b)];
        let x = triangular(call, &a.name, &b.name, !upper, unit);
        Ok(vec![turned(call, &Tensor { name: x, ..b }).name])
    }),
    ("linalg_svd.default", |call| singular_vectors(call, true)),
    ("linalg_svdvals.default", |call| {
        let x = matrix(call)?;
        call.ignore(&["driver"]);
        Ok(vec![singular_values(call, &x)])
    }),
    ("linalg_tensorinv.default", inverse_of_tensor),
    ("linalg_tensorsolve.default", |call| {
        let (a, b) = (call.tensor("self")?, call.tensor("other")?);
        let result = call.result(0)?;
        let flat = flattened(call, &b);
        let count = call.size_of(&flat, 0);
        let square = reshaped(call, &a, &[count, Int::Known(-1)]);
        let inverse = call.contrib("Inverse", &[&square], Vec::new());
        let x = call.op("MatMul", &[&inverse, &flat], Vec::new());
        let behind = i64::try_from(b.rank()).unwrap_or(i64::MAX);
        let sizes: Vec<Int> = (behind..).take(result.rank()).map(|axis| call.size_of(&a, axis)).collect();
        Ok(vec![reshaped(call, &x, &sizes)])
    }),
    ("lu_solve.default", |call| lu_solved(call, ["LU_data", "LU_pivots", "self"])),
    ("lu_unpack.default", |call| {
        let (lu, pivots) = (call.tensor("LU_data")?, call.tensor("LU_pivots")?);
        let parts = [call.bool_or("unpack_data", true)?, call.bool_or("unpack_pivots", true)?];
        if parts.contains(&false) {
            return Err(unsupported("`lu_unpack` of a part alone"));
        }
        let order = order_of(call, &pivots, &lu);
        unpacked(call, &lu, &order)
    }),
    ("matrix_exp.default", exponential),
    ("orgqr.default", |call| reflections(call, ["self", "input2"])),
    ("pinverse.default", pseudo_inverse),
    ("svd.default", |call| {
        let x = matrix(call)?;
        let complete = !call.bool_or("some", true)?;
        call.ignore(&["compute_uv"]);
        let mut parts = decomposed(call, &x, complete);
        if let Some(last) = parts.last_mut() {
            *last = turned(call, &Tensor { name: last.clone(), ..x }).name;
        }
        Ok(parts)
    }),
    ("triangular_solve.default", |call| {
        let [b, mut a] = same_batches(call, ["self", "A"])?;
        let mut upper = call.bool_or("upper", true)?;
        let unit = call.bool_or("unitriangular", false)?;
        let given = a.name.clone();
        if call.bool_or("transpose", false)? {
            (a, upper) = (turned(call, &a), !upper);
        }
        Ok(vec![triangular(call, &a.name, &b.name, upper, unit), given])
    }),
];

/// The place of the last axis.
fn last(x: &Tensor) -> i64 {
    i64::try_from(x.rank()).unwrap_or(i64::MAX) - 1
}

/// Rows and columns exchanged.
fn turned(call: &mut Call<'_, '_>, x: &Tensor) -> Tensor {
    let mut order: Vec<i64> = (0..).take(x.rank()).collect();
    let mut sizes = x.sizes.clone();
    if let (Some([rows, columns]), Some([height, width])) = (order.last_chunk_mut(), sizes.last_chunk_mut()) {
        std::mem::swap(rows, columns);
        std::mem::swap(height, width);
    }
    Tensor { name: call.transpose(x, &order), dtype: x.dtype, sizes }
}

/// The identity for each of square matrices.
fn identity(call: &mut Call<'_, '_>, x: &Tensor) -> String {
    let size = call.size_of(x, last(x));
    let eye = rectangle(call, [size.clone(), size], x.dtype);
    let shape = call.shape(x);
    call.op("Expand", &[&eye, &shape], Vec::new())
}

/// Ones on the diagonal, zeros elsewhere.
fn rectangle(call: &mut Call<'_, '_>, sizes: [Int; 2], dtype: DType) -> String {
    let shape = call.sizes_value(&sizes);
    let zeros = call.filled(&shape, Scalar::Int(0), dtype);
    call.op("EyeLike", &[&zeros], Vec::new())
}

/// Matrices and right sides, whose axes before the last two are as many and as long as those of the result.
fn same_batches(call: &mut Call<'_, '_>, names: [&str; 2]) -> Result<[Tensor; 2]> {
    let [a, b] = [call.tensor(names[0])?, call.tensor(names[1])?];
    let batch = |x: &Tensor| x.sizes.iter().rev().skip(2).copied().collect::<Vec<_>>();
    if batch(&a) == batch(&b) {
        return Ok([a, b]);
    }
    let result = call.result(0)?;
    let mut expanded = |x: Tensor| {
        let mut sizes = Vec::new();
        for axis in (0..).take(result.rank().saturating_sub(2)) {
            sizes.push(call.size_of(&result, axis));
        }
        for axis in [last(&x) - 1, last(&x)] {
            sizes.push(call.size_of(&x, axis));
        }
        let known = sizes.iter().map(|size| match size {
            Int::Known(size) => Some(*size),
            Int::Value(_) => None,
        });
        let known = known.collect();
        let shape = call.sizes_value(&sizes);
        Tensor { name: call.op("Expand", &[&x, &shape], Vec::new()), dtype: x.dtype, sizes: known }
    };
    Ok([expanded(a), expanded(b)])
}

fn triangular(call: &mut Call<'_, '_>, a: &str, b: &str, upper: bool, unit: bool) -> String {
    call.kiln("SolveTriangular", &[a, b], vec![flag("upper", upper), flag("unit", unit)])
}

/// `L`, or `U`, of which matrices are `L · Lᵀ` or `Uᵀ · U`; of the matrices that triangle is read.
fn cholesky(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = matrix(call)?;
    if !call.bool_or("upper", false)? {
        return Ok(vec![call.kiln("Cholesky", &[&x], Vec::new())]);
    }
    let lower = turned(call, &x);
    let name = call.kiln("Cholesky", &[&lower], Vec::new());
    Ok(vec![turned(call, &Tensor { name, ..lower }).name])
}

fn cholesky_solved(call: &mut Call<'_, '_>, factors: Tensor, b: String) -> Result<Outputs> {
    let upper = call.bool_or("upper", false)?;
    let other = turned(call, &factors);
    let [lower, raised] = if upper { [other, factors] } else { [factors, other] };
    let y = triangular(call, &lower, &b, false, false);
    Ok(vec![triangular(call, &raised, &y, true, false)])
}

fn exponential(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = matrix(call)?;
    Ok(vec![call.kiln("MatrixExp", &[&x], Vec::new())])
}

fn reflections(call: &mut Call<'_, '_>, names: [&str; 2]) -> Result<Outputs> {
    let [x, factors] = [call.tensor(names[0])?, call.tensor(names[1])?];
    Ok(vec![call.kiln("HouseholderProduct", &[&x, &factors], Vec::new())])
}

/// Eigenvalues, and eigenvectors, of symmetric matrices.
fn eigen(call: &mut Call<'_, '_>, x: &Tensor, upper: bool) -> Vec<String> {
    call.kiln_ops("Eigh", &[x], vec![flag("upper", upper)], 2)
}

fn eigenvectors(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = matrix(call)?;
    call.ignore(&["compute_v"]);
    let upper = match call.string_or("UPLO", "L")? {
        "L" | "l" => false,
        "U" | "u" => true,
        _ => return Err(invalid("UPLO", "is neither `L` nor `U`")),
    };
    Ok(eigen(call, &x, upper))
}

/// `U`, singular values and `Vᵀ`.
fn decomposed(call: &mut Call<'_, '_>, x: &Tensor, complete: bool) -> Vec<String> {
    call.kiln_ops("SVD", &[x], vec![flag("complete", complete)], 3)
}

fn singular_vectors(call: &mut Call<'_, '_>, complete: bool) -> Result<Outputs> {
    let x = matrix(call)?;
    call.ignore(&["driver", "compute_uv"]);
    let complete = call.bool_or("full_matrices", complete)?;
    Ok(decomposed(call, &x, complete))
}

/// Singular values of matrices in the last two axes, the largest first.
pub(super) fn singular_values(call: &mut Call<'_, '_>, x: &Tensor) -> String {
    decomposed(call, x, false).swap_remove(1)
}

/// The sizes of singular values, or of the eigenvalues of symmetric matrices.
fn magnitudes(call: &mut Call<'_, '_>, x: &Tensor, symmetric: bool) -> String {
    if !symmetric {
        return singular_values(call, x);
    }
    let values = eigen(call, x, false).swap_remove(0);
    call.op("Abs", &[&values], Vec::new())
}

/// Up to which size singular values count as 0: an absolute bound, or one beside the largest, whichever is greater.
fn bound(call: &mut Call<'_, '_>, x: &Tensor, magnitudes: &str) -> Result<String> {
    let dtype = x.dtype;
    let zero = call.number_of(0.0, dtype);
    let epsilon = if dtype == DType::F64 { f64::EPSILON } else { f64::from(f32::EPSILON) };
    let (Some(rows), Some(columns)) = (x.size(last(x) - 1), x.size(last(x))) else {
        return Err(unsupported("the rank of matrices of unknown size"));
    };
    let usual = call.number_of(epsilon * rows.max(columns) as f64, dtype);
    // The older form, whose bound is `tol`, has no other.
    let (older, absolute) = (tolerance(call, "tol", dtype)?, tolerance(call, "atol", dtype)?);
    let relative = match (tolerance(call, "rtol", dtype)?.or(tolerance(call, "rcond", dtype)?), &absolute) {
        (Some(relative), _) => relative,
        (None, _) if older.is_some() => zero,
        (None, None) => usual,
        (None, Some(absolute)) => {
            let is_given = call.op("Greater", &[absolute, &zero], Vec::new());
            call.op("Where", &[&is_given, &zero, &usual], Vec::new())
        }
    };
    let values = Tensor { name: magnitudes.to_owned(), dtype, sizes: Vec::new() };
    let axis = call.int64s(&[-1]);
    let largest = call.op("ReduceMax", &[&values, &axis], vec![flag("keepdims", true)]);
    let relative = call.op("Mul", &[&largest, &relative], Vec::new());
    Ok(match older.or(absolute) {
        Some(absolute) => call.op("Max", &[&absolute, &relative], Vec::new()),
        None => relative,
    })
}

/// A bound that an operator is given, for all matrices or for each.
fn tolerance(call: &mut Call<'_, '_>, name: &str, dtype: DType) -> Result<Option<String>> {
    if !call.has(name) {
        return Ok(None);
    }
    let value = call.operand(name, dtype)?;
    Ok(Some(match call.meta(name) {
        Some(_) => call.unsqueeze(&value, &[-1]),
        None => value,
    }))
}

fn pseudo_inverse(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = matrix(call)?;
    let symmetric = call.bool_or("hermitian", false)?;
    let (left, values, right) = if symmetric {
        let [values, vectors] = parts(eigen(call, &x, false))?;
        let vectors = Tensor { name: vectors, ..x.clone() };
        let rows = turned(call, &vectors);
        (vectors, values, rows.name)
    } else {
        let [u, values, rows] = parts(decomposed(call, &x, false))?;
        let own = |name: String| Tensor { name, ..x.clone() };
        let (columns, rows) = (turned(call, &own(rows)), turned(call, &own(u)));
        (columns, values, rows.name)
    };
    let sizes = call.op("Abs", &[&values], Vec::new());
    let bound = bound(call, &x, &sizes)?;
    let counts = call.op("Greater", &[&sizes, &bound], Vec::new());
    let (zero, one) = (call.number_of(0.0, x.dtype), call.number_of(1.0, x.dtype));
    // What does not count is not divided by either, for gradients.
    let divisors = call.op("Where", &[&counts, &values, &one], Vec::new());
    let inverses = call.op("Reciprocal", &[&divisors], Vec::new());
    let inverses = call.op("Where", &[&counts, &inverses, &zero], Vec::new());
    let row = call.unsqueeze(&inverses, &[-2]);
    let scaled = call.op("Mul", &[&left, &row], Vec::new());
    Ok(vec![call.op("MatMul", &[&scaled, &right], Vec::new())])
}

fn parts<const N: usize>(results: Vec<String>) -> Result<[String; N]> {
    results.try_into().map_err(|_| unsupported("a decomposition into other parts"))
}

fn rank(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = matrix(call)?;
    let symmetric = call.bool_or("hermitian", false)?;
    let sizes = magnitudes(call, &x, symmetric);
    let bound = bound(call, &x, &sizes)?;
    let counts = call.op("Greater", &[&sizes, &bound], Vec::new());
    let counts = call.cast(&counts, DType::Bool, DType::I64);
    let counts = Tensor { name: counts, dtype: DType::I64, sizes: vec![None; x.rank() - 1] };
    Ok(vec![reduce_axes(call, "ReduceSum", &counts, &[-1], false)])
}

/// How much larger the largest singular value is than the smallest.
fn condition(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = matrix(call)?;
    let order = match call.has("p") {
        true => call.float("p")?,
        false => 2.0,
    };
    if order.abs() != 2.0 {
        return Err(unsupported(format!("the condition of order {order}, other than 2 and -2")));
    }
    let values = singular_values(call, &x);
    let values = Tensor { name: values, dtype: x.dtype, sizes: vec![None; x.rank() - 1] };
    let [largest, smallest] =
        ["ReduceMax", "ReduceMin"].map(|operator| reduce_axes(call, operator, &values, &[-1], false));
    let [above, below] = if order > 0.0 { [largest, smallest] } else { [smallest, largest] };
    Ok(vec![call.op("Div", &[&above, &below], Vec::new())])
}

/// The inverse of a tensor as a matrix, whose rows are its first axes.
fn inverse_of_tensor(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = matrix(call)?;
    let first = usize::try_from(call.int_or("ind", 2)?).ok().filter(|&first| first > 0 && first < x.rank());
    let Some(first) = first else { return Err(invalid("ind", "leaves no axes on one side")) };
    let sizes: Vec<Int> = (0..).take(x.rank()).map(|axis| call.size_of(&x, axis)).collect();
    let rows = sizes.iter().take(first).fold(Int::Known(1), |rows, size| call.size_op("Mul", &rows, size));
    let square = reshaped(call, &x, &[rows, Int::Known(-1)]);
    let inverse = call.contrib("Inverse", &[&square], Vec::new());
    let shape: Vec<Int> = sizes.iter().skip(first).chain(sizes.iter().take(first)).cloned().collect();
    Ok(vec![reshaped(call, &inverse, &shape)])
}

/// Matrices whose rows may change places.
fn pivoting(call: &mut Call<'_, '_>) -> Result<Tensor> {
    if !call.bool_or("pivot", true)? {
        return Err(unsupported("triangular decomposition without pivots"));
    }
    matrix(call)
}

fn lu_factor(call: &mut Call<'_, '_>) -> Result<Outputs> {
    let x = pivoting(call)?;
    let [lu, pivots] = parts(call.kiln_ops("LUFactor", &[&x], Vec::new(), 2))?;
    // LAPACK counts from 1.
    let one = call.int64(1);
    let pivots = call.op("Add", &[&pivots, &one], Vec::new());
    Ok(vec![lu, call.cast(&pivots, DType::I64, DType::I32)])
}

/// Both triangles in one matrix, and the row that each row came from.
fn factors_and_order(call: &mut Call<'_, '_>, x: &Tensor) -> Result<[String; 2]> {
    let [lu, pivots] = parts(call.kiln_ops("LUFactor", &[x], Vec::new(), 2))?;
    let rows = call.size_of(x, last(x) - 1);
    let rows = call.size_value(&rows);
    Ok([lu, call.kiln("PivotedOrder", &[&pivots, &rows], Vec::new())])
}

/// The row that each row came from, by LAPACK's pivots.
fn order_of(call: &mut Call<'_, '_>, pivots: &Tensor, lu: &Tensor) -> String {
    let pivots = call.cast_tensor(pivots, DType::I64);
    let one = call.int64(1);
    let pivots = call.op("Sub", &[&pivots, &one], Vec::new());
    let rows = call.size_of(lu, last(lu) - 1);
    let rows = call.size_value(&rows);
    call.kiln("PivotedOrder", &[&pivots, &rows], Vec::new())
}

/// `P`, `L` and `U` of `P · L · U`.
fn unpacked(call: &mut Call<'_, '_>, lu: &Tensor, order: &str) -> Result<Outputs> {
    let axis = last(lu);
    let (Some(rows), Some(columns)) = (lu.size(axis - 1), lu.size(axis)) else {
        return Err(unsupported("triangles of matrices of unknown size"));
    };
    let (zero, few) = (Int::Known(0), Int::Known(rows.min(columns)));
    let numbers: Vec<i64> = (0..rows).collect();
    let numbers = call.int64s(&numbers);
    let numbers = call.unsqueeze(&numbers, &[1]);
    let places = call.unsqueeze(order, &[-2]);
    let came_from = call.op("Equal", &[&places, &numbers], Vec::new());
    let p = call.cast(&came_from, DType::Bool, lu.dtype);
    let left = call.slice(lu, axis, [&zero, &few], 1);
    let below = call.int64(-1);
    let left = call.op("Trilu", &[&left, &below], vec![int("upper", 0)]);
    let ones = rectangle(call, [Int::Known(rows), few.clone()], lu.dtype);
    let l = call.op("Add", &[&left, &ones], Vec::new());
    let u = call.slice(lu, axis - 1, [&zero, &few], 1);
    let u = call.op("Trilu", &[&u], vec![int("upper", 1)]);
    Ok(vec![p, l, u])
}

fn lu_solved(call: &mut Call<'_, '_>, [lu, pivots, b]: [&str; 3]) -> Result<Outputs> {
    if !call.bool_or("left", true)? || call.bool_or("adjoint", false)? {
        return Err(unsupported("`lu_solve` from the right, or of turned matrices"));
    }
    let pivots = call.tensor(pivots)?;
    let [lu, b] = same_batches(call, [lu, b])?;
    if pivots.rank() + 1 != lu.rank() {
        return Err(unsupported("factors for several batches of right sides"));
    }
    let order = order_of(call, &pivots, &lu);
    let places = call.unsqueeze(&order, &[-1]);
    let shape = call.shape(&b);
    let places = call.op("Expand", &[&places, &shape], Vec::new());
    let b = call.op("GatherElements", &[&b, &places], vec![int("axis", last(&b) - 1)]);
    let y = triangular(call, &lu, &b, false, true);
    Ok(vec![triangular(call, &lu, &y, true, false)])
}
