"""Pickles spelled out opcode by opcode, and checkpoints around them."""

from __future__ import annotations

import pickle
import struct

import torch

from weight_fixtures import formats, store

FOUR = torch.arange(4.0).numpy().tobytes()


def text(value: str) -> bytes:
    data = value.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def glob(module: str, name: str) -> bytes:
    return b"c" + module.encode() + b"\n" + name.encode() + b"\n"


def call(module: str, name: str, *arguments: bytes) -> bytes:
    return glob(module, name) + b"(" + b"".join(arguments) + b"tR"


def integer(value: int) -> bytes:
    data = pickle.encode_long(value)
    return b"\x8a" + bytes([len(data)]) + data


def archive(body: bytes, **storages: bytes) -> bytes:
    """A zip checkpoint around any pickle."""
    entries = {"archive/data.pkl": body, "archive/byteorder": b"little"}
    entries |= {f"archive/data/{key.lstrip('_')}": data for key, data in storages.items()}
    return formats.zipped(entries | {"archive/version": b"3\n"})


def checkpoint(value: bytes, *, protocol=2) -> bytes:
    """A state dict of one entry, `weight`, whose value is what the given opcodes leave on the stack."""
    return b"\x80" + bytes([protocol]) + b"}" + text("weight") + value + b"s."


def storage(kind="FloatStorage", key="0", location="cpu", count=4, module="torch") -> bytes:
    return b"(" + text("storage") + glob(module, kind) + text(key) + text(location) + integer(count) + b"tQ"


def numbers(*values: int) -> bytes:
    return b"(" + b"".join(map(integer, values)) + b"t"


def tensor(store=None, offset=0, size=(4,), stride=(1,)) -> bytes:
    backing = storage() if store is None else store
    return call(
        "torch._utils",
        "_rebuild_tensor_v2",
        backing,
        integer(offset),
        numbers(*size),
        numbers(*stride),
        b"\x89",
        call("collections", "OrderedDict"),
    )


def zipped_body(body: bytes, more: dict[str, bytes] = {}) -> bytes:
    """A checkpoint whose pickle, for its length, is compressed."""
    entries = {"archive/data.pkl": body, "archive/byteorder": b"little", **more, "archive/version": b"3\n"}
    return formats.zipped(entries, deflate=("archive/data.pkl",))


def put(name: str, content: bytes, because: str, *mentions: str) -> None:
    store.write(f"hostile/{name}.pt", content)
    store.refuse(f"hostile/{name}", because, *mentions)


def bound(name: str, content: bytes, because: str) -> None:
    """May load or be refused, so long as either takes little time and memory."""
    store.write(f"hostile/{name}.pt", content)
    store.write_json(f"hostile/{name}.expected.json", {"bounded": {"because": because}})
