"""One module through every exporter: how each spells what passes raise, and where each puts the scopes."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from fixture_lib.registry import case
from fixture_lib.torch_case import torch_case


def floats(*shape, seed=7):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


class SelfAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, d))


class FeedForward(nn.Module):
    def __init__(self, dim, approximate):
        super().__init__()
        self.up, self.act, self.down = nn.Linear(dim, 2 * dim), nn.GELU(approximate), nn.Linear(2 * dim, dim)

    def forward(self, x):
        return self.down(self.act(self.up(x)))


class Block(nn.Module):
    def __init__(self, dim, heads, approximate="none"):
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(dim), SelfAttention(dim, heads)
        self.norm2, self.feed_forward = nn.LayerNorm(dim), FeedForward(dim, approximate)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.feed_forward(self.norm2(x))


class Scoped(nn.Module):
    """Three equal blocks in a ModuleList, one that differs, a module that is used twice, a bare parameter."""

    def __init__(self, dim=16):
        super().__init__()
        self.stem = nn.Sequential(nn.Linear(6, dim), nn.ReLU())
        self.scale = nn.Parameter(torch.ones(dim))
        self.blocks = nn.ModuleList(Block(dim, 2) for _ in range(3))
        self.last = Block(dim, 4, "tanh")
        self.shared_norm = nn.LayerNorm(dim)
        self.heads = nn.ModuleDict({"left": nn.Linear(dim, 3), "right": nn.Linear(dim, 2)})

    def forward(self, x):
        x = self.stem(x) * self.scale
        for block in self.blocks:
            x = block(x)
        x = self.shared_norm(self.last(self.shared_norm(x)))
        return self.heads["left"](x), self.heads["right"](x)


def scoped(**kw):
    return torch_case(Scoped(), [(floats(2, 5, 6),)], **kw)


@case("scopes_dynamo")
def scopes_dynamo(_):
    return scoped()


@case("scopes_dynamo_unfolded")
def scopes_dynamo_unfolded(_):
    return scoped(optimize=False)


@case("scopes_dynamic")
def scopes_dynamic(_):
    batch, seq = torch.export.Dim("batch", min=1, max=16), torch.export.Dim("seq", min=2, max=64)
    return torch_case(Scoped(), [(floats(2, 5, 6),), (floats(1, 3, 6),)], dynamic_shapes={"x": {0: batch, 1: seq}})


@case("scopes_torchscript")
def scopes_torchscript(_):
    return scoped(torchscript=True, opset=17)


@case("scopes_torchscript_dynamic")
def scopes_torchscript_dynamic(_):
    """Sizes that are read from the input: Shape, Gather, Unsqueeze, Concat, Reshape."""
    return torch_case(
        Scoped(),
        [(floats(2, 5, 6),), (floats(1, 3, 6),)],
        torchscript=True,
        opset=14,
        input_names=["x"],
        output_names=["left", "right"],
        dynamic_axes={"x": {0: "batch", 1: "seq"}},
    )


@case("scopes_none")
def scopes_none(_):
    """The same network when every name and scope has been thrown away."""
    return without_names(scoped())


def without_names(made):
    graph = made.model.graph
    kept = {v.name for v in [*graph.input, *graph.output]}
    short: dict[str, str] = {}

    def rename(name):
        if not name or name in kept:
            return name
        return short.setdefault(name, f"t{len(short)}")

    for tensor in graph.initializer:
        tensor.name = rename(tensor.name)
    del graph.value_info[:], graph.metadata_props[:]
    for node in graph.node:
        node.name = ""
        del node.metadata_props[:]
        node.input[:] = [rename(n) for n in node.input]
        node.output[:] = [rename(n) for n in node.output]
    return made


def attention_by_hand(q, k, v, attn_mask=None, is_causal=False):
    scores = torch.matmul(q, k.transpose(-2, -1)) / q.shape[-1] ** 0.5
    if is_causal:
        scores = scores.masked_fill(torch.arange(q.shape[-2])[:, None] < torch.arange(q.shape[-2]), float("-inf"))
    elif attn_mask is not None:
        scores = scores + attn_mask
    return torch.matmul(scores.softmax(-1), v)


class RmsNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


class Spellings(nn.Module):
    """What has an operator of its own in one opset and is spelled out in another."""

    def __init__(self, dim=16, attend=F.scaled_dot_product_attention):
        super().__init__()
        self.attend = attend
        self.layer_norm, self.bare_norm = nn.LayerNorm(dim), nn.LayerNorm(dim, elementwise_affine=False)
        self.rms_norm = nn.RMSNorm(dim, eps=1e-6)
        self.group_norm, self.instance_norm = nn.GroupNorm(4, dim), nn.InstanceNorm1d(dim, affine=True)
        self.batch_norm = nn.BatchNorm1d(dim)

    def forward(self, x, mask):
        y = x.transpose(1, 2)
        norms = (
            self.layer_norm(x),
            self.bare_norm(x),
            self.rms_norm(x),
            self.group_norm(y),
            self.instance_norm(y),
            self.batch_norm(y),
        )
        activations = (
            F.gelu(x),
            F.gelu(x, approximate="tanh"),
            F.silu(x),
            F.mish(x),
            F.hardswish(x),
            F.softplus(x),
            F.relu6(x),
            F.selu(x),
        )
        attention = self.attend(x[:, None], x[:, None], x[:, None], attn_mask=mask)
        causal = self.attend(x[:, None], x[:, None], x[:, None], is_causal=True)
        others = (
            F.normalize(x, dim=-1),
            x.logsumexp(-1),
            x.std(-1),
            x.var((1, 2), unbiased=False),
            F.glu(x),
            x.clamp(min=-0.5),
            x.clamp(-0.5, 0.5),
        )
        return *norms, *activations, attention, causal, *others


SPELLINGS = {
    "dynamo_18": dict(opset=18),
    "dynamo_18_unfolded": dict(opset=18, optimize=False),
    "dynamo_20": dict(opset=20),
    "dynamo_23": dict(opset=23),
    "torchscript_12": dict(torchscript=True, opset=12),
    "torchscript_14": dict(torchscript=True, opset=14),
    "torchscript_17": dict(torchscript=True, opset=17),
}


def register_spellings():
    for name, options in SPELLINGS.items():

        @case(f"spellings_{name}")
        def make(_, options=options):
            # scaled_dot_product_attention exports to opset 14 and later.
            module = Spellings(attend=attention_by_hand) if options["opset"] < 14 else Spellings()
            if "torchscript" in options:  # which has no rms_norm
                module.rms_norm = RmsNorm(16)
            return torch_case(module, [(floats(2, 6, 16), floats(1, 1, 6, 6, seed=8))], **options)


register_spellings()
