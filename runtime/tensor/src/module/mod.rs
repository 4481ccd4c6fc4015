//! The functions behind neural-network modules, for any rank.

mod attention;
mod conv;
mod join;
mod linear_attention;
mod loss;
mod norm;
mod pool;
mod quantized;
mod recurrent;
mod rotary;
mod sampling;
mod vision;

pub use crate::compose::{GridSampleOptions, SampleMode, SamplePadding};
pub use attention::{
    AttentionMask, attention, embedding, grouped_matmul, linear, linear_activated, linear_with,
};
pub use conv::{
    conv, conv_activated, conv_added, conv_transpose, conv_transpose1d, conv_transpose2d, conv_transpose3d,
    conv1d, conv2d, conv3d, unfold4d,
};
pub use join::cat;
pub use linear_attention::{LinearAttentionOptions, linear_attention};
pub use loss::{CrossEntropyOptions, cross_entropy};
pub use norm::{batch_norm, batch_norm_train, dropout, group_norm, instance_norm, layer_norm, rms_norm};
pub use pool::{
    adaptive_avg_pool, adaptive_avg_pool1d, adaptive_avg_pool2d, avg_pool1d, avg_pool2d, interpolate,
    interpolate_with, largest_ratio, max_pool, max_pool_with_indices, max_pool1d, max_pool1d_with_indices,
    max_pool2d, max_pool2d_with_indices, pool, size_as_float, smallest_ratio,
};
pub use quantized::{
    QuantizedInput, QuantizedWeight, ZeroPoint, conv_integer, dequantize, fake_quantize, matmul_integer,
    quantize, quantize_dynamic, quantized_add, quantized_conv, quantized_linear, quantized_mul,
    requantized_conv, requantized_linear,
};
pub use recurrent::{RnnInputs, lstm, rnn, rnn_with};
pub use rotary::rotary;
pub use sampling::{
    DeformConvOptions, RoiAlignOptions, RoiPool, deform_conv2d, grid_sample, max_roi_pool,
    max_roi_pool_async, roi_align, roi_align_async,
};
pub use vision::{
    depth_to_space, non_max_suppression, non_max_suppression_async, non_max_suppression_within,
    non_max_suppression_within_async, space_to_depth, topk,
};
