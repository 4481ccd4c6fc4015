"""Operators of ONNX Runtime's own domain that its tools write into transformers."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from fixture_lib.graph import F16, F32, I8, I32, I64, U8, Graph
from fixture_lib.registry import Case, case

DOMAIN = "com.microsoft"


def floats(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


def packed(integers, bits):
    """Integers of the last axis in bytes, the first in the lowest bits."""
    per_byte = 8 // bits
    missing = -integers.shape[-1] % per_byte
    padded = np.pad(integers, [(0, 0)] * (integers.ndim - 1) + [(0, missing)])
    groups = padded.reshape(*integers.shape[:-1], -1, per_byte).astype(np.uint8)
    return np.bitwise_or.reduce(groups << (bits * np.arange(per_byte, dtype=np.uint8)), -1)


class Blocks:
    """A random matrix `[columns, depth]` of integers under scales of blocks."""

    def __init__(self, rng, columns, depth, bits, block):
        count = -(-depth // block)
        integers = lambda *shape: rng.integers(0, 1 << bits, shape)
        self.options = dict(K=depth, N=columns, bits=bits, block_size=block)
        self.weight = packed(integers(columns, count, block), bits)
        self.scales = rng.uniform(0.01, 0.1, (columns, count)).astype(np.float32)
        self.zeros = packed(integers(columns, count), bits)
        self.float_zeros = rng.uniform(0, 1 << bits, (columns, count)).astype(np.float32)


@case("op_matmul_n_bits")
def matmul_n_bits(rng):
    """Weights of 2, 4 and 8 bits; with the usual zero points, packed ones and floats; a last block that is not whole."""
    g = Graph("matmul_n_bits", opset=21)
    x, deep = g.input("x", F32, ["n", 40]), g.input("deep", F32, ["n", "s", 64])
    half = g.input("half", F16, ["n", 40])
    own = dict(domain=DOMAIN, dtype=F32)
    for bits, block in [(2, 16), (4, 16), (4, 32), (4, 128), (8, 32)]:
        m = Blocks(rng, 6, 40, bits, block)
        shape = dict(dims=["n", 6], **own, **m.options)
        label = f"bits_{bits}_{block}"
        g.show(label, "MatMulNBits", x, m.weight, m.scales, **shape)
        g.show(f"{label}_zeros", "MatMulNBits", x, m.weight, m.scales, m.zeros, None, floats(rng, 6), **shape)
        if bits < 8:
            g.show(f"{label}_floats", "MatMulNBits", x, m.weight, m.scales, m.float_zeros, accuracy_level=1, **shape)
    flat = Blocks(rng, 5, 64, 4, 16)
    shape = dict(dims=["n", "s", 5], **own, **flat.options)
    g.show("flat", "MatMulNBits", deep, flat.weight, flat.scales.reshape(-1), flat.zeros.reshape(-1), **shape)
    # Large enough to stay as it is.
    large = Blocks(rng, 260, 64, 4, 32)
    weight = [g.const(large.weight, "large.weight_Q4"), g.const(large.scales, "large.weight_scales")]
    g.show("large", "MatMulNBits", deep, *weight, large.zeros, dims=["n", "s", 260], **own, **large.options)
    # Scales that are powers of two, so that 16 bits hold every weight: ONNX Runtime's kernel widens both sides first.
    m = Blocks(rng, 3, 40, 4, 32)
    m.scales = np.full_like(m.scales, 1 / 16)
    shape = dict(domain=DOMAIN, dtype=F16, dims=["n", 3], **m.options)
    g.show("halves", "MatMulNBits", half, m.weight, m.scales.astype(np.float16), m.zeros, **shape)
    data = lambda n, s: [floats(rng, n, 40), floats(rng, n, s, 64), floats(rng, n, 40).astype(np.float16)]
    return Case(g.model(), [data(3, 2), data(1, 4)])


@case("op_gather_block_quantized")
def gather_block_quantized(rng):
    """Tables of bytes that hold integers of 2, 4 and 8 bits, and of integers of four bits."""
    g = Graph("gather_block_quantized", opset=21)
    indices, deep = g.input("indices", I64, ["n", 2]), g.input("deep", I32, [3])
    for bits in (2, 4, 8):
        for label, shape, scales in [("rows", (7, 48), (7, 3)), ("planes", (7, 3, 40), (7, 3, 3))]:
            integers = lambda *shape: rng.integers(0, 1 << bits, shape)
            block = dict(bits=bits, block_size=16, quantize_axis=-1, domain=DOMAIN, dtype=F32)
            table, scale = packed(integers(*shape), bits), rng.uniform(0.1, 1, scales).astype(np.float32)
            name, dims = f"{label}_{bits}", ["n", 2, *shape[1:]]
            g.show(name, "GatherBlockQuantized", table, indices, scale, dims=dims, **block)
            zeros = packed(integers(*scales), bits)
            g.show(f"{name}_zeros", "GatherBlockQuantized", table, deep, scale, zeros, dims=[3, *shape[1:]], **block)
    for label, dtype, low in [("i4", ml_dtypes.int4, -8), ("u4", ml_dtypes.uint4, 0)]:
        integers = lambda *shape: rng.integers(low, low + 16, shape).astype(dtype)
        block = dict(block_size=16, domain=DOMAIN, dtype=F32)
        scale = rng.uniform(0.1, 1, (2, 7)).astype(np.float32)
        operands = [integers(32, 7), indices, scale]
        g.show(label, "GatherBlockQuantized", *operands, gather_axis=1, quantize_axis=0, dims=[32, "n", 2], **block)
        operands = [integers(32, 7), deep, scale, integers(2, 7)]
        g.show(f"{label}_zeros", "GatherBlockQuantized", *operands, gather_axis=1, quantize_axis=0, dims=[32, 3], **block)
    data = lambda n: [rng.integers(-7, 7, (n, 2)), np.array([6, 0, -2], np.int32)]
    return Case(g.model(), [data(1), data(3)])
