"""Files that end early, and archives that lie about themselves."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib

import torch

from weight_fixtures import formats
from weight_fixtures.opcodes import FOUR, archive, bound, checkpoint, put, storage, tensor, text, zipped_body


def truncated() -> None:
    whole = formats.zip_checkpoint({"weight": torch.arange(64.0), "bias": torch.arange(8.0)})
    legacy = formats.legacy_checkpoint({"weight": torch.arange(64.0), "bias": torch.arange(8.0)})
    tar = formats.tar_checkpoint({"weight": torch.arange(64.0)})
    for label, content in (("zip", whole), ("legacy", legacy), ("tar", tar)):
        for percent in (1, 30, 60, 95):
            if label == "tar" and percent >= 60:
                continue  # only padding is lost
            put(f"truncated_{label}_{percent}", content[: len(content) * percent // 100], "the file ends early")
    body = checkpoint(tensor())
    for at in (3, len(body) // 2, len(body) - 1):
        put(f"truncated_pickle_{at}", archive(body[:at], _0=FOUR), "the pickle ends early")
    put(
        "legacy_count_huge",
        legacy.replace(struct.pack("<q", 64), struct.pack("<q", 1 << 60), 1),
        "a storage longer than the file",
    )
    put("legacy_count_negative", legacy.replace(struct.pack("<q", 64), struct.pack("<q", -64), 1), "a negative count")
    put("tar_entry_huge", with_tar_size(tar, b"storages", 0o77777777777), "an entry longer than the file")


def with_tar_size(content: bytes, name: bytes, size: int) -> bytes:
    data = bytearray(content)
    at = data.index(name + b"\0")
    data[at + 124 : at + 136] = b"%011o\0" % size
    data[at + 148 : at + 156] = b" " * 8
    data[at + 148 : at + 156] = b"%06o\0 " % sum(data[at : at + 512])
    return bytes(data)


def archives() -> None:
    """Zips that lie."""
    body = checkpoint(tensor())
    put("zip_no_pickle", formats.zipped({"archive/version": b"3\n"}), "no data.pkl in it", "data.pkl")
    put("zip_empty", formats.zipped({}), "no data.pkl in it", "data.pkl")
    bound(
        "zip_two_pickles",
        formats.zipped(
            {"a/data.pkl": body, "a/data/0": FOUR, "b/data.pkl": body, "b/data/0": FOUR, "a/version": b"3\n"}
        ),
        "two data.pkl, and no telling which",
    )
    put(
        "zip_escaping_names",
        formats.zipped({"../../data.pkl": body, "../../data/0": FOUR, "../../version": b"3\n"}),
        "names that leave the archive",
    )
    put(
        "zip_bomb_pickle", zipped_body(b"\x80\x02" + bytes(40_000_000)), "forty megabytes of nothing in forty kilobytes"
    )
    bound(
        "zip_bomb_text",
        zipped_body(b"\x80\x02}" + b"X" + struct.pack("<I", 40_000_000) + b"a" * 40_000_000 + b"Ns."),
        "one text of forty megabytes in forty kilobytes",
    )
    zeros = b"\x80\x02}" + text("weight") + tensor(storage(count=10_000_000), size=(10_000_000,)) + b"s."
    bound(
        "zip_bomb_storage",
        formats.zipped(
            {
                "archive/data.pkl": zeros,
                "archive/byteorder": b"little",
                "archive/data/0": bytes(40_000_000),
                "archive/version": b"3\n",
            },
            deflate=True,
        ),
        "a tensor of forty megabytes in forty kilobytes",
    )
    good = archive(body, _0=FOUR)
    put(
        "zip_lies_small",
        patched(zipped_body(b"\x80\x02" + bytes(1_000_000)), "archive/data.pkl", size=64),
        "more data than the directory says",
    )
    put(
        "zip_lies_large", patched(good, "archive/data/0", size=1 << 31, packed=1 << 31), "an entry larger than the file"
    )
    put("zip_outside", patched(good, "archive/data/0", offset=1 << 30), "an entry beyond the file")
    put("zip_overlap", overlapping(), "a thousand entries over the same bytes")
    put("zip_encrypted", patched(good, "archive/data.pkl", flags=1), "an encrypted entry")
    put("zip_method", patched(good, "archive/data.pkl", method=97), "a compression that is not known")
    put(
        "zip_byteorder",
        formats.zipped({"a/data.pkl": body, "a/byteorder": b"middle", "a/data/0": FOUR, "a/version": b"3\n"}),
        "no such byte order",
        "middle",
    )
    put("not_a_checkpoint", b"\x89PNG\r\n\x1a\n" + bytes(100), "no checkpoint at all")
    put("no_bytes_at_all", b"", "no checkpoint at all")
    put("magic_alone", formats.pickled(formats.LEGACY_MAGIC), "the file ends early")


def patched(content: bytes, name: str, *, size=None, packed=None, offset=None, flags=None, method=None) -> bytes:
    """Change fields of an entry: in the central directory, and where it has them in the local header."""
    data = bytearray(content)
    encoded = name.encode()
    at = -1
    while (at := data.find(encoded, at + 1)) >= 0:
        if data[at - 46 : at - 42] == b"PK\x01\x02":
            places = {
                "flags": (at - 38, "<H"),
                "method": (at - 36, "<H"),
                "packed": (at - 26, "<I"),
                "size": (at - 22, "<I"),
                "offset": (at - 4, "<I"),
            }
        elif data[at - 30 : at - 26] == b"PK\x03\x04":
            places = {
                "flags": (at - 24, "<H"),
                "method": (at - 22, "<H"),
                "packed": (at - 12, "<I"),
                "size": (at - 8, "<I"),
            }
        else:
            continue
        for field, value in dict(size=size, packed=packed, offset=offset, flags=flags, method=method).items():
            if value is not None and field in places:
                struct.pack_into(places[field][1], data, places[field][0], value)
    return bytes(data)


def overlapping() -> bytes:
    """A thousand tensors, each with a storage in the directory, all of them the same compressed megabyte."""
    count = 1 << 18
    body = (
        b"\x80\x02}"
        + b"".join(text(f"w{i}") + tensor(storage(key=str(i), count=count), size=(count,)) + b"s" for i in range(1000))
        + b"."
    )
    squeezed = zlib.compressobj(9, zlib.DEFLATED, -15)
    plain = bytes(4 * count)
    packed = squeezed.compress(plain) + squeezed.flush()
    crc = zlib.crc32(plain)
    names = [f"archive/data/{i}".encode() for i in range(1000)]
    out = io.BytesIO(zipped_body(body))
    with zipfile.ZipFile(out) as archive:
        directory_start, comment = archive.start_dir, archive.comment
    start = out.getvalue()[:directory_start]
    directory = out.getvalue()[directory_start : -22 - len(comment)]
    local = (
        b"PK\x03\x04"
        + struct.pack("<HHHHHIIIHH", 20, 0, 8, 0, 33, crc, len(packed), len(plain), len(names[0]), 0)
        + names[0]
    )
    entries = b"".join(
        b"PK\x01\x02"
        + struct.pack(
            "<HHHHHHIIIHHHHHII", 20, 20, 0, 8, 0, 33, crc, len(packed), len(plain), len(n), 0, 0, 0, 0, 0, len(start)
        )
        + n
        for n in names
    )
    directory += entries
    body_end = start + local + packed
    end = b"PK\x05\x06" + struct.pack(
        "<HHHHIIH", 0, 0, 3 + len(names), 3 + len(names), len(directory), len(body_end), 0
    )
    return body_end + directory + end
