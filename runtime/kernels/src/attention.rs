//! Scaled-dot-product attention without a whole matrix of scores.
//!
//! In f32 queries lie side by side in vectors (`columns.rs`), with products of bf16 their scores are rows of tiles (`rounded.rs`). Few queries read
//! keys and values where they are.

mod columns;
mod gradient;
mod rounded;

pub use gradient::{AttentionGradients, AttentionResult, attention_gradient, gradient_serves};

use crate::gemm::{Epilogue, Lhs, Matrix, Rhs, gemm};
use crate::math::tanh;
use crate::scratch::with_scratch;
use crate::simd::dispatched;
use crate::size::{elements, reach};
use crate::softmax::{exp_row, row_max};
use crate::threads::{self, SharedMut};
use kiln_types::{AttentionOptions, FullyMasked, Precision};
use num_traits::Float;

/// The sizes of an attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionShape {
    /// Sequences.
    pub batch: usize,
    /// Heads of the queries.
    pub heads: usize,
    /// Heads of keys and values; divides `heads`.
    pub kv_heads: usize,
    /// Queries.
    pub q_len: usize,
    /// Keys and values.
    pub k_len: usize,
    /// Elements of a query or a key.
    pub size: usize,
    /// Elements of a value.
    pub value_size: usize,
}

/// Queries, keys or values as `[batch, heads, seq, size]`; the elements of one vector are contiguous.
#[derive(Clone, Copy, Debug)]
pub struct Heads<'a> {
    /// The elements, from the first on.
    pub data: &'a [f32],
    /// Elements between batches, heads and sequence positions.
    pub strides: [usize; 3],
}

/// What hides keys from queries; strides over `[batch, heads, queries, keys]`, 0 broadcasts.
#[derive(Clone, Copy, Debug)]
pub enum AttentionMask<'a> {
    /// Nothing.
    None,
    /// Keeps where not 0. A query with no key left yields 0, if the options say nothing else.
    Bool(&'a [u8], [usize; 4]),
    /// Added to the scaled scores.
    Float(&'a [f32], [usize; 4]),
}

impl Heads<'_> {
    /// Where the vectors of one head start.
    fn start(&self, batch: usize, head: usize) -> usize {
        batch * self.strides[0] + head * self.strides[1]
    }

    fn check(&self, dims: [usize; 3], size: usize, what: &str) {
        let ([a, b, c], [of_a, of_b, of_c]) = (dims, self.strides);
        let reached = reach([a, b, c, size], [of_a, of_b, of_c, 1]);
        assert!(reached <= self.data.len(), "the {what} do not hold {dims:?} vectors of {size}");
    }

    /// The vectors of one head as a matrix, a row each.
    fn matrix(&self, batch: usize, head: usize) -> Matrix<'_> {
        Matrix { data: &self.data[self.start(batch, head)..], row_stride: self.strides[2], col_stride: 1 }
    }
}

impl AttentionMask<'_> {
    fn check(&self, dims: [usize; 4]) {
        let (len, strides) = match self {
            AttentionMask::None => return,
            AttentionMask::Bool(keep, strides) => (keep.len(), strides),
            AttentionMask::Float(add, strides) => (add.len(), strides),
        };
        assert!(reach(dims, *strides) <= len, "the mask does not hold {dims:?}");
    }
}

/// With fewer queries than this for each head of keys, packing keys and values does not pay.
const FEW: usize = 8;

/// `softmax(scale · q kᵀ + mask) v` into `out`, contiguous `[batch, heads, queries, value size]`.
///
/// # Panics
/// When a slice does not hold its dims.
pub fn attention(
    shape: &AttentionShape,
    q: Heads<'_>,
    k: Heads<'_>,
    v: Heads<'_>,
    mask: AttentionMask<'_>,
    options: &AttentionOptions,
    out: &mut [f32],
) {
    attend(shape, [q, k, v], mask, options, Precision::F32, out, None);
}

/// [`attention`] with products of a precision. What is computed query by query, for few queries, is computed in f32.
///
/// # Panics
/// When a slice does not hold its dims.
#[allow(clippy::too_many_arguments, reason = "those of attention, and the precision")]
pub fn attention_in(
    precision: Precision,
    shape: &AttentionShape,
    q: Heads<'_>,
    k: Heads<'_>,
    v: Heads<'_>,
    mask: AttentionMask<'_>,
    options: &AttentionOptions,
    out: &mut [f32],
) {
    attend(shape, [q, k, v], mask, options, precision, out, None);
}

/// [`attention`], and the logarithm of the sum of the exponentials of each query's scores, `[batch, heads, queries]`: ∞ for a query
/// without any key. For options that [`gradient_serves`].
///
/// # Panics
/// When a slice does not hold its dims.
#[allow(clippy::too_many_arguments, reason = "those of attention, and one more result")]
pub fn attention_train(
    shape: &AttentionShape,
    q: Heads<'_>,
    k: Heads<'_>,
    v: Heads<'_>,
    mask: AttentionMask<'_>,
    options: &AttentionOptions,
    out: &mut [f32],
    log_sums: &mut [f32],
) {
    assert!(gradient_serves(options), "options of attention in training");
    assert_eq!(log_sums.len(), elements(&[shape.batch, shape.heads, shape.q_len]), "one sum a query");
    log_sums.fill(f32::INFINITY);
    attend(shape, [q, k, v], mask, options, Precision::F32, out, Some(log_sums));
}

fn attend(
    shape: &AttentionShape,
    [q, k, v]: [Heads<'_>; 3],
    mask: AttentionMask<'_>,
    options: &AttentionOptions,
    precision: Precision,
    out: &mut [f32],
    log_sums: Option<&mut [f32]>,
) {
    let AttentionShape { batch, heads, kv_heads, q_len, k_len, size, value_size } = *shape;
    assert!(kv_heads > 0 && heads.is_multiple_of(kv_heads), "{heads} heads over {kv_heads}");
    assert_eq!(out.len(), elements(&[batch, heads, q_len, value_size]), "size of the attention's output");
    q.check([batch, heads, q_len], size, "queries");
    k.check([batch, kv_heads, k_len], size, "keys");
    v.check([batch, kv_heads, k_len], value_size, "values");
    mask.check([batch, heads, q_len, k_len]);
    if k_len == 0 {
        return out.fill(0.0);
    }
    if out.is_empty() {
        return;
    }

    let group = heads / kv_heads;
    let log_sums = log_sums.map(SharedMut::new);
    let out = SharedMut::new(out);
    let task = Task { shape, q, k, v, mask, options, out, log_sums };
    if group * q_len < FEW {
        let work = (group * q_len * k_len).saturating_mul(size + value_size + 30) / 80 + 1;
        return threads::parallel_for(batch * kv_heads, work, |units| {
            units.for_each(|unit| task.plain(unit / kv_heads, unit % kv_heads, group));
        });
    }
    match precision {
        Precision::F32 => task.columns(),
        Precision::Bf16 => task.rounded(),
    }
}

/// All that the parts of an attention share.
struct Task<'a> {
    shape: &'a AttentionShape,
    q: Heads<'a>,
    k: Heads<'a>,
    v: Heads<'a>,
    mask: AttentionMask<'a>,
    options: &'a AttentionOptions,
    out: SharedMut<'a, f32>,
    /// Where the logarithms of the sums go, if they are wanted.
    log_sums: Option<SharedMut<'a, f32>>,
}

impl Task<'_> {
    /// Query by query, with keys and values where they are.
    fn plain(&self, b: usize, kv: usize, group: usize) {
        let AttentionShape { heads, q_len, k_len, size, value_size, .. } = *self.shape;
        let (keys, values) = (self.k.matrix(b, kv).transposed(), self.v.matrix(b, kv));
        let none = Epilogue::default();
        with_scratch(k_len, |scores| {
            for (head, query) in (kv * group..(kv + 1) * group).flat_map(|h| (0..q_len).map(move |i| (h, i)))
            {
                let q = &self.q.matrix(b, head).data[query * self.q.strides[2]..][..size];
                let one = |x, n, k, m, to: &mut [f32]| {
                    gemm(1, n, k, Lhs::Plain(Matrix::row_major(x, k)), Rhs::Plain(m), to, n, &none);
                };
                one(q, k_len, size, keys, scores);
                let sum = self.weigh(b, head, query, scores);
                let start = ((b * heads + head) * q_len + query) * value_size;
                // SAFETY: this row is this head's own.
                let out = unsafe { self.out.slice(start..start + value_size) };
                // Without keys there is no product: values may be infinite.
                let Some(sum) = sum else {
                    out.fill(0.0);
                    continue;
                };
                one(scores, value_size, k_len, values, out);
                out.iter_mut().for_each(|x| *x *= 1.0 / sum);
            }
        });
    }

    /// Turns a query's products into unnormalized weights, and yields their sum; nothing for a query that yields zeros.
    fn weigh(&self, b: usize, head: usize, query: usize, row: &mut [f32]) -> Option<f32> {
        let (sum, shift) = self.weights(b, head, query, row)?;
        if let Some(log_sums) = &self.log_sums {
            let at = (b * self.shape.heads + head) * self.shape.q_len + query;
            // SAFETY: each query has its own place.
            unsafe { *log_sums.ptr(at) = shift + Float::ln(sum) };
        }
        Some(sum)
    }

    /// [`Task::weigh`]; yields also what was taken from each score before its exponential, ∞ if no key is left.
    fn weights(&self, b: usize, head: usize, query: usize, row: &mut [f32]) -> Option<(f32, f32)> {
        let scale = scale_of(self.options, self.shape.size);
        let softcap = self.options.softcap.map(|cap| cap as f32);
        let seen = seen_by(query, self.shape, self.options);
        row[seen..].fill(0.0);
        let row = &mut row[..seen];
        let at = |s: &[usize; 4]| b * s[0] + head * s[1] + query * s[2];
        let yields = self.options.fully_masked;
        // SAFETY: the mask was checked.
        unsafe {
            match self.mask {
                AttentionMask::None => weigh_row(row, scale, softcap, None, None, yields),
                AttentionMask::Bool(keep, s) => {
                    let yields = yields.or(Some(FullyMasked::Zeros));
                    weigh_row(row, scale, softcap, Some((keep.as_ptr().add(at(&s)), s[3])), None, yields)
                }
                AttentionMask::Float(add, s) => {
                    weigh_row(row, scale, softcap, None, Some((add.as_ptr().add(at(&s)), s[3])), yields)
                }
            }
        }
    }
}

/// What products of queries and keys are multiplied with.
fn scale_of(options: &AttentionOptions, size: usize) -> f32 {
    options.scale.unwrap_or(1.0 / Float::sqrt(size as f64)) as f32
}

/// How many keys a query sees: with an order, the last query sees the last key.
fn seen_by(query: usize, shape: &AttentionShape, options: &AttentionOptions) -> usize {
    match options.is_causal {
        true => (query + 1 + shape.k_len).saturating_sub(shape.q_len).min(shape.k_len),
        false => shape.k_len,
    }
}

dispatched! {
    /// Turns a row of products into `e^(score - largest)` and yields their sum and the largest (∞ if no key is left), or nothing if the query yields zeros.
    ///
    /// # Safety
    /// A mask holds as many elements as the row, its stride apart.
    unsafe fn weigh_row<S>(
        s,
        row: &mut [f32],
        scale: f32,
        softcap: Option<f32>,
        keep: Option<(*const u8, usize)>,
        add: Option<(*const f32, usize)>,
        fully_masked: Option<FullyMasked>,
    ) -> Option<(f32, f32)> {
        let (n, x) = (row.len(), row.as_mut_ptr());
        let cap = softcap.unwrap_or(0.0);
        let scale = s.splat(scale);
        // Most rows of a mask hide nothing.
        let keep = keep.filter(|&(mask, step)| step != 1 || core::slice::from_raw_parts(mask, n).contains(&0));
        let mut i = 0;
        while i < n {
            let count = S::LANES.min(n - i);
            let mut y = s.mul(s.load_up_to(x.add(i), count), scale);
            if cap != 0.0 {
                y = s.mul(tanh(s, s.div(y, s.splat(cap))), s.splat(cap));
            }
            if let Some((mask, step)) = add {
                let mask = match step {
                    1 => s.load_up_to(mask.add(i), count),
                    step => {
                        let mut lanes = [0.0; 16];
                        (0..count).for_each(|lane| lanes[lane] = *mask.add((i + lane) * step));
                        s.load(lanes.as_ptr())
                    }
                };
                y = s.add(y, mask);
            }
            s.store_up_to(x.add(i), count, y);
            if let Some((mask, step)) = keep {
                for lane in i..i + count {
                    if *mask.add(lane * step) == 0 {
                        *x.add(lane) = f32::NEG_INFINITY;
                    }
                }
            }
            i += S::LANES;
        }
        let max = row_max(s, x, n);
        if n == 0 {
            return None;
        }
        // A row of NaN has no largest score either, and stays one.
        if max == f32::NEG_INFINITY
            && let Some(yields) = fully_masked
            && core::slice::from_raw_parts(x, n).iter().all(|&score| score == max)
        {
            // No key is left: the result is not NaN.
            return match yields {
                FullyMasked::Zeros => None,
                FullyMasked::Mean => {
                    (0..n).for_each(|i| *x.add(i) = 1.0);
                    Some((n as f32, f32::INFINITY))
                }
            };
        }
        Some((exp_row(s, x, x, n, max), max))
    }
}

#[cfg(test)]
mod tests;
