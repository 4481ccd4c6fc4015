//! Convolutions, pools, and their gradients.

use super::{after, wide_of};
use kiln_gpu::kernels::Template;
use kiln_gpu::kernels::tiling::Tiling;
use kiln_gpu::kernels::window::{
    AdaptivePoolGradient, Conv, DepthwiseConv, FillChannels, Flow, Geometry, Im2col, NarrowConv, Pool,
    PoolGradient, Pooling, RowConv, RowWeightGradient, WeightGradient,
};
use kiln_gpu::runtime::Subgroups;
use kiln_tensor::{Activation, DType, PoolOp};

pub const GEOMETRY: Geometry = Geometry { kernel: [1, 3, 3], stride: [1, 2, 1], dilation: [1, 1, 2] };

/// A convolution with nothing after it.
fn plain(dtype: DType, transposed: bool, tiling: Option<Tiling>) -> Conv {
    let (geometry, channels_last) = (GEOMETRY, tiling.is_none());
    let (bias, activation, in_parts, epilogues) = (false, None, false, Vec::new());
    Conv { dtype, geometry, transposed, channels_last, bias, activation, tiling, in_parts, epilogues }
}

/// A convolution with all that may come after.
pub fn conv(dtype: DType, transposed: bool, tiling: Option<Tiling>) -> Template {
    let activation = dtype.is_float().then_some(Activation::Gelu);
    Conv { bias: true, activation, epilogues: after(dtype), ..plain(dtype, transposed, tiling) }.into()
}

/// A convolution of which workgroups compute parts of the depth: nothing comes after those.
pub fn in_parts(tiling: Tiling) -> Template {
    Conv { in_parts: true, ..plain(DType::F32, false, Some(tiling)) }.into()
}

pub fn weight_gradient(dtype: DType, tiling: Option<Tiling>) -> Template {
    let (result, geometry) = (wide_of(dtype), GEOMETRY);
    WeightGradient { dtype, result, geometry, tiling, subgroups: Subgroups::None }.into()
}

/// Convolutions of every kind that devices with shared memory run, and gradients of their weights.
pub fn convs(dtype: DType, tiling: Tiling) -> Vec<Template> {
    let mut all: Vec<Template> = Vec::new();
    for tiling in [None, Some(tiling)] {
        all.extend([false, true].map(|transposed| conv(dtype, transposed, tiling)));
        all.push(weight_gradient(dtype, tiling));
    }
    let (bias, activation) = (dtype.is_float(), dtype.is_float().then_some(Activation::Gelu));
    all.push(DepthwiseConv { dtype, geometry: GEOMETRY, bias, activation, epilogues: after(dtype) }.into());
    all.push(FillChannels { dtype }.into());
    all.push(Im2col { dtype, geometry: GEOMETRY }.into());
    all.push(NarrowConv { dtype, channels: 3, bias, activation, epilogues: after(dtype) }.into());
    all
}

pub fn pools(dtype: DType) -> Vec<Template> {
    let mut all: Vec<Template> = Vec::new();
    let geometry = GEOMETRY;
    let average = |include_pad| Pooling::Of(PoolOp::Average { include_pad });
    let poolings = [Pooling::Max(None), Pooling::Max(Some(DType::I32)), average(false), average(true)];
    let floats: &[DType] = match dtype {
        DType::F64 => &[DType::F64],
        DType::I64 | DType::U64 => &[DType::F64, DType::F32],
        _ => &[DType::F32],
    };
    let norms = floats.iter().flat_map(|&floats| [1, 2, 5].map(|p| (Pooling::Of(PoolOp::Lp { p }), floats)));
    for (pooling, floats) in poolings.map(|pooling| (pooling, DType::F32)).into_iter().chain(norms) {
        all.extend([(false, false), (true, false), (true, true)].map(|(channels_last, fours)| {
            Pool { pooling, dtype, floats, geometry, channels_last, fours }.into()
        }));
    }
    let mut flows = vec![Flow::ToPosition(DType::I32)];
    flows.extend([false, true].map(|include_pad| Flow::Average { include_pad }));
    if dtype.is_float() {
        flows.extend([1, 5].map(|p| Flow::Norm { p }));
    }
    all.extend(flows.into_iter().map(|flow| PoolGradient { flow, dtype, geometry }.into()));
    all.push(AdaptivePoolGradient { dtype }.into());
    all
}

/// Convolutions where shared memory is no faster, and gradients of their weights.
pub fn by_rows(dtype: DType) -> Vec<Template> {
    let mut all: Vec<Template> = Vec::new();
    let activation = dtype.is_float().then_some(Activation::Silu);
    let wide = Geometry { kernel: [2, 1, 16], stride: [1, 1, 16], dilation: [1, 1, 1] };
    for (geometry, channels) in [(GEOMETRY, 8), (GEOMETRY, 1), (wide, 4)] {
        for padded in [false, true] {
            // Of transposed ones any window may reach beyond the image.
            for transposed in [false, padded] {
                let (pixels, bias, epilogues) = (4, padded, after(dtype));
                all.push(
                    RowConv {
                        dtype,
                        geometry,
                        transposed,
                        padded,
                        channels,
                        pixels,
                        bias,
                        activation,
                        epilogues,
                    }
                    .into(),
                );
            }
            let (result, pixels) = (wide_of(dtype), if padded { 7 } else { 4 });
            all.push(RowWeightGradient { dtype, result, geometry, padded, channels, pixels }.into());
        }
    }
    all
}
