//! Reading by index: select, gather, non-zero.

use crate::ops::lanes::Lanes;
use crate::ops::{cast, copy};
use crate::rows::{Rows, walk};
use crate::tensor::NdArrayTensor;
use alloc::{vec, vec::Vec};
use kiln_kernels::threads::parallel_chunks;
use kiln_tensor::backend::{Layout, Primitive, SliceRange};
use kiln_tensor::{DType, Shape};

/// An index tensor as row-major i64.
pub(crate) fn indices(tensor: NdArrayTensor) -> NdArrayTensor {
    cast::cast(tensor, DType::I64).into_contiguous()
}

/// Stops on an index outside its dim.
///
/// # Panics
/// Names the operation, the index and the dim's size.
pub(crate) fn check(indices: &[i64], size: usize, dim: usize, op: &str) {
    if let Some(index) = indices.iter().find(|&&index| index < 0 || index as u64 >= size as u64) {
        panic!("{op}: index {index} is out of range for dim {dim} of size {size}");
    }
}

/// Stops when the elements named along `dim` reach beyond the tensor in another dim.
pub(crate) fn check_others(named: &Shape, tensor: &NdArrayTensor, dim: usize, op: &str) {
    let fits = named.dims.iter().zip(tensor.dims()).enumerate().all(|(i, (a, b))| i == dim || a <= b);
    assert!(
        fits && named.rank() == tensor.dims().len(),
        "{op}: indices {named} do not fit {}",
        tensor.shape()
    );
}

/// Elements that a thread copies at a time.
const PIECE: usize = 4096;

/// Rows of `dim` named by a rank-1 index.
pub(crate) fn select(tensor: NdArrayTensor, dim: usize, index: NdArrayTensor) -> NdArrayTensor {
    let index = indices(index);
    let index = index.slice::<i64>();
    check(index, tensor.dims()[dim], dim, "select");
    if let &[only] = index {
        let ranges: Vec<SliceRange> = (0..tensor.dims().len())
            .map(|axis| match axis == dim {
                true => SliceRange { start: only as usize, end: only as usize + 1, step: 1 },
                false => SliceRange::full(tensor.dims()[axis]),
            })
            .collect();
        let layout = tensor.layout().slice(&ranges);
        return tensor.with_layout(layout);
    }
    let mut shape = tensor.shape();
    shape.dims[dim] = index.len();
    let dtype = tensor.dtype();
    let tensor = rows_contiguous(tensor, dim);
    let stride = tensor.layout().strides.clone();
    let lanes = Lanes::along(&shape.dims, dim);
    let inner = lanes.inner;
    let outer_dims = Layout {
        shape: shape.dims[..dim].into(),
        strides: stride[..dim].into(),
        offset: tensor.layout().offset,
    };
    // Rows that a thread copies at a time.
    let piece = (PIECE / inner.max(1)).max(1);
    by_size!(dtype, T => NdArrayTensor::build(shape, dtype, |out: &mut [T]| {
        let source = tensor.storage::<T>();
        let work = piece * (inner / 16 + 1);
        parallel_chunks(out, piece * inner.max(1), work, |i, mut out| {
            let mut row = i * piece;
            while !out.is_empty() {
                let first = row % index.len();
                let start = element(&outer_dims, row / index.len());
                let count = (index.len() - first).min(out.len() / inner);
                let (part, rest) = out.split_at_mut(count * inner);
                let starts = index[first..].iter().map(|&index| {
                    (start as isize + index as isize * stride[dim]) as usize
                });
                let rows = starts.zip(part.chunks_exact_mut(inner));
                match inner {
                    1 => copy_rows::<T, 1>(source, rows),
                    2 => copy_rows::<T, 2>(source, rows),
                    3 => copy_rows::<T, 3>(source, rows),
                    4 => copy_rows::<T, 4>(source, rows),
                    6 => copy_rows::<T, 6>(source, rows),
                    8 => copy_rows::<T, 8>(source, rows),
                    12 => copy_rows::<T, 12>(source, rows),
                    16 => copy_rows::<T, 16>(source, rows),
                    _ => rows.for_each(|(at, row)| row.copy_from_slice(&source[at..][..inner])),
                }
                row += count;
                out = rest;
            }
        });
    }))
}

/// The element at a row-major position of a layout.
fn element(layout: &Layout, mut position: usize) -> usize {
    let mut at = layout.offset as isize;
    for (dim, stride) in layout.shape.dims.iter().zip(&layout.strides).rev() {
        at += (position % dim) as isize * stride;
        position /= dim;
    }
    at as usize
}

/// Copies rows of `N` elements, each from where it begins: few elements are moved at once, where a copy of any size would cost more than what it
/// copies.
fn copy_rows<'a, T: Copy + 'a, const N: usize>(
    source: &[T],
    rows: impl Iterator<Item = (usize, &'a mut [T])>,
) {
    rows.for_each(|(at, row)| row[..N].copy_from_slice(&source[at..][..N]));
}

/// A tensor whose dims after `dim` are row-major, so that each index names one run of elements.
fn rows_contiguous(tensor: NdArrayTensor, dim: usize) -> NdArrayTensor {
    let layout = tensor.layout();
    let inner = Layout {
        shape: layout.shape.dims[dim + 1..].into(),
        strides: layout.strides[dim + 1..].into(),
        offset: 0,
    };
    if inner.is_contiguous() { tensor } else { copy::contiguous(&tensor) }
}

/// `out[i][j] = tensor[indices[i][j]][j]` (for `dim` 0).
pub(crate) fn gather(tensor: NdArrayTensor, dim: usize, index: NdArrayTensor) -> NdArrayTensor {
    let size = tensor.dims()[dim];
    let shape = index.shape();
    let index = indices(index);
    let index = index.slice::<i64>();
    check(index, size, dim, "gather");
    check_others(&shape, &tensor, dim, "gather");
    let dtype = tensor.dtype();
    // Positions along `dim` come from the index, the others from where the index stands.
    let stride = tensor.layout().strides[dim];
    let mut base = tensor.layout().clone();
    base.shape = shape.clone();
    base.strides[dim] = 0;
    let rows = Rows::new([&Layout::contiguous(shape.clone()), &base]);
    let (len, [_, step]) = (rows.len, rows.steps);
    by_size!(dtype, T => NdArrayTensor::build(shape, dtype, |out: &mut [T]| {
        let source = tensor.storage::<T>();
        rows.for_each(|[to, from]| walk(from, step, len, |i, at| {
            out[to + i] = source[(at as isize + index[to + i] as isize * stride) as usize];
        }));
    }))
}

/// Indices of the non-zero elements in row-major order, `[n, rank]`.
pub(crate) fn nonzero(tensor: NdArrayTensor) -> NdArrayTensor {
    let mask = cast::cast(tensor, DType::Bool).into_contiguous();
    let dims = mask.dims();
    let rank = dims.len();
    let mut found: Vec<i64> = Vec::new();
    let mut at = vec![0i64; rank];
    for &element in mask.slice::<u8>() {
        if element != 0 {
            found.extend_from_slice(&at);
        }
        for (i, dim) in dims.iter().enumerate().rev() {
            at[i] += 1;
            if at[i] < *dim as i64 {
                break;
            }
            at[i] = 0;
        }
    }
    let count = mask.slice::<u8>().iter().filter(|&&x| x != 0).count();
    NdArrayTensor::build([count, rank].into(), DType::I64, |out: &mut [i64]| out.copy_from_slice(&found))
}
