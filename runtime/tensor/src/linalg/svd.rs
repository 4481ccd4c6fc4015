//! Singular values.

use super::jacobi::{Rotation, Tournament, diagonal, reciprocal};
use super::matrices::{identity, matrices, scale, transposed};
use super::qr::{self, Columns};
use crate::Tensor;
use crate::backend::Backend;
use alloc::vec;

/// `U`, the singular values as rows (`[…, 1, k]`, the largest first) and `Vᵀ`, of which each matrix in the last two dims is `U · diag(values) · Vᵀ`;
/// `U` and `V` have orthonormal columns, `k` of them, which is the smaller size of a matrix, or all there can be. By Hestenes' method of Jacobi's
/// rotations (Golub and Van Loan, "Matrix Computations", section 8.6.3) in f32 or f64, on the device; as many sweeps as the size asks for.
///
/// The signs of a column of `U` and of `V` together, and which columns span the space of a value that several have, are not defined; nor is the
/// gradient of the latter, which is none here, as that of the columns behind the first `k`.
///
/// # Panics
/// When there are no two dims.
pub fn svd<B: Backend, const D: usize>(
    tensor: Tensor<B, D>,
    columns: Columns,
) -> (Tensor<B, D>, Tensor<B, D>, Tensor<B, D>) {
    let (matrices, origin) = matrices("svd", tensor);
    let [_, rows, width] = matrices.dims();
    let fixed = matrices.clone().detach();
    let mut parts = if rows >= width {
        decomposed(fixed, columns)
    } else {
        let Parts { u, values, v } = decomposed(transposed(fixed), columns);
        Parts { u: v, values, v: u }
    };
    if matrices.is_tracked() {
        let change = matrices.clone() - matrices.detach();
        // Of the second order, a function changes as its derivative half the way there says.
        let midway = parts.moved(&parts, change.clone() / 2.0);
        parts = parts.moved(&midway, change);
    }
    let Parts { u, values, v } = parts;
    (origin.restore(u), origin.restore(values), origin.restore(transposed(v)))
}

struct Parts<B: Backend> {
    u: Tensor<B, 3>,
    values: Tensor<B, 3>,
    v: Tensor<B, 3>,
}

/// Of matrices that have no fewer rows than columns.
fn decomposed<B: Backend>(matrices: Tensor<B, 3>, columns: Columns) -> Parts<B> {
    let [count, rows, width] = matrices.dims();
    if width == 0 || count == 0 {
        let values = Tensor::zeros([count, 1, width], (&matrices.device(), matrices.dtype()));
        let (u, _) = qr::decomposed(matrices.clone(), columns);
        return Parts { u, values, v: identity(&matrices, width) };
    }
    let scale = scale(&matrices);
    let tournament = Tournament::new(width, matrices.dtype(), &matrices.device());
    // A column that makes the number even is 0, and is not turned by any.
    let more = tournament.columns() - width;
    let mut turned = (matrices / scale.clone()).pad((0, more, 0, 0), 0.0);
    let mut v = identity(&turned, tournament.columns());
    for _ in 0..tournament.rounds {
        let [left, right] = tournament.halves(turned.clone());
        let product = |a: &Tensor<B, 3>, b: &Tensor<B, 3>| (a.clone() * b.clone()).sum_dim(1);
        let (first, between) = (product(&left, &left), product(&left, &right));
        let rotation = Rotation::diagonalizing(first, between, product(&right, &right));
        turned = tournament.rotated(turned, &rotation);
        v = tournament.rotated(v, &rotation);
    }
    let turned = turned.narrow(2, 0, width);
    let v = v.narrow(1, 0, width).narrow(2, 0, width);
    let lengths = (turned.clone() * turned.clone()).sum_dim(1).sqrt();
    let (lengths, order) = lengths.sort_descending_with_indices(2);
    let v = v.gather(2, order.clone().expand([count, width, width]));
    let turned = turned.gather(2, order.expand([count, rows, width]));
    // Of columns that are orthonormal, `R` has 1 or -1 on its diagonal; what has no length, and what is behind, becomes some basis of the rest.
    let (q, r) = qr::decomposed(turned * reciprocal(lengths.clone()), columns);
    let signs = diagonal(r.narrow(1, 0, width), &identity(&v, width));
    let signs = signs.ones_like().mask_fill(signs.lower_elem(0), -1);
    let [.., all] = q.dims();
    let own = q.clone().narrow(2, 0, width) * signs;
    let u = if all == width { own } else { Tensor::cat(vec![own, q.narrow(2, width, all - width)], 2) };
    Parts { u, values: lengths * scale, v }
}

impl<B: Backend> Parts<B> {
    /// What a small change of the matrices makes of the parts, as the derivative at others tells (Townsend, "Differentiating the Singular Value
    /// Decomposition"). The change is 0, but gradients flow through it.
    fn moved(&self, at: &Self, change: Tensor<B, 3>) -> Self {
        let [_, rows, width] = change.dims();
        let count = rows.min(width);
        let [u, v] = [&at.u, &at.v].map(|all| all.clone().narrow(2, 0, count));
        let row = at.values.clone();
        let column = transposed(row.clone());
        let inner = transposed(u.clone()).matmul(change.clone()).matmul(v.clone());
        let gaps = reciprocal((row.clone() - column.clone()) * (row.clone() + column.clone()));
        // How columns turn among themselves, and then out of the space that they span.
        let among = |inner: Tensor<B, 3>| {
            (inner.clone() * row.clone() + transposed(inner) * column.clone()) * gaps.clone()
        };
        let out = |own: &Tensor<B, 3>, change: Tensor<B, 3>, other: &Tensor<B, 3>, inner: Tensor<B, 3>| {
            (change.matmul(other.clone()) - own.clone().matmul(inner)) * reciprocal(row.clone())
        };
        let turned = transposed(inner.clone());
        let mut of_u = u.clone().matmul(among(inner.clone()));
        if rows > count {
            of_u = of_u + out(&u, change.clone(), &v, inner.clone());
        }
        let mut of_v = v.clone().matmul(among(turned.clone()));
        if width > count {
            of_v = of_v + out(&v, transposed(change), &u, turned);
        }
        let plus = |all: &Tensor<B, 3>, change: Tensor<B, 3>| {
            let more = all.dims()[2] - count;
            all.clone() + change.pad((0, more, 0, 0), 0.0)
        };
        let values = self.values.clone() + diagonal(inner.clone(), &identity(&inner, count));
        Self { u: plus(&self.u, of_u), values, v: plus(&self.v, of_v) }
    }
}
