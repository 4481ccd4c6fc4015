#!/usr/bin/env bash
# The peer of scripts/bench_wgpu.py: resnet18, minilm and gpt2_small as Burn 0.20's importer generates them, on its Wgpu backend with fusion
# and autotuning, on the same adapter; times and kernels a forward pass. Builds Burn (many minutes).
#
#     scripts/bench_wgpu_burn.sh BENCH_DIR WORK_DIR [MODEL…]
#
# BENCH_DIR has a folder with model.onnx for each; WORK_DIR is made or used again. Python with onnx, onnxruntime and numpy ($PYTHON) folds constants
# first, with a sequence of 64 for gpt2_small and a mask of ones for minilm, since Burn's importer lacks operators that make masks.
# Kernels are counted by a line that is put into a copy of cubecl-wgpu.
set -euo pipefail
bench=$(realpath "$1") work=$(realpath -m "$2")
shift 2
mkdir -p "$work/src" "$work/models"
cd "$work"
"${PYTHON:-python3}" - "$bench" <<'PYTHON'
import sys

import numpy as np
import onnx
import onnxruntime as ort

for name in ["resnet18", "minilm", "gpt2_small"]:
    model = onnx.load(f"{sys.argv[1]}/{name}/model.onnx")
    inputs = model.graph.input
    if name == "gpt2_small":
        inputs[0].type.tensor_type.shape.dim[1].dim_value = 64
    if name == "minilm":
        mask = next(x for x in inputs if x.name == "attention_mask")
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((1, 128), np.int64), mask.name))
        inputs.remove(mask)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = f"models/{name}.onnx"
    ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
PYTHON
cat >Cargo.toml <<'TOML'
[package]
name = "burn-peer"
version = "0.1.0"
edition = "2024"
publish = false

[dependencies]
burn = { version = "=0.20.1", default-features = false, features = ["std", "wgpu", "fusion", "autotune"] }
burn-store = { version = "=0.20.1", default-features = false, features = ["std", "burnpack"] }
cubecl-wgpu = { version = "=0.9.0", default-features = false }

[build-dependencies]
burn-import = { version = "=0.20.1", default-features = false, features = ["onnx"] }
TOML
printf '[workspace]\n' >>Cargo.toml
cat >build.rs <<'RUST'
use burn_import::onnx::ModelGen;

fn main() {
    for model in ["resnet18", "minilm", "gpt2_small"] {
        println!("cargo:rerun-if-changed=models/{model}.onnx");
        ModelGen::new().input(&format!("models/{model}.onnx")).out_dir("model/").run_from_script();
    }
}
RUST
cat >src/main.rs <<'RUST'
use burn::backend::wgpu::{Wgpu, WgpuDevice};
use burn::tensor::{Int, Tensor, backend::Backend};
use std::sync::atomic::Ordering;
use std::time::Instant;

type B = Wgpu<f32, i32>;
mod resnet18 {
    include!(concat!(env!("OUT_DIR"), "/model/resnet18.rs"));
}
mod minilm {
    include!(concat!(env!("OUT_DIR"), "/model/minilm.rs"));
}
mod gpt2_small {
    include!(concat!(env!("OUT_DIR"), "/model/gpt2_small.rs"));
}

fn measure(name: &str, forward: impl Fn()) {
    let device = WgpuDevice::default();
    let run = || {
        let started = Instant::now();
        forward();
        B::sync(&device).expect("the device");
        started.elapsed().as_secs_f64() * 1e3
    };
    // Compilation and autotuning.
    for _ in 0..3 {
        run();
    }
    let (begun, before) = (Instant::now(), cubecl_wgpu::DISPATCHES.load(Ordering::Relaxed));
    let mut times = Vec::new();
    while times.len() < 3 || (times.len() < 10 && begun.elapsed().as_secs_f64() < 20.0) {
        times.push(run());
    }
    let kernels = (cubecl_wgpu::DISPATCHES.load(Ordering::Relaxed) - before) as f64 / times.len() as f64;
    times.sort_by(f64::total_cmp);
    let (least, median) = (times[0], times[times.len() / 2]);
    println!("{name}: {least:.1} ms least, {median:.1} ms median of {} runs, {kernels} kernels", times.len());
}

fn main() {
    let device = WgpuDevice::default();
    let ids = |n: i64| Tensor::<B, 1, Int>::arange(1..n + 1, &device).reshape([1, n as usize]);
    for name in std::env::args().skip(1) {
        match name.as_str() {
            "resnet18" => {
                let (model, x) = (resnet18::Model::<B>::default(), Tensor::<B, 4>::ones([1, 3, 224, 224], &device));
                measure(&name, || drop(model.forward(x.clone()).into_data()));
            }
            "minilm" => {
                let (model, x) = (minilm::Model::<B>::default(), ids(128));
                measure(&name, || drop(model.forward(x.clone()).into_data()));
            }
            "gpt2_small" => {
                let (model, x) = (gpt2_small::Model::<B>::default(), ids(64));
                measure(&name, || drop(model.forward(x.clone()).into_data()));
            }
            other => panic!("no model {other}"),
        }
    }
}
RUST
# Burn 0.20.1 does not compile with later versions.
cargo update --quiet -p zip --precise 7.2.0
if [ ! -d cubecl-wgpu ]; then
    cargo fetch --quiet
    cp -r "$(dirname "$(cargo metadata --format-version 1 | grep -o '[^"]*/cubecl-wgpu-0.9.0/Cargo.toml' | head -1)")" cubecl-wgpu
    chmod -R u+w cubecl-wgpu
    sed -i 's/^ *pass\.dispatch_workgroups/crate::DISPATCHES.fetch_add(1, std::sync::atomic::Ordering::Relaxed);\n&/' cubecl-wgpu/src/compute/stream.rs
    printf '\n/// Kernels that were run.\npub static DISPATCHES: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);\n' >>cubecl-wgpu/src/lib.rs
fi
printf '\n[patch.crates-io]\ncubecl-wgpu = { path = "cubecl-wgpu" }\n' >>Cargo.toml
nice cargo build --release --quiet
exec target/release/burn-peer "${@:-resnet18}"
