"""Time Kiln beside ONNX Runtime on case directories, in one run, in turn.

    pip install onnxruntime onnx numpy
    python scripts/bench.py [--threads 1] [--rounds 3] [--least] CASE_DIR...

Each round times ONNX Runtime, then Kiln, on every case; the medians over the rounds and their ratio are printed, and the
geometric mean of the ratios. With `--least` it is each one's least time over all runs and rounds: what to compare on a machine
that is busy with other work. Kiln runs through `kiln bench`, ONNX Runtime in a process of its own a case.
"""
from __future__ import annotations

import argparse
import json
import math
import pathlib
import statistics
import subprocess
import sys

ORT = """
import json, pathlib, sys, time
import numpy as np, onnx, onnxruntime as ort
from onnx import numpy_helper
case, threads = pathlib.Path(sys.argv[1]), int(sys.argv[2])
options = ort.SessionOptions()
options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
started = time.perf_counter()
session = ort.InferenceSession(str(case / "model.onnx"), options, providers=["CPUExecutionProvider"])
load = time.perf_counter() - started
feeds = {}
for i, port in enumerate(session.get_inputs()):
    tensor = onnx.TensorProto()
    tensor.ParseFromString((case / "test_data_set_0" / f"input_{i}.pb").read_bytes())
    feeds[port.name] = numpy_helper.to_array(tensor)
for _ in range(3):
    session.run(None, feeds)
times, begun = [], time.perf_counter()
while len(times) < 5 or (time.perf_counter() - begun < 2.0 and len(times) < 10000):
    started = time.perf_counter()
    session.run(None, feeds)
    times.append(time.perf_counter() - started)
times.sort()
import resource
print(json.dumps({"median_ms": times[len(times) // 2] * 1e3, "min_ms": times[0] * 1e3, "load_ms": load * 1e3,
                  "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))
"""


def ort(case: pathlib.Path, threads: int) -> dict:
    out = subprocess.run([sys.executable, "-c", ORT, str(case), str(threads)], check=True, capture_output=True, text=True)
    return json.loads(out.stdout)


def kiln(binary: str, cases: list[pathlib.Path], threads: int) -> dict[str, dict]:
    command = [binary, "bench", "--json", "--threads", str(threads), *map(str, cases)]
    out = subprocess.run(command, capture_output=True, text=True)
    if out.returncode not in (0, 1):
        sys.exit(out.stderr)
    return {row["case"]: row for row in map(json.loads, out.stdout.splitlines())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="+", type=pathlib.Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--least", action="store_true", help="compare least times instead of medians")
    parser.add_argument("--kiln", default="target/release/kiln", help="cargo build --release -p kiln-build --features cli")
    args = parser.parse_args()

    which, over_rounds = ("min_ms", min) if args.least else ("median_ms", statistics.median)
    rows: dict[str, list[tuple[float, float]]] = {str(case): [] for case in args.cases}
    last: dict[str, dict] = {}
    for _ in range(args.rounds):
        peers = {str(case): ort(case, args.threads) for case in args.cases}
        last = kiln(args.kiln, args.cases, args.threads)
        for case, row in last.items():
            if row.get("error"):
                print(f"{case}: {row['error']}", file=sys.stderr)
            else:
                rows[case].append((row[which], peers[case][which]))

    print("| case | Kiln ms | ONNX Runtime ms | ratio | load ms | peak MB |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    ratios = []
    for case, pairs in rows.items():
        if not pairs:
            continue
        ours, theirs = (over_rounds(column) for column in zip(*pairs))
        ratios.append(ours / theirs)
        row = last[case]
        print(f"| {pathlib.Path(case).name} | {ours:.3f} | {theirs:.3f} | {ours / theirs:.2f} "
              f"| {row['load_ms']:.1f} | {row['peak_rss_mb']:.0f} |")
    if ratios:
        print(f"\ngeometric mean of the ratios: {math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f} "
              f"({args.threads} thread{'s' if args.threads > 1 else ''}, {args.rounds} rounds)")


if __name__ == "__main__":
    main()
