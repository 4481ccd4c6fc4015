"""Write one test case in the ONNX project's own layout.

    <case>/model.onnx
    <case>/test_data_set_<k>/input_<i>.pb      serialized onnx.TensorProto, in the order of the graph's inputs
    <case>/test_data_set_<k>/output_<i>.pb     the expected outputs, by ONNX Runtime's CPU provider

Maps, and sequences of tensors, are an onnx.SequenceProto. The bytes depend on the arguments alone, so that running a maker again changes nothing.
"""

from __future__ import annotations

import pathlib
import shutil
from collections.abc import Sequence

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

FIXTURES = pathlib.Path(__file__).resolve().parents[2] / "fixtures"
SIZE_LIMIT = 1_000_000


def write_tensor(path: pathlib.Path, name: str, value: np.ndarray | list[dict] | list[np.ndarray]) -> None:
    match value:
        case [dict(), *_]:
            proto = sequence_of_maps(value, name)
        case [np.ndarray(), *_]:
            proto = numpy_helper.from_list(value, name)
        case _:
            proto = numpy_helper.from_array(np.asarray(value), name)
    path.write_bytes(proto.SerializeToString(deterministic=True))


def sequence_of_maps(maps: list[dict], name: str) -> onnx.SequenceProto:
    """Maps from integers or strings to floats: ONNX's own helpers know no keys that are strings."""
    sequence = onnx.SequenceProto(name=name, elem_type=onnx.SequenceProto.MAP)
    for numbers in maps:
        proto = sequence.map_values.add()
        for key in numbers:
            if isinstance(key, str):
                proto.string_keys.append(key.encode())
            else:
                proto.keys.append(key)
        proto.key_type = TensorProto.STRING if proto.string_keys else TensorProto.INT64
        proto.values.elem_type = onnx.SequenceProto.TENSOR
        proto.values.tensor_values.extend(numpy_helper.from_array(np.float32(number)) for number in numbers.values())
    return sequence


def open_session(model: pathlib.Path | bytes) -> ort.InferenceSession:
    """Graph optimizations are off: the plain kernels are the operators' definition, fused ones only close to it."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    source = model if isinstance(model, bytes) else str(model)
    return ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def evaluate_with_runtime(model: onnx.ModelProto, reference: onnx.ModelProto | None, path: pathlib.Path):
    session = open_session(reference.SerializeToString() if reference else path)
    tensor_types = [o.type.tensor_type.elem_type for o in model.graph.output]
    types = [helper.tensor_dtype_to_np_dtype(code) if code else None for code in tensor_types]
    wanted = {i.name: numpy_type(i.type) for i in session.get_inputs()}

    def answer(feeds):
        # A reference may take a wider type than the model: the binding knows no bfloat16.
        values = session.run(None, {n: v.astype(wanted[n]) for n, v in feeds.items() if n in wanted})
        return [np.asarray(v).astype(t) if t else v for v, t in zip(values, types, strict=True)]

    return answer


def numpy_type(text: str) -> np.dtype:
    """What ONNX Runtime calls `tensor(float16)` and the like."""
    name = text.removeprefix("tensor(").removesuffix(")")
    return np.dtype({"float": "float32", "double": "float64", "string": "object"}.get(name, name))


def evaluate_with_numpy(model: onnx.ModelProto):
    evaluator = ReferenceEvaluator(model)
    return lambda feeds: [np.asarray(v) for v in evaluator.run(None, feeds)]


def write_case(
    directory: pathlib.Path,
    model: onnx.ModelProto,
    data_sets: Sequence[Sequence[np.ndarray]],
    *,
    reference: onnx.ModelProto | None = None,
    numpy_answers: bool = False,
    torch_answers=None,
    checked: bool = True,
    files: dict[str, bytes] = {},
) -> None:
    """Replace `directory` by a case: the model, and a data set for each list of inputs. See `registry.Case`."""
    directory.mkdir(parents=True, exist_ok=True)
    for old in directory.iterdir():
        if old.is_dir():
            shutil.rmtree(old)
        elif old.name != "README.md":
            old.unlink()
    for name, content in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(content)
    path = directory / "model.onnx"
    path.write_bytes(model.SerializeToString(deterministic=True))
    if checked:
        onnx.checker.check_model(str(path), full_check=reference is None)
    answer = evaluate_with_numpy(model) if numpy_answers else evaluate_with_runtime(model, reference, path)
    initializers = {i.name for i in model.graph.initializer}
    input_names = [i.name for i in model.graph.input if i.name not in initializers]
    for k, inputs in enumerate(data_sets):
        data = directory / f"test_data_set_{k}"
        data.mkdir()
        feeds = {n: np.asarray(v) for n, v in zip(input_names, inputs, strict=True)}
        answers = answer(feeds)
        if torch_answers is not None:
            for got, want in zip(answers, torch_answers[k], strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)
        for i, (name, value) in enumerate(feeds.items()):
            write_tensor(data / f"input_{i}.pb", name, value)
        for i, (output, value) in enumerate(zip(model.graph.output, answers, strict=True)):
            write_tensor(data / f"output_{i}.pb", output.name, value)
    size = sum(f.stat().st_size for f in directory.rglob("*") if f.is_file())
    assert size < SIZE_LIMIT, f"{directory.name}: {size} bytes"
