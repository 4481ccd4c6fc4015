"""Write fixtures/checkpoints/: networks exported to ONNX, and checkpoints of them with other weights.

    pip install -r scripts/requirements-fixtures.txt
    python scripts/checkpoint_cases.py

    <case>/model.onnx                 the network with one set of weights
    <case>/checkpoint.pt              its state_dict with another set
    <case>/checkpoint.safetensors     the same, tied tensors once, as `save_pretrained` leaves them
    <case>/io.safetensors             inputs, and PyTorch's output with the checkpoint's weights

A model generated from `model.onnx` that loads the checkpoint has to give PyTorch's output. Running this again gives the
same bytes.
"""

from __future__ import annotations

import math
import pathlib
import shutil

import torch
from safetensors.torch import save as to_safetensors
from torch import nn

from fixture_lib.export import export_dynamo, export_torchscript, seed_weights
from weight_fixtures import formats

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "fixtures" / "checkpoints"


class Residual(nn.Module):
    def __init__(self, channels_in: int, channels: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels, eps=1e-3)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, groups=2)
        self.bn2 = nn.BatchNorm2d(channels)
        self.downsample = (
            nn.Sequential(nn.Conv2d(channels_in, channels, 1, stride, bias=False), nn.BatchNorm2d(channels))
            if stride > 1
            else nn.Identity()
        )

    def forward(self, x):
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(y + self.downsample(x))


class Cnn(nn.Module):
    """Normalizations after every kind of layer, a layer scale, parameters of one number, an unaffine norm."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.PReLU())
        self.layers = nn.Sequential(Residual(8, 8, 1), Residual(8, 16, 2), Residual(16, 16, 1))
        self.up = nn.ConvTranspose2d(16, 8, 2, 2, groups=2)
        self.up_norm = nn.BatchNorm2d(8, affine=False)
        self.mix = nn.Conv2d(8, 8, 1)
        self.gamma = nn.Parameter(torch.ones(8, 1, 1))
        self.temperature = nn.Parameter(torch.tensor(1.0))
        self.fc1 = nn.Linear(8, 12)
        self.fc_norm = nn.BatchNorm1d(12)
        self.fc2 = nn.Linear(12, 5)

    def forward(self, x):
        x = self.layers(self.stem(x))
        x = self.gamma * self.mix(torch.relu(self.up_norm(self.up(x))))
        x = self.fc_norm(self.fc1(x.mean((2, 3))))
        return self.fc2(torch.relu(x)) * self.temperature.exp()


class Attention(nn.Module):
    def __init__(self, size: int, heads: int):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(size, size) for _ in range(3))
        self.output = nn.Linear(size, size)

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = (f(x).view(b, n, self.heads, -1).transpose(1, 2) for f in (self.query, self.key, self.value))
        y = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.output(y.transpose(1, 2).reshape(b, n, c))


class Block(nn.Module):
    def __init__(self, size: int, heads: int):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(size), nn.LayerNorm(size, elementwise_affine=False)
        self.attention = Attention(size, heads)
        self.mlp = nn.Sequential(nn.Linear(size, 2 * size), nn.GELU(), nn.Linear(2 * size, size))
        self.scale = nn.Parameter(torch.ones(size))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.scale * self.mlp(self.norm2(x))


class Transformer(nn.Module):
    """Query, key and value; positions of which some are used; a token of its own; a weight that is normalized."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 16)
        self.token = nn.Parameter(torch.zeros(1, 1, 16))
        self.positions = nn.Parameter(torch.zeros(1, 32, 16))
        self.blocks = nn.ModuleList(Block(16, 4) for _ in range(3))
        self.register_buffer("shift", torch.zeros(16))
        self.register_buffer("table", torch.sin(torch.arange(7 * 16) * 0.37).view(7, 16), persistent=False)
        self.head = nn.Linear(16, 6, bias=False)

    def forward(self, tokens):
        x = torch.cat([self.token, self.embed(tokens) + self.table], 1) + self.positions[:, :8]
        for block in self.blocks:
            x = block(x)
        weight = self.head.weight / self.head.weight.abs().sum(1, keepdim=True)
        return nn.functional.linear(x + self.shift, weight)


class Conv1D(nn.Module):
    """GPT-2's linear layer, whose weight is not transposed."""

    def __init__(self, out: int, size: int):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.zeros(size, out)), nn.Parameter(torch.zeros(out))

    def forward(self, x):
        return torch.addmm(self.bias, x.reshape(-1, x.shape[-1]), self.weight).view(*x.shape[:-1], -1)


class RmsNorm(nn.Module):
    """Gemma's, which multiplies by one more than its weight."""

    def __init__(self, size: int):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(size))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * (1 + self.weight)


class GptBlock(nn.Module):
    def __init__(self, size: int):
        super().__init__()
        self.ln_1, self.ln_2 = RmsNorm(size), RmsNorm(size)
        self.c_attn, self.c_proj = Conv1D(3 * size, size), Conv1D(size, size)
        self.c_fc, self.c_out = Conv1D(2 * size, size), Conv1D(size, 2 * size)

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = (y.view(b, n, 2, -1).transpose(1, 2) for y in self.c_attn(self.ln_1(x)).split(c, 2))
        mask = torch.full((n, n), -math.inf).triu(1)
        y = torch.softmax(q @ k.transpose(2, 3) / math.sqrt(c // 2) + mask, -1) @ v
        x = x + self.c_proj(y.transpose(1, 2).reshape(b, n, c))
        return x + self.c_out(nn.functional.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class GptBody(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(24, 16), nn.Embedding(12, 16)
        self.h = nn.ModuleList(GptBlock(16) for _ in range(2))
        self.ln_f = RmsNorm(16)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for block in self.h:
            x = block(x)
        return self.ln_f(x)


class Gpt(nn.Module):
    """An embedding that is the head as well."""

    def __init__(self):
        super().__init__()
        self.transformer = GptBody()
        self.lm_head = nn.Linear(16, 24, bias=False)
        self.lm_head.weight = self.transformer.wte.weight

    def forward(self, tokens):
        return self.lm_head(self.transformer(tokens))


class Recurrent(nn.Module):
    """Gates in PyTorch's order, both directions."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(15, 6)
        self.lstm = nn.LSTM(6, 5, batch_first=True, bidirectional=True)
        self.gru = nn.GRU(10, 4, batch_first=True)
        self.out = nn.Linear(4, 3)

    def forward(self, tokens):
        return self.out(self.gru(self.lstm(self.embed(tokens))[0])[0])


class Computed(nn.Module):
    """Weights that are computed from parameters: as a checkpoint's loader can, too, and in ways that it cannot."""

    def __init__(self):
        super().__init__()
        self.standard = nn.Conv2d(3, 6, 3)
        self.gain = nn.Parameter(torch.ones(6, 1, 1, 1))
        self.cosine = nn.Parameter(torch.ones(6, 6))
        self.q_bias, self.v_bias = nn.Parameter(torch.ones(4)), nn.Parameter(torch.ones(4))
        self.qkv = nn.Linear(6, 12, bias=False)
        self.masked = nn.Parameter(torch.ones(12, 12))
        self.mix = nn.Parameter(torch.ones(3))
        self.table = nn.Parameter(torch.ones(2, 9))
        self.cell = nn.GRUCell(12, 5)
        self.symmetric = nn.Parameter(torch.ones(5, 5))
        self.register_buffer("pixel_mean", torch.tensor([0.4, 0.5, 0.6]), persistent=False)
        self.register_buffer("below", torch.ones(12, 12).tril(), persistent=False)
        self.register_buffer("distance", torch.arange(5)[:, None] - torch.arange(5)[None] + 4, persistent=False)

    def forward(self, x):
        x = x - self.pixel_mean[:, None, None]
        weight = self.standard.weight
        mean, variance = weight.mean((1, 2, 3), keepdim=True), weight.var((1, 2, 3), keepdim=True)
        weight = (weight - mean) / torch.sqrt(variance + 1e-5) * self.gain
        x = nn.functional.conv2d(x, weight, self.standard.bias).mean((2, 3))
        x = nn.functional.linear(x, nn.functional.normalize(self.cosine))
        bias = torch.cat([self.q_bias, torch.zeros(4), self.v_bias])
        x = nn.functional.linear(x, self.qkv.weight, bias)
        x = nn.functional.linear(x, self.masked * self.below)
        x = torch.stack([x, x.abs(), x.square()], -1) @ self.mix.softmax(0)
        h = torch.zeros(x.shape[0], 5)
        for _ in range(2):
            h = self.cell(x, h)
        bias = self.table[:, self.distance].sum(0)
        return h @ (self.symmetric.triu() + self.symmetric.triu(1).T + bias.clamp(-1, 1))


class Inner(nn.Module):
    """Attention and what follows, as a layer that others share."""

    def __init__(self):
        super().__init__()
        self.attention, self.norm = Attention(16, 4), nn.LayerNorm(16)

    def forward(self, x):
        y = self.norm(x + self.attention(x))
        return y, x


class Group(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Inner()])
        self.reduce = nn.Linear(16, 16)

    def forward(self, x):
        y, z = self.layers[0](x)
        return self.reduce(y), z


class Shared(nn.Module):
    """A group of layers that is called three times, each time with more of its results in use; a head that is three."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(15, 16)
        self.groups = nn.ModuleList([Group()])
        head = nn.Linear(16, 4)
        self.heads = nn.ModuleList([head, head, head])

    def forward(self, tokens):
        x, _ = self.groups[0](self.embed(tokens))
        x, y = self.groups[0](x)
        x, z = self.groups[0](x + y.mean(1, keepdim=True))
        return self.heads[0](x) + self.heads[1](y) + self.heads[2](z)


class Cells(nn.Module):
    """Two cells, of which the exporter writes out every step; their first states are zeros."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(15, 6)
        self.lstm, self.gru = nn.LSTMCell(6, 5), nn.GRUCell(5, 4)

    def forward(self, tokens):
        h = c = torch.zeros(tokens.shape[0], 5)
        g = torch.zeros(tokens.shape[0], 4)
        for x in self.embed(tokens).unbind(1):
            h, c = self.lstm(x, (h, c))
            g = self.gru(h, g)
        return g


class Convolution(nn.Module):
    """Nothing that keeps its name when normalizations are folded."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8)

    def forward(self, x):
        return torch.relu(self.norm(self.conv(x)))


class Lists(nn.Module):
    """Layers in lists: convolutions into which norms are folded, norms behind an activation, linear layers of which one is
    read twice, weights that are not transposed."""

    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(3, 3, 3, padding=1) for _ in range(3))
        self.norms = nn.ModuleList(nn.BatchNorm2d(3) for _ in range(3))
        self.after = nn.ModuleList(nn.BatchNorm2d(3) for _ in range(3))
        widths = [3, 8, 8, 8, 5]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(widths, widths[1:]))
        self.scales = nn.ModuleList(nn.LayerNorm(b) for b in widths[1:])
        self.straight = nn.ModuleList(Conv1D(5, 5) for _ in range(3))

    def forward(self, x):
        for conv, norm, after in zip(self.convs, self.norms, self.after):
            x = after(torch.relu(norm(conv(x))))
        x = x.mean((2, 3))
        for layer, scale in zip(self.layers, self.scales):
            x = scale(torch.tanh(layer(x)))
        for layer in self.straight:
            x = torch.sigmoid(layer(x))
        return nn.functional.linear(x, self.layers[-1].weight.T)


IMAGE = torch.linspace(-1, 1, 2 * 3 * 8 * 8).sin().view(2, 3, 8, 8)
TOKENS = torch.tensor([[3, 1, 4, 1, 5, 9, 2]])
UNFOLDED = {"do_constant_folding": False, "training": torch.onnx.TrainingMode.PRESERVE}

# Name, network, input, exporter with its options.
CASES = [
    ("cnn", Cnn, IMAGE, export_dynamo, {"optimize": False}),
    ("cnn_torchscript", Cnn, IMAGE, export_torchscript, UNFOLDED),
    ("transformer", Transformer, TOKENS, export_dynamo, {"optimize": False}),
    ("gpt", Gpt, TOKENS, export_dynamo, {"optimize": False}),
    ("recurrent", Recurrent, TOKENS, export_dynamo, {"optimize": False}),
    ("computed", Computed, IMAGE, export_dynamo, {"optimize": False}),
    ("shared", Shared, TOKENS, export_dynamo, {"optimize": False}),
    ("lists", Lists, IMAGE, export_dynamo, {"optimize": False}),
    ("cells_torchscript", Cells, TOKENS, export_torchscript, UNFOLDED),
    # Default options: the exporter folds normalizations, and transposes weights.
    ("cnn_folded", Cnn, IMAGE, export_dynamo, {}),
    ("gpt_folded", Gpt, TOKENS, export_dynamo, {}),
    ("convolution_torchscript_folded", Convolution, IMAGE, export_torchscript, {}),
]


def write(name: str, make, sample: torch.Tensor, export, options: dict) -> None:
    directory = FOLDER / name
    directory.mkdir(parents=True)
    network = seed_weights(make(), 0)
    model = export(network, (sample,), **options)
    (directory / "model.onnx").write_bytes(model.SerializeToString(deterministic=True))

    other = seed_weights(make(), 1)
    state = other.state_dict()
    (directory / "checkpoint.pt").write_bytes(formats.saved(state, name))
    once, seen = {}, set()
    for key, value in state.items():
        if value.data_ptr() not in seen:
            once[key] = value.contiguous()
        seen.add(value.data_ptr())
    (directory / "checkpoint.safetensors").write_bytes(to_safetensors(once, metadata={"format": "pt"}))
    with torch.no_grad():
        output = other(sample)
        assert (output - network(sample)).abs().max() > 0.05, "the weights make a difference"
    (directory / "io.safetensors").write_bytes(to_safetensors({"input": sample, "output": output.contiguous()}))
    size = sum(f.stat().st_size for f in directory.iterdir())
    print(f"{name}: {size / 1000:.1f} kB", flush=True)


def main() -> None:
    torch.set_num_threads(1)
    torch.backends.mha.set_fastpath_enabled(False)
    shutil.rmtree(FOLDER, ignore_errors=True)
    for case in CASES:
        torch.manual_seed(0)
        write(*case)


if __name__ == "__main__":
    main()
