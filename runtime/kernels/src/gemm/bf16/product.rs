//! The loops around the tile: blocks that fit the caches, threads.

use super::pack::{Packed, copy_rows, round_rows};
use super::tile::{
    BLOCK_BYTES, Bf16Tile, COLS, CONTIGUOUS, Computer, HALF_ROWS, LINE, ROWS, STEPS, WHOLE, finish,
    finish_rounded,
};
use crate::gemm::{Epilogue, blocked::cut};
use crate::scratch::with_scratch;
use crate::threads::{self, INLINE_WORK, SharedMut, parallel_for};
use core::ops::Range;

/// Multiply-adds in a nanosecond, roughly, where the machine multiplies bf16.
pub(super) const PER_NANOSECOND: usize = 500;
/// Elements of rounded rows that are used again and again: 3/4 of a second-level cache of 1 MiB.
const BLOCK_ROWS: usize = 384 * 1024;
/// Elements of rounded rows beside a `B` that stays in the second-level cache.
const FEW_ROWS: usize = 48 * 1024;
/// Elements of such a `B`.
const NEAR: usize = 256 * 1024;
/// Rows beside which it costs little to wait for such a `B`.
const MANY_ROWS: usize = 512;
/// Products of a tile with a block of `B`, each of halves.
const PRODUCTS: usize = 4;
/// Elements in a cache line.
const LINE_STEPS: usize = LINE / size_of::<u16>();

/// Elements from one row of an `A` of so many steps to the next: whole lines, an odd number of them, so that rows share no places of a cache.
pub(crate) fn row_step(depth: usize) -> usize {
    ((depth.next_multiple_of(STEPS) / LINE_STEPS) | 1) * LINE_STEPS
}

/// What tiles of some rows ask for while they multiply a part of a panel: together as much as lies behind it, the next part or the next panel.
struct Ahead {
    /// Lines for each block of the depth.
    lines: usize,
}

impl Ahead {
    /// For so many tiles; a few lines follow each of a tile's products.
    fn of(tiles: usize) -> Self {
        Self { lines: (BLOCK_BYTES / LINE).div_ceil(tiles).next_multiple_of(PRODUCTS) }
    }

    /// What a tile asks for, beside the panel's part `b`.
    fn at(&self, tile: usize, b: &[u16]) -> (*const u16, usize) {
        let lines = size_of_val(b) / BLOCK_BYTES * self.lines;
        if tile * lines * LINE < size_of_val(b) {
            (b.as_ptr_range().end.wrapping_byte_add(tile * lines * LINE), self.lines)
        } else {
            (b.as_ptr(), 0)
        }
    }
}

/// `sums = A · B` of rounded rows, [`row_step`] or more apart, and one packed panel: [`PANEL`](super::PANEL) sums a row without gaps. Rows are computed up to
/// a multiple of [`WHOLE`].
///
/// # Panics
/// When an operand does not hold the rows, or the panel is empty.
pub(crate) fn panel_sums(rows: usize, a: &[u16], a_step: usize, panel: &[u16], sums: &mut [f32]) {
    let (computer, depth) = (Computer::new(HALF_ROWS), panel.len() / COLS);
    let whole = rows.next_multiple_of(WHOLE);
    assert!(depth > 0 && depth.is_multiple_of(STEPS) && depth <= a_step, "a panel of whole blocks");
    assert!(whole * a_step <= a.len() && whole * COLS <= sums.len(), "room for whole tiles");
    let (parts, ahead) = (depth.div_ceil(Computer::block_depth()), Ahead::of(rows.div_ceil(ROWS)));
    for part in 0..parts {
        let steps = cut(depth, STEPS, parts, part);
        let b = &panel[steps.start * COLS..steps.end * COLS];
        for first in (0..rows).step_by(ROWS) {
            let (ahead, ahead_lines) = ahead.at(first / ROWS, b);
            // SAFETY: the operands hold whole tiles, as was checked.
            unsafe {
                computer.compute(&Bf16Tile {
                    blocks: steps.len() / STEPS,
                    rows: ROWS.min(rows - first),
                    a: a.as_ptr().add(first * a_step + steps.start),
                    lower: a.as_ptr().add(first * a_step + steps.start).wrapping_add(HALF_ROWS * a_step),
                    a_step,
                    offsets: CONTIGUOUS.as_ptr(),
                    b: b.as_ptr(),
                    ahead,
                    ahead_lines,
                    to: None,
                    sums: sums.as_mut_ptr().add(first * COLS),
                    adds: part > 0,
                });
            }
        }
    }
}

/// Sums of single tiles on the calling thread, which computes no other products of bf16 while this lives.
pub(crate) struct TileSums {
    computer: Computer,
    half: usize,
}

impl TileSums {
    /// For tiles of a product of `m` rows.
    pub fn of(m: usize) -> Self {
        let half = Computer::half(m);
        Self { computer: Computer::new(half), half }
    }

    /// [`Self::rows`] for a product of `m` rows.
    pub fn rows_for(m: usize) -> usize {
        2 * Computer::half(m)
    }

    /// Most rows of a tile. Memory for rows of `A` and for sums is there for all of them.
    pub fn rows(&self) -> usize {
        2 * self.half
    }

    /// `sums = A · B` of some rounded rows, with the elements from one to the next, and one packed panel, or its first blocks:
    /// [`PANEL`](super::PANEL) sums a row without gaps.
    ///
    /// # Panics
    /// When an operand does not hold [`Self::rows`], or there are no blocks.
    pub fn compute(&self, rows: usize, (a, a_step): (&[u16], usize), panel: &[u16], sums: &mut [f32]) {
        let depth = panel.len() / COLS;
        assert!(depth > 0 && depth.is_multiple_of(STEPS) && depth <= a_step, "a panel of whole blocks");
        assert!(rows <= self.rows(), "rows of a tile");
        assert!(self.rows() * a_step <= a.len() && self.rows() * COLS <= sums.len(), "room for a whole tile");
        let parts = depth.div_ceil(Computer::block_depth());
        for part in 0..parts {
            let steps = cut(depth, STEPS, parts, part);
            let b = panel[steps.start * COLS..steps.end * COLS].as_ptr();
            let a = a[steps.start..].as_ptr();
            // SAFETY: the operands hold a whole tile, as was checked.
            unsafe {
                self.computer.compute(&Bf16Tile {
                    blocks: steps.len() / STEPS,
                    rows,
                    a,
                    lower: a.wrapping_add(self.half * a_step),
                    a_step,
                    offsets: CONTIGUOUS.as_ptr(),
                    b,
                    ahead: b,
                    ahead_lines: 0,
                    to: None,
                    sums: sums.as_mut_ptr(),
                    adds: part > 0,
                });
            }
        }
    }
}

/// Writes some rows of `A`, each with the elements from one to the next, and zeros behind each up to a multiple of [`STEPS`].
pub(crate) type Gather<'a> = dyn Fn(Range<usize>, *mut u16, usize) + Sync + 'a;

/// Where the rows of `A` come from.
#[derive(Clone, Copy)]
pub(crate) enum Bf16Rows<'a> {
    /// They lie in memory in f32; elements from one row to the next.
    Single(&'a [f32], usize),
    /// They lie in memory and were rounded before; elements from one row to the next.
    Rounded(&'a [u16], usize),
    /// Written when needed.
    Gather(&'a Gather<'a>),
    /// They are windows of an image that was rounded before.
    Windows(&'a WindowRows<'a>),
}

/// Rows of `A` that are windows of an image and lie in it in blocks of [`STEPS`]. Lines of them have [halves of tiles](Computer::half_of).
pub(crate) struct WindowRows<'a> {
    /// The image with its padding.
    image: &'a [u16],
    /// For each block of the depth, the bytes to it from a window's start.
    offsets: &'a [usize],
    /// Elements from a window's start to behind its last one.
    reach: usize,
    /// Elements from one window to the next in a line.
    step: usize,
    /// Rows of each half of a tile.
    half: usize,
    /// Where a window starts.
    start: &'a (dyn Fn(usize) -> usize + Sync + 'a),
}

impl<'a> WindowRows<'a> {
    /// Windows in lines of `line`, each `step` elements from the one before it, of the blocks at the given bytes from where they `start`; none where rows of a
    /// tile must lie evenly.
    pub fn new(
        image: &'a [u16],
        offsets: &'a [usize],
        (line, step): (usize, usize),
        start: &'a (dyn Fn(usize) -> usize + Sync + 'a),
    ) -> Option<Self> {
        let half = Computer::half_of(line)?;
        let reach = offsets.iter().max().map_or(0, |last| last / size_of::<u16>() + STEPS);
        Some(Self { image, offsets, reach, step, half, start })
    }

    /// The first of the rows of a half of a tile.
    fn at(&self, row: usize) -> *const u16 {
        let start = (self.start)(row);
        assert!(
            start + (self.half - 1) * self.step + self.reach <= self.image.len(),
            "windows lie in the image"
        );
        self.image[start..].as_ptr()
    }
}

/// Where results go.
#[derive(Clone, Copy)]
pub(crate) enum Bf16Results<'a> {
    /// As the sums are.
    Single(&'a SharedMut<'a, f32>),
    /// Rounded; then no other numbers are added than those that are there.
    Rounded(&'a SharedMut<'a, u16>),
}

/// A whole product: `B` packed, `C` to be written.
#[derive(Clone, Copy)]
pub(crate) struct Bf16Product<'a> {
    /// Rows of `C`.
    pub m: usize,
    /// `A`.
    pub a: Bf16Rows<'a>,
    /// `B`.
    pub b: Packed<'a>,
    /// `C`, valid for all of the product.
    pub c: Bf16Results<'a>,
    /// Where in `c` the product starts.
    pub c_start: usize,
    /// Elements from one row of `C` to the next.
    pub c_step: usize,
    /// Adds to what `C` holds, before any activation.
    pub adds: bool,
    /// What happens at the end; its residual starts where the product does.
    pub epilogue: &'a Epilogue<'a>,
}

impl Bf16Product<'_> {
    /// Computes it, on several threads when that pays. `A` and `C` hold the product, and so does the epilogue.
    pub fn run(&self) {
        let Packed { depth: k, cols: n, .. } = self.b;
        if self.m == 0 || n == 0 {
            return;
        }
        let work = self.m.saturating_mul(n).saturating_mul(k) / PER_NANOSECOND + self.m * n / 16 + 1;
        let wanted = match threads::sharing() {
            1 => 1,
            threads => (threads * 2).min((work / (INLINE_WORK / 2)).max(1)),
        };
        let half = self.half();
        let (rows, cols) = (self.m.div_ceil(2 * half), n.div_ceil(COLS));
        // Jobs of the same rows round them each for itself, jobs of the same columns read the same panels: the larger operand is shared out.
        let (row_jobs, col_jobs) = if self.m >= n || cols < 4 * wanted {
            let row_jobs = rows.min(wanted);
            (row_jobs, cols.div_ceil(4).min(wanted.div_ceil(row_jobs)))
        } else {
            (1, wanted)
        };
        let jobs = row_jobs * col_jobs;
        parallel_for(jobs, work / jobs + 1, |range| {
            for job in range {
                self.block(
                    cut(self.m, 2 * half, row_jobs, job % row_jobs),
                    cut(n, COLS, col_jobs, job / row_jobs),
                    half,
                );
            }
        });
    }

    /// Computes it on the calling thread.
    pub fn run_here(&self) {
        self.block(0..self.m, 0..self.b.cols, self.half());
    }

    /// Rows of each half of a tile.
    fn half(&self) -> usize {
        match self.a {
            Bf16Rows::Windows(windows) => {
                assert!(
                    self.m.is_multiple_of(windows.half) && windows.offsets.len() * STEPS == self.b.depth,
                    "whole lines of whole blocks"
                );
                windows.half
            }
            Bf16Rows::Single(..) | Bf16Rows::Rounded(..) | Bf16Rows::Gather(_) => Computer::half(self.m),
        }
    }

    /// Computes a part of `C` whose columns start at a panel, by tiles whose halves have so many rows.
    fn block(&self, rows: Range<usize>, cols: Range<usize>, half: usize) {
        if rows.is_empty() || cols.is_empty() {
            return;
        }
        if self.b.depth == 0 {
            return self.without_depth(rows, cols);
        }
        let (tile, a_step) = (2 * half, row_step(self.b.depth));
        let height =
            (if self.is_near(cols.len()) { FEW_ROWS } else { BLOCK_ROWS } / a_step / tile).max(1) * tile;
        let blocks = rows.len().div_ceil(height);
        let most = (rows.len().div_ceil(blocks).div_ceil(tile) + 1) * tile;
        let put_aside = if self.b.depth > Computer::block_depth() { most } else { tile };
        // Of rows that are read where they lie, only those are copied behind which no other rows lie.
        let in_place = self.in_place(half);
        let copied = match self.a {
            Bf16Rows::Windows(_) => 0,
            _ if in_place.is_some() => tile,
            _ => most,
        };
        with_scratch(copied * a_step / 2 + put_aside * COLS, |space| {
            let (sums, space) = space.split_at_mut(put_aside * COLS);
            let space: &mut [u16] = bytemuck::cast_slice_mut(space);
            for block in 0..blocks {
                let part = cut(rows.len(), tile, blocks, block);
                let part = rows.start + part.start..rows.start + part.end;
                let a = if let Bf16Rows::Windows(windows) = self.a {
                    Lines::Windows(windows)
                } else {
                    let lying =
                        in_place.map_or(0, |(lying, _)| lying.saturating_sub(part.start).min(part.len()));
                    // Whole tiles.
                    let lying = if lying < part.len() { lying / tile * tile } else { lying };
                    if lying < part.len() {
                        self.copy(part.start + lying..part.end, space, a_step);
                    }
                    let in_place = in_place.map(|(_, (a, step))| (&a[part.start * step..], step));
                    Lines::Even { lying, in_place, copied: (space, a_step) }
                };
                // What stays in the second-level cache is asked for once.
                let asks = self.b.is_far && (block == 0 || !self.is_near(cols.len()));
                self.panels(part, cols.clone(), &a, half, asks, sums);
            }
        });
    }

    /// The rows that may be read where they lie, and how many there are behind which others lie up to a multiple of `half`; elements from one to the next.
    fn in_place(&self, half: usize) -> Option<(usize, (&[u16], usize))> {
        let Bf16Rows::Rounded(a, step) = self.a else { return None };
        let k = self.b.depth;
        if !k.is_multiple_of(STEPS) || !step.is_multiple_of(LINE_STEPS) {
            return None;
        }
        let there = if a.len() < k { 0 } else { (a.len() - k) / step + 1 };
        assert!(there >= self.m, "room for rows");
        let lying = if self.m.next_multiple_of(half) <= there { self.m } else { self.m / half * half };
        Some((lying, (a, step)))
    }

    /// Writes some rows, rounded and filled up with zeros.
    fn copy(&self, rows: Range<usize>, to: &mut [u16], a_step: usize) {
        let k = self.b.depth;
        let holds = |len: usize, step: usize| {
            assert!((rows.len() - 1) * step + k <= len && rows.len() * a_step <= to.len(), "room for rows");
        };
        match self.a {
            Bf16Rows::Windows(_) => unreachable!("windows are read where they lie"),
            Bf16Rows::Gather(gather) => gather(rows, to.as_mut_ptr(), a_step),
            Bf16Rows::Single(a, step) => {
                let a = &a[rows.start * step..];
                holds(a.len(), step);
                // SAFETY: as was checked.
                unsafe { round_rows(rows.len(), k, (a.as_ptr(), step), (to.as_mut_ptr(), a_step)) };
            }
            Bf16Rows::Rounded(a, step) => {
                let a = &a[rows.start * step..];
                holds(a.len(), step);
                // SAFETY: as was checked.
                unsafe { copy_rows(rows.len(), k, (a.as_ptr(), step), (to.as_mut_ptr(), a_step)) };
            }
        }
    }

    /// Some rows times some columns, of which the next ones are asked for ahead if it `asks`.
    fn panels(
        &self,
        rows: Range<usize>,
        cols: Range<usize>,
        a: &Lines<'_>,
        half: usize,
        asks: bool,
        sums: &mut [f32],
    ) {
        let computer = Computer::new(half);
        let tile = 2 * half;
        let (depth, tiles) = (self.b.depth.next_multiple_of(STEPS), rows.len().div_ceil(tile));
        let parts = depth.div_ceil(Computer::block_depth());
        // Rows that are written whole need the next panel at once.
        let whole = parts == 1 && self.m >= MANY_ROWS && self.is_near(cols.len());
        let ahead = Ahead::of(if whole { 1 } else { tiles });
        let mut compute = |col: usize, part: usize, steps: &Range<usize>, i: usize, next: (usize, usize)| {
            let (first, last) = (i * tile, part + 1 == parts);
            let height = tile.min(rows.len() - first);
            let whole = height.next_multiple_of(half);
            let sums = &mut sums[if parts > 1 { first * COLS } else { 0 }..][..whole * COLS];
            let b = &self.b.data[col / COLS * self.b.panel()..][steps.start * COLS..steps.end * COLS];
            let (ahead, ahead_lines) = if asks { ahead.at(i, b) } else { (b.as_ptr(), 0) };
            let a = a.at(rows.start + first, first, (whole, half), steps);
            // SAFETY: the operands hold what the tile names.
            unsafe {
                computer.compute(&Bf16Tile {
                    blocks: steps.len() / STEPS,
                    rows: height,
                    a: a.upper,
                    lower: a.lower,
                    a_step: a.step,
                    offsets: a.offsets,
                    b: b.as_ptr(),
                    ahead,
                    ahead_lines,
                    to: if last { self.to(rows.start + first, col) } else { None },
                    sums: sums.as_mut_ptr(),
                    adds: part > 0,
                });
            }
            if last {
                let count = COLS.min(cols.end - col);
                // SAFETY: the part of `C` is this job's own.
                unsafe { self.finish(sums, (rows.start + first, col), (height, count), next) };
            }
        };
        let panels = || cols.clone().step_by(COLS).map(|col| col..cols.end.min(col + COLS));
        if whole {
            // Rows are written whole. The first of them wait for all of `B`, which comes from afar.
            for (i, first) in rows.clone().step_by(tile).enumerate() {
                for panel in panels() {
                    let next =
                        if panel.end < cols.end { (first, panel.end) } else { (first + tile, cols.start) };
                    compute(panel.start, 0, &(0..depth), i, next);
                    // SAFETY: the part of `C` is this job's own.
                    unsafe { self.activate(first..rows.end.min(first + tile), panel) };
                }
            }
            return;
        }
        for panel in panels() {
            for part in 0..parts {
                let steps = cut(depth, STEPS, parts, part);
                (0..tiles).for_each(|i| {
                    let next = if i + 1 < tiles {
                        (rows.start + (i + 1) * tile, panel.start)
                    } else {
                        (rows.start, panel.end)
                    };
                    compute(panel.start, part, &steps, i, next);
                });
            }
            // SAFETY: as above.
            unsafe { self.activate(rows.clone(), panel) };
        }
    }

    /// Whether so many columns of `B` stay in the second-level cache.
    fn is_near(&self, cols: usize) -> bool {
        row_step(self.b.depth) * (cols + 1) <= NEAR
    }

    /// Where a tile's sums go as they are.
    fn to(&self, row: usize, col: usize) -> Option<(*const f32, usize)> {
        match self.c {
            Bf16Results::Single(c) => {
                // SAFETY: the element is in `C`.
                let first = unsafe { c.ptr(self.c_start + row * self.c_step + col) };
                Some((first.cast_const(), self.c_step))
            }
            Bf16Results::Rounded(_) => None,
        }
    }

    /// Applies an activation that is more than bounds to a part of a `C` that is not rounded.
    ///
    /// # Safety
    /// The part of `C` is the caller's own.
    unsafe fn activate(&self, rows: Range<usize>, cols: Range<usize>) {
        if let Bf16Results::Single(c) = self.c {
            // SAFETY: the caller's promise; the epilogue was checked.
            unsafe { self.epilogue.activate(c.ptr(self.c_start), self.c_step, rows, cols) };
        }
    }

    /// Writes a tile of `height` rows and `count` columns to `C`, with what follows but for what [`Self::activate`] does. The `next` one's first row
    /// and column, any, say what will be written then.
    ///
    /// # Safety
    /// The part of `C` is the caller's own, and the tile inside of the product.
    unsafe fn finish(
        &self,
        sums: &mut [f32],
        (row, col): (usize, usize),
        (height, count): (usize, usize),
        next: (usize, usize),
    ) {
        let sums = sums[..height * COLS].as_mut_ptr();
        let end = self.epilogue.of_tile(row, col, self.c_step);
        let at = self.c_start + row * self.c_step + col;
        // SAFETY: the caller's promise; the element is in `C`, and the epilogue was checked.
        unsafe {
            match self.c {
                Bf16Results::Single(c) => {
                    finish(sums, c.ptr(at), self.c_step, height, count, self.adds, &end);
                }
                Bf16Results::Rounded(c) => {
                    let activate = |sums: *mut f32| self.epilogue.activate(sums, COLS, 0..height, 0..count);
                    let activate: Option<&dyn Fn(*mut f32)> =
                        if self.epilogue.is_bounds() { None } else { Some(&activate) };
                    let next = c.ptr(self.c_start).wrapping_add(next.0 * self.c_step + next.1);
                    finish_rounded(
                        sums,
                        (c.ptr(at), next, self.c_step),
                        (height, count),
                        self.adds,
                        &end,
                        activate,
                    );
                }
            }
        }
    }

    /// A product of depth 0: zeros, and the epilogue.
    fn without_depth(&self, rows: Range<usize>, cols: Range<usize>) {
        for col in cols.clone().step_by(COLS) {
            for row in rows.clone().step_by(ROWS) {
                let (height, count) = (ROWS.min(rows.end - row), COLS.min(cols.end - col));
                // SAFETY: this part of `C` is this job's own.
                unsafe {
                    self.finish(&mut [0.0; ROWS * COLS], (row, col), (height, count), (row, col));
                    self.activate(row..row + height, col..col + count);
                }
            }
        }
    }
}

/// Rows of `A` that a block reads.
enum Lines<'a> {
    /// They lie evenly.
    Even {
        /// How many of the block's rows are read where they lie.
        lying: usize,
        /// The block's rows where they lie, and elements from one to the next.
        in_place: Option<(&'a [u16], usize)>,
        /// The rows behind those that are read there, and elements from one to the next.
        copied: (&'a [u16], usize),
    },
    /// They are windows.
    Windows(&'a WindowRows<'a>),
}

/// Where the rows of a tile lie.
struct TileRows {
    /// The first of each half.
    upper: *const u16,
    lower: *const u16,
    /// Elements from one row to the next in a half.
    step: usize,
    /// For each block, the bytes to it from a row's start.
    offsets: *const usize,
}

impl Lines<'_> {
    /// Some steps of as many rows as one half of a tile has, or both, from a row of the product on, which is the block's `first`.
    #[inline(always)]
    fn at(&self, row: usize, first: usize, (rows, half): (usize, usize), steps: &Range<usize>) -> TileRows {
        match *self {
            Self::Windows(windows) => {
                let upper = windows.at(row);
                let lower = if rows > half { windows.at(row + half) } else { upper };
                let offsets = windows.offsets[steps.start / STEPS..steps.end / STEPS].as_ptr();
                TileRows { upper, lower, step: windows.step, offsets }
            }
            Self::Even { lying, in_place, copied } => {
                let (a, step, first) = match in_place {
                    Some((a, step)) if first < lying => (a, step, first),
                    _ => (copied.0, copied.1, first - lying),
                };
                let all = &a[first * step + steps.start..][..(rows - 1) * step + steps.len()];
                let upper = all.as_ptr();
                TileRows { upper, lower: upper.wrapping_add(half * step), step, offsets: CONTIGUOUS.as_ptr() }
            }
        }
    }
}
