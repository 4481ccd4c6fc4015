#!/usr/bin/env python3
"""What a forward pass asks of a GPU, a table row a model: kernels run, bytes they move, memory asked for, waits, the CPU's time for
recording, the time on the adapter at hand. Where there is no GPU, Mesa's lavapipe is one that computes on the CPU: its times tell little
of a GPU's, the other figures are the same everywhere.

    scripts/bench_wgpu.py CASE_DIR... [--json FILE] [--before FILE]

`--json` keeps the figures; `--before` puts those of such a file beside the new ones.
"""

import argparse
import json
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent


def measure(cases):
    subprocess.run(["cargo", "build", "--release", "--quiet", "-p", "kiln-build", "--features", "cli"], cwd=ROOT, check=True)
    command = [ROOT / "target/release/kiln", "bench", "--backend", "wgpu", "--json", *cases]
    # A case that fails is a row of its own, and the others count.
    printed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False).stdout
    return {pathlib.Path(row["case"]).name: row for row in map(json.loads, printed.splitlines())}


def cells(row):
    if "error" in row:
        return [row["error"].splitlines()[0]] + [""] * 6
    anew = sum(row[f"new_{kind}"] for kind in ("buffers", "pipelines", "bind_groups"))
    return [
        f"{row['dispatches']:g}",
        f"{row['moved_mb']:.1f}",
        f"{row['requested_mb']:.1f}",
        f"{row['waits']:g}",
        f"{anew:g}",
        f"{row['encode_ms']:.2f}",
        f"{row['min_ms']:.1f}",
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="+", type=pathlib.Path)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--before", type=pathlib.Path)
    arguments = parser.parse_args()
    rows = measure([case.resolve() for case in arguments.cases])
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1))
    before = json.loads(arguments.before.read_text()) if arguments.before else {}
    print("| model | kernels | MB moved | MB asked for | waits | made anew | recording, ms | time, ms |")
    print("| --- " * 8 + "|")
    for name, row in rows.items():
        new = cells(row)
        if name in before:
            new = [f"{old} → {now}" if old != now else now for old, now in zip(cells(before[name]), new)]
        print(f"| {name} | " + " | ".join(new) + " |")


main()
