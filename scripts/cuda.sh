#!/usr/bin/env bash
# The CUDA backend where a GPU is: its numeric suite and gradients on the device, then every fixture and the folders that are given, verified
# and timed. CUDA's driver and NVRTC must be there (`pip install nvidia-cuda-nvrtc`).
#
#     scripts/cuda.sh [CASE_DIR…]
set -euo pipefail
cd "$(dirname "$0")/.."
KILN_CUDA_TESTS=device cargo test --quiet -p kiln-cuda --test suite
if command -v compute-sanitizer >/dev/null; then
    KILN_CUDA_TESTS=device compute-sanitizer --error-exitcode 1 \
        "$(cargo test --no-run -p kiln-cuda --test suite --message-format short 2>&1 | sed -n 's/.*(\(.*suite-.*\))/\1/p')" primitives
fi
cargo build --release --quiet -p kiln-build --features cli
target/release/kiln verify --backend cuda fixtures/cases/*/ "$@"
if [ $# -gt 0 ]; then
    target/release/kiln bench --backend cuda "$@"
fi
