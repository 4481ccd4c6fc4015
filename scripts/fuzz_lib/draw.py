"""Graphs drawn at random, node by node; each node is run at once, so that the next one knows shapes and values."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from fixture_lib.case import open_session
from fixture_lib.graph import Graph

MOST_ELEMENTS = 4096


class Refused(Exception):
    """ONNX Runtime does not run a node: it was drawn in vain."""


class Draw:
    """A graph under construction, with what each of its values is for the inputs drawn so far."""

    def __init__(self, seed: int, opset: int):
        self.random = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.graph = Graph(f"fuzz_{seed}", opset=opset)
        self.values: dict[str, np.ndarray] = {}
        self.inputs: list[np.ndarray] = []

    # ---- numbers ----

    def array(self, shape: Sequence[int], dtype=np.float32, special: bool = True) -> np.ndarray:
        """Ordinary numbers, with a zero or another special one among them now and then."""
        dtype = np.dtype(dtype)
        if dtype == bool:
            return self.numbers.integers(0, 2, shape).astype(bool)
        if dtype.kind in "iu":
            low = 0 if dtype.kind == "u" else -9
            return self.numbers.integers(low, 10, shape).astype(dtype)
        values = (self.numbers.standard_normal(shape) * self.random.choice([0.5, 1, 4])).astype(dtype)
        if special and values.size and self.random.random() < 0.2:
            values.flat[self.random.randrange(values.size)] = self.random.choice([0, -1, 1, np.inf, -np.inf, np.nan])
        return values

    def sizes(self, rank: int, most: int = 5) -> list[int]:
        return [self.random.choice([1, *range(2, most + 1)]) for _ in range(rank)]

    # ---- values ----

    def input(self, array: np.ndarray, fixed: Sequence[int] = ()) -> str:
        """An input, some of whose axes have sizes that only the run tells; those in `fixed` have not."""
        name = f"x{len(self.inputs)}"
        free = [axis not in fixed and self.random.random() < 0.3 for axis in range(array.ndim)]
        dims = [f"{name}_{axis}" if free[axis] else size for axis, size in enumerate(array.shape)]
        self.graph.input(name, helper.np_dtype_to_tensor_dtype(array.dtype), dims)
        self.inputs.append(array)
        self.values[name] = array
        return name

    def constant(self, array) -> str:
        name = self.graph.const(array)
        self.values[name] = np.asarray(array)
        return name

    def pick(self, accepts) -> str | None:
        """A value that there is and that `accepts`, newer ones more often."""
        fitting = [name for name, value in self.values.items() if accepts(value)]
        if not fitting:
            return None
        return self.random.choices(fitting, weights=range(1, len(fitting) + 1))[0]

    def value(self, dtype=np.float32, rank: int | None = None) -> str:
        """One that there is, or a new input."""
        fits = lambda v: v.dtype == dtype and v.size > 0 and (v.ndim > 0 if rank is None else v.ndim == rank)
        found = self.pick(fits) if self.random.random() < 0.7 else None
        rank = self.random.randint(1, 4) if rank is None else rank
        return found or self.input(self.array(self.sizes(rank), dtype))

    def partner(self, name: str) -> str:
        """Something of the same dtype that broadcasts with a value."""
        value = self.values[name]
        same = lambda v: v.dtype == value.dtype and broadcasts(v.shape, value.shape)
        found = self.pick(same) if self.random.random() < 0.4 else None
        if found:
            return found
        skipped = self.random.randint(0, value.ndim)
        shape = [1 if self.random.random() < 0.3 else size for size in value.shape[skipped:]]
        array = self.array(shape, value.dtype)
        return self.constant(array) if self.random.random() < 0.6 else self.input(array)

    # ---- nodes ----

    def op(self, op_type: str, *operands, out: int = 1, **attributes) -> str | list[str]:
        """Appends a node and runs it. Operands are names, arrays, or `None`."""
        names = [
            "" if v is None else v if isinstance(v, str) else self.constant(np.asarray(v)) for v in operands
        ]
        before = len(self.graph.nodes)
        outs = self.graph.op(op_type, *[name or None for name in names], out=out, **attributes)
        listed = [outs] if isinstance(outs, str) else outs
        try:
            results = run_node(self.graph.nodes[-1], self.values, self.graph.opset)
            if any(r.size > MOST_ELEMENTS for r in results):
                raise Refused("too large")
        except Refused:
            del self.graph.nodes[before:]
            raise
        self.values.update(zip(listed, results, strict=True))
        return outs

    def model(self) -> onnx.ModelProto:
        """With every value as an output that no other node uses, and a few that are used."""
        used = {name for node in self.graph.nodes for name in [*node.input, *outer_names(node)]}
        made = [name for node in self.graph.nodes for name in node.output]
        shown = [n for n in made if n in self.values and (n not in used or self.random.random() < 0.15)]
        for name in shown:
            value = self.values[name]
            self.graph.output(name, helper.np_dtype_to_tensor_dtype(value.dtype), [None] * value.ndim)
        return self.graph.model()


def broadcasts(a: Sequence[int], b: Sequence[int]) -> bool:
    return all(x == y or 1 in (x, y) for x, y in zip(reversed(a), reversed(b)))


def outer_names(node: onnx.NodeProto) -> list[str]:
    """What the graphs in a node use of those around them."""
    found = []
    for attribute in node.attribute:
        graph = attribute.g
        own = {value.name for value in [*graph.input, *graph.initializer]}
        own |= {name for inner in graph.node for name in inner.output}
        used = [name for inner in graph.node for name in [*inner.input, *outer_names(inner)]]
        found += [name for name in [*used, *(output.name for output in graph.output)] if name and name not in own]
    return found


def run_node(node: onnx.NodeProto, values: dict[str, np.ndarray], opset: int) -> list[np.ndarray]:
    names = [name for name in dict.fromkeys([*node.input, *outer_names(node)]) if name]
    info = lambda name: helper.make_tensor_value_info(
        name, helper.np_dtype_to_tensor_dtype(values[name].dtype), values[name].shape
    )
    constants = [numpy_helper.from_array(values[name], name) for name in names]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output]
    graph = helper.make_graph([node], "node", [info(name) for name in names], outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    try:
        return [np.asarray(v) for v in open_session(model.SerializeToString()).run(None, {})]
    except Exception as error:
        raise Refused(str(error)) from error
