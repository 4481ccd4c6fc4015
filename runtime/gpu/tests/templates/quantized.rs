//! Products and convolutions of 8-bit integers.

use super::after;
use super::window::GEOMETRY;
use kiln_gpu::kernels::Template;
use kiln_gpu::kernels::access::Access::{Linear, Strided};
use kiln_gpu::kernels::quantized::{MatmulInteger, Side, Zero};
use kiln_gpu::kernels::window::ConvInteger;
use kiln_tensor::DType;

pub fn products_and_convs() -> Vec<Template> {
    let (bytes, words) = (false, true);
    let sides = |zeros: [Zero; 2], in_words: [bool; 2]| {
        [0, 1].map(|n| Side { zero: zeros[n], in_words: in_words[n] })
    };
    let (each, batch) = ([2, 2], (Strided, Linear, 2));
    let product = |sides| MatmulInteger { sides, batch, each, epilogues: after(DType::I32) };
    let conv = |sides| ConvInteger { sides, geometry: GEOMETRY, each, epilogues: after(DType::I32) };
    vec![
        product(sides([Zero::Tensor; 2], [bytes; 2])).into(),
        product(sides([Zero::Number, Zero::None], [words; 2])).into(),
        conv(sides([Zero::Tensor, Zero::Number], [bytes; 2])).into(),
        conv(sides([Zero::None, Zero::Tensor], [words, bytes])).into(),
    ]
}
