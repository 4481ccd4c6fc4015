//! Distances between the rows of two matrices.

use crate::compute::compute_dtype;
use crate::ops::cast;
use crate::tensor::{NdArrayTensor, same_dtype};
use kiln_kernels::distance;
use kiln_tensor::backend::Primitive;
use kiln_tensor::{DType, Shape};

/// See [`Backend::squared_distances`](kiln_tensor::backend::Backend::squared_distances): in f32; `None` for f64.
pub(crate) fn squared(x: &NdArrayTensor, y: &NdArrayTensor) -> Option<NdArrayTensor> {
    same_dtype("squared_distances", x, y);
    let dtype = x.dtype();
    if compute_dtype(dtype) != DType::F32 {
        return None;
    }
    let [x, y] = [x, y].map(|rows| cast::cast(rows.clone(), DType::F32).into_contiguous());
    let (&[.., m, k], &[.., n, k_of_y]) = (x.dims(), y.dims()) else {
        panic!("squared_distances: x is {}, y {}", x.shape(), y.shape())
    };
    assert_eq!(k, k_of_y, "squared_distances: x is {}, y {}", x.shape(), y.shape());
    let mut dims = x.dims().to_vec();
    dims.pop();
    dims.push(n);
    let count = dims[..dims.len() - 2].iter().product();
    let distances = NdArrayTensor::build(Shape::from(dims), DType::F32, |out| {
        distance::squared_distances([count, m, n, k], x.slice(), y.slice(), out);
    });
    Some(cast::cast(distances, dtype))
}
