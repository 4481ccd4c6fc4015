"""Loops whose number of rounds only the run tells."""

from __future__ import annotations

import numpy as np

from fixture_lib.graph import BOOL, F32, I32, I64, Graph
from fixture_lib.registry import Case, case


def floats(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


def body(g: Graph, carried, make, left=(), name: str | None = None):
    """The body of a Loop. `carried` and `left` hold dtypes and dims; `make` gets the body, the round's number and
    what is carried, and returns the condition, then all values."""
    name = name or g.fresh("body")
    inner = g.subgraph(name)
    i, _ = inner.input(f"{name}_i", I64, []), inner.input(f"{name}_go", BOOL, [])
    values = [inner.input(f"{name}_in{n}", dtype, dims) for n, (dtype, dims) in enumerate(carried)]
    results = make(inner, i, *values)
    types = [(BOOL, []), *carried, *left]
    assert len(results) == len(types), name
    for n, (value, (dtype, dims)) in enumerate(zip(results, types)):
        inner.output(inner.op("Identity", value, out=f"{name}_out{n}"), dtype, dims)
    return inner.proto()


TRUE = np.bool_(True)


def always(s: Graph):
    """The condition of a body that has no say in it."""
    return s.op("Identity", TRUE)


@case("loop_counted")
def loop_counted(rng):
    """A number of rounds from an input, what each leaves, and the round's number as a position; none at all, too."""
    g = Graph("loop_counted", opset=16)
    x, rounds = g.input("x", F32, [2, 3]), g.input("rounds", I64, [])
    table = floats(rng, 6, 3)

    def make(s, i, h):
        row = s.op("Gather", table, i, axis=0)
        h = s.op("Tanh", s.op("Add", s.op("Mul", h, np.float32(0.5)), row))
        return always(s), h, s.op("ReduceSum", h, [1], keepdims=0), s.op("Mul", i, np.int64(2))

    left = [(F32, [2]), (I64, [])]
    last, sums, twice = g.op("Loop", rounds, None, x, out=3, body=body(g, [(F32, [2, 3])], make, left))
    g.show("last", "Identity", last, dtype=F32, dims=[2, 3])
    g.show("sums", "Neg", sums, dtype=F32, dims=[None, 2])
    g.show("twice", "Identity", twice, dtype=I64, dims=[None])
    return Case(g.model(), [[floats(rng, 2, 3), np.int64(n)] for n in (5, 1, 0)])


@case("loop_less_than_none")
def loop_less_than_none(rng):
    """As many rounds as a size is more than three, which may be none or less: by integers, and by floats as a script's `range` counts."""
    g = Graph("loop_less_than_none", opset=16)
    x = g.input("x", F32, ["n", 3])
    size = g.op("Gather", g.op("Shape", x), np.int64(0), axis=0)
    rounds = g.op("Sub", size, np.int64(3))
    by_floats = g.op("Ceil", g.op("Div", g.op("Cast", g.op("Sub", size, np.int64(2)), to=F32), np.float32(1)))

    def make(s, i, h):
        return always(s), s.op("Tanh", s.op("Add", h, s.op("Gather", x, i, axis=0)))

    first = g.op("Gather", x, np.int64(0), axis=0)
    for label, count in [("integers", rounds), ("floats", g.op("Cast", by_floats, to=I64))]:
        last = g.op("Loop", count, None, first, body=body(g, [(F32, [3])], make, []))
        g.show(label, "Neg", last, dtype=F32, dims=[3])
    return Case(g.model(), [[floats(rng, n, 3)] for n in (6, 3, 2, 1)])


@case("loop_while")
def loop_while(rng):
    """Conditions from the data: Collatz's steps, and Newton's method until nothing changes any more."""
    g = Graph("loop_while", opset=16)
    start, square = g.input("start", I64, []), g.input("square", F32, [])
    most = np.int64(np.iinfo(np.int64).max)

    def collatz(s, _, n, steps):
        half = s.op("Div", n, np.int64(2))
        grown = s.op("Add", s.op("Mul", n, np.int64(3)), np.int64(1))
        odd = s.op("Equal", s.op("Mod", n, np.int64(2)), np.int64(1))
        n = s.op("Where", odd, grown, half)
        return s.op("Greater", n, np.int64(1)), n, s.op("Add", steps, np.int64(1))

    go = g.op("Greater", start, np.int64(1))
    scalar = (I64, [])
    end, steps = g.op("Loop", most, go, start, np.int64(0), out=2, body=body(g, [scalar, scalar], collatz))

    def newton(s, _, root, before):
        better = s.op("Mul", s.op("Add", root, s.op("Div", square, root)), np.float32(0.5))
        change = s.op("Abs", s.op("Sub", better, root))
        return s.op("Greater", change, np.float32(1e-3)), better, root

    inner = body(g, [(F32, []), (F32, [])], newton)
    root, before = g.op("Loop", None, None, square, np.float32(0), out=2, body=inner)
    g.show("end", "Identity", end, dtype=I64, dims=[])
    g.show("steps", "Identity", steps, dtype=I64, dims=[])
    g.show("root", "Identity", root, dtype=F32, dims=[])
    g.show("before", "Identity", before, dtype=F32, dims=[])
    return Case(g.model(), [[np.int64(n), np.float32(s)] for n, s in ((6, 2.0), (1, 9.0), (27, 1e4))])


@case("loop_growing")
def loop_growing(rng):
    """A tensor that is longer after each round, one that is shorter, and sizes taken of them inside and after."""
    g = Graph("loop_growing", opset=16)
    x, rounds = g.input("x", F32, ["n", 2]), g.input("rounds", I64, [])

    def make(s, i, seen, rest):
        first = s.op("Slice", rest, [0], [1], [0])
        mean = s.op("ReduceMean", seen, axes=[0], keepdims=1)
        seen = s.op("Concat", seen, s.op("Add", first, mean), axis=0)
        count = s.op("Cast", s.op("Gather", s.op("Shape", seen), np.int64(0)), to=F32)
        return always(s), seen, s.op("Slice", rest, [1], [1000], [0]), count

    carried = [(F32, [None, 2]), (F32, [None, 2])]
    inner = body(g, carried, make, [(F32, [])])
    seen, rest, counts = g.op("Loop", rounds, None, np.ones((1, 2), np.float32), x, out=3, body=inner)
    g.show("seen", "Relu", seen, dtype=F32, dims=[None, 2])
    g.show("rest", "Identity", rest, dtype=F32, dims=[None, 2])
    g.show("counts", "Identity", counts, dtype=F32, dims=[None])
    both = g.op("Concat", g.op("Shape", seen), g.op("Shape", rest), axis=0)
    g.show("sizes", "Identity", both, dtype=I64, dims=[4])
    return Case(g.model(), [[floats(rng, 4, 2), np.int64(3)], [floats(rng, 2, 2), np.int64(1)]])


@case("loop_beginnings")
def loop_beginnings(rng):
    """Two values that a loop carries begin with one tensor, so that its name is needed after the first is there."""
    g = Graph("loop_beginnings", opset=16)
    scores = g.input("scores", F32, [2, "n"])
    rounds = g.op("Gather", g.op("Shape", scores), np.int64(1))
    best = g.op("ArgMax", scores, axis=1, keepdims=0)

    def make(s, _, path, best):
        best = s.op("Mod", s.op("Add", best, np.int64(3)), np.int64(4))
        return always(s), s.op("Concat", s.op("Unsqueeze", best, [1]), path, axis=1), best

    inner = body(g, [(I64, [2, None]), (I64, [2])], make)
    path, best = g.op("Loop", rounds, None, g.op("Unsqueeze", best, [1]), best, out=2, body=inner)
    g.show("path", "Identity", path, dtype=I64, dims=[2, None])
    g.show("best", "Identity", best, dtype=I64, dims=[2])
    return Case(g.model(), [[floats(rng, 2, n)] for n in (4, 1)])


@case("loop_scan")
def loop_scan(rng):
    """Recurrent cells over an axis of any length: batch first, and backwards with outputs turned round."""
    g = Graph("loop_scan", opset=16)
    x, start = g.input("x", F32, ["batch", "length", 3]), g.input("start", F32, ["batch", 4])
    w, r, b = floats(rng, 3, 4), floats(rng, 4, 4), floats(rng, 4)

    def cell(name):
        s = g.subgraph(name)
        h, element = s.input(f"{name}_h", F32, ["batch", 4]), s.input(f"{name}_x", F32, ["batch", 3])
        mixed = s.op("Add", s.op("MatMul", element, w), s.op("MatMul", h, r))
        h = s.op("Tanh", s.op("Add", mixed, b), out=f"{name}_next")
        s.output(h, F32, ["batch", 4])
        s.output(s.op("Mul", h, np.float32(2), out=f"{name}_row"), F32, ["batch", 4])
        return s.proto()

    forward = dict(scan_input_axes=[1], scan_output_axes=[1])
    backward = dict(scan_input_axes=[1], scan_input_directions=[1], scan_output_directions=[1], scan_output_axes=[-1])
    for name, attributes, dims in [
        ("forward", forward, ["batch", "length", 4]),
        ("backward", backward, ["batch", 4, "length"]),
    ]:
        outs = [f"{name}_last", f"{name}_all"]
        g.op("Scan", start, x, out=outs, body=cell(name), num_scan_inputs=1, **attributes)
        g.output(outs[0], F32, ["batch", 4])
        g.output(outs[1], F32, dims)
    return Case(g.model(), [[floats(rng, 2, n, 3), floats(rng, 2, 4)] for n in (5, 1)])


@case("scan_of_many_rounds")
def scan_of_many_rounds(rng):
    """Distances to the rows of a constant, as nearest neighbours are exported: squared ones, and the largest difference."""
    g = Graph("scan_of_many_rounds", opset=16)
    x = g.input("x", F32, ["n", 3])

    def distance(name, of):
        s = g.subgraph(name)
        samples, row = s.input(f"{name}_x", F32, ["n", 3]), s.input(f"{name}_row", F32, [3])
        distance = of(s, s.op("Sub", samples, row), f"{name}_distance")
        s.output(s.op("Identity", samples, out=f"{name}_same"), F32, ["n", 3])
        s.output(distance, F32, ["n"])
        return s.proto()

    squared = lambda s, d, out: s.op("ReduceSum", s.op("Mul", d, d), [1], keepdims=0, out=out)
    largest = lambda s, d, out: s.op("ReduceMax", s.op("Abs", d), axes=[1], keepdims=0, out=out)
    rows = floats(rng, 40, 3)
    for name, of in [("nearest", squared), ("largest", largest)]:
        _, distances = g.op("Scan", x, rows, out=2, body=distance(name, of), num_scan_inputs=1)
        turned = g.op("Transpose", distances, perm=[1, 0])
        found, places = g.op("TopK", turned, [5], axis=1, largest=0, out=2)
        g.show(name, "Sqrt", found, dtype=F32, dims=["n", 5])
        g.show(f"{name}_places", "Identity", places, dtype=I64, dims=["n", 5])
    return Case(g.model(), [[floats(rng, n, 3)] for n in (4, 1)])


@case("loop_until")
def loop_until(rng):
    """No bound but the condition, which the data ends early; and a bound beside it, by which none may run."""
    g = Graph("loop_until", opset=16)
    x, bound, go = g.input("x", F32, [3]), g.input("bound", I64, [1]), g.input("go", BOOL, [])

    def make(s, i, h):
        h = s.op("Mul", h, np.float32(1.5))
        norm = s.op("ReduceSum", s.op("Mul", h, h), keepdims=0)
        return s.op("Less", norm, np.float32(50)), h, norm, h

    types = [(F32, [3])], make, [(F32, []), (F32, [3])]
    last, norms, all_ = g.op("Loop", None, TRUE, x, out=3, body=body(g, *types))
    g.show("last", "Neg", last, dtype=F32, dims=[3])
    g.show("norms", "Identity", norms, dtype=F32, dims=[None])
    g.show("all", "Identity", all_, dtype=F32, dims=[None, 3])
    last, norms, all_ = g.op("Loop", bound, go, x, out=3, body=body(g, *types))
    g.show("bounded_last", "Neg", last, dtype=F32, dims=[3])
    g.show("bounded_norms", "Identity", norms, dtype=F32, dims=[None])
    g.show("bounded_all", "Identity", all_, dtype=F32, dims=[None, 3])
    x = np.array([1, -1, 0.5], np.float32)
    sets = [(1.0, 2, True), (0.1, 40, True), (1.0, 3, False), (0.5, 0, True)]
    return Case(g.model(), [[x * np.float32(s), np.array([n]), np.bool_(go)] for s, n, go in sets])


@case("loop_branches")
def loop_branches(rng):
    """A choice within a loop, and a loop within a choice."""
    g = Graph("loop_branches", opset=16)
    x, rounds, flag = g.input("x", F32, [2, 3]), g.input("rounds", I64, []), g.input("flag", BOOL, [])
    w = floats(rng, 3, 3)

    def branch(s, name, make):
        inner = s.subgraph(name)
        inner.output(make(inner), F32, [2, 3])
        return inner.proto()

    def choosing(s, i, h):
        large = s.op("Greater", s.op("ReduceMax", s.op("Abs", h), keepdims=0), np.float32(1))
        then = branch(s, "shrink", lambda b: b.op("Mul", h, np.float32(0.25)))
        other = branch(s, "mix", lambda b: b.op("MatMul", s.op("Add", h, np.float32(1)), w))
        return always(s), s.op("If", large, then_branch=then, else_branch=other)

    types = [(F32, [2, 3])]
    chosen = g.op("Loop", rounds, None, x, body=body(g, types, choosing))
    g.show("chosen", "Identity", chosen, dtype=F32, dims=[2, 3])

    def looping(b):
        step = lambda s, i, h: (always(s), s.op("Relu", s.op("MatMul", h, w)))
        return b.op("Loop", rounds, None, x, body=body(b, types, step))

    then, other = branch(g, "loop", looping), branch(g, "plain", lambda b: b.op("Neg", x))
    looped = g.op("If", flag, then_branch=then, else_branch=other)
    g.show("looped", "Identity", looped, dtype=F32, dims=[2, 3])
    sets = [(3, True), (4, False), (0, True)]
    return Case(g.model(), [[floats(rng, 2, 3), np.int64(n), np.bool_(f)] for n, f in sets])


@case("loop_weights")
def loop_weights(rng):
    """Weights of the network around, used in the body and before it; some are carried and never changed."""
    g = Graph("loop_weights", opset=16)
    x, rounds = g.input("x", F32, ["n", 4]), g.input("rounds", I64, [])
    w = g.const(floats(rng, 4, 4) * np.float32(0.5), "cell.linear.weight")
    b = g.const(floats(rng, 4), "cell.linear.bias")
    out = g.const(floats(rng, 2, 4), "head.weight")
    scale = g.const(floats(rng, 4), "cell.scale")
    first = g.op("Gemm", x, w, b, transB=1)

    def make(s, i, h, weight, scale):
        h = s.op("Tanh", s.op("Gemm", h, weight, b, transB=1))
        h = s.op("Mul", h, scale)
        return always(s), h, s.op("Identity", weight), scale, s.op("Gemm", h, out, transB=1)

    carried = [(F32, ["n", 4]), (F32, [4, 4]), (F32, [4])]
    inner = body(g, carried, make, [(F32, ["n", 2])])
    last, _, _, heads = g.op("Loop", rounds, None, first, w, scale, out=4, body=inner)
    g.show("last", "Identity", last, dtype=F32, dims=["n", 4])
    g.show("heads", "Identity", heads, dtype=F32, dims=[None, "n", 2])
    return Case(g.model(), [[floats(rng, 3, 4), np.int64(4)], [floats(rng, 1, 4), np.int64(2)]])


@case("loop_nested")
def loop_nested(rng):
    """A loop in a loop: the inner one runs as often as the outer's round says, and until its own data ends it."""
    g = Graph("loop_nested", opset=16)
    x, rounds = g.input("x", F32, [3]), g.input("rounds", I64, [])

    def inner(s, j, h, total):
        h = s.op("Mul", h, np.float32(1.25))
        total = s.op("Add", total, h)
        small = s.op("Less", s.op("ReduceMax", s.op("Abs", h), keepdims=0), np.float32(3))
        return small, h, total, s.op("Mul", j, j)

    def outer(s, i, h, total):
        types = [(F32, [3]), (F32, [3])]
        h, total, squares = s.op(
            "Loop", s.op("Add", i, np.int64(1)), None, h, total, out=3, body=body(s, types, inner, [(I64, [])])
        )
        h = s.op("Sub", h, s.op("Mul", total, np.float32(0.125)))
        count = s.op("ReduceSum", squares, keepdims=0)
        return always(s), h, total, count

    types = [(F32, [3]), (F32, [3])]
    last, total, counts = g.op(
        "Loop", rounds, None, x, np.zeros(3, np.float32), out=3, body=body(g, types, outer, [(I64, [])])
    )
    g.show("last", "Identity", last, dtype=F32, dims=[3])
    g.show("total", "Identity", total, dtype=F32, dims=[3])
    g.show("counts", "Identity", counts, dtype=I64, dims=[None])
    return Case(g.model(), [[floats(rng, 3), np.int64(n)] for n in (4, 1)])


@case("loop_tries")
def loop_tries(rng):
    """Rounds that cannot be written out since data ends them: what their body reads of the network around it. And inner loops that end
    before the outer one does."""
    g = Graph("loop_tries", opset=16)
    x, flag, length = g.input("x", F32, [2, 3]), g.input("flag", BOOL, []), g.input("length", I64, [])

    def branch(s, name, op):
        inner = s.subgraph(name)
        inner.output(inner.op(op, x), F32, [2, 3])
        return inner.proto()

    def small(s, h, most):
        return s.op("Less", s.op("ReduceMax", s.op("Abs", h), keepdims=0), np.float32(most))

    def choosing(s, i, h):
        step = s.op("If", flag, then_branch=branch(s, "negated", "Neg"), else_branch=branch(s, "positive", "Abs"))
        h = s.op("Add", h, step)
        return small(s, h, 2), h

    def counting(s, i, h):
        places = s.op("Cast", s.op("Range", np.int64(0), length, np.int64(1)), to=F32)
        h = s.op("Add", h, s.op("ReduceSum", s.op("Mul", places, np.float32(0.125)), keepdims=0))
        return small(s, h, 2), h

    def outer(s, i, h):
        step = lambda b, j, h: (small(b, h, 3), b.op("Mul", h, np.float32(1.5)))
        h = s.op("Loop", np.int64(2000), None, h, body=body(s, types, step))
        return always(s), s.op("Mul", h, np.float32(0.25))

    types = [(F32, [2, 3])]
    for name, rounds, make in [("chosen", np.int64(3), choosing), ("counted", np.int64(4), counting), ("ended", length, outer)]:
        h = g.op("Loop", rounds, None, x, body=body(g, types, make))
        g.show(name, "Identity", h, dtype=F32, dims=[2, 3])
    return Case(g.model(), [[floats(rng, 2, 3), np.bool_(f), np.int64(n)] for f, n in ((True, 3), (False, 5), (True, 0))])


@case("loop_decoder")
def loop_decoder(rng):
    """A greedy decoder: the likeliest token is appended, until it is the last one or there are enough."""
    g = Graph("loop_decoder", opset=16)
    start, most = g.input("start", I64, [1, "length"]), g.input("most", I64, [])
    table = g.const(floats(rng, 8, 4), "embedding.weight")
    w, b = g.const(floats(rng, 8, 4), "head.weight"), g.const(floats(rng, 8) * np.float32(0.1), "head.bias")

    def make(s, i, tokens):
        embedded = s.op("Gather", table, tokens, axis=0)
        length = s.op("Gather", s.op("Shape", tokens), np.int64(1))
        weights = s.op("Cast", s.op("Range", np.int64(0), length, np.int64(1)), to=F32)
        weights = s.op("Softmax", s.op("Mul", weights, np.float32(0.7)), axis=0)
        context = s.op("ReduceSum", s.op("Mul", embedded, s.op("Unsqueeze", weights, [0, 2])), [1], keepdims=0)
        logits = s.op("Gemm", context, w, b, transB=1)
        token = s.op("ArgMax", logits, axis=1, keepdims=1)
        return (
            s.op("Not", s.op("Equal", s.op("Squeeze", token), np.int64(2))),
            s.op("Concat", tokens, token, axis=1),
            s.op("ReduceMax", logits, keepdims=0),
        )

    tokens, scores = g.op("Loop", most, TRUE, start, out=2, body=body(g, [(I64, [1, None])], make, [(F32, [])]))
    g.show("tokens", "Identity", tokens, dtype=I64, dims=[1, None])
    g.show("scores", "Identity", scores, dtype=F32, dims=[None])
    starts = [[0], [3, 1], [5, 6, 7], [4]]
    return Case(g.model(), [[np.array([tokens], np.int64), np.int64(12)] for tokens in starts])


@case("loop_counters")
def loop_counters(rng):
    """Counters, which are sizes and positions; a sum that changes in another way; two values that swap."""
    g = Graph("loop_counters", opset=16)
    x, most = g.input("x", F32, ["n", 2]), g.input("most", I64, [])
    size = g.op("Gather", g.op("Shape", x), np.int64(0))

    def make(s, i, at, total, a, b):
        row = s.op("Gather", x, at, axis=0)
        low = s.op("Slice", x, [0], s.op("Reshape", at, [1]), [0])
        sums = s.op("ReduceSum", low, [0], keepdims=0)
        at = s.op("Add", at, np.int64(2))
        total = s.op("Add", total, at)
        both = s.op("And", s.op("Less", at, size), s.op("Less", i, most))
        return both, at, total, b, s.op("Add", a, row), sums

    carried = [(I64, []), (I64, []), (F32, [2]), (F32, [2])]
    zeros = np.zeros(2, np.float32)
    outs = g.op(
        "Loop", None, TRUE, np.int64(0), np.int64(3), zeros, np.ones(2, np.float32), out=5,
        body=body(g, carried, make, [(F32, [2])]),
    )
    for name, value, dtype, dims in zip(
        ["at", "total", "a", "b", "sums"], outs, [I64, I64, F32, F32, F32], [[], [], [2], [2], [None, 2]]
    ):
        g.show(name, "Identity", value, dtype=dtype, dims=dims)
    return Case(g.model(), [[floats(rng, n, 2), np.int64(m)] for n, m in ((7, 9), (6, 1))])


@case("loop_chained")
def loop_chained(rng):
    """A loop that begins with what the one before ended with, and one that a known number bounds and the data ends."""
    g = Graph("loop_chained", opset=16)
    x, rounds = g.input("x", F32, [3]), g.input("rounds", I64, [])
    types = [(F32, [3])]
    double = body(g, types, lambda s, i, h: (always(s), s.op("Mul", h, np.float32(2))))
    x = g.op("Loop", rounds, None, x, body=double)
    less = body(g, types, lambda s, i, h: (always(s), s.op("Sub", h, s.op("Cast", i, to=F32))))
    x = g.op("Loop", g.op("Add", rounds, np.int64(1)), None, x, body=less)

    def halve(s, i, h):
        h = s.op("Mul", h, np.float32(0.5))
        return s.op("Greater", s.op("ReduceMax", h, keepdims=0), np.float32(1)), h

    g.show("y", "Loop", np.int64(5), None, x, body=body(g, types, halve), dtype=F32, dims=[3])
    return Case(g.model(), [[floats(rng, 3), np.int64(n)] for n in (3, 6)])


@case("loop_counts_as_floats")
def loop_counts_as_floats(rng):
    """A cell over a sequence as TensorFlow's loop: no number of rounds, and counts of 32 bits that are compared as floats."""
    g = Graph("loop_counts_as_floats", opset=15)
    x = g.input("x", F32, ["batch", "length", 3])
    rows = g.op("Transpose", x, perm=[1, 0, 2])
    size = g.op("Cast", g.op("Gather", g.op("Shape", x), np.int64(1)), to=I32)
    bound = g.op("Cast", size, to=F32)
    weight = floats(rng, 3, 3) / 2

    def make(s, i, count, h):
        h = s.op("Tanh", s.op("Add", s.op("MatMul", h, weight), s.op("Gather", rows, count, axis=0)))
        count = s.op("Add", count, np.int32(1))
        return s.op("Less", s.op("Cast", count, to=F32), bound), count, h, s.op("Identity", h)

    go = g.op("Less", g.op("Cast", np.int32(0), to=F32), bound)
    h = g.op("Expand", np.float32(0), g.op("Concat", g.op("Gather", g.op("Shape", x), [0]), [3], axis=0))
    inner = body(g, [(I32, []), (F32, ["batch", 3])], make, [(F32, ["batch", 3])])
    _, last, states = g.op("Loop", np.int64(2**31 - 1), go, np.int32(0), h, out=3, body=inner)
    g.show("last", "Identity", last, dtype=F32, dims=["batch", 3])
    g.show("states", "Transpose", states, perm=[1, 0, 2], dtype=F32, dims=["batch", "length", 3])
    return Case(g.model(), [[floats(rng, *shape)] for shape in ((2, 4, 3), (1, 1, 3))])


@case("loop_undefined_variables")
def loop_undefined_variables(rng):
    """A decoder's loop as PaddlePaddle exports it: all variables of the body are carried, of which some have no value before the
    first round, and numbers of rank 1 are added to counts and flags of rank 0. It ends early where a row's sum is large."""
    g = Graph("loop_undefined_variables", opset=14)
    x, weight = g.input("x", F32, ["batch", 4]), g.const(floats(rng, 4, 4), "cell_weight")
    limit, undefined = 5, g.const(np.float32(0), "undefined_var")
    batch = g.op("Gather", g.op("Shape", x), [0])
    seen = g.op("Expand", np.zeros((1, limit, 4), np.float32), g.op("Concat", batch, [limit, 4], axis=0))
    inner = g.subgraph("body")
    names = ["count", "done", "state", "seen", "weight", "last", "scratch"]
    types = [I64, BOOL, F32, F32, F32, F32, F32]
    # Of these the rank changes with the first round.
    dims = [None, None, ["batch", 4], ["batch", limit, 4], [4, 4], None, None]
    inner.input("round", I64, []), inner.input("go", BOOL, [])
    for name, dtype, shape in zip(names, types, dims):
        inner.input(name, dtype, shape)

    def plus(s, value, number, dtype):
        """A sum with a number of rank 1, of floats."""
        total = s.op("Add", s.op("Cast", value, to=F32), np.array([number], np.float32))
        return s.op("Cast", total, to=dtype)

    def branch(name, make):
        b = inner.subgraph(name)
        b.output(b.op("Identity", make(b), out=f"{name}_done"), BOOL, None)
        return b.proto()

    state = inner.op("Tanh", inner.op("MatMul", "state", "weight"))
    at = inner.op("Reshape", "count", [-1])
    position = inner.op("Expand", inner.op("Reshape", at, [1, 1, 1]), inner.op("Concat", batch, [1, 4], axis=0))
    row = inner.op("Unsqueeze", state, [1])
    written = inner.op("ScatterElements", "seen", position, row, axis=1)
    scratch = inner.op("ReduceSum", state, [1], keepdims=0)
    large = inner.op("Greater", inner.op("ReduceMax", scratch, keepdims=0), np.float32(1.5))
    done = inner.op(
        "If", large,
        then_branch=branch("yes", lambda b: b.op("Cast", plus(b, "done", 1, I64), to=BOOL)),
        else_branch=branch("no", lambda b: b.op("Identity", np.bool_(False))),
    )
    count = plus(inner, "count", 1, I64)
    go = inner.op("And", inner.op("Less", count, np.int64(limit)), inner.op("Not", done))
    for value, name, dtype, shape in zip(
        [go, count, done, state, written, "weight", state, scratch], ["go", *names], [BOOL, *types], [None, *dims]
    ):
        inner.output(inner.op("Identity", value, out=f"{name}_next"), dtype, shape)
    outs = g.op(
        "Loop", np.int64(2**62), TRUE, np.int64(0), np.bool_(False), x, seen, weight, undefined, undefined,
        out=len(names), body=inner.proto(),
    )
    g.show("last", "Neg", outs[5], dtype=F32, dims=["batch", 4])
    g.show("seen_rows", "Slice", outs[3], [0], plus(g, outs[0], 0, I64), [1], dtype=F32, dims=["batch", None, 4])
    return Case(g.model(), [[floats(rng, n, 4) * s] for n, s in ((1, 0.1), (2, 3))])


@case("unnamed_dims")
def unnamed_dims(rng):
    """Sizes whose names are none, each of which is another; a squeeze of all axes of size 1, of which the declared rank tells one."""
    g = Graph("unnamed_dims", opset=17)
    x, y = g.input("x", F32, ["?", 3, "?", "?"]), g.input("y", F32, ["None", "None"])
    mean = g.op("ReduceMean", x, axes=[2, 3], keepdims=0)
    g.show("means", "Squeeze", g.op("MatMul", mean, floats(rng, 3, 1)), dtype=F32, dims=["?"])
    g.show("sums", "ReduceSum", y, [1], keepdims=0, dtype=F32, dims=["?"])
    return Case(g.model(), [[floats(rng, 2, 3, 4, 5), floats(rng, 3, 2)]])
