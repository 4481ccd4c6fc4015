//! How much a window operation pads.

use crate::config::Config;
use crate::tensor::InlineVec;

/// Padding that makes the output `ceil(size / stride)` long; an odd rest goes to the end (TensorFlow's SAME).
///
/// # Panics
/// When a number is 0 of which there is no such padding.
fn same(layer: &str, size: usize, kernel: usize, dilation: usize, stride: usize) -> (usize, usize) {
    assert!(
        size > 0 && kernel > 0 && stride > 0,
        "{layer}: with the padding `Same`, the input's spatial size, the kernel and the stride are at least 1, not {size}, \
         {kernel} and {stride}"
    );
    let span = dilation * (kernel - 1) + 1;
    let total = ((size.div_ceil(stride) - 1) * stride + span).saturating_sub(size);
    (total / 2, total - total / 2)
}

macro_rules! padding_config {
    ($name:ident, $rank:literal, $what:literal, ($($part:ident: $ty:ty),*)) => {
        #[doc = concat!("Padding of ", $what, ".")]
        #[derive(Config, Debug, Copy, PartialEq)]
        pub enum $name {
            /// As much as makes the output `ceil(size / stride)` long.
            Same,
            /// None.
            Valid,
            /// The same before and after, per spatial dim.
            Explicit($($ty),*),
            /// Before and after, per spatial dim.
            Asymmetric([[usize; 2]; $rank]),
        }

        impl $name {
            /// Padding before and after each spatial dim of an input of the given spatial size.
            ///
            /// # Panics
            /// With the layer's name, when it is [`Same`](Self::Same) and a size, a kernel or a stride is 0.
            pub(crate) fn resolve(
                &self,
                layer: &str,
                size: &[usize],
                kernel: &[usize],
                dilation: &[usize],
                stride: &[usize],
            ) -> InlineVec<(usize, usize)> {
                match *self {
                    Self::Valid => [(0, 0); $rank].into(),
                    Self::Same => {
                        (0..$rank).map(|i| same(layer, size[i], kernel[i], dilation[i], stride[i])).collect()
                    }
                    Self::Explicit($($part),*) => [$($part),*].iter().map(|&p| (p, p)).collect(),
                    Self::Asymmetric(pads) => pads.iter().map(|&[before, after]| (before, after)).collect(),
                }
            }
        }
    };
}

padding_config!(PaddingConfig1d, 1, "a 1-D window", (length: usize));
padding_config!(PaddingConfig2d, 2, "a 2-D window", (height: usize, width: usize));
padding_config!(PaddingConfig3d, 3, "a 3-D window", (depth: usize, height: usize, width: usize));
