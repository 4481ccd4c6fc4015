//! Sorting, and the first of what would be sorted, by integers that order as the elements do.

use crate::size::elements;
use crate::threads::{SharedMut, parallel_for};
use alloc::vec::Vec;

/// An integer that orders as an element does.
pub trait Key: Copy + Ord + Default + Send + Sync {
    /// A key and its position as one integer: no two are equal, so that an unstable sort is stable.
    type Entry: Copy + Ord;

    /// The first `size` positions fit into an entry.
    fn fits(size: usize) -> bool;
    /// A key with its position.
    fn at(self, position: usize) -> Self::Entry;
    /// The position of an entry.
    fn position(entry: Self::Entry) -> usize;
    /// The key of an entry.
    fn of(entry: Self::Entry) -> Self;
}

impl Key for u32 {
    type Entry = u64;

    fn fits(size: usize) -> bool {
        u32::try_from(size).is_ok()
    }

    fn at(self, position: usize) -> u64 {
        u64::from(self) << 32 | position as u64
    }

    fn position(entry: u64) -> usize {
        entry as u32 as usize
    }

    fn of(entry: u64) -> u32 {
        (entry >> 32) as u32
    }
}

impl Key for u64 {
    type Entry = u128;

    fn fits(_: usize) -> bool {
        true
    }

    fn at(self, position: usize) -> u128 {
        u128::from(self) << 64 | position as u128
    }

    fn position(entry: u128) -> usize {
        entry as u64 as usize
    }

    fn of(entry: u128) -> u64 {
        (entry >> 64) as u64
    }
}

/// Keys that are compared with the bound together.
const CHUNK: usize = 16;

/// The positions of the `keep` first of each lane's sorted keys, of equal ones the first; lanes are `[outer, size, inner]`, `positions` are
/// `[outer, keep, inner]`. `keys` writes the keys of the lane at an outer and an inner index.
///
/// # Panics
/// When `keep` is more than a lane has, `positions` do not have their size, or positions do not fit into the entries of `K` ([`Key::fits`]).
pub fn first_positions<K: Key>(
    [outer, size, inner]: [usize; 3],
    keep: usize,
    keys: &(dyn Fn([usize; 2], &mut [K]) + Sync),
    positions: &mut [i64],
) {
    assert!(keep <= size, "the first {keep} of {size}");
    assert_eq!(positions.len(), elements(&[outer, keep, inner]), "a position for each that is kept");
    assert!(K::fits(size), "{size} positions do not fit into an entry");
    if positions.is_empty() {
        return;
    }
    let positions = SharedMut::new(positions);
    // About what a comparison costs, for each level of a sort.
    let work = size.saturating_add(keep.saturating_mul(keep.ilog2() as usize + 1).saturating_mul(2));
    parallel_for(outer * inner, work, |range| {
        let mut lane = alloc::vec![K::default(); size];
        let mut entries: Vec<K::Entry> = Vec::new();
        for at in range {
            let (outer, inner_at) = (at / inner, at % inner);
            keys([outer, inner_at], &mut lane);
            first(&lane, keep, &mut entries);
            for (n, &entry) in entries.iter().enumerate() {
                // SAFETY: the place lies inside, and belongs to this lane alone.
                unsafe { *positions.ptr((outer * keep + n) * inner + inner_at) = K::position(entry) as i64 };
            }
        }
    });
}

/// The `keep` first entries of a lane, at least one, sorted.
fn first<K: Key>(lane: &[K], keep: usize, entries: &mut Vec<K::Entry>) {
    entries.clear();
    let most = (2 * keep).max(64);
    if most > lane.len() / 2 {
        entries.extend(lane.iter().zip(0..).map(|(key, position)| key.at(position)));
    } else {
        // Who is not below the last of those that are kept so far is none of the first: most keys are only compared.
        let mut bound = None;
        for (chunk, keys) in lane.chunks(CHUNK).enumerate() {
            if bound.is_some_and(|bound| !keys.iter().fold(false, |below, key| below | (*key < bound))) {
                continue;
            }
            for (n, &key) in keys.iter().enumerate() {
                if bound.is_none_or(|bound| key < bound) {
                    entries.push(key.at(chunk * CHUNK + n));
                }
            }
            if entries.len() + CHUNK > most {
                bound = Some(keep_first::<K>(entries, keep));
            }
        }
    }
    if entries.len() > keep {
        keep_first::<K>(entries, keep);
    }
    entries.sort_unstable();
}

/// Drops all but the first; the key of the last that stays.
fn keep_first<K: Key>(entries: &mut Vec<K::Entry>, keep: usize) -> K {
    let (_, &mut last, _) = entries.select_nth_unstable(keep - 1);
    entries.truncate(keep);
    K::of(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn sorted<K: Key>(lane: &[K], keep: usize) -> Vec<i64> {
        let mut order: Vec<usize> = (0..lane.len()).collect();
        order.sort_by_key(|&at| lane[at]);
        order[..keep].iter().map(|&at| at as i64).collect()
    }

    /// Ascending, descending, random and equal keys, of lanes that are strided, however many are kept.
    fn positions_are_those_of_a_stable_sort<K: Key + From<u32>>() {
        for size in [1, 2, 63, 300, 5000] {
            for (name, key) in [
                ("ascending", (|at: usize| at as u32) as fn(usize) -> u32),
                ("descending", |at| u32::MAX - at as u32),
                ("random", |at| (at as u32).wrapping_mul(2_654_435_761)),
                ("few", |at| (at as u32).wrapping_mul(2_654_435_761) >> 29),
                ("equal", |_| 7),
            ] {
                for keep in [0, 1, 5, 33, size / 2, size - 1, size].into_iter().filter(|&keep| keep <= size) {
                    let inner = 3;
                    let of = |[outer, inner]: [usize; 2], keys: &mut [K]| {
                        keys.iter_mut()
                            .enumerate()
                            .for_each(|(at, to)| *to = key(at + 7 * outer + inner).into());
                    };
                    let mut found = vec![-1; 2 * keep * inner];
                    first_positions([2, size, inner], keep, &of, &mut found);
                    for (outer, lane) in (0..2 * inner).map(|at| (at / inner, at % inner)) {
                        let mut keys = vec![K::default(); size];
                        of([outer, lane], &mut keys);
                        let own: Vec<i64> =
                            (0..keep).map(|n| found[(outer * keep + n) * inner + lane]).collect();
                        assert_eq!(own, sorted(&keys, keep), "{keep} of {size} {name}");
                    }
                }
            }
        }
    }

    #[test]
    fn short_keys() {
        positions_are_those_of_a_stable_sort::<u32>();
    }

    #[test]
    fn long_keys() {
        positions_are_those_of_a_stable_sort::<u64>();
    }
}
