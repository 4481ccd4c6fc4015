#!/usr/bin/env bash
# A Ballista cluster of four processes on this machine, which scores a table by an imported network: a scheduler, two executors and a client
# (`examples/cluster`, a workspace of its own: Ballista takes long to build).
# usage: scripts/ballista.sh
set -euo pipefail
cd "$(dirname "$0")/../examples/cluster"

# As in `test.sh`: files for the next compile's increments and line tables are most of what would be written.
export CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=0 RUST_LIB_BACKTRACE=0

step() { printf '\n== %s (after %d s)\n' "$1" "$SECONDS"; }

step "formatting"
cargo fmt --check

step "lints"
cargo clippy --quiet --locked --all-targets -- -D warnings

if cargo deny --version >/dev/null 2>&1; then
    step "licenses and sources of dependencies"
    cargo deny --log-level error check --config ../../deny.toml bans licenses sources
fi

step "building"
cargo build --quiet --locked
cluster="${CARGO_TARGET_DIR:-target}/debug/cluster"

step "the cluster"
folder="$(mktemp -d)"
pids=()
end() {
    kill "${pids[@]}" 2>/dev/null || true
    rm -rf "$folder"
}
trap end EXIT
start() {
    "$cluster" "$@" >"$folder/$1-${*: -1}.log" 2>&1 &
    pids+=($!)
}
start scheduler 50050
sleep 2
start executor 50050 50051
start executor 50050 50061
sleep 4
answer=$(timeout 120 "$cluster" client 50050 "$folder/digits") || {
    tail -n 20 "$folder"/*.log
    exit 1
}
echo "$answer"

# PyTorch reads as many of them right.
right=$(awk -F '|' '/^\| +[0-9]/ { sum += $4 } END { print sum }' <<<"$answer")
[ "$right" = 356 ] || { echo "the cluster read $right of 360 digits right, and PyTorch 356" >&2 && exit 1; }

# A query that asks for a number that no image has fails, and says why.
if told=$("$cluster" client 50050 "$folder/digits" "SELECT read_digit([1, 2, 3])" 2>&1); then
    echo "a list of three pixels was read as a digit" >&2 && exit 1
fi
grep -q "read_digit" <<<"$told" || { echo "$told" >&2 && exit 1; }

step "done"
