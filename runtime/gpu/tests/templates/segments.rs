//! Folds of what names the same rows.

use kiln_gpu::kernels::Template;
use kiln_gpu::kernels::access::Access::{Linear, Single, Strided};
use kiln_gpu::kernels::reduce::Fold;
use kiln_gpu::kernels::segments::{Entries, SegmentedFold};
use kiln_tensor::DType;

/// All levels of them.
pub fn folds(dtype: DType) -> Vec<Template> {
    let mut all: Vec<Template> = Vec::new();
    for fold in [Fold::Sum, Fold::Prod, Fold::Max, Fold::Min] {
        for (entries, rank) in [(Entries::Values(Single, Strided), 2), (Entries::Left, 0)] {
            for last in [false, true] {
                all.push(SegmentedFold { fold, dtype, entries, target: Linear, rank, last }.into());
            }
        }
    }
    all
}
