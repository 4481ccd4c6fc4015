//! A device that times ways to do the same waits once for each class of work, computes the same, and keeps what it found.

#![cfg(target_os = "linux")]

mod host;

use host::faults;
use host::numbers::tensor;
use kiln_cuda::{Captured, Cuda, CudaDevice, CudaTensor, statistics, tune};
use kiln_tensor::backend::Backend;
use kiln_tensor::{ConvOptions, DType, TensorData};
use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

const DEVICE: CudaDevice = CudaDevice { index: 0 };

fn numbers(shape: &[usize], seed: usize) -> CudaTensor {
    tensor::<Cuda>(shape, seed, DType::F32, &DEVICE)
}

fn data(tensor: CudaTensor) -> TensorData {
    Cuda::<f32, i64>::into_data(tensor).expect("a device")
}

fn product(columns: usize) -> TensorData {
    data(Cuda::<f32, i64>::matmul(numbers(&[20, 24], 1), numbers(&[24, columns], 2)))
}

fn convolution() -> TensorData {
    let options = ConvOptions::new([1, 1], [1, 1], [1, 1], 1);
    data(Cuda::<f32, i64>::conv(numbers(&[1, 8, 9, 20], 3), numbers(&[8, 8, 3, 3], 4), None, &options))
}

/// What `run` yields, how often it waits, and what it asks of the device for products.
fn watched<T>(run: impl FnOnce() -> T) -> (T, u64, Vec<String>) {
    let waits = || statistics(&DEVICE).waits;
    faults(&DEVICE, |faults| faults.asked = Some(Vec::new()));
    let before = waits();
    let found = run();
    let asked = faults(&DEVICE, |faults| faults.asked.take()).unwrap_or_default();
    let products = asked.into_iter().filter(|asked| asked.starts_with("product")).collect();
    (found, waits() - before, products)
}

/// Has a library whose ways take so many milliseconds, and kernels that take so many more than they do.
fn takes(library: &[u64], kernels: u64) {
    faults(&DEVICE, |faults| {
        faults.library = true;
        faults.ways = library.iter().copied().map(Duration::from_millis).collect();
        faults.kernels = Duration::from_millis(kernels);
    });
}

/// Runs a test of this file again, in a process whose folder for what is kept is that.
fn again(test: &str, folder: &Path) {
    let program = std::env::current_exe().expect("the test");
    let mut command = std::process::Command::new(program);
    let status =
        command.args(["--exact", test, "--nocapture"]).env(kiln_cuda::cache::FOLDER, folder).status();
    assert!(status.expect("a process").success(), "{test}");
}

/// Whether this is such a process, else runs the test in two, of which the second finds what the first kept.
fn is_own(test: &str) -> bool {
    let is_own = std::env::var_os(kiln_cuda::cache::FOLDER).is_some();
    if !is_own {
        let folder = tempfile::tempdir().expect("a folder");
        again(test, folder.path());
        again(test, folder.path());
    }
    is_own
}

/// Whether an earlier process kept what it found.
fn is_known() -> bool {
    let folder = std::env::var_os(kiln_cuda::cache::FOLDER).expect("a folder");
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let names: Vec<_> = files.map(|file| file.path()).collect();
    names.iter().any(|path| path.extension() == Some(OsStr::new("tuning")))
}

/// A library is gone in the fastest of the ways that it advises, and not asked where kernels are faster.
#[test]
fn libraries_are_timed_beside_kernels() {
    if !is_own("libraries_are_timed_beside_kernels") {
        return;
    }
    let was_known = is_known();
    takes(&[40, 80, 0, 120], 60);
    let (expected, reads, asked) = watched(|| product(16));
    assert_eq!((reads, &*asked), (1, &["product [20, 16, 24] × 1".to_owned()][..]));

    tune(&DEVICE, true).expect("a device");
    let (found, waits, _) = watched(|| product(16));
    assert_eq!(found, expected);
    assert_eq!(waits > reads, !was_known, "{waits} waits");
    let (found, waits, asked) = watched(|| product(16));
    assert_eq!((found, waits), (expected.clone(), reads));
    assert_eq!(asked, ["product [20, 16, 24] × 1 in way 2"]);

    takes(&[300, 400], 0);
    let slow = product(12);
    let (found, _, asked) = watched(|| product(12));
    assert_eq!((found, asked), (slow, Vec::new()));

    // What is written down is done likewise, and nothing is timed for it that was not before.
    takes(&[40, 80, 0, 120], 60);
    let mut forward = Captured::new(|x: CudaTensor| Cuda::<f32, i64>::matmul(x, numbers(&[24, 16], 2)));
    let (_, _, asked) = watched(|| forward.run(numbers(&[20, 24], 1)).expect("a graph"));
    assert_eq!(asked, ["product [20, 16, 24] × 1 in way 2"; 2]);

    tune(&DEVICE, false).expect("a device");
    let (found, waits, asked) = watched(|| product(16));
    assert_eq!((found, waits, asked.len()), (expected, reads, 1));
    assert_eq!(asked, ["product [20, 16, 24] × 1"]);
}

/// Products that the library leaves to kernels are not timed beside it.
#[test]
fn what_a_library_leaves_to_kernels_is_no_choice() {
    if !is_own("what_a_library_leaves_to_kernels_is_no_choice") {
        return;
    }
    let was_known = is_known();
    let (expected, reads, _) = watched(|| product(16));
    tune(&DEVICE, true).expect("a device");
    let (found, waits, asked) = watched(|| product(16));
    assert_eq!((found, asked), (expected, Vec::new()));
    // Tiles are timed.
    assert_eq!(waits > reads, !was_known, "{waits} waits");
    let folder = std::env::var_os(kiln_cuda::cache::FOLDER).expect("a folder");
    let files = std::fs::read_dir(folder).expect("a folder").flatten().map(|file| file.path());
    let kept: String = files
        .filter(|path| path.extension() == Some(OsStr::new("tuning")))
        .map(|path| std::fs::read_to_string(path).expect("a file"))
        .collect();
    assert!(kept.contains("tiles") && !kept.contains("by library"), "{kept}");
}

/// Tiles of several sizes do the same; what was found is kept.
#[test]
fn kernels_of_a_class_are_timed_once() {
    if !is_own("kernels_of_a_class_are_timed_once") {
        return;
    }
    let was_known = is_known();
    let both = || [product(40), convolution()];
    let (expected, reads, _) = watched(both);
    assert_eq!(reads, 2);
    tune(&DEVICE, true).expect("a device");
    let (found, waits, _) = watched(both);
    assert_eq!(found, expected);
    assert_eq!(waits > reads, !was_known, "{waits} waits");
    let (found, waits, _) = watched(both);
    assert_eq!((found, waits), (expected, reads));
}
