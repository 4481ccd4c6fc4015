"""Operators that few models have: each with its attributes."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from fixture_lib.graph import BOOL, F16, F32, F64, I32, I64, Graph
from fixture_lib.registry import Case, case


def floats(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


@case("op_affine_grid")
def affine_grid(rng):
    g = Graph("affine_grid", opset=20)
    flat, deep = g.input("flat", F32, ["n", 2, 3]), g.input("deep", F32, ["n", 3, 4])
    for aligned in [0, 1]:
        g.show(f"flat_{aligned}", "AffineGrid", flat, [2, 3, 4, 5], align_corners=aligned, dtype=F32, dims=[2, 4, 5, 2])
        g.show(
            f"deep_{aligned}", "AffineGrid", deep, [2, 1, 2, 3, 4], align_corners=aligned, dtype=F32, dims=[2, 2, 3, 4, 3]
        )
    return Case(g.model(), [[floats(rng, 2, 2, 3), floats(rng, 2, 3, 4)]])


@case("op_center_crop_pad")
def center_crop_pad(rng):
    g = Graph("center_crop_pad", opset=18)
    x = g.input("x", F32, [5, 4, 6])
    g.show("crop", "CenterCropPad", x, [4, 3, 3])
    g.show("pad", "CenterCropPad", x, [8, 5, 9])
    g.show("both", "CenterCropPad", x, [3, 4, 9])
    g.show("axes", "CenterCropPad", x, [7, 2], axes=[-1, 0])
    return Case(g.model(), [[floats(rng, 5, 4, 6)]])


@case("op_max_unpool")
def max_unpool(rng):
    g = Graph("max_unpool", opset=9)
    x = g.input("x", F32, ["n", 2, 4, 6])
    y, where = g.op("MaxPool", x, out=2, kernel_shape=[2, 2], strides=[2, 2])
    g.show("back", "MaxUnpool", y, where, kernel_shape=[2, 2], strides=[2, 2], dtype=F32, dims=["n", 2, 4, 6])
    return Case(g.model(), [[floats(rng, 1, 2, 4, 6)]])


@case("op_max_unpool_shape")
def max_unpool_shape(rng):
    """Positions of a tensor that windows do not cover, which goes back to its shape."""
    g = Graph("max_unpool_shape", opset=11)
    x = g.input("x", F32, ["n", 2, 5, 7])
    y, where = g.op("MaxPool", x, out=2, kernel_shape=[2, 2], strides=[2, 2])
    window = dict(kernel_shape=[2, 2], strides=[2, 2])
    dims = ["n", 2, 5, 7]
    g.show("back", "MaxUnpool", y, where, g.op("Shape", x), dtype=F32, dims=dims, **window)
    # With a shape, pads say nothing.
    g.show("padded", "MaxUnpool", y, where, g.op("Shape", x), pads=[0, 0, 1, 1], dtype=F32, dims=dims, **window)
    return Case(g.model(), [[floats(rng, n, 2, 5, 7)] for n in (2, 1)])


@case("op_mean_variance")
def mean_variance(rng):
    g = Graph("mean_variance", opset=13)
    x = g.input("x", F32, ["n", 3, 4, 2])
    g.show("usual", "MeanVarianceNormalization", x, dtype=F32, dims=["n", 3, 4, 2])
    g.show("axes", "MeanVarianceNormalization", x, axes=[1, 2], dtype=F32, dims=["n", 3, 4, 2])
    # The checker cannot expand the function without its attribute.
    return Case(g.model(), [[floats(rng, n, 3, 4, 2)] for n in (2, 3)], checked=False)


@case("op_rotary")
def rotary(rng):
    """Halves and pairs, whole heads and parts, with and without positions."""
    g = Graph("rotary", opset=23)
    x, flat = g.input("x", F32, [2, 3, 4, 8]), g.input("flat", F32, [2, 4, 24])
    angles = rng.standard_normal((10, 4))
    cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    positions = g.input("positions", I64, [2, 4])
    for label, pairs in [("halves", 0), ("pairs", 1)]:
        g.show(label, "RotaryEmbedding", x, cos, sin, positions, interleaved=pairs)
        g.show(f"{label}_flat", "RotaryEmbedding", flat, cos, sin, positions, interleaved=pairs, num_heads=3)
        g.show(
            f"{label}_part",
            "RotaryEmbedding",
            *[x, cos[:, :2], sin[:, :2], positions],
            interleaved=pairs,
            rotary_embedding_dim=4,
        )
    per_batch = [np.stack([part[:4], part[4:8]]) for part in (cos, sin)]
    g.show("no_positions", "RotaryEmbedding", x, *per_batch)
    places = rng.integers(0, 10, (2, 4))
    return Case(g.model(), [[floats(rng, 2, 3, 4, 8), floats(rng, 2, 4, 24), places]], numpy_answers=True)


@case("op_reverse_sequence")
def reverse_sequence(rng):
    g = Graph("reverse_sequence", opset=10)
    x, lengths = g.input("x", F32, [4, 3, 2]), g.input("lengths", I64, [3])
    by_row = g.input("by_row", I64, [4])
    g.show("time_first", "ReverseSequence", x, lengths, time_axis=0, batch_axis=1)
    g.show("batch_first", "ReverseSequence", x, by_row, time_axis=1, batch_axis=0)
    return Case(g.model(), [[floats(rng, 4, 3, 2), np.array([4, 1, 3]), np.array([1, 2, 3, 2])]])


@case("op_col2im")
def col2im(rng):
    """Also with a number of channels that only the run tells."""
    g = Graph("col2im", opset=18)
    x, line = g.input("x", F32, ["n", 8, 12]), g.input("line", F32, ["n", 6, 4])
    free = g.input("free", F32, ["n", "rows", 12])
    image = [4, 5]
    g.show("plain", "Col2Im", x, image, [2, 2], dtype=F32, dims=["n", 2, 4, 5])
    g.show("channels_unknown", "Col2Im", free, image, [2, 2], dtype=F32, dims=["n", None, 4, 5])
    g.show("strides", "Col2Im", x, [6, 9], [2, 2], strides=[2, 2], dtype=F32, dims=["n", 2, 6, 9])
    g.show("pads", "Col2Im", x, [3, 4], [2, 2], pads=[1, 0, 0, 1], dtype=F32, dims=["n", 2, 3, 4])
    g.show("dilations", "Col2Im", x, [5, 6], [2, 2], dilations=[2, 2], dtype=F32, dims=["n", 2, 5, 6])
    g.show("one_axis", "Col2Im", line, [6], [3], dtype=F32, dims=["n", 2, 6])
    data = lambda n, rows: [floats(rng, n, 8, 12), floats(rng, n, 6, 4), floats(rng, n, rows, 12)]
    return Case(g.model(), [data(2, 4), data(1, 12)])


@case("op_losses")
def losses(rng):
    g = Graph("losses", opset=13)
    x, flat = g.input("x", F32, [3, 5, 2]), g.input("flat", F32, [3, 5])
    labels, one = g.input("labels", I64, [3, 2]), g.input("one", I64, [3])
    weights = np.array([0.5, 1, 2, 0.1, 3], np.float32)
    logs = g.op("LogSoftmax", x, axis=1)
    for reduction in ["none", "sum", "mean"]:
        g.show(f"nll_{reduction}", "NegativeLogLikelihoodLoss", logs, labels, reduction=reduction)
        g.show(f"nll_weights_{reduction}", "NegativeLogLikelihoodLoss", logs, labels, weights, reduction=reduction)
        g.show(f"entropy_{reduction}", "SoftmaxCrossEntropyLoss", x, labels, reduction=reduction)
        g.show(
            f"entropy_weights_{reduction}",
            "SoftmaxCrossEntropyLoss",
            *[x, labels, weights],
            reduction=reduction,
            ignore_index=2,
        )
    g.show("nll_ignored", "NegativeLogLikelihoodLoss", logs, labels, ignore_index=1)
    loss, probabilities = g.op("SoftmaxCrossEntropyLoss", flat, one, out=["loss", "log_probabilities"])
    g.output(loss)
    g.output(probabilities)
    data = [floats(rng, 3, 5, 2), floats(rng, 3, 5), np.array([[0, 2], [1, 4], [3, 1]]), np.array([4, 0, 2])]
    return Case(g.model(), [data])


@case("op_swish")
def swish(rng):
    g = Graph("swish", opset=24)
    x, h = g.input("x", F32, [3, 4]), g.input("h", F16, [5])
    g.show("plain", "Swish", x)
    g.show("alpha", "Swish", x, alpha=1.7)
    g.show("half", "Swish", h, alpha=0.5)
    return Case(g.model(), [[floats(rng, 3, 4), floats(rng, 5).astype(np.float16)]], numpy_answers=True)


@case("op_microsoft_gelu")
def microsoft_gelu(rng):
    """What ONNX Runtime's optimizer writes in its own domain."""
    g = Graph("microsoft_gelu", opset=17)
    x = g.input("x", F32, ["n", 4])
    shape = dict(domain="com.microsoft", dtype=F32, dims=["n", 4])
    g.show("gelu", "Gelu", x, **shape)
    g.show("fast", "FastGelu", x, **shape)
    g.show("fast_bias", "FastGelu", x, floats(rng, 4), **shape)
    g.show("quick", "QuickGelu", x, **shape)
    g.show("quick_alpha", "QuickGelu", x, alpha=0.7, **shape)
    return Case(g.model(), [[floats(rng, 3, 4)]])


@case("op_microsoft_fused")
def microsoft_fused(rng):
    """What ONNX Runtime's optimizer merges: products that transpose and scale, convolutions that activate, sums that
    are normalized."""
    g = Graph("microsoft_fused", opset=17)
    own = dict(domain="com.microsoft", dtype=F32)
    x, skip = g.input("x", F32, ["n", 3, 4]), g.input("skip", F32, ["n", 3, 4])
    g.show("bias_gelu", "BiasGelu", x, floats(rng, 4), dims=["n", 3, 4], **own)
    g.show("matmul", "FusedMatMul", x, floats(rng, 5, 4), alpha=0.5, transB=1, dims=["n", 3, 5], **own)
    g.show("matmul_both", "FusedMatMul", x, floats(rng, 2, 3), transA=1, transB=1, dims=["n", 4, 2], **own)
    g.show("matmul_plain", "FusedMatMul", x, floats(rng, 4), alpha=-2.0, dims=["n", 3], **own)
    # Rows, or columns when transposed, that come before the batch.
    rows_first = dict(transBatchA=1, alpha=0.25, dims=[3, "n", 5], **own)
    g.show("matmul_rows_first", "FusedMatMul", x, floats(rng, 3, 4, 5), **rows_first)
    first, second = g.input("first", F32, [4, "n", 3]), g.input("second", F32, [5, "n", 4])
    last = g.input("last", F32, ["n", 2, 5])
    both = dict(transA=1, transB=1, transBatchA=1, transBatchB=1, dims=["n", 3, 5], **own)
    g.show("matmul_rows_first_both", "FusedMatMul", first, second, **both)
    g.show("matmul_right_rows_first", "FusedMatMul", last, second, transBatchB=1, dims=["n", 2, 4], **own)
    gamma, beta, bias = (floats(rng, 4) for _ in range(3))
    g.show("skip_norm", "SkipLayerNormalization", x, skip, gamma, beta, epsilon=1e-5, dims=["n", 3, 4], **own)
    g.show("skip_norm_no_beta", "SkipLayerNormalization", x, skip, gamma, None, bias, dims=["n", 3, 4], **own)
    g.show("skip_rms", "SkipSimplifiedLayerNormalization", x, skip, gamma, bias, dims=["n", 3, 4], **own)
    both = {"SkipLayerNormalization": [gamma, beta, bias], "SkipSimplifiedLayerNormalization": [gamma]}
    for name, inputs in both.items():
        outputs = g.op(name, x, skip, *inputs, out=4, epsilon=1e-3, domain="com.microsoft")
        for output in (outputs[0], outputs[3]):
            g.output(output, F32, ["n", 3, 4])
    image, added = g.input("image", F32, ["n", 4, 6, 6]), g.input("added", F32, ["n", 4, 6, 6])
    conv = dict(kernel_shape=[3, 3], pads=[1, 1, 1, 1], dims=["n", 4, 6, 6], **own)
    kernel, offset = floats(rng, 4, 4, 3, 3), floats(rng, 4)
    activations = [("Relu", []), ("Tanh", []), ("Sigmoid", []), ("LeakyRelu", [0.2]), ("HardSigmoid", [0.3, 0.4])]
    for name, params in [*activations, ("Clip", [-0.5, 1.5])]:
        options = dict(activation_params=params) if params else {}
        g.show(f"conv_{name}", "FusedConv", image, kernel, offset, activation=name, **options, **conv)
    g.show("conv_added", "FusedConv", image, kernel, offset, added, activation="Relu", **conv)
    data = [floats(rng, *shape) for shape in ((2, 3, 4), (2, 3, 4), (4, 2, 3), (5, 2, 4), (2, 2, 5), (2, 4, 6, 6), (2, 4, 6, 6))]
    return Case(g.model(), [data])


@case("op_tensor_scatter")
def tensor_scatter(rng):
    g = Graph("tensor_scatter", opset=24)
    cache, update = g.input("cache", F32, [2, 3, 6, 4]), g.input("update", F32, [2, 3, 2, 4])
    at = g.input("at", I64, [2])
    g.show("linear", "TensorScatter", cache, update, at)
    g.show("start", "TensorScatter", cache, update)
    g.show("circular", "TensorScatter", cache, update, np.array([5, 3]), mode="circular")
    short, shorter = g.input("short", F32, [2, 6, 4]), g.input("shorter", F32, [2, 2, 4])
    g.show("axis", "TensorScatter", short, shorter, at, axis=1)
    # All of a batch at the same places.
    single, place = g.input("single", F32, [1, 3, 6, 4]), g.input("place", I64, [1])
    part = g.input("part", F32, [1, 3, 2, 4])
    g.show("one", "TensorScatter", single, part, place)
    g.show("one_circular", "TensorScatter", single, part, np.array([5]), mode="circular")
    data = [floats(rng, 2, 3, 6, 4), floats(rng, 2, 3, 2, 4), np.array([1, 4]), floats(rng, 2, 6, 4), floats(rng, 2, 2, 4)]
    data += [floats(rng, 1, 3, 6, 4), np.array([3]), floats(rng, 1, 3, 2, 4)]
    return Case(g.model(), [data], numpy_answers=True)


@case("op_swi_glu")
def swi_glu(rng):
    g = Graph("swi_glu", opset=28)
    a, b = g.input("a", F32, [3, 4]), g.input("b", F32, [3, 4])
    g.show("y", "SwiGLU", a, b)
    return Case(g.model(), [[floats(rng, 3, 4), floats(rng, 3, 4)]], numpy_answers=True)


@case("op_simplified_layer_norm")
def simplified_layer_norm(rng):
    """Not ONNX's own, though in its domain: what ONNX Runtime's optimizer writes."""
    g = Graph("simplified_layer_norm", opset=17)
    x = g.input("x", F32, [2, 3, 4])
    g.show("y", "SimplifiedLayerNormalization", x, floats(rng, 4), axis=-1, epsilon=1e-3, dtype=F32, dims=[2, 3, 4])
    return Case(g.model(), [[floats(rng, 2, 3, 4)]], checked=False)


@case("op_layer_norm_early")
def layer_norm_early(rng):
    """In a model of an operator set that does not have it yet, as ONNX Runtime's optimizer writes it."""
    g = Graph("layer_norm_early", opset=14)
    x = g.input("x", F32, ["n", 3, 4])
    shape = dict(dtype=F32, dims=["n", 3, 4])
    g.show("y", "LayerNormalization", x, floats(rng, 4), floats(rng, 4), axis=-1, epsilon=1e-3, **shape)
    g.show("no_bias", "LayerNormalization", x, floats(rng, 3, 4), axis=1, **shape)
    return Case(g.model(), [[floats(rng, 2, 3, 4)]], checked=False)


@case("domain_undeclared")
def domain_undeclared(rng):
    """ONNX Runtime's own operators in a model that does not import their domain."""
    g = Graph("domain_undeclared", opset=17)
    x = g.input("x", F32, ["n", 4])
    g.show("y", "QuickGelu", x, domain="com.microsoft", dtype=F32, dims=["n", 4])
    model = g.model()
    del model.opset_import[1:]
    return Case(model, [[floats(rng, 2, 4)]], checked=False)


@case("op_random")
def random(rng):
    """Random numbers have no golden values: what they have in common does. Each bound is over eight deviations wide."""
    g = Graph("random", opset=15)
    x = g.input("x", F64, ["n", 5000])
    count = 20_000

    def within(label, value, low, high):
        above = g.op("Greater", value, np.asarray(low, np.float64))
        g.show(label, "And", above, g.op("Less", value, np.asarray(high, np.float64)), dtype=BOOL, dims=[])

    def check(label, y, mean, deviation, low=None, high=None):
        g.show(f"{label}_shape", "Shape", y, dtype=I64, dims=[2])
        y = g.op("Cast", y, to=F64)
        margin = 8 * deviation / np.sqrt(count)
        average = g.op("ReduceMean", y, keepdims=0)
        within(f"{label}_mean", average, mean - margin, mean + margin)
        centred = g.op("Sub", y, average)
        variance = g.op("ReduceMean", g.op("Mul", centred, centred), keepdims=0)
        within(f"{label}_variance", variance, 0.85 * deviation**2, 1.15 * deviation**2)
        if low is not None:
            within(f"{label}_least", g.op("ReduceMin", y, keepdims=0), low - 1e-6, low + 0.01 * (high - low))
            within(f"{label}_most", g.op("ReduceMax", y, keepdims=0), high - 0.01 * (high - low), high + 1e-6)
        # Neighbours have nothing to do with each other.
        first = g.op("Slice", centred, [0], [count // 4 - 1], [1])
        second = g.op("Slice", centred, [1], [count // 4], [1])
        together = g.op("ReduceMean", g.op("Mul", first, second), keepdims=0)
        within(f"{label}_apart", together, -8 * deviation**2 / np.sqrt(count), 8 * deviation**2 / np.sqrt(count))

    shape = [4, count // 4]
    third = 1 / np.sqrt(12)
    check("uniform", g.op("RandomUniform", shape=shape), 0.5, third, 0, 1)
    check("uniform_bounds", g.op("RandomUniform", shape=shape, low=-3.0, high=5.0, seed=7.0), 1, 8 * third, -3, 5)
    check("normal", g.op("RandomNormal", shape=shape), 0, 1)
    check("normal_scaled", g.op("RandomNormal", shape=shape, mean=4.0, scale=0.5, dtype=F64), 4, 0.5)
    check("uniform_like", g.op("RandomUniformLike", x, low=2.0, high=3.0), 2.5, third, 2, 3)
    check("normal_like", g.op("RandomNormalLike", x, mean=-1.0, scale=3.0, dtype=F32), -1, 3)
    check("bernoulli", g.op("Bernoulli", x), 0.25, np.sqrt(0.25 * 0.75), 0, 1)
    check("bernoulli_float", g.op("Bernoulli", x, dtype=F32), 0.25, np.sqrt(0.25 * 0.75), 0, 1)
    # ONNX Runtime tosses coins the other way around.
    return Case(g.model(), [[np.full((4, 5000), 0.25)]], numpy_answers=True)


@case("op_multinomial")
def multinomial(rng):
    """Draws have no golden values: how often each class comes does, and which never."""
    g = Graph("multinomial", opset=17)
    chances = np.array([[0.5, 0.25, 0.25, 0], [0.1, 0.2, 0.3, 0.4]])
    x = g.input("x", F32, ["n", 4])
    count = 20_000
    drawn = g.op("Multinomial", x, sample_size=count)
    g.show("shape", "Shape", drawn, dtype=I64, dims=[2])
    classes = np.arange(4, dtype=np.int32).reshape(4, 1, 1)
    shares = g.op("ReduceMean", g.op("Cast", g.op("Equal", drawn, classes), to=F64), axes=[2], keepdims=0)
    shares = g.op("Transpose", shares, perm=[1, 0])
    margin = 8 * np.sqrt(chances * (1 - chances) / count)
    off = g.op("Abs", g.op("Sub", shares, chances))
    g.show("likely", "LessOrEqual", off, margin, dtype=BOOL, dims=["n", 4])
    # The draws of a row have nothing to do with each other, nor have those of two rows.
    half = count // 2
    first, second = (g.op("Slice", drawn, [start], [start + half], [1]) for start in (0, half))
    same = g.op("ReduceMean", g.op("Cast", g.op("Equal", first, second), to=F64), axes=[1], keepdims=0)
    expected = (chances**2).sum(1)
    off = g.op("Abs", g.op("Sub", same, expected))
    g.show("apart", "LessOrEqual", off, 8 * np.sqrt(expected * (1 - expected) / half), dtype=BOOL, dims=["n"])
    g.show("one", "Shape", g.op("Multinomial", x, dtype=I64), dtype=I64, dims=[2])
    with np.errstate(divide="ignore"):
        return Case(g.model(), [[np.log(chances).astype(np.float32) + 3]])


@case("op_det")
def det(rng):
    g = Graph("det", opset=17)
    x, single = g.input("x", F32, ["n", 2, 5, 5]), g.input("single", F32, [3, 3])
    g.show("batch", "Det", x, dtype=F32, dims=["n", 2])
    g.show("scalar", "Det", single, dtype=F32, dims=[])
    # Rows that must change places, a matrix that is singular, and one of one number.
    turned = np.zeros((2, 4, 4), np.float32)
    turned[0, [0, 1, 2, 3], [1, 2, 3, 0]] = [2, 3, 4, 5]
    turned[1] = [[1, 2, 3, 4], [2, 4, 6, 8], [1, 0, 1, 0], [0, 1, 0, 1]]
    g.show("places", "Det", g.input("turned", F32, [2, 4, 4]), dtype=F32, dims=[2])
    g.show("number", "Det", g.op("Slice", single, [1, 1], [2, 2], [0, 1]), dtype=F32, dims=[])
    return Case(g.model(), [[floats(rng, n, 2, 5, 5), floats(rng, 3, 3), turned] for n in (1, 3)])


@case("op_bit_cast")
def bit_cast(rng):
    g = Graph("bit_cast", opset=26)
    for bits, unsigned in ((8, TensorProto.UINT8), (16, TensorProto.UINT16), (32, TensorProto.UINT32), (64, TensorProto.UINT64)):
        signed = {8: TensorProto.INT8, 16: TensorProto.INT16, 32: TensorProto.INT32, 64: I64}[bits]
        x, y = g.input(f"x{bits}", signed, [4]), g.input(f"y{bits}", unsigned, [4])
        g.show(f"unsigned{bits}", "BitCast", x, to=unsigned, dtype=unsigned, dims=[4])
        g.show(f"signed{bits}", "BitCast", y, to=signed, dtype=signed, dims=[4])
    data = []
    for bits in (8, 16, 32, 64):
        least, most = np.iinfo(f"int{bits}").min, np.iinfo(f"uint{bits}").max
        data += [np.array([least, -1, 0, 77], f"int{bits}"), np.array([most, most // 2 + 1, 0, 77], f"uint{bits}")]
    return Case(g.model(), [data], numpy_answers=True)


@case("op_linear_attention")
def linear_attention(rng):
    """Each rule, with heads of queries that share a state; a state goes in and comes out."""
    g = Graph("linear_attention", opset=27)
    q, k, v = g.input("q", F32, ["n", "t", 24]), g.input("k", F32, ["n", "t", 12]), g.input("v", F32, ["n", "t", 10])
    past = g.input("past", F32, ["n", 2, 6, 5])
    by_heads, by_keys = g.input("by_heads", F32, ["n", "t", 2]), g.input("by_keys", F32, ["n", "t", 12])
    beta, one = g.input("beta", F32, ["n", "t", 2]), g.input("one", F32, ["n", "t", 1])

    def show(label, rule, past, decay, beta, **options):
        y, state = g.op(
            "LinearAttention", q, k, v, past, decay, beta, out=2, q_num_heads=4, kv_num_heads=2, update_rule=rule, **options
        )
        g.show(label, "Identity", y, dtype=F32, dims=["n", "t", 20])
        g.show(f"{label}_state", "Identity", state, dtype=F32, dims=["n", 2, 6, 5])

    show("linear", "linear", None, None, None)
    show("gated", "gated", past, by_heads, None, scale=0.3)
    show("gated_keys", "gated", None, by_keys, None)
    show("delta", "delta", past, None, beta, chunk_size=2)
    show("gated_delta", "gated_delta", past, by_heads, beta)
    show("gated_delta_keys", "gated_delta", None, by_keys, one)

    def inputs(n, t):
        k = floats(rng, n, t, 2, 6)
        k /= np.linalg.norm(k, axis=-1, keepdims=True)
        decays = [-rng.uniform(0, 1, (n, t, size)).astype(np.float32) for size in (2, 12)]
        betas = [rng.uniform(0, 1, (n, t, size)).astype(np.float32) for size in (2, 1)]
        q, v, past = floats(rng, n, t, 24), floats(rng, n, t, 10), floats(rng, n, 2, 6, 5)
        return [q, k.reshape(n, t, 12), v, past, *decays, *betas]

    return Case(g.model(), [inputs(2, 5), inputs(1, 1)], numpy_answers=True)


@case("op_causal_conv_with_state")
def causal_conv_with_state(rng):
    g = Graph("causal_conv_with_state", opset=27)
    x, past = g.input("x", F32, ["n", 3, "t"]), g.input("past", F32, ["n", 3, 3])
    weight, bias = floats(rng, 3, 1, 4), floats(rng, 3)
    for label, inputs, options in [
        ("plain", (weight,), {}),
        ("state", (weight, bias, past), dict(activation="silu")),
        ("swish", (weight, None, past), dict(activation="swish")),
    ]:
        y, state = g.op("CausalConvWithState", x, *inputs, out=2, **options)
        g.show(label, "Identity", y, dtype=F32, dims=["n", 3, "t"])
        g.show(f"{label}_state", "Identity", state, dtype=F32, dims=["n", 3, 3])
    data = [[floats(rng, n, 3, t), floats(rng, n, 3, 3)] for n, t in ((2, 6), (1, 1))]
    return Case(g.model(), data, numpy_answers=True)


@case("op_told_by_the_run")
def told_by_the_run(rng):
    """What other models know when they are exported: the number around a tensor, the size of an image of blocks."""
    g = Graph("told_by_the_run", opset=18)
    x, value = g.input("x", F32, ["n", 7]), g.input("value", F32, [])
    g.show("padded", "Pad", x, [1, 0, 2, 3], value)
    g.show("cut_and_padded", "Pad", x, [-1, 2, 0, -1], value)
    g.show("edges", "Pad", x, [0, 1, 0, 1], value, mode="edge")
    g.show("integers", "Pad", g.op("Cast", x, to=I32), [0, 1, 1, 0], g.op("Cast", value, to=I32))
    g.show("bools", "Pad", g.op("Greater", x, np.float32(0)), [0, 1, 1, 0], g.op("Greater", value, np.float32(2)))
    # Blocks of 2 x 3 that overlap, of an image as large as another.
    image, blocks = g.input("image", F32, [1, 1, "h", "w"]), g.input("blocks", F32, ["n", 12, "blocks"])
    size = g.op("Slice", g.op("Shape", image), [2], [4])
    g.show("summed", "Col2Im", blocks, size, [2, 3], strides=[2, 2], pads=[1, 0, 0, 1], dilations=[1, 2])
    g.show("summed_wide", "Col2Im", blocks, size, [2, 3], strides=[2, 2], pads=[1, 0, 1, 2], dilations=[1, 2])

    def inputs(n, h, w):
        count = ((h + 1 - 2) // 2 + 1) * ((w + 1 - 5) // 2 + 1)
        return [
            *[floats(rng, n, 7), np.array(rng.uniform(1, 4), np.float32)],
            *[floats(rng, 1, 1, h, w), floats(rng, n, 12, count)],
        ]

    return Case(g.model(), [inputs(5, 7, 8), inputs(2, 5, 6)])
