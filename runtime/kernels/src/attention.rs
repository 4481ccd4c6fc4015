//! Scaled-dot-product attention without a whole matrix of scores.

use alloc::vec;
use kiln_types::AttentionOptions;
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
    /// Keeps where not 0. A query with no key left yields NaN, as a softmax of `-∞` does.
    Bool(&'a [u8], [usize; 4]),
    /// Added to the scaled scores.
    Float(&'a [f32], [usize; 4]),
}

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
    let AttentionShape { batch, heads, kv_heads, q_len, k_len, size, value_size } = *shape;
    assert!(kv_heads > 0 && heads.is_multiple_of(kv_heads), "{heads} heads over {kv_heads}");
    assert_eq!(out.len(), batch * heads * q_len * value_size, "size of the attention's output");
    let scale = options.scale.unwrap_or(1.0 / Float::sqrt(size as f64)) as f32;
    let mut scores = vec![0.0; k_len];
    for (row, out) in out.chunks_mut(value_size.max(1)).enumerate() {
        let (b, h, i) = (row / (heads * q_len), row / q_len % heads, row % q_len);
        let start =
            |x: &Heads<'_>, h: usize, s: usize| b * x.strides[0] + h * x.strides[1] + s * x.strides[2];
        let kv = h / (heads / kv_heads);
        let query = &q.data[start(&q, h, i)..][..size];
        for (j, score) in scores.iter_mut().enumerate() {
            let key = &k.data[start(&k, kv, j)..][..size];
            let mut x = query.iter().zip(key).map(|(a, b)| a * b).sum::<f32>() * scale;
            if let Some(cap) = options.softcap {
                x = Float::tanh(x / cap as f32) * cap as f32;
            }
            let at = |s: &[usize; 4]| b * s[0] + h * s[1] + i * s[2] + j * s[3];
            x += match mask {
                AttentionMask::None => 0.0,
                AttentionMask::Bool(keep, s) if keep[at(&s)] != 0 => 0.0,
                AttentionMask::Bool(..) => f32::NEG_INFINITY,
                AttentionMask::Float(add, s) => add[at(&s)],
            };
            if options.is_causal && j + q_len > i + k_len {
                x = f32::NEG_INFINITY;
            }
            *score = x;
        }
        let max = scores.iter().fold(f32::NEG_INFINITY, |m, &x| if x > m { x } else { m });
        let mut sum = 0.0;
        out.fill(0.0);
        for (j, score) in scores.iter().enumerate() {
            let p = Float::exp(score - max);
            sum += p;
            let value = &v.data[start(&v, kv, j)..][..value_size];
            out.iter_mut().zip(value).for_each(|(y, v)| *y += p * v);
        }
        out.iter_mut().for_each(|y| *y /= sum);
    }
}
