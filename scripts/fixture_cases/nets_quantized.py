"""Networks that ONNX Runtime's quantizer wrote from floating point, with the ranges that it saw in random data."""

from __future__ import annotations

import contextlib
import logging
import pathlib
import tempfile

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static
from torch import nn

from fixture_lib.export import export_dynamo, export_torchscript, seed_weights
from fixture_lib.registry import Case, case


class Calls(CalibrationDataReader):
    """Inputs to take ranges from."""

    def __init__(self, inputs):
        self.inputs = iter([{"x": x} for x in inputs])

    def get_next(self):
        return next(self.inputs, None)


@contextlib.contextmanager
def silent():
    """The quantizer would like a model that was preprocessed, and says so."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)


def quantized_case(rng, module, shape, batches, form, dynamo=False, **kw) -> Case:
    """Weights have seven bits, see `op_qlinear.py`."""
    numbers = lambda n: rng.standard_normal((n, *shape)).astype(np.float32)
    names, any_batch = dict(input_names=["x"], output_names=["y"]), {"x": {0: "n"}}
    export, any_batch = (export_dynamo, dict(dynamic_shapes=any_batch)) if dynamo else (export_torchscript, dict(dynamic_axes=any_batch))
    model = export(seed_weights(module), (torch.from_numpy(numbers(2)),), **names, **any_batch)
    with tempfile.TemporaryDirectory() as folder, silent():
        path = pathlib.Path(folder) / "model.onnx"
        reader = Calls([numbers(4) for _ in range(4)])
        quantize_static(model, path, reader, quant_format=form, reduce_range=True, weight_type=QuantType.QInt8, **kw)
        quantized = onnx.load(path)
    return Case(quantized, [[numbers(n)] for n in batches], checked=False)


def dynamic_case(rng, module, shape, batches, **kw) -> Case:
    """What is quantized by the range of each input; weights have seven bits."""
    numbers = lambda n: rng.standard_normal((n, *shape)).astype(np.float32)
    names = dict(input_names=["x"], output_names=["y"], dynamic_axes={"x": {0: "n"}})
    model = export_torchscript(seed_weights(module), (torch.from_numpy(numbers(2)),), **names)
    with tempfile.TemporaryDirectory() as folder, silent():
        path = pathlib.Path(folder) / "model.onnx"
        quantize_dynamic(model, path, reduce_range=True, **kw)
        quantized = onnx.load(path)
    return Case(quantized, [[numbers(n)] for n in batches], checked=False)


class Excited(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.wide, self.deep, self.project = nn.Conv2d(c, c, 3, 1, 1), nn.Conv2d(c, c, 3, 1, 1, groups=c), nn.Conv2d(c, c, 1)
        self.squeeze, self.excite = nn.Conv2d(c, 4, 1), nn.Conv2d(4, c, 1)

    def forward(self, x):
        y = self.project(F.leaky_relu(self.deep(F.relu(self.wide(x))), 0.1))
        weights = self.excite(F.relu(self.squeeze(F.adaptive_avg_pool2d(y, 1))))
        return x + y * torch.sigmoid(weights)


class Cnn(nn.Module):
    def __init__(self, c=8):
        super().__init__()
        self.stem, self.block = nn.Sequential(nn.Conv2d(3, c, 3, 2, 1), nn.BatchNorm2d(c), nn.ReLU()), Excited(c)
        self.pool, self.side = nn.AvgPool2d(3, 2, 1), nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(c, c, 1))
        self.hidden, self.classes = nn.Linear(2 * c, 12), nn.Linear(12, 10)

    def forward(self, x):
        x = self.block(self.stem(x))
        x = torch.cat([self.pool(x), self.side(x)], 1)
        return self.classes(F.relu(self.hidden(F.adaptive_avg_pool2d(x, 1).flatten(1))))


class Attention(nn.Module):
    def __init__(self, size=16, heads=2):
        super().__init__()
        self.heads, self.before, self.between = heads, nn.LayerNorm(size), nn.LayerNorm(size)
        self.query, self.key, self.value, self.out = (nn.Linear(size, size) for _ in range(4))
        self.up, self.down, self.classes = nn.Linear(size, 2 * size), nn.Linear(2 * size, size), nn.Linear(size, 5)

    def forward(self, x):
        y = self.before(x)
        q, k, v = (f(y).unflatten(2, (self.heads, -1)).transpose(1, 2) for f in (self.query, self.key, self.value))
        weights = torch.softmax(q @ k.transpose(2, 3) * q.shape[3] ** -0.5, 3)
        x = x + self.out((weights @ v).transpose(1, 2).flatten(2))
        x = x + self.down(F.gelu(self.up(self.between(x))))
        return self.classes(x[:, 0])


@case("quantized_cnn")
def cnn(rng):
    """Operators on integers; a scale for each channel of a weight."""
    return quantized_case(rng, Cnn(), (3, 16, 16), [2, 1], QuantFormat.QOperator, per_channel=True)


@case("quantized_attention")
def attention(rng):
    """Operators on integers; signed activations."""
    kw = dict(activation_type=QuantType.QInt8)
    return quantized_case(rng, Attention(), (6, 16), [2, 1], QuantFormat.QOperator, **kw)


@case("quantized_cnn_around")
def cnn_around(rng):
    """Operators in floating point, between conversions to integers and back."""
    return quantized_case(rng, Cnn(), (3, 16, 16), [2, 1], QuantFormat.QDQ)


class Block(nn.Module):
    def __init__(self, size, heads):
        super().__init__()
        self.heads, self.before, self.between = heads, nn.LayerNorm(size), nn.LayerNorm(size)
        self.query, self.key, self.value, self.out = (nn.Linear(size, size) for _ in range(4))
        self.up, self.down = nn.Linear(size, 2 * size), nn.Linear(2 * size, size)

    def forward(self, x):
        y = self.before(x)
        q, k, v = (f(y).unflatten(2, (self.heads, -1)).transpose(1, 2) for f in (self.query, self.key, self.value))
        weights = torch.softmax(q @ k.transpose(2, 3) * q.shape[3] ** -0.5, 3)
        x = x + self.out((weights @ v).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.between(x))))


class Encoder(nn.Module):
    """Equal layers, whose scales and zero points are their own."""

    def __init__(self, size=16, heads=2, layers=3):
        super().__init__()
        self.layers = nn.ModuleList(Block(size, heads) for _ in range(layers))
        self.classes = nn.Linear(size, 5)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.classes(x[:, 0])


@case("quantized_encoder")
def encoder(rng):
    """Layers of integers behind conversions by the range of each input; weights without a sign."""
    return dynamic_case(rng, Encoder(), (6, 16), [2, 1], weight_type=QuantType.QUInt8)


@case("quantized_encoder_around")
def encoder_around(rng):
    """Layers in floating point between conversions to integers and back, by ranges that were measured."""
    return quantized_case(rng, Encoder(), (6, 16), [2, 1], QuantFormat.QDQ)


class Residual(nn.Module):
    def __init__(self, c, project=False):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(c, c, 3, 1, 1), nn.Conv2d(c, c, 3, 1, 1)
        self.project = nn.Conv2d(c, c, 1) if project else nn.Identity()

    def forward(self, x):
        return F.relu(self.conv2(F.relu(self.conv1(x))) + self.project(x))


class Residuals(nn.Module):
    """Equal blocks, whose scales and zero points are their own."""

    def __init__(self, c=16, blocks=3):
        super().__init__()
        self.stem, self.pool = nn.Conv2d(3, c, 3, 2, 1), nn.MaxPool2d(2)
        self.blocks = nn.ModuleList(Residual(c, n == 0) for n in range(blocks))
        self.deep, self.classes = nn.Conv2d(c, c, 3, 1, 1, groups=c), nn.Linear(c, 5)

    def forward(self, x):
        x = self.pool(F.relu(self.stem(x)))
        for block in self.blocks:
            x = block(x)
        return self.classes(F.adaptive_avg_pool2d(F.relu(self.deep(x)), 1).flatten(1))


@case("quantized_blocks")
def blocks(rng):
    """Blocks of convolutions on integers."""
    return quantized_case(rng, Residuals(), (3, 12, 12), [2, 1], QuantFormat.QOperator)


@case("quantized_blocks_around")
def blocks_around(rng):
    """The same in floating point between conversions to integers and back; a scale for each channel of a weight, signed activations."""
    kw = dict(per_channel=True, activation_type=QuantType.QInt8)
    return quantized_case(rng, Residuals(), (3, 12, 12), [2, 1], QuantFormat.QDQ, **kw)


@case("quantized_blocks_dynamic")
def blocks_dynamic(rng):
    """The same behind conversions by the range of each input; weights without a sign."""
    return dynamic_case(rng, Residuals(), (3, 12, 12), [2, 1], weight_type=QuantType.QUInt8)


class Mixer(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.mix, self.up, self.out = nn.Linear(size, size), nn.Linear(size, 2 * size), nn.Linear(2 * size, size)

    def forward(self, x):
        return x + self.out(F.relu(self.up(torch.tanh(self.mix(x)))))


class Copies(nn.Module):
    """Layers that are copies of one, as those of `nn.TransformerEncoder` are at first."""

    def __init__(self, size=8, layers=3):
        super().__init__()
        self.layers = nn.ModuleList(Mixer(size) for _ in range(layers))

    def train(self, mode=True):
        first, *others = self.layers
        for layer in others:
            layer.load_state_dict(first.state_dict())
        return super().train(mode)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class Repeated(nn.Module):
    """One layer that is called several times, as ALBERT's."""

    def __init__(self, size=8, calls=3):
        super().__init__()
        self.layer, self.calls = Mixer(size), calls

    def forward(self, x):
        for _ in range(self.calls):
            x = self.layer(x)
        return x


@case("quantized_copies")
def copies(rng):
    """The exporter keeps one of equal weights, under the first layer's name; each layer has inputs of its own scale."""
    return quantized_case(rng, Copies(), (8,), [2], QuantFormat.QDQ, dynamo=True)


@case("quantized_repeated")
def repeated(rng):
    """The calls share the weights, and have inputs of their own scales."""
    return quantized_case(rng, Repeated(), (8,), [2], QuantFormat.QDQ, dynamo=True)
