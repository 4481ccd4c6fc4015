#!/usr/bin/env bash
# Compiles every family of CUDA kernels for every generation of GPUs, and compares registers and spills with those on record. No GPU is
# needed: NVIDIA's compiler comes from PyPI into target/nvrtc (installs pip on Debian if there is none). Of the families whose sources are those
# on record, one in five is compiled anew, for one generation.
#
#     scripts/cuda_kernels.sh                       # compares
#     KILN_ALL_KERNELS=1 scripts/cuda_kernels.sh    # compiles all of them, whatever is on record
#     INSTA_UPDATE=always scripts/cuda_kernels.sh   # puts on record
set -euo pipefail
cd "$(dirname "$0")/.."

# The registers on record are this version's.
version=13.5.37
folder=$PWD/target/nvrtc-$version
if ! compgen -G "$folder/nvidia/cu13/lib/libnvrtc.so.*" >/dev/null; then
    if ! python3 -m pip --version >/dev/null 2>&1; then
        apt-get update -q && apt-get install -qy python3-pip
    fi
    python3 -m pip install --quiet --no-deps --target "$folder" "nvidia-cuda-nvrtc==$version"
fi
# Whoever builds the whole workspace with some features says them: nothing is built twice then.
packages=(-p kiln-cuda)
[ -z "${KILN_FEATURES:-}" ] || packages=(--workspace --features "$KILN_FEATURES")
LD_LIBRARY_PATH="$folder/nvidia/cu13/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" INSTA_UPDATE="${INSTA_UPDATE:-no}" \
    cargo test --quiet "${packages[@]}" --test compiles -- --ignored
