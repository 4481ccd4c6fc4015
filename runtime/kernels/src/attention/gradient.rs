//! The gradients of attention. The shares are computed again block by block, from the logarithms of their sums, so that there is
//! no whole matrix of them.

use super::{AttentionMask, AttentionShape, Heads, scale_of, seen_by};
use crate::gemm::{Epilogue, Matrix, Panels, Product};
use crate::gemm::{pack_lhs_into, pack_rhs_into, packed_rhs_len};
use crate::math::exp;
use crate::scratch::with_scratch;
use crate::simd::dispatched;
use crate::size::elements;
use crate::threads::{self, SharedMut};
use core::ops::Range;
use kiln_types::{AttentionOptions, FullyMasked};

/// Most queries that are looked at together.
const QUERIES: usize = 64;
/// Scores that are looked at together, so that they stay in the second-level cache.
const SCORES: usize = 32 * 1024;

/// Whether [`attention_gradient`] serves these options: scores are not capped, and queries without keys yield zeros.
pub fn gradient_serves(options: &AttentionOptions) -> bool {
    options.softcap.is_none() && options.fully_masked != Some(FullyMasked::Mean)
}

/// What came out of an attention, and what flows back into it.
#[derive(Clone, Copy, Debug)]
pub struct AttentionResult<'a> {
    /// The gradient of the result.
    pub gradient: Heads<'a>,
    /// The result.
    pub output: Heads<'a>,
    /// What [`super::attention_train`] wrote.
    pub log_sums: &'a [f32],
}

/// Where the gradients go, contiguous `[batch, heads, seq, size]`.
#[derive(Debug)]
pub struct AttentionGradients<'a> {
    /// Of the queries.
    pub q: &'a mut [f32],
    /// Of the keys.
    pub k: &'a mut [f32],
    /// Of the values.
    pub v: &'a mut [f32],
}

/// The gradients of [`super::attention`] with options that [`gradient_serves`].
///
/// # Panics
/// When a slice does not hold its dims, or the options are others.
pub fn attention_gradient(
    shape: &AttentionShape,
    [q, k, v]: [Heads<'_>; 3],
    mask: AttentionMask<'_>,
    result: AttentionResult<'_>,
    options: &AttentionOptions,
    into: AttentionGradients<'_>,
) {
    let AttentionShape { batch, heads, kv_heads, q_len, k_len, size, value_size } = *shape;
    assert!(gradient_serves(options), "options of the attention's gradient");
    assert!(kv_heads > 0 && heads.is_multiple_of(kv_heads), "{heads} heads over {kv_heads}");
    assert_eq!(into.q.len(), elements(&[batch, heads, q_len, size]), "size of the queries' gradient");
    assert_eq!(into.k.len(), elements(&[batch, kv_heads, k_len, size]), "size of the keys' gradient");
    assert_eq!(into.v.len(), elements(&[batch, kv_heads, k_len, value_size]), "size of the values' gradient");
    assert_eq!(result.log_sums.len(), elements(&[batch, heads, q_len]), "one sum a query");
    q.check([batch, heads, q_len], size, "queries");
    k.check([batch, kv_heads, k_len], size, "keys");
    v.check([batch, kv_heads, k_len], value_size, "values");
    result.gradient.check([batch, heads, q_len], value_size, "gradients");
    result.output.check([batch, heads, q_len], value_size, "results");
    mask.check([batch, heads, q_len, k_len]);
    if result.log_sums.is_empty() || k_len == 0 || size == 0 || value_size == 0 {
        into.q.fill(0.0);
        into.k.fill(0.0);
        return into.v.fill(0.0);
    }
    let group = heads / kv_heads;
    // Multiples of the tile's rows on the widest machine.
    let step = (SCORES / k_len / 14).clamp(1, QUERIES / 14) * 14;
    let task = Task {
        shape,
        q,
        k,
        v,
        mask,
        result,
        options,
        step,
        of_q: SharedMut::new(into.q),
        of_k: SharedMut::new(into.k),
        of_v: SharedMut::new(into.v),
    };
    let work = (group * q_len * k_len).saturating_mul(3 * size + 2 * value_size + 30) / 80 + 1;
    threads::parallel_for(batch * kv_heads, work, |range| {
        for unit in range {
            task.unit(unit / kv_heads, unit % kv_heads, group);
        }
    });
}

/// All that the parts share.
struct Task<'a> {
    shape: &'a AttentionShape,
    q: Heads<'a>,
    k: Heads<'a>,
    v: Heads<'a>,
    mask: AttentionMask<'a>,
    result: AttentionResult<'a>,
    options: &'a AttentionOptions,
    /// Queries of a block.
    step: usize,
    of_q: SharedMut<'a, f32>,
    of_k: SharedMut<'a, f32>,
    of_v: SharedMut<'a, f32>,
}

/// Keys and values of one head as right operands.
struct Packed<'a> {
    /// `kᵀ`: a column each.
    columns: &'a [f32],
    /// `k`: a row each.
    rows: &'a [f32],
    /// `vᵀ`: a column each.
    values: &'a [f32],
}

impl Task<'_> {
    /// One head of keys and values with the heads of queries that see it.
    fn unit(&self, b: usize, kv: usize, group: usize) {
        let AttentionShape { q_len, k_len, size, value_size, .. } = *self.shape;
        let lens =
            [packed_rhs_len(size, k_len), packed_rhs_len(k_len, size), packed_rhs_len(value_size, k_len)];
        with_scratch(lens.iter().sum(), |space| {
            let (columns, rest) = space.split_at_mut(lens[0]);
            let (rows, values) = rest.split_at_mut(lens[1]);
            let (keys, matrix) = (self.k.matrix(b, kv), self.v.matrix(b, kv));
            pack_rhs_into(keys.transposed(), size, k_len, columns);
            pack_rhs_into(keys, k_len, size, rows);
            pack_rhs_into(matrix.transposed(), value_size, k_len, values);
            let packed = Packed { columns, rows, values };
            with_scratch(2 * self.step * k_len, |space| {
                for head in kv * group..(kv + 1) * group {
                    for first in (0..q_len).step_by(self.step) {
                        let queries = first..q_len.min(first + self.step);
                        let fresh = head == kv * group && first == 0;
                        self.block(b, [head, kv], queries, &packed, space, fresh);
                    }
                }
            });
        });
    }

    /// What some queries of one head say.
    fn block(
        &self,
        b: usize,
        [head, kv]: [usize; 2],
        queries: Range<usize>,
        packed: &Packed<'_>,
        space: &mut [f32],
        fresh: bool,
    ) {
        let AttentionShape { heads, kv_heads, q_len, k_len, size, value_size, .. } = *self.shape;
        let count = queries.len();
        let [q, gradient, output] = [&self.q, &self.result.gradient, &self.result.output]
            .map(|of| vectors(of, b, head, queries.start));
        let (shares, of_shares) = space.split_at_mut(self.step * k_len);
        let (shares, of_shares) = (&mut shares[..count * k_len], &mut of_shares[..count * k_len]);
        let dims = [count, k_len, size];
        multiply(dims, q, Panels::Packed(packed.columns), &SharedMut::new(shares), 0, false);
        let dims = [count, k_len, value_size];
        multiply(dims, gradient, Panels::Packed(packed.values), &SharedMut::new(of_shares), 0, false);
        for (i, (row, of_row)) in shares.chunks_mut(k_len).zip(of_shares.chunks_mut(k_len)).enumerate() {
            let vector = |of: Matrix<'_>| of.data[i * of.row_stride..].as_ptr();
            // SAFETY: both have vectors of this size.
            let flow = unsafe { dot(vector(gradient), vector(output), value_size) };
            self.share(b, head, queries.start + i, flow, row, of_row);
        }
        let row = (b * heads + head) * q_len + queries.start;
        let dims = [count, size, k_len];
        multiply(
            dims,
            Matrix::row_major(of_shares, k_len),
            Panels::Packed(packed.rows),
            &self.of_q,
            row * size,
            false,
        );
        let key = (b * kv_heads + kv) * k_len;
        let turned = |x| Matrix::row_major(x, k_len).transposed();
        self.over_queries(turned(of_shares), q, [k_len, size, count], &self.of_k, key * size, !fresh);
        self.over_queries(
            turned(shares),
            gradient,
            [k_len, value_size, count],
            &self.of_v,
            key * value_size,
            !fresh,
        );
    }

    /// `c = a · b` or `c += a · b`, where `b` has a row for each query.
    fn over_queries(
        &self,
        a: Matrix<'_>,
        b: Matrix<'_>,
        [m, n, k]: [usize; 3],
        c: &SharedMut<'_, f32>,
        start: usize,
        adds: bool,
    ) {
        with_scratch(packed_rhs_len(k, n), |packed| {
            pack_rhs_into(b, k, n, packed);
            multiply([m, n, k], a, Panels::Packed(packed), c, start, adds);
        });
    }

    /// Turns a query's products into shares, and the gradients of shares into those of products.
    fn share(&self, b: usize, head: usize, query: usize, flow: f32, row: &mut [f32], of_row: &mut [f32]) {
        let AttentionShape { heads, q_len, .. } = *self.shape;
        let scale = scale_of(self.options, self.shape.size);
        let seen = seen_by(query, self.shape, self.options);
        row[seen..].fill(0.0);
        of_row[seen..].fill(0.0);
        let log_sum = self.result.log_sums[(b * heads + head) * q_len + query];
        let at = |s: &[usize; 4]| b * s[0] + head * s[1] + query * s[2];
        let (keep, add) = match self.mask {
            AttentionMask::None => (None, None),
            AttentionMask::Bool(keep, s) => (Some((keep[at(&s)..].as_ptr(), s[3])), None),
            AttentionMask::Float(add, s) => (None, Some((add[at(&s)..].as_ptr(), s[3]))),
        };
        // SAFETY: the mask was checked.
        unsafe { share_row(&mut row[..seen], &mut of_row[..seen], scale, log_sum, flow, keep, add) };
    }
}

/// The vectors of a head from one on, a row each.
fn vectors<'a>(of: &Heads<'a>, b: usize, head: usize, first: usize) -> Matrix<'a> {
    let data = &of.data[of.start(b, head) + first * of.strides[2]..];
    Matrix { data, row_stride: of.strides[2], col_stride: 1 }
}

/// `c = a · b` or `c += a · b` for dims `[m, n, k]`, `c` contiguous from `start` on.
fn multiply(
    [m, n, k]: [usize; 3],
    a: Matrix<'_>,
    b: Panels<'_>,
    c: &SharedMut<'_, f32>,
    start: usize,
    adds: bool,
) {
    with_scratch(m * k, |packed| {
        pack_lhs_into(a, m, k, packed);
        let epilogue = Epilogue::default();
        Product { m, n, k, a: packed, b, c, c_start: start, c_step: n, adds, epilogue: &epilogue }.run_here();
    });
}

dispatched! {
    /// `Σ a b`.
    ///
    /// # Safety
    /// Both hold `n` elements.
    unsafe fn dot<S>(s, a: *const f32, b: *const f32, n: usize) -> f32 {
        let mut sum = s.splat(0.0);
        for i in (0..n).step_by(S::LANES) {
            let count = S::LANES.min(n - i);
            sum = s.mul_add(s.load_up_to(a.add(i), count), s.load_up_to(b.add(i), count), sum);
        }
        s.sum(sum)
    }
}

dispatched! {
    /// `row = e^(scale · row + mask - log_sum)`, and `of_row = scale · row · (of_row - flow)`.
    ///
    /// # Safety
    /// Both rows have one length, and a mask holds as many elements, its stride apart.
    unsafe fn share_row<S>(
        s,
        row: &mut [f32],
        of_row: &mut [f32],
        scale: f32,
        log_sum: f32,
        flow: f32,
        keep: Option<(*const u8, usize)>,
        add: Option<(*const f32, usize)>,
    ) {
        let (n, x, of_x) = (row.len(), row.as_mut_ptr(), of_row.as_mut_ptr());
        let (scale, log_sum, flow) = (s.splat(scale), s.splat(log_sum), s.splat(flow));
        for i in (0..n).step_by(S::LANES) {
            let count = S::LANES.min(n - i);
            let mut y = s.sub(s.mul(s.load_up_to(x.add(i), count), scale), log_sum);
            match add {
                Some((mask, 1)) => y = s.add(y, s.load_up_to(mask.add(i), count)),
                Some((mask, step)) => {
                    let mut lanes = [0.0; 16];
                    (0..count).for_each(|lane| lanes[lane] = *mask.add((i + lane) * step));
                    y = s.add(y, s.load(lanes.as_ptr()));
                }
                None => {}
            }
            let mut share = exp(s, y);
            let change = s.sub(s.load_up_to(of_x.add(i), count), flow);
            let mut of_score = s.mul(s.mul(share, change), scale);
            if let Some((mask, step)) = keep {
                let mut lanes = [0.0; 16];
                (0..count).for_each(|lane| lanes[lane] = f32::from(u8::from(*mask.add((i + lane) * step) == 0)));
                let kept = s.eq(s.load(lanes.as_ptr()), s.splat(0.0));
                // Not 0 times what may be no number: a hidden value may be any.
                share = s.select(kept, share, s.splat(0.0));
                of_score = s.select(kept, of_score, s.splat(0.0));
            }
            s.store_up_to(x.add(i), count, share);
            s.store_up_to(of_x.add(i), count, of_score);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attention::attention_train;
    use crate::gemm::noise;
    use crate::simd::forced::at_each_level;

    /// The result in f64, and its gradients by the chain rule, all contiguous.
    fn expected(
        s: &AttentionShape,
        [q, k, v, g]: [&[f32]; 4],
        mask: AttentionMask<'_>,
        options: &AttentionOptions,
    ) -> [Vec<f64>; 3] {
        let scale = f64::from(scale_of(options, s.size));
        let mut of = [vec![0.0; q.len()], vec![0.0; k.len()], vec![0.0; v.len()]];
        for row in 0..s.batch * s.heads * s.q_len {
            let (b, h, i) = (row / (s.heads * s.q_len), row / s.q_len % s.heads, row % s.q_len);
            let first_key = (b * s.kv_heads + h / (s.heads / s.kv_heads)) * s.k_len;
            let product = |a: &[f32], i: usize, b: &[f32], j: usize, n: usize| -> f64 {
                (0..n).map(|l| f64::from(a[i * n + l]) * f64::from(b[j * n + l])).sum()
            };
            let score = |j: usize| {
                let at = |s: &[usize; 4]| b * s[0] + h * s[1] + i * s[2] + j * s[3];
                let (hidden, add) = match mask {
                    AttentionMask::None => (false, 0.0),
                    AttentionMask::Bool(keep, s) => (keep[at(&s)] == 0, 0.0),
                    AttentionMask::Float(add, s) => (false, f64::from(add[at(&s)])),
                };
                let hidden = hidden || j >= seen_by(i, s, options);
                if hidden { None } else { Some(product(q, row, k, first_key + j, s.size) * scale + add) }
            };
            let scores: Vec<Option<f64>> = (0..s.k_len).map(score).collect();
            let sum: f64 = scores.iter().flatten().map(|x| x.exp()).sum();
            let share = |j: usize| scores[j].map_or(0.0, |x| x.exp() / sum);
            let of_share = |j: usize| product(g, row, v, first_key + j, s.value_size);
            let flow: f64 = (0..s.k_len).map(|j| share(j) * of_share(j)).sum();
            for j in 0..s.k_len {
                let (key, of_score) = (first_key + j, share(j) * (of_share(j) - flow) * scale);
                for l in 0..s.size {
                    of[0][row * s.size + l] += of_score * f64::from(k[key * s.size + l]);
                    of[1][key * s.size + l] += of_score * f64::from(q[row * s.size + l]);
                }
                for l in 0..s.value_size {
                    of[2][key * s.value_size + l] += share(j) * f64::from(g[row * s.value_size + l]);
                }
            }
        }
        of
    }

    fn check(s: AttentionShape, mask: AttentionMask<'_>, options: &AttentionOptions) {
        let queries = s.batch * s.heads * s.q_len;
        let keys = s.batch * s.kv_heads * s.k_len;
        let (q, k) = (noise(queries * s.size, 1), noise(keys * s.size, 2));
        let (v, g) = (noise(keys * s.value_size, 3), noise(queries * s.value_size, 4));
        let of = |data, heads: usize, len: usize, size: usize| Heads {
            data,
            strides: [heads * len * size, len * size, size],
        };
        let [qs, ks] = [of(&q, s.heads, s.q_len, s.size), of(&k, s.kv_heads, s.k_len, s.size)];
        let vs = of(&v, s.kv_heads, s.k_len, s.value_size);
        let (mut out, mut log_sums) = (vec![0.0; g.len()], vec![0.0; queries]);
        attention_train(&s, qs, ks, vs, mask, options, &mut out, &mut log_sums);
        let result = AttentionResult {
            gradient: of(&g, s.heads, s.q_len, s.value_size),
            output: of(&out, s.heads, s.q_len, s.value_size),
            log_sums: &log_sums,
        };
        let mut got = [vec![1.0; q.len()], vec![1.0; k.len()], vec![1.0; v.len()]];
        let [of_q, of_k, of_v] = &mut got;
        let into = AttentionGradients { q: of_q, k: of_k, v: of_v };
        attention_gradient(&s, [qs, ks, vs], mask, result, options, into);
        let want = expected(&s, [&q, &k, &v, &g], mask, options);
        for (which, (got, want)) in got.iter().zip(&want).enumerate() {
            for (at, (got, want)) in got.iter().zip(want).enumerate() {
                let close = (f64::from(*got) - want).abs() <= 2e-5 * (1.0 + want.abs());
                assert!(close, "{s:?} {options:?}: {which} at {at}: {got} and not {want}");
            }
        }
    }

    #[test]
    fn gradients_are_those_of_the_definition() {
        let run = || {
            for (heads, kv_heads, q_len, k_len, size, value_size) in [
                (2, 2, 9, 7, 5, 6),
                (4, 2, 70, 65, 16, 8),
                (3, 1, 1, 20, 8, 8),
                (1, 1, 3, 1, 1, 2),
                (2, 2, 0, 4, 3, 3),
            ] {
                let s = AttentionShape { batch: 2, heads, kv_heads, q_len, k_len, size, value_size };
                let plain = AttentionOptions::default();
                let causal = AttentionOptions { is_causal: true, scale: Some(0.7), ..plain };
                check(s, AttentionMask::None, &plain);
                check(s, AttentionMask::None, &causal);
                // The first query sees nothing.
                let keep: Vec<u8> = (0..q_len * k_len).map(|i| u8::from(i >= k_len && i % 3 != 1)).collect();
                check(s, AttentionMask::Bool(&keep, [0, 0, k_len, 1]), &plain);
                let add = noise(2 * k_len.max(1), 5);
                check(s, AttentionMask::Float(&add, [k_len, 0, 0, 1]), &plain);
                check(s, AttentionMask::Float(&add, [0, 0, 0, 2]), &causal);
            }
        };
        at_each_level(|_| run());
        run();
    }
}
