"""A small builder for ONNX graphs written by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, TensorProto, TypeProto, ValueInfoProto, helper, numpy_helper

F16, BF16, F32, F64 = TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.FLOAT, TensorProto.DOUBLE
I8, I16, I32, I64 = TensorProto.INT8, TensorProto.INT16, TensorProto.INT32, TensorProto.INT64
U8, U16, U32, U64 = TensorProto.UINT8, TensorProto.UINT16, TensorProto.UINT32, TensorProto.UINT64
BOOL, STRING = TensorProto.BOOL, TensorProto.STRING


class Graph:
    """Collects nodes; operands may be names, `None` (left out), or anything NumPy can make an array of."""

    def __init__(self, name: str = "graph", opset: int = 18, outer: Graph | None = None):
        self.name, self.opset, self.outer = name, opset, outer
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[TensorProto] = []
        self.inputs: list[ValueInfoProto] = []
        self.outputs: list[tuple[str, int | None, Sequence | None]] = []
        self.functions: list[onnx.FunctionProto] = []
        self.domains: dict[str, int] = {}
        self.counter = 0

    def fresh(self, stem: str) -> str:
        root = self
        while root.outer is not None:
            root = root.outer
        root.counter += 1
        return f"{stem}_{root.counter}"

    def input(self, name: str, dtype: int, dims: Sequence | None) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, dtype, dims))
        return name

    def const(self, value, name: str | None = None) -> str:
        name = name or self.fresh("const")
        self.initializers.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def operand(self, value) -> str:
        if value is None:
            return ""
        if isinstance(value, str):
            return value
        if isinstance(value, (list, tuple)) and all(isinstance(v, int) for v in value):
            value = np.array(value, np.int64)
        return self.const(value)

    def op(
        self,
        op_type: str,
        *operands,
        out: str | Sequence[str] | int = 1,
        domain: str = "",
        name: str | None = None,
        **attributes,
    ):
        """Append a node. `out` names the outputs, or counts them; the answer is one name or a list."""
        inputs = [self.operand(v) for v in operands]
        if isinstance(out, int):
            outs = [self.fresh(op_type.lower()) for _ in range(out)]
        else:
            outs = [out] if isinstance(out, str) else list(out)
        node = helper.make_node(op_type, inputs, outs, domain=domain, **attributes)
        node.name = self.fresh("node") if name is None else name
        if domain:
            self.domains.setdefault(domain, 1)
        self.nodes.append(node)
        return outs[0] if isinstance(out, str) or out == 1 else outs

    def output(self, name: str, dtype: int | None = None, dims: Sequence | None = None) -> str:
        self.outputs.append((name, dtype, dims))
        return name

    def show(self, label: str, op_type: str, *operands, dtype: int | None = None, dims=None, **attributes) -> str:
        """A node whose only output is the graph's output `label`."""
        self.op(op_type, *operands, out=label, **attributes)
        return self.output(label, dtype, dims)

    def subgraph(self, name: str) -> Graph:
        return Graph(name, self.opset, self)

    def proto(self, known: dict[str, ValueInfoProto] | None = None) -> GraphProto:
        outputs = []
        for name, dtype, dims in self.outputs:
            if isinstance(dtype, TypeProto):
                outputs.append(helper.make_value_info(name, dtype))
            elif dtype is not None:
                outputs.append(helper.make_tensor_value_info(name, dtype, dims))
            elif known is not None:
                assert name in known, f"no type was inferred for output {name}"
                info = ValueInfoProto()
                info.CopyFrom(known[name])
                info.name = name
                outputs.append(info)
            else:
                outputs.append(ValueInfoProto(name=name))
        return helper.make_graph(self.nodes, self.name, self.inputs, outputs, self.initializers)

    def model(self) -> ModelProto:
        # That of its time, so that an old model is old all over.
        ir_version = helper.find_min_ir_version_for([helper.make_opsetid("", self.opset)])
        if ir_version < 4:  # initializers had to be inputs then
            named = {v.name for v in self.inputs}
            self.inputs += [
                helper.make_tensor_value_info(t.name, t.data_type, t.dims)
                for t in self.initializers
                if t.name not in named
            ]
        opsets = [helper.make_opsetid("", self.opset), *(helper.make_opsetid(d, v) for d, v in self.domains.items())]
        kw = dict(opset_imports=opsets, functions=self.functions, ir_version=ir_version, producer_name="kiln-fixtures")
        bare = Graph(self.name, self.opset)
        bare.nodes, bare.initializers, bare.inputs = self.nodes, self.initializers, self.inputs
        inferred = onnx.shape_inference.infer_shapes(helper.make_model(bare.proto(), **kw), data_prop=True)
        known = {v.name: v for v in [*inferred.graph.value_info, *self.inputs]}
        return helper.make_model(self.proto(known), **kw)
