//! Default bodies of the fused operations, composed from the small ones.

use crate::backend::Backend;
use crate::{Activation, AttentionOptions, Expression, InterpolateOptions, PadMode, RnnOptions, Scalar};
use alloc::vec::Vec;

/// Operands of [`Backend::rnn`], laid out as ONNX's `RNN`, `GRU` and `LSTM` operators do.
pub struct RnnOperands<B: Backend> {
    /// `[seq, batch, input]`, or `[batch, seq, input]` when batch comes first.
    pub input: B::Primitive,
    /// Input weights `W`: `[directions, gates · hidden, input]`.
    pub weight: B::Primitive,
    /// Recurrent weights `R`: `[directions, gates · hidden, hidden]`.
    pub recurrent: B::Primitive,
    /// Biases `[directions, 2 · gates · hidden]`: `Wb` then `Rb`.
    pub bias: Option<B::Primitive>,
    /// `[batch]`, an integer dtype: how many steps of each row count.
    pub sequence_lengths: Option<B::Primitive>,
    /// First hidden state `[directions, batch, hidden]` (batch first: `[batch, directions, hidden]`).
    pub initial_hidden: Option<B::Primitive>,
    /// First cell state, likewise (LSTM).
    pub initial_cell: Option<B::Primitive>,
    /// Peephole weights `[directions, 3 · hidden]`, order `iof` (LSTM).
    pub peepholes: Option<B::Primitive>,
}

/// What [`Backend::rnn`] yields.
pub struct RnnOutput<B: Backend> {
    /// Every step's hidden state.
    pub output: B::Primitive,
    /// The last hidden state, shaped like the initial one.
    pub hidden: B::Primitive,
    /// The last cell state (LSTM).
    pub cell: Option<B::Primitive>,
}

/// Default of [`Backend::mask_fill`].
pub fn mask_fill<B: Backend>(_tensor: B::Primitive, _mask: B::Primitive, _value: Scalar) -> B::Primitive {
    unimplemented!()
}

/// Default of [`Backend::clamp`].
pub fn clamp<B: Backend>(_tensor: B::Primitive, _min: Option<Scalar>, _max: Option<Scalar>) -> B::Primitive {
    unimplemented!()
}

/// Default of [`Backend::activation`].
pub fn activation<B: Backend>(_activation: Activation, _tensor: B::Primitive) -> B::Primitive {
    unimplemented!()
}

/// Default of [`Backend::elementwise`].
pub fn elementwise<B: Backend>(_expression: &Expression, _operands: Vec<B::Primitive>) -> B::Primitive {
    unimplemented!()
}

/// Default of [`Backend::pad`].
pub fn pad<B: Backend>(
    _tensor: B::Primitive,
    _padding: &[(usize, usize)],
    _mode: PadMode,
    _value: Scalar,
) -> B::Primitive {
    unimplemented!()
}

/// Default of [`Backend::repeat`].
pub fn repeat<B: Backend>(_tensor: B::Primitive, _times: &[usize]) -> B::Primitive {
    unimplemented!()
}

/// Default of [`Backend::topk`].
pub fn topk<B: Backend>(
    _tensor: B::Primitive,
    _k: usize,
    _dim: usize,
    _largest: bool,
) -> (B::Primitive, B::Primitive) {
    unimplemented!()
}

/// Default of [`Backend::linear`].
pub fn linear<B: Backend>(
    _x: B::Primitive,
    _weight: B::Primitive,
    _bias: Option<B::Primitive>,
    _activation: Option<Activation>,
) -> B::Primitive {
    unimplemented!()
}

/// Default of [`Backend::attention`].
pub fn attention<B: Backend>(
    _q: B::Primitive,
    _k: B::Primitive,
    _v: B::Primitive,
    _mask: Option<B::Primitive>,
    _options: &AttentionOptions,
) -> B::Primitive {
    unimplemented!()
}

/// Default of [`Backend::adaptive_avg_pool`].
pub fn adaptive_avg_pool<B: Backend>(_x: B::Primitive, _output_size: &[usize]) -> B::Primitive {
    unimplemented!()
}

/// Default of [`Backend::interpolate`].
pub fn interpolate<B: Backend>(_x: B::Primitive, _options: &InterpolateOptions) -> B::Primitive {
    unimplemented!()
}

/// Default of [`Backend::softmax`].
pub fn softmax<B: Backend>(_tensor: B::Primitive, _dim: usize) -> B::Primitive {
    unimplemented!()
}

/// Default of [`Backend::log_softmax`].
pub fn log_softmax<B: Backend>(_tensor: B::Primitive, _dim: usize) -> B::Primitive {
    unimplemented!()
}

/// Default of [`Backend::layer_norm`].
pub fn layer_norm<B: Backend>(
    _x: B::Primitive,
    _weight: B::Primitive,
    _bias: Option<B::Primitive>,
    _epsilon: f64,
) -> B::Primitive {
    unimplemented!()
}

/// Default of [`Backend::rms_norm`].
pub fn rms_norm<B: Backend>(_x: B::Primitive, _weight: B::Primitive, _epsilon: f64) -> B::Primitive {
    unimplemented!()
}

/// Default of [`Backend::group_norm`].
pub fn group_norm<B: Backend>(
    _x: B::Primitive,
    _weight: Option<B::Primitive>,
    _bias: Option<B::Primitive>,
    _groups: usize,
    _epsilon: f64,
) -> B::Primitive {
    unimplemented!()
}

/// Default of [`Backend::batch_norm`].
pub fn batch_norm<B: Backend>(
    _x: B::Primitive,
    _weight: B::Primitive,
    _bias: B::Primitive,
    _mean: B::Primitive,
    _variance: B::Primitive,
    _epsilon: f64,
) -> B::Primitive {
    unimplemented!()
}

/// Default of [`Backend::rnn`].
pub fn rnn<B: Backend>(_operands: RnnOperands<B>, _options: &RnnOptions) -> RnnOutput<B> {
    unimplemented!()
}
