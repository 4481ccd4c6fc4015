//! The numeric suite of backends on a GPU.

use kiln_tensor::f16;
use kiln_wgpu::Wgpu;

kiln_backend_tests::suite!(single: Wgpu);
kiln_backend_tests::suite!(half: Wgpu<f16>, tensors gradients);

/// Drivers that compute on the CPU get kernels of their own; those of GPUs are asked for here.
#[test]
fn with_shared_memory() {
    const SHARED_MEMORY: &str = "KILN_WGPU_SHARED_MEMORY";
    if std::env::var_os(SHARED_MEMORY).is_some() {
        return;
    }
    let this = std::env::current_exe().expect("the test's own path");
    let tests = ["linear", "matmul", "conv", "windows", "attention", "recurrent"];
    let run =
        std::process::Command::new(this).args(tests).env(SHARED_MEMORY, "1").output().expect("a process");
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{said}");
    assert!(said.matches("... ok").count() > 20, "{said}");
}
