//! Elementwise programs over f32 tensors.

use crate::ops::binary::{forward, from_first, strides_over};
use crate::storage::Buffer;
use crate::tensor::NdArrayTensor;
use alloc::vec::Vec;
use kiln_kernels::elementwise::{Program, ProgramOperand, Strided};
use kiln_tensor::backend::Primitive;
use kiln_tensor::{DType, Dims, Expression, Scalar, Shape};

/// Runs an expression, into operands' memory where possible; gives the operands back when it is not for the kernel
/// (other dtypes than f32 and, inside, bool).
pub(crate) fn elementwise(
    expression: &Expression,
    operands: Vec<NdArrayTensor>,
    parameters: &[Scalar],
) -> Result<Vec<NdArrayTensor>, Vec<NdArrayTensor>> {
    let program = match Program::new(expression, parameters) {
        Some(program) if operands.iter().all(|operand| operand.dtype() == DType::F32) => program,
        _ => return Err(operands),
    };
    let Some(first) = operands.first() else { return Err(operands) };
    let shape =
        operands[1..].iter().try_fold(first.shape(), |shape, operand| shape.broadcast(&operand.shape()));
    let Some(shape) = shape else { return Err(operands) };
    let mut operands: Vec<Option<NdArrayTensor>> = operands.into_iter().map(forward).map(Some).collect();
    let strides: Vec<Dims> = operands.iter().flatten().map(|operand| strides_over(operand, &shape)).collect();

    // The results take over operands' memory, each that of the first one it may overwrite.
    let mut sources: Vec<Option<usize>> = alloc::vec![None; operands.len()];
    let mut results: Vec<Target> = Vec::with_capacity(program.outputs());
    for output in 0..program.outputs() {
        let own = operands.iter_mut().enumerate().find_map(|(n, operand)| {
            let usable = operand.as_mut().is_some_and(|operand| {
                operand.layout().shape == shape && program.may_overwrite(output, n) && operand.is_writable()
            });
            if usable { operand.take().map(|operand| (n, operand)) } else { None }
        });
        results.push(match own {
            Some((n, operand)) => {
                sources[n] = Some(output);
                Target::Operand(operand)
            }
            None => Target::New(Buffer::new::<f32>(shape.num_elements())),
        });
    }
    let views: Vec<ProgramOperand<'_>> = operands
        .iter()
        .zip(&strides)
        .zip(&sources)
        .map(|((operand, strides), source)| match (operand, source) {
            (Some(operand), _) => ProgramOperand::Strided(Strided { data: from_first(operand), strides }),
            (None, source) => ProgramOperand::Output(source.unwrap_or_default()),
        })
        .collect();
    let mut outputs: Vec<&mut [f32]> = results.iter_mut().map(Target::elements).collect();
    program.run(&shape.dims, &views, &mut outputs);
    Ok(results.into_iter().map(|result| result.into_tensor(&shape)).collect())
}

/// Where a result is written.
enum Target {
    New(Buffer),
    /// An operand that nobody else holds.
    Operand(NdArrayTensor),
}

impl Target {
    fn elements(&mut self) -> &mut [f32] {
        match self {
            Target::New(buffer) => buffer.as_mut(),
            Target::Operand(tensor) => tensor.slice_mut().unwrap_or_default(),
        }
    }

    fn into_tensor(self, shape: &Shape) -> NdArrayTensor {
        match self {
            Target::New(buffer) => NdArrayTensor::from_buffer(buffer, shape.clone(), DType::F32),
            Target::Operand(tensor) => tensor,
        }
    }
}
