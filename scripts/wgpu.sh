#!/usr/bin/env bash
# The GPU backend on whatever Vulkan driver there is (installs one that computes on the CPU on Debian if there is none): its own tests,
# then every fixture, and the folders that are given, through `kiln verify --backend wgpu`.
#
#     scripts/wgpu.sh [CASE_DIR…]
set -euo pipefail
cd "$(dirname "$0")/.."
if ! compgen -G "/usr/share/vulkan/icd.d/*.json" >/dev/null && ! compgen -G "/etc/vulkan/icd.d/*.json" >/dev/null; then
    apt-get update -q && apt-get install -qy --no-install-recommends mesa-vulkan-drivers
fi
cargo test --quiet -p kiln-gpu -p kiln-wgpu
cargo build --release --quiet -p kiln-build --features cli
exec target/release/kiln verify --backend wgpu fixtures/cases/*/ "$@"
