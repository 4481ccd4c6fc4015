//! The innermost part of a convolution in groups: neighbouring windows, and vectors of channels, in registers.
//!
//! Where a vector has the channels of several groups, one instruction gives each lane the channel that its group sees.

use crate::conv::lines::Line;
use crate::simd::{Level, Simd, level};

/// Neighbouring windows of a row, some channels of one group of each, or of as many groups as a vector holds.
pub(super) struct Tile<'a> {
    /// Lines of the image, with lines of the kernel: positions of their first elements.
    pub lines: &'a [Line],
    /// The image's first element of the first group's first channel.
    pub x: *const f32,
    /// The kernel's first number for the groups and for the first channel of the result.
    pub weight: *const f32,
    /// Numbers of the kernel from one channel of the image to the next.
    pub weight_step: usize,
    /// Channels of the image that a group sees.
    pub group: usize,
    /// Those that the groups of a vector see.
    pub seen: usize,
    /// Channels of the result that a group has.
    pub of_group: usize,
    /// For each channel of a group, which one of those that are seen a lane wants.
    pub places: &'a Places,
    /// Channels of the image.
    pub channels: usize,
    /// The first window's first pixel in a line of the image; it may lie before it.
    pub first: isize,
    /// Pixels from one window to the next.
    pub step: usize,
    /// Elements of a line of the kernel.
    pub taps: usize,
    /// Pixels from one of them to the next.
    pub dilation: usize,
    /// Pixels of a line.
    pub width: usize,
    /// Channels of the result that are computed.
    pub lanes: usize,
    /// What is added to them, or null.
    pub bias: *const f32,
    /// Lower bound.
    pub low: f32,
    /// Upper bound.
    pub high: f32,
    /// The first window's result.
    pub out: *mut f32,
    /// Elements from one window's result to the next.
    pub out_step: usize,
}

/// Computes a [`Tile`].
///
/// # Safety
/// The machine has the kernel's instruction set, and the pointers are valid for what the fields say.
pub(super) type TileKernel = unsafe fn(&Tile<'_>);

/// Windows that are computed at a time: seven suit the sizes that halving 224 yields.
const COUNTS: [usize; 3] = [7, 2, 1];

/// The kernels of a level.
pub(super) struct Kernels {
    /// Lanes of a vector.
    lanes: usize,
    /// Vectors of the widest tile of most windows: two, or one where the registers hold no more.
    most: usize,
    /// By [`COUNTS`]: with one vector of a group's channels, with two, with a vector of several groups.
    table: &'static [[TileKernel; 3]; 3],
}

impl Kernels {
    /// Those of the current level.
    pub fn current() -> Self {
        match level() {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => Self { lanes: 16, most: 2, table: &AVX512 },
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => Self { lanes: 8, most: 1, table: &AVX2 },
            #[cfg(target_arch = "aarch64")]
            Level::Neon => Self { lanes: 4, most: 2, table: &NEON },
            #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
            Level::Simd128 => Self { lanes: 4, most: 1, table: &SIMD128 },
            Level::Scalar => Self { lanes: 4, most: 1, table: &SCALAR },
        }
    }

    /// How many groups of so many channels one vector holds; 1 where groups have vectors of their own.
    pub fn groups(&self, ic: usize, oc: usize) -> usize {
        if bundled(ic, oc) { (self.lanes / oc).max(1) } else { 1 }
    }

    /// Windows to compute next when some are left.
    pub fn windows(&self, left: usize) -> usize {
        COUNTS.into_iter().find(|&count| count <= left).unwrap_or(1)
    }

    /// The kernel for [`Kernels::windows`] of them, and how many channels to give it when some of one group are left.
    pub fn of(&self, windows: usize, left: usize) -> (TileKernel, usize) {
        let most = if windows == COUNTS[0] { self.most } else { 2 };
        let vectors = left.div_ceil(self.lanes).clamp(1, most);
        (self.row(windows)[vectors - 1], left.min(self.lanes * vectors))
    }

    /// The kernel for a vector of several groups.
    pub fn of_groups(&self, windows: usize) -> TileKernel {
        self.row(windows)[2]
    }

    fn row(&self, windows: usize) -> &[TileKernel; 3] {
        &self.table[COUNTS.iter().position(|&count| count == windows).unwrap_or(COUNTS.len() - 1)]
    }
}

/// Whether the numbers of several groups lie side by side: where some fill a vector of every size, and see no more channels than they have.
pub(super) fn bundled(ic: usize, oc: usize) -> bool {
    oc < super::ALIGN && oc.is_power_of_two() && ic <= oc
}

/// See [`Tile::places`].
pub(super) type Places = [[i32; super::ALIGN]; super::ALIGN / 2];

/// The places for groups of so many channels.
pub(super) fn places(ic: usize, oc: usize) -> Places {
    let mut places = [[0; super::ALIGN]; super::ALIGN / 2];
    if bundled(ic, oc) {
        for (c, places) in places.iter_mut().enumerate().take(ic) {
            for (lane, place) in places.iter_mut().enumerate() {
                *place = (lane / oc * ic + c) as i32;
            }
        }
    }
    places
}

/// What is read beside the image: a group's channels at most.
pub(super) static ZEROS: [f32; super::MOST] = [0.0; super::MOST];

/// A tile of `T` windows and `V` vectors.
#[inline(always)]
unsafe fn tile<S: Simd, const T: usize, const V: usize>(s: S, t: &Tile<'_>) {
    // SAFETY: the caller's promise; the kernel's numbers are filled up to whole vectors, and `ZEROS` holds a group's channels.
    unsafe {
        let mut sums = [[s.splat(0.0); V]; T];
        for &[line, weight] in t.lines {
            let mut weight = t.weight.add(weight);
            for tap in 0..t.taps {
                let pixels = pixels::<T>(t, line, tap);
                for c in 0..t.group {
                    let mut weights = [s.splat(0.0); V];
                    for v in 0..V {
                        weights[v] = s.load(weight.add(v * S::LANES));
                    }
                    for i in 0..T {
                        let x = s.splat(*pixels[i].add(c));
                        for v in 0..V {
                            sums[i][v] = s.mul_add(x, weights[v], sums[i][v]);
                        }
                    }
                    weight = weight.add(t.weight_step);
                }
            }
        }
        store(s, t, sums);
    }
}

/// A tile of `T` windows and one vector of several groups.
#[inline(always)]
unsafe fn tile_of_groups<S: Simd, const T: usize>(s: S, t: &Tile<'_>) {
    // SAFETY: as in `tile`.
    unsafe {
        let mut sums = [[s.splat(0.0)]; T];
        for &[line, weight] in t.lines {
            let mut weight = t.weight.add(weight);
            for tap in 0..t.taps {
                let pixels = pixels::<T>(t, line, tap);
                if t.seen == S::LANES && t.group == FOUR && t.of_group == FOUR {
                    fours::<S, T, 0>(s, &pixels, weight, &mut sums);
                    fours::<S, T, 1>(s, &pixels, weight.add(t.weight_step), &mut sums);
                    fours::<S, T, 2>(s, &pixels, weight.add(2 * t.weight_step), &mut sums);
                    fours::<S, T, 3>(s, &pixels, weight.add(3 * t.weight_step), &mut sums);
                    weight = weight.add(FOUR * t.weight_step);
                    continue;
                }
                if t.seen == S::LANES {
                    // Read again for each channel: there are not registers enough everywhere.
                    for c in 0..t.group {
                        let (weights, places) = (s.load(weight), s.bits(s.load(t.places[c].as_ptr().cast())));
                        for i in 0..T {
                            let x = s.permute(s.load(pixels[i]), places);
                            sums[i][0] = s.mul_add(x, weights, sums[i][0]);
                        }
                        weight = weight.add(t.weight_step);
                    }
                    continue;
                }
                let mut seen = [s.splat(0.0); T];
                for i in 0..T {
                    seen[i] = s.load_first(pixels[i], t.seen);
                }
                for c in 0..t.group {
                    let (weights, places) = (s.load(weight), s.bits(s.load(t.places[c].as_ptr().cast())));
                    for i in 0..T {
                        sums[i][0] = s.mul_add(s.permute(seen[i], places), weights, sums[i][0]);
                    }
                    weight = weight.add(t.weight_step);
                }
            }
        }
        store(s, t, sums);
    }
}

/// Channels of a group for which there are instructions of their own, which take what they spread from memory.
const FOUR: usize = 4;

/// Adds what the `C`-th channel of each of a vector's groups of four gives.
///
/// # Safety
/// Pixels and weights are valid for reading a vector.
#[inline(always)]
unsafe fn fours<S: Simd, const T: usize, const C: usize>(
    s: S,
    pixels: &[*const f32; T],
    weight: *const f32,
    sums: &mut [[S::F; 1]; T],
) {
    // SAFETY: the caller's promise.
    unsafe {
        let weights = s.load(weight);
        for i in 0..T {
            sums[i][0] = s.mul_add(s.splat_in_fours::<C>(pixels[i]), weights, sums[i][0]);
        }
    }
}

/// The groups' first channel of the pixels under an element of a line of the kernel, or zeros.
#[inline(always)]
unsafe fn pixels<const T: usize>(t: &Tile<'_>, line: usize, tap: usize) -> [*const f32; T] {
    let mut pixels = [ZEROS.as_ptr(); T];
    // A pixel before the image counts as one far behind it.
    let first = (t.first + (tap * t.dilation) as isize) as usize;
    if first < t.width && (T - 1) * t.step < t.width - first {
        // Mostly all lie in it.
        // A single window may have any step.
        let step = t.step.wrapping_mul(t.channels);
        // SAFETY: the caller's promise: the line lies in the image.
        let mut at = unsafe { t.x.add(line + first * t.channels) };
        for pixel in &mut pixels {
            *pixel = at;
            at = at.wrapping_add(step);
        }
        return pixels;
    }
    for i in 0..T {
        let pixel = first.wrapping_add(i * t.step);
        if pixel < t.width {
            // SAFETY: the caller's promise: the line lies in the image.
            pixels[i] = unsafe { t.x.add(line + pixel * t.channels) };
        }
    }
    pixels
}

/// Writes a tile's sums.
#[inline(always)]
unsafe fn store<S: Simd, const T: usize, const V: usize>(s: S, t: &Tile<'_>, sums: [[S::F; V]; T]) {
    // SAFETY: `lanes` channels of `T` windows are valid for writing, and biases for as many, as the caller says.
    unsafe {
        let (low, high) = (s.splat(t.low), s.splat(t.high));
        for v in 0..V {
            let count = (t.lanes - v * S::LANES).min(S::LANES);
            let bias = match t.bias.is_null() {
                true => s.splat(0.0),
                false => s.load_up_to(t.bias.add(v * S::LANES), count),
            };
            for i in 0..T {
                // The operand order lets NaN through.
                let sum = s.min(high, s.max(low, s.add(sums[i][v], bias)));
                s.store_up_to(t.out.add(i * t.out_step + v * S::LANES), count, sum);
            }
        }
    }
}

/// Makes a level's table.
macro_rules! kernels {
    ($(#[$attr:meta])* $table:ident, $run:ident, $run_groups:ident, $token:expr) => {
        $(#[$attr])*
        unsafe fn $run<const T: usize, const V: usize>(t: &Tile<'_>) {
            // SAFETY: the caller's promise; the features are this function's.
            unsafe { tile::<_, T, V>($token, t) }
        }

        $(#[$attr])*
        unsafe fn $run_groups<const T: usize>(t: &Tile<'_>) {
            // SAFETY: as above.
            unsafe { tile_of_groups::<_, T>($token, t) }
        }

        static $table: [[TileKernel; 3]; 3] = [
            [$run::<7, 1>, $run::<7, 2>, $run_groups::<7>],
            [$run::<2, 1>, $run::<2, 2>, $run_groups::<2>],
            [$run::<1, 1>, $run::<1, 2>, $run_groups::<1>],
        ];
    };
}

#[cfg(target_arch = "x86_64")]
kernels!(
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
    AVX512,
    run_avx512,
    run_groups_avx512,
    crate::simd::avx512::Avx512::new()
);

#[cfg(target_arch = "x86_64")]
kernels!(
    #[target_feature(enable = "avx2,fma")]
    AVX2,
    run_avx2,
    run_groups_avx2,
    crate::simd::avx2::Avx2::new()
);

#[cfg(target_arch = "aarch64")]
kernels!(NEON, run_neon, run_groups_neon, crate::simd::neon::Neon::new());

#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
kernels!(SIMD128, run_simd128, run_groups_simd128, crate::simd::simd128::Simd128);

kernels!(SCALAR, run_scalar, run_groups_scalar, crate::simd::scalar::Scalar);
