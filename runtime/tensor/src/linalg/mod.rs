//! Linear algebra.

mod cholesky;
mod det;
mod distance;
mod eigen;
mod einsum;
mod exponential;
mod inverse;
mod jacobi;
mod lu;
mod matrices;
mod norms;
mod pivoted;
mod products;
mod qr;
mod svd;
mod triangular;

pub use cholesky::{cholesky, cholesky_inverse, cholesky_solve};
pub use det::det;
pub use distance::squared_distances;
pub use eigen::eigh;
pub use einsum::einsum;
pub use exponential::matrix_exp;
pub use inverse::inverse;
pub use lu::{lu_decomposition, lu_decomposition_async};
pub use matrices::Triangle;
pub use norms::{
    Norm, cosine_similarity, l0_norm, l1_norm, l2_norm, lp_norm, max_abs_norm, min_abs_norm, root_of_squares,
    vector_norm, vector_normalize,
};
pub use pivoted::{lu_factor, pivoted_order};
pub use products::{diag, matvec, outer, outer_dim, trace};
pub use qr::{Columns, householder_product, qr};
pub use svd::svd;
pub use triangular::{Diagonal, solve_triangular};
