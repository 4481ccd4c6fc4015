//! Images whose channels are copied to stand last in memory, with zeros behind them.

use super::super::elementwise;
use super::super::launch;
use super::super::line_of;
use super::{LINE, zero};
use crate::language::{Builder, Kernel};
use crate::runtime::Runtime;
use crate::tensor::{GpuTensor, held_as};
use kiln_tensor::DType;

/// Such a copy: an invocation writes four neighbouring channels of an element of an image.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FillChannels {
    /// The elements' dtype.
    pub dtype: DType,
}

impl FillChannels {
    /// The kernel. Buffers: the images; the copy, `[images, elements of an image, channels]`. Parameters: fours of the copy, and of its channels; channels
    /// and elements of an image; where the images begin, and how far it is from one to the next, from channel to channel, from element to element.
    pub fn kernel(&self) -> Kernel {
        let storage = held_as(self.dtype);
        Builder::kernel("fill_channels", [LINE, 1], |k| {
            let (x, output) = (k.input(storage), k.output_of_fours(storage));
            let (count, fours) = (k.parameter(), k.parameter());
            let (channels, elements) = (k.parameter(), k.parameter());
            let start = k.parameter();
            let [to_image, to_channel, to_element] = [k.parameter(), k.parameter(), k.parameter()];
            let position = k.position(LINE);
            k.when(position.below(count), || {
                let (place, first) = (position / fours, position % fours * 4_u32);
                let at = start + place / elements * to_image + place % elements * to_element;
                let value = |n: u32| {
                    let channel = first + n;
                    let value = k.variable(zero(k, storage.value()));
                    k.when(channel.below(channels), || value.set(x.at(at + channel * to_channel)));
                    value.get()
                };
                output.set(position, [0, 1, 2, 3].map(value));
            });
        })
    }
}

/// Images, or weights, with their channels last in memory from its start, and so many channels of zeros behind those; copies where they lie otherwise. With
/// zeros, channels are whole fours.
pub(super) fn with_channels_last<R: Runtime>(x: GpuTensor<R>, more: usize) -> GpuTensor<R> {
    if more == 0 {
        return x.with_channels_last();
    }
    let x = if x.is_channels_last() { x } else { elementwise::contiguous(x) };
    let mut shape = x.layout.shape.clone();
    let (own, elements) = (shape.dims[1], shape.dims[2..].iter().product::<usize>());
    let channels = own + more;
    shape.dims[1] = channels;
    let out = GpuTensor::empty_channels_last(shape, x.dtype, &x.device);
    let (to_channel, to_element) = if x.is_channels_last() { (1, own) } else { (elements, 1) };
    let count = out.len() / 4;
    let words = [count, channels / 4, own, elements, x.layout.offset, own * elements, to_channel, to_element];
    let words = words.map(|word| word as u32);
    launch::<R>(
        &x.device,
        FillChannels { dtype: x.dtype },
        &[&x, &out],
        &words,
        line_of::<R>(&x.device, count),
    );
    out
}
