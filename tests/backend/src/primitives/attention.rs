//! Attention of what is not finite, and of queries without keys.

use super::products::values;
use super::{assert_close, mask, read, tensor};
use kiln_tensor::backend::{Backend, Primitive};
use kiln_tensor::compose::AttentionTrained;
use kiln_tensor::{AttentionOptions, DType, FullyMasked, Precision, Scalar, compose};

const UNREAL: [f64; 3] = [f64::INFINITY, f64::NEG_INFINITY, f64::NAN];
const YIELDS: [Option<FullyMasked>; 3] = [None, Some(FullyMasked::Zeros), Some(FullyMasked::Mean)];
/// Queries and keys: one, few, many, and more than a kernel looks at together.
const SIZES: [[usize; 2]; 5] = [[1, 3], [5, 3], [40, 3], [40, 33], [70, 300]];
const SIZE: usize = 8;

/// What is attended to: queries, keys, values and a mask.
type Operands<'a, B> = (&'a [<B as Backend>::Primitive; 3], Option<&'a <B as Backend>::Primitive>);

fn operands<B: Backend>([queries, keys]: [usize; 2]) -> [B::Primitive; 3] {
    let random = |rows: usize, seed| tensor::<B, f32>(&values(rows * SIZE, seed), &[1, 1, rows, SIZE]);
    [random(queries, 1), random(keys, 2), random(keys, 3)]
}

/// A column of truth values, by its rows' numbers.
fn rows_where<B: Backend>(rows: usize, is: impl Fn(usize) -> bool) -> B::Primitive {
    let bits: Vec<u8> = (0..rows).map(|row| u8::from(is(row))).collect();
    mask::<B>(&bits, &[1, 1, rows, 1])
}

/// The results of every way to compute it, in every dtype: one row a query.
fn results<B: Backend>((of, mask): Operands<'_, B>, options: AttentionOptions) -> Vec<(String, Vec<f32>)> {
    let mut found = Vec::new();
    for dtype in crate::supported::<B>().filter(|dtype| dtype.is_float()) {
        let cast =
            |x: &B::Primitive| if x.dtype() == DType::Bool { x.clone() } else { B::cast(x.clone(), dtype) };
        let [q, k, v] = [0, 1, 2].map(|n| cast(&of[n]));
        let mask = mask.map(cast);
        let own = || B::attention(q.clone(), k.clone(), v.clone(), mask.clone(), &options);
        let composed = compose::attention::<B>(q.clone(), k.clone(), v.clone(), mask.clone(), &options);
        let ways = [("own", own()), ("rounded", Precision::Bf16.run(own)), ("composed", composed)];
        for (way, y) in ways {
            found.push((format!("{dtype}, {way}, {options:?}"), read::<B, f32>(B::cast(y, DType::F32))));
        }
    }
    found
}

/// What a query yields that sees no key is none of the values' business.
pub fn without_keys_beside_any_values<B: Backend>() {
    for [queries, keys] in SIZES {
        let [q, k, v] = operands::<B>([queries, keys]);
        let kept: Vec<u8> = (0..queries * keys).map(|i| u8::from(i >= keys)).collect();
        let kept = mask::<B>(&kept, &[1, 1, queries, keys]);
        let zeros = B::binary_scalar(
            kiln_tensor::BinaryOp::Mul,
            B::cast(kept.clone(), DType::F32),
            Scalar::Float(0.0),
        );
        let hidden = B::unary(kiln_tensor::UnaryOp::Not, kept.clone());
        let added = B::mask_fill(zeros.clone(), hidden, Scalar::Float(f64::NEG_INFINITY));
        for number in UNREAL {
            let v = B::mask_fill(v.clone(), rows_where::<B>(keys, |row| row == 1), Scalar::Float(number));
            let of = [q.clone(), k.clone(), v];
            let causal = AttentionOptions { is_causal: true, ..AttentionOptions::default() };
            let given =
                AttentionOptions { fully_masked: Some(FullyMasked::Zeros), ..AttentionOptions::default() };
            let before = queries.saturating_sub(keys);
            for (mask, options, empty) in [
                (None, causal, before),
                (Some(&zeros), causal, before),
                (Some(&kept), AttentionOptions::default(), 1),
                (Some(&kept), given, 1),
                (Some(&added), given, 1),
            ] {
                for (way, y) in results::<B>((&of, mask), options) {
                    let (without, with) = y.split_at(empty * SIZE);
                    assert!(
                        without.iter().all(|&y| y == 0.0),
                        "{queries}, {keys}, {number}, {way}: {without:?}"
                    );
                    let last = &with[with.len().saturating_sub(SIZE)..];
                    assert!(
                        last.iter().all(|y| !y.is_finite()),
                        "{queries}, {keys}, {number}, {way}: {last:?}"
                    );
                }
            }
        }
    }
}

/// A query that is no number sees keys all the same: it yields NaN, and not what it would without any.
pub fn queries_that_are_no_numbers<B: Backend>() {
    for [queries, keys] in SIZES {
        let [q, k, v] = operands::<B>([queries, keys]);
        let nan = B::mask_fill(
            q.clone(),
            rows_where::<B>(queries, |row| row == queries / 2),
            Scalar::Float(f64::NAN),
        );
        let all = mask::<B>(&[1], &[1, 1, 1, 1]);
        let nothing = tensor::<B, f32>(&[0.0], &[1, 1, 1, 1]);
        for fully_masked in YIELDS {
            let options = AttentionOptions { fully_masked, ..AttentionOptions::default() };
            for mask in [None, Some(&all), Some(&nothing)] {
                let expected = results::<B>((&[q.clone(), k.clone(), v.clone()], mask), options);
                let found = results::<B>((&[nan.clone(), k.clone(), v.clone()], mask), options);
                for ((way, found), (_, mut expected)) in found.into_iter().zip(expected) {
                    expected[queries / 2 * SIZE..][..SIZE].fill(f32::NAN);
                    assert_close(&found, &expected, 1e-5);
                    assert!(found[queries / 2 * SIZE].is_nan(), "{queries}, {keys}, {way}");
                }
            }
        }
    }
}

/// A key that truth values or the order hide may be any.
pub fn hidden_keys_may_be_any<B: Backend>() {
    for [queries, keys] in SIZES {
        let [q, k, v] = operands::<B>([queries, keys]);
        let kept: Vec<u8> = (0..keys).map(|key| u8::from(key % 3 != 2)).collect();
        let kept = mask::<B>(&kept, &[1, 1, 1, keys]);
        for number in UNREAL {
            let with = |is: &dyn Fn(usize) -> bool| {
                B::mask_fill(k.clone(), rows_where::<B>(keys, is), Scalar::Float(number))
            };
            let causal = AttentionOptions { is_causal: true, ..AttentionOptions::default() };
            let last = with(&|row| row == keys - 1);
            let hidden = with(&|row| row % 3 == 2);
            let cases = [
                (hidden, Some(&kept), AttentionOptions::default(), queries),
                (last, None, causal, queries - 1),
            ];
            for (k_of_any, mask, options, alike) in cases {
                let expected = results::<B>((&[q.clone(), k.clone(), v.clone()], mask), options);
                let found = results::<B>((&[q.clone(), k_of_any, v.clone()], mask), options);
                for ((way, found), (_, expected)) in found.iter().zip(&expected) {
                    let rows = ..alike * SIZE;
                    assert!(found[rows] == expected[rows], "{queries}, {keys}, {number}, {way}");
                }
            }
        }
    }
}

/// The gradients of queries, keys and values, of every way to compute them, in every dtype: `of` as the result was computed, but for the values.
fn gradients<B: Backend>(
    (of, mask): Operands<'_, B>,
    values_of_any: &B::Primitive,
    options: AttentionOptions,
) -> Vec<(String, [Vec<f32>; 3])> {
    let mut found = Vec::new();
    for dtype in crate::supported::<B>().filter(|dtype| dtype.is_float()) {
        let cast = |x: &B::Primitive| B::cast(x.clone(), dtype);
        let [q, k, v] = [0, 1, 2].map(|n| cast(&of[n]));
        let gradient = B::unary(kiln_tensor::UnaryOp::Neg, q.clone());
        let of_any =
            |trained: AttentionTrained<B::Primitive>| AttentionTrained { v: cast(values_of_any), ..trained };
        let own = of_any(B::attention_train(q.clone(), k.clone(), v.clone(), mask.cloned(), &options));
        let own = B::attention_gradient(gradient.clone(), own, &options, false);
        let composed = of_any(compose::attention_train::<B>(q, k, v, mask.cloned(), &options));
        let composed = compose::attention_gradient::<B>(gradient, composed, &options, false);
        for (way, found_by) in [("own", own), ("composed", composed)] {
            let all = [found_by.q, found_by.k, found_by.v].map(|x| read::<B, f32>(B::cast(x, DType::F32)));
            found.push((format!("{dtype}, {way}, {options:?}"), all));
        }
    }
    found
}

/// Nothing flows to a query through a key that truth values or the order hide from it, whatever its value is, nor to the other keys.
pub fn hidden_values_take_no_gradient<B: Backend>() {
    for [queries, keys] in [[5, 3], [40, 33]] {
        let of = operands::<B>([queries, keys]);
        let kept: Vec<u8> = (0..keys).map(|key| u8::from(key % 3 != 2)).collect();
        let kept = mask::<B>(&kept, &[1, 1, 1, keys]);
        let hidden = rows_where::<B>(keys, |row| row % 3 == 2);
        // The last query sees the last key.
        let last = rows_where::<B>(keys, |row| row == keys - 1);
        let causal = AttentionOptions { is_causal: true, ..AttentionOptions::default() };
        let capped = AttentionOptions { softcap: Some(1.5), ..AttentionOptions::default() };
        for (unreal, mask, options, [alike, alike_keys]) in [
            (&hidden, Some(&kept), AttentionOptions::default(), [queries, keys]),
            (&hidden, Some(&kept), capped, [queries, keys]),
            (&last, None, causal, [queries - 1, keys - 1]),
        ] {
            let expected = gradients::<B>((&of, mask), &of[2], options);
            for number in UNREAL {
                let values = B::mask_fill(of[2].clone(), unreal.clone(), Scalar::Float(number));
                let found = gradients::<B>((&of, mask), &values, options);
                for ((way, found), (_, expected)) in found.iter().zip(&expected) {
                    for (n, rows) in [alike, alike_keys, keys].into_iter().enumerate() {
                        let [found, expected] = [found, expected].map(|of| &of[n][..rows * SIZE]);
                        let what = ["queries", "keys", "values"][n];
                        assert!(
                            found == expected && expected.iter().all(|x| x.is_finite()),
                            "{what} of {queries}, {keys}, {number}, {way}: {found:?}"
                        );
                    }
                }
            }
        }
    }
}
