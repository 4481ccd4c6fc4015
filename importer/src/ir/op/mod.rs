//! The core operations.
//!
//! ONNX's operators lower into these. An operation stands here when a pass looks at it or shape inference of another
//! depends on it; everything else is an [`Op::Call`] of a runtime function, and needs no entry in any list.
//!
//! Conventions: axes are non-negative; broadcasting operands have equal rank, except that either may be a constant of
//! rank 0 (a scalar, spelt as a literal); sizes are [`Dim`]s, never operands.

mod host;
mod implementation;
mod infer;
mod visit;

use super::{Dim, Region, RuntimeCall, Symbol};
use kiln_types::{
    Activation, ArgReduceOp, AttentionOptions, BinaryOp, CompareOp, ConvOptions, ConvTransposeOptions,
    CoordinateTransform, CumulativeOp, DType, Expression, InterpolateMode, PadMode, PoolOp, PoolOptions,
    ReduceOp, RnnOptions, Scalar, ScatterOp, UnaryOp,
};
use serde::{Deserialize, Serialize};

/// The part of one axis that a slice keeps; in range, `start <= end`. A negative step walks `start..end` backwards from
/// `end - 1`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AxisRange {
    /// First element.
    pub start: Dim,
    /// One past the last element.
    pub end: Dim,
    /// Distance; never 0.
    pub step: i64,
}

/// A core operation. Operands in brackets; `?` marks an optional one.
///
/// The text form follows this declaration: a field of a new type needs serde's traits, and regions are skipped, since the
/// text of a graph shows them as blocks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Op {
    // ---- elementwise ----
    /// `[x]`
    Unary(UnaryOp),
    /// `[a, b]`, broadcast.
    Binary(BinaryOp),
    /// `[a, b]`, broadcast, yields bool.
    Compare(CompareOp),
    /// `[condition, a, b]`, broadcast.
    Where,
    /// `[x]`
    Activation(Activation),
    /// `[x]`; bounds as numbers of the dtype.
    Clamp {
        /// Lower bound.
        min: Option<Scalar>,
        /// Upper bound.
        max: Option<Scalar>,
    },
    /// `[x]`
    Cast {
        /// New dtype.
        to: DType,
    },
    /// `[operands…]`: a raised chain, broadcast.
    Elementwise(Expression),

    // ---- shape ----
    /// `[x]`: same elements, these dims (also squeeze, unsqueeze, flatten).
    Reshape {
        /// New dims; their product is the operand's.
        dims: Vec<Dim>,
    },
    /// `[x]`: output axis `i` is input axis `axes[i]`.
    Permute {
        /// The permutation.
        axes: Vec<usize>,
    },
    /// `[x]`: broadcast to these dims, of the same rank.
    Expand {
        /// New dims.
        dims: Vec<Dim>,
    },
    /// `[x]`
    Slice {
        /// One per axis.
        ranges: Vec<AxisRange>,
    },
    /// `[x…]`
    Concat {
        /// The joined axis.
        axis: usize,
    },
    /// `[x]`
    Pad {
        /// Before and after each axis; not negative.
        padding: Vec<(Dim, Dim)>,
        /// What stands outside.
        mode: PadMode,
        /// For [`PadMode::Constant`].
        value: Scalar,
    },
    /// `[x]`: repeats each axis.
    Repeat {
        /// One per axis.
        times: Vec<Dim>,
    },

    // ---- making values ----
    /// `[]`: a tensor of one value.
    Fill {
        /// Its dims.
        dims: Vec<Dim>,
        /// The value.
        value: Scalar,
        /// The dtype.
        dtype: DType,
    },
    /// `[]`: `start, start + step, …` before `end`, rank 1, i64.
    Arange {
        /// First.
        start: Dim,
        /// Bound.
        end: Dim,
        /// Step; never 0.
        step: i64,
    },
    /// `[]`: host integers as an i64 tensor; where shape arithmetic meets tensor arithmetic.
    HostTensor {
        /// Contents, row-major.
        values: Vec<Dim>,
        /// Its (known) dims.
        dims: Vec<usize>,
    },
    /// `[x]`: reads a small integer or bool tensor of known shape back, defining symbols; no outputs. Only where shapes
    /// or control flow depend on data.
    HostRead {
        /// One per element, row-major.
        symbols: Vec<Symbol>,
    },

    // ---- indexing; indices are i64 or i32 ----
    /// `[x, indices]`: numpy's `take` along an axis, any rank of indices.
    Take {
        /// The axis.
        axis: usize,
        /// Whether indices may be negative (count from the end).
        wrapped: bool,
    },
    /// `[x, indices]` of equal rank (ONNX `GatherElements`), indices not negative.
    Gather {
        /// The axis.
        axis: usize,
    },
    /// `[x, indices, updates]` of equal rank (ONNX `ScatterElements`), indices not negative.
    Scatter {
        /// The axis.
        axis: usize,
        /// How values meet.
        op: ScatterOp,
    },

    // ---- folds ----
    /// `[x]`
    Reduce {
        /// What is computed.
        op: ReduceOp,
        /// Sorted; never empty.
        axes: Vec<usize>,
        /// Whether the axes stay with size 1.
        keep_dims: bool,
    },
    /// `[x]`: i64 positions.
    ArgReduce {
        /// What is looked for.
        op: ArgReduceOp,
        /// The axis.
        axis: usize,
        /// Whether the axis stays with size 1.
        keep_dims: bool,
        /// The last among equals instead of the first.
        select_last: bool,
    },
    /// `[x]`
    Cumulative {
        /// What is computed.
        op: CumulativeOp,
        /// The axis.
        axis: usize,
        /// Leave out the element itself.
        exclusive: bool,
        /// Run from the end.
        reverse: bool,
    },
    /// `[x]`: keeps the upper or lower triangle of the last two axes.
    Trilu {
        /// Upper instead of lower.
        upper: bool,
        /// The diagonal.
        k: i64,
    },

    // ---- linear algebra ----
    /// `[a, b]` of equal rank of at least 2, leading axes broadcast.
    MatMul,
    /// `[x, weight, bias?]`: `x` is `[…, in]`, `weight` a constant `[in, out]`, `bias` a constant `[out]`.
    Linear {
        /// Applied to the result.
        activation: Option<Activation>,
    },
    /// `[q, k, v, mask?]`, each `[batch, heads, seq, size]`; see `Backend::attention`.
    Attention(AttentionOptions),

    // ---- convolution and pooling: `[batch, channels, spatial…]`, 1 to 3 spatial axes ----
    /// `[x, weight, bias?]`, floats; or integers without bias and activation.
    Conv {
        /// Where the kernel goes.
        options: ConvOptions,
        /// Applied to the result.
        activation: Option<Activation>,
    },
    /// `[x, weight, bias?]`
    ConvTranspose(ConvTransposeOptions),
    /// `[x]`
    Pool(PoolOp, PoolOptions),
    /// `[x]`: maxima, and their positions (i64) in the flattened spatial axes of their channel.
    MaxPoolWithIndices(PoolOptions),
    /// `[x]`: mean over windows that give the wanted spatial size.
    AdaptiveAvgPool {
        /// Spatial size of the result.
        output_size: Vec<usize>,
    },
    /// `[x]`; see `kiln_types::InterpolateOptions`, here with symbolic sizes.
    Interpolate {
        /// Size of every axis of the result.
        sizes: Vec<Dim>,
        /// Scale per axis, when scales were given.
        scales: Option<Vec<f64>>,
        /// How values between samples are computed.
        mode: InterpolateMode,
        /// How coordinates map.
        coordinates: CoordinateTransform,
        /// Low-pass filter when scaling down.
        antialias: bool,
        /// Leave out samples beyond the border.
        exclude_outside: bool,
        /// For [`CoordinateTransform::TfCropAndResize`].
        roi: Option<Vec<(f64, f64)>>,
        /// For [`CoordinateTransform::TfCropAndResize`].
        extrapolation_value: f64,
    },

    // ---- normalization ----
    /// `[x]`
    Softmax {
        /// The axis.
        axis: usize,
    },
    /// `[x]`
    LogSoftmax {
        /// The axis.
        axis: usize,
    },
    /// `[x, weight, bias?]`: over the last `weight.rank()` axes.
    LayerNorm {
        /// Added to the variance.
        epsilon: f64,
    },
    /// `[x, weight]`: over the last `weight.rank()` axes.
    RmsNorm {
        /// Added to the mean square.
        epsilon: f64,
    },
    /// `[x, weight?, bias?]`, `[batch, channels, …]`.
    GroupNorm {
        /// Number of groups; instance normalization has as many as channels.
        groups: usize,
        /// Added to the variance.
        epsilon: f64,
    },
    /// `[x, weight, bias, mean, variance]`, with the given statistics.
    BatchNorm {
        /// Added to the variance.
        epsilon: f64,
    },
    /// `[x]`: identity in inference; kept when the model is to be trained.
    Dropout {
        /// Probability of zeroing.
        ratio: f64,
    },

    // ---- recurrence ----
    /// `[input, W, R, bias?, sequence_lengths?, initial_hidden?, initial_cell?, peepholes?]`, ONNX's layouts; yields
    /// all outputs, last hidden state, and for an LSTM the last cell state.
    Rnn(RnnOptions),

    // ---- control ----
    /// `[]`: one of two regions, which use values around them; outputs as the regions'.
    If {
        /// 0 is false.
        condition: Dim,
        /// When not 0.
        #[serde(skip)]
        then_region: Region,
        /// When 0.
        #[serde(skip)]
        else_region: Region,
    },

    // ---- everything else ----
    /// `[operands…]`
    Call(RuntimeCall),
}

#[cfg(test)]
mod tests;
