//! Choosing between two tensors by a mask.

use crate::compute::bits;
use crate::rows::{Rows, walk};
use crate::tensor::{NdArrayTensor, same_dtype};
use bytemuck::Pod;
use kiln_tensor::backend::Layout;
use kiln_tensor::backend::Primitive;
use kiln_tensor::{Scalar, Shape};

/// `mask ? on_true : on_false`; all three broadcast.
pub(crate) fn select_where(
    mask: NdArrayTensor,
    on_true: NdArrayTensor,
    on_false: NdArrayTensor,
) -> NdArrayTensor {
    same_dtype("mask_where", &on_true, &on_false);
    assert!(mask.dtype().is_bool(), "mask_where: the mask is {}", mask.dtype());
    let shape = on_true.layout().shape.broadcast(&on_false.layout().shape);
    let Some(shape) = shape.and_then(|shape| shape.broadcast(&mask.layout().shape)) else {
        panic!("mask_where: {}, {} and {} do not broadcast", mask.shape(), on_true.shape(), on_false.shape())
    };
    by_size!(on_true.dtype(), T => typed::<T>(&mask, &on_true, &on_false, shape))
}

fn typed<T: Pod>(
    mask: &NdArrayTensor,
    on_true: &NdArrayTensor,
    on_false: &NdArrayTensor,
    shape: Shape,
) -> NdArrayTensor {
    let to = Layout::contiguous(shape.clone());
    let [mask_at, true_at, false_at] = [mask, on_true, on_false].map(|t| t.layout().expand(&shape));
    let rows = Rows::new([&to, &mask_at, &true_at, &false_at]);
    let (len, [_, mask_step, true_step, false_step]) = (rows.len, rows.steps);
    let (mask, yes, no) = (mask.storage::<u8>(), on_true.storage::<T>(), on_false.storage::<T>());
    NdArrayTensor::build(shape, on_true.dtype(), |out: &mut [T]| {
        rows.for_each(|[to, m, a, b]| {
            let out = &mut out[to..][..len];
            if mask_step == 0 {
                let (source, at, step) = if mask[m] != 0 { (yes, a, true_step) } else { (no, b, false_step) };
                return walk(at, step, len, |i, at| out[i] = source[at]);
            }
            match (mask_step, true_step, false_step) {
                (1, 1, 1) => {
                    let pairs = yes[a..][..len].iter().zip(&no[b..][..len]);
                    let choices = mask[m..][..len].iter().zip(pairs);
                    out.iter_mut()
                        .zip(choices)
                        .for_each(|(out, (&m, (&a, &b)))| *out = if m != 0 { a } else { b });
                }
                (1, 0, 1) => {
                    let (a, choices) = (yes[a], mask[m..][..len].iter().zip(&no[b..][..len]));
                    out.iter_mut().zip(choices).for_each(|(out, (&m, &b))| *out = if m != 0 { a } else { b });
                }
                (1, 1, 0) => {
                    let (b, choices) = (no[b], mask[m..][..len].iter().zip(&yes[a..][..len]));
                    out.iter_mut().zip(choices).for_each(|(out, (&m, &a))| *out = if m != 0 { a } else { b });
                }
                _ => {
                    let at =
                        |start: usize, step: isize, i: usize| (start as isize + i as isize * step) as usize;
                    walk(m, mask_step, len, |i, m| {
                        out[i] =
                            if mask[m] != 0 { yes[at(a, true_step, i)] } else { no[at(b, false_step, i)] };
                    });
                }
            }
        });
    })
}

/// `mask ? value : tensor`; `mask` broadcasts to `tensor`, into whose memory it goes where possible.
pub(crate) fn mask_fill(tensor: NdArrayTensor, mask: NdArrayTensor, value: Scalar) -> NdArrayTensor {
    assert!(mask.dtype().is_bool(), "mask_fill: the mask is {}", mask.dtype());
    let to = Layout::contiguous(tensor.shape());
    let rows = Rows::new([&to, &mask.layout().expand(&to.shape)]);
    let (len, [_, step]) = (rows.len, rows.steps);
    let (mask, bits) = (mask.storage::<u8>(), bits(value, tensor.dtype()));
    by_size!(tensor.dtype(), T => tensor.edit(|out: &mut [T]| {
        rows.for_each(|[to, m]| {
            let out = &mut out[to..][..len];
            match step {
                0 if mask[m] == 0 => {}
                0 => out.fill(bits as T),
                1 => {
                    let choices = out.iter_mut().zip(&mask[m..][..len]);
                    choices.for_each(|(out, &m)| *out = if m != 0 { bits as T } else { *out });
                }
                _ => walk(m, step, len, |i, m| out[i] = if mask[m] != 0 { bits as T } else { out[i] }),
            }
        });
    }))
}
