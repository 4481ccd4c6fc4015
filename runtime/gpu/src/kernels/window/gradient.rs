//! The gradient of a convolution's weight: products of the result's gradient with the windows, summed over all windows of all images.
//!
//! That sum is long where the weights are few. It is done in parts then, which a reduction adds up.

mod rows;

pub use rows::RowWeightGradient;

use super::super::elementwise;
use super::super::matmul::matmul;
use super::super::reduce::{Group, Reducer, reduce_leading, subgroups_of};
use super::super::right::Columns;
use super::super::tiling::{Tile, Tiling};
use super::super::tune::{self, Name, Variant};
use super::super::{block, launch_blocks};
use super::conv::{transposed_windows, windows_over};
use super::library::{self, Asked};
use super::patches::{self, TurnedPatches};
use super::{Geometry, LINE, Sizes, channels, from_start, volume, within_image, zero};
use crate::language::{Builder, Builtin, Kernel};
use crate::runtime::{ConvolutionDirection, ConvolutionShape, Runtime, Subgroups};
use crate::tensor::{GpuTensor, computed_in, held_as};
use kiln_tensor::backend::{Layout, SliceRange};
use kiln_tensor::{ConvOptions, ConvTransposeOptions, DType, Scalar, Shape, Windows};

/// The longest sum that an invocation does: the error of a sum grows with it.
const LONGEST: usize = 8192;
/// Workgroups that a device shall have to do, if there is enough of it.
const WORKGROUPS: usize = 256;

/// The gradient of a convolution's weight, where workgroups share memory: tiles of the product, or, where a group has few channels, one
/// weight a workgroup.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WeightGradient {
    /// The dtype of input and gradient.
    pub dtype: DType,
    /// The results' dtype, which is computed as the other's elements are.
    pub result: DType,
    /// The windows.
    pub geometry: Geometry,
    /// Who computes what of a tile, if it is a tiled product.
    pub tiling: Option<Tiling>,
    /// What joins the numbers of the workgroup of a single weight.
    pub subgroups: Subgroups,
}

impl WeightGradient {
    /// The kernel. Parameters: its `block`; groups, channels a group of input and output; images; the windows of a part; the sizes. Parts
    /// are along z, groups inside them; weights of a group without tiles along x, its output channels along y.
    pub fn kernel(&self) -> Kernel {
        let (storage, result) = (held_as(self.dtype), held_as(self.result));
        let ty = storage.value();
        let family = "conv_weight_gradient";
        let (name, workgroup) = match self.tiling {
            Some(tiling) => (tiling.kernel(family), tiling.workgroup()),
            None => (family.to_owned(), [LINE, 1]),
        };
        Builder::kernel(name, workgroup, |k| {
            let (x, gradient) = (k.input(storage), k.input(storage));
            let output = k.output(result);
            let [block_column, block_row, place] = block(k);
            let [groups, in_channels, out_channels] = [k.parameter(), k.parameter(), k.parameter()];
            let (images, run) = (k.parameter(), k.parameter());
            let sizes = Sizes::declare(k);
            let (windows, image) = (volume(&sizes.output), volume(&sizes.input));
            let length = self.geometry.kernel_length();
            let columns = in_channels * length;
            let group = place % groups;
            let first = place / groups * run;
            let end = (first + run).min(images * windows);

            let of_gradient = |row, at| {
                let (place, window) = (at / windows, at % windows);
                gradient.at(((place * groups + group) * out_channels + row) * windows + window)
            };
            let of_input = |channel, within, at| {
                let (place, window) = (at / windows, within_image(at % windows, &sizes.output));
                let (element, inside) = sizes.element(&self.geometry, window, within);
                let value = k.variable(zero(k, ty));
                k.when(inside, || {
                    value.set(x.at(((place * groups + group) * in_channels + channel) * image + element));
                });
                value.get()
            };
            let prepared = |column| (column / length, self.geometry.within(column % length));
            let write = |row, column, sum| {
                output.set((place * out_channels + row) * columns + column, sum);
            };
            if let Some(tiling) = self.tiling {
                let [high, wide] = tiling.tile();
                let start = [block_row * high, block_column * wide];
                let size = [out_channels, columns, end - first];
                let tile = Tile { tiling, start, size, storage, anew: None };
                let gradient = |row, at| of_gradient(row, first + at);
                match patches::PatchIndices::of(k, self.geometry, &sizes) {
                    Some(over_images) => {
                        let start = |place| (place * groups + group) * in_channels * image;
                        let (depths, at, zero) = ([first, end - first], |at| x.at(at), zero(k, ty));
                        let patches = TurnedPatches { windows: over_images, depths, start, at, zero };
                        tile.product(k, gradient, patches, write);
                    }
                    None => {
                        let input = |at, (channel, within)| of_input(channel, within, first + at);
                        tile.product(k, gradient, Columns(prepared, input), write);
                    }
                }
            } else {
                let (row, column) = (block_row, block_column);
                let (channel, within) = prepared(column);
                let local = k.builtin(Builtin::LocalIndex);
                let sum = k.variable(zero(k, ty));
                k.range(first + local, end, LINE, |at| {
                    sum.set(of_gradient(row, at).fma(of_input(channel, within, at), sum.get()));
                });
                let group = Group::new(k, ty, local, LINE, self.subgroups);
                let sum = group.join(Reducer::Sum, sum.get());
                k.when(local.equals(0_u32), || write(row, column, sum));
            }
        })
    }
}

/// The gradient of a weight that is to be done.
struct Gradient {
    windows: Windows,
    batch: usize,
    groups: usize,
    /// Channels of a group.
    in_channels: usize,
    out_channels: usize,
}

impl Gradient {
    fn geometry(&self) -> Geometry {
        Geometry::of(&self.windows)
    }

    /// Weights of an output channel.
    fn columns(&self) -> usize {
        self.in_channels * self.geometry().kernel_length() as usize
    }

    fn weights(&self) -> usize {
        self.groups * self.out_channels * self.columns()
    }

    /// The parameters, but for the `block`, where a part has so many windows, or rows of them.
    fn words(&self, run: usize) -> Vec<u32> {
        let sizes = [self.groups, self.in_channels, self.out_channels, self.batch, run];
        sizes.into_iter().map(|n| n as u32).chain(Sizes::words(&self.windows)).collect()
    }

    /// The class of work among those that are timed.
    fn class(&self, dtype: DType) -> String {
        let sizes = [self.batch, self.groups, self.in_channels, self.out_channels, self.windows.output_len()];
        format!("weight gradient {dtype} {:?} {:?}", sizes.map(tune::rounded), self.geometry())
    }

    /// In how many parts a sum is done of which each weight has so many `terms`, where parts of at least `least` can be done side by side
    /// with `workgroups` others; and the terms of a part.
    fn parts(&self, terms: usize, longest: usize, least: usize, workgroups: usize) -> (usize, usize) {
        let beside = (WORKGROUPS / workgroups.max(1)).min(terms / least).max(1);
        let run = terms.div_ceil(terms.div_ceil(longest).max(beside));
        (terms.div_ceil(run), run)
    }

    fn run<R: Runtime>(&self, x: GpuTensor<R>, gradient: GpuTensor<R>, weight: &Shape) -> GpuTensor<R> {
        let (dtype, device) = (gradient.dtype, gradient.device.clone());
        if x.is_empty() || gradient.is_empty() {
            return elementwise::full(weight.clone(), Scalar::Int(0), dtype, &device);
        }
        if self.weights() == 0 {
            return GpuTensor::empty(weight.clone(), dtype, &device);
        }
        if let Some(found) = self.pointwise(&x, &gradient, weight) {
            return found;
        }
        if !R::limits(&device).shared_memory {
            return rows::weight_gradient(self, &from_start(x), &from_start(gradient), weight);
        }
        let of_all = [self.in_channels, self.out_channels].map(|of_group| of_group * self.groups);
        let Self { windows, batch, groups, .. } = self;
        let direction = ConvolutionDirection::Weight;
        let shape =
            ConvolutionShape { dtype, direction, windows, batch: *batch, groups: *groups, channels: of_all };
        if let Some(filled) = R::channels_if_last(&device, &shape).filter(|_| windows.rank > 1) {
            let shape = ConvolutionShape { channels: [filled, of_all[1]], ..shape };
            let images = channels::with_channels_last(x.clone(), filled - of_all[0]);
            let gradient = gradient.clone().with_channels_last();
            let mut of_filled = weight.clone();
            of_filled.dims[1] = filled / self.groups;
            let out = GpuTensor::empty_channels_last(of_filled, dtype, &device);
            if (Asked { shape, channels_last: true }).by_library([&images, &out, &gradient], None) {
                // As the weights lie.
                let own: Vec<SliceRange> = weight.dims.iter().map(|&size| SliceRange::full(size)).collect();
                let layout = out.layout.slice(&own);
                return elementwise::contiguous(out.with_layout(layout));
            }
        }
        let (x, gradient) = (from_start(x), from_start(gradient));
        let by_library = || {
            let out = GpuTensor::empty(weight.clone(), dtype, &device);
            let asked = Asked { shape, channels_last: false };
            asked.by_library([&x, &out, &gradient], None).then_some(out)
        };
        let by_kernels = || self.by_kernels(&x, &gradient, weight);
        tune::by_fastest::<R, _>(&device, || library::class(&shape, false, None), by_library, by_kernels)
    }

    /// [`run`](Self::run) by kernels, of what lies from the starts of its memory.
    fn by_kernels<R: Runtime>(
        &self,
        x: &GpuTensor<R>,
        gradient: &GpuTensor<R>,
        weight: &Shape,
    ) -> GpuTensor<R> {
        let (dtype, device) = (gradient.dtype, &gradient.device);
        let (terms, columns) = (self.batch * self.windows.output_len(), self.columns());
        let size = [self.out_channels, columns, terms];
        let (usual, others) = Tiling::of::<R>(device, dtype, size);
        // A tile of few rows computes mostly what nobody asked for.
        let tiled = self.out_channels >= 8;
        let across = |tiling: Tiling| {
            let [high, wide] = tiling.tile().map(|size| size as usize);
            [columns.div_ceil(wide), self.out_channels.div_ceil(high)]
        };
        let (parts, run) = if tiled {
            let [wide, high] = across(usual);
            self.parts(terms, LONGEST, 512, wide * high * self.groups)
        } else {
            self.parts(terms, LONGEST * LINE as usize, 4 * LINE as usize, self.weights())
        };
        let result = if parts == 1 { dtype } else { computed_in(dtype) };
        let out = GpuTensor::empty(Shape::from([parts, self.weights()]), result, device);
        let subgroups = if tiled { Subgroups::None } else { subgroups_of::<R>(device, dtype) };
        let geometry = self.geometry();
        let template = |tiling| WeightGradient { dtype, result, geometry, tiling, subgroups };
        let (tensors, words) = ([x, gradient, &out], self.words(run));
        let deep = parts * self.groups;
        if tiled {
            let variant = |tiling: Tiling| {
                let [wide, high] = across(tiling);
                let template = template(Some(tiling)).into();
                Variant { name: Name::Tiles(tiling), template, blocks: [wide, high, deep] }
            };
            let others = || others.map(variant).collect();
            tune::launch_fastest::<R>(device, || self.class(dtype), variant(usual), others, &tensors, &words);
        } else {
            let blocks = [columns, self.out_channels, deep];
            launch_blocks::<R>(device, template(None), &tensors, &words, blocks, false);
        }
        reduce_leading(out, dtype, weight)
    }

    /// Where windows are single elements, each at its own position: products of matrices, one an image, and their sum. Nothing where those
    /// would be larger than what they are made of, or rounded before they are added.
    fn pointwise<R: Runtime>(
        &self,
        x: &GpuTensor<R>,
        gradient: &GpuTensor<R>,
        weight: &Shape,
    ) -> Option<GpuTensor<R>> {
        let (geometry, windows) = (self.geometry(), &self.windows);
        let unpadded = windows.padding.iter().all(|&(before, after)| before + after == 0);
        let alike = windows.input == windows.output && geometry.stride == [1; 3] && unpadded;
        let pixels = windows.output_len();
        let [rows, columns] = [self.out_channels, self.in_channels];
        let (single, exact) = (self.batch == 1 || pixels == 1, computed_in(x.dtype) == x.dtype);
        let small = exact && rows * columns <= pixels * (rows + columns);
        if self.groups != 1 || geometry.kernel_length() != 1 || !alike || !(single || small) {
            return None;
        }
        let view = |tensor: &GpuTensor<R>, channels: usize, axes: [usize; 3]| {
            let tensor = elementwise::contiguous(tensor.clone());
            let offset = tensor.layout.offset;
            let dims = if pixels == 1 { [1, self.batch, channels] } else { [self.batch, channels, pixels] };
            let layout = Layout { offset, ..Layout::contiguous(Shape::from(dims)) };
            tensor.with_layout(layout.permute(&axes))
        };
        let (kept, turned) = ([0, 1, 2], [0, 2, 1]);
        let (left, right) = if pixels == 1 { (turned, kept) } else { (kept, turned) };
        let products = matmul(&view(gradient, rows, left), &view(x, columns, right), None, None);
        let products = elementwise::contiguous(products);
        let images = products.len() / self.weights();
        let layout = Layout {
            offset: products.layout.offset,
            ..Layout::contiguous(Shape::from([images, self.weights()]))
        };
        let dtype = x.dtype;
        Some(reduce_leading(products.with_layout(layout), dtype, weight))
    }
}

/// The gradient of the weight of a convolution, which has the shape `weight`.
pub(crate) fn conv_weight_gradient<R: Runtime>(
    x: GpuTensor<R>,
    gradient: GpuTensor<R>,
    weight: &Shape,
    options: &ConvOptions,
) -> GpuTensor<R> {
    let ConvOptions { stride, padding, dilation, groups } = options;
    let (image, kernel, count) = (&x.dims()[2..], &weight.dims[2..], &gradient.dims()[2..]);
    let windows = windows_over(image, kernel, count, stride, padding, dilation);
    let (batch, in_channels, out_channels) = (x.dims()[0], weight[1], weight[0] / groups);
    Gradient { windows, batch, groups: *groups, in_channels, out_channels }.run(x, gradient, weight)
}

/// The gradient of the weight of a transposed convolution, which has the shape `weight`: that of the convolution it is the adjoint of.
pub(crate) fn conv_transpose_weight_gradient<R: Runtime>(
    x: GpuTensor<R>,
    gradient: GpuTensor<R>,
    weight: &Shape,
    options: &ConvTransposeOptions,
) -> GpuTensor<R> {
    let (image, kernel, count) = (&gradient.dims()[2..], &weight.dims[2..], &x.dims()[2..]);
    let windows = transposed_windows(image, kernel, count, options);
    let (batch, in_channels, out_channels) = (x.dims()[0], weight[1], weight[0] / options.groups);
    Gradient { windows, batch, groups: options.groups, in_channels, out_channels }.run(gradient, x, weight)
}
