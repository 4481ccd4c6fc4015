//! Default bodies of the fused operations, composed from the small ones.
//!
//! Every body uses only differentiable methods of `Backend`, so that `Autodiff` has the fused operations without
//! knowing them, and a backend overrides those that it can do better. Half-precision operands are computed in f32
//! where sums or exponentials would lose too much.

mod all_reduce;
pub(crate) mod attention;
pub(crate) mod calc;
mod conv;
mod distance;
mod elementwise;
mod gradient;
mod grouped;
pub(crate) mod indexing;
mod norm;
mod quantized;
mod random;
mod resize;
mod rnn;
pub(crate) mod sampling;
mod shape;
mod tree;

pub use all_reduce::all_reduce;
pub use attention::{attention, linear, linear_parameter_gradients, rows};
pub use calc::wide;
pub use conv::{added, conv_added};
pub use distance::squared_distances;
pub use elementwise::{
    ElementwiseProgram, activation, clamp, elementwise, elementwise_moments, elementwise_sums, mask_fill,
};
pub use gradient::*;
pub use grouped::{grouped_matmul, grouped_matmul_weight_gradient};
pub use kiln_types::{ResizedAxis, Taps, resized_axes};
pub use norm::{batch_norm, group_norm, layer_norm, log_softmax, rms_norm, softmax};
pub use quantized::{Quantized, Rescale, ZeroPoint, conv_integer, matmul_integer, rescale};
pub(crate) use quantized::{bounded, integers, whole};
pub use random::{Draws, bounds, random_data};
pub use resize::{adaptive_avg_pool, adaptive_taps, interpolate};
pub use rnn::{RnnOperands, RnnOutput, rnn, rnn_with};
pub use sampling::{GridSampleOptions, SampleMode, SamplePadding};
pub use shape::{pad, repeat, topk};
pub use tree::{Trees, tree_leaves};
