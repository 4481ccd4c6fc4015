//! Dropout: which elements are dropped is computed where they are.

use super::random::{mixed, philox, salt};
use super::{LINE, elementwise, launch, line_of, program};
use crate::language::{Builder, Kernel};
use crate::runtime::Runtime;
use crate::tensor::{GpuTensor, computed_in, held_as};
use kiln_tensor::backend::Primitive;
use kiln_tensor::compose::Philox;
use kiln_tensor::{DType, Scalar};

/// Elements that a key drops, and the others times a number.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Dropout {
    /// The elements' dtype.
    pub dtype: DType,
    /// Whether a [salt](Runtime::salt) is mixed into the key.
    pub salted: bool,
}

impl Dropout {
    /// The kernel: an invocation takes the four elements of a [`Philox`] block. Buffers: the salt if there is one, the
    /// elements, the result. Parameters: how many there are, where the first is; the key's words, what a word is below whose element is dropped;
    /// the number.
    pub fn kernel(&self) -> Kernel {
        let storage = held_as(self.dtype);
        Builder::kernel("dropout", [LINE, 1], |k| {
            let salt = salt(k, self.salted);
            let (x, output) = (k.input(storage), k.output(storage));
            let (count, start) = (k.parameter(), k.parameter());
            let key = mixed([k.parameter(), k.parameter()], salt);
            let threshold = k.parameter();
            let scale = k.parameter_of(storage.value());
            let block = k.position(LINE);
            let words = philox(block, key);
            for (place, word) in words.into_iter().enumerate() {
                let at = block * 4_u32 + place as u32;
                k.when(at.below(count), || {
                    let kept = x.at(start + at) * scale;
                    output.set(at, word.below(threshold).select(k.whole(0, kept.ty()), kept));
                });
            }
        })
    }
}

/// Drops elements with a probability, as a key says, and divides the others by that of staying.
pub(crate) fn dropout<R: Runtime>(x: GpuTensor<R>, probability: f64, key: u64) -> GpuTensor<R> {
    if probability <= 0.0 {
        return x;
    }
    let Ok(threshold) = u32::try_from(Philox::threshold(probability)) else {
        return elementwise::full(x.shape(), Scalar::Int(0), x.dtype, &x.device);
    };
    let x = elementwise::contiguous(x).narrowed();
    let out = GpuTensor::empty(x.shape(), x.dtype, &x.device);
    if out.is_empty() {
        return out;
    }
    let mut words = vec![out.len() as u32, x.layout.offset as u32, key as u32, (key >> 32) as u32, threshold];
    words.extend(program::scalar_words(Scalar::Float(1.0 / (1.0 - probability)), computed_in(x.dtype)));
    let groups = line_of::<R>(&x.device, out.len().div_ceil(4));
    let salt = R::salt(&x.device);
    let tensors: Vec<_> = salt.iter().chain([&x, &out]).collect();
    let template = Dropout { dtype: x.dtype, salted: salt.is_some() };
    launch::<R>(&x.device, template, &tensors, &words, groups);
    out
}
