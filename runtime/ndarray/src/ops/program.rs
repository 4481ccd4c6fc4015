//! Elementwise programs over f32 tensors.

use crate::ops::binary::{from_first, make_forward, strides_over};
use crate::storage::Buffer;
use crate::tensor::NdArrayTensor;
use kiln_kernels::elementwise::{Program, ProgramOperand, Strided};
use kiln_tensor::backend::Primitive;
use kiln_tensor::{DType, Dims, Expression, InlineVec, Scalar, Shape};

/// A program for the kernel, and the shape that its operands broadcast to.
pub(crate) struct Prepared<'a> {
    program: Program<'a>,
    shape: Shape,
}

impl<'a> Prepared<'a> {
    /// Nothing when an expression is not for the kernel (other dtypes than f32 and, inside, bool).
    pub(crate) fn of(
        expression: &'a Expression,
        operands: &[NdArrayTensor],
        parameters: &'a [Scalar],
    ) -> Option<Self> {
        if operands.iter().any(|operand| operand.dtype() != DType::F32) {
            return None;
        }
        let (first, others) = operands.split_first()?;
        let differ = others.iter().filter(|other| other.dims() != first.dims());
        let mut differ = differ.map(Primitive::shape);
        let shape = differ.try_fold(first.shape(), |shape, other| shape.broadcast(&other))?;
        Some(Self { program: Program::new(expression, parameters, &shape.dims)?, shape })
    }

    /// Runs the program over the operands that it was prepared for, into their memory where possible.
    pub(crate) fn run(&self, mut operands: InlineVec<NdArrayTensor>) -> InlineVec<NdArrayTensor> {
        let Self { program, shape } = self;
        operands.iter_mut().for_each(make_forward);
        let strides: InlineVec<Dims> = operands.iter().map(|operand| strides_over(operand, shape)).collect();

        // The results take over operands' memory, each that of the first one it may overwrite.
        let mut overwritten: InlineVec<Option<usize>> = InlineVec::repeat(None, operands.len());
        let mut buffers: InlineVec<Buffer> = InlineVec::new();
        for output in 0..program.outputs() {
            let own = (0..operands.len()).find(|&n| {
                overwritten[n].is_none()
                    && operands[n].layout().shape == *shape
                    && program.may_overwrite(output, n)
                    && operands[n].is_writable()
            });
            buffers.push(match own {
                Some(n) => {
                    overwritten[n] = Some(output);
                    Buffer::empty()
                }
                None => Buffer::new::<f32>(shape.num_elements()),
            });
        }
        {
            let mut outputs: InlineVec<&mut [f32]> = buffers.iter_mut().map(Buffer::as_mut).collect();
            let views: InlineVec<ProgramOperand<'_>> = operands
                .iter_mut()
                .zip(&strides)
                .zip(&overwritten)
                .map(|((operand, strides), by)| match *by {
                    Some(output) => {
                        outputs[output] = operand.slice_mut().unwrap_or_default();
                        ProgramOperand::Output(output)
                    }
                    None => ProgramOperand::Strided(Strided { data: from_first(operand), strides }),
                })
                .collect();
            program.run(&shape.dims, &views, &mut outputs);
        }
        let result = |(output, buffer)| match overwritten.iter().position(|by| *by == Some(output)) {
            Some(n) => {
                overwritten.remove(n);
                operands.remove(n)
            }
            None => NdArrayTensor::from_buffer(buffer, shape.clone(), DType::F32),
        };
        buffers.into_iter().enumerate().map(result).collect()
    }
}
