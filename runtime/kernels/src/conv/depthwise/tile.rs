//! The innermost part of a depthwise convolution: neighbouring windows, and vectors of channels, in registers.
//!
//! Each kind of tile is a function of its own. In one function with the loops around them, the compiler keeps the addresses
//! of all kinds in memory.

use crate::conv::lines::Line;
use crate::simd::{Level, Simd, level};
use kiln_types::Windows;

/// Neighbouring windows of a row, some channels of each; then as many of the channels behind them. A call for each tile costs short vectors a third of
/// their speed.
#[derive(Clone, Copy)]
pub(super) struct Tile<'a> {
    /// How many tiles, at least one. What follows is said of the first.
    pub count: usize,
    /// Lines of the image, with lines of the kernel: positions of their first elements.
    pub lines: &'a [Line],
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
    /// Channels of a tile.
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

impl Tile<'_> {
    /// Goes on to the next tile.
    #[inline(always)]
    fn advance(&mut self) {
        self.x = self.x.wrapping_add(self.lanes);
        self.weight = self.weight.wrapping_add(self.lanes);
        self.out = self.out.wrapping_add(self.lanes);
        if !self.bias.is_null() {
            self.bias = self.bias.wrapping_add(self.lanes);
        }
    }
}

/// Computes all tiles.
#[inline(always)]
fn each_tile(t: &Tile<'_>, compute: impl Fn(&Tile<'_>)) {
    let mut t = *t;
    for left in (0..t.count).rev() {
        compute(&t);
        if left > 0 {
            t.advance();
        }
    }
}

/// Computes [`Tile`]s.
///
/// # Safety
/// The machine has the kernel's instruction set, and the pointers are valid for what the fields say.
pub(super) type TileKernel = unsafe fn(&Tile<'_>);

/// Windows that are computed at a time: seven suit the sizes that halving 224 yields, and fill the registers.
const COUNTS: [usize; 3] = [7, 3, 1];

/// The kernels of a level for a line of the kernel and a step.
pub(super) struct Kernels {
    /// Lanes of a vector.
    lanes: usize,
    table: &'static Table,
}

/// By [`COUNTS`], and whether the windows lie in the image whole.
type Table = [[Kind; 2]; 3];

/// The tables of a level.
struct Tables {
    /// For any line and step.
    any: Table,
    /// For lines of three, five and seven neighbours, and windows one and two pixels apart.
    usual: [[Table; 2]; 3],
}

impl Tables {
    fn of(&'static self, w: &Windows) -> &'static Table {
        let taps = [3, 5, 7].iter().position(|&taps| taps == w.kernel[2] && w.dilation[2] == 1);
        let step = [1, 2].iter().position(|&step| step == w.stride[2]);
        match (taps, step) {
            (Some(taps), Some(step)) => &self.usual[taps][step],
            _ => &self.any,
        }
    }
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
    /// Those of the current level for some windows.
    pub fn of_windows(w: &Windows) -> Self {
        let (lanes, tables) = Self::of_level();
        Self { lanes, table: tables.of(w) }
    }

    /// Lanes and tables of the current level.
    fn of_level() -> (usize, &'static Tables) {
        match level() {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => (16, &AVX512),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => (8, &AVX2),
            #[cfg(target_arch = "aarch64")]
            Level::Neon => (4, &NEON),
            #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
            Level::Simd128 => (4, &SIMD128),
            Level::Scalar => (4, &SCALAR),
        }
    }

    /// Elements of an image that rows next to each other see, up to which all of their channels are computed row by row. Vectors of 16 read a second-level
    /// cache faster than it answers; shorter ones gain more by reading memory in order.
    pub fn seen(&self) -> usize {
        if self.lanes > 8 { 0 } else { 32 * 1024 }
    }

    /// Windows to compute next when some are left.
    pub fn windows(&self, left: usize) -> usize {
        COUNTS.into_iter().find(|&count| count <= left).unwrap_or(1)
    }

    /// The kernel for [`Kernels::windows`] of them, and of how many tiles of how many channels to ask it when some are left.
    pub fn of(&self, windows: usize, inside: bool, left: usize) -> (TileKernel, usize, usize) {
        let row = COUNTS.iter().position(|&count| count == windows).unwrap_or(COUNTS.len() - 1);
        let kind = &self.table[row][usize::from(inside)];
        let wide = kind.vectors * self.lanes;
        if left >= wide {
            (kind.wide, left / wide, wide)
        } else if left >= self.lanes {
            (kind.one, left / self.lanes, self.lanes)
        } else {
            (kind.part, 1, left)
        }
    }
}

/// What is read beside the image: as many elements as the widest tile's vectors have.
static ZEROS: [f32; 64] = [0.0; 64];

/// A block for each of some numbers below a bound, one behind the other: what they index then stays in registers.
macro_rules! unrolled {
    ($i:ident < $bound:expr, [$($number:literal)*], $body:block) => {
        $(if $number < $bound {
            let $i: usize = $number;
            $body
        })*
    };
}

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
        // Steps of any size wrap around where nothing is read.
        let (step, tap) = (t.step.wrapping_mul(t.channels), t.dilation.wrapping_mul(t.channels));
        for &[line, weight] in t.lines {
            let mut from = t.x.wrapping_add(line).wrapping_offset(t.first.wrapping_mul(t.channels as isize));
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
                    let pixel = if there { from.wrapping_add(i.wrapping_mul(step)) } else { ZEROS.as_ptr() };
                    for v in 0..V {
                        sums[i][v] = s.mul_add(weights[v], load(pixel.add(v * S::LANES)), sums[i][v]);
                    }
                }
                from = from.wrapping_add(tap);
                pixel = pixel.wrapping_add(t.dilation as isize);
                weight = weight.wrapping_add(t.channels);
            }
        }
        finish::<S, T, V, PART>(s, t, sums);
    }
}

/// [`tile`] for lines of `K` neighbours and windows `STEP` pixels apart: each pixel is read once, for all windows of the tile that see it. Sums
/// grow in the same order.
#[inline(always)]
unsafe fn tile_of_neighbours<
    S: Simd,
    const T: usize,
    const V: usize,
    const INSIDE: bool,
    const K: usize,
    const STEP: usize,
>(
    s: S,
    t: &Tile<'_>,
) {
    // SAFETY: as for `tile`.
    unsafe {
        let mut sums = [[s.splat(0.0); V]; T];
        for &[line, weight] in t.lines {
            let from = t.x.wrapping_add(line).wrapping_offset(t.first.wrapping_mul(t.channels as isize));
            let weight = t.weight.add(weight);
            let mut weights = [[s.splat(0.0); V]; K];
            for k in 0..K {
                for v in 0..V {
                    weights[k][v] = s.load(weight.add(k * t.channels + v * S::LANES));
                }
            }
            unrolled!(p < (T - 1) * STEP + K, [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18], {
                // A pixel before the image counts as one far behind it.
                let there = INSIDE || ((t.first + p as isize) as usize) < t.width;
                let pixel = if there { from.wrapping_add(p * t.channels) } else { ZEROS.as_ptr() };
                for v in 0..V {
                    let pixel = s.load(pixel.add(v * S::LANES));
                    unrolled!(k < K, [0 1 2 3 4 5 6], {
                        // The window whose `k`-th pixel it is.
                        if p >= k && (p - k).is_multiple_of(STEP) && (p - k) / STEP < T {
                            let i = (p - k) / STEP;
                            sums[i][v] = s.mul_add(weights[k][v], pixel, sums[i][v]);
                        }
                    });
                }
            });
        }
        finish::<S, T, V, false>(s, t, sums);
    }
}

/// Adds the bias to a tile's sums, bounds and writes them.
///
/// # Safety
/// As for [`TileKernel`].
#[inline(always)]
unsafe fn finish<S: Simd, const T: usize, const V: usize, const PART: bool>(
    s: S,
    t: &Tile<'_>,
    sums: [[S::F; V]; T],
) {
    // SAFETY: the caller's promise.
    unsafe {
        let (low, high) = (s.splat(t.low), s.splat(t.high));
        let mut biases = [s.splat(0.0); V];
        if !t.bias.is_null() {
            for v in 0..V {
                let bias = t.bias.add(v * S::LANES);
                biases[v] = if PART { s.load_first(bias, t.lanes) } else { s.load(bias) };
            }
        }
        unrolled!(i < T, [0 1 2 3 4 5 6], {
            for v in 0..V {
                // The operand order lets NaN through.
                let sum = s.min(high, s.max(low, s.add(sums[i][v], biases[v])));
                let to = t.out.add(i * t.channels + v * S::LANES);
                if PART { s.store_first(to, t.lanes, sum) } else { s.store(to, sum) }
            }
        });
    }
}

/// Makes a level's tables: for seven windows, for three and for one, how many vectors.
macro_rules! kernels {
    ($(#[$attr:meta])* $tables:ident, $any:ident, $usual:ident, $token:expr, [$seven:literal, $three:literal, $one:literal]) => {
        $(#[$attr])*
        unsafe fn $any<const T: usize, const V: usize, const INSIDE: bool, const PART: bool>(t: &Tile<'_>) {
            // SAFETY: the caller's promise; the features are this function's.
            unsafe { each_tile(t, #[inline(always)] |t| tile::<_, T, V, INSIDE, PART>($token, t)) }
        }

        $(#[$attr])*
        unsafe fn $usual<
            const T: usize,
            const V: usize,
            const INSIDE: bool,
            const K: usize,
            const STEP: usize,
        >(
            t: &Tile<'_>,
        ) {
            // SAFETY: as above.
            unsafe { each_tile(t, #[inline(always)] |t| tile_of_neighbours::<_, T, V, INSIDE, K, STEP>($token, t)) }
        }

        static $tables: Tables = Tables {
            any: [
                kernels!(@any $any, 7, $seven),
                kernels!(@any $any, 3, $three),
                kernels!(@any $any, 1, $one),
            ],
            usual: [
                [
                    kernels!(@usual $any, $usual, $seven, $three, $one, 3, 1),
                    kernels!(@usual $any, $usual, $seven, $three, $one, 3, 2),
                ],
                [
                    kernels!(@usual $any, $usual, $seven, $three, $one, 5, 1),
                    kernels!(@usual $any, $usual, $seven, $three, $one, 5, 2),
                ],
                [
                    kernels!(@usual $any, $usual, $seven, $three, $one, 7, 1),
                    kernels!(@usual $any, $usual, $seven, $three, $one, 7, 2),
                ],
            ],
        };
    };
    (@any $any:ident, $t:literal, $v:literal) => {
        [kernels!(@kind $any, $t, $v, false), kernels!(@kind $any, $t, $v, true)]
    };
    (@usual $any:ident, $usual:ident, $seven:literal, $three:literal, $one:literal, $k:literal, $step:literal) => {
        [
            [
                kernels!(@kind $any, $usual, 7, $seven, false, $k, $step),
                kernels!(@kind $any, $usual, 7, $seven, true, $k, $step),
            ],
            [
                kernels!(@kind $any, $usual, 3, $three, false, $k, $step),
                kernels!(@kind $any, $usual, 3, $three, true, $k, $step),
            ],
            kernels!(@any $any, 1, $one),
        ]
    };
    // Less than a vector is for the kernel of any line.
    (@kind $any:ident, $t:literal, $v:literal, $inside:literal) => {
        Kind {
            vectors: $v,
            wide: $any::<$t, $v, $inside, false>,
            one: $any::<$t, 1, $inside, false>,
            part: $any::<$t, 1, $inside, true>,
        }
    };
    (@kind $any:ident, $usual:ident, $t:literal, $v:literal, $inside:literal, $k:literal, $step:literal) => {
        Kind {
            vectors: $v,
            wide: $usual::<$t, $v, $inside, $k, $step>,
            one: $usual::<$t, 1, $inside, $k, $step>,
            part: $any::<$t, 1, $inside, true>,
        }
    };
}

#[cfg(target_arch = "x86_64")]
kernels!(
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
    AVX512,
    run_avx512,
    run_neighbours_avx512,
    crate::simd::avx512::Avx512::new(),
    [2, 4, 4]
);

#[cfg(target_arch = "x86_64")]
kernels!(
    #[target_feature(enable = "avx2,fma")]
    AVX2,
    run_avx2,
    run_neighbours_avx2,
    crate::simd::avx2::Avx2::new(),
    [1, 3, 4]
);

#[cfg(target_arch = "aarch64")]
kernels!(NEON, run_neon, run_neighbours_neon, crate::simd::neon::Neon::new(), [2, 4, 8]);

#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
kernels!(SIMD128, run_simd128, run_neighbours_simd128, crate::simd::simd128::Simd128, [1, 3, 4]);

kernels!(SCALAR, run_scalar, run_neighbours_scalar, crate::simd::scalar::Scalar, [1, 1, 1]);
