//! Reading images at fractional positions.

use crate::backend::Backend;
use crate::check::{ensure, fail, ran};
use crate::compose::calc::{T, add, mul, narrow, reshape, weights};
use crate::compose::sampling::{self, GridSampleOptions, RegionTaps};
use crate::{Bool, DType, Int, ReduceOp, Shape, Tensor, TensorData, Transaction};
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

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
    Tensor::wrap(sampling::grid_sample::<B>(x.into_backend(), grid.into_backend(), &options))
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
    // A negative one is beyond all images, too.
    let indices: Vec<usize> =
        batch_indices.iter::<i64>().map(|index| usize::try_from(index).unwrap_or(usize::MAX)).collect();
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
    let reduced: Tensor<B, 2> = Tensor::wrap(sampling::reduce_taps::<B>(x.into_backend(), taps, op));
    let [rows, columns] = options.output_size;
    reduced.reshape([count, rows, columns, channels]).permute([0, 3, 1, 2])
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
    let points: [f64; 2] = core::array::from_fn(|d| match options.sampling_ratio {
        0 => num_traits::Float::ceil(bin[d]).max(0.0),
        ratio => ratio as f64,
    });
    let share = 1.0 / (points[0] * points[1]).max(1.0);
    let line = |d: usize, of_bin: usize| {
        Line::new(image[d], points[d], bin[d] / points[d], |point| {
            start[d] + bin[d] * (of_bin as f64 + (point + 0.5) / points[d])
        })
    };
    let columns: Vec<Line> = (0..options.output_size[1]).map(|column| line(1, column)).collect();
    let mut bins = Vec::new();
    for row in 0..options.output_size[0] {
        let row = line(0, row);
        bins.extend(columns.iter().map(|column| match options.pool {
            RoiPool::Average => row.sum(column, image[1], share),
            RoiPool::Max => row.points(column, image[1]),
        }));
    }
    bins
}

/// The points of a bin along one axis: for each that lies in the image, the two samples around it and their weights.
struct Line {
    points: Vec<[(usize, f64); 2]>,
    /// Whether there are others, more than one sample outside, which weigh nothing.
    outside: bool,
}

impl Line {
    /// Points `step` apart at `at(0)`, `at(1)`, … on an axis of `size` samples. However large the region is, only those in the
    /// image are visited.
    fn new(size: usize, count: f64, step: f64, at: impl Fn(f64) -> f64) -> Self {
        let first = at(0.0);
        let (low, high) = match step <= 0.0 {
            true => (0.0, count),
            // One more on either side, for the rounding. Of a region that is no region, none is left.
            false => ((-1.0 - first) / step - 1.0, (size as f64 - first) / step + 2.0),
        };
        let (low, high) = (low.clamp(0.0, count) as u64, high.clamp(0.0, count) as u64);
        let inside = (low..high).map(|point| at(point as f64)).filter(|at| (-1.0..=size as f64).contains(at));
        let last = size.saturating_sub(1);
        let points: Vec<[(usize, f64); 2]> = inside
            .map(|at| {
                let at = at.clamp(0.0, last as f64);
                let low = (at as usize).min(last);
                [(low, 1.0 - (at - low as f64)), ((low + 1).min(last), at - low as f64)]
            })
            .collect();
        let outside = (points.len() as f64) < count;
        Self { points, outside }
    }

    /// The weight of each sample in the sum of all points.
    fn weights(&self) -> Vec<(usize, f64)> {
        let mut weights: Vec<(usize, f64)> = Vec::new();
        for &(sample, weight) in self.points.iter().flatten() {
            match weights.iter_mut().rev().take(2).find(|(other, _)| *other == sample) {
                Some((_, sum)) => *sum += weight,
                None => weights.push((sample, weight)),
            }
        }
        weights
    }

    /// The samples of the sum over all points of a bin, `self` along the rows; each weighs its share.
    fn sum(&self, columns: &Self, width: usize, share: f64) -> Vec<(i64, f64)> {
        let columns = columns.weights();
        let rows = self.weights().into_iter();
        rows.flat_map(|(row, row_weight)| {
            columns
                .iter()
                .map(move |&(column, weight)| ((row * width + column) as i64, row_weight * weight * share))
        })
        .collect()
    }

    /// The four samples around each point of a bin, `self` along the rows.
    fn points(&self, columns: &Self, width: usize) -> Vec<(i64, f64)> {
        let mut taps = Vec::with_capacity(4 * self.points.len() * columns.points.len() + 1);
        for rows in &self.points {
            for around in &columns.points {
                for &(row, row_weight) in rows {
                    let tap = |&(column, weight): &(usize, f64)| {
                        ((row * width + column) as i64, row_weight * weight)
                    };
                    taps.extend(around.iter().map(tap));
                }
            }
        }
        if self.outside || columns.outside {
            taps.push((0, 0.0));
        }
        taps
    }
}

/// ONNX `MaxRoiPool`: the largest elements of regions `[regions, 5]` (image, `x1, y1, x2, y2`) of `[batch, channels, height, width]` in
/// bins of whole samples (Girshick 2015, "Fast R-CNN"): `[regions, channels, rows, columns]`. Both corners times `spatial_scale`, rounded,
/// are samples of the region; a bin outside the image yields 0. Reads the regions back: which samples are read depends on them.
///
/// # Panics
/// When shapes do not fit, there is no such image, or the device failed.
pub fn max_roi_pool<B: Backend>(
    x: Tensor<B, 4>,
    regions: Tensor<B, 2>,
    output_size: [usize; 2],
    spatial_scale: f64,
) -> Tensor<B, 4> {
    let regions = regions.into_data();
    max_of_regions(x, &regions, output_size, spatial_scale)
}

/// [`max_roi_pool`] without blocking the thread.
///
/// # Panics
/// When shapes do not fit, there is no such image, or the device failed.
pub async fn max_roi_pool_async<B: Backend>(
    x: Tensor<B, 4>,
    regions: Tensor<B, 2>,
    output_size: [usize; 2],
    spatial_scale: f64,
) -> Tensor<B, 4> {
    let regions = ran("max_roi_pool", regions.into_data_async().await);
    max_of_regions(x, &regions, output_size, spatial_scale)
}

/// Pools the regions that were read.
fn max_of_regions<B: Backend>(
    x: Tensor<B, 4>,
    regions: &TensorData,
    output_size: [usize; 2],
    spatial_scale: f64,
) -> Tensor<B, 4> {
    let [batch, channels, height, width] = x.dims();
    let (count, five) = (regions.shape[0], regions.shape[1]);
    ensure!(five == 5, "max_roi_pool", "regions of {five} numbers, not of 5");
    let numbers: Vec<f64> = regions.iter().collect();
    let mut bins = Vec::with_capacity(count * output_size[0] * output_size[1]);
    for region in numbers.chunks_exact(5) {
        let image = region[0];
        let exists = image >= 0.0 && image < batch as f64;
        ensure!(exists, "max_roi_pool", "a region of image {image} of {batch}");
        let start = image as usize * height * width;
        let [rows, columns] =
            [(2, height, output_size[0]), (1, width, output_size[1])].map(|(at, size, bins)| {
                whole_bins([region[at], region[at + 2]].map(|corner| corner * spatial_scale), size, bins)
            });
        for row in &rows {
            bins.extend(columns.iter().map(|columns| {
                let line = |row: usize| {
                    columns.clone().map(move |column| ((start + row * width + column) as i64, 1.0))
                };
                row.clone().flat_map(line).collect::<Vec<_>>()
            }));
        }
    }
    let empty: Vec<bool> = bins.iter().map(Vec::is_empty).collect();
    let [rows, columns] = output_size;
    if count * rows * columns == 0 || batch * height * width == 0 {
        return Tensor::zeros([count, channels, rows, columns], (&x.device(), x.dtype()));
    }
    let any_empty = empty.contains(&true);
    let empty = any_empty
        .then(|| Tensor::<B, 2, Bool>::from_data(TensorData::new(empty, [bins.len(), 1]), &x.device()));
    let taps = region_taps(&bins, RoiPool::Max);
    let mut reduced: Tensor<B, 2> =
        Tensor::wrap(sampling::reduce_taps::<B>(x.into_backend(), taps, ReduceOp::Max));
    if let Some(empty) = empty {
        reduced = reduced.mask_fill(empty, 0);
    }
    reduced.reshape([count, rows, columns, channels]).permute([0, 3, 1, 2])
}

/// The samples of each bin along an axis of an image. In f32, as where this pooling comes from: a bin's end may be rounded up to a
/// sample more.
fn whole_bins(corners: [f64; 2], size: usize, bins: usize) -> Vec<Range<usize>> {
    use num_traits::Float;
    let [start, end] = corners.map(|corner| Float::round(corner as f32));
    let bin = (end - start + 1.0).max(1.0) / bins as f32;
    let inside = |at: f32| (at + start).clamp(0.0, size as f32) as usize;
    (0..bins)
        .map(|n| inside(Float::floor(n as f32 * bin))..inside(Float::ceil((n + 1) as f32 * bin)))
        .collect()
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

impl DeformConvOptions {
    /// Options from each of them.
    pub fn new(
        stride: [usize; 2],
        padding: [usize; 2],
        dilation: [usize; 2],
        weight_groups: usize,
        offset_groups: usize,
    ) -> Self {
        Self { stride, padding, dilation, weight_groups, offset_groups }
    }
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
        DType::F16 | DType::BF16 => B::cast(offset.into_backend(), DType::F32),
        _ => offset.into_backend(),
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
    let images = reshape::<B>(x.into_backend(), &[batch * moved, channels / moved, height, width]);
    let mut read = sampling::sample::<B>(images, coordinates, &GridSampleOptions::default());
    if let Some(mask) = mask {
        let mask = reshape::<B>(mask.into_backend(), &[batch * moved, 1, kernel * points]);
        read = mul::<B>(read, mask);
    }
    let read = reshape::<B>(read, &[batch, groups, group_channels * kernel, points]);
    let weight = reshape::<B>(weight.into_backend(), &[1, groups, outputs / groups, group_channels * kernel]);
    let mut result = reshape::<B>(B::matmul(weight, read), &[batch, outputs, rows, columns]);
    if let Some(bias) = bias {
        ensure!(bias.dims() == [outputs], "deform_conv2d", "a bias {} is not [{outputs}]", bias.shape());
        result = add::<B>(result, reshape::<B>(bias.into_backend(), &[1, outputs, 1, 1]));
    }
    Tensor::wrap(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_regions_cost_what_the_image_does() {
        for pool in [RoiPool::Average, RoiPool::Max] {
            for far in [1e9, 1e300, f64::INFINITY, f64::NAN] {
                let options = RoiAlignOptions {
                    output_size: [1, 1],
                    sampling_ratio: 0,
                    spatial_scale: 1.0,
                    half_pixel: true,
                    pool,
                };
                let bins = region_bins(&[-far, -far, far, far], [4, 4], &options);
                assert_eq!(bins.len(), 1);
                assert!(bins[0].len() <= 4 * 16 * 16, "{far}: {} samples", bins[0].len());
                assert!(bins[0].iter().all(|&(at, weight)| (0..16).contains(&at) && weight >= 0.0));
            }
        }
    }

    #[test]
    fn a_bin_is_the_mean_of_its_points() {
        let options = RoiAlignOptions {
            output_size: [1, 1],
            sampling_ratio: 2,
            spatial_scale: 1.0,
            half_pixel: false,
            pool: RoiPool::Average,
        };
        // Points at 0.5 and 1.5 along each axis.
        let bins = region_bins(&[0.0, 0.0, 2.0, 2.0], [4, 4], &options);
        let weight = |at: i64| bins[0].iter().filter(|tap| tap.0 == at).map(|tap| tap.1).sum::<f64>();
        let axis = [0.25, 0.5, 0.25, 0.0];
        for (row, by_row) in axis.iter().enumerate() {
            for (column, by_column) in axis.iter().enumerate() {
                assert!((weight((row * 4 + column) as i64) - by_row * by_column).abs() < 1e-12);
            }
        }
    }
}
