//! Random orders.

use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// The seed of a seed's `n`-th use: neighbouring seeds and uses are unrelated.
pub(crate) fn mixed(seed: u64, n: u64) -> u64 {
    // The finalizer of SplitMix64 (Steele et al. 2014), applied to both numbers in turn.
    let finalized = |x: u64| {
        let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    };
    finalized(finalized(seed.wrapping_add(0x9e37_79b9_7f4a_7c15)).wrapping_add(n))
}

/// What random numbers come from: the same ones on every machine and in every version, which the generators of `rand` do not promise.
pub(crate) type Generator = Xoshiro256PlusPlus;

/// The generator of a seed's `n`-th use.
pub(crate) fn generator(seed: u64, n: u64) -> Generator {
    Generator::seed_from_u64(mixed(seed, n))
}

/// A seed that no one chose.
pub(crate) fn fresh_seed() -> u64 {
    rand::random()
}

/// The numbers below `len` in random order.
pub(crate) fn permutation(len: usize, generator: &mut Generator) -> Vec<usize> {
    let mut order: Vec<usize> = (0..len).collect();
    order.shuffle(generator);
    order
}

/// The numbers below `len`, each as often as any other: random orders of them, one after the other.
pub(crate) fn rounds(count: usize, len: usize, generator: &mut Generator) -> Vec<usize> {
    let mut numbers = Vec::with_capacity(count);
    while numbers.len() < count {
        let round = permutation(len, generator);
        numbers.extend(round.into_iter().take(count - numbers.len()));
    }
    numbers
}

/// Random numbers below `len`, which may repeat.
pub(crate) fn draws(count: usize, len: usize, generator: &mut Generator) -> Vec<usize> {
    (0..count).map(|_| generator.random_range(0..len)).collect()
}
