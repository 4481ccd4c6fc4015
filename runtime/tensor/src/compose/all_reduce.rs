//! Sums over devices.

use super::calc::T;
use crate::BinaryOp;
use crate::backend::Backend;
use alloc::vec::Vec;

/// Default of [`Backend::all_reduce`]: the first set's device sums, and the others copy.
pub fn all_reduce<B: Backend>(sets: Vec<Vec<T<B>>>) -> Vec<Vec<T<B>>> {
    let mut sets = sets.into_iter();
    let Some(first) = sets.next() else { return Vec::new() };
    let mut others: Vec<Vec<T<B>>> = sets.collect();
    let devices: Vec<Option<B::Device>> =
        others.iter().map(|set| set.first().map(|tensor| B::device(tensor))).collect();
    let mut sums = first;
    for set in &mut others {
        let added = sums.into_iter().zip(set.drain(..)).map(|(sum, tensor)| {
            let there = B::device(&sum);
            B::binary(BinaryOp::Add, sum, B::to_device(tensor, &there))
        });
        sums = added.collect();
    }
    for (set, device) in others.iter_mut().zip(devices) {
        let Some(device) = device else { continue };
        set.extend(sums.iter().map(|sum| B::to_device(sum.clone(), &device)));
    }
    core::iter::once(sums).chain(others).collect()
}
