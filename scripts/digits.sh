#!/usr/bin/env bash
# Compiles the digits network to Rust and classifies the held-out images. Needs Rust and a C linker; installs the linker
# on Debian when it is missing.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! command -v cc >/dev/null; then
    apt-get update -q && apt-get install -qy gcc libc6-dev
fi
exec cargo run --release --quiet -p digits
