//! Distances between the rows of two matrices.

use super::linear::matrices;
use super::prelude::*;

/// The sums `Σ (x - y)²` of each row of `x`, `[…, m, k]`, and each of `y`, `[…, n, k]`, whose other dims are the same.
pub struct SquaredDistances;

impl Operation for SquaredDistances {
    facts!(operands: ["x", "y"], effect: Pure, folding: Products, result: Computed);
    none!(host, derivation);

    fn infer(&self, cx: &mut Infer<'_>) -> RuleResult<Vec<TensorType>> {
        let x = at_least_rank(cx, 0, "x", 2)?;
        let y = of_rank(cx, 1, "y", x.rank())?;
        need_float("x", x)?;
        same_dtype("x", x, "y", y)?;
        let rows = x.rank() - 2;
        for axis in (0..x.rank()).filter(|&axis| axis != rows) {
            need_equal("dims of rows whose distances are wanted", &x.dims[axis], x, &y.dims[axis], y)?;
        }
        let mut dims = x.dims.clone();
        dims[rows + 1] = y.dims[rows].clone();
        Ok(vec![x.with_dims(dims)])
    }

    fn evaluate(&self, operands: &Known<'_>) -> Option<Vec<TensorData>> {
        let (x, y) = (operands.get(0)?, operands.get(1)?);
        let (lead, [m, k]) = x.shape.split_last_chunk::<2>()?;
        let (lead_of_y, [n, k_of_y]) = y.shape.split_last_chunk::<2>()?;
        if (lead, k) != (lead_of_y, k_of_y) {
            return None;
        }
        let (from, to) = (Elements::load(x).floats(), Elements::load(y).floats());
        let count = elements(lead);
        let mut out = Vec::with_capacity(count * m * n);
        for at in 0..count {
            for row in (at * m..(at + 1) * m).map(|row| &from[row * k..][..*k]) {
                for other in (at * n..(at + 1) * n).map(|row| &to[row * k..][..*k]) {
                    out.push(row.iter().zip(other).map(|(a, b)| (a - b) * (a - b)).sum());
                }
            }
        }
        let shape = [lead, &[*m, *n]].concat();
        Some(vec![Elements::Float(out).store(x.dtype, shape)])
    }

    fn loops(&self, cx: &Site<'_>) -> Option<Loops> {
        let (x, y) = (cx.shape(0)?, cx.shape(1)?);
        let ((lead, &[m, k]), (_, &[n, _])) = (x.split_last_chunk::<2>()?, y.split_last_chunk::<2>()?);
        let sizes = matrices([elements(lead), m, k, n], [m * k, n * k]);
        Some(Loops::kernel("squared_distances", [KernelArg::Operand(0), KernelArg::Operand(1), sizes]))
    }

    fn implementation(&self, _: &Site<'_>) -> Implementation {
        Implementation::Call(Arg::call(
            "tensor::linalg::squared_distances",
            [Arg::Operand(0), Arg::Operand(1)],
        ))
    }
}
