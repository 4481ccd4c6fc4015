"""Time gradients of Kiln's CPU backend beside PyTorch's, in one run, on one thread each.

    pip install torch
    python scripts/bench_gradients.py [--rounds 3] [--seconds 0.3]

What is timed is the backward pass of one operation (`runtime/ndarray/examples/gradients.rs` has the same cases): the least of all runs,
since the machine may have other work. Kiln's images have their channels last in memory, unless the name says otherwise; of PyTorch's
two orders the quicker one counts. Of transposed convolutions it is one gradient at a time.
"""
from __future__ import annotations

import argparse
import json
import math
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent


def cases():
    """Name, the operation's operands, which of them has the gradient, and the operation."""
    import torch
    from torch.nn import functional as F

    def conv_transpose(name, dims, out, kernel, stride, padding, groups):
        run = lambda x, w: F.conv_transpose2d(x, w, None, stride, padding, 0, groups)
        operands = [torch.randn(dims), torch.randn(dims[1], out // groups, kernel, kernel)]
        return [(f"{name}, input", operands, [0], run), (f"{name}, weight", operands, [1], run)]

    image = lambda *dims: [torch.randn(dims)]
    norm = lambda *dims: [torch.randn(dims), torch.randn(dims[1]), torch.randn(dims[1])]
    group_norm = lambda x, w, b: F.group_norm(x, 32, w, b)
    return [
        *conv_transpose("conv_transpose 4x4, step 2", (8, 64, 32, 32), 32, 4, 2, 1, 1),
        *conv_transpose("conv_transpose 2x2, step 2", (4, 64, 32, 32), 32, 2, 2, 0, 1),
        *conv_transpose("conv_transpose 3x3", (8, 64, 28, 28), 64, 3, 1, 1, 1),
        *conv_transpose("conv_transpose, depthwise", (8, 64, 32, 32), 64, 4, 2, 1, 64),
        ("group_norm", norm(8, 128, 32, 32), [0, 1, 2], group_norm),
        ("group_norm, channels first", norm(8, 128, 32, 32), [0, 1, 2], group_norm),
        ("instance_norm", norm(8, 64, 64, 64), [0, 1, 2], lambda x, w, b: F.instance_norm(x, weight=w, bias=b)),
        ("adaptive_avg_pool to 1", image(32, 256, 14, 14), [0], lambda x: F.adaptive_avg_pool2d(x, 1)),
        ("adaptive_avg_pool to 7", image(8, 256, 15, 15), [0], lambda x: F.adaptive_avg_pool2d(x, 7)),
        ("nearest", image(8, 64, 32, 32), [0], lambda x: F.interpolate(x, (64, 64), mode="nearest")),
        ("linear", image(8, 64, 32, 32), [0], lambda x: F.interpolate(x, (64, 64), mode="bilinear")),
        ("cubic", image(8, 64, 32, 32), [0], lambda x: F.interpolate(x, (64, 64), mode="bicubic")),
        ("lp_pool", image(8, 64, 65, 65), [0], lambda x: F.lp_pool2d(x, 2.0, 2)),
        ("max_pool, dilated", image(8, 64, 65, 65), [0], lambda x: F.max_pool2d(x, 3, 2, 1, 2, True)),
        ("avg_pool, ceil mode", image(8, 64, 65, 65), [0], lambda x: F.avg_pool2d(x, 3, 2, 1, True, False)),
    ]


def peer(seconds: float) -> None:
    """PyTorch's times, in a process of their own."""
    import torch
    torch.set_num_threads(1)
    for name, operands, of, run in cases():
        least = math.inf
        for order in [torch.contiguous_format, torch.channels_last]:
            inputs = [t.to(memory_format=order) if t.dim() == 4 else t for t in operands]
            leaves = [t.detach().requires_grad_(n in of) for n, t in enumerate(inputs)]
            out = run(*leaves)
            g = torch.randn_like(out)
            begun, count = time.perf_counter(), 0
            while count < 4 or time.perf_counter() - begun < seconds:
                before = time.perf_counter()
                torch.autograd.grad(out, [leaves[n] for n in of], g, retain_graph=True)
                least, count = min(least, time.perf_counter() - before), count + 1
        print(json.dumps({"case": name, "ms": least * 1e3}))


def lines(command: list) -> list[dict]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    done = subprocess.run([str(word) for word in command], env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.3, help="how long each gradient is taken again")
    parser.add_argument("--peer", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.peer:
        peer(args.seconds)
        return
    subprocess.run(["cargo", "build", "--release", "--quiet", "-p", "kiln-ndarray", "--example", "gradients"], cwd=ROOT, check=True)
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    least: dict[str, list[float]] = {}
    for _ in range(args.rounds):
        theirs = {row["case"]: row["ms"] for row in lines([sys.executable, __file__, "--peer", "--seconds", args.seconds])}
        for row in lines([target / "release/examples/gradients", args.seconds]):
            times = [row["own_ms"], row["composed_ms"], theirs[row["case"]]]
            least[row["case"]] = [min(pair) for pair in zip(times, least.get(row["case"], times))]
    print("| gradient | Kiln ms | composed ms | PyTorch ms | ratio |\n| --- | ---: | ---: | ---: | ---: |")
    for name, (own, composed, theirs) in least.items():
        print(f"| {name} | {own:.2f} | {composed:.2f} | {theirs:.2f} | {own / theirs:.2f} |")
    ratios = [own / theirs for own, _, theirs in least.values()]
    print(f"\ngeometric mean of the ratios: {math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f} (1 thread, {args.rounds} rounds)")


if __name__ == "__main__":
    main()
