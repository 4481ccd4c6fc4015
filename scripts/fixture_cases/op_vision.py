"""Operators that read images at fractional positions, and assignments to slices."""

from __future__ import annotations

import itertools

import numpy as np

from fixture_lib.graph import BOOL, F32, I64, Graph
from fixture_lib.registry import Case, case


def floats(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


@case("op_grid_sample")
def grid_sample(rng):
    g = Graph("grid_sample", opset=20)
    x, grid = g.input("x", F32, ["n", 2, 4, 5]), g.input("grid", F32, ["n", 3, 3, 2])
    modes, paddings = ("nearest", "linear", "cubic"), ("zeros", "border", "reflection")
    for mode, padding, corners in itertools.product(modes, paddings, (0, 1)):
        label = f"{mode}_{padding}_{'corners' if corners else 'edges'}"
        g.show(label, "GridSample", x, grid, mode=mode, padding_mode=padding, align_corners=corners)
    volume, points = g.input("volume", F32, [1, 2, 3, 4, 3]), g.input("points", F32, [1, 2, 2, 2, 3])
    g.show("volume_linear", "GridSample", volume, points, mode="linear")
    g.show("volume_nearest", "GridSample", volume, points, mode="nearest", padding_mode="border")

    def inputs(n):
        places = rng.uniform(-1.6, 1.6, (n, 3, 3, 2)).astype(np.float32)
        return [floats(rng, n, 2, 4, 5), places, floats(rng, 1, 2, 3, 4, 3), floats(rng, 1, 2, 2, 2, 3)]

    return Case(g.model(), [inputs(1), inputs(2)])


@case("op_roi_align")
def roi_align(rng):
    g = Graph("roi_align", opset=16)
    x, rois, images = g.input("x", F32, ["n", 3, 8, 10]), g.input("rois", F32, ["r", 4]), g.input("images", I64, ["r"])
    sizes = dict(output_height=2, output_width=3, spatial_scale=0.5)
    for mode, pixels, ratio in itertools.product(("avg", "max"), ("half_pixel", "output_half_pixel"), (0, 2)):
        label = f"{mode}_{pixels}_{ratio}"
        options = dict(mode=mode, coordinate_transformation_mode=pixels, sampling_ratio=ratio)
        g.show(label, "RoiAlign", x, rois, images, dtype=F32, dims=["r", 3, 2, 3], **sizes, **options)
    g.show("plain", "RoiAlign", x, rois, images, dtype=F32, dims=["r", 3, 1, 1])

    def inputs(n, r):
        corner = rng.uniform(-2, 10, (r, 2))
        boxes = np.concatenate([corner, corner + rng.uniform(0.2, 12, (r, 2))], 1).astype(np.float32)
        return [floats(rng, n, 3, 8, 10), boxes, rng.integers(0, n, r)]

    return Case(g.model(), [inputs(1, 2), inputs(2, 4)])


@case("op_roi_align_10")
def roi_align_10(rng):
    g = Graph("roi_align", opset=12)
    x, rois, images = g.input("x", F32, [1, 2, 6, 6]), g.input("rois", F32, [2, 4]), g.input("images", I64, [2])
    g.show("y", "RoiAlign", x, rois, images, output_height=2, output_width=2, dtype=F32, dims=[2, 2, 2, 2])
    boxes = np.array([[0.5, 1, 4.2, 5], [2, 2, 2.3, 2.2]], np.float32)
    return Case(g.model(), [[floats(rng, 1, 2, 6, 6), boxes, np.array([0, 0])]])


@case("op_max_roi_pool")
def max_roi_pool(rng):
    g = Graph("max_roi_pool", opset=17)
    x, rois = g.input("x", F32, ["n", 3, 8, 10]), g.input("rois", F32, ["r", 5])
    for label, shape, scale in (("halves", [2, 3], 0.5), ("plain", [3, 2], 1.0), ("fine", [7, 7], 0.25)):
        options = dict(pooled_shape=shape, spatial_scale=scale)
        g.show(label, "MaxRoiPool", x, rois, dtype=F32, dims=["r", 3, *shape], **options)

    def inputs(n, r):
        corner = rng.uniform(-6, 22, (r, 2))
        boxes = [rng.integers(0, n, (r, 1)), corner, corner + rng.uniform(-2, 12, (r, 2))]
        return [floats(rng, n, 3, 8, 10), np.concatenate(boxes, 1).astype(np.float32)]

    return Case(g.model(), [inputs(1, 3), inputs(2, 5)])


@case("op_deform_conv")
def deform_conv(rng):
    g = Graph("deform_conv", opset=19)
    x = g.input("x", F32, [2, 4, 6, 5])
    offset, mask = g.input("offset", F32, [2, 8, 5, 4]), g.input("mask", F32, [2, 4, 5, 4])
    w = floats(rng, 6, 4, 2, 2)
    g.show("plain", "DeformConv", x, w, offset, dtype=F32, dims=[2, 6, 5, 4])
    g.show("masked", "DeformConv", x, w, offset, floats(rng, 6), mask, dtype=F32, dims=[2, 6, 5, 4])
    grouped = g.input("grouped", F32, [2, 16, 3, 4])
    options = dict(group=2, offset_group=2, strides=[2, 1], pads=[1, 0, 0, 1], dilations=[2, 2])
    g.show("grouped_y", "DeformConv", x, floats(rng, 6, 2, 2, 2), grouped, dtype=F32, dims=[2, 6, 3, 4], **options)
    data = [floats(rng, 2, 4, 6, 5), floats(rng, 2, 8, 5, 4), floats(rng, 2, 4, 5, 4), floats(rng, 2, 16, 3, 4)]
    return Case(g.model(), [data])


@case("op_assign_slices")
def assign_slices(rng):
    """`ScatterND` as exporters write `x[a:b] = y`, and tuples that fill no box."""
    g = Graph("assign_slices", opset=18)
    x, flat = g.input("x", F32, [4, 5, 3]), g.input("flat", F32, ["n", 5])
    index = lambda *ranges: np.stack(np.meshgrid(*ranges, indexing="ij"), -1)  # noqa: E731
    g.show("rows", "ScatterND", x, index(range(1, 3)), floats(rng, 2, 5, 3))
    g.show("first", "ScatterND", x, np.array([[0]]), floats(rng, 1, 5, 3))
    g.show("from_end", "ScatterND", x, np.array([[-2], [-1]]), floats(rng, 2, 5, 3))
    g.show("all", "ScatterND", x, index(range(4)), floats(rng, 4, 5, 3))
    g.show("box", "ScatterND", x, index(range(1, 3), range(2, 5)), floats(rng, 2, 3, 3))
    g.show("corner", "ScatterND", x, index(range(3), range(1), range(1, 3)), floats(rng, 3, 1, 2))
    g.show("element", "ScatterND", x, np.array([1, 2, 0]), np.float32(7))
    g.show("backwards", "ScatterND", x, np.array([[2], [1]]), floats(rng, 2, 5, 3))
    g.show("spread", "ScatterND", x, np.array([[0], [2]]), floats(rng, 2, 5, 3))
    g.show("added", "ScatterND", x, index(range(1, 3)), floats(rng, 2, 5, 3), reduction="add")
    g.show("of_unknown", "ScatterND", flat, np.array([[0]]), floats(rng, 1, 5))
    # A mask of constants, as window attention makes it: known when the model is compiled.
    mask = np.zeros((4, 4), np.float32)
    for at in (0, 2):
        mask = g.op("ScatterND", mask, index(range(at, at + 2), range(at, at + 2)), np.full((2, 2), at + 1.0, np.float32))
    g.show("masked", "Add", g.op("MatMul", mask, g.op("Reshape", x, [4, 15])), np.float32(0))
    return Case(g.model(), [[floats(rng, 4, 5, 3), floats(rng, 2, 5)]])


@case("op_assign_everywhere")
def assign_everywhere(rng):
    """`x[:, :, :n] = y` with as many `n` as there are, as PyTorch's first exporter writes it: tuples that count through all axes, or
    from another number on."""
    g = Graph("assign_everywhere", opset=16)
    dims = ["a", 1, "b", "c"]
    x, y = g.input("x", F32, dims), g.input("y", F32, dims)
    shape = g.op("Shape", x)
    size = lambda axis: g.op("Gather", shape, np.array(axis))  # noqa: E731
    counted = lambda axis: g.op("Range", np.array(0), size(axis), np.array(1))  # noqa: E731

    def along(axis, line):
        line = g.op("Reshape", line, [-1 if n == axis else 1 for n in range(4)])
        return g.op("Unsqueeze", g.op("Expand", line, shape), [4])

    lines = [along(axis, counted(axis)) for axis in range(4)]
    g.show("everywhere", "ScatterND", x, g.op("Concat", *lines, axis=-1), y, dtype=F32, dims=dims)
    # All but these are in other places.
    back = g.op("Range", g.op("Sub", size(2), np.array(1)), np.array(-1), np.array(-1))
    turned = [*lines[:2], along(2, back), lines[3]]
    g.show("turned", "ScatterND", x, g.op("Concat", *turned, axis=-1), y, dtype=F32, dims=dims)
    return Case(g.model(), [[floats(rng, *sizes), floats(rng, *sizes)] for sizes in [(2, 1, 3, 4), (1, 1, 1, 2)]])


@case("op_select_sizes")
def select_sizes(rng):
    """A number in place of masked elements, where mask and tensor have sizes of their own that broadcast."""
    g = Graph("select_sizes", opset=16)
    x, mask = g.input("x", F32, ["a", 3, "b"]), g.input("mask", BOOL, ["c", 1, "d"])
    g.show("filled", "Where", mask, np.float32(-1), x, dtype=F32, dims=[None, 3, None])
    g.show("kept", "Where", mask, x, np.float32(2), dtype=F32, dims=[None, 3, None])
    total = g.op("ReduceSum", g.op("Where", mask, np.float32(0.5), x), [0], keepdims=0)
    g.show("total", "Relu", total, dtype=F32, dims=[3, None])

    def inputs(a, b, c, d):
        return [floats(rng, a, 3, b), rng.standard_normal((c, 1, d)) > 0]

    return Case(g.model(), [inputs(2, 4, 1, 4), inputs(1, 4, 2, 1), inputs(2, 1, 2, 5)])
