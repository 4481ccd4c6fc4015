//! Convolutions of which each channel has its own windows, over images whose channels stand last in memory.

use super::super::epilogue::{self, EpilogueProgram};
use super::super::launch_open;
use super::super::line_of;
use super::super::tiling::Epilogue;
use super::conv::Convolution;
use super::{Geometry, LINE, Sizes, volume, within_image, zero};
use crate::language::{Builder, Kernel};
use crate::runtime::{Derived, Order, Runtime};
use crate::tensor::{GpuTensor, held_as};
use kiln_tensor::backend::Layout;
use kiln_tensor::{Activation, DType, Shape};
use smallvec::{SmallVec, smallvec};

/// Such a convolution: an invocation computes four neighbouring channels of an element of the result.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DepthwiseConv {
    /// The elements' dtype.
    pub dtype: DType,
    /// The windows.
    pub geometry: Geometry,
    /// Whether a bias is added to each channel.
    pub bias: bool,
    /// What is done to each element at last.
    pub activation: Option<Activation>,
    /// What came after that.
    pub epilogues: Vec<EpilogueProgram>,
}

impl DepthwiseConv {
    /// The kernel. Buffers: the images, `[images, spatial…, channels]`; the weights, `[elements of a window, channels]`; the bias; the results. Parameters:
    /// results and channels, in fours; the sizes.
    pub fn kernel(&self) -> Kernel {
        let storage = held_as(self.dtype);
        Builder::kernel("depthwise_conv", [LINE, 1], |k| {
            let (x, weight) = (k.input_of_fours(storage), k.input_of_fours(storage));
            let epilogue =
                Epilogue { bias: self.bias.then(|| k.input(storage)), activation: self.activation };
            let output = k.output_of_fours(storage);
            let (count, channels) = (k.parameter(), k.parameter());
            let sizes = Sizes::declare(k);
            let epilogues = epilogue::declare(k, &self.epilogues);
            let position = k.position(LINE);
            k.when(position.below(count), || {
                let (place, channel) = (position / channels, position % channels);
                let results = volume(&sizes.output);
                let window = within_image(place % results, &sizes.output);
                let image = place / results * volume(&sizes.input);
                let sums = [(); 4].map(|()| k.variable(zero(k, storage.value())));
                k.range(0_u32, self.geometry.kernel_length(), 1_u32, |tap| {
                    let (element, inside) = sizes.element(&self.geometry, window, self.geometry.within(tap));
                    k.when(inside, || {
                        let elements = x.at((image + element) * channels + channel);
                        let weights = weight.at(tap * channels + channel);
                        for (sum, (element, weight)) in sums.iter().zip(elements.into_iter().zip(weights)) {
                            sum.set(weight.fma(element, sum.get()));
                        }
                    });
                });
                let finished = |n: usize| {
                    let n_th = n as u32;
                    let sum = epilogue.apply(sums[n].get(), |bias| bias.at(channel * 4_u32 + n_th));
                    epilogue::apply(&epilogues, position * 4_u32 + n_th, sum)
                };
                output.set(position, [0, 1, 2, 3].map(finished));
            });
        })
    }
}

impl Convolution {
    /// Whether each channel has its own windows, and channels are whole fours.
    pub(super) fn is_depthwise_in_fours(&self) -> bool {
        !self.transposed && self.in_channels == 1 && self.out_channels == 1 && self.groups.is_multiple_of(4)
    }

    /// `activation(conv(x, weight) + bias)` of such a convolution; images have their channels last, all lies from the start of its memory.
    pub(super) fn depthwise<R: Runtime>(
        &self,
        x: &GpuTensor<R>,
        weight: &GpuTensor<R>,
        bias: Option<&GpuTensor<R>>,
        activation: Option<Activation>,
        out: &GpuTensor<R>,
    ) {
        let weight = &self.by_elements_of_windows(weight);
        let template = DepthwiseConv {
            dtype: x.dtype,
            geometry: self.geometry(),
            bias: bias.is_some(),
            activation,
            epilogues: Vec::new(),
        };
        let count = out.len() / 4;
        let mut words: SmallVec<[u32; 16]> = smallvec![count as u32, (self.groups / 4) as u32];
        words.extend(self.size_words());
        let mut tensors: SmallVec<[_; 4]> = smallvec![x, weight];
        tensors.extend(bias);
        tensors.push(out);
        launch_open::<R>(&x.device, template, &tensors, &words, line_of::<R>(&x.device, count));
    }

    /// The weights as `[elements of a window, channels]`: copied once, and kept with their memory until that is written to.
    fn by_elements_of_windows<R: Runtime>(&self, weight: &GpuTensor<R>) -> GpuTensor<R> {
        let window = self.geometry().kernel_length() as usize;
        let channels = Layout::contiguous(Shape::from([self.groups, window]));
        let turned = weight.clone().with_layout(channels.permute(&[1, 0]));
        if turned.layout.is_contiguous() {
            return turned;
        }
        let sizes = [weight.layout.offset, weight.len(), self.groups, window];
        let what = Derived { order: Order::ElementsOfWindows, sizes };
        let memory = R::derived(&weight.memory, what, || turned.copied().memory);
        let layout = Layout::contiguous(Shape::from([window, self.groups])).into();
        GpuTensor { memory, layout, dtype: weight.dtype, device: weight.device.clone() }
    }
}
