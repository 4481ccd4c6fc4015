//! The innermost part of a depthwise convolution: neighbouring windows, and vectors of channels, in registers.
//!
//! Each kind of tile is a function of its own. In one function with the loops around them, the compiler keeps the addresses
//! of all kinds in memory.

use crate::simd::{Level, Simd, level};

/// Neighbouring windows of a row, some channels of each.
pub(super) struct Tile<'a> {
    /// Lines of the image, with lines of the kernel: positions of their first elements.
    pub lines: &'a [(usize, usize)],
    /// The image's first element of the first channel.
    pub x: *const f32,
    /// The kernel's first element of the first channel.
    pub weight: *const f32,
    /// Channels of image, kernel and result.
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
    /// Channels that are computed.
    pub lanes: usize,
    /// What is added to the channels, or null.
    pub bias: *const f32,
    /// Lower bound.
    pub low: f32,
    /// Upper bound.
    pub high: f32,
    /// The first window's result.
    pub out: *mut f32,
}

/// Computes a [`Tile`].
///
/// # Safety
/// The machine has the kernel's instruction set, and the pointers are valid for what the fields say.
pub(super) type TileKernel = unsafe fn(&Tile<'_>);

/// Windows that are computed at a time: seven suit the sizes that halving 224 yields, and fill the registers.
const COUNTS: [usize; 3] = [7, 3, 1];

/// The kernels of a level.
pub(super) struct Kernels {
    /// Lanes of a vector.
    lanes: usize,
    /// By [`COUNTS`], and whether the windows lie in the image whole.
    table: &'static [[Kind; 2]; 3],
}

/// The kernels for as many windows.
struct Kind {
    /// Vectors of [`Kind::wide`].
    vectors: usize,
    wide: TileKernel,
    one: TileKernel,
    /// Less than one vector.
    part: TileKernel,
}

impl Kernels {
    /// Those of the current level.
    pub fn current() -> Self {
        match level() {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => Self { lanes: 16, table: &AVX512 },
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => Self { lanes: 8, table: &AVX2 },
            #[cfg(target_arch = "aarch64")]
            Level::Neon => Self { lanes: 4, table: &NEON },
            #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
            Level::Simd128 => Self { lanes: 4, table: &SIMD128 },
            Level::Scalar => Self { lanes: 4, table: &SCALAR },
        }
    }

    /// Windows to compute next when some are left.
    pub fn windows(&self, left: usize) -> usize {
        COUNTS.into_iter().find(|&count| count <= left).unwrap_or(1)
    }

    /// The kernel for [`Kernels::windows`] of them, and how many channels to give it when some are left.
    pub fn of(&self, windows: usize, inside: bool, left: usize) -> (TileKernel, usize) {
        let row = COUNTS.iter().position(|&count| count == windows).unwrap_or(COUNTS.len() - 1);
        let kind = &self.table[row][usize::from(inside)];
        let wide = kind.vectors * self.lanes;
        if left >= wide {
            (kind.wide, wide)
        } else if left >= self.lanes {
            (kind.one, self.lanes)
        } else {
            (kind.part, left)
        }
    }
}

/// What is read beside the image: as many elements as the widest tile's vectors have.
static ZEROS: [f32; 64] = [0.0; 64];

/// A tile of `T` windows and `V` vectors; `PART` of the only vector.
#[inline(always)]
unsafe fn tile<S: Simd, const T: usize, const V: usize, const INSIDE: bool, const PART: bool>(
    s: S,
    t: &Tile<'_>,
) {
    // SAFETY: the caller's promise; `ZEROS` is as long as `V` vectors.
    unsafe {
        let load = |from: *const f32| if PART { s.load_first(from, t.lanes) } else { s.load(from) };
        let mut sums = [[s.splat(0.0); V]; T];
        let (step, tap) = (t.step * t.channels, t.dilation * t.channels);
        for &(line, weight) in t.lines {
            let mut from = t.x.wrapping_add(line).wrapping_offset(t.first * t.channels as isize);
            let mut weight = t.weight.add(weight);
            let mut pixel = t.first;
            for _ in 0..t.taps {
                let mut weights = [s.splat(0.0); V];
                for v in 0..V {
                    weights[v] = load(weight.add(v * S::LANES));
                }
                for i in 0..T {
                    // A pixel before the image counts as one far behind it.
                    let there = INSIDE || ((pixel + (i * t.step) as isize) as usize) < t.width;
                    let pixel = if there { from.wrapping_add(i * step) } else { ZEROS.as_ptr() };
                    for v in 0..V {
                        sums[i][v] = s.mul_add(weights[v], load(pixel.add(v * S::LANES)), sums[i][v]);
                    }
                }
                from = from.wrapping_add(tap);
                pixel += t.dilation as isize;
                weight = weight.wrapping_add(t.channels);
            }
        }
        if !t.bias.is_null() {
            for v in 0..V {
                let bias = load(t.bias.add(v * S::LANES));
                (0..T).for_each(
                    #[inline(always)]
                    |i| sums[i][v] = s.add(sums[i][v], bias),
                );
            }
        }
        let (low, high) = (s.splat(t.low), s.splat(t.high));
        for i in 0..T {
            for v in 0..V {
                // The operand order lets NaN through.
                let sum = s.min(high, s.max(low, sums[i][v]));
                let to = t.out.add(i * t.channels + v * S::LANES);
                if PART { s.store_first(to, t.lanes, sum) } else { s.store(to, sum) }
            }
        }
    }
}

/// Makes a level's table: for seven windows, for three and for one, how many vectors.
macro_rules! kernels {
    ($(#[$attr:meta])* $table:ident, $run:ident, $token:expr, $seven:literal, $three:literal, $one:literal) => {
        $(#[$attr])*
        unsafe fn $run<const T: usize, const V: usize, const INSIDE: bool, const PART: bool>(t: &Tile<'_>) {
            // SAFETY: the caller's promise; the features are this function's.
            unsafe { tile::<_, T, V, INSIDE, PART>($token, t) }
        }

        static $table: [[Kind; 2]; 3] = [
            [kernels!(@ $run, 7, $seven, false), kernels!(@ $run, 7, $seven, true)],
            [kernels!(@ $run, 3, $three, false), kernels!(@ $run, 3, $three, true)],
            [kernels!(@ $run, 1, $one, false), kernels!(@ $run, 1, $one, true)],
        ];
    };
    (@ $run:ident, $t:literal, $v:literal, $inside:literal) => {
        Kind {
            vectors: $v,
            wide: $run::<$t, $v, $inside, false>,
            one: $run::<$t, 1, $inside, false>,
            part: $run::<$t, 1, $inside, true>,
        }
    };
}

#[cfg(target_arch = "x86_64")]
kernels!(
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
    AVX512,
    run_avx512,
    crate::simd::avx512::Avx512::new(),
    2,
    4,
    4
);

#[cfg(target_arch = "x86_64")]
kernels!(
    #[target_feature(enable = "avx2,fma")]
    AVX2,
    run_avx2,
    crate::simd::avx2::Avx2::new(),
    1,
    3,
    4
);

#[cfg(target_arch = "aarch64")]
kernels!(NEON, run_neon, crate::simd::neon::Neon::new(), 2, 4, 8);

#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
kernels!(SIMD128, run_simd128, crate::simd::simd128::Simd128, 1, 3, 4);

kernels!(SCALAR, run_scalar, crate::simd::scalar::Scalar, 1, 1, 1);
