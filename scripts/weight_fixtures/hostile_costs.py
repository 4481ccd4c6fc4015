"""Small files that ask for much work: what is shared in a pickle and met again and again, and zips about themselves.

Each pickle is legal, deflates to some kilobytes, and would take a careless reader minutes or gigabytes.
"""

from __future__ import annotations

import io
import struct
import tarfile
import zipfile

from weight_fixtures import formats
from weight_fixtures.opcodes import FOUR, archive, bound, call, checkpoint, glob, integer, put, storage, tensor, text
from weight_fixtures.opcodes import zipped_body


def costs() -> None:
    shared()
    repeated()
    zips()


def small(value: int) -> bytes:
    return b"J" + struct.pack("<i", value)


def get(index: int) -> bytes:
    return b"j" + struct.pack("<I", index)


def keep(index: int) -> bytes:
    return b"r" + struct.pack("<I", index)


def shared() -> None:
    """Containers that are there once and are met on many ways."""
    leaves = {
        "cost_paths": (b"}" + text("weight") + tensor() + b"s", "a tensor"),
        "cost_paths_to_set": (b"\x8f(" + tensor() + b"\x90", "a set, whose tensor has no path"),
        "cost_paths_to_key": (b"}" + tensor() + b"K\x01s", "a tensor that is a key and has no path"),
        "cost_paths_to_replaced": (b"}(" + text("1") + tensor() + b"K\x01Nu", "a tensor whose name is another's, and which has no path"),
    }
    for name, (leaf, what) in leaves.items():
        bomb = b"\x80\x02" + leaf + keep(0) + b"0"
        for level in range(1, 41):
            bomb += b"}(" + text("a") + get(level - 1) + text("b") + get(level - 1) + b"u" + keep(level) + b"0"
        bound(name, zipped_body(bomb + get(40) + b".", {"archive/data/0": FOUR}), f"two to the fortieth paths to {what}")
    module = glob("__torch__", "M") + b")\x81"
    listed = b"\x80\x02" + module + b"}" + text("l") + b"]" + tensor() + b"asb" + keep(0) + b"0"
    for level in range(1, 41):
        listed += module + b"}(" + text("a") + get(level - 1) + text("b") + get(level - 1) + b"ub" + keep(level) + b"0"
    script = {"archive/data/0": FOUR, "archive/constants.pkl": b"\x80\x02)."}
    bound("cost_paths_to_listed", zipped_body(listed + get(40) + b".", script), "two to the fortieth paths to a script module's list, which has no path")
    wide = b"\x80\x02}(" + b"".join(small(i) + b"N" for i in range(100_000)) + text("w") + tensor() + b"u" + keep(0) + b"0"
    wide += b"}(" + b"".join(small(i) + get(0) for i in range(20_000)) + b"u."
    bound("cost_wide", zipped_body(wide, {"archive/data/0": FOUR}), "a wide dict in twenty thousand places")
    long = b"\x80\x02" + text("x" * 60_000) + keep(0) + b"0}("
    long += b"".join(get(0) + small(i) + b"\x86N" for i in range(300_000)) + text("w") + tensor() + b"u."
    bound("cost_keys", zipped_body(long, {"archive/data/0": FOUR}), "one long text in three hundred thousand keys")
    put(
        "cost_name",
        zipped_body(b"\x80\x02c" + b"m" * 5_000_000 + b"\n" + b"n" * 5_000_000 + b"\n)R."),
        "a name of ten megabytes, in an error that is to be read",
        "mmmm",
    )


def repeated() -> None:
    """Cheap instructions over something large."""
    tuple_ = b"\x80\x02(" + b"N" * 1_000_000 + b"t" + keep(0) + b"0"
    first = glob("torch.serialization", "_get_layout") + keep(1) + b"0"
    calls = (get(1) + get(0) + b"R0") * 200_000
    put("cost_arguments", zipped_body(tuple_ + first + calls + b"N."), "a million arguments, two hundred thousand times")
    marks = b"\x80\x02}(" + b"".join(small(i) + b"N" for i in range(200_000)) + b"u" + keep(0) + b"0"
    one = call("torch._utils", "_rebuild_tensor_v2", storage(), integer(0), b")", b")", b"\x89", b"N", get(0)) + b"0"
    put("cost_marks", zipped_body(marks + one * 50_000 + b"}.", {"archive/data/0": FOUR}), "a large dict of marks on each tensor")
    storages = b"".join(storage(count=i) + b"0" for i in range(200_000))
    bound("cost_storages", zipped_body(b"\x80\x02" + storages + b"}."), "one storage in two hundred thousand sizes")
    digits = b"\x8b" + struct.pack("<i", 1700) + b"\x7f" * 1700 + b"0"
    put("cost_integers", zipped_body(b"\x80\x02" + digits * 3_000 + b"}."), "long integers, which take time to print")
    put("cost_stack", zipped_body(b"\x80\x02" + b"(" * 9_000 + b"}" * 1_000_000 + b"R"), "an error above a million dicts")
    stranger = glob("package.tools", "Part") + keep(0) + b"0"
    nested = (get(0) + b")\x81") * 100_000 + b"b" * 99_999
    bound(
        "cost_nested_strangers",
        zipped_body(b"\x80\x02" + stranger + b"}(" + text("part") + nested + text("w") + tensor() + b"u.", {"archive/data/0": FOUR}),
        "a hundred thousand objects that are not known, each in the next",
    )
    shared = get(0) + b")\x81" + keep(1) + b"0]" + keep(2) + b"(" + b"N" * 100_000 + b"e0"
    parts = b"".join(small(i) + get(0) + b")\x81" + get(2) + b"b" for i in range(100_000))
    bound(
        "cost_shared_by_strangers",
        zipped_body(b"\x80\x02" + stranger + shared + b"}(" + parts + b"u.", {"archive/data/0": FOUR}),
        "a hundred thousand objects that are not known, of one long list",
    )
    put("cost_nodes", zipped_body(b"\x80\x02" + b"]0" * 9_000_000 + b"N."), "nine million lists")
    put("cost_memo", zipped_body(b"\x80\x02N" + b"\x94" * 9_000_000 + b"."), "nine million memos of one value")
    inner = glob("torch._utils", "_rebuild_parameter") + keep(0) + b"0(" + tensor() + b"N" * 500_000 + b"t" + keep(1) + b"0"
    outer = glob("torch._tensor", "_rebuild_from_type_v2") + b"(" + get(0) + glob("torch", "Tensor") + get(1) + b"NtR0"
    put("cost_from_type", zipped_body(b"\x80\x02" + inner + outer * 10_000 + b"N."), "half a million arguments inside of arguments")
    # Sixteen million letters that are zero.
    letters = b"B" + struct.pack("<I", 64_000_000) + bytes(64_000_000)
    shared = letters + keep(0) + b"0" + call("numpy", "dtype", text("U1")) + keep(1) + b"0"
    scalar = glob("numpy.core.multiarray", "scalar") + keep(2) + b"0"
    body = b"\x80\x02" + shared + scalar + (get(2) + get(1) + get(0) + b"\x86R0") * 20_000 + b"N."
    put("cost_scalars", zipped_body(body), "a long text, twenty thousand times", "too many values")
    put("cost_tar", tar_of_references(), "one tensor of many dims, a hundred thousand times")


def tar_of_references() -> bytes:
    """A tar whose pickle names one tensor of sixty-four dims again and again."""
    return tar(b"\x80\x02" + text("1000") + keep(0) + b"0" + b"h\x00Q0" * 100_000 + b"}.", rank=64)


def tar(body: bytes, rank: int = 1, storages: int = 1, tensors: int = 1) -> bytes:
    """A tar of one storage and one tensor of so many dims, each written so many times."""
    storage_of = formats.pickled((1, "cpu", formats.type_named("FloatStorage"))) + struct.pack("<q", 4) + FOUR
    dims = struct.pack("<ii", rank, 0) + struct.pack(f"<{rank}q", *[1] * rank) * 2 + struct.pack("<q", 0)
    tensor_of = formats.pickled((1000, 1, formats.type_named("FloatTensor"))) + dims
    parts = {
        "sys_info": formats.pickled({"protocol_version": 1000}),
        "pickle": body,
        "storages": formats.pickled(storages) + storage_of * storages + formats.pickled([]),
        "tensors": formats.pickled(tensors) + tensor_of * tensors,
    }
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:", format=tarfile.PAX_FORMAT) as made:
        for name, content in parts.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            made.addfile(info, io.BytesIO(content))
    return out.getvalue()


def zips() -> None:
    """Zips with two entries of a name, sizes of 64 bits, strange names and comments."""
    body = checkpoint(tensor())
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as made:
        for name, content in (
            ("archive/data.pkl", body),
            ("archive/data.pkl", checkpoint(call("os", "system", text("touch /tmp/kiln-was-here")))),
            ("archive/data/0", FOUR),
            ("archive/version", b"3\n"),
        ):
            made.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), content)
    put("zip_same_name", out.getvalue(), "two entries of one name, which readers choose between in different ways", "same name")
    put("zip64_same_name", counted_in_64_bits(out.getvalue()), "the same, where the number of entries has 64 bits", "same name")
    named = b"\x80\x02}" + text("w") + text("1000") + b"Qs."
    put("tar_same_storage", tar(named, storages=2), "two storages of one key in a tar", "twice")
    put("tar_same_tensor", tar(named, tensors=2), "two tensors of one number in a tar", "twice")
    link = io.BytesIO()
    with zipfile.ZipFile(link, "w") as made:
        info = zipfile.ZipInfo("archive/data.pkl", (1980, 1, 1, 0, 0, 0))
        info.external_attr, info.create_system = 0o120777 << 16, 3
        made.writestr(info, b"/etc/passwd")
        made.writestr(zipfile.ZipInfo("archive/version", (1980, 1, 1, 0, 0, 0)), b"3\n")
    put("zip_link", link.getvalue(), "a pickle that is a link to a file of the system")
    put("zip64_sizes", zip64(body, 1 << 62), "an entry of four exabytes")
    put("zip64_offset", zip64(body, len(body), offset=1 << 63), "a header beyond any file")
    names = {f"{name}/data.pkl": body for name in ("/etc", "..", "a/b", "C:", "con\\x")}
    put("zip_names", formats.zipped(names), "folders that are none")
    good = archive(body, _0=FOUR)
    bound("zip_comment", good[:-2] + struct.pack("<H", 60_000) + b"PK\x05\x06" * 15_000, "a comment full of ends of archives")


def counted_in_64_bits(archive: bytes) -> bytes:
    """An archive whose last record leaves it to the one of 64 bits to count the entries and to say where they are."""
    at = len(archive) - 22
    count, size, start = struct.unpack_from("<HII", archive, at + 10)
    record = b"PK\x06\x06" + struct.pack("<QHHIIQQQQ", 44, 45, 45, 0, 0, count, count, size, start)
    locator = b"PK\x06\x07" + struct.pack("<IQI", 0, at, 1)
    last = b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    return archive[:at] + record + locator + last


def zip64(body: bytes, size: int, offset: int = 0) -> bytes:
    """An archive of one entry whose size and place are given in 64 bits."""
    name = b"archive/data.pkl"
    local = b"PK\x03\x04" + struct.pack("<HHHHHIIIHH", 45, 0, 0, 0, 33, 0, 0xFFFFFFFF, 0xFFFFFFFF, len(name), 20)
    local += name + struct.pack("<HHQQ", 1, 16, size, size) + body
    extra = struct.pack("<HHQQQ", 1, 24, size, size, offset)
    directory = b"PK\x01\x02" + struct.pack(
        "<HHHHHHIIIHHHHHII", 45, 45, 0, 0, 0, 33, 0, 0xFFFFFFFF, 0xFFFFFFFF, len(name), len(extra), 0, 0, 0, 0, 0xFFFFFFFF
    )
    directory += name + extra
    end = struct.pack("<QHHIIQQQQ", 44, 45, 45, 0, 0, 1, 1, len(directory), len(local))
    locator = b"PK\x06\x07" + struct.pack("<IQI", 0, len(local) + len(directory), 1)
    last = b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, 1, 1, len(directory), len(local), 0)
    return local + directory + b"PK\x06\x06" + end + locator + last
