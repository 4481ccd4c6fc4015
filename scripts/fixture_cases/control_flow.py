"""If in all its forms, and model-local functions."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper

from fixture_lib.graph import BOOL, F32, I64, Graph
from fixture_lib.registry import Case, case


def floats(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


def branch(g: Graph, name: str, make, dtype=F32, dims=None):
    """A branch whose outputs are the names that `make` returns."""
    sub = g.subgraph(name)
    made = make(sub)
    for output in made if isinstance(made, list) else [made]:
        sub.output(output, dtype, dims)
    return sub.proto()


@case("if_constant")
def if_constant(rng):
    """Conditions that folding decides: a constant, and a comparison of known sizes."""
    g = Graph("if_constant", opset=16)
    x = g.input("x", F32, ["n", 4])
    then, other = branch(g, "then", lambda s: s.op("Relu", x)), branch(g, "else", lambda s: s.op("Neg", x))
    g.show("always", "If", np.bool_(True), then_branch=then, else_branch=other, dtype=F32, dims=["n", 4])
    then, other = branch(g, "then_2", lambda s: s.op("Relu", x)), branch(g, "else_2", lambda s: s.op("Neg", x))
    g.show("never", "If", np.array([False]), then_branch=then, else_branch=other, dtype=F32, dims=["n", 4])
    # PyTorch's `squeeze(1)` exports to this: the ranks of the branches differ.
    deep = g.op("Unsqueeze", x, [1])
    middle = g.op("Gather", g.op("Shape", deep), np.int64(1), axis=0)
    then = branch(g, "then_3", lambda s: s.op("Squeeze", deep, [1]))
    other = branch(g, "else_3", lambda s: s.op("Identity", deep))
    g.show(
        "squeezed",
        "If",
        g.op("Equal", middle, np.int64(1)),
        then_branch=then,
        else_branch=other,
        dtype=F32,
        dims=["n", 4],
    )
    return Case(g.model(), [[floats(rng, 3, 4)], [floats(rng, 1, 4)]])


@case("if_data")
def if_data(rng):
    """A condition from the data; branches capture outer values, have their own weights, and give several outputs."""
    g = Graph("if_data", opset=16)
    x, flag = g.input("x", F32, [2, 4]), g.input("flag", BOOL, [])
    hidden = g.op("MatMul", x, floats(rng, 4, 4))
    w = floats(rng, 4, 4)

    def then(s):
        y = s.op("Add", s.op("MatMul", hidden, w), x)
        return [s.op("Relu", y), s.op("ReduceSum", y, [1], keepdims=0)]

    def other(s):
        return [s.op("Mul", hidden, np.float32(0.5)), s.const(np.array([1, 2], np.float32))]

    a, b = g.op("If", flag, out=2, then_branch=branch(g, "then", then), else_branch=branch(g, "else", other))
    g.show("y", "Add", a, x, dtype=F32, dims=[2, 4])
    g.show("z", "Neg", b, dtype=F32, dims=[2])
    total = g.op("ReduceSum", x, keepdims=0)
    positive = g.op("Greater", total, np.float32(0))
    g.show(
        "unlike_sizes",
        "If",
        positive,
        dtype=F32,
        dims=[None, 4],
        then_branch=branch(g, "then_2", lambda s: s.op("Concat", x, x, axis=0)),
        else_branch=branch(g, "else_2", lambda s: s.op("Slice", x, [0], [1])),
    )
    x_data = np.abs(floats(rng, 2, 4))
    return Case(g.model(), [[x_data, np.bool_(True)], [-x_data, np.bool_(False)]])


@case("if_bags")
def if_bags(rng):
    """Sums of bags of rows, as PyTorch's exporter writes an `EmbeddingBag`: where the last bag ends turns out to be known."""
    g = Graph("if_bags", opset=18)
    x, starts = g.input("x", F32, [5, 3]), g.input("starts", I64, [2])
    ends = g.op("Concat", starts, [5], axis=0)
    bags = []
    for n in range(2):
        start, end = (g.op("Slice", ends, [at], [at + 1]) for at in (n, n + 1))
        then = branch(g, f"none_{n}", lambda s: s.const(np.zeros((1, 3), np.float32)), dims=[1, 3])
        total = lambda s: s.op("ReduceSum", s.op("Slice", x, start, end), [0])
        other = branch(g, f"some_{n}", total, dims=[1, 3])
        bags.append(g.op("If", g.op("Equal", start, end), then_branch=then, else_branch=other))
    g.show("y", "Concat", *bags, axis=0, dtype=F32, dims=[2, 3])
    return Case(g.model(), [[floats(rng, 5, 3), np.array(starts)] for starts in ([0, 2], [0, 5], [1, 1])])


@case("if_nested")
def if_nested(rng):
    """Conditions inside branches, with names that shadow nothing but repeat across branches."""
    g = Graph("if_nested", opset=16)
    x, rate = g.input("x", F32, ["n"]), g.input("rate", I64, [])

    def scaled(by):
        return lambda s: s.op("Mul", x, np.float32(by), out=f"scaled_{by}")

    def inner(s):
        return s.op(
            "If",
            s.op("Equal", rate, np.int64(2)),
            then_branch=branch(s, "two", scaled(2)),
            else_branch=branch(
                s,
                "more",
                lambda t: t.op(
                    "If",
                    t.op("Less", rate, np.int64(0)),
                    then_branch=branch(t, "negative", lambda u: u.op("Neg", x)),
                    else_branch=branch(t, "other", scaled(9)),
                ),
            ),
        )

    g.show(
        "y",
        "If",
        g.op("Equal", rate, np.int64(1)),
        then_branch=branch(g, "one", lambda s: s.op("Identity", x)),
        else_branch=branch(g, "not_one", inner),
        dtype=F32,
        dims=["n"],
    )
    return Case(g.model(), [[floats(rng, n), np.int64(r)] for n, r in ((3, 1), (2, 2), (4, -5), (1, 7))])


@case("if_network")
def if_network(rng):
    """A network for each rate: weights in Constant nodes inside the branch, state handed on, a check within."""
    g = Graph("if_network", opset=16)
    x, state, rate = g.input("x", F32, ["n", None]), g.input("state", F32, [2, "n", 3]), g.input("rate", I64, [])

    def network(kernel):
        def make(s):
            def weight(*shape):
                return s.op("Constant", value=numpy_helper.from_array(floats(rng, *shape) * 0.4))

            y = s.op("Unsqueeze", x, s.op("Constant", value_ints=[1]))
            y = s.op("Pad", y, s.op("Constant", value_ints=[0, 0, 0, 0, 0, 2]), mode="reflect")
            y = s.op("Relu", s.op("Conv", y, weight(4, 1, kernel), weight(4), strides=[kernel // 2]))
            rank = s.op("Size", s.op("Shape", y))
            y = s.op(
                "If",
                s.op("Equal", rank, np.int64(3)),
                then_branch=branch(s, "as_it_is", lambda t: t.op("Transpose", y, perm=[2, 0, 1])),
                else_branch=branch(s, "not_so", lambda t: t.op("Unsqueeze", y, [0])),
            )
            h = s.op("Slice", state, [0], [1], [0])
            c = s.op("Slice", state, [1], [2], [0])
            _, h, c = s.op(
                "LSTM", y, weight(1, 12, 4), weight(1, 12, 3), weight(1, 24), None, h, c, hidden_size=3, out=3
            )
            chance = s.op(
                "Sigmoid",
                s.op("ReduceMean", s.op("MatMul", s.op("Squeeze", h, [0]), weight(3, 2)), axes=[1], keepdims=1),
            )
            return [chance, s.op("Concat", h, c, axis=0)]

        return make

    fast = g.op("Equal", rate, g.op("Constant", value_int=16000))
    g.op(
        "If",
        fast,
        out=["chance", "next_state"],
        then_branch=branch(g, "fast", network(8)),
        else_branch=branch(g, "slow", network(4)),
    )
    g.output("chance", F32, ["n", 1]), g.output("next_state", F32, [2, "n", 3])
    return Case(
        g.model(),
        [
            [floats(rng, n, length), floats(rng, 2, n, 3), np.int64(r)]
            for n, length, r in ((2, 32, 16000), (1, 16, 8000))
        ],
    )


def function(name, inputs, outputs, nodes, attributes=(), defaults=(), opset=18, domain="kiln.fixtures"):
    return helper.make_function(
        domain,
        name,
        inputs,
        outputs,
        nodes,
        [helper.make_opsetid("", opset), helper.make_opsetid(domain, 1)],
        attributes,
        defaults,
    )


def node(op, inputs, outputs, refer=None, **attributes):
    made = helper.make_node(op, inputs, outputs, **attributes)
    for attribute, (parameter, kind) in (refer or {}).items():
        made.attribute.append(onnx.AttributeProto(name=attribute, ref_attr_name=parameter, type=kind))
    return made


@case("functions")
def functions(rng):
    """Functions that call functions, attributes handed down, defaults, several outputs, outputs and inputs left out."""
    domain = "kiln.fixtures"
    dense = function(
        "Dense",
        ["x", "w", "b"],
        ["y"],
        [
            node("MatMul", ["x", "w"], ["xw"]),
            node("Add", ["xw", "b"], ["z"]),
            node("LeakyRelu", ["z"], ["y"], refer={"alpha": ("slope", onnx.AttributeProto.FLOAT)}),
        ],
        ["slope"],
    )
    stats = function(
        "Stats",
        ["x"],
        ["mean", "spread"],
        [
            node("Constant", [], ["axes"], value_ints=[-1]),
            node("ReduceMean", ["x", "axes"], ["mean"], keepdims=1),
            node("Sub", ["x", "mean"], ["centred"]),
            node("ReduceL2", ["centred", "axes"], ["spread"], refer={"keepdims": ("keep", onnx.AttributeProto.INT)}),
        ],
        [],
        [helper.make_attribute("keep", 1)],
    )
    normal = function(
        "Normalize",
        ["x"],
        ["y"],
        [
            helper.make_node("Stats", ["x"], ["m", "s"], domain=domain, keep=1),
            node("Sub", ["x", "m"], ["c"]),
            node("Div", ["c", "s"], ["y"]),
        ],
    )
    clamp = function("Clamp", ["x", "low", "high"], ["y"], [node("Clip", ["x", "low", "high"], ["y"])])
    g = Graph("functions", opset=18)
    x = g.input("x", F32, ["n", 4])
    g.functions = [dense, stats, normal, clamp]
    h = g.op("Dense", x, floats(rng, 4, 6), floats(rng, 6), domain=domain, slope=0.1)
    h = g.op("Normalize", h, domain=domain)
    h = g.op("Dense", h, floats(rng, 6, 3), floats(rng, 3), domain=domain, slope=0.3)
    g.op("Stats", h, out=["mean", "spread"], domain=domain, keep=0)
    g.op("Stats", h, out=["", "kept_spread"], domain=domain)
    g.op("Clamp", h, None, np.float32(0.5), out="clamped", domain=domain)
    g.output("mean", F32, ["n", 1]), g.output("spread", F32, ["n"])
    g.output("kept_spread", F32, ["n", 1]), g.output("clamped", F32, ["n", 3])
    return Case(g.model(), [[floats(rng, 3, 4)], [floats(rng, 1, 4)]])
