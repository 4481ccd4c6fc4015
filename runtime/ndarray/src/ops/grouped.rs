//! Products of rows in groups, each group with a matrix of its own.

use super::matmul::{matrix, with_matrices, with_rows};
use crate::compute::compute_dtype;
use crate::ops::{cast, index};
use crate::tensor::{NdArrayTensor, same_dtype};
use alloc::vec::Vec;
use core::ops::Range;
use kiln_kernels::gemm::{self, Number};
use kiln_tensor::backend::{Primitive, SliceRange};
use kiln_tensor::{DType, Precision, Shape};

/// The rows of each group that has some, by its number.
fn groups(ends: NdArrayTensor, rows: usize) -> Vec<(usize, Range<usize>)> {
    let ends = index::indices(ends);
    let mut start = 0;
    let mut next = |end: i64| {
        let end = usize::try_from(end).unwrap_or(0).min(rows);
        core::mem::replace(&mut start, end)..end
    };
    let all = ends.slice::<i64>().iter().map(|&end| next(end)).enumerate();
    all.filter(|(_, rows)| !rows.is_empty()).collect()
}

/// Elements of a range of the first dim.
fn part(tensor: &NdArrayTensor, range: Range<usize>) -> NdArrayTensor {
    let mut ranges: Vec<SliceRange> = tensor.dims().iter().map(|&size| SliceRange::full(size)).collect();
    ranges[0] = SliceRange { start: range.start, end: range.end, step: 1 };
    let layout = tensor.layout().slice(&ranges);
    tensor.clone().with_layout(layout)
}

/// A product of matrices and where its result goes.
struct Product {
    /// Rows, columns and depth.
    size: [usize; 3],
    operands: [NdArrayTensor; 2],
    place: Range<usize>,
}

/// See [`Backend::grouped_matmul`](kiln_tensor::backend::Backend::grouped_matmul).
pub(crate) fn matmul(x: &NdArrayTensor, weight: &NdArrayTensor, ends: NdArrayTensor) -> NdArrayTensor {
    same_dtype("grouped_matmul", x, weight);
    let &[rows, depth] = x.dims() else { panic!("grouped_matmul: x is {}", x.shape()) };
    let &[_, _, columns] = weight.dims() else { panic!("grouped_matmul: weight is {}", weight.shape()) };
    let groups = groups(ends, rows);
    let products = groups.into_iter().map(|(group, rows)| Product {
        size: [rows.len(), columns, depth],
        place: rows.start * columns..rows.end * columns,
        operands: [part(x, rows), part(weight, group..group + 1)],
    });
    computed(products, Shape::from([rows, columns]), x.dtype())
}

/// See [`Backend::grouped_matmul_weight_gradient`](kiln_tensor::backend::Backend::grouped_matmul_weight_gradient).
pub(crate) fn weight_gradient(
    gradient: &NdArrayTensor,
    x: &NdArrayTensor,
    ends: NdArrayTensor,
) -> NdArrayTensor {
    same_dtype("grouped_matmul_weight_gradient", gradient, x);
    let (&[rows, depth], &[_, columns]) = (x.dims(), gradient.dims()) else {
        panic!("grouped_matmul_weight_gradient: gradient is {}, x {}", gradient.shape(), x.shape())
    };
    let shape = Shape::from([ends.dims()[0], depth, columns]);
    let products = groups(ends, rows).into_iter().map(|(group, rows)| {
        let turned = part(x, rows.clone());
        let layout = turned.layout().permute(&[1, 0]);
        Product {
            size: [depth, columns, rows.len()],
            place: group * depth * columns..(group + 1) * depth * columns,
            operands: [turned.with_layout(layout), part(gradient, rows)],
        }
    });
    computed(products, shape, x.dtype())
}

/// A tensor of products, which has 0 elsewhere.
fn computed(products: impl Iterator<Item = Product>, shape: Shape, dtype: DType) -> NdArrayTensor {
    let wide = compute_dtype(dtype);
    // Only what is multiplied is converted.
    let products = products.map(|Product { size, operands, place }| {
        let operands = operands.map(|operand| with_matrices(cast::cast(operand, wide)));
        Product { size, operands, place }
    });
    // Nothing is added up where there is no depth.
    let products = products.filter(|product| product.size.iter().all(|&size| size > 0));
    let computed = by_compute!(
        wide,
        F32 => NdArrayTensor::build(shape, wide, |out: &mut [f32]| {
            out.fill(0.0);
            products.for_each(|Product { size, operands, place }| single(size, operands, &mut out[place]));
        }),
        T => NdArrayTensor::build(shape, wide, |out: &mut [T]| {
            out.fill(T::ZERO);
            for Product { size: [m, n, k], operands: [a, b], place } in products {
                gemm::gemm_generic(m, n, k, matrix(&a), matrix(&b), &mut out[place]);
            }
        })
    );
    cast::cast(computed, dtype)
}

fn single([m, n, k]: [usize; 3], [a, b]: [NdArrayTensor; 2], out: &mut [f32]) {
    match Precision::current() {
        Precision::Bf16 => {
            gemm::gemm_bf16_batched(m, n, k, matrix(&with_rows(a)), matrix(&b), &[[0, 0]], out);
        }
        Precision::F32 => gemm::gemm_batched(m, n, k, matrix(&a), matrix(&b), &[[0, 0]], out),
    }
}
