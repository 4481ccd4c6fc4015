//! Dropout: which elements are dropped is computed where they are.

use super::{LINE, elementwise, launch, line_of, program};
use crate::language::{Builder, Kernel, Type, Value};
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
}

impl Dropout {
    /// The kernel: an invocation takes the four elements of a [`Philox`] block. Buffers: the elements, the result. Parameters: how many
    /// there are, where the first is; the key's words, what a word is below whose element is dropped; the number.
    pub fn kernel(&self) -> Kernel {
        let storage = held_as(self.dtype);
        Builder::kernel("dropout", [LINE, 1], |k| {
            let (x, output) = (k.input(storage), k.output(storage));
            let (count, start) = (k.parameter(), k.parameter());
            let (key, threshold) = ([k.parameter(), k.parameter()], k.parameter());
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

/// The words of a block of [`Philox`], whose number has 32 bits.
fn philox<'k>(block: Value<'k>, [mut first, mut second]: [Value<'k>; 2]) -> [Value<'k>; 4] {
    let product = |word: Value<'k>, factor: u64| {
        let product = word.to(Type::U64) * factor;
        [(product >> 32_u32).to(Type::U32), product.to(Type::U32)]
    };
    let zero = block.kernel().value(0_u32);
    let mut counter = [block, zero, zero, zero];
    for _ in 0..10 {
        let [a, b, c, d] = counter;
        let [low_carry, low] = product(a, 0xD251_1F53);
        let [high_carry, high] = product(c, 0xCD9E_8D57);
        counter = [high_carry ^ b ^ first, high, low_carry ^ d ^ second, low];
        (first, second) = (first + 0x9E37_79B9_u32, second + 0xBB67_AE85_u32);
    }
    counter
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
    launch::<R>(&x.device, Dropout { dtype: x.dtype }, &[&x, &out], &words, groups);
    out
}
