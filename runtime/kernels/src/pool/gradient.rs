//! Gradients of pooling, images with their channels last: vectors of channels.

use super::{PoolShape, with_counts};
use crate::simd::dispatched;
use crate::threads::{SharedMut, parallel_for};
use alloc::vec::Vec;
use kiln_types::PoolOp;

/// What flows back through a pooling.
#[derive(Clone, Copy, Debug)]
pub enum PoolGradient<'a> {
    /// Of a maximum: all of it to the first element that is the maximum, or to the first NaN if that is what it was.
    Max {
        /// What was pooled.
        x: &'a [f32],
        /// The maxima.
        output: &'a [f32],
    },
    /// Of an average: the same to all its elements.
    Average {
        /// Whether padding was counted.
        include_pad: bool,
    },
    /// Of the norm `y = (Σ |x|^p)^(1/p)`: `sign(x) (|x| / y)^(p-1)` of it, and nothing where all are 0.
    Lp {
        /// The norm's order.
        p: u32,
        /// What was pooled.
        x: &'a [f32],
        /// The norms.
        output: &'a [f32],
    },
}

/// Channels that one job walks all windows of an image for.
const STRIP: usize = 64;

/// The gradient `out` of what was pooled, from the result's; `[batch, spatial…, channels]`, all of them.
///
/// # Panics
/// When a slice does not have the shape's size.
pub fn pool_gradient_channels_last(
    shape: &PoolShape,
    what: PoolGradient<'_>,
    gradient: &[f32],
    out: &mut [f32],
) {
    shape.check(out.len(), gradient.len());
    match what {
        PoolGradient::Max { x, output } | PoolGradient::Lp { x, output, .. } => {
            shape.check(x.len(), output.len())
        }
        PoolGradient::Average { .. } => {}
    }
    out.fill(0.0);
    if out.is_empty() || gradient.is_empty() {
        return;
    }
    let op = match what {
        // Neither counts.
        PoolGradient::Max { .. } | PoolGradient::Lp { .. } => PoolOp::Max,
        PoolGradient::Average { include_pad } => PoolOp::Average { include_pad },
    };
    with_counts(op, &shape.windows, |counts| add_gradients(shape, what, counts, gradient, out));
}

/// [`pool_gradient_channels_last`] into zeros; the operands have their sizes.
fn add_gradients(
    shape: &PoolShape,
    what: PoolGradient<'_>,
    counts: Option<[&[f32]; 3]>,
    gradient: &[f32],
    out: &mut [f32],
) {
    let (w, channels) = (&shape.windows, shape.channels);
    let strips = channels.div_ceil(STRIP);
    let work = w.output_len() * w.kernel_len() * STRIP.min(channels) / 8 + 10;
    let out = SharedMut::new(out);
    parallel_for(shape.batch * strips, work, |range| {
        let mut taps = Vec::with_capacity(w.kernel_len());
        for (image, first) in range.map(|i| (i / strips, i % strips * STRIP)) {
            let len = STRIP.min(channels - first);
            for window in 0..w.output_len() {
                let [oz, oy, ox] = [
                    window / (w.output[1] * w.output[2]),
                    window / w.output[2] % w.output[1],
                    window % w.output[2],
                ];
                taps.clear();
                for z in (0..w.kernel[0]).filter_map(|k| w.position(0, oz, k)) {
                    for y in (0..w.kernel[1]).filter_map(|k| w.position(1, oy, k)) {
                        for x in (0..w.kernel[2]).filter_map(|k| w.position(2, ox, k)) {
                            let pixel = ((image * w.input[0] + z) * w.input[1] + y) * w.input[2] + x;
                            taps.push(pixel * channels + first);
                        }
                    }
                }
                let at = (image * w.output_len() + window) * channels + first;
                // SAFETY: windows and pixels lie inside, and each image and strip is one job's own.
                unsafe {
                    let g = gradient.as_ptr().add(at);
                    match (what, counts) {
                        (PoolGradient::Max { x, output }, _) => {
                            to_maximum(x.as_ptr(), output.as_ptr().add(at), g, &taps, len, out.ptr(0));
                        }
                        (PoolGradient::Lp { p, x, output }, _) => {
                            by_share(p, x.as_ptr(), output.as_ptr().add(at), g, &taps, len, out.ptr(0));
                        }
                        (PoolGradient::Average { .. }, Some([depths, heights, widths])) => {
                            to_all(g, depths[oz] * heights[oy] * widths[ox], &taps, len, out.ptr(0));
                        }
                        (PoolGradient::Average { .. }, None) => unreachable!("averages have counts"),
                    }
                }
            }
        }
    });
}

dispatched! {
    /// Adds `g` to the first of `taps` whose element is the maximum `y`, for each of `len` channels.
    ///
    /// # Safety
    /// The taps are positions of `len` elements of `x` and `out`; `y` and `g` have as many.
    unsafe fn to_maximum<S>(s, x: *const f32, y: *const f32, g: *const f32, taps: &[usize], len: usize, out: *mut f32) {
        let zero = s.splat(0.0);
        for c in (0..len).step_by(S::LANES) {
            let lanes = S::LANES.min(len - c);
            let max = s.load_up_to(y.add(c), lanes);
            let mut left = s.load_up_to(g.add(c), lanes);
            if s.any(s.lt(zero, s.select(s.eq(max, max), zero, s.splat(1.0)))) {
                one_by_one(x, y, g, taps, c..c + lanes, out);
                continue;
            }
            for tap in taps {
                let here = s.eq(s.load_up_to(x.add(tap + c), lanes), max);
                let to = out.add(tap + c);
                s.store_up_to(to, lanes, s.add(s.load_up_to(to, lanes), s.select_or_zero(here, left)));
                left = s.select(here, zero, left);
            }
        }
    }
}

/// [`to_maximum`] for some channels, where one of the maxima is NaN.
///
/// # Safety
/// As for [`to_maximum`].
unsafe fn one_by_one(
    x: *const f32,
    y: *const f32,
    g: *const f32,
    taps: &[usize],
    channels: core::ops::Range<usize>,
    out: *mut f32,
) {
    for c in channels {
        // SAFETY: the caller's promise.
        unsafe {
            let max = *y.add(c);
            let is_max = |&&tap: &&usize| {
                let x = *x.add(tap + c);
                x == max || x.is_nan() && max.is_nan()
            };
            if let Some(tap) = taps.iter().find(is_max) {
                *out.add(tap + c) += *g.add(c);
            }
        }
    }
}

dispatched! {
    /// Adds `g / count` to all of `taps`, for each of `len` channels.
    ///
    /// # Safety
    /// The taps are positions of `len` elements of `out`; `g` has as many.
    unsafe fn to_all<S>(s, g: *const f32, count: f32, taps: &[usize], len: usize, out: *mut f32) {
        let count = s.splat(count);
        for c in (0..len).step_by(S::LANES) {
            let lanes = S::LANES.min(len - c);
            let share = s.div(s.load_up_to(g.add(c), lanes), count);
            for tap in taps {
                let to = out.add(tap + c);
                s.store_up_to(to, lanes, s.add(s.load_up_to(to, lanes), share));
            }
        }
    }
}

dispatched! {
    /// Adds `g · sign(x) (|x| / y)^(p-1)` to all of `taps`, for each of `len` channels.
    ///
    /// # Safety
    /// The taps are positions of `len` elements of `x` and `out`; `y` and `g` have as many.
    unsafe fn by_share<S>(
        s,
        p: u32,
        x: *const f32,
        y: *const f32,
        g: *const f32,
        taps: &[usize],
        len: usize,
        out: *mut f32,
    ) {
        let zero = s.splat(0.0);
        for c in (0..len).step_by(S::LANES) {
            let lanes = S::LANES.min(len - c);
            let (y, g) = (s.load_up_to(y.add(c), lanes), s.load_up_to(g.add(c), lanes));
            let none = s.eq(y, zero);
            let g = s.select(none, zero, g);
            // Dividing before the power, whose numbers are then at most 1.
            let y = s.select(none, s.splat(1.0), y);
            for tap in taps {
                let x = s.load_up_to(x.add(tap + c), lanes);
                let ratio = s.div(s.abs(x), y);
                let mut part = s.select(s.eq(x, zero), zero, s.with_sign_of(g, s.float_of_bits(s.int_xor(s.bits(g), s.bits(x)))));
                for _ in 1..p {
                    part = s.mul(part, ratio);
                }
                let to = out.add(tap + c);
                s.store_up_to(to, lanes, s.add(s.load_up_to(to, lanes), part));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm::noise;
    use crate::pool::pool_channels_last;
    use crate::simd::forced::at_each_level;
    use kiln_types::PoolOptions;

    type Case = (
        &'static [usize],
        &'static [usize],
        &'static [usize],
        &'static [(usize, usize)],
        &'static [usize],
        bool,
    );

    /// Dims, window, step, padding, dilation, whether windows may hang over the end.
    const CASES: [Case; 5] = [
        (&[2, 5, 9], &[3], &[2], &[(1, 1)], &[1], false),
        (&[1, 70, 7, 8], &[3, 3], &[2, 2], &[(1, 1); 2], &[1, 1], false),
        (&[2, 3, 6, 5], &[2, 2], &[3, 2], &[(0, 0); 2], &[2, 1], true),
        (&[1, 17, 3, 4, 5], &[2, 3, 2], &[1, 1, 2], &[(1, 0), (1, 1), (0, 1)], &[1, 1, 1], true),
        (&[1, 4, 1, 1], &[1, 1], &[1, 1], &[(0, 0); 2], &[1, 1], false),
    ];

    fn shape_of((dims, kernel, stride, padding, dilation, ceil_mode): Case) -> PoolShape {
        let options = PoolOptions {
            kernel: kernel.into(),
            stride: stride.into(),
            padding: padding.into(),
            dilation: dilation.into(),
            ceil_mode,
        };
        PoolShape::new(dims, &options)
    }

    /// The windows' elements: positions in `x` without the channel, window by window over all images.
    fn windows(shape: &PoolShape) -> Vec<Vec<usize>> {
        let w = &shape.windows;
        let at = |window: usize| {
            let (image, o) = (window / w.output_len(), window % w.output_len());
            let o = [o / (w.output[1] * w.output[2]), o / w.output[2] % w.output[1], o % w.output[2]];
            let element = |k: usize| {
                let k = [k / (w.kernel[1] * w.kernel[2]), k / w.kernel[2] % w.kernel[1], k % w.kernel[2]];
                let p: Vec<usize> = (0..3).filter_map(|axis| w.position(axis, o[axis], k[axis])).collect();
                let [z, y, x] = p.try_into().ok()?;
                Some(((image * w.input[0] + z) * w.input[1] + y) * w.input[2] + x)
            };
            (0..w.kernel_len()).filter_map(element).collect()
        };
        (0..shape.batch * w.output_len()).map(at).collect()
    }

    #[test]
    fn maxima_get_all() {
        let run = || {
            for case in CASES {
                let shape = shape_of(case);
                let c = shape.channels;
                // Few different numbers, so that there are ties; and a NaN.
                let mut x: Vec<f32> = noise(shape.batch * c * shape.windows.input_len(), 1)
                    .iter()
                    .map(|x| (x * 3.0).round())
                    .collect();
                let middle = x.len() / 2;
                x[middle] = f32::NAN;
                let windows = windows(&shape);
                let mut y = vec![0.0; windows.len() * c];
                pool_channels_last(PoolOp::Max, &shape, &x, &mut y);
                let g = noise(y.len(), 2);
                let mut want = vec![0.0; x.len()];
                for (i, g) in g.iter().enumerate() {
                    let is_max = |p: &&usize| {
                        let x = x[*p * c + i % c];
                        x == y[i] || x.is_nan() && y[i].is_nan()
                    };
                    let first = windows[i / c].iter().find(is_max).expect("a window holds its maximum");
                    want[first * c + i % c] += g;
                }
                let mut got = vec![1.0; x.len()];
                pool_gradient_channels_last(&shape, PoolGradient::Max { x: &x, output: &y }, &g, &mut got);
                assert!(got.iter().zip(&want).all(|(a, b)| (a - b).abs() < 1e-5), "{case:?}");
            }
        };
        at_each_level(|_| run());
        run();
    }

    #[test]
    fn norms_share_by_size() {
        let run = || {
            for (case, p) in CASES.into_iter().flat_map(|case| [1, 2, 3].map(|p| (case, p))) {
                let shape = shape_of(case);
                let (c, windows) = (shape.channels, windows(&shape));
                let mut x = noise(shape.batch * c * shape.windows.input_len(), 1);
                // A window of zeros, at least when it is small.
                x[..c].fill(0.0);
                let g = noise(windows.len() * c, 2);
                let mut y = vec![0.0; g.len()];
                pool_channels_last(PoolOp::Lp { p }, &shape, &x, &mut y);
                let mut want = vec![0.0f64; x.len()];
                for (i, g) in g.iter().enumerate() {
                    let elements = || windows[i / c].iter().map(|pixel| pixel * c + i % c);
                    let norm = elements().map(|at| f64::from(x[at]).abs().powi(p as i32)).sum::<f64>();
                    let norm = norm.powf(1.0 / f64::from(p));
                    for at in elements().filter(|&at| x[at] != 0.0) {
                        let share = (f64::from(x[at]).abs() / norm).powi(p as i32 - 1);
                        want[at] += f64::from(*g) * share * f64::from(x[at].signum());
                    }
                }
                let mut got = vec![1.0; x.len()];
                let what = PoolGradient::Lp { p, x: &x, output: &y };
                pool_gradient_channels_last(&shape, what, &g, &mut got);
                for (got, want) in got.iter().zip(&want) {
                    assert!((f64::from(*got) - want).abs() < 1e-4, "{case:?} {p}: {got} {want}");
                }
            }
        };
        at_each_level(|_| run());
        run();
    }

    #[test]
    fn averages_share() {
        let run = || {
            for (case, include_pad) in CASES.into_iter().flat_map(|case| [(case, false), (case, true)]) {
                let shape = shape_of(case);
                let (c, windows) = (shape.channels, windows(&shape));
                // An average is linear: what it does to one element says the gradient.
                let g = noise(windows.len() * c, 2);
                let len = shape.batch * c * shape.windows.input_len();
                let mut got = vec![1.0; len];
                pool_gradient_channels_last(&shape, PoolGradient::Average { include_pad }, &g, &mut got);
                for at in (0..len).step_by(3) {
                    let mut x = vec![0.0; len];
                    x[at] = 1.0;
                    let mut y = vec![0.0; g.len()];
                    pool_channels_last(PoolOp::Average { include_pad }, &shape, &x, &mut y);
                    let want: f32 = y.iter().zip(&g).map(|(y, g)| y * g).sum();
                    assert!((got[at] - want).abs() < 1e-5, "{case:?} {include_pad}: {} {want}", got[at]);
                }
            }
        };
        at_each_level(|_| run());
        run();
    }
}
