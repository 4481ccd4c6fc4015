"""Time reading a large checkpoint: Kiln against `torch.load(mmap=True)` and `safetensors`, each with a touch of all pages.

    cargo build --release -p kiln-weights --example read_checkpoint
    python scripts/bench_weights.py [--gigabytes 2] [--runs 7] [--folder /dev/shm]

Prints one JSON object a file: seconds (median and least of the runs, in turns with the reference), peak resident memory
beside the model's size, and what reading one of its layers costs. Files are in the page cache, and each run is a process
of its own.
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
import json, pathlib, resource, sys, time
import torch
from safetensors.torch import load_file
path = pathlib.Path(sys.argv[1])
start = time.perf_counter()
if path.is_dir():
    files = sorted(set(json.loads(next(path.glob("*.index.json")).read_text())["weight_map"].values()))
    parts = [load_file(path / f) if f.endswith(".safetensors") else torch.load(path / f, mmap=True) for f in files]
    state = {k: v for part in parts for k, v in part.items()}
else:
    state = load_file(path) if path.suffix == ".safetensors" else torch.load(path, mmap=True)
total = sum(int(t.view(torch.uint8).flatten()[::4096].sum(dtype=torch.int64)) for t in state.values())
seconds = time.perf_counter() - start
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"seconds": seconds, "sum": total, "peak_kb": peak}))
"""
ROWS, COLUMNS, SHARDS = 4096, 4096, 4


def make(folder: pathlib.Path, gigabytes: float):
    """Yields one checkpoint after the other; each is removed before the next is made."""
    import torch
    from safetensors.torch import save_file

    count = max(SHARDS, round(gigabytes * 2**30 / (ROWS * COLUMNS * 4)))
    state = {f"layers.{i:03}.weight": torch.full((ROWS, COLUMNS), float(i)) for i in range(count)}
    torch.save(state, folder / "model.pt")
    yield folder / "model.pt"
    (folder / "model.pt").unlink()
    save_file(state, folder / "model.safetensors")
    yield folder / "model.safetensors"
    (folder / "model.safetensors").unlink()
    keys = list(state)
    for ending, stem, save in (("safetensors", "model", save_file), ("bin", "pytorch_model", torch.save)):
        sharded = folder / f"sharded_{ending}"
        sharded.mkdir()
        where = {}
        for shard in range(SHARDS):
            part, name = keys[shard::SHARDS], f"{stem}-{shard + 1:05}-of-{SHARDS:05}.{ending}"
            save({k: state[k] for k in part}, sharded / name)
            where |= dict.fromkeys(part, name)
        (sharded / f"{stem}.{ending}.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))
        yield sharded
        for file in sharded.iterdir():
            file.unlink()


def run(command: list[str]) -> dict:
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--gigabytes", type=float, default=2)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--folder", help="where the files are made; the default is the temporary folder")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        for path in make(pathlib.Path(name), args.gigabytes):
            runs = {"kiln": [], "reference": []}
            for _ in range(args.runs):
                runs["kiln"].append(run([str(READER), str(path)]))
                runs["reference"].append(run([sys.executable, "-c", TORCH, str(path)]))
            assert len({r["sum"] for rs in runs.values() for r in rs}) == 1, "the two read different bytes"
            seconds = {k: [r["seconds"] for r in rs] for k, rs in runs.items()}
            middle = {k: statistics.median(s) for k, s in seconds.items()}
            model = runs["kiln"][0]["bytes"]
            layer = run([str(READER), str(path), "layers.001."])
            none = run([str(READER), str(path), "no such layer"])
            print(
                json.dumps(
                    {
                        "file": path.name,
                        "model_mb": round(model / 1e6, 1),
                        "median_s": {k: round(s, 4) for k, s in middle.items()},
                        "min_s": {k: round(min(s), 4) for k, s in seconds.items()},
                        "ratio": round(middle["kiln"] / middle["reference"], 3),
                        "ratio_min": round(min(seconds["kiln"]) / min(seconds["reference"]), 3),
                        "peak_mb": {k: round(max(r["peak_kb"] for r in rs) * 1024 / 1e6, 1) for k, rs in runs.items()},
                        "one_layer": {
                            "mb": round(layer["bytes"] / 1e6, 1),
                            "peak_mb": round(layer["peak_kb"] * 1024 / 1e6, 1),
                            "faults": layer["faults"],
                            "pages": layer["bytes"] // 4096,
                        },
                        "opening": {"seconds": none["seconds"], "faults": none["faults"], "peak_mb": round(none["peak_kb"] * 1024 / 1e6, 1)},
                    }
                ),
                flush=True,
            )


if __name__ == "__main__":
    main()
