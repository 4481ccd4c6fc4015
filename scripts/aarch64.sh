#!/usr/bin/env bash
# Kiln on 64-bit ARM, where the machine is another: the runtime and the command are compiled for it, the tests of the CPU's kernels, of their backend and of source without a
# runtime run in QEMU. NEON is what every such CPU has.
#
# Needs Rust; installs the rest: the target by `rustup` (without it, Debian's `rustc-web` compiles its standard library), a linker, and QEMU where it is Debian.
set -euo pipefail
cd "$(dirname "$0")/.."
target=aarch64-unknown-linux-gnu
export CARGO_TARGET_DIR=$PWD/target/aarch64 CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=0

step() { printf '\n== %s\n' "$1"; }
debian() { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends "$@"; }

cargo=(cargo)
if [ "$(uname -m)" != aarch64 ]; then
    if [ ! -d "$(rustc --print sysroot)/lib/rustlib/$target" ]; then
        step "the target"
        if ! command -v rustup >/dev/null || ! rustup target add $target; then
            command -v /usr/bin/cargo-web >/dev/null || debian rustc-web cargo-web rust-web-src
            export RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1
            cargo=(/usr/bin/cargo -Zbuild-std=std)
        fi
    fi
    if ! command -v qemu-aarch64 >/dev/null || ! command -v aarch64-linux-gnu-gcc >/dev/null; then
        step "QEMU and a linker"
        debian qemu-user gcc-aarch64-linux-gnu g++-aarch64-linux-gnu libc6-dev-arm64-cross
    fi
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64 -L /usr/aarch64-linux-gnu"
fi

step "the runtime and the command"
"${cargo[@]}" check --quiet --target $target -p kiln -p kiln-build \
    --features kiln-build/cli,kiln-build/pytorch,kiln-build/safetensors,kiln/wgpu,kiln/cuda,kiln/pytorch,kiln/safetensors

step "the kernels' tests"
"${cargo[@]}" test --quiet --target $target -p kiln-kernels --lib

step "the tests of their backend, and of source without a runtime"
"${cargo[@]}" test --quiet --target $target -p kiln-ndarray -p kiln-standalone
