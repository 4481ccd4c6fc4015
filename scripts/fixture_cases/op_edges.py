"""Where an operator's easy cases end: infinite bounds, wide numbers, amounts and sizes that only the run tells."""

from __future__ import annotations

import numpy as np
import torch
from onnx import helper

from fixture_lib.export import export_torchscript
from fixture_lib.graph import BOOL, F16, F32, F64, I8, I16, I32, I64, U8, U64, Graph
from fixture_lib.registry import Case, case

MOST = np.finfo(np.float32).max
INFINITE = np.array([-np.inf, np.inf, np.nan, -MOST, MOST, -1, 0, 2], np.float32)


def floats(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


@case("op_clip_bounds")
def clip_bounds(rng):
    """The largest number is a bound for infinity; bounds of doubles; a maximum with no number."""
    g = Graph("clip_bounds", opset=13)
    x, d = g.input("x", F32, [8]), g.input("d", F64, [4])
    g.show("both", "Clip", x, -MOST, MOST)
    g.show("least", "Clip", x, -MOST, np.float32(1))
    g.show("most", "Clip", x, np.float32(0), MOST)
    g.show("in_a_chain", "Clip", g.op("Exp", g.op("Clip", g.op("Sin", x), -MOST, np.float32(0.5))), np.float32(0.1), MOST)
    g.show("doubles", "Clip", d, np.float64(-1e300), np.float64(1e200))
    g.show("doubles_single", "Clip", d, np.float64(-MOST), np.float64(0.1))
    g.show("max_nan", "Max", x, np.float32(np.nan))
    g.show("min_nan", "Min", np.full(8, np.nan, np.float32), x)
    return Case(g.model(), [[INFINITE, np.array([-1e308, -1e250, 0.3, 1e250])]])


@case("op_clip_opset_10")
def clip_opset_10(rng):
    """Bounds that are left out were finite."""
    g = Graph("clip_opset_10", opset=10)
    x = g.input("x", F32, [8])
    g.show("none", "Clip", x)
    g.show("least", "Clip", x, min=0.0)
    g.show("most", "Clip", x, max=1.0)
    return Case(g.model(), [[INFINITE]])


@case("wide_numbers")
def wide_numbers(rng):
    """Numbers that the usual float or integer does not hold, as fills, literals, operands of what is folded."""
    g = Graph("wide_numbers", opset=18)
    d, n = g.input("d", F64, ["n", 3]), g.input("n", I64, ["n"])
    u = g.input("u", U64, ["n", 3])
    shape = g.op("Shape", d)
    for label, value in [("tenth", 0.1), ("large", 1e300), ("small", 1e-300)]:
        filled = g.op("ConstantOfShape", shape, value=_tensor(np.array([value])))
        g.show(f"fill_{label}", "Mul", filled, d)
        g.show(f"choice_{label}", "Where", g.op("Greater", d, np.float64(0)), np.float64(value), np.float64(-value))
    g.show("table", "Add", d, np.array([0.1, 1e300, -1e-300]))
    large = np.array([1, 2**63, 2**64 - 1], np.uint64)
    g.show("unsigned", "Max", u, large)
    g.show("unsigned_clip", "Clip", u, np.uint64(5), np.uint64(2**63 + 5))
    g.show("unsigned_fill", "Max", u, g.op("ConstantOfShape", shape, value=_tensor(large[2:])), dtype=U64, dims=["n", 3])
    # Differences that a double does not see.
    near = np.array([[2**60, 2**60 + 1, 2**60 - 1], [-(2**60), -(2**60) - 1, 2**53]], np.int64)
    g.show("largest", "ArgMax", g.op("Mul", near, np.int64(1)), axis=1)
    g.show("least", "ArgMin", near, axis=1, select_last_index=1)
    most = np.int64(2**63 - 1)
    size = g.op("Shape", n)
    g.show("wrapped_sum", "Add", g.op("Add", size, most), n, dtype=I64, dims=["n"])
    g.show("wrapped_product", "Add", g.op("Mul", g.op("Add", most, np.int64(0)), np.int64(3)), n)
    g.show("wrapped_minus", "Add", g.op("Neg", np.int64(-(2**63))), n)

    def inputs(n):
        unsigned = rng.integers(0, 2**64, (n, 3), dtype=np.uint64)
        return [rng.standard_normal((n, 3)), np.arange(n), unsigned]

    return Case(g.model(), [inputs(2), inputs(1)])


def _tensor(value):
    from onnx import numpy_helper

    return numpy_helper.from_array(value)


@case("op_pad_amounts")
def pad_amounts(rng):
    """Amounts from an input and from sizes, of which some turn out negative."""
    g = Graph("pad_amounts", opset=18)
    x, amounts = g.input("x", F32, ["n", 6, 5]), g.input("amounts", I64, [6])
    like = g.input("like", F32, ["a", "b", "c"])
    for mode in ["constant", "reflect", "edge"]:
        g.show(mode, "Pad", x, amounts, mode=mode, dtype=F32, dims=[None] * 3)
    missing = g.op("Sub", g.op("Shape", like), g.op("Shape", x))
    half = g.op("Concat", np.zeros(3, np.int64), missing, axis=0)
    g.show("to_other", "Pad", x, half, np.float32(7), dtype=F32, dims=[None] * 3)
    cuts = [[0, 1, -2, 0, -3, 1], [0, -1, -1, 0, 0, -2], [0, 2, 0, 0, 0, 3]]
    others = [(2, 4, 7), (2, 6, 5), (2, 9, 1)]
    return Case(g.model(), [[floats(rng, 2, 6, 5), np.array(c), floats(rng, *o)] for c, o in zip(cuts, others)])


@case("op_gather_weights")
def gather_weights(rng):
    """Tables that are named like an embedding's, with indices that count from the end."""
    g = Graph("gather_weights", opset=17)
    one, two = g.input("one", I64, ["k"]), g.input("two", I64, ["n", "k"])
    table = g.const(floats(rng, 6, 3), "table.weight")
    other = g.const(floats(rng, 6), "scale.weight")
    g.show("rows", "Gather", table, one, axis=0)
    g.show("matrix", "Gather", table, two, axis=0)
    g.show("columns", "Gather", table, g.op("Mod", one, np.int64(3)), axis=1)
    g.show("vector", "Gather", other, two, axis=0)
    return Case(g.model(), [[np.array([0, -1, 5, -6]), np.array([[1, -1, -6, 3], [-2, 0, 5, -3]])]])


@case("op_empty_sizes")
def empty_sizes(rng):
    """Sizes of 0 that only the run tells, and reshapes for which 0 is a size."""
    g = Graph("empty_sizes", opset=17)
    x, like = g.input("x", F32, ["n", 1, 3]), g.input("like", F32, ["a", "b", 3])
    g.show("expand", "Expand", x, g.op("Shape", like), dtype=F32, dims=[None, None, 3])
    flat = g.op("Reshape", x, [-1])
    g.show("expand_last", "Expand", g.op("Unsqueeze", flat, [1]), g.op("Shape", flat), dtype=F32, dims=[None, None])
    empty = g.input("empty", F32, [0, 4])
    g.show("zero_known", "Reshape", empty, [3, 2, 0], allowzero=1)
    wanted = g.input("wanted", I64, [3])
    g.show("zero_given", "Reshape", empty, wanted, allowzero=1, dtype=F32, dims=[None] * 3)
    full = g.input("full", F32, ["m", 4])
    target = g.input("target", I64, [2])
    g.show("full_given", "Reshape", full, target, allowzero=1, dtype=F32, dims=[None] * 2)
    g.show("copied", "Reshape", full, target, dtype=F32, dims=[None] * 2)

    def inputs(n, a, b, wanted, m, target):
        data = [floats(rng, n, 1, 3), floats(rng, a, b, 3), floats(rng, 0, 4), np.array(wanted), floats(rng, m, 4)]
        return [*data, np.array(target)]

    return Case(
        g.model(),
        [
            inputs(1, 0, 2, [0, 5, 7], 2, [4, -1]),
            inputs(0, 1, 2, [3, 0, 2], 3, [2, 6]),
            inputs(2, 1, 0, [1, 2, 0], 1, [-1, 2]),
            inputs(2, 2, 4, [0, 0, 0], 4, [16, 1]),
        ],
    )


@case("op_slice_bounds")
def slice_bounds(rng):
    """Bounds at the ends of axes that turn out to be empty, and the least integers there are."""
    g = Graph("slice_bounds", opset=17)
    x = g.input("x", F32, [2, "n"])
    show = lambda label, start, end, step=1: g.show(label, "Slice", x, start, end, [1], [step], dtype=F32, dims=[2, None])
    most, least = 2**63 - 1, -(2**63)
    tail, head = show("tail", [1], [most]), show("head", [0], [-1])
    g.show("differences", "Sub", tail, head, dtype=F32, dims=[2, None])
    g.show("joined", "Concat", show("first_two", [0], [2]), tail, axis=1, dtype=F32, dims=[2, None])
    size = g.op("Shape", x, start=1, end=2)
    show("up_to_size", [0], g.op("Sub", size, [1]))
    show("inner", [1], [-1])
    show("one_back", [-1], [-2])
    show("backwards", [most], [least], -1)
    show("from_first", [0], [least], -1)
    show("from_last", [-1], [least], -2)
    show("last_by_least", [most], [least], least)
    show("first_by_most", [0], [most], most)
    show("beyond", [7], [9])
    return Case(g.model(), [[floats(rng, 2, n)] for n in (4, 0, 1)])


@case("op_trilu_diagonals")
def trilu_diagonals(rng):
    """Diagonals that only the run gives."""
    g = Graph("trilu_diagonals", opset=17)
    x, keep, k = g.input("x", F32, [2, "n", 4]), g.input("keep", BOOL, [3, 4]), g.input("k", I64, [])
    for upper in (0, 1):
        g.show(f"floats_{upper}", "Trilu", x, k, upper=upper)
        g.show(f"truths_{upper}", "Trilu", keep, k, upper=upper, dtype=BOOL, dims=[3, 4])
    truths = np.ones((3, 4), bool)
    return Case(g.model(), [[floats(rng, 2, n, 4), truths, np.array(k)] for n, k in [(3, 0), (3, 1), (2, -1), (5, -9), (4, 2**62)]])


@case("op_max_pool_integers")
def max_pool_integers(rng):
    """Maxima of integers, and where they are."""
    g = Graph("max_pool_integers", opset=12)
    for label, dtype in [("i8", I8), ("u8", U8)]:
        x = g.input(label, dtype, ["n", 2, 5, 6])
        g.show(f"{label}_max", "MaxPool", x, kernel_shape=[2, 3], pads=[1, 0, 0, 1], strides=[1, 2])
        outs = [f"{label}_found", f"{label}_places"]
        g.op("MaxPool", x, out=outs, kernel_shape=[2, 3], pads=[1, 0, 0, 1], strides=[1, 2])
        g.output(outs[0], dtype, ["n", 2, 5, 3])
        g.output(outs[1], I64, ["n", 2, 5, 3])
    data = lambda dtype: rng.integers(-128 if dtype == np.int8 else 0, 100, (2, 2, 5, 6)).astype(dtype)
    return Case(g.model(), [[data(np.int8), data(np.uint8)]])


@case("op_range_floats")
def range_floats(rng):
    """Floats up to a size: `torch.arange(h, dtype=torch.float32)`, with starts and steps that are no integers."""
    g = Graph("range_floats", opset=17)
    x = g.input("x", F32, ["n", "h"])
    rows, columns = (g.op("Squeeze", g.op("Slice", g.op("Shape", x), [i], [i + 1]), [0]) for i in (0, 1))
    for dtype, number in [(F32, np.float32), (F64, np.float64)]:
        h, n = g.op("Cast", columns, to=dtype), g.op("Cast", rows, to=dtype)
        show = lambda label, *operands: g.show(f"{label}_{dtype}", "Range", *operands, dtype=dtype, dims=[None])
        show("plain", number(0), h, number(1))
        show("half", number(0.5), h, number(1))
        show("steps", number(-1.25), h, number(0.75))
        show("down", h, number(0), number(-1.5))
        show("difference", n, g.op("Add", h, number(0.5)), number(1))
        show("scaled", number(0), g.op("Mul", h, number(0.5)), number(0.25))
        show("backwards", h, number(-1), number(1))
    return Case(g.model(), [[floats(rng, 2, 5)], [floats(rng, 4, 1)], [floats(rng, 1, 8)]])


@case("op_range_given")
def range_given(rng):
    """Starts, limits and steps that only the run gives, of every dtype that a range may have."""
    g = Graph("range_given", opset=17)
    names = ("start", "limit", "delta")
    for dtype in (I16, I32, I64, F32, F64):
        number = helper.tensor_dtype_to_np_dtype(dtype).type
        given = {name: g.input(f"{name}_{dtype}", dtype, []) for name in names}
        known = dict(zip(names, map(number, (1, 9, 2))))

        def show(label, operands):
            g.show(f"{label}_{dtype}", "Range", *operands.values(), dtype=dtype, dims=[None])

        for name in names:
            show(f"{name}_given", {**known, name: given[name]})
        show("known_step", {**given, "delta": number(-1)})
        show("all_given", given)
        show("window", {"start": given["start"], "limit": g.op("Add", given["start"], number(5)), "delta": number(2)})
    # Steps down, none at all, and floats between steps.
    draws = [((2, 11, 3), (0.5, 4.3, 0.7)), ((7, -6, -4), (3.0, -1.0, -0.5)), ((5, 5, 1), (2.5, 1.5, 0.25))]
    data = []
    for ints, floats_ in draws:
        values = []
        for dtype in (I16, I32, I64, F32, F64):
            number = helper.tensor_dtype_to_np_dtype(dtype).type
            values += [np.array(n, number) for n in (floats_ if dtype in (F32, F64) else ints)]
        data.append(values)
    return Case(g.model(), data)


@case("op_one_hot_given")
def one_hot_given(rng):
    """Depths that only the run gives: an integer, a float, one more than the largest index; values of the run as well."""
    g = Graph("one_hot_given", opset=17)
    i, depth = g.input("i", I64, ["n", 2]), g.input("depth", I64, [])
    wide, off_on = g.input("wide", F32, [1]), g.input("off_on", F32, [2])
    show = lambda label, *operands, dims, **attributes: g.show(
        label, "OneHot", *operands, dtype=F32, dims=dims, **attributes
    )
    zero_one = np.array([0, 1], np.float32)
    show("integer", i, depth, zero_one, dims=["n", 2, "depth"])
    show("first", i, depth, off_on, dims=["depth", "n", 2], axis=0)
    show("float", g.op("Cast", i, to=F32), wide, zero_one, dims=["n", "wide", 2], axis=1)
    most = g.op("Add", g.op("ReduceMax", i, keepdims=0), np.int64(1))
    show("largest", i, most, zero_one, dims=["n", 2, "most"])
    x = [np.array([[0, 3], [-1, 2]]), np.array([[1, -2], [5, 0], [4, 4]])]
    values = [np.array([2.5, -1], np.float32), np.array([0, 7], np.float32)]
    depths = [(np.array(4), np.array([5], np.float32)), (np.array(6), np.array([3], np.float32))]
    return Case(g.model(), [[i, *depth, value] for i, depth, value in zip(x, depths, values)])


@case("op_group_norm_shapes")
def group_norm_shapes(rng):
    """Without spatial axes, and with channels that only the run tells."""
    g = Graph("group_norm_shapes", opset=21)
    flat, free = g.input("flat", F32, ["n", 6]), g.input("free", F32, ["n", "c", 4])
    weight, bias = floats(rng, 6), floats(rng, 6)
    per_channel = g.input("weight", F32, ["c"]), g.input("bias", F32, ["c"])
    g.show("flat_groups", "GroupNormalization", flat, weight, bias, num_groups=2, dtype=F32, dims=["n", 6])
    g.show("free_groups", "GroupNormalization", free, *per_channel, num_groups=2, dtype=F32, dims=["n", "c", 4])
    g.show("free_instance", "InstanceNormalization", free, *per_channel, dtype=F32, dims=["n", "c", 4])
    data = lambda n, c: [floats(rng, n, 6), floats(rng, n, c, 4), floats(rng, c), floats(rng, c)]
    return Case(g.model(), [data(2, 4), data(1, 6)])


@case("op_pool_same")
def pool_same(rng):
    """`auto_pad` with strides over sizes that only the run tells."""
    g = Graph("pool_same", opset=19)
    x = g.input("x", F32, ["n", 2, "h", "w"])
    for pad in ["SAME_UPPER", "SAME_LOWER"]:
        same = dict(auto_pad=pad, strides=[2, 3], dtype=F32, dims=["n", 2, None, None])
        g.show(f"max_{pad}", "MaxPool", x, kernel_shape=[3, 2], **same)
        for order in (0, 1):
            outs = [f"found_{pad}_{order}", f"places_{pad}_{order}"]
            g.op("MaxPool", x, out=outs, kernel_shape=[3, 2], auto_pad=pad, strides=[2, 3], storage_order=order)
            g.output(outs[0], F32, ["n", 2, None, None])
            g.output(outs[1], I64, ["n", 2, None, None])
        g.show(f"mean_{pad}", "AveragePool", x, kernel_shape=[3, 4], **same)
        g.show(f"mean_padded_{pad}", "AveragePool", x, kernel_shape=[3, 4], count_include_pad=1, **same)
        g.show(f"conv_{pad}", "Conv", x, floats(rng, 3, 2, 3, 2), auto_pad=pad, strides=[2, 3], dtype=F32, dims=["n", 3, None, None])
    return Case(g.model(), [[floats(rng, 1, 2, h, w)] for h, w in [(7, 5), (6, 8), (1, 4)]])


@case("op_attention_masks")
def attention_masks(rng):
    """What a query yields to which a mask leaves no key: equal weights, nothing, or no number."""
    g = Graph("attention_masks", opset=17)
    q, k, v = (g.input(name, F32, ["b", 2, seq, 4]) for name, seq in [("q", "s"), ("k", "t"), ("v", "t")])
    keep, added = g.input("keep", BOOL, ["b", 1, "s", "t"]), g.input("added", F32, ["b", 1, "s", "t"])
    scores = lambda: g.op("Mul", g.op("MatMul", q, g.op("Transpose", k, perm=[0, 1, 3, 2])), np.float32(0.5))

    def attend(label, masked, guarded=False):
        p = g.op("Softmax", masked, axis=-1)
        if guarded:
            p = g.op("Where", g.op("IsNaN", p), np.float32(0), p)
        g.show(label, "MatMul", p, v, dtype=F32, dims=["b", 2, "s", 4])

    for name, low in [("min", -MOST), ("e9", -1e9), ("e4", -1e4), ("infinite", -np.inf)]:
        low = np.float32(low)
        for guarded in [False, True]:
            label = f"{name}_guarded" if guarded else name
            attend(f"keep_{label}", g.op("Where", keep, scores(), low), guarded)
            attend(f"hide_{label}", g.op("Where", g.op("Not", keep), low, scores()), guarded)
            mask = g.op("Where", keep, np.float32(0), low)
            attend(f"sum_{label}", g.op("Add", scores(), mask), guarded)
            attend(f"both_{label}", g.op("Add", g.op("Where", keep, scores(), low), added), guarded)
    attend("sum_added", g.op("Add", scores(), added))
    attend("sum_added_guarded", g.op("Add", scores(), added), True)

    def inputs(b, s, t):
        keep = rng.integers(0, 2, (b, 1, s, t)).astype(bool)
        keep[0, 0, 0] = False
        added = np.where(rng.integers(0, 3, (b, 1, s, t)) > 0, floats(rng, b, 1, s, t), -np.inf).astype(np.float32)
        added[0, 0, -1] = -np.inf
        return [floats(rng, b, 2, s, 4), floats(rng, b, 2, t, 4), floats(rng, b, 2, t, 4), keep, added]

    return Case(g.model(), [inputs(1, 3, 5), inputs(2, 9, 4)])


@case("op_attention_shared_masks")
def attention_shared_masks(rng):
    """Masks that have the queries' sizes by name, and at run time those or 1."""
    g = Graph("attention_shared_masks", opset=23)
    q, k, v = (g.input(name, F32, ["b", "h", seq, 4]) for name, seq in [("q", "s"), ("k", "t"), ("v", "t")])
    keep, added = g.input("keep", BOOL, ["b", "h", "s", "t"]), g.input("added", F32, ["b", 1, "s", "t"])
    padding = g.input("padding", I64, ["b", "t"])
    shape = dict(dtype=F32, dims=["b", "h", "s", 4])
    g.show("kept", "Attention", q, k, v, keep, **shape)
    g.show("kept_causal", "Attention", q, k, v, keep, is_causal=1, **shape)
    scores = lambda: g.op("Mul", g.op("MatMul", q, g.op("Transpose", k, perm=[0, 1, 3, 2])), np.float32(0.5))
    attend = lambda name, masked: g.show(name, "MatMul", g.op("Softmax", masked, axis=-1), v, **shape)
    attend("summed", g.op("Add", scores(), added))
    # As BERT has it: a mask of the keys, for all queries.
    hidden = g.op("Cast", g.op("Unsqueeze", padding, np.array([1, 2])), to=F32)
    attend("padded", g.op("Add", scores(), g.op("Mul", g.op("Sub", np.float32(1), hidden), np.float32(-1e9))))

    def inputs(b, h, s, t, keep, added, padding):
        keep = rng.integers(0, 3, (*keep, s, t)).astype(bool)
        padding = rng.integers(0, 2, padding)
        keep[..., 0], padding[:, 0] = True, 1
        return [*(floats(rng, b, h, seq, 4) for seq in (s, t, t)), keep, floats(rng, *added), padding]

    whole = inputs(3, 2, 5, 6, (3, 2), (3, 1, 5, 6), (3, 6))
    shared = [inputs(3, 2, 5, 6, (1, 1), (1, 1, 1, 6), (1, 6)), inputs(2, 3, 4, 7, (2, 1), (1, 1, 4, 1), (2, 1))]
    return Case(g.model(), [whole, *shared])


@case("op_attention_no_keys")
def attention_no_keys(rng):
    """A cache that is still empty, and masks of it."""
    g = Graph("attention_no_keys", opset=17)
    q, k, v = (g.input(name, F32, ["b", 2, seq, 4]) for name, seq in [("q", "s"), ("k", "t"), ("v", "t")])
    scores = g.op("MatMul", q, g.op("Transpose", k, perm=[0, 1, 3, 2]))
    g.show("y", "MatMul", g.op("Softmax", scores, axis=-1), v, dtype=F32, dims=["b", 2, "s", 4])
    data = lambda t: [floats(rng, 1, 2, 3, 4), floats(rng, 1, 2, t, 4), floats(rng, 1, 2, t, 4)]
    return Case(g.model(), [data(0), data(2)])


@case("op_attention_fully_masked")
def attention_fully_masked(rng):
    """ONNX's operator: zeros for a query without keys, whatever kind the mask is of."""
    g = Graph("attention_fully_masked", opset=23)
    q, k, v = (g.input(name, F32, ["b", 2, seq, 4]) for name, seq in [("q", "s"), ("k", "t"), ("v", "t")])
    keep, added = g.input("keep", BOOL, ["s", "t"]), g.input("added", F32, ["s", "t"])
    shape = dict(dtype=F32, dims=["b", 2, "s", 4])
    g.show("kept", "Attention", q, k, v, keep, **shape)
    g.show("summed", "Attention", q, k, v, added, **shape)
    g.show("summed_causal", "Attention", q, k, v, added, is_causal=1, **shape)

    def inputs(s, t):
        keep = rng.integers(0, 2, (s, t)).astype(bool)
        keep[0] = False
        added = np.where(keep, floats(rng, s, t), -np.inf).astype(np.float32)
        return [floats(rng, 1, 2, s, 4), floats(rng, 1, 2, t, 4), floats(rng, 1, 2, t, 4), keep, added]

    return Case(g.model(), [inputs(3, 5), inputs(9, 4)], numpy_answers=True)


@case("op_mod_sizes")
def mod_sizes(rng):
    """Sizes modulo negative numbers and what is negative modulo sizes."""
    g = Graph("mod_sizes", opset=17)
    x = g.input("x", F32, ["n", 3, "h"])
    shape, divisors = g.op("Shape", x), np.array([-4, 3, -2], np.int64)
    less = g.op("Sub", shape, np.array([4, 4, 4], np.int64))
    g.show("remainder", "Mod", shape, divisors)
    g.show("remainder_of_negative", "Mod", less, shape)
    g.show("fmod", "Mod", shape, divisors, fmod=1)
    g.show("fmod_of_negative", "Mod", less, np.array([3, 2, 3], np.int64), fmod=1)
    g.show("quotient", "Div", shape, divisors)
    g.show("quotient_of_negative", "Div", less, np.array([2, 2, 2], np.int64))
    return Case(g.model(), [[floats(rng, n, 3, h)] for n, h in [(2, 5), (5, 1), (1, 2)]])


class Squeezed(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x.squeeze(1))


@case("op_squeeze_unknown")
def squeeze_unknown(rng):
    """The older exporter asks at run time whether there is an axis to squeeze; what it declares says that there is."""
    x = torch.from_numpy(floats(rng, 2, 1, 4))
    axes = {"x": {0: "n", 1: "k"}}
    model = export_torchscript(Squeezed(), (x,), opset=13, input_names=["x"], dynamic_axes=axes)
    assert "If" in {node.op_type for node in model.graph.node}
    return Case(model, [[x.numpy()], [floats(rng, 3, 1, 4)]])


@case("op_power_edges")
def power_edges(rng):
    """Powers of ½ and −½, which are no roots of −0 and −∞, and are those of what cannot be negative."""
    g = Graph("power_edges", opset=17)
    x = g.input("x", F32, ["n", 4])
    number = lambda value: np.array(value, np.float32)
    for name, value in [("plain", x), ("square", g.op("Mul", x, x)), ("size", g.op("Abs", x)), ("rest", g.op("Relu", x))]:
        g.show(f"{name}_root", "Pow", value, number(0.5))
        g.show(f"{name}_inverse_root", "Pow", value, number(-0.5))
    ends = np.array([[-np.inf, -0.0, 0.0, np.inf], [-4.0, 4.0, np.nan, 0.25]], np.float32)
    return Case(g.model(), [[ends], [floats(rng, 3, 4)]])


@case("op_squeeze_nothing")
def squeeze_nothing(rng):
    """No axes at all, as a list that is there: nothing is squeezed (ONNX Runtime takes it for none; the answers are those of ONNX's own evaluator)."""
    g = Graph("squeeze_nothing", opset=13)
    x = g.input("x", F32, ["n", 1, 4])
    g.show("nothing", "Squeeze", x, np.zeros(0, np.int64), dtype=F32, dims=["n", 1, 4])
    g.show("all", "Squeeze", g.op("Abs", g.const(floats(rng, 1, 3, 1))), dtype=F32, dims=[3])
    return Case(g.model(), [[floats(rng, 2, 1, 4)], [floats(rng, 1, 1, 4)]], numpy_answers=True)


@case("lookalikes")
def lookalikes(rng):
    """Formulas near those of norms and activations, which are none: other powers, other constants."""
    g = Graph("lookalikes", opset=17)
    x = g.input("x", F32, ["n", 4])
    number = lambda value: np.array(value, np.float32)

    def rms(y):
        mean = g.op("ReduceMean", g.op("Mul", y, y), axes=[-1])
        return g.op("Sqrt", g.op("Add", mean, number(1e-3)))

    square, root = g.op("Mul", x, x), rms(x)
    g.show("square_over_root", "Div", square, rms(x))
    g.show("over_square", "Div", g.op("Div", x, root), root)
    g.show("cube_over_root", "Div", g.op("Mul", g.op("Mul", x, x), x), rms(x))
    g.show("power_over_root", "Div", g.op("Pow", x, number(3)), rms(x))
    centred = g.op("Sub", x, g.op("ReduceMean", x, axes=[-1]))
    inverse = g.op("Reciprocal", rms(centred))
    g.show("inverse_squared", "Mul", centred, g.op("Mul", inverse, inverse))
    g.show("scaled_norm", "Div", g.op("Mul", x, number(1.0009)), rms(x))
    for label, root2, half in [("root", 1.4128, 0.5), ("half", 2**0.5, 0.5004)]:
        erf = g.op("Erf", g.op("Div", x, number(root2)))
        g.show(f"gelu_{label}", "Mul", g.op("Mul", x, g.op("Add", erf, number(1))), number(half))
    g.show("sigmoid_scaled", "Mul", x, g.op("Sigmoid", g.op("Mul", x, number(1.0009))))
    q, k = g.input("q", F32, ["n", 2, 3, 4]), g.input("k", F32, ["n", 2, 3, 4])
    scores = g.op("Mul", g.op("MatMul", q, g.op("Transpose", k, perm=[0, 1, 3, 2])), number(0.5004))
    g.show("attention_scale", "MatMul", g.op("Softmax", scores, axis=-1), k)
    return Case(g.model(), [[floats(rng, n, 4), floats(rng, n, 2, 3, 4) * 4, floats(rng, n, 2, 3, 4) * 4] for n in (3, 1)])


@case("module_of_read_dims")
def module_of_read_dims(rng):
    """Modules that compute with the sizes of their input, which the model reads from another input."""
    g = Graph("module_of_read_dims", opset=17)
    sizes, row = g.input("sizes", I64, [3]), g.input("row", F32, [4])
    x = g.op("Expand", row, sizes, name="/Expand")
    rows = g.op("Cast", g.op("Gather", sizes, np.int64(1), name="/Gather"), to=F32, name="/Cast")
    x = g.op("Mul", x, rows, name="/Mul")
    for n in range(2):

        def op(name, op_type, *operands, **options):
            return g.op(op_type, *operands, name=f"/blocks.{n}/{name}", **options)

        weights = [g.const(floats(rng, 4, 4), f"blocks.{n}.{name}.weight") for name in ("first", "second")]
        shape = op("Shape", "Shape", x)
        batch, count = op("Gather", "Gather", shape, [0]), op("Gather_1", "Gather", shape, [1])
        hidden = op("Slice", "Slice", op("first/MatMul", "MatMul", x, weights[0]), [1], count, [1])
        turned = op("Reshape", "Reshape", hidden, op("Concat", "Concat", batch, [-1, 2], axis=0))
        mean = op("ReduceMax", "ReduceMax", turned, axes=[1, 2])
        x = op("Add", "Add", op("second/MatMul", "MatMul", x, weights[1]), mean)
    g.show("y", "MatMul", x, g.const(floats(rng, 4, 3), "head.weight"), name="/head/MatMul", dtype=F32, dims=[None, None, 3])
    data = lambda *dims: [np.array([*dims, 4]), floats(rng, 4)]
    return Case(g.model(), [data(2, 3), data(1, 5)])


@case("parts_of_a_function")
def parts_of_a_function(rng):
    """More steps than one function has, the first of them with parameters: parts hand each other tensors."""
    g = Graph("parts_of_a_function", opset=17)
    ids = g.input("ids", I64, ["n"])
    a = g.op("Gather", g.const(floats(rng, 9, 4), "table"), ids)
    b = g.op("MatMul", a, g.const(floats(rng, 4, 4), "weight"))
    kept = g.op("Softmax", b)
    for step in range(120):
        op = ["Sigmoid", "Tanh", "Softplus", "Sin", "Elu", "Cos", "Softsign"][int(rng.integers(7))]
        if step % 5 == 4:
            a, b = b, g.op("Softmax", g.op("MatMul", g.op("Transpose", a), b), axis=int(rng.integers(2)))
            b = g.op("MatMul", a, b)
        elif step % 7 == 3:
            b = g.op(["Add", "Mul", "Sub"][int(rng.integers(3))], a, g.op(op, b))
        else:
            a = g.op(op, a)
        if step % 40 == 39:
            a = g.op("Add", a, kept)
    g.show("y", "Concat", a, b, kept, axis=1, dtype=F32, dims=["n", 12])
    return Case(g.model(), [[rng.integers(0, 9, n)] for n in (3, 2)])


@case("shape_by_floats")
def shape_by_floats(rng):
    """Sizes that go through floats, as `interpolate` by a factor and `range` of a script have them: none is read from a device."""
    g = Graph("shape_by_floats", opset=17)
    x, like = g.input("x", F32, ["h", "w"]), g.input("like", F32, ["rows", "columns"])

    def size(value, n):
        return g.op("Cast", g.op("Gather", g.op("Shape", value), np.int64(n), axis=0), to=F32)

    def show(label, *numbers):
        lengths = [g.op("Unsqueeze", g.op("Cast", number, to=I64), [0]) for number in numbers]
        g.show(label, "ConstantOfShape", g.op("Concat", *lengths, axis=0), dtype=F32, dims=[None] * len(numbers))

    by = lambda number, factor: g.op("Mul", number, np.float32(factor))
    h, w = size(x, 0), size(x, 1)
    show("larger", g.op("Floor", by(h, 1.5)), g.op("Ceil", by(w, 1.25)))
    show("smaller", by(h, 0.5), g.op("Ceil", g.op("Div", w, np.float32(4))))
    show("tenths", g.op("Floor", by(h, 0.7)), g.op("Floor", by(w, 0.1)), g.op("Ceil", by(h, 0.3)))
    # Of thirds, and as `range(1, n)` counts.
    show("thirds", by(h, 1 / 3), g.op("Ceil", g.op("Div", g.op("Sub", w, np.float32(1)), np.float32(1))))
    show("ratio", g.op("Floor", g.op("Div", size(like, 0), h)), g.op("Ceil", g.op("Div", size(like, 1), w)))
    # All at once.
    sizes = g.op("Floor", g.op("Mul", g.op("Cast", g.op("Shape", x), to=F32), np.array([2, 0.75], np.float32)))
    g.show("at_once", "ConstantOfShape", g.op("Cast", sizes, to=I64), dtype=F32, dims=[None] * 2)
    inputs = lambda h, w, rows, columns: [floats(rng, h, w), floats(rng, rows, columns)]
    cases = [(10, 30, 25, 31), (7, 29, 7, 2), (13, 10, 1, 100), (20, 3, 19, 3), (1, 2, 5, 7), (30, 20, 90, 1)]
    return Case(g.model(), [inputs(*sizes) for sizes in cases])


@case("shape_center_crop")
def shape_center_crop(rng):
    """The middle of an image, whose beginning is negative where the image is smaller: integers are divided towards zero."""
    g = Graph("shape_center_crop", opset=17)
    x = g.input("x", F32, ["h", "w"])
    size = lambda n: g.op("Gather", g.op("Shape", x), np.array([n]), axis=0)
    start = g.op("Div", g.op("Sub", size(0), np.array([6])), np.array([2]))
    g.show("rows", "Slice", x, start, g.op("Add", start, np.array([6])), [0], dtype=F32, dims=[None, "w"])
    # From the end, by a third of what is more than seven.
    start = g.op("Div", g.op("Sub", np.array([7]), size(1)), np.array([3]))
    g.show("columns", "Slice", x, start, [100], [1], dtype=F32, dims=["h", None])
    both = g.op("Div", g.op("Sub", g.op("Shape", x), np.array([4, 9])), np.array([3, 2]))
    g.show("places", "Mul", both, np.int64(1), dtype=I64, dims=[2])
    inputs = lambda h, w: [floats(rng, h, w)]
    return Case(g.model(), [inputs(*sizes) for sizes in [(9, 12), (6, 7), (5, 5), (3, 2), (1, 20), (2, 1)]])


@case("op_ranges_of_the_run")
def ranges_of_the_run(rng):
    """Ranges whose numbers only the run tells: differences that round in f32, and that their dtype has no room for."""
    g = Graph("ranges_of_the_run", opset=18)
    limit, step = g.input("limit", F32, []), g.input("step", F32, [])
    least, most, apart = (g.input(name, I16, []) for name in ["least", "most", "apart"])
    g.show("floats", "Range", np.float32(0.1), limit, step, dims=["floats"])
    g.show("integers", "Range", least, most, apart, dims=["integers"])
    far = np.int16(10000)
    return Case(
        g.model(),
        [
            [np.float32(0.4), np.float32(0.1), np.int16(-30000), np.int16(30000), far],
            [np.float32(0.6), np.float32(0.1), np.int16(30000), np.int16(-30000), -far],
            [np.float32(1.1), np.float32(0.1), np.int16(0), np.int16(-1), far],
        ],
    )


@case("op_halves_squared")
def halves_squared(rng):
    """Squares of halves that no half holds, in sums and norms that one does."""

    def model(dtype):
        g = Graph("halves_squared", opset=18)
        x = g.input("x", dtype, [2, 4, 6])
        g.show("length", "ReduceL2", x, [2], keepdims=0)
        g.show("directions", "LpNormalization", x, axis=1, p=2)
        g.show("pooled", "GlobalLpPool", x, p=2)
        g.show("local", "LRN", g.op("Unsqueeze", x, [3]), size=3, alpha=0.5, dims=[2, 4, 6, 1])
        y = g.input("y", dtype, [2, "channels", 6])
        scale, bias = g.input("scale", dtype, ["channels"]), g.input("bias", dtype, ["channels"])
        g.show("instances", "InstanceNormalization", y, scale, bias)
        four = [g.const(np.full(4, n, np.float16 if dtype == F16 else np.float32)) for n in (1, 0, 0, 1)]
        batch = g.op("BatchNormalization", x, *four, training_mode=1, out=3)[0]
        g.output(batch, dtype, [2, 4, 6])
        return g.model()

    large = (rng.standard_normal((2, 4, 6)) * 400).astype(np.float16)
    weights = [np.ones(4, np.float16), np.full(4, 0.5, np.float16)]
    return Case(model(F16), [[large, large * np.float16(2), *weights]], reference=model(F32))


@case("op_integers_by_fractions")
def integers_by_fractions(rng):
    """Integers that fractions bound or move, a slope below zero, and where a scalar is not zero."""
    g = Graph("integers_by_fractions", opset=18)
    x, n, scalar = g.input("x", F32, [7]), g.input("n", I32, [6]), g.input("scalar", F32, [])
    u = g.input("u", U8, [5])
    g.show("shrunk", "Shrink", n, bias=1.5, lambd=1.5)
    g.show("shrunk_unsigned", "Shrink", u, lambd=1.5)
    g.show("celu", "Celu", x, alpha=-0.5)
    g.show("place", "NonZero", scalar, dims=[1, "places"])
    numbers = np.array([-5, -2, -1, 0, 2, 7], np.int32)
    bytes_ = np.array([0, 1, 2, 5, 255], np.uint8)
    floats_ = np.array([-2, -0.5, 0, 0.25, 1, 2, 3], np.float32)
    return Case(g.model(), [[floats_, numbers, np.float32(k), bytes_] for k in (2, 0)])


@case("op_range_opset_27")
def range_opset_27(rng):
    """Halves whose range is computed in single precision."""

    def model(dtype, opset):
        g = Graph("range_opset_27", opset=opset)
        start, limit, step = (g.input(name, dtype, []) for name in ["start", "limit", "step"])
        # Version 27 has an attribute that says it.
        said = {"stash_type": 1} if opset == 27 else {}
        g.show("range", "Range", start, limit, step, dims=["count"], **said)
        return g.model()

    numbers = [np.float16(x) for x in (0.1, 100, 0.1)]
    return Case(model(F16, 27), [numbers], reference=model(F32, 18))


@case("op_one_hot_of_the_run")
def one_hot_of_the_run(rng):
    """Two numbers of a tensor whose length the run tells."""
    g = Graph("one_hot_of_the_run", opset=18)
    index, values = g.input("index", I64, [4]), g.input("values", F32, ["values"])
    g.show("hot", "OneHot", index, np.int64(3), values)
    return Case(
        g.model(),
        [[np.array([0, 2, 1, -1]), np.array([-1, 5], np.float32)]],
    )


@case("op_gemm_of_integers")
def gemm_of_integers(rng):
    """Integers that fractions scale."""
    g = Graph("gemm_of_integers", opset=13)
    a, b, c = g.input("a", I32, [2, 3]), g.input("b", I32, [3, 2]), g.input("c", I32, [2])
    g.show("halves", "Gemm", a, b, c, alpha=0.5, beta=2.0)
    even = [2 * rng.integers(-9, 9, shape).astype(np.int32) for shape in ([2, 3], [3, 2], [2])]
    return Case(g.model(), [even], numpy_answers=True)


@case("op_edges_of_axes")
def edges_of_axes(rng):
    """No axes at all, where the run could give some; a sum that is nearly a mean; transposed convolutions that must be larger than windows reach, of a size that the run tells."""
    g = Graph("edges_of_axes", opset=18)
    x, axes = g.input("x", F32, [1, 2, 1, 3]), g.input("axes", I64, [0])
    d, n = g.input("d", F64, [8]), g.input("n", F32, [1, 2, "length"])
    g.show("reduced", "ReduceSum", x, axes, dtype=F32, dims=["a", "b", "c", "d"])
    g.show("reduced_to_one", "ReduceSum", x, axes, keepdims=0, dtype=F32, dims=[])
    g.show("nearly_a_mean", "Mul", g.op("ReduceSum", d), np.float64(0.1250001))
    g.show("inverse_twice", "Reciprocal", g.op("Reciprocal", x))
    w, b = floats(rng, 2, 3, 2), floats(rng, 3)
    for label, extra in [("", []), ("_bias", [b])]:
        g.show(f"longer{label}", "ConvTranspose", n, w, *extra, strides=[3], output_shape=[10], dtype=F32, dims=[1, 3, 10])
    numbers = np.array([1e-39, 0.5, -2, 3, 4, -1e-39], np.float32).reshape(1, 2, 1, 3)
    inputs = [numbers, np.array([], np.int64), rng.standard_normal(8)]
    return Case(g.model(), [[*inputs, floats(rng, 1, 2, 3)]])


@case("op_losses_of_what_is_impossible")
def losses_of_what_is_impossible(rng):
    """The first class, which stands for ignored ones, cannot be."""
    g = Graph("losses_of_what_is_impossible", opset=13)
    x, t = g.input("x", F32, [2, 3]), g.input("t", I64, [2])
    for reduction in ("none", "sum", "mean"):
        g.show(f"entropy_{reduction}", "SoftmaxCrossEntropyLoss", x, t, reduction=reduction, ignore_index=-1)
        g.show(f"nll_{reduction}", "NegativeLogLikelihoodLoss", x, t, reduction=reduction, ignore_index=-1)
    return Case(g.model(), [[np.array([[-np.inf, 1, 2], [0, 1, 2]], np.float32), np.array([-1, 1])]])
