"""Padding and resizing, in every mode."""

from __future__ import annotations

import numpy as np

from fixture_lib.graph import F32, I32, I64, U8, Graph
from fixture_lib.registry import Case, case


def floats(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


@case("op_pad")
def pad(rng):
    g = Graph("pad", opset=19)
    x, amount = g.input("x", F32, ["n", 4, 5]), g.input("amount", I64, [6])
    g.show("constant", "Pad", x, [0, 1, 2, 0, 0, 1])
    g.show("constant_value", "Pad", x, [1, 0, 0, 0, 2, 1], np.float32(3.5))
    g.show("axes", "Pad", x, [1, 2, 0, 3], np.float32(-1), [-1, 1])
    g.show("axes_no_value", "Pad", x, [2, 1], None, [2])
    g.show("negative", "Pad", x, [0, -1, 1, 0, 2, -2])
    for mode in ["reflect", "edge", "wrap"]:
        g.show(mode, "Pad", x, [0, 2, 1, 0, 1, 3], mode=mode)
    g.show("reflect_wide", "Pad", x, [0, 3, 4, 0, 3, 4], mode="reflect")
    g.show("edge_wide", "Pad", x, [0, 6, 0, 0, 0, 7], mode="edge")
    g.show("nothing", "Pad", x, [0] * 6)
    g.show("from_input", "Pad", x, amount, dtype=F32, dims=[None] * 3)
    g.show("ints", "Pad", np.arange(6).reshape(2, 3), [1, 0, 0, 1], np.int64(-7))
    g.show("int_reflect", "Pad", np.arange(6, dtype=np.int32).reshape(2, 3), [1, 2, 0, 0], mode="reflect")
    g.show("bools", "Pad", g.op("Greater", x, np.float32(0)), [0, 0, 1, 0, 0, 0], np.bool_(True))
    return Case(
        g.model(),
        [[floats(rng, 2, 4, 5), np.array([1, 0, 2, 0, 1, 0])], [floats(rng, 1, 4, 5), np.array([0, 0, 0, 0, 0, 1])]],
    )


# `align_corners` asks for sizes; scales that give no whole size are in `op_resize_matrix.py`.
ALIGNED_SIZES = {"up": [1, 2, 11, 9], "down": [1, 2, 2, 3]}
COORDINATES = ["half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"]


def by_scale_or_size(coordinates, **scales):
    """The operands after the input: roi, scales, sizes."""
    if coordinates == "align_corners":
        return {k: [None, None, size] for k, size in ALIGNED_SIZES.items()}
    return {k: [None, scale] for k, scale in scales.items()}


@case("op_resize_nearest")
def resize_nearest(rng):
    g = Graph("resize_nearest", opset=18)
    x = g.input("x", F32, [1, 2, 4, 5])
    up, down = np.array([1, 1, 2.5, 1.75], np.float32), np.array([1, 1, 0.6, 0.7], np.float32)
    for coordinates in COORDINATES:
        scaling = by_scale_or_size(coordinates, up=up, down=down)
        for rounding in ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]:
            g.show(
                f"{coordinates}_{rounding}",
                "Resize",
                x,
                *scaling["up"],
                mode="nearest",
                coordinate_transformation_mode=coordinates,
                nearest_mode=rounding,
            )
        g.show(
            f"{coordinates}_down",
            "Resize",
            x,
            *scaling["down"],
            mode="nearest",
            coordinate_transformation_mode=coordinates,
        )
    g.show("to_sizes", "Resize", x, None, None, [1, 2, 8, 3], mode="nearest")
    g.show(
        "doubled",
        "Resize",
        x,
        None,
        np.array([1, 1, 2, 2], np.float32),
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
    g.show("axes", "Resize", x, None, np.array([2, 3], np.float32), mode="nearest", axes=[3, 2])
    g.show("not_larger", "Resize", x, None, None, [7, 7], axes=[2, 3], keep_aspect_ratio_policy="not_larger")
    g.show("not_smaller", "Resize", x, None, None, [7, 7], axes=[2, 3], keep_aspect_ratio_policy="not_smaller")
    v = g.input("volume", F32, [1, 1, 2, 3, 2])
    g.show("volume_up", "Resize", v, None, np.array([1, 1, 2, 1.5, 2], np.float32), mode="nearest")
    s = g.input("sequence", F32, [1, 2, 5])
    g.show("sequence_up", "Resize", s, None, np.array([1, 1, 2.2], np.float32), mode="nearest")
    u = g.input("bytes", U8, [1, 1, 2, 2])
    g.show("bytes_up", "Resize", u, None, np.array([1, 1, 2, 2], np.float32), mode="nearest")
    return Case(
        g.model(),
        [
            [
                floats(rng, 1, 2, 4, 5),
                floats(rng, 1, 1, 2, 3, 2),
                floats(rng, 1, 2, 5),
                rng.integers(0, 255, (1, 1, 2, 2)).astype(np.uint8),
            ]
        ],
    )


@case("op_resize_linear")
def resize_linear(rng):
    g = Graph("resize_linear", opset=18)
    x = g.input("x", F32, [1, 2, 4, 5])
    up, down = np.array([1, 1, 2.5, 1.75], np.float32), np.array([1, 1, 0.6, 0.5], np.float32)
    for coordinates in COORDINATES:
        scaling = by_scale_or_size(coordinates, up=up, down=down)
        g.show(
            f"{coordinates}_up", "Resize", x, *scaling["up"], mode="linear", coordinate_transformation_mode=coordinates
        )
        g.show(
            f"{coordinates}_down",
            "Resize",
            x,
            *scaling["down"],
            mode="linear",
            coordinate_transformation_mode=coordinates,
        )
        g.show(
            f"{coordinates}_to_one",
            "Resize",
            x,
            None,
            None,
            [1, 2, 1, 3],
            mode="linear",
            coordinate_transformation_mode=coordinates,
        )
    g.show("antialias", "Resize", x, None, down, mode="linear", antialias=1)
    g.show(
        "crop",
        "Resize",
        x,
        np.array([0, 0, 0.2, -0.3, 1, 1, 0.8, 1.2], np.float32),
        None,
        [1, 2, 3, 6],
        mode="linear",
        coordinate_transformation_mode="tf_crop_and_resize",
        extrapolation_value=7.0,
    )
    g.show(
        "crop_axes",
        "Resize",
        x,
        np.array([0.1, 0.2, 0.9, 0.7], np.float32),
        None,
        [5, 4],
        axes=[2, 3],
        mode="linear",
        coordinate_transformation_mode="tf_crop_and_resize",
    )
    v = g.input("volume", F32, [1, 1, 2, 3, 2])
    g.show("volume_up", "Resize", v, None, np.array([1, 1, 2, 1.5, 2], np.float32), mode="linear")
    s = g.input("sequence", F32, [1, 2, 5])
    g.show("sequence_up", "Resize", s, None, np.array([1, 1, 2.2], np.float32), mode="linear")
    return Case(g.model(), [[floats(rng, 1, 2, 4, 5), floats(rng, 1, 1, 2, 3, 2), floats(rng, 1, 2, 5)]])


@case("op_resize_cubic")
def resize_cubic(rng):
    g = Graph("resize_cubic", opset=18)
    x = g.input("x", F32, [1, 2, 5, 6])
    up, down = np.array([1, 1, 2.5, 1.75], np.float32), np.array([1, 1, 0.6, 0.5], np.float32)
    for coordinates in COORDINATES:
        scaling = by_scale_or_size(coordinates, up=up, down=down)
        g.show(
            f"{coordinates}_up", "Resize", x, *scaling["up"], mode="cubic", coordinate_transformation_mode=coordinates
        )
        g.show(
            f"{coordinates}_down",
            "Resize",
            x,
            *scaling["down"],
            mode="cubic",
            coordinate_transformation_mode=coordinates,
        )
    g.show("coefficient", "Resize", x, None, up, mode="cubic", cubic_coeff_a=-0.5)
    g.show("exclude_outside", "Resize", x, None, up, mode="cubic", exclude_outside=1)
    g.show("to_sizes", "Resize", x, None, None, [1, 2, 7, 9], mode="cubic")
    g.show("antialias", "Resize", x, None, down, mode="cubic", antialias=1)
    return Case(g.model(), [[floats(rng, 1, 2, 5, 6)]])


@case("op_resize_dynamic")
def resize_dynamic(rng):
    """Target sizes computed from another tensor's shape, as feature pyramids do."""
    g = Graph("resize_dynamic", opset=18)
    x, like = g.input("x", F32, ["n", 2, "h", "w"]), g.input("like", F32, ["n", 1, "h2", "w2"])
    sizes = g.op("Concat", g.op("Shape", x, end=2), g.op("Shape", like, start=2), axis=0)
    g.show(
        "nearest",
        "Resize",
        x,
        None,
        None,
        sizes,
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
        dtype=F32,
        dims=["n", 2, "h2", "w2"],
    )
    g.show("linear", "Resize", x, None, None, sizes, mode="linear", dtype=F32, dims=["n", 2, "h2", "w2"])
    g.show(
        "doubled",
        "Resize",
        x,
        None,
        np.array([1, 1, 2, 2], np.float32),
        mode="linear",
        coordinate_transformation_mode="pytorch_half_pixel",
        dtype=F32,
        dims=["n", 2, None, None],
    )
    return Case(
        g.model(),
        [[floats(rng, 1, 2, 3, 4), floats(rng, 1, 1, 6, 9)], [floats(rng, 2, 2, 5, 4), floats(rng, 2, 1, 4, 4)]],
    )


@case("op_resize_ints")
def resize_ints(rng):
    """Nearest neighbours of integers that single precision has no room for."""
    g = Graph("resize_ints", opset=18)
    x = g.input("x", I32, [1, 1, 4, 5])
    base = np.int32(2**30)

    def show(label, *operands, **attributes):
        # Without what all have in common, so that a difference of one counts.
        g.show(label, "Sub", g.op("Resize", x, None, *operands, **attributes), base)

    show("up", np.array([1, 1, 2, 1.5], np.float32))
    down = np.array([1, 1, 0.5, 0.6], np.float32)
    show("down", down, nearest_mode="floor", coordinate_transformation_mode="asymmetric")
    show("sizes", None, [1, 1, 7, 3], coordinate_transformation_mode="align_corners")
    return Case(g.model(), [[base + rng.integers(-99, 99, (1, 1, 4, 5), dtype=np.int32)]])


@case("op_resize_kept_ratio")
def resize_kept_ratio(rng):
    """Images of any size whose aspect ratio is kept; sizes that are known, those of another image, and numbers of the run."""
    g = Graph("resize_kept_ratio", opset=19)
    x, y = g.input("x", F32, ["n", 2, "h", "w"]), g.input("y", F32, ["a", "b"])
    given = g.input("given", I64, [2])

    def show(label, sizes, **attributes):
        g.show(label, "Resize", x, None, None, sizes, **attributes, dtype=F32, dims=["n", 2, None, None])

    for policy in ("not_larger", "not_smaller"):
        kept = dict(axes=[2, 3], keep_aspect_ratio_policy=policy)
        show(f"{policy}_known", [7, 6], **kept, mode="linear")
        show(f"{policy}_other", g.op("Shape", y), **kept, mode="nearest")
        show(f"{policy}_given", given, **kept, mode="cubic")
        show(f"{policy}_columns_first", given, axes=[3, 2], keep_aspect_ratio_policy=policy, mode="linear")
        show(f"{policy}_corners", [9, 4], **kept, mode="linear", coordinate_transformation_mode="align_corners")
    data = []
    for n, h, w, other, numbers in [(1, 4, 5, (8, 3), [6, 6]), (2, 3, 8, (5, 5), [7, 12]), (1, 6, 6, (3, 9), [4, 5])]:
        data.append([floats(rng, n, 2, h, w), floats(rng, *other), np.array(numbers)])
    return Case(g.model(), data)


@case("op_resize_scales_of_sizes")
def resize_scales_of_sizes(rng):
    """
    Scales that exporters computed from the size which they wanted, before version 11: TensorFlow's all at once, PyTorch's axis by axis.
    ONNX Runtime rounds the scale, and then the size: sizes here are such that it finds those which were wanted.
    """
    g = Graph("resize_scales_of_sizes", opset=10)
    x, like = g.input("x", F32, ["n", 3, "h", "w"]), g.input("like", F32, ["n", 2, "rows", "columns"])
    sizes = lambda value: g.op("Cast", g.op("Slice", g.op("Shape", value), [2], [4]), to=F32)
    scales = g.op("Concat", np.ones(2, np.float32), g.op("Div", sizes(like), sizes(x)), axis=0)
    g.show("at_once", "Resize", x, scales, mode="linear", dtype=F32, dims=["n", 3, None, None])

    def axis(value, n):
        return g.op("Gather", g.op("Shape", value), np.int64(n), axis=0)

    wanted = [g.op("Unsqueeze", axis(like, n), axes=[0]) for n in [2, 3]]
    wanted = g.op("Cast", g.op("Concat", *wanted, axis=0), to=F32)
    scales = g.op("Concat", np.ones(2, np.float32), g.op("Div", wanted, sizes(x)), axis=0)
    g.show("by_axis", "Resize", x, scales, mode="linear", dtype=F32, dims=["n", 3, None, None])
    # Twice the size, over the size.
    doubled = g.op("Floor", g.op("Mul", g.op("Cast", g.op("Unsqueeze", axis(x, 3), axes=[0]), to=F32), np.float32(2)))
    width = g.op("Div", doubled, g.op("Cast", g.op("Unsqueeze", axis(x, 3), axes=[0]), to=F32))
    scales = g.op("Concat", np.ones(3, np.float32), width, axis=0)
    g.show("doubled", "Resize", x, scales, mode="linear", dtype=F32, dims=["n", 3, "h", None])
    inputs = lambda n, h, w, rows, columns: [floats(rng, n, 3, h, w), floats(rng, n, 2, rows, columns)]
    return Case(g.model(), [inputs(2, 4, 5, 8, 10), inputs(1, 8, 6, 6, 9)])
