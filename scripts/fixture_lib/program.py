"""Write one test case whose model is an exported program of PyTorch.

    <case>/model.pt2
    <case>/test_data_set_<k>/…                  as `case.py` has it; the expected outputs are PyTorch's
"""

from __future__ import annotations

import dataclasses
import pathlib
import shutil
import zipfile
from collections.abc import Sequence

import torch
from onnx import TensorProto, numpy_helper

from fixture_lib.case import SIZE_LIMIT

# What names files of the exporting machine, or differs from one time to the next.
UNWANTED_ENTRIES = ("/data/sample_inputs/model.pt", "/.data/serialization_id")


@dataclasses.dataclass
class Program:
    network: torch.nn.Module
    data_sets: Sequence[Sequence[torch.Tensor]]
    dynamic_shapes: object = None
    # `run_decompositions()`: into the core of ATen's operators, which change nothing in place.
    decomposed: bool = False

    def write(self, directory: pathlib.Path) -> None:
        """Replace `directory` by the case."""
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        network = self.network.eval()
        program = torch.export.export(network, tuple(self.data_sets[0]), dynamic_shapes=self.dynamic_shapes)
        if self.decomposed:
            program = program.run_decompositions()
        save_program(program, directory / "model.pt2")
        for k, inputs in enumerate(self.data_sets):
            data = directory / f"test_data_set_{k}"
            data.mkdir()
            for i, value in enumerate(inputs):
                write_tensor(data / f"input_{i}.pb", value)
            with torch.no_grad():
                outputs = flat(network(*(value.clone() for value in inputs)))
            for i, value in enumerate(outputs):
                write_tensor(data / f"output_{i}.pb", value)
        size = sum(f.stat().st_size for f in directory.rglob("*") if f.is_file())
        assert size < SIZE_LIMIT, f"{directory.name}: {size} bytes"


def save_program(program, path: pathlib.Path) -> None:
    """Save a program such that making it again gives the same bytes."""
    for module in program.graph_module.modules():
        for node in module.graph.nodes:
            node.meta.pop("stack_trace", None)
    torch.export.save(program, path)
    rewrite(path)


def rewrite(path: pathlib.Path) -> None:
    """Keep what a program needs, so that making it again gives the same bytes."""
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if not name.endswith(UNWANTED_ENTRIES)]
        entries = [(name, archive.read(name)) for name in names]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, content in entries:
            archive.writestr(zipfile.ZipInfo(name), content)


def flat(value) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    items = value.values() if isinstance(value, dict) else value
    return [tensor for item in items for tensor in flat(item)]


def write_tensor(path: pathlib.Path, value: torch.Tensor) -> None:
    value = value.detach().contiguous()
    if value.dtype == torch.bfloat16:
        raw = value.view(torch.int16).numpy().tobytes()
        proto = TensorProto(dims=value.shape, data_type=TensorProto.BFLOAT16, raw_data=raw)
    else:
        proto = numpy_helper.from_array(value.numpy())
    path.write_bytes(proto.SerializeToString(deterministic=True))
