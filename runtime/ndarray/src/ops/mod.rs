//! The operations, by family.

pub(crate) mod attention;
pub(crate) mod binary;
pub(crate) mod cast;
pub(crate) mod compare;
pub(crate) mod conv;
pub(crate) mod conv_transpose;
pub(crate) mod copy;
pub(crate) mod create;
pub(crate) mod cumulative;
pub(crate) mod distance;
pub(crate) mod gradient;
pub(crate) mod grouped;
pub(crate) mod index;
pub(crate) mod lanes;
pub(crate) mod loss;
pub(crate) mod matmul;
pub(crate) mod norm;
pub(crate) mod pool;
pub(crate) mod program;
pub(crate) mod quantized;
pub(crate) mod random;
pub(crate) mod reduce;
pub(crate) mod resize;
pub(crate) mod rnn;
pub(crate) mod scatter;
pub(crate) mod select_where;
pub(crate) mod sort;
pub(crate) mod tree;
pub(crate) mod unary;
pub(crate) mod window;

pub(crate) use conv::{Pointwise, RoundedConv};
pub(crate) use pool::MaxPool;
