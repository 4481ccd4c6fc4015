//! The ways that libraries advise, timed.

use super::{Case, DEVICE, alone, floats, stand_in, tensor};
use kiln_cuda::{Captured, Cuda, CudaTensor, reopen, statistics, tune};
use kiln_ndarray::NdArray;
use kiln_tensor::backend::Backend;
use kiln_tensor::{ConvOptions, DType};

/// What was found by an earlier start is forgotten, where the folder is the tests' own.
fn forget() {
    let Some(folder) = std::env::var_os(kiln_cuda::cache::FOLDER) else { return };
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|file| file.path());
    let found = files.filter(|path| path.extension().is_some_and(|extension| extension == "tuning"));
    found.for_each(|path| std::fs::remove_file(path).expect("a file"));
    reopen(&DEVICE).expect("a device");
}

/// The algorithms that a library in place of NVIDIA's was asked for since it was asked this; nothing where it is NVIDIA's.
fn algorithms(library: &str, name: &[u8]) -> Option<u64> {
    stand_in::told(library, name)
}

#[test]
#[ignore = "asks NVIDIA's libraries, or what stands in for them"]
fn products_are_the_same_in_every_way() {
    let _alone = alone();
    forget();
    let sides = || [tensor::<Cuda>(&[20, 24], 1, &DEVICE), tensor::<Cuda>(&[24, 16], 2, &DEVICE)];
    let product = || {
        let [x, y] = sides();
        floats::<Cuda>(Cuda::<f32, i64>::matmul(x, y))
    };
    let used = || algorithms("libcublasLt.so", b"kiln_cuda_product_algorithms\0");
    let expected = product();
    used();
    tune(&DEVICE, true).expect("a device");
    assert_eq!(product(), expected);
    assert!(used().is_none_or(|used| used == 0b111));
    let before = statistics(&DEVICE).waits;
    assert_eq!(product(), expected);
    assert_eq!(statistics(&DEVICE).waits - before, 1, "it was timed once more");
    let mut captured = Captured::new(|[x, y]: [CudaTensor; 2]| Cuda::<f32, i64>::matmul(x, y));
    assert_eq!(floats::<Cuda>(captured.run(sides()).expect("a graph")), expected);
    tune(&DEVICE, false).expect("a device");
}

#[test]
#[ignore = "asks NVIDIA's libraries, or what stands in for them"]
fn convolutions_and_their_gradients_are_the_same_in_every_way() {
    let _alone = alone();
    forget();
    let options = ConvOptions::new([1, 1], [1, 1], [1, 1], 1);
    let case = Case { image: [1, 8, 5, 6], weight: [8, 8, 3, 3], options, dtype: DType::F32, calls: 3 };
    let expected = case.passes::<NdArray>(&Default::default());
    let used = || algorithms("libcudnn.so", b"kiln_cuda_convolution_algorithms\0");
    used();
    tune(&DEVICE, true).expect("a device");
    for _ in 0..2 {
        case.assert_agrees(&case.passes::<Cuda>(&DEVICE), &expected);
    }
    // The forward pass by two, and gradients by two.
    assert!(used().is_none_or(|used| used == 1 << 1 | 1 << 5 | 1 << 7));
    tune(&DEVICE, false).expect("a device");
}
