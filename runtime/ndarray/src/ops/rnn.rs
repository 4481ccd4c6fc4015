//! Recurrent layers of f32 tensors: one product projects all inputs, each step is one product and one fused cell.

pub(crate) mod gradient;

use crate::ops::cast;
use crate::ops::matmul::{linear, matrix, packed_rhs};
use crate::tensor::NdArrayTensor;
use alloc::{vec, vec::Vec};
use kiln_kernels::gemm::{self, Bias, Epilogue, Lhs, Matrix, PackedRhs, Rhs};
use kiln_kernels::rnn as cells;
use kiln_kernels::threads::{parallel_chunks, threads};
use kiln_tensor::backend::Primitive;
use kiln_tensor::{Activation, DType, RnnDirection, RnnKind, RnnOptions};

/// The operands; see [`kiln_tensor::compose::RnnOperands`].
pub(crate) struct Operands {
    pub(crate) input: NdArrayTensor,
    pub(crate) weight: NdArrayTensor,
    pub(crate) recurrent: NdArrayTensor,
    pub(crate) bias: Option<NdArrayTensor>,
    pub(crate) sequence_lengths: Option<NdArrayTensor>,
    pub(crate) initial_hidden: Option<NdArrayTensor>,
    pub(crate) initial_cell: Option<NdArrayTensor>,
    pub(crate) peepholes: Option<NdArrayTensor>,
}

/// All outputs, the last hidden state, the last cell state (LSTM).
pub(crate) type Outputs = (NdArrayTensor, NdArrayTensor, Option<NdArrayTensor>);

/// Whether this file runs the layer; the rest is composed.
pub(crate) fn supports(dtype: DType, options: &RnnOptions) -> bool {
    dtype == DType::F32 && options.hidden_size > 0
}

/// Number of directions and of gates.
fn counts(options: &RnnOptions) -> (usize, usize) {
    (options.direction.count(), options.kind.gates())
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

/// What a layer keeps for its gradient; see [`kiln_tensor::compose::RnnStates`].
pub(crate) struct States {
    pub(crate) hidden: NdArrayTensor,
    pub(crate) cell: NdArrayTensor,
    /// `[directions, seq, batch, 4 · hidden]`, after their activations, in the order of the sequence.
    pub(crate) gates: NdArrayTensor,
}

/// See [`kiln_tensor::backend::Backend::rnn`].
pub(crate) fn rnn(operands: Operands, options: &RnnOptions) -> Outputs {
    run(operands, options, false).0
}

/// [`rnn`], and what [`gradient`] needs.
pub(crate) fn rnn_train(operands: Operands, options: &RnnOptions) -> (Outputs, States) {
    let [first, second, _] = operands.input.shape().dims();
    let [steps, batch] = if options.batch_first { [second, first] } else { [first, second] };
    let (outputs, kept) = run(operands, options, true);
    let (directions, hidden) = (options.direction.count(), options.hidden_size);
    let joined = |width: usize, part: &dyn Fn(&Kept) -> &Vec<f32>| {
        NdArrayTensor::build([directions, steps, batch, width].into(), DType::F32, |out: &mut [f32]| {
            let parts = out.chunks_exact_mut((steps * batch * width).max(1)).zip(&kept);
            parts.for_each(|(out, kept)| out.copy_from_slice(part(kept)));
        })
    };
    let states = States {
        hidden: joined(hidden, &|kept| &kept.hidden),
        cell: joined(hidden, &|kept| &kept.cell),
        gates: joined(4 * hidden, &|kept| &kept.gates),
    };
    (outputs, states)
}

/// Runs all directions; yields what each kept, if it is to.
fn run(operands: Operands, options: &RnnOptions, keep: bool) -> (Outputs, Vec<Kept>) {
    let (directions, gates) = counts(options);
    let hidden = options.hidden_size;
    let input = operands.input;
    let input = if options.batch_first { permuted(input, &[1, 0, 2]) } else { input }.into_contiguous();
    let [steps, batch, _] = input.shape().dims();
    let state = batch * hidden;
    let h = initial(operands.initial_hidden, options, directions * state);
    let c = initial(operands.initial_cell, options, directions * state);
    let peepholes = operands.peepholes.map(NdArrayTensor::into_contiguous);
    let lengths = operands.sequence_lengths.map(|lengths| cast::cast(lengths, DType::I64).into_contiguous());
    let lengths: Option<&[i64]> = lengths.as_ref().map(NdArrayTensor::slice);
    let mut passes: Vec<Pass<'_>> = (0..directions)
        .map(|direction| {
            let layer =
                Layer::new(&operands.weight, &operands.recurrent, operands.bias.as_ref(), options, direction);
            Pass {
                projected: linear(input.clone(), layer.weight.clone(), layer.input_bias.clone(), None),
                layer,
                peepholes: peepholes
                    .as_ref()
                    .map(|p| &p.slice::<f32>()[direction * 3 * hidden..][..3 * hidden]),
                lengths,
                reverse: options.direction == RnnDirection::Reverse || direction == 1,
                h: h[direction * state..][..state].to_vec(),
                c: c[direction * state..][..state].to_vec(),
                output: vec![0.0; steps * state],
                kept: keep.then(|| Kept {
                    hidden: vec![0.0; steps * state],
                    cell: vec![0.0; steps * state],
                    gates: vec![0.0; steps * state * gates],
                }),
            }
        })
        .collect();
    let work = batch * gates * hidden * hidden;
    if work < SHARED_STEP || threads() <= directions {
        // A nanosecond is some thirty products, by one thread.
        parallel_chunks(&mut passes, 1, steps * work / 32, |_, pass| pass.iter_mut().for_each(Pass::run));
    } else {
        passes.iter_mut().for_each(Pass::run);
    }
    let output = NdArrayTensor::build([steps, directions, batch, hidden].into(), DType::F32, |out| {
        for (n, out) in out.chunks_exact_mut(state.max(1)).enumerate() {
            let (step, direction) = (n / directions, n % directions);
            out.copy_from_slice(&passes[direction].output[step * state..][..state]);
        }
    });
    let turned = |x: NdArrayTensor, axes: &[usize]| if options.batch_first { permuted(x, axes) } else { x };
    let last = |of: for<'p, 'l> fn(&'p Pass<'l>) -> &'p [f32]| {
        let x = NdArrayTensor::build([directions, batch, hidden].into(), DType::F32, |out: &mut [f32]| {
            let parts = out.chunks_exact_mut(state.max(1)).zip(&passes);
            parts.for_each(|(out, pass)| out.copy_from_slice(of(pass)));
        });
        turned(x, &[1, 0, 2])
    };
    let is_lstm = matches!(options.kind, RnnKind::Lstm { .. });
    let (last_h, last_c) = (last(|pass| &pass.h), is_lstm.then(|| last(|pass| &pass.c)));
    let kept = passes.iter_mut().filter_map(|pass| pass.kept.take()).collect();
    ((turned(output, &[2, 0, 1, 3]), last_h, last_c), kept)
}

/// Products a step from which its matrix product is shared by threads, rather than the directions.
const SHARED_STEP: usize = 1 << 21;

/// A direction on its way over the sequence.
struct Pass<'a> {
    layer: Layer<'a>,
    /// `[steps, batch, gates · hidden]`.
    projected: NdArrayTensor,
    peepholes: Option<&'a [f32]>,
    lengths: Option<&'a [i64]>,
    reverse: bool,
    /// `[batch, hidden]`.
    h: Vec<f32>,
    /// `[batch, hidden]`.
    c: Vec<f32>,
    /// `[steps, batch, hidden]`.
    output: Vec<f32>,
    kept: Option<Kept>,
}

/// What a direction keeps for the way back.
struct Kept {
    /// The states that each step started from, in the order in which the steps ran, `[steps, batch, hidden]`.
    hidden: Vec<f32>,
    cell: Vec<f32>,
    /// The gates after their activations, in the order of the sequence, `[steps, batch, gates · hidden]`.
    gates: Vec<f32>,
}

impl Pass<'_> {
    fn run(&mut self) {
        let Self { layer, projected, peepholes, lengths, reverse, h, c, output, kept } = self;
        let (hidden, state) = (layer.options.hidden_size, h.len());
        if state == 0 {
            return;
        }
        let (steps, size) = (output.len() / state, state * layer.gates);
        let mut space = Space::new(state / hidden, layer.gates, hidden);
        let (mut last_h, mut last_c) = (vec![0.0; state], vec![0.0; state]);
        for n in 0..steps {
            let step = if *reverse { steps - 1 - n } else { n };
            let projected = &projected.slice::<f32>()[step * size..][..size];
            let out = &mut output[step * state..][..state];
            let gates = kept.as_mut().map(|kept| {
                kept.hidden[n * state..][..state].copy_from_slice(h);
                kept.cell[n * state..][..state].copy_from_slice(c);
                &mut kept.gates[step * size..][..size]
            });
            let Some(lengths) = lengths else {
                layer.step(projected, &mut space, *peepholes, [h, c], gates);
                out.copy_from_slice(h);
                continue;
            };
            last_h.copy_from_slice(h);
            last_c.copy_from_slice(c);
            layer.step(projected, &mut space, *peepholes, [h, c], gates);
            out.copy_from_slice(h);
            for (row, _) in lengths.iter().enumerate().filter(|(_, length)| **length <= step as i64) {
                // This row's sequence is over (or, backwards, has not begun).
                let row = row * hidden..(row + 1) * hidden;
                h[row.clone()].copy_from_slice(&last_h[row.clone()]);
                c[row.clone()].copy_from_slice(&last_c[row.clone()]);
                out[row].fill(0.0);
            }
        }
    }
}

/// Working space of a step.
struct Space {
    /// `[batch, gates · hidden]`.
    gates: Vec<f32>,
    /// `[batch, hidden]`: the hidden state after the reset gate.
    reset: Vec<f32>,
    /// `[batch, hidden]`.
    new: Vec<f32>,
}

impl Space {
    fn new(batch: usize, gates: usize, hidden: usize) -> Self {
        let state = vec![0.0; batch * hidden];
        Self { gates: vec![0.0; batch * gates * hidden], reset: state.clone(), new: state }
    }
}

/// One direction.
struct Layer<'a> {
    options: &'a RnnOptions,
    activations: &'a [Activation],
    gates: usize,
    /// `[input, gates · hidden]`.
    weight: NdArrayTensor,
    /// `[hidden, gates · hidden]`, or, of a GRU whose reset gate comes before the product, its parts for the first two
    /// gates and the last.
    recurrent: Vec<Recurrent>,
    /// Added to the input's product.
    input_bias: Option<NdArrayTensor>,
    /// Added to the recurrent product, where that must stay apart (a GRU that resets after it).
    recurrent_bias: Option<NdArrayTensor>,
}

/// Recurrent weights, packed for this run or for all.
enum Recurrent {
    Kept(alloc::sync::Arc<(kiln_tensor::backend::Layout, PackedRhs)>, usize),
    Here(PackedRhs, usize),
}

impl Recurrent {
    /// Of a `[hidden, columns]` matrix.
    fn new(weight: &NdArrayTensor) -> Self {
        let [rows, columns] = weight.shape().dims();
        match packed_rhs(weight) {
            Some(packed) => Self::Kept(packed, columns),
            None => {
                let weight = weight.clone().into_contiguous();
                Self::Here(PackedRhs::new(matrix(&weight), rows, columns), columns)
            }
        }
    }

    /// `out = h · weight`, and what follows.
    fn product(&self, h: &[f32], hidden: usize, out: &mut [f32], epilogue: &Epilogue<'_>) {
        let (packed, columns) = match self {
            Self::Kept(packed, columns) => (&packed.1, *columns),
            Self::Here(packed, columns) => (packed, *columns),
        };
        let lhs = Lhs::Plain(Matrix::row_major(h, hidden));
        gemm::gemm(h.len() / hidden, columns, hidden, lhs, Rhs::Packed(packed), out, columns, epilogue);
    }
}

/// Columns `from..to` of a matrix.
fn columns(x: &NdArrayTensor, from: usize, to: usize) -> NdArrayTensor {
    let mut layout = x.layout().clone();
    layout.offset = (layout.offset as isize + layout.strides[1] * from as isize) as usize;
    layout.shape.dims[1] = to - from;
    x.clone().with_layout(layout)
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
        let hidden = options.hidden_size;
        let recurrent = match options.kind {
            RnnKind::Gru { linear_before_reset: false } => {
                let parts = [columns(&recurrent, 0, 2 * hidden), columns(&recurrent, 2 * hidden, 3 * hidden)];
                parts.iter().map(Recurrent::new).collect()
            }
            _ => vec![Recurrent::new(&recurrent)],
        };
        Self {
            options,
            activations: &options.activations[direction * cells..][..cells],
            gates,
            weight,
            recurrent,
            input_bias,
            recurrent_bias,
        }
    }

    /// One step: `projected` is `[batch, gates · hidden]`, `h` and `c` `[batch, hidden]`; `kept` gets an LSTM's gates.
    fn step(
        &self,
        projected: &[f32],
        space: &mut Space,
        peepholes: Option<&[f32]>,
        [h, c]: [&mut [f32]; 2],
        kept: Option<&mut [f32]>,
    ) {
        let hidden = self.options.hidden_size;
        let clip = self.options.clip.map(|clip| clip as f32);
        let state_clip = self.options.state_clip.map(|clip| clip as f32);
        let Space { gates, reset, new } = space;
        let alone = Epilogue { bias: Bias::None, residual: None, activation: None };
        let sum = Epilogue { residual: Some(projected), ..alone };
        match (self.options.kind, self.activations, self.recurrent.as_slice()) {
            (RnnKind::Lstm { input_forget }, &[f, g, o], [recurrent]) => {
                recurrent.product(h, hidden, gates, &sum);
                let activations = [f, g, o];
                cells::lstm_step(
                    hidden,
                    gates,
                    peepholes,
                    activations,
                    clip,
                    state_clip,
                    input_forget,
                    c,
                    h,
                    kept,
                );
            }
            (RnnKind::Gru { .. }, &[f, g], [recurrent]) => {
                let bias = self.recurrent_bias.as_ref().map_or(Bias::None, |b| Bias::PerColumn(b.slice()));
                recurrent.product(h, hidden, gates, &Epilogue { bias, ..alone });
                cells::gru_step(hidden, projected, gates, [f, g], clip, h);
            }
            (RnnKind::Gru { .. }, &[f, g], [first, last]) => {
                let gates = &mut gates[..2 * h.len()];
                first.product(h, hidden, gates, &alone);
                cells::gru_gates(hidden, projected, gates, h, f, clip, reset);
                last.product(reset, hidden, new, &alone);
                cells::gru_end(hidden, projected, gates, new, g, clip, h);
            }
            (RnnKind::Rnn, &[f], [recurrent]) => {
                recurrent.product(h, hidden, gates, &sum);
                cells::rnn_end(gates, f, clip, h);
            }
            _ => panic!("rnn: {} activations of one direction", self.activations.len()),
        }
        if !matches!(self.options.kind, RnnKind::Lstm { .. }) {
            cells::bound(state_clip, h);
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
    if matches!(options.kind, RnnKind::Gru { linear_before_reset: true }) {
        (Some(made(&|i| w[i])), Some(made(&|i| r[i])))
    } else {
        (Some(made(&|i| w[i] + r[i])), None)
    }
}
