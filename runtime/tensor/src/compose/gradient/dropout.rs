//! Dropout, by random numbers that are computed from a key and a position, so that no mask is kept.

use crate::backend::{Backend, Primitive};
use crate::compose::calc::{T, index_dtype, mul_scalar};
use crate::{Distribution, Scalar, Shape, TensorData};
use alloc::vec::Vec;

/// The counter-based generator Philox 4x32 with 10 rounds (Salmon et al. 2011): four random words for each position.
#[derive(Clone, Copy, Debug)]
pub struct Philox {
    key: [u32; 2],
}

impl Philox {
    /// The generator with a key.
    pub fn new(key: u64) -> Self {
        Self { key: [key as u32, (key >> 32) as u32] }
    }

    /// The words at a position.
    pub fn block(&self, position: u64) -> [u32; 4] {
        self.rounds([position as u32, (position >> 32) as u32, 0, 0])
    }

    fn rounds(&self, mut counter: [u32; 4]) -> [u32; 4] {
        let [mut first, mut second] = self.key;
        for _ in 0..10 {
            let [a, b, c, d] = counter;
            let low = u64::from(a) * 0xD251_1F53;
            let high = u64::from(c) * 0xCD9E_8D57;
            counter =
                [(high >> 32) as u32 ^ b ^ first, high as u32, (low >> 32) as u32 ^ d ^ second, low as u32];
            first = first.wrapping_add(0x9E37_79B9);
            second = second.wrapping_add(0xBB67_AE85);
        }
        counter
    }

    /// Calls `f` with the position and the word of each of `count` elements, in order: element `i` has word `i % 4` of
    /// block `i / 4`.
    pub fn for_each(&self, count: usize, mut f: impl FnMut(usize, u32)) {
        for start in (0..count).step_by(4) {
            let words = self.block((start / 4) as u64);
            (start..count.min(start + 4)).zip(words).for_each(|(at, word)| f(at, word));
        }
    }

    /// What a word must be below for its element to be dropped.
    pub fn threshold(probability: f64) -> u64 {
        (probability.clamp(0.0, 1.0) * (1u64 << 32) as f64) as u64
    }
}

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

#[cfg(test)]
mod tests {
    use super::Philox;

    /// The known answers of Random123, the authors' library.
    #[test]
    fn known_answers() {
        assert_eq!(Philox::new(0).rounds([0; 4]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(
            Philox::new(u64::MAX).rounds([u32::MAX; 4]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        let pi = Philox { key: [0xa409_3822, 0x299f_31d0] };
        assert_eq!(
            pi.rounds([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344]),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn elements_share_blocks() {
        let philox = Philox::new(7);
        let mut words = Vec::new();
        philox.for_each(6, |at, word| words.push((at, word)));
        let (first, second) = (philox.block(0), philox.block(1));
        let expected = [first[0], first[1], first[2], first[3], second[0], second[1]];
        assert_eq!(words, expected.into_iter().enumerate().collect::<Vec<_>>());
        assert_eq!(Philox::threshold(0.5), 1 << 31);
        assert_eq!((Philox::threshold(0.0), Philox::threshold(1.0)), (0, 1 << 32));
    }
}
