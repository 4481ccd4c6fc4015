"""Time reading a large checkpoint: Kiln against `torch.load(mmap=True)` and `safetensors`, each with a touch of all pages.

    cargo build --release -p kiln-weights --example read_checkpoint
    python scripts/bench_weights.py [--gigabytes 2] [--runs 5]

Prints one JSON object a format. Files are in the page cache, and each run is a process of its own.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

READER = pathlib.Path(__file__).resolve().parents[1] / "target" / "release" / "examples" / "read_checkpoint"
TORCH = """
import json, resource, sys, time
import torch
from safetensors.torch import load_file
path = sys.argv[1]
start = time.perf_counter()
state = load_file(path) if path.endswith(".safetensors") else torch.load(path, mmap=True)
total = sum(int(t.view(torch.uint8).flatten()[::4096].sum(dtype=torch.int64)) for t in state.values())
seconds = time.perf_counter() - start
print(json.dumps({"seconds": seconds, "sum": total, "peak_kb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}))
"""


def make(folder: pathlib.Path, gigabytes: float) -> list[pathlib.Path]:
    import torch
    from safetensors.torch import save_file

    rows, columns = 4096, 4096
    count = max(1, round(gigabytes * 2**30 / (rows * columns * 4)))
    state = {f"layers.{i}.weight": torch.full((rows, columns), float(i)) for i in range(count)}
    torch.save(state, folder / "model.pt")
    save_file(state, folder / "model.safetensors")
    return [folder / "model.pt", folder / "model.safetensors"]


def run(command: list[str]) -> dict:
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--gigabytes", type=float, default=2)
    parser.add_argument("--runs", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        for path in make(pathlib.Path(name), args.gigabytes):
            ours, theirs = [], []
            for _ in range(args.runs):
                ours.append(run([str(READER), str(path)]))
                theirs.append(run([sys.executable, "-c", TORCH, str(path)]))
            best = {k: min(r["seconds"] for r in v) for k, v in (("kiln", ours), ("reference", theirs))}
            middle = {k: statistics.median(r["seconds"] for r in v) for k, v in (("kiln", ours), ("reference", theirs))}
            print(
                json.dumps(
                    {
                        "file": path.name,
                        "bytes": ours[0]["bytes"],
                        "median_s": middle,
                        "min_s": best,
                        "ratio": middle["kiln"] / middle["reference"],
                        "peak_mb": {"kiln": ours[0]["peak_kb"] / 1e3, "reference": theirs[0]["peak_kb"] / 1e3},
                    }
                )
            )


if __name__ == "__main__":
    main()
