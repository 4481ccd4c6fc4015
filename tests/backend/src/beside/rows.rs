//! What is computed of whole rows.

use super::{Results, assert_same, floats, on, read, reals};
use kiln_tensor::BinaryOp;
use kiln_tensor::backend::Backend;

/// What a norm or a softmax is computed of is computed just before, and read by others later: what they see is what it would be alone.
pub fn rows_that_others_read_too<B: Backend>() {
    type Op<B> = (&'static str, fn([<B as Backend>::Primitive; 3]) -> <B as Backend>::Primitive);
    let ops: [Op<B>; 4] = [
        ("layer_norm", |[x, weight, bias]| B::layer_norm(x, weight, Some(bias), 1e-5)),
        ("rms_norm", |[x, weight, _]| B::rms_norm(x, weight, 1e-5)),
        ("softmax", |[x, ..]| B::softmax(x, 1)),
        ("log_softmax", |[x, ..]| B::log_softmax(x, 1)),
    ];
    for dtype in floats::<B>() {
        // Rows of a warp, of a workgroup, and those that are too long to be kept.
        for (rows, length) in [(1, 5), (3, 33), (7, 300), (1100, 40), (2, 8200)] {
            let numbers = |dims: &[usize], seed: usize| {
                let count = dims.iter().product();
                let number = |n: usize| ((n * 7919 + seed * 31) % 1009) as f64 / 256.0 - 2.0;
                on::<B>(reals(&(0..count).map(number).collect::<Vec<_>>(), dims, dtype))
            };
            for (name, op) in ops {
                let sum = || {
                    let left = B::permute(numbers(&[length, rows], 1), &[1, 0]);
                    let product = B::binary(BinaryOp::Mul, left, numbers(&[1, length], 2));
                    B::binary(BinaryOp::Add, product, numbers(&[rows, length], 3))
                };
                let parameters = || [4, 5].map(|seed| numbers(&[length], seed));
                let [weight, bias] = parameters();
                let x = sum();
                let y = op([x.clone(), weight, bias]);
                let together = B::binary(BinaryOp::Add, y.clone(), x.clone());
                // What nobody else holds is read with what the same kernel wrote.
                let own = {
                    let [weight, bias] = parameters();
                    let x = sum();
                    let y = op([x.clone(), weight, bias]);
                    B::binary(BinaryOp::Add, y, x)
                };
                let later = B::binary(BinaryOp::Mul, x, numbers(&[1, length], 6));
                let found: Results = [y, together, own, later]
                    .map(|tensor| (format!("{name} of {rows} x {length}"), read::<B>(tensor)))
                    .into();

                let alone = on::<B>(read::<B>(sum()));
                let [weight, bias] = parameters();
                let y = op([alone.clone(), weight, bias]);
                let together = B::binary(BinaryOp::Add, y.clone(), alone.clone());
                let later = B::binary(BinaryOp::Mul, alone, numbers(&[1, length], 6));
                let expected = [y, together.clone(), together, later]
                    .map(|tensor| (String::new(), read::<B>(tensor)))
                    .into();
                assert_same(found, expected, 0.0);
            }
        }
    }
}
