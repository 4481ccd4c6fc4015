"""A case from a PyTorch module."""

from __future__ import annotations

import numpy as np
import torch

from fixture_lib.export import export_dynamo, export_torchscript, seed_weights
from fixture_lib.registry import Case


def as_arrays(value) -> list[np.ndarray]:
    if isinstance(value, torch.Tensor):
        return [value.detach().numpy()]
    return [array for part in value for array in as_arrays(part)]


def torch_case(module, calls, *, torchscript=False, example=0, seed=0, **kw) -> Case:
    """Export `module` as called with `calls[example]`; every call becomes a data set."""
    module = seed_weights(module, seed)
    with torch.no_grad():
        answers = [as_arrays(module(*args)) for args in calls]
    export = export_torchscript if torchscript else export_dynamo
    return Case(export(module, calls[example], **kw), [as_arrays(args) for args in calls], torch_answers=answers)
