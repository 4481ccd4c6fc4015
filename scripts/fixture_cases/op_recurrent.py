"""LSTM, GRU and RNN with every input, attribute and direction."""

from __future__ import annotations

import numpy as np

from fixture_lib.graph import F32, Graph
from fixture_lib.registry import Case, case

SEQ, BATCH, INPUT, HIDDEN = 5, 3, 4, 3
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
LENGTHS = np.array([5, 2, 4], np.int32)


def floats(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


class Cell:
    """Makes nodes of one kind over one input, with weights of its own for each."""

    def __init__(self, g: Graph, rng, kind: str, x: str, dims=(SEQ, BATCH)):
        self.g, self.rng, self.kind, self.x, self.dims = g, rng, kind, x, dims

    def add(
        self,
        label,
        *,
        direction="forward",
        bias=True,
        lengths=None,
        h=None,
        c=None,
        peepholes=False,
        wanted=None,
        **attributes,
    ):
        g, rng, n = self.g, self.rng, GATES[self.kind]
        d = 2 if direction == "bidirectional" else 1
        operands = [
            self.x,
            floats(rng, d, n * HIDDEN, INPUT) * 0.5,
            floats(rng, d, n * HIDDEN, HIDDEN) * 0.5,
            floats(rng, d, 2 * n * HIDDEN) * 0.5 if bias else None,
            lengths,
            h,
        ]
        outputs = ["y", "h"]
        if self.kind == "LSTM":
            operands += [c, floats(rng, d, 3 * HIDDEN) * 0.5 if peepholes else None]
            outputs.append("c")
        while operands[-1] is None:
            operands.pop()
        if direction != "forward":
            attributes["direction"] = direction
        wanted = wanted or outputs
        names = [f"{label}_{o}" if o in wanted else "" for o in outputs]
        while not names[-1]:
            names.pop()
        g.op(self.kind, *operands, out=names, hidden_size=HIDDEN, **attributes)
        seq, batch = self.dims
        for name, o in zip(names, outputs):
            if name:
                g.output(name, F32, [seq, d, batch, HIDDEN] if o == "y" else [d, batch, HIDDEN])


def common(cell: Cell, h, both_h):
    cell.add("plain")
    cell.add("no_bias", bias=False)
    cell.add("reverse", direction="reverse")
    cell.add("bidirectional", direction="bidirectional")
    cell.add("lengths", lengths=LENGTHS)
    cell.add("lengths_reverse", lengths=LENGTHS, direction="reverse")
    cell.add("lengths_both", lengths=LENGTHS, direction="bidirectional", h=both_h)
    cell.add("last_only", wanted=["h"])
    cell.add("first_only", wanted=["y"])
    cell.add("clipped", clip=0.3)


def inputs(rng):
    return [floats(rng, SEQ, BATCH, INPUT), floats(rng, 1, BATCH, HIDDEN), floats(rng, 2, BATCH, HIDDEN)]


def start(kind):
    g = Graph(kind.lower(), opset=14)
    return (
        g,
        g.input("x", F32, [SEQ, BATCH, INPUT]),
        g.input("h", F32, [1, BATCH, HIDDEN]),
        g.input("both_h", F32, [2, BATCH, HIDDEN]),
    )


@case("op_lstm")
def lstm(rng):
    g, x, h, both_h = start("LSTM")
    c, both_c = g.input("c", F32, [1, BATCH, HIDDEN]), g.input("both_c", F32, [2, BATCH, HIDDEN])
    cell = Cell(g, rng, "LSTM", x)
    common(cell, h, both_h)
    cell.add("initial", h=h, c=c)
    cell.add("initial_cell_only", c=c)
    cell.add("peepholes", peepholes=True)
    cell.add("everything", direction="bidirectional", lengths=LENGTHS, h=both_h, c=both_c, peepholes=True, clip=2.0)
    cell.add("coupled", input_forget=1)
    cell.add(
        "activations", activations=["HardSigmoid", "Softsign", "Relu"], activation_alpha=[0.3], activation_beta=[0.4]
    )
    cell.add(
        "activations_both",
        direction="bidirectional",
        activations=["Sigmoid", "Tanh", "Tanh", "Sigmoid", "Elu", "LeakyRelu"],
        activation_alpha=[0.7, 0.1],
    )
    cell.add("cell_only", wanted=["c"])
    return Case(g.model(), [[*inputs(rng), floats(rng, 1, BATCH, HIDDEN), floats(rng, 2, BATCH, HIDDEN)]])


@case("op_gru")
def gru(rng):
    g, x, h, both_h = start("GRU")
    cell = Cell(g, rng, "GRU", x)
    common(cell, h, both_h)
    cell.add("initial", h=h)
    cell.add("reset_after", linear_before_reset=1)
    cell.add("reset_after_no_bias", linear_before_reset=1, bias=False)
    cell.add("everything", linear_before_reset=1, direction="bidirectional", lengths=LENGTHS, h=both_h)
    cell.add(
        "activations",
        activations=["HardSigmoid", "ScaledTanh"],
        activation_alpha=[0.3, 0.8],
        activation_beta=[0.4, 1.2],
    )
    return Case(g.model(), [inputs(rng)])


@case("op_rnn")
def rnn(rng):
    g, x, h, both_h = start("RNN")
    cell = Cell(g, rng, "RNN", x)
    common(cell, h, both_h)
    cell.add("initial", h=h)
    cell.add("relu", activations=["Relu"])
    cell.add(
        "two_activations",
        direction="bidirectional",
        activations=["Affine", "ThresholdedRelu"],
        activation_alpha=[0.5, 0.2],
        activation_beta=[0.1],
        clip=5.0,
    )
    return Case(g.model(), [inputs(rng)])


@case("op_recurrent_dynamic")
def recurrent_dynamic(rng):
    """Sequence and batch are known at run time only; the initial state is made from the input's shape."""
    g = Graph("recurrent_dynamic", opset=14)
    x = g.input("x", F32, ["seq", "batch", INPUT])
    dims = g.op("Concat", [1], g.op("Slice", g.op("Shape", x), [1], [2]), [HIDDEN], axis=0)
    state = g.op("Expand", np.float32(0.25), dims)
    for kind in GATES:
        Cell(g, rng, kind, x, ("seq", "batch")).add(kind.lower(), h=state)
    return Case(g.model(), [[floats(rng, 4, 2, INPUT)], [floats(rng, 1, 1, INPUT)]])


@case("op_recurrent_batch_first")
def recurrent_batch_first(rng):
    """`layout=1`, which ONNX Runtime refuses: the reference transposes around the other layout."""
    x, h = floats(rng, BATCH, SEQ, INPUT), floats(rng, BATCH, 2, HIDDEN)
    weights = {
        k: [
            floats(rng, 2, n * HIDDEN, INPUT) * 0.5,
            floats(rng, 2, n * HIDDEN, HIDDEN) * 0.5,
            floats(rng, 2, 2 * n * HIDDEN) * 0.5,
        ]
        for k, n in GATES.items()
    }

    def build(batch_first):
        g = Graph("recurrent_batch_first", opset=14)
        g.input("x", F32, [BATCH, SEQ, INPUT]), g.input("h", F32, [BATCH, 2, HIDDEN])
        options = dict(hidden_size=HIDDEN, direction="bidirectional")
        for kind in GATES:
            names = [f"{kind.lower()}_{o}" for o in ("y", "h", "c")[: 3 if kind == "LSTM" else 2]]
            if batch_first:
                g.op(kind, "x", *weights[kind], LENGTHS, "h", out=names, layout=1, **options)
            else:
                turn = dict(perm=[1, 0, 2])
                outs = g.op(
                    kind,
                    g.op("Transpose", "x", **turn),
                    *weights[kind],
                    LENGTHS,
                    g.op("Transpose", "h", **turn),
                    out=len(names),
                    **options,
                )
                g.op("Transpose", outs[0], out=names[0], perm=[2, 0, 1, 3])
                for inner, name in zip(outs[1:], names[1:]):
                    g.op("Transpose", inner, out=name, **turn)
            g.output(names[0], F32, [BATCH, SEQ, 2, HIDDEN])
            for name in names[1:]:
                g.output(name, F32, [BATCH, 2, HIDDEN])
        return g.model()

    return Case(build(True), [[x, h]], reference=build(False))


def stepped(rng, *shape):
    """Multiples of 1/128, whose rows all reach from -1 to 127/128: eight bits hold them exactly, under the scale of any rows."""
    steps = rng.integers(-128, 128, shape)
    steps[..., 0], steps[..., -1] = -128, 127
    return (steps / 128).astype(np.float32)


@case("op_lstm_dynamic_quantized")
def lstm_dynamic_quantized(rng):
    """Weights of eight bits under scales of directions and of gates' rows.

    ONNX Runtime rounds the input and each step's state; one step, of numbers that it does not have to round, shows what the
    weights stand for. Its kernels without VNNI saturate sums of two products with `int8` weights, so that those are small.
    """
    g = Graph("lstm_dynamic_quantized", opset=17)
    x, h, c = g.input("x", F32, [1, BATCH, INPUT]), *(g.input(name, F32, [2, BATCH, HIDDEN]) for name in "hc")
    one_h, one_c = (g.op("Slice", state, [0], [1], [0]) for state in (h, c))
    rows = 4 * HIDDEN

    def show(label, dtype, *, directions=2, of_rows=False, zeros=0, bias=True, peepholes=False, **attributes):
        scale_dims = [directions, rows] if of_rows else [directions]
        weights, parameters = [], []
        for name, size in [("W", INPUT), ("R", HIDDEN)]:
            low, high = (-64, 64) if dtype == np.int8 else (0, 256)
            weights.append(rng.integers(low, high, (directions, size, rows)).astype(dtype))
            scales = rng.uniform(0.004, 0.008, scale_dims).astype(np.float32)
            parameters += [scales, np.full(scale_dims, zeros, dtype)]
        states = [h, c] if directions == 2 else [one_h, one_c]
        operands = [
            x,
            *weights,
            floats(rng, directions, 2 * rows) / 2 if bias else None,
            None,
            *states,
            floats(rng, directions, 3 * HIDDEN) / 2 if peepholes else None,
            *parameters,
        ]
        names = [f"{label}_{o}" for o in "yhc"]
        options = dict(domain="com.microsoft", hidden_size=HIDDEN, **attributes)
        g.op("DynamicQuantizeLSTM", *operands, out=names, **options)
        for name, dims in zip(names, [[1, directions], [directions], [directions]]):
            g.output(name, F32, [*dims, BATCH, HIDDEN])

    show("i8", np.int8, directions=1)
    show("i8_rows", np.int8, of_rows=True, direction="bidirectional")
    show("u8", np.uint8, zeros=120, peepholes=True, direction="bidirectional")
    show("u8_rows", np.uint8, directions=1, of_rows=True, zeros=131, bias=False, direction="reverse", clip=1.5)
    states = [stepped(rng, 2, BATCH, HIDDEN), floats(rng, 2, BATCH, HIDDEN)]
    return Case(g.model(), [[stepped(rng, 1, BATCH, INPUT), *states]])
