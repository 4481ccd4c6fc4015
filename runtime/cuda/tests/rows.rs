//! Products of few rows, as generation has them: whatever their sizes and however both sides lie. Numbers are small and whole, so that sums are
//! exact in any order, and every dtype rounds results alike.

#![cfg(target_os = "linux")]

mod host;

use host::numbers::{floats, tensor};
use kiln_cuda::{Cuda, CudaDevice, statistics};
use kiln_ndarray::NdArray;
use kiln_tensor::backend::{Backend, SliceRange};
use kiln_tensor::{Activation, BinaryOp, DType};
use std::sync::{Mutex, MutexGuard, PoisonError};

type B = Cuda;

const DEVICE: CudaDevice = CudaDevice { index: 1 };

/// Counts are a device's, which the tests share.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How the right side lies, and where it begins.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Lies {
    ByRows,
    ByColumns,
    /// By rows, of which each second one is left out, behind so many columns of others.
    Apart(usize),
    /// Likewise by columns.
    ColumnsApart(usize),
}

#[derive(Clone, Copy, Debug)]
struct Case {
    rows: usize,
    columns: usize,
    depth: usize,
    lies: Lies,
    dtype: DType,
}

impl Case {
    fn right<B: Backend>(&self, device: &B::Device) -> B::Primitive {
        let Case { columns, depth, lies, dtype, .. } = *self;
        let apart = |outer: usize, inner: usize, before: usize| {
            let all = tensor::<B>(&[2 * outer, before + inner], 2, dtype, device);
            let ranges = [
                SliceRange { start: 0, end: 2 * outer, step: 2 },
                SliceRange { start: before, end: before + inner, step: 1 },
            ];
            B::slice(all, &ranges)
        };
        match lies {
            Lies::ByRows => tensor::<B>(&[depth, columns], 2, dtype, device),
            Lies::ByColumns => B::permute(tensor::<B>(&[columns, depth], 2, dtype, device), &[1, 0]),
            Lies::Apart(before) => apart(depth, columns, before),
            Lies::ColumnsApart(before) => B::permute(apart(columns, depth, before), &[1, 0]),
        }
    }

    /// A product alone, and a layer with what follows it.
    fn compute<B: Backend>(&self, device: &B::Device) -> [Vec<f32>; 2] {
        let Case { rows, columns, depth, dtype, .. } = *self;
        let x = || tensor::<B>(&[rows, depth], 1, dtype, device);
        let product = B::matmul(x(), self.right::<B>(device));
        let bias = tensor::<B>(&[columns], 3, dtype, device);
        let y = B::linear(x(), &self.right::<B>(device), Some(&bias), Some(Activation::Relu));
        let y = B::binary(BinaryOp::Add, y, tensor::<B>(&[rows, columns], 4, dtype, device));
        [floats::<B>(product), floats::<B>(y)]
    }

    fn check(&self) {
        let (found, wanted) = (self.compute::<Cuda>(&DEVICE), self.compute::<NdArray>(&Default::default()));
        assert_eq!(found, wanted, "{self:?}");
    }
}

const FLOATS: [DType; 4] = [DType::F32, DType::F16, DType::BF16, DType::F64];

#[test]
fn rows_of_all_dtypes() {
    for dtype in FLOATS.into_iter().chain([DType::I64, DType::I32, DType::I16]) {
        for (rows, columns, depth) in [(1, 72, 100), (3, 40, 264)] {
            for lies in [Lies::ByRows, Lies::ByColumns] {
                Case { rows, columns, depth, lies, dtype }.check();
            }
        }
    }
}

#[test]
fn any_depth_and_width() {
    for (rows, columns, depth) in
        [(1, 1, 1), (1, 16, 1), (1, 7, 7), (2, 8, 7), (1, 24, 2049), (4, 33, 31), (1, 1, 2049), (1, 200, 8)]
    {
        for lies in [Lies::ByRows, Lies::ByColumns] {
            for dtype in [DType::F32, DType::BF16] {
                Case { rows, columns, depth, lies, dtype }.check();
            }
        }
    }
}

/// What is read at once, and what cannot be since it begins within a run, or rows do.
#[test]
fn views_of_all_alignments() {
    for before in [1, 4, 8] {
        for lies in [Lies::Apart(before), Lies::ColumnsApart(before)] {
            for (rows, dtype) in [(1, DType::BF16), (4, DType::F16), (2, DType::F32)] {
                Case { rows, columns: 48, depth: 136, lies, dtype }.check();
            }
        }
    }
}

/// More workgroups than multiprocessors, with wide and with narrow tiles.
#[test]
fn many_columns() {
    for (columns, dtype) in [(6200, DType::BF16), (3103, DType::F32), (3104, DType::F32), (1600, DType::F16)]
    {
        Case { rows: 1, columns, depth: 70, lies: Lies::ByRows, dtype }.check();
    }
}

/// A matrix with a vector is turned.
#[test]
fn columns_of_one() {
    fn product<B: Backend>(dtype: DType, turned: bool, device: &B::Device) -> Vec<f32> {
        let matrix = match turned {
            false => tensor::<B>(&[50, 320], 1, dtype, device),
            true => B::permute(tensor::<B>(&[320, 50], 1, dtype, device), &[1, 0]),
        };
        floats::<B>(B::matmul(matrix, tensor::<B>(&[320, 1], 2, dtype, device)))
    }
    for dtype in FLOATS {
        for turned in [false, true] {
            let found = product::<Cuda>(dtype, turned, &DEVICE);
            assert_eq!(found, product::<NdArray>(dtype, turned, &Default::default()), "{dtype} {turned}");
        }
    }
}

/// Batches of vectors with matrices of their own, and with one for all.
#[test]
fn batches() {
    fn products<B: Backend>(dtype: DType, device: &B::Device) -> [Vec<f32>; 3] {
        let x = || tensor::<B>(&[3, 2, 1, 24], 1, dtype, device);
        let each = tensor::<B>(&[3, 2, 24, 16], 2, dtype, device);
        let one = tensor::<B>(&[3, 1, 24, 16], 3, dtype, device);
        let turned = B::permute(tensor::<B>(&[2, 3, 16, 24], 4, dtype, device), &[1, 0, 3, 2]);
        [each, one, turned].map(|right| floats::<B>(B::matmul(x(), right)))
    }
    for dtype in FLOATS {
        assert_eq!(
            products::<Cuda>(dtype, &DEVICE),
            products::<NdArray>(dtype, &Default::default()),
            "{dtype}"
        );
    }
}

/// One launch, with what follows, and the same numbers each time.
#[test]
fn a_layer_of_one_row_is_one_launch() {
    let _alone = alone();
    let device = CudaDevice { index: 0 };
    let of = |shape: &[usize], seed| tensor::<B>(shape, seed, DType::BF16, &device);
    let (weight, bias) = (of(&[2048, 512], 2), of(&[512], 3));
    let layer = || {
        let (x, residual) = (of(&[1, 2048], 1), of(&[1, 512], 4));
        B::sync(&device).expect("a device");
        let before = statistics(&device).launches;
        let y = B::linear(x, &weight, Some(&bias), Some(Activation::Gelu));
        let y = B::binary(BinaryOp::Add, y, residual);
        (floats::<B>(y), statistics(&device).launches - before)
    };
    let (first, launches) = layer();
    assert_eq!(launches, 1);
    assert_eq!(layer().0, first);
}

/// What products of the same row have to be launched for: all of them at once, and what reads some of them behind them.
#[test]
fn products_of_the_same_row_are_one_launch() {
    fn projections<B: Backend>(device: &B::Device) -> [B::Primitive; 4] {
        let of = |shape: &[usize], seed| tensor::<B>(shape, seed, DType::BF16, device);
        let (x, ones) = (of(&[1, 64], 1), of(&[96, 8], 5));
        let product = |columns, seed| B::matmul(x.clone(), of(&[64, columns], seed));
        let [q, k, v] = [product(96, 2), product(48, 3), product(48, 4)];
        [B::matmul(q.clone(), ones), q, k, v]
    }
    let _alone = alone();
    let device = CudaDevice { index: 0 };
    let of = |shape: &[usize], seed| tensor::<B>(shape, seed, DType::BF16, &device);
    let x = of(&[1, 64], 1);
    let weights = [of(&[64, 96], 2), of(&[64, 48], 3), of(&[64, 48], 4)];
    B::sync(&device).expect("a device");
    let before = statistics(&device).launches;
    let products = weights.map(|weight| B::matmul(x.clone(), weight));
    B::sync(&device).expect("a device");
    assert_eq!(statistics(&device).launches - before, 1);
    drop(products);
    let [found, wanted] = [
        projections::<B>(&device).map(floats::<B>),
        projections::<NdArray>(&Default::default()).map(floats::<NdArray>),
    ];
    assert_eq!(found, wanted);
}
