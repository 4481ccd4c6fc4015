#!/usr/bin/env bash
# Reads every checkpoint among the fixtures with candle and with Kiln, and compares; builds candle-core (minutes).
# usage: scripts/candle_compat.sh
set -euo pipefail
cd "$(dirname "$0")/.."
nice cargo build --quiet --manifest-path tests/candle-compat/Cargo.toml
# Some fixtures are made to exhaust a reader.
ulimit -v 4000000
tests/candle-compat/target/debug/candle-compat fixtures/weights
