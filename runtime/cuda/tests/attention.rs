//! Attention by tensor cores, on the host's form of the same tiles: results and gradients beside the CPU's, with operands of 16 bits.

#![cfg(target_os = "linux")]

mod host;

use kiln_cuda::{Cuda, CudaDevice, set_tf32};
use kiln_ndarray::NdArray;
use kiln_tensor::backend::{Backend, SliceRange};
use kiln_tensor::{AttentionOptions, DType, FullyMasked, Scalar, TensorData, UnaryOp};

const DEVICE: CudaDevice = CudaDevice { index: 0 };

/// What an attention is of.
#[derive(Clone, Copy, Debug)]
struct Case {
    heads: usize,
    key_heads: usize,
    queries: usize,
    keys: usize,
    size: usize,
    value_size: usize,
    mask: Mask,
    options: AttentionOptions,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mask {
    None,
    /// Keeps some keys, of the first query none.
    Bool,
    Added,
    /// Adds -∞ where [`Mask::Bool`] hides.
    AddedInfinite,
}

const PLAIN: AttentionOptions =
    AttentionOptions { scale: None, is_causal: false, softcap: None, fully_masked: None };
const CAUSAL: AttentionOptions = AttentionOptions { is_causal: true, ..PLAIN };
const CAPPED: AttentionOptions = AttentionOptions { softcap: Some(1.5), scale: Some(0.4), ..CAUSAL };
const ZEROS: AttentionOptions = AttentionOptions { fully_masked: Some(FullyMasked::Zeros), ..PLAIN };
const MEAN: AttentionOptions = AttentionOptions { fully_masked: Some(FullyMasked::Mean), ..PLAIN };
const BATCH: usize = 2;

const fn case(heads: [usize; 2], [queries, keys]: [usize; 2], [size, value_size]: [usize; 2]) -> Case {
    let [heads, key_heads] = heads;
    Case { heads, key_heads, queries, keys, size, value_size, mask: Mask::None, options: PLAIN }
}

/// Long and short heads, ragged ends, queries before the first key, heads that share keys, all masks.
fn cases() -> Vec<Case> {
    let masked = |mask, options, case| Case { mask, options, ..case };
    vec![
        masked(Mask::None, CAUSAL, case([4, 2], [70, 70], [16, 16])),
        masked(Mask::Bool, PLAIN, case([2, 1], [19, 70], [8, 6])),
        masked(Mask::Added, CAUSAL, case([2, 2], [9, 41], [40, 24])),
        masked(Mask::None, CAPPED, case([1, 1], [37, 20], [7, 5])),
        masked(Mask::None, CAUSAL, case([3, 1], [33, 65], [64, 64])),
        case([1, 1], [1, 33], [128, 96]),
        masked(Mask::Bool, CAUSAL, case([1, 1], [18, 35], [256, 256])),
    ]
}

/// A query to which the mask leaves no key, whatever it yields.
fn cases_without_keys() -> Vec<Case> {
    let masked = |mask, options| Case { mask, options, ..case([2, 1], [19, 37], [8, 6]) };
    let capped = AttentionOptions { softcap: Some(1.5), ..ZEROS };
    let causal = AttentionOptions { is_causal: true, ..ZEROS };
    vec![
        masked(Mask::Bool, ZEROS),
        masked(Mask::Bool, MEAN),
        masked(Mask::AddedInfinite, ZEROS),
        masked(Mask::AddedInfinite, MEAN),
        masked(Mask::AddedInfinite, capped),
        masked(Mask::AddedInfinite, causal),
    ]
}

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
        match self.mask {
            Mask::None => None,
            Mask::Bool => Some(self.keep::<B>(device)),
            Mask::Added => Some(tensor::<B>(&[self.heads, 1, self.keys], 5, dtype, device)),
            Mask::AddedInfinite => {
                let hidden = B::unary(UnaryOp::Not, self.keep::<B>(device));
                let added = tensor::<B>(&[1, 1, self.queries, self.keys], 5, dtype, device);
                Some(B::mask_fill(added, hidden, Scalar::Float(f64::NEG_INFINITY)))
            }
        }
    }

    fn keep<B: Backend>(&self, device: &B::Device) -> B::Primitive {
        let keep = (0..self.queries * self.keys).map(|n| n >= self.keys && n % 3 != 1);
        let data = TensorData::new(keep.collect::<Vec<bool>>(), [1, 1, self.queries, self.keys]);
        B::from_data(data, device)
    }

    /// The result, and the gradients of queries, keys and values.
    fn compute<B: Backend>(&self, dtype: DType, device: &B::Device) -> [Vec<f32>; 4] {
        let Case { heads, key_heads, queries, keys, size, value_size, ref options, .. } = *self;
        let of = |shape: &[usize], seed| tensor::<B>(shape, seed, dtype, device);
        // Queries as a projection leaves them: the heads of one lie together. Keys as a part of a longer cache.
        let q = B::permute(of(&[BATCH, queries, heads, size], 1), &[0, 2, 1, 3]);
        let cache = of(&[BATCH, key_heads, keys + 3, size], 2);
        let all = SliceRange::full;
        let range = SliceRange { start: 3, end: keys + 3, step: 1 };
        let k = B::slice(cache, &[all(BATCH), all(key_heads), range, all(size)]);
        let v = of(&[BATCH, key_heads, keys, value_size], 3);
        let mask = self.mask::<B>(dtype, device);
        let trained = B::attention_train(q, k, v, mask, options);
        let floats = |x: B::Primitive| -> Vec<f32> {
            let data = B::into_data(x).expect("a device");
            data.convert_dtype(DType::F32).to_vec().expect("floats")
        };
        let result = floats(trained.output.clone());
        let gradient = of(&[BATCH, heads, queries, value_size], 4);
        let found = B::attention_gradient(gradient, trained, options, false);
        [result, floats(found.q), floats(found.k), floats(found.v)]
    }

    /// Compares, but for what is rounded to so many bits.
    fn check(&self, dtype: DType, bits: i32) {
        let cpu = <NdArray as Backend>::Device::default();
        let found = self.compute::<Cuda>(dtype, &DEVICE);
        // What a rounding of each share does to the result, and of the sums of some to the gradients.
        let epsilon = 0.5_f32.powi(bits);
        let wanted = self.compute::<NdArray>(DType::F32, &cpu);
        for (what, (found, wanted)) in
            ["result", "queries", "keys", "values"].iter().zip(found.iter().zip(&wanted))
        {
            assert_eq!(found.len(), wanted.len());
            let largest = wanted.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
            for (at, (x, y)) in found.iter().zip(wanted).enumerate() {
                let close = (x - y).abs() <= 2.0 * epsilon * largest;
                assert!(close, "{dtype} {self:?}: {what} at {at}: {x} and not {y} (of {largest})");
            }
        }
    }
}

#[test]
fn halves_attend_as_the_cpu_does() {
    for case in cases() {
        case.check(DType::F16, 10);
    }
}

#[test]
fn halves_without_keys_as_on_the_cpu() {
    for case in cases_without_keys() {
        case.check(DType::F16, 10);
    }
}

/// By plain arithmetic, without tensor cores.
#[test]
fn floats_without_keys_as_on_the_cpu() {
    for case in cases_without_keys() {
        case.check(DType::F32, 18);
    }
}

/// What differs in kernels from those of other halves is what is said of their words.
#[test]
fn upper_halves_attend_as_the_cpu_does() {
    for case in &cases()[..2] {
        case.check(DType::BF16, 7);
    }
}

/// Floats of 32 bits are rounded to those of TF32 where that was asked for, and not before or after.
#[test]
fn tf32_is_asked_for() {
    let all = cases();
    let compute = || all[2].compute::<Cuda>(DType::F32, &DEVICE);
    let exact = compute();
    set_tf32(&DEVICE, true).expect("a device");
    for at in [2, 4, 6] {
        all[at].check(DType::F32, 10);
    }
    assert_ne!(compute(), exact);
    set_tf32(&DEVICE, false).expect("a device");
    assert_eq!(compute(), exact);
}
