"""Time Kiln beside ONNX Runtime and OpenVINO on case directories, in one run, in turn.

    pip install onnxruntime openvino onnx numpy
    python scripts/bench.py [--threads 1] [--rounds 3] [--least] [--precision bf16] [--peers onnxruntime openvino] [--profile FOLDER] CASE_DIR...

Each round times the peers, then Kiln, on every case; the medians over the rounds are printed, the ratio of Kiln's to the better peer's,
and the geometric means of the ratios to each. With `--least` it is each one's least time over all runs and rounds: what to compare on a
machine that is busy with other work. With `--precision bf16` Kiln and OpenVINO compute products of bf16; ONNX Runtime has only f32. Kiln runs through `kiln bench`, a peer in a process of its own a case (`bench_peer.py`). With `--profile` each case is profiled at
last (`kiln bench --profile`): its table is printed, and a picture and the table written to the folder.
"""
from __future__ import annotations

import argparse
import json
import math
import pathlib
import statistics
import subprocess
import sys

NAMES = {"onnxruntime": "ONNX Runtime", "openvino": "OpenVINO"}


def time_peer(peer: str, case: pathlib.Path, threads: int, precision: str) -> dict:
    script = pathlib.Path(__file__).with_name("bench_peer.py")
    out = subprocess.run([sys.executable, script, peer, case, str(threads), precision], capture_output=True, text=True)
    if out.returncode != 0:
        sys.exit(f"{NAMES[peer]} on {case}:\n{out.stderr}")
    return json.loads(out.stdout.splitlines()[-1])


def time_kiln(binary: str, cases: list[pathlib.Path], threads: int, precision: str) -> dict[str, dict]:
    command = [binary, "bench", "--json", "--threads", str(threads), "--precision", precision, *map(str, cases)]
    out = subprocess.run(command, capture_output=True, text=True)
    if out.returncode not in (0, 1):
        sys.exit(out.stderr)
    return {row["case"]: row for row in map(json.loads, out.stdout.splitlines())}


def profile(binary: str, case: pathlib.Path, threads: int, precision: str, folder: pathlib.Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{case.name}_{threads}"
    command = [binary, "bench", "--profile", "--svg", f"{file}.svg", "--threads", str(threads), "--precision", precision, str(case)]
    out = subprocess.run(command, capture_output=True, text=True)
    if out.returncode not in (0, 1):
        sys.exit(out.stderr)
    pathlib.Path(f"{file}.txt").write_text(out.stdout)
    print(f"\n{out.stdout}", end="")


def geometric_mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="+", type=pathlib.Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--least", action="store_true", help="compare least times instead of medians")
    parser.add_argument("--precision", choices=["f32", "bf16"], default="f32", help="what products are computed of")
    parser.add_argument("--peers", nargs="+", choices=NAMES, default=list(NAMES))
    parser.add_argument("--profile", type=pathlib.Path, metavar="FOLDER", help="where to put a profile of each case, as text and as a picture")
    parser.add_argument("--kiln", default="target/release/kiln", help="cargo build --release -p kiln-build --features cli")
    args = parser.parse_args()

    which, over_rounds = ("min_ms", min) if args.least else ("median_ms", statistics.median)
    # Of each case, a list of Kiln's and each peer's times a round.
    rounds: dict[str, list[list[float]]] = {str(case): [] for case in args.cases}
    last: dict[str, dict] = {}
    for _ in range(args.rounds):
        peers = {str(case): [time_peer(peer, case, args.threads, args.precision) for peer in args.peers] for case in args.cases}
        last = time_kiln(args.kiln, args.cases, args.threads, args.precision)
        for case, row in last.items():
            if row.get("error"):
                print(f"{case}: {row['error']}", file=sys.stderr)
            else:
                rounds[case].append([row[which], *(peer[which] for peer in peers[case])])

    print(f"| case | Kiln ms | {' | '.join(f'{NAMES[peer]} ms' for peer in args.peers)} | ratio | load ms | first ms | peak MB |")
    print("| --- | ---: | " + "---: | " * len(args.peers) + "---: | ---: | ---: | ---: |")
    ratios: list[list[float]] = []
    for case, times in rounds.items():
        if not times:
            continue
        ours, *theirs = (over_rounds(column) for column in zip(*times))
        ratios.append([ours / time for time in theirs])
        row = last[case]
        print(f"| {pathlib.Path(case).name} | {ours:.3f} | {' | '.join(f'{time:.3f}' for time in theirs)} "
              f"| {ours / min(theirs):.2f} | {row['load_ms']:.1f} | {row['first_ms']:.1f} | {row['peak_rss_mb']:.0f} |")
    if not ratios:
        return
    print(f"\n{args.threads} thread{'s' if args.threads > 1 else ''}, {args.rounds} rounds; geometric means of the ratios:")
    for peer, column in zip(args.peers, zip(*ratios)):
        print(f"  to {NAMES[peer]}: {geometric_mean(list(column)):.2f}")
    print(f"  to the better of each: {geometric_mean([max(row) for row in ratios]):.2f}")
    if args.profile:
        for case in args.cases:
            profile(args.kiln, case, args.threads, args.precision, args.profile)


if __name__ == "__main__":
    main()
