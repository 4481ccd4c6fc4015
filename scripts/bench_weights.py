"""Time reading a large checkpoint: Kiln against `torch.load(mmap=True)` and `safetensors`, each with a touch of all pages.

    cargo build --release -p kiln-weights --example read_checkpoint
    cargo build --release -p kiln --features weights --example load_module
    python scripts/bench_weights.py [--gigabytes 2] [--runs 7] [--folder /dev/shm]
    python scripts/bench_weights.py --one-layer --gigabytes 10 --folder /var/tmp

Prints one JSON object a file: seconds (median and least of the runs, in turns with the reference), peak resident memory
beside the model's size, what reading one of its layers costs, and what loading it into a list of `Linear` does, which
transposes every matrix. Files are in the page cache, and each run is a process of its own.

With `--one-layer` files are written without having them in memory, and the only thing measured is reading one layer out of
a file that is not in the page cache: resident memory, and the bytes that come from the disk.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import struct
import subprocess
import sys
import tempfile
import zipfile

PROGRAMS = pathlib.Path(__file__).resolve().parents[1] / "target" / "release" / "examples"
READER, LOADER = PROGRAMS / "read_checkpoint", PROGRAMS / "load_module"
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


def make_large(folder: pathlib.Path, gigabytes: float):
    """As `make`, one layer in memory at a time, and no shards."""
    import torch

    count, size = round(gigabytes * 2**30 / (ROWS * COLUMNS * 4)), ROWS * COLUMNS * 4
    names = [f"layers.{i:03}.weight" for i in range(count)]
    path, blank = folder / "model.pt", folder / "blank"
    # Storages of their own over one sparse file: only their sizes matter here.
    blank.touch()
    os.truncate(blank, size)
    state = {name: torch.from_file(str(blank), size=ROWS * COLUMNS).view(ROWS, COLUMNS) for name in names}
    with torch.serialization.skip_data():
        torch.save(state, path)
    del state
    blank.unlink()
    with zipfile.ZipFile(path) as archive:
        infos = [i for i in archive.infolist() if "/data/" in i.filename]
    assert [i.file_size for i in infos] == [size] * count
    with path.open("r+b") as file:
        for layer, info in enumerate(infos):
            # A header's own length, then the lengths of its name and of what follows that.
            file.seek(info.header_offset + 26)
            name, extra = struct.unpack("<HH", file.read(4))
            file.seek(info.header_offset + 30 + name + extra)
            file.write(struct.pack("<f", layer) * (size // 4))
    yield path
    path.unlink()
    path = folder / "model.safetensors"
    entries = {
        name: {"dtype": "F32", "shape": [ROWS, COLUMNS], "data_offsets": [i * size, (i + 1) * size]}
        for i, name in enumerate(names)
    }
    header = json.dumps(entries).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        for layer in range(count):
            file.write(struct.pack("<f", layer) * (size // 4))
    yield path
    path.unlink()


def one_layer(path: pathlib.Path) -> None:
    """What a layer costs while nothing of the file is in memory."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    layer = run([str(READER), str(path), "layers.007."])
    print(
        json.dumps(
            {
                "file": path.name,
                "file_mb": round(path.stat().st_size / 1e6, 1),
                "layer_mb": round(layer["bytes"] / 1e6, 1),
                "peak_mb": round(layer["peak_kb"] * 1024 / 1e6, 1),
                "fetched_mb": round(layer["fetched"] / 1e6, 1),
                "seconds": layer["seconds"],
            }
        ),
        flush=True,
    )


def run(command: list[str]) -> dict:
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--gigabytes", type=float, default=2)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--one-layer", action="store_true")
    parser.add_argument("--folder", help="where the files are made; the default is the temporary folder")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        if args.one_layer:
            for path in make_large(pathlib.Path(name), args.gigabytes):
                one_layer(path)
            return
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
            loaded = {way: run([str(LOADER), way, str(path)]) for way in ("load", "record")}
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
                        "module": {
                            way: {"seconds": of["seconds"], "peak_mb": round(of["peak_kb"] * 1024 / 1e6, 1)}
                            for way, of in loaded.items()
                        },
                        "opening": {"seconds": none["seconds"], "faults": none["faults"], "peak_mb": round(none["peak_kb"] * 1024 / 1e6, 1)},
                    }
                ),
                flush=True,
            )


if __name__ == "__main__":
    main()
