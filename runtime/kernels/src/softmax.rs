//! Softmax and its logarithm along one axis of `[outer, len, inner]`.

use crate::InOut;
use num_traits::Float;

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SoftmaxKind {
    /// `e^x / Σ e^x`.
    Softmax,
    /// `x - ln Σ e^x`.
    LogSoftmax,
}

/// Softmax of `[outer, len, inner]` along `len`. A row of `-∞` yields NaN.
///
/// # Panics
/// When a slice has the wrong size.
pub fn softmax(kind: SoftmaxKind, outer: usize, len: usize, inner: usize, data: InOut<'_>) {
    assert_eq!(data.len(), outer * len * inner, "size of the softmax's data");
    let x = data.into_place();
    for i in 0..outer * inner {
        let at = |l: usize| (i / inner * len + l) * inner + i % inner;
        let max = (0..len).fold(f32::NEG_INFINITY, |m, l| if x[at(l)] > m { x[at(l)] } else { m });
        let sum: f32 = (0..len).map(|l| Float::exp(x[at(l)] - max)).sum();
        for l in 0..len {
            x[at(l)] = match kind {
                SoftmaxKind::Softmax => Float::exp(x[at(l)] - max) / sum,
                SoftmaxKind::LogSoftmax => x[at(l)] - max - Float::ln(sum),
            };
        }
    }
}
