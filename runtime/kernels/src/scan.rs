//! Running reductions along an axis.

use crate::reduce::block_width;
use crate::size::elements;
use crate::threads::{SharedMut, parallel_for};
use alloc::vec::Vec;

/// What of the elements before each counts.
#[derive(Clone, Copy, Debug)]
pub struct ScanOptions {
    /// Whether an element's own value is left out.
    pub exclusive: bool,
    /// Whether the scan begins at the end.
    pub reverse: bool,
}

/// Replaces each element of `x`, `[outer, size, inner]`, by what `reduce` makes of all up to it along `size`, beginning with its `identity`. Running values are
/// numbers of `A`, to and from which elements are converted.
///
/// # Panics
/// When `x` does not have its size.
pub fn scan<T: Copy + Send + Sync, A: Copy + Send + Sync>(
    [outer, size, inner]: [usize; 3],
    options: ScanOptions,
    identity: A,
    reduce: impl Fn(A, A) -> A + Sync,
    (widen, narrow): (impl Fn(T) -> A + Sync, impl Fn(A) -> T + Sync),
    x: &mut [T],
) {
    assert_eq!(x.len(), elements(&[outer, size, inner]), "size of what is scanned");
    if x.is_empty() {
        return;
    }
    let ScanOptions { exclusive, reverse } = options;
    let step = |running: &mut A, x: &mut T| {
        let before = *running;
        *running = reduce(before, widen(*x));
        *x = narrow(if exclusive { before } else { *running });
    };
    let width = block_width(outer, inner);
    let blocks = inner.div_ceil(width);
    let x = SharedMut::new(x);
    parallel_for(outer * blocks, size.saturating_mul(width), |range| {
        let mut running: Vec<A> = Vec::with_capacity(width);
        for piece in range {
            let (outer, first) = (piece / blocks, piece % blocks * width);
            let start = outer * size * inner + first;
            if inner == 1 {
                // SAFETY: the lane belongs to this piece alone.
                let lane = unsafe { x.slice(start..start + size) };
                let mut running = identity;
                match reverse {
                    false => lane.iter_mut().for_each(|x| step(&mut running, x)),
                    true => lane.iter_mut().rev().for_each(|x| step(&mut running, x)),
                }
                continue;
            }
            let columns = width.min(inner - first);
            running.clear();
            running.resize(columns, identity);
            for row in 0..size {
                let row = if reverse { size - 1 - row } else { row };
                let at = start + row * inner;
                // SAFETY: these columns belong to this piece alone.
                let row = unsafe { x.slice(at..at + columns) };
                running.iter_mut().zip(row).for_each(|(running, x)| step(running, x));
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn scans_are_those_of_a_plain_loop() {
        for [outer, size, inner] in [[1, 1, 1], [3, 7, 1], [2, 5, 3], [1, 4, 600], [2, 0, 3], [70, 300, 1]] {
            for (exclusive, reverse) in [(false, false), (true, false), (false, true), (true, true)] {
                let x: Vec<i32> = (0..outer * size * inner).map(|n| (n * 37 % 101) as i32 - 50).collect();
                let mut found = x.clone();
                let options = ScanOptions { exclusive, reverse };
                let convert = (|x: i32| i64::from(x), |x: i64| x as i32);
                scan([outer, size, inner], options, 5, |a, b| a + b, convert, &mut found);
                let mut wanted = vec![0; x.len()];
                for (outer, column) in (0..outer * inner).map(|lane| (lane / inner, lane % inner)) {
                    let mut running = 5;
                    for n in 0..size {
                        let row = if reverse { size - 1 - n } else { n };
                        let at = (outer * size + row) * inner + column;
                        let before = running;
                        running += x[at];
                        wanted[at] = if exclusive { before } else { running };
                    }
                }
                assert_eq!(found, wanted, "{outer} {size} {inner}: {options:?}");
            }
        }
    }
}
