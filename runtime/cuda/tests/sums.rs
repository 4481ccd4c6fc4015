//! Sums over several devices. Numbers are small and whole, so that sums are exact in any order.

#![cfg(target_os = "linux")]

mod host;

use host::numbers::{floats, tensor};
use host::{faults, mend};
use kiln_cuda::{Cuda, CudaDevice, CudaTensor, Graph, statistics};
use kiln_ndarray::NdArray;
use kiln_tensor::backend::{Backend, SliceRange};
use kiln_tensor::{BinaryOp, DType, Scalar, Tensor};
use std::panic::AssertUnwindSafe;

type B = Cuda;

const DEVICES: [CudaDevice; 2] = [CudaDevice { index: 0 }, CudaDevice { index: 1 }];

/// One that is a result, whose kernel waits to be launched; one that is a view of another tensor; and one that somebody else holds.
fn set<B: Backend>(seed: usize, device: &B::Device) -> (Vec<B::Primitive>, B::Primitive) {
    let result =
        B::binary_scalar(BinaryOp::Mul, tensor::<B>(&[3, 5], seed, DType::F32, device), Scalar::Float(2.0));
    let turned = B::permute(tensor::<B>(&[4, 7], seed + 1, DType::F32, device), &[1, 0]);
    let part = B::slice(turned, &[SliceRange { start: 1, end: 6, step: 2 }, SliceRange::full(4)]);
    let shared = tensor::<B>(&[6], seed + 2, DType::F32, device);
    (vec![result, part, shared.clone()], shared)
}

fn sums_on_every_device() {
    let [first, second] = [1, 5].map(|seed| set::<NdArray>(seed, &Default::default()).0);
    let expected: Vec<Vec<f32>> = NdArray::<f32, i64>::all_reduce(vec![first, second])
        .swap_remove(1)
        .into_iter()
        .map(floats::<NdArray>)
        .collect();
    for by_library in [false, true] {
        DEVICES.iter().for_each(mend);
        if by_library {
            faults(&DEVICES[0], |faults| (faults.sums, faults.asked) = (Some(Ok(())), Some(Vec::new())));
        }
        let ((first, shared), (second, others)) = (set::<B>(1, &DEVICES[0]), set::<B>(5, &DEVICES[1]));
        let before = statistics(&DEVICES[1]).library_calls;
        let sums = B::all_reduce(vec![first, second]);
        for (sums, device) in sums.into_iter().zip(DEVICES) {
            assert!(sums.iter().all(|sum| B::device(sum) == device));
            assert_eq!(sums.into_iter().map(floats::<B>).collect::<Vec<_>>(), expected, "{by_library}");
        }
        // What else holds a tensor keeps its numbers.
        for (kept, seed) in [(shared, 3), (others, 7)] {
            assert_eq!(floats::<B>(kept), floats::<B>(tensor::<B>(&[6], seed, DType::F32, &DEVICES[0])));
        }
        assert_eq!(statistics(&DEVICES[1]).library_calls - before, u64::from(by_library));
        let asked = faults(&DEVICES[0], |faults| faults.asked.take()).unwrap_or_default();
        let calls = asked.iter().filter(|asked| *asked == "sums of 2 × 3").count();
        assert_eq!(calls, usize::from(by_library), "{asked:?}");
    }
    DEVICES.iter().for_each(mend);
}

/// Nothing has to be asked for on one device, and a device that is named twice is no case for the library.
fn one_device() {
    faults(&DEVICES[0], |faults| (faults.sums, faults.asked) = (Some(Ok(())), Some(Vec::new())));
    let (alone, _) = set::<B>(1, &DEVICES[0]);
    let expected: Vec<Vec<f32>> = alone.iter().cloned().map(floats::<B>).collect();
    let sums = B::all_reduce(vec![alone.clone()]).swap_remove(0);
    assert_eq!(sums.into_iter().map(floats::<B>).collect::<Vec<_>>(), expected);
    let twice = B::all_reduce(vec![alone.clone(), alone]);
    for sums in twice {
        for (sum, expected) in sums.into_iter().map(floats::<B>).zip(&expected) {
            assert_eq!(sum, expected.iter().map(|x| 2.0 * x).collect::<Vec<_>>());
        }
    }
    let asked = faults(&DEVICES[0], |faults| faults.asked.take()).expect("notes");
    assert!(asked.iter().all(|asked| !asked.starts_with("sums")), "{asked:?}");
    mend(&DEVICES[0]);
}

/// What the library fails at is told on every device by who reads it, and what was there before is not taken for the sums.
fn failures_are_told() {
    faults(&DEVICES[0], |faults| faults.sums = Some(Err("a link is down")));
    let [first, second] = [(1, 0), (5, 1)].map(|(seed, device)| set::<B>(seed, &DEVICES[device]));
    for sum in B::all_reduce(vec![first.0, second.0]).into_iter().flatten() {
        let error = B::into_data(sum).expect_err("no sum").to_string();
        assert!(error.contains("a link is down"), "{error}");
    }
    // Its copies are as good as before.
    assert_eq!(floats::<B>(first.1), floats::<B>(tensor::<B>(&[6], 3, DType::F32, &DEVICES[1])));
    DEVICES.iter().for_each(mend);
    let _ = DEVICES.map(|device| B::sync(&device));
}

/// A graph holds nothing of other devices: sums within one are refused by name, and the process goes on.
fn graphs_hold_no_sums() {
    faults(&DEVICES[0], |faults| faults.sums = Some(Ok(())));
    let other = tensor::<B>(&[4], 2, DType::F32, &DEVICES[1]);
    let captured = std::panic::catch_unwind(AssertUnwindSafe(|| {
        let x = Tensor::<B, 1>::from_backend(tensor::<B>(&[4], 1, DType::F32, &DEVICES[0]));
        Graph::capture(x, |x: Tensor<B, 1>| {
            let sums = B::all_reduce(vec![vec![x.into_backend()], vec![other.clone()]]);
            let [sum]: [CudaTensor; 1] = sums.into_iter().next().expect("sets").try_into().expect("one");
            Tensor::<B, 1>::from_backend(sum)
        })
        .map(drop)
    }));
    let told = match captured {
        Ok(result) => result.expect_err("it was written down").to_string(),
        Err(panic) => panic.downcast_ref::<String>().cloned().unwrap_or_default(),
    };
    assert!(told.contains("read"), "{told}");
    mend(&DEVICES[0]);
    assert_eq!(floats::<B>(tensor::<B>(&[3], 1, DType::F32, &DEVICES[0])).len(), 3);
}

/// One after another: what goes wrong is the devices', which tests share.
#[test]
fn sums_over_devices() {
    sums_on_every_device();
    one_device();
    failures_are_told();
    graphs_hold_no_sums();
}
