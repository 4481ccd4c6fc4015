//! The transforms of Winograd's algorithm: into the places where products are taken, and back.
//!
//! They evaluate polynomials at the points 0, ±√½, ±√2 and ∞, whose powers are near each other: results round half as much as with the
//! usual points 0, ±1, ±2 and ∞, at the same cost.

use super::{SEEN, SIDE};
use crate::simd::{Simd, dispatched};
use core::f64::consts::{FRAC_1_SQRT_2 as NEAR, SQRT_2 as FAR};
use core::ops::Range;

/// Filters that are transformed before they are written: each place gets a whole cache line.
pub(super) const LINE: usize = 16;

dispatched! {
    /// `G g Gᵀ` of up to [`LINE`] filters, `step` apart, to `to[place · place_step + filter]`.
    ///
    /// # Safety
    /// The filters have nine elements, and there is room for the results.
    pub(super) unsafe fn transform_filters<S>(
        _s,
        from: *const f32,
        step: usize,
        count: usize,
        to: *mut f32,
        place_step: usize,
    ) {
        let mut filter = [[0.0f64; LINE]; 9];
        for i in 0..count {
            for element in 0..9 {
                filter[element][i] = f64::from(*from.add(i * step + element));
            }
        }
        let mut columns = [[[0.0f64; LINE]; SEEN]; 3];
        for x in 0..3 {
            columns[x] = expanded([&filter[x], &filter[3 + x], &filter[6 + x]]);
        }
        for y in 0..SEEN {
            let row = expanded([&columns[0][y], &columns[1][y], &columns[2][y]]);
            for x in 0..SEEN {
                let to = to.add((y * SEEN + x) * place_step);
                if count == LINE {
                    (0..LINE).for_each(
                        #[inline(always)]
                        |i| *to.add(i) = row[x][i] as f32,
                    );
                } else {
                    (0..count).for_each(|i| *to.add(i) = row[x][i] as f32);
                }
            }
        }
    }
}

dispatched! {
    /// `G g Gᵀ` of filters `[steps, 3, 3, cols]`, to `to[place · place_step + step · cols + column]`.
    ///
    /// # Safety
    /// There are as many filters and room for the results; columns are a multiple of the machine's lanes.
    pub(super) unsafe fn transform_panel<S>(
        s,
        from: *const f32,
        steps: usize,
        cols: usize,
        to: *mut f32,
        place_step: usize,
    ) {
        for at in (0..steps * cols).step_by(S::LANES) {
            let (step, column) = (at / cols, at % cols);
            let from = from.add(step * 9 * cols + column);
            let mut columns = [[s.splat(0.0); SEEN]; 3];
            for x in 0..3 {
                let tap = |y: usize| s.load(from.add((3 * y + x) * cols));
                columns[x] = filter_transform(s, [tap(0), tap(1), tap(2)]);
            }
            for y in 0..SEEN {
                let row = filter_transform(s, [columns[0][y], columns[1][y], columns[2][y]]);
                for x in 0..SEEN {
                    s.store(to.add((y * SEEN + x) * place_step + at), row[x]);
                }
            }
        }
    }
}

/// A square of pixels.
pub(super) struct Seen {
    /// Rows that lie in the image.
    pub rows: Range<usize>,
    /// Columns that lie in the image.
    pub cols: Range<usize>,
    /// Elements from one row of pixels to the next.
    pub line: usize,
    pub channels: usize,
}

/// How a square's pixels are transformed: from the first one, to places that are so far apart.
pub(super) type TransformPixels = unsafe fn(&Seen, *const f32, *mut f32, usize);

dispatched! {
    /// `Bᵀ d B` for every channel of a square.
    ///
    /// # Safety
    /// Pixels inside, relative to `from`, can be read, `to` has room for the channels at each place.
    pub(super) unsafe fn transform_pixels<S>(s, seen: &Seen, from: *const f32, to: *mut f32, step: usize) {
        pixels_by::<S, Large, SEEN, SIDE>(s, seen, from, to, step);
    }
}

dispatched! {
    /// [`transform_pixels`] of a square of 4x4.
    ///
    /// # Safety
    /// As for [`transform_pixels`].
    pub(super) unsafe fn transform_small_pixels<S>(s, seen: &Seen, from: *const f32, to: *mut f32, step: usize) {
        pixels_by::<S, Small, 4, 2>(s, seen, from, to, step);
    }
}

/// The transforms of a size of squares, of one row or column.
trait Transforms<const SEEN: usize, const SIDE: usize> {
    /// `Bᵀ d`.
    fn seen<S: Simd>(s: S, d: [S::F; SEEN]) -> [S::F; SEEN];
    /// `Aᵀ m`.
    fn sums<S: Simd>(s: S, m: [S::F; SEEN]) -> [S::F; SIDE];
}

/// `Bᵀ d B` for every channel of a square.
///
/// # Safety
/// As for [`transform_pixels`].
#[inline(always)]
unsafe fn pixels_by<S: Simd, T: Transforms<SEEN, SIDE>, const SEEN: usize, const SIDE: usize>(
    s: S,
    seen: &Seen,
    from: *const f32,
    to: *mut f32,
    step: usize,
) {
    let whole = seen.rows == (0..SEEN) && seen.cols == (0..SEEN);
    for c in (0..seen.channels).step_by(S::LANES) {
        let count = S::LANES.min(seen.channels - c);
        let mut half = [[s.splat(0.0); SEEN]; SEEN];
        for y in 0..SEEN {
            let line = from.wrapping_add(y * seen.line + c);
            let mut pixels = [s.splat(0.0); SEEN];
            // SAFETY: the caller's promise.
            unsafe {
                if whole && count == S::LANES {
                    for x in 0..SEEN {
                        pixels[x] = s.load(line.add(x * seen.channels));
                    }
                } else if seen.rows.contains(&y) {
                    for x in 0..SEEN {
                        if seen.cols.contains(&x) {
                            pixels[x] = s.load_up_to(line.wrapping_add(x * seen.channels), count);
                        }
                    }
                }
            }
            half[y] = T::seen(s, pixels);
        }
        for x in 0..SEEN {
            let mut column = [s.splat(0.0); SEEN];
            for y in 0..SEEN {
                column[y] = half[y][x];
            }
            let column = T::seen(s, column);
            for y in 0..SEEN {
                // SAFETY: as above.
                unsafe { s.store_up_to(to.add((y * SEEN + x) * step + c), count, column[y]) };
            }
        }
    }
}

/// A square of results.
pub(super) struct Results<'a> {
    /// Rows that lie in the result.
    pub rows: usize,
    /// Columns that lie in the result.
    pub cols: usize,
    /// Elements from one row of pixels to the next.
    pub line: usize,
    /// Elements from one pixel to the next.
    pub pixel: usize,
    /// Channels that are computed.
    pub channels: usize,
    pub bias: Option<&'a [f32]>,
    /// Whether what was there is added before the bounds.
    pub adds: bool,
    pub low: f32,
    pub high: f32,
}

/// How sums at places that are so far apart are transformed to a square's results.
pub(super) type TransformSums = unsafe fn(&Results<'_>, *const f32, usize, *mut f32);

dispatched! {
    /// `clamp(Aᵀ m A + bias)` for every channel of a square, or `clamp(Aᵀ m A + bias + to)`.
    ///
    /// # Safety
    /// `sums` holds the channels at each place, `to` the results inside.
    pub(super) unsafe fn transform_sums<S>(s, results: &Results<'_>, sums: *const f32, step: usize, to: *mut f32) {
        sums_by::<S, Large, SEEN, SIDE>(s, results, sums, step, to);
    }
}

dispatched! {
    /// [`transform_sums`] to a square of 2x2.
    ///
    /// # Safety
    /// As for [`transform_sums`].
    pub(super) unsafe fn transform_small_sums<S>(s, results: &Results<'_>, sums: *const f32, step: usize, to: *mut f32) {
        sums_by::<S, Small, 4, 2>(s, results, sums, step, to);
    }
}

/// `clamp(Aᵀ m A + bias)` for every channel of a square.
///
/// # Safety
/// As for [`transform_sums`].
#[inline(always)]
unsafe fn sums_by<S: Simd, T: Transforms<SEEN, SIDE>, const SEEN: usize, const SIDE: usize>(
    s: S,
    results: &Results<'_>,
    sums: *const f32,
    step: usize,
    to: *mut f32,
) {
    let (low, high) = (s.splat(results.low), s.splat(results.high));
    for c in (0..results.channels).step_by(S::LANES) {
        let count = S::LANES.min(results.channels - c);
        let mut half = [[s.splat(0.0); SEEN]; SIDE];
        for x in 0..SEEN {
            let mut column = [s.splat(0.0); SEEN];
            for y in 0..SEEN {
                // SAFETY: the caller's promise.
                column[y] = unsafe { s.load_up_to(sums.add((y * SEEN + x) * step + c), count) };
            }
            let column = T::sums(s, column);
            for y in 0..SIDE {
                half[y][x] = column[y];
            }
        }
        // SAFETY: there is a bias for each channel.
        let bias =
            results.bias.map_or(s.splat(0.0), |bias| unsafe { s.load_up_to(bias.as_ptr().add(c), count) });
        for y in 0..SIDE {
            let line = T::sums(s, half[y]);
            for x in 0..SIDE {
                if y < results.rows && x < results.cols {
                    let mut sum = s.add(line[x], bias);
                    // SAFETY: the caller's promise.
                    unsafe {
                        let to = to.add(y * results.line + x * results.pixel + c);
                        if results.adds {
                            sum = s.add(sum, s.load_up_to(to, count));
                        }
                        // The operand order lets NaN through.
                        s.store_up_to(to, count, s.min(high, s.max(low, sum)));
                    }
                }
            }
        }
    }
}

/// `G g` of several filters.
#[inline(always)]
fn expanded([a, b, c]: [&[f64; LINE]; 3]) -> [[f64; LINE]; SEEN] {
    let mut out = [[0.0; LINE]; SEEN];
    for i in 0..LINE {
        let (near_even, near_odd) = (a[i] + c[i] / 2.0, b[i] * NEAR);
        let (far_even, far_odd) = (a[i] + c[i] * 2.0, b[i] * FAR);
        out[0][i] = a[i];
        out[1][i] = (near_even + near_odd) / -1.5;
        out[2][i] = (near_even - near_odd) / -1.5;
        out[3][i] = (far_even + far_odd) / 6.0;
        out[4][i] = (far_even - far_odd) / 6.0;
        out[5][i] = c[i];
    }
    out
}

/// `G g` of vectors of filters.
#[inline(always)]
fn filter_transform<S: Simd>(s: S, [a, b, c]: [S::F; 3]) -> [S::F; SEEN] {
    let (third, sixth) = (s.splat(1.0 / 3.0), s.splat(1.0 / 6.0));
    let near_even = s.sub_product(s.mul(a, s.splat(-2.0 / 3.0)), third, c);
    let near_odd = s.mul(b, s.splat((NEAR / -1.5) as f32));
    let far_even = s.mul_add(third, c, s.mul(a, sixth));
    let far_odd = s.mul(b, s.splat((FAR / 6.0) as f32));
    [
        a,
        s.add(near_even, near_odd),
        s.sub(near_even, near_odd),
        s.add(far_even, far_odd),
        s.sub(far_even, far_odd),
        c,
    ]
}

/// Squares of 4x4 results.
struct Large;

impl Transforms<SEEN, SIDE> for Large {
    #[inline(always)]
    fn seen<S: Simd>(s: S, d: [S::F; SEEN]) -> [S::F; SEEN] {
        let (half, two, middle) = (s.splat(0.5), s.splat(2.0), s.splat(2.5));
        let (near, far) = (s.splat(NEAR as f32), s.splat(FAR as f32));
        let (near_even, near_odd) = (s.sub_product(d[4], two, d[2]), s.sub_product(d[3], two, d[1]));
        let (far_even, far_odd) = (s.sub_product(d[4], half, d[2]), s.sub_product(d[3], half, d[1]));
        [
            s.add(d[0], s.sub_product(d[4], middle, d[2])),
            s.mul_add(near, near_odd, near_even),
            s.sub_product(near_even, near, near_odd),
            s.mul_add(far, far_odd, far_even),
            s.sub_product(far_even, far, far_odd),
            s.add(d[1], s.sub_product(d[5], middle, d[3])),
        ]
    }

    #[inline(always)]
    fn sums<S: Simd>(s: S, m: [S::F; SEEN]) -> [S::F; SIDE] {
        let (near, far) = (s.splat(NEAR as f32), s.splat(FAR as f32));
        let (half, two) = (s.splat(0.5), s.splat(2.0));
        let (near_even, near_odd) = (s.add(m[1], m[2]), s.mul(near, s.sub(m[1], m[2])));
        let (far_even, far_odd) = (s.add(m[3], m[4]), s.mul(far, s.sub(m[3], m[4])));
        [
            s.add(m[0], s.add(near_even, far_even)),
            s.add(near_odd, far_odd),
            s.mul_add(two, far_even, s.mul(half, near_even)),
            s.add(s.mul_add(two, far_odd, s.mul(half, near_odd)), m[5]),
        ]
    }
}

/// `G g` of several filters for squares of 2x2, at the points 0, ±1 and ∞.
pub(super) fn small_filter_transform<const N: usize>([a, b, c]: [&[f32; N]; 3]) -> [[f32; N]; 4] {
    let mut out = [*a, [0.0; N], [0.0; N], *c];
    for i in 0..N {
        let (even, odd) = ((a[i] + c[i]) / 2.0, b[i] / 2.0);
        out[1][i] = even + odd;
        out[2][i] = even - odd;
    }
    out
}

/// Squares of 2x2 results.
struct Small;

impl Transforms<4, 2> for Small {
    #[inline(always)]
    fn seen<S: Simd>(s: S, d: [S::F; 4]) -> [S::F; 4] {
        [s.sub(d[0], d[2]), s.add(d[1], d[2]), s.sub(d[2], d[1]), s.sub(d[3], d[1])]
    }

    #[inline(always)]
    fn sums<S: Simd>(s: S, m: [S::F; 4]) -> [S::F; 2] {
        [s.add(m[0], s.add(m[1], m[2])), s.add(s.sub(m[1], m[2]), m[3])]
    }
}
