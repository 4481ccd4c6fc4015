//! Choosing between two tensors by a mask.

use crate::layout::Layout;
use crate::ops::binary::one_element;
use crate::rows::Rows;
use crate::tensor::NdArrayTensor;
use kiln_tensor::Scalar;
use kiln_tensor::backend::Primitive;

/// `mask ? on_true : on_false`; all three broadcast.
pub(crate) fn select_where(
    mask: NdArrayTensor,
    on_true: NdArrayTensor,
    on_false: NdArrayTensor,
) -> NdArrayTensor {
    let shape = on_true.layout().shape.broadcast(&on_false.layout().shape);
    let Some(shape) = shape.and_then(|shape| shape.broadcast(&mask.layout().shape)) else {
        panic!("mask_where: {}, {} and {} do not broadcast", mask.shape(), on_true.shape(), on_false.shape())
    };
    let to = Layout::contiguous(shape.clone());
    let [mask_at, true_at, false_at] = [&mask, &on_true, &on_false].map(|t| t.layout().expand(&shape));
    let rows = Rows::new([&to, &mask_at, &true_at, &false_at]);
    let (len, [_, mask_step, true_step, false_step]) = (rows.len, rows.steps);
    let mask = mask.storage::<u8>();
    let at = |start: usize, step: isize, i: usize| (start as isize + i as isize * step) as usize;
    by_size!(on_true.dtype(), T => NdArrayTensor::build(shape, on_true.dtype(), |out: &mut [T]| {
        let (on_true, on_false) = (on_true.storage::<T>(), on_false.storage::<T>());
        rows.for_each(|[to, m, a, b]| {
            for (i, out) in out[to..][..len].iter_mut().enumerate() {
                *out = if mask[at(m, mask_step, i)] != 0 {
                    on_true[at(a, true_step, i)]
                } else {
                    on_false[at(b, false_step, i)]
                };
            }
        });
    }))
}

/// `mask ? value : tensor`; `mask` broadcasts to `tensor`.
pub(crate) fn mask_fill(tensor: NdArrayTensor, mask: NdArrayTensor, value: Scalar) -> NdArrayTensor {
    let value = one_element(tensor.dims().len(), value, tensor.dtype());
    select_where(mask, value, tensor)
}
