//! Convolutions with windows of single elements that yield few channels, over images whose channels stand last in memory.

use super::super::epilogue::{self, EpilogueProgram};
use super::super::launch_open;
use super::super::line_of;
use super::super::tiling::Epilogue;
use super::conv::Convolution;
use super::{LINE, zero};
use crate::language::{Builder, Kernel};
use crate::runtime::Runtime;
use crate::tensor::{GpuTensor, held_as};
use kiln_tensor::{Activation, DType};
use smallvec::{SmallVec, smallvec};

/// Channels of results up to which an invocation computes all of them: a tile of a product would be mostly columns that nobody asked for. On an H200, cuBLASLt
/// took 200 µs for a product of 2 million rows of 32 numbers in bf16 with 2 columns, and reading these rows takes 35 µs.
const MOST_CHANNELS: usize = 8;
/// Bytes of a row up to which it does: what one invocation reads of a line of the cache, it finds there when it reads on.
const MOST_BYTES: usize = 128;
/// Rows from which on it does: so many that there are enough invocations to fill a device. A product of fewer takes little time.
const LEAST_ROWS: usize = 1 << 16;

/// Such a convolution: an invocation computes all channels of an element of the result.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NarrowConv {
    /// The elements' dtype.
    pub dtype: DType,
    /// Channels of the results.
    pub channels: u32,
    /// Whether a bias is added to each channel.
    pub bias: bool,
    /// What is done to each element at last.
    pub activation: Option<Activation>,
    /// What came after that.
    pub epilogues: Vec<EpilogueProgram>,
}

impl NarrowConv {
    /// The kernel. Buffers: the images, `[rows, depth]`; the weights, `[channels, depth]`; the bias; the results. Parameters: rows, and the depth in fours.
    pub fn kernel(&self) -> Kernel {
        let storage = held_as(self.dtype);
        Builder::kernel("narrow_conv", [LINE, 1], |k| {
            let (x, weight) = (k.input_of_fours(storage), k.input_of_fours(storage));
            let epilogue =
                Epilogue { bias: self.bias.then(|| k.input(storage)), activation: self.activation };
            let output = k.output(storage);
            let (rows, depth) = (k.parameter(), k.parameter());
            let epilogues = epilogue::declare(k, &self.epilogues);
            let row = k.position(LINE);
            k.when(row.below(rows), || {
                let sums: Vec<_> = (0..self.channels).map(|_| k.variable(zero(k, storage.value()))).collect();
                k.range(0_u32, depth, 1_u32, |at| {
                    let elements = x.at(row * depth + at);
                    for (channel, sum) in (0..self.channels).zip(&sums) {
                        for (weight, element) in weight.at(depth * channel + at).into_iter().zip(elements) {
                            sum.set(weight.fma(element, sum.get()));
                        }
                    }
                });
                for (channel, sum) in (0..self.channels).zip(&sums) {
                    let position = row * self.channels + channel;
                    let sum = epilogue.apply(sum.get(), |bias| bias.at(k.value(channel)));
                    output.set(position, epilogue::apply(&epilogues, position, sum));
                }
            });
        })
    }
}

impl Convolution {
    /// Whether an invocation computes all channels of a result of a convolution with windows of single elements.
    pub(super) fn is_narrow_of_rows(&self, dtype: DType, rows: usize) -> bool {
        let depth = self.in_channels;
        let short = depth > 0 && depth.is_multiple_of(4) && depth * dtype.size() <= MOST_BYTES;
        !self.transposed && self.out_channels <= MOST_CHANNELS && short && rows >= LEAST_ROWS
    }

    /// `activation(conv(x, weight) + bias)` of such a convolution; images have their channels last, all lies from the start of its memory.
    pub(super) fn narrow_of_rows<R: Runtime>(
        &self,
        x: &GpuTensor<R>,
        weight: &GpuTensor<R>,
        bias: Option<&GpuTensor<R>>,
        activation: Option<Activation>,
        out: &GpuTensor<R>,
    ) {
        let channels = self.out_channels as u32;
        let epilogues = Vec::new();
        let template = NarrowConv { dtype: x.dtype, channels, bias: bias.is_some(), activation, epilogues };
        let rows = out.len() / self.out_channels;
        let words = [rows, self.in_channels / 4].map(|size| size as u32);
        let mut tensors: SmallVec<[_; 4]> = smallvec![x, weight];
        tensors.extend(bias);
        tensors.push(out);
        launch_open::<R>(&x.device, template, &tensors, &words, line_of::<R>(&x.device, rows));
    }
}
