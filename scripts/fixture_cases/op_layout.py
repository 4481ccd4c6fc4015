"""Operators that move data about: shapes, slices, gathers, scatters, and what finds elements."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

from fixture_lib.graph import BOOL, F32, I64, Graph
from fixture_lib.registry import Case, case

I64_MAX, I64_MIN = np.iinfo(np.int64).max, np.iinfo(np.int64).min


def floats(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


@case("op_reshape")
def reshape(rng):
    g = Graph("reshape", opset=14)
    x, target = g.input("x", F32, ["n", 3, 4]), g.input("target", I64, [2])
    g.show("flat", "Reshape", x, [-1])
    g.show("zero_copies", "Reshape", x, [0, 2, 6])
    g.show("zero_and_rest", "Reshape", x, [0, -1])
    g.show("split_dims", "Reshape", x, [-1, 3, 2, 2])
    g.show("from_input", "Reshape", x, target, dtype=F32, dims=[None, None])
    g.show("scalar", "Reshape", np.array([[2.5]], np.float32), np.array([], np.int64))
    g.show("allow_zero", "Reshape", np.zeros((0, 3), np.float32), [3, 0], allowzero=1)
    for axis in (0, 1, 2, 3, -1):
        g.show(f"flatten_{axis % 10}", "Flatten", x, axis=axis)
    g.show("squeeze_all", "Squeeze", np.arange(3, dtype=np.float32).reshape(1, 3, 1))
    g.show("squeeze_axes", "Squeeze", np.arange(3, dtype=np.float32).reshape(1, 3, 1, 1), [0, -1])
    g.show("unsqueeze", "Unsqueeze", x, [0, -1, 2])
    g.show("transpose_default", "Transpose", x)
    g.show("transpose", "Transpose", x, perm=[1, 0, 2])
    g.show("transpose_identity", "Transpose", x, perm=[0, 1, 2])
    return Case(g.model(), [[floats(rng, 2, 3, 4), np.array([6, -1])], [floats(rng, 4, 3, 4), np.array([-1, 24])]])


@case("op_shape")
def shape(rng):
    g = Graph("shape", opset=15)
    x = g.input("x", F32, ["n", 3, "m"])
    g.show("whole", "Shape", x)
    g.show("from_one", "Shape", x, start=1)
    g.show("to_last", "Shape", x, end=-1)
    g.show("middle", "Shape", x, start=-2, end=2)
    g.show("nothing", "Shape", x, start=2, end=1)
    g.show("beyond", "Shape", x, start=-9, end=9)
    g.show("size", "Size", x)
    # Arithmetic with sizes that ends in a shape again.
    n = g.op("Gather", g.op("Shape", x), np.int64(0), axis=0)
    m = g.op("Gather", g.op("Shape", x), np.int64(2), axis=0)
    doubled = g.op("Mul", m, np.int64(3))
    together = g.op("Concat", g.op("Unsqueeze", n, [0]), g.op("Unsqueeze", doubled, [0]), axis=0)
    g.show("reshaped", "Reshape", x, together, dtype=F32, dims=["n", None])
    half = g.op("Div", g.op("Add", m, np.int64(1)), np.int64(2))
    g.show("first_half", "Slice", x, [0], g.op("Unsqueeze", half, [0]), [2], dtype=F32, dims=["n", 3, None])
    g.show("ratio", "Div", g.op("Cast", n, to=F32), g.op("Cast", m, to=F32))
    g.show("zeros_like", "ConstantOfShape", g.op("Shape", x), dtype=F32, dims=["n", 3, "m"])
    g.show("positions", "Range", np.int64(0), m, np.int64(1), dtype=I64, dims=["m"])
    ones = g.op("ConstantOfShape", np.array([3], np.int64), value=one(1))
    is_open = g.op("Equal", np.array([-1, 3, -1]), g.op("Mul", ones, np.int64(-1)))
    g.show(
        "expanded",
        "Expand",
        x,
        g.op("Where", is_open, g.op("Shape", x), np.array([1, 3, 1])),
        dtype=F32,
        dims=["n", 3, "m"],
    )
    return Case(g.model(), [[floats(rng, 2, 3, 5)], [floats(rng, 1, 3, 4)]])


def one(value, dtype=I64):
    return helper.make_tensor("value", dtype, [1], [value])


@case("op_fill")
def fill(rng):
    g = Graph("fill", opset=18)
    x, n = g.input("x", F32, [2, 3]), g.input("n", I64, [])
    dims = g.op("Unsqueeze", n, [0])
    g.show("default", "ConstantOfShape", [2, 3])
    g.show("ints", "ConstantOfShape", dims, value=one(7), dtype=I64, dims=["n"])
    g.show("bools", "ConstantOfShape", [2], value=one(1, BOOL))
    g.show("scalar", "ConstantOfShape", np.array([], np.int64), value=one(3))
    g.show("empty", "ConstantOfShape", [0, 2])
    g.show("range", "Range", np.int64(1), n, np.int64(2), dtype=I64, dims=[None])
    g.show("range_down", "Range", n, np.int64(-3), np.int64(-2), dtype=I64, dims=[None])
    g.show("range_empty", "Range", np.int64(3), np.int64(3), np.int64(1))
    g.show("range_float", "Range", np.float32(0.5), np.float32(3.1), np.float32(0.7))
    g.show("range_int32", "Range", np.int32(0), np.int32(5), np.int32(1))
    g.show("expand", "Expand", x, [4, 2, 3])
    g.show("expand_ones", "Expand", g.op("Unsqueeze", x, [1]), [1, 5, 1])
    g.show("expand_smaller", "Expand", x, [1])
    g.show("expand_dynamic", "Expand", np.float32(2), dims, dtype=F32, dims=["n"])
    g.show("tile", "Tile", x, [2, 3])
    g.show("tile_once", "Tile", x, [1, 1])
    g.show("tile_dynamic", "Tile", x, g.op("Concat", dims, [1], axis=0), dtype=F32, dims=[None, 3])
    g.show("eye", "EyeLike", x)
    g.show("concat", "Concat", x, x, g.op("Expand", np.float32(1), [1, 3]), axis=0)
    g.show("concat_last", "Concat", x, g.op("Neg", x), axis=-1)
    g.show("concat_one", "Concat", x, axis=1)
    return Case(g.model(), [[floats(rng, 2, 3), np.int64(n)] for n in (4, 1)])


@case("op_split")
def split(rng):
    g = Graph("split", opset=18)
    x = g.input("x", F32, ["n", 7, 4])

    def show(labels, *operands, **attributes):
        g.op("Split", x, *operands, out=labels, **attributes)
        for label in labels:
            g.output(label)

    show(["even_a", "even_b"], axis=2, num_outputs=2)
    show(["rest_a", "rest_b", "rest_c"], axis=1, num_outputs=3)
    show(["sized_a", "sized_b", "sized_c"], [1, 4, 2], axis=1)
    show(["negative_a", "negative_b"], [3, 1], axis=-1)
    show(["empty_a", "empty_b"], [0, 4], axis=2)
    show(["whole"], axis=1, num_outputs=1)
    return Case(g.model(), [[floats(rng, 2, 7, 4)], [floats(rng, 1, 7, 4)]])


@case("op_split_to_sequence")
def split_to_sequence(rng):
    """A sequence of known length that is taken apart again: PyTorch's `split` without the exporter's optimizer."""
    g = Graph("split_to_sequence", opset=18)
    x = g.input("x", F32, ["n", 6])
    parts = g.op("SplitToSequence", x, np.int64(2), axis=1)
    for label, k in {"first": 0, "middle": 1, "last": -1}.items():
        g.show(label, "SequenceAt", parts, np.int64(k), dtype=F32, dims=["n", 2])
    sized = g.op("SplitToSequence", x, np.array([1, 2, 3]), axis=-1)
    g.show("second", "SequenceAt", sized, np.int64(1), dtype=F32, dims=["n", 2])
    columns = g.op("SplitToSequence", x, axis=1, keepdims=0)
    g.show("column", "SequenceAt", columns, np.int64(4), dtype=F32, dims=["n"])
    g.show("joined", "ConcatFromSequence", sized, axis=1, dtype=F32, dims=["n", 6])
    return Case(g.model(), [[floats(rng, 2, 6)], [floats(rng, 1, 6)]])


@case("op_slice")
def slice_(rng):
    g = Graph("slice", opset=13)
    x, start = g.input("x", F32, ["n", 6, 8]), g.input("start", I64, [1])
    g.show("plain", "Slice", x, [1, 2], [4, 7], [1, 2])
    g.show("axes_left_out", "Slice", x, [0, 1, 2], [1, 3, 5])
    g.show("to_end", "Slice", x, [2], [I64_MAX], [1])
    g.show("negative", "Slice", x, [-3], [-1], [-1])
    g.show("stepped", "Slice", x, [0, 1], [6, 8], [1, 2], [2, 3])
    g.show("reversed", "Slice", x, [-1], [I64_MIN], [2], [-1])
    g.show("reversed_stepped", "Slice", x, [4, 7], [0, -9], [1, 2], [-2, -3])
    g.show("stepped_to_one", "Slice", x, [1, 4], [I64_MAX, I64_MIN], [1, 2], [9, -9])
    g.show("out_of_range", "Slice", x, [-100, 3], [100, 99], [1, 2])
    g.show("nothing", "Slice", x, [4], [2], [1])
    g.show("int32", "Slice", x, np.array([1], np.int32), np.array([3], np.int32), np.array([2], np.int32))
    g.show("from_input", "Slice", x, start, [I64_MAX], [1], dtype=F32, dims=["n", None, 8])
    return Case(g.model(), [[floats(rng, 2, 6, 8), np.array([2])], [floats(rng, 1, 6, 8), np.array([-1])]])


@case("op_gather")
def gather(rng):
    g = Graph("gather", opset=13)
    x, i = g.input("x", F32, [4, 3, 5]), g.input("indices", I64, [2, 2])
    g.show("rows", "Gather", x, i)
    g.show("columns", "Gather", x, np.array([0, -1, 2], np.int32), axis=-1)
    g.show("middle", "Gather", x, np.array([[1], [-3]]), axis=1)
    g.show("scalar_index", "Gather", x, np.int64(-2), axis=0)
    g.show("vector", "Gather", np.arange(10, 15), i)
    e = g.input("element_indices", I64, [4, 3, 2])
    g.show("elements", "GatherElements", x, e, axis=2)
    g.show(
        "elements_first", "GatherElements", x, np.array([[[3, -1, 0, 1, 2], [0, 0, 1, 1, -4], [2, 2, 2, 2, 2]]]), axis=0
    )
    g.show("elements_fewer", "GatherElements", x, np.array([[[1, 2]], [[0, -3]]]), axis=-2)
    g.show("nd_points", "GatherND", x, np.array([[0, 1, 2], [3, -1, 4]]))
    g.show("nd_rows", "GatherND", x, np.array([[[0, 1]], [[-1, 2]]]))
    g.show("nd_slices", "GatherND", x, np.array([[2], [0]]))
    g.show("nd_batch", "GatherND", x, np.array([[[2]], [[0]], [[1]], [[-1]]]), batch_dims=1)
    g.show("nd_batch_two", "GatherND", x, np.arange(12).reshape(4, 3, 1) % 5, batch_dims=2)
    g.show("embedding", "Gather", floats(rng, 20, 6), np.array([[3, 19, 0]]))
    return Case(g.model(), [[floats(rng, 4, 3, 5), np.array([[0, 3], [-1, 1]]), rng.integers(-5, 5, (4, 3, 2))]])


@case("op_scatter")
def scatter(rng):
    g = Graph("scatter", opset=18)
    x, u = g.input("x", F32, [4, 5]), g.input("updates", F32, [2, 3])
    distinct, repeated = np.array([[0, 2, 4], [-1, 1, 0]]), np.array([[0, 0, 4], [-1, 0, 0]])
    g.show("elements", "ScatterElements", x, distinct, u, axis=1)
    g.show("elements_default_axis", "ScatterElements", x, np.array([[0, 2, 3], [1, -1, 0]]), u)
    for how in ["add", "mul", "max", "min"]:
        g.show(f"elements_{how}", "ScatterElements", x, repeated, u, axis=-1, reduction=how)
    rows = g.input("rows", F32, [2, 5])
    g.show("nd_rows", "ScatterND", x, np.array([[2], [-4]]), rows)
    g.show("nd_points", "ScatterND", x, np.array([[0, 0], [3, -1], [1, 2]]), np.array([1, 2, 3], np.float32))
    at = g.input("at", I64, [2])
    g.show("nd_rows_found", "ScatterND", x, g.show("tuples", "Unsqueeze", at, np.array([1])), rows)
    spread = g.show("spread", "Expand", g.show("column", "Unsqueeze", at, np.array([1])), np.array([2, 5]))
    g.show("elements_in_rows", "ScatterElements", x, spread, rows)
    for how in ["add", "mul", "max", "min"]:
        g.show(f"nd_{how}", "ScatterND", x, np.array([[1], [1]]), rows, reduction=how)
    g.show(
        "nd_block",
        "ScatterND",
        np.zeros((2, 3, 2), np.float32),
        np.array([[[0, 1], [1, 2]]]),
        np.arange(4, dtype=np.float32).reshape(1, 2, 2),
    )
    g.show("ints", "ScatterElements", np.zeros((2, 3), np.int64), np.array([[1, 2]]), np.array([[7, 8]]), axis=1)
    data = [floats(rng, 4, 5), floats(rng, 2, 3), floats(rng, 2, 5)]
    return Case(g.model(), [[*data, np.array([3, -3])], [*data, np.array([0, 2])]])


@case("op_select")
def select(rng):
    """TopK, one-hot, cumulative sums, triangles, and what finds or keeps elements."""
    g = Graph("select", opset=14)
    x, k, i = g.input("x", F32, ["n", 4, 6]), g.input("k", I64, [1]), g.input("i", I64, [5])

    def top(labels, *operands, **attributes):
        g.op("TopK", *operands, out=labels, **attributes)
        g.output(labels[0]), g.output(labels[1])

    top(["top", "top_index"], x, [3])
    top(["top_axis", "top_axis_index"], x, [2], axis=1)
    top(["low", "low_index"], x, [2], largest=0)
    top(["all", "all_index"], x, [6], axis=-1, sorted=1)
    top(["ties", "ties_index"], np.array([3, 1, 3, 2, 3], np.int64), [4])
    g.op("TopK", x, k, out=["top_dynamic", "top_dynamic_index"], axis=1)
    g.output("top_dynamic", F32, ["n", None, 6]), g.output("top_dynamic_index", I64, ["n", None, 6])
    off_on = np.array([0.5, 2.0], np.float32)
    g.show("one_hot", "OneHot", i, np.int64(6), off_on)
    g.show("one_hot_first", "OneHot", i, np.int64(6), off_on, axis=0)
    g.show("one_hot_matrix", "OneHot", g.op("Reshape", i, [5, 1]), np.array([6]), np.array([0, 1]), axis=1)
    for label, attributes in {
        "plain": {},
        "exclusive": dict(exclusive=1),
        "reverse": dict(reverse=1),
        "both": dict(exclusive=1, reverse=1),
    }.items():
        g.show(f"cumsum_{label}", "CumSum", x, np.int64(2), **attributes)
    g.show("cumsum_negative", "CumSum", x, np.int32(-2))
    g.show("cumsum_int", "CumSum", i, np.int64(0))
    g.show("upper", "Trilu", x)
    g.show("upper_shifted", "Trilu", x, np.int64(2), upper=1)
    g.show("lower", "Trilu", x, upper=0)
    g.show("lower_shifted", "Trilu", x, np.int64(-1), upper=0)
    g.show("lower_beyond", "Trilu", x, np.int64(9), upper=0)
    g.show("space_to_depth", "SpaceToDepth", g.op("Unsqueeze", x, [1]), blocksize=2)
    deep = np.arange(32, dtype=np.float32).reshape(1, 8, 2, 2)
    g.show("depth_to_space", "DepthToSpace", deep, blocksize=2)
    g.show("depth_to_space_crd", "DepthToSpace", deep, blocksize=2, mode="CRD")
    return Case(
        g.model(), [[floats(rng, n, 4, 6), np.array([k]), np.array([0, 5, -1, 3, 9])] for n, k in ((2, 3), (1, 1))]
    )


@case("op_non_max_suppression")
def non_max_suppression(rng):
    g = Graph("non_max_suppression", opset=11)
    boxes, scores = g.input("boxes", F32, [2, 6, 4]), g.input("scores", F32, [2, 3, 6])
    threshold = g.input("threshold", F32, [])

    def show(label, *limits, **attributes):
        g.show(label, "NonMaxSuppression", boxes, scores, *limits, dtype=I64, dims=[None, 3], **attributes)

    few, overlap, sure = np.array([2], np.int64), np.array([0.4], np.float32), np.array([0.5], np.float32)
    show("nothing_asked")
    show("two_of_each", few)
    show("apart", few, overlap)
    show("apart_and_sure", np.array([9], np.int64), overlap, sure)
    show("centres", few, overlap, sure, center_point_box=1)
    show("scalars", np.int64(3), np.float32(0.5), threshold)
    corners = rng.uniform(0, 4, (2, 6, 2))
    low_high = np.concatenate([corners, corners + rng.uniform(1, 3, (2, 6, 2))], -1)
    low_high[0, 0] = low_high[0, 0, [2, 3, 0, 1]]  # corners may come in either order
    certain = rng.permutation(36).reshape(2, 3, 6) / 36  # no ties
    return Case(
        g.model(), [[low_high.astype(np.float32), certain.astype(np.float32), np.float32(t)] for t in (0.3, 2.0)]
    )


@case("op_non_max_suppression_given")
def non_max_suppression_given(rng):
    """Both thresholds and the number of boxes only the run gives."""
    g = Graph("non_max_suppression_given", opset=11)
    boxes, scores = g.input("boxes", F32, [1, "n", 4]), g.input("scores", F32, [1, 2, "n"])
    most, overlap, sure = g.input("most", I64, [1]), g.input("overlap", F32, [1]), g.input("sure", F32, [])

    def show(label, *limits, **attributes):
        g.show(label, "NonMaxSuppression", boxes, scores, *limits, dtype=I64, dims=[None, 3], **attributes)

    show("overlap_given", np.array([9], np.int64), overlap)
    show("all_given", most, overlap, sure)
    show("centres", most, g.op("Squeeze", overlap, axes=[0]), np.float32(0.2), center_point_box=1)
    data = []
    for n, most, overlap, sure in [(6, 9, 0.2, 0.3), (9, 2, 0.6, 0.1), (5, 9, 0.0, 0.9)]:
        corners = rng.uniform(0, 4, (1, n, 2))
        low_high = np.concatenate([corners, corners + rng.uniform(1, 3, (1, n, 2))], -1)
        certain = rng.permutation(2 * n).reshape(1, 2, n) / (2 * n)
        numbers = [np.array([most]), np.array([overlap], np.float32), np.float32(sure)]
        data.append([low_high.astype(np.float32), certain.astype(np.float32), *numbers])
    return Case(g.model(), data)


@case("op_random_like_found")
def random_like_found(rng):
    """Random numbers of a size that only the data tell, and nothing else uses what that size is read from."""
    g = Graph("random_like_found", opset=13)
    x = g.input("x", F32, [3, 4])
    found = g.op("NonZero", g.op("Greater", x, np.float32(0.3)))
    numbers = g.op("RandomUniformLike", found, dtype=1)
    g.show("below_two", "Less", numbers, np.float32(2), dtype=BOOL, dims=[2, None])
    return Case(g.model(), [[rng.normal(size=(3, 4)).astype(np.float32)], [np.zeros((3, 4), np.float32)]])


@case("op_triangles")
def triangles(rng):
    """Triangles whose diagonal only the run tells: from sizes, as a mask's behind a cache, or from data."""
    g = Graph("triangles", opset=18)
    x, cache = g.input("x", F32, ["batch", "new", "all"]), g.input("cache", F32, ["past"])
    k = g.input("k", I64, [])
    past = g.op("Squeeze", g.op("Shape", cache), np.array([0]))
    dims = ["batch", "new", "all"]
    g.show("behind_cache", "Trilu", x, g.op("Add", past, np.int64(1)), upper=1, dtype=F32, dims=dims)
    g.show("up_to_cache", "Trilu", x, past, upper=0, dtype=F32, dims=dims)
    g.show("from_data", "Trilu", x, k, upper=1, dtype=F32, dims=dims)
    truths, ints = g.op("Greater", x, np.float32(0)), g.op("Cast", g.op("Mul", x, np.float32(10)), to=I64)
    g.show("truths", "Trilu", truths, past, upper=1, dtype=BOOL, dims=dims)
    g.show("ints", "Trilu", ints, k, upper=0, dtype=I64, dims=dims)
    inputs = lambda new, past, k: [floats(rng, 2, new, new + past), floats(rng, past), np.array(k)]
    return Case(g.model(), [inputs(3, 2, 1), inputs(1, 4, -1), inputs(4, 0, -2), inputs(2, 1, 9)])


@case("op_gather_counted")
def gather_counted(rng):
    """Tuples of counters, as an exporter that optimizes nothing writes them, name everything in order; after some casts they do not.
    A table that was cut to a sequence meets that sequence."""
    g = Graph("gather_counted", opset=18)
    x = g.input("x", F32, ["batch", "seq"])
    batch, seq = (g.op("Gather", g.op("Shape", x), np.int64(axis), axis=0) for axis in (0, 1))
    count = lambda size: g.op("Range", np.int64(0), size, np.int64(1))
    last = np.array([-1])

    def tuples(rows, columns):
        to = g.op("Concat", g.op("Unsqueeze", batch, [0]), [1], g.op("Unsqueeze", seq, [0]), axis=0)
        parts = (g.op("Unsqueeze", g.op("Expand", part, to), last) for part in (rows, columns))
        return g.op("Concat", *parts, axis=-1)

    everything = (np.array([0]), np.array([2**63 - 1]), np.array([0]), np.array([1]))
    rows, columns = g.op("Unsqueeze", count(batch), [1, 2]), g.op("Unsqueeze", count(seq), [0, 1])
    sliced = g.op("Slice", rows, *everything)
    moved = g.op("Unsqueeze", g.op("Add", count(seq), np.int64(0)), [0, 1])
    g.show("whole", "GatherND", x, tuples(sliced, moved), dtype=F32, dims=["batch", 1, "seq"])
    truths = g.op("Cast", g.op("Cast", columns, to=BOOL), to=I64)
    g.show("by_truths", "GatherND", x, tuples(rows, truths), dtype=F32, dims=["batch", 1, "seq"])
    wrapped = g.op("Cast", g.op("Cast", columns, to=TensorProto.INT8), to=I64)
    g.show("wrapped", "GatherND", x, tuples(rows, wrapped), dtype=F32, dims=["batch", 1, "seq"])

    # A mask whose batch has a name of its own, as exporters write one that only indices lead into.
    mask = g.input("mask", F32, ["masks", "seq"])
    g.show("masked", "GatherND", mask, tuples(rows, columns), dtype=F32, dims=["batch", 1, "seq"])

    table = g.const(floats(rng, 1, 300))
    cut = g.op("Slice", table, np.array([0]), g.op("Unsqueeze", seq, [0]), np.array([1]), np.array([1]))
    met = g.show("met", "Add", x, cut, dtype=F32, dims=["batch", "seq"])
    g.show("expanded", "Expand", cut, g.op("Shape", met), dtype=F32, dims=["batch", "seq"])
    g.show("squared", "MatMul", met, g.op("Transpose", met, perm=[1, 0]), dtype=F32, dims=["batch", "batch"])
    sizes = ((2, 2, 5), (1, 1, 1), (3, 4, 200))
    return Case(g.model(), [[floats(rng, rows, seq), floats(rng, masks, seq)] for rows, masks, seq in sizes])


@case("op_gather_positions")
def gather_positions(rng):
    """Positions that were found are indices as they are, moved ones too; a count up to 0 has negative ones."""
    g = Graph("gather_positions", opset=18)
    x = g.input("x", F32, ["rows", 6])
    dims = ["rows", 3]
    _, best = g.op("TopK", x, np.array([3]), axis=1, out=2)
    g.show("best", "GatherElements", x, best, axis=1, dtype=F32, dims=dims)
    narrow = g.op("Cast", g.op("Transpose", best, perm=[1, 0]), to=TensorProto.INT32)
    table = g.const(floats(rng, 6, 2))
    g.show("looked_up", "Gather", table, narrow, axis=0, dtype=F32, dims=[3, "rows", 2])
    ones = g.op("ConstantOfShape", g.op("Shape", best), value=helper.make_tensor("one", F32, [1], [1.0]))
    zeros = g.op("ConstantOfShape", g.op("Shape", x))
    g.show("marked", "ScatterElements", zeros, best, ones, axis=1, dtype=F32, dims=["rows", 6])
    rows = g.op("Squeeze", g.op("Shape", x, end=1), [0])
    last = g.op("Range", g.op("Neg", rows), np.int64(0), np.int64(1))
    g.show("from_the_end", "Gather", x, last, axis=0, dtype=F32, dims=["rows", 6])
    down = g.op("Range", np.int64(1), np.int64(-2), np.int64(-1))
    mask = g.op("Greater", x, np.float32(0))
    found = g.op("Slice", g.op("NonZero", mask), [1], [2], [0])
    g.show("found", "Gather", table, found, axis=0, dtype=F32, dims=[1, None, 2])
    g.show("down", "Gather", table, down, axis=0, dtype=F32, dims=[3, 2])
    return Case(g.model(), [[floats(rng, 2, 6)], [floats(rng, 5, 6)]])


@case("op_squeeze_batch")
def squeeze_batch(rng):
    """A squeeze of all axes of size 1 where the batch may be one of them, and what follows does not mind."""
    g = Graph("squeeze_batch", opset=13)
    x = g.input("x", F32, ["batch", 1, 4])
    rows = g.op("Squeeze", g.op("MatMul", x, floats(rng, 4, 6)))
    g.show("pairs", "Reshape", g.op("Tanh", rows), [-1, 2], dtype=F32, dims=[None, 2])
    return Case(g.model(), [[floats(rng, n, 1, 4)] for n in (1, 3)])


@case("op_data_dependent")
def data_dependent(rng):
    """Sizes that only the data tell: what is found may be nothing."""
    g = Graph("data_dependent", opset=13)
    x = g.input("x", F32, [3, 4])
    positive = g.op("Greater", x, np.float32(0.3))
    where = g.show("found", "NonZero", positive, dtype=I64, dims=[2, "found"])
    points = g.op("Transpose", where, perm=[1, 0])
    g.show("values", "GatherND", x, points, dtype=F32, dims=["found"])
    g.show(
        "compressed",
        "Compress",
        x,
        g.op("Squeeze", g.op("Slice", positive, [0], [1], [0]), [0]),
        axis=1,
        dtype=F32,
        dims=[3, None],
    )
    g.show("compressed_flat", "Compress", x, g.op("Reshape", positive, [-1]), dtype=F32, dims=["found"])
    count = g.op("Gather", g.op("Shape", where), np.int64(1), axis=0)
    g.show("count", "Identity", count, dtype=I64, dims=[])
    g.show("numbered", "Range", np.int64(0), count, np.int64(1), dtype=I64, dims=["found"])
    g.show("sum", "ReduceSum", g.op("GatherND", x, points), keepdims=0, dtype=F32, dims=[])
    g.show(
        "filled",
        "ScatterND",
        x,
        points,
        g.op("Expand", np.float32(9), g.op("Unsqueeze", count, [0])),
        dtype=F32,
        dims=[3, 4],
    )
    return Case(g.model(), [[floats(rng, 3, 4)], [-np.abs(floats(rng, 3, 4))]])
