//! Attention against its definition.

use super::*;
use crate::gemm::{noise, with_all_instructions};
use crate::simd::forced::at_each_level;
use kiln_types::bf16;

/// What a product's operand is rounded to.
fn near(precision: Precision, x: f64) -> f64 {
    match precision {
        Precision::F32 => x,
        Precision::Bf16 => bf16::from_f64(x).to_f64(),
    }
}

/// The definition, in f64 but for what is rounded, and the sum of the weights of each, as they were before rounding.
fn expected(
    precision: Precision,
    s: &AttentionShape,
    q: Heads<'_>,
    k: Heads<'_>,
    v: Heads<'_>,
    mask: AttentionMask<'_>,
    options: &AttentionOptions,
) -> Vec<[f64; 2]> {
    let mut out = Vec::new();
    let scale = options.scale.unwrap_or(1.0 / (s.size as f64).sqrt());
    for row in 0..s.batch * s.heads * s.q_len {
        let (b, h, i) = (row / (s.heads * s.q_len), row / s.q_len % s.heads, row % s.q_len);
        let kv = h / (s.heads / s.kv_heads);
        let at = |x: &Heads<'_>, h: usize, i: usize| x.start(b, h) + i * x.strides[2];
        let scores: Vec<f64> = (0..s.k_len)
            .map(|j| {
                let (q, k) = (&q.data[at(&q, h, i)..], &k.data[at(&k, kv, j)..]);
                let near = |x: f32| near(precision, f64::from(x));
                let mut x = (0..s.size).map(|l| near(q[l]) * near(k[l])).sum::<f64>() * scale;
                if let Some(cap) = options.softcap.filter(|&cap| cap != 0.0) {
                    x = (x / cap).tanh() * cap;
                }
                let at = |s: &[usize; 4]| b * s[0] + h * s[1] + i * s[2] + j * s[3];
                let hidden = matches!(mask, AttentionMask::Bool(keep, s) if keep[at(&s)] == 0)
                    || options.is_causal && j + s.q_len > i + s.k_len;
                let add = if let AttentionMask::Float(add, s) = mask { f64::from(add[at(&s)]) } else { 0.0 };
                if hidden { f64::NEG_INFINITY } else { x + add }
            })
            .collect();
        // Finite even without any key, whose result is 0.
        let max = scores.iter().copied().fold(f64::MIN, f64::max);
        let sum: f64 = scores.iter().map(|x| (x - max).exp()).sum::<f64>().max(f64::MIN_POSITIVE);
        let weights: Vec<f64> = scores.iter().map(|x| near(precision, (x - max).exp())).collect();
        for l in 0..s.value_size {
            let value = |j: usize| near(precision, f64::from(v.data[at(&v, kv, j) + l]));
            out.push([(0..s.k_len).map(|j| weights[j] * value(j)).sum::<f64>() / sum, sum]);
        }
    }
    out
}

fn check(precision: Precision, s: AttentionShape, mask: AttentionMask<'_>, options: &AttentionOptions) {
    // Queries, keys and values as a projection leaves them: `[batch, seq, heads, size]`.
    let of = |len: usize, heads: usize, size: usize, seed| {
        (noise(s.batch * len * heads * size, seed), [len * heads * size, size, heads * size])
    };
    let (q, q_strides) = of(s.q_len, s.heads, s.size, 1);
    let (k, k_strides) = of(s.k_len, s.kv_heads, s.size, 2);
    let (v, v_strides) = of(s.k_len, s.kv_heads, s.value_size, 3);
    let q: Vec<f32> = q.iter().map(|x| x * 4.0).collect();
    let q = Heads { data: &q, strides: q_strides };
    let (k, v) = (Heads { data: &k, strides: k_strides }, Heads { data: &v, strides: v_strides });
    let mut out = vec![9.0; s.batch * s.heads * s.q_len * s.value_size];
    attention_in(precision, &s, q, k, v, mask, options, &mut out);
    let expected = expected(precision, &s, q, k, v, mask, options);
    for (i, (got, [want, sum])) in out.iter().zip(expected).enumerate() {
        let tolerance = match precision {
            Precision::F32 => 2e-5,
            // The largest weight is 1. Another one that lies between two bf16 may become the other of them.
            Precision::Bf16 => 2e-5 + 1.0 / 256.0 / sum.max(1.0),
        };
        let close = (f64::from(*got) - want).abs() < tolerance;
        assert!(close, "{s:?} {options:?}: element {i} is {got}, not {want}");
    }
}

fn shape(batch: usize, heads: [usize; 2], q_len: usize, k_len: usize, sizes: [usize; 2]) -> AttentionShape {
    AttentionShape {
        batch,
        heads: heads[0],
        kv_heads: heads[1],
        q_len,
        k_len,
        size: sizes[0],
        value_size: sizes[1],
    }
}

/// All kinds of masks and options.
fn check_all(precision: Precision, s: AttentionShape) {
    let dims = [s.batch, s.heads, s.q_len, s.k_len];
    let total = dims.iter().product();
    let strides = [s.heads * s.q_len * s.k_len, s.q_len * s.k_len, s.k_len, 1];
    // Key 0 is always kept, so that no row is empty.
    let keep: Vec<u8> =
        noise(total, 4).iter().enumerate().map(|(i, x)| u8::from(*x > 0.0 || i % s.k_len == 0)).collect();
    let add = noise(total, 5);
    let plain = AttentionOptions::default();
    let causal = AttentionOptions { is_causal: true, ..plain };
    let capped = AttentionOptions { softcap: Some(2.0), scale: Some(0.3), ..plain };
    check(precision, s, AttentionMask::None, &plain);
    check(precision, s, AttentionMask::None, &capped);
    check(precision, s, AttentionMask::None, &AttentionOptions { softcap: Some(0.0), ..plain });
    check(precision, s, AttentionMask::None, &AttentionOptions { scale: Some(-0.2), ..plain });
    check(precision, s, AttentionMask::Bool(&keep, strides), &plain);
    check(precision, s, AttentionMask::Float(&add, strides), &plain);
    check(precision, s, AttentionMask::Float(&add, strides), &capped);
    // One row of mask for all queries.
    check(precision, s, AttentionMask::Bool(&keep, [s.k_len, 0, 0, 1]), &plain);
    check(precision, s, AttentionMask::Float(&add, [s.k_len, 0, 0, 1]), &plain);
    check(precision, s, AttentionMask::Float(&vec![0.0; s.k_len], [0, 0, 0, 1]), &plain);
    check(precision, s, AttentionMask::Bool(&vec![1; s.k_len], [0, 0, 0, 1]), &plain);
    // One number a head, and masks whose keys are not side by side.
    check(precision, s, AttentionMask::Float(&add, [0, 1, 0, 0]), &plain);
    let apart = [0, 0, 1, s.q_len];
    check(precision, s, AttentionMask::Float(&add, apart), &plain);
    let keep_apart: Vec<u8> =
        keep.iter().enumerate().map(|(i, &keep)| keep | u8::from(i < s.q_len)).collect();
    check(precision, s, AttentionMask::Bool(&keep_apart, apart), &plain);
    if s.q_len <= s.k_len {
        check(precision, s, AttentionMask::None, &causal);
        check(precision, s, AttentionMask::Float(&add, strides), &causal);
        check(precision, s, AttentionMask::Bool(&keep, strides), &causal);
    }
}

#[test]
fn attention_equals_its_definition() {
    let run = || {
        for s in [
            shape(1, [1, 1], 1, 1, [1, 1]),
            shape(2, [4, 2], 5, 7, [8, 12]),
            shape(1, [2, 2], 70, 70, [16, 16]),
            shape(1, [3, 1], 1, 300, [33, 20]),
            shape(2, [2, 2], 3, 65, [64, 64]),
            shape(1, [1, 1], 130, 301, [20, 7]),
            // So many keys that several panels of queries meet them together.
            shape(1, [2, 1], 75, 700, [90, 8]),
        ] {
            check_all(Precision::F32, s);
        }
    };
    at_each_level(|_| run());
    run();
}

#[test]
fn rounded_attention_equals_its_definition() {
    with_all_instructions(|_, _| {
        for s in [
            shape(1, [8, 1], 1, 1, [1, 1]),
            shape(1, [2, 2], 32, 64, [32, 32]),
            shape(2, [4, 2], 9, 40, [8, 12]),
            shape(1, [1, 1], 70, 70, [16, 70]),
            shape(1, [3, 1], 21, 97, [33, 20]),
            // So many keys that their values are summed up in parts.
            shape(1, [1, 1], 9, 1100, [20, 33]),
        ] {
            check_all(Precision::Bf16, s);
        }
        // More queries than keys: the first see none.
        let causal = AttentionOptions { is_causal: true, ..Default::default() };
        check(Precision::Bf16, shape(1, [1, 1], 80, 40, [8, 8]), AttentionMask::None, &causal);
    });
}

#[test]
fn a_query_without_keys_yields_zeros() {
    let s = shape(1, [1, 1], 2, 3, [4, 4]);
    let mask = AttentionMask::Bool(&[0, 0, 0, 1, 1, 0], [6, 6, 3, 1]);
    check(Precision::F32, s, mask, &AttentionOptions::default());
}

/// Vectors of one head.
fn heads(data: &[f32], size: usize) -> Heads<'_> {
    Heads { data, strides: [0, 0, size] }
}

/// Runs `test` in both precisions with all that the machine has.
fn in_each_precision(mut test: impl FnMut(Precision)) {
    at_each_level(|_| test(Precision::F32));
    with_all_instructions(|_, _| test(Precision::Bf16));
}

#[test]
fn scores_as_low_as_numbers_go_hide_all_keys_alike() {
    in_each_precision(|precision| {
        // More keys than one block has, and queries for a narrow panel.
        let (queries, keys) = (9, 600);
        let s = shape(1, [1, 1], queries, keys, [4, 4]);
        let add = vec![f32::MIN; keys];
        check(
            precision,
            s,
            AttentionMask::Float(&add, [0, 0, 0, 1]),
            &AttentionOptions { scale: Some(0.0), ..Default::default() },
        );
        // As high as they go, they are as good as each other.
        let high = vec![3e38; keys];
        check(precision, s, AttentionMask::Float(&high, [0, 0, 0, 1]), &AttentionOptions::default());
        // Hidden keys before those that are seen: the first blocks weigh nothing.
        let late: Vec<f32> = (0..keys).map(|key| if key < 500 { f32::NEG_INFINITY } else { 0.0 }).collect();
        check(precision, s, AttentionMask::Float(&late, [0, 0, 0, 1]), &AttentionOptions::default());
    });
}

#[test]
fn numbers_that_are_none_stay_with_the_queries_that_see_them() {
    in_each_precision(|precision| {
        let (queries, keys) = (40, 70);
        let s = shape(1, [1, 1], queries, keys, [3, 2]);
        let (mut q, mut k, v) = (noise(queries * 3, 1), noise(keys * 3, 2), noise(keys * 2, 3));
        q[3 * 3] = f32::NAN;
        q[35 * 3] = f32::INFINITY;
        // Only one query sees this key.
        k[68 * 3] = f32::NAN;
        let keep: Vec<u8> = (0..queries * keys).map(|i| u8::from(i % keys != 68 || i / keys == 20)).collect();
        let mut out = vec![9.0; queries * 2];
        let mask = AttentionMask::Bool(&keep, [0, 0, keys, 1]);
        let options = AttentionOptions::default();
        attention_in(precision, &s, heads(&q, 3), heads(&k, 3), heads(&v, 2), mask, &options, &mut out);
        for (query, result) in out.chunks(2).enumerate() {
            let has_none = [3, 20, 35].contains(&query);
            assert_eq!(
                result.iter().all(|x| x.is_nan()),
                has_none,
                "{precision:?}: query {query} is {result:?}"
            );
            assert_eq!(
                result.iter().any(|x| x.is_nan()),
                has_none,
                "{precision:?}: query {query} is {result:?}"
            );
        }
        // Without a mask NaN is seen.
        let mask = AttentionMask::None;
        attention_in(precision, &s, heads(&q, 3), heads(&k, 3), heads(&v, 2), mask, &options, &mut out);
        assert!(out.iter().all(|x| x.is_nan()), "{precision:?}");
        // An order hides it from all but the last.
        k[68 * 3] = 1.0;
        k[69 * 3] = f32::NAN;
        let options = AttentionOptions { is_causal: true, ..options };
        attention_in(precision, &s, heads(&q, 3), heads(&k, 3), heads(&v, 2), mask, &options, &mut out);
        for (query, result) in out.chunks(2).enumerate() {
            let has_none = [3, 35, 39].contains(&query);
            assert_eq!(result[0].is_nan(), has_none, "{precision:?}: query {query} is {result:?}");
        }
    });
}

#[test]
fn queries_without_keys_yield_what_the_options_say() {
    in_each_precision(|precision| {
        let (queries, keys) = (10, 300);
        let s = shape(1, [1, 1], queries, keys, [3, 2]);
        let q = noise(queries * 3, 1);
        let (k, v) = (noise(keys * 3, 2), noise(keys * 2, 3));
        let tolerance = if precision == Precision::F32 { 1e-5 } else { 4e-3 };
        let keep: Vec<u8> = (0..queries * keys).map(|i| u8::from(i / keys != 4)).collect();
        let run = |fully_masked| {
            let mut out = vec![9.0; queries * 2];
            let mask = AttentionMask::Bool(&keep, [0, 0, keys, 1]);
            let options = AttentionOptions { fully_masked, ..Default::default() };
            attention_in(precision, &s, heads(&q, 3), heads(&k, 3), heads(&v, 2), mask, &options, &mut out);
            [out[8], out[9]]
        };
        assert_eq!(run(None), [0.0, 0.0]);
        assert_eq!(run(Some(FullyMasked::Zeros)), [0.0, 0.0]);
        let mean = |i: usize| v[i..].iter().step_by(2).sum::<f32>() / keys as f32;
        let got = run(Some(FullyMasked::Mean));
        assert!((got[0] - mean(0)).abs() < tolerance && (got[1] - mean(1)).abs() < tolerance, "{got:?}");
        // One value for all keys.
        let mut out = vec![9.0; queries * 2];
        let mask = AttentionMask::Bool(&keep, [0, 0, keys, 1]);
        let options = AttentionOptions { fully_masked: Some(FullyMasked::Mean), ..Default::default() };
        attention_in(precision, &s, heads(&q, 3), heads(&k, 3), heads(&v[..2], 0), mask, &options, &mut out);
        assert!((out[8] - v[0]).abs() < tolerance && (out[9] - v[1]).abs() < tolerance, "{out:?}");
    });
}
