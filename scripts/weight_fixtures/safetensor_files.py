"""Safetensors files: good ones, ones in dtypes that Kiln has no tensors of, and hostile ones."""

from __future__ import annotations

import json

import torch
from safetensors import deserialize
from safetensors.torch import load, save

from weight_fixtures import kinds, store


def raw_file(header: dict | bytes, data: bytes = b"", *, length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header, ensure_ascii=False).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def entry(dtype="F32", shape=(2,), start=0, end=8) -> dict:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [start, end]}


def keep(name: str, content: bytes) -> None:
    store.write(f"safetensors/{name}.safetensors", content)
    store.expect(f"safetensors/{name}", load(content))


def refused(name: str, content: bytes, because: str, *mentions: str) -> None:
    store.write(f"safetensors/{name}.safetensors", content)
    store.refuse(f"safetensors/{name}", because, *mentions)


def hostile(name: str, content: bytes, because: str, *, reference_refuses=True) -> None:
    if reference_refuses:
        try:
            deserialize(content)
        except Exception:
            pass
        else:
            raise AssertionError(f"{name} loads")
    store.write(f"hostile/{name}.safetensors", content)
    store.refuse(f"hostile/{name}", because)


def files() -> None:
    good = kinds.every_dtype() | {
        "scalar": torch.tensor(1.5),
        "empty": torch.empty(0, 3),
        "größe/ü.0\n": torch.ones(1),
        "__not_metadata__": torch.ones(1),
    }
    keep("every_dtype", save(good, metadata={"format": "pt", "note": 'quote" and \u0000'}))
    # The reader knows fewer formats than the writer.
    float8 = {k: t.contiguous() for k, t in kinds.float8().items()}
    store.write("safetensors/float8.safetensors", save(float8))
    store.expect("safetensors/float8", float8)
    keep("nothing", save({}))
    floats = torch.tensor([1.5, -2.0]).numpy().tobytes()
    keep("odd_header_length", raw_file(json.dumps({"w": entry()}).encode() + b" " * 3, floats))
    keep(
        "data_out_of_header_order",
        raw_file({"b": entry(start=8, end=16), "a": entry(start=0, end=8)}, floats + floats[::-1]),
    )
    for dtype, bits in {
        "F4": 4,
        "F6_E2M3": 6,
        "F6_E3M2": 6,
        "C64": 64,
    }.items():
        size = 4 * bits // 8
        refused(
            f"dtype_{dtype.lower()}",
            raw_file({"layer.weight": entry(dtype, (4,), 0, size)}, bytes(range(size))),
            "a dtype that Kiln has no tensors of",
            "layer.weight",
            dtype,
        )
    broken()


def broken() -> None:
    good = entry()
    data = bytes(8)
    hostile("no_bytes", b"", "shorter than a header's length")
    hostile("seven_bytes", bytes(7), "shorter than a header's length")
    hostile("header_beyond_file", raw_file({"w": good}, data, length=1000), "the header is longer than the file")
    hostile("header_of_exabytes", raw_file({"w": good}, data, length=1 << 62), "the header is longer than the file")
    hostile(
        "header_length_overflows",
        raw_file({"w": good}, data, length=(1 << 64) - 1),
        "the header is longer than the file",
    )
    hostile("header_not_json", raw_file(b"{not json}"), "the header is no JSON")
    hostile("header_not_utf8", raw_file(b'{"\xff\xfe": {}}'), "the header is no UTF-8")
    hostile("header_is_list", raw_file(b"[1, 2]"), "the header is no object")
    hostile(
        "header_nested", raw_file(b'{"w":' + b"[" * 50_000 + b"]" * 50_000 + b"}"), "the header is nested without end"
    )
    hostile("entry_is_number", raw_file({"w": 3}, data), "an entry is no object")
    hostile(
        "entry_without_offsets", raw_file({"w": {"dtype": "F32", "shape": [2]}}, data), "an entry lacks its offsets"
    )
    hostile("metadata_not_text", raw_file({"__metadata__": {"a": 1}, "w": good}, data), "metadata holds more than text")
    hostile("unknown_dtype", raw_file({"w": entry("F31")}, data), "no such dtype")
    hostile("offsets_beyond_file", raw_file({"w": entry(shape=(200,), end=800)}, data), "the data lie beyond the file")
    hostile("offsets_reversed", raw_file({"w": entry(start=8, end=0)}, data), "the data end before they start")
    hostile("offsets_negative", raw_file({"w": entry(start=-8, end=0)}, data), "an offset is negative")
    hostile("offsets_overlap", raw_file({"a": entry(), "b": entry()}, data), "two tensors share bytes")
    hostile(
        "offsets_leave_gap",
        raw_file({"a": entry(), "b": entry(start=12, end=20)}, bytes(20)),
        "bytes belong to no tensor",
    )
    hostile("trailing_bytes", raw_file({"w": good}, bytes(16)), "bytes belong to no tensor")
    hostile("shape_unlike_bytes", raw_file({"w": entry(shape=(3,))}, data), "shape and size disagree")
    hostile("shape_overflows", raw_file({"w": entry(shape=(1 << 40, 1 << 40))}, data), "the element count overflows")
    hostile(
        "shape_overflows_to_fit",
        raw_file({"w": entry(shape=(1 << 32, 1 << 32), end=0)}),
        "the element count overflows to zero",
    )
    hostile("shape_negative", raw_file({"w": entry(shape=(-2,))}, data), "a dimension is negative")
    hostile(
        "twice_the_same_key",
        raw_file(
            b'{"w":' + json.dumps(good).encode() + b',"w":' + json.dumps(entry(start=8, end=16)).encode() + b"}",
            bytes(16),
        ),
        "a name twice",
        reference_refuses=False,
    )
    shards()


def shards() -> None:
    """Indexes that point where they should not."""
    weights = save({"a": torch.ones(2)})
    cases = {
        "shard_missing": (
            {"a": "model-1.safetensors", "b": "model-2.safetensors"},
            "a shard is missing",
            "model-2.safetensors",
        ),
        "shards_missing": (
            {k: f"model-{k}.safetensors" for k in "abcd"},
            "most shards are missing",
            "4 of the 4 shards",
        ),
        "shard_without_key": (
            {"a": "model-1.safetensors", "b": "model-1.safetensors"},
            "a shard lacks a tensor that the index promises",
            "b",
        ),
        "shard_outside": (
            {"a": "../../safetensors/every_dtype.safetensors"},
            "a shard lies outside the checkpoint's folder",
            "every_dtype.safetensors",
        ),
        "shard_absolute": ({"a": "/etc/passwd"}, "a shard lies outside the checkpoint's folder", "/etc/passwd"),
        "shard_is_number": ({"a": 7}, "a shard's name is no text", "a"),
    }
    for name, (where, because, mention) in cases.items():
        store.write(f"hostile/{name}/model-1.safetensors", weights)
        store.write(
            f"hostile/{name}/model.safetensors.index.json", json.dumps({"metadata": {}, "weight_map": where}).encode()
        )
        store.refuse(f"hostile/{name}", because, mention)
    twice = b'{"weight_map": {"a": "model-1.safetensors", "a": "model-2.safetensors"}}'
    maps = b'{"weight_map": {"a": "model-1.safetensors"}, "weight_map": {"a": "model-2.safetensors"}}'
    for name, index, mention in (("shard_twice", twice, "twice"), ("shard_two_maps", maps, "two maps")):
        store.write(f"hostile/{name}/model-1.safetensors", weights)
        store.write(f"hostile/{name}/model-2.safetensors", weights)
        store.write(f"hostile/{name}/model.safetensors.index.json", index)
        store.refuse(f"hostile/{name}", "a tensor is in two shards", mention)
    store.write("hostile/shard_index_broken/model.safetensors.index.json", b'{"weight_map": ')
    store.refuse("hostile/shard_index_broken", "the index is no JSON")
