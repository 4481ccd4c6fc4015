#!/usr/bin/env bash
# All checks and tests of `runtime/datafusion` and its example, which are a workspace of their own: DataFusion takes minutes to build.
# usage: scripts/datafusion.sh
set -euo pipefail
cd "$(dirname "$0")/../runtime/datafusion"

# As in `test.sh`: files for the next compile's increments and line tables are most of what would be written.
export CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=0 RUST_LIB_BACKTRACE=0

step() { printf '\n== %s (after %d s)\n' "$1" "$SECONDS"; }

step "formatting"
cargo fmt --all --check

step "lints"
cargo clippy --quiet --locked --workspace --all-targets -- -D warnings

if cargo deny --version >/dev/null 2>&1; then
    step "licenses and sources of dependencies"
    cargo deny --log-level error check --config ../../deny.toml bans licenses sources
fi

step "documentation"
RUSTDOCFLAGS="-D warnings" cargo doc --quiet --locked --package kiln-datafusion --no-deps

step "building the tests"
cargo test --quiet --locked --workspace --no-run

step "tests"
cargo test --quiet --locked --workspace

step "the example"
cargo run --quiet --locked --package scoring

step "done"
