//! What windows see of images, as the rows of a matrix: a convolution is the product of these with its weights (K. Chellapilla, S. Puri and P. Simard, "High
//! Performance Convolutional Neural Networks for Document Processing", 2006).

use super::super::line_of;
use super::super::{elementwise, launch};
use super::conv::windows_over;
use super::{Geometry, LINE, Sizes, within_image, zero};
use crate::language::{Builder, Kernel};
use crate::runtime::Runtime;
use crate::tensor::{GpuTensor, held_as};
use kiln_tensor::{DType, Shape, Windows};

/// Such a matrix: an invocation writes four neighbours of a row. A row has the lines of a window one after another, channel by channel, each filled with
/// zeros up to a multiple of four elements, and zeros at its end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Im2col {
    /// The elements' dtype.
    pub dtype: DType,
    /// The windows.
    pub geometry: Geometry,
}

impl Im2col {
    /// The kernel. Buffers: the images; the matrix. Parameters: fours of the matrix, and of a row; channels; where the images begin, and how far it is from one to
    /// the next, from channel to channel, from element to element; the sizes.
    pub fn kernel(&self) -> Kernel {
        let storage = held_as(self.dtype);
        Builder::kernel("im2col", [LINE, 1], |k| {
            let (x, output) = (k.input(storage), k.output_of_fours(storage));
            let (count, fours, channels) = (k.parameter(), k.parameter(), k.parameter());
            let start = k.parameter();
            let [to_image, to_channel, to_element] = [k.parameter(), k.parameter(), k.parameter()];
            let sizes = Sizes::declare(k);
            let Geometry { kernel: [deep, high, wide], stride, dilation } = self.geometry;
            let position = k.position(LINE);
            k.when(position.below(count), || {
                let (window, four) = (position / fours, position % fours);
                let windows = super::volume(&sizes.output);
                let (image, at) = (window / windows, within_image(window % windows, &sizes.output));
                let (line, first) = (four / wide.div_ceil(4), four % wide.div_ceil(4) * 4_u32);
                let (channel, line) = (line / (deep * high), line % (deep * high));
                // What is before the image wraps around, and so is beyond its end.
                let met = |axis: usize, element| {
                    at[axis] * stride[axis] + element * dilation[axis] - sizes.before[axis]
                };
                let (z, y) = (met(0, line / high), met(1, line % high));
                let inside = channel.below(channels) & z.below(sizes.input[0]) & y.below(sizes.input[1]);
                let start = start + image * to_image + channel * to_channel;
                let value = |n: u32| {
                    let element = first + n;
                    let x_at = met(2, element);
                    let value = k.variable(zero(k, storage.value()));
                    k.when(inside & element.below(wide) & x_at.below(sizes.input[2]), || {
                        value.set(x.at(start + sizes.place([z, y, x_at]) * to_element));
                    });
                    value.get()
                };
                output.set(position, [0, 1, 2, 3].map(value));
            });
        })
    }
}

/// Elements of a row, of which `multiple` is a power of two and at least four.
pub(super) fn row_length(channels: usize, [deep, high, wide]: [usize; 3], multiple: usize) -> usize {
    (channels * deep * high * wide.next_multiple_of(4)).next_multiple_of(multiple)
}

/// The matrix of all windows of images of one group, `[images * windows, length]`; `length` is a [`row_length`].
pub(super) fn im2col<R: Runtime>(x: GpuTensor<R>, windows: &Windows, length: usize) -> GpuTensor<R> {
    let x = if x.is_channels_last() { x } else { elementwise::contiguous(x) };
    let (images, channels) = (x.dims()[0], x.dims()[1]);
    let elements: usize = x.dims()[2..].iter().product();
    let rows = images * windows.output_len();
    let out = GpuTensor::empty(Shape::from([rows, length]), x.dtype, &x.device);
    if out.is_empty() {
        return out;
    }
    let (to_channel, to_element) = if x.is_channels_last() { (1, channels) } else { (elements, 1) };
    let (count, offset) = (out.len() / 4, x.layout.offset);
    let words = [count, length / 4, channels, offset, channels * elements, to_channel, to_element];
    let words: Vec<u32> = words.map(|word| word as u32).into_iter().chain(Sizes::words(windows)).collect();
    let template = Im2col { dtype: x.dtype, geometry: Geometry::of(windows) };
    launch::<R>(&x.device, template, &[&x, &out], &words, line_of::<R>(&x.device, count));
    out
}

/// Weights as such rows, `[output channels, length]`: each is the only window of an image. They are copied once, and kept with their memory until that is written to.
pub(super) fn weight_rows<R: Runtime>(weight: GpuTensor<R>, length: usize) -> GpuTensor<R> {
    let weight = elementwise::from_start(weight);
    let (rows, dtype, device) = (weight.dims()[0], weight.dtype, weight.device.clone());
    // Those of weights with their channels last are odd, and all others are less.
    let key = [usize::MAX - 1, weight.len(), rows, length];
    let memory = R::derived(&weight.memory, key, || {
        let window = weight.dims()[2..].to_vec();
        let (one, none) = (vec![1; window.len()], vec![(0, 0); window.len()]);
        let windows = windows_over(&window, &window, &one, &one, &none, &one);
        im2col(weight.clone(), &windows, length).memory
    });
    GpuTensor::from_memory(memory, Shape::from([rows, length]), dtype, device)
}
