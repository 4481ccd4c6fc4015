//! Attention with products of bf16, for blocks of as many queries as a tile has rows.
//!
//! Keys and values of a head are packed once. The products of a block and 32 keys are a tile of sums, and its scores stay where they are. When there
//! are those of all keys, they become weights, which are rounded on their way into the rows of the second product, that with the values.
//! Weights need not be more exact than what they are rounded to.

use super::{AttentionMask, AttentionShape, Task, scale_of, seen_by};
#[cfg(target_arch = "x86_64")]
use crate::gemm::AtOnce;
use crate::gemm::{
    Matrix, PANEL, PackedBf16View, Plainly, Rounding, STEPS, TileSums, pack_bf16_into, packed_bf16_len,
    round_rows, row_step,
};
use crate::math::{rounded_weight_of_two, tanh};
use crate::scratch::with_scratch;
#[cfg(target_arch = "x86_64")]
use crate::simd::avx512::Avx512;
use crate::simd::{Simd, dispatched};
use crate::threads::{self, parallel_for};
use core::f32::consts::LOG2_E;
use core::ops::Range;
use kiln_types::FullyMasked;

/// Most queries of a block.
const QUERIES: usize = 32;
/// 1 as bf16.
const ONE: u16 = 0x3f80;
/// The numbers of a panel's columns.
const PLACES: [f32; PANEL] = {
    let mut places = [0.0; PANEL];
    let mut i = 0;
    while i < PANEL {
        places[i] = i as f32;
        i += 1;
    }
    places
};

// A panel of keys in the first product is a block of the depth in the second.
const _: () = assert!(PANEL == STEPS);

/// Some queries of a head.
struct Block {
    batch: usize,
    head: usize,
    queries: Range<usize>,
    /// How many keys each sees.
    seen: [usize; QUERIES],
}

impl Block {
    /// How many keys each sees.
    fn seen(&self) -> &[usize] {
        &self.seen[..self.queries.len()]
    }
}

/// Working space for a block. Rows are there for a whole tile.
struct Space<'a> {
    /// Rounded queries, [`row_step`] apart.
    queries: &'a mut [u16],
    /// For each panel of keys [`PANEL`] scores a query.
    scores: &'a mut [f32],
    /// Rounded weights, [`row_step`] apart.
    weights: &'a mut [u16],
    /// [`PANEL`] sums of weighted values a query.
    values: &'a mut [f32],
}

impl Task<'_> {
    /// Computes all of it, on several threads when that pays.
    pub(super) fn rounded(&self) {
        let AttentionShape { batch, heads, kv_heads, q_len, k_len, size, value_size } = *self.shape;
        let group = heads / kv_heads;
        let jobs = group * q_len.div_ceil(TileSums::rows_for(q_len));
        // One unit packs keys and values once for all queries that it takes; with few heads, queries are shared out too.
        let units = batch * kv_heads;
        let shares = (2 * threads::sharing()).div_ceil(units).clamp(1, jobs);
        let work = (group * q_len * k_len).saturating_mul(size + value_size + 30) / 80 / shares + 1;
        parallel_for(units * shares, work, |range| {
            for unit in range {
                let (kv, share) = (unit / shares, unit % shares);
                let jobs = jobs * share / shares..jobs * (share + 1) / shares;
                self.blocks(kv / kv_heads, kv % kv_heads, jobs);
            }
        });
    }

    /// Packs keys and values of one head, then runs some blocks of its queries.
    fn blocks(&self, batch: usize, kv: usize, jobs: Range<usize>) {
        let AttentionShape { heads, kv_heads, q_len, k_len, size, value_size, .. } = *self.shape;
        let rows = TileSums::rows_for(q_len);
        let blocks = q_len.div_ceil(rows);
        let lens = [
            packed_bf16_len(size, k_len),
            packed_bf16_len(k_len, value_size),
            rows * row_step(size) / 2,
            rows * k_len.next_multiple_of(PANEL),
            rows * row_step(k_len) / 2,
            rows * PANEL,
        ];
        with_scratch(lens.iter().sum(), |mut space| {
            let [keys, values, queries, scores, weights, sums] = lens.map(|len| {
                let (part, behind) = core::mem::take(&mut space).split_at_mut(len);
                space = behind;
                part
            });
            let keys = packed(self.k.matrix(batch, kv).transposed(), size, k_len, keys);
            let values = packed(self.v.matrix(batch, kv), k_len, value_size, values);
            let mut space = Space {
                queries: bytemuck::cast_slice_mut(queries),
                scores,
                weights: bytemuck::cast_slice_mut(weights),
                values: sums,
            };
            let tiles = TileSums::of(q_len);
            for job in jobs {
                let first = job % blocks * rows;
                let block = Block {
                    batch,
                    head: kv * (heads / kv_heads) + job / blocks,
                    queries: first..q_len.min(first + rows),
                    seen: core::array::from_fn(|i| seen_by(first + i, self.shape, self.options)),
                };
                self.block(&tiles, &block, keys, values, &mut space);
            }
        });
    }

    /// The results of some queries.
    fn block(
        &self,
        tiles: &TileSums,
        block: &Block,
        keys: PackedBf16View<'_>,
        values: PackedBf16View<'_>,
        space: &mut Space<'_>,
    ) {
        let AttentionShape { heads, q_len, k_len, size, value_size, .. } = *self.shape;
        let count = block.queries.len();
        let seen = block.seen();
        // Panels that no query sees are left out.
        let panels = seen.iter().max().map_or(0, |most| most.div_ceil(PANEL));
        let steps = [row_step(size), row_step(k_len)];
        let of_panel = tiles.rows() * PANEL;

        let q = self.q.matrix(block.batch, block.head);
        let q = (q.data[block.queries.start * q.row_stride..].as_ptr(), q.row_stride);
        // SAFETY: the queries were checked, and there is room for a tile of them.
        unsafe { round_rows(count, size, q, (space.queries.as_mut_ptr(), steps[0])) };
        let mut adjustment = self.adjustment(block);
        let scale = LOG2_E * if adjustment.scale.is_some() { 1.0 } else { scale_of(self.options, size) };
        for (panel, scores) in space.scores.chunks_exact_mut(of_panel).take(panels).enumerate() {
            let keys = &keys.data[panel * keys.panel()..][..keys.panel()];
            match size {
                0 => scores.fill(0.0),
                _ => tiles.compute(count, (space.queries, steps[0]), keys, scores),
            }
            adjustment.keys = panel * PANEL..k_len.min((panel + 1) * PANEL);
            if adjustment.changes_any() {
                // SAFETY: there are scores of as many queries.
                unsafe { adjust(scores, count, &adjustment) };
            }
        }

        let mut sums = [1.0; QUERIES];
        let yields = match self.mask {
            AttentionMask::Bool(..) => self.options.fully_masked.or(Some(FullyMasked::Zeros)),
            AttentionMask::None | AttentionMask::Float(..) => self.options.fully_masked,
        };
        let scores = Scores { scores: space.scores, of_panel, panels, scale };
        // SAFETY: there is room for the rows of a tile, of which these are some.
        unsafe { weigh(scores, seen, yields, (space.weights, steps[1]), &mut sums) };

        let first = ((block.batch * heads + block.head) * q_len + block.queries.start) * value_size;
        // SAFETY: these rows are this block's own.
        let out = unsafe { self.out.slice(first..first + count * value_size) };
        for col in (0..value_size).step_by(PANEL) {
            let values = &values.data[col / PANEL * values.panel()..][..panels * STEPS * PANEL];
            match panels {
                0 => space.values.fill(0.0),
                _ => tiles.compute(count, (space.weights, steps[1]), values, space.values),
            }
            // SAFETY: the rows of the result have so many columns from this one on.
            unsafe {
                finish(space.values, &sums[..count], &mut out[col..], value_size, PANEL.min(value_size - col))
            };
        }
    }

    /// What is done to the scores of a block, of no keys yet.
    fn adjustment<'a>(&'a self, block: &'a Block) -> Adjustment<'a> {
        let k_len = self.shape.k_len;
        let start = |strides: [usize; 4]| {
            block.batch * strides[0] + block.head * strides[1] + block.queries.start * strides[2]
        };
        // Most masks that are the same for all queries hide nothing.
        let mask = match self.mask {
            AttentionMask::None => Mask::None,
            AttentionMask::Bool(keep, strides) => match &keep[start(strides)..] {
                keep if strides[2] == 0 && all(keep, strides[3], k_len, |&keep| keep != 0) => Mask::None,
                keep => Mask::Keep(keep, [strides[2], strides[3]]),
            },
            AttentionMask::Float(add, strides) => match &add[start(strides)..] {
                add if strides[2] == 0 && all(add, strides[3], k_len, |&add| add == 0.0) => Mask::None,
                add => Mask::Add(add, [strides[2], strides[3]]),
            },
        };
        let softcap = self.options.softcap.map(|cap| cap as f32).filter(|&cap| cap != 0.0);
        let scale = scale_of(self.options, self.shape.size);
        // What keeps the order of the products and hides some at most needs no scores: their exponents are scaled alone.
        let is_folded = softcap.is_none() && !matches!(mask, Mask::Add(..)) && scale > 0.0;
        Adjustment { scale: (!is_folded).then_some(scale), softcap, mask, keys: 0..0, seen: block.seen() }
    }
}

/// Whether a predicate holds for all of `n` elements that are `step` apart.
fn all<T>(x: &[T], step: usize, n: usize, is: impl Fn(&T) -> bool) -> bool {
    match step {
        0 => is(&x[0]),
        // Without an early end, so that vectors are compared.
        1 => x[..n].iter().fold(true, |all, x| all & is(x)),
        step => x.iter().step_by(step).take(n).all(is),
    }
}

/// Keys or values of a head, rounded and packed.
fn packed<'a>(b: Matrix<'_>, depth: usize, cols: usize, space: &'a mut [f32]) -> PackedBf16View<'a> {
    let data: &mut [u16] = bytemuck::cast_slice_mut(space);
    pack_bf16_into(b, depth, cols, data);
    PackedBf16View { data, depth, cols, is_far: false }
}

/// What hides keys from the queries of a block; elements from one query and from one key to the next.
enum Mask<'a> {
    None,
    /// Keeps where not 0.
    Keep(&'a [u8], [usize; 2]),
    /// Added to scores.
    Add(&'a [f32], [usize; 2]),
}

/// What is done to the products of a block of queries and some keys.
struct Adjustment<'a> {
    /// What they are multiplied with, unless their exponents are.
    scale: Option<f32>,
    softcap: Option<f32>,
    mask: Mask<'a>,
    keys: Range<usize>,
    /// How many keys each query sees.
    seen: &'a [usize],
}

impl Adjustment<'_> {
    /// Whether any score becomes another one. What is no key, behind the last one, is seen by no query.
    fn changes_any(&self) -> bool {
        let hides = self.seen.iter().any(|&seen| seen < self.keys.start + PANEL);
        hides || self.scale.is_some() || !matches!(self.mask, Mask::None)
    }

    /// Adjusts the scores of one query; a row of the mask may be left from the query before.
    ///
    /// # Safety
    /// `scores` holds a panel's.
    #[inline(always)]
    unsafe fn row<S: Simd>(&self, s: S, row: usize, scores: *mut f32, space: &mut [f32; PANEL]) {
        let mask = match self.mask {
            Mask::None => space.as_ptr(),
            Mask::Add(add, [of_query, 1]) if self.keys.len() == PANEL => {
                add[row * of_query + self.keys.start..][..PANEL].as_ptr()
            }
            Mask::Add(add, strides) => {
                self.mask_row(row, add, strides, space, |&add| add);
                space.as_ptr()
            }
            Mask::Keep(keep, strides) => {
                self.mask_row(row, keep, strides, space, |&keep| f32::from(keep != 0) - 1.0);
                space.as_ptr()
            }
        };
        let hidden = s.splat(f32::NEG_INFINITY);
        let end = self.seen[row].clamp(self.keys.start, self.keys.start + PANEL) - self.keys.start;
        for col in (0..PANEL).step_by(S::LANES) {
            // SAFETY: scores, mask and places have as many elements as a panel columns.
            unsafe {
                let at = scores.add(col);
                let mut x = s.load(at);
                if let Some(scale) = self.scale {
                    x = s.mul(x, s.splat(scale));
                }
                if let Some(cap) = self.softcap {
                    x = s.mul(tanh(s, s.div(x, s.splat(cap))), s.splat(cap));
                }
                x = match self.mask {
                    Mask::None => x,
                    Mask::Add(..) => s.add(s.load(mask.add(col)), x),
                    Mask::Keep(..) => s.select(s.lt(s.load(mask.add(col)), s.splat(0.0)), hidden, x),
                };
                if end < PANEL {
                    x = s.select(s.lt(s.load(PLACES.as_ptr().add(col)), s.splat(end as f32)), x, hidden);
                }
                s.store(at, x);
            }
        }
    }

    /// Writes a query's row of a mask, unless it is that of the query before.
    #[inline(always)]
    fn mask_row<T>(
        &self,
        row: usize,
        mask: &[T],
        [of_query, of_key]: [usize; 2],
        to: &mut [f32; PANEL],
        of: impl Fn(&T) -> f32,
    ) {
        if row > 0 && of_query == 0 {
            return;
        }
        let from = &mask[row * of_query + self.keys.start * of_key..];
        let to = &mut to[..self.keys.len()];
        match of_key {
            0 => to.fill(of(&from[0])),
            1 => to.iter_mut().zip(from).for_each(|(to, from)| *to = of(from)),
            step => to.iter_mut().zip(from.iter().step_by(step)).for_each(|(to, from)| *to = of(from)),
        }
    }
}

dispatched! {
    /// Adjusts the scores of a panel of keys.
    ///
    /// # Safety
    /// There are scores of as many queries.
    unsafe fn adjust<S>(s, scores: &mut [f32], queries: usize, adjustment: &Adjustment<'_>) {
        let mut mask = [0.0; PANEL];
        for row in 0..queries {
            adjustment.row(s, row, scores.as_mut_ptr().add(row * PANEL), &mut mask);
        }
    }
}

/// Scores of a block.
struct Scores<'a> {
    /// For each panel of keys, [`PANEL`] a query.
    scores: &'a mut [f32],
    /// Elements from one panel to the next.
    of_panel: usize,
    panels: usize,
    /// What makes exponents of two of them.
    scale: f32,
}

/// Turns scores into rounded weights, those of a query side by side, `2^(scale · (score - largest))`, and writes their sums. Where no key is left,
/// weights are what the query `yields`, if that is anything.
///
/// # Safety
/// There are scores of as many queries as see keys, and room for their weights, with the elements from one row to the next.
unsafe fn weigh(
    scores: Scores<'_>,
    seen: &[usize],
    yields: Option<FullyMasked>,
    weights: (&mut [u16], usize),
    sums: &mut [f32; QUERIES],
) {
    #[cfg(target_arch = "x86_64")]
    if let Some(rounding) = AtOnce::current() {
        // SAFETY: the token says that the instructions are there; the rest is the caller's promise.
        return unsafe { weigh_at_once(rounding, scores, seen, yields, weights, sums) };
    }
    // SAFETY: the caller's promise.
    unsafe { weigh_plainly(scores, seen, yields, weights, sums) }
}

/// [`weigh`] with AVX-512-BF16.
///
/// # Safety
/// As for [`weigh`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
unsafe fn weigh_at_once(
    rounding: AtOnce,
    scores: Scores<'_>,
    seen: &[usize],
    yields: Option<FullyMasked>,
    weights: (&mut [u16], usize),
    sums: &mut [f32; QUERIES],
) {
    // SAFETY: the features are those of this function; the rest is the caller's promise.
    unsafe { weigh_rows(Avx512::new(), rounding, scores, seen, yields, weights, sums) }
}

dispatched! {
    /// [`weigh`] without instructions that round.
    ///
    /// # Safety
    /// As for [`weigh`].
    unsafe fn weigh_plainly<S>(
        s,
        scores: Scores<'_>,
        seen: &[usize],
        yields: Option<FullyMasked>,
        weights: (&mut [u16], usize),
        sums: &mut [f32; QUERIES],
    ) {
        weigh_rows(s, Plainly, scores, seen, yields, weights, sums);
    }
}

impl Scores<'_> {
    /// What is added to scaled scores of a query, so that the largest becomes 0; none if no key is left.
    ///
    /// # Safety
    /// There are scores of that query.
    #[inline(always)]
    unsafe fn shift<S: Simd>(&mut self, s: S, row: usize, may_be_empty: bool) -> Option<f32> {
        let mut largest = [s.splat(f32::NEG_INFINITY); 2];
        for panel in 0..self.panels {
            for col in (0..PANEL).step_by(2 * S::LANES) {
                // SAFETY: the caller's promise; a panel's columns are whole pairs of vectors.
                let [low, high] = unsafe {
                    let from = self.scores.as_ptr().add(panel * self.of_panel + row * PANEL + col);
                    [s.load(from), s.load(from.add(S::LANES))]
                };
                // The operand order skips NaN, which the weights let through.
                largest = [s.max(low, largest[0]), s.max(high, largest[1])];
            }
        }
        let largest = s.largest(s.max(largest[0], largest[1]));
        let shift = -largest * self.scale;
        if shift.is_infinite() { self.rare_shift(row, may_be_empty, largest) } else { Some(shift) }
    }

    /// [`Self::shift`] where the largest score is that low, or that high.
    #[cold]
    fn rare_shift(&mut self, row: usize, may_be_empty: bool, largest: f32) -> Option<f32> {
        let of_panel = |panel| panel * self.of_panel + row * PANEL;
        let mut keys = (0..self.panels).flat_map(|panel| of_panel(panel)..of_panel(panel) + PANEL);
        if largest == f32::INFINITY {
            return Some(f32::NEG_INFINITY);
        }
        if largest == f32::NEG_INFINITY {
            // A row of NaN has no largest score either, and stays one.
            let is_empty = may_be_empty && keys.all(|key| self.scores[key] == largest);
            return (!is_empty).then_some(f32::INFINITY);
        }
        // Only differences of such scores have exponents: all keys are hidden by the least number.
        for key in keys {
            self.scores[key] -= largest;
        }
        Some(0.0)
    }
}

/// See [`weigh`].
#[inline(always)]
unsafe fn weigh_rows<S: Simd>(
    s: S,
    rounding: impl Rounding<S>,
    mut scores: Scores<'_>,
    seen: &[usize],
    yields: Option<FullyMasked>,
    (weights, step): (&mut [u16], usize),
    sums: &mut [f32; QUERIES],
) {
    // Rows whose ends do not wait for each other.
    const TOGETHER: usize = 8;
    let scale = s.splat(scores.scale);
    for first in (0..seen.len()).step_by(TOGETHER) {
        let rows = first..seen.len().min(first + TOGETHER);
        let mut shifts = [None; TOGETHER];
        for (shift, row) in shifts.iter_mut().zip(rows.clone()) {
            // SAFETY: the caller's promise.
            *shift = unsafe { scores.shift(s, row, yields.is_some() || seen[row] == 0) };
        }
        let mut totals = [s.splat(0.0); TOGETHER];
        for (i, row) in rows.clone().enumerate() {
            let Some(shift) = shifts[i] else { continue };
            let shift = s.splat(shift);
            let mut total = [s.splat(0.0); 2];
            for panel in 0..scores.panels {
                for col in (0..PANEL).step_by(2 * S::LANES) {
                    // SAFETY: the caller's promise; a panel's columns are whole pairs of vectors.
                    unsafe {
                        let from = scores.scores.as_ptr().add(panel * scores.of_panel + row * PANEL + col);
                        let [low, high] = [s.load(from), s.load(from.add(S::LANES))];
                        let low = rounded_weight_of_two(s, s.mul_add(low, scale, shift));
                        let high = rounded_weight_of_two(s, s.mul_add(high, scale, shift));
                        total = [s.add(total[0], low), s.add(total[1], high)];
                        let to = weights.as_mut_ptr().add(row * step + panel * PANEL + col);
                        rounding.store(s, low, high, to);
                    }
                }
            }
            totals[i] = s.add(total[0], total[1]);
        }
        for (i, row) in rows.enumerate() {
            sums[row] = match shifts[i] {
                Some(_) => s.sum(totals[i]),
                None => {
                    let weights = &mut weights[row * step..][..scores.panels * PANEL];
                    without_keys(weights, seen[row], yields)
                }
            };
        }
    }
}

/// The sum of the weights of a query that yields zeros, whatever the values are.
const WITHOUT_KEYS: f32 = f32::INFINITY;

/// Writes the weights of a query that all keys are hidden from, so that the result is not NaN, and yields their sum.
#[cold]
fn without_keys(weights: &mut [u16], seen: usize, yields: Option<FullyMasked>) -> f32 {
    weights.fill(0);
    match yields {
        Some(FullyMasked::Mean) if seen > 0 => {
            weights[..seen].fill(ONE);
            seen as f32
        }
        Some(FullyMasked::Mean | FullyMasked::Zeros) | None => WITHOUT_KEYS,
    }
}

dispatched! {
    /// Writes rows of weighted values, divided by the sums of weights; rows of the result are `step` apart.
    ///
    /// # Safety
    /// There are values of as many queries as sums, and rows of the result of `cols` elements.
    unsafe fn finish<S>(s, values: &[f32], sums: &[f32], to: &mut [f32], step: usize, cols: usize) {
        for (row, &sum) in sums.iter().enumerate() {
            let factor = s.splat(1.0 / sum);
            let (from, to) = (values.as_ptr().add(row * PANEL), to.as_mut_ptr().add(row * step));
            if sum == WITHOUT_KEYS {
                core::slice::from_raw_parts_mut(to, cols).fill(0.0);
                continue;
            }
            for col in (0..cols).step_by(S::LANES) {
                let x = s.mul(s.load(from.add(col)), factor);
                s.store_up_to(to.add(col), S::LANES.min(cols - col), x);
            }
        }
    }
}
