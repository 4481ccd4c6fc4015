//! Sums over several devices.

use super::{DEVICE, alone, floats, stand_in, tensor};
use kiln_cuda::{Cuda, CudaDevice, init, statistics};
use kiln_ndarray::NdArray;
use kiln_tensor::DType;
use kiln_tensor::backend::Backend;

type T<B> = <B as Backend>::Primitive;

fn sets<B: Backend>(dtype: DType, devices: [&B::Device; 2]) -> Vec<Vec<T<B>>> {
    let shapes: [&[usize]; 3] = [&[300, 40], &[7], &[]];
    let set = |(n, device): (usize, &B::Device)| {
        let of = |(m, shape): (usize, &&[usize])| B::cast(tensor::<B>(shape, 3 * n + m, device), dtype);
        shapes.iter().enumerate().map(of).collect()
    };
    devices.into_iter().enumerate().map(set).collect()
}

/// Of all dtypes that the library adds, and of one that it does not.
#[test]
#[ignore = "asks NVIDIA's libraries, or what stands in for them"]
fn devices_have_their_sums() {
    let _alone = alone();
    let other = CudaDevice::new(1);
    if init(&other).is_err() {
        return;
    }
    let told = || stand_in::told("libnccl.so", b"kiln_cuda_sums\0");
    for (dtype, is_added) in [
        (DType::F32, true),
        (DType::F64, true),
        (DType::F16, true),
        (DType::BF16, true),
        (DType::I64, true),
        (DType::I8, true),
        (DType::I16, false),
    ] {
        let cpu = Default::default();
        let expected = NdArray::<f32, i64>::all_reduce(sets::<NdArray>(dtype, [&cpu, &cpu])).swap_remove(0);
        let expected: Vec<Vec<f32>> = expected.into_iter().map(floats::<NdArray>).collect();
        let (before, calls) = (told(), statistics(&other).library_calls);
        let sums = Cuda::<f32, i64>::all_reduce(sets::<Cuda>(dtype, [&DEVICE, &other]));
        for (sums, device) in sums.into_iter().zip([DEVICE, other]) {
            assert!(sums.iter().all(|sum| Cuda::<f32, i64>::device(sum) == device));
            let sums: Vec<Vec<f32>> = sums.into_iter().map(floats::<Cuda>).collect();
            assert_eq!(sums, expected, "{dtype} on {device:?}");
        }
        let expected = if is_added { 3 } else { 0 };
        assert_eq!(
            told().zip(before).map_or(expected, |(after, before)| after - before),
            expected,
            "{dtype}"
        );
        assert_eq!(statistics(&other).library_calls - calls, u64::from(is_added), "{dtype}");
    }
}

/// Devices that can read each other's memory are let do so, before the first copy.
#[test]
#[ignore = "asks NVIDIA's libraries, or what stands in for them"]
fn copies_go_from_memory_to_memory() {
    let _alone = alone();
    let other = CudaDevice::new(1);
    if init(&other).is_err() {
        return;
    }
    let staged = || stand_in::told("libcuda.so", b"kiln_cuda_staged_copies\0");
    let before = staged();
    let mut x = tensor::<Cuda>(&[300, 4], 1, &DEVICE);
    let expected = floats::<Cuda>(x.clone());
    for device in [other, DEVICE, other] {
        x = Cuda::<f32, i64>::to_device(x, &device);
        assert_eq!(floats::<Cuda>(x.clone()), expected);
    }
    assert_eq!(staged(), before);
}
