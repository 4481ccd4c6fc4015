"""Operators as older and newer opsets have them: what became an input was an attribute once."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

from fixture_lib.graph import F32, I64, Graph
from fixture_lib.registry import Case, case


def floats(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


def start(opset):
    g = Graph(f"opset_{opset}", opset=opset)
    return g, g.input("x", F32, [2, 3, 4, 4])


def attribute_forms(g, x):
    """What the opsets up to 10 share."""
    g.show("clip", "Clip", x, min=-0.5, max=0.4)
    g.show("clip_min", "Clip", x, min=0.1)
    g.show("pad", "Pad", x, pads=[0, 0, 1, 2, 0, 0, 0, 1], value=2.5)
    g.show("pad_reflect", "Pad", x, pads=[0, 0, 1, 1, 0, 0, 2, 1], mode="reflect")
    g.show("pad_edge", "Pad", x, pads=[0, 0, 1, 1, 0, 0, 2, 1], mode="edge")


def attribute_axes(g, x):
    """What the opsets up to 12 share: axes and splits as attributes, a softmax over everything from its axis on."""
    g.show("squeeze", "Squeeze", g.op("Unsqueeze", x, axes=[1, 4]), axes=[1])
    g.show("unsqueeze", "Unsqueeze", x, axes=[0, 3])
    g.show("squeeze_all", "Squeeze", g.op("Unsqueeze", x, axes=[0, 3]))
    for op in [
        "ReduceSum",
        "ReduceMean",
        "ReduceMax",
        "ReduceMin",
        "ReduceProd",
        "ReduceL2",
        "ReduceSumSquare",
        "ReduceLogSumExp",
    ]:
        g.show(op.lower(), op, x, axes=[1, 2], keepdims=0)
        g.show(f"{op.lower()}_all", op, x)
    g.op("Split", x, out=["split_a", "split_b"], axis=1, split=[1, 2])
    g.op("Split", x, out=["half_a", "half_b"], axis=3)
    for name in ("split_a", "split_b", "half_a", "half_b"):
        g.output(name)
    for op in ["Softmax", "LogSoftmax", "Hardmax"]:
        g.show(op.lower(), op, x)
        g.show(f"{op.lower()}_2", op, x, axis=2)


def layers(g, x, rng):
    w = floats(rng, 5, 3, 3, 3)
    y = g.op("Conv", x, w, floats(rng, 5), pads=[1, 1, 1, 1])
    y = g.op("BatchNormalization", y, *(floats(rng, 5) for _ in range(3)), np.abs(floats(rng, 5)) + np.float32(0.5))
    y = g.op("MaxPool", g.op("Relu", y), kernel_shape=[2, 2], strides=[2, 2])
    flat = g.op("Flatten", y)
    g.show("gemm", "Gemm", flat, floats(rng, 7, 20), floats(rng, 7), transB=1)


@case("opset_7")
def opset_7(rng):
    """IR version 3: every initializer is listed as an input too."""
    g, x = start(7)
    attribute_forms(g, x)
    attribute_axes(g, x)
    layers(g, x, rng)
    g.show("slice", "Slice", x, starts=[1, -3], ends=[4, -1], axes=[2, 3])
    g.show("slice_all", "Slice", x, starts=[0, 1], ends=[1, 999])
    g.op("TopK", x, out=["top", "top_index"], k=2, axis=3)
    g.output("top"), g.output("top_index")
    g.show("dropout", "Dropout", x, ratio=0.3)
    g.show("upsample", "Upsample", x, mode="nearest", scales=[1.0, 1.0, 2.0, 3.0])
    g.show("upsample_linear", "Upsample", x, mode="linear", scales=[1.0, 1.0, 2.0, 2.0])
    g.show("average_pool", "AveragePool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1)
    g.show("argmax", "ArgMax", x, axis=1)
    g.show("cast", "Cast", x, to=TensorProto.INT32)
    return Case(g.model(), [[floats(rng, 2, 3, 4, 4)]])


@case("opset_9")
def opset_9(rng):
    g, x = start(9)
    attribute_forms(g, x)
    attribute_axes(g, x)
    layers(g, x, rng)
    g.show("slice", "Slice", x, starts=[1], ends=[3], axes=[3])
    g.show("upsample", "Upsample", x, np.array([1, 1, 2, 1.5], np.float32), mode="nearest")
    g.show("upsample_linear", "Upsample", x, np.array([1, 1, 2, 2], np.float32), mode="linear")
    g.show("scatter", "Scatter", x, np.zeros((1, 1, 1, 2), np.int64), np.ones((1, 1, 1, 2), np.float32), axis=3)
    g.show("fill", "ConstantOfShape", [2, 2], value=helper.make_tensor("v", F32, [1], [3.0]))
    g.show("one_hot", "OneHot", np.array([0, 2]), np.int64(3), np.array([0, 1], np.float32))
    g.show("where", "Where", g.op("Greater", x, np.float32(0)), x, np.float32(0))
    return Case(g.model(), [[floats(rng, 2, 3, 4, 4)]])


@case("opset_10")
def opset_10(rng):
    g, x = start(10)
    attribute_forms(g, x)
    attribute_axes(g, x)
    layers(g, x, rng)
    g.show("slice", "Slice", x, [3, 0], [0, 4], [2, 3], [-1, 2])
    g.op("TopK", x, [2], out=["top", "top_index"], axis=2)
    g.output("top"), g.output("top_index")
    g.show("resize", "Resize", x, np.array([1, 1, 2, 1.5], np.float32), mode="nearest")
    g.show("resize_linear", "Resize", x, np.array([1, 1, 2, 2], np.float32), mode="linear")
    g.show("average_pool", "AveragePool", x, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
    g.op("Dropout", x, out=["dropout"], ratio=0.3)
    g.output("dropout")
    return Case(g.model(), [[floats(rng, 2, 3, 4, 4)]])


@case("opset_11")
def opset_11(rng):
    g, x = start(11)
    attribute_axes(g, x)
    layers(g, x, rng)
    g.show("clip", "Clip", x, np.float32(-0.5), np.float32(0.4))
    g.show("pad", "Pad", x, [0, 0, 1, 2, 0, 0, 0, 1], np.float32(2.5))
    g.show("squeeze_negative", "Squeeze", g.op("Unsqueeze", x, axes=[-1]), axes=[-1])
    g.show("reduce_negative", "ReduceSum", x, axes=[-1, -3])
    g.show("softmax_negative", "Softmax", x, axis=-1)
    roi = np.array([], np.float32)
    g.show("resize", "Resize", x, roi, np.array([1, 1, 2, 1.5], np.float32))
    g.show(
        "resize_sizes",
        "Resize",
        x,
        roi,
        np.array([], np.float32),
        [2, 3, 7, 5],
        mode="linear",
        coordinate_transformation_mode="align_corners",
    )
    g.show(
        "resize_cubic",
        "Resize",
        x,
        roi,
        np.array([1, 1, 2, 2], np.float32),
        mode="cubic",
        coordinate_transformation_mode="half_pixel",
    )
    g.show("gemm_no_bias", "Gemm", g.op("Flatten", x, axis=-2), floats(rng, 16, 2))
    g.show("cumsum", "CumSum", x, np.int32(1))
    g.show("gather_nd", "GatherND", x, np.array([[0, 2], [1, -1]]))
    return Case(g.model(), [[floats(rng, 2, 3, 4, 4)]])


@case("opset_12")
def opset_12(rng):
    g, x = start(12)
    attribute_axes(g, x)
    layers(g, x, rng)
    g.show("dropout", "Dropout", x, np.float32(0.4))
    g.show("clip_int", "Clip", g.op("Cast", x, to=I64), np.int64(-1), np.int64(1))
    g.show("pow", "Pow", x, np.int64(2))
    g.show("argmax", "ArgMax", x, axis=-1, select_last_index=1)
    g.show("less_or_equal", "LessOrEqual", x, np.float32(0))
    return Case(g.model(), [[floats(rng, 2, 3, 4, 4)]])


@case("opset_13")
def opset_13(rng):
    g, x = start(13)
    layers(g, x, rng)
    g.show("squeeze", "Squeeze", g.op("Unsqueeze", x, [1, 4]), [1])
    g.show("sum", "ReduceSum", x, [1, 2], keepdims=0)
    g.show("mean", "ReduceMean", x, axes=[1, -1], keepdims=0)
    g.show("softmax", "Softmax", x)
    g.op("Split", x, [1, 2], out=["split_a", "split_b"], axis=1)
    g.op("Split", x, out=["half_a", "half_b"], axis=3)
    for name in ("split_a", "split_b", "half_a", "half_b"):
        g.output(name)
    g.show("resize", "Resize", x, None, np.array([1, 1, 2, 1.5], np.float32))
    g.show(
        "resize_crop",
        "Resize",
        x,
        np.array([0, 0, 0.1, 0.2, 1, 1, 0.9, 0.8], np.float32),
        None,
        [2, 3, 3, 3],
        mode="linear",
        coordinate_transformation_mode="tf_crop_and_resize",
    )
    return Case(g.model(), [[floats(rng, 2, 3, 4, 4)]])


@case("opset_newest")
def opset_newest(rng):
    """An ordinary network in the newest opset that the reference runs."""
    g, x = start(NEWEST)
    layers(g, x, rng)
    g.show("squeeze", "Squeeze", g.op("Unsqueeze", x, [1, 4]), [1])
    g.show("mean", "ReduceMean", x, [1, -1], keepdims=0)
    g.show("softmax", "Softmax", x, axis=1)
    g.show("gelu", "Gelu", x)
    g.show("resize", "Resize", x, None, np.array([2, 2], np.float32), mode="linear", axes=[2, 3])
    return Case(g.model(), [[floats(rng, 2, 3, 4, 4)]])


NEWEST = 26


@case("opset_11_batch_statistics")
def batch_statistics(rng):
    """Until opset 14, a `BatchNormalization` that yields its statistics normalizes by them. ONNX Runtime does not."""
    scale, bias = floats(rng, 3), floats(rng, 3)
    given = np.zeros(3, np.float32), np.ones(3, np.float32)

    g = Graph("batch_statistics", opset=11)
    x = g.input("x", F32, ["n", 3, 4])
    y, *_ = g.op("BatchNormalization", x, scale, bias, *given, out=5, momentum=1.0)
    g.show("y", "Relu", y, dtype=F32, dims=["n", 3, 4])

    r = Graph("reference", opset=18)
    x = r.input("x", F32, ["n", 3, 4])
    centered = r.op("Sub", x, r.op("ReduceMean", x, [0, 2]))
    deviation = r.op("Sqrt", r.op("Add", r.op("ReduceMean", r.op("Mul", centered, centered), [0, 2]), np.float32(1e-5)))
    scaled = r.op("Mul", r.op("Div", centered, deviation), scale[:, None])
    r.show("y", "Relu", r.op("Add", scaled, bias[:, None]), dtype=F32, dims=["n", 3, 4])
    return Case(g.model(), [[floats(rng, 2, 3, 4)]], reference=r.model())
