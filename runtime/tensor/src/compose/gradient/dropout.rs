//! Dropout, by random numbers that are computed from a key and a position, so that no mask is kept.

use crate::backend::{Backend, Primitive};
use crate::compose::calc::{T, index_dtype, mul_scalar};
use crate::{Distribution, Philox, Scalar, Shape, TensorData};
use alloc::vec::Vec;

/// Default of [`Backend::dropout`]: a mask computed on the host.
pub fn dropout<B: Backend>(x: T<B>, probability: f64, key: u64) -> T<B> {
    if probability <= 0.0 {
        return x;
    }
    let (shape, threshold) = (x.shape(), Philox::threshold(probability));
    let mut dropped: Vec<bool> = Vec::with_capacity(shape.num_elements());
    Philox::new(key).for_each(shape.num_elements(), |_, word| dropped.push(u64::from(word) < threshold));
    let dropped = B::from_data(TensorData::new(dropped, shape), &B::device(&x));
    let scale = if probability < 1.0 { 1.0 / (1.0 - probability) } else { 0.0 };
    B::mask_fill(mul_scalar::<B>(x, scale), dropped, Scalar::Int(0))
}

/// Default of [`Backend::random_key`]: drawn on the device and read back.
pub fn random_key<B: Backend>(device: &B::Device) -> u64 {
    let halves =
        B::random(Shape::from([4]), Distribution::Uniform(0.0, 65_536.0), index_dtype::<B>(), device);
    let halves = crate::check::ran("random_key", B::into_data(halves));
    halves.iter::<i64>().fold(0, |key, half| key << 16 | (half as u64 & 0xFFFF))
}
