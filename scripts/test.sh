#!/usr/bin/env bash
# All checks and tests of Kiln. Needs Rust (rustup or a distribution's, at least the MSRV in Cargo.toml) and a C linker;
# installs what else is missing on Debian.
set -euo pipefail
cd "$(dirname "$0")/.."

features=kiln-build/cli,kiln-build/pytorch,kiln-build/safetensors,kiln/wgpu,kiln/cuda,kiln/pytorch,kiln/safetensors,kiln/sqlite,kiln/vision,kiln/dataframe

# Files for the next compile's increments and line tables for backtraces would be two thirds of what is written here.
export CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=0
# A failed test says where; what libraries note at every lock is for nobody.
export RUST_LIB_BACKTRACE=0
# Mesa's driver for CPUs takes longer to optimize most shaders of the tests than to run them.
export GALLIVM_PERF=nopt

step() { printf '\n== %s (after %d s)\n' "$1" "$SECONDS"; }

if ! command -v cc >/dev/null; then
    step "installing a C linker"
    apt-get update -q && apt-get install -qy gcc libc6-dev
fi

if [ "$(uname)" = Linux ] && ! command -v c++ >/dev/null; then
    # CUDA's kernels are tried as what this compiler makes of them.
    step "installing a C++ compiler"
    apt-get update -q && apt-get install -qy g++
fi

step "toolchain"
msrv=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
have=$(rustc --version | cut -d' ' -f2)
echo "rustc $have, MSRV $msrv"
if [ "$(printf '%s\n%s\n' "$msrv" "$have" | sort -V | head -n1)" != "$msrv" ]; then
    echo "rustc $have is older than the MSRV $msrv: run 'rustup update'" >&2
    exit 1
fi
if ! cargo fmt --version >/dev/null 2>&1 || ! cargo clippy --version >/dev/null 2>&1; then
    step "installing rustfmt and clippy"
    rustup component add rustfmt clippy
fi
if [ "$(uname)" = Linux ] && ! compgen -G "/usr/share/vulkan/icd.d/*.json" >/dev/null && ! compgen -G "/etc/vulkan/icd.d/*.json" >/dev/null; then
    # The GPU backend's tests run on any Vulkan driver; this one computes on the CPU.
    step "installing a Vulkan driver"
    apt-get update -q && apt-get install -qy --no-install-recommends mesa-vulkan-drivers
fi
step "formatting"
cargo fmt --all --check

step "lints"
# What follows uses what the first two steps compile: with other packages chosen, dependencies have other features and would be compiled again.
workspace=(--workspace --features "$features")
export KILN_FEATURES=$features RUSTC_WORKSPACE_WRAPPER="$PWD/scripts/clippy_or_rustc.sh"
cargo check --quiet "${workspace[@]}" --all-targets

step "building the tests"
cargo test --quiet "${workspace[@]}" --no-run

# A snapshot that differs fails; it is blessed by hand (CONTRIBUTING.md).
export INSTA_UPDATE=no

# Much of what follows is busy with one core: some of it runs beside the rest, and is shown at the end.
names=() jobs=() logs=()
beside() {
    local log
    log=$(mktemp)
    # A job is a group of processes of its own, which can be ended as one.
    set -m
    "${@:2}" </dev/null >"$log" 2>&1 &
    set +m
    names+=("$1") jobs+=("$!") logs+=("$log")
}
end_jobs() {
    local n
    for n in "${!jobs[@]}"; do
        kill -- "-${jobs[n]}" 2>/dev/null || true
        rm -f "${logs[n]}"
    done
}
trap end_jobs EXIT

# The tests of the package in a folder, as Cargo would run them; they are built.
tests_of() {
    local executables executable
    executables=$(cargo test --quiet "${workspace[@]}" --no-run --message-format=json \
        | grep "\"manifest_path\":\"[^\"]*/$1/Cargo.toml\"" | grep '"test":true},' | sed -n 's/.*"executable":"\([^"]*\)".*/\1/p')
    # Without this, a changed form of Cargo's messages would go unseen as tests that all pass.
    test -n "$executables"
    cd "$1"
    while read -r executable; do
        printf '\n%s\n' "$executable"
        "$executable"
    done <<<"$executables"
}
beside "wgpu's tests" tests_of runtime/wgpu

step "lints of generated source"
# As modules of a crate of its own: what is included from OUT_DIR is not linted.
cargo run --quiet --features "$features" --example lint_crate -- target/generated-lints
cargo clippy --quiet --manifest-path target/generated-lints/Cargo.toml --target-dir target -- -D warnings

step "the no_std core"
cargo check --quiet -p kiln-types -p kiln-tensor -p kiln-kernels -p kiln-ndarray -p kiln-record -p kiln-core --no-default-features
cargo check --quiet -p kiln --no-default-features --features ndarray

step "a training loop without a learner"
# Together, the workspace's tests have every feature: this one has what the book's custom loops name.
cargo check --quiet -p kiln --no-default-features --features ndarray,autodiff --example training_loop

step "a learner as Burn 0.20 spells it"
# `grep` reads to the end: the program would fail where it prints and nobody reads.
cargo run --quiet --features "$features,kiln/burn-0-20" --example supervised 2>/dev/null | grep "Learner Summary" >/dev/null

for target in thumbv7em-none-eabihf wasm32-unknown-unknown aarch64-unknown-linux-gnu; do
    # A host's check cannot see every use of the standard library; `rustup target add` brings these targets.
    if [ -d "$(rustc --print sysroot)/lib/rustlib/$target" ]; then
        step "a model for $target"
        cargo check --quiet -p kiln-no-std-tests --target "$target"
    fi
done

if [ -d "$(rustc --print sysroot)/lib/rustlib/wasm32-unknown-unknown" ]; then
    # `scripts/web.sh` also tries it in a browser.
    step "lints of the web page, with WebGPU"
    CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS="-C target-feature=+simd128" \
        cargo check --quiet -p web --features webgpu --target wasm32-unknown-unknown
fi

if cargo deny --version >/dev/null 2>&1; then
    # `scripts/install_deny.sh` brings it.
    step "licenses, sources and advisories of dependencies"
    cargo deny --log-level error check bans licenses sources
    if cargo deny --log-level off fetch db; then
        cargo deny --log-level error check --disable-fetch advisories
    else
        echo "the database of advisories cannot be fetched from here: advisories were not checked"
    fi
fi

step "documentation"
# Of what is published: the manifests of tests and examples say that they have none.
RUSTDOCFLAGS="-D warnings" cargo doc "${workspace[@]}" --no-deps --quiet

if [ "$(uname)-$(uname -m)" = Linux-x86_64 ]; then
    step "CUDA kernels for every generation of GPUs"
    bash scripts/cuda_kernels.sh

    step "the code that calls CUDA's libraries, on one that stands in for them"
    bash scripts/cuda_driver.sh fixtures/cases/net_*/
fi
beside "CUDA's tests" tests_of runtime/cuda

step "tests"
cargo test "${workspace[@]}" --exclude kiln-wgpu --exclude kiln-cuda --tests

step "tests in the documentation"
cargo test "${workspace[@]}" --doc

for n in "${!jobs[@]}"; do
    step "${names[n]}"
    failed=0
    wait "${jobs[n]}" || failed=$?
    cat "${logs[n]}"
    [ "$failed" = 0 ] || { echo "${names[n]}: failed" >&2; exit "$failed"; }
done
