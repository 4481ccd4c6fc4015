"""Time operations off the beaten path on Kiln's CPU backend beside PyTorch, in one run, with as many threads each.

    pip install torch
    python scripts/bench_uncommon.py [--rounds 3] [--seconds 0.3] [--threads 1] [--only NAME]

What is timed stands in `runtime/ndarray/examples/uncommon.rs` under the same names. The two take turns; the median of each round's medians
counts. Images of PyTorch's gradients of convolutions, and of transposed ones whose name does not end with "first", are in the quicker one of
its two orders of memory; Kiln's have their channels last.
"""
from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent


def cases():
    """Names and the ways to compute each, of which the quickest counts."""
    import torch
    from torch.nn import functional as F

    orders = [torch.contiguous_format, torch.channels_last]
    found = {}

    def conv(name, dims, out, kernel, stride, groups):
        weight = torch.rand(out, dims[1] // groups, kernel, kernel)
        for which, mask in [("input", [True, False, False]), ("weight", [False, True, False])]:
            ways = []
            for order in orders:
                x = torch.rand(dims).to(memory_format=order)
                w = weight.to(memory_format=order)
                g = torch.rand_like(F.conv2d(x, w, None, stride, kernel // 2, 1, groups))
                ways.append(lambda x=x, w=w, g=g, mask=mask: torch.ops.aten.convolution_backward(
                    g, x, w, None, [stride] * 2, [kernel // 2] * 2, [1, 1], False, [0, 0], groups, mask))
            found[f"{name}, {which}"] = ways

    def transposed(name, dims, out, kernel, stride, padding, groups):
        x, w, b = torch.rand(dims), torch.rand(dims[1], out // groups, kernel, kernel), torch.rand(out)
        found[name] = [lambda x=x.to(memory_format=order): F.conv_transpose2d(x, w, b, stride, padding, 0, groups)
                       for order in orders[:1 if name.endswith("first") else 2]]

    def case(name, run):
        found[name] = [run]

    conv("conv depthwise 3x3", (8, 96, 56, 56), 96, 3, 1, 96)
    conv("conv depthwise 3x3 step 2", (8, 96, 56, 56), 96, 3, 2, 96)
    conv("conv depthwise 5x5", (8, 240, 14, 14), 240, 5, 1, 240)
    conv("conv 4 groups", (8, 96, 56, 56), 96, 3, 1, 4)
    conv("conv 4 groups step 2", (8, 96, 56, 56), 96, 3, 2, 4)
    conv("conv 32 groups", (8, 128, 28, 28), 128, 3, 1, 32)
    conv("conv 48 groups multiplier 2", (8, 48, 28, 28), 96, 3, 1, 48)
    dims = (1, 64, 64, 64)
    transposed("transposed 1 group", dims, 32, 4, 2, 1, 1)
    transposed("transposed 4 groups", dims, 32, 4, 2, 1, 4)
    transposed("transposed depthwise", dims, 64, 4, 2, 1, 64)
    transposed("transposed 1 group first", dims, 32, 4, 2, 1, 1)
    transposed("transposed depthwise first", dims, 64, 4, 2, 1, 64)
    transposed("transposed few channels", (1, 3, 128, 128), 3, 4, 2, 1, 1)
    transposed("transposed 2x2 few channels", (4, 16, 64, 64), 1, 2, 2, 0, 1)
    for name, dims, axes in [
        ("permute 210", (64, 512, 512), (2, 1, 0)), ("permute 021", (64, 512, 512), (0, 2, 1)),
        ("permute 120", (64, 512, 512), (1, 2, 0)), ("permute 102", (64, 512, 512), (1, 0, 2)),
        ("permute 4 dims 3210", (32, 64, 48, 40), (3, 2, 1, 0)), ("permute 4 dims 2103", (64, 64, 64, 8), (2, 1, 0, 3)),
    ]:
        x = torch.rand(dims)
        case(name, lambda x=x, axes=axes: x.permute(axes).contiguous())
    a, b = torch.rand(2048, 2048), torch.rand(2048, 2048)
    case("add transposed", lambda: a + b.t())
    case("add both transposed", lambda: a.t() + b.t())
    z, w, q = torch.rand(64, 256, 256), torch.rand(64, 256, 256), torch.rand(256, 256, 64)
    case("mul transposed in batches", lambda: z * w.permute(0, 2, 1))
    case("mul permuted 210", lambda: z * q.permute(2, 1, 0))
    for n in (32, 8):
        x, y = torch.rand(100_000, n), torch.rand(100_000, n)
        case(f"xtx {n} of 100000", lambda x=x, y=y: x.t() @ y)
    for n in (8, 4, 16):
        x, y = torch.rand(4096, n, n), torch.rand(4096, n, n)
        case(f"batch 4096 of {n}", lambda x=x, y=y: x @ y)
    x3, y3 = torch.rand(4096, 3, 3), torch.rand(4096, 3, 1)
    case("batch 4096 of 3 by vector", lambda: x3 @ y3)
    mask = torch.rand(4096, 1024) < 0.5
    case("any of bool rows", lambda: mask.amax(1))
    case("any of bool columns", lambda: mask.amax(0))
    integers = lambda dtype: (torch.rand(4096, 1024) * 100).to(dtype)
    u8, i32, i64 = integers(torch.uint8), integers(torch.int32), integers(torch.int64)
    case("max of u8 rows", lambda: u8.amax(1))
    case("sum of i32 rows", lambda: i32.sum(1, dtype=torch.int32))
    case("max of i32 columns", lambda: i32.amax(0))
    case("sum of i64 rows", lambda: i64.sum(1))
    case("sum of i64 columns", lambda: i64.sum(0))
    v, e = torch.rand(1 << 20), torch.rand(1 << 20)
    for power in (0.75, 0.5, -0.5, 1.5, 2.0, 3.0, 2.2):
        case(f"pow {power:g}", lambda power=power: v ** power)
    case("pow of tensors", lambda: v ** e)
    x, value = torch.rand(1024, 1024), torch.rand(1024, 1024)
    index, rows = torch.randint(1024, (1024, 1024)), torch.randint(1024, (1024,))
    case("gather dim 1", lambda: x.gather(1, index))
    case("gather dim 0", lambda: x.gather(0, index))
    case("scatter_add dim 1", lambda: x.scatter_add(1, index, value))
    case("scatter_add dim 0", lambda: x.scatter_add(0, index, value))
    case("index_add dim 1", lambda: x.index_add(1, rows, value))
    case("index_copy dim 0", lambda: x.index_copy(0, rows, value))
    for n in (8, 16, 32):
        r, g, h = torch.rand((1 << 20) // n, n), torch.rand(n), torch.rand(n)
        case(f"layer_norm rows of {n}", lambda r=r, g=g, h=h, n=n: F.layer_norm(r, (n,), g, h))
        case(f"softmax rows of {n}", lambda r=r: r.softmax(1))
        case(f"sum rows of {n}", lambda r=r: r.sum(1))
    return found


def peer(seconds: float, threads: int, only: str) -> None:
    """PyTorch's times, in a process of their own."""
    import torch
    torch.set_num_threads(threads)
    for name, ways in cases().items():
        if only not in name:
            continue
        medians = []
        for run in ways:
            with torch.no_grad():
                begun, times = time.perf_counter(), []
                while len(times) < 5 or time.perf_counter() - begun < seconds:
                    before = time.perf_counter()
                    run()
                    times.append(time.perf_counter() - before)
            medians.append(statistics.median(times))
        print(json.dumps({"case": name, "ms": min(medians) * 1e3}))


def lines(command: list) -> dict[str, float]:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return {found["case"]: found["ms"] for found in map(json.loads, done.stdout.splitlines())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.3, help="per case and round")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--peer", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        return peer(options.seconds, options.threads, options.only)
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    subprocess.run(["cargo", "build", "-q", "--release", "-p", "kiln-ndarray", "--example", "uncommon"], cwd=ROOT, check=True)
    ours, theirs = {}, {}
    arguments = [options.seconds, options.threads, options.only]
    for _ in range(options.rounds):
        for name, ms in lines([target / "release/examples/uncommon", *arguments]).items():
            ours.setdefault(name, []).append(ms)
        command = [sys.executable, __file__, "--peer", "--seconds", options.seconds, "--threads", options.threads]
        for name, ms in lines([*command, "--only", options.only]).items():
            theirs.setdefault(name, []).append(ms)
    print("| operation | Kiln ms | PyTorch ms | ratio |\n| --- | ---: | ---: | ---: |")
    for name, times in ours.items():
        kiln, torch = statistics.median(times), statistics.median(theirs[name])
        print(f"| {name} | {kiln:.3f} | {torch:.3f} | {kiln / torch:.2f} |")


if __name__ == "__main__":
    main()
