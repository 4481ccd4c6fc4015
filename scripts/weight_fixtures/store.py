"""Where checkpoints go, and the files beside each that say what is in it.

<name>.pt                        (or .bin, .safetensors, or a folder <name>/ of shards)
<name>.expected.safetensors      every tensor in it, under its path from the root, contiguous
<name>.expected.json             "tensors": dtype and shape by path
                                 "shared": groups of paths whose tensors share a storage
                                 "data": all that is not a tensor (null where one was), as JSON has it
                                 "unsupported": what there is beside that Kiln has no tensors for, and what is said of it
                                 "top_level_key": where the model's own weights are, if not at the root
                                 "refused": why it must not load, and what the error has to mention
                                 "bounded": it may load or not, but has to stay within little time and memory
"""

from __future__ import annotations

import argparse
import collections
import json
import pathlib
import re
import shutil
import types

import numpy as np
import torch
from safetensors.torch import save as to_safetensors

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "fixtures" / "weights"
NAMESPACES = (argparse.Namespace, types.SimpleNamespace)
DTYPES = {
    torch.float64: "f64",
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.bool: "bool",
    **{getattr(torch, f"{u}int{n}"): f"{u or 'i'}{n}" for u in ("", "u") for n in (8, 16, 32, 64)},
}
# Floats of eight bits, and the dtype of the tensors that they become.
WIDENED = {
    torch.float8_e4m3fn: torch.float16,
    torch.float8_e4m3fnuz: torch.float16,
    torch.float8_e5m2: torch.float16,
    torch.float8_e5m2fnuz: torch.float16,
    torch.float8_e8m0fnu: torch.bfloat16,
}


def flatten(value, path: str = "") -> dict[str, torch.Tensor]:
    """Every tensor below `value`, by its dotted path."""
    if isinstance(value, torch.Tensor):
        return {path: value}
    if isinstance(value, np.ndarray) and value.dtype.kind in "fiub":
        # PyTorch takes the machine's byte order only.
        native = np.ascontiguousarray(value, value.dtype.newbyteorder("="))
        return {path: torch.from_numpy(native.reshape(value.shape).copy())}
    if isinstance(value, NAMESPACES):
        parts = vars(value).items()
    elif isinstance(value, dict):
        parts = value.items()
    elif isinstance(value, (list, tuple, collections.deque)):
        parts = enumerate(value)
    else:
        return {}
    found = {}
    for key, part in parts:
        found |= flatten(part, f"{path}.{key}" if path else str(key))
    return found


def as_json(value):
    if isinstance(value, (torch.Tensor, np.ndarray)):
        return None
    if isinstance(value, np.generic):
        return as_json(value.item())
    if isinstance(value, NAMESPACES):
        value = vars(value)
    if isinstance(value, dict):
        return {str(k): as_json(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, collections.deque)):
        return [as_json(v) for v in value]
    if isinstance(value, (set, frozenset)):
        return sorted(as_json(v) for v in value)
    if isinstance(value, (bytes, bytearray)):
        return list(value)
    if isinstance(value, float) and value in (float("inf"), float("-inf")) or value != value:
        return str(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)


def shared(tensors: dict[str, torch.Tensor]) -> list[list[str]]:
    groups: dict[int, list[str]] = {}
    for key, tensor in tensors.items():
        if tensor.numel():
            groups.setdefault(tensor.untyped_storage().data_ptr(), []).append(key)
    return [group for group in groups.values() if len(group) > 1]


def expect(name: str, loaded, **more) -> None:
    """Record `loaded`, which is what PyTorch gave for the file or folder `name`, without what is not supported."""
    unsupported = more.get("unsupported", {})
    tensors = {k: t for k, t in flatten(loaded).items() if k not in unsupported}
    groups = shared(tensors)
    tensors = {k: t.to(WIDENED.get(t.dtype, t.dtype)) for k, t in tensors.items()}
    plain = {k: t.detach().contiguous().clone() for k, t in tensors.items()}
    write(f"{name}.expected.safetensors", to_safetensors(plain))
    entry = {
        "tensors": {k: {"dtype": DTYPES.get(t.dtype, str(t.dtype)), "shape": list(t.shape)} for k, t in tensors.items()}
    }
    if groups:
        entry["shared"] = groups
    if not all(isinstance(v, torch.Tensor) for v in loaded.values()):
        entry["data"] = as_json(loaded)
    write_json(f"{name}.expected.json", entry | more)


def refuse(name: str, because: str, *mentions: str) -> None:
    write_json(f"{name}.expected.json", {"refused": {"because": because, "mentions": list(mentions)}})


def write(name: str, content: bytes) -> None:
    path = FOLDER / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def write_json(name: str, value) -> None:
    text = json.dumps(value, indent=1, ensure_ascii=True)
    # A list of numbers, and a tensor's entry, on one line each.
    text = re.sub(r"\[\s+([-\d,\s]+?)\s+\]", lambda m: "[" + " ".join(m[1].split()) + "]", text)
    text = re.sub(r'\{\s+("dtype": "[^"]*",)\s+("shape": \[[^]]*\])\s+\}', r"{\1 \2}", text)
    write(name, (text + "\n").encode())


def clear() -> None:
    if FOLDER.exists():
        shutil.rmtree(FOLDER)
    FOLDER.mkdir(parents=True)
