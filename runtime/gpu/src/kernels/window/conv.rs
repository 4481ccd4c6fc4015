//! Convolutions and transposed convolutions, each of which is the gradient of the other's input.

use super::super::elementwise::{self, lies_from_start};
use super::super::epilogue::{self, EpilogueProgram};
use super::super::matmul::matmul;
use super::super::order;
use super::super::parts;
use super::super::right::Columns;
use super::super::tiling::{Anew, Division, Epilogue, Tile, Tiling};
use super::super::tune::{self, Name, Variant};
use super::super::{block, launch_blocks, launch_open, line_of};
use super::patches::{self, Image, Patches};
use super::reach::{Phase, Reach};
use super::{
    Geometry, LINE, Sizes, channels, from_start, im2col, library, rows, spatial_dims, volume, within_image,
    zero,
};
use crate::language::{Buffer, Builder, Kernel, Type, Value};
use crate::runtime::Runtime;
use crate::tensor::{GpuTensor, computed_in, held_as};
use kiln_tensor::backend::{Layout, Primitive};
use kiln_tensor::{Activation, ConvOptions, ConvTransposeOptions, DType, Scalar, Shape, Windows, spatial};
use smallvec::{SmallVec, smallvec};

/// A convolution: a tiled product of the weights with the windows (which are gathered on the way), or, where a group has few
/// channels, one result an invocation. A transposed one gathers what reaches each element of the result, phase by phase.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Conv {
    /// The elements' dtype.
    pub dtype: DType,
    /// The windows: over the input, or over the result if it is transposed.
    pub geometry: Geometry,
    /// Whether it is transposed.
    pub transposed: bool,
    /// Whether the channels of images stand last in memory; a tiled product's do not.
    pub channels_last: bool,
    /// Whether a bias is added to each channel.
    pub bias: bool,
    /// What is done to each element at last.
    pub activation: Option<Activation>,
    /// Who computes what of a tile, if it is a tiled product.
    pub tiling: Option<Tiling>,
    /// Whether workgroups compute parts of the depth of a tile, whose sums are still to be added up, in the dtype in which they are computed.
    /// Nothing is done to those; a transposed one is not computed so.
    pub in_parts: bool,
    /// What came after that.
    pub epilogues: Vec<EpilogueProgram>,
}

/// What a convolution reads.
struct Operands<'k> {
    k: &'k Builder,
    x: Buffer<'k>,
    weight: Buffer<'k>,
    ty: Type,
    geometry: Geometry,
    /// What is gathered for one result of one channel.
    taps: Geometry,
    sizes: Sizes<'k>,
    groups: Value<'k>,
    in_channels: Value<'k>,
    out_channels: Value<'k>,
    channels_last: bool,
}

impl<'k> Operands<'k> {
    /// The channel and the coordinates among the taps that a depth of the product names.
    fn tap(&self, depth: Value<'k>) -> (Value<'k>, [Value<'k>; 3]) {
        let length = self.taps.kernel_length();
        (depth / length, self.taps.within(depth % length))
    }

    /// The element of the input that a depth names, or 0 beyond the image, for the result `at`; of a transposed convolution so many strides
    /// behind what is reached so.
    fn gather(
        &self,
        place: Value<'k>,
        depth: Value<'k>,
        at: [Value<'k>; 3],
        reach: Option<&Reach<'k>>,
    ) -> Value<'k> {
        let (channel, tap) = self.tap(depth);
        let (element, inside) = match reach {
            None => self.sizes.element(&self.geometry, at, tap),
            Some(reach) => reach.place(tap, at, &self.sizes.input),
        };
        let value = self.k.variable(zero(self.k, self.ty));
        self.k.when(inside, || value.set(self.element(place, channel, element)));
        value.get()
    }

    /// An element of a channel of the input.
    fn element(&self, place: Value<'k>, channel: Value<'k>, element: Value<'k>) -> Value<'k> {
        let image = volume(&self.sizes.input);
        self.x.at(if self.channels_last {
            let (n, group) = (place / self.groups, place % self.groups);
            let channel = group * self.in_channels + channel;
            (n * image + element) * (self.groups * self.in_channels) + channel
        } else {
            (place * self.in_channels + channel) * image + element
        })
    }

    /// The sum of what reaches a result of a transposed convolution, each element by its weight: what no window reaches is no product, whatever the weight.
    fn reached(
        &self,
        [place, group, row]: [Value<'k>; 3],
        at: [Value<'k>; 3],
        reach: &Reach<'k>,
    ) -> Value<'k> {
        let sum = self.k.variable(zero(self.k, self.ty));
        self.k.range(0_u32, self.in_channels * self.taps.kernel_length(), 1_u32, |depth| {
            let (channel, tap) = self.tap(depth);
            let (element, inside) = reach.place(tap, at, &self.sizes.input);
            self.k.when(inside, || {
                let weight = self.weight(group, row, depth, Some(reach));
                sum.set(weight.fma(self.element(place, channel, element), sum.get()));
            });
        });
        sum.get()
    }

    /// The weight that a depth names; 0 where a transposed convolution gathers nothing for it.
    fn weight(
        &self,
        group: Value<'k>,
        row: Value<'k>,
        depth: Value<'k>,
        reach: Option<&Reach<'k>>,
    ) -> Value<'k> {
        let Some(reach) = reach else {
            let length = self.in_channels * self.taps.kernel_length();
            return self.weight.at((group * self.out_channels + row) * length + depth);
        };
        let (channel, tap) = self.tap(depth);
        let (element, exists) = reach.within(tap);
        let start =
            ((group * self.in_channels + channel) * self.out_channels + row) * self.geometry.kernel_length();
        let Some(exists) = exists else { return self.weight.at(start + element) };
        let value = self.k.variable(zero(self.k, self.ty));
        self.k.when(exists, || value.set(self.weight.at(start + element)));
        value.get()
    }
}

impl Conv {
    /// The kernel. Parameters: the `block` of a tiled product; the number of images, groups, channels a group of input and output;
    /// the sizes; of what is done in parts how many these are, and the depth of each. Images, groups and, innermost, phases or parts are along z.
    pub fn kernel(&self) -> Kernel {
        let storage = held_as(self.dtype);
        let family = if self.transposed { "conv_transpose" } else { "conv" };
        let (name, workgroup) = match self.tiling {
            Some(tiling) => (tiling.kernel(family), tiling.workgroup()),
            None => (family.to_owned(), [LINE, 1]),
        };
        Builder::kernel(name, workgroup, |k| {
            // So many sums are half of the registers that two workgroups of a multiprocessor have. A compiler that is free to takes a few more, and then a
            // single one runs.
            let has_many_sums = match self.tiling {
                Some(Tiling::Invocations([rows, columns])) => rows * columns >= 64,
                Some(Tiling::Quads(_) | Tiling::Warps(..)) | None => false,
            };
            if has_many_sums || self.transposed && storage.bytes() == 8 {
                k.resident(2);
            }
            let (x, weight) = (k.input(storage), k.input(storage));
            let epilogue =
                Epilogue { bias: self.bias.then(|| k.input(storage)), activation: self.activation };
            let output = k.output(if self.in_parts { held_as(computed_in(self.dtype)) } else { storage });
            let of_tile = self.tiling.map(|tiling| (tiling, block(k)));
            let (images, groups) = (k.parameter(), k.parameter());
            let (in_channels, out_channels) = (k.parameter(), k.parameter());
            let sizes = Sizes::declare(k);
            let parts = self.in_parts.then(|| [k.parameter(), k.parameter()]);
            let epilogues = epilogue::declare(k, &self.epilogues);
            let results = volume(&sizes.output);
            let taps = if self.transposed { self.geometry.reaching() } else { self.geometry };
            let (ty, geometry) = (storage.value(), self.geometry);
            let operands = Operands {
                k,
                x,
                weight,
                ty,
                geometry,
                taps,
                sizes,
                groups,
                in_channels,
                out_channels,
                channels_last: self.channels_last,
            };
            let sizes = &operands.sizes;
            let depth = in_channels * taps.kernel_length();
            // The channels of one group of one image follow one another.
            if let Some((tiling, [column, row, place])) = of_tile {
                let (phase, place) = match self.transposed {
                    true => {
                        let (phase, place) = Phase::declare(k, self.geometry, sizes, place);
                        (Some(phase), place)
                    }
                    false => (None, place),
                };
                // Where the depth of its part begins, how long that is, and where its results go.
                let (place, first, run, result) = match parts {
                    Some([parts, run]) => {
                        let (place, part) = (place / parts, place % parts);
                        let first = part * run;
                        (place, Some(first), run.min(depth - first), part * (images * groups) + place)
                    }
                    None => (place, None, depth, place),
                };
                let from_first = |at| first.map_or(at, |first| first + at);
                let size = phase.map_or(sizes.output, |phase| phase.size);
                let reach = phase.map(|phase| phase.reach);
                let group = place % groups;
                let [high, wide] = tiling.tile();
                let start = [row * high, column * wide];
                // In a tile what is not reached is a product of the weight and 0.
                let anew = |row, column| {
                    let at = within_image(column, &size);
                    reach.map_or_else(
                        || zero(k, ty),
                        |reach| operands.reached([place, group, row], at, &reach),
                    )
                };
                let anew: Option<Anew<'_, '_>> = match reach {
                    Some(_) if self.dtype.is_float() => Some(&anew),
                    Some(_) | None => None,
                };
                let size_of_product = [out_channels, volume(&size), run];
                let tile = Tile { tiling, start, size: size_of_product, storage, anew };
                let weight = |row, at| operands.weight(group, row, from_first(at), reach.as_ref());
                let write = |row, column, sum| {
                    let sum = epilogue.apply(sum, |bias| bias.at(group * out_channels + row));
                    let column = phase.map_or(column, |phase| {
                        let at = within_image(column, &size);
                        let [z, y, x] = [0, 1, 2].map(|axis| phase.position(axis, at[axis]));
                        (z * sizes.output[1] + y) * sizes.output[2] + x
                    });
                    let position = (result * out_channels + row) * results + column;
                    output.set(position, epilogue::apply(&epilogues, position, sum));
                };
                match patches::PatchIndices::of(k, geometry, sizes).filter(|_| phase.is_none()) {
                    Some(windows) => {
                        let elements = [first.unwrap_or_else(|| k.value(0_u32)), run];
                        let start = place * in_channels * volume(&sizes.input);
                        let image = Image { start, at: |at| x.at(at), zero: zero(k, ty), border: None };
                        tile.product(k, weight, Patches { windows, elements, image }, write);
                    }
                    None => {
                        let window = |column| within_image(column, &size);
                        let gather =
                            |at, window| operands.gather(place, from_first(at), window, reach.as_ref());
                        tile.product(k, weight, Columns(window, gather), write);
                    }
                }
            } else {
                let position = k.position(LINE);
                k.when(position.below(images * groups * out_channels * results), || {
                    let (at, place, row) = if self.channels_last {
                        let (channel, of) =
                            (position % (groups * out_channels), position / (groups * out_channels));
                        let (n, group) = (of / results, channel / out_channels);
                        (of % results, n * groups + group, channel % out_channels)
                    } else {
                        let (at, of) = (position % results, position / results);
                        (at, of / out_channels, of % out_channels)
                    };
                    let group = place % groups;
                    let at = within_image(at, &sizes.output);
                    let sum = if self.transposed {
                        let reach = Reach::of(k, self.geometry, at, sizes.before);
                        operands.reached([place, group, row], [k.value(0_u32); 3], &reach)
                    } else {
                        let sum = k.variable(zero(k, ty));
                        k.range(0_u32, depth, 1_u32, |depth| {
                            let weight = operands.weight(group, row, depth, None);
                            sum.set(weight.fma(operands.gather(place, depth, at, None), sum.get()));
                        });
                        sum.get()
                    };
                    let sum = epilogue.apply(sum, |bias| bias.at(group * out_channels + row));
                    output.set(position, epilogue::apply(&epilogues, position, sum));
                });
            }
        })
    }
}

/// A convolution that is to be done.
#[derive(Clone)]
pub(super) struct Convolution {
    /// The windows: over the input, or over the result if it is transposed.
    pub windows: Windows,
    pub transposed: bool,
    pub batch: usize,
    pub groups: usize,
    /// Channels of a group.
    pub in_channels: usize,
    pub out_channels: usize,
}

impl Convolution {
    pub fn geometry(&self) -> Geometry {
        Geometry::of(&self.windows)
    }

    /// What is gathered for one result of one channel.
    pub fn taps(&self) -> Geometry {
        if self.transposed { self.geometry().reaching() } else { self.geometry() }
    }

    /// The size of an image of the result, or of the largest of its phases.
    pub fn size(&self) -> [usize; 3] {
        if self.transposed { self.geometry().phase(self.windows.input) } else { self.windows.output }
    }

    /// Images, groups and phases.
    pub fn places(&self) -> usize {
        let phases = if self.transposed { self.geometry().phases(self.windows.input) } else { 1 };
        self.batch * self.groups * phases
    }

    /// The sizes of the input and the result, and the padding.
    pub fn size_words(&self) -> impl Iterator<Item = u32> + use<> {
        let Windows { input, output, padding, .. } = self.windows;
        let (from, to) = if self.transposed { (output, input) } else { (input, output) };
        let sizes = [from, to, padding.map(|(before, _)| before)];
        sizes.into_iter().flatten().map(|size| size as u32)
    }

    /// Its class among those that are timed, but for what `rows` says of the result.
    pub fn class(&self, dtype: DType, rows: &str) -> String {
        let sizes = [self.batch, self.groups, self.in_channels, self.out_channels].map(tune::rounded);
        let kind = if self.transposed { "transposed convolution" } else { "convolution" };
        format!("{kind} {dtype} {sizes:?} {:?} of {rows}", self.geometry())
    }

    /// Whether its windows are single elements, each at its own position.
    fn is_pointwise(&self) -> bool {
        let geometry = self.geometry();
        let padded = self.windows.padding.iter().any(|&(before, after)| before + after > 0);
        let alike = self.windows.input == self.windows.output;
        self.groups == 1 && geometry.kernel_length() == 1 && geometry.stride == [1; 3] && !padded && alike
    }

    /// `activation(conv(x, weight) + bias)` into `out`.
    fn run<R: Runtime>(
        &self,
        x: GpuTensor<R>,
        weight: GpuTensor<R>,
        bias: Option<GpuTensor<R>>,
        activation: Option<Activation>,
        out: GpuTensor<R>,
    ) -> GpuTensor<R> {
        if out.is_empty() {
            return out;
        }
        let (pointwise, limits) = (self.is_pointwise(), R::limits(&x.device));
        if self.windows.rank == 1 && limits.shared_memory {
            let [x, weight, out] = [x, weight, out].map(of_one_row);
            return without_row(self.of_one_row().run(x, weight, bias, activation, out));
        }
        let as_rows = || {
            let are_rows = self.size() == [1; 3] || x.is_channels_last();
            let can_be = || !self.transposed && self.filling(&x) == Some(0);
            are_rows || can_be()
        };
        if pointwise && limits.shared_memory && as_rows() {
            return self.of_rows(x, weight, bias.as_ref(), activation, &out);
        }
        if self.transposed && pointwise && bias.is_none() && !x.is_empty() {
            return self.transposed_pointwise(x, weight, out);
        }
        // Of nothing there is no row to be read.
        if !limits.shared_memory && !x.is_empty() {
            if pointwise && !self.transposed {
                rows::pointwise(x, weight, bias.as_ref(), activation, &out);
            } else {
                rows::conv(x, weight, bias, activation, self, &out);
            }
            return out;
        }
        let bias = bias.map(from_start);
        if let Some(more) = self.filling(&x) {
            if more > 0 && self.is_of_patches(self.in_channels + more) {
                return self.of_patches(x, weight, bias.as_ref(), activation, &out);
            }
            let images = channels::with_channels_last(x.clone(), more);
            let turned = library::turned_weight(weight.clone(), more);
            let (filled, out) = (self.filled(more), out.clone().laid_channels_last());
            let tensors = [&images, &turned, &out];
            if let Some(found) = library::convolved(&filled, true, tensors, bias.as_ref(), activation) {
                return found;
            }
        }
        if self.is_gathered(&x) {
            let rows = im2col::im2col(x, &self.windows);
            let weight = im2col::weight_rows(weight, &self.windows);
            let weight = weight.clone().with_layout(weight.layout.permute(&[1, 0]));
            return self.product(rows, weight, bias.as_ref(), activation, &out);
        }
        let weight = from_start(weight);
        if x.is_channels_last() && self.is_narrow() {
            let out = out.laid_channels_last();
            let (x, bias) = (x.with_channels_last(), bias.as_ref());
            if self.is_depthwise_in_fours() {
                self.depthwise(&x, &weight, bias, activation, &out);
            } else {
                self.by_elements(&x, &weight, bias, activation, &out);
            }
            return out;
        }
        let x = from_start(x);
        let by_library = || library::convolved(self, false, [&x, &weight, &out], bias.as_ref(), activation);
        let by_kernels = || {
            if self.is_narrow() || x.is_empty() {
                self.by_elements(&x, &weight, bias.as_ref(), activation, &out);
                return out.clone();
            }
            self.by_tiles(&x, &weight, bias.as_ref(), activation, &out).unwrap_or_else(|| out.clone())
        };
        let class = || library::class(&self.shape(x.dtype), bias.is_some(), activation);
        tune::by_fastest::<R, _>(&x.device, class, by_library, by_kernels)
    }

    /// [`conv_added`] into `out`.
    fn run_added<R: Runtime>(
        &self,
        mut x: GpuTensor<R>,
        weight: GpuTensor<R>,
        bias: Option<GpuTensor<R>>,
        residual: &GpuTensor<R>,
        activation: Option<Activation>,
        out: GpuTensor<R>,
    ) -> Result<GpuTensor<R>, GpuTensor<R>> {
        if let Some(bias) = bias.as_ref().filter(|bias| lies_from_start(bias))
            && residual.dims() == out.dims()
        {
            match self.filling(&x) {
                Some(0) => {
                    x = x.with_channels_last();
                    let turned = library::turned_weight(weight.clone(), 0);
                    let out = out.clone().laid_channels_last();
                    // A residual that lies otherwise is added as it lies.
                    if lies_from_start(&residual.clone().channels_last())
                        && library::added(self, true, [&x, &turned, &out], bias, residual, activation)
                    {
                        return Ok(out);
                    }
                }
                None if [&x, &weight, residual].iter().all(|tensor| lies_from_start(tensor)) => {
                    if library::added(self, false, [&x, &weight, &out], bias, residual, activation) {
                        return Ok(out);
                    }
                }
                Some(_) | None => {}
            }
        }
        Err(self.run(x, weight, bias, None, out))
    }

    /// Whether a tile would have few rows or columns, and compute mostly what nobody asked for.
    fn is_narrow(&self) -> bool {
        self.out_channels < 8 || (self.transposed && self.size().iter().product::<usize>() < 8)
    }

    /// The parameters that all kernels have.
    fn words(&self) -> SmallVec<[u32; 16]> {
        let sizes = [self.batch, self.groups, self.in_channels, self.out_channels];
        sizes.into_iter().map(|n| n as u32).chain(self.size_words()).collect()
    }

    fn template(
        &self,
        dtype: DType,
        bias: bool,
        activation: Option<Activation>,
        tiling: Option<Tiling>,
    ) -> Conv {
        Conv {
            dtype,
            geometry: self.geometry(),
            transposed: self.transposed,
            channels_last: false,
            bias,
            activation,
            tiling,
            in_parts: false,
            epilogues: Vec::new(),
        }
    }

    /// [`Convolution::run`] by a kernel that computes one result an invocation, in the order of `out`, which is that of `x`.
    fn by_elements<R: Runtime>(
        &self,
        x: &GpuTensor<R>,
        weight: &GpuTensor<R>,
        bias: Option<&GpuTensor<R>>,
        activation: Option<Activation>,
        out: &GpuTensor<R>,
    ) {
        let channels_last = x.is_channels_last();
        let template = Conv { channels_last, ..self.template(x.dtype, bias.is_some(), activation, None) };
        let mut tensors: SmallVec<[_; 4]> = smallvec![x, weight];
        tensors.extend(bias);
        tensors.push(out);
        launch_open::<R>(&x.device, template, &tensors, &self.words(), line_of::<R>(&x.device, out.len()));
    }

    /// [`Convolution::run`] by a tiled product of the weights with the windows. It yields the result where that is not `out`.
    fn by_tiles<R: Runtime>(
        &self,
        x: &GpuTensor<R>,
        weight: &GpuTensor<R>,
        bias: Option<&GpuTensor<R>>,
        activation: Option<Activation>,
        out: &GpuTensor<R>,
    ) -> Option<GpuTensor<R>> {
        let device = &x.device;
        let template = |tiling| self.template(x.dtype, bias.is_some(), activation, Some(tiling));
        let mut tensors: SmallVec<[_; 4]> = smallvec![x, weight];
        tensors.extend(bias);
        tensors.push(out);
        let mut words = self.words();
        let columns = self.size().iter().product::<usize>();
        let depth = self.in_channels * self.taps().kernel_length() as usize;
        let size = [self.out_channels, columns, depth];
        let blocks = |tiling: Tiling, deep: usize| {
            let [high, wide] = tiling.tile();
            [columns.div_ceil(wide as usize), self.out_channels.div_ceil(high as usize), deep]
        };
        let division = Tiling::divide::<R>(device, x.dtype, size, self.places(), !self.transposed);
        if division.parts > 1 {
            let Division { tiling, parts: count, run } = division;
            let sums = GpuTensor::empty(Shape::from([count, out.len()]), computed_in(x.dtype), device);
            words.extend([count, run].map(|n| n as u32));
            let of_parts = Conv { bias: false, activation: None, in_parts: true, ..template(tiling) };
            let blocks = blocks(tiling, self.places() * count);
            launch_blocks::<R>(device, of_parts, &[x, weight, &sums], &words, blocks, false);
            let bias = bias.map(|bias| library::along_channels(bias, out.dims().len()));
            return Some(parts::joined(sums, x.dtype, &out.shape(), bias, activation));
        }
        let variant = |tiling: Tiling| {
            let blocks = blocks(tiling, self.places());
            Variant { name: Name::Tiles(tiling), template: template(tiling).into(), blocks }
        };
        let class = || self.class(x.dtype, &tune::rounded(columns).to_string());
        let (_, others) = Tiling::of::<R>(device, x.dtype, size);
        let others = || others.map(variant).collect();
        tune::launch_fastest::<R>(device, class, variant(division.tiling), others, &tensors, &words);
        None
    }

    /// A convolution with windows of single elements, of images whose channels are rows: a product with the weights, turned unless it is transposed.
    /// The results' channels are rows, too.
    fn of_rows<R: Runtime>(
        &self,
        x: GpuTensor<R>,
        weight: GpuTensor<R>,
        bias: Option<&GpuTensor<R>>,
        activation: Option<Activation>,
        out: &GpuTensor<R>,
    ) -> GpuTensor<R> {
        if self.is_narrow_of_rows(x.dtype, out.len() / self.out_channels) {
            let (x, weight, bias) =
                (x.with_channels_last(), from_start(weight), bias.cloned().map(from_start));
            let out = out.clone().laid_channels_last();
            self.narrow_of_rows(&x, &weight, bias.as_ref(), activation, &out);
            return out;
        }
        let weight = match self.transposed {
            false => matrix(weight, [self.out_channels, self.in_channels], [1, 0]),
            true => matrix(weight, [self.in_channels, self.out_channels], [0, 1]),
        };
        self.product(x.channels_last(), weight, bias, activation, out)
    }

    /// The product of what is gathered for each window, which one after another is a row, with weights `[depth, channels]`: the results' channels are rows.
    fn product<R: Runtime>(
        &self,
        gathered: GpuTensor<R>,
        weight: GpuTensor<R>,
        bias: Option<&GpuTensor<R>>,
        activation: Option<Activation>,
        out: &GpuTensor<R>,
    ) -> GpuTensor<R> {
        let rows = self.batch * self.windows.output.iter().product::<usize>();
        let x = matrix(gathered, [rows, weight.dims()[0]], [0, 1]);
        let y = elementwise::contiguous(matmul(&x, &weight, bias, activation));
        let layout = Layout { offset: y.layout.offset, ..order::channels_last(out.shape()) };
        y.with_layout(layout)
    }

    /// Whether its windows lie side by side, so that none of an image is in two of them, and what each holds is a multiple of so many elements.
    pub(super) fn is_of_patches(&self, multiple: usize) -> bool {
        let Windows { kernel, stride, dilation, padding, .. } = &self.windows;
        let unpadded = padding.iter().all(|&sides| sides == (0, 0));
        let depth = self.in_channels * kernel.iter().product::<usize>();
        let side_by_side = kernel == stride && *dilation == [1; 3] && unpadded;
        self.groups == 1 && !self.transposed && side_by_side && depth.is_multiple_of(multiple)
    }

    /// A convolution [of patches](Self::is_of_patches): these are copied to be rows, of which there is a product with the weights as they lie.
    fn of_patches<R: Runtime>(
        &self,
        x: GpuTensor<R>,
        weight: GpuTensor<R>,
        bias: Option<&GpuTensor<R>>,
        activation: Option<Activation>,
        out: &GpuTensor<R>,
    ) -> GpuTensor<R> {
        let (count, window) = (self.windows.output_dims().to_vec(), weight.dims()[2..].to_vec());
        let (strides, offset) = (x.layout.strides.as_slice(), x.layout.offset);
        let steps = strides[2..].iter().zip(&window).map(|(&stride, &size)| stride * size as isize);
        let steps: Vec<isize> = steps.collect();
        let shape = [&[self.batch], count.as_slice(), &[self.in_channels], &window].concat();
        let strides = [&strides[..1], &steps, &strides[1..]].concat();
        let layout = Layout { shape: Shape::from(shape), strides: strides.into(), offset };
        let depth = self.in_channels * window.iter().product::<usize>();
        let weight = matrix(weight, [self.out_channels, depth], [1, 0]);
        self.product(x.with_layout(layout), weight, bias, activation, out)
    }

    /// The same of images of two dims, of which the first is 1.
    fn of_one_row(&self) -> Self {
        Self { windows: Windows { rank: 2, ..self.windows.clone() }, ..self.clone() }
    }

    /// A transposed convolution with windows of single elements: a product of the turned weights with the channels.
    fn transposed_pointwise<R: Runtime>(
        &self,
        x: GpuTensor<R>,
        weight: GpuTensor<R>,
        out: GpuTensor<R>,
    ) -> GpuTensor<R> {
        let (x, weight) = (elementwise::contiguous(x), elementwise::contiguous(weight));
        let pixels = self.windows.output.iter().product::<usize>();
        let view = |tensor: GpuTensor<R>, dims: &[usize], axes: &[usize]| {
            let offset = tensor.layout.offset;
            let layout = Layout { offset, ..Layout::contiguous(Shape::from(dims.to_vec())) };
            tensor.with_layout(layout.permute(axes))
        };
        let y = if pixels == 1 {
            // Images of one element are rows.
            let x = view(x, &[self.batch, self.in_channels], &[0, 1]);
            matmul(&x, &view(weight, &[self.in_channels, self.out_channels], &[0, 1]), None, None)
        } else {
            let x = view(x, &[self.batch, self.in_channels, pixels], &[0, 1, 2]);
            let weight = view(weight, &[1, self.in_channels, self.out_channels], &[0, 2, 1]);
            matmul(&weight, &x, None, None)
        };
        // Where kernels do not see all of it, a product is joined of several.
        let y = elementwise::contiguous(y);
        let layout = Layout { offset: y.layout.offset, ..(*out.layout).clone() };
        y.with_layout(layout)
    }
}

/// What a tensor holds as a matrix, row-major and then with its dims in an order; copies where it is not row-major.
fn matrix<R: Runtime>(tensor: GpuTensor<R>, dims: [usize; 2], axes: [usize; 2]) -> GpuTensor<R> {
    let tensor = elementwise::contiguous(tensor);
    let layout = Layout { offset: tensor.layout.offset, ..Layout::contiguous(Shape::from(dims)) };
    tensor.with_layout(layout.permute(&axes))
}

/// Images or weights of one dim as such of two, of which the first is 1: as these, they can have their channels last, while a tensor of three dims may be
/// anything that was turned around.
fn of_one_row<R: Runtime>(tensor: GpuTensor<R>) -> GpuTensor<R> {
    let Layout { shape, strides, offset } = &*tensor.layout;
    let [n, channels, length] = [0, 1, 2].map(|axis| shape[axis]);
    let strides = [strides[0], strides[1], strides[2].saturating_mul(length as isize), strides[2]];
    let shape = Shape::from([n, channels, 1, length]);
    let layout = Layout { shape, strides: strides.to_vec().into(), offset: *offset };
    tensor.with_layout(layout)
}

/// Images of two dims, of which the first is 1, without it.
fn without_row<R: Runtime>(images: GpuTensor<R>) -> GpuTensor<R> {
    let Layout { shape, strides, offset } = &*images.layout;
    let [n, channels, length] = [0, 1, 3].map(|axis| shape[axis]);
    let strides = [strides[0], strides[1], strides[3]];
    let layout = Layout {
        shape: Shape::from([n, channels, length]),
        strides: strides.to_vec().into(),
        offset: *offset,
    };
    images.with_layout(layout)
}

fn shape<R: Runtime>(batch: usize, channels: usize, like: &GpuTensor<R>, spatial: &[usize]) -> GpuTensor<R> {
    GpuTensor::empty(Shape::from([&[batch, channels], spatial].concat()), like.dtype, &like.device)
}

/// The convolution of images with weights, and a tensor for its result.
fn forward<R: Runtime>(
    x: &GpuTensor<R>,
    weight: &GpuTensor<R>,
    options: &ConvOptions,
) -> (Convolution, GpuTensor<R>) {
    let ConvOptions { stride, padding, dilation, groups } = options;
    let images = spatial_dims("conv", x);
    let windows = Windows::new(images, &weight.dims()[2..], stride, padding, dilation, false);
    let (batch, all, in_channels) = (x.dims()[0], weight.dims()[0], weight.dims()[1]);
    let out = shape(batch, all, x, windows.output_dims());
    let (groups, out_channels) = (*groups, all / groups);
    (Convolution { windows, transposed: false, batch, groups, in_channels, out_channels }, out)
}

/// `activation(conv(x, weight) + bias)`.
pub(crate) fn conv<R: Runtime>(
    x: GpuTensor<R>,
    weight: GpuTensor<R>,
    bias: Option<GpuTensor<R>>,
    activation: Option<Activation>,
    options: &ConvOptions,
) -> GpuTensor<R> {
    let (convolution, out) = forward(&x, &weight, options);
    convolution.run(x, weight, bias, activation, out)
}

/// `activation(conv(x, weight) + bias + residual)` where a library of the device's vendor computes all of it; elsewhere `conv(x, weight) + bias`,
/// as the error.
pub(crate) fn conv_added<R: Runtime>(
    x: GpuTensor<R>,
    weight: GpuTensor<R>,
    bias: Option<GpuTensor<R>>,
    residual: &GpuTensor<R>,
    activation: Option<Activation>,
    options: &ConvOptions,
) -> Result<GpuTensor<R>, GpuTensor<R>> {
    let (convolution, out) = forward(&x, &weight, options);
    let is_flat = convolution.windows.rank == 1 && R::limits(&x.device).shared_memory;
    if !is_flat || residual.dims() != out.dims() {
        return convolution.run_added(x, weight, bias, residual, activation, out);
    }
    let [x, weight, residual, out] = [x, weight, residual.clone(), out].map(of_one_row);
    let run = convolution.of_one_row().run_added(x, weight, bias, &residual, activation, out);
    run.map(without_row).map_err(without_row)
}

/// The windows over images of the dims `image`, of which there are `count`.
pub(super) fn windows_over(
    image: &[usize],
    kernel: &[usize],
    count: &[usize],
    stride: &[usize],
    padding: &[(usize, usize)],
    dilation: &[usize],
) -> Windows {
    Windows {
        rank: image.len(),
        input: spatial(image, 1),
        kernel: spatial(kernel, 1),
        stride: spatial(stride, 1),
        dilation: spatial(dilation, 1),
        padding: spatial(padding, (0, 0)),
        output: spatial(count, 1),
    }
}

/// The windows of a transposed convolution, whose result has the dims `image`; there are as many as its input has elements.
pub(super) fn transposed_windows(
    image: &[usize],
    kernel: &[usize],
    count: &[usize],
    options: &ConvTransposeOptions,
) -> Windows {
    windows_over(image, kernel, count, &options.stride, &options.padding, &options.dilation)
}

/// Gathers what windows spread: a transposed convolution of `x` to images of the dims `image`.
fn gathered<R: Runtime>(
    x: GpuTensor<R>,
    weight: GpuTensor<R>,
    bias: Option<GpuTensor<R>>,
    windows: Windows,
    image: &[usize],
    groups: usize,
) -> GpuTensor<R> {
    let (batch, out_channels) = (x.dims()[0], weight.dims()[1]);
    let out = shape(batch, out_channels * groups, &x, image);
    let in_channels = x.dims()[1] / groups;
    let convolution = Convolution { windows, transposed: true, batch, groups, in_channels, out_channels };
    convolution.run(x, weight, bias, None, out)
}

/// A transposed convolution.
pub(crate) fn conv_transpose<R: Runtime>(
    x: GpuTensor<R>,
    weight: GpuTensor<R>,
    bias: Option<GpuTensor<R>>,
    options: &ConvTransposeOptions,
) -> GpuTensor<R> {
    let ConvTransposeOptions { stride, padding, output_padding, dilation, groups } = options;
    let images = spatial_dims("conv_transpose", &x);
    let kernel = &weight.dims()[2..];
    let output: Vec<usize> = (0..images.len())
        .map(|axis| {
            let full = images[axis].saturating_sub(1) * stride[axis]
                + (kernel[axis].max(1) - 1) * dilation[axis]
                + 1
                + output_padding[axis];
            full.saturating_sub(padding[axis].0 + padding[axis].1)
        })
        .collect();
    let windows = transposed_windows(&output, kernel, images, options);
    gathered(x, weight, bias, windows, &output, *groups)
}

/// The gradient of the input of [`conv`], which has the shape `input`.
pub(crate) fn conv_input_gradient<R: Runtime>(
    gradient: GpuTensor<R>,
    weight: GpuTensor<R>,
    input: &Shape,
    options: &ConvOptions,
) -> GpuTensor<R> {
    let ConvOptions { stride, padding, dilation, groups } = options;
    if gradient.is_empty() {
        return elementwise::full(input.clone(), Scalar::Int(0), gradient.dtype, &gradient.device);
    }
    let (image, count) = (&input.dims[2..], spatial_dims("conv_input_gradient", &gradient));
    let windows = windows_over(image, &weight.dims()[2..], count, stride, padding, dilation);
    gathered(gradient, weight, None, windows, image, *groups)
}

/// The gradient of the input of [`conv_transpose`], which has the shape `input`: a convolution of as many windows.
pub(crate) fn conv_transpose_input_gradient<R: Runtime>(
    gradient: GpuTensor<R>,
    weight: GpuTensor<R>,
    input: &Shape,
    options: &ConvTransposeOptions,
) -> GpuTensor<R> {
    if gradient.is_empty() {
        return elementwise::full(input.clone(), Scalar::Int(0), gradient.dtype, &gradient.device);
    }
    let image = spatial_dims("conv_transpose_input_gradient", &gradient);
    let (count, groups) = (&input.dims[2..], options.groups);
    let windows = transposed_windows(image, &weight.dims()[2..], count, options);
    let (batch, all, in_channels) = (input[0], weight.dims()[0], weight.dims()[1]);
    let (out, out_channels) = (shape(batch, all, &gradient, count), all / groups);
    let convolution = Convolution { windows, transposed: false, batch, groups, in_channels, out_channels };
    convolution.run(gradient, weight, None, None, out)
}
