"""Nodes to draw: a function for each family, which appends one or a few to a drawing."""

from __future__ import annotations

import numpy as np

from fuzz_lib.draw import Draw

FLOATS = [np.float32, np.float32, np.float32, np.float64, np.float16]
INTEGERS = [np.int64, np.int64, np.int32, np.int8, np.uint8]


def unary(d: Draw):
    ops = "Abs Neg Exp Sqrt Sigmoid Tanh Relu Erf Floor Ceil Round Sign Reciprocal Softplus Softsign Sin Cos Identity"
    d.op(d.random.choice(ops.split()), d.value())


def activation(d: Draw):
    x, number = d.value(), lambda: round(d.random.uniform(0.1, 2), 2)
    kinds = {
        "LeakyRelu": dict(alpha=number()),
        "Elu": dict(alpha=number()),
        "Celu": dict(alpha=number()),
        "Selu": {},
        "HardSigmoid": dict(alpha=number(), beta=number()),
        "HardSwish": {},
        "Mish": {},
        "Gelu": dict(approximate=d.random.choice(["none", "tanh"])),
        "ThresholdedRelu": dict(alpha=number()),
        "Shrink": dict(lambd=number(), bias=number()),
    }
    name = d.random.choice(list(kinds))
    d.op(name, x, **kinds[name])


def clip(d: Draw):
    dtype = d.random.choice([np.float32, np.float64, np.int64, np.int32])
    x = d.value(dtype)
    most = np.finfo(dtype).max if np.dtype(dtype).kind == "f" else np.iinfo(dtype).max
    bound = lambda *more: None if d.random.random() < 0.2 else dtype(d.random.choice([-3, 0, 1, 6, *more]))
    low, high = bound(-most), bound(most)
    if low is None or high is None:
        # What is absent is finite to ONNX Runtime, and infinite to the specification's own evaluator.
        low, high = low if low is not None else dtype(-most), high if high is not None else dtype(most)
    d.op("Clip", x, low, high)


def binary(d: Draw):
    dtype = d.random.choice([*FLOATS, *INTEGERS])
    x = d.value(dtype)
    names = ["Add", "Sub", "Mul", "Max", "Min"]
    name = d.random.choice(names + (["Div", "Pow"] if np.dtype(dtype).kind == "f" else []))
    pair = [x, d.partner(x)]
    d.random.shuffle(pair)
    d.op(name, *pair)


def integer(d: Draw):
    x = d.value(np.int64)
    divisor = np.where(d.array(d.values[x].shape[-1:], np.int64) >= 0, 3, -4).astype(np.int64)
    kind = d.random.randrange(4)
    if kind == 0:
        d.op("Mod", x, divisor)
    elif kind == 1:
        d.op("Mod", x, divisor, fmod=1)
    elif kind == 2:
        d.op("Div", x, divisor)
    else:
        unsigned = d.value(np.uint8)
        d.op("BitShift", unsigned, np.uint8(d.random.randrange(9)), direction=d.random.choice(["LEFT", "RIGHT"]))


def compare(d: Draw):
    x = d.value(d.random.choice([np.float32, np.int64]))
    name = d.random.choice(["Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"])
    condition = d.op(name, x, d.partner(x))
    if d.random.random() < 0.6:
        d.op("Where", condition, x, d.partner(x))


def cast(d: Draw):
    x = d.value(d.random.choice([np.float32, np.int64, np.int32, bool]))
    if d.values[x].dtype.kind == "f":
        # Beyond an integer's range, casts are whatever the machine does.
        x = d.op("Clip", d.op("Where", d.op("IsNaN", x), np.float32(0), x), np.float32(-100), np.float32(100))
    d.op("Cast", x, to=int(d.random.choice([1, 6, 7, 9, 10, 11])))


def reduce(d: Draw):
    x = d.value(d.random.choice([np.float32, np.float32, np.int64]))
    rank = d.values[x].ndim
    ops = ["ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd"]
    if d.values[x].dtype.kind == "f":
        ops += ["ReduceMean", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp"]
    axes = d.random.sample(range(-rank, 0), d.random.randint(1, rank))
    keep = d.random.randint(0, 1)
    name = d.random.choice(ops)
    if d.graph.opset >= 18 or (name == "ReduceSum" and d.graph.opset >= 13):
        d.op(name, x, np.array(axes), keepdims=keep)
    else:
        d.op(name, x, axes=axes, keepdims=keep)


def extreme(d: Draw):
    x = d.value(d.random.choice([np.float32, np.int64]))
    axis = d.random.randrange(-d.values[x].ndim, d.values[x].ndim)
    if d.random.random() < 0.6:
        options = dict(axis=axis, keepdims=d.random.randint(0, 1), select_last_index=d.random.randint(0, 1))
        d.op(d.random.choice(["ArgMax", "ArgMin"]), x, **options)
    else:
        count = d.random.randint(1, d.values[x].shape[axis])
        d.op("TopK", x, np.array([count]), out=2, axis=axis, largest=d.random.randint(0, 1))


def cumulative(d: Draw):
    x = d.value(d.random.choice([np.float32, np.int64]))
    axis = np.int64(d.random.randrange(-d.values[x].ndim, d.values[x].ndim))
    d.op("CumSum", x, axis, exclusive=d.random.randint(0, 1), reverse=d.random.randint(0, 1))


def reshape(d: Draw):
    x = d.value()
    shape, kind = list(d.values[x].shape), d.random.randrange(6)
    if kind == 0:
        d.random.shuffle(shape)
        if shape:
            shape[d.random.randrange(len(shape))] = -1
        d.op("Reshape", x, np.array(shape, np.int64))
    elif kind == 1:
        d.op("Flatten", x, axis=d.random.randint(-len(shape), len(shape)))
    elif kind == 2:
        axes = [axis for axis, size in enumerate(shape) if size == 1]
        d.op("Squeeze", x, np.array(d.random.sample(axes, d.random.randint(0, len(axes))), np.int64))
    elif kind == 3:
        d.op("Unsqueeze", x, np.array(d.random.sample(range(len(shape) + 1), 1)))
    elif kind == 4:
        d.op("Transpose", x, perm=d.random.sample(range(len(shape)), len(shape)))
    else:
        wanted = [size if d.random.random() < 0.6 or size != 1 else 3 for size in shape]
        d.op("Expand", x, np.array(d.sizes(d.random.randint(0, 1)) + wanted, np.int64))


def pieces(d: Draw):
    x = d.value()
    shape, kind = d.values[x].shape, d.random.randrange(5)
    axis = d.random.randrange(len(shape))
    size = shape[axis]
    if kind == 0:
        axes = d.random.sample(range(len(shape)), d.random.randint(1, len(shape)))
        bounds = lambda: np.array([d.random.choice([-(2**31), *range(-6, 7), 2**63 - 1]) for _ in axes])
        steps = np.array([d.random.choice([1, 1, 2, -1, -2]) for _ in axes])
        d.op("Slice", x, bounds(), bounds(), np.array(axes), steps)
    elif kind == 1:
        d.op("Concat", x, d.op("Neg", x), x, axis=axis - len(shape))
    elif kind == 2:
        cut = d.random.randint(0, size)
        d.op("Split", x, np.array([cut, size - cut]), out=2, axis=axis)
    elif kind == 3:
        d.op("Tile", x, np.array([d.random.randint(1, 2) for _ in shape]))
    else:
        d.op("Trilu", x, np.int64(d.random.randint(-2, 2)), upper=d.random.randint(0, 1))


def pad(d: Draw):
    x = d.value()
    shape = d.values[x].shape
    mode = d.random.choice(["constant", "constant", "reflect", "edge", "wrap"])
    least = -1 if mode == "constant" else 0
    amounts = np.array([d.random.randint(least, max(min(size - 1, 2), 0)) for size in [*shape, *shape]])
    given = d.input(amounts, fixed=[0]) if d.random.random() < 0.3 else amounts
    d.op("Pad", x, given, np.float32(1.5) if mode == "constant" else None, mode=mode)


def index(d: Draw):
    x = d.value()
    shape, kind = d.values[x].shape, d.random.randrange(5)
    axis = d.random.randrange(len(shape))
    size = shape[axis]
    indices = lambda dims: d.numbers.integers(-size, size, dims)
    given = lambda array: d.input(array, fixed=[array.ndim - 1]) if d.random.random() < 0.5 else array
    if kind == 0:
        d.op("Gather", x, given(indices(d.sizes(d.random.randint(0, 2)))), axis=axis)
    elif kind == 1:
        d.op("GatherElements", x, given(indices(shape)), axis=axis)
    elif kind == 2:
        depth = d.random.randint(1, len(shape))
        points = np.stack([d.numbers.integers(-n, n, [2, 3]) for n in shape[:depth]], axis=-1)
        d.op("GatherND", x, given(points))
    elif kind == 3:
        # Without repeated places: which of them wins is nobody's promise.
        order = np.argsort(d.numbers.random(shape), axis=axis)
        d.op("ScatterElements", x, given(order), d.array(shape), axis=axis)
    else:
        depth = d.random.randint(1, len(shape))
        points = np.unique(np.stack([d.numbers.integers(0, n, [3]) for n in shape[:depth]], axis=-1), axis=0)
        updates = d.array([len(points), *shape[depth:]])
        d.op("ScatterND", x, given(points), updates, reduction=d.random.choice(["none", "add", "mul", "max", "min"]))


def product(d: Draw):
    a = d.value()
    shape = d.values[a].shape
    inner, outer = shape[-1], d.random.randint(1, 4)
    lead = [1 if d.random.random() < 0.3 else size for size in shape[:-2]] if d.random.random() < 0.5 else []
    b = d.array([*lead, inner, outer])
    given = d.input(b) if d.random.random() < 0.3 else b
    if len(shape) == 2 and d.random.random() < 0.4:
        turned = d.random.randint(0, 1)
        weight = b.reshape(inner, outer).T.copy() if turned else b.reshape(inner, outer)
        bias = d.random.choice([None, d.array([outer]), d.array([1, 1])])
        d.op("Gemm", a, weight, bias, transB=turned, alpha=d.random.choice([1.0, 0.5]), beta=d.random.choice([1.0, 2.0]))
    else:
        d.op("MatMul", a, given)


def normalize(d: Draw):
    kind = d.random.randrange(5)
    x = d.value(rank=None if kind < 3 else d.random.choice([3, 4]))
    shape = d.values[x].shape
    channels = shape[1] if len(shape) > 1 else 1
    axis = d.random.randrange(-len(shape), len(shape))
    if kind == 0:
        d.op(d.random.choice(["Softmax", "LogSoftmax", "Hardmax"]), x, axis=axis)
    elif kind == 1:
        rest = shape[axis:]
        d.op("LayerNormalization", x, d.array(rest), d.random.choice([None, d.array(rest)]), axis=axis)
    elif kind == 2:
        d.op("LpNormalization", x, axis=axis, p=d.random.randint(1, 2))
    elif kind == 3:
        d.op("InstanceNormalization", x, d.array([channels]), d.array([channels]))
    else:
        positive = np.abs(d.array([channels])) + np.float32(0.5)
        d.op("BatchNormalization", x, d.array([channels]), d.array([channels]), d.array([channels]), positive)


def image(d: Draw, spatial: int) -> str:
    """Of ordinary numbers: what infinity times a weight of 0 gives depends on the order of the sums."""
    return d.input(d.array([d.random.randint(1, 2), d.random.choice([1, 2, 4]), *d.sizes(spatial, 9)], special=False))


def window(d: Draw, sizes, dilated=True) -> dict:
    """Attributes of a window that fits."""
    n = len(sizes)
    kernel = [d.random.randint(1, min(3, size)) for size in sizes]
    dilation = [1 if not dilated or (k - 1) * 2 + 1 > size else d.random.randint(1, 2) for k, size in zip(kernel, sizes)]
    attributes = dict(kernel_shape=kernel, strides=[d.random.randint(1, 3) for _ in range(n)])
    if dilated:
        attributes["dilations"] = dilation
    if d.random.random() < 0.3:
        attributes["auto_pad"] = d.random.choice(["SAME_UPPER", "SAME_LOWER", "VALID"])
    else:
        attributes["pads"] = [d.random.randint(0, k - 1) for k in kernel + kernel]
    return attributes


def convolution(d: Draw):
    spatial = d.random.randint(1, 3)
    x = image(d, spatial)
    batch, channels, *sizes = d.values[x].shape
    attributes = window(d, sizes)
    groups = d.random.choice([1, channels])
    outputs = groups * d.random.randint(1, 3)
    weight = d.array([outputs, channels // groups, *attributes["kernel_shape"]])
    bias = d.random.choice([None, d.array([outputs])])
    y = d.op("Conv", x, weight, bias, group=groups, **attributes)
    if d.random.random() < 0.5:
        d.op(d.random.choice(["Relu", "Sigmoid", "HardSwish"]), y)


def transposed(d: Draw):
    spatial = d.random.randint(1, 3)
    x = image(d, spatial)
    _, channels, *sizes = d.values[x].shape
    kernel, strides = [d.random.randint(1, 3) for _ in sizes], [d.random.randint(1, 3) for _ in sizes]
    groups = d.random.choice([1, channels])
    attributes = dict(strides=strides, group=groups)
    if d.random.random() < 0.3:
        attributes["auto_pad"] = d.random.choice(["SAME_UPPER", "SAME_LOWER", "VALID"])
    else:
        attributes["pads"] = [d.random.randint(0, (k - 1) // 2) for k in kernel + kernel]
        attributes["output_padding"] = [d.random.randint(0, s - 1) for s in strides]
    d.op("ConvTranspose", x, d.array([channels, d.random.randint(1, 3), *kernel]), **attributes)


def pooling(d: Draw):
    x = image(d, d.random.randint(1, 3))
    sizes = d.values[x].shape[2:]
    kind = d.random.randrange(4)
    ceil = {} if d.graph.opset < 11 else dict(ceil_mode=d.random.randint(0, 1))
    if kind == 0:
        d.op("MaxPool", x, **window(d, sizes), **ceil)
    elif kind == 1:
        d.op("AveragePool", x, **window(d, sizes, dilated=False), count_include_pad=d.random.randint(0, 1), **ceil)
    elif kind == 2:
        d.op("LpPool", x, **window(d, sizes, dilated=False), p=d.random.randint(1, 3))
    else:
        d.op(d.random.choice(["GlobalAveragePool", "GlobalMaxPool"]), x)


def resize(d: Draw):
    x = image(d, d.random.randint(1, 2))
    shape = d.values[x].shape
    mode = d.random.choice(["nearest", "linear", "cubic"] if len(shape) == 4 else ["nearest", "linear"])
    coordinates = d.random.choice(["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"])
    attributes = dict(mode=mode, coordinate_transformation_mode=coordinates)
    if mode == "nearest":
        attributes["nearest_mode"] = d.random.choice(["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
    if mode == "cubic":
        attributes["exclude_outside"] = d.random.randint(0, 1)
    if d.random.random() < 0.5:
        scales = [d.random.choice([0.5, 0.6, 1.0, 1.3, 2.0, 2.5]) for _ in shape[2:]]
        d.op("Resize", x, None, np.array([1, 1, *scales], np.float32), **attributes)
    else:
        sizes = [d.random.randint(1, 12) for _ in shape[2:]]
        d.op("Resize", x, None, None, np.array([*shape[:2], *sizes]), **attributes)


def rearrange(d: Draw):
    kind = d.random.randrange(3)
    if kind == 0:
        x = d.input(d.array([1, 8, *d.sizes(2)]))
        d.op("DepthToSpace", x, blocksize=2, mode=d.random.choice(["DCR", "CRD"]))
    elif kind == 1:
        d.op("SpaceToDepth", d.input(d.array([1, 2, 4, 6])), blocksize=2)
    else:
        x = d.value(np.int64)
        d.op("OneHot", x, np.int64(d.random.randint(1, 9)), np.array([0, 1], np.float32), axis=d.random.choice([-1, 0]))


def shapes(d: Draw):
    """What follows a shape: sizes computed on the host."""
    x = d.value()
    rank = d.values[x].ndim
    shape = d.op("Shape", x)
    kind = d.random.randrange(4)
    if kind == 0:
        size = d.op("Gather", shape, np.int64(d.random.randrange(-rank, rank)), axis=0)
        d.op("Range", np.int64(0), d.op("Mul", size, np.int64(2)), np.int64(d.random.randint(1, 3)))
    elif kind == 1:
        d.op("ConstantOfShape", d.op("Slice", shape, np.array([0]), np.array([d.random.randint(1, rank)])))
    elif kind == 2:
        d.op("Expand", d.array([1] * rank), d.op("Max", shape, np.array([2] * rank)))
    else:
        last = d.op("Gather", shape, np.array([-1]), axis=0)
        d.op("Reshape", x, d.op("Concat", np.array([-1]), last, axis=0))


def attention(d: Draw):
    heads, queries, keys, size = d.random.randint(1, 3), *d.sizes(2, 9), d.random.choice([2, 4, 8])
    batch = d.random.randint(1, 2)
    # Ordinary numbers: against an infinite score, what is hidden by a low number counts again.
    ordinary = lambda n: d.array([batch, heads, n, size], special=False) * np.float32(0.5)
    q, k, v = (d.input(ordinary(n)) for n in (queries, keys, keys))
    scores = d.op("MatMul", q, d.op("Transpose", k, perm=[0, 1, 3, 2]))
    scores = d.op("Mul", scores, np.float32(d.random.choice([0.3, size**-0.5])))
    keep = d.numbers.integers(0, 3, [batch, 1, d.random.choice([1, queries]), keys]) > 0
    low = np.float32(d.random.choice([-np.inf, np.finfo(np.float32).min, -1e9, -1e4]))
    kind = d.random.randrange(4)
    if kind == 1:
        scores = d.op("Where", d.input(keep), scores, low)
    elif kind == 2:
        scores = d.op("Add", scores, d.op("Where", d.input(keep), np.float32(0), low))
    elif kind == 3 and queries == keys:
        triangle = np.tril(np.ones([queries, keys], bool))[None, None]
        scores = d.op("Where", triangle, scores, low)
    weights = d.op("Softmax", scores, axis=-1)
    if d.random.random() < 0.4:
        weights = d.op("Where", d.op("IsNaN", weights), np.float32(0), weights)
    d.op("MatMul", weights, v)


FAMILIES = [
    *[unary, activation, clip, binary, binary, integer, compare, cast, reduce, extreme, cumulative, reshape, reshape],
    *[pieces, pieces, pad, index, index, product, normalize, convolution, transposed, pooling, resize, rearrange],
    *[shapes, attention],
]
