"""Operators of ONNX Runtime's own domain that its quantizer writes: integers that stand for numbers, each tensor in its own way.

Weights have seven bits: ONNX Runtime adds pairs of products in 16 bits on CPUs without VNNI, which saturate with eight. Scales do not
make halves of what ONNX Runtime computes in a rounded way, as means are: there the order of a sum would decide.
"""

from __future__ import annotations

import numpy as np

from fixture_lib.graph import BOOL, F32, I8, I16, U8, U16, Graph
from fixture_lib.registry import Case, case

DOMAIN = "com.microsoft"
CODES = {np.uint8: U8, np.int8: I8}


def integers(rng, dtype, *shape, bits=8):
    info = np.iinfo(dtype)
    shift = 8 - bits
    return rng.integers(info.min >> shift, (info.max >> shift) + 1, shape).astype(dtype)


def way(scale, zero, dtype):
    """A scale and a zero point."""
    return np.float32(scale), dtype(zero)


def show(g, dtype, dims, label, op_type, *operands, **attributes):
    g.show(label, op_type, *operands, domain=DOMAIN, dtype=CODES[dtype], dims=dims, **attributes)


@case("op_qlinear_binary")
def binary(rng):
    """Both dtypes, broadcasting, absent zero points, halves under an odd zero point."""
    g = Graph("qlinear_binary", opset=13)
    a, b, c = g.input("a", U8, ["n", 3, 50]), g.input("b", U8, ["n", 3, 50]), g.input("c", U8, [3, 1])
    s, t = g.input("s", I8, ["n", 40]), g.input("t", I8, ["n", 40])
    dims = ["n", 3, 50]
    for name, wide in [("Add", 1), ("Mul", 20)]:
        label, op = name.lower(), f"QLinear{name}"
        u8, i8 = (lambda scale, zero: way(scale, zero, np.uint8)), (lambda scale, zero: way(scale, zero, np.int8))
        show(g, np.uint8, dims, label, op, a, *u8(0.02, 121), b, *u8(0.031, 7), *u8(0.057 * wide, 130))
        halves = [a, *u8(0.25, 3), b, *u8(0.5, 20), *u8(1.0 if name == "Add" else 8.0, 101)]
        show(g, np.uint8, dims, f"{label}_halves", op, *halves)
        show(g, np.uint8, dims, f"{label}_rows", op, a, *u8(0.02, 0), c, *u8(0.01, 128), *u8(0.03 * wide / 4, 64))
        constant = integers(rng, np.uint8, 50)
        show(g, np.uint8, dims, f"{label}_constant", op, constant, *u8(0.01, 90), a, *u8(0.02, 0), *u8(0.025 * wide / 4, 5))
        scalar = [a, *u8(0.02, 100), np.uint8(200), *u8(0.04, 10), *u8(0.1 * wide / 2, 50)]
        show(g, np.uint8, dims, f"{label}_scalar", op, *scalar)
        # ONNX Runtime refuses operands without one.
        none = [a, *u8(0.511, 3), b, *u8(0.123, 200), np.float32(0.7 * wide)]
        show(g, np.uint8, dims, f"{label}_no_zero", op, *none)
        show(g, np.int8, ["n", 40], f"{label}_i8", op, s, *i8(0.02, 0), t, *i8(0.05, 0), *i8(0.06 * wide / 4, 0))
        show(g, np.int8, ["n", 40], f"{label}_i8_zeros", op, s, *i8(0.5, -7), t, *i8(0.25, 11), *i8(0.5 * wide, -3))

    def inputs(n):
        shapes = [(n, 3, 50), (n, 3, 50), (3, 1)]
        return [integers(rng, np.uint8, *shape) for shape in shapes] + [integers(rng, np.int8, n, 40) for _ in range(2)]

    return Case(g.model(), [inputs(2), inputs(1)], checked=False)


@case("op_qlinear_activation")
def activation(rng):
    """Sigmoid and leaky ReLU: every integer there is."""
    g = Graph("qlinear_activation", opset=13)
    u, s = g.input("u", U8, ["n", 64]), g.input("s", I8, ["n", 64])
    for dtype, x, zero in [(np.uint8, u, 131), (np.int8, s, -5)]:
        name = np.dtype(dtype).name
        of_x, low = way(0.06, zero, dtype), np.iinfo(dtype).min
        show(g, dtype, ["n", 64], f"sigmoid_{name}", "QLinearSigmoid", x, *of_x, *way(1 / 256, low, dtype))
        show(g, dtype, ["n", 64], f"sigmoid_no_zero_{name}", "QLinearSigmoid", x, of_x[0], None, np.float32(0.01), None)
        leaky = [x, *of_x, *way(0.051, zero - 40, dtype)]
        show(g, dtype, ["n", 64], f"leaky_{name}", "QLinearLeakyRelu", *leaky)
        show(g, dtype, ["n", 64], f"leaky_steep_{name}", "QLinearLeakyRelu", *leaky, alpha=0.3)
        show(g, dtype, ["n", 64], f"leaky_no_zero_{name}", "QLinearLeakyRelu", x, of_x[0], None, np.float32(0.07), None)
    every = np.arange(256).reshape(4, 64)
    return Case(g.model(), [[every.astype(np.uint8), every.astype(np.uint8).view(np.int8)]], checked=False)


@case("op_qlinear_average_pool")
def average_pool(rng):
    """Windows of one to three axes, padding that counts and that does not, windows that hang over, both layouts."""
    g = Graph("qlinear_average_pool", opset=13)
    x, signed = g.input("x", U8, ["n", 3, 7, 9]), g.input("signed", I8, ["n", 3, 7, 9])
    line, block = g.input("line", U8, ["n", 2, 12]), g.input("block", U8, ["n", 2, 4, 5, 6])
    last = g.input("last", I8, ["n", 7, 9, 3])
    op = "QLinearAveragePool"
    same = [*way(0.03, 77, np.uint8), *way(0.03, 77, np.uint8)]
    other = [*way(0.03, 77, np.uint8), *way(0.0213, 90, np.uint8)]
    two = [*way(0.03, -4, np.int8), *way(0.0213, 9, np.int8)]
    show(g, np.uint8, ["n", 3, 3, 4], "plain", op, x, *other, kernel_shape=[2, 2], strides=[2, 2])
    show(g, np.uint8, ["n", 3, 5, 7], "overlapping", op, x, *same, kernel_shape=[3, 3])
    for label, counts in [("padded", 0), ("padded_counted", 1)]:
        window = dict(kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 1], count_include_pad=counts)
        show(g, np.uint8, ["n", 3, 4, 5], label, op, x, *other, **window)
        window = dict(kernel_shape=[3, 3], strides=[3, 2], pads=[1, 0, 0, 1], count_include_pad=counts, ceil_mode=1)
        show(g, np.int8, ["n", 3, 3, 5], f"{label}_up", op, signed, *two, **window)
    show(g, np.uint8, ["n", 3, 4, 5], "same_upper", op, x, *other, kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_UPPER")
    show(g, np.int8, ["n", 3, 3, 4], "signed_means", op, signed, *two, kernel_shape=[2, 2], strides=[2, 2])
    show(g, np.uint8, ["n", 3, 3, 4], "no_zero", op, x, *other[:3], kernel_shape=[2, 2], strides=[2, 2])
    show(g, np.uint8, ["n", 3, 1, 1], "whole", op, x, *other, kernel_shape=[7, 9])
    show(g, np.uint8, ["n", 2, 4], "line_means", op, line, *other, kernel_shape=[3], strides=[3])
    show(g, np.uint8, ["n", 2, 3, 4, 5], "block_means", op, block, *other, kernel_shape=[2, 2, 2])
    window = dict(kernel_shape=[2, 2], strides=[2, 2], channels_last=1)
    show(g, np.int8, ["n", 3, 4, 3], "channels_last", op, last, *two, **window)
    show(g, np.uint8, ["n", 3, 1, 1], "all", "QLinearGlobalAveragePool", x, *other, channels_last=0)
    show(g, np.int8, ["n", 3, 1, 1], "all_signed", "QLinearGlobalAveragePool", signed, *two)
    show(g, np.int8, ["n", 1, 1, 3], "all_last", "QLinearGlobalAveragePool", last, *two, channels_last=1)
    free = g.input("free", U8, ["n", 2, "h", "w"])
    show(g, np.uint8, ["n", 2, 1, 1], "all_free", "QLinearGlobalAveragePool", free, *same)
    free_same = dict(kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_LOWER")
    show(g, np.uint8, ["n", 2, None, None], "free_same", op, free, *other, **free_same)

    def inputs(n, h, w):
        u8, i8 = (lambda *shape: integers(rng, np.uint8, *shape)), (lambda *shape: integers(rng, np.int8, *shape))
        fixed = [u8(n, 3, 7, 9), i8(n, 3, 7, 9), u8(n, 2, 12), u8(n, 2, 4, 5, 6), i8(n, 7, 9, 3)]
        return [*fixed, u8(n, 2, h, w)]

    return Case(g.model(), [inputs(2, 5, 6), inputs(1, 4, 9)], checked=False)


@case("op_qlinear_join")
def join(rng):
    """Concatenation and choice: parts whose integers are the result's as they are, and others."""
    g = Graph("qlinear_join", opset=13)
    a, b = g.input("a", U8, ["n", 3, 8]), g.input("b", U8, ["n", 5, 8])
    s, t = g.input("s", I8, ["n", 6]), g.input("t", I8, ["n", 6])
    first, second = way(0.02, 128, np.uint8), way(0.05, 3, np.uint8)
    op = "QLinearConcat"
    show(g, np.uint8, ["n", 8, 8], "concat", op, *way(0.04, 100, np.uint8), a, *first, b, *second, axis=1)
    show(g, np.uint8, ["n", 8, 8], "concat_as_first", op, *first, a, *first, b, *second, axis=-2)
    show(g, np.int8, ["n", 12], "concat_i8", op, *way(0.03, -7, np.int8), s, *way(0.03, -7, np.int8), t, *way(0.01, 4, np.int8), axis=1)
    show(g, np.uint8, ["n", 3, 8], "concat_one", op, *second, a, *first, axis=0)
    where, row = g.input("where", BOOL, ["n", 3, 8]), integers(rng, np.uint8, 8)
    op = "QLinearWhere"
    show(g, np.uint8, ["n", 3, 8], "chosen", op, where, a, *first, row, *second, *way(0.04, 90, np.uint8))
    show(g, np.uint8, ["n", 3, 8], "chosen_as_first", op, where, a, *first, np.uint8(9), *second, *first)

    def inputs(n):
        u8, i8 = [integers(rng, np.uint8, n, k, 8) for k in (3, 5)], [integers(rng, np.int8, n, 6) for _ in range(2)]
        return [*u8, *i8, rng.random((n, 3, 8)) < 0.5]

    return Case(g.model(), [inputs(2), inputs(1)], checked=False)


@case("op_qlinear_softmax")
def softmax(rng):
    """Along an axis and over all from one on, with steps that are no whole part of 1."""
    g = Graph("qlinear_softmax", opset=13)
    x, s = g.input("x", U8, ["n", 4, 10]), g.input("s", I8, ["n", 4, 10])
    op, dims = "QLinearSoftmax", ["n", 4, 10]
    of_x, of_s = way(0.05, 100, np.uint8), way(0.03, -20, np.int8)
    show(g, np.uint8, dims, "softmax", op, x, *of_x, *way(1 / 256, 0, np.uint8), opset=13)
    show(g, np.uint8, dims, "softmax_middle", op, x, *of_x, *way(1 / 256, 0, np.uint8), axis=1, opset=13)
    show(g, np.uint8, dims, "softmax_flat", op, x, *of_x, *way(1 / 1024, 0, np.uint8), axis=1, opset=12)
    show(g, np.uint8, dims, "softmax_old", op, x, *of_x, *way(1 / 256, 0, np.uint8), opset=12)
    show(g, np.uint8, dims, "softmax_coarse", op, x, *of_x, *way(0.004, 3, np.uint8), axis=-1, opset=13)
    show(g, np.int8, dims, "softmax_i8", op, s, *of_s, *way(1 / 256, -128, np.int8), axis=2, opset=13)
    show(g, np.int8, dims, "softmax_certain", op, s, *way(0.5, 0, np.int8), *way(1 / 256, -128, np.int8), opset=13)
    inputs = lambda n: [integers(rng, dtype, n, 4, 10) for dtype in (np.uint8, np.int8)]
    return Case(g.model(), [inputs(2), inputs(1)], checked=False)


@case("op_qgemm")
def qgemm(rng):
    """Products with and without a sum, to integers and to numbers, of matrices that lie either way."""
    g = Graph("qgemm", opset=13)
    a, s = g.input("a", U8, ["n", 6]), g.input("s", I8, ["n", 6])
    turned = g.input("turned", U8, [6, "m"])
    weight = integers(rng, np.int8, 6, 5, bits=7)
    scales, zeros = rng.uniform(0.002, 0.02, 5).astype(np.float32), np.array([0, 3, -2, 1, 0], np.int8)
    bias = rng.integers(-3000, 3000, 5).astype(np.int32)
    of_a, of_s, of_b, of_y = way(0.02, 120, np.uint8), way(0.02, -3, np.int8), way(0.01, 0, np.int8), way(0.1, 99, np.uint8)
    op, dims = "QGemm", ["n", 5]
    full = dict(domain=DOMAIN, dtype=F32, dims=dims)
    show(g, np.uint8, dims, "plain", op, a, *of_a, weight, *of_b, bias, *of_y)
    show(g, np.uint8, dims, "columns", op, a, *of_a, weight, scales, zeros, bias, *of_y)
    show(g, np.uint8, dims, "no_sum", op, a, *of_a, weight, *of_b, None, *of_y)
    show(g, np.uint8, dims, "scaled", op, a, *of_a, weight.T.copy(), scales, zeros, bias, *of_y, alpha=0.7, transB=1)
    u8_weight = integers(rng, np.uint8, 5, 6)
    show(g, np.uint8, dims, "unsigned", op, a, *of_a, u8_weight, *way(0.01, 130, np.uint8), bias[None], *of_y, transB=1)
    show(g, np.int8, dims, "signed", op, s, *of_s, weight, scales, zeros, bias, *way(0.1, -9, np.int8))
    show(g, np.uint8, ["m", 5], "turned_left", op, turned, *of_a, weight, scales, zeros, bias[:1], *of_y, transA=1)
    g.show("numbers", op, a, *of_a, weight, scales, zeros, bias, **full)
    g.show("numbers_scaled", op, s, *of_s, weight, *of_b, None, None, None, alpha=0.5, **full)
    inputs = lambda n, m: [integers(rng, np.uint8, n, 6), integers(rng, np.int8, n, 6), integers(rng, np.uint8, 6, m)]
    return Case(g.model(), [inputs(3, 2), inputs(1, 4)], checked=False)


@case("op_quantize_microsoft")
def quantize(rng):
    """`QuantizeLinear` and its inverse in ONNX Runtime's domain, which had 16 bits before ONNX."""
    g = Graph("quantize_microsoft", opset=13)
    x = g.input("x", F32, ["n", 3, 4])
    scales = np.array([0.05, 0.1, 0.5], np.float32)
    for label, dtype, code, zero in [("u8", np.uint8, U8, 120), ("u16", np.uint16, U16, 30000), ("i16", np.int16, I16, -7)]:
        scale = np.float32(0.05 if dtype == np.uint8 else 0.0003)
        in_domain = dict(domain=DOMAIN, dims=["n", 3, 4])
        g.show(label, "QuantizeLinear", x, scale, dtype(zero), dtype=code, **in_domain)
        g.show(f"{label}_back", "DequantizeLinear", label, scale, dtype(zero), dtype=F32, **in_domain)
    of_axis = [x, scales, np.array([-3, 0, 100], np.int8)]
    g.show("i8_axis", "QuantizeLinear", *of_axis, axis=1, domain=DOMAIN, dtype=I8, dims=["n", 3, 4])
    return Case(g.model(), [[(rng.standard_normal((2, 3, 4)) * 6).astype(np.float32)]], checked=False)


@case("op_qlinear_channels_last")
def channels_last(rng):
    """Convolutions and maxima of images whose channels are last, as ONNX Runtime's optimizer turns them."""
    g = Graph("qlinear_channels_last", opset=17)
    x, y = g.input("x", U8, ["n", "h", "w", 4]), g.input("y", I8, ["n", 7, 6, 4])
    kernel = integers(rng, np.int8, 6, 4, 3, 3, bits=7)
    of_x, of_y = way(0.02, 120, np.uint8), way(0.3, 110, np.uint8)
    scales = rng.uniform(0.01, 0.03, 6).astype(np.float32)
    bias = rng.integers(-500, 500, 6).astype(np.int32)
    shape = lambda *dims, dtype=np.uint8: (g, dtype, dims)
    plain = [x, *of_x, kernel, *way(0.02, 0, np.int8), *of_y]
    show(*shape("n", "h", "w", 6), "conv", "QLinearConv", *plain, channels_last=1, pads=[1, 1, 1, 1])
    columns = [x, *of_x, kernel, scales, np.zeros(6, np.int8), *of_y, bias]
    options = dict(channels_last=1, strides=[2, 1], kernel_shape=[3, 3], auto_pad="SAME_UPPER")
    show(*shape("n", None, "w", 6), "conv_columns", "QLinearConv", *columns, **options)
    deep = [x, *of_x, kernel[:4, :1], *way(0.02, 0, np.int8), *of_y]
    show(*shape("n", None, None, 4), "conv_deep", "QLinearConv", *deep, channels_last=1, group=4)
    turned = g.op("Transpose", x, perm=[0, 3, 1, 2])
    first = [turned, *plain[1:]]
    show(*shape("n", 6, None, None), "conv_first", "QLinearConv", *first, channels_last=0)
    show(*shape("n", None, None, 4), "max", "NhwcMaxPool", x, kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1)
    padded = dict(kernel_shape=[3, 2], pads=[1, 1, 1, 0], dilations=[1, 2])
    show(*shape("n", 7, None, 4, dtype=np.int8), "max_i8", "NhwcMaxPool", y, **padded)

    def inputs(n, h, w):
        return [integers(rng, np.uint8, n, h, w, 4), integers(rng, np.int8, n, 7, 6, 4)]

    return Case(g.model(), [inputs(2, 7, 6), inputs(1, 4, 5)], checked=False)
