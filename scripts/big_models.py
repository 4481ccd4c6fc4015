"""Make two models of more than 2 GB with their weights beside them, to measure what converting them takes.

usage: python scripts/big_models.py DIR [MB]

`rewritten/model.onnx` is a stack of `Gemm` with `transB`, as PyTorch's exporter writes linear layers: every weight has to be
transposed. `untouched/model.onnx` is a stack of `MatMul`, whose weights stay as they are. Each has MB (2200) megabytes of
weights in `weights.bin`.

Then `scripts/convert_memory.sh DIR/*/model.onnx` converts them and prints the peak memory.
"""

import argparse
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

SIDE = 5120


def weight(name: str, offset: int) -> TensorProto:
    """A tensor whose contents lie in `weights.bin`."""
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[SIDE, SIDE])
    tensor.data_location = TensorProto.EXTERNAL
    entries = {"location": "weights.bin", "offset": str(offset), "length": str(SIDE * SIDE * 4)}
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)
    return tensor


def make(folder: Path, layers: int, transposed: bool) -> None:
    """Write one model and its weights, layer by layer."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    nodes, weights, value = [], [], "x"
    with (folder / "weights.bin").open("wb") as file:
        for layer in range(layers):
            weights.append(weight(f"layers.{layer}.weight", file.tell()))
            # One row, turned a little further for each row: no two rows or layers are equal, and it is quick.
            row = random.standard_normal(2 * SIDE, dtype=np.float32) / SIDE**0.5
            for start in range(SIDE):
                file.write(row[start : start + SIDE].tobytes())
            result = f"h{layer}" if layer + 1 < layers else "y"
            names = [value, weights[-1].name]
            if transposed:
                nodes.append(helper.make_node("Gemm", names, [result], name=f"gemm_{layer}", transB=1))
            else:
                nodes.append(helper.make_node("MatMul", names, [result], name=f"matmul_{layer}"))
            value = result
    port = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", SIDE])
    graph = helper.make_graph(nodes, folder.name, [port("x")], [port("y")], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    (folder / "model.onnx").write_bytes(model.SerializeToString())


def main() -> None:
    """Read the arguments and write both models."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("megabytes", type=int, nargs="?", default=2200, metavar="MB")
    arguments = parser.parse_args()
    layers = -(-arguments.megabytes * 1_000_000 // (SIDE * SIDE * 4))
    make(arguments.folder / "rewritten", layers, transposed=True)
    make(arguments.folder / "untouched", layers, transposed=False)
    onnx.checker.check_model(str(arguments.folder / "untouched" / "model.onnx"))


if __name__ == "__main__":
    main()
