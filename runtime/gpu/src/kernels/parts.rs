//! Sums that were computed in parts, by workgroups side by side.

use super::elementwise;
use super::reduce::reduce_leading;
use crate::runtime::Runtime;
use crate::tensor::GpuTensor;
use kiln_tensor::backend::{Layout, Primitive};
use kiln_tensor::{Activation, BinaryOp, DType, Expression, Shape, Step};

/// `activation(Σ parts + bias)` of `[parts, elements]`, as a tensor of `dtype` and a shape to which the bias broadcasts. Parts are of the dtype
/// in which that one is computed.
pub(super) fn joined<R: Runtime>(
    parts: GpuTensor<R>,
    dtype: DType,
    shape: &Shape,
    bias: Option<GpuTensor<R>>,
    activation: Option<Activation>,
) -> GpuTensor<R> {
    let computed = parts.dtype();
    if computed == dtype {
        // What follows may become part of the reduction, and what follows that.
        return elementwise::finished(reduce_leading(parts, dtype, shape), bias, activation);
    }
    // Floats of 16 bits are rounded once, at the end, in a kernel that takes no more.
    let (count, elements) = (parts.dims()[0], shape.num_elements());
    let part = |n: usize| {
        let offset = parts.layout.offset + n * elements;
        parts.clone().with_layout(Layout { offset, ..Layout::contiguous(shape.clone()) })
    };
    let mut operands: Vec<GpuTensor<R>> = (0..count).map(part).collect();
    let mut steps: Vec<Step> = (0..count).map(|n| Step::Input(n as u16)).collect();
    let mut sum = 0;
    let add = |steps: &mut Vec<Step>, sum: &mut u16, step: u16| {
        steps.push(Step::Binary(BinaryOp::Add, *sum, step));
        *sum = steps.len() as u16 - 1;
    };
    for n in 1..count as u16 {
        add(&mut steps, &mut sum, n);
    }
    if let Some(bias) = bias {
        operands.push(bias);
        steps.push(Step::Input(count as u16));
        steps.push(Step::Cast(computed, steps.len() as u16 - 1));
        let step = steps.len() as u16 - 1;
        add(&mut steps, &mut sum, step);
    }
    if let Some(activation) = activation {
        steps.push(Step::Activation(activation, sum));
        sum = steps.len() as u16 - 1;
    }
    steps.push(Step::Cast(dtype, sum));
    elementwise::single(&Expression::new(steps), &operands, &[])
}
