//! The geometry of convolutions.

use crate::size::{elements, reach};
use kiln_types::{ConvOptions, ConvTransposeOptions, Dims, Windows, spatial};

/// The geometry of a convolution.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ConvShape {
    /// Images.
    pub batch: usize,
    /// Channels of an image.
    pub in_channels: usize,
    /// Channels of a result.
    pub out_channels: usize,
    /// Channel groups; divides both.
    pub groups: usize,
    /// What each element of a result sees.
    pub windows: Windows,
}

impl ConvShape {
    /// From the dims of `x` (`[batch, in, spatial…]`) and of the weights (`[out, in / groups, kernel…]`).
    ///
    /// # Panics
    /// When dims and options contradict each other, or the kernel is larger than the padded image.
    pub fn new(x: &[usize], weight: &[usize], options: &ConvOptions) -> Self {
        assert!(x.len() >= 3 && x.len() == weight.len(), "convolution of {x:?} with weights {weight:?}");
        let ConvOptions { stride, padding, dilation, groups } = options;
        assert!(
            *groups > 0 && weight[1] * groups == x[1] && weight[0].is_multiple_of(*groups),
            "convolution of {x:?} with weights {weight:?} in {groups} groups"
        );
        let windows = Windows::new(&x[2..], &weight[2..], stride, padding, dilation, false);
        Self { batch: x[0], in_channels: x[1], out_channels: weight[0], groups: *groups, windows }
    }

    /// The dims of the result, `[batch, out, spatial…]`.
    pub fn output_dims(&self) -> Dims {
        [self.batch, self.out_channels].iter().chain(self.windows.output_dims()).copied().collect()
    }

    /// Input and output channels of a group.
    pub(crate) fn group_channels(&self) -> (usize, usize) {
        (self.in_channels / self.groups, self.out_channels / self.groups)
    }

    /// Weights that one element of the result sees.
    pub(crate) fn depth(&self) -> usize {
        self.in_channels / self.groups * self.windows.kernel_len()
    }

    /// Whether images with their padding are of a size with images and results, so that copies of them may be made: padding, which a file may ask any
    /// amount of, costs nothing by itself.
    pub(super) fn pads_little(&self) -> bool {
        const TIMES: usize = 64;
        let w = &self.windows;
        let padded = (0..3).try_fold(1_usize, |len, i| {
            len.checked_mul(w.padding[i].0.checked_add(w.input[i])?.checked_add(w.padding[i].1)?)
        });
        padded.is_some_and(|len| len / TIMES <= w.input_len() + w.output_len())
    }

    /// Number of weights.
    pub fn weight_len(&self) -> usize {
        self.out_channels * self.depth()
    }

    pub(crate) fn check(&self, x: &[f32], bias: Option<&[f32]>, out: &[f32]) {
        self.check_sizes(x.len(), bias, out.len());
    }

    /// [`ConvShape::check`] for so many elements of images and results.
    pub(super) fn check_sizes(&self, x: usize, bias: Option<&[f32]>, out: usize) {
        let (input, output) = (self.windows.input_len(), self.windows.output_len());
        assert_eq!(x, elements(&[self.batch, self.in_channels, input]), "size of the convolution's input");
        assert_eq!(
            out,
            elements(&[self.batch, self.out_channels, output]),
            "size of the convolution's output"
        );
        assert!(bias.is_none_or(|b| b.len() == self.out_channels), "size of the convolution's bias");
        let w = &self.windows;
        for axis in 0..3 {
            // Elements from the first that any window has to the last.
            let taps = reach([w.output[axis], w.kernel[axis]], [w.stride[axis], w.dilation[axis]]);
            let (before, after) = w.padding[axis];
            let padded = before.saturating_add(w.input[axis]).saturating_add(after);
            let [windows, size] = [w.output[axis], w.input[axis]];
            assert!(
                taps <= padded,
                "{windows} windows reach beyond a padded image of {size} pixels, {padded} with its padding"
            );
        }
    }
}

/// The geometry of a transposed convolution. Spatial entries are depth, height, width.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ConvTransposeShape {
    /// Images.
    pub batch: usize,
    /// Channels of an image.
    pub in_channels: usize,
    /// Channels of a result.
    pub out_channels: usize,
    /// Channel groups; divides both.
    pub groups: usize,
    /// Number of spatial dims that the caller sees.
    pub rank: usize,
    /// Size of an image.
    pub input: [usize; 3],
    /// Size of the kernel.
    pub kernel: [usize; 3],
    /// Step of the window over the result.
    pub stride: [usize; 3],
    /// Distance between kernel elements.
    pub dilation: [usize; 3],
    /// Rows cut off before and after.
    pub padding: [(usize, usize); 3],
    /// Size of a result.
    pub output: [usize; 3],
}

impl ConvTransposeShape {
    /// From the dims of `x` (`[batch, in, spatial…]`) and of the weights (`[in, out / groups, kernel…]`).
    ///
    /// # Panics
    /// When dims and options contradict each other, or the padding cuts off everything.
    pub fn new(x: &[usize], weight: &[usize], options: &ConvTransposeOptions) -> Self {
        assert!(x.len() >= 3 && x.len() == weight.len(), "transposed convolution of {x:?} with {weight:?}");
        let groups = options.groups;
        assert!(
            groups > 0 && weight[0] == x[1] && x[1].is_multiple_of(groups),
            "transposed convolution of {x:?} with weights {weight:?} in {groups} groups"
        );
        let (input, kernel) = (spatial(&x[2..], 1), spatial(&weight[2..], 1));
        let (stride, dilation) = (spatial(&options.stride, 1), spatial(&options.dilation, 1));
        let (padding, extra) = (spatial(&options.padding, (0, 0)), spatial(&options.output_padding, 0));
        let mut output = [0; 3];
        for i in 0..3 {
            assert!(stride[i] > 0 && dilation[i] > 0 && kernel[i] > 0, "stride, dilation or kernel of 0");
            let full = reach([input[i].max(1), kernel[i]], [stride[i], dilation[i]]).saturating_add(extra[i]);
            let cut = padding[i].0.saturating_add(padding[i].1);
            assert!(full >= cut, "padding {cut} cuts off more than there is ({full})");
            output[i] = full - cut;
        }
        Self {
            batch: x[0],
            in_channels: x[1],
            out_channels: weight[1] * groups,
            groups,
            rank: x.len() - 2,
            input,
            kernel,
            stride,
            dilation,
            padding,
            output,
        }
    }

    /// The convolution whose adjoint this one is: with the same weights it takes images of the result's size to images of the
    /// input's. Its gradients are this one's, with the images exchanged.
    pub fn adjoint(&self) -> ConvShape {
        let windows = Windows {
            rank: self.rank,
            input: self.output,
            kernel: self.kernel,
            stride: self.stride,
            dilation: self.dilation,
            padding: self.padding,
            // Where the output was padded, one window more would fit.
            output: self.input,
        };
        let (in_channels, out_channels) = (self.out_channels, self.in_channels);
        ConvShape { batch: self.batch, in_channels, out_channels, groups: self.groups, windows }
    }

    /// The dims of the result, `[batch, out, spatial…]`.
    pub fn output_dims(&self) -> Dims {
        [self.batch, self.out_channels].iter().chain(&self.output[3 - self.rank..]).copied().collect()
    }

    /// Number of weights.
    pub fn weight_len(&self) -> usize {
        self.in_channels * self.out_channels / self.groups * self.kernel.iter().product::<usize>()
    }

    pub(crate) fn check(&self, x: &[f32], weight: &[f32], bias: Option<&[f32]>, out: &[f32]) {
        let (input, output) = (elements(&self.input), elements(&self.output));
        assert_eq!(
            x.len(),
            elements(&[self.batch, self.in_channels, input]),
            "size of the transposed convolution's input"
        );
        assert_eq!(
            out.len(),
            elements(&[self.batch, self.out_channels, output]),
            "size of the transposed convolution's output"
        );
        assert_eq!(weight.len(), self.weight_len(), "size of the transposed convolution's weights");
        assert!(
            bias.is_none_or(|b| b.len() == self.out_channels),
            "size of the transposed convolution's bias"
        );
    }
}
