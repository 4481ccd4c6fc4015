//! Reductions of what names the same rows.

use kiln_gpu::kernels::Template;
use kiln_gpu::kernels::access::Access::{Linear, Single, Strided};
use kiln_gpu::kernels::reduce::Reducer;
use kiln_gpu::kernels::segments::{Entries, SegmentedReduction};
use kiln_tensor::DType;

/// All levels of them.
pub fn reductions(dtype: DType) -> Vec<Template> {
    let mut all: Vec<Template> = Vec::new();
    for reducer in [Reducer::Sum, Reducer::Prod, Reducer::Max, Reducer::Min] {
        for (entries, rank) in [(Entries::Values(Single, Strided), 2), (Entries::Left, 0)] {
            for last in [false, true] {
                all.push(SegmentedReduction { reducer, dtype, entries, target: Linear, rank, last }.into());
            }
        }
    }
    all
}
