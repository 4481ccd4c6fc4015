"""Mixtures of experts, as ONNX Runtime's tools write them: operators of its own domain."""

from __future__ import annotations

import numpy as np

from fixture_cases.op_contrib import DOMAIN, floats, packed
from fixture_lib.graph import F32, Graph
from fixture_lib.registry import Case, case

EXPERTS, HIDDEN, INNER = 5, 8, 6


def experts(rng, rows=INNER):
    """Both matrices and both biases of all experts; the first matrix has so many rows."""
    return [
        floats(rng, EXPERTS, rows, HIDDEN) / 2,
        floats(rng, EXPERTS, rows) / 2,
        floats(rng, EXPERTS, HIDDEN, INNER) / 2,
        floats(rng, EXPERTS, HIDDEN) / 2,
    ]


@case("op_moe")
def moe(rng):
    """What ONNX Runtime's CPU provider has kernels for: activations of one product, and of rows in turn."""
    g = Graph("moe", opset=17)
    flat, scores = g.input("flat", F32, ["n", HIDDEN]), g.input("scores", F32, ["n", EXPERTS])
    deep, deep_scores = g.input("deep", F32, ["b", "s", HIDDEN]), g.input("deep_scores", F32, [None, EXPERTS])
    own = dict(domain=DOMAIN, dtype=F32, dims=["n", HIDDEN])
    g.show("usual", "MoE", flat, scores, *experts(rng), **own)
    for n, name in enumerate(["relu", "gelu", "silu", "identity"]):
        options = dict(activation_type=name, k=n + 2, normalize_routing_weights=n % 2)
        g.show(name, "MoE", flat, scores, *experts(rng), **options, **own)
    first, _, second, _ = experts(rng)
    g.show("no_biases", "MoE", flat, scores, first, None, second, k=2, **own)
    turns = dict(activation_type="swiglu", swiglu_fusion=1, k=2, normalize_routing_weights=1)
    g.show("turns", "MoE", flat, scores, *experts(rng, 2 * INNER), **turns, **own)
    limits = dict(activation_alpha=1.702, activation_beta=1.0, swiglu_limit=0.5)
    g.show("turns_limited", "MoE", flat, scores, *experts(rng, 2 * INNER), **turns, **limits, **own)
    own["dims"] = ["b", "s", HIDDEN]
    g.show("sequences", "MoE", deep, deep_scores, *experts(rng), k=2, **own)

    def data(n, b, s):
        tokens = [floats(rng, n, HIDDEN), 2 * floats(rng, n, EXPERTS)]
        return [*tokens, floats(rng, b, s, HIDDEN), 2 * floats(rng, b * s, EXPERTS)]

    return Case(g.model(), [data(9, 2, 3), data(1, 1, 4)])


@case("op_moe_gated")
def moe_gated(rng):
    """What only GPUs have kernels for in ONNX Runtime; its answers are those of dense products, each token times all experts."""
    plain, double = [experts(rng) for _ in range(6)], [experts(rng, 2 * INNER) for _ in range(4)]
    third = [floats(rng, EXPERTS, INNER, HIDDEN) / 2, floats(rng, EXPERTS, INNER) / 2]

    def build(fused: bool):
        g = Graph("moe_gated", opset=20)
        x, scores = g.input("x", F32, ["n", HIDDEN]), g.input("scores", F32, ["n", EXPERTS])

        def sum_of(values):
            total = values[0]
            for value in values[1:]:
                total = g.op("Add", total, value)
            return total

        def top(k, normalized):
            """How much each expert counts: columns, which are 0 for those that are not among the first `k`."""
            chances = g.op("Softmax", scores, axis=1)
            _, chosen = g.op("TopK", chances, [k], out=2)
            is_chosen = g.op("ReduceSum", g.op("OneHot", chosen, np.int64(EXPERTS), np.array([0, 1], np.float32)), [1], keepdims=0)
            weights = g.op("Mul", chances, is_chosen)
            return g.op("Div", weights, g.op("ReduceSum", weights, [1])) if normalized else weights

        def mixed():
            """Phi-3.5's choice, as its authors wrote it."""
            is_before = None
            weights = []
            for _ in range(2):
                left = scores if is_before is None else g.op("Where", is_before, np.float32(-np.inf), scores)
                best = g.op("ReduceMax", left, [1])
                scale = g.op("Max", g.op("Abs", scores), best)
                is_far = g.op("Greater", g.op("Div", g.op("Sub", best, scores), scale), np.float32(0.02))
                chances = g.op("Softmax", g.op("Where", is_far, np.float32(-np.inf), left), axis=1)
                is_best = g.op("Equal", left, best)
                weights.append(g.op("Where", is_best, chances, np.float32(0)))
                is_before = is_best
            return sum_of(weights)

        def show(label, matrices, inner, weights, others=(), **options):
            own = dict(domain=DOMAIN, dtype=F32, dims=["n", HIDDEN])
            if fused:
                g.show(label, "MoE", x, scores, *matrices, *others, **options, **own)
                return
            up, up_bias, down, down_bias = matrices
            weights, parts = weights(), []
            for e in range(EXPERTS):
                y = g.op("Gemm", x, up[e], up_bias[e], transB=1)
                also = g.op("Gemm", x, others[0][e], others[1][e], transB=1) if others else None
                y = g.op("Gemm", inner(y, also), down[e], down_bias[e], transB=1)
                weight = g.op("Slice", weights, [e], [e + 1], [1])
                parts.append(g.op("Mul", y, weight))
            g.output(g.op("Identity", sum_of(parts), out=label), F32, ["n", HIDDEN])

        def part(y, start, step=1):
            return g.op("Slice", y, [start], [2 * INNER if step == 2 else start + INNER], [1], [step])

        def swish(gate, alpha=1.0):
            return g.op("Mul", gate, g.op("Sigmoid", g.op("Mul", gate, np.float32(alpha))))

        at_most = lambda y, limit: g.op("Min", y, np.float32(limit))
        within = lambda y, limit: g.op("Clip", y, np.float32(-limit), np.float32(limit))
        more = lambda y, number: g.op("Add", y, np.float32(number))
        times = lambda a, b: g.op("Mul", a, b)

        gate = lambda y, also: times(swish(y), also)
        options = dict(activation_type="silu", k=2, normalize_routing_weights=1)
        show("third", plain[0], gate, lambda: top(2, True), third, **options)
        limited = lambda y, also: times(swish(at_most(y, 1), 1.5), more(within(also, 1), 0.5))
        options = dict(activation_type="swiglu", k=2, activation_alpha=1.5, activation_beta=0.5, swiglu_limit=1.0)
        show("apart", plain[1], limited, lambda: top(2, False), third, **options)
        halves = lambda y, _: times(swish(part(y, 0)), part(y, INNER))
        show("joined", double[0], halves, lambda: top(1, False), activation_type="swiglu", swiglu_fusion=2)
        after = lambda y, _: times(at_most(swish(part(y, 0, 2)), 0.5), within(part(y, 1, 2), 0.5))
        options = dict(activation_type="swiglu", k=3, swiglu_fusion=1, swiglu_limit=0.5, swiglu_limit_after_activation=1)
        show("limited_after", double[1], after, lambda: top(3, False), **options)
        for fusion, name in [(1, "geglu_turns"), (2, "geglu_joined")]:
            step, second = (2, 1) if fusion == 1 else (1, INNER)
            geglu = lambda y, _: times(g.op("Gelu", part(y, 0, step), approximate="tanh"), part(y, second, step))
            options = dict(activation_type="geglu", k=2, swiglu_fusion=fusion)
            show(name, double[1 + fusion], geglu, lambda: top(2, False), **options)
        squared = lambda y, _: times(g.op("Relu", y), g.op("Relu", y))
        show("squared", plain[2], squared, lambda: top(4, False), activation_type="relu2", k=4)
        relu = lambda y, _: g.op("Relu", y)
        show("mixer", plain[3], relu, mixed, k=2, use_sparse_mixer=1)
        return g.model()

    def data(n):
        # Close to each other, so that the mixer's tolerance has something to decide.
        return [floats(rng, n, HIDDEN), 1 + 0.02 * floats(rng, n, EXPERTS)]

    return Case(build(True), [data(12), data(1)], reference=build(False))


class Packed:
    """Matrices `[experts, rows, columns]` of integers, under scales of rows or of blocks."""

    def __init__(self, rng, rows, columns, bits, block):
        count = columns // block if block else 1
        integers = lambda *shape: rng.integers(0, 1 << bits, shape)
        self.weight = packed(integers(EXPERTS, rows, columns), bits)
        self.scales = rng.uniform(0.5, 1.5, (EXPERTS, rows, count)).astype(np.float32) * (0.4 / (1 << bits))
        zeros = integers(EXPERTS, rows, count)
        self.zeros = packed(zeros if block else zeros[..., 0], bits)
        if not block:
            self.scales = self.scales[..., 0]


@case("op_qmoe")
def qmoe(rng):
    """Experts of 2, 4 and 8 bits, with and without zero points, under scales of rows and of blocks; weights from elsewhere."""
    hidden, inner = 32, 16
    g = Graph("qmoe", opset=17)
    x, scores = g.input("x", F32, ["n", hidden]), g.input("scores", F32, ["n", EXPERTS])
    weights = g.input("weights", F32, ["n", EXPERTS])
    own = dict(domain=DOMAIN, dtype=F32, dims=["n", hidden])

    def show(label, bits, block, has_zeros, has_halves, *more, **options):
        rows = 2 * inner if has_halves else inner
        up, down = Packed(rng, rows, hidden, bits, block), Packed(rng, hidden, inner, bits, block)
        operands = [up.weight, up.scales, floats(rng, EXPERTS, rows), down.weight, down.scales, floats(rng, EXPERTS, hidden)]
        zeros = [up.zeros, down.zeros] if has_zeros else [None, None]
        # That the weights add up to 1 the CPU provider takes for granted.
        options = dict(k=2, normalize_routing_weights=1, expert_weight_bits=bits) | options
        if block:
            options["block_size"] = block
        kind = dict(activation_type="swiglu", swiglu_fusion=1) if has_halves else dict(activation_type="silu")
        g.show(label, "QMoE", x, scores, *operands, None, None, None, *zeros, None, *more, **kind, **options, **own)

    for bits in (2, 4, 8):
        show(f"rows_{bits}", bits, 0, False, True)
        show(f"rows_{bits}_zeros", bits, 0, True, False)
    # Blocks of 8 bits are multiplied by tokens of 8 bits there.
    for bits in (2, 4):
        show(f"blocks_{bits}", bits, 16, False, False)
        show(f"blocks_{bits}_zeros", bits, 16, True, True)
    show("weighed", 4, 16, True, True, weights, k=3)
    show("weighed_as_is", 4, 0, False, True, weights, normalize_routing_weights=0)
    data = lambda n: [floats(rng, n, hidden), floats(rng, n, EXPERTS), rng.uniform(0.1, 1, (n, EXPERTS)).astype(np.float32)]
    return Case(g.model(), [data(7), data(1)])


@case("op_qmoe_widths")
def qmoe_widths(rng):
    """Matrices of two widths, and gates of their own; ONNX Runtime's CPU provider has kernels for neither, so it gets the same
    numbers in one width, and the gates' rows among the others."""
    hidden, inner = 32, 16
    of_four = rng.integers(0, 16, (2, EXPERTS, inner, hidden))
    of_eight = rng.integers(0, 256, (EXPERTS, hidden, inner))
    small, large = [rng.uniform(0.5, 1.5, shape).astype(np.float32) for shape in [(2, EXPERTS, inner), (EXPERTS, hidden)]]
    small, large, bias = small * 0.03, large * 0.002, floats(rng, 2, EXPERTS, inner)

    def build(two: bool):
        g = Graph("qmoe_widths", opset=17)
        x, scores = g.input("x", F32, ["n", hidden]), g.input("scores", F32, ["n", EXPERTS])
        options = dict(domain=DOMAIN, dtype=F32, dims=["n", hidden], k=2, normalize_routing_weights=1, activation_type="swiglu")
        second = [packed(of_eight, 8), large, None]
        if two:
            first, third = [[packed(of_four[n], 4), small[n], bias[n]] for n in range(2)]
            widths = dict(expert_weight_bits=4, fc2_expert_weight_bits=8)
            g.show("y", "QMoE", x, scores, *first, *second, *third, **widths, **options)
            return g.model()
        # 8 stands for 0 in four bits, 128 in eight.
        in_turn = lambda a: np.stack(list(a), 2).reshape(EXPERTS, 2 * inner, *a.shape[3:])
        first = [packed(in_turn(of_four + 120), 8), in_turn(small), in_turn(bias)]
        g.show("y", "QMoE", x, scores, *first, *second, expert_weight_bits=8, swiglu_fusion=1, **options)
        return g.model()

    data = lambda n: [floats(rng, n, hidden), floats(rng, n, EXPERTS)]
    return Case(build(True), [data(5), data(1)], reference=build(False))
