#!/usr/bin/env bash
# Converts models and prints seconds, peak resident memory and its part that is not pages of mapped files, in MB.
# usage: scripts/convert_memory.sh MODEL.onnx…   (the command: cargo build --release -p kiln-build --features cli)
#
# Resident memory counts the pages of the mapped weights; the peaks are the kernel's own (VmHWM, VmRSS sampled for the
# anonymous part).
set -euo pipefail
kiln=$(cd "$(dirname "$0")/.." && pwd)/target/release/kiln
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
for model in "$@"; do
    begin=$(date +%s.%N)
    "$kiln" convert "$model" -o "$out/record" >/dev/null &
    pid=$!
    peak=0 anonymous=0
    while status=$(cat "/proc/$pid/status" 2>/dev/null) && grep -q VmHWM <<<"$status"; do
        now=$(awk '/^VmHWM/ { print $2 }' <<<"$status")
        now_anonymous=$(awk '/^RssAnon/ { print $2 }' <<<"$status")
        peak=$((now > peak ? now : peak)) anonymous=$((now_anonymous > anonymous ? now_anonymous : anonymous))
        sleep 0.02
    done
    wait "$pid"
    end=$(date +%s.%N)
    awk -v m="$model" -v s="$(echo "$end $begin" | awk '{ print $1 - $2 }')" -v p="$peak" -v a="$anonymous" \
        'BEGIN { printf "%s: %.1f s, peak %.0f MB, of it anonymous %.0f MB\n", m, s, p * 1024 / 1e6, a * 1024 / 1e6 }'
    rm -rf "$out/record"
done
