//! Convolutions of 8-bit integers by tensor cores: products of the weights with the windows, which are gathered on the way.

use super::super::epilogue::{self, EpilogueProgram};
use super::super::quantized::{Bytes, Given, OF_WARP, Side, corrected, packed};
use super::super::right::Columns;
use super::super::warps::{self, Sum, WarpTile};
use super::super::{block, launch_blocks};
use super::patches::{self, Image, Patches};
use super::{Geometry, Sizes, from_start, spatial_dims, volume, within_image};
use crate::language::{Builder, Factors, Kernel, Storage, Type};
use crate::runtime::Runtime;
use crate::tensor::GpuTensor;
use kiln_tensor::compose::Quantized;
use kiln_tensor::{ConvOptions, DType, Shape, Windows};

/// A convolution of bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ConvInteger {
    /// The weight, and the images.
    pub sides: [Side; 2],
    /// The windows.
    pub geometry: Geometry,
    /// Rows and columns of a warp, in 16s.
    pub each: [u32; 2],
    /// What came after that.
    pub epilogues: Vec<EpilogueProgram>,
}

impl ConvInteger {
    /// The kernel. Parameters: its `block`; the number of groups, channels a group of input and output; both sides (`Bytes::declare`); the
    /// sizes. Images and groups are along z.
    pub fn kernel(&self) -> Kernel {
        Builder::kernel("quantized_conv_by_warps", warps::GROUP, |k| {
            let [weight, x] = self.sides.map(|side| Bytes::declare(k, side));
            let output = k.output(Storage::I32);
            let [block_column, block_row, place] = block(k);
            let (groups, in_channels, out_channels) = (k.parameter(), k.parameter(), k.parameter());
            let (weight, x) = (weight(), x());
            let sizes = Sizes::declare(k);
            let epilogues = epilogue::declare(k, &self.epilogues);
            let (image, results) = (volume(&sizes.input), volume(&sizes.output));
            let length = self.geometry.kernel_length();
            let depth = in_channels * length;
            let first_row = place % groups * out_channels;
            let [high, wide] = warps::tile(self.each);
            let start = [block_row * high, block_column * wide];
            let size = [out_channels, results, depth];
            let tile = WarpTile { factors: Factors::I8, each: self.each, start, size };
            // What is beyond an image stands for 0.
            let border = x.zero(k.value(0_u32)).map(|zero| zero.bits(Type::U32) & 0xff_u32);
            let nothing = k.value(0_u32);
            let channels = place * in_channels * image;
            let word_of_weight = |row, first| {
                let start = (first_row + row) * depth;
                weight.word(&tile, first, out_channels.above(row), |at| start + at)
            };
            let of_sides = [x.has_zero(), weight.has_zero()];
            let write = |sum: Sum<'_>| {
                let row = first_row + sum.row;
                let value = corrected(&sum, depth, weight.zero(row), x.zero(k.value(0_u32)));
                let position = (place * out_channels + sum.row) * results + sum.column;
                output.set(position, epilogue::apply(&epilogues, position, value));
            };
            match patches::PatchIndices::of(k, self.geometry, &sizes) {
                Some(windows) => {
                    let image = Image { start: channels, at: |at| x.at(at), zero: nothing, border };
                    let patches = Patches { windows, elements: [nothing, depth], image };
                    tile.product_of_words(
                        k,
                        word_of_weight,
                        patches,
                        |word| packed(&word.elements(nothing)),
                        of_sides,
                        write,
                    );
                }
                None => {
                    let gathered = |at, window| {
                        let (channel, tap) = (at / length, self.geometry.within(at % length));
                        let (element, inside) = sizes.element(&self.geometry, window, tap);
                        let byte = k.variable(border.unwrap_or(nothing));
                        k.when(inside, || byte.set(x.at(channels + channel * image + element)));
                        byte.get()
                    };
                    let windows = Columns(|column| within_image(column, &sizes.output), gathered);
                    tile.product_of_words(
                        k,
                        word_of_weight,
                        windows,
                        |word| packed(&word.elements(nothing)),
                        of_sides,
                        write,
                    );
                }
            }
        })
    }
}

/// A convolution; nothing where the device does not multiply bytes, or groups have too few channels to pay.
pub(crate) fn conv_integer<R: Runtime>(
    x: &Quantized<GpuTensor<R>>,
    weight: &Quantized<GpuTensor<R>>,
    options: &ConvOptions,
) -> Option<GpuTensor<R>> {
    let device = &x.values.device;
    R::factors(device, DType::I8).filter(|&factors| factors == Factors::I8)?;
    let ConvOptions { stride, padding, dilation, groups } = options;
    let images = spatial_dims("conv_integer", &x.values);
    let windows = Windows::new(images, &weight.values.dims()[2..], stride, padding, dilation, false);
    let (batch, all, in_channels) = (x.values.dims()[0], weight.values.dims()[0], weight.values.dims()[1]);
    let out_channels = all / groups;
    // A tile of few rows computes mostly what nobody asked for.
    if out_channels < 8 || x.values.is_empty() {
        return None;
    }
    let lying = |side: &Quantized<GpuTensor<R>>| Quantized {
        values: from_start(side.values.clone()),
        zero: side.zero.clone(),
    };
    let (x, weight) = (lying(x), lying(weight));
    let row_length = weight.values.dims()[1..].iter().product::<usize>();
    let sides = [Given::new(&weight, 0, row_length.is_multiple_of(4))?, Given::new(&x, 0, false)?];
    let shape = [&[batch, all], windows.output_dims()].concat();
    let out = GpuTensor::empty(Shape::from(shape), DType::I32, device);
    if out.is_empty() {
        return Some(out);
    }
    if !out.is_visible() {
        return None;
    }
    let mut words = [*groups, in_channels, out_channels].map(|n| n as u32).to_vec();
    words.extend(sides.iter().flat_map(Given::words));
    words.extend(Sizes::words(&windows));
    let mut tensors: Vec<_> = sides.iter().flat_map(Given::tensors).collect();
    tensors.push(&out);
    let geometry = Geometry::of(&windows);
    let template = ConvInteger {
        sides: sides.each_ref().map(|given| given.side),
        geometry,
        each: OF_WARP,
        epilogues: Vec::new(),
    };
    let [high, wide] = warps::tile(OF_WARP).map(|n| n as usize);
    let columns = windows.output.iter().product::<usize>();
    let blocks = [columns.div_ceil(wide), out_channels.div_ceil(high), batch * groups];
    launch_blocks(device, template, &tensors, &words, blocks, true);
    Some(out)
}
