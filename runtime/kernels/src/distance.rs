//! Squared Euclidean distances between the rows of two matrices.
//!
//! Differences are squared as they are. `|x|² + |y|² - 2 x·y` would be a product of matrices, and lose what is small beside the rows' lengths.

use crate::scratch::with_scratch;
use crate::simd::dispatched;
use crate::size::elements;
use crate::threads::{SharedMut, parallel_for};

/// Rows of `x` that a tile has: with two vectors of `y`, 12 sums stay in registers.
const ROWS: usize = 6;

/// Rows of `x` that meet one panel after another, and so come from the first-level cache.
const BLOCK: usize = 8 * ROWS;

/// Panels of `y` that a piece of the work has at most.
const PANELS: usize = 16;

/// Fewer rows read `y` as it lies: to turn it takes as long as a few of them.
const FEW: usize = 8;

/// The sums `Σ (x - y)²` of each row of `x`, `[rows, size]`, and each of `y`, `[columns, size]`, into `out`, `[rows, columns]`.
///
/// # Panics
/// When a slice does not have its size.
pub fn squared_distances([rows, columns, size]: [usize; 3], x: &[f32], y: &[f32], out: &mut [f32]) {
    assert_eq!(x.len(), elements(&[rows, size]), "the size of {rows} rows of {size}");
    assert_eq!(y.len(), elements(&[columns, size]), "the size of {columns} rows of {size}");
    assert_eq!(out.len(), elements(&[rows, columns]), "a distance for each pair of rows");
    if out.is_empty() {
        return;
    }
    if rows < FEW || size == 0 {
        return few(columns, size, x, y, out);
    }
    // SAFETY: none is needed.
    let width = unsafe { panel_width() };
    let panels = columns.div_ceil(width);
    with_scratch(panels * size * width, |turned| {
        {
            let turned = SharedMut::new(&mut *turned);
            parallel_for(panels, size * width, |range| {
                for panel in range {
                    // SAFETY: each panel is written once.
                    let panel_of = unsafe { turned.slice(panel * size * width..(panel + 1) * size * width) };
                    turn(&y[panel * width * size..columns.min((panel + 1) * width) * size], size, panel_of);
                }
            });
        }
        let turned = &*turned;
        let out = SharedMut::new(out);
        let (blocks, groups) = (rows.div_ceil(BLOCK), panels.div_ceil(PANELS));
        let work = BLOCK.min(rows) * PANELS.min(panels) * width * size / 16;
        parallel_for(blocks * groups, work, |range| {
            for piece in range {
                let (block, group) = (piece / groups, piece % groups);
                for panel in group * PANELS..panels.min((group + 1) * PANELS) {
                    let place = panel * width;
                    let count = width.min(columns - place);
                    for row in (block * BLOCK..rows.min((block + 1) * BLOCK)).step_by(ROWS) {
                        let height = ROWS.min(rows - row);
                        let x = &x[row * size..(row + height) * size];
                        let panel = &turned[panel * size * width..][..size * width];
                        // SAFETY: `x` has `height` rows, the panel `size` lines; the tile lies inside of `out`, and no other piece writes to it.
                        unsafe {
                            tile(x, height, size, panel, out.ptr(row * columns + place), columns, count);
                        }
                    }
                }
            }
        });
    });
}

/// Up to a panel's rows of `y`, `[rows, size]`, as its columns; the last are 0 where there are too few rows.
fn turn(y: &[f32], size: usize, panel: &mut [f32]) {
    let width = panel.len() / size;
    for (at, line) in panel.chunks_exact_mut(width).enumerate() {
        let rows = y.chunks_exact(size);
        line[rows.len()..].fill(0.0);
        line.iter_mut().zip(rows).for_each(|(number, row)| *number = row[at]);
    }
}

/// Distances of few rows: each pair's sum is one of vectors.
fn few(columns: usize, size: usize, x: &[f32], y: &[f32], out: &mut [f32]) {
    let shared = SharedMut::new(out);
    let len = shared.len();
    parallel_for(len, size / 8 + 4, |range| {
        for place in range {
            let (row, column) = (place / columns, place % columns);
            let (a, b) = (&x[row * size..][..size], &y[column * size..][..size]);
            // SAFETY: both rows have `size` elements, and each place is written once.
            unsafe { *shared.ptr(place) = distance(a, b) };
        }
    });
}

dispatched! {
    /// Columns of a panel: two vectors.
    ///
    /// # Safety
    /// None.
    unsafe fn panel_width<S>(_s) -> usize {
        2 * S::LANES
    }
}

dispatched! {
    /// `Σ (a - b)²`.
    ///
    /// # Safety
    /// The slices have as many elements.
    unsafe fn distance<S>(s, a: &[f32], b: &[f32]) -> f32 {
        let mut sum = s.splat(0.0);
        for i in (0..a.len()).step_by(S::LANES) {
            let count = S::LANES.min(a.len() - i);
            let difference =
                s.sub(s.load_up_to(a.as_ptr().add(i), count), s.load_up_to(b.as_ptr().add(i), count));
            sum = s.mul_add(difference, difference, sum);
        }
        s.sum(sum)
    }
}

dispatched! {
    /// Distances of up to [`ROWS`] rows of `size` elements from the first `count` columns of a panel, to rows that lie `step` apart.
    ///
    /// # Safety
    /// `x` has `height` rows, at least one; the panel has `size` lines of two vectors; `out` is valid for writing `height` rows of `count`.
    unsafe fn tile<S>(
        s,
        x: &[f32],
        height: usize,
        size: usize,
        panel: &[f32],
        out: *mut f32,
        step: usize,
        count: usize,
    ) {
        // Rows that there are not are the last one again.
        let mut rows = [x.as_ptr(); ROWS];
        for (n, row) in rows.iter_mut().enumerate() {
            *row = row.add(n.min(height - 1) * size);
        }
        let mut sums = [[s.splat(0.0); 2]; ROWS];
        let mut line = panel.as_ptr();
        for at in 0..size {
            let y = [s.load(line), s.load(line.add(S::LANES))];
            for n in 0..ROWS {
                let x = s.splat(*rows[n].add(at));
                for half in 0..2 {
                    let difference = s.sub(x, y[half]);
                    sums[n][half] = s.mul_add(difference, difference, sums[n][half]);
                }
            }
            line = line.add(2 * S::LANES);
        }
        for n in 0..height {
            let to = out.add(n * step);
            s.store_up_to(to, count.min(S::LANES), sums[n][0]);
            if count > S::LANES {
                s.store_up_to(to.add(S::LANES), count - S::LANES, sums[n][1]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::forced::at_each_level;
    use alloc::vec;
    use alloc::vec::Vec;

    fn numbers(count: usize, seed: usize) -> Vec<f32> {
        (0..count).map(|i| ((i * 37 + seed * 11) % 101) as f32 / 16.0 - 3.0).collect()
    }

    /// Beside a plain loop: numbers whose sums are exact.
    #[test]
    fn distances_are_those_of_a_plain_loop() {
        at_each_level(|level| {
            for rows in [1, 5, 8, 13, 50] {
                for columns in [1, 7, 16, 33, 600] {
                    for size in [1, 2, 17, 40] {
                        let (x, y) = (numbers(rows * size, 1), numbers(columns * size, 2));
                        let mut out = vec![f32::NAN; rows * columns];
                        squared_distances([rows, columns, size], &x, &y, &mut out);
                        for (place, &distance) in out.iter().enumerate() {
                            let (row, column) = (place / columns, place % columns);
                            let pairs = x[row * size..][..size].iter().zip(&y[column * size..][..size]);
                            let wanted: f32 = pairs.map(|(a, b)| (a - b) * (a - b)).sum();
                            assert_eq!(distance, wanted, "{level:?}: {rows} x {columns} x {size} at {place}");
                        }
                    }
                }
            }
        });
    }

    #[test]
    fn rows_of_nothing_are_in_one_place() {
        let mut out = [f32::NAN; 20];
        squared_distances([10, 2, 0], &[], &[], &mut out);
        assert_eq!(out, [0.0; 20]);
        squared_distances([0, 3, 5], &[], &[0.0; 15], &mut []);
        squared_distances([3, 0, 5], &[0.0; 15], &[], &mut []);
    }

    #[test]
    fn what_is_far_away_keeps_its_small_distances() {
        let x: Vec<f32> = (0..10).map(|i| 4096.0 + i as f32 / 64.0).collect();
        let mut out = [0.0; 100];
        squared_distances([10, 10, 1], &x, &x, &mut out);
        assert_eq!((out[0], out[1], out[2]), (0.0, 1.0 / 4096.0, 4.0 / 4096.0));
    }
}
