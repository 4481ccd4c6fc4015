//! Jacobi's rotations, many at a time: what eigenvalues and singular values are found by.
//!
//! In a round each column of a matrix meets another one, and all pairs are rotated together; in a sweep each has met each (Golub and Van Loan,
//! "Matrix Computations", section 8.5.6, with the order of Brent and Luk, "The Solution of Singular-Value and Symmetric Eigenvalue Problems on
//! Multiprocessor Arrays"). How many sweeps there are follows from the size alone, so that no device is read.

use crate::backend::Backend;
use crate::{DType, Int, Tensor, TensorData};
use alloc::vec::Vec;

/// Columns that meet in pairs: those of the first half those of the second one.
pub(super) struct Tournament<B: Backend> {
    /// Pairs of a round.
    pub pairs: usize,
    /// Rounds of all sweeps.
    pub rounds: usize,
    /// Where each column of the next round stands in this one. After a sweep all stand where they stood at first.
    next: Tensor<B, 1, Int>,
}

impl<B: Backend> Tournament<B> {
    /// Of as many columns, one more if they are not even.
    pub fn new(columns: usize, dtype: DType, device: &B::Device) -> Self {
        let pairs = columns.div_ceil(2).max(1);
        // The first one stays where it is, and all others go round in a circle.
        let next = (0..2 * pairs).map(|place| match place {
            0 => 0,
            1 if pairs > 1 => pairs,
            _ if place + 1 == 2 * pairs => {
                if pairs > 1 {
                    pairs - 1
                } else {
                    1
                }
            }
            _ if place < pairs => place - 1,
            _ => place + 1,
        });
        let next: Vec<i64> = next.map(|place| place as i64).collect();
        let next = Tensor::from_data(TensorData::new(next, [2 * pairs]), device);
        // What is left off the diagonal is squared by each of the last sweeps; the first ones are as many as the logarithm of the size.
        let last = if dtype == DType::F64 { 6 } else { 5 };
        let sweeps = last + (2 * pairs).ilog2() as usize;
        Self { pairs, rounds: sweeps * (2 * pairs - 1), next }
    }

    /// How many columns there are.
    pub fn columns(&self) -> usize {
        2 * self.pairs
    }

    /// The columns of either half.
    pub fn halves(&self, matrices: Tensor<B, 3>) -> [Tensor<B, 3>; 2] {
        [matrices.clone().narrow(2, 0, self.pairs), matrices.narrow(2, self.pairs, self.pairs)]
    }

    /// Turns pairs of columns, and puts them where the next round has them.
    pub fn rotated(&self, matrices: Tensor<B, 3>, by: &Rotation<B>) -> Tensor<B, 3> {
        let [left, right] = self.halves(matrices);
        let turned = left.clone() * by.cos.clone() - right.clone() * by.sin.clone();
        let other = left * by.sin.clone() + right * by.cos.clone();
        Tensor::cat(alloc::vec![turned, other], 2).select(2, self.next.clone())
    }
}

/// A rotation of each pair of a round: `[matrices, 1, pairs]`.
pub(super) struct Rotation<B: Backend> {
    cos: Tensor<B, 3>,
    sin: Tensor<B, 3>,
}

impl<B: Backend> Rotation<B> {
    /// Those by which the symmetric 2x2 matrices `[[first, between], [between, second]]` become diagonal: of both the smaller one ("Matrix
    /// Computations", algorithm 8.5.1).
    pub fn diagonalizing(first: Tensor<B, 3>, between: Tensor<B, 3>, second: Tensor<B, 3>) -> Self {
        let (gap, twice) = (second - first, between * 2.0);
        let length = (gap.clone() * gap.clone() + twice.clone() * twice.clone()).sqrt() + gap.clone().abs();
        let is_done = length.clone().equal_elem(0);
        let towards = twice.clone().mask_where(gap.lower_elem(0), twice.neg());
        let tangent = towards / length.mask_fill(is_done, 1);
        let cos = (tangent.clone() * tangent.clone() + 1.0).sqrt().recip();
        Self { sin: cos.clone() * tangent, cos }
    }
}

/// What is on the diagonals of square matrices, as rows.
pub(super) fn diagonal<B: Backend>(matrices: Tensor<B, 3>, identity: &Tensor<B, 3>) -> Tensor<B, 3> {
    (matrices * identity.clone()).sum_dim(1)
}

/// 1 by each number, and 0 by 0.
pub(super) fn reciprocal<B: Backend>(numbers: Tensor<B, 3>) -> Tensor<B, 3> {
    let is_zero = numbers.clone().equal_elem(0);
    numbers.mask_fill(is_zero.clone(), 1).recip().mask_fill(is_zero, 0)
}
