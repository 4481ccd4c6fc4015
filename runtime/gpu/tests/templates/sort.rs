//! Sorts of blocks, and what makes one of them.

use kiln_gpu::kernels::Template;
use kiln_gpu::kernels::sort::{BlockSort, Keys, MergeRuns};
use kiln_tensor::DType;

pub fn blocks(dtype: DType) -> [Template; 2] {
    [true, false].map(|descending| BlockSort { keys: Keys::Elements { dtype, descending } }.into())
}

/// Sorts by rows.
pub fn rows(index: DType) -> Template {
    BlockSort { keys: Keys::Rows(index) }.into()
}

/// What goes on with keys, which are wide or not.
pub fn keyed(wide: bool) -> [Template; 2] {
    [BlockSort { keys: Keys::Made { wide } }.into(), MergeRuns { wide }.into()]
}
