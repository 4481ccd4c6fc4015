//! Tensors without elements, however large their other dims are: there is nothing to do, and nothing takes time or memory.

use kiln_ndarray::NdArray;
use kiln_tensor::{Tensor, activation};

type T<const D: usize> = Tensor<NdArray, D>;

/// More rows than a loop comes to an end of.
const MANY: usize = 1 << 40;

fn nothing<const D: usize>(shape: [usize; D]) -> T<D> {
    T::zeros(shape, &Default::default())
}

#[test]
fn many_rows_of_nothing_take_no_time() {
    assert_eq!(activation::softmax(nothing([MANY, 0]), 1).dims(), [MANY, 0]);
    assert_eq!(activation::log_softmax(nothing([MANY, 0, 3]), 1).dims(), [MANY, 0, 3]);
    assert_eq!(nothing([MANY, 0]).cumsum(1).dims(), [MANY, 0]);
    assert_eq!(nothing([MANY, 3, 0]).sum_dim(1).dims(), [MANY, 1, 0]);
}

#[test]
fn many_products_of_nothing_take_no_memory() {
    assert_eq!(nothing([MANY, 0, 2]).matmul(nothing([MANY, 2, 0])).dims(), [MANY, 0, 0]);
}
