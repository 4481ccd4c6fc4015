"""Sequences, optional values, and loops that the compiler unrolls."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import numpy_helper

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


@case("op_sequence_outputs")
def sequence_outputs(rng):
    """Outputs that are sequences, beside tensors and each other."""
    g = Graph("sequence_outputs", opset=17)
    x, y = g.input("x", F32, ["n", 6]), g.input("y", F32, ["n", 2])
    of_tensors = onnx.helper.make_sequence_type_proto(onnx.helper.make_tensor_type_proto(F32, None))
    g.show("sum", "Add", y, np.float32(1), dtype=F32, dims=["n", 2])
    g.show("parts", "SplitToSequence", x, [1, 3, 2], axis=1, dtype=of_tensors)
    g.show("columns", "SplitToSequence", y, axis=1, keepdims=0, dtype=of_tensors)
    g.show("both", "SequenceConstruct", g.op("SequenceAt", "parts", np.int64(2)), y, dtype=of_tensors)
    g.show("product", "Mul", y, y, dtype=F32, dims=["n", 2])
    return Case(g.model(), [[floats(rng, 3, 6), floats(rng, 3, 2)], [floats(rng, 1, 6), floats(rng, 1, 2)]])


@case("op_scan_8")
def scan_8(rng):
    """The first form of `Scan`: a batch on the first axis, of one item, of several and of any number; directions; lengths."""
    g = Graph("scan_8", opset=8)

    def body(name):
        inner = g.subgraph(name)
        state, element = inner.input(f"{name}_state", F32, [2]), inner.input(f"{name}_element", F32, [2])
        # Initializers of a body of that time would be its inputs.
        half, two = (inner.op("Constant", value=numpy_helper.from_array(np.float32(n))) for n in (0.5, 2))
        halved = inner.op("Mul", state, half)
        total = inner.op("Add", halved, element, out=f"{name}_total")
        inner.output(total, F32, [2])
        inner.output(inner.op("Mul", total, two, out=f"{name}_row"), F32, [2])
        return inner.proto()

    for batch, steps in [(1, 4), (3, 4), ("n", "t")]:
        label = f"batch_{batch}"
        start, x = g.input(f"{label}_start", F32, [batch, 2]), g.input(f"{label}_x", F32, [batch, steps, 2])
        lengths = g.input(f"{label}_lengths", I64, [batch])
        forms = [("forward", None, {}), ("backward", None, dict(directions=[1])), ("lengths", lengths, {})]
        for name, given, attributes in forms:
            outs = [f"{label}_{name}_last", f"{label}_{name}_all"]
            inner = body(f"{label}_{name}")
            g.op("Scan", given, start, x, out=outs, body=inner, num_scan_inputs=1, **attributes)
            g.output(outs[0], F32, [batch, 2])
            g.output(outs[1], F32, [batch, steps, 2])

    def item(batch, steps, lengths):
        return [floats(rng, batch, 2), floats(rng, batch, steps, 2), np.array(lengths)]

    first, second = item(1, 4, [3]) + item(3, 4, [2, 4, 1]), item(1, 4, [4]) + item(3, 4, [4, 1, 3])
    return Case(g.model(), [first + item(2, 5, [5, 2]), second + item(4, 3, [1, 3, 2, 2])])
