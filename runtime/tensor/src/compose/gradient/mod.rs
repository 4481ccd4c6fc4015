//! Default bodies of what training needs: gradients of the operations that are fused or window over their input, forward
//! passes that keep what their gradient needs, dropout.
//!
//! They are right rather than fast: each is composed of the small operations, like its forward pass, so that it can be
//! differentiated again. A gradient has the dtype and the shape of what it is the gradient of.

mod activation;
mod attention;
mod conv;
mod dropout;
mod loss;
mod norm;
mod pool;
mod resize;
mod rnn;

pub use crate::Philox;
pub use activation::{activation_derivative, activation_gradient};
pub use attention::{AttentionGradients, AttentionTrained, attention_gradient, attention_train};
pub use conv::{
    conv_input_gradient, conv_transpose_input_gradient, conv_transpose_weight_gradient, conv_weight_gradient,
};
pub use dropout::{dropout, random_key};
pub use loss::{
    CrossEntropyOptions, CrossEntropyTrained, cross_entropy, cross_entropy_gradient, cross_entropy_train,
};
pub use norm::{
    BatchNormTrained, NormGradients, NormalizedBatch, RowStatistics, batch_norm_activation_gradient,
    batch_norm_gradient, batch_norm_train, group_norm_gradient, layer_norm_gradient, log_softmax_gradient,
    norm_weight_and_bias_gradients, norm_weight_gradient, rms_norm_gradient, softmax_gradient,
};
pub use pool::{adaptive_avg_pool_gradient, max_pool_gradient, pool_gradient};
pub use resize::interpolate_gradient;
pub use rnn::{RnnGradients, RnnStates, RnnTrained, rnn_gradient, rnn_train};

use super::calc::T;
use crate::backend::{Backend, Primitive};
use crate::{Scalar, ScatterOp, Shape};

/// Zeros of a shape, of the dtype and on the device of `like`.
fn zeros<B: Backend>(shape: &Shape, like: &T<B>) -> T<B> {
    B::full(shape.clone(), Scalar::Int(0), like.dtype(), &B::device(like))
}

/// Default of [`Backend::embedding_gradient`].
pub fn embedding_gradient<B: Backend>(gradient: T<B>, indices: T<B>, rows: usize) -> T<B> {
    let (count, width) = (indices.shape().num_elements(), gradient.shape().dims.last().copied().unwrap_or(1));
    let table = zeros::<B>(&Shape::from([rows, width]), &gradient);
    let [indices, gradient] = [(indices, Shape::from([count])), (gradient, Shape::from([count, width]))]
        .map(|(t, s)| B::reshape(t, s));
    B::select_assign(table, 0, indices, gradient, ScatterOp::Add)
}
