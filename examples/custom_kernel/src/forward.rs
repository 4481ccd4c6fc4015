//! The kernel on GPUs.

use crate::{Backend, plain};
use kiln::backend::Wgpu;
use kiln::backend::wgpu::{KernelError, WgpuTensor, WgslKernel};
use kiln::tensor::ops::FloatTensor;
use kiln::tensor::{DType, Shape, TensorMetadata};
use std::sync::LazyLock;

/// Rows and columns of the result that a workgroup computes, as the kernel's text has it.
const SIDE: usize = 16;

static DENSE_RELU: LazyLock<WgslKernel> =
    LazyLock::new(|| WgslKernel::new("dense_relu", include_str!("kernel.wgsl"), "dense_relu"));

impl Backend for Wgpu {
    fn dense_relu(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        // The text computes in f32; tensors may have been cast to another dtype.
        if [&x, &weight, &bias].iter().any(|tensor| tensor.dtype() != DType::F32) {
            return plain::<Self>(x, weight, bias);
        }
        // An operation has no way to fail but this; `KernelError` names the kernel.
        launch(x, weight, bias).unwrap_or_else(|error| panic!("{error}"))
    }
}

fn launch(x: WgpuTensor, weight: WgpuTensor, bias: WgpuTensor) -> Result<WgpuTensor, KernelError> {
    let (x, weight, bias) = (x.into_contiguous(), weight.into_contiguous(), bias.into_contiguous());
    let dims = |tensor: &WgpuTensor| -> [usize; 3] { tensor.shape().dims() };
    let ([x_batch, rows, depth], [weight_batch, weight_depth, columns]) = (dims(&x), dims(&weight));
    let [bias_batch, bias_rows, bias_columns] = dims(&bias);
    let batch = [x_batch, weight_batch, bias_batch].into_iter().max().unwrap_or(1);
    let fits = |size: usize, of: usize| size == of || size == 1;
    assert!(
        depth == weight_depth
            && [x_batch, weight_batch, bias_batch].into_iter().all(|size| fits(size, batch))
            && fits(bias_rows, rows)
            && fits(bias_columns, columns),
        "dense_relu: x {:?}, weight {:?} and bias {:?} do not fit",
        dims(&x),
        dims(&weight),
        dims(&bias)
    );

    let stride = |size: usize, stride: usize| if size == 1 { 0 } else { stride as u32 };
    let mut y = WgpuTensor::empty(Shape::from([batch, rows, columns]), DType::F32, x.device());
    DENSE_RELU
        .launch()
        .input(&x)
        .input(&weight)
        .input(&bias)
        .output(&mut y)
        .parameter(rows as u32)
        .parameter(columns as u32)
        .parameter(depth as u32)
        .parameter(stride(x_batch, rows * depth))
        .parameter(stride(weight_batch, depth * columns))
        .parameter(stride(bias_batch, bias_rows * bias_columns))
        .parameter(stride(bias_rows, bias_columns))
        .parameter(stride(bias_columns, 1))
        .run([columns.div_ceil(SIDE) as u32, rows.div_ceil(SIDE) as u32, batch as u32])?;
    Ok(y)
}
