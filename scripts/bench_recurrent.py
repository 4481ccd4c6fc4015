"""Time training steps of one recurrent layer beside PyTorch's, in one run, in turn.

    pip install torch
    python scripts/bench_recurrent.py [--threads 1] [--rounds 3] [--seconds 2] [KIND...]

A step is forward and backward, with gradients of the parameters and of the input. Each round runs a process of PyTorch, then one of
Kiln (`runtime/examples/recurrent.rs`), for each layer. Printed are the least times of all rounds' steps and the medians over the rounds'
medians. With one thread the mean time for which that thread ran in a step is printed too (of the better round): what to compare on a machine that is
busy with other work.
"""
from __future__ import annotations

import argparse
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
WARM_UP, LEAST_STEPS = 3, 5
KINDS = ["lstm", "gru", "rnn"]
# Steps, batch, input, hidden, directions.
SIZES = [(32, 32, 128, 128, 1), (64, 32, 256, 256, 1), (64, 32, 128, 256, 2), (64, 8, 128, 128, 1)]


def peer(kind: str, sizes: list[int], threads: int, seconds: float) -> dict:
    """PyTorch's steps, in a process of their own."""
    import torch
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    steps, batch, size, hidden, directions = sizes
    layer = getattr(torch.nn, kind.upper())(size, hidden, bidirectional=directions == 2)
    data = torch.randn(steps, batch, size)
    times, begun, ran = [], 0.0, 0.0
    for step in range(10**9):
        if step == WARM_UP:
            begun, ran = time.perf_counter(), time.thread_time()
        if len(times) >= LEAST_STEPS and time.perf_counter() - begun >= seconds:
            break
        started = time.perf_counter()
        x = data.detach().requires_grad_()
        layer.zero_grad(set_to_none=True)
        layer(x)[0].sum().backward()
        if step >= WARM_UP:
            times.append((time.perf_counter() - started) * 1e3)
    ran_for = (time.thread_time() - ran) * 1e3 / len(times)
    times.sort()
    return {"min_ms": times[0], "median_ms": times[len(times) // 2], "thread_ms": ran_for}


def run(command: list, threads: int) -> dict:
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    done = subprocess.run([str(word) for word in command], env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def build() -> pathlib.Path:
    command = ["cargo", "build", "--release", "--quiet", "-p", "kiln", "--features", "autodiff", "--example", "recurrent"]
    subprocess.run(command, cwd=ROOT, check=True)
    return pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release/examples/recurrent"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="how long each process takes steps")
    parser.add_argument("--peer", nargs=6, metavar="WORD", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.peer:
        kind, *sizes = args.peer
        print(json.dumps(peer(kind, [int(size) for size in sizes], args.threads, args.seconds)))
        return
    binary = build()
    layers = [(kind, *sizes) for kind in args.kinds or KINDS for sizes in SIZES]
    ours: dict[tuple, list[dict]] = {layer: [] for layer in layers}
    theirs: dict[tuple, list[dict]] = {layer: [] for layer in layers}
    for _ in range(args.rounds):
        for layer in layers:
            theirs[layer].append(run([sys.executable, __file__, "--threads", args.threads, "--seconds", args.seconds,
                                      "--peer", *layer], args.threads))
            ours[layer].append(run([binary, *layer, args.threads, args.seconds], args.threads))

    one = args.threads == 1
    print("| layer | steps | batch | input | hidden | directions | Kiln ms, least (median) | PyTorch ms, least (median) | ratio of least |"
          + (" Kiln ms, thread | PyTorch ms, thread | ratio |" if one else ""))
    print("| --- |" + " ---: |" * (11 if one else 8))

    def of(rows: list[dict]) -> tuple[float, float, float]:
        least, thread = (min(row[key] for row in rows) for key in ("min_ms", "thread_ms"))
        return least, statistics.median(row["median_ms"] for row in rows), thread

    ratios = []
    for layer in layers:
        (least, median, thread), (peer_least, peer_median, peer_thread) = of(ours[layer]), of(theirs[layer])
        ratios.append(thread / peer_thread if one else least / peer_least)
        threads = f" {thread:.2f} | {peer_thread:.2f} | {thread / peer_thread:.2f} |" if one else ""
        print(f"| {' | '.join(map(str, layer))} | {least:.2f} ({median:.2f}) | {peer_least:.2f} ({peer_median:.2f}) | "
              f"{least / peer_least:.2f} |{threads}")
    print(f"\ngeometric mean of the last ratios: {math.exp(statistics.fmean(map(math.log, ratios))):.2f}; {args.threads} thread(s)")


if __name__ == "__main__":
    main()
