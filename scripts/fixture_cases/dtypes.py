"""Graphs in other types than f32. One operation deep where rounding would otherwise depend on what is fused."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from fixture_lib.graph import BF16, BOOL, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64, Graph
from fixture_lib.registry import Case, case


def normal(rng, dtype, *shape):
    return rng.standard_normal(shape).astype(dtype)


def float_operators(g, x, y, positive, weight, dtype):
    """What every float type should do; `x` [2, 3, 4], `y` [4], `positive` [3], `weight` [4, 5]."""
    kind = {F64: np.float64, F16: np.float16}[dtype]
    for op in ["Add", "Sub", "Mul", "Div", "Max", "Min"]:
        g.show(op.lower(), op, x, y)
    for op in ["Relu", "Exp", "Tanh", "Sigmoid", "Neg", "Abs", "Floor", *(["Erf"] if dtype == F16 else [])]:
        g.show(op.lower(), op, x)
    for op in ["Sqrt", "Log", "Reciprocal"]:
        g.show(op.lower(), op, positive)
    g.show("pow", "Pow", positive, kind(1.5))
    g.show("matmul", "MatMul", x, weight)
    g.show("softmax", "Softmax", x)
    g.show("sum", "ReduceSum", x, [1], keepdims=0)
    g.show("mean", "ReduceMean", x, [-1])
    g.show("largest", "ReduceMax", x, [0, 2])
    g.show("argmax", "ArgMax", x, axis=2)
    g.show("clip", "Clip", x, kind(-0.5), kind(0.5))
    g.show("greater", "Greater", x, y)
    g.show("where", "Where", g.op("Less", x, y), x, kind(0))
    g.show("concat", "Concat", x, x, axis=1)
    g.show("gather", "Gather", x, np.array([2, 0]), axis=1)
    g.show("transpose", "Transpose", x, perm=[2, 0, 1])
    g.show("layer_norm", "LayerNormalization", x, np.ones(4, kind), np.full(4, 0.5, kind))
    g.show("to_float", "Cast", x, to=F32)
    g.show("to_int", "Cast", x, to=I64)


def float_case(rng, name, dtype, kind):
    g = Graph(name, opset=18)
    x, y = g.input("x", dtype, [2, 3, 4]), g.input("y", dtype, [4])
    positive, weight = g.input("positive", dtype, [3]), g.input("weight", dtype, [4, 5])
    float_operators(g, x, y, positive, weight, dtype)
    if dtype == F16:
        image = g.input("image", dtype, [1, 3, 6, 6])
        g.show("conv", "Conv", image, normal(rng, kind, 4, 3, 3, 3), normal(rng, kind, 4), pads=[1] * 4)
        g.show("max_pool", "MaxPool", image, kernel_shape=[2, 2])
        g.show("average_pool", "AveragePool", image, kernel_shape=[2, 2])
        g.show("resize", "Resize", image, None, np.array([1, 1, 2, 2], np.float32))
    arrays = [
        normal(rng, kind, 2, 3, 4),
        normal(rng, kind, 4),
        (np.abs(normal(rng, kind, 3)) + kind(0.25)),
        normal(rng, kind, 4, 5),
    ]
    return Case(g.model(), [[*arrays, *([normal(rng, kind, 1, 3, 6, 6)] if dtype == F16 else [])]])


@case("dtype_f64")
def dtype_f64(rng):
    return float_case(rng, "dtype_f64", F64, np.float64)


@case("dtype_f16")
def dtype_f16(rng):
    return float_case(rng, "dtype_f16", F16, np.float16)


@case("dtype_f16_weights")
def dtype_f16_weights(rng):
    """Weights in half precision, arithmetic in single: each is cast when it is used."""
    g = Graph("dtype_f16_weights", opset=18)
    x = g.input("x", F32, ["n", 6])
    w1, w2 = (g.op("Cast", normal(rng, np.float16, *shape), to=F32) for shape in ((6, 8), (8, 3)))
    h = g.op("Relu", g.op("MatMul", x, w1))
    g.show(
        "y", "Add", g.op("MatMul", h, w2), g.op("Cast", normal(rng, np.float16, 3), to=F32), dtype=F32, dims=["n", 3]
    )
    return Case(g.model(), [[normal(rng, np.float32, 4, 6)]])


BF16_OPERATORS = {
    "add": ("Add", 2),
    "sub": ("Sub", 2),
    "mul": ("Mul", 2),
    "div": ("Div", 2),
    "max": ("Max", 2),
    "relu": ("Relu", 1),
    "neg": ("Neg", 1),
    "exp": ("Exp", 1),
    "tanh": ("Tanh", 1),
    "sigmoid": ("Sigmoid", 1),
    "abs": ("Abs", 1),
    "softmax": ("Softmax", 1),
}


@case("dtype_bf16")
def dtype_bf16(rng):
    """ONNX Runtime's CPU provider computes little in bfloat16: the reference computes in f32 and rounds once."""
    bias = normal(rng, np.float32, 4).astype(ml_dtypes.bfloat16)

    def build(wide):
        g = Graph("dtype_bf16", opset=18)
        kind = F32 if wide else BF16
        g.input("x", kind, [3, 4]), g.input("y", kind, [4]), g.input("m", kind, [4, 2])
        stored = g.op("Cast", bias.astype(np.float32), to=BF16) if wide else g.const(bias)
        stored = g.op("Cast", stored, to=F32) if wide else stored

        def show(label, made, dims, dtype=kind):
            if wide and dtype == F32:
                made = g.op("Cast", g.op("Cast", made, to=BF16), to=F32)
            g.op("Identity", made, out=label)
            g.output(label, dtype, dims)

        for label, (op, operands) in BF16_OPERATORS.items():
            show(label, g.op(op, *["x", "y"][:operands]), [3, 4])
        show("matmul", g.op("MatMul", "x", "m"), [3, 2])
        show("biased", g.op("Add", "x", stored), [3, 4])
        show("sum", g.op("ReduceSum", "x", [1], keepdims=0), [3])
        show("turned", g.op("Transpose", "x", perm=[1, 0]), [4, 3])
        show("joined", g.op("Concat", "x", "x", axis=0), [6, 4])
        show("reshaped", g.op("Reshape", "x", [2, 6]), [2, 6])
        show("picked", g.op("Gather", "x", np.array([2, 0]), axis=0), [2, 4])
        g.show("greater", "Greater", "x", "y", dtype=BOOL, dims=[3, 4])
        g.op("Cast", "x", out="to_f32", to=F32), g.output("to_f32", F32, [3, 4])
        g.op("Cast", "x", out="to_i32", to=I32), g.output("to_i32", I32, [3, 4])
        return g.model()

    arrays = [normal(rng, np.float32, *shape).astype(ml_dtypes.bfloat16) for shape in ((3, 4), (4,), (4, 2))]
    return Case(build(False), [arrays], reference=build(True))


INTEGERS = {
    "i8": (I8, np.int8),
    "i16": (I16, np.int16),
    "i32": (I32, np.int32),
    "i64": (I64, np.int64),
    "u8": (U8, np.uint8),
    "u16": (U16, np.uint16),
    "u32": (U32, np.uint32),
    "u64": (U64, np.uint64),
}


@case("dtype_integers")
def dtype_integers(rng):
    g, arrays = Graph("dtype_integers", opset=18), []
    for label, (dtype, kind) in INTEGERS.items():
        signed = label.startswith("i")
        x, y = g.input(f"{label}_x", dtype, [2, 3]), g.input(f"{label}_y", dtype, [3])
        for op in ["Add", "Mul", "Div", "Mod", "Max", "Min", "Equal", "Less", "GreaterOrEqual"]:
            g.show(f"{label}_{op.lower()}", op, x, y)
        g.show(f"{label}_sub", "Sub", g.op("Max", x, y), y)
        for op in ["Abs", "Neg", "Sign"] if signed else []:
            g.show(f"{label}_{op.lower()}", op, x)
        g.show(f"{label}_where", "Where", g.op("Greater", x, y), x, y)
        g.show(f"{label}_gather", "Gather", x, np.array([1, 1, 0]), axis=0)
        g.show(f"{label}_concat", "Concat", x, x, axis=1)
        g.show(f"{label}_transpose", "Transpose", x)
        g.show(f"{label}_slice", "Slice", x, [-1], [-9], [1], [-2])
        g.show(f"{label}_expand", "Expand", y, [2, 2, 3])
        g.show(f"{label}_to_float", "Cast", x, to=F32)
        for op in ["ReduceSum", "ReduceMax", "ReduceProd"] if label in ("i32", "i64") else []:
            g.show(f"{label}_{op.lower()}", op, x, [1], keepdims=0)
        arrays += [
            np.array([[7, 3, 5], [0, 9, 2]], kind) if not signed else np.array([[7, -7, 5], [-1, 9, -8]], kind),
            np.array([2, 3, 4], kind) if not signed else np.array([2, 3, -3], kind),
        ]
    return Case(g.model(), [arrays], numpy_answers=True)


@case("dtype_integer_products")
def dtype_integer_products(rng):
    g, arrays = Graph("dtype_integer_products", opset=18), []
    for label in ("i32", "i64", "u32", "u64"):
        dtype, kind = INTEGERS[label]
        a, b = g.input(f"{label}_a", dtype, [2, 3]), g.input(f"{label}_b", dtype, [3, 2])
        g.show(f"{label}_matmul", "MatMul", a, b)
        arrays += [rng.integers(0, 50, (2, 3)).astype(kind), rng.integers(0, 50, (3, 2)).astype(kind)]
    for label in ("i32", "i64"):
        g.show(f"{label}_cumsum", "CumSum", f"{label}_a", np.int64(1))
        g.show(f"{label}_sum", "ReduceSum", f"{label}_a", [0])
        g.show(f"{label}_argmin", "ArgMin", f"{label}_a", axis=1) if label == "i32" else None
        g.op("TopK", f"{label}_a", [2], out=[f"{label}_top", f"{label}_top_index"])
        g.output(f"{label}_top"), g.output(f"{label}_top_index")
        g.show(f"{label}_pad", "Pad", f"{label}_a", [0, 1, 1, 0])
        g.show(f"{label}_tile", "Tile", f"{label}_a", [2, 1])
    # Numbers that f32 and f64 cannot hold.
    big = g.input("big", I64, [2])
    arrays.append(np.array([(1 << 53) + 1, -(1 << 62) - 1]))
    g.show("big_plus_one", "Add", big, np.int64(1))
    g.show("big_equal", "Equal", big, np.array([1 << 53, -(1 << 62) - 1]))
    g.show("big_half", "Div", big, np.int64(2))
    return Case(g.model(), [arrays])


@case("dtype_bool")
def dtype_bool(rng):
    g = Graph("dtype_bool", opset=20)
    a, b = g.input("a", BOOL, [2, 3]), g.input("b", BOOL, [3])
    for op in ["And", "Or", "Xor", "Equal"]:
        g.show(op.lower(), op, a, b)
    g.show("not", "Not", a)
    g.show("where", "Where", a, b, np.array([[True], [False]]))
    g.show("concat", "Concat", a, a, axis=0)
    g.show("gather", "Gather", a, np.array([1, 0, 1]), axis=1)
    g.show("transpose", "Transpose", a)
    g.show("reshape", "Reshape", a, [3, 2])
    g.show("expand", "Expand", b, [2, 3])
    g.show("tile", "Tile", a, [1, 2])
    g.show("slice", "Slice", a, [1], [3], [1])
    g.show("any", "ReduceMax", a, [1], keepdims=0)
    g.show("all", "ReduceMin", a, [0], keepdims=0)
    g.show("count", "ReduceSum", g.op("Cast", a, to=I64), keepdims=0)
    g.show("as_float", "Cast", a, to=F32)
    g.show("scalar", "Equal", np.int64(3), g.op("Size", a))
    return Case(g.model(), [[np.array([[1, 0, 1], [0, 0, 1]], bool), np.array([1, 1, 0], bool)]], numpy_answers=True)


@case("dtype_image_bytes")
def dtype_image_bytes(rng):
    """An image as a camera gives it: bytes, channels last, in; a class for each pixel, as a byte, out."""
    g = Graph("dtype_image_bytes", opset=18)
    image = g.input("image", U8, ["batch", "height", "width", 3])
    x = g.op("Div", g.op("Cast", g.op("Transpose", image, perm=[0, 3, 1, 2]), to=F32), np.float32(255))
    x = g.op(
        "Div",
        g.op("Sub", x, np.array([0.485, 0.456, 0.406], np.float32).reshape(1, 3, 1, 1)),
        np.array([0.229, 0.224, 0.225], np.float32).reshape(1, 3, 1, 1),
    )
    x = g.op("Conv", x, normal(rng, np.float32, 4, 3, 3, 3), normal(rng, np.float32, 4), pads=[1] * 4)
    g.show("classes", "Cast", g.op("ArgMax", x, axis=1, keepdims=0), to=U8, dtype=U8, dims=["batch", "height", "width"])
    g.show("scores", "Softmax", x, axis=1, dtype=F32, dims=["batch", 4, "height", "width"])
    return Case(
        g.model(), [[rng.integers(0, 256, (n, h, w, 3)).astype(np.uint8)] for n, h, w in ((1, 5, 6), (2, 4, 3))]
    )


@case("dtype_f16_batch_norm")
def dtype_f16_batch_norm(rng):
    """Halves normalized by parameters of single precision, some of which no half has room for."""

    def build(halves: bool):
        g = Graph("dtype_f16_batch_norm", opset=15)
        x = g.input("x", F16, ["n", 3, 4, 4])
        wide = np.array([2e5, 3e-9, 1.0], np.float32)
        mean = np.array([7e4, 0.0, 0.5], np.float32)
        scale, bias = np.array([900.0, 1e-3, 1.5], np.float32), np.array([1.0, 0.25, -0.5], np.float32)
        operand = x if halves else g.op("Cast", x, to=F32)
        y = g.op("BatchNormalization", operand, scale, bias, mean, wide, epsilon=1e-9)
        g.show("y", "Identity" if halves else "Cast", y, dtype=F16, dims=["n", 3, 4, 4], **({} if halves else {"to": F16}))
        return g.model()

    x = normal(rng, np.float16, 2, 3, 4, 4) * np.array([3e4, 1e-4, 1], np.float16).reshape(3, 1, 1)
    return Case(build(True), [[x]], reference=build(False))
