"""Write one test case in the ONNX project's own layout.

    <case>/model.onnx
    <case>/test_data_set_<k>/input_<i>.pb      serialized onnx.TensorProto, in the order of the graph's inputs
    <case>/test_data_set_<k>/output_<i>.pb     what ONNX Runtime's CPU provider returns

The bytes depend on the arguments alone, so that running a maker again changes nothing.
"""
from __future__ import annotations

import pathlib
import shutil
from collections.abc import Sequence

import numpy as np
import onnx
import onnxruntime as ort
from onnx import numpy_helper

FIXTURES = pathlib.Path(__file__).resolve().parents[2] / "fixtures"
SIZE_LIMIT = 1_000_000


def write_tensor(path: pathlib.Path, name: str, value: np.ndarray) -> None:
    path.write_bytes(numpy_helper.from_array(np.asarray(value), name).SerializeToString(deterministic=True))


def run_reference(model: pathlib.Path, inputs: Sequence[np.ndarray]) -> tuple[dict, dict]:
    """The feeds by name and ONNX Runtime's answers by name.

    Graph optimizations are off: the plain kernels are the operators' definition, fused ones only close to it.
    """
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    feeds = {i.name: x for i, x in zip(session.get_inputs(), inputs, strict=True)}
    names = [o.name for o in session.get_outputs()]
    return feeds, dict(zip(names, session.run(names, feeds)))


def write_case(directory: pathlib.Path, model: onnx.ModelProto, data_sets: Sequence[Sequence[np.ndarray]]) -> None:
    """Replace `directory` by a case: the model, and a data set for each list of inputs."""
    if directory.exists():
        shutil.rmtree(directory)
    directory.mkdir(parents=True)
    onnx.checker.check_model(model, full_check=False)
    (directory / "model.onnx").write_bytes(model.SerializeToString(deterministic=True))
    write_data_sets(directory, data_sets)


def write_data_sets(directory: pathlib.Path, data_sets: Sequence[Sequence[np.ndarray]]) -> None:
    for k, inputs in enumerate(data_sets):
        data = directory / f"test_data_set_{k}"
        data.mkdir(exist_ok=True)
        feeds, answers = run_reference(directory / "model.onnx", inputs)
        for kind, tensors in (("input", feeds), ("output", answers)):
            for i, (name, value) in enumerate(tensors.items()):
                write_tensor(data / f"{kind}_{i}.pb", name, value)
    size = sum(f.stat().st_size for f in directory.rglob("*") if f.is_file())
    assert size < SIZE_LIMIT, f"{directory.name}: {size} bytes"
