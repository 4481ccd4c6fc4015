//! The way back through an LSTM: the gates were kept, so that each step is one fused cell and one product; the weights'
//! gradients are one product each over all steps.

use super::{Operands, States, counts, nth, permuted};
use crate::ops::binary::binary;
use crate::ops::matmul::{linear, matmul};
use crate::ops::{copy, reduce};
use crate::tensor::NdArrayTensor;
use alloc::{vec, vec::Vec};
use kiln_kernels::gemm::{self, Epilogue, Lhs, Matrix, PackedRhs, Rhs};
use kiln_kernels::rnn as cells;
use kiln_kernels::threads::parallel_chunks;
use kiln_tensor::backend::{Primitive, SliceRange};
use kiln_tensor::{Activation, BinaryOp, DType, ReduceOp, RnnDirection, RnnKind, RnnOptions, Shape};

/// Whether this file goes back through a layer; what it needs is then kept.
pub(crate) fn supports(operands: &Operands, options: &RnnOptions) -> bool {
    let usual = |cell: &[Activation]| cell == [Activation::Sigmoid, Activation::Tanh, Activation::Tanh];
    super::supports(operands.input.dtype(), options)
        && matches!(options.kind, RnnKind::Lstm { input_forget: false })
        && options.activations.chunks(3).all(usual)
        && options.clip.is_none()
        && options.state_clip.is_none()
        && operands.peepholes.is_none()
        && operands.sequence_lengths.is_none()
        && !operands.input.is_empty()
}

/// Gradients of the operands, laid out like them.
pub(crate) struct Gradients {
    pub(crate) input: NdArrayTensor,
    pub(crate) weight: NdArrayTensor,
    pub(crate) recurrent: NdArrayTensor,
    pub(crate) bias: Option<NdArrayTensor>,
    pub(crate) initial_hidden: NdArrayTensor,
    pub(crate) initial_cell: NdArrayTensor,
}

/// Gradients of the results.
pub(crate) struct OfResults {
    pub(crate) output: NdArrayTensor,
    pub(crate) hidden: NdArrayTensor,
    pub(crate) cell: Option<NdArrayTensor>,
}

/// One direction on its way back.
struct Back<'a> {
    /// The kept gates `[seq, batch, 4 · hidden]`, which become the gradient of what went into them.
    gates: &'a mut [f32],
    /// `[batch, hidden]`: of the state after a step, then of that before it.
    of_hidden: Vec<f32>,
    of_cell: Vec<f32>,
}

/// See [`kiln_tensor::backend::Backend::rnn_gradient`].
pub(crate) fn lstm(of: OfResults, operands: &Operands, states: States, options: &RnnOptions) -> Gradients {
    let (directions, _) = counts(options);
    let size = options.hidden_size;
    let turned = |x: NdArrayTensor, axes: &[usize]| if options.batch_first { permuted(x, axes) } else { x };
    let input = turned(operands.input.clone(), &[1, 0, 2]).into_contiguous();
    let [steps, batch, width] = input.shape().dims();
    let state = batch * size;
    let output = turned(of.output, &[1, 2, 0, 3]).into_contiguous();
    let hidden = turned(of.hidden, &[1, 0, 2]).into_contiguous();
    let cell = of.cell.map(|cell| turned(cell, &[1, 0, 2]).into_contiguous());
    let cells = states.cell.into_contiguous();
    let recurrent = operands.recurrent.clone().into_contiguous();
    let reversed = |direction: usize| options.direction == RnnDirection::Reverse || direction == 1;

    let first = |x: Option<&NdArrayTensor>, direction: usize| match x {
        Some(x) => x.slice::<f32>()[direction * state..][..state].to_vec(),
        None => vec![0.0; state],
    };
    let mut last: Vec<(Vec<f32>, Vec<f32>)> = Vec::new();
    let gates = states.gates.edit(|gates: &mut [f32]| {
        let mut backs: Vec<Back<'_>> = gates
            .chunks_exact_mut(steps * 4 * state)
            .enumerate()
            .map(|(direction, gates)| Back {
                gates,
                of_hidden: first(Some(&hidden), direction),
                of_cell: first(cell.as_ref(), direction),
            })
            .collect();
        parallel_chunks(&mut backs, 1, steps * 4 * state * size / 32, |direction, back| {
            let weight = &recurrent.slice::<f32>()[direction * 4 * size * size..][..4 * size * size];
            let weight = PackedRhs::new(Matrix::row_major(weight, size), 4 * size, size);
            let at_direction = |n: usize| (direction * steps + n) * state;
            for back in back {
                for n in (0..steps).rev() {
                    let at = if reversed(direction) { steps - 1 - n } else { n };
                    let of_output = &output.slice::<f32>()[(at * directions + direction) * state..][..state];
                    back.of_hidden.iter_mut().zip(of_output).for_each(|(sum, x)| *sum += x);
                    let gates = &mut back.gates[at * 4 * state..][..4 * state];
                    let old = &cells.slice::<f32>()[at_direction(n)..][..state];
                    cells::lstm_step_gradient(size, gates, old, &back.of_hidden, &mut back.of_cell);
                    let gates = Lhs::Plain(Matrix::row_major(gates, 4 * size));
                    let (to, none) = (&mut back.of_hidden, Epilogue::default());
                    gemm::gemm(batch, size, 4 * size, gates, Rhs::Packed(&weight), to, size, &none);
                }
            }
        });
        last = backs.into_iter().map(|back| (back.of_hidden, back.of_cell)).collect();
    });

    let rows = steps * batch;
    let inputs = copy::reshape(input, [rows, width].into());
    let mut of_input: Option<NdArrayTensor> = None;
    let (mut of_weight, mut of_recurrent, mut bias) = (Vec::new(), Vec::new(), Vec::new());
    for direction in 0..directions {
        let gradient = copy::reshape(nth(&gates, direction), [rows, 4 * size].into());
        let part = linear(gradient.clone(), nth(&operands.weight, direction), None, None);
        of_input = Some(match of_input {
            Some(sum) => binary(BinaryOp::Add, sum, part),
            None => part,
        });
        // The states stand in the order in which the steps ran.
        let step = if reversed(direction) { -1 } else { 1 };
        let order =
            [SliceRange { start: 0, end: steps, step }, SliceRange::full(batch), SliceRange::full(size)];
        let before = nth(&states.hidden, direction);
        let layout = before.layout().slice(&order);
        let before = copy::reshape(before.with_layout(layout), [rows, size].into());
        let turned = permuted(gradient.clone(), &[1, 0]);
        let lead = |x: NdArrayTensor, dims: [usize; 3]| copy::reshape(x, dims.into());
        of_weight.push(lead(matmul(turned.clone(), inputs.clone()), [1, 4 * size, width]));
        of_recurrent.push(lead(matmul(turned, before), [1, 4 * size, size]));
        let sum = copy::reshape(reduce::reduce(ReduceOp::Sum, gradient, &[0]), [1, 4 * size].into());
        bias.extend([sum.clone(), sum]);
    }
    let of_input = of_input.map(|sum| copy::reshape(sum, [steps, batch, width].into()));
    let shape = Shape::from([directions, batch, size]);
    let (hidden, cell): (Vec<_>, Vec<_>) = last.into_iter().unzip();
    let state_of = |directions: Vec<Vec<f32>>| {
        let x = NdArrayTensor::build(shape.clone(), DType::F32, |out: &mut [f32]| {
            out.chunks_exact_mut(state).zip(&directions).for_each(|(out, of)| out.copy_from_slice(of));
        });
        turned(x, &[1, 0, 2])
    };
    let whole = operands.bias.as_ref().map(|given| copy::reshape(copy::cat(bias, 0), given.shape()));
    Gradients {
        input: match of_input {
            Some(sum) => turned(sum, &[1, 0, 2]),
            None => operands.input.clone(),
        },
        weight: copy::cat(of_weight, 0),
        recurrent: copy::cat(of_recurrent, 0),
        bias: whole,
        initial_hidden: state_of(hidden),
        initial_cell: state_of(cell),
    }
}
