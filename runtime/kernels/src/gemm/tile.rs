//! The innermost part of a matrix product: tiles of `C` in registers, one after the other.

use crate::simd::{Level, Simd, level};
use core::ops::Range;

/// Tiles of one size below each other: `C += A · B`, or `C = A · B`. A call for each costs shallow products a few percent.
#[derive(Clone, Copy)]
pub(super) struct Tile {
    /// How many tiles, at least one. What follows is said of the first.
    pub count: usize,
    /// Depth of the product.
    pub depth: usize,
    /// `A`: for each step of the depth, the tile's rows side by side. For a kernel in place, the tile's first row.
    pub a: *const f32,
    /// Elements from one tile's `A` to the next one's.
    pub a_next: usize,
    /// Elements from one step of the depth to the next in `A`. For a kernel in place, from one row of `A` to the next.
    pub a_step: usize,
    /// For a kernel of windows: where each step of the depth lies, from a row's start on.
    pub offsets: *const usize,
    /// `B`'s panel: for each step of the depth, at least the tile's width.
    pub b: *const f32,
    /// Elements from one step of `B` to the next.
    pub b_step: usize,
    /// The first element of the tile in `C`.
    pub c: *mut f32,
    /// Elements from one row of `C` to the next.
    pub c_step: usize,
    /// Columns that are written; the tile's width or less.
    pub cols: usize,
    /// Add to what is in `C`.
    pub accumulate: bool,
    /// What happens to the sums on their way out.
    pub finish: Option<Finish>,
    /// For a kernel that looks ahead: what is asked for at the first step of the depth.
    pub ahead: *const f32,
    /// Elements from what is asked for at one step to the next.
    pub ahead_step: usize,
}

/// `clamp(x + row_bias + col_bias + residual, low, high)`.
#[derive(Clone, Copy)]
pub(super) struct Finish {
    /// One number for each row of the tile, or null.
    pub row_bias: *const f32,
    /// One number for each of the tile's written columns, or null.
    pub col_bias: *const f32,
    /// The first of what is added element by element, with the rows of `C`, or null.
    pub residual: *const f32,
    /// Lower bound.
    pub low: f32,
    /// Upper bound.
    pub high: f32,
}

impl Tile {
    /// Some columns of the tiles.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn columns(&self, columns: Range<usize>) -> Self {
        let first = columns.start;
        let right = |at: *const f32| if at.is_null() { at } else { at.wrapping_add(first) };
        Self {
            b: self.b.wrapping_add(first),
            c: self.c.wrapping_add(first),
            cols: self.cols.min(columns.end) - first,
            finish: self.finish.map(|finish| Finish {
                col_bias: right(finish.col_bias),
                residual: right(finish.residual),
                ..finish
            }),
            ..*self
        }
    }

    /// Goes on to the tile of the next panel, which is so many columns further right.
    pub fn go_right(&mut self, columns: usize) {
        self.b = self.b.wrapping_add(self.depth * self.b_step);
        self.c = self.c.wrapping_add(columns);
        if let Some(finish) = &mut self.finish {
            for at in [&mut finish.col_bias, &mut finish.residual] {
                if !at.is_null() {
                    *at = at.wrapping_add(columns);
                }
            }
        }
    }

    /// The next tile, which is so many rows further down.
    #[inline(always)]
    fn below(&self, rows: usize) -> Self {
        let mut t = *self;
        t.a = t.a.wrapping_add(t.a_next);
        t.c = t.c.wrapping_add(rows * t.c_step);
        t.ahead = t.ahead.wrapping_add(t.depth * t.ahead_step);
        if let Some(finish) = &mut t.finish {
            if !finish.row_bias.is_null() {
                finish.row_bias = finish.row_bias.wrapping_add(rows);
            }
            if !finish.residual.is_null() {
                finish.residual = finish.residual.wrapping_add(rows * t.c_step);
            }
        }
        t
    }
}

/// Rows of tiles of one height that one call computes.
pub(super) struct Run {
    /// The rows.
    pub rows: Range<usize>,
    /// Rows of a tile.
    pub height: usize,
    /// How many tiles they are.
    pub count: usize,
    /// Tiles above them.
    pub above: usize,
}

/// The runs of tiles from row `start` on: so many of one height, then so many of another. The first `apart` tiles are runs of their own, and
/// no run has more than `most` tiles.
pub(super) fn runs(
    start: usize,
    [(height, count), (other, others)]: [(usize, usize); 2],
    apart: usize,
    most: usize,
) -> impl Iterator<Item = Run> {
    let (mut row, mut above) = (start, 0);
    core::iter::from_fn(move || {
        let (height, left) =
            if above < count { (height, count - above) } else { (other, count + others - above) };
        let left = if above < apart { left.min(apart - above) } else { left };
        let tiles = left.min(most);
        let run = Run { rows: row..row + tiles * height, height, count: tiles, above };
        (row, above) = (run.rows.end, above + tiles);
        (tiles > 0).then_some(run)
    })
}

/// Computes [`Tile`]s.
///
/// # Safety
/// The machine has the kernel's instruction set, and the pointers are valid for what the fields say.
pub(super) type TileKernel = unsafe fn(&Tile);

/// The sizes that a level's kernels want, and the kernels.
#[derive(Clone, Copy)]
pub(super) struct Kernels {
    /// Rows of a full tile.
    pub rows: usize,
    /// Columns of a full tile.
    pub cols: usize,
    /// Columns of one vector.
    pub lanes: usize,
    /// What the columns of tiles are multiples of.
    pub unit: usize,
    tables: &'static Tables,
}

/// The kernels of a level, by columns in units less one within rows less one.
struct Tables {
    packed: &'static [TileKernel],
    /// For rows of `A` that are read where they are.
    in_place: &'static [TileKernel],
    /// For rows of `A` that are windows of an image.
    windows: &'static [TileKernel],
    /// For rows in place, with a full width: these ask for memory that is wanted soon. By rows less one.
    ahead: &'static [TileKernel],
}

impl Kernels {
    /// Those of the current level.
    pub fn current() -> Self {
        match level() {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => Self { rows: 14, cols: 32, lanes: 16, unit: 8, tables: &AVX512 },
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => Self { rows: 6, cols: 16, lanes: 8, unit: 8, tables: &AVX2 },
            #[cfg(target_arch = "aarch64")]
            Level::Neon => Self { rows: 8, cols: 12, lanes: 4, unit: 4, tables: &NEON },
            #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
            Level::Simd128 => Self { rows: 4, cols: 8, lanes: 4, unit: 4, tables: &SIMD128 },
            Level::Scalar => Self { rows: 4, cols: 8, lanes: 4, unit: 4, tables: &SCALAR },
        }
    }

    /// The kernel for this many rows (at most `self.rows`) of a panel of this width.
    #[inline(always)]
    pub fn of(&self, rows: usize, width: usize) -> TileKernel {
        self.tables.packed[self.place(rows, width)]
    }

    /// The same for rows of `A` that are read where they are.
    #[inline(always)]
    pub fn of_rows(&self, rows: usize, width: usize) -> TileKernel {
        self.tables.in_place[self.place(rows, width)]
    }

    /// The same for rows of `A` that are windows of an image, with [`Tile::offsets`].
    #[inline(always)]
    pub fn of_windows(&self, rows: usize, width: usize) -> TileKernel {
        self.tables.windows[self.place(rows, width)]
    }

    /// The same for a full width, with [`Tile::ahead`].
    #[inline(always)]
    pub fn of_rows_ahead(&self, rows: usize) -> TileKernel {
        self.tables.ahead[rows - 1]
    }

    #[inline(always)]
    fn place(&self, rows: usize, width: usize) -> usize {
        (rows - 1) * (self.cols / self.unit) + width / self.unit - 1
    }
}

/// A way of reading `A`.
trait Way {
    /// Computes tiles of `R` rows and `V` vectors.
    ///
    /// # Safety
    /// As for [`TileKernel`].
    unsafe fn compute<S: Simd, const R: usize, const V: usize>(s: S, t: &Tile);
}

/// Panels of `A`.
struct Packed;

impl Way for Packed {
    #[inline(always)]
    unsafe fn compute<S: Simd, const R: usize, const V: usize>(s: S, t: &Tile) {
        // SAFETY: the caller's promise.
        each_tile::<R>(
            t,
            #[inline(always)]
            |t| unsafe { if R == 1 { row_tile::<S, V, false>(s, t) } else { tile::<S, R, V>(s, t) } },
        );
    }
}

/// Rows of `A` where they are; asking `AHEAD` or not.
struct InPlace<const AHEAD: bool>;

impl<const AHEAD: bool> Way for InPlace<AHEAD> {
    #[inline(always)]
    unsafe fn compute<S: Simd, const R: usize, const V: usize>(s: S, t: &Tile) {
        // SAFETY: the caller's promise.
        each_tile::<R>(
            t,
            #[inline(always)]
            |t| unsafe {
                if R == 1 { row_tile::<S, V, true>(s, t) } else { tile_in_place::<S, R, V, AHEAD>(s, t) }
            },
        );
    }
}

/// Rows of `A` that are windows of an image.
struct ImageWindows;

impl Way for ImageWindows {
    #[inline(always)]
    unsafe fn compute<S: Simd, const R: usize, const V: usize>(s: S, t: &Tile) {
        // SAFETY: the caller's promise.
        each_tile::<R>(
            t,
            #[inline(always)]
            |t| unsafe { tile_of_windows::<S, R, V>(s, t) },
        );
    }
}

/// Computes all tiles, of `R` rows each.
#[inline(always)]
fn each_tile<const R: usize>(t: &Tile, compute: impl Fn(&Tile)) {
    let mut below;
    let mut t = t;
    for left in (0..t.count).rev() {
        compute(t);
        // The first tile needs no copy, which a shallow product would feel.
        if left > 0 {
            below = t.below(R);
            t = &below;
        }
    }
}

/// A tile of `R` rows and `V` vectors.
#[inline(always)]
unsafe fn tile<S: Simd, const R: usize, const V: usize>(s: S, t: &Tile) {
    let mut sums = [[s.splat(0.0); V]; R];
    let (mut a, mut b) = (t.a, t.b);
    // SAFETY: the pointers advance over `depth` steps, which the caller says are there.
    unsafe {
        for _ in 0..t.depth {
            let mut columns = [s.splat(0.0); V];
            for v in 0..V {
                columns[v] = s.load(b.add(v * S::LANES));
            }
            for r in 0..R {
                let row = s.splat(*a.add(r));
                for v in 0..V {
                    sums[r][v] = s.mul_add(row, columns[v], sums[r][v]);
                }
            }
            a = a.add(t.a_step);
            b = b.add(t.b_step);
        }
        store(s, t, sums);
    }
}

/// Rows of `A` that one pointer reaches with the scales of an x86 address: its own, and two steps on.
const REACH: usize = 3;

/// A tile of `R` rows and `V` vectors, `A`'s rows where they are. `AHEAD` is for kernels of their own: where nothing is to be asked
/// for, asking costs a third of the speed of shallow products.
#[inline(always)]
unsafe fn tile_in_place<S: Simd, const R: usize, const V: usize, const AHEAD: bool>(s: S, t: &Tile) {
    let mut sums = [[s.splat(0.0); V]; R];
    let (mut a, mut b, mut ahead) = (t.a, t.b, t.ahead);
    // SAFETY: the pointers advance over `depth` steps, which the caller says are there.
    unsafe {
        for _ in 0..t.depth {
            if AHEAD {
                s.prefetch(ahead);
                ahead = ahead.wrapping_add(t.ahead_step);
            }
            let mut columns = [s.splat(0.0); V];
            for v in 0..V {
                columns[v] = s.load(b.add(v * S::LANES));
            }
            let mut rows = a;
            for r in 0..R {
                let row = s.splat(*rows.add(r % REACH * t.a_step));
                for v in 0..V {
                    sums[r][v] = s.mul_add(row, columns[v], sums[r][v]);
                }
                if r % REACH == REACH - 1 {
                    rows = rows.wrapping_add(REACH * t.a_step);
                }
            }
            a = a.add(1);
            b = b.add(t.b_step);
        }
        store(s, t, sums);
    }
}

/// A tile of `R` rows and `V` vectors, whose rows of `A` are windows of an image.
#[inline(always)]
unsafe fn tile_of_windows<S: Simd, const R: usize, const V: usize>(s: S, t: &Tile) {
    let mut sums = [[s.splat(0.0); V]; R];
    let mut b = t.b;
    // SAFETY: the pointers advance over `depth` steps, which the caller says are there.
    unsafe {
        for l in 0..t.depth {
            let mut columns = [s.splat(0.0); V];
            for v in 0..V {
                columns[v] = s.load(b.add(v * S::LANES));
            }
            let mut rows = t.a.add(*t.offsets.add(l));
            for r in 0..R {
                let row = s.splat(*rows.add(r % REACH * t.a_step));
                for v in 0..V {
                    sums[r][v] = s.mul_add(row, columns[v], sums[r][v]);
                }
                if r % REACH == REACH - 1 {
                    rows = rows.wrapping_add(REACH * t.a_step);
                }
            }
            b = b.add(t.b_step);
        }
        store(s, t, sums);
    }
}

/// A tile of one row, with enough independent sums to keep the machine busy. The steps of the row lie side by side if it is `IN_PLACE`.
#[inline(always)]
unsafe fn row_tile<S: Simd, const V: usize, const IN_PLACE: bool>(s: S, t: &Tile) {
    const STEPS: usize = 4;
    let a_step = if IN_PLACE { 1 } else { t.a_step };
    let mut sums = [[s.splat(0.0); V]; STEPS];
    let (mut a, mut b) = (t.a, t.b);
    // SAFETY: as in `tile`.
    unsafe {
        for _ in 0..t.depth / STEPS {
            for (i, sums) in sums.iter_mut().enumerate() {
                let row = s.splat(*a.add(i * a_step));
                for v in 0..V {
                    sums[v] = s.mul_add(row, s.load(b.add(i * t.b_step + v * S::LANES)), sums[v]);
                }
            }
            a = a.add(STEPS * a_step);
            b = b.add(STEPS * t.b_step);
        }
        for _ in 0..t.depth % STEPS {
            let row = s.splat(*a);
            for v in 0..V {
                sums[0][v] = s.mul_add(row, s.load(b.add(v * S::LANES)), sums[0][v]);
            }
            a = a.add(a_step);
            b = b.add(t.b_step);
        }
        let mut total = [sums[0]];
        for v in 0..V {
            total[0][v] = s.add(s.add(sums[0][v], sums[1][v]), s.add(sums[2][v], sums[3][v]));
        }
        store(s, t, total);
    }
}

/// Writes a tile's sums.
#[inline(always)]
unsafe fn store<S: Simd, const R: usize, const V: usize>(s: S, t: &Tile, sums: [[S::F; V]; R]) {
    // SAFETY: the caller's promise.
    unsafe {
        if t.cols == V * S::LANES {
            store_columns::<S, R, V, true>(s, t, sums);
        } else {
            store_columns::<S, R, V, false>(s, t, sums);
        }
    }
}

/// Writes a tile's sums: `WHOLE` vectors, or the tile's columns of them.
///
/// One thing after the other, so that what each needs beside the sums fits the registers.
#[inline(always)]
unsafe fn store_columns<S: Simd, const R: usize, const V: usize, const WHOLE: bool>(
    s: S,
    t: &Tile,
    mut sums: [[S::F; V]; R],
) {
    // SAFETY: `cols` columns of `R` rows are valid for writing, biases for as many, as the caller says.
    unsafe {
        let count =
            |v: usize| if WHOLE { S::LANES } else { t.cols.saturating_sub(v * S::LANES).min(S::LANES) };
        if t.accumulate {
            for r in 0..R {
                for v in 0..V {
                    let at = t.c.wrapping_add(r * t.c_step + v * S::LANES);
                    sums[r][v] = s.add(s.load_up_to(at, count(v)), sums[r][v]);
                }
            }
        }
        if let Some(finish) = t.finish {
            if !finish.residual.is_null() {
                for r in 0..R {
                    for v in 0..V {
                        let at = finish.residual.wrapping_add(r * t.c_step + v * S::LANES);
                        sums[r][v] = s.add(s.load_up_to(at, count(v)), sums[r][v]);
                    }
                }
            }
            if !finish.col_bias.is_null() {
                for v in 0..V {
                    let column = s.load_up_to(finish.col_bias.wrapping_add(v * S::LANES), count(v));
                    for r in 0..R {
                        sums[r][v] = s.add(sums[r][v], column);
                    }
                }
            }
            if !finish.row_bias.is_null() {
                for r in 0..R {
                    let row = s.splat(*finish.row_bias.add(r));
                    for v in 0..V {
                        sums[r][v] = s.add(sums[r][v], row);
                    }
                }
            }
            // The operand order lets NaN through.
            if finish.low > f32::NEG_INFINITY {
                let low = s.splat(finish.low);
                for r in 0..R {
                    for v in 0..V {
                        sums[r][v] = s.max(low, sums[r][v]);
                    }
                }
            }
            if finish.high < f32::INFINITY {
                let high = s.splat(finish.high);
                for r in 0..R {
                    for v in 0..V {
                        sums[r][v] = s.min(high, sums[r][v]);
                    }
                }
            }
        }
        for r in 0..R {
            for v in 0..V {
                s.store_up_to(t.c.wrapping_add(r * t.c_step + v * S::LANES), count(v), sums[r][v]);
            }
        }
    }
}

/// Makes a level's tables of a function that computes `R` rows of `W` columns in some [`Way`]: for widths, the full one apart, and numbers of rows.
macro_rules! tables {
    ($table:ident, $run:ident, [$($narrower:literal),*], $full:literal, [$($rows:literal),*]) => {
        static $table: Tables = Tables {
            packed: tables!(@rows $run, Packed, [$($narrower),*, $full], [$($rows),*], []),
            in_place: tables!(@rows $run, InPlace<false>, [$($narrower),*, $full], [$($rows),*], []),
            windows: tables!(@rows $run, ImageWindows, [$($narrower),*, $full], [$($rows),*], []),
            ahead: &[$($run::<InPlace<true>, $rows, $full>),*],
        };
    };
    (@rows $run:ident, $way:ty, [$($width:literal),*], [$row:literal $(, $rows:literal)*], [$($done:expr,)*]) => {
        tables!(@rows $run, $way, [$($width),*], [$($rows),*], [$($done,)* $($run::<$way, $row, $width>,)*])
    };
    (@rows $run:ident, $way:ty, [$($width:literal),*], [], [$($done:expr,)*]) => {
        &[$($done),*]
    };
}

#[cfg(target_arch = "x86_64")]
tables!(AVX512, run_avx512, [8, 16, 24], 32, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]);

/// # Safety
/// As for [`TileKernel`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
unsafe fn run_avx512<A: Way, const R: usize, const W: usize>(t: &Tile) {
    use crate::simd::{avx2::Avx2, avx512::Avx512};
    // SAFETY: the caller's promise; the features are this function's.
    unsafe {
        let (whole, half) = (Avx512::new(), Avx2::new());
        match W {
            8 => A::compute::<_, R, 1>(half, t),
            16 => A::compute::<_, R, 1>(whole, t),
            24 => {
                A::compute::<_, R, 1>(whole, &t.columns(0..16));
                A::compute::<_, R, 1>(half, &t.columns(16..24));
            }
            32 => A::compute::<_, R, 2>(whole, t),
            _ => unreachable!("no width of this level"),
        }
    }
}

#[cfg(target_arch = "x86_64")]
tables!(AVX2, run_avx2, [8], 16, [1, 2, 3, 4, 5, 6]);

/// # Safety
/// As for [`TileKernel`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn run_avx2<A: Way, const R: usize, const W: usize>(t: &Tile) {
    // SAFETY: the caller's promise; the features are this function's.
    unsafe {
        let s = crate::simd::avx2::Avx2::new();
        if W == 8 { A::compute::<_, R, 1>(s, t) } else { A::compute::<_, R, 2>(s, t) }
    }
}

#[cfg(target_arch = "aarch64")]
tables!(NEON, run_neon, [4, 8], 12, [1, 2, 3, 4, 5, 6, 7, 8]);

/// # Safety
/// As for [`TileKernel`].
#[cfg(target_arch = "aarch64")]
unsafe fn run_neon<A: Way, const R: usize, const W: usize>(t: &Tile) {
    // SAFETY: the caller's promise.
    unsafe {
        let s = crate::simd::neon::Neon::new();
        match W {
            4 => A::compute::<_, R, 1>(s, t),
            8 => A::compute::<_, R, 2>(s, t),
            _ => A::compute::<_, R, 3>(s, t),
        }
    }
}

#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
tables!(SIMD128, run_simd128, [4], 8, [1, 2, 3, 4]);

/// # Safety
/// As for [`TileKernel`].
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
unsafe fn run_simd128<A: Way, const R: usize, const W: usize>(t: &Tile) {
    // SAFETY: the caller's promise.
    unsafe {
        let s = crate::simd::simd128::Simd128;
        if W == 4 { A::compute::<_, R, 1>(s, t) } else { A::compute::<_, R, 2>(s, t) }
    }
}

tables!(SCALAR, run_scalar, [4], 8, [1, 2, 3, 4]);

/// # Safety
/// As for [`TileKernel`].
unsafe fn run_scalar<A: Way, const R: usize, const W: usize>(t: &Tile) {
    // SAFETY: the caller's promise.
    unsafe {
        let s = crate::simd::scalar::Scalar;
        if W == 4 { A::compute::<_, R, 1>(s, t) } else { A::compute::<_, R, 2>(s, t) }
    }
}
