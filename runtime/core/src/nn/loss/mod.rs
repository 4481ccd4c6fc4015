//! Losses. Each yields a one-element tensor; `forward_no_reduction` yields one value an element.

mod classification;
mod ctc;
mod regression;

pub use classification::{
    BinaryCrossEntropyLoss, BinaryCrossEntropyLossConfig, CosineEmbeddingLoss, CosineEmbeddingLossConfig,
    CrossEntropyLoss, CrossEntropyLossConfig,
};
pub use ctc::{CTCLoss, CTCLossConfig};
pub use regression::{HuberLoss, HuberLossConfig, MseLoss, PoissonNllLoss, PoissonNllLossConfig};

use crate::config::Config;
use crate::tensor::{Tensor, backend::Backend};

/// How many losses become one.
#[derive(Config, Debug, Copy, PartialEq)]
pub enum Reduction {
    /// Their mean.
    Mean,
    /// Their sum.
    Sum,
    /// What the loss does by itself: the mean.
    Auto,
}

impl Reduction {
    fn apply<B: Backend, const D: usize>(self, losses: Tensor<B, D>) -> Tensor<B, 1> {
        match self {
            Reduction::Mean | Reduction::Auto => losses.mean(),
            Reduction::Sum => losses.sum(),
        }
    }
}

/// The loss operands must have one shape.
fn check_same<B: Backend, const D: usize>(loss: &str, predictions: &Tensor<B, D>, targets: [usize; D]) {
    let dims = predictions.dims();
    assert!(dims == targets, "{loss}: predictions {dims:?} and targets {targets:?} must have one shape");
}
