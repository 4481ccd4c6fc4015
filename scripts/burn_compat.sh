#!/usr/bin/env bash
# Proves that Burn 0.20 and Kiln read and write the same record files; builds the real burn crate (minutes).
# usage: scripts/burn_compat.sh [--bless]     with --bless, Burn writes the fixtures anew first
set -euo pipefail
cd "$(dirname "$0")/.."
fixtures=fixtures/burn-records
run() { nice cargo run --quiet --manifest-path tests/burn-compat/Cargo.toml -- "$@"; }
if [ "${1-}" = --bless ]; then
    rm -rf "$fixtures"
    run write "$fixtures"
fi
run check "$fixtures"
