"""Recurrent layers, quantized numbers, control flow, sequences, and operators that few networks have."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from fuzz_lib.draw import Draw
from fuzz_lib.nodes import image

F32 = TensorProto.FLOAT


def recurrent(d: Draw):
    steps, batch, width, hidden = d.sizes(2, 4) + d.sizes(2, 4)
    x = d.input(d.array([steps, batch, width], special=False))
    kind, gates = d.random.choice([("LSTM", 4), ("GRU", 3), ("RNN", 1)])
    direction = d.random.choice(["forward", "reverse", "bidirectional"])
    ways = 1 + (direction == "bidirectional")
    weights = lambda *shape: d.array([ways, *shape], special=False) * np.float32(0.5)
    maybe = lambda value: value if d.random.random() < 0.5 else None
    lengths = maybe(d.numbers.integers(1, steps + 1, [batch]).astype(np.int32))
    given = [maybe(weights(2 * gates * hidden)), lengths, maybe(weights(batch, hidden))]
    attributes = dict(hidden_size=hidden, direction=direction)
    outs = 3 if kind == "LSTM" else 2
    if kind == "LSTM":
        given += [maybe(weights(batch, hidden)), maybe(weights(3 * hidden))]
    elif kind == "GRU":
        attributes["linear_before_reset"] = d.random.randint(0, 1)
    if d.random.random() < 0.2:
        attributes["clip"] = 0.7
    d.op(kind, x, weights(gates * hidden, width), weights(gates * hidden, hidden), *given, out=outs, **attributes)


def finite(d: Draw) -> str:
    """What integers of others are made of is whatever the machine does."""
    x = d.value()
    return d.op("Clip", d.op("Where", d.op("IsNaN", x), np.float32(0), x), np.float32(-100), np.float32(100))


def quantized(d: Draw):
    """Numbers of 8 bits and back, along an axis or all alike, and products of them."""
    kind = d.random.randrange(6)
    dtype = d.random.choice([np.uint8, np.int8])
    zero = lambda shape: d.numbers.integers(0, 5, shape).astype(dtype)
    scale = lambda shape: (d.numbers.random(shape) * 0.2 + 0.01).astype(np.float32)
    bits = lambda shape: d.numbers.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, shape).astype(dtype)
    if kind < 2:
        x = finite(d)
        shape = d.values[x].shape
        axis = d.random.randrange(-len(shape), len(shape))
        sizes = [shape[axis]] if d.random.random() < 0.4 else []
        factor, middle = scale(sizes), zero(sizes)
        y = d.op("QuantizeLinear", x, factor, middle, axis=axis)
        if d.random.random() < 0.7:
            d.op("DequantizeLinear", y, factor, middle, axis=axis)
    elif kind == 2:
        y, factor, middle = d.op("DynamicQuantizeLinear", finite(d), out=3)
        if d.random.random() < 0.5:
            d.op("DequantizeLinear", y, factor, middle)
    elif kind == 3:
        m, k, n = d.sizes(3)
        a, b = d.input(bits([m, k])), bits([k, n])
        d.op("MatMulInteger", a, b, zero([]), zero([n] if d.random.random() < 0.3 else []))
    elif kind == 4:
        m, k, n = d.sizes(3)
        a, b = d.input(bits([m, k])), bits([k, n])
        each = [n] if d.random.random() < 0.3 else []
        d.op("QLinearMatMul", a, scale([]), zero([]), b, scale(each), zero(each), scale([]) * np.float32(20), zero([]))
    else:
        channels, outs = d.random.randint(1, 3), d.random.randint(1, 3)
        x = d.input(bits([1, channels, *[size + 2 for size in d.sizes(2)]]))
        weight = bits([outs, channels, d.random.randint(1, 2), d.random.randint(1, 2)])
        bias = d.numbers.integers(-99, 99, [outs]).astype(np.int32) if d.random.random() < 0.5 else None
        zeros = np.zeros([], dtype)
        d.op("QLinearConv", x, scale([]), zero([]), weight, scale([]), zeros, scale([]) * np.float32(20), zero([]), bias)


def branch(d: Draw):
    """One of two ways, by what the data say."""
    x = d.value()
    shape = d.values[x].shape
    total = d.op("ReduceSum", x, np.arange(len(shape)), keepdims=0)
    condition = d.op("Greater", total, np.float32(0))
    ways = {}
    for name in ("then", "else"):
        inner = d.graph.subgraph(name)
        y = x
        for _ in range(d.random.randint(1, 3)):
            op_type = d.random.choice(["Add", "Mul", "Relu", "Neg", "Tanh"])
            y = inner.op(op_type, y, *[d.array(shape[-1:])] * (op_type in ("Add", "Mul")))
        inner.output(y, F32, [None] * len(shape))
        ways[f"{name}_branch"] = inner.proto()
    d.op("If", condition, **ways)


def loop(d: Draw):
    """Rounds that carry a value, yield one each, and end by count or by what the data say."""
    x = d.value()
    shape = d.values[x].shape
    inner = d.graph.subgraph("body")
    step, going, state = (d.graph.fresh(name) for name in ("step", "going", "state"))
    inner.input(step, TensorProto.INT64, [])
    inner.input(going, TensorProto.BOOL, [])
    inner.input(state, F32, [None] * len(shape))
    changed = inner.op(d.random.choice(["Mul", "Add"]), state, d.array(shape[-1:], special=False) * np.float32(0.5))
    if d.random.random() < 0.5:
        changed = inner.op("Add", changed, inner.op("Cast", step, to=F32))
    if d.random.random() < 0.4:
        changed = inner.op("Add", changed, x)
    small = inner.op("Less", inner.op("ReduceMax", inner.op("Abs", changed), keepdims=0), np.float32(20))
    ends = d.random.random() < 0.4
    inner.output(inner.op("Identity", small if ends else going), TensorProto.BOOL, [])
    inner.output(changed, F32, [None] * len(shape))
    scans = d.random.random() < 0.5
    if scans:
        inner.output(inner.op("Neg", changed), F32, [None] * len(shape))
    rounds = np.array(d.random.randint(0 if not scans else 1, 5))
    count = d.input(rounds) if d.random.random() < 0.4 else rounds
    d.op("Loop", count, np.array(True), x, out=1 + scans, body=inner.proto())


def scan(d: Draw):
    x = d.input(d.array([d.random.randint(1, 5), *d.sizes(2, 3)], special=False))
    shape = d.values[x].shape
    inner = d.graph.subgraph("body")
    state, element = d.graph.fresh("state"), d.graph.fresh("element")
    inner.input(state, F32, list(shape[1:]))
    inner.input(element, F32, list(shape[1:]))
    total = inner.op("Add", inner.op("Mul", state, np.float32(0.5)), element)
    inner.output(total, F32, list(shape[1:]))
    inner.output(inner.op("Tanh", total), F32, list(shape[1:]))
    backward = dict(scan_input_directions=[1]) if d.random.random() < 0.3 else {}
    d.op("Scan", d.array(shape[1:], special=False), x, out=2, body=inner.proto(), num_scan_inputs=1, **backward)


def einsum(d: Draw):
    letters = d.random.sample("abcdef", d.random.randint(2, 4))
    sizes = {letter: d.random.randint(1, 4) for letter in letters}
    terms = [d.random.sample(letters, d.random.randint(1, len(letters))) for _ in range(d.random.randint(1, 3))]
    used = sorted({letter for term in terms for letter in term})
    result = d.random.sample(used, d.random.randint(0, len(used)))
    equation = ",".join("".join(term) for term in terms) + "->" + "".join(result)
    operands = [d.array([sizes[letter] for letter in term], special=False) for term in terms]
    d.op("Einsum", *[d.input(a) if d.random.random() < 0.6 else a for a in operands], equation=equation)


def several(d: Draw):
    x = d.value()
    d.op(d.random.choice(["Sum", "Mean", "Max", "Min"]), x, d.partner(x), d.partner(x))


def bits(d: Draw):
    kind = d.random.randrange(4)
    if kind == 0:
        x = d.value(np.int64)
        d.op("Mod", x, d.array([], np.int64) * 0 + d.random.choice([3, -4, 7]), fmod=d.random.randint(0, 1))
    elif kind == 1:
        x = d.input(d.numbers.integers(0, 255, d.sizes(2)).astype(np.uint8))
        d.op("BitShift", x, np.array(d.random.randint(0, 7), np.uint8), direction=d.random.choice(["LEFT", "RIGHT"]))
    elif kind == 2:
        x = d.value(bool)
        d.op(d.random.choice(["And", "Or", "Xor"]), x, d.partner(x))
    else:
        x = d.value()
        d.op("Mod", x, np.float32(d.random.choice([1.5, -2.0])), fmod=1)


def chosen(d: Draw):
    """As many results as the data say."""
    kind, x = d.random.randrange(3), d.value()
    shape = d.values[x].shape
    axis = d.random.randrange(len(shape))
    if kind == 0:
        d.op("NonZero", d.op("Greater", x, np.float32(0)))
    elif kind == 1:
        d.op("Compress", x, d.input(d.numbers.integers(0, 2, [shape[axis]]).astype(bool)), axis=axis)
    else:
        lengths = d.numbers.integers(1, shape[0] + 1, [shape[1]]) if len(shape) > 1 else None
        if lengths is not None:
            d.op("ReverseSequence", x, lengths, time_axis=0, batch_axis=1)


def spatial(d: Draw):
    kind = d.random.randrange(4)
    x = image(d, 2)
    n, channels, height, width = d.values[x].shape
    if kind == 0:
        d.op("LRN", x, size=d.random.choice([1, 3, 5]), alpha=0.1, beta=0.75, bias=1.5)
    elif kind == 1:
        d.op("MeanVarianceNormalization", x, axes=d.random.choice([[0, 2, 3], [2, 3], [1, 2, 3]]))
    elif kind == 2 and d.graph.opset >= 16:
        grid = d.input((d.numbers.random([n, 3, 2, 2]) * 2.6 - 1.3).astype(np.float32))
        mode = d.random.choice(["bilinear", "nearest"] if d.graph.opset < 20 else ["linear", "nearest", "cubic"])
        padding = d.random.choice(["zeros", "border", "reflection"])
        d.op("GridSample", x, grid, mode=mode, padding_mode=padding, align_corners=d.random.randint(0, 1))
    elif d.graph.opset >= 18:
        target = np.array([d.random.randint(1, 6), d.random.randint(1, 6)])
        d.op("CenterCropPad", x, target, axes=[2, 3])


def sequences(d: Draw):
    """Cut to pieces, and what is done with them."""
    x = d.value(rank=d.random.randint(1, 3))
    shape = d.values[x].shape
    axis = d.random.randrange(len(shape))
    parts = d.graph.op("SplitToSequence", x, axis=axis, keepdims=1)
    try:
        # Nodes with sequences are not run by themselves: what they yield is known.
        pieces = np.split(d.values[x], shape[axis], axis)
        if d.random.random() < 0.5:
            at = d.random.randrange(-len(pieces), len(pieces))
            y, value = d.graph.op("SequenceAt", parts, d.graph.const(np.int64(at))), pieces[at]
        else:
            other = d.random.randrange(len(shape))
            y, value = d.graph.op("ConcatFromSequence", parts, axis=other), np.concatenate(pieces, other)
        d.values[y] = value
    except Exception:
        d.graph.nodes.pop()
        raise


RARE = [recurrent, recurrent, quantized, quantized, branch, loop, loop, scan, einsum, several, bits, chosen, spatial, sequences]
