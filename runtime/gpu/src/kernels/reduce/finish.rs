//! What is made of reduced numbers in the kernel that found them: an elementwise program of them and of further operands.

use super::super::access::{Access, Operand, Walk};
use super::super::{elementwise, program};
use crate::language::{Buffer, Builder, Value};
use crate::runtime::Runtime;
use crate::tensor::{GpuTensor, held_as};
use kiln_tensor::backend::Primitive;
use kiln_tensor::compose::ElementwiseProgram;
use kiln_tensor::{DType, Expression, InlineVec, Shape};
use smallvec::SmallVec;

/// A program on what a kernel finds for each place, each of whose results is written to a tensor of its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Finish {
    /// The program. Its first operands are the numbers.
    pub expression: Expression,
    /// The dtypes of the numbers.
    pub numbers: InlineVec<DType>,
    /// The dtypes of the other operands, of which there is one element for each place or one for all.
    pub operands: InlineVec<(DType, Access)>,
    /// The dtypes of the results.
    pub results: InlineVec<DType>,
}

/// It with its buffers in a kernel.
pub(super) struct Declared<'t, 'k> {
    finish: &'t Finish,
    results: Vec<Buffer<'k>>,
    operands: Vec<(Buffer<'k>, Operand<'k>)>,
    parameters: Vec<Vec<Value<'k>>>,
}

impl Finish {
    /// The next buffers, of the results and the other operands, and the next parameters: where each operand starts, the program's own.
    pub(super) fn declare<'t, 'k>(&'t self, k: &'k Builder) -> Declared<'t, 'k> {
        let results = self.results.iter().map(|&dtype| k.output(held_as(dtype))).collect();
        let operand =
            |&(dtype, access): &(DType, Access)| (k.input(held_as(dtype)), Operand::declare(k, access, 0));
        Declared {
            finish: self,
            results,
            operands: self.operands.iter().map(operand).collect(),
            parameters: program::declare_parameters(k, &self.expression),
        }
    }
}

impl<'k> Declared<'_, 'k> {
    /// Writes what the program makes of the numbers of a place.
    pub(super) fn write(&self, k: &'k Builder, place: Value<'k>, numbers: &[Value<'k>]) {
        let Finish { expression, numbers: dtypes, operands, .. } = self.finish;
        let read = |(buffer, operand): &(Buffer<'k>, Operand<'k>)| buffer.at(operand.at(place, &[]));
        let values: Vec<_> = numbers.iter().copied().chain(self.operands.iter().map(read)).collect();
        let dtypes: Vec<_> = dtypes.iter().copied().chain(operands.iter().map(|&(dtype, _)| dtype)).collect();
        let operands = program::Operands { values: &values, dtypes: &dtypes };
        let steps = program::evaluate(k, expression, &operands, &[], &self.parameters);
        for (buffer, step) in self.results.iter().zip(expression.results()) {
            buffer.set(place, steps[usize::from(step)]);
        }
    }
}

/// A program that a kernel does at last, with what it is done on.
pub(super) struct Finishing<R: Runtime> {
    pub template: Finish,
    /// Its parameters.
    pub words: SmallVec<[u32; 16]>,
    /// Its results, and then its operands, whose places have a shape.
    pub results: InlineVec<GpuTensor<R>>,
    operands: InlineVec<GpuTensor<R>>,
}

impl<R: Runtime> Finishing<R> {
    /// A program on numbers of the given dtypes for each place of a shape, to which its operands broadcast; nothing where kernels do not see all of these, or
    /// their dtypes do not fit.
    pub fn new(
        device: &R::Device,
        numbers: &[DType],
        shape: &Shape,
        then: &ElementwiseProgram<'_, GpuTensor<R>>,
    ) -> Option<Self> {
        let ElementwiseProgram { expression, operands, parameters } = then;
        let of_operands = operands.iter().map(Primitive::dtype);
        let dtypes: Vec<DType> = numbers.iter().copied().chain(of_operands).collect();
        let own = expression.dtypes(&dtypes)?;
        let as_read = |operand: &GpuTensor<R>| {
            let strides = operand.layout.expanded_strides(shape);
            let access = Walk::new(&shape.dims, &[&strides]).access(0);
            match access {
                Access::Linear | Access::Single => (operand.clone(), access),
                Access::Strided | Access::Runs => {
                    let whole = operand.clone().with_layout(operand.layout.expand(shape));
                    (elementwise::contiguous(whole), Access::Linear)
                }
            }
        };
        let read: Vec<_> = operands.iter().map(as_read).collect();
        if !read.iter().all(|(operand, _)| operand.is_visible()) {
            return None;
        }
        let mut words: SmallVec<[u32; 16]> =
            read.iter().map(|(operand, _)| operand.layout.offset as u32).collect();
        program::append_parameters(&mut words, expression, parameters);
        let results: InlineVec<DType> =
            expression.results().iter().map(|&step| own[usize::from(step)]).collect();
        let template = Finish {
            expression: (*expression).clone(),
            numbers: numbers.into(),
            operands: read.iter().map(|(operand, access)| (operand.dtype, *access)).collect(),
            results: results.clone(),
        };
        let results = results.iter().map(|&dtype| GpuTensor::empty(shape.clone(), dtype, device)).collect();
        Some(Self {
            template,
            words,
            results,
            operands: read.into_iter().map(|(operand, _)| operand).collect(),
        })
    }

    /// Its buffers, in order.
    pub fn tensors(&self) -> impl Iterator<Item = &GpuTensor<R>> {
        self.results.iter().chain(&self.operands)
    }
}
