"""How a file may say things: initializers, constants, external data, odd but legal graphs, hostile names."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from fixture_lib.graph import BF16, BOOL, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64, Graph
from fixture_lib.registry import Case, case


def floats(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


TYPED = {
    "f32": F32,
    "f64": F64,
    "f16": F16,
    "i8": I8,
    "i16": I16,
    "i32": I32,
    "i64": I64,
    "u8": U8,
    "u16": U16,
    "u32": U32,
    "u64": U64,
    "bool": BOOL,
}


@case("initializers")
def initializers(rng):
    """Every dtype, as raw bytes and in its typed field; initializers that are also inputs, or outputs, or unused."""
    g = Graph("initializers", opset=18)
    x = g.input("x", F32, [2, 3])
    for label, dtype in TYPED.items():
        values = (
            rng.integers(0, 2, (2, 3))
            if label == "bool"
            else rng.integers(0 if label.startswith("u") else -100, 100, (2, 3))
        )
        array = values.astype(helper.tensor_dtype_to_np_dtype(dtype))
        raw = numpy_helper.from_array(array, f"{label}_raw")
        typed = helper.make_tensor(f"{label}_typed", dtype, array.shape, array.flatten())
        assert raw.HasField("raw_data") and not typed.HasField("raw_data")
        g.initializers += [raw, typed]
        for form in ("raw", "typed"):
            g.show(f"{label}_{form}_sum", "Add", x, g.op("Cast", f"{label}_{form}", to=F32))
    bfloat = helper.make_tensor("bf16_typed", BF16, [3], np.array([1.5, -2.0, 0.125]))
    g.initializers.append(bfloat)
    g.show("bf16_sum", "Add", x, g.op("Cast", "bf16_typed", to=F32))
    g.const(np.float32(4), "scalar")
    g.const(np.zeros((0, 3), np.float32), "empty")
    g.show("scalar_sum", "Add", x, "scalar")
    g.show("empty_concat", "Concat", "empty", x, axis=0)
    g.const(floats(rng, 100), "unused")
    g.output(g.const(np.arange(4), "constant_output"), I64, [4])
    # An initializer that is also an input is that input's default.
    g.input("bias", F32, [3])
    g.const(np.array([1, 2, 3], np.float32), "bias")
    g.show("biased", "Add", x, "bias")
    return Case(g.model(), [[floats(rng, 2, 3)]])


@case("constants")
def constants(rng):
    """Constant nodes of every kind."""
    g = Graph("constants", opset=18)
    x = g.input("x", F32, [2, 3])
    kinds = dict(
        value_float=1.5,
        value_floats=[1.0, 2.0, 3.0],
        value_int=3,
        value_ints=[1, 2, 3],
        value=numpy_helper.from_array(floats(rng, 3)),
    )
    for kind, value in kinds.items():
        constant = g.op("Constant", **{kind: value})
        g.show(f"with_{kind}", "Add", x, g.op("Cast", constant, to=F32))
    values = helper.make_tensor("values", F32, [2], [5.0, -1.0])
    for label, indices, shape in [("flat", [1, 5], [2]), ("points", [0, 2, 1, 0], [2, 2])]:
        tensor = onnx.SparseTensorProto(
            values=values, indices=helper.make_tensor("indices", I64, shape, indices), dims=[2, 3]
        )
        g.show(f"sparse_{label}", "Add", x, g.op("Constant", sparse_value=tensor))
    g.show("output", "Constant", value_ints=[4, 5])
    return Case(g.model(), [[floats(rng, 2, 3)]])


@case("graph_forms")
def graph_forms(rng):
    """Inputs handed through, one value twice, nodes and inputs without use, chains of identities."""
    g = Graph("graph_forms", opset=18)
    x, _ = g.input("x", F32, ["n", 4]), g.input("unused", F32, [7])
    g.output(x, F32, ["n", 4])
    g.op("Exp", g.op("Neg", x), out="dead")
    y = g.op("Relu", g.op("Identity", g.op("Identity", x)), out="y")
    g.output("y")
    g.show("also_y", "Identity", y)
    g.show("same_twice", "Add", g.op("Mul", x, np.float32(2)), g.op("Mul", x, np.float32(2)))
    g.show("there_and_back", "Transpose", g.op("Transpose", x, perm=[1, 0]), perm=[1, 0])
    g.show("neutral", "Add", g.op("Mul", g.op("Div", x, np.float32(1)), np.float32(1)), np.zeros(4, np.float32))
    # Equal, but of another shape: this one is not neutral.
    g.show("grown", "Add", x, np.zeros((2, 1, 4), np.float32))
    g.show("reshaped_twice", "Reshape", g.op("Reshape", x, [-1]), [-1, 4], dtype=F32, dims=["n", 4])
    g.show("cast_and_back", "Cast", g.op("Cast", x, to=I64), to=F32)
    g.show("constant_folded", "Mul", x, g.op("Sqrt", g.op("Add", np.float32(3), np.float32(1))))
    return Case(g.model(), [[floats(rng, 3, 4), floats(rng, 7)], [floats(rng, 1, 4), floats(rng, 7)]])


@case("empty_tensors")
def empty_tensors(rng):
    """A batch of nothing."""
    g = Graph("empty_tensors", opset=18)
    x = g.input("x", F32, ["n", 4])
    h = g.op("Relu", g.op("MatMul", x, floats(rng, 4, 3)))
    g.show("y", "Softmax", g.op("Add", h, floats(rng, 3)), dtype=F32, dims=["n", 3])
    g.show("sum", "ReduceSum", x, [0], keepdims=0)
    g.show("product", "ReduceProd", x, [0], keepdims=0)
    g.show("joined", "Concat", x, x, axis=0, dtype=F32, dims=[None, 4])
    g.show("flat", "Reshape", x, [-1], dtype=F32, dims=[None])
    g.show("turned", "Transpose", x)
    g.show("count", "Shape", x)
    return Case(g.model(), [[np.zeros((0, 4), np.float32)], [floats(rng, 2, 4)]])


@case("no_inputs")
def no_inputs(rng):
    """Everything is constant."""
    g = Graph("no_inputs", opset=18)
    w = g.const(floats(rng, 3, 3), "w")
    g.show("y", "MatMul", w, w)
    g.show("shape", "Shape", w)
    return Case(g.model(), [[]])


@case("external_data")
def external_data(rng):
    """Weights in files beside the model: shared, at offsets, without a length, in a folder below."""
    g = Graph("external_data", opset=18)
    x = g.input("x", F32, ["n", 4])
    arrays = {"w1": floats(rng, 4, 6), "b1": floats(rng, 6), "w2": floats(rng, 6, 2)}
    shared = b"\0" * 64 + arrays["w1"].tobytes() + b"\0" * 32 + arrays["b1"].tobytes()
    places = {
        "w1": dict(location="weights.bin", offset="64", length="96"),
        "b1": dict(location="weights.bin", offset="192", length="24"),
        "w2": dict(location="more/w2.bin"),
    }
    for name, place in places.items():
        tensor = TensorProto(name=name, data_type=F32, dims=arrays[name].shape, data_location=TensorProto.EXTERNAL)
        for key, value in place.items():
            tensor.external_data.add(key=key, value=value)
        g.initializers.append(tensor)
    h = g.op("Relu", g.op("Gemm", x, "w1", "b1"))
    g.show("y", "MatMul", h, "w2", dtype=F32, dims=["n", 2])
    return Case(g.model(), [[floats(rng, 3, 4)]], files={"weights.bin": shared, "more/w2.bin": arrays["w2"].tobytes()})


HOSTILE = [
    'quote"d',
    "new\nline",
    "type",
    "self",
    "crate",
    "Self",
    "fn",
    "async",
    "*/ evil(); /*",
    "// comment",
    "größe",
    "重み",
    "🦀",
    "../../etc/passwd",
    "C:\\weights",
    "a/b/c",
    "a.b.c",
    "a b c",
    "a_b_c",
    "a-b-c",
    "1st",
    "_",
    "__",
    "\0nul",
    "${HOME}",
    "{}",
    "#[doc]",
    "r#type",
    "'static",
    "\u202etxet",
    "e\u0301",
    "é",
    "x" * 10_000,
    "Option",
    "Vec",
    "Tensor",
    "forward",
    "device",
    "input",
    "\\",
    "\r\n",
    " ",
    "\t",
]

# What ends literals, and markers of the printer, as names of parameters that stand alone.
ATTACKS = [
    "__kiln_list([]",
    "]), __intruder!(), __kiln_list([",
    '"]), __intruder!(), vec![("',
    '__kiln_tail!("',
    "__kiln_blank!();",
]


@case("hostile_names", folder="")
def hostile_names(rng):
    """Names that are no identifiers, or keywords, fall together when cleaned, or try to break out of their place."""
    g = Graph('graph"; compile_error!("name escaped"); //', opset=18)
    x = g.input('in"put\n*/', F32, ['batch"*/', 4])
    flag = g.input("let", F32, ['batch"*/', 4])
    value = x
    for k, name in enumerate(HOSTILE):
        weight = g.const(floats(rng, 4, 4) * 0.5 if k % 3 == 0 else floats(rng, 4), f"{name}")
        # Outputs' names fall together with the weights' once punctuation is gone.
        value = g.op("MatMul" if k % 3 == 0 else "Add", value, weight, out=f"{name}.", name=f"{name}" if k % 5 else "")
        if k % 4 == 0:
            value = g.op("Tanh", value, out=f"{name}/", name=f"{name}/")
    for name in ATTACKS:
        value = g.op("Add", g.op("Tanh", value), g.const(floats(rng, 4), name))
    g.show('y*/ }} "', "Add", value, flag, dtype=F32, dims=['batch"*/', 4])
    g.show("Self..", "Relu", value, dtype=F32, dims=['batch"*/', 4])
    model = g.model()
    scopes = ["", 'layer"0', 'layer"0.../x', "*/"]
    for k, node in enumerate(model.graph.node):
        node.doc_string = '*/ """ \n'
        node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=repr(scopes[: 1 + k % 4] + [node.name]))
        node.metadata_props.add(
            key="pkg.torch.onnx.class_hierarchy",
            value=repr(["evil.Self", 'x.Layer"', "x.fn", "x.1st", ""][: 1 + k % 4] + ["aten.add"]),
        )
    model.doc_string = "*/ fn main() {} /*"
    model.producer_name = "\n#![feature(evil)]"
    return Case(model, [[floats(rng, 2, 4), floats(rng, 2, 4)], [floats(rng, 1, 4), floats(rng, 1, 4)]])


class Scoped(Graph):
    """A graph whose nodes belong to modules, as PyTorch's exporter says it."""

    def __init__(self, *args, **kw):
        super().__init__(*args, **kw)
        self.scopes: dict[str, tuple[list[str], list[str]]] = {}

    def within(self, paths: list[str], classes: list[str], op_type: str, *operands, **kw) -> str:
        out = self.op(op_type, *operands, **kw)
        self.scopes[self.nodes[-1].name] = (["", *paths], ["Net", *classes])
        return out

    def scoped_model(self):
        model = self.model()
        for node in model.graph.node:
            paths, classes = self.scopes.get(node.name, ([""], ["Net"]))
            node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=repr([*paths, node.name]))
            node.metadata_props.add(key="pkg.torch.onnx.class_hierarchy", value=repr([*classes, "aten.op"]))
        return model


@case("names_of_twins")
def names_of_twins(rng):
    """Functions and an input that are called like the asynchronous twins of others."""
    g = Scoped("names_of_twins", opset=18)
    x, other = g.input("x", F32, [4, 4]), g.input("pick_async", F32, [4, 4])

    def pick(path, class_name, value, label, dim, axis):
        scope = [path], [class_name]
        a = g.within(*scope, "MatMul", value, value)
        b = g.within(*scope, "Softmax", a, axis=axis)
        if axis == 0:
            b = g.within(*scope, "CumSum", b, np.int64(0))
        c = g.within(*scope, "MatMul", g.within(*scope, "Softmax", b, axis=0), a)
        g.output(g.within(*scope, "NonZero", c, out=label), I64, [2, dim])

    value = g.op("Add", other, x)
    for n, (class_name, of) in enumerate([("Pick", value), ("Pick", x), ("PickAsync", value), ("PickAsync", x)]):
        pick(f"part{n}", class_name, of, f"found{n}", f"n{n}", 0 if "Async" in class_name else 1)
    g.show("product", "Mul", other, value)
    return Case(g.scoped_model(), [[floats(rng, 4, 4), floats(rng, 4, 4)]])


@case("scopes_without_tensors")
def scopes_without_tensors(rng):
    """Modules and functions that get a size and no tensor, and make some: on the device of a layer, or of who calls them."""
    g = Scoped("scopes_without_tensors", opset=18)
    x = g.input("x", F32, ["batch", "length", 8])
    length = g.op("Squeeze", g.op("Shape", x, start=1, end=2))

    def numbers(scope, first):
        end = g.within(*scope, "Add", length, np.int64(first))
        counted = g.within(*scope, "Range", np.int64(first), end, np.int64(1))
        return g.within(*scope, "Unsqueeze", g.within(*scope, "Cast", counted, to=F32), [1])

    scope, linear = (["positions"], ["Positions"]), "torch.nn.modules.linear.Linear"
    value = numbers(scope, 0)
    for n, sizes in enumerate([(16, 1), (8, 16)]):
        path = f"positions.fc{n}"
        weight, bias = g.const(floats(rng, *sizes), f"{path}.weight"), g.const(floats(rng, sizes[0]), f"{path}.bias")
        value = g.within(["positions", path], ["Positions", linear], "Gemm", value, weight, bias, transB=1)
        if n == 0:
            value = g.within(*scope, "MatMul", g.within(*scope, "Softmax", value, axis=0), floats(rng, 16, 16))
            value = g.within(*scope, "Softmax", g.within(*scope, "Sin", value), axis=1)
    x = g.op("Add", x, value)
    for n in range(2):
        scope = [f"waves{n}"], ["Waves"]
        value = numbers(scope, 1 + n)
        for _ in range(3):
            value = g.within(*scope, "Mul", g.within(*scope, "Sin", value), g.within(*scope, "Softmax", value, axis=0))
        x = g.op("Add", g.op("Tanh", x), value)
    g.show("y", "Relu", x, dtype=F32, dims=["batch", "length", 8])
    return Case(g.scoped_model(), [[floats(rng, 2, 5, 8)], [floats(rng, 1, 1, 8)]])


@case("names_in_loops")
def names_in_loops(rng):
    """What loops of source without a runtime call their variables are inputs, one of them read again after a loop, and an output."""
    g = Graph("names_in_loops", opset=18)
    x, y, a = g.input("x", F32, [1]), g.input("y", F32, [1, 4]), g.input("a", F32, [1])
    g.show("copied", "Expand", x, [8])
    g.show("read_again", "Exp", x)
    column = g.op("Slice", y, [0], [1], [1])
    g.show("computed", "Softmax", g.op("Expand", g.op("Neg", g.op("Tanh", column)), [1, 8]))
    g.show("i", "Gemm", y, floats(rng, 4, 3))
    g.show("x2", "Add", g.op("Expand", a, [3]), g.op("Expand", x, [3]))
    mask = np.tril(np.ones((24, 24), bool))
    g.show("masked", "Where", mask, g.op("Expand", a, [24, 24]), np.float32(-2))
    return Case(g.model(), [[floats(rng, 1), floats(rng, 1, 4), floats(rng, 1)]])
