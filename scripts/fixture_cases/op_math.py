"""Elementwise operators, products, reductions, Einsum."""

from __future__ import annotations

import numpy as np

from fixture_lib.graph import BF16, BOOL, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64, Graph
from fixture_lib.registry import Case, case


def floats(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


@case("op_unary")
def unary(rng):
    g = Graph("unary", opset=20)
    x, p, u = g.input("x", F32, ["n", 7]), g.input("positive", F32, [2, 3]), g.input("unit", F32, [5])
    for op in [
        "Abs",
        "Neg",
        "Floor",
        "Ceil",
        "Round",
        "Exp",
        "Erf",
        "Sigmoid",
        "Tanh",
        "Relu",
        "Sign",
        "Identity",
        "Softplus",
        "Softsign",
        "HardSwish",
        "Mish",
        "Sin",
        "Cos",
        "Tan",
        "Atan",
        "Sinh",
        "Cosh",
        "Asinh",
        "Selu",
        "Gelu",
        "Elu",
        "Celu",
        "LeakyRelu",
        "HardSigmoid",
        "ThresholdedRelu",
    ]:
        g.show(op.lower(), op, x)
    for op in ["Sqrt", "Log", "Reciprocal"]:
        g.show(op.lower(), op, p)
    g.show("acosh", "Acosh", g.op("Add", p, np.float32(1)))
    for op in ["Asin", "Acos", "Atanh"]:
        g.show(op.lower(), op, u)
    g.show("elu_alpha", "Elu", x, alpha=0.3)
    g.show("celu_alpha", "Celu", x, alpha=2.5)
    g.show("selu_both", "Selu", x, alpha=1.2, gamma=0.7)
    g.show("leaky_alpha", "LeakyRelu", x, alpha=0.2)
    g.show("hard_sigmoid_both", "HardSigmoid", x, alpha=0.4, beta=0.3)
    g.show("thresholded_alpha", "ThresholdedRelu", x, alpha=0.5)
    g.show("gelu_tanh", "Gelu", x, approximate="tanh")
    g.show("shrink", "Shrink", x, bias=0.3, lambd=0.8)
    g.show("prelu", "PRelu", x, floats(rng, 7))
    g.show("prelu_one", "PRelu", x, np.array([0.3], np.float32))
    odd = np.array([np.nan, np.inf, -np.inf, 0.0, 1.0], np.float32)
    o = g.input("odd", F32, [5])
    g.show("is_nan", "IsNaN", o)
    g.show("is_inf", "IsInf", o)
    g.show("is_inf_negative", "IsInf", o, detect_positive=0)
    halves = np.array([[-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.0]], np.float32)
    return Case(
        g.model(),
        [
            [x, np.abs(floats(rng, 2, 3)) + np.float32(0.1), rng.uniform(-0.9, 0.9, 5).astype(np.float32), odd]
            for x in (floats(rng, 3, 7) * 2, halves)
        ],
    )


@case("op_binary")
def binary(rng):
    """Broadcasting in every direction, integers that truncate, and the variadic ones."""
    g = Graph("binary", opset=18)
    x, row, column = g.input("x", F32, ["n", 3, 4]), g.input("row", F32, [4]), g.input("column", F32, [3, 1])
    scalar, i, j = g.input("scalar", F32, []), g.input("i", I64, [8]), g.input("j", I64, [8])
    for op in ["Add", "Sub", "Mul", "Div"]:
        g.show(f"{op.lower()}_row", op, x, row)
        g.show(f"{op.lower()}_column", op, column, x)
        g.show(f"{op.lower()}_scalar", op, x, scalar)
        g.show(f"{op.lower()}_outer", op, row, column)
        g.show(f"{op.lower()}_int", op, i, j)
    positive = g.op("Abs", x)
    g.show("pow", "Pow", positive, row)
    g.show("pow_square", "Pow", x, np.float32(2))
    g.show("pow_cube_int_exponent", "Pow", x, np.int64(3))
    g.show("pow_half", "Pow", positive, np.array([0.5], np.float32))
    g.show("pow_int", "Pow", i, np.array([2], np.int64))
    g.show("mod_int", "Mod", i, j)
    g.show("fmod_int", "Mod", i, j, fmod=1)
    g.show("fmod_float", "Mod", x, row, fmod=1)
    for op in ["Min", "Max", "Sum", "Mean"]:
        g.show(f"{op.lower()}_one", op, x)
        g.show(f"{op.lower()}_three", op, row, x, column)
    g.show("min_int", "Min", i, j)
    g.show("max_int", "Max", i, j, np.int64(0))
    a, b = g.op("Greater", x, np.float32(0)), g.op("Less", row, np.float32(0.5))
    for op in ["And", "Or", "Xor", "Equal"]:
        g.show(f"{op.lower()}_bool", op, a, b)
    g.show("not", "Not", a)
    for op in ["Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"]:
        g.show(f"{op.lower()}_int", op, i, j)
        g.show(f"{op.lower()}_float", op, x, column)
    u = g.op("Cast", i, to=U32)
    for op in ["BitwiseAnd", "BitwiseOr", "BitwiseXor"]:
        g.show(f"{op.lower()}", op, i, j)
    g.show("bitwisenot", "BitwiseNot", i)
    g.show("shift_left", "BitShift", u, np.array([3], np.uint32), direction="LEFT")
    g.show("shift_right", "BitShift", u, np.array([2], np.uint32), direction="RIGHT")
    g.show("where", "Where", a, x, column)
    g.show("where_broadcast", "Where", b, np.float32(1), x)
    g.show("where_int", "Where", g.op("Greater", i, j), i, np.int64(-1))
    ints = np.array([7, -7, 7, -7, 0, 5, -9, 1 << 40]), np.array([3, 3, -3, -3, 5, 5, 2, 3])
    return Case(
        g.model(),
        [
            [floats(rng, n, 3, 4), np.abs(floats(rng, 4)) + np.float32(0.2), floats(rng, 3, 1), np.float32(1.5), *ints]
            for n in (2, 1)
        ],
    )


@case("op_clip")
def clip(rng):
    g = Graph("clip", opset=13)
    x, i, low, high = (
        g.input("x", F32, [3, 4]),
        g.input("i", I64, [6]),
        g.input("low", F32, []),
        g.input("high", F32, []),
    )
    g.show("both", "Clip", x, np.float32(-0.5), np.float32(0.5))
    g.show("neither", "Clip", x)
    g.show("min_only", "Clip", x, np.float32(0.1))
    g.show("max_only", "Clip", x, None, np.float32(0.1))
    g.show("from_inputs", "Clip", x, low, high)
    g.show("crossed", "Clip", x, np.float32(0.5), np.float32(-0.5))
    g.show("ints", "Clip", i, np.int64(-2), np.int64(3))
    g.show("bytes", "Clip", g.op("Cast", g.op("Abs", i), to=U8), np.uint8(1), np.uint8(4))
    return Case(
        g.model(), [[floats(rng, 3, 4), np.arange(-3, 6, dtype=np.int64)[:6], np.float32(-0.2), np.float32(0.9)]]
    )


@case("op_matmul_gemm")
def matmul_gemm(rng):
    g = Graph("matmul_gemm", opset=13)
    a, b, v, w = g.input("a", F32, [3, 4]), g.input("b", F32, [4, 5]), g.input("v", F32, [4]), g.input("w", F32, [3])
    batch, other = g.input("batch", F32, ["n", 3, 4]), g.input("other", F32, [2, 1, 4, 5])
    i, j = g.input("i", I32, [2, 3]), g.input("j", I32, [3, 2])
    g.show("matrices", "MatMul", a, b)
    g.show("matrix_vector", "MatMul", a, v)
    g.show("vector_matrix", "MatMul", w, a)
    g.show("vectors", "MatMul", v, v, dtype=F32, dims=[])
    g.show("batch_matrix", "MatMul", batch, b)
    g.show("batch_vector", "MatMul", batch, v)
    g.show("batches", "MatMul", batch, other)
    g.show("constant", "MatMul", batch, floats(rng, 4, 6))
    g.show("constant_batch", "MatMul", a, floats(rng, 2, 4, 3))
    g.show("ints", "MatMul", i, j)
    g.show("gemm", "Gemm", a, b)
    g.show("gemm_bias", "Gemm", a, b, floats(rng, 5))
    g.show("gemm_bias_column", "Gemm", a, b, floats(rng, 3, 1), alpha=0.5, beta=2.0)
    g.show("gemm_bias_scalar", "Gemm", a, b, np.float32(1.5), alpha=0.5)
    g.show("gemm_bias_matrix", "Gemm", a, b, floats(rng, 3, 5), beta=0.5)
    g.show("gemm_trans_a", "Gemm", a, floats(rng, 3, 2), transA=1)
    g.show("gemm_trans_b", "Gemm", a, floats(rng, 6, 4), floats(rng, 6), transB=1)
    g.show("gemm_trans_both", "Gemm", b, floats(rng, 3, 4), floats(rng, 1, 3), transA=1, transB=1, alpha=1.5, beta=0.0)
    ints = rng.integers(-9, 9, (2, 3)).astype(np.int32), rng.integers(-9, 9, (3, 2)).astype(np.int32)
    return Case(
        g.model(),
        [
            [
                floats(rng, 3, 4),
                floats(rng, 4, 5),
                floats(rng, 4),
                floats(rng, 3),
                floats(rng, n, 3, 4),
                floats(rng, 2, 1, 4, 5),
                *ints,
            ]
            for n in (2, 1)
        ],
    )


REDUCTIONS = [
    "ReduceSum",
    "ReduceMean",
    "ReduceMax",
    "ReduceMin",
    "ReduceProd",
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceSumSquare",
]


@case("op_reduce")
def reduce(rng):
    g = Graph("reduce", opset=20)
    x, axes = g.input("x", F32, ["n", 3, 4, 2]), g.input("axes", I64, [1])
    i = g.input("i", I32, [3, 4])
    for op in REDUCTIONS:
        label = op.removeprefix("Reduce").lower()
        g.show(f"{label}_all", op, x, keepdims=0)
        g.show(f"{label}_kept", op, x, [1, -1])
        g.show(f"{label}_last", op, x, [-1], keepdims=0)
        g.show(f"{label}_first", op, x, [0], keepdims=0)
        g.show(f"{label}_noop", op, x, np.array([], np.int64), noop_with_empty_axes=1, dtype=F32, dims=["n", 3, 4, 2])
        g.show(f"{label}_axes_left_out", op, x, noop_with_empty_axes=0)
    g.show("sum_empty_means_all", "ReduceSum", x, np.array([], np.int64), noop_with_empty_axes=0, keepdims=1)
    g.show("noop_left_out", "ReduceSum", x, noop_with_empty_axes=1)
    g.show("sum_axes_from_input", "ReduceSum", x, axes, keepdims=1, dtype=F32, dims=[None] * 4)
    for op in ["ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceMean"]:
        g.show(f"{op.lower()}_int", op, i, [1], keepdims=0)
    positive = g.op("Greater", x, np.float32(0))
    g.show("any", "ReduceMax", positive, [2], keepdims=0)
    g.show("all", "ReduceMin", positive, [2], keepdims=0)
    for op in ["ArgMax", "ArgMin"]:
        label = op.lower()
        g.show(f"{label}", op, x)
        g.show(f"{label}_axis", op, x, axis=2, keepdims=0)
        g.show(f"{label}_negative", op, x, axis=-1, keepdims=1)
        g.show(f"{label}_first_of_ties", op, i, axis=1)
        g.show(f"{label}_last_of_ties", op, i, axis=1, select_last_index=1)
    ties = np.array([[1, 5, 5, 0], [2, 2, 2, 2], [-1, -7, 3, -7]], np.int32)
    # Logarithms of sums want positive numbers.
    return Case(
        g.model(),
        [
            [rng.uniform(0.1, 2, (n, 3, 4, 2)).astype(np.float32), np.array([axis]), ties]
            for n, axis in ((2, 1), (1, -1))
        ],
    )


@case("op_integer_roots")
def integer_roots(rng):
    """Powers, roots and logarithms of integers: products where the exponents are known to be whole, else floats that are cut off."""
    g = Graph("integer_roots", opset=18)
    i, y = g.input("i", I32, ["n", 4]), g.input("y", F32, [4])
    g.show("square", "Pow", i, np.float32(2))
    g.show("whole", "Pow", i, np.array([0, 1, 2, 3], np.float32))
    g.show("root", "Pow", i, np.float32(0.5))
    g.show("given", "Pow", i, y)
    g.show("negative", "Pow", i, np.array([-1, 1, -2, 0], np.float32))
    for op in ["ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare", "ReduceL1"]:
        g.show(op.removeprefix("Reduce").lower(), op, i, [1], keepdims=0)
    numbers = lambda n: rng.integers(1, 40, (n, 4)).astype(np.int32)
    return Case(g.model(), [[numbers(n), np.array([2, 0.5, 3, 1.5], np.float32)] for n in (3, 1)])


@case("op_reduce_13")
def reduce_13(rng):
    """The form before opset 18: axes are an attribute (of ReduceSum an input since 13)."""
    g = Graph("reduce_13", opset=13)
    x = g.input("x", F32, [2, 3, 4])
    for op in REDUCTIONS:
        label = op.removeprefix("Reduce").lower()
        if op == "ReduceSum":
            g.show(f"{label}_kept", op, x, [1])
        else:
            g.show(f"{label}_kept", op, x, axes=[1])
            g.show(f"{label}_dropped", op, x, axes=[-1, 0], keepdims=0)
        g.show(f"{label}_all", op, x)
    return Case(g.model(), [[rng.uniform(0.1, 2, (2, 3, 4)).astype(np.float32)]])


@case("op_softmax")
def softmax(rng):
    g = Graph("softmax", opset=13)
    x = g.input("x", F32, [2, 3, 4, 5])
    for op in ["Softmax", "LogSoftmax", "Hardmax"]:
        g.show(op.lower(), op, x)
        for axis in (0, 1, 2, -2):
            g.show(f"{op.lower()}_axis_{axis % 10}", op, x, axis=axis)
    large = floats(rng, 2, 3, 4, 5)
    large[0, 0] += 1000
    return Case(g.model(), [[large]])


EINSUMS = {
    "matmul": ("ij,jk->ik", [(3, 4), (4, 5)]),
    "implicit": ("ij,jk", [(3, 4), (4, 5)]),
    "implicit_sorted": ("ba", [(3, 4)]),
    "spaces": (" b i , b j -> b i j ", [(2, 3), (2, 4)]),
    "transpose": ("ij->ji", [(3, 4)]),
    "sum_all": ("ij->", [(3, 4)]),
    "sum_axis": ("ijk->ik", [(2, 3, 4)]),
    "diagonal": ("ii->i", [(4, 4)]),
    "trace": ("ii->", [(4, 4)]),
    "trace_implicit": ("ii", [(4, 4)]),
    "batch_diagonal": ("...ii->...i", [(2, 3, 3)]),
    "inner": ("i,i->", [(5,), (5,)]),
    "outer": ("i,j->ij", [(3,), (4,)]),
    "hadamard": ("ij,ij->ij", [(3, 4), (3, 4)]),
    "batch": ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]),
    "heads": ("bqhd,bkhd->bhqk", [(2, 3, 2, 4), (2, 5, 2, 4)]),
    "ellipsis": ("...ij,...jk->...ik", [(2, 2, 3, 4), (2, 1, 4, 5)]),
    "ellipsis_one": ("...ij,jk->...ik", [(2, 3, 4), (4, 5)]),
    "ellipsis_transposed": ("...ab->ba...", [(2, 3, 4)]),
    "uppercase": ("aB,Bc->ac", [(3, 4), (4, 5)]),
    "three": ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 5)]),
    "bilinear": ("bn,anm,bm->ba", [(2, 3), (5, 3, 4), (2, 4)]),
    "contract_two": ("abcd,cdef->abef", [(2, 3, 2, 2), (2, 2, 3, 2)]),
    "sum_one_operand": ("ij,k->i", [(3, 4), (5,)]),
    "scaled": (",ij->ij", [(), (3, 4)]),
}


@case("op_einsum")
def einsum(rng):
    g, arrays = Graph("einsum", opset=13), []
    for label, (equation, shapes) in EINSUMS.items():
        operands = []
        for k, shape in enumerate(shapes):
            operands.append(g.input(f"{label}_{k}", F32, shape))
            arrays.append(floats(rng, *shape))
        g.show(
            label,
            "Einsum",
            *operands,
            equation=equation,
            dtype=F32,
            dims=np.einsum(equation.replace(" ", ""), *arrays[len(arrays) - len(shapes) :]).shape,
        )
    return Case(g.model(), [arrays])


@case("op_einsum_diagonals")
def einsum_diagonals(rng):
    """Diagonals whose size is not known before the model runs."""
    g = Graph("einsum_diagonals", opset=13)
    x, y = g.input("x", F32, ("b", "n", "n")), g.input("y", I64, ("n", "n"))
    g.show("of_each", "Einsum", x, equation="bii->bi", dtype=F32, dims=("b", "n"))
    g.show("trace", "Einsum", x, equation="bii->b", dtype=F32, dims=("b",))
    g.show("product", "Einsum", x, x, equation="bii,bij->bj", dtype=F32, dims=("b", "n"))
    g.show("integers", "Einsum", y, equation="ii->i", dtype=I64, dims=("n",))
    return Case(g.model(), [[floats(rng, b, n, n), rng.integers(-9, 9, (n, n))] for b, n in ((2, 4), (3, 1))])


ALL_TYPES = {
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


@case("op_cast")
def cast(rng):
    g = Graph("cast", opset=18)
    x, i, b, w = g.input("x", F32, [6]), g.input("i", I64, [6]), g.input("b", BOOL, [2]), g.input("u", U8, [3])
    for label, dtype in ALL_TYPES.items():
        # A float out of the target's range has no defined result, so unsigned targets get the absolute value.
        source = g.op("Abs", x) if label.startswith("u") else x
        g.show(f"float_to_{label}", "Cast", source, to=dtype)
        g.show(f"int_to_{label}", "Cast", i, to=dtype)
        g.show(f"bool_to_{label}", "Cast", b, to=dtype)
        g.show(f"byte_to_{label}", "Cast", w, to=dtype)
        wide = g.op("Cast", source, to=dtype)
        g.show(f"{label}_to_float", "Cast", wide, to=F32)
        g.show(f"{label}_to_long", "Cast", wide, to=I64)
    g.show("through_bfloat16", "Cast", g.op("Cast", x, to=BF16), to=F32)
    g.show("like_int", "CastLike", x, i)
    g.show("like_bool", "CastLike", x, b)
    g.show("like_float", "CastLike", i, x)
    return Case(
        g.model(),
        [
            [
                np.array([-3.7, -0.5, 0.0, 0.4, 2.5, 100.9], np.float32),
                np.array([-1, 0, 1, 127, 300, 70000]),
                np.array([False, True]),
                np.array([0, 1, 255], np.uint8),
            ]
        ],
    )


@case("op_attention_places")
def attention_places(rng):
    """Positions that hide keys beside an additive mask; some queries see no key and yield zeros."""
    g = Graph("attention_places", opset=24)
    q, k, v = g.input("q", F32, [2, 3, 4, 8]), g.input("k", F32, [2, 3, 6, 8]), g.input("v", F32, [2, 3, 6, 8])
    mask, valid = g.input("mask", F32, [4, 4]), g.input("valid", I64, [2])
    g.show("causal", "Attention", q, k, v, mask, None, None, valid, is_causal=1, dtype=F32, dims=[2, 3, 4, 8])
    g.show("padded", "Attention", q, k, v, mask, None, None, valid, dtype=F32, dims=[2, 3, 4, 8])
    data = [floats(rng, 2, 3, n, 8) for n in (4, 6, 6)]
    return Case(g.model(), [[*data, floats(rng, 4, 4), np.array([3, 4])]], numpy_answers=True)


@case("op_where_narrow")
def where_narrow(rng):
    """A number on one side of a choice between narrower floats, spread out by the condition."""
    g = Graph("where_narrow", opset=18)
    x, keep = g.input("x", F16, [1, 4]), g.input("keep", BOOL, [3, 1])
    g.show("number_last", "Where", keep, x, np.float16(-2))
    g.show("number_first", "Where", keep, np.float16(0.5), x)
    g.show("numbers", "Where", keep, np.float16(1), np.float16(0))
    return Case(g.model(), [[floats(rng, 1, 4).astype(np.float16), np.array([[True], [False], [True]])]])
