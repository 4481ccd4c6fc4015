#!/usr/bin/env bash
# The code that calls NVIDIA's libraries, where there are none: on a library of the host's that stands in for the driver, NVRTC, cuBLASLt, cuDNN and NCCL
# (tests/cuda_driver), the numeric suite, graphs and large products, and the folders that are given, verified.
#
#     scripts/cuda_driver.sh [CASE_DIR…]
set -euo pipefail
cd "$(dirname "$0")/.."
# Whoever builds the whole workspace with some features says them: nothing is built twice then.
library=(-p kiln-cuda-driver-tests)
packages=(-p kiln-cuda)
if [ -n "${KILN_FEATURES:-}" ]; then
    library=(--workspace --features "$KILN_FEATURES")
    # Another suite has the same name.
    packages=(--workspace --exclude kiln-wgpu --features "$KILN_FEATURES")
fi
cargo build --quiet "${library[@]}" --lib
place="$PWD/target/cuda_driver"
mkdir -p "$place"
for name in cuda nvrtc cublasLt cudnn nccl; do
    ln -sf ../debug/libkiln_cuda_driver.so "$place/lib$name.so"
done
# The driver's cache starts empty, so that compiling is tried; what the host's compiler made serves all tests.
rm -rf "$place/kernels"
mkdir -p target/tmp/kernels
export LD_LIBRARY_PATH="$place${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" KILN_CUDA_CACHE="$place/kernels" KILN_CUDA_TESTS=device
export KILN_HOST_KERNELS="$PWD/target/tmp/kernels"
cargo test --quiet "${packages[@]}" --test graphs
# What uses a device takes turns: each half of the suite has one.
suite() { cargo test --quiet "${packages[@]}" --test suite -- "$@"; }
suite single::gradients single::tensors &
half=$!
suite single:: --skip single::gradients --skip single::tensors
wait "$half"
cargo test --quiet "${packages[@]}" --test library --test faults --test work -- --include-ignored
if [ $# -gt 0 ]; then
    # With the workspace's tests, the command was built.
    [ -n "${KILN_FEATURES:-}" ] || cargo build --quiet -p kiln-build --features cli
    target/debug/kiln verify --backend cuda "$@"
fi
