//! Random numbers of a training: they follow from one seed, the epoch and the step, so that a training that was stopped goes
//! on with those that it would have had.

use kiln_core::Tensor;
use kiln_core::tensor::Distribution;
use kiln_core::tensor::backend::Backend;

/// The finalizer of SplitMix64 (Steele et al. 2014).
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A seed drawn from the device's random numbers: the same after the same `B::seed`.
pub(crate) fn draw_seed<B: Backend>(device: &B::Device) -> u64 {
    let drawn = Tensor::<B, 1>::random([4], Distribution::Uniform(0.0, 1.0), device).into_data();
    drawn.iter::<f64>().fold(0, |seed, number| mix(seed ^ number.to_bits()))
}

/// What a device is seeded with for a step.
///
/// `stream` tells apart what runs in the same step: a device's shard of the batches, or validation.
pub(crate) fn step_seed(seed: u64, epoch: usize, step: usize, stream: usize) -> u64 {
    [epoch, step, stream].into_iter().fold(mix(seed), |seed, part| mix(seed ^ part as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_ndarray::NdArray;

    #[test]
    fn every_step_has_its_own_numbers() {
        let seeds: std::collections::HashSet<u64> = (0..2)
            .flat_map(|seed| (1..5).map(move |epoch| (seed, epoch)))
            .flat_map(|(seed, epoch)| (1..50).map(move |step| (seed, epoch, step)))
            .flat_map(|(seed, epoch, step)| (0..3).map(move |stream| step_seed(seed, epoch, step, stream)))
            .collect();
        assert_eq!(seeds.len(), 2 * 4 * 49 * 3);
        let device = Default::default();
        let drawn = |seed| {
            NdArray::<f32>::seed(&device, seed);
            draw_seed::<NdArray>(&device)
        };
        assert_eq!(drawn(7), drawn(7));
        assert_ne!(drawn(7), drawn(8));
    }
}
