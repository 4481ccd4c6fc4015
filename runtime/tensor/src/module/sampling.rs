//! Reading images at fractional positions.

use crate::backend::Backend;
use crate::check::{ensure, fail, ran};
use crate::compose::calc::{T, add, mul, narrow, reshape, weights};
use crate::compose::sampling::{self, GridSampleOptions, RegionTaps};
use crate::{DType, Int, ReduceOp, Shape, Tensor, TensorData, Transaction};
use alloc::vec;
use alloc::vec::Vec;

/// Reads `[batch, channels, spatial…]` (1 to 3 spatial dims) where a grid `[batch, points…, spatial rank]` says, whose
/// last dim holds coordinates from -1 to 1, the innermost dim's (`x`) first. Yields `[batch, channels, points…]`.
///
/// # Panics
/// When the grid does not fit.
pub fn grid_sample<B: Backend, const D: usize>(
    x: Tensor<B, D>,
    grid: Tensor<B, D>,
    options: GridSampleOptions,
) -> Tensor<B, D> {
    let (shape, grid_shape) = (x.shape(), grid.shape());
    let fits = (3..=5).contains(&D) && grid_shape[D - 1] == D - 2 && grid_shape[0] == shape[0];
    ensure!(fits, "grid_sample", "a grid {grid_shape} does not fit {shape}");
    Tensor::wrap(sampling::grid_sample::<B>(x.into_primitive(), grid.into_primitive(), &options))
}

/// What is made of the sampled points of a bin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RoiPool {
    /// Their mean.
    #[default]
    Average,
    /// The largest of their samples, each times its weight (as ONNX has it).
    Max,
}

/// Options of [`roi_align`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RoiAlignOptions {
    /// Height and width of the result.
    pub output_size: [usize; 2],
    /// Points per bin and dim; 0 takes as many as a bin has samples, rounded up.
    pub sampling_ratio: usize,
    /// From the regions' coordinates to the input's.
    pub spatial_scale: f64,
    /// Whether coordinates are of pixel corners, and thus half a pixel off the samples.
    pub half_pixel: bool,
    /// What is made of a bin's points.
    pub pool: RoiPool,
}

/// ONNX `RoiAlign`: pools regions `[regions, 4]` (`x1, y1, x2, y2`) of `[batch, channels, height, width]` to one size:
/// `[regions, channels, rows, columns]`. Reads the regions back: how many points are sampled depends on them.
///
/// # Panics
/// When shapes do not fit, a batch index is out of range, or the device failed.
pub fn roi_align<B: Backend>(
    x: Tensor<B, 4>,
    regions: Tensor<B, 2>,
    batch_indices: Tensor<B, 1, Int>,
    options: RoiAlignOptions,
) -> Tensor<B, 4> {
    let read = Transaction::default().register(regions).register(batch_indices).execute();
    aligned(x, &read, &options)
}

/// [`roi_align`] without blocking the thread.
///
/// # Panics
/// When shapes do not fit, a batch index is out of range, or the device failed.
pub async fn roi_align_async<B: Backend>(
    x: Tensor<B, 4>,
    regions: Tensor<B, 2>,
    batch_indices: Tensor<B, 1, Int>,
    options: RoiAlignOptions,
) -> Tensor<B, 4> {
    let read = Transaction::default().register(regions).register(batch_indices).execute_async().await;
    aligned(x, &ran("roi_align", read), &options)
}

/// Pools the regions that were read, with their batch indices.
fn aligned<B: Backend>(x: Tensor<B, 4>, read: &[TensorData], options: &RoiAlignOptions) -> Tensor<B, 4> {
    let [regions, batch_indices] = read else {
        fail("roi_align", format_args!("the device read {} tensors of two", read.len()))
    };
    let [batch, channels, height, width] = x.dims();
    let (count, four) = (regions.shape[0], regions.shape[1]);
    let indices: Vec<usize> = batch_indices.iter::<i64>().map(|i| i.max(0) as usize).collect();
    ensure!(
        four == 4 && indices.len() == count && indices.iter().all(|&index| index < batch),
        "roi_align",
        "{count} regions of {four} numbers with {} batch indices do not fit {batch} images",
        indices.len()
    );
    let regions: Vec<f64> = regions.iter::<f64>().collect();
    let bins: Vec<Vec<(i64, f64)>> = regions
        .chunks_exact(4)
        .zip(&indices)
        .flat_map(|(region, &index)| {
            let start = (index * height * width) as i64;
            region_bins(region, [height, width], options)
                .into_iter()
                .map(move |bin| bin.into_iter().map(|(at, weight)| (start + at, weight)).collect())
        })
        .collect();
    let op = if options.pool == RoiPool::Max { ReduceOp::Max } else { ReduceOp::Sum };
    let taps = region_taps(&bins, options.pool);
    let folded: Tensor<B, 2> = Tensor::wrap(sampling::fold_taps::<B>(x.into_primitive(), taps, op));
    let [rows, columns] = options.output_size;
    folded.reshape([count, rows, columns, channels]).permute([0, 3, 1, 2])
}

/// The taps of all bins, as many for each.
fn region_taps(bins: &[Vec<(i64, f64)>], pool: RoiPool) -> RegionTaps {
    let per_bin = bins.iter().map(Vec::len).max().unwrap_or(0).max(1);
    let mut taps = RegionTaps { positions: Vec::new(), weights: Vec::new(), per_bin };
    for bin in bins {
        // A bin with fewer points is filled up with what changes neither a sum nor a maximum.
        let filler = match pool {
            RoiPool::Average => (0, 0.0),
            RoiPool::Max => bin.first().copied().unwrap_or((0, 0.0)),
        };
        for i in 0..per_bin {
            let (at, weight) = bin.get(i).copied().unwrap_or(filler);
            taps.positions.push(at);
            taps.weights.push(weight);
        }
    }
    taps
}

/// The weighted samples of each bin of a region, as positions in one image.
fn region_bins(region: &[f64], image: [usize; 2], options: &RoiAlignOptions) -> Vec<Vec<(i64, f64)>> {
    let offset = if options.half_pixel { 0.5 } else { 0.0 };
    let corner = |i: usize| region[i] * options.spatial_scale - offset;
    let (start, end) = ([corner(1), corner(0)], [corner(3), corner(2)]);
    let least = if options.half_pixel { f64::NEG_INFINITY } else { 1.0 };
    let bin: [f64; 2] =
        core::array::from_fn(|d| (end[d] - start[d]).max(least) / options.output_size[d] as f64);
    let points: [usize; 2] = core::array::from_fn(|d| match options.sampling_ratio {
        0 => num_traits::Float::ceil(bin[d]).max(0.0) as usize,
        ratio => ratio,
    });
    let total = (points[0] * points[1]).max(1) as f64;
    let share = if options.pool == RoiPool::Average { 1.0 / total } else { 1.0 };
    let at = |d: usize, of_bin: usize, point: usize| {
        start[d] + bin[d] * (of_bin as f64 + (point as f64 + 0.5) / points[d] as f64)
    };
    let mut bins = Vec::new();
    for row in 0..options.output_size[0] {
        for column in 0..options.output_size[1] {
            let mut taps = Vec::new();
            for y in 0..points[0] {
                for x in 0..points[1] {
                    push_bilinear(&mut taps, [at(0, row, y), at(1, column, x)], image, share);
                }
            }
            bins.push(taps);
        }
    }
    bins
}

/// The four samples around a point; more than one sample outside, they weigh nothing.
fn push_bilinear(taps: &mut Vec<(i64, f64)>, at: [f64; 2], image: [usize; 2], share: f64) {
    let outside = (0..2).any(|d| at[d] < -1.0 || at[d] > image[d] as f64);
    let along = |d: usize| {
        let last = image[d].saturating_sub(1);
        let at = at[d].clamp(0.0, last as f64);
        let low = (at as usize).min(last);
        [(low, 1.0 - (at - low as f64)), ((low + 1).min(last), at - low as f64)]
    };
    for (row, row_weight) in along(0) {
        for (column, column_weight) in along(1) {
            let weight = if outside { 0.0 } else { row_weight * column_weight * share };
            taps.push(((row * image[1] + column) as i64, weight));
        }
    }
}

/// Options of [`deform_conv2d`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeformConvOptions {
    /// Step of the window.
    pub stride: [usize; 2],
    /// Zeros around the input.
    pub padding: [usize; 2],
    /// Distance between kernel elements.
    pub dilation: [usize; 2],
    /// Groups of channels that do not see each other.
    pub weight_groups: usize,
    /// Groups of channels with offsets of their own.
    pub offset_groups: usize,
}

/// Where each kernel element lies without offsets, for every point, vertically and horizontally:
/// `[1, kernel · points]` each, in the dtype of the offsets.
fn unmoved<B: Backend>(
    like: &T<B>,
    [kernel_rows, kernel_columns]: [usize; 2],
    [rows, columns]: [usize; 2],
    options: &DeformConvOptions,
) -> [T<B>; 2] {
    let (kernel, points) = (kernel_rows * kernel_columns, rows * columns);
    let along = |d: usize, element: fn(usize, usize) -> usize| {
        let at = |k: usize, p: usize| {
            let step =
                element(p, columns) * options.stride[d] + element(k, kernel_columns) * options.dilation[d];
            step as f64 - options.padding[d] as f64
        };
        let values = (0..kernel * points).map(|i| at(i / points.max(1), i % points.max(1))).collect();
        weights::<B>(values, vec![1, kernel * points], like)
    };
    [along(0, |at, width| at / width), along(1, |at, width| at % width)]
}

/// A convolution whose kernel elements are moved by offsets, and weighted by a mask.
///
/// `x` is `[batch, in, height, width]`, `weight` `[out, in / groups, kernel…]`, `offset`
/// `[batch, offset groups · kernel · 2, rows, columns]` (vertical, then horizontal, of each element), `mask`
/// `[batch, offset groups · kernel, rows, columns]`.
///
/// # Panics
/// When shapes do not fit.
pub fn deform_conv2d<B: Backend>(
    x: Tensor<B, 4>,
    offset: Tensor<B, 4>,
    weight: Tensor<B, 4>,
    mask: Option<Tensor<B, 4>>,
    bias: Option<Tensor<B, 1>>,
    options: DeformConvOptions,
) -> Tensor<B, 4> {
    let [batch, channels, height, width] = x.dims();
    let [outputs, group_channels, kernel_rows, kernel_columns] = weight.dims();
    let [_, _, rows, columns] = offset.dims();
    let (groups, moved) = (options.weight_groups, options.offset_groups);
    let (kernel, points) = (kernel_rows * kernel_columns, rows * columns);
    let fits = groups > 0
        && moved > 0
        && channels == group_channels * groups
        && channels.is_multiple_of(moved)
        && outputs.is_multiple_of(groups);
    ensure!(fits, "deform_conv2d", "{:?} does not take a weight {:?}", x.shape().dims, weight.shape().dims);
    let expect = |name: &str, shape: Shape, channels: usize| {
        let wanted = [batch, channels, rows, columns];
        ensure!(shape[..] == wanted, "deform_conv2d", "the {name} is {shape}, it should be {wanted:?}");
    };
    expect("offset", offset.shape(), 2 * moved * kernel);
    if let Some(mask) = &mask {
        expect("mask", mask.shape(), moved * kernel);
    }
    // Half precision counts no pixels beyond a few hundred.
    let offset = match offset.dtype() {
        DType::F16 | DType::BF16 => B::cast(offset.into_primitive(), DType::F32),
        _ => offset.into_primitive(),
    };
    let straight = unmoved::<B>(&offset, [kernel_rows, kernel_columns], [rows, columns], &options);
    let offsets = reshape::<B>(offset, &[batch * moved, kernel, 2, points]);
    let coordinates: Vec<T<B>> = straight
        .into_iter()
        .enumerate()
        .map(|(d, straight)| {
            let own = narrow::<B>(offsets.clone(), 2, d, 1);
            add::<B>(reshape::<B>(own, &[batch * moved, kernel * points]), straight)
        })
        .collect();
    let images = reshape::<B>(x.into_primitive(), &[batch * moved, channels / moved, height, width]);
    let mut read = sampling::sample::<B>(images, coordinates, &GridSampleOptions::default());
    if let Some(mask) = mask {
        let mask = reshape::<B>(mask.into_primitive(), &[batch * moved, 1, kernel * points]);
        read = mul::<B>(read, mask);
    }
    let read = reshape::<B>(read, &[batch, groups, group_channels * kernel, points]);
    let weight =
        reshape::<B>(weight.into_primitive(), &[1, groups, outputs / groups, group_channels * kernel]);
    let mut result = reshape::<B>(B::matmul(weight, read), &[batch, outputs, rows, columns]);
    if let Some(bias) = bias {
        ensure!(bias.dims() == [outputs], "deform_conv2d", "a bias {} is not [{outputs}]", bias.shape());
        result = add::<B>(result, reshape::<B>(bias.into_primitive(), &[1, outputs, 1, 1]));
    }
    Tensor::wrap(result)
}
