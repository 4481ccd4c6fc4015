#!/usr/bin/env bash
# Runs what scripts/cuda.sh packed beside this, on a machine with a GPU; what fails is told at the end. Further arguments go to
# cuda_bench.py (`--models FOLDER` with PyTorch's models, `--cases FOLDER` with ONNX files, for the peers).
set -uo pipefail
cd "$(dirname "$0")"
failed=()
attempt() {
    echo "== $1"
    "${@:2}" || failed+=("$1")
}
export KILN_CUDA_TESTS=device
attempt "the numeric suite" tests/suite
attempt "attention by tensor cores" tests/attention
attempt "graphs" tests/graphs
attempt "few launches" tests/work --skip tensors_go_from_device_to_device
attempt "products by the library" tests/library --include-ignored
attempt "faults" tests/faults --include-ignored
if command -v compute-sanitizer >/dev/null; then
    attempt "memory" compute-sanitizer --tool memcheck --error-exitcode 1 tests/suite single::primitives
    attempt "races" compute-sanitizer --tool racecheck --error-exitcode 1 tests/suite single::primitives
    attempt "races of warps" compute-sanitizer --tool racecheck --error-exitcode 1 tests/attention
fi

# Each line is a case and its command, which prints numbers by name; one of them counts the elements that differ.
verify() {
    local well=0 all=0 output
    while IFS=$'\t' read -r name command; do
        all=$((all + 1))
        # shellcheck disable=SC2086
        if output=$($command 2>&1) && grep -qx "mismatches 0" <<<"$output"; then
            well=$((well + 1))
        else
            echo "$name: $(tail -n 4 <<<"$output" | tr '\n' ' ')"
        fi
    done <"$1"
    echo "$well of $all cases are as they should be"
    [ "$well" = "$all" ]
}
for lines in verify*.tsv; do
    attempt "$lines" verify "$lines"
done
if [ -e bench.tsv ]; then
    attempt "weights" python3 cuda_weights.py fill .
    for compute in f32 tf32 bf16; do
        attempt "times of $compute" python3 cuda_bench.py --compute "$compute" --json "times_$compute.json" "$@"
    done
fi
if [ ${#failed[@]} -gt 0 ]; then
    printf 'FAILED: %s\n' "${failed[@]}"
    exit 1
fi
