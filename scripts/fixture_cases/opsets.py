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


def compared(opset, inputs, write, data):
    """A model of an opset that ONNX Runtime has no kernels for, and one of opset 7 that says the same in its words."""
    graphs = []
    for version in [7, opset]:
        g = Graph(f"opset_{opset}", opset=version)
        write(g, {name: g.input(name, dtype, dims) for name, (dtype, dims) in inputs.items()}, version != 7)
        graphs.append(g)
    reference = graphs[0].model()
    types = {o.name: o.type.tensor_type for o in reference.graph.output}
    # Inference knows few of the old operators.
    known = {name: (t.elem_type, [d.dim_value or d.dim_param for d in t.shape.dim]) for name, t in types.items()}
    graphs[1].outputs = [(name, *known[name]) for name, *_ in graphs[1].outputs]
    return Case(graphs[1].model(), data, reference=reference, checked=opset > 1)


@case("opset_6")
def opset_6(rng):
    """The second operand alone is broadcast, along the first one's axes from `axis` on."""
    scale, four, twelve = floats(rng, 3), floats(rng, 4), floats(rng, 3, 4)
    statistics = [floats(rng, 3), floats(rng, 3), floats(rng, 3), np.abs(floats(rng, 3)) + np.float32(0.5)]
    positions = [floats(rng, 3, 4, 4), floats(rng, 3, 4, 4), floats(rng, 3, 4, 4), np.abs(floats(rng, 3, 4, 4)) + np.float32(0.5)]
    slope, matrix, bias = floats(rng, 3), floats(rng, 48, 5), floats(rng, 5)
    w, r, b = floats(rng, 1, 20, 4), floats(rng, 1, 20, 5), floats(rng, 1, 40)

    def write(g, names, old):
        x, y, flags = names["x"], names["y"], names["flags"]

        def pair(label, op, a, b, axis=None, after=0):
            """`after` axes of size 1 behind the second operand say in new words what `axis` does in old ones."""
            if old:
                g.show(label, op, a, b, broadcast=1, **({} if axis is None else {"axis": axis}))
            else:
                shape = np.shape(b) if not isinstance(b, str) else None
                b = np.reshape(b, [*shape, *[1] * after]) if shape is not None else b
                g.show(label, op, a, b)

        pair("add_channels", "Add", x, scale, 1, 2)
        pair("sub_last", "Sub", x, four)
        pair("mul_middle", "Mul", x, twelve, 1, 1)
        pair("div_negative_axis", "Div", x, np.abs(four) + np.float32(0.5), -2, 1)
        pair("add_batch", "Add", x, np.array([0.5, -2], np.float32), 0, 3)
        pair("add_number", "Add", x, np.float32(1.5))
        pair("mul_one_element", "Mul", x, np.array([[-2]], np.float32), 1)
        pair("pow", "Pow", g.op("Abs", x), np.array([1, 2, 0.5], np.float32), 1, 2)
        pair("greater", "Greater", x, scale, 1, 2)
        pair("less", "Less", x, four)
        pair("and", "And", flags, np.array([True, False, True]), 1, 2)
        pair("or", "Or", flags, np.array([True, False, False, True]), 2, 1)
        pair("xor", "Xor", flags, np.array(True))
        ints = g.op("Cast", x, to=I64)
        pair("equal", "Equal", ints, np.array([0, 1, -1]), 1, 2)
        pair("add_ints", "Add", ints, np.array([3, 4, 5, 6]))
        # An operand of the run, in the middle.
        if old:
            g.show("add_given", "Add", x, y, broadcast=1, axis=1)
        else:
            g.show("add_given", "Add", x, g.op("Unsqueeze", y, axes=[1, 2]))
        g.show("add_equal", "Add", x, x)

        test = {"is_test": 1} if old else {}
        g.show("norm", "BatchNormalization", x, *statistics, epsilon=1e-3, **test)
        g.show("norm_positions", "BatchNormalization", x, *positions, spatial=0, **test)
        g.show("dropout", "Dropout", x, ratio=0.3, **test)
        g.show("prelu", "PRelu", x, slope if old else slope[:, None, None])
        g.show("prelu_one", "PRelu", x, np.array([0.25], np.float32))
        flat = g.op("Flatten", x)
        g.show("gemm", "Gemm", flat, matrix, bias, **({"broadcast": 1} if old else {}))
        g.show("gemm_whole", "Gemm", flat, matrix, np.stack([bias, -bias]), alpha=0.5, beta=2.0)
        if old:
            g.show("up", "Upsample", x, mode="nearest", height_scale=2.0, width_scale=3.0)
            g.show("up_linear", "Upsample", x, mode="bilinear", height_scale=2.0, width_scale=1.5)
        else:
            g.show("up", "Upsample", x, mode="nearest", scales=[1.0, 1.0, 2.0, 3.0])
            g.show("up_linear", "Upsample", x, mode="linear", scales=[1.0, 1.0, 2.0, 1.5])
        steps = g.op("Squeeze", g.op("Slice", x, starts=[0], ends=[1], axes=[0]), axes=[0])
        sequence = {"output_sequence": 1} if old else {}
        g.op("LSTM", g.op("Transpose", steps, perm=[1, 0, 2]), w, r, b, out=["states", "last"], hidden_size=5, **sequence)
        g.output("states"), g.output("last")

    inputs = {"x": (F32, [2, 3, 4, 4]), "y": (F32, [3]), "flags": (TensorProto.BOOL, [2, 3, 4, 4])}
    x = [floats(rng, 2, 3, 4, 4), floats(rng, 3), rng.integers(0, 2, (2, 3, 4, 4)).astype(bool)]
    return compared(6, inputs, write, [x])


@case("opset_1")
def opset_1(rng):
    """The first form of every operator that has changed since."""
    statistics = [floats(rng, 3), floats(rng, 3), floats(rng, 3), np.abs(floats(rng, 3)) + np.float32(0.5)]

    def write(g, names, old):
        x = names["x"]
        used = {"consumed_inputs": [0]} if old else {}
        both = {"consumed_inputs": [0, 0]} if old else {}
        for op in ["Abs", "Ceil", "Exp", "Floor", "Neg", "Relu", "Sigmoid", "Tanh", "LeakyRelu", "Elu", "HardSigmoid"]:
            g.show(op.lower(), op, x, **used)
        g.show("selu", "Selu", x, **(used or {"alpha": 1.6732, "gamma": 1.0507}))
        positive = g.op("Add", g.op("Abs", x), np.float32(0.5), **({"broadcast": 1, **both} if old else {}))
        for op in ["Log", "Reciprocal", "Sqrt"]:
            g.show(op.lower(), op, positive, **used)
        for op in ["Max", "Mean", "Min", "Sum"]:
            g.show(op.lower(), op, x, positive, **both)
        test = {"is_test": 1} if old else {}
        five = {"consumed_inputs": [0, 0, 0, 0, 0]} if old else {}
        g.show("norm", "BatchNormalization", x, *statistics, **five, **test)
        g.show("instance", "InstanceNormalization", x, *statistics[:2], epsilon=1e-3, **({"consumed_inputs": [0, 0, 0]} if old else {}))
        g.show("dropout", "Dropout", x, **used, **test)
        g.show("prelu", "PRelu", x, statistics[0] if old else statistics[0][:, None, None], **both)
        g.show("clip", "Clip", x, min=-0.5, max=0.4, **used)
        g.show("clip_max", "Clip", x, max=0.1, **used)
        g.show("concat", "Concat", x, positive, **({} if old else {"axis": 1}))
        g.show("concat_last", "Concat", x, positive, axis=3)
        g.show("lp_pool", "GlobalLpPool", x, p=3.0 if old else 3)
        g.show("lp_windows", "LpPool", x, kernel_shape=[2, 2], p=2.0 if old else 2)
        amounts = [0, 0, 1, 2, 0, 0, 0, 1]
        g.show("pad", "Pad", x, value=2.5, **({"paddings": amounts} if old else {"pads": amounts}))
        if old:
            g.show("cast", "Cast", x, to="INT32")
            g.show("reshape", "Reshape", x, shape=[0, -1, 2], **used)
            g.show("tile", "Tile", x, np.float32(3), np.float32(2))
            g.op("Split", x, np.array([1, 2], np.float32), out=["split_a", "split_b"], axis=1)
        else:
            g.show("cast", "Cast", x, to=TensorProto.INT32)
            g.show("reshape", "Reshape", x, [0, -1, 2])
            g.show("tile", "Tile", x, [1, 1, 3, 1])
            g.op("Split", x, out=["split_a", "split_b"], axis=1, split=[1, 2])
        g.output("split_a"), g.output("split_b")

    return compared(1, {"x": (F32, [2, 3, 4, 4])}, write, [[floats(rng, 2, 3, 4, 4)]])
