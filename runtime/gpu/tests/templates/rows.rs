//! Softmax and norms of rows.

use kiln_gpu::kernels::Template;
use kiln_gpu::kernels::rows::{RowOp, Rows};
use kiln_gpu::runtime::Subgroups;
use kiln_tensor::DType;

/// Rows of which each is a workgroup's, with nothing before and after.
pub fn plain(op: RowOp, dtype: DType, lanes: u32) -> Rows {
    Rows {
        op,
        dtype,
        lanes,
        rows: 1,
        kept: None,
        subgroups: Subgroups::None,
        from: None,
        shares: false,
        epilogues: Vec::new(),
    }
}

pub fn rows(dtype: DType) -> Vec<Template> {
    let mut all: Vec<Template> = Vec::new();
    let norms = [RowOp::LayerNorm { bias: true }, RowOp::LayerNorm { bias: false }, RowOp::RmsNorm];
    for op in norms.into_iter().chain([RowOp::Softmax, RowOp::LogSoftmax]) {
        for (lanes, kept) in [(256, Some(3)), (8, None)] {
            all.push(Rows { kept, ..plain(op, dtype, lanes) }.into());
        }
    }
    all
}
