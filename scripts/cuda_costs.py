#!/usr/bin/env python3
"""What a forward pass asks of a CUDA device, a table row a model, beside the least that it could: launches beside the products, convolutions
and recurrent layers of the file, bytes that kernels move beside those of the weights, inputs and outputs, and the operations of these nodes.
No GPU is needed: the library that stands in for CUDA's (tests/cuda_driver) computes nothing and is only asked.

    pip install onnx numpy
    scripts/cuda_costs.py CASE_DIR... [--floats bf16] [--json FILE]
"""

import argparse
import json
import math
import os
import pathlib
import subprocess

import onnx
from onnx import numpy_helper, shape_inference

ROOT = pathlib.Path(__file__).resolve().parent.parent
PLACE = ROOT / "target/cuda_driver"


def measure(cases, floats):
    packages = ["-p", "kiln-build", "--features", "kiln-build/cli", "-p", "kiln-cuda-driver-tests"]
    subprocess.run(["cargo", "build", "--quiet", *packages], cwd=ROOT, check=True)
    PLACE.mkdir(exist_ok=True)
    for name in ["cuda", "nvrtc", "cublasLt", "cudnn"]:
        link = PLACE / f"lib{name}.so"
        link.unlink(missing_ok=True)
        link.symlink_to("../debug/libkiln_cuda_driver.so")
    (ROOT / "target/tmp/kernels").mkdir(parents=True, exist_ok=True)
    variables = {
        "LD_LIBRARY_PATH": PLACE,
        "KILN_CUDA_CACHE": PLACE / "kernels",
        "KILN_HOST_KERNELS": ROOT / "target/tmp/kernels",
        "KILN_CUDA_DRIVER_DRY": "1",
    }
    environment = os.environ | {name: str(value) for name, value in variables.items()}
    command = [ROOT / "target/debug/kiln", "bench", "--backend", "cuda", "--floats", floats, "--json", *cases]
    printed = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False).stdout
    return {pathlib.Path(row["case"]).name: row for row in map(json.loads, printed.splitlines())}


def dims(value):
    """The sizes of a value; unknown ones count as 1."""
    return [max(dim.dim_value, 1) for dim in value.type.tensor_type.shape.dim]


def multiplications(node, shapes):
    """Multiplications of a node that is a product, a convolution or a recurrent layer; nothing for all others."""
    inputs = [shapes.get(name, []) for name in node.input]
    out = shapes.get(node.output[0], []) if node.output else []
    match node.op_type:
        case "MatMul" | "FusedMatMul":
            return math.prod(out) * inputs[0][-1]
        case "Gemm":
            turned = any(a.name == "transA" and a.i for a in node.attribute)
            return math.prod(out) * inputs[0][0 if turned else 1]
        case "Conv":
            return math.prod(out) * math.prod(inputs[1][1:])
        case "ConvTranspose":
            return math.prod(inputs[0]) * math.prod(inputs[1][1:])
        case "LSTM" | "GRU" | "RNN":
            steps, batch = inputs[0][:2]
            return steps * batch * (math.prod(inputs[1]) + math.prod(inputs[2]))
        case _:
            return None


def bytes_of(tensor, floats):
    """Bytes of a tensor, whose 32-bit floats may be held as others."""
    array = numpy_helper.to_array(tensor)
    return array.nbytes // (2 if array.dtype == "float32" and floats != "f32" else 1)


def least(case, floats):
    """What no forward pass can do without: nodes that compute, megabytes, operations."""
    model = onnx.load(case / "model.onnx")
    sets = sorted(case.glob("test_data_set_*"))
    tensors = {kind: [onnx.load_tensor(path) for path in sorted(sets[0].glob(f"{kind}_*.pb"))] for kind in ("input", "output")}
    names = {tensor.name for tensor in model.graph.initializer}
    # Inputs have the sizes of the data.
    for value, tensor in zip((v for v in model.graph.input if v.name not in names), tensors["input"]):
        for dim, size in zip(value.type.tensor_type.shape.dim, tensor.dims):
            dim.dim_value = size
    # What a file says of its values may name sizes that are known now.
    del model.graph.value_info[:]
    graph = shape_inference.infer_shapes(model, data_prop=True).graph
    shapes = {value.name: dims(value) for value in [*graph.value_info, *graph.input, *graph.output]}
    shapes |= {tensor.name: list(tensor.dims) for tensor in graph.initializer}
    counts = [count for node in graph.node if (count := multiplications(node, shapes)) is not None]
    held = [*graph.initializer, *tensors["input"], *tensors["output"]]
    return len(counts), sum(bytes_of(tensor, floats) for tensor in held) / 1e6, 2 * sum(counts) / 1e9


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="+", type=pathlib.Path)
    parser.add_argument("--floats", choices=["f32", "f16", "bf16"], default="f32")
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    cases = [case.resolve() for case in arguments.cases]
    rows = measure(cases, arguments.floats)
    print("| model | launches | products, convolutions | MB moved | least MB | MB asked for | 10⁹ operations |")
    print("| --- " * 7 + "|")
    for case in cases:
        row = rows[case.name]
        nodes, megabytes, operations = least(case, arguments.floats)
        row |= {"least_launches": nodes, "least_mb": megabytes, "gflop": operations}
        if "error" in row:
            print(f"| {case.name} | {row['error'].splitlines()[0]} | " + " | " * 5)
            continue
        figures = [f"{row['dispatches']:g}", f"{nodes}", f"{row['moved_mb']:.1f}", f"{megabytes:.1f}"]
        figures += [f"{row['requested_mb']:.1f}", f"{operations:.2f}"]
        print(f"| {case.name} | " + " | ".join(figures) + " |")
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1))


main()
