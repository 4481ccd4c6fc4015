#!/usr/bin/env bash
# Proves that Burn 0.20 and Kiln read and write the same record files, those that Kiln makes of checkpoints among them, and each
# other's datasets in SQLite; builds the real burn crate (minutes).
# usage: scripts/burn_compat.sh [--bless]     with --bless, Burn writes the fixtures anew first
set -euo pipefail
cd "$(dirname "$0")/.."
fixtures=fixtures/burn-records
dataset=fixtures/burn-datasets/rows.sqlite
datasets() { nice cargo run --quiet --manifest-path tests/burn-datasets/Cargo.toml -- "$@"; }
run() { nice cargo run --quiet --manifest-path tests/burn-compat/Cargo.toml -- "$@"; }
if [ "${1-}" = --bless ]; then
    rm -rf "$fixtures"
    run write "$fixtures"
    datasets write "$dataset"
fi
run check "$fixtures"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
nice cargo build --quiet -p kiln-build --features cli
for format in named-mpk named-mpk-gz bincode pretty-json; do
    target/debug/kiln convert fixtures/weights/net.pt -o "$scratch/full" --record-type "$format" 2>/dev/null
    target/debug/kiln convert fixtures/weights/net.pt -o "$scratch/half" --record-type "$format" --half-precision 2>/dev/null
done
run checkpoints "$scratch" fixtures/weights

datasets check "$dataset"
nice cargo test --quiet -p kiln-data --features sqlite --test sqlite burn_and_kiln >/dev/null
datasets check target/tmp/burn-datasets/rows.sqlite
