//! Kernels that are worth reading, with the names of their snapshots.

use super::{after, elementwise, fused, gemv, matmul, reduce, rows};
use kiln_gpu::kernels::Template;
use kiln_gpu::kernels::access::Access::{Linear, Single, Strided};
use kiln_gpu::kernels::direct::{Bias, Direct, Reading};
use kiln_gpu::kernels::elementwise::Elementwise;
use kiln_gpu::kernels::gemv::Gemv;
use kiln_gpu::kernels::reduce::{Found, Reduce, Reducer};
use kiln_gpu::kernels::rows::{RowOp, Rows};
use kiln_gpu::kernels::segments::{Entries, SegmentedReduction};
use kiln_gpu::kernels::sort::{BlockSort, Keys, MergeRuns};
use kiln_gpu::kernels::tiling::Tiling;
use kiln_gpu::kernels::window::{Flow, Geometry, PoolGradient, RowWeightGradient};
use kiln_gpu::runtime::Subgroups;
use kiln_tensor::{Activation, BinaryOp, DType, Step, UnaryOp};

/// A few that WGSL and CUDA C++ both have.
pub fn in_both() -> [(&'static str, Template); 9] {
    let steps = vec![
        Step::Input(0),
        Step::Input(1),
        Step::Binary(BinaryOp::Add, 0, 1),
        Step::Activation(Activation::Relu, 2),
    ];
    let sum = elementwise::plain(steps, &[(DType::F32, Linear), (DType::F16, Strided)], DType::F32, 2);
    let dtype = DType::F32;
    let mean = Reduce { mean: true, ..reduce::plain(Reducer::Sum, dtype) };
    let product = matmul::plain(dtype, Tiling::Invocations([2, 2]));
    let direct = Direct {
        dtype: DType::F16,
        batch: (Single, Single, 0),
        lhs_fours: true,
        rhs: Reading::Columns,
        rows: 1,
        columns: 4,
        bias: Some(Bias::OfColumns),
        activation: Some(Activation::Relu),
        epilogues: after(DType::F32),
    };
    let geometry = Geometry { kernel: [1, 1, 3], stride: [1, 1, 2], dilation: [1; 3] };
    let (result, channels, pixels) = (dtype, 1, 2);
    let weights = RowWeightGradient { dtype, result, geometry, padded: true, channels, pixels };
    let averages = PoolGradient { flow: Flow::Average { include_pad: false }, dtype, geometry };
    let segments = SegmentedReduction {
        reducer: Reducer::Sum,
        dtype: DType::F16,
        entries: Entries::Values(Single, Strided),
        target: Linear,
        rank: 1,
        last: false,
    };
    [
        ("segmented_reduction", segments.into()),
        ("block_sort", BlockSort { keys: Keys::Elements { dtype, descending: true } }.into()),
        ("merge_runs", MergeRuns { wide: false }.into()),
        ("sum", sum.into()),
        ("mean", mean.into()),
        ("matmul", product.into()),
        ("direct", direct.into()),
        ("row_weight_gradient", weights.into()),
        ("pool_gradient", averages.into()),
    ]
}

/// A few of those that are otherwise in WGSL: where a workgroup shares elements of 16 bits, or is joined by its subgroups.
pub fn in_wgsl_alone() -> [(&'static str, Template); 3] {
    let half = matmul::plain(DType::F16, Tiling::Invocations([2, 2]));
    let quads = matmul::plain(DType::F32, Tiling::Quads([2, 2]));
    let joined = Gemv { subgroups: Subgroups::OfAnySize, ..gemv::plain(DType::F32, true) };
    [("matmul_of_f16", half.into()), ("matmul_by_quads", quads.into()), ("gemv_by_subgroups", joined.into())]
}

/// A few of those that CUDA C++ alone has.
pub fn in_cuda_alone() -> [(&'static str, Template); 10] {
    let wrapped = vec![
        Step::Input(0),
        Step::Parameter(0, DType::I8),
        Step::Binary(BinaryOp::Add, 0, 1),
        Step::Binary(BinaryOp::Div, 2, 1),
    ];
    let told = vec![
        Step::Input(0),
        Step::Parameter(0, DType::I64),
        Step::Binary(BinaryOp::Mul, 0, 1),
        Step::Cast(DType::F64, 2),
        Step::Unary(UnaryOp::Exp, 3),
    ];
    let rounded = vec![Step::Input(0), Step::Cast(DType::BF16, 0)];
    let (dtype, subgroups) = (DType::F32, Subgroups::Warps);
    let summed = Reduce { subgroups, ..reduce::plain(Reducer::Sum, dtype) };
    let columns =
        Reduce { by: reduce::columns(4), reduced: (Strided, 1), ..reduce::plain(Reducer::Sum, DType::BF16) };
    let sums_of_both = Reduce {
        by: reduce::columns(4),
        reduced: (Strided, 1),
        from: Some(Box::new(Elementwise { fours: 1, ..fused::summed_products() })),
        ..reduce::plain(Reducer::Sum, dtype)
    };
    let moments = reduce::moments_of(DType::BF16, 4, Found::OfRuns);
    let joined = Found::Joined(reduce::finish(dtype, 2, DType::BF16));
    let joined_moments = reduce::moments_of(DType::BF16, 4, joined);
    let joined_sums =
        Reduce { joins: true, finish: Some(reduce::finish(dtype, 2, DType::BF16)), ..sums_of_both.clone() };
    let short_rows = Rows { rows: 8, kept: Some(2), subgroups, ..rows::plain(RowOp::RmsNorm, dtype, 32) };
    [
        ("sum_by_warps_cuda", summed.into()),
        ("short_rows_cuda", short_rows.into()),
        ("sum_of_columns_cuda", columns.into()),
        ("sums_of_both_cuda", sums_of_both.into()),
        ("joined_sums_cuda", joined_sums.into()),
        ("moments_cuda", moments.into()),
        ("joined_moments_cuda", joined_moments.into()),
        ("wrapped_cuda", elementwise::plain(wrapped, &[(DType::I8, Linear)], DType::I8, 0).into()),
        ("told_cuda", elementwise::plain(told, &[(DType::I64, Linear)], DType::F64, 0).into()),
        ("rounded_cuda", elementwise::plain(rounded, &[(DType::F64, Linear)], DType::BF16, 0).into()),
    ]
}
