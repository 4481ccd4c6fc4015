//! Elementwise programs over f32 tensors.

use crate::ops::binary::{forward, from_first, strides_over};
use crate::tensor::NdArrayTensor;
use alloc::vec::Vec;
use kiln_kernels::elementwise::{Program, ProgramOperand, Strided};
use kiln_tensor::backend::Primitive;
use kiln_tensor::{DType, Expression, Shape};

/// Runs an expression, into an operand's memory where possible; gives the operands back when it is not for the kernel
/// (other dtypes than f32 and, inside, bool).
pub(crate) fn elementwise(
    expression: &Expression,
    operands: Vec<NdArrayTensor>,
) -> Result<NdArrayTensor, Vec<NdArrayTensor>> {
    let program = match Program::new(expression) {
        Some(program) if operands.iter().all(|operand| operand.dtype() == DType::F32) => program,
        _ => return Err(operands),
    };
    let Some(first) = operands.first() else { return Err(operands) };
    let shape =
        operands[1..].iter().try_fold(first.shape(), |shape, operand| shape.broadcast(&operand.shape()));
    let Some(shape) = shape else { return Err(operands) };
    let mut operands: Vec<NdArrayTensor> = operands.into_iter().map(forward).collect();
    let strides: Vec<Vec<usize>> = operands.iter().map(|operand| strides_over(operand, &shape)).collect();
    let reused =
        operands.iter_mut().position(|operand| operand.layout().shape == shape && operand.is_writable());
    let Some(reused) = reused else { return Ok(into_new(&program, &operands, &strides, shape)) };
    let mut out = operands.remove(reused);
    if let Some(elements) = out.slice_mut() {
        let mut views = views(&operands, &strides, Some(reused));
        views.insert(reused, ProgramOperand::Output);
        program.run(&shape.dims, &views, elements);
    }
    Ok(out)
}

fn into_new(
    program: &Program,
    operands: &[NdArrayTensor],
    strides: &[Vec<usize>],
    shape: Shape,
) -> NdArrayTensor {
    let dims = shape.dims.clone();
    NdArrayTensor::build(shape, DType::F32, |out| program.run(&dims, &views(operands, strides, None), out))
}

/// The operands with their strides, of which the one at `removed` is left out.
fn views<'a>(
    operands: &'a [NdArrayTensor],
    strides: &'a [Vec<usize>],
    removed: Option<usize>,
) -> Vec<ProgramOperand<'a>> {
    let strides = strides.iter().enumerate().filter(|(i, _)| Some(*i) != removed);
    let strided = |(operand, (_, strides)): (&'a NdArrayTensor, (usize, &'a Vec<usize>))| {
        ProgramOperand::Strided(Strided { data: from_first(operand), strides })
    };
    operands.iter().zip(strides).map(strided).collect()
}
