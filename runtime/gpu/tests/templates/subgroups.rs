//! Kernels of several families as subgroups make them: numbers joined within one, matrices that its invocations hold together.

use super::{DTYPES, gemv, grouped, indexing, matmul, quantized, reduce, reductions, window};
use kiln_gpu::kernels::Template;
use kiln_gpu::kernels::cross_entropy::CrossEntropy;
use kiln_gpu::kernels::embedding::EmbeddingGradient;
use kiln_gpu::kernels::gemv::Gemv;
use kiln_gpu::kernels::norm_gradient::NormGradient;
use kiln_gpu::kernels::reduce::{By, Reduce, Reducer};
use kiln_gpu::kernels::rows::Rows;
use kiln_gpu::kernels::tiling::Tiling;
use kiln_gpu::kernels::window::WeightGradient;
use kiln_gpu::language::Factors;
use kiln_gpu::runtime::Subgroups;
use kiln_tensor::DType;

/// Has what joins numbers of invocations do it by subgroups; yields whether it does.
pub fn join_by(template: &mut Template, by: Subgroups) -> bool {
    match template {
        Template::Rows(Rows { lanes, rows, subgroups, .. })
        | Template::NormGradient(NormGradient { lanes, rows, subgroups, .. }) => {
            *subgroups = by;
            if by == Subgroups::Warps && *lanes < 32 {
                (*lanes, *rows) = (32, 8);
            }
        }
        Template::CrossEntropy(CrossEntropy { lanes, subgroups, .. }) => {
            *subgroups = by;
            if by == Subgroups::Warps {
                *lanes = 256;
            }
        }
        Template::Reduce(Reduce { by: By::Workgroup, subgroups, .. })
        | Template::EmbeddingGradient(EmbeddingGradient { subgroups, .. })
        | Template::WeightGradient(WeightGradient { tiling: None, subgroups, .. })
        | Template::Gemv(Gemv { by_columns: true, subgroups, .. }) => *subgroups = by,
        Template::Gemv(Gemv { subgroups, .. }) if by == Subgroups::Warps => *subgroups = by,
        _ => return false,
    }
    true
}

/// Kernels of devices with subgroups of any size.
#[allow(dead_code, reason = "WGSL alone has them")]
pub fn of_any_size() -> Vec<Template> {
    let mut all = reductions(&DTYPES);
    all.extend(reduce::truths());
    all.extend(indexing(&DTYPES, [DType::I32, DType::U32]));
    all.extend(
        DTYPES[..4].iter().flat_map(|&dtype| [gemv::full(dtype, true), window::weight_gradient(dtype, None)]),
    );
    all.retain_mut(|template| join_by(template, Subgroups::OfAnySize));
    let tiling = Tiling::Quads([4, 4]);
    for dtype in DTYPES.into_iter().take(4) {
        all.extend([matmul::full(dtype, tiling), window::conv(dtype, false, Some(tiling))]);
    }
    all.extend(grouped::tiled(DType::F32, DType::I32, tiling));
    all.extend([
        window::conv(DType::F32, true, Some(tiling)),
        window::weight_gradient(DType::F32, Some(tiling)),
    ]);
    all
}

/// Products by tensor cores.
pub fn by_warps() -> Vec<Template> {
    let kinds = [(DType::F16, Factors::F16), (DType::BF16, Factors::BF16), (DType::F32, Factors::TF32)];
    let of = |(dtype, factors)| {
        let tiling = Tiling::Warps(factors, [2, 2]);
        [matmul::full(dtype, tiling), window::conv(dtype, false, Some(tiling))]
    };
    let grouped = kinds
        .into_iter()
        .flat_map(|(dtype, factors)| grouped::tiled(dtype, DType::I64, Tiling::Warps(factors, [2, 2])));
    let largest = matmul::full(DType::BF16, Tiling::Warps(Factors::BF16, [4, 2]));
    let of_warp = |dtype| {
        let (by, subgroups) = (By::Warp, Subgroups::Warps);
        Reduce { by, subgroups, ..reduce::plain(Reducer::Sum, dtype) }.into()
    };
    let halves = Some(Tiling::Warps(Factors::F16, [2, 2]));
    let gradients = [window::conv(DType::F16, true, halves), window::weight_gradient(DType::F16, halves)];
    kinds
        .into_iter()
        .flat_map(of)
        .chain([largest])
        .chain(grouped)
        .chain(gradients)
        .chain([DType::F32, DType::BF16].map(of_warp))
        .chain(quantized::products_and_convs())
        .collect()
}
