"""Exported programs of PyTorch: networks, what changes in place, control flow, and every operator that Kiln has a rule for."""

from __future__ import annotations

import torch
from torch import nn
from torch.export import Dim
from torch.nn import functional as F

from fixture_lib.export import seed_weights
from fixture_lib.program import Program
from fixture_lib.registry import case

BATCH = Dim("batch", min=1, max=64)


def program(name: str):
    return case(name, folder="programs")


class Computes(nn.Module):
    """A function as a network."""

    def __init__(self, compute, **parts):
        super().__init__()
        self.compute = compute
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *inputs):
        return self.compute(*inputs)


def randn(*shape):
    return torch.randn(*shape)


# ---- networks ----


class Residual(nn.Module):
    def __init__(self, channels: int, step: int):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels * step, 3, step, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels * step)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(channels * step, channels * step, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels * step)
        self.shortcut = nn.Conv2d(channels, channels * step, 1, step) if step > 1 else nn.Identity()

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        y += self.shortcut(x)
        return self.relu(y)


class ResidualNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2))
        self.blocks = nn.ModuleList([Residual(8, 1), Residual(8, 2), Residual(16, 1)])
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Sequential(nn.Dropout(0.2), nn.Linear(16, 10))

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(torch.flatten(self.pool(x), 1))


@program("residual")
def residual(_):
    """A small ResNet: convolutions, batch normalization, ReLU and sums in place, pooling; batches of any size."""
    images = [(randn(n, 3, 16, 16),) for n in (2, 3)]
    return Program(seed_weights(ResidualNet()), images, ({0: BATCH},))


class Attention(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        b, n, width = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, n, width))


class Experts(nn.Module):
    """Each token goes to two of the experts; those with no token compute nothing."""

    def __init__(self, width: int, inner: int, experts: int):
        super().__init__()
        self.router = nn.Linear(width, experts, bias=False)
        self.up = nn.Parameter(torch.empty(experts, inner, width))
        self.down = nn.Parameter(torch.empty(experts, width, inner))

    def forward(self, x):
        weights, chosen = self.router(x).softmax(-1).topk(2)
        expert, order = chosen.flatten().sort()
        counts = torch.histc(expert.float(), bins=len(self.up), min=0, max=len(self.up) - 1)
        ends = counts.cumsum(0, dtype=torch.int32)
        hidden = torch._grouped_mm(x[order // 2], self.up.transpose(1, 2), offs=ends)
        hidden = torch._grouped_mm(F.silu(hidden), self.down.transpose(1, 2), offs=ends)
        hidden = hidden * weights.flatten()[order, None]
        return torch.zeros_like(x).index_add(0, order // 2, hidden)


class ExpertsNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList([nn.RMSNorm(16) for _ in range(2)])
        self.experts = nn.ModuleList([Experts(16, 32, 6) for _ in range(2)])

    def forward(self, x):
        for norm, experts in zip(self.norms, self.experts):
            x = x + experts(norm(x))
        return x


@program("experts")
def experts(_):
    """A mixture of experts: tokens are sorted by expert, and each expert's rows are multiplied by its matrices."""
    tokens = [(randn(n, 16),) for n in (9, 1)]
    return Program(seed_weights(ExpertsNet()), tokens, ({0: Dim("tokens", min=1, max=64)},))


class Layer(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, 4)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Language(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(50, 16), nn.Embedding(32, 16)
        self.layers = nn.ModuleList([Layer(16) for _ in range(3)])
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, 50, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for layer in self.layers:
            x = layer(x)
        return {"logits": self.head(self.norm(x)), "hidden": [x[:, 0], x[:, -1]]}


def language(decomposed: bool):
    tokens = [(torch.randint(0, 50, shape),) for shape in ((2, 7), (1, 12))]
    dims = ({0: BATCH, 1: Dim("length", min=2, max=32)},)
    return Program(seed_weights(Language()), tokens, dims, decomposed)


@program("language")
def language_as_it_is(_):
    """A causal transformer whose head is its table of embeddings; results in a dict; any batch and length."""
    return language(decomposed=False)


@program("language_decomposed")
def language_decomposed(_):
    """The same in the core of ATen's operators."""
    return language(decomposed=True)


class GroupedAttention(nn.Module):
    """Two heads of keys and values for four of queries, repeated as decoders do."""

    def __init__(self, width: int):
        super().__init__()
        size = width // 4
        self.query, self.key, self.value = nn.Linear(width, width), nn.Linear(width, 2 * size), nn.Linear(width, 2 * size)
        self.out = nn.Linear(width, width)

    def forward(self, x, mask):
        b, n, width = x.shape
        q, k, v = (layer(x).view(b, n, -1, width // 4).transpose(1, 2) for layer in (self.query, self.key, self.value))
        k, v = (x[:, :, None].expand(b, 2, 2, n, width // 4).reshape(b, 4, n, width // 4) for x in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, mask.expand(b, 1, n, n), scale=(width // 4) ** -0.5)
        return self.out(y.transpose(1, 2).reshape(b, n, width))


class ScaledLayer(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attention = GroupedAttention(width)
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x, mask):
        return x + self.scale * self.attention(self.norm(x), mask)


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([ScaledLayer(16) for _ in range(3)])
        self.last = ScaledLayer(16)

    def forward(self, x, mask):
        seen, all = mask[:, None, None].bool(), torch.ones(1, 1, 1, 1, dtype=torch.bool)
        for layer in self.layers:
            x = layer(x, seen)
        return self.last(x, all)


@program("layer_scale")
def layer_scale(_):
    """Layers that scale what a module in them yields: its weights are made of a parameter of the module around it."""
    inputs = [(randn(n, 5, 16), torch.arange(5).expand(n, 5).lt(3 + torch.arange(n)[:, None]).long()) for n in (2, 3)]
    return Program(seed_weights(Scaled()), inputs, ({0: BATCH}, {0: BATCH}))


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(30, 6)
        self.lstm = nn.LSTM(6, 5, num_layers=2, bidirectional=True, batch_first=True)
        self.gru = nn.GRU(10, 4)
        self.head = nn.Linear(4, 3)

    def forward(self, words):
        x, (h, c) = self.lstm(self.embedding(words))
        y, last = self.gru(x.transpose(0, 1))
        return self.head(y).log_softmax(-1), h, c, last


@program("tagger")
def tagger(_):
    """Recurrent layers: two bidirectional ones, and one that has time first."""
    return Program(seed_weights(Tagger()), [(torch.randint(0, 30, (2, 9)),)])


# ---- what programs do beside computing ----


class InPlace(nn.Module):
    def forward(self, x):
        x = x.clone()
        x[:, 0] = 0
        x[0, 2:4] = 7.0
        rows = x.view(12, 5)
        rows[3].mul_(2)
        turned = x.transpose(0, 2)[1:3]
        turned.fill_(3)
        x[..., ::2] += 1
        left, right = x.chunk(2, 1)
        left.clamp_(max=2.0)
        copied = x.transpose(0, 1).reshape(4, 15)
        copied.add_(100)
        x.unsqueeze_(0)
        return x, rows, turned, right, copied


@program("in_place")
def in_place(_):
    """Views of views are written, and everything that shares their elements shows it; what is a copy does not."""
    return Program(InPlace(), [(randn(3, 4, 5),)])


class Given(nn.Module):
    """Results that are written into tensors which are given for them."""

    def forward(self, x, y):
        greatest = x[0] * 1
        for place in range(1, 3):
            torch.maximum(greatest, x[place], out=greatest)
        sums, rows = torch.zeros(3, 4, 5), torch.zeros(2, 4, 5)
        torch.add(x, y, alpha=2, out=sums)
        torch.mul(x[0], y, out=rows[1])
        torch.clamp(x[1], -0.5, 0.5, out=rows[0])
        products = torch.empty(3, 4, 4)
        view = products.flatten()
        torch.bmm(x, x.transpose(1, 2), out=products)
        # A dtype that follows from others, and that nobody reads as such.
        wide = x.to(torch.promote_types(x.dtype, y.dtype))
        return greatest, sums, rows, view, wide


@program("given_results")
def given_results(_):
    """What `out=` says is changed in place, with what shares its elements."""
    return Program(Given(), [(randn(3, 4, 5), randn(4, 5))])


class Shared(nn.Module):
    def forward(self, x):
        results = []

        def changed(view):
            """A view of a tensor that is changed afterwards."""
            base = x * 1
            shown = view(base)
            base.add_(1)
            results.append(shown)

        def written(view):
            """A tensor of which a view is changed."""
            base = x * 1
            view(base).mul_(2)
            results.append(base)

        aten = torch.ops.aten
        changed(lambda x: x.broadcast_to(2, 3, 4))
        changed(lambda x: torch.broadcast_tensors(x, x[0])[0])
        changed(lambda x: torch.meshgrid(x[0], x[:, 0], indexing="ij")[1])
        changed(lambda x: torch.atleast_3d([x, x])[1])
        changed(lambda x: x.sum_to_size(3, 4))
        changed(lambda x: x.sum_to_size(1, 4))
        changed(lambda x: x[:, ::2].ravel())
        changed(lambda x: x[:, 0].ravel())
        changed(lambda x: x[:, 0].flatten())
        changed(lambda x: x.to(x.dtype, copy=True))
        changed(lambda x: x.view(1, 3, 2, 2).contiguous(memory_format=torch.channels_last))
        changed(lambda x: x.view(1, 3, 2, 2).to(memory_format=torch.channels_last))
        for shared in (
            lambda x: aten._reshape_alias(x, [4, 3], [3, 1]),
            lambda x: +x,
            lambda x: x.ravel(),
            lambda x: x.to(x.dtype),
            lambda x: F.dropout(x, 0.5, False),
            lambda x: F.dropout1d(x, 0.5, False),
            lambda x: F.alpha_dropout(x, 0.5, False),
            lambda x: F.dropout(x, 0.0, True),
            lambda x: torch.unsafe_chunk(x, 2)[1],
        ):
            changed(shared)
            written(shared)
        return tuple(results)


@program("shared")
def shared(_):
    """What operators yield that is a view, or what they were given, and what is not: the one changes with its argument, the other does not."""
    return Program(Shared(), [(randn(3, 4),)])


class Grown(nn.Module):
    def forward(self, x):
        x = x * 1
        x[:, 0] = 0
        x[:, -1] += 1
        x[:, 1:] *= 2
        x[:, 1:-1].sub_(3)
        padded = F.pad(x, (0, 0, x.shape[1], 0))
        halves = x.reshape(x.shape[0], x.shape[1], 2, -1).mean(2)
        return x, padded, halves, x.flatten(0, 1), x * (x.shape[0] * 2 + x.shape[1] // 3), x.new_zeros(x.shape[1], 2)


@program("sizes")
def sizes(_):
    """Arithmetic with sizes that vary, and slices up to them."""
    dims = ({0: BATCH, 1: Dim("length", min=4, max=64)},)
    return Program(Grown(), [(randn(2, 6, 8),), (randn(3, 9, 8),)], dims)


class Choice(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(5, 5), nn.Linear(5, 5)

    def forward(self, x, mask):
        from torch._higher_order_ops.scan import scan
        from torch._higher_order_ops.while_loop import while_loop

        y = torch.cond(x.sum() > 0, lambda x: self.up(x), lambda x: self.down(x) - 1, (x,))
        rounds, z = while_loop(lambda i, z: i < 4, lambda i, z: (i + 1, z * 1.5 + 1), (torch.tensor(0), x))
        last, each = scan(lambda h, row: ((h + row).tanh(), h * 2), x[0], x, dim=0)
        with torch.no_grad():
            w = x.masked_fill(mask, -1.0)
        return y, rounds, z, last, each, w


@program("control_flow")
def control_flow(_):
    """A condition on data, a loop of as many rounds as data want, a scan over rows, and a part without gradients."""
    mask = torch.rand(3, 5) > 0.5
    return Program(seed_weights(Choice()), [(randn(3, 5), mask), (-randn(3, 5).abs(), mask)])
