//! Memory does not grow with the number of sizes that were seen.

use kiln_tensor::backend::Backend;
use kiln_tensor::{DType, Scalar, Shape, UnaryOp};
use kiln_wgpu::{WgpuDevice, statistics};

type Wgpu = kiln_wgpu::Wgpu;

#[test]
fn inputs_of_ever_new_sizes_give_memory_back() {
    let device = WgpuDevice::default();
    let mut most = 0;
    for n in 0..200_usize {
        // From 1 to 20 MB, in sizes of which hardly two share a class for long.
        let size = 250_000 + n * 25_000;
        let x = Wgpu::full(Shape::from([size]), Scalar::Float(1.5), DType::F32, &device);
        let y = Wgpu::unary(UnaryOp::Neg, x.clone());
        drop(x);
        Wgpu::sync(&device).expect("a device");
        drop(y);
        let now = statistics(&device);
        most = most.max(now.buffer_bytes - now.released_bytes);
    }
    // 64 MiB in any case, and four times what two tensors take, beside them.
    assert!(most < (64 << 20) + 5 * 2 * 25_000_000, "{most}");

    // What is not used for long goes too.
    let before = statistics(&device).released_bytes;
    for _ in 0..600 {
        let x = Wgpu::full(Shape::from([8]), Scalar::Float(1.0), DType::F32, &device);
        Wgpu::sync(&device).expect("a device");
        drop(x);
    }
    let after = statistics(&device);
    assert!(after.released_bytes - before > 20_000_000, "{before} {after:?}");
    assert!(after.buffer_bytes - after.released_bytes < 1 << 20, "{after:?}");
    // Those that are left are of the last tensor; a bind group would keep a buffer that went.
    assert!(after.bind_groups - after.released_bind_groups < 4, "{after:?}");
}
