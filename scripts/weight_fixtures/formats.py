"""Writers for what `torch.save` no longer writes, or not the same way twice.

Each result is read back by `torch.load` before it is kept.
"""

from __future__ import annotations

import io
import itertools
import pickle
import struct
import tarfile
import zipfile
from collections import OrderedDict

import torch

LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
LEGACY_PROTOCOL = 1001


class StoragePickler(pickle._Pickler):
    """Python's own pickler, with storages taken out, and a persistent id that any protocol can carry."""

    def __init__(self, file, protocol=2, *, location="cpu", first_key=0, views=None):
        super().__init__(file, protocol)
        self.location, self.first_key, self.views = location, first_key, views
        self.storages: OrderedDict[int, tuple[str, torch.UntypedStorage, torch.dtype]] = OrderedDict()

    def persistent_id(self, obj):
        if isinstance(obj, torch.storage.TypedStorage):
            untyped, dtype, kind, count = (
                obj._untyped_storage,
                obj.dtype,
                getattr(torch, obj._pickle_storage_type()),
                obj._size(),
            )
        elif isinstance(obj, torch.UntypedStorage):
            untyped, dtype, kind, count = obj, torch.uint8, torch.storage.UntypedStorage, obj.nbytes()
        else:
            return None
        key = self.storages.setdefault(untyped._cdata, (str(self.first_key + len(self.storages)), untyped, dtype))[0]
        more = () if self.views is None else (self.views.get(key),)
        return ("storage", kind, key, self.location, count, *more)

    def save_pers(self, pid):
        # Protocol 0 has only text ids of its own; mixing in the binary opcode is legal and loads everywhere.
        self.save(pid, save_persistent_id=False)
        self.write(pickle.BINPERSID)


def pickled(value, protocol=2) -> bytes:
    return pickle.dumps(value, protocol=protocol)


def raw(storage: torch.UntypedStorage) -> bytes:
    return bytes(storage)


def swapped(data: bytes, width: int) -> bytes:
    return b"".join(data[i : i + width][::-1] for i in range(0, len(data), width))


def zipped(entries: dict[str, bytes], *, deflate=()) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in entries.items():
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            info.compress_type = zipfile.ZIP_DEFLATED if deflate is True or name in deflate else zipfile.ZIP_STORED
            archive.writestr(info, content)
    return buffer.getvalue()


def zip_checkpoint(
    value, *, protocol=2, byteorder: str | None = "little", prefix="archive", deflate=(), location="cpu"
) -> bytes:
    """The zip format, spelled out entry by entry."""
    buffer = io.BytesIO()
    pickler = StoragePickler(buffer, protocol, location=location)
    pickler.dump(value)
    entries = {f"{prefix}/data.pkl": buffer.getvalue()}
    if byteorder:
        entries[f"{prefix}/byteorder"] = byteorder.encode()
    for key, storage, dtype in pickler.storages.values():
        data = raw(storage)
        entries[f"{prefix}/data/{key}"] = swapped(data, dtype.itemsize) if byteorder == "big" else data
    entries[f"{prefix}/version"] = b"3\n"
    return zipped(entries, deflate=deflate)


def legacy_checkpoint(value, *, protocol=2, views=None) -> bytes:
    """The format before 1.6: five pickles, then each storage with its count. Keys were addresses."""
    out, buffer = io.BytesIO(), io.BytesIO()
    pickler = StoragePickler(buffer, protocol, first_key=94_000_000_000_000, views=views or {})
    pickler.dump(value)
    system = dict(protocol_version=LEGACY_PROTOCOL, little_endian=True, type_sizes=dict(short=2, int=4, long=4))
    for part in (LEGACY_MAGIC, LEGACY_PROTOCOL, system):
        out.write(pickled(part, protocol))
    out.write(buffer.getvalue())
    ordered = sorted(pickler.storages.values(), key=lambda s: s[0])
    out.write(pickled([key for key, _, _ in ordered], protocol))
    for _, storage, dtype in ordered:
        out.write(struct.pack("<q", storage.nbytes() // dtype.itemsize) + raw(storage))
    return out.getvalue()


class TarPickler(pickle._Pickler):
    """Tensors are persistent ids here, and lie in a file of their own."""

    def __init__(self, file):
        super().__init__(file, 2)
        self.tensors: list[torch.Tensor] = []

    def persistent_id(self, obj):
        if isinstance(obj, torch.Tensor):
            self.tensors.append(obj)
            return str(1000 + len(self.tensors) - 1)
        return None


def tar_checkpoint(value) -> bytes:
    """The first format of all (0.1): a tar of `sys_info`, `storages`, `tensors` and `pickle`."""
    body = io.BytesIO()
    pickler = TarPickler(body)
    pickler.dump(value)
    storages, tensors, keys = io.BytesIO(), io.BytesIO(), {}
    for tensor in pickler.tensors:
        keys.setdefault(tensor.untyped_storage()._cdata, (len(keys) + 1, tensor))
    storages.write(pickled(len(keys)))
    for key, tensor in keys.values():
        typed = tensor.storage()
        storages.write(pickled((key, "cpu", type_named(typed._pickle_storage_type()))))
        storages.write(struct.pack("<q", typed._size()) + raw(tensor.untyped_storage()))
    storages.write(pickled([]))
    tensors.write(pickled(len(pickler.tensors)))
    for number, tensor in enumerate(pickler.tensors):
        key = keys[tensor.untyped_storage()._cdata][0]
        kind = type_named(tensor.storage()._pickle_storage_type().replace("Storage", "Tensor"))
        tensors.write(pickled((1000 + number, key, kind)))
        tensors.write(struct.pack("<ii", tensor.dim(), 0))
        tensors.write(
            struct.pack(f"<{tensor.dim()}q", *tensor.shape) + struct.pack(f"<{tensor.dim()}q", *tensor.stride())
        )
        tensors.write(struct.pack("<q", tensor.storage_offset()))
    parts = {
        "sys_info": pickled(dict(protocol_version=1000, little_endian=True, type_sizes=dict(short=2, int=4, long=4))),
        "pickle": body.getvalue(),
        "storages": storages.getvalue(),
        "tensors": tensors.getvalue(),
    }
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:", format=tarfile.PAX_FORMAT) as archive:
        for name, content in parts.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def type_named(name: str):
    return getattr(torch, name)


def saved(value, name: str, **options) -> bytes:
    """`torch.save` under an archive name that does not depend on where the file lies."""
    buffer = io.BytesIO()
    torch.save(value, buffer, **options)
    return buffer.getvalue()


def scripted(module) -> bytes:
    """A TorchScript archive without what changes from run to run, and the debug records, which hold file names."""
    buffer = io.BytesIO()
    torch.jit.save(module, buffer)
    with zipfile.ZipFile(buffer) as archive:
        kept = [i for i in archive.infolist() if not i.filename.endswith((".debug_pkl", "serialization_id"))]
        deflated = {i.filename for i in kept if i.compress_type == zipfile.ZIP_DEFLATED}
        return zipped(
            {i.filename: ordered(archive.read(i)) if i.filename.endswith(".py") else archive.read(i) for i in kept},
            deflate=deflated,
        )


def ordered(code: bytes) -> bytes:
    """A class's constants stand in the order of a Python set."""
    lines = code.split(b"\n")
    constants = [i for i, line in enumerate(lines) if b" : Final[" in line]
    number = itertools.count()
    runs = [list(run) for _, run in itertools.groupby(constants, key=lambda i: i - next(number))]
    for first, last in ((run[0], run[-1] + 1) for run in runs):
        lines[first:last] = sorted(lines[first:last])
    return b"\n".join(lines)
