//! Losses.

pub use crate::compose::CrossEntropyOptions;

use crate::backend::Backend;
use crate::check::ensure;
use crate::{Int, Tensor};

/// The cross-entropy of each row: `-w_t ln softmax(logits)[t]`, in one pass over the logits `[rows, classes]`. `targets` are
/// `[rows]`, `weights` (1 where there are none) `[classes]`; what is ignored and smoothed, the options say.
///
/// # Panics
/// When shapes do not fit. A target beyond the classes that is not ignored stops the program where the backend sees it.
pub fn cross_entropy<B: Backend>(
    logits: Tensor<B, 2>,
    targets: Tensor<B, 1, Int>,
    weights: Option<Tensor<B, 1>>,
    options: &CrossEntropyOptions,
) -> Tensor<B, 1> {
    let ([rows, classes], [count]) = (logits.dims(), targets.dims());
    ensure!(rows == count, "cross_entropy", "{rows} rows of logits and {count} targets");
    if let Some([count]) = weights.as_ref().map(Tensor::dims) {
        ensure!(count == classes, "cross_entropy", "{classes} classes and {count} weights");
    }
    let weights = weights.map(Tensor::into_backend);
    // What no target can be would become another number in their dtype.
    let can_be = |class: &i64| {
        let range = targets.dtype().integers();
        range.is_some_and(|(least, greatest)| (least..=greatest).contains(&i128::from(*class)))
    };
    let ignored = options.ignored.iter().copied().filter(can_be).collect();
    let options = CrossEntropyOptions { ignored, smoothing: options.smoothing };
    Tensor::wrap(B::cross_entropy(logits.into_backend(), targets.into_backend(), weights, &options))
}
