//! Matrix products.

use crate::compute::{Compute, compute_dtype, widened2};
use crate::ops::{cast, copy};
use crate::rows::{Rows, walk};
use crate::storage::Buffer;
use crate::tensor::{NdArrayTensor, same_dtype};
use alloc::sync::Arc;
use bytemuck::Pod;
use kiln_kernels::gemm::{self, Bias, Epilogue, Lhs, Matrix, PackedBf16, PackedRhs, Rhs};
use kiln_tensor::backend::Layout;
use kiln_tensor::backend::Primitive;
use kiln_tensor::{Activation, DType, Precision, Shape};

/// Product over the last two dims; the leading dims broadcast.
pub(crate) fn matmul(lhs: NdArrayTensor, rhs: NdArrayTensor) -> NdArrayTensor {
    same_dtype("matmul", &lhs, &rhs);
    let lead = lhs.dims().len() - 2;
    let (m, k, n) = (lhs.dims()[lead], lhs.dims()[lead + 1], rhs.dims()[lead + 1]);
    let batch = Shape::from(&lhs.dims()[..lead]).broadcast(&Shape::from(&rhs.dims()[..lead]));
    let batch = match batch {
        Some(batch) if rhs.dims()[lead] == k => batch,
        _ => panic!("matmul: {} and {} do not fit", lhs.shape(), rhs.shape()),
    };
    let mut shape = batch.clone();
    shape.dims.extend([m, n]);
    if compute_dtype(lhs.dtype()) == DType::F32 && rhs.dims()[..lead].iter().all(|&dim| dim == 1) {
        // All left matrices under each other, against one right matrix.
        let rhs = copy::reshape(rhs, [k, n].into());
        return rows_times(&lhs, &rhs, None, None, shape);
    }
    widened2(lhs, rhs, |lhs, rhs| {
        by_compute!(
            lhs.dtype(),
            F32 => batched(lhs, rhs, batch, shape),
            T => batched_generic::<T>(lhs, rhs, batch, shape)
        )
    })
}

/// `activation(x · weight + bias)`: `x` is `[…, in]`, `weight` `[in, out]`, `bias` `[out]`; float dtypes but f64.
pub(crate) fn linear(
    x: NdArrayTensor,
    weight: &NdArrayTensor,
    bias: Option<&NdArrayTensor>,
    activation: Option<Activation>,
) -> NdArrayTensor {
    let mut shape = x.shape();
    match shape.dims.last_mut() {
        Some(last) if weight.dims().len() == 2 && *last == weight.dims()[0] => *last = weight.dims()[1],
        _ => panic!("linear: x is {shape} and weight is {}", weight.shape()),
    }
    rows_times(&x, weight, bias, activation, shape)
}

/// All rows of `x` (its last dim) times a `[k, n]` matrix, with what follows, in a shape that holds `[rows, n]` and in the dtype of `x`.
fn rows_times(
    x: &NdArrayTensor,
    weight: &NdArrayTensor,
    bias: Option<&NdArrayTensor>,
    activation: Option<Activation>,
    shape: Shape,
) -> NdArrayTensor {
    let dtype = x.dtype();
    let &[k, n] = weight.dims() else { panic!("linear: weight is {}", weight.shape()) };
    let rows = x.dims().iter().rev().skip(1).product::<usize>();
    // Mostly both are there as they are wanted: small products would take as long to hand them around.
    let as_wanted = |x: &NdArrayTensor| x.dtype() == DType::F32 && x.is_contiguous();
    let made_x = (!as_wanted(x)).then(|| as_matrix(cast::cast(x.clone(), DType::F32), rows, k));
    let made_bias = bias.filter(|bias| !as_wanted(bias));
    let made_bias = made_bias.map(|bias| cast::cast(bias.clone(), DType::F32).into_contiguous());
    let bias = made_bias.as_ref().or(bias);
    if Precision::current() == Precision::Bf16 {
        let x = made_x.unwrap_or_else(|| as_matrix(x.clone(), rows, k));
        return cast::cast(rounded_rows_times(x, weight, bias, activation, shape), dtype);
    }
    let lhs = made_x.as_ref().map_or_else(|| Matrix::row_major(x.slice(), k), matrix);
    let packed = packed_rhs(weight);
    let plain = match packed {
        Some(_) => None,
        None => Some(with_matrices(cast::cast(weight.clone(), DType::F32))),
    };
    let y = NdArrayTensor::build(shape, DType::F32, |out| {
        let rhs = match (packed, &plain) {
            (Some(packed), _) => Rhs::Packed(&packed.1),
            (None, Some(plain)) => Rhs::Plain(matrix(plain)),
            (None, None) => return,
        };
        let bias = bias.map_or(Bias::None, |bias| Bias::PerColumn(bias.slice()));
        let epilogue = Epilogue { bias, residual: None, activation };
        gemm::gemm(rows, n, k, Lhs::Plain(lhs), rhs, out, n, &epilogue);
    });
    cast::cast(y, dtype)
}

/// [`rows_times`] of a matrix `x` with both operands rounded to bf16.
fn rounded_rows_times(
    x: NdArrayTensor,
    weight: &NdArrayTensor,
    bias: Option<&NdArrayTensor>,
    activation: Option<Activation>,
    shape: Shape,
) -> NdArrayTensor {
    let &[k, n] = weight.dims() else { panic!("linear: weight is {}", weight.shape()) };
    let x = with_rows(x);
    let rows = x.dims()[0];
    let pack = || {
        let weight = with_matrices(cast::cast(weight.clone(), DType::F32));
        PackedBf16::consuming(matrix(&weight), k, n, &|read| weight.release(read))
    };
    let make = || (weight.layout().clone(), pack());
    let packed =
        weight.prepared(|key| key == weight.layout(), make).cloned().unwrap_or_else(|| Arc::new(make()));
    NdArrayTensor::build(shape, DType::F32, |out| {
        let bias = bias.map_or(Bias::None, |bias| Bias::PerColumn(bias.slice()));
        let (x, epilogue) = (matrix(&x), Epilogue { bias, residual: None, activation });
        gemm::gemm_bf16(rows, x.data, x.row_stride, &packed.1, out, n, &epilogue);
    })
}

/// `x` as `[rows, k]`, a view with non-negative strides where that is possible.
fn as_matrix(x: NdArrayTensor, rows: usize, k: usize) -> NdArrayTensor {
    with_matrices(if *x.dims() == [rows, k] { x } else { copy::reshape(x, [rows, k].into()) })
}

/// A tensor whose last two dims have strides that a [`Matrix`] can have.
#[inline]
pub(super) fn with_matrices(x: NdArrayTensor) -> NdArrayTensor {
    let strides = &x.layout().strides;
    if strides[strides.len() - 2..].iter().all(|&stride| stride >= 0) { x } else { copy::contiguous(&x) }
}

/// A tensor the elements of whose last dim lie side by side.
pub(super) fn with_rows(x: NdArrayTensor) -> NdArrayTensor {
    let x = with_matrices(x);
    if x.layout().strides.last() == Some(&1) { x } else { copy::contiguous(&x) }
}

/// The last two dims from the first element on.
pub(crate) fn matrix<T: Pod>(x: &NdArrayTensor) -> Matrix<'_, T> {
    let Layout { strides, offset, .. } = x.layout();
    let data = if x.is_empty() { &[] } else { &x.storage()[*offset..] };
    let [row_stride, col_stride] = [2, 1].map(|i| strides[strides.len() - i].unsigned_abs());
    Matrix { data, row_stride, col_stride }
}

/// A `[k, n]` weight packed as a right operand, once for all uses (see [`NdArrayTensor::prepared`]).
pub(crate) fn packed_rhs(weight: &NdArrayTensor) -> Option<&Arc<(Layout, PackedRhs)>> {
    let &[k, n] = weight.dims() else { return None };
    let make = || {
        let matrices = with_matrices(cast::cast(weight.clone(), DType::F32));
        let packed = PackedRhs::consuming(matrix(&matrices), k, n, &|read| matrices.release(read));
        (weight.layout().clone(), packed)
    };
    weight.prepared(|key| key == weight.layout(), make)
}

/// Where the matrices of each product start in both operands, in row-major order of the batch: as `[usize; 2]`, in memory of the pool.
fn offsets(lhs: &NdArrayTensor, rhs: &NdArrayTensor, batch: &Shape) -> Buffer {
    let lead = |tensor: &NdArrayTensor| {
        let Layout { shape, strides, offset } = tensor.layout();
        let lead = batch.rank();
        Layout { shape: shape.dims[..lead].into(), strides: strides[..lead].into(), offset: *offset }
            .expand(batch)
    };
    let rows = Rows::new([&lead(lhs), &lead(rhs)]);
    let (len, [a_step, b_step]) = (rows.len, rows.steps);
    let mut offsets = Buffer::new::<[usize; 2]>(batch.num_elements());
    let mut places = offsets.as_mut::<[usize; 2]>().iter_mut();
    rows.for_each(|[a, b]| {
        walk(a, a_step, len, |i, a| {
            if let Some(place) = places.next() {
                *place = [a, (b as isize + i as isize * b_step) as usize];
            }
        });
    });
    offsets
}

fn batched(lhs: NdArrayTensor, rhs: NdArrayTensor, batch: Shape, shape: Shape) -> NdArrayTensor {
    let rounds = Precision::current() == Precision::Bf16;
    let lhs = if rounds { with_rows(lhs) } else { with_matrices(lhs) };
    let rhs = with_matrices(rhs);
    let lead = batch.rank();
    let (m, k, n) = (lhs.dims()[lead], lhs.dims()[lead + 1], rhs.dims()[lead + 1]);
    NdArrayTensor::build(shape, DType::F32, |out: &mut [f32]| {
        if k == 0 {
            return out.fill(0.0);
        }
        // There may be more products of nothing than memory holds places.
        if out.is_empty() {
            return;
        }
        let mut offsets = offsets(&lhs, &rhs, &batch);
        let whole = |x| Matrix { data: NdArrayTensor::storage(x), ..matrix(x) };
        let product = if rounds { gemm::gemm_bf16_batched } else { gemm::gemm_batched };
        product(m, n, k, whole(&lhs), whole(&rhs), offsets.as_mut(), out);
    })
}

fn batched_generic<T: Compute>(
    lhs: NdArrayTensor,
    rhs: NdArrayTensor,
    batch: Shape,
    shape: Shape,
) -> NdArrayTensor {
    let (lhs, rhs) = (with_matrices(lhs), with_matrices(rhs));
    let (lead, dtype) = (batch.rank(), lhs.dtype());
    let (m, k, n) = (lhs.dims()[lead], lhs.dims()[lead + 1], rhs.dims()[lead + 1]);
    NdArrayTensor::build(shape, dtype, |out: &mut [T]| {
        if k == 0 {
            return out.fill(T::ZERO);
        }
        if out.is_empty() {
            return;
        }
        let mut offsets = offsets(&lhs, &rhs, &batch);
        let offsets = offsets.as_mut::<[usize; 2]>();
        for (&mut [a, b], out) in offsets.iter_mut().zip(out.chunks_exact_mut(m * n)) {
            let a = Matrix { data: &lhs.storage()[a..], ..matrix(&lhs) };
            let b = Matrix { data: &rhs.storage()[b..], ..matrix(&rhs) };
            gemm::gemm_generic(m, n, k, a, b, out);
        }
    })
}

/// `c = a · b` for row-major matrices.
pub(crate) fn product<T: Compute>(c: &mut [T], a: &[T], b: &[T], [m, k, n]: [usize; 3]) {
    if m == 0 || n == 0 || k == 0 {
        return c.fill(T::ZERO);
    }
    gemm::gemm_generic(m, n, k, Matrix::row_major(a, k), Matrix::row_major(b, n), c);
}
