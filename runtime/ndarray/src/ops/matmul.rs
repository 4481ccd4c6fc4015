//! Matrix products.

use crate::compute::{Compute, widened2};
use crate::layout::{Layout, row_major};
use crate::rows::{Rows, walk};
use crate::tensor::NdArrayTensor;
use kiln_tensor::Shape;
use kiln_tensor::backend::Primitive;

/// Product over the last two dims; the leading dims broadcast.
pub(crate) fn matmul(lhs: NdArrayTensor, rhs: NdArrayTensor) -> NdArrayTensor {
    widened2(lhs, rhs, |lhs, rhs| by_compute!(lhs.dtype(), T => typed::<T>(lhs, rhs)))
}

fn typed<T: Compute>(lhs: NdArrayTensor, rhs: NdArrayTensor) -> NdArrayTensor {
    let (dtype, lead) = (lhs.dtype(), lhs.dims().len() - 2);
    let (m, k, n) = (lhs.dims()[lead], lhs.dims()[lead + 1], rhs.dims()[lead + 1]);
    let batch = Shape::from(&lhs.dims()[..lead]).broadcast(&Shape::from(&rhs.dims()[..lead]));
    let batch = match batch {
        Some(batch) if rhs.dims()[lead] == k => batch,
        _ => panic!("matmul: {} and {} do not fit", lhs.shape(), rhs.shape()),
    };
    let mut shape = batch.clone();
    shape.dims.extend([m, n]);
    let (lhs, rhs) = (lhs.into_contiguous(), rhs.into_contiguous());
    let matrices = |tensor: &NdArrayTensor, size: usize| {
        let dims = &tensor.dims()[..lead];
        let strides = row_major(dims).iter().map(|stride| stride * size as isize).collect();
        Layout { shape: dims.into(), strides, offset: 0 }.expand(&batch)
    };
    let rows = Rows::new([&matrices_of(&batch, m * n), &matrices(&lhs, m * k), &matrices(&rhs, k * n)]);
    let (len, [c_step, a_step, b_step]) = (rows.len, rows.steps);
    let (a, b) = (lhs.slice::<T>(), rhs.slice::<T>());
    NdArrayTensor::build(shape, dtype, |out: &mut [T]| {
        rows.for_each(|[c_at, a_at, b_at]| {
            walk(c_at, c_step, len, |i, c_at| {
                let a_at = (a_at as isize + i as isize * a_step) as usize;
                let b_at = (b_at as isize + i as isize * b_step) as usize;
                product(&mut out[c_at..][..m * n], &a[a_at..][..m * k], &b[b_at..][..k * n], [m, k, n]);
            });
        });
    })
}

fn matrices_of(batch: &Shape, size: usize) -> Layout {
    let mut layout = Layout::contiguous(batch.clone());
    layout.strides.iter_mut().for_each(|stride| *stride *= size as isize);
    layout
}

/// `c = a · b` for row-major matrices.
pub(crate) fn product<T: Compute>(c: &mut [T], a: &[T], b: &[T], [m, k, n]: [usize; 3]) {
    c.fill(T::ZERO);
    if m == 0 || n == 0 || k == 0 {
        return;
    }
    for (c, a) in c.chunks_exact_mut(n).zip(a.chunks_exact(k)) {
        for (&x, b) in a.iter().zip(b.chunks_exact(n)) {
            c.iter_mut().zip(b).for_each(|(c, &y)| *c = c.add(x.mul(y)));
        }
    }
}
