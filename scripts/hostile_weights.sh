#!/usr/bin/env bash
# Reads every hostile checkpoint among the fixtures with little time and memory: each must be read or refused, without a
# panic, in 10 s and 1 GB of address space.
# usage: scripts/hostile_weights.sh [FOLDER]
set -uo pipefail
cd "$(dirname "$0")/.."
cargo build --quiet --release -p kiln-weights --example read_checkpoint || exit 1
reader=target/release/examples/read_checkpoint
folder=${1-fixtures/weights/hostile}
bad=0 count=0 slowest=0
for file in "$folder"/*.pt "$folder"/*.safetensors; do
    [ -e "$file" ] || continue
    start=$(date +%s%N)
    (ulimit -v 1048576; timeout 10 "$reader" "$file") >/dev/null 2>&1
    status=$?
    took=$((($(date +%s%N) - start) / 1000000))
    count=$((count + 1))
    if [ "$took" -gt "$slowest" ]; then slowest=$took; fi
    if [ "$took" -gt 1000 ]; then echo "$file: $took ms"; fi
    if [ "$status" -ne 0 ] && [ "$status" -ne 1 ]; then
        echo "$file: status $status after $took ms"
        bad=$((bad + 1))
    fi
done
echo "$count files, $bad of them not in bounds; the slowest took $slowest ms"
[ "$bad" -eq 0 ]
