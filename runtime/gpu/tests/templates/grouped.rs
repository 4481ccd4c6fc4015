//! Products of rows in groups.

use super::{after, gemv, matmul};
use kiln_gpu::kernels::Template;
use kiln_gpu::kernels::access::Access::{Single, Strided};
use kiln_gpu::kernels::gemv::Gemv;
use kiln_gpu::kernels::grouped::Grouped;
use kiln_gpu::kernels::matmul::Matmul;
use kiln_gpu::kernels::tiling::Tiling;
use kiln_tensor::DType;

/// Products in tiles, whose groups are those of rows or of the depth.
pub fn tiled(dtype: DType, index: DType, tiling: Tiling) -> [Template; 2] {
    let of = |grouped| Matmul { groups: Some((grouped, index)), ..matmul::plain(dtype, tiling) };
    let rows = Matmul { epilogues: after(dtype), ..of(Grouped::Rows) };
    [rows.into(), of(Grouped::Depth).into()]
}

/// Products of single rows.
pub fn rows(dtype: DType, index: DType) -> [Template; 2] {
    let of = |by_columns| {
        let (batch, groups) = ((Strided, Single, 1), Some(index));
        Gemv { batch, groups, epilogues: after(dtype), ..gemv::plain(dtype, by_columns) }.into()
    };
    [true, false].map(of)
}
