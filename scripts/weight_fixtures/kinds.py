"""PyTorch files, one for each point that a reader has to get right."""

from __future__ import annotations

import argparse
import collections
import io
import pathlib
import pickle
import pickletools
import types
import typing
import zipfile

import numpy as np
import torch
import torch.package
from torch import nn

from weight_fixtures import formats, store


def keep(name: str, content: bytes, **load) -> None:
    store.write(f"{name}.pt", content)
    store.expect(name, torch.load(store.FOLDER / f"{name}.pt", map_location="cpu", **load))


def refused(name: str, content: bytes, because: str, *mentions: str) -> None:
    store.write(f"{name}.pt", content)
    store.refuse(name, because, *mentions)


def floats(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


INTEGERS = [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32, torch.uint64]


def every_dtype() -> dict:
    values = {
        "f64": floats(2, 3).double(),
        "f32": floats(2, 3),
        "f16": floats(2, 3).half(),
        "bf16": floats(2, 3).bfloat16(),
        "bool": floats(7) > 0,
    }
    for dtype in INTEGERS:
        low, high = torch.iinfo(dtype).min, torch.iinfo(dtype).max
        values[str(dtype).removeprefix("torch.")] = torch.tensor([low, 0, 1, high], dtype=dtype)
    values["special"] = torch.tensor([float("nan"), float("inf"), float("-inf"), -0.0, 1e-45])
    return values


def float8() -> dict:
    """Every bit pattern of every format, also as views."""
    values = {}
    for dtype in store.WIDENED:
        every = torch.arange(256, dtype=torch.uint8).view(dtype).view(16, 16)
        name = str(dtype).removeprefix("torch.float8_")
        values |= {name: every, f"{name}_part": every[2:5, 1:], f"{name}_turned": every.t()}
    return values


UNSUPPORTED = {
    "freqs": "complex numbers (complex64)",
    "conjugate": "conjugated complex numbers",
    "quantized": "a quantized tensor",
    "sparse": "a sparse tensor",
    "bits": "bits without a meaning (bits8)",
}


def unsupported() -> dict:
    return {
        "freqs": floats(2).to(torch.complex64),
        "conjugate": floats(2).to(torch.complex64).conj(),
        "quantized": torch.quantize_per_tensor(floats(3, 2), 0.1, 10, torch.quint8),
        "sparse": floats(3, 3).relu().to_sparse(),
        "bits": torch.arange(4).byte().view(torch.bits8),
    }


def typed_only(values: dict) -> dict:
    """PyTorch itself cannot read the wide unsigned types back from its old formats."""
    return {
        k: v
        for k, v in values.items()
        if not (isinstance(v, torch.Tensor) and v.dtype in (torch.uint16, torch.uint32, torch.uint64))
    }


def views() -> dict:
    base, wide = floats(4, 6), floats(2, 3, 4, 5, seed=2)
    flat = torch.arange(24.0)
    return {
        "base": base,
        "transposed": base.t(),
        "row": base[1],
        "column": base[:, 2],
        "block": base[1:3, 2:5],
        "every_other": base[::2, 1::2],
        "permuted": wide.permute(0, 2, 3, 1),
        "channels_last": wide.contiguous(memory_format=torch.channels_last),
        "expanded": floats(1, 3, seed=3).expand(4, 3),
        "repeated_scalar": torch.tensor(2.5).expand(2, 2),
        "diagonal": base.diagonal(),
        "overlapping": flat.as_strided((4, 3), (2, 1), 5),
        "first_half": flat[:12],
        "second_half": flat[12:].view(3, 4),
        "same": flat,
        "inside": flat[5],
        "empty": torch.empty(0),
        "empty_rows": torch.empty(0, 3),
        "empty_columns": torch.empty(2, 0, 4),
        "empty_view": flat[24:],
        "scalar": torch.tensor(1.25),
        "scalar_int": torch.tensor(-3),
        "ones": torch.ones(1, 1, 1),
        "long_stride_of_one": flat.as_strided((1, 5), (99, 1)),
    }


def plain_data() -> dict:
    """Globals that hold data only: those that PyTorch's own restricted reader takes."""
    return {
        "weight": floats(2),
        "size": torch.Size([2, 3]),
        "dtype": torch.float16,
        "device": torch.device("cpu"),
        "set": {3, 1, 2},
        "bytes": b"\x00\xff",
        "array": bytearray(b"abc"),
        "counter": collections.Counter("aab"),
        "ordered": collections.OrderedDict(b=1, a=2),
        "complex": 1 + 2j,
        "big": 1 << 200,
        "negative": -(1 << 80),
        "long_text": "x" * 300,
        "unicode": "\U0001f980\u0000\n",
        "floats": [0.1, -0.0, 1e308],
        "nested": [[[[]]], ({},), ()],
    }


def namespaces() -> dict:
    """What fairseq, DETR, timm and many scripts put beside the weights."""
    return {
        "model": {"weight": floats(2)},
        "args": argparse.Namespace(lr=0.1, sizes=[1, 2], inner=argparse.Namespace(name="x", tensor=floats(1))),
        "simple": types.SimpleNamespace(epochs=3),
        "path": pathlib.PurePosixPath("/data/run.1/best.pt"),
        "relative": pathlib.PurePosixPath("data/run"),
        "losses": collections.deque([0.5, 0.25], maxlen=4),
    }


class Attributes(dict):
    """A dict whose keys are attributes, too, as Lightning keeps hyperparameters in."""


class Schedule:
    """An object of a class of the script's own, which refers to itself."""

    def __init__(self, **attributes):
        self.__dict__.update(attributes, owner=self)


def objects() -> dict:
    """What trainers leave beside the weights: objects of classes that a reader does not have."""
    return {
        "epoch": 3,
        "state_dict": {"weight": floats(2, 3), "bias": floats(3)},
        "hyper_parameters": Attributes(lr=0.1, schedule=Schedule(steps=[1, 2], of=typing.Any, to=int)),
        "loss": torch.nn.CrossEntropyLoss(weight=floats(3)),
        "optimizer": torch.optim.AdamW,
        "ema": Schedule(weights={"weight": floats(2)}),
    }


def numpy_data() -> dict:
    whole = np.arange(6.0).reshape(2, 3)
    return {
        "weight": floats(2),
        "f64": whole,
        "again": whole,
        "columns_first": np.asfortranarray(whole.astype(np.float32)),
        "i8": np.array([-1, 2], np.int8),
        "f16": np.array([0.5, -2.0], np.float16),
        "bool": np.array([True, False]),
        "big": np.array([1, 2], ">i4"),
        "rank_0": np.array(3.0),
        "empty": np.zeros((0, 2)),
        "texts": np.array(["a", "bc"]),
        "objects": np.array([1, None], dtype=object),
        "scalars": [
            np.float64(1.5),
            np.float32(0.25),
            np.float16(-2.0),
            np.int64(-7),
            np.uint8(200),
            np.int16(-300),
            np.bool_(True),
            np.str_("größe"),
            np.array([5], ">i8")[0],
        ],
        "random": ("MT19937", np.arange(4, dtype=np.uint32), 3, 0, 0.0),
    }


def package() -> bytes:
    """A package of `torch.package`, with its code."""
    archive = io.BytesIO()
    with torch.package.PackageExporter(archive) as exporter:
        exporter.save_pickle("model", "model.pkl", {"weight": [1.0]})
    return archive.getvalue()


def strangers() -> None:
    """Files that are no checkpoints, but have a checkpoint's name."""
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 12345\n"
    archive = io.BytesIO()
    np.savez(archive, weight=np.zeros(2))
    for name, content, *mentions in (
        ("lfs", pointer, "git lfs pull"),
        ("html", b"<!DOCTYPE html>\n<html><title>Not found</title></html>", "web page"),
        ("json", b'{"error": "not found"}', "JSON"),
        ("no_bytes", b"", "empty"),
        ("gzip", b"\x1f\x8b\x08" + bytes(20), "gzip", "unpack"),
        ("hdf5", b"\x89HDF\r\n\x1a\n" + bytes(20), "HDF5"),
        ("gguf", b"GGUF" + bytes(20), "GGUF"),
        ("onnx", b"\x08\x0a\x12\x07pytorch", "an ONNX model", "`.onnx`"),
        ("plain_pickle", pickle.dumps({"weight": [1.0]}, 4), "pickle.dump"),
        ("npz", archive.getvalue(), "NumPy"),
        ("without_folder", repacked(lambda name: name.split("/", 1)[1]), "not in a folder"),
        ("bzip2", repacked(lambda name: name, zipfile.ZIP_BZIP2), "bzip2"),
        ("package", package(), "torch.package", "model.state_dict()"),
    ):
        refused(f"strangers/{name}", content, "it is no checkpoint", *mentions)
    for name, content, mention in (("lfs", pointer, "git lfs pull"), ("html", b"<html></html>", "web page")):
        store.write(f"strangers/{name}_named.safetensors", content)
        store.refuse(f"strangers/{name}_named", "it is no checkpoint", mention)
    # A checkpoint of PyTorch's under the other name.
    content = formats.zip_checkpoint({"weight": floats(2)})
    store.write("pytorch_named.safetensors", content)
    store.expect("pytorch_named", torch.load(io.BytesIO(content)))
    frozen = torch.jit.freeze(torch.jit.script(nn.Linear(2, 2).eval()))
    refused("frozen_torchscript", formats.scripted(frozen), "its parameters are constants", "freeze")


def repacked(rename, compression=zipfile.ZIP_STORED) -> bytes:
    """A checkpoint that another program packed again."""
    out = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(formats.zip_checkpoint({"weight": floats(2)}))) as archive,
        zipfile.ZipFile(out, "w", compression) as copy,
    ):
        for info in archive.infolist():
            copy.writestr(zipfile.ZipInfo(rename(info.filename)), archive.read(info), compression)
    return out.getvalue()


class FromDevice:
    """Pickles a tensor as PyTorch does those of devices whose memory it cannot write."""

    def __init__(self, tensor, numpy=False):
        self.tensor, self.numpy = tensor, numpy

    def __reduce__(self):
        if self.numpy:
            return torch._utils._rebuild_device_tensor_from_numpy, (self.tensor.numpy(), torch.float32, "cpu", False)
        return torch._utils._rebuild_device_tensor_from_cpu_tensor, (self.tensor, torch.float32, "cpu", False)


class Slots:
    """A class of the user's own."""

    def __init__(self):
        self.tensor = floats(2)


def tied() -> dict:
    weight = floats(5, 3)
    return {"embedding.weight": weight, "head.weight": weight, "head.bias": floats(5), "part.weight": weight[1:3]}


def with_attributes() -> dict:
    tensor = floats(2, 2)
    tensor.note = "kept"
    parameter = nn.Parameter(floats(3))
    parameter.group = 1
    return {"tensor": tensor, "parameter": parameter}


def kinds() -> None:
    saved = formats.saved
    keep("dtypes", saved(every_dtype(), "dtypes"))
    keep("dtypes_legacy", formats.legacy_checkpoint(typed_only(every_dtype())))
    keep("float8", saved(float8(), "float8"))
    content = saved({"linear": {"weight": floats(2, 3), "bias": floats(2)}, "other": unsupported()}, "unsupported")
    store.write("unsupported.pt", content)
    about = {f"other.{key}": what for key, what in UNSUPPORTED.items()}
    store.expect("unsupported", torch.load(store.FOLDER / "unsupported.pt", weights_only=False), unsupported=about)
    keep("views", saved(views(), "views"))
    keep("views_legacy", formats.legacy_checkpoint(views()))
    keep("views_tar", formats.tar_checkpoint(views()), weights_only=False)
    keep("tied", saved(tied(), "tied"))
    keep(
        "parameters",
        saved(
            {
                "weight": nn.Parameter(floats(2, 3)),
                "frozen": nn.Parameter(floats(2), requires_grad=False),
                "buffer": nn.Buffer(floats(2)),
                "grad": floats(2).requires_grad_(),
            },
            "parameters",
        ),
    )
    keep("attributes", saved(with_attributes(), "attributes"), weights_only=False)
    keep("ordered_dict", saved(collections.OrderedDict(z=floats(1), a=floats(2)), "ordered"))
    keep("list_of_tensors", saved({"layers": [floats(2), (floats(1), {"deep": floats(3)})]}, "list"))
    keep(
        "odd_keys",
        saved(
            {
                "": floats(1),
                "a.b": floats(2),
                "a/b": floats(3),
                'quote"\n': floats(1),
                "größe": floats(1),
                5: floats(2),
            },
            "keys",
        ),
    )
    keep("plain_data", saved(plain_data(), "plain"))
    keep("no_tensors", saved({"epoch": 3, "config": {"hidden": 4}}, "data"))
    keep("empty", saved({}, "empty"))
    keep("from_device", saved({"numpy": FromDevice(floats(2, 3), numpy=True), "cpu": FromDevice(floats(2))}, "device"), weights_only=False)
    # Storages' types named the device once.
    content = formats.legacy_checkpoint({"weight": floats(2, 3), "count": torch.arange(3)})
    for kind in (b"FloatStorage", b"LongStorage"):
        content = content.replace(b"ctorch\n" + kind, b"ctorch.cuda\n" + kind)
    store.write("legacy_cuda.pt", content)
    store.expect("legacy_cuda", {"weight": floats(2, 3), "count": torch.arange(3)})
    keep("namespace", saved(namespaces(), "namespace"), weights_only=False)
    objects_beside()
    for protocol in (2, 5):
        keep(f"numpy_{protocol}", formats.zip_checkpoint(numpy_data(), protocol=protocol), weights_only=False)
    protocols()
    containers()
    refusals()
    strangers()


def objects_beside() -> None:
    """Objects of classes that a reader does not have: one that holds tensors is said to, and where all do the file is refused."""
    store.write("objects.pt", formats.saved(objects(), "objects"))
    loaded = torch.load(store.FOLDER / "objects.pt", weights_only=False)
    classes = {
        "hyper_parameters": f"{__name__}.Attributes",
        "loss": "torch.nn.modules.loss.CrossEntropyLoss",
        "optimizer": "torch.optim.adamw.AdamW",
        "ema": f"{__name__}.Schedule",
    }
    data = store.as_json({k: v for k, v in loaded.items() if k not in classes}) | classes
    held = {k: f"an object of `{classes[k]}`" for k in ("loss", "ema")}
    store.expect("objects", loaded, data=data, unsupported=held)
    store.write("module.pt", formats.saved({"epoch": 3, "model": torch.nn.Linear(2, 3)}, "module"))
    store.refuse("module", "all tensors are a module's", "torch.nn.modules.linear.Linear", '"model"', "model.state_dict()")


def protocols() -> None:
    """Each protocol's own opcodes, in both formats."""
    value = {
        "weight": floats(2, 3),
        "view": floats(4, 3)[1:].t(),
        "int": torch.arange(3),
        "unsigned": torch.tensor([1, 65535], dtype=torch.uint16),
        "data": {
            "numbers": [0, 1, 255, 256, 65536, -1, 1 << 31, 1 << 63, -(1 << 70), 0.5, True, None],
            "text": ["a", "ü\n\\", "x" * 260],
            "tuples": [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)],
        },
    }
    for protocol in range(6):
        keep(f"protocol_{protocol}", formats.zip_checkpoint(value, protocol=protocol), weights_only=False)
    for protocol in (0, 1, 4):
        keep(
            f"protocol_{protocol}_legacy",
            formats.legacy_checkpoint(typed_only(value), protocol=protocol),
            weights_only=False,
        )


def containers() -> None:
    """The zip around it: byte orders, compression, other names, what older versions left out."""
    value = every_dtype()
    keep("big_endian", formats.zip_checkpoint(value, byteorder="big"))
    keep("no_byteorder", formats.zip_checkpoint(value, byteorder=None))
    keep("deflated", formats.zip_checkpoint(value, deflate=True))
    keep("other_prefix", formats.zip_checkpoint(value, prefix="some folder.v2"))
    keep("from_cuda", formats.zip_checkpoint({"weight": floats(2, 3)}, location="cuda:0"))
    keep("python_2", python_2(value))
    keep("first_rebuild", formats.zip_checkpoint({"weight": FirstRebuild(floats(4, 3)[1:])}))
    # The first legacy files had views of storages: the root, and the view's own key, offset and size.
    root = torch.arange(10.0)
    keep(
        "legacy_storage_view",
        formats.legacy_checkpoint({"whole": root.clone()[:3]}, views={"94000000000000": ("94000000000999", 2, 5)}),
    )


class FirstRebuild:
    """Pickles a tensor as PyTorch before 0.4 did: no word of gradients, none of hooks."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __reduce__(self):
        t = self.tensor
        return torch._utils._rebuild_tensor, (t.storage(), t.storage_offset(), tuple(t.shape), t.stride())


def python_2(value: dict) -> bytes:
    """Python 2 had byte strings where names are now text."""
    with zipfile.ZipFile(io.BytesIO(formats.zip_checkpoint(value))) as archive:
        entries = {i.filename: archive.read(i) for i in archive.infolist()}
    body, out = entries["archive/data.pkl"], b""
    parts = list(pickletools.genops(body))
    for (opcode, argument, start), end in zip(parts, [p[2] for p in parts[1:]] + [len(body)]):
        short = opcode.name == "BINUNICODE" and argument.isascii()
        out += b"U" + bytes([len(argument)]) + argument.encode() if short else body[start:end]
    return formats.zipped(entries | {"archive/data.pkl": out})


def refusals() -> None:
    saved = formats.saved
    refused(
        "complex",
        saved({"weight": floats(2, 2).to(torch.complex64)}, "complex"),
        "complex numbers",
        "weight",
        "complex",
    )
    refused(
        "complex_double",
        saved({"weight": floats(2).to(torch.complex128)}, "complex"),
        "complex numbers",
        "weight",
        "complex",
    )
    refused(
        "conjugate",
        saved({"weight": floats(2).to(torch.complex64).conj()}, "conjugate"),
        "complex numbers",
        "weight",
        "complex",
    )
    refused(
        "quantized",
        saved({"weight": torch.quantize_per_tensor(floats(3, 2), 0.1, 10, torch.quint8)}, "quantized"),
        "a quantized tensor",
        "weight",
        "quant",
    )
    refused(
        "quantized_per_channel",
        saved(
            {
                "weight": torch.quantize_per_channel(
                    floats(3, 2), torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0, 1, 2]), 0, torch.qint8
                )
            },
            "quantized",
        ),
        "a quantized tensor",
        "weight",
        "quant",
    )
    refused(
        "sparse_coo",
        saved({"weight": floats(3, 3).relu().to_sparse()}, "sparse"),
        "a sparse tensor",
        "weight",
        "sparse",
    )
    refused(
        "sparse_csr",
        saved({"weight": floats(3, 3).relu().to_sparse_csr()}, "sparse"),
        "a sparse tensor",
        "weight",
        "sparse",
    )
    refused("meta", saved({"weight": torch.empty(3, device="meta")}, "meta"), "a tensor without data", "weight", "meta")
    refused(
        "own_class",
        saved({"weight": floats(2), "args": Slots()}, "own"),
        "a class of the user's own",
        "weight_fixtures.kinds.Slots",
    )
    refused(
        "numpy_complex",
        saved({"weight": floats(2), "mean": np.zeros(3, np.complex64)}, "numpy"),
        "complex numbers",
        "mean",
        "complex",
    )
    refused(
        "nested_tensor",
        saved({"weight": torch.nested.nested_tensor([floats(2), floats(3)], layout=torch.jagged)}, "nested"),
        "a nested tensor",
        "weight",
        "nested",
    )
    refused("bits", saved({"weight": torch.arange(4).byte().view(torch.bits8)}, "bits"), "no numbers", "weight", "bits8")
    refused(
        "nested_dataclass",
        saved({"model": {"weight": floats(2)}, "config": {"net": Slots()}}, "own"),
        "a class of the user's own, at its path",
        "weight_fixtures.kinds.Slots",
        'key "config.net"',
    )
    refused("bare_tensor", saved(floats(2, 2), "tensor"), "the file holds one tensor and no names")
