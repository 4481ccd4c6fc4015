//! Linear algebra.

mod det;
mod distance;
mod einsum;
mod inverse;
mod lu;
mod norms;
mod products;

pub use det::det;
pub use distance::squared_distances;
pub use einsum::einsum;
pub use inverse::inverse;
pub use lu::{lu_decomposition, lu_decomposition_async};
pub use norms::{
    Norm, cosine_similarity, l0_norm, l1_norm, l2_norm, lp_norm, max_abs_norm, min_abs_norm, root_of_squares,
    vector_norm, vector_normalize,
};
pub use products::{diag, matvec, outer, outer_dim, trace};
