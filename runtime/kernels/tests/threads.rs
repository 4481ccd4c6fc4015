//! Results are the same, to the bit, for any number of threads. In a process of its own, whose only test sets that number.

use kiln_kernels::attention::{AttentionMask, AttentionShape, Heads, attention_in};
use kiln_kernels::conv::{
    ConvLayer, ConvShape, ConvWeight, Numbers, NumbersMut, PackedConv, PackedConvBf16, conv, conv_bf16,
    pointwise_depthwise, round, widen,
};
use kiln_kernels::gemm::{Bias, Epilogue, Lhs, Matrix, PackedBf16, PackedRhs, Rhs, gemm, gemm_bf16};
use kiln_kernels::reduce::reduce;
use kiln_kernels::threads::set_threads;
use kiln_types::{Activation, AttentionOptions, ConvOptions, Precision, ReduceOp, bf16};

fn noise(len: usize) -> Vec<f32> {
    (0..len).map(|i| ((i * 7919) % 1009) as f32 / 1009.0 - 0.5).collect()
}

/// What a computation yields with one thread, and with several.
fn same_for_all(what: &str, run: impl Fn() -> Vec<f32>) {
    set_threads(1);
    let want = run();
    for threads in [2, 3, 5, 8] {
        set_threads(threads);
        let got = run();
        let differs = want.iter().zip(&got).position(|(a, b)| a.to_bits() != b.to_bits());
        assert_eq!(differs, None, "{what} with {threads} threads");
    }
}

#[test]
fn results_are_the_same_for_any_number_of_threads() {
    // One more than whole tiles of 4, 6, 8 and 14 rows among them; depths of one block and of several.
    for m in [1, 2, 15, 29, 85, 113, 169, 197, 225, 337, 1009] {
        for (k, n) in [(40, 90), (192, 576), (700, 40)] {
            let (a, b, bias) = (noise(m * k), noise(k * n), noise(n));
            let rounded = PackedBf16::new(Matrix::row_major(&b, n), k, n);
            let b = PackedRhs::new(Matrix::row_major(&b, n), k, n);
            let epilogue =
                Epilogue { bias: Bias::PerColumn(&bias), residual: None, activation: Some(Activation::Gelu) };
            same_for_all(&format!("product {m}x{n}x{k}"), || {
                let mut c = vec![0.0; m * n];
                let a = Lhs::Plain(Matrix::row_major(&a, k));
                gemm(m, n, k, a, Rhs::Packed(&b), &mut c, n, &epilogue);
                c
            });
            same_for_all(&format!("product {m}x{n}x{k} of bf16"), || {
                let mut c = vec![0.0; m * n];
                gemm_bf16(m, &a, k, &rounded, &mut c, n, &epilogue);
                c
            });
        }
    }
    // Channels in and out, groups, image, kernel, stride.
    for (ic, oc, groups, size, kernel, stride) in [
        (3, 32, 1, 29, 3, 2),
        (48, 64, 1, 15, 1, 1),
        (32, 48, 1, 13, 5, 1),
        (32, 48, 1, 25, 3, 1),
        (120, 136, 1, 15, 3, 1),
        (64, 64, 1, 29, 3, 2),
        (40, 40, 40, 29, 3, 1),
        (64, 64, 8, 15, 3, 1),
    ] {
        let pads = vec![(kernel / 2, kernel / 2); 2];
        let options =
            ConvOptions { stride: [stride; 2].into(), padding: pads.into(), dilation: [1; 2].into(), groups };
        let shape = ConvShape::new(&[1, ic, size, size], &[oc, ic / groups, kernel, kernel], &options);
        let (x, weight) = (noise(ic * size * size), noise(shape.weight_len()));
        let packed = PackedConv::new(&shape, &weight);
        same_for_all(&format!("convolution {ic}>{oc} in {groups}, {size}x{size}, kernel {kernel}"), || {
            let mut out = vec![0.0; shape.output_dims().iter().product()];
            conv(&shape, &x, ConvWeight::Packed(&packed), None, Some(Activation::Silu), false, &mut out);
            out
        });
        if shape.is_product() {
            let packed = PackedConvBf16::new(&shape, &weight);
            let len = shape.output_dims().iter().product();
            same_for_all(&format!("convolution {ic}>{oc} of bf16, {size}x{size}, kernel {kernel}"), || {
                let mut out = vec![0.0; len];
                let (x, to) = (Numbers::Single(&x), NumbersMut::Single(&mut out));
                conv_bf16(&shape, x, &packed, None, Some(Activation::Silu), false, to);
                out
            });
            if packed.takes_rounded() {
                let mut near = vec![bf16::ZERO; x.len()];
                round(&x, &mut near);
                same_for_all(
                    &format!("convolution {ic}>{oc} to bf16, {size}x{size}, kernel {kernel}"),
                    || {
                        let mut out = vec![bf16::ZERO; len];
                        let (x, to) = (Numbers::Rounded(&near), NumbersMut::Rounded(&mut out));
                        conv_bf16(&shape, x, &packed, None, Some(Activation::Silu), false, to);
                        let mut wide = vec![0.0; len];
                        widen(&out, &mut wide);
                        wide
                    },
                );
            }
        }
    }
    // Images, pixels, channels.
    for (outer, len, inner) in [(1, 196, 40), (1, 3136, 300), (3, 784, 33), (1, 127, 500)] {
        let x = noise(outer * len * inner);
        same_for_all(&format!("means of {outer}x{len}x{inner}"), || {
            let mut out = vec![0.0; outer * inner];
            reduce(ReduceOp::Mean, outer, len, inner, &x, &mut out);
            out
        });
    }
    // A 1x1 convolution and the depthwise one behind it: channels in and between, image, kernel, stride.
    for (ic, channels, size, kernel, stride) in [(16, 96, 57, 3, 2), (24, 144, 56, 3, 1), (40, 240, 29, 5, 2)]
    {
        let options = |pad, stride, groups| ConvOptions::new([stride; 2], [pad; 2], [1; 2], groups);
        let points = ConvShape::new(&[2, ic, size, size], &[channels, ic, 1, 1], &options(0, 1, 1));
        let dims = [channels, 1, kernel, kernel];
        let depthwise = ConvShape::new(&points.output_dims(), &dims, &options(kernel / 2, stride, channels));
        let (x, bias) = (noise(2 * ic * size * size), noise(channels));
        let pack = |shape: &ConvShape| PackedConv::new(shape, &noise(shape.weight_len()));
        let (first, second) = (pack(&points), pack(&depthwise));
        same_for_all(&format!("convolutions {ic}>{channels}, {size}x{size}, kernel {kernel}"), || {
            let layer = |shape, weight| ConvLayer {
                shape,
                weight,
                bias: Some(&bias),
                activation: Some(Activation::Silu),
            };
            let mut out = vec![0.0; depthwise.output_dims().iter().product()];
            pointwise_depthwise(&layer(&points, &first), &layer(&depthwise, &second), &x, &mut out);
            out
        });
    }
    // Heads of queries and of keys, queries, keys, elements of a vector.
    for (heads, kv_heads, q_len, k_len, size) in
        [(4, 4, 129, 129, 32), (6, 2, 197, 333, 40), (1, 1, 500, 90, 64)]
    {
        let shape = AttentionShape { batch: 2, heads, kv_heads, q_len, k_len, size, value_size: size };
        let of = |heads: usize, len: usize| {
            (noise(2 * heads * len * size), [heads * len * size, len * size, size])
        };
        let (q, k) = (of(heads, q_len), of(kv_heads, k_len));
        fn view((data, strides): &(Vec<f32>, [usize; 3])) -> Heads<'_> {
            Heads { data, strides: *strides }
        }
        for precision in [Precision::F32, Precision::Bf16] {
            same_for_all(
                &format!("attention of {heads} heads, {q_len} to {k_len}, in {precision:?}"),
                || {
                    let mut out = vec![0.0; 2 * heads * q_len * size];
                    let (mask, options) = (AttentionMask::None, AttentionOptions::default());
                    attention_in(precision, &shape, view(&q), view(&k), view(&k), mask, &options, &mut out);
                    out
                },
            );
        }
    }
}
