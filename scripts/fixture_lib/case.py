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


def open_session(model: pathlib.Path | bytes) -> ort.InferenceSession:
    """Graph optimizations are off: the plain kernels are the operators' definition, fused ones only close to it."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    source = model if isinstance(model, bytes) else str(model)
    return ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def run(session: ort.InferenceSession, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The outputs in order. `run` of the binding knows no bfloat16, OrtValues do."""
    values = {k: ort.OrtValue.ortvalue_from_numpy(np.asarray(v)) for k, v in feeds.items()}
    return [v.numpy() for v in session.run_with_ort_values([o.name for o in session.get_outputs()], values)]


def write_case(directory: pathlib.Path, model: onnx.ModelProto, data_sets: Sequence[Sequence[np.ndarray]], *,
               reference: onnx.ModelProto | None = None, torch_answers=None, files: dict[str, bytes] = {}) -> None:
    """Replace `directory` by a case: the model, and a data set for each list of inputs.

    `reference` is an equal model for ONNX Runtime where it cannot run `model` itself.
    """
    if directory.exists():
        shutil.rmtree(directory)
    directory.mkdir(parents=True)
    for name, content in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(content)
    path = directory / "model.onnx"
    path.write_bytes(model.SerializeToString(deterministic=True))
    onnx.checker.check_model(str(path), full_check=reference is None)
    session = open_session(reference.SerializeToString() if reference else path)
    initializers = {i.name for i in model.graph.initializer}
    input_names = [i.name for i in model.graph.input if i.name not in initializers]
    for k, inputs in enumerate(data_sets):
        data = directory / f"test_data_set_{k}"
        data.mkdir()
        feeds = dict(zip(input_names, inputs, strict=True))
        wanted = {i.name for i in session.get_inputs()}
        answers = run(session, {n: v for n, v in feeds.items() if n in wanted})
        if torch_answers is not None:
            for got, want in zip(answers, torch_answers[k], strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)
        for i, (name, value) in enumerate(feeds.items()):
            write_tensor(data / f"input_{i}.pb", name, value)
        for i, (output, value) in enumerate(zip(model.graph.output, answers, strict=True)):
            write_tensor(data / f"output_{i}.pb", output.name, value)
    size = sum(f.stat().st_size for f in directory.rglob("*") if f.is_file())
    assert size < SIZE_LIMIT, f"{directory.name}: {size} bytes"
