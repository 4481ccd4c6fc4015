//! What windows see of images, as the rows of a matrix: a convolution is the product of these with its weights (K. Chellapilla, S. Puri and P. Simard, "High
//! Performance Convolutional Neural Networks for Document Processing", 2006).

use super::super::{block, elementwise, launch_blocks};
use super::conv::windows_over;
use super::{Geometry, LINE, Sizes, zero};
use crate::language::{Builder, Builtin, Kernel};
use crate::runtime::{Derived, Order, Runtime};
use crate::tensor::{GpuTensor, held_as};
use kiln_tensor::{DType, Shape, Windows};

/// Elements that an invocation writes.
const RUN: u32 = 8;

/// Such a matrix: an invocation writes a run of neighbours of a row. A row has the lines of a window one after another, channel by channel, each filled with
/// zeros up to whole runs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Im2col {
    /// A dtype of as many bytes as the elements', of which no number changes where it is copied: an integer.
    pub dtype: DType,
    /// The windows.
    pub geometry: Geometry,
}

impl Im2col {
    /// The kernel. Buffers: the images; the matrix. Parameters: its `block`; runs of a row; where the images begin, and how far it is from one to
    /// the next, from channel to channel, from element to element; the sizes. Windows of a line of an image lie along x, lines along y, images and their layers
    /// along z.
    pub fn kernel(&self) -> Kernel {
        let storage = held_as(self.dtype);
        Builder::kernel("im2col", [LINE, 1], |k| {
            let (x, output) = (k.input(storage), k.output_of_fours(storage));
            let [across, line, place] = block(k);
            let (runs, start) = (k.parameter(), k.parameter());
            let [to_image, to_channel, to_element] = [k.parameter(), k.parameter(), k.parameter()];
            let sizes = Sizes::declare(k);
            let Geometry { kernel: [deep, high, wide], stride, dilation } = self.geometry;
            let [layers, lines, windows] = sizes.output;
            let own = across * LINE + k.builtin(Builtin::LocalX);
            k.when(own.below(windows * runs), || {
                let (window, run) = (own / runs, own % runs);
                let (image, layer) = (place / layers, place % layers);
                let (of_window, first) = (run / wide.div_ceil(RUN), run % wide.div_ceil(RUN) * RUN);
                let (channel, of_window) = (of_window / (deep * high), of_window % (deep * high));
                // What is before the image wraps around, and so is beyond its end.
                let met = |axis: usize, at, element| {
                    at * stride[axis] + element * dilation[axis] - sizes.before[axis]
                };
                let (z, y) = (met(0, layer, of_window / high), met(1, line, of_window % high));
                let inside = z.below(sizes.input[0]) & y.below(sizes.input[1]);
                let begins = sizes.place([z, y, k.value(0_u32)]) * to_element;
                let begins = start + image * to_image + channel * to_channel + begins;
                let first_met = met(2, window, first);
                let value = |n: u32| {
                    let (element, met) = (first + n, first_met + n * dilation[2]);
                    let value = k.variable(zero(k, storage.value()));
                    k.when(inside & element.below(wide) & met.below(sizes.input[2]), || {
                        value.set(x.at(begins + met * to_element));
                    });
                    value.get()
                };
                let row = (place * lines + line) * windows + window;
                for four in 0..RUN / 4 {
                    let values = [0, 1, 2, 3].map(|n| value(four * 4 + n));
                    output.set((row * runs + run) * (RUN / 4) + four, values);
                }
            });
        })
    }
}

/// Elements of a row.
pub(super) fn row_length(channels: usize, [deep, high, wide]: [usize; 3]) -> usize {
    channels * deep * high * wide.next_multiple_of(RUN as usize)
}

/// The matrix of all windows of images of 16-bit numbers, `[images * windows, length of a row]`.
pub(super) fn im2col<R: Runtime>(x: GpuTensor<R>, windows: &Windows) -> GpuTensor<R> {
    let x = if x.is_channels_last() { x } else { elementwise::contiguous(x) };
    let (images, channels) = (x.dims()[0], x.dims()[1]);
    let elements: usize = x.dims()[2..].iter().product();
    let length = row_length(channels, windows.kernel);
    let rows = images * windows.output_len();
    let out = GpuTensor::empty(Shape::from([rows, length]), x.dtype, &x.device);
    if out.is_empty() {
        return out;
    }
    let (to_channel, to_element) = if x.is_channels_last() { (1, channels) } else { (elements, 1) };
    let runs = length / RUN as usize;
    let words = [runs, x.layout.offset, channels * elements, to_channel, to_element];
    let words: Vec<u32> = words.map(|word| word as u32).into_iter().chain(Sizes::words(windows)).collect();
    let template = Im2col { dtype: DType::U16, geometry: Geometry::of(windows) };
    let [layers, lines, across] = windows.output;
    let blocks = [(across * runs).div_ceil(LINE as usize), lines, images * layers];
    launch_blocks::<R>(&x.device, template, &[&x, &out], &words, blocks, false);
    out
}

/// Weights as such rows, `[output channels, length of a row]`: each is the only window of an image. They are copied once, and kept with their memory until that
/// is written to.
pub(super) fn weight_rows<R: Runtime>(weight: GpuTensor<R>, windows: &Windows) -> GpuTensor<R> {
    let length = row_length(weight.dims()[1], windows.kernel);
    let weight = elementwise::from_start(weight);
    let (rows, dtype, device) = (weight.dims()[0], weight.dtype, weight.device.clone());
    let what = Derived { order: Order::RowsOfWindows, sizes: [weight.len(), rows, length, 0] };
    let memory = R::derived(&weight.memory, what, || {
        let window = weight.dims()[2..].to_vec();
        let (one, none) = (vec![1; window.len()], vec![(0, 0); window.len()]);
        let windows = windows_over(&window, &window, &one, &one, &none, &one);
        im2col(weight.clone(), &windows).memory
    });
    GpuTensor::from_memory(memory, Shape::from([rows, length]), dtype, device)
}
