//! A device that times kernels waits once for each class of sizes, computes the same, and keeps what it found.

use kiln_tensor::backend::Backend;
use kiln_tensor::{ConvOptions, TensorData};
use kiln_wgpu::{WgpuDevice, statistics, tune};

type Wgpu = kiln_wgpu::Wgpu;

fn numbers(shape: &[usize]) -> <Wgpu as Backend>::Primitive {
    let count = shape.iter().product::<usize>();
    let values: Vec<f32> = (0..count).map(|n| (n * 31 % 9) as f32 - 4.0).collect();
    Wgpu::from_data(TensorData::new(values, shape), &WgpuDevice::default())
}

/// Of few rows and channels: large blocks take drivers long to compile.
fn outputs() -> [TensorData; 2] {
    let options = ConvOptions::new([1, 1], [1, 1], [1, 1], 1);
    let conv = Wgpu::conv(numbers(&[1, 8, 9, 20]), numbers(&[1, 8, 3, 3]), None, &options);
    let product = Wgpu::matmul(numbers(&[2, 40]), numbers(&[40, 50]));
    [conv, product].map(|output| Wgpu::into_data(output).expect("a device"))
}

/// The one test here: what the process keeps of times is its own, and so is the folder.
#[test]
fn work_of_a_class_is_timed_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let name = "KILN_TEST_TUNING_FOLDER";
    let Some(own) = std::env::var_os(name) else {
        // Variables are read when a device opens: this runs again in a process that has them, on both kinds of kernels.
        for shared_memory in ["0", "1"] {
            let test = std::env::current_exe().expect("the test");
            let status = std::process::Command::new(test)
                .args(["--exact", "work_of_a_class_is_timed_once"])
                .env(name, folder.path())
                .env("KILN_WGPU_CACHE", folder.path())
                .env("KILN_WGPU_SHARED_MEMORY", shared_memory)
                .status();
            assert!(status.expect("a process").success(), "shared memory: {shared_memory}");
        }
        return;
    };
    let device = WgpuDevice::default();
    let waits = || {
        let before = statistics(&device).waits;
        let outputs = outputs();
        (statistics(&device).waits - before, outputs)
    };
    let (reads, expected) = waits();
    assert_eq!(reads, 2);
    tune(&device, true);
    let (first, found) = waits();
    assert!(first > reads, "nothing was timed");
    assert_eq!(found, expected);
    assert_eq!(waits(), (reads, expected.clone()));
    let files: Vec<_> = std::fs::read_dir(own).expect("a folder").flatten().collect();
    let text = std::fs::read_to_string(files.first().expect("a file").path()).expect("a text");
    assert!(text.contains("product f32 1x2x64x64"), "{text}");
    tune(&device, false);
    assert_eq!(waits(), (reads, expected));
}
