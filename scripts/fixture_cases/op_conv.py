"""Convolution, pooling and normalisation operators: every attribute, one to three dimensions."""

from __future__ import annotations

import numpy as np

from fixture_lib.graph import BOOL, F32, U8, Graph
from fixture_lib.registry import Case, case


def floats(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


@case("op_conv_2d")
def conv_2d(rng):
    g = Graph("conv_2d", opset=18)
    x = g.input("x", F32, [2, 4, 9, 11])
    w, w2, wd = floats(rng, 6, 4, 3, 3), floats(rng, 6, 2, 3, 2), floats(rng, 8, 1, 3, 3)
    b = floats(rng, 6)
    g.show("plain", "Conv", x, w)
    g.show("bias", "Conv", x, w, b, kernel_shape=[3, 3])
    g.show("asymmetric", "Conv", x, w, b, pads=[1, 0, 2, 1], strides=[2, 1])
    g.show("dilated", "Conv", x, w, b, dilations=[2, 3], pads=[2, 2, 2, 2])
    g.show("grouped", "Conv", x, w2, b, group=2, pads=[1, 1, 1, 1])
    g.show("depthwise", "Conv", x, wd, group=4, pads=[1, 1, 1, 1], strides=[2, 2])
    g.show("pointwise", "Conv", x, floats(rng, 5, 4, 1, 1), floats(rng, 5))
    g.show("pointwise_strided", "Conv", x, floats(rng, 5, 4, 1, 1), strides=[2, 3])
    g.show("even_kernel", "Conv", x, floats(rng, 3, 4, 4, 2), pads=[2, 1, 1, 0])
    g.show("tall_kernel", "Conv", x, floats(rng, 3, 4, 5, 1), pads=[2, 0, 2, 0])
    g.show("same_upper", "Conv", x, w, auto_pad="SAME_UPPER", strides=[2, 2])
    g.show("same_lower", "Conv", x, floats(rng, 6, 4, 4, 4), auto_pad="SAME_LOWER", strides=[2, 3])
    g.show("valid", "Conv", x, w, auto_pad="VALID", strides=[1, 2])
    g.show("wide_padding", "Conv", x, floats(rng, 1, 4, 1, 1), pads=[3, 2, 1, 4])
    weight = g.input("weight", F32, [4, 4, 2, 2])
    g.show("weight_from_input", "Conv", x, weight)
    return Case(g.model(), [[floats(rng, 2, 4, 9, 11), floats(rng, 4, 4, 2, 2)]])


@case("op_conv_many_axes")
def conv_many_axes(rng):
    """More than three spatial axes, of which windows reach across three at most, as `reduce_window` of JAX is written."""
    g = Graph("conv_many_axes", opset=18)
    x, image = g.input("x", F32, ["n", 1, 2, 5, 6, 3]), g.input("image", F32, [2, 4, 3, 2, 5, 2, 6])
    g.show("sum", "Conv", x, np.ones((1, 1, 1, 2, 2, 1), np.float32), dims=["n", 1, 2, 4, 5, 3])
    g.show("volume", "Conv", x, floats(rng, 2, 1, 1, 2, 3, 2), floats(rng, 2), pads=[0, 1, 1, 0, 0, 0, 1, 1], strides=[1, 2, 1, 1])
    g.show("points", "Conv", x, floats(rng, 3, 1, 1, 1, 1, 1), floats(rng, 3))
    g.show("strided", "Conv", x, floats(rng, 2, 1, 1, 1, 1, 1), strides=[1, 2, 1, 3])
    g.show("grouped", "Conv", image, floats(rng, 6, 2, 1, 1, 3, 1, 2), group=2, dilations=[1, 1, 2, 1, 1])
    g.show("same", "Conv", image, floats(rng, 2, 4, 1, 2, 1, 1, 3), auto_pad="SAME_UPPER", strides=[1, 1, 1, 1, 2])
    return Case(g.model(), [[floats(rng, 3, 1, 2, 5, 6, 3), floats(rng, 2, 4, 3, 2, 5, 2, 6)]])


@case("op_conv_same_dilated")
def conv_same_dilated(rng):
    """ONNX Runtime refuses this combination; explicit pads say the same."""
    w, x = floats(rng, 3, 2, 3, 2), floats(rng, 1, 2, 7, 8)

    def build(same, explicit):
        g = Graph("conv_same_dilated", opset=18)
        g.input("x", F32, [1, 2, 7, 8])
        g.show("upper", "Conv", "x", w, dilations=[2, 3], **(dict(auto_pad="SAME_UPPER") if same else explicit[0]))
        g.show(
            "lower",
            "Conv",
            "x",
            w,
            dilations=[2, 3],
            strides=[2, 1],
            **(dict(auto_pad="SAME_LOWER") if same else explicit[1]),
        )
        return g.model()

    return Case(build(True, None), [[x]], reference=build(False, [dict(pads=[2, 1, 2, 2]), dict(pads=[2, 2, 2, 1])]))


@case("op_conv_1d_3d")
def conv_1d_3d(rng):
    g = Graph("conv_1d_3d", opset=18)
    x, v = g.input("x", F32, ["n", 4, "length"]), g.input("volume", F32, [1, 2, 5, 6, 7])
    f1 = ["n", 6, None]
    g.show("conv1d", "Conv", x, floats(rng, 6, 4, 3), floats(rng, 6), pads=[1, 1], dtype=F32, dims=f1)
    g.show(
        "conv1d_strided", "Conv", x, floats(rng, 6, 4, 4), strides=[3], dilations=[2], pads=[3, 2], dtype=F32, dims=f1
    )
    g.show(
        "conv1d_depthwise",
        "Conv",
        x,
        floats(rng, 4, 1, 5),
        group=4,
        auto_pad="SAME_LOWER",
        dtype=F32,
        dims=["n", 4, "length"],
    )
    g.show("conv3d", "Conv", v, floats(rng, 3, 2, 2, 3, 3), floats(rng, 3), pads=[0, 1, 1, 1, 1, 1])
    g.show(
        "conv3d_strided",
        "Conv",
        v,
        floats(rng, 4, 1, 3, 3, 3),
        group=2,
        strides=[2, 1, 2],
        dilations=[1, 2, 1],
        pads=[1] * 6,
    )
    g.show("conv3d_same", "Conv", v, floats(rng, 2, 2, 2, 2, 2), auto_pad="SAME_UPPER", strides=[2, 2, 2])
    return Case(
        g.model(), [[floats(rng, n, 4, length), floats(rng, 1, 2, 5, 6, 7)] for n, length in ((2, 17), (1, 10))]
    )


@case("op_conv_transpose")
def conv_transpose(rng):
    g = Graph("conv_transpose", opset=18)
    x = g.input("x", F32, [2, 4, 5, 6])
    s, v = g.input("sequence", F32, [1, 3, 7]), g.input("volume", F32, [1, 2, 3, 3, 4])
    w, b = floats(rng, 4, 3, 3, 3), floats(rng, 3)
    g.show("plain", "ConvTranspose", x, w)
    g.show("bias", "ConvTranspose", x, w, b, strides=[2, 2], kernel_shape=[3, 3])
    g.show("padded", "ConvTranspose", x, w, b, strides=[2, 3], pads=[1, 0, 2, 1])
    g.show("output_padding", "ConvTranspose", x, w, b, strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1])
    g.show("output_shape", "ConvTranspose", x, w, b, strides=[3, 3], output_shape=[15, 17])
    g.show("grouped", "ConvTranspose", x, floats(rng, 4, 3, 2, 2), floats(rng, 6), group=2, strides=[2, 2])
    g.show("depthwise", "ConvTranspose", x, floats(rng, 4, 1, 3, 3), group=4)
    g.show("dilated", "ConvTranspose", x, w, dilations=[2, 2], pads=[1, 1, 1, 1])
    g.show("same_upper", "ConvTranspose", x, w, auto_pad="SAME_UPPER", strides=[2, 2])
    g.show("same_lower", "ConvTranspose", x, w, auto_pad="SAME_LOWER", strides=[2, 2])
    g.show("valid", "ConvTranspose", x, w, auto_pad="VALID", strides=[2, 1])
    g.show("one_dimension", "ConvTranspose", s, floats(rng, 3, 2, 4), floats(rng, 2), strides=[2], pads=[1, 1])
    g.show("three_dimensions", "ConvTranspose", v, floats(rng, 2, 2, 2, 2, 2), floats(rng, 2), strides=[2, 2, 2])
    return Case(g.model(), [[floats(rng, 2, 4, 5, 6), floats(rng, 1, 3, 7), floats(rng, 1, 2, 3, 3, 4)]])


@case("op_max_pool")
def max_pool(rng):
    g = Graph("max_pool", opset=12)
    x = g.input("x", F32, [2, 3, 9, 10])
    s, v, u = (
        g.input("sequence", F32, [1, 3, 11]),
        g.input("volume", F32, [1, 2, 5, 6, 7]),
        g.input("bytes", U8, [1, 2, 6, 6]),
    )
    g.show("plain", "MaxPool", x, kernel_shape=[2, 2])
    g.show("strided", "MaxPool", x, kernel_shape=[3, 2], strides=[2, 3])
    g.show("padded", "MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    g.show("asymmetric", "MaxPool", x, kernel_shape=[3, 3], pads=[0, 1, 2, 0])
    g.show("ceil", "MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
    g.show("ceil_padded", "MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], ceil_mode=1)
    g.show("dilated", "MaxPool", x, kernel_shape=[3, 2], dilations=[2, 3])
    g.show("same_upper", "MaxPool", x, kernel_shape=[3, 2], strides=[2, 2], auto_pad="SAME_UPPER")
    g.show("same_lower", "MaxPool", x, kernel_shape=[4, 2], strides=[2, 3], auto_pad="SAME_LOWER")
    g.show("valid", "MaxPool", x, kernel_shape=[2, 3], strides=[2, 2], auto_pad="VALID")
    g.op("MaxPool", x, out=["values", "indices"], kernel_shape=[2, 2], strides=[2, 2])
    g.output("values"), g.output("indices")
    g.op(
        "MaxPool",
        x,
        out=["values_padded", "indices_column_major"],
        kernel_shape=[3, 3],
        strides=[2, 1],
        pads=[1, 1, 1, 1],
        storage_order=1,
    )
    g.output("values_padded"), g.output("indices_column_major")
    g.show("one_dimension", "MaxPool", s, kernel_shape=[3], strides=[2], pads=[1, 0])
    g.show("three_dimensions", "MaxPool", v, kernel_shape=[2, 2, 3], strides=[1, 2, 2])
    g.show("uint8", "MaxPool", u, kernel_shape=[2, 2], strides=[2, 2])
    g.show("global", "GlobalMaxPool", x)
    g.show("global_1d", "GlobalMaxPool", s)
    g.show("global_3d", "GlobalMaxPool", v)
    return Case(
        g.model(),
        [
            [
                floats(rng, 2, 3, 9, 10) - 3,
                floats(rng, 1, 3, 11),
                floats(rng, 1, 2, 5, 6, 7),
                rng.integers(0, 256, (1, 2, 6, 6)).astype(np.uint8),
            ]
        ],
    )


@case("op_average_pool")
def average_pool(rng):
    g = Graph("average_pool", opset=19)
    x = g.input("x", F32, [2, 3, 9, 10])
    s, v = g.input("sequence", F32, [1, 3, 11]), g.input("volume", F32, [1, 2, 5, 6, 7])
    g.show("plain", "AveragePool", x, kernel_shape=[2, 2])
    g.show("padded", "AveragePool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    g.show(
        "padded_counted", "AveragePool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], count_include_pad=1
    )
    g.show("asymmetric", "AveragePool", x, kernel_shape=[3, 2], pads=[2, 0, 0, 1])
    g.show("ceil", "AveragePool", x, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
    g.show("dilated", "AveragePool", x, kernel_shape=[2, 3], dilations=[3, 2])
    g.show("same_upper", "AveragePool", x, kernel_shape=[3, 2], strides=[2, 2], auto_pad="SAME_UPPER")
    g.show(
        "same_lower", "AveragePool", x, kernel_shape=[4, 2], strides=[2, 3], auto_pad="SAME_LOWER", count_include_pad=1
    )
    g.show("valid", "AveragePool", x, kernel_shape=[2, 3], strides=[2, 2], auto_pad="VALID")
    g.show("one_dimension", "AveragePool", s, kernel_shape=[4], strides=[2], pads=[1, 2])
    g.show("three_dimensions", "AveragePool", v, kernel_shape=[2, 2, 3], strides=[1, 2, 2], pads=[1, 0, 1, 0, 1, 0])
    g.show("global", "GlobalAveragePool", x)
    g.show("global_1d", "GlobalAveragePool", s)
    g.show("global_3d", "GlobalAveragePool", v)
    g.show("lp", "LpPool", x, kernel_shape=[2, 3], strides=[2, 2], p=2)
    g.show("lp_padded", "LpPool", x, kernel_shape=[3, 3], pads=[1, 1, 0, 0], p=3)
    g.show("lp_global", "GlobalLpPool", x, p=2)
    return Case(g.model(), [[floats(rng, 2, 3, 9, 10), floats(rng, 1, 3, 11), floats(rng, 1, 2, 5, 6, 7)]])


@case("op_normalization")
def normalization(rng):
    g = Graph("normalization", opset=18)
    x, m, v = (
        g.input("x", F32, ["n", 4, 5, 3]),
        g.input("matrix", F32, ["n", 4]),
        g.input("volume", F32, [1, 4, 2, 3, 2]),
    )
    scale, bias, mean, variance = (
        floats(rng, 4),
        floats(rng, 4),
        floats(rng, 4),
        np.abs(floats(rng, 4)) + np.float32(0.1),
    )
    g.show("batch", "BatchNormalization", x, scale, bias, mean, variance)
    g.show(
        "batch_epsilon",
        "BatchNormalization",
        x,
        scale,
        bias,
        mean,
        variance,
        epsilon=0.1,
        momentum=0.5,
        training_mode=0,
    )
    g.show("batch_matrix", "BatchNormalization", m, scale, bias, mean, variance)
    g.show("batch_volume", "BatchNormalization", v, scale, bias, mean, variance)
    g.show("instance", "InstanceNormalization", x, scale, bias)
    g.show("instance_epsilon", "InstanceNormalization", v, scale, bias, epsilon=0.01)
    g.show("layer", "LayerNormalization", x, floats(rng, 3), floats(rng, 3))
    g.show("layer_no_bias", "LayerNormalization", x, floats(rng, 3), epsilon=0.01, axis=3)
    g.show("layer_two_axes", "LayerNormalization", x, floats(rng, 5, 3), floats(rng, 5, 3), axis=-2)
    g.show("layer_three_axes", "LayerNormalization", x, floats(rng, 4, 5, 3), axis=1)
    g.show("layer_broadcast", "LayerNormalization", x, floats(rng, 1, 3), floats(rng, 3), axis=2)
    g.op("LayerNormalization", x, floats(rng, 5, 3), out=["layer_three", "layer_mean", "layer_inverse"], axis=2)
    g.output("layer_three"), g.output("layer_mean", F32, ["n", 4, 1, 1]), g.output("layer_inverse", F32, ["n", 4, 1, 1])
    g.show("local_response", "LRN", x, size=3, alpha=0.2, beta=0.5, bias=1.5)
    g.show("lp_1", "LpNormalization", x, axis=1, p=1)
    g.show("lp_2", "LpNormalization", x, axis=-1, p=2)
    return Case(g.model(), [[floats(rng, n, 4, 5, 3), floats(rng, n, 4), floats(rng, 1, 4, 2, 3, 2)] for n in (2, 1)])


@case("op_normalization_23")
def normalization_23(rng):
    """Operators of opset 21 and 23: group normalisation whose scale goes by channel, and RMS normalisation."""
    g = Graph("normalization_23", opset=23)
    x = g.input("x", F32, [2, 6, 4, 3])
    g.show("group", "GroupNormalization", x, floats(rng, 6), floats(rng, 6), num_groups=3, dtype=F32, dims=[2, 6, 4, 3])
    g.show(
        "group_epsilon",
        "GroupNormalization",
        x,
        floats(rng, 6),
        floats(rng, 6),
        num_groups=2,
        epsilon=0.1,
        stash_type=1,
        dtype=F32,
        dims=[2, 6, 4, 3],
    )
    g.show(
        "group_one", "GroupNormalization", x, floats(rng, 6), floats(rng, 6), num_groups=1, dtype=F32, dims=[2, 6, 4, 3]
    )
    g.show("rms", "RMSNormalization", x, floats(rng, 3))
    g.show("rms_axis", "RMSNormalization", x, floats(rng, 4, 3), axis=-2, epsilon=0.01)
    return Case(g.model(), [[floats(rng, 2, 6, 4, 3)]])


@case("op_dropout")
def dropout(rng):
    """In inference a dropout is nothing at all, but its mask may be asked for."""
    g = Graph("dropout", opset=13)
    x = g.input("x", F32, [3, 4])
    g.show("plain", "Dropout", x)
    g.show("ratio", "Dropout", x, np.float32(0.7), seed=3)
    g.op("Dropout", x, np.float32(0.7), np.bool_(False), out=["kept", "mask"])
    g.output("kept"), g.output("mask", BOOL, [3, 4])
    g.show("training_without_loss", "Dropout", x, np.float32(0.0), np.bool_(True))
    return Case(g.model(), [[floats(rng, 3, 4)]])
