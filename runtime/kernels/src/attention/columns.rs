//! Attention in f32 with queries side by side: a panel has a query in each lane, for each key a vector of scores.
//!
//! Of some keys `K · qᵀ` makes scores that lie as a panel of a right operand does, so that `vᵀ · scores` sums the values without packing anything.
//! The largest score and the sum of each query are one lane each; both, and what was summed, are scaled again when a later key scores higher.

use super::{AttentionMask, AttentionShape, Task, scale_of, seen_by};
use crate::gemm::{FAR, Matrix, Part, pack_rhs_panel, panel_product, panel_widths};
use crate::math::{tanh, weight_of_two};
use crate::scratch::with_scratch;
use crate::simd::{Simd, dispatched};
use crate::threads::parallel_for;
use core::f32::consts::LOG2_E;
use core::ops::Range;
use kiln_types::FullyMasked;
use num_traits::Float;

/// Keys that are looked at together at most: their scores then fit a first-level cache.
const KEYS: usize = 256;
/// Queries that meet each block of keys together, panel by panel, where keys and values are [`FAR`].
const QUERIES: usize = 64;
/// Panels of the least width that hold these.
const TOGETHER: usize = QUERIES / 8;
/// Columns of the widest panel of any machine.
const WIDEST: usize = 32;

/// One number a query.
type Lanes = [f32; WIDEST];

/// Queries of all heads that share keys, side by side: neighbours in the result.
struct Panel {
    batch: usize,
    kv: usize,
    /// By the head among those that share keys, times the number of queries, plus the query.
    queries: Range<usize>,
    /// Lanes, of which some may be no queries.
    width: usize,
    /// How many keys each query sees.
    seen: [usize; WIDEST],
    /// What their scores came to so far.
    sums: Sums,
}

impl Panel {
    /// How many keys each query sees.
    fn seen(&self) -> &[usize] {
        &self.seen[..self.queries.len()]
    }
}

/// What scores of queries came to so far.
#[derive(Clone, Copy)]
struct Sums {
    largest: Lanes,
    /// Of the exponentials of scores less the largest.
    sums: Lanes,
}

/// What is added to scores, or hides them.
#[derive(Clone, Copy)]
enum Mask<'a> {
    None,
    /// One number a key for all queries.
    Keys(&'a [f32]),
    /// A panel.
    Panel(&'a [f32]),
}

/// Working space for some panels of queries.
struct Space<'a> {
    /// The queries of each panel, for each element a vector; scaled.
    queries: &'a mut [f32],
    /// Scores of some keys.
    scores: &'a mut [f32],
    /// Sums of values of each panel, for each element a vector.
    values: &'a mut [f32],
    /// Rows on their way into panels.
    rows: &'a mut [f32],
    /// A panel of the mask.
    mask: &'a mut [f32],
}

impl Task<'_> {
    /// Computes all of it, on several threads when that pays.
    pub(super) fn columns(&self) {
        let AttentionShape { batch, heads, kv_heads, q_len, k_len, size, value_size } = *self.shape;
        let [_, full] = panel_widths();
        let queries = heads / kv_heads * q_len;
        let panels = queries.div_ceil(full);
        let work = (full * k_len).saturating_mul(size + value_size + 30) / 80 + 1;
        parallel_for(batch * kv_heads * panels, work, |range| {
            for unit in range.start / panels..range.end.div_ceil(panels) {
                let of_unit = unit * panels..(unit + 1) * panels;
                let panels = range.start.max(of_unit.start)..range.end.min(of_unit.end);
                self.unit(
                    unit / kv_heads,
                    unit % kv_heads,
                    panels.start - of_unit.start..panels.end - of_unit.start,
                );
            }
        });
    }

    /// Some panels of the queries that share keys and values.
    fn unit(&self, batch: usize, kv: usize, panels: Range<usize>) {
        let AttentionShape { heads, kv_heads, q_len, k_len, size, value_size, .. } = *self.shape;
        let [narrow, full] = panel_widths();
        let queries = heads / kv_heads * q_len;
        let (keys, values) = (self.k.matrix(batch, kv), self.v.matrix(batch, kv));
        let copied = |m: Matrix<'_>, size: usize| if m.row_stride == size { 0 } else { k_len * size };
        let (of_keys, of_values) = (copied(keys, size), copied(values, value_size));
        let together = if k_len.saturating_mul(size + value_size) < FAR {
            1
        } else {
            (QUERIES / full).clamp(1, TOGETHER)
        };
        let lens = [
            together * size * full,
            KEYS * full,
            together * value_size * full,
            size.max(KEYS) * full,
            KEYS * full,
        ];
        with_scratch(of_keys + of_values + lens.iter().sum::<usize>(), |space| {
            let (of_keys, space) = space.split_at_mut(of_keys);
            let (of_values, space) = space.split_at_mut(of_values);
            // Rows far apart meet in few places of the caches, and on many pages.
            let keys = contiguous(keys, k_len, size, of_keys);
            let values = contiguous(values, k_len, value_size, of_values);
            let mut rest = space;
            let [queries_space, scores, sums, rows, mask] = lens.map(|len| {
                let (part, behind) = core::mem::take(&mut rest).split_at_mut(len);
                rest = behind;
                part
            });
            let mut space = Space { queries: queries_space, scores, values: sums, rows, mask };
            let none = Sums { largest: [f32::NEG_INFINITY; WIDEST], sums: [0.0; WIDEST] };
            let mut group: [Panel; TOGETHER] = core::array::from_fn(|_| {
                let seen = [0; WIDEST];
                Panel { batch, kv, queries: 0..0, width: full, seen, sums: none }
            });
            for first in panels.clone().step_by(together) {
                let group = &mut group[..together.min(panels.end - first)];
                for (i, panel) in group.iter_mut().enumerate() {
                    panel.queries = (first + i) * full..queries.min((first + i + 1) * full);
                    panel.width = if panel.queries.len() <= narrow { narrow } else { full };
                    panel.sums = none;
                    for (seen, query) in panel.seen.iter_mut().zip(panel.queries.clone()) {
                        *seen = seen_by(query % q_len, self.shape, self.options);
                    }
                }
                self.panels(group, keys, values, &mut space);
            }
        });
    }

    /// The results of panels of queries, which meet each block of keys together.
    fn panels(&self, panels: &mut [Panel], keys: &[f32], values: &[f32], space: &mut Space<'_>) {
        let AttentionShape { k_len, size, value_size, .. } = *self.shape;
        let [_, full] = panel_widths();
        for (panel, to) in panels.iter().zip(space.queries.chunks_mut((size * full).max(1))) {
            self.pack_queries(panel, space.rows, to);
        }
        for block in key_blocks(k_len) {
            for (i, panel) in panels.iter_mut().enumerate() {
                let most = panel.seen().iter().copied().max().unwrap_or(0);
                let part = block.start..block.end.min(most);
                if part.is_empty() {
                    continue;
                }
                let queries = &space.queries[i * size * full..][..size * panel.width];
                let sums = &mut space.values[i * value_size * full..][..value_size * panel.width];
                let scores = &mut space.scores[..part.len() * panel.width];
                let of_keys = Matrix::row_major(&keys[part.start * size..], size);
                match size {
                    0 => scores.fill(0.0),
                    size => {
                        let queries = (queries, size, panel.width);
                        panel_product(part.len(), of_keys, queries, (&mut *scores, panel.width), false);
                    }
                }
                self.adjust(panel, &part, scores, space.rows, space.mask);
                // SAFETY: the slices hold the keys' scores and as many sums as there are elements of a value.
                unsafe {
                    let mut factors = [0.0; WIDEST];
                    let of_panel = &mut panel.sums;
                    let grew = weigh(scores.as_mut_ptr(), part.len(), panel.width, of_panel, &mut factors);
                    if grew && part.start > 0 {
                        scale_columns(sums.as_mut_ptr(), value_size, panel.width, &factors);
                    }
                }
                let of_values =
                    Matrix::row_major(&values[part.start * value_size..], value_size).transposed();
                let scores = (&*scores, part.len(), panel.width);
                panel_product(value_size, of_values, scores, (sums, panel.width), part.start > 0);
            }
        }
        for (i, panel) in panels.iter().enumerate() {
            let sums = &mut space.values[i * value_size * full..][..value_size * panel.width];
            self.finish(panel, sums);
        }
    }

    /// Writes the queries side by side, times what their products with keys are scaled by.
    fn pack_queries(&self, panel: &Panel, space: &mut [f32], to: &mut [f32]) {
        let AttentionShape { q_len, heads, kv_heads, size, .. } = *self.shape;
        let scale = scale_of(self.options, size);
        let first_head = panel.kv * (heads / kv_heads);
        for (to, query) in space.chunks_exact_mut(size.max(1)).zip(panel.queries.clone()) {
            let from =
                self.q.start(panel.batch, first_head + query / q_len) + query % q_len * self.q.strides[2];
            to.iter_mut().zip(&self.q.data[from..][..size]).for_each(|(to, from)| *to = from * scale);
        }
        let rows = Matrix::row_major(space, size).transposed();
        let part = Part { depth: 0..size, cols: 0..panel.queries.len(), width: panel.width };
        if size > 0 {
            // SAFETY: there are as many rows as queries, and room for a panel.
            unsafe { pack_rhs_panel(rows, part, to.as_mut_ptr()) };
        }
    }

    /// Caps, masks and hides scores of some keys.
    fn adjust(
        &self,
        panel: &Panel,
        keys: &Range<usize>,
        scores: &mut [f32],
        rows: &mut [f32],
        space: &mut [f32],
    ) {
        let seen = panel.seen();
        let mask = self.mask_of(panel, keys, rows, space);
        let hides = matches!(self.mask, AttentionMask::Bool(..));
        // The first key of these that a query does not see.
        let mut ends = [keys.len() as f32; WIDEST];
        ends.iter_mut()
            .zip(seen)
            .for_each(|(end, &seen)| *end = seen.clamp(keys.start, keys.end) as f32 - keys.start as f32);
        let ends = seen.iter().any(|&seen| seen < keys.end).then_some(&ends);
        let softcap = self.options.softcap.map(|cap| cap as f32).filter(|&cap| cap != 0.0);
        if softcap.is_none() && ends.is_none() && matches!(mask, Mask::None) {
            return;
        }
        // SAFETY: scores and mask hold the keys.
        unsafe { adjust_scores(scores.as_mut_ptr(), keys.len(), panel.width, softcap, mask, hides, ends) };
    }

    /// The mask of some keys: what is added, or numbers below 0 for what is hidden.
    fn mask_of<'a>(
        &self,
        panel: &Panel,
        keys: &Range<usize>,
        rows: &'a mut [f32],
        space: &'a mut [f32],
    ) -> Mask<'a> {
        let (AttentionMask::Bool(_, strides) | AttentionMask::Float(_, strides)) = self.mask else {
            return Mask::None;
        };
        let AttentionShape { q_len, heads, kv_heads, .. } = *self.shape;
        let [first, last] = [panel.queries.start, panel.queries.end - 1].map(|query| query / q_len);
        let alike = strides[2] == 0 && (first == last || strides[1] == 0);
        let count = if alike { 1 } else { panel.queries.len() };
        let part = Part { depth: 0..keys.len(), cols: 0..count, width: panel.width };
        if let AttentionMask::Float(add, [of_batch, of_head, of_query, 1]) = self.mask
            && !alike
            && first == last
        {
            // Lines of one head, which lie in the mask as they are wanted.
            let head = panel.kv * (heads / kv_heads) + first;
            let query = panel.queries.start % q_len;
            let from = panel.batch * of_batch + head * of_head + query * of_query + keys.start;
            let lines = Matrix { data: &add[from..], row_stride: 1, col_stride: of_query };
            lines.check(keys.len(), count, "mask");
            // SAFETY: checked above, and there is room for a panel.
            unsafe { pack_rhs_panel(lines, part, space.as_mut_ptr()) };
            return Mask::Panel(space);
        }
        let mut any = false;
        for (row, query) in rows.chunks_exact_mut(keys.len()).zip(panel.queries.clone()).take(count) {
            let head = panel.kv * (heads / kv_heads) + query / q_len;
            let from = panel.batch * strides[0]
                + head * strides[1]
                + query % q_len * strides[2]
                + keys.start * strides[3];
            any |= match self.mask {
                AttentionMask::None => false,
                AttentionMask::Bool(keep, _) => {
                    copy_strided(&keep[from..], strides[3], row, |&keep| f32::from(keep != 0) - 1.0)
                }
                AttentionMask::Float(add, _) => copy_strided(&add[from..], strides[3], row, |&add| add),
            };
        }
        if !any {
            return Mask::None;
        }
        if alike {
            return Mask::Keys(&rows[..keys.len()]);
        }
        // SAFETY: there are as many rows as queries, and room for a panel.
        unsafe { pack_rhs_panel(Matrix::row_major(rows, keys.len()).transposed(), part, space.as_mut_ptr()) };
        Mask::Panel(space)
    }

    /// Writes the results of a panel, whose sums of values are not divided by those of weights yet.
    fn finish(&self, panel: &Panel, sums: &mut [f32]) {
        let AttentionShape { q_len, heads, kv_heads, value_size, .. } = *self.shape;
        let yields = match self.mask {
            AttentionMask::Bool(..) => self.options.fully_masked.or(Some(FullyMasked::Zeros)),
            AttentionMask::None | AttentionMask::Float(..) => self.options.fully_masked,
        };
        let row = (panel.batch * heads + panel.kv * (heads / kv_heads)) * q_len + panel.queries.start;
        let values = self.v.matrix(panel.batch, panel.kv);
        let mut factors = [0.0; WIDEST];
        for (lane, &seen) in panel.seen().iter().enumerate() {
            let (sum, largest) = (panel.sums.sums[lane], panel.sums.largest[lane]);
            // A query without any score that is a number has no largest either, and a sum that is none.
            let is_hidden = largest == f32::NEG_INFINITY && sum == 0.0;
            let empty = seen == 0 || is_hidden && yields.is_some();
            factors[lane] = if empty { 1.0 } else { 1.0 / sum };
            if empty {
                let has_mean = seen > 0 && yields == Some(FullyMasked::Mean);
                for (i, to) in sums[lane..].iter_mut().step_by(panel.width).enumerate() {
                    let values = (0..seen).map(|key| values.data[key * values.row_stride + i]);
                    // Not what was summed: 0 times a value that is infinite is no number.
                    *to = if has_mean { values.sum::<f32>() / seen as f32 } else { 0.0 };
                }
            }
            if let Some(log_sums) = &self.log_sums {
                let log_sum = if empty { f32::INFINITY } else { largest + Float::ln(sum) };
                // SAFETY: each query has its own place.
                unsafe { *log_sums.ptr(row + lane) = log_sum };
            }
        }
        let out = row * value_size..(row + panel.queries.len()) * value_size;
        let part = Part { depth: 0..panel.queries.len(), cols: 0..value_size, width: value_size };
        // SAFETY: these rows of the result are this panel's own; the sums hold a vector for each of their columns.
        unsafe {
            scale_columns(sums.as_mut_ptr(), value_size, panel.width, &factors);
            pack_rhs_panel(
                Matrix::row_major(sums, panel.width).transposed(),
                part,
                self.out.slice(out).as_mut_ptr(),
            );
        }
    }
}

/// Blocks of keys of about one size, [`KEYS`] at most.
fn key_blocks(keys: usize) -> impl Iterator<Item = Range<usize>> {
    let blocks = keys.div_ceil(KEYS);
    (0..blocks).map(move |block| keys * block / blocks..keys * (block + 1) / blocks)
}

/// The rows of a matrix without gaps between them: where they are, or copied.
fn contiguous<'a>(from: Matrix<'a>, rows: usize, size: usize, space: &'a mut [f32]) -> &'a [f32] {
    if space.is_empty() {
        return from.data;
    }
    for (row, to) in space.chunks_exact_mut(size).enumerate().take(rows) {
        to.copy_from_slice(&from.data[row * from.row_stride..][..size]);
    }
    space
}

/// Copies elements that are `step` apart, and says whether any of the copies is not 0.
fn copy_strided<T>(from: &[T], step: usize, to: &mut [f32], of: impl Fn(&T) -> f32) -> bool {
    match step {
        0 => to.fill(of(&from[0])),
        1 => to.iter_mut().zip(from).for_each(|(to, from)| *to = of(from)),
        step => to.iter_mut().zip(from.iter().step_by(step)).for_each(|(to, from)| *to = of(from)),
    }
    to.iter().fold(false, |any, &x| any | (x != 0.0))
}

dispatched! {
    /// Caps scores; adds the mask, or hides where it is below 0 if it `hides`; and hides keys from `ends` on, a number a query.
    ///
    /// # Safety
    /// `scores` and a mask's panel hold `keys` vectors of `width` elements, a mask of keys as many elements.
    unsafe fn adjust_scores<S>(
        s,
        scores: *mut f32,
        keys: usize,
        width: usize,
        softcap: Option<f32>,
        mask: Mask<'_>,
        hides: bool,
        ends: Option<&Lanes>,
    ) {
        let hidden = s.splat(f32::NEG_INFINITY);
        for key in 0..keys {
            for col in (0..width).step_by(S::LANES) {
                let at = key * width + col;
                let mut x = s.load(scores.add(at));
                if let Some(cap) = softcap {
                    x = s.mul(tanh(s, s.div(x, s.splat(cap))), s.splat(cap));
                }
                let mask = match mask {
                    Mask::None => None,
                    Mask::Keys(of_keys) => Some(s.splat(*of_keys.as_ptr().add(key))),
                    Mask::Panel(panel) => Some(s.load(panel.as_ptr().add(at))),
                };
                if let Some(mask) = mask {
                    x = match hides {
                        true => s.select(s.lt(mask, s.splat(0.0)), hidden, x),
                        false => s.add(mask, x),
                    };
                }
                if let Some(ends) = ends {
                    x = s.select(s.lt(s.splat(key as f32), s.load(ends.as_ptr().add(col))), x, hidden);
                }
                s.store(scores.add(at), x);
            }
        }
    }
}

/// `e^x` for an `x` of at most 0; 0 where it would be subnormal.
#[inline(always)]
fn weight<S: Simd>(s: S, x: S::F) -> S::F {
    weight_of_two(s, s.mul(x, s.splat(LOG2_E)))
}

dispatched! {
    /// Turns scores of `keys` into weights, adds them to the sums, and writes what has become of a weight of 1 before. Yields whether that is less than
    /// 1 for any query.
    ///
    /// # Safety
    /// `scores` holds `keys` vectors of `width` elements, [`WIDEST`] at most.
    unsafe fn weigh<S>(
        s,
        scores: *mut f32,
        keys: usize,
        width: usize,
        state: &mut Sums,
        factors: &mut Lanes,
    ) -> bool {
        // As many independent chains as hide the latency.
        const CHAINS: usize = 4;
        let mut grew = false;
        let whole = keys - keys % CHAINS;
        for col in (0..width).step_by(S::LANES) {
            let at = |key: usize| scores.add(key * width + col);
            let before = s.load(state.largest.as_ptr().add(col));
            let mut largest = [before; CHAINS];
            for first in (0..whole).step_by(CHAINS) {
                for i in 0..CHAINS {
                    // The operand order skips NaN, which the weights let through.
                    largest[i] = s.max(s.load(at(first + i)), largest[i]);
                }
            }
            for key in whole..keys {
                largest[0] = s.max(s.load(at(key)), largest[0]);
            }
            let largest = s.max(s.max(largest[0], largest[1]), s.max(largest[2], largest[3]));
            s.store(state.largest.as_mut_ptr().add(col), largest);
            grew |= s.any(s.lt(before, largest));
            // Hidden keys weigh nothing, also where there are no others.
            let shift = s.select(s.eq(largest, s.splat(f32::NEG_INFINITY)), s.splat(0.0), largest);
            let factor = weight(s, s.sub(before, shift));
            s.store(factors.as_mut_ptr().add(col), factor);
            let mut sums = [s.splat(0.0); CHAINS];
            for first in (0..whole).step_by(CHAINS) {
                for i in 0..CHAINS {
                    let weight = weight(s, s.sub(s.load(at(first + i)), shift));
                    s.store(at(first + i), weight);
                    sums[i] = s.add(sums[i], weight);
                }
            }
            for key in whole..keys {
                let weight = weight(s, s.sub(s.load(at(key)), shift));
                s.store(at(key), weight);
                sums[0] = s.add(sums[0], weight);
            }
            let sum = s.add(s.add(sums[0], sums[1]), s.add(sums[2], sums[3]));
            let to = state.sums.as_mut_ptr().add(col);
            s.store(to, s.mul_add(s.load(to), factor, sum));
        }
        grew
    }
}

dispatched! {
    /// Multiplies columns with one number each.
    ///
    /// # Safety
    /// `x` holds `rows` vectors of `width` elements, [`WIDEST`] at most.
    unsafe fn scale_columns<S>(s, x: *mut f32, rows: usize, width: usize, factors: &Lanes) {
        for col in (0..width).step_by(S::LANES) {
            let factor = s.load(factors.as_ptr().add(col));
            for row in 0..rows {
                let at = x.add(row * width + col);
                s.store(at, s.mul(s.load(at), factor));
            }
        }
    }
}
