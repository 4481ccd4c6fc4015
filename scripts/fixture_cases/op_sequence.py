"""Sequences, optional values, and loops that the compiler unrolls."""

from __future__ import annotations

import numpy as np
import onnx
from fixture_lib.graph import BOOL, F32, I64, Graph
from fixture_lib.registry import Case, case


def floats(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


@case("op_sequence")
def sequence(rng):
    g = Graph("sequence", opset=17)
    a, b, c = (g.input(name, F32, ["n", 3]) for name in "abc")
    three = g.op("SequenceConstruct", a, b, c)
    g.show("at", "SequenceAt", three, np.int64(1), dtype=F32, dims=["n", 3])
    g.show("at_end", "SequenceAt", three, np.int64(-1), dtype=F32, dims=["n", 3])
    g.show("length", "SequenceLength", three, dtype=I64, dims=[])
    g.show("joined", "ConcatFromSequence", three, axis=1, dtype=F32, dims=["n", 9])
    g.show("stacked", "ConcatFromSequence", three, axis=0, new_axis=1, dtype=F32, dims=[3, "n", 3])
    two = g.op("SequenceErase", three, np.int64(0))
    g.show("erased", "ConcatFromSequence", two, axis=1, dtype=F32, dims=["n", 6])
    last = g.op("SequenceErase", three)
    g.show("erased_last", "ConcatFromSequence", last, axis=1, dtype=F32, dims=["n", 6])
    empty = g.op("SequenceEmpty", dtype=F32)
    one = g.op("SequenceInsert", empty, b)
    more = g.op("SequenceInsert", one, a, np.int64(0))
    g.show("inserted", "ConcatFromSequence", more, axis=1, dtype=F32, dims=["n", 6])
    body = g.subgraph("body")
    value = body.input("value", F32, ["n", 3])
    body.show("doubled", "Mul", value, np.float32(2), dtype=F32, dims=["n", 3])
    mapped = g.op("SequenceMap", three, body=body.proto())
    g.show("mapped", "ConcatFromSequence", mapped, axis=1, dtype=F32, dims=["n", 9])
    return Case(g.model(), [[floats(rng, n, 3) for _ in range(3)] for n in (2, 1)])


@case("op_optional")
def optional(rng):
    g = Graph("optional", opset=18)
    x = g.input("x", F32, ["n", 3])
    some = g.op("Optional", x)
    g.show("there", "OptionalHasElement", some, dtype=BOOL, dims=[])
    tensors = onnx.helper.make_tensor_type_proto(F32, [None, 3])
    none = g.op("Optional", type=tensors)
    g.show("missing", "OptionalHasElement", none, dtype=BOOL, dims=[])
    # The branch that takes the element of nothing is not taken.
    yes, no = g.subgraph("taken"), g.subgraph("not_taken")
    yes.output(yes.op("Neg", yes.op("OptionalGetElement", none), out="of_nothing"), F32, ["n", 3])
    no.output(no.op("Abs", x, out="of_the_input"), F32, ["n", 3])
    g.show("chosen", "If", g.op("OptionalHasElement", none), dtype=F32, dims=["n", 3], then_branch=yes.proto(), else_branch=no.proto())
    element = g.op("OptionalGetElement", some)
    g.show("element", "Neg", element, dtype=F32, dims=["n", 3])
    return Case(g.model(), [[floats(rng, 2, 3)]])


@case("op_loop")
def loop(rng):
    """A known number of rounds: carried values, results of each round, a condition that ends it, the round's number."""
    g = Graph("loop", opset=16)
    x = g.input("x", F32, ["n", 3])

    def body(name, condition):
        inner = g.subgraph(name)
        i, _ = inner.input(f"{name}_i", I64, []), inner.input(f"{name}_go", BOOL, [])
        carried = inner.input(f"{name}_carried", F32, ["n", 3])
        step = inner.op("Cast", i, to=F32)
        grown = inner.op("Add", inner.op("Mul", carried, np.float32(0.5)), step)
        go = inner.op("Less", i, np.int64(2)) if condition else inner.op("Identity", np.bool_(True))
        inner.output(inner.op("Identity", go, out=f"{name}_again"), BOOL, [])
        inner.output(inner.op("Identity", grown, out=f"{name}_next"), F32, ["n", 3])
        inner.output(inner.op("Relu", grown, out=f"{name}_seen"), F32, ["n", 3])
        return inner.proto()

    for name, condition in [("counted", False), ("ended", True)]:
        outs = [f"{name}_last", f"{name}_all"]
        g.op("Loop", np.int64(4), np.bool_(True), x, out=outs, body=body(name, condition))
        g.output(outs[0], F32, ["n", 3])
        g.output(outs[1], F32, [None, "n", 3])
    return Case(g.model(), [[floats(rng, 2, 3)], [floats(rng, 1, 3)]])


@case("op_scan")
def scan(rng):
    """Over one axis and another, forwards and backwards."""
    g = Graph("scan", opset=16)
    start, x = g.input("start", F32, [2]), g.input("x", F32, [4, 2])

    def body(name):
        inner = g.subgraph(name)
        state, element = inner.input(f"{name}_state", F32, [2]), inner.input(f"{name}_element", F32, [2])
        total = inner.op("Add", state, element, out=f"{name}_total")
        inner.output(total, F32, [2])
        inner.output(inner.op("Mul", total, np.float32(2), out=f"{name}_row"), F32, [2])
        return inner.proto()

    turned = g.op("Transpose", x, perm=[1, 0])
    for name, data, attributes in [
        ("forward", x, {}),
        ("backward", x, dict(scan_input_directions=[1], scan_output_directions=[1])),
        ("columns", turned, dict(scan_input_axes=[1], scan_output_axes=[1])),
    ]:
        outs = [f"{name}_last", f"{name}_all"]
        g.op("Scan", start, data, out=outs, body=body(name), num_scan_inputs=1, **attributes)
        g.output(outs[0], F32, [2])
        g.output(outs[1], F32, [2, 4] if name == "columns" else [4, 2])
    return Case(g.model(), [[floats(rng, 2), floats(rng, 4, 2)]])
