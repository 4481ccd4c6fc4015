//! The innermost part: a tile of sums.

use super::instructions::Instructions;
use super::pack::round;
use crate::gemm::tile::Finish;
use crate::simd::dispatched;

/// Rows of a full tile.
pub(super) const ROWS: usize = 2 * HALF_ROWS;
/// Most rows of each half of a tile.
pub(super) const HALF_ROWS: usize = 16;
/// The fewest rows of each half for which a machine's tiles are configured: below this, loads of `B` take longer than products.
const LEAST_ROWS: usize = 9;
/// Columns of a tile, which is also the width of a panel of `B`.
pub(crate) const COLS: usize = 32;
/// Columns of one half of a panel's block: a vector of pairs.
pub(super) const HALF: usize = 16;
/// Steps of the depth in a block: 16 pairs.
pub(crate) const STEPS: usize = 32;
/// The most steps of the depth after which sums are [put aside](Computer::block_depth).
const BLOCK_DEPTH: usize = 4096;
/// Rows that are computed whole: memory for rows of `A` and for sums is there up to a multiple of it, or of what else is a [half](Computer::half).
pub(crate) const WHOLE: usize = HALF_ROWS;

/// Bytes of a cache line.
pub(super) const LINE: usize = 64;
/// Bytes of a block of `B`.
pub(super) const BLOCK_BYTES: usize = STEPS * COLS * size_of::<u16>();

/// The [offsets](Bf16Tile::offsets) of blocks that follow each other: as many as a tile sums up at a time.
pub(super) const CONTIGUOUS: [usize; BLOCK_DEPTH / STEPS] = {
    let mut offsets = [0; BLOCK_DEPTH / STEPS];
    let mut i = 0;
    while i < offsets.len() {
        offsets[i] = i * STEPS * size_of::<u16>();
        i += 1;
    }
    offsets
};

/// One tile: `sums = A · B`, or `sums += A · B`.
#[derive(Clone, Copy)]
pub(super) struct Bf16Tile {
    /// Blocks of the depth; at least 1.
    pub blocks: usize,
    /// Rows that are wanted; one half of a tile or both are computed.
    pub rows: usize,
    /// The tile's first row of `A`.
    pub a: *const u16,
    /// The first row of its second half: that many behind the first, but where [tiles are multiplied](super::multiplies_tiles) any row.
    #[allow(dead_code, reason = "only AMX has halves")]
    pub lower: *const u16,
    /// Elements from one row of `A` to the next, in each half.
    pub a_step: usize,
    /// For each block of the depth, the bytes to it from a row's start.
    pub offsets: *const usize,
    /// The first block of `B`'s panel: [`HALF`] pairs of steps of [`HALF`] columns each, and the same of the other half of the columns.
    pub b: *const u16,
    /// What is asked for to come to the second-level cache, any address.
    #[allow(dead_code, reason = "widened tiles wait for their arithmetic alone")]
    pub ahead: *const u16,
    /// How many lines of it for each block of the depth: AMX asks for as many after each of a tile's four products, or of half a tile's two.
    #[allow(dead_code, reason = "as above")]
    pub ahead_lines: usize,
    /// Where rows of sums go afterwards, and elements from one to the next, if they do: any address, asked for to be written.
    #[allow(dead_code, reason = "as above")]
    pub to: Option<(*const f32, usize)>,
    /// [`COLS`] sums a row, without gaps.
    pub sums: *mut f32,
    /// Adds to the sums that are there.
    pub adds: bool,
}

/// What computes tiles on the calling thread.
pub(super) enum Computer {
    Widened,
    #[cfg(target_arch = "x86_64")]
    Dot,
    #[cfg(all(target_arch = "x86_64", target_os = "linux", feature = "std"))]
    Tiles(super::amx::Tiles),
}

impl Computer {
    /// Rows of each half of a tile of a product of `m` rows: where the system configures how many those are, [as load the fewest lines](Self::half_of_fewest_lines).
    pub fn half(m: usize) -> usize {
        // Whole tiles load the fewest lines of all.
        let whole = m.is_multiple_of(HALF_ROWS);
        if whole || !Instructions::current().are_tiles() { HALF_ROWS } else { Self::half_of_fewest_lines(m) }
    }

    /// Rows of each half of a tile with which a product of `m` rows loads the fewest lines: AMX takes as long as those take to come from the second-level cache.
    fn half_of_fewest_lines(m: usize) -> usize {
        // For each block of the depth: one of each row of `A` that is computed, and a block of `B` for each tile.
        let lines = |half: usize| {
            let (tiles, rest) = (m / (2 * half), m % (2 * half));
            2 * half * tiles + rest.next_multiple_of(half) + m.div_ceil(2 * half) * (BLOCK_BYTES / LINE)
        };
        // Of those that load as many, the largest.
        (LEAST_ROWS..=HALF_ROWS).rev().min_by_key(|&half| lines(half)).unwrap_or(HALF_ROWS)
    }

    /// Rows of each half of a tile such that lines of `line` rows are whole halves, if there are such and each half may lie anywhere.
    pub fn half_of(line: usize) -> Option<usize> {
        let fits = |&half: &usize| line.is_multiple_of(half) && Instructions::current().are_tiles();
        (LEAST_ROWS..=HALF_ROWS).rev().find(fits)
    }

    /// Steps of the depth after which sums are put aside. A part of a panel of `B` stays in the first-level cache for all rows; but AMX waits less for a part
    /// that stays in the second-level one than for sums that come and go.
    pub fn block_depth() -> usize {
        if Instructions::current().are_tiles() { BLOCK_DEPTH } else { 512 }
    }

    /// The fastest, for tiles whose halves have so many rows. There is one at a time a thread.
    #[allow(unused_variables, reason = "only AMX has halves")]
    pub fn new(half: usize) -> Self {
        match Instructions::current() {
            Instructions::Widened => Self::Widened,
            #[cfg(target_arch = "x86_64")]
            Instructions::Dot => Self::Dot,
            #[cfg(all(target_arch = "x86_64", target_os = "linux", feature = "std"))]
            // SAFETY: the machine has it; no product runs within another's loops.
            Instructions::Tiles => Self::Tiles(unsafe { super::amx::Tiles::new(half) }),
        }
    }

    /// Computes a tile.
    ///
    /// # Safety
    /// The pointers are valid for what the tile's fields say: `A` and the sums for as many halves as hold the rows, `A`'s rows for all of the
    /// blocks.
    #[inline]
    pub unsafe fn compute(&self, tile: &Bf16Tile) {
        // SAFETY: the caller's promise; instructions were detected.
        unsafe {
            match self {
                Self::Widened => widened(tile),
                #[cfg(target_arch = "x86_64")]
                Self::Dot => dot(tile),
                #[cfg(all(target_arch = "x86_64", target_os = "linux", feature = "std"))]
                Self::Tiles(tiles) => tiles.compute(tile),
            }
        }
    }
}

/// Most rows that are summed together in registers.
#[cfg(target_arch = "x86_64")]
const TOGETHER: usize = 8;

/// By AVX-512-BF16: rows are shared out evenly among as few groups as hold them.
///
/// # Safety
/// As for [`Computer::compute`].
#[cfg(target_arch = "x86_64")]
unsafe fn dot(tile: &Bf16Tile) {
    let groups = tile.rows.div_ceil(TOGETHER);
    let together = tile.rows.div_ceil(groups);
    // SAFETY: the caller's promise: rows of the last group are there, since there are no more than up to a multiple of `WHOLE`.
    unsafe {
        match together {
            1 => dot_rows::<1>(tile, groups),
            2 => dot_rows::<2>(tile, groups),
            3 => dot_rows::<3>(tile, groups),
            4 => dot_rows::<4>(tile, groups),
            5 => dot_rows::<5>(tile, groups),
            6 => dot_rows::<6>(tile, groups),
            7 => dot_rows::<7>(tile, groups),
            _ => dot_rows::<TOGETHER>(tile, groups),
        }
    }
}

/// [`dot`] of groups of `R` rows.
///
/// # Safety
/// As for [`Computer::compute`], for the rows of the groups.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
unsafe fn dot_rows<const R: usize>(tile: &Bf16Tile, groups: usize) {
    use core::arch::x86_64::*;
    use core::mem::transmute;
    let asks = tile.ahead_lines.div_ceil(groups);
    // SAFETY: the caller's promise; pairs of a row lie in whole blocks. What is asked for need not be there.
    unsafe {
        for group in 0..groups {
            let to = tile.sums.add(group * R * COLS);
            let mut sums = [[_mm512_setzero_ps(); 2]; R];
            if tile.adds {
                for (r, sums) in sums.iter_mut().enumerate() {
                    *sums = [_mm512_loadu_ps(to.add(r * COLS)), _mm512_loadu_ps(to.add(r * COLS + HALF))];
                }
            }
            let a = tile.a.add(group * R * tile.a_step);
            if let Some((to, step)) = tile.to {
                for row in group * R..(group + 1) * R {
                    for half in 0..2 {
                        _mm_prefetch::<_MM_HINT_ET0>(to.wrapping_add(row * step + half * HALF).cast());
                    }
                }
            }
            let ahead = tile.ahead.wrapping_byte_add(group * asks * LINE);
            for block in 0..tile.blocks {
                let (a, b) = (a.byte_add(*tile.offsets.add(block)), tile.b.add(block * STEPS * COLS));
                let ahead = ahead.wrapping_byte_add(block * tile.ahead_lines * LINE);
                for line in 0..asks {
                    _mm_prefetch::<_MM_HINT_T1>(ahead.wrapping_byte_add(line * LINE).cast());
                }
                for pair in 0..STEPS / 2 {
                    let half = |h: usize| {
                        let at = b.add((h * STEPS / 2 + pair) * 2 * HALF);
                        transmute::<__m512i, __m512bh>(_mm512_loadu_si512(at.cast()))
                    };
                    let columns = [half(0), half(1)];
                    for (r, sums) in sums.iter_mut().enumerate() {
                        let row = a.add(r * tile.a_step + 2 * pair).cast::<i32>().read_unaligned();
                        let row = transmute::<__m512i, __m512bh>(_mm512_set1_epi32(row));
                        for (sum, columns) in sums.iter_mut().zip(columns) {
                            *sum = _mm512_dpbf16_ps(*sum, row, columns);
                        }
                    }
                }
            }
            for (r, sums) in sums.iter().enumerate() {
                _mm512_storeu_ps(to.add(r * COLS), sums[0]);
                _mm512_storeu_ps(to.add(r * COLS + HALF), sums[1]);
            }
        }
    }
}

dispatched! {
    /// As f32: a bf16 is the upper half of the f32 that is the same number.
    ///
    /// # Safety
    /// As for [`Computer::compute`].
    unsafe fn widened<S>(s, tile: &Bf16Tile) {
        const R: usize = 4;
        for first in (0..tile.rows.next_multiple_of(R)).step_by(R) {
            for col in (0..COLS).step_by(S::LANES) {
                let to = tile.sums.add(first * COLS + col);
                let mut sums = [s.splat(0.0); R];
                if tile.adds {
                    for r in 0..R {
                        sums[r] = s.load(to.add(r * COLS));
                    }
                }
                let a = tile.a.add(first * tile.a_step);
                let b = tile.b.add((col / HALF * STEPS / 2 * HALF + col % HALF) * 2);
                for block in 0..tile.blocks {
                    let (a, b) = (a.byte_add(*tile.offsets.add(block)), b.add(block * STEPS * COLS));
                    for pair in 0..STEPS / 2 {
                        let pairs = s.bits(s.load(b.add(pair * 2 * HALF).cast()));
                        let low = s.float_of_bits(s.shl::<16>(pairs));
                        let high = s.float_of_bits(s.int_and(pairs, s.int(0xffff_0000_u32 as i32)));
                        for r in 0..R {
                            let row = a.add(r * tile.a_step + 2 * pair);
                            sums[r] = s.mul_add(s.splat(f32_of(*row)), low, sums[r]);
                            sums[r] = s.mul_add(s.splat(f32_of(*row.add(1))), high, sums[r]);
                        }
                    }
                }
                for r in 0..R {
                    s.store(to.add(r * COLS), sums[r]);
                }
            }
        }
    }
}

/// [`finish`] of results that are rounded to bf16: `rows` rows of `cols` of a tile's sums, which are overwritten, go to `c` or are added to it. What is
/// more than bounds, `activate` does to the sums, if there is any. The rows at `next`, any address, are those that will be written then: they are asked for.
///
/// # Safety
/// The sums are valid for the rows, [`COLS`] apart, and `c` for the rows, `c_step` apart; so is what the finish points to, which adds no other numbers.
#[cfg_attr(not(target_arch = "x86_64"), allow(unused_variables, reason = "nothing is asked for there"))]
pub(super) unsafe fn finish_rounded(
    sums: *mut f32,
    (c, next, c_step): (*mut u16, *const u16, usize),
    (rows, cols): (usize, usize),
    adds: bool,
    end: &Finish,
    activate: Option<&dyn Fn(*mut f32)>,
) {
    debug_assert!(end.residual.is_null(), "rounded results are added to where they lie");
    let instructions = Instructions::current();
    // SAFETY: the caller's promise; instructions were detected.
    unsafe {
        match (instructions, activate) {
            #[cfg(target_arch = "x86_64")]
            (Instructions::Dot, None) => {
                return rounded_at_once(sums, (c, next, c_step), (rows, cols), adds, end);
            }
            #[cfg(all(target_arch = "x86_64", target_os = "linux", feature = "std"))]
            (Instructions::Tiles, None) => {
                return rounded_at_once(sums, (c, next, c_step), (rows, cols), adds, end);
            }
            _ => {}
        }
        for row in 0..rows {
            let row_bias = if end.row_bias.is_null() { 0.0 } else { *end.row_bias.add(row) };
            for col in 0..cols {
                let col_bias = if end.col_bias.is_null() { 0.0 } else { *end.col_bias.add(col) };
                let mut x = *sums.add(row * COLS + col);
                if adds {
                    x += f32_of(*c.add(row * c_step + col));
                }
                x += row_bias + col_bias;
                // These let NaN through.
                x = if x < end.low { end.low } else { x };
                *sums.add(row * COLS + col) = if x > end.high { end.high } else { x };
            }
        }
        if let Some(activate) = activate {
            activate(sums);
        }
        for row in 0..rows {
            round(instructions, sums.add(row * COLS), cols, c.add(row * c_step));
        }
    }
}

/// [`finish_rounded`] by AVX-512-BF16, without an activation.
///
/// # Safety
/// As for [`finish_rounded`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
unsafe fn rounded_at_once(
    sums: *const f32,
    (c, next, c_step): (*mut u16, *const u16, usize),
    (rows, cols): (usize, usize),
    adds: bool,
    end: &Finish,
) {
    use core::arch::x86_64::*;
    use core::mem::transmute;
    let columns = if cols >= COLS { u32::MAX } else { (1 << cols) - 1 };
    let (low, high) = (_mm512_set1_ps(end.low), _mm512_set1_ps(end.high));
    // What changes nothing is left out: these few instructions a row are what takes time here.
    let (is_bounded_below, is_bounded_above) = (end.low > f32::NEG_INFINITY, end.high < f32::INFINITY);
    let row_bias = end.row_bias;
    // SAFETY: the caller's promise; what lies beyond the columns is neither read nor written.
    unsafe {
        let mut col_bias = [_mm512_setzero_ps(); 2];
        if !end.col_bias.is_null() {
            col_bias = [
                _mm512_maskz_loadu_ps(columns as u16, end.col_bias),
                _mm512_maskz_loadu_ps((columns >> HALF) as u16, end.col_bias.wrapping_add(HALF)),
            ];
        }
        for row in 0..rows {
            let (from, to) = (sums.add(row * COLS), c.add(row * c_step));
            // One a row, between which there is time: many at once would hold up the loads behind them.
            _mm_prefetch::<_MM_HINT_ET0>(next.wrapping_add(row * c_step).cast());
            let mut x = [_mm512_loadu_ps(from), _mm512_loadu_ps(from.add(HALF))];
            if adds {
                let halves = [
                    _mm256_maskz_loadu_epi16(columns as u16, to.cast()),
                    _mm256_maskz_loadu_epi16((columns >> HALF) as u16, to.wrapping_add(HALF).cast()),
                ];
                for (x, half) in x.iter_mut().zip(halves) {
                    let wide = _mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(half));
                    *x = _mm512_add_ps(*x, _mm512_castsi512_ps(wide));
                }
            }
            for (x, bias) in x.iter_mut().zip(col_bias) {
                *x = _mm512_add_ps(*x, bias);
                if !row_bias.is_null() {
                    *x = _mm512_add_ps(*x, _mm512_set1_ps(*row_bias.add(row)));
                }
                // The operand order lets NaN through.
                if is_bounded_below {
                    *x = _mm512_max_ps(low, *x);
                }
                if is_bounded_above {
                    *x = _mm512_min_ps(high, *x);
                }
            }
            let both = transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(x[1], x[0]));
            _mm512_mask_storeu_epi16(to.cast(), columns, both);
        }
    }
}

/// The number that a bf16 is: the upper half of the f32 that is the same number.
#[inline(always)]
pub(crate) fn f32_of(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

dispatched! {
    /// Writes `rows` rows of `cols` of a tile's sums to `c`, or adds them to it, as [`Finish`] says.
    ///
    /// # Safety
    /// `c` is valid for the rows, `c_step` apart, and so is what the finish points to.
    pub(super) unsafe fn finish<S>(
        s,
        sums: *const f32,
        c: *mut f32,
        c_step: usize,
        rows: usize,
        cols: usize,
        adds: bool,
        end: &Finish,
    ) {
        let (low, high) = (s.splat(end.low), s.splat(end.high));
        let mut col = 0;
        while col < cols {
            let count = S::LANES.min(cols - col);
            let mut columns = s.splat(0.0);
            if !end.col_bias.is_null() {
                columns = s.load_up_to(end.col_bias.add(col), count);
            }
            for row in 0..rows {
                let mut x = s.load(sums.add(row * COLS + col));
                if adds {
                    x = s.add(s.load_up_to(c.add(row * c_step + col), count), x);
                }
                if !end.residual.is_null() {
                    x = s.add(s.load_up_to(end.residual.add(row * c_step + col), count), x);
                }
                let bias = s.splat(if end.row_bias.is_null() { 0.0 } else { *end.row_bias.add(row) });
                x = s.add(x, s.add(bias, columns));
                // The operand order lets NaN through.
                s.store_up_to(c.add(row * c_step + col), count, s.min(high, s.max(low, x)));
            }
            col += S::LANES;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Computer;

    #[test]
    fn halves_load_few_lines() {
        // Two tiles rather than three, whole tiles, and seven rather than nine that would compute fewer rows.
        assert_eq!([49, 196, 3136, 197, 1].map(Computer::half_of_fewest_lines), [13, 14, 16, 16, 9]);
    }
}
