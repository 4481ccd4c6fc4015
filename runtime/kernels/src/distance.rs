//! Squared Euclidean distances between the rows of two matrices.
//!
//! Differences are squared as they are. `|x|² + |y|² - 2 x·y` would be a product of matrices, and lose what is small beside the rows' lengths.

use crate::scratch::with_scratch;
use crate::simd::dispatched;
use crate::size::elements;
use crate::threads::{SharedMut, parallel_chunks, parallel_for, sharing};
use core::ops::Range;

/// Rows of `x` that a tile has: with two vectors of `y`, 12 sums stay in registers.
const ROWS: usize = 6;

/// Rows of `x` that meet one panel after another, and so come from the first-level cache.
const BLOCK: usize = 8 * ROWS;

/// Panels of `y` that a piece of the work has at most.
const PANELS: usize = 16;

/// Fewer rows on either side are read as they lie: to transpose `y` takes as long as a few of them.
const FEW: usize = 8;

/// Numbers whose squares are added up in one go; the sums of such stretches are then added in f64, which keeps rounding errors small.
const STRETCH: usize = 256;

/// Columns of a panel of the widest vectors.
const MOST_WIDTH: usize = 32;

/// The sums `Σ (x - y)²` of each row of `x`, `[count, rows, size]`, and each of `y`, `[count, columns, size]`, into `out`, `[count, rows, columns]`.
///
/// # Panics
/// When a slice does not have its size.
pub fn squared_distances([count, rows, columns, size]: [usize; 4], x: &[f32], y: &[f32], out: &mut [f32]) {
    assert_eq!(x.len(), elements(&[count, rows, size]), "the size of {count} times {rows} rows of {size}");
    assert_eq!(
        y.len(),
        elements(&[count, columns, size]),
        "the size of {count} times {columns} rows of {size}"
    );
    assert_eq!(out.len(), elements(&[count, rows, columns]), "a distance for each pair of rows");
    if out.is_empty() {
        return;
    }
    let each = rows * columns;
    let pair =
        |at: usize| (&x[at * rows * size..][..rows * size], &y[at * columns * size..][..columns * size]);
    if count < 2 * sharing() {
        for (at, out) in out.chunks_exact_mut(each).enumerate() {
            let (x, y) = pair(at);
            of_pair([rows, columns, size], x, y, out);
        }
        return;
    }
    parallel_chunks(out, each, each.saturating_mul(size / 8 + 1), |at, out| {
        let (x, y) = pair(at);
        of_pair([rows, columns, size], x, y, out);
    });
}

/// [`squared_distances`] of one pair of matrices.
fn of_pair([rows, columns, size]: [usize; 3], x: &[f32], y: &[f32], out: &mut [f32]) {
    if rows < FEW || columns < FEW || size == 0 {
        return few(columns, size, x, y, out);
    }
    // SAFETY: none is needed.
    let width = unsafe { panel_width() };
    let panels = columns.div_ceil(width);
    with_scratch(elements(&[panels, size, width]), |transposed| {
        {
            let transposed = SharedMut::new(&mut *transposed);
            parallel_for(panels, size * width, |range| {
                for panel in range {
                    // SAFETY: each panel is written once.
                    let panel_of =
                        unsafe { transposed.slice(panel * size * width..(panel + 1) * size * width) };
                    transpose(
                        &y[panel * width * size..columns.min((panel + 1) * width) * size],
                        size,
                        panel_of,
                    );
                }
            });
        }
        let transposed = &*transposed;
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
                        let panel = &transposed[panel * size * width..][..size * width];
                        let place = row * columns + place;
                        if size <= STRETCH {
                            // SAFETY: `x` has `height` rows, the panel `size` lines; the tile lies inside of `out`, and no other piece writes to it.
                            unsafe { tile(x, height, size, 0..size, panel, out.ptr(place), columns, count) };
                            continue;
                        }
                        let (mut sums, mut totals) = ([0.0; ROWS * MOST_WIDTH], [0.0; ROWS * MOST_WIDTH]);
                        for first in (0..size).step_by(STRETCH) {
                            let steps = first..size.min(first + STRETCH);
                            // SAFETY: as above; the sums have a place for each element of a tile.
                            unsafe {
                                tile(x, height, size, steps, panel, sums.as_mut_ptr(), MOST_WIDTH, count)
                            };
                            totals.iter_mut().zip(&sums).for_each(|(total, sum)| *total += f64::from(*sum));
                        }
                        for (at, totals) in totals.chunks_exact(MOST_WIDTH).take(height).enumerate() {
                            let first = place + at * columns;
                            // SAFETY: as above.
                            let to = unsafe { out.slice(first..first + count) };
                            to.iter_mut().zip(totals).for_each(|(to, total)| *to = *total as f32);
                        }
                    }
                }
            }
        });
    });
}

/// Up to a panel's rows of `y`, `[rows, size]`, as its columns; the last are 0 where there are too few rows.
fn transpose(y: &[f32], size: usize, panel: &mut [f32]) {
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
            let stretches = a.chunks(STRETCH * 4).zip(b.chunks(STRETCH * 4));
            // SAFETY: both stretches have as many elements.
            let sum: f64 = stretches.map(|(a, b)| f64::from(unsafe { distance(a, b) })).sum();
            // SAFETY: each place is written once.
            unsafe { *shared.ptr(place) = sum as f32 };
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
    /// What some steps make of the distances of up to [`ROWS`] rows of `size` elements from the first `count` columns of a panel, to rows that lie `row_step`
    /// apart.
    ///
    /// # Safety
    /// `x` has `height` rows, at least one; the panel has `size` lines of two vectors, of which the steps are some; `out` is valid for `height` rows of `count`.
    unsafe fn tile<S>(
        s,
        x: &[f32],
        height: usize,
        size: usize,
        steps: Range<usize>,
        panel: &[f32],
        out: *mut f32,
        row_step: usize,
        count: usize,
    ) {
        // Rows that there are not are the last one again.
        let mut rows = [x.as_ptr(); ROWS];
        for (n, row) in rows.iter_mut().enumerate() {
            *row = row.add(n.min(height - 1) * size);
        }
        let mut sums = [[s.splat(0.0); 2]; ROWS];
        let mut line = panel.as_ptr().add(steps.start * 2 * S::LANES);
        for at in steps {
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
            let to = out.add(n * row_step);
            let counts = [count.min(S::LANES), count.saturating_sub(S::LANES)];
            for half in 0..2 {
                let to = to.wrapping_add(half * S::LANES);
                s.store_up_to(to, counts[half], sums[n][half]);
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
        let test = |level: &str| {
            for rows in [1, 5, 8, 13, 50] {
                for columns in [1, 7, 16, 33, 600] {
                    for (count, size) in [(1, 1), (1, 2), (30, 17), (1, 40), (2, 600)] {
                        let (x, y) = (numbers(count * rows * size, 1), numbers(count * columns * size, 2));
                        let mut out = vec![f32::NAN; count * rows * columns];
                        squared_distances([count, rows, columns, size], &x, &y, &mut out);
                        for (place, &distance) in out.iter().enumerate() {
                            let (row, column) =
                                (place / columns, place / (rows * columns) * columns + place % columns);
                            let pairs = x[row * size..][..size].iter().zip(&y[column * size..][..size]);
                            let wanted: f32 = pairs.map(|(a, b)| (a - b) * (a - b)).sum();
                            assert_eq!(distance, wanted, "{level}: {rows} x {columns} x {size} at {place}");
                        }
                    }
                }
            }
        };
        test("on all threads");
        at_each_level(|level| test(&alloc::format!("{level:?}")));
    }

    #[test]
    fn long_rows_stay_accurate() {
        let size = 1 << 20;
        let x = vec![0.1; 10 * size];
        let y = vec![0.0; 10 * size];
        let wanted = f64::from(0.1f32).powi(2) * size as f64;
        for rows in [2, 10] {
            let mut out = vec![0.0; rows * 10];
            squared_distances([1, rows, 10, size], &x[..rows * size], &y, &mut out);
            let error = (f64::from(out[0]) - wanted).abs() / wanted;
            assert!(error < 2e-5, "{rows} rows: {error}");
        }
    }

    #[test]
    fn rows_of_nothing_are_in_one_place() {
        let mut out = [f32::NAN; 20];
        squared_distances([1, 10, 2, 0], &[], &[], &mut out);
        assert_eq!(out, [0.0; 20]);
        squared_distances([1, 0, 3, 5], &[], &[0.0; 15], &mut []);
        squared_distances([1, 3, 0, 5], &[0.0; 15], &[], &mut []);
    }

    #[test]
    fn what_is_far_away_keeps_its_small_distances() {
        let x: Vec<f32> = (0..10).map(|i| 4096.0 + i as f32 / 64.0).collect();
        let mut out = [0.0; 100];
        squared_distances([1, 10, 10, 1], &x, &x, &mut out);
        assert_eq!((out[0], out[1], out[2]), (0.0, 1.0 / 4096.0, 4.0 / 4096.0));
    }
}
