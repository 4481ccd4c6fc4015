"""The table of cases: a function for each, found by its decorator."""

from __future__ import annotations

import dataclasses
import pathlib
import zlib
from collections.abc import Callable, Sequence

import numpy as np
import onnx

from fixture_lib.case import FIXTURES, write_case
from fixture_lib.program import Program

Makers = dict[str, tuple[Callable[[np.random.Generator], "Case | Program"], str]]
MAKERS: Makers = {}


@dataclasses.dataclass
class Case:
    model: onnx.ModelProto
    data_sets: Sequence[Sequence[np.ndarray]]
    # An equal model that ONNX Runtime can run, where it cannot run `model`; it may take and give wider types.
    reference: onnx.ModelProto | None = None
    # Whether to ask ONNX's own evaluator instead, for dtypes that ONNX Runtime has no kernels for.
    numpy_answers: bool = False
    # What PyTorch returned for each data set; ONNX Runtime must agree.
    torch_answers: Sequence[Sequence[np.ndarray]] | None = None
    # Whether ONNX's checker is to see the model: it knows ONNX's own operators alone.
    checked: bool = True
    # Files beside the model, by relative path.
    files: dict[str, bytes] = dataclasses.field(default_factory=dict)


def case(name: str, folder: str = "cases"):
    """Register a maker; it gets a random generator of its own, seeded by the case's name."""

    def register(make):
        assert name not in MAKERS, name
        MAKERS[name] = (make, folder)
        return make

    return register


def write(name: str) -> pathlib.Path:
    make, folder = MAKERS[name]
    made = make(np.random.default_rng(zlib.crc32(name.encode())))
    directory = FIXTURES / folder / name if folder else FIXTURES / name
    if isinstance(made, Program):
        made.write(directory)
        return directory
    write_case(
        directory,
        made.model,
        made.data_sets,
        reference=made.reference,
        numpy_answers=made.numpy_answers,
        torch_answers=made.torch_answers,
        checked=made.checked,
        files=made.files,
    )
    return directory
