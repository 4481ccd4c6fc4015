#!/usr/bin/env bash
# The CUDA backend where a GPU is: the numeric suite, gradients, graphs, products by cuBLASLt and faults on the device, kernels under
# compute-sanitizer, every fixture verified, the given folders verified and timed, also as graphs and beside PyTorch, ONNX Runtime and TensorRT.
#
# All is packed into a folder first, which runs on a machine without Rust:
#
#     scripts/cuda.sh [CASE_DIR…]                     # packs into target/cuda_pack and runs that
#     scripts/cuda.sh --pack FOLDER [CASE_DIR…]       # packs only; FOLDER/run.sh does the rest
#     scripts/cuda.sh --hollow FOLDER [CASE_DIR…]     # the same without the folders' weights: a few MB, timed with arbitrary ones
#
# There the driver must be, and NVRTC (`pip install nvidia-cuda-nvrtc`).
set -euo pipefail
cd "$(dirname "$0")/.."
run=yes hollow=no pack="$PWD/target/cuda_pack"
case "${1:-}" in
    --pack) run=no pack="$(realpath -m "$2")" && shift 2 ;;
    --hollow) run=no hollow=yes pack="$(realpath -m "$2")" && shift 2 ;;
esac

rm -rf "$pack"
mkdir -p "$pack/tests"
for test in suite attention graphs work library faults; do
    built=$(cargo test --no-run --quiet -p kiln-cuda --test "$test" --message-format json |
        sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -n 1)
    cp "$built" "$pack/tests/$test"
done

cargo build --release --quiet -p kiln-build --features cli
# Sources are compiled here and what they make is copied: lines of commands are relative to the folder.
export KILN_CACHE_DIR="$PWD/target/cuda_cache"
prepare() {
    local name=$1
    shift
    target/release/kiln "$@" --backend cuda --no-run | sed "s|$KILN_CACHE_DIR/||g" | python3 -c '
import json, sys
for row in map(json.loads, sys.stdin):
    print(row["case"], " ".join(row["command"]), sep="\t")' >"$pack/$name.tsv"
}
prepare verify_fixtures verify fixtures/cases/*/
if [ $# -gt 0 ]; then
    if [ $hollow = no ]; then
        prepare verify verify "$@"
        prepare verify_captured verify --captured "$@"
    fi
    prepare bench bench "$@"
    prepare bench_captured bench --captured "$@"
    prepare bench_bf16 bench --floats bf16 "$@"
    prepare bench_captured_bf16 bench --captured --floats bf16 "$@"
fi
mkdir -p "$pack/target/release" "$pack/data"
cut -f 2 "$pack"/*.tsv | awk '{ print $1 "\n" $4 }' | sort -u | while read -r path; do
    cp -r "$KILN_CACHE_DIR/$path" "$pack/$path"
done
cp scripts/cuda_run.sh "$pack/run.sh"
cp scripts/cuda_bench.py scripts/cuda_weights.py "$pack"
if [ $hollow = yes ]; then
    python3 "$pack/cuda_weights.py" empty "$pack"
fi
du -sh "$pack"
if [ $run = yes ]; then
    "$pack/run.sh"
fi
