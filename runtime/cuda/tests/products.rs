//! Products that a library computes: which are handed to it, as what, and what follows them. Numbers are small and whole, so that sums are
//! exact in any order.

#![cfg(target_os = "linux")]

mod host;

use host::numbers::{floats, tensor};
use host::{faults, mend};
use kiln_cuda::{Cuda, CudaDevice, set_tf32};
use kiln_ndarray::NdArray;
use kiln_tensor::backend::{Backend, SliceRange};
use kiln_tensor::{Activation, BinaryOp, DType, Scalar};

const DEVICE: CudaDevice = CudaDevice { index: 1 };

/// A part of a dim.
fn part<B: Backend>(x: B::Primitive, shape: &[usize], dim: usize, start: usize, end: usize) -> B::Primitive {
    let mut ranges: Vec<SliceRange> = shape.iter().map(|&size| SliceRange::full(size)).collect();
    ranges[dim] = SliceRange { start, end, step: 1 };
    B::slice(x, &ranges)
}

fn plain<B: Backend>(dtype: DType, device: &B::Device) -> B::Primitive {
    let (x, w) = (tensor::<B>(&[6, 10], 1, dtype, device), tensor::<B>(&[10, 7], 2, dtype, device));
    B::matmul(x, w)
}

fn biased<B: Backend>(dtype: DType, device: &B::Device) -> B::Primitive {
    let (x, w) = (tensor::<B>(&[2, 3, 10], 1, dtype, device), tensor::<B>(&[10, 7], 2, dtype, device));
    // A bias that does not begin where its memory does.
    let bias = part::<B>(tensor::<B>(&[9], 3, dtype, device), &[9], 0, 2, 9);
    B::linear(x, &w, Some(&bias), Some(Activation::Relu))
}

fn transposed<B: Backend>(dtype: DType, device: &B::Device) -> B::Primitive {
    let (x, w) = (tensor::<B>(&[10, 6], 1, dtype, device), tensor::<B>(&[7, 10], 2, dtype, device));
    B::matmul(B::permute(x, &[1, 0]), B::permute(w, &[1, 0]))
}

/// Heads of attention: a batch of views, whose rows lie apart.
fn heads<B: Backend>(dtype: DType, device: &B::Device) -> B::Primitive {
    let (q, k) = (tensor::<B>(&[5, 3, 4], 1, dtype, device), tensor::<B>(&[5, 3, 4], 2, dtype, device));
    B::matmul(B::permute(q, &[1, 0, 2]), B::permute(k, &[1, 2, 0]))
}

fn broadcast<B: Backend>(dtype: DType, device: &B::Device) -> B::Primitive {
    let (x, w) = (tensor::<B>(&[4, 6, 10], 1, dtype, device), tensor::<B>(&[1, 10, 7], 2, dtype, device));
    B::matmul(x, w)
}

fn narrowed<B: Backend>(dtype: DType, device: &B::Device) -> B::Primitive {
    let (x, w) = (tensor::<B>(&[6, 16], 1, dtype, device), tensor::<B>(&[12, 7], 2, dtype, device));
    let (x, w) = (part::<B>(x, &[6, 16], 1, 3, 13), part::<B>(w, &[12, 7], 0, 2, 12));
    B::matmul(x, w)
}

fn one_row<B: Backend>(dtype: DType, device: &B::Device) -> B::Primitive {
    let (x, w) = (tensor::<B>(&[1, 10], 1, dtype, device), tensor::<B>(&[10, 1], 2, dtype, device));
    B::matmul(x, w)
}

/// Two dims of a batch that are no one run: kernels of Kiln's.
fn crossed<B: Backend>(dtype: DType, device: &B::Device) -> B::Primitive {
    let (x, w) = (tensor::<B>(&[2, 3, 4, 5], 1, dtype, device), tensor::<B>(&[3, 2, 5, 6], 2, dtype, device));
    B::matmul(x, B::permute(w, &[1, 0, 2, 3]))
}

/// Rows that run backwards: no library takes them.
fn reversed<B: Backend>(dtype: DType, device: &B::Device) -> B::Primitive {
    let x = tensor::<B>(&[6, 10], 1, dtype, device);
    let back = [SliceRange { start: 0, end: 6, step: -1 }, SliceRange::full(10)];
    B::matmul(B::slice(x, &back), tensor::<B>(&[10, 7], 2, dtype, device))
}

type Compute<B> = fn(DType, &<B as Backend>::Device) -> <B as Backend>::Primitive;

/// Both forms of a computation, and whether the library gets it.
type Case = (&'static str, Compute<Cuda>, Compute<NdArray>, bool);

const CASES: [Case; 9] = [
    ("plain", plain::<Cuda>, plain::<NdArray>, true),
    ("biased", biased::<Cuda>, biased::<NdArray>, true),
    ("transposed", transposed::<Cuda>, transposed::<NdArray>, true),
    ("heads", heads::<Cuda>, heads::<NdArray>, true),
    ("broadcast", broadcast::<Cuda>, broadcast::<NdArray>, true),
    ("narrowed", narrowed::<Cuda>, narrowed::<NdArray>, true),
    ("one row", one_row::<Cuda>, one_row::<NdArray>, true),
    ("crossed", crossed::<Cuda>, crossed::<NdArray>, false),
    ("reversed", reversed::<Cuda>, reversed::<NdArray>, false),
];

#[test]
fn products_are_handed_over_as_they_lie() {
    let cpu = <NdArray as Backend>::Device::default();
    for dtype in [DType::F64, DType::F32, DType::F16, DType::BF16] {
        for (name, own, expected, by_library) in CASES {
            faults(&DEVICE, |faults| {
                faults.library = true;
                faults.asked = Some(Vec::new());
            });
            let found = floats::<Cuda>(own(dtype, &DEVICE));
            let asked = faults(&DEVICE, |faults| faults.asked.take()).expect("what was asked for");
            mend(&DEVICE);
            assert_eq!(found, floats::<NdArray>(expected(dtype, &cpu)), "{name}, {dtype}");
            let products = asked.iter().filter(|what| what.starts_with("product")).count();
            assert_eq!(products, usize::from(by_library), "{name}, {dtype}: {asked:?}");
        }
    }
    // Integers are no library's, and TF32 is what is asked for.
    for (dtype, allowed, words) in [
        (DType::I32, false, None),
        (DType::F32, false, Some("product [6, 7, 10] × 1")),
        (DType::F32, true, Some("product [6, 7, 10] × 1 in tf32")),
    ] {
        set_tf32(&DEVICE, allowed).expect("a device");
        faults(&DEVICE, |faults| {
            faults.library = true;
            faults.asked = Some(Vec::new());
        });
        floats::<Cuda>(plain::<Cuda>(dtype, &DEVICE));
        let asked = faults(&DEVICE, |faults| faults.asked.take()).expect("what was asked for");
        mend(&DEVICE);
        set_tf32(&DEVICE, false).expect("a device");
        let product = asked.iter().find(|what| what.starts_with("product"));
        assert_eq!(product.map(String::as_str), words);
    }
}

/// What the library does behind a product is no kernel of its own, and what it does not do, is.
#[test]
fn what_follows_a_product_is_handed_over_with_it() {
    fn finished<B: Backend>(activation: Activation, device: &B::Device) -> Vec<f32> {
        let of = |shape: &[usize], seed| {
            let numbers = tensor::<B>(shape, seed, DType::F16, device);
            B::binary_scalar(BinaryOp::Mul, numbers, Scalar::Float(0.25))
        };
        floats::<B>(B::linear(of(&[6, 10], 1), &of(&[10, 7], 2), Some(&of(&[7], 3)), Some(activation)))
    }
    let device = CudaDevice { index: 0 };
    for (activation, kernels) in [(Activation::GeluTanh, 0), (Activation::Relu, 1)] {
        // What makes the operands is launched before.
        faults(&device, |faults| {
            faults.library = true;
            faults.asked = Some(Vec::new());
        });
        let found = finished::<Cuda>(activation, &device);
        let asked = faults(&device, |faults| faults.asked.take()).expect("what was asked for");
        mend(&device);
        let product = asked.iter().position(|what| what.starts_with("product")).expect("a product");
        let after = asked[product..].iter().filter(|what| what.starts_with("launch")).count();
        assert_eq!(after, kernels, "{activation:?}: {asked:?}");
        let wanted = finished::<NdArray>(activation, &Default::default());
        for (x, y) in found.iter().zip(&wanted) {
            assert!((x - y).abs() <= 2e-3 * y.abs().max(0.25), "{activation:?}: {x} and not {y}");
        }
    }
}
