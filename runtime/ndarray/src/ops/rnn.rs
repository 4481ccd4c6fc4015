//! Recurrent layers of f32 tensors: one product projects all inputs, each step is one product and one fused cell.

use crate::ops::matmul::{linear, matrix, packed_rhs};
use crate::tensor::NdArrayTensor;
use alloc::{vec, vec::Vec};
use kiln_kernels::gemm::{self, Bias, Epilogue, Lhs, Matrix, PackedRhs, Rhs};
use kiln_kernels::rnn as cells;
use kiln_tensor::backend::Primitive;
use kiln_tensor::{Activation, DType, RnnDirection, RnnKind, RnnOptions};

/// The operands; see [`kiln_tensor::compose::RnnOperands`].
pub(crate) struct Operands {
    pub(crate) input: NdArrayTensor,
    pub(crate) weight: NdArrayTensor,
    pub(crate) recurrent: NdArrayTensor,
    pub(crate) bias: Option<NdArrayTensor>,
    pub(crate) initial_hidden: Option<NdArrayTensor>,
    pub(crate) initial_cell: Option<NdArrayTensor>,
    pub(crate) peepholes: Option<NdArrayTensor>,
}

/// All outputs, the last hidden state, the last cell state (LSTM).
pub(crate) type Outputs = (NdArrayTensor, NdArrayTensor, Option<NdArrayTensor>);

/// Whether this file runs the layer; the rest is composed.
pub(crate) fn supports(dtype: DType, options: &RnnOptions) -> bool {
    let cell = match options.kind {
        RnnKind::Rnn => options.clip.is_none(),
        RnnKind::Gru { linear_before_reset } => linear_before_reset,
        RnnKind::Lstm { .. } => true,
    };
    cell && dtype == DType::F32 && options.hidden_size > 0
}

/// Number of directions and of gates.
fn counts(options: &RnnOptions) -> (usize, usize) {
    let directions = if options.direction == RnnDirection::Bidirectional { 2 } else { 1 };
    let gates = match options.kind {
        RnnKind::Rnn => 1,
        RnnKind::Gru { .. } => 3,
        RnnKind::Lstm { .. } => 4,
    };
    (directions, gates)
}

fn permuted(x: NdArrayTensor, axes: &[usize]) -> NdArrayTensor {
    let layout = x.layout().permute(axes);
    x.with_layout(layout)
}

/// Row-major `[directions, batch, hidden]`, zero when absent.
fn initial(state: Option<NdArrayTensor>, options: &RnnOptions, len: usize) -> Vec<f32> {
    let turned = |x| if options.batch_first { permuted(x, &[1, 0, 2]) } else { x };
    match state {
        Some(state) => turned(state).into_contiguous().slice().to_vec(),
        None => vec![0.0; len],
    }
}

/// See [`kiln_tensor::backend::Backend::rnn`].
pub(crate) fn rnn(operands: Operands, options: &RnnOptions) -> Outputs {
    let (directions, _) = counts(options);
    let hidden = options.hidden_size;
    let input = operands.input;
    let input = if options.batch_first { permuted(input, &[1, 0, 2]) } else { input }.into_contiguous();
    let [steps, batch, _] = input.shape().dims();
    let mut h = initial(operands.initial_hidden, options, directions * batch * hidden);
    let mut c = initial(operands.initial_cell, options, directions * batch * hidden);
    let state = batch * hidden;
    let peepholes = operands.peepholes.map(NdArrayTensor::into_contiguous);
    let output = NdArrayTensor::build([steps, directions, batch, hidden].into(), DType::F32, |out| {
        for direction in 0..directions {
            let layer =
                Layer::new(&operands.weight, &operands.recurrent, operands.bias.as_ref(), options, direction);
            let projected = linear(input.clone(), layer.weight.clone(), layer.input_bias.clone(), None);
            let peepholes =
                peepholes.as_ref().map(|p| &p.slice::<f32>()[direction * 3 * hidden..][..3 * hidden]);
            let h = &mut h[direction * state..][..state];
            let c = &mut c[direction * state..][..state];
            let reverse = options.direction == RnnDirection::Reverse || direction == 1;
            let mut gates = vec![0.0; batch * layer.gates * hidden];
            for n in 0..steps {
                let step = if reverse { steps - 1 - n } else { n };
                let projected = &projected.slice::<f32>()[step * gates.len()..][..gates.len()];
                layer.step(projected, &mut gates, peepholes, h, c);
                out[(step * directions + direction) * state..][..state].copy_from_slice(h);
            }
        }
    });
    let turned = |x: NdArrayTensor, axes: &[usize]| if options.batch_first { permuted(x, axes) } else { x };
    let last = |x: Vec<f32>| {
        let x = NdArrayTensor::build([directions, batch, hidden].into(), DType::F32, |out: &mut [f32]| {
            out.copy_from_slice(&x);
        });
        turned(x, &[1, 0, 2])
    };
    let is_lstm = matches!(options.kind, RnnKind::Lstm { .. });
    (turned(output, &[2, 0, 1, 3]), last(h), is_lstm.then(|| last(c)))
}

/// One direction.
struct Layer<'a> {
    options: &'a RnnOptions,
    activations: &'a [Activation],
    gates: usize,
    /// `[input, gates · hidden]`.
    weight: NdArrayTensor,
    /// `[hidden, gates · hidden]`.
    recurrent: NdArrayTensor,
    packed: PackedOnce,
    /// Added to the input's product.
    input_bias: Option<NdArrayTensor>,
    /// Added to the recurrent product, where that must stay apart (GRU).
    recurrent_bias: Option<NdArrayTensor>,
}

/// The recurrent weights, packed for this run or for all.
enum PackedOnce {
    Kept(alloc::sync::Arc<(crate::layout::Layout, PackedRhs)>),
    Here(PackedRhs),
}

impl<'a> Layer<'a> {
    fn new(
        weight: &NdArrayTensor,
        recurrent: &NdArrayTensor,
        bias: Option<&NdArrayTensor>,
        options: &'a RnnOptions,
        direction: usize,
    ) -> Self {
        let (directions, gates) = counts(options);
        let turned = |x: &NdArrayTensor| permuted(nth(x, direction), &[1, 0]);
        let (weight, recurrent) = (turned(weight), turned(recurrent));
        let (input_bias, recurrent_bias) = biases(bias, options, direction, gates * options.hidden_size);
        let cells = options.activations.len() / directions;
        let packed = match packed_rhs(&recurrent) {
            Some(packed) => PackedOnce::Kept(packed),
            None => {
                let recurrent = recurrent.clone().into_contiguous();
                PackedOnce::Here(PackedRhs::new(matrix(&recurrent), recurrent.dims()[0], recurrent.dims()[1]))
            }
        };
        Self {
            options,
            activations: &options.activations[direction * cells..][..cells],
            gates,
            weight,
            recurrent,
            packed,
            input_bias,
            recurrent_bias,
        }
    }

    /// One step: `projected` and `gates` are `[batch, gates · hidden]`, `h` and `c` `[batch, hidden]`.
    fn step(
        &self,
        projected: &[f32],
        gates: &mut [f32],
        peepholes: Option<&[f32]>,
        h: &mut [f32],
        c: &mut [f32],
    ) {
        let hidden = self.options.hidden_size;
        let (rows, columns) = (h.len() / hidden, self.recurrent.dims()[1]);
        let clip = self.options.clip.map(|clip| clip as f32);
        let bias = self.recurrent_bias.as_ref().map_or(Bias::None, |bias| Bias::PerColumn(bias.slice()));
        let apart = self.recurrent_bias.is_some() || matches!(self.options.kind, RnnKind::Gru { .. });
        let activation = matches!(self.options.kind, RnnKind::Rnn).then(|| self.activations[0]);
        let epilogue = Epilogue { bias, residual: (!apart).then_some(projected), activation };
        let packed = match &self.packed {
            PackedOnce::Kept(packed) => &packed.1,
            PackedOnce::Here(packed) => packed,
        };
        let lhs = Lhs::Plain(Matrix::row_major(&*h, hidden));
        gemm::gemm(rows, columns, hidden, lhs, Rhs::Packed(packed), gates, columns, &epilogue);
        match (self.options.kind, self.activations) {
            (RnnKind::Lstm { input_forget }, &[f, g, o]) => {
                cells::lstm_step(hidden, gates, peepholes, [f, g, o], clip, input_forget, c, h);
            }
            (RnnKind::Gru { .. }, &[f, g]) => cells::gru_step(hidden, projected, gates, [f, g], clip, h),
            _ => h.copy_from_slice(gates),
        }
    }
}

/// The `n`-th part along the first dim, without it.
fn nth(x: &NdArrayTensor, n: usize) -> NdArrayTensor {
    let mut layout = x.layout().clone();
    layout.shape.dims.remove(0);
    layout.offset = (layout.offset as isize + layout.strides.remove(0) * n as isize) as usize;
    x.clone().with_layout(layout)
}

/// What is added to the input's and to the recurrent product.
fn biases(
    bias: Option<&NdArrayTensor>,
    options: &RnnOptions,
    direction: usize,
    size: usize,
) -> (Option<NdArrayTensor>, Option<NdArrayTensor>) {
    let Some(bias) = bias else { return (None, None) };
    let bias = nth(bias, direction).into_contiguous();
    let (w, r) = bias.slice::<f32>().split_at(size);
    let made = |values: &dyn Fn(usize) -> f32| {
        NdArrayTensor::build([size].into(), DType::F32, |out: &mut [f32]| {
            out.iter_mut().enumerate().for_each(|(i, out)| *out = values(i));
        })
    };
    if matches!(options.kind, RnnKind::Gru { .. }) {
        (Some(made(&|i| w[i])), Some(made(&|i| r[i])))
    } else {
        (Some(made(&|i| w[i] + r[i])), None)
    }
}
