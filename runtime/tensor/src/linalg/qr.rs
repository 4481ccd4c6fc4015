//! Orthogonal triangular decomposition.

use super::matrices::{identity, matrices, scale, transposed};
use crate::Tensor;
use crate::backend::Backend;
use crate::check::ensure;
use crate::linalg::root_of_squares;
use alloc::{vec, vec::Vec};

/// How many columns `Q` of a decomposition has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Columns {
    /// As many as the matrix has rows or columns, whichever are fewer.
    Reduced,
    /// As many as the matrix has rows: a basis of all there is.
    Complete,
}

/// `Q`, whose columns are orthonormal, and the upper triangular `R` of which each matrix in the last two dims is `Q · R`. By Householder's
/// reflections (Golub and Van Loan, "Matrix Computations", section 5.2.2) with the signs of LAPACK's (`dlarfg`: those on the diagonal of `R` differ
/// from those that are reflected, unless there is nothing to be reflected), in f32 or f64, on the device.
///
/// # Panics
/// When there are no two dims.
pub fn qr<B: Backend, const D: usize>(
    tensor: Tensor<B, D>,
    columns: Columns,
) -> (Tensor<B, D>, Tensor<B, D>) {
    let (matrices, origin) = matrices("qr", tensor);
    let (q, r) = decomposed(matrices, columns);
    (origin.restore(q), origin.restore(r))
}

/// [`qr`] of matrices `[count, rows, columns]`.
pub(super) fn decomposed<B: Backend>(
    matrices: Tensor<B, 3>,
    columns: Columns,
) -> (Tensor<B, 3>, Tensor<B, 3>) {
    let [count, rows, width] = matrices.dims();
    let steps = rows.min(width);
    let (mut rest, mut reflections) = (matrices.clone(), Vec::with_capacity(steps));
    // Rows of `R`, each without the zeros before its diagonal.
    let mut finished = Vec::with_capacity(steps);
    for step in 0..steps {
        let left = rows - step;
        if left > 1 {
            let reflection = Reflection::of(rest.clone().narrow(2, 0, 1));
            let others = reflection.apply(rest.narrow(2, 1, width - step - 1));
            let zeros = Tensor::zeros([count, left - 1, 1], (&matrices.device(), matrices.dtype()));
            let first = Tensor::cat(vec![reflection.result.clone(), zeros], 1);
            rest = Tensor::cat(vec![first, others], 2);
            reflections.push(reflection);
        }
        finished.push(rest.clone().narrow(1, 0, 1));
        rest = rest.narrow(1, 1, left - 1).narrow(2, 1, width - step - 1);
    }
    let height = match columns {
        Columns::Reduced => steps,
        Columns::Complete => rows,
    };
    let zeros = |rows: usize, columns: usize| {
        Tensor::<B, 3>::zeros([count, rows, columns], (&matrices.device(), matrices.dtype()))
    };
    let mut r: Vec<Tensor<B, 3>> = Vec::with_capacity(steps + 1);
    for (step, row) in finished.into_iter().enumerate() {
        r.push(Tensor::cat(vec![zeros(1, step), row], 2));
    }
    r.push(zeros(height - steps, width));
    // The last reflection is applied first, to columns of the identity, of which it leaves those before its own as they are.
    let mut q = identity(&matrices, rows).narrow(2, 0, height);
    for (step, reflection) in reflections.iter().enumerate().rev() {
        q = reflection.apply_below(q, step);
    }
    (q, Tensor::cat(r, 1))
}

/// `I - factor · vector · vectorᵀ`.
struct Reflection<B: Backend> {
    /// Columns whose first element is 1.
    vector: Tensor<B, 3>,
    factor: Tensor<B, 3>,
    /// What it makes of the first element of the columns that it was made for; of the others it makes zeros.
    result: Tensor<B, 3>,
}

impl<B: Backend> Reflection<B> {
    /// The one that leaves only the first element of columns.
    fn of(columns: Tensor<B, 3>) -> Self {
        let [_, rows, _] = columns.dims();
        let scale = scale(&columns.clone().detach());
        let columns = columns / scale.clone();
        let (first, others) = (columns.clone().narrow(1, 0, 1), columns.narrow(1, 1, rows - 1));
        let squares = (others.clone() * others.clone()).sum_dim(1);
        // Nothing is reflected where nothing has to go.
        let is_done = squares.clone().equal_elem(0);
        let norm = root_of_squares(first.clone() * first.clone() + squares);
        let result = norm.clone().mask_where(first.clone().greater_equal_elem(0), norm.neg());
        let result = result.mask_where(is_done.clone(), first.clone());
        let divisor = (first - result.clone()).mask_fill(is_done.clone(), 1);
        let factor =
            (divisor.clone().neg() / result.clone().mask_fill(is_done.clone(), 1)).mask_fill(is_done, 0);
        let vector = Tensor::cat(vec![factor.ones_like(), others / divisor], 1);
        Self { vector, factor, result: result * scale }
    }

    /// The matrices that it makes of others.
    fn apply(&self, matrices: Tensor<B, 3>) -> Tensor<B, 3> {
        let products = transposed(self.vector.clone()).matmul(matrices.clone());
        matrices - (self.factor.clone() * self.vector.clone()).matmul(products)
    }

    /// The same of the rows from one on.
    fn apply_below(&self, matrices: Tensor<B, 3>, row: usize) -> Tensor<B, 3> {
        let [_, rows, _] = matrices.dims();
        let (above, below) = (matrices.clone().narrow(1, 0, row), matrices.narrow(1, row, rows - row));
        Tensor::cat(vec![above, self.apply(below)], 1)
    }
}

/// The first columns of the product of reflections, as LAPACK keeps them (`orgqr`): of the `n`th the vector is what stands below the diagonal of the
/// column `n`, with a 1 before it, and the factor is the `n`th of `factors`, whose dims are those of the matrices without the rows.
///
/// # Panics
/// When there are no two dims, there are more columns than rows, or more factors than columns.
pub fn householder_product<B: Backend, const D: usize, const F: usize>(
    vectors: Tensor<B, D>,
    factors: Tensor<B, F>,
) -> Tensor<B, D> {
    let (of_vectors, of_factors) = (vectors.shape(), factors.shape());
    let (vectors, origin) = matrices("householder_product", vectors);
    let [count, rows, columns] = vectors.dims();
    let steps = of_factors.dims.last().copied().unwrap_or(1);
    let fits = columns <= rows && steps <= columns && of_factors.num_elements() == count * steps;
    ensure!(fits, "householder_product", "reflections of {of_vectors} with factors of {of_factors}");
    let factors = factors.cast(vectors.dtype()).reshape([count, 1, steps]);
    let mut q = identity(&vectors, rows).narrow(2, 0, columns);
    for step in (0..steps).rev() {
        let factor = factors.clone().narrow(2, step, 1);
        let below = vectors.clone().narrow(2, step, 1).narrow(1, step + 1, rows - step - 1);
        let vector = Tensor::cat(vec![factor.ones_like(), below], 1);
        q = Reflection { vector, result: factor.clone(), factor }.apply_below(q, step);
    }
    origin.restore(q)
}
