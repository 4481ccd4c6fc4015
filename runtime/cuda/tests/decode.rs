//! Attention of few queries to many keys, as generation has it: results beside the CPU's.

#![cfg(target_os = "linux")]

mod host;

use kiln_cuda::{Cuda, CudaDevice, statistics};
use kiln_ndarray::NdArray;
use kiln_tensor::backend::{Backend, SliceRange};
use kiln_tensor::{AttentionOptions, DType, FullyMasked, TensorData};

const DEVICE: CudaDevice = CudaDevice { index: 1 };
const BATCH: usize = 2;

/// What an attention is of.
#[derive(Clone, Copy, Debug)]
struct Case {
    heads: [usize; 2],
    queries: usize,
    keys: usize,
    sizes: [usize; 2],
    mask: Mask,
    options: AttentionOptions,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mask {
    None,
    /// Keeps some keys, of the first query none.
    Bool,
    Added,
}

const PLAIN: AttentionOptions =
    AttentionOptions { scale: None, is_causal: false, softcap: None, fully_masked: None };
const CAUSAL: AttentionOptions = AttentionOptions { is_causal: true, ..PLAIN };
const CAPPED: AttentionOptions = AttentionOptions { softcap: Some(1.5), scale: Some(0.4), ..CAUSAL };

/// Numbers between -1 and 1 that every dtype rounds alike: multiples of 1/64.
fn tensor<B: Backend>(shape: &[usize], seed: usize, dtype: DType, device: &B::Device) -> B::Primitive {
    let count = shape.iter().product::<usize>();
    let values: Vec<f32> = (0..count)
        .map(|n| ((n * 7919 + seed * 104_729) % 10_007 % 127) as f32 / 64.0 - 63.0 / 64.0)
        .collect();
    B::cast(B::from_data(TensorData::new(values, shape), device), dtype)
}

impl Case {
    fn mask<B: Backend>(&self, dtype: DType, device: &B::Device) -> Option<B::Primitive> {
        let Case { queries, keys, heads: [heads, _], .. } = *self;
        match self.mask {
            Mask::None => None,
            Mask::Bool => {
                let keep = (0..queries * keys).map(|n| (n >= keys || queries == 1) && n % 3 != 1);
                let data = TensorData::new(keep.collect::<Vec<bool>>(), [1, 1, queries, keys]);
                Some(B::from_data(data, device))
            }
            Mask::Added => Some(tensor::<B>(&[heads, 1, keys], 5, dtype, device)),
        }
    }

    /// Queries as a projection leaves them: the heads of one lie together. Keys as a part of a longer cache, values by columns if `apart`.
    fn compute<B: Backend>(&self, dtype: DType, apart: bool, device: &B::Device) -> Vec<f32> {
        let Case { heads: [heads, key_heads], queries, keys, sizes: [size, value_size], .. } = *self;
        let of = |shape: &[usize], seed| tensor::<B>(shape, seed, dtype, device);
        let q = B::permute(of(&[BATCH, queries, heads, size], 1), &[0, 2, 1, 3]);
        let cache = of(&[BATCH, key_heads, keys + 3, size], 2);
        let all = SliceRange::full;
        let range = SliceRange { start: 3, end: keys + 3, step: 1 };
        let k = B::slice(cache, &[all(BATCH), all(key_heads), range, all(size)]);
        let v = match apart {
            false => of(&[BATCH, key_heads, keys, value_size], 3),
            true => B::permute(of(&[BATCH, key_heads, value_size, keys], 3), &[0, 1, 3, 2]),
        };
        let result = B::attention(q, k, v, self.mask::<B>(dtype, device), &self.options);
        let data = B::into_data(result).expect("a device");
        data.convert_dtype(DType::F32).to_vec().expect("floats")
    }

    /// Compares, but for what is rounded to so many bits.
    fn check(&self, dtype: DType, bits: i32) {
        for apart in [false, true] {
            let found = self.compute::<Cuda>(dtype, apart, &DEVICE);
            let wanted = self.compute::<NdArray>(DType::F32, apart, &Default::default());
            assert_eq!(found.len(), wanted.len());
            let largest = wanted.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
            for (at, (x, y)) in found.iter().zip(&wanted).enumerate() {
                let close = (x - y).abs() <= 0.5_f32.powi(bits) * largest || x.is_nan() && y.is_nan();
                assert!(close, "{dtype} {self:?}, apart: {apart}: {x} and not {y} at {at} (of {largest})");
            }
        }
    }
}

const fn case(heads: [usize; 2], [queries, keys]: [usize; 2], sizes: [usize; 2]) -> Case {
    Case { heads, queries, keys, sizes, mask: Mask::None, options: PLAIN }
}

/// One query and several, few keys and many, heads that share keys, all sizes of heads.
fn cases() -> Vec<Case> {
    vec![
        case([1, 1], [1, 1], [64, 64]),
        case([4, 1], [1, 31], [64, 64]),
        case([8, 2], [1, 256], [32, 32]),
        case([2, 2], [2, 256], [80, 80]),
        case([2, 1], [3, 1000], [128, 128]),
        case([2, 1], [4, 33], [128, 96]),
        case([1, 1], [1, 70], [256, 256]),
        case([1, 1], [2, 70], [7, 5]),
        case([2, 1], [1, 40], [16, 200]),
    ]
}

#[test]
fn single_precision() {
    for case in cases() {
        case.check(DType::F32, 19);
    }
}

#[test]
fn halves() {
    for case in cases() {
        case.check(DType::F16, 10);
        case.check(DType::BF16, 7);
    }
}

#[test]
fn masks_and_what_comes_later() {
    let zeros = AttentionOptions { fully_masked: Some(FullyMasked::Zeros), ..PLAIN };
    let mean = AttentionOptions { fully_masked: Some(FullyMasked::Mean), ..PLAIN };
    for sizes in [[64, 64], [24, 40]] {
        for [queries, keys] in [[1, 256], [4, 100], [3, 2]] {
            for mask in [Mask::None, Mask::Bool, Mask::Added] {
                for options in [PLAIN, CAUSAL, CAPPED, zeros, mean] {
                    let case = Case { mask, options, ..case([4, 2], [queries, keys], sizes) };
                    case.check(DType::F32, 18);
                }
            }
        }
    }
}

/// So many keys that workgroups have parts of them, of which some are masked wholly.
#[test]
fn keys_in_parts() {
    for (queries, mask, options) in
        [(1, Mask::None, PLAIN), (1, Mask::Bool, PLAIN), (2, Mask::Added, PLAIN), (3, Mask::Bool, CAPPED)]
    {
        let case = Case { mask, options, ..case([2, 1], [queries, 2100], [24, 16]) };
        case.check(DType::F32, 18);
        case.check(DType::F16, 10);
    }
}

/// One launch, or two where keys are in parts, and the same numbers each time.
#[test]
fn launches() {
    type B = Cuda;
    let device = CudaDevice { index: 0 };
    for (keys, launches) in [(256, 1), (2048, 2)] {
        let of = |shape: &[usize], seed| tensor::<B>(shape, seed, DType::BF16, &device);
        let (k, v) = (of(&[1, 2, keys, 64], 2), of(&[1, 2, keys, 64], 3));
        let attend = || {
            let q = of(&[1, 8, 1, 64], 1);
            B::sync(&device).expect("a device");
            let before = statistics(&device).launches;
            let out = B::attention(q, k.clone(), v.clone(), None, &PLAIN);
            assert_eq!(statistics(&device).launches - before, launches, "{keys} keys");
            B::into_data(out).expect("a device").convert_dtype(DType::F32).to_vec::<f32>().expect("floats")
        };
        assert_eq!(attend(), attend());
    }
}
