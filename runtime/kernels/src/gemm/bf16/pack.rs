//! The order in which the kernels read bf16, and rounding to them.
//!
//! `B` is cut into panels of 32 columns, and a panel into blocks of 32 steps of the depth; both are filled up with zeros. A block holds
//! 16 pairs of steps of its first 16 columns, each pair's two elements side by side, then the same of the other columns: what a tile of AMX or
//! a vector of AVX-512-BF16 holds. Panels follow each other within an interval of the depth.

use super::instructions::Instructions;
use super::tile::{COLS, HALF};
use crate::consumed::{Consumed, KEPT, in_parts};
use crate::gemm::Matrix;
use crate::scratch::Aligned;
use crate::simd::Simd;
#[cfg(target_arch = "x86_64")]
use crate::simd::avx512::Avx512;
use crate::threads::SharedMut;
#[cfg(target_arch = "x86_64")]
use core::arch::x86_64::{__m512, __m512bh, __m512i, _mm512_cvtne2ps_pbh, _mm512_storeu_si512};
#[cfg(target_arch = "x86_64")]
use core::mem::transmute;
use core::ops::Range;

pub(crate) use super::tile::STEPS;

/// Elements of one block.
const BLOCK: usize = STEPS * COLS;

/// A right operand rounded to bf16 in the kernels' order, made once and used often: a weight. It serves every machine.
#[derive(Clone, Debug)]
pub struct PackedBf16 {
    depth: usize,
    cols: usize,
    data: Aligned,
}

/// A packed right operand that somebody else holds.
#[derive(Clone, Copy)]
pub(crate) struct Packed<'a> {
    /// Twice [`packed_bf16_len`] elements.
    pub data: &'a [u16],
    /// Steps of the depth.
    pub depth: usize,
    /// Columns.
    pub cols: usize,
    /// Whether it comes from afar, and is asked for before it is read: a weight, not what was just packed.
    pub is_far: bool,
}

impl PackedBf16 {
    /// Rounds and packs `depth` by `cols` elements.
    ///
    /// # Panics
    /// When the view does not hold them.
    pub fn new(b: Matrix<'_>, depth: usize, cols: usize) -> Self {
        Self::consuming(b, depth, cols, KEPT)
    }

    /// [`PackedBf16::new`] of a weight that is read part by part.
    ///
    /// # Panics
    /// When the view does not hold the elements.
    pub fn consuming(b: Matrix<'_>, depth: usize, cols: usize, consumed: Consumed<'_>) -> Self {
        let mut data = Aligned::lasting(packed_bf16_len(depth, cols));
        pack_bf16_consuming(b, depth, cols, bytemuck::cast_slice_mut(&mut data), consumed);
        Self { depth, cols, data }
    }

    /// Depth and columns.
    pub fn dims(&self) -> (usize, usize) {
        (self.depth, self.cols)
    }

    /// The same, held by this.
    pub(crate) fn view(&self) -> Packed<'_> {
        Packed { data: bytemuck::cast_slice(&self.data), depth: self.depth, cols: self.cols, is_far: true }
    }
}

impl Packed<'_> {
    /// Elements from one panel to the next.
    pub fn panel(&self) -> usize {
        self.depth.next_multiple_of(STEPS) * COLS
    }
}

/// The f32 that make room for a packed `B`.
pub(crate) fn packed_bf16_len(depth: usize, cols: usize) -> usize {
    depth.next_multiple_of(STEPS) * cols.next_multiple_of(COLS) / 2
}

/// Packs `B` into memory for at least [`packed_bf16_len`] f32.
///
/// # Panics
/// When the view does not hold the elements.
pub(crate) fn pack_bf16_into(b: Matrix<'_>, depth: usize, cols: usize, to: &mut [u16]) {
    pack_bf16_consuming(b, depth, cols, to, KEPT);
}

/// [`pack_bf16_into`] of a weight that is read part by part.
fn pack_bf16_consuming(b: Matrix<'_>, depth: usize, cols: usize, to: &mut [u16], consumed: Consumed<'_>) {
    b.check(depth, cols, "right operand");
    let (blocks, panels) = (depth.div_ceil(STEPS), cols.div_ceil(COLS));
    assert!(to.len() >= blocks * panels * BLOCK, "room for a packed operand");
    let instructions = Instructions::current();
    let to = SharedMut::new(to);
    let pack = |panel: usize, block: usize| {
        let start = (panel * blocks + block) * BLOCK;
        // SAFETY: each block has its own part.
        let to = unsafe { to.slice(start..start + BLOCK) };
        for (half, to) in to.chunks_exact_mut(BLOCK / 2).enumerate() {
            let (step, col) = (block * STEPS, panel * COLS + half * HALF);
            let part = Part {
                b,
                step,
                col,
                steps: STEPS.min(depth - step),
                cols: HALF.min(cols.saturating_sub(col)),
            };
            part.pack(instructions, to);
        }
    };
    // Memory is read in the order in which it lies.
    if b.col_stride == 1 {
        let rows = |blocks: Range<usize>| {
            blocks.for_each(|block| (0..panels).for_each(|panel| pack(panel, block)));
        };
        in_parts(blocks, STEPS * cols, STEPS * cols / 8 + 1, rows, |blocks| {
            let [start, end] = [blocks.start, blocks.end].map(|block| block * STEPS * b.row_stride);
            consumed(start..b.data.len().min(end));
        });
    } else {
        let columns = |panels: Range<usize>| {
            panels.for_each(|panel| (0..blocks).for_each(|block| pack(panel, block)));
        };
        in_parts(panels, COLS * depth, COLS * depth / 8 + 1, columns, |panels| {
            // Columns that do not follow each other lie among others.
            if b.row_stride == 1 {
                let [start, end] = [panels.start, panels.end].map(|panel| panel * COLS * b.col_stride);
                consumed(start..b.data.len().min(end));
            }
        });
    }
}

/// Half a block.
struct Part<'a> {
    b: Matrix<'a>,
    step: usize,
    col: usize,
    steps: usize,
    cols: usize,
}

impl Part<'_> {
    fn pack(&self, instructions: Instructions, to: &mut [u16]) {
        match instructions {
            Instructions::Widened => self.plainly(to),
            #[cfg(target_arch = "x86_64")]
            _ if self.cols == 0 => to.fill(0),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the instructions are there; the part lies in `B`.
            _ if self.b.col_stride == 1 => unsafe { x86::rows(self, to) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            _ if self.b.row_stride == 1 => unsafe { x86::columns(self, to) },
            #[cfg(target_arch = "x86_64")]
            _ => self.plainly(to),
        }
    }

    fn plainly(&self, to: &mut [u16]) {
        to.fill(0);
        for step in 0..self.steps {
            for col in 0..self.cols {
                let number = self.b.at(self.step + step, self.col + col);
                to[(step / 2 * HALF + col) * 2 + step % 2] = rounded(number);
            }
        }
    }
}

/// The nearest bf16, halves to even; NaN stays NaN.
#[inline(always)]
pub(super) fn rounded(x: f32) -> u16 {
    let bits = x.to_bits();
    // A NaN of low bits alone would become infinite.
    let nan = if x.is_nan() { 0x0040_0000 } else { 0 };
    let half = if x.is_nan() { 0 } else { 0x7fff + ((bits >> 16) & 1) };
    ((bits | nan).wrapping_add(half) >> 16) as u16
}

/// Rounds elements that lie side by side.
pub(crate) fn round_slice(from: &[f32], to: &mut [u16]) {
    assert_eq!(from.len(), to.len(), "as many elements");
    // SAFETY: there are as many.
    unsafe { round(Instructions::current(), from.as_ptr(), from.len(), to.as_mut_ptr()) };
}

/// Rounds rows of `n` elements, and puts zeros behind each up to a multiple of [`STEPS`]; each side has the first row and the elements from one to the next.
///
/// # Safety
/// `from` holds the rows, and `to` has room for them.
pub(crate) unsafe fn round_rows(rows: usize, n: usize, from: (*const f32, usize), to: (*mut u16, usize)) {
    let (instructions, padding) = (Instructions::current(), n.next_multiple_of(STEPS) - n);
    for row in 0..rows {
        // SAFETY: the caller's promise; the instructions are there.
        unsafe {
            let to = to.0.add(row * to.1);
            round(instructions, from.0.add(row * from.1), n, to);
            if padding > 0 {
                to.add(n).write_bytes(0, padding);
            }
        }
    }
}

/// [`round_rows`] of rows that were rounded before.
///
/// # Safety
/// As for [`round_rows`].
pub(crate) unsafe fn copy_rows(rows: usize, n: usize, from: (*const u16, usize), to: (*mut u16, usize)) {
    let padding = n.next_multiple_of(STEPS) - n;
    for row in 0..rows {
        // SAFETY: the caller's promise.
        unsafe {
            let to = to.0.add(row * to.1);
            core::ptr::copy_nonoverlapping(from.0.add(row * from.1), to, n);
            if padding > 0 {
                to.add(n).write_bytes(0, padding);
            }
        }
    }
}

/// Rounds `n` elements.
///
/// # Safety
/// Both sides hold them; the instructions are there.
#[inline]
pub(super) unsafe fn round(instructions: Instructions, from: *const f32, n: usize, to: *mut u16) {
    // SAFETY: the caller's promise.
    unsafe {
        match instructions {
            Instructions::Widened => {
                let (from, to) =
                    (core::slice::from_raw_parts(from, n), core::slice::from_raw_parts_mut(to, n));
                from.iter().zip(to).for_each(|(&from, to)| *to = rounded(from));
            }
            #[cfg(target_arch = "x86_64")]
            _ => x86::round(from, n, to),
        }
    }
}

/// How vectors are rounded.
pub(crate) trait Rounding<S: Simd>: Copy {
    /// Writes the lanes of `low`, and those of `high` behind them.
    ///
    /// # Safety
    /// `to` is valid for writing `2 · LANES` elements; the instructions are there.
    unsafe fn store(self, s: S, low: S::F, high: S::F, to: *mut u16);
}

/// By arithmetic of integers.
#[derive(Clone, Copy)]
pub(crate) struct Plainly;

impl<S: Simd> Rounding<S> for Plainly {
    #[inline(always)]
    unsafe fn store(self, s: S, low: S::F, high: S::F, to: *mut u16) {
        // SAFETY: the caller's promise; no vector has more than 16 lanes.
        unsafe {
            let mut lanes = [0.0; 2 * HALF];
            s.store(lanes.as_mut_ptr(), low);
            s.store(lanes.as_mut_ptr().add(S::LANES), high);
            (0..2 * S::LANES).for_each(|i| *to.add(i) = rounded(lanes[i]));
        }
    }
}

/// By AVX-512-BF16, which takes subnormal numbers for 0.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub(crate) struct AtOnce(());

#[cfg(target_arch = "x86_64")]
impl AtOnce {
    /// The token, if bf16 are multiplied by instructions: then the machine has AVX-512-BF16.
    pub fn current() -> Option<Self> {
        (Instructions::current() > Instructions::Widened).then_some(Self(()))
    }
}

#[cfg(target_arch = "x86_64")]
impl Rounding<Avx512> for AtOnce {
    #[inline(always)]
    unsafe fn store(self, _: Avx512, low: __m512, high: __m512, to: *mut u16) {
        // SAFETY: the token proves that the machine has the instruction; the caller has room for 32 elements.
        unsafe {
            _mm512_storeu_si512(to.cast(), transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(high, low)))
        };
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    //! With AVX-512-BF16, which takes subnormal numbers for 0.

    use super::{HALF, Part, STEPS};
    use crate::simd::Simd;
    use crate::simd::avx512::Avx512;
    use core::arch::x86_64::*;
    use core::mem::transmute;

    /// Two vectors rounded into one.
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    fn joined(low: __m512, high: __m512) -> __m512i {
        // SAFETY: both are 64 bytes of any contents.
        unsafe { transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(high, low)) }
    }

    /// The first `n` of 16 elements; zeros behind.
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    unsafe fn first(from: *const f32, n: usize) -> __m512 {
        let mask = if n >= 16 { 0xffff } else { ((1u32 << n) - 1) as u16 };
        // SAFETY: the caller has `n` elements there.
        unsafe { _mm512_maskz_loadu_ps(mask, from) }
    }

    /// A part of a `B` whose rows lie in memory.
    ///
    /// # Safety
    /// The part lies in `B`.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
    pub unsafe fn rows(part: &Part<'_>, to: &mut [u16]) {
        debug_assert_eq!(to.len(), STEPS * HALF);
        let step = part.b.row_stride;
        let from = part.b.data.as_ptr().wrapping_add(part.step * step + part.col);
        // SAFETY: the caller's promise; `to` has 16 vectors.
        unsafe {
            let pairs: [u16; 32] = core::array::from_fn(|i| (i / 2 + i % 2 * 16) as u16);
            let pairs = _mm512_loadu_si512(pairs.as_ptr().cast());
            for pair in 0..STEPS / 2 {
                let row = |step_of: usize| {
                    let there = if step_of < part.steps { part.cols } else { 0 };
                    first(from.wrapping_add(step_of * step), there)
                };
                let both = joined(row(2 * pair), row(2 * pair + 1));
                let both = _mm512_permutexvar_epi16(pairs, both);
                _mm512_storeu_si512(to.as_mut_ptr().add(pair * 2 * HALF).cast(), both);
            }
        }
    }

    /// A part of a `B` whose columns lie in memory.
    ///
    /// # Safety
    /// The part lies in `B`.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
    pub unsafe fn columns(part: &Part<'_>, to: &mut [u16]) {
        debug_assert_eq!(to.len(), STEPS * HALF);
        let step = part.b.col_stride;
        let from = part.b.data.as_ptr().wrapping_add(part.step + part.col * step);
        // SAFETY: the caller's promise; `to` has 16 vectors.
        unsafe {
            let s = Avx512::new();
            let mut columns = [_mm512_setzero_ps(); 16];
            for (col, column) in columns.iter_mut().enumerate().take(part.cols) {
                let from = from.wrapping_add(col * step);
                let low = first(from, part.steps);
                let high = first(from.wrapping_add(16), part.steps.saturating_sub(16));
                *column = _mm512_castsi512_ps(joined(low, high));
            }
            // A pair is as large as an f32.
            for (pair, vector) in s.transpose(columns).into_iter().enumerate() {
                _mm512_storeu_ps(to.as_mut_ptr().add(pair * 2 * HALF).cast(), vector);
            }
        }
    }

    /// See [`super::round`].
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
    pub unsafe fn round(from: *const f32, n: usize, to: *mut u16) {
        let mut i = 0;
        // SAFETY: the caller's promise.
        unsafe {
            while i + 32 <= n {
                let both = joined(_mm512_loadu_ps(from.add(i)), _mm512_loadu_ps(from.add(i + 16)));
                _mm512_storeu_si512(to.add(i).cast(), both);
                i += 32;
            }
            if i < n {
                let rest = n - i;
                let both = joined(
                    first(from.add(i), rest),
                    first(from.wrapping_add(i + 16), rest.saturating_sub(16)),
                );
                _mm512_mask_storeu_epi16(to.add(i).cast(), ((1u64 << rest) - 1) as u32, both);
            }
        }
    }
}
