"""Fourier transforms, windows, mel weights, running products."""

from __future__ import annotations

import numpy as np

from fixture_lib.graph import F32, F64, Graph
from fixture_lib.registry import Case, case


def floats(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


@case("op_dft_17")
def dft_17(rng):
    """The axis is an attribute."""
    g = Graph("dft_17", opset=17)
    x, c = g.input("x", F32, ["n", 6, 5, 1]), g.input("c", F32, ["n", 6, 5, 2])
    g.show("real", "DFT", x, axis=1)
    g.show("one_sided", "DFT", x, axis=1, onesided=1)
    g.show("longer", "DFT", x, np.int64(8), axis=1)
    g.show("shorter", "DFT", x, np.int64(4), axis=1)
    g.show("other_axis", "DFT", x, axis=2)
    g.show("complex", "DFT", c, axis=1)
    g.show("inverse", "DFT", c, axis=1, inverse=1)
    return Case(g.model(), [[floats(rng, n, 6, 5, 1), floats(rng, n, 6, 5, 2)] for n in (2, 1)])


@case("op_dft_20")
def dft_20(rng):
    """The axis is an input."""
    g = Graph("dft_20", opset=20)
    x, c = g.input("x", F32, [2, 6, 5, 1]), g.input("c", F32, [2, 6, 5, 2])
    g.show("real", "DFT", x, None, np.int64(1))
    g.show("one_sided", "DFT", x, None, np.int64(-2), onesided=1)
    g.show("one_sided_odd", "DFT", x, None, np.int64(2), onesided=1)
    g.show("longer", "DFT", x, np.int64(8), np.int64(1))
    g.show("inverse", "DFT", c, None, np.int64(2), inverse=1)
    return Case(g.model(), [[floats(rng, 2, 6, 5, 1), floats(rng, 2, 6, 5, 2)]])


@case("op_dft_real_again")
def dft_real_again(rng):
    """Inverse and one-sided: real signals of half a spectrum, of even and odd lengths, cut and filled up."""
    g = Graph("dft_real_again", opset=20)
    half = g.input("half", F32, ["n", 6, 5, 2])
    again = dict(inverse=1, onesided=1)
    g.show("even", "DFT", half, None, np.int64(1), **again, dtype=F32, dims=["n", 10, 5, 1])
    g.show("last", "DFT", half, None, np.int64(-2), **again, dtype=F32, dims=["n", 6, 8, 1])
    g.show("odd", "DFT", half, np.int64(11), np.int64(1), **again, dtype=F32, dims=["n", 11, 5, 1])
    g.show("cut", "DFT", half, np.int64(7), np.int64(1), **again, dtype=F32, dims=["n", 7, 5, 1])
    g.show("filled", "DFT", half, np.int64(16), np.int64(1), **again, dtype=F32, dims=["n", 16, 5, 1])
    signal = g.input("signal", F32, [2, 9, 1])
    spectrum = g.op("DFT", signal, None, np.int64(1), onesided=1)
    g.show("round_trip", "DFT", spectrum, np.int64(9), np.int64(1), **again, dtype=F32, dims=[2, 9, 1])
    return Case(g.model(), [[floats(rng, 3, 6, 5, 2), floats(rng, 2, 9, 1)]], numpy_answers=True)


@case("op_stft")
def stft(rng):
    g = Graph("stft", opset=17)
    x = g.input("x", F32, [2, 20, 1])
    window = np.hanning(8).astype(np.float32)
    g.show("window", "STFT", x, np.int64(3), window, np.int64(8))
    g.show("two_sided", "STFT", x, np.int64(4), window, np.int64(8), onesided=0)
    g.show("no_window", "STFT", x, np.int64(5), None, np.int64(6))
    return Case(g.model(), [[floats(rng, 2, 20, 1)]])


@case("op_stft_dynamic")
def stft_dynamic(rng):
    """Signals whose length only the run tells, real and complex."""
    g = Graph("stft_dynamic", opset=17)
    x, z = g.input("x", F32, ["n", "time", 1]), g.input("z", F32, [1, "length", 2])
    window = np.hanning(8).astype(np.float32)
    g.show("window", "STFT", x, np.int64(3), window, np.int64(8), dtype=F32, dims=["n", "a", 5, 2])
    g.show("no_window", "STFT", x, np.int64(5), None, np.int64(6), dtype=F32, dims=["n", "b", 4, 2])
    whole = dict(onesided=0, dtype=F32, dims=[1, "c", 8, 2])
    g.show("two_sided", "STFT", z, np.int64(4), window, np.int64(8), **whole)
    data = [[floats(rng, n, time, 1), floats(rng, 1, length, 2)] for n, time, length in [(2, 20, 12), (1, 8, 9)]]
    return Case(g.model(), data)


@case("op_windows")
def windows(rng):
    """Of a known size and of one that only the run tells; periodic and symmetric; in single and double precision."""
    g = Graph("windows", opset=17)
    x = g.input("x", F32, ["n"])
    size = g.op("Squeeze", g.op("Shape", x), [0])
    for kind in ["BlackmanWindow", "HammingWindow", "HannWindow"]:
        for periodic in [0, 1]:
            known = g.op(kind, np.int64(7), periodic=periodic, output_datatype=F64)
            g.show(f"{kind}_{periodic}", "Cast", known, to=F64, dtype=F64, dims=[7])
            free = g.op(kind, size, periodic=periodic)
            g.show(f"{kind}_{periodic}_free", "Mul", free, x, dtype=F32, dims=["n"])
    return Case(g.model(), [[floats(rng, 5)], [floats(rng, 8)]])


@case("op_mel_weights")
def mel_weights(rng):
    g = Graph("mel_weights", opset=17)
    x = g.input("x", F32, ["n", 17])
    operands = [np.int64(8), np.int64(32), np.int64(8000), np.float32(100), np.float32(3500)]
    weights = g.op("MelWeightMatrix", *operands, out="weights")
    g.output(weights)
    g.show("y", "MatMul", x, weights)
    return Case(g.model(), [[floats(rng, 3, 17)]])


@case("op_cumulative_product")
def cumulative_product(rng):
    """ONNX Runtime has no kernel for it."""
    g = Graph("cumulative_product", opset=26)
    x, d = g.input("x", F32, [3, 4]), g.input("d", F64, [2, 3])
    g.show("rows", "CumProd", x, np.int64(0))
    g.show("columns", "CumProd", x, np.int64(-1))
    g.show("exclusive", "CumProd", x, np.int64(1), exclusive=1)
    g.show("reverse", "CumProd", x, np.int64(1), reverse=1)
    g.show("exclusive_reverse", "CumProd", x, np.int64(0), exclusive=1, reverse=1)
    g.show("double", "CumProd", d, np.int64(1))
    return Case(g.model(), [[floats(rng, 3, 4), rng.standard_normal((2, 3))]], numpy_answers=True)
