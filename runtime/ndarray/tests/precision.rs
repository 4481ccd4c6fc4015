//! Products of operands rounded to bf16 equal products of operands that were rounded before.

use kiln_ndarray::{NdArray, NdArrayDevice};
use kiln_tensor::backend::{Backend, Primitive};
use kiln_tensor::{Activation, AttentionOptions, ConvOptions, DType, Precision, TensorData};

type B = NdArray;
type P = <B as Backend>::Primitive;

/// Numbers between -1 and 1 that follow from the seed.
fn noise(dims: &[usize], seed: u32) -> P {
    let count: usize = dims.iter().product();
    let mut state = seed.wrapping_mul(0x9E37_79B9) ^ 0x1234_5678;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as f32 / u32::MAX as f32 * 2.0 - 1.0
    };
    let values: Vec<f32> = (0..count).map(|_| next()).collect();
    B::from_data(TensorData::new(values, dims.to_vec()), &NdArrayDevice::Cpu)
}

fn rounded(x: &P) -> P {
    B::cast(B::cast(x.clone(), DType::BF16), DType::F32)
}

fn values(x: P) -> Vec<f32> {
    assert_eq!(x.dtype(), DType::F32);
    B::into_data(x).expect("the data").iter::<f32>().collect()
}

/// Holds what `compute` makes of operands within bf16 against what it makes of rounded ones in f32.
#[track_caller]
fn check(operands: &[P], tolerance: f32, compute: impl Fn(&[P]) -> P) {
    let plain = values(compute(operands));
    let got = values(Precision::Bf16.run(|| compute(operands)));
    let near: Vec<P> = operands.iter().map(rounded).collect();
    let want = values(compute(&near));
    for (i, (got, want)) in got.iter().zip(&want).enumerate() {
        assert!((got - want).abs() <= tolerance * (1.0 + want.abs()), "element {i} is {got}, not {want}");
    }
    assert_ne!(got, plain, "nothing was rounded");
    assert_eq!(values(compute(operands)), plain, "rounding stays inside");
}

#[test]
fn linear_layers_of_weights_and_of_other_tensors() {
    let (x, weight, bias) = (noise(&[3, 20, 50], 1), noise(&[50, 70], 2), noise(&[70], 3));
    let weight_kept = B::prepare(weight.clone());
    for weight in [weight, weight_kept, B::permute(noise(&[70, 50], 4), &[1, 0])] {
        // The bias is not rounded.
        check(&[x.clone(), weight], 1e-4, |operands| {
            let [x, weight] = [0, 1].map(|i: usize| operands[i].clone());
            B::linear(x, &weight, Some(&bias), Some(Activation::Gelu))
        });
    }
}

#[test]
fn products_with_many_right_matrices_and_with_one() {
    let product = |operands: &[P]| B::matmul(operands[0].clone(), operands[1].clone());
    check(&[noise(&[2, 3, 9, 40], 1), noise(&[2, 1, 40, 33], 2)], 1e-4, product);
    check(&[noise(&[2, 3, 9, 40], 1), noise(&[1, 1, 40, 33], 2)], 1e-4, product);
    let turned = B::permute(noise(&[2, 40, 9], 3), &[0, 2, 1]);
    check(&[turned, B::permute(noise(&[2, 33, 40], 4), &[0, 2, 1])], 1e-4, product);
}

#[test]
fn convolutions() {
    let options = ConvOptions {
        stride: [1; 2].into(),
        padding: [(1, 1); 2].into(),
        dilation: [1; 2].into(),
        groups: 1,
    };
    let x = noise(&[2, 20, 9, 8], 1);
    let (weight, bias) = (noise(&[33, 20, 3, 3], 2), noise(&[33], 3));
    for weight in [weight.clone(), B::prepare(weight)] {
        check(&[x.clone(), weight], 1e-3, |operands| {
            let [x, weight] = [0, 1].map(|i: usize| operands[i].clone());
            B::conv_activated(x, weight, Some(bias.clone()), Activation::Relu, &options)
        });
    }
}

#[test]
fn attention_rounds_its_weights_too() {
    let [q, k, v] = [1, 2, 3].map(|seed| noise(&[1, 2, 70, 32], seed));
    for is_causal in [false, true] {
        let options = AttentionOptions { is_causal, ..AttentionOptions::default() };
        // Shares of one are rounded, which are all positive.
        check(&[q.clone(), k.clone(), v.clone()], 4e-3, |operands| {
            let [q, k, v] = [0, 1, 2].map(|i: usize| operands[i].clone());
            B::attention(q, k, v, None, &options)
        });
    }
}

/// What has other paths keeps to them: f64, integers.
#[test]
fn other_dtypes_are_as_they_were() {
    let (a, b) = (noise(&[9, 40], 1), noise(&[40, 33], 2));
    for dtype in [DType::F64, DType::I64] {
        let product = || B::into_data(B::matmul(B::cast(a.clone(), dtype), B::cast(b.clone(), dtype)));
        assert_eq!(Precision::Bf16.run(product).ok(), product().ok());
    }
}
