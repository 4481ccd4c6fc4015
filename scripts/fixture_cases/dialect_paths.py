"""What exporters of other frameworks than PyTorch write: names that are paths, tensors with channels last, weights as constants."""

from __future__ import annotations

import numpy as np
from onnx import numpy_helper

from fixture_lib.graph import F32, Graph
from fixture_lib.registry import Case, case


def floats(rng, *shape):
    return (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)


class Named(Graph):
    """A graph whose names are `net/layer/operation`."""

    net = "StatefulPartitionedCall/net_1.00_16"

    def node(self, path, op_type, *operands, out=None, **attributes):
        name = f"{self.net}/{path}"
        return self.op(op_type, *operands, out=out or f"{name}:0", name=name, **attributes)

    def weight(self, path, value):
        return self.const(value, f"{self.net}/{path}")


@case("scopes_slashes")
def scopes_slashes(rng):
    """Layers are called after the modules that paths name: below the network's own name, and with what else they do."""
    g = Named("tf2onnx", opset=15)
    x = g.input("input_1", F32, ["unk__1", 16, 16, 3])
    low, high = g.const(np.float32(0), "low__4"), g.const(np.float32(6), "high__5")

    def conv(x, layer, i, o, kernel, activation=True, **attributes):
        w = g.weight(f"{layer}/Conv2D_weights_fused_bn", floats(rng, o, i, kernel, kernel))
        b = g.weight(f"{layer}/Conv2D_bias_fused_bn", floats(rng, o))
        x = g.node(f"{layer}/Conv2D", "Conv", x, w, b, kernel_shape=[kernel, kernel], **attributes)
        return g.node(f"{layer}_relu/Relu6", "Clip", x, low, high) if activation else x

    x = g.node("Conv1/Conv2D__7", "Transpose", x, perm=[0, 3, 1, 2])
    x = conv(x, "Conv1", 3, 8, 3, strides=[2, 2], pads=[0, 0, 1, 1])
    for block in range(1, 4):
        y = conv(x, f"block_{block}_expand", 8, 16, 1)
        y = conv(y, f"block_{block}_depthwise", 1, 16, 3, pads=[1, 1, 1, 1], group=16)
        y = conv(y, f"block_{block}_project", 16, 8, 1, activation=False)
        x = g.node(f"block_{block}_add/add", "Add", x, y)
    alpha = g.weight("act/Neg:0", floats(rng, 8, 1, 1))
    x = g.node("act/Relu", "PRelu", x, alpha)
    x = g.node("pool/Mean", "GlobalAveragePool", x)
    x = g.op("Squeeze", x, [2, 3], name="pool_Squeeze__9")
    w = g.weight("top/dense/MatMul/ReadVariableOp:0", floats(rng, 8, 5))
    b = g.weight("top/dense/BiasAdd/ReadVariableOp:0", floats(rng, 5))
    x = g.node("top/dense/MatMul", "MatMul", x, w)
    x = g.node("top/dense/BiasAdd", "Add", x, b)
    x = g.node("top/dense/Softmax", "Softmax", x, axis=1, out="dense")
    g.output(x, F32, ["unk__1", 5])
    return Case(g.model(), [[floats(rng, n, 16, 16, 3)] for n in (1, 2)])


@case("scopes_slim")
def scopes_slim(rng):
    """What OnnxSlim makes of PyTorch's files: products that were written anew have weights called after nodes, and numbers that
    blocks have in common are those of the first."""
    g = Graph("main_graph", opset=17)
    x = g.input("x", F32, ["n", 5, 8])
    act = "/blocks/blocks.{}/act"
    root, one, half = (
        g.const(np.float32(number), f"{act.format(0)}/Constant{n}_output_0")
        for n, number in [("", np.sqrt(2)), ("_1", 1), ("_2", 0.5)]
    )

    def linear(x, block, layer, i, o):
        name = f"/blocks/blocks.{block}/{layer}/MatMul_output_0"
        weight, bias = g.const(floats(rng, o, i), f"{name}_weight"), g.const(floats(rng, o), f"blocks.{block}.{layer}.bias")
        flat = g.op("Reshape", x, [-1, i], name=f"{name}_pre_reshape")
        y = g.op("Gemm", flat, weight, bias, transB=1, name=name)
        return g.op("Reshape", y, [-1, 5, o], name=f"{name}_post_reshape")

    for block in range(3):
        y = linear(x, block, "up", 8, 16)
        path = act.format(block)
        z = g.op("Erf", g.op("Div", y, root, name=f"{path}/Div"), name=f"{path}/Erf")
        z = g.op("Mul", y, g.op("Add", z, one, name=f"{path}/Add"), name=f"{path}/Mul")
        y = linear(g.op("Mul", z, half, name=f"{path}/Mul_1"), block, "down", 16, 8)
        x = g.op("Add", x, y, name=f"/blocks/blocks.{block}/Add")
    g.output(x, F32, ["n", 5, 8])
    model = g.model()
    model.producer_name, model.producer_version = "pytorch", "2.9.1"
    return Case(model, [[floats(rng, n, 5, 8)] for n in (2, 1)])


@case("attention_keys_first")
def attention_keys_first(rng):
    """Attention as `einsum` is written out: leading axes folded into one, scores turned around, biases behind the split into heads."""
    g = Named("tf2onnx", opset=15)
    heads, size, width = 2, 4, 8
    x = g.input("x", F32, ["batch", "length", width])
    mask = g.input("mask", F32, ["batch", "length", "length"])
    shape = g.op("Shape", x)
    batch, length = (g.op("Gather", shape, g.const(np.array([n]))) for n in (0, 1))
    stack = g.op("Mul", batch, [heads])
    rows = g.op("Reshape", x, [-1, width])

    def projected(name):
        y = g.op("Gemm", rows, floats(rng, heads * size, width), transB=1)
        y = g.op("Reshape", y, g.op("Concat", batch, length, [heads, size], axis=0))
        return g.node(f"attention/{name}/add", "Add", y, g.weight(f"attention/{name}/add/Read:0", floats(rng, heads, size)))

    def folded(y, axis, perm, matrix):
        y = g.op("Unsqueeze", y, [axis])
        y = g.op("Transpose", y, perm=perm)
        return g.op("Reshape", y, g.op("Concat", stack, *matrix, axis=0))

    q = g.node("attention/Mul", "Mul", projected("query"), np.float32(0.5))
    q = g.op("Transpose", folded(q, 1, [0, 3, 1, 2, 4], [length, [size]]), perm=[0, 2, 1])
    k = folded(projected("key"), 2, [0, 3, 1, 2, 4], [length, [size]])
    scores = g.op("MatMul", k, q)
    scores = g.op("Reshape", scores, g.op("Concat", batch, [heads], length, length, axis=0))
    low = g.node("attention/softmax/mul", "Mul", g.op("Unsqueeze", mask, [1]), np.float32(-1e9))
    scores = g.node("attention/softmax/add", "Add", scores, g.op("Transpose", low, perm=[0, 1, 3, 2]))
    weights = g.node("attention/softmax/Softmax", "Softmax", scores, axis=2)
    weights = folded(weights, 2, [0, 1, 4, 2, 3], [length, length])
    v = folded(projected("value"), 2, [0, 3, 2, 4, 1], [[size], length])
    y = g.op("MatMul", weights, g.op("Transpose", v, perm=[0, 2, 1]))
    y = g.op("Reshape", y, g.op("Concat", batch, [1, heads], length, [size], axis=0))
    y = g.op("Transpose", y, perm=[0, 3, 1, 2, 4])
    y = g.op("Reshape", y, g.op("Concat", batch, length, [heads * size], axis=0))
    y = g.op("MatMul", y, floats(rng, heads * size, width))
    y = g.node("attention/attention_output/add", "Add", y, g.weight("attention/attention_output/add/Read:0", floats(rng, width)))
    y = g.node("dense/MatMul", "MatMul", y, g.weight("dense/MatMul/Read:0", floats(rng, width, 3)))
    g.output(y, F32, ["batch", "length", 3])

    def inputs(batch, length):
        hidden = np.triu(np.ones((length, length), np.float32), 1)
        return [floats(rng, batch, length, width), np.repeat(hidden[None], batch, 0)]

    return Case(g.model(), [inputs(2, 5), inputs(1, 3)])


@case("lines_as_images")
def lines_as_images(rng):
    """Convolutions of lines as those of images one line high, and both directions of a recurrent layer taken apart and joined."""
    g = Named("tf2onnx", opset=15)
    x = g.input("x", F32, ["batch", 12, 3])
    y = g.node("conv1d/Conv1D/ExpandDims", "Unsqueeze", x, [1])
    y = g.node("conv1d/Conv1D", "Transpose", y, perm=[0, 3, 1, 2])
    for n, (layer, inputs) in enumerate((("conv1d", 3), ("conv1d_1", 8))):
        if n:
            y = g.node(f"{layer}/Conv1D/ExpandDims", "Unsqueeze", y, [2])
        w = g.weight(f"{layer}/Conv1D/ExpandDims_1:0", floats(rng, 8, inputs, 1, 3))
        y = g.node(f"{layer}/Conv1D_conv", "Conv", y, w, dilations=[1, n + 1], pads=[0, n, 0, n])
        y = g.node(f"{layer}/Conv1D/Squeeze", "Squeeze", y, [2])
        y = g.node(f"{layer}/BiasAdd", "Add", y, g.const(floats(rng, 1, 8, 1), f"const_fold_opt__{n}"))
        y = g.node(f"{layer}/Relu", "Relu", y)
    y = g.node("bidirectional/transpose", "Transpose", y, perm=[2, 0, 1])
    batch = g.op("Gather", g.op("Shape", x), [0])
    zeros = g.op("Expand", np.float32(0), g.op("Concat", [1], batch, [4], axis=0))
    zeros = g.op("Concat", zeros, zeros, axis=0)
    parts = [floats(rng, 2, 16, 8), floats(rng, 2, 16, 4), floats(rng, 2, 32)]
    y, *_ = g.op("LSTM", y, *parts, None, zeros, zeros, out=3, hidden_size=4, direction="bidirectional")
    ways = [g.op("Squeeze", g.op("Slice", y, [n], [n + 1], [1]), [1]) for n in (0, 1)]
    y = g.node("bidirectional/concat", "Concat", *ways, axis=2)
    g.output(g.op("Transpose", y, perm=[1, 0, 2], out="y"), F32, ["batch", 8, 8])
    return Case(g.model(), [[floats(rng, n, 12, 3)] for n in (2, 1)])


@case("weights_in_constants")
def weights_in_constants(rng):
    """All weights are nodes, as paddle2onnx writes them, under names that count a layer's parameters; biases of zeros stay biases."""
    g = Graph("PaddlePaddle Graph 0", opset=13)
    x = g.input("x", F32, ["DynamicDimension.0", 3, 8, 8])

    def weight(name, value):
        tensor = numpy_helper.from_array(value, "")
        return g.op("Constant", out=name, name="", value=tensor)

    def norm(x, name, channels):
        scale, shift, mean = (weight(f"{name}.{part}", floats(rng, channels)) for part in ("w_0", "b_0", "w_1"))
        variance = weight(f"{name}.w_2", rng.uniform(0.5, 1.5, channels).astype(np.float32))
        return g.op("BatchNormalization", x, scale, shift, mean, variance, name=f"BatchNormalization.{name[-1]}")

    y = g.op("Conv", x, weight("conv2d_0.w_0", floats(rng, 8, 3, 3, 3)), pads=[1, 1, 1, 1], name="Conv.0")
    y = g.op("Relu", norm(y, "batch_norm2d_0", 8), name="Relu.0")
    y = g.op("Conv", y, weight("conv2d_1.w_0", floats(rng, 8, 8, 1, 1)), name="Conv.1")
    y = g.op("Add", y, g.op("Reshape", weight("conv2d_1.b_0", np.zeros(8, np.float32)), [1, 8, 1, 1]), name="Add.0")
    y = g.op("Flatten", g.op("GlobalAveragePool", y, name="GlobalAveragePool.0"), name="Flatten.0")
    y = g.op("MatMul", y, weight("linear_0.w_0", floats(rng, 8, 4)), name="MatMul.0")
    y = g.op("Add", y, weight("linear_0.b_0", np.zeros(4, np.float32)), out="linear_1.tmp_1", name="Add.1")
    g.output(y, F32, ["DynamicDimension.0", 4])
    return Case(g.model(), [[floats(rng, n, 3, 8, 8)] for n in (1, 2)])


@case("weights_of_helpers")
def weights_of_helpers(rng):
    """Weights that paddle2onnx reshaped or joined have names that count what its helpers made: a norm and a recurrent layer."""
    g = Graph("PaddlePaddle Graph 0", opset=13)
    x = g.input("x", F32, [2, 5, 8])
    weight = lambda what, n, *shape: g.const(floats(rng, *shape), f"helper.{what}.{n}")  # noqa: E731
    y = g.op("Sub", x, g.op("ReduceMean", x, axes=[-1]))
    variance = g.op("Add", g.op("ReduceMean", g.op("Pow", y, np.float32(2)), axes=[-1]), np.float32(1e-5))
    y = g.op("Mul", g.op("Div", y, g.op("Sqrt", variance)), weight("reshape", 0, 8))
    y = g.op("Transpose", g.op("Add", y, weight("reshape", 1, 8)), perm=[1, 0, 2])
    gates = [weight("concat", 4, 1, 24, 8), weight("concat", 5, 1, 24, 6), weight("concat", 8, 1, 48)]
    y, last = g.op("LSTM", y, *gates, None, *[np.zeros((1, 2, 6), np.float32)] * 2, out=["y", "last"], hidden_size=6)
    g.output(last, F32, [1, 2, 6])
    return Case(g.model(), [[floats(rng, 2, 5, 8)]])
