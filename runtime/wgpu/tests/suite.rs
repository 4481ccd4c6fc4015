//! The numeric suite of backends on a GPU.

use kiln_tensor::f16;
use kiln_wgpu::Wgpu;
use std::process::Command;

kiln_backend_tests::suite!(single: Wgpu, primitives tensors gradients beside);
kiln_backend_tests::suite!(half: Wgpu<f16>, tensors pytorch);

/// Runs tests of this suite with another value of a variable of the environment.
fn with(variable: &str, value: &str, tests: &[&str], least: usize) {
    if std::env::var_os(variable).is_some() {
        return;
    }
    let this = std::env::current_exe().expect("the test's own path");
    let run = Command::new(this).args(tests).env(variable, value).output().expect("a process");
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{said}");
    assert!(said.matches("... ok").count() >= least, "{said}");
}

/// Drivers that compute on the CPU get kernels of their own; those of GPUs are asked for here.
#[test]
fn with_shared_memory() {
    with(
        "KILN_WGPU_SHARED_MEMORY",
        "1",
        &[
            "linear",
            "matmul",
            "conv",
            "windows",
            "pool",
            "attention",
            "recurrent",
            "columns",
            "reductions",
            "sums_of",
            "same_rows",
            "rows_that_are_not_there",
            "gradients_of_tables",
            "embeddings",
            "select_assign",
            "scatter",
        ],
        27,
    );
}

/// Integers of 64 bits as pairs of words, as devices get them that have no others.
#[test]
fn without_wide_numbers() {
    let tests = [
        "single::beside",
        "single::primitives::elementwise",
        "single::primitives::casts",
        "single::primitives::indexing",
        "single::primitives::reduction",
        "single::tensors::dtypes",
    ];
    with("KILN_WGPU_WIDE_NUMBERS", "0", &tests, 40);
}

/// Workgroups of devices without subgroups join their numbers in shared memory.
#[test]
fn without_subgroups() {
    with("KILN_WGPU_SUBGROUPS", "0", &["softmaxes", "norms", "reductions"], 6);
}
