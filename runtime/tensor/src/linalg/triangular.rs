//! Triangular systems.

use super::matrices::Triangle;
use crate::Tensor;
use crate::backend::Backend;
use crate::check::ensure;
use crate::compose::calc;
use alloc::vec;

/// What stands on the diagonal of a triangular matrix (`diag` of BLAS).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Diagonal {
    /// What the matrix has there.
    Given,
    /// Ones, whatever the matrix has there.
    Unit,
}

/// The `X` of `A · X = B`, where each matrix `A` is triangular: the other triangle is not read. Dims before the last two are broadcast. Block by
/// block (Golub and Van Loan, "Matrix Computations", section 3.1.4), in f32 or f64, on the device. What a zero on the diagonal leaves open is not
/// finite.
///
/// # Panics
/// When the last two dims of `a` are not one square matrix each, or `b` has other rows.
pub fn solve_triangular<B: Backend, const D: usize>(
    a: Tensor<B, D>,
    b: Tensor<B, D>,
    triangle: Triangle,
    diagonal: Diagonal,
) -> Tensor<B, D> {
    let (of_a, of_b, dtype) = (a.shape(), b.shape(), b.dtype());
    let is_square = D >= 2 && of_a[D - 1] == of_a[D - 2];
    ensure!(is_square, "solve_triangular", "the last two dims of {of_a} are no square matrix");
    ensure!(of_b[D - 2] == of_a[D - 1], "solve_triangular", "{of_a} and {of_b} have other rows");
    let wide = calc::wide(dtype);
    System { triangle, diagonal }.solve(a.cast(wide), b.cast(wide)).cast(dtype)
}

struct System {
    triangle: Triangle,
    diagonal: Diagonal,
}

impl System {
    fn solve<B: Backend, const D: usize>(&self, a: Tensor<B, D>, b: Tensor<B, D>) -> Tensor<B, D> {
        let size = a.dims()[D - 1];
        if size == 0 {
            return b;
        }
        if size == 1 {
            return match self.diagonal {
                Diagonal::Given => b.div(a),
                Diagonal::Unit => b.add(a.zeros_like()),
            };
        }
        let (first, rest) = (size / 2, size - size / 2);
        let part =
            |start, rows, from, columns| a.clone().narrow(D - 2, start, rows).narrow(D - 1, from, columns);
        let (top, bottom) = (part(0, first, 0, first), part(first, rest, first, rest));
        let (above, below) = (b.clone().narrow(D - 2, 0, first), b.narrow(D - 2, first, rest));
        let (above, below) = match self.triangle {
            Triangle::Lower => {
                let above = self.solve(top, above);
                let known = part(first, rest, 0, first).matmul(above.clone());
                (above, self.solve(bottom, below - known))
            }
            Triangle::Upper => {
                let below = self.solve(bottom, below);
                let known = part(0, first, first, rest).matmul(below.clone());
                (self.solve(top, above - known), below)
            }
        };
        Tensor::cat(vec![above, below], D - 2)
    }
}
