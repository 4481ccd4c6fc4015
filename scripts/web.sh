#!/usr/bin/env bash
# Compiles `examples/web` to WebAssembly, with WebGPU and without, checks how large that is, and tries the page in Chromium, headless, on
# both backends; the CPU's kernels run their tests in Node, with WebAssembly's vectors and without. What is built lies in `target/browser`;
# `python3 -m http.server -d target/browser/page` shows the page.
#
# Needs Rust and Node; installs the rest: the targets by `rustup` (without it, Debian's `rustc-web` compiles for browsers),
# wasm-bindgen, playwright-core, and Chromium where it is Debian.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
out=$root/target/browser
target=wasm32-unknown-unknown

step() { printf '\n== %s\n' "$1"; }
locked() { sed -n "/^name = \"$1\"$/{n;s/^version = \"\(.*\)\"$/\1/p}" Cargo.lock; }
debian() { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends "$@"; }

cargo=(cargo)
if [ ! -d "$(rustc --print sysroot)/lib/rustlib/$target" ]; then
    step "the target"
    if ! command -v rustup >/dev/null || ! rustup target add $target wasm32-wasip1; then
        # Debian's compiler for the web has no compiled standard library: it compiles one.
        command -v /usr/bin/cargo-web >/dev/null || debian rustc-web cargo-web rust-web-src lld-19
        export RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1 CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER=wasm-ld-19
        cargo=(/usr/bin/cargo -Zbuild-std=std,panic_abort)
    fi
fi
if ! command -v node >/dev/null || ! command -v npm >/dev/null; then
    step "Node"
    debian nodejs npm
fi
chromium=${CHROMIUM:-$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)}
if [ -z "$chromium" ]; then
    step "Chromium"
    debian chromium
    chromium=$(command -v chromium)
fi
bindgen=$(locked wasm-bindgen)
if [ "$("$out/tools/bin/wasm-bindgen" --version 2>/dev/null)" != "wasm-bindgen $bindgen" ]; then
    step "wasm-bindgen $bindgen"
    # Not optimized: it takes longer to compile than it runs.
    env -u RUSTC cargo install --quiet --debug --root "$out/tools" --version "$bindgen" wasm-bindgen-cli
fi
if [ ! -d "$out/node_modules/playwright-core" ]; then
    step "playwright-core"
    PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD=1 npm install --silent --no-audit --no-fund --prefix "$out" playwright-core@1.65
fi

step "the page"
export CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS="-C target-feature=+simd128"
# compile NAME FEATURES LARGEST: the module and its weights, of at most so many bytes when they are compressed.
compile() {
    "${cargo[@]}" build --quiet -p web --target $target --profile web --features "$2"
    "$out/tools/bin/wasm-bindgen" --target web --no-typescript --remove-name-section --out-dir "$out/page/$1" "${CARGO_TARGET_DIR:-target}/$target/web/web.wasm"
    local size
    size=$(cat "$out/page/$1"/* | gzip -9 | wc -c)
    echo "$1: $size bytes compressed, of $3"
    [ "$size" -le "$3" ]
}
mkdir -p "$out/page"
cp examples/web/page/* "$out/page"
compile ndarray "" 3000000
compile webgpu webgpu 5000000

step "the page in Chromium"
KILN_SHADERS=$out/shaders cargo test --quiet -p kiln-gpu --test shaders kernels_are_valid_shaders >/dev/null
NODE_PATH=$out/node_modules node examples/web/check.mjs "$out/page" "$chromium" "$out/shaders"

if [ -d "$(rustc --print sysroot)/lib/rustlib/wasm32-wasip1" ]; then
    step "the CPU's kernels"
    CARGO_TARGET_WASM32_WASIP1_RUNNER="node --no-warnings $root/scripts/wasi.mjs" \
        CARGO_TARGET_WASM32_WASIP1_RUSTFLAGS="-C target-feature=+simd128" \
        cargo test --quiet -p kiln-kernels --lib --target wasm32-wasip1 -- --skip threads::
else
    echo "the CPU's kernels are not tested: that needs rustup's target wasm32-wasip1"
fi
