#!/usr/bin/env bash
# Compiles `examples/microcontroller` for a Cortex-M4F, shows how large its parts are, and runs it in QEMU.
#
# Needs Rust; installs the rest: the target by `rustup` (without it, Debian's `rustc-web` compiles its standard library), and QEMU where it is Debian.
set -euo pipefail
cd "$(dirname "$0")/../examples/microcontroller"
target=thumbv7em-none-eabihf
out=$PWD/../../target/microcontroller

step() { printf '\n== %s\n' "$1"; }
debian() { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends "$@"; }

cargo=(cargo)
if [ ! -d "$(rustc --print sysroot)/lib/rustlib/$target" ]; then
    step "the target"
    if ! command -v rustup >/dev/null || ! rustup target add $target; then
        command -v /usr/bin/cargo-web >/dev/null || debian rustc-web cargo-web rust-web-src lld-19
        export RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1 CARGO_TARGET_THUMBV7EM_NONE_EABIHF_LINKER=ld.lld-19
        cargo=(/usr/bin/cargo -Zbuild-std=core)
    fi
fi
if ! command -v qemu-system-arm >/dev/null; then
    step "QEMU"
    debian qemu-system-arm
fi

step "the firmware"
"${cargo[@]}" build --quiet --release --target $target --target-dir "$out"
firmware=$out/$target/release/microcontroller
if command -v size >/dev/null; then
    size "$firmware"
fi

step "in QEMU"
# The firmware says by its exit status whether all is right.
timeout 300 qemu-system-arm -cpu cortex-m4 -machine mps2-an386 -nographic -semihosting-config enable=on,target=native -kernel "$firmware"
