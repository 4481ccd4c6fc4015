//! New tensors, random numbers, data in and out.

use super::{bits, has, held_as, read, tensor};
use crate::drawing;
use kiln_tensor::backend::{Backend, Primitive};
use kiln_tensor::{Bytes, DType, Distribution, Scalar, TensorData};

pub fn filled<B: Backend>() {
    let device = B::Device::default();
    assert_eq!(read::<B, f32>(B::full([2].into(), Scalar::Float(1.5), DType::F32, &device)), [1.5, 1.5]);
    assert_eq!(read::<B, i32>(B::full(vec![].into(), Scalar::Int(-2), DType::I32, &device)), [-2]);
    assert_eq!(bits::<B>(B::full([1].into(), Scalar::Int(7), DType::Bool, &device)), [1]);
    if has::<B>(DType::U8) && has::<B>(DType::U64) {
        assert_eq!(read::<B, u8>(B::full([1].into(), Scalar::Float(300.0), DType::U8, &device)), [255]);
        let large = B::full([1].into(), Scalar::UInt(u64::MAX), DType::U64, &device);
        assert_eq!(read::<B, u64>(large), [u64::MAX]);
    }
}

pub fn counted<B: Backend>() {
    let device = B::Device::default();
    assert_eq!(read::<B, i64>(B::arange(2, 9, 3, held_as::<B>(DType::I64), &device)), [2, 5, 8]);
    assert_eq!(read::<B, i32>(B::arange(2, -3, -2, DType::I32, &device)), [2, 0, -2]);
    assert!(read::<B, i64>(B::arange(5, 5, 1, held_as::<B>(DType::I64), &device)).is_empty());
}

pub fn seeded<B: Backend>() {
    let _alone = drawing();
    let device = B::Device::default();
    let draw = || read::<B, f32>(B::random([64].into(), Distribution::Default, DType::F32, &device));
    B::seed(&device, 42);
    let first = [draw(), draw()];
    assert_ne!(first[0], first[1]);
    B::seed(&device, 42);
    assert_eq!([draw(), draw()], first, "a seed does not repeat");
    B::seed(&device, 43);
    assert_ne!(draw(), first[0]);
}

pub fn distributions<B: Backend>() {
    let _alone = drawing();
    let device = B::Device::default();
    let draw = |distribution, dtype| B::random([10_000].into(), distribution, dtype, &device);
    let mean = |x: &[f32]| x.iter().sum::<f32>() / x.len() as f32;
    let uniform = read::<B, f32>(draw(Distribution::Uniform(-2., 4.), DType::F32));
    assert!(uniform.iter().all(|x| (-2. ..4.).contains(x)) && (mean(&uniform) - 1.).abs() < 0.1);
    let normal = read::<B, f32>(draw(Distribution::Normal(3., 2.), DType::F32));
    let centred: Vec<f32> = normal.iter().map(|x| (x - 3.) * (x - 3.)).collect();
    assert!((mean(&normal) - 3.).abs() < 0.1 && (mean(&centred) - 4.).abs() < 0.3);
    let coins = bits::<B>(draw(Distribution::Bernoulli(0.25), DType::Bool));
    assert!((coins.iter().map(|&x| u32::from(x)).sum::<u32>() as f32 / 10_000. - 0.25).abs() < 0.03);
    let dice = read::<B, i32>(draw(Distribution::Uniform(1., 7.), DType::I32));
    assert!((1..=6).all(|face| dice.contains(&face)) && dice.iter().all(|x| (1..=6).contains(x)));
    let doubles = |tensor: B::Primitive| -> Vec<f64> {
        B::into_data(tensor).expect("a backend in these tests reads back").iter::<f64>().collect()
    };
    for dtype in
        [DType::F64, DType::F32, DType::F16, DType::BF16].into_iter().filter(|&dtype| has::<B>(dtype))
    {
        let numbers = |distribution| doubles(draw(distribution, dtype));
        let moments = |numbers: &[f64]| {
            let mean = numbers.iter().sum::<f64>() / numbers.len() as f64;
            (mean, numbers.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / numbers.len() as f64)
        };
        for (distribution, low, high) in
            [(Distribution::Default, 0.0, 1.0), (Distribution::Uniform(-2.0, 4.0), -2.0, 4.0)]
        {
            let drawn = numbers(distribution);
            let (mean, variance) = moments(&drawn);
            let length: f64 = high - low;
            assert!(drawn.iter().all(|x| (low..high).contains(x)), "{dtype} beyond {low} to {high}");
            assert!((mean - (low + high) / 2.0).abs() < 0.02 * length, "{dtype}: {mean}");
            assert!((variance - length.powi(2) / 12.0).abs() < 0.005 * length.powi(2), "{dtype}: {variance}");
        }
        let (mean, variance) = moments(&numbers(Distribution::Normal(3.0, 2.0)));
        assert!((mean - 3.0).abs() < 0.1 && (variance - 4.0).abs() < 0.3, "{dtype}: {mean} {variance}");
    }
    let words = read::<B, i32>(draw(Distribution::Default, DType::I32));
    assert!(words.iter().any(|&x| x < -2_000_000_000) && words.iter().any(|&x| x > 2_000_000_000));
    if has::<B>(DType::U8) {
        let bytes = read::<B, u8>(draw(Distribution::Default, DType::U8));
        assert!(bytes.contains(&0) && bytes.contains(&255));
    }
}

pub fn data_round_trip<B: Backend>() {
    let device = B::Device::default();
    // An unaligned slice of someone's bytes.
    let bytes = Bytes::from_vec((0..33).collect()).slice(1..33).expect("inside");
    let data = TensorData::from_bytes(bytes, vec![2, 4], DType::F32).expect("the size fits");
    let back = B::into_data(B::from_data(data.clone(), &device)).expect("reads back");
    assert_eq!(back, data);
    // A bool is 0 or 1 whatever its byte was.
    let data = TensorData::from_bytes(Bytes::from_vec(vec![0, 1, 255]), vec![3], DType::Bool).expect("fits");
    assert_eq!(bits::<B>(B::from_data(data, &device)), [0, 1, 1]);
    let part = B::slice(
        tensor::<B, i32>(&[1, 2, 3], &[3]),
        &[kiln_tensor::backend::SliceRange { start: 1, end: 3, step: 1 }],
    );
    assert_eq!(part.shape().dims, [2]);
    assert_eq!(read::<B, i32>(part), [2, 3]);
}
