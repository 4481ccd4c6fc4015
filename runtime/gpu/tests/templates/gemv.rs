//! Products of few rows.

use super::after;
use kiln_gpu::kernels::Template;
use kiln_gpu::kernels::access::Access::{Linear, Single, Strided};
use kiln_gpu::kernels::gemv::Gemv;
use kiln_gpu::runtime::Subgroups;
use kiln_tensor::DType;

/// A product of one row, with nothing after it.
pub fn plain(dtype: DType, by_columns: bool) -> Gemv {
    let (batch, subgroups, activation) = ((Single, Single, 0), Subgroups::None, None);
    let (wide, across, bias, epilogues) = ([false; 2], 1, false, Vec::new());
    Gemv {
        dtype,
        batch,
        rows: 1,
        by_columns,
        subgroups,
        wide,
        across,
        bias,
        groups: None,
        activation,
        epilogues,
    }
}

/// A batch of products of two rows, with what may come after.
pub fn full(dtype: DType, by_columns: bool) -> Template {
    let batch = (Strided, Linear, 2);
    Gemv { batch, rows: 2, across: 4, bias: true, epilogues: after(dtype), ..plain(dtype, by_columns) }.into()
}

/// Products on devices with warps, which read 16 bytes at once.
pub fn wide() -> Vec<Template> {
    let (batch, subgroups, bias) = ((Strided, Linear, 2), Subgroups::Warps, true);
    let of = |dtype, rows, by_columns, across| {
        let wide = [by_columns, true];
        Gemv { batch, rows, subgroups, wide, across, bias, ..plain(dtype, by_columns) }.into()
    };
    let mut all: Vec<Template> = Vec::new();
    for dtype in [DType::F32, DType::F16, DType::BF16, DType::F64, DType::I8] {
        for rows in [1, 4] {
            all.extend([of(dtype, rows, true, 1), of(dtype, rows, false, 1), of(dtype, rows, false, 8)]);
        }
    }
    all
}
