//! How much a window operation pads.

use crate::config::Config;
use crate::tensor::InlineVec;

/// Padding that makes the output `ceil(size / stride)` long; an odd rest goes to the end (TensorFlow's SAME).
fn same(size: usize, kernel: usize, dilation: usize, stride: usize) -> (usize, usize) {
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
            pub fn resolve(
                &self,
                size: &[usize],
                kernel: &[usize],
                dilation: &[usize],
                stride: &[usize],
            ) -> InlineVec<(usize, usize)> {
                match *self {
                    Self::Valid => [(0, 0); $rank].into(),
                    Self::Same => {
                        (0..$rank).map(|i| same(size[i], kernel[i], dilation[i], stride[i])).collect()
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
