//! Options of the operations with many parameters. Spatial options have one entry per spatial dim (1 to 3).

use crate::{Activation, Dims, InlineVec};
use serde::{Deserialize, Serialize};

/// Options of a convolution (cross-correlation, as everywhere in deep learning).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConvOptions {
    /// Step of the window per spatial dim.
    pub stride: Dims,
    /// Zeros before and after each spatial dim.
    pub padding: InlineVec<(usize, usize)>,
    /// Distance between kernel elements per spatial dim.
    pub dilation: Dims,
    /// Number of channel groups.
    pub groups: usize,
}

/// Options of a transposed convolution.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConvTransposeOptions {
    /// Step per spatial dim.
    pub stride: Dims,
    /// Rows cut off before and after each spatial dim of the full result.
    pub padding: InlineVec<(usize, usize)>,
    /// Rows added after each spatial dim of the result.
    pub output_padding: Dims,
    /// Distance between kernel elements per spatial dim.
    pub dilation: Dims,
    /// Number of channel groups.
    pub groups: usize,
}

/// What a pooling window yields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PoolOp {
    /// The largest element; padding counts as -∞.
    Max,
    /// The mean; `include_pad` says whether padding zeros count in the divisor.
    Average {
        /// Count padding in the divisor.
        include_pad: bool,
    },
    /// `(Σ |x|^p)^(1/p)`.
    Lp {
        /// The norm's order, at least 1.
        p: u32,
    },
}

/// Options of a pooling.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PoolOptions {
    /// Window size per spatial dim.
    pub kernel: Dims,
    /// Step per spatial dim.
    pub stride: Dims,
    /// Padding before and after each spatial dim.
    pub padding: InlineVec<(usize, usize)>,
    /// Distance between window elements per spatial dim.
    pub dilation: Dims,
    /// Round the output size up instead of down (the last window may hang over, but never start in the end padding).
    pub ceil_mode: bool,
}

/// What stands outside a padded tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PadMode {
    /// A constant.
    Constant,
    /// Mirrored without repeating the border.
    Reflect,
    /// The border repeated.
    Edge,
    /// The other end, as on a torus.
    Wrap,
}

/// How `interpolate` computes values between samples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum InterpolateMode {
    /// The nearest sample.
    Nearest(NearestRounding),
    /// Linear in each resized dim.
    Linear,
    /// Cubic convolution in each resized dim with parameter `a` (-0.75 in ONNX and PyTorch; Keys 1981).
    Cubic {
        /// The kernel's parameter.
        a: f64,
    },
}

/// Which sample is nearest at a tie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum NearestRounding {
    /// Halves go down.
    RoundPreferFloor,
    /// Halves go up.
    RoundPreferCeil,
    /// Always down.
    Floor,
    /// Always up.
    Ceil,
}

/// How output coordinates map to input coordinates (ONNX `Resize`, `coordinate_transformation_mode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum CoordinateTransform {
    /// `(x + 0.5) / scale - 0.5`.
    HalfPixel,
    /// Half-pixel, kept symmetric when `scale · length` is not whole.
    HalfPixelSymmetric,
    /// Half-pixel, but 0 when the output has one element.
    PytorchHalfPixel,
    /// `x · (in - 1) / (out - 1)`.
    AlignCorners,
    /// `x / scale`.
    Asymmetric,
    /// `(x + 0.5) / scale`: half-pixel for whole positions, as TensorFlow picks its nearest neighbours.
    TfHalfPixelForNn,
    /// Crops the region of interest given by `roi` and resizes that.
    TfCropAndResize,
}

/// Options of `interpolate`; vectors have one entry per dim of the tensor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InterpolateOptions {
    /// Output size per dim.
    pub output_size: Dims,
    /// Scale per dim as given (the output size may have been rounded); `output / input` when sizes were given.
    pub scales: InlineVec<f64>,
    /// How values between samples are computed.
    pub mode: InterpolateMode,
    /// How coordinates map.
    pub coordinates: CoordinateTransform,
    /// Low-pass filter when scaling down (linear and cubic).
    pub antialias: bool,
    /// Leave out samples beyond the border and renormalize the weights (linear and cubic), where else the border
    /// goes on.
    pub exclude_outside: bool,
    /// Start and end per dim in relative coordinates, for [`CoordinateTransform::TfCropAndResize`].
    pub roi: Option<InlineVec<(f64, f64)>>,
    /// Value outside the input for [`CoordinateTransform::TfCropAndResize`].
    pub extrapolation_value: f64,
}

/// Which recurrent cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RnnKind {
    /// `h = f(W x + R h + b)`.
    Rnn,
    /// Gated recurrent unit; `linear_before_reset` as in ONNX (PyTorch's GRU has it on).
    Gru {
        /// Apply the reset gate after the recurrent matrix.
        linear_before_reset: bool,
    },
    /// Long short-term memory; `input_forget` couples both gates.
    Lstm {
        /// `f = 1 - i`.
        input_forget: bool,
    },
}

impl RnnKind {
    /// Matrices of a direction's weights, each with as many rows as the hidden state has elements.
    pub fn gates(self) -> usize {
        match self {
            RnnKind::Rnn => 1,
            RnnKind::Gru { .. } => 3,
            RnnKind::Lstm { .. } => 4,
        }
    }

    /// The activations that ONNX gives a direction's cell when the file names none: `f`, `f, g` or `f, g, h`.
    pub fn activations(self) -> &'static [Activation] {
        match self {
            RnnKind::Rnn => &[Activation::Tanh],
            RnnKind::Gru { .. } => &[Activation::Sigmoid, Activation::Tanh],
            RnnKind::Lstm { .. } => &[Activation::Sigmoid, Activation::Tanh, Activation::Tanh],
        }
    }
}

/// In which order a recurrent layer reads its sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RnnDirection {
    /// First to last.
    Forward,
    /// Last to first.
    Reverse,
    /// Both; weights and outputs have a leading direction dim of 2.
    Bidirectional,
}

impl RnnDirection {
    /// Number of directions: the leading dim of weights and states.
    pub fn count(self) -> usize {
        if self == RnnDirection::Bidirectional { 2 } else { 1 }
    }
}

/// Options of a recurrent layer. Weight layouts are ONNX's: gates `iofc` (LSTM), `zrh` (GRU).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RnnOptions {
    /// Which cell.
    pub kind: RnnKind,
    /// Reading order.
    pub direction: RnnDirection,
    /// Size of the hidden state.
    pub hidden_size: usize,
    /// Per direction: the cell's activations (`f, g, h` for LSTM, `f, g` for GRU, `f` for RNN).
    pub activations: InlineVec<Activation>,
    /// Bound of the cell's pre-activations.
    pub clip: Option<f64>,
    /// Bound of what the cell carries from step to step: an LSTM's cell state, the hidden state of the others.
    pub state_clip: Option<f64>,
    /// `[batch, seq, …]` layout instead of `[seq, batch, …]` (ONNX `layout = 1`).
    pub batch_first: bool,
}

/// What attention yields for a query to which the mask leaves no key, where that is not what the mask itself says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FullyMasked {
    /// Zeros.
    Zeros,
    /// The mean of the values: what softmax makes of scores that are all the same low number.
    Mean,
}

/// Options of scaled-dot-product attention.
#[derive(Clone, Copy, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct AttentionOptions {
    /// Factor on the scores; `1/sqrt(head size)` when absent.
    pub scale: Option<f64>,
    /// Mask out keys after the query's position (aligned at the last key for unequal lengths when `true`).
    pub is_causal: bool,
    /// `softcap · tanh(scores / softcap)`; 0 caps nothing.
    pub softcap: Option<f64>,
    /// What a query yields to which the mask leaves no key. When absent, zeros under a bool mask, and NaN under an added
    /// one: softmax of nothing but -∞.
    pub fully_masked: Option<FullyMasked>,
}

/// The same padding before and after.
fn both_sides<const N: usize>(padding: [usize; N]) -> InlineVec<(usize, usize)> {
    padding.iter().map(|&size| (size, size)).collect()
}

impl ConvOptions {
    /// Options whose padding is the same before and after.
    pub fn new<const N: usize>(
        stride: [usize; N],
        padding: [usize; N],
        dilation: [usize; N],
        groups: usize,
    ) -> Self {
        Self { stride: stride.into(), padding: both_sides(padding), dilation: dilation.into(), groups }
    }
}

impl ConvTransposeOptions {
    /// Options whose padding is the same before and after.
    pub fn new<const N: usize>(
        stride: [usize; N],
        padding: [usize; N],
        padding_out: [usize; N],
        dilation: [usize; N],
        groups: usize,
    ) -> Self {
        Self {
            stride: stride.into(),
            padding: both_sides(padding),
            output_padding: padding_out.into(),
            dilation: dilation.into(),
            groups,
        }
    }
}

impl PoolOptions {
    /// Options whose padding is the same before and after.
    pub fn new<const N: usize>(
        kernel: [usize; N],
        stride: [usize; N],
        padding: [usize; N],
        dilation: [usize; N],
        ceil_mode: bool,
    ) -> Self {
        Self {
            kernel: kernel.into(),
            stride: stride.into(),
            padding: both_sides(padding),
            dilation: dilation.into(),
            ceil_mode,
        }
    }
}
