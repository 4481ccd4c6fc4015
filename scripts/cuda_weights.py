#!/usr/bin/env python3
"""Leaves the weights of packed cases out, and makes arbitrary ones where they are needed: times do not depend on them.

    cuda_weights.py empty FOLDER    # of each record in FOLDER/data whose case is timed the header stays
    cuda_weights.py fill FOLDER     # records without weights get small numbers
"""

import json
import pathlib
import random
import struct
import sys

# Bytes of numbers that are written again and again; of floats of any width they are small.
BLOCK = 1 << 20


def header(path):
    """The header of a Safetensors file as it stands, and the bytes that follow it in a whole file."""
    with path.open("rb") as file:
        length = file.read(8)
        text = file.read(struct.unpack("<Q", length)[0])
    ends = [value["data_offsets"][1] for name, value in json.loads(text).items() if name != "__metadata__"]
    return length + text, max(ends, default=0)


def records(folder):
    lines = (folder / "bench.tsv").read_text().splitlines() if (folder / "bench.tsv").exists() else []
    return [folder / line.split("\t")[1].split()[3] / "model.safetensors" for line in lines]


def block(dtype):
    numbers = random.Random(7)
    match dtype:
        case "F32":
            return struct.pack(f"<{BLOCK // 4}f", *(numbers.uniform(-0.05, 0.05) for _ in range(BLOCK // 4)))
        case "F16":
            return struct.pack(f"<{BLOCK // 2}e", *(numbers.uniform(-0.05, 0.05) for _ in range(BLOCK // 2)))
        case "BF16":
            # The upper halves of 32-bit floats.
            singles = struct.pack(f"<{BLOCK // 2}f", *(numbers.uniform(-0.05, 0.05) for _ in range(BLOCK // 2)))
            return b"".join(singles[at + 2 : at + 4] for at in range(0, len(singles), 4))
        case _:
            return bytes(BLOCK)


def fill(path):
    head, size = header(path)
    if path.stat().st_size == len(head) + size:
        return
    tensors = [value for name, value in json.loads(head[8:]).items() if name != "__metadata__"]
    blocks = {dtype: block(dtype) for dtype in {tensor["dtype"] for tensor in tensors}}
    with path.open("r+b") as file:
        file.truncate(len(head) + size)
        for tensor in tensors:
            start, end = tensor["data_offsets"]
            file.seek(len(head) + start)
            for at in range(start, end, BLOCK):
                file.write(blocks[tensor["dtype"]][: min(BLOCK, end - at)])


def main():
    what, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    for path in records(folder):
        if what == "empty":
            path.write_bytes(header(path)[0])
        else:
            fill(path)


if __name__ == "__main__":
    main()
