"""Small networks around one layer or operation each, with the shape of what they take."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F


@dataclasses.dataclass
class Network:
    shape: tuple[int, ...]
    compute: Callable
    parts: dict[str, nn.Module | nn.Parameter]
    # Whether a linear layer comes first, so that something learns.
    led: bool = False
    # Words up to this number, instead of floats.
    words: int | None = None


NETWORKS: dict[str, Network] = {}


class Built(nn.Module):
    def __init__(self, network: Network, parts: dict):
        super().__init__()
        self.compute, self.led = network.compute, network.led
        if self.led:
            self.first = nn.Linear(network.shape[-1], network.shape[-1])
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x):
        return self.compute(self, self.first(x) if self.led else x)


def add(name: str, shape: tuple[int, ...], compute: Callable, **parts) -> None:
    NETWORKS[name] = Network(shape, compute, parts)


def rows(name: str, compute: Callable) -> None:
    """An operation on `[4, 5, 6]`."""
    NETWORKS[f"row_{name}"] = Network((4, 5, 6), lambda net, x: compute(x), {}, led=True)


def sequence(name: str, compute: Callable, **parts) -> None:
    NETWORKS[f"seq_{name}"] = Network((2, 5, 6), compute, parts, led=True)


def image(name: str, compute: Callable, shape: tuple[int, ...] = (2, 4, 9, 8), **parts) -> None:
    add(f"img_{name}", shape, compute, **parts)


def pixels(name: str, compute: Callable) -> None:
    """An operation behind a convolution."""
    image(f"op_{name}", lambda net, x: compute(net.conv(x)), conv=nn.Conv2d(4, 4, 3, padding=1))


def text(name: str, compute: Callable, **parts) -> None:
    NETWORKS[f"txt_{name}"] = Network((2, 5), compute, parts, words=9)


def parameter(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.zeros(*shape))


def activations() -> None:
    for f in (
        *(F.relu, F.relu6, F.selu, F.gelu, F.silu, F.mish, F.hardswish, F.hardsigmoid, F.hardtanh, F.softsign),
        *(F.tanhshrink, F.softshrink, F.hardshrink, F.logsigmoid, torch.sigmoid, torch.tanh),
    ):
        rows(f.__name__, f)
    rows("elu", lambda x: F.elu(x, 0.7))
    rows("celu", lambda x: F.celu(x, 1.3))
    rows("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"))
    rows("softplus", lambda x: F.softplus(x, 2.0))
    rows("leaky_relu", lambda x: F.leaky_relu(x, 0.2))
    rows("threshold", lambda x: F.threshold(x, 0.1, -0.3))
    rows("glu", lambda x: F.glu(x, -1))
    rows("softmax", lambda x: F.softmax(x, -1))
    rows("softmax_first", lambda x: F.softmax(x, 0))
    rows("log_softmax", lambda x: F.log_softmax(x, 1))


def elementwise() -> None:
    for f in (
        *(torch.sin, torch.cos, torch.atan, torch.sinh, torch.cosh, torch.asinh, torch.erf, torch.expm1, torch.abs),
        *(torch.tril, torch.square),
    ):
        rows(f.__name__, f)
    rows("exp", lambda x: torch.exp(x * 0.5))
    rows("tan", lambda x: torch.tan(x * 0.3))
    rows("asin", lambda x: torch.asin(torch.tanh(x) * 0.9))
    rows("acos", lambda x: torch.acos(torch.tanh(x) * 0.9))
    rows("acosh", lambda x: torch.acosh(x.abs() + 1.5))
    rows("atanh", lambda x: torch.atanh(torch.tanh(x) * 0.8))
    rows("log", lambda x: torch.log(x.abs() + 0.3))
    rows("log1p", lambda x: torch.log1p(x.abs()))
    rows("sqrt", lambda x: torch.sqrt(x * x + 0.5))
    rows("rsqrt", lambda x: torch.rsqrt(x * x + 0.5))
    rows("reciprocal", lambda x: 1 / (x * x + 0.7))
    rows("cube", lambda x: x**3)
    rows("pow", lambda x: torch.pow(x.abs() + 0.5, x))
    rows("pow_of_number", lambda x: torch.pow(2.0, x))
    rows("sign", lambda x: x * torch.sign(x))
    rows("fraction", lambda x: x - torch.floor(x))
    rows("round", lambda x: x * torch.round(x))
    rows("clamp", lambda x: torch.clamp(x, -0.5, 0.7))
    rows("clamp_min", lambda x: x.clamp(min=0.1))
    rows("remainder", lambda x: torch.remainder(x, 0.7))
    rows("fmod", lambda x: torch.fmod(x, 0.7))
    rows("atan2", lambda x: torch.atan2(x, x.flip(-1) + 0.1))
    rows("maximum", lambda x: torch.maximum(x, x.flip(-1) * 0.7))
    rows("minimum", lambda x: torch.minimum(x, torch.tensor(0.2)) * x)
    rows("where", lambda x: torch.where(x > 0, x * 2, x * x))
    rows("where_rows", lambda x: torch.where(x.sum(-1, keepdim=True) > 0, x, -x * x))
    rows("masked_fill", lambda x: x.masked_fill(x < 0, 0.5) * x)
    rows("addcmul", lambda x: torch.addcmul(x, x, x.flip(-1), value=0.3))
    rows("lerp", lambda x: torch.lerp(x, x.flip(1), 0.3))


def reductions() -> None:
    rows("logsumexp", lambda x: torch.logsumexp(x, -1))
    rows("logsumexp_both", lambda x: torch.logsumexp(x, (0, 1), keepdim=True))
    rows("cumsum", lambda x: torch.cumsum(x, 1))
    rows("std", lambda x: x.std(-1))
    rows("var", lambda x: x.var(-1, unbiased=False))
    rows("norm", lambda x: x.norm(dim=-1))
    rows("norm_1", lambda x: x.norm(p=1, dim=1))
    rows("norm_inf", lambda x: x.norm(p=float("inf"), dim=-1))
    rows("normalize", lambda x: F.normalize(x, dim=-1))
    rows("prod", lambda x: (x + 1.1).prod(-1))
    rows("max", lambda x: x.max(-1)[0])
    rows("min", lambda x: x.min(1)[0])
    rows("amax", lambda x: x.amax((0, 2)))
    rows("mean", lambda x: x.mean((0, 1)))
    rows("sum", lambda x: x.sum(1, keepdim=True))
    rows("min_max", lambda x: (x - x.min()) / (x.max() - x.min() + 1e-3))
    rows("topk", lambda x: x.topk(3, -1)[0])
    rows("topk_smallest", lambda x: x.topk(2, 1, largest=False)[0])
    rows("sort", lambda x: x.sort(1, descending=True)[0])
    rows("layer_norm", lambda x: F.layer_norm(x, (5, 6)))
    rows("rms", lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5))
    rows("mse", lambda x: F.mse_loss(x, torch.ones_like(x)))
    rows("huber", lambda x: F.smooth_l1_loss(x, torch.zeros_like(x), reduction="none"))
    rows("bce", lambda x: F.binary_cross_entropy_with_logits(x, torch.full_like(x, 0.3)))
    rows("cross_entropy", lambda x: F.cross_entropy(x.transpose(1, 2), torch.tensor([[0, 1, 2, 3, 4]] * 4)))
    rows("kl", lambda x: F.kl_div(F.log_softmax(x, -1), torch.full_like(x, 1 / 6), reduction="batchmean"))


def movement() -> None:
    count = lambda n: torch.arange(float(n))
    rows("roll", lambda x: torch.roll(x, (1, 2), (1, 2)) * count(6))
    rows("flip", lambda x: torch.flip(x, [0, 2]) * count(6))
    rows("diagonal", lambda x: torch.diagonal(x, dim1=1, dim2=2))
    rows("repeat", lambda x: x.repeat(2, 1, 3) * count(18))
    rows("repeat_interleave", lambda x: x.repeat_interleave(2, dim=1) * count(6))
    rows("expand", lambda x: x[:, None].expand(4, 3, 5, 6) * count(3)[:, None, None])
    rows("stack", lambda x: torch.stack([x, x * 2, x**2], 1))
    rows("split", lambda x: x.split([2, 4], -1)[0] * x.split([2, 4], -1)[1][..., :2])
    rows("step", lambda x: x[:, ::2, 1:] * 2)
    rows("gather", lambda x: x.gather(-1, torch.tensor([[[0, 3, 3]]]).expand(4, 5, 3)))
    rows("index", lambda x: x[:, [0, 2, 2]])
    rows("index_pairs", lambda x: x[torch.tensor([0, 1, 1]), torch.tensor([2, 2, 3])])
    rows("scatter_add", lambda x: torch.zeros(4, 5, 8).scatter_add(-1, torch.tensor([0, 1, 1, 7, 3, 0]).expand(4, 5, 6), x) ** 2)
    rows("scatter", lambda x: torch.ones(4, 5, 8).scatter(-1, torch.tensor([0, 1, 2, 7, 3, 4]).expand(4, 5, 6), x) ** 2)
    rows("pad", lambda x: F.pad(x, (1, 2, 0, 1), value=0.3) * count(9))
    for mode in ("reflect", "replicate", "circular"):
        rows(f"pad_{mode}", lambda x, mode=mode: F.pad(x, (2, 1), mode=mode) * count(9))
    rows("bmm", lambda x: x @ x.transpose(1, 2))
    rows("einsum", lambda x: torch.einsum("bij,bik->bjk", x, x.tanh()))
    rows("outer", lambda x: x.unsqueeze(-1) * x.unsqueeze(-2))
    rows("cross", lambda x: torch.cross(x[..., :3], x[..., 3:], -1))
    rows("cosine", lambda x: F.cosine_similarity(x, x.flip(1) + 0.3, dim=-1))
    rows("permute", lambda x: x.permute(2, 0, 1).reshape(6, -1)[:, ::3] ** 2)


def layers_of_images() -> None:
    conv = nn.Conv2d
    one = lambda net, x: net.layer(x)
    both = lambda net, x: net.norm(net.layer(x))
    image("conv", one, layer=conv(4, 6, 3, padding=1))
    image("conv_stride", one, layer=conv(4, 6, 3, stride=2, padding=1, bias=False))
    image("conv_dilation", one, layer=conv(4, 6, 3, dilation=2, padding=2))
    image("conv_groups", one, layer=conv(4, 6, (3, 1), groups=2))
    image("conv_depthwise", one, layer=conv(4, 8, 3, groups=4, padding=(1, 0)))
    image("conv_one", one, layer=conv(4, 5, 1))
    image("conv_same", one, layer=conv(4, 6, (2, 4), padding="same"))
    for mode in ("reflect", "replicate", "circular"):
        image(f"conv_{mode}", one, layer=conv(4, 6, 3, padding=1, padding_mode=mode))
    image("conv_relu", lambda net, x: F.relu(net.layer(x)), layer=conv(4, 5, 3))
    image("conv_silu", lambda net, x: F.silu(net.layer(x)) + net.skip(x), layer=conv(4, 5, 3), skip=conv(4, 5, 3))
    image("conv_transpose", one, layer=nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1))
    image("conv_transpose_groups", one, layer=nn.ConvTranspose2d(4, 6, 2, stride=2, groups=2, bias=False))
    image("batch_norm", both, layer=conv(4, 6, 3), norm=nn.BatchNorm2d(6))
    image("batch_norm_relu", lambda net, x: F.relu(both(net, x)), layer=conv(4, 6, 3, bias=False), norm=nn.BatchNorm2d(6))
    image("batch_norm_skip", lambda net, x: F.relu(both(net, x) + x), layer=conv(4, 4, 3, padding=1), norm=nn.BatchNorm2d(4))
    image("batch_norm_first", lambda net, x: net.layer(F.relu(net.norm(x))), layer=conv(4, 6, 3), norm=nn.BatchNorm2d(4))
    image("group_norm", both, layer=conv(4, 6, 3), norm=nn.GroupNorm(3, 6))
    image("instance_norm", both, layer=conv(4, 6, 3), norm=nn.InstanceNorm2d(6, affine=True))
    image("local_response_norm", both, layer=conv(4, 6, 3), norm=nn.LocalResponseNorm(3))
    image("layer_norm", lambda net, x: net.norm(x.permute(0, 2, 3, 1)), norm=nn.LayerNorm(4))
    line = (3, 4, 11)
    image("lines", lambda net, x: net.up(F.relu(net.layer(x))), line, layer=nn.Conv1d(4, 6, 3), up=nn.ConvTranspose1d(6, 2, 4, stride=2))
    image("lines_norm", lambda net, x: F.max_pool1d(both(net, x), 2), line, layer=nn.Conv1d(4, 6, 3, dilation=2), norm=nn.BatchNorm1d(6))
    image("volumes", lambda net, x: F.avg_pool3d(both(net, x), 2), (2, 3, 5, 6, 7), layer=nn.Conv3d(3, 4, 3), norm=nn.BatchNorm3d(4))
    image("volumes_transpose", lambda net, x: F.max_pool3d(net.layer(x), 2), (2, 3, 3, 4, 4), layer=nn.ConvTranspose3d(3, 4, 3, stride=2))


def operations_on_images() -> None:
    pixels("max_pool", lambda x: F.max_pool2d(x, 3, 2, 1))
    pixels("max_pool_ceil", lambda x: F.max_pool2d(x, 2, 2, ceil_mode=True))
    pixels("max_pool_dilation", lambda x: F.max_pool2d(x, 2, 1, dilation=2))
    pixels("avg_pool", lambda x: F.avg_pool2d(x, 3, 2, 1))
    pixels("avg_pool_inside", lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False))
    pixels("avg_pool_ceil", lambda x: F.avg_pool2d(x, 2, 3, ceil_mode=True))
    pixels("adaptive_avg_pool", lambda x: F.adaptive_avg_pool2d(x, (3, 4)))
    pixels("global_max_pool", lambda x: F.adaptive_max_pool2d(x, 1))
    # All elements are equal: to each other, or to the other operand.
    equal = lambda net, x: torch.where(x > 99, x, net.level)
    tied = lambda name, compute: image(f"tied_{name}", compute, (2, 4, 6, 4), level=nn.Parameter(torch.ones(4, 6, 4)))
    tied("global_max_pool", lambda net, x: F.adaptive_max_pool2d(equal(net, x), 1))
    tied("global_max_pool_indices", lambda net, x: F.adaptive_max_pool2d(equal(net, x), 1, return_indices=True)[0])
    tied("whole_max_pool", lambda net, x: F.max_pool2d(equal(net, x), (6, 4)))
    tied("amax", lambda net, x: equal(net, x).amax((2, 3)))
    tied("maximum", lambda net, x: torch.maximum(equal(net, x), torch.tensor(1.0)) * x)
    tied("minimum", lambda net, x: torch.exp(torch.minimum(equal(net, x), torch.tensor([1.0])) * x) + 1)
    tied("clamp", lambda net, x: torch.clamp(equal(net, x), 0.0, 1.0) * x)
    tied("clamp_tensor", lambda net, x: torch.clamp(equal(net, x), torch.tensor(0.0), torch.tensor(1.0)) * x)
    pixels("lp_pool", lambda x: F.lp_pool2d(x.abs() + 0.1, 2, 2))
    pixels("nearest", lambda x: F.interpolate(x, scale_factor=2))
    pixels("linear", lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"))
    pixels("linear_corners", lambda x: F.interpolate(x, size=(13, 11), mode="bilinear", align_corners=True))
    pixels("cubic", lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"))
    pixels("linear_down", lambda x: F.interpolate(x, size=(4, 5), mode="bilinear"))
    pixels("antialias", lambda x: F.interpolate(x, size=(4, 5), mode="bilinear", antialias=True))
    pixels("pixel_unshuffle", lambda x: F.pixel_unshuffle(x[:, :, :8], 2))
    pixels("pixel_shuffle", lambda x: F.pixel_shuffle(x, 2))
    pixels("unfold", lambda x: F.unfold(x, 3, padding=1, stride=2))
    pixels("fold", lambda x: F.fold(F.unfold(x, 2, stride=2, padding=(1, 0)), (9, 8), 2, stride=2, padding=(1, 0)))
    pixels("squeeze_excite", lambda x: x * torch.sigmoid(x.mean((2, 3), keepdim=True)))
    pixels("grid_sample", lambda x: F.grid_sample(x, torch.tanh(x[:, :2].permute(0, 2, 3, 1)) * 0.9, align_corners=False))
    pixels("gram", lambda x: x.flatten(2) @ x.flatten(2).transpose(1, 2) / 72)


def heads(x: torch.Tensor, count: int) -> torch.Tensor:
    return x.reshape(2, 5, count, -1).transpose(1, 2)


def attended(net, x, **options):
    q, k, v = (heads(layer(x), 2) for layer in (net.q, net.k, net.v))
    return F.scaled_dot_product_attention(q, k, v, **options).transpose(1, 2).reshape(2, 5, 8)


def rotary(net, x):
    angle = torch.arange(5.0)[:, None] * torch.tensor([1.0, 0.1])
    cos, sin = torch.cat([angle.cos()] * 2, -1), torch.cat([angle.sin()] * 2, -1)
    turned = lambda y: y * cos + torch.cat([-y[..., 2:], y[..., :2]], -1) * sin
    q, k, v = (heads(layer(x), 2) for layer in (net.q, net.k, net.v))
    attended = F.scaled_dot_product_attention(turned(q), turned(k), v, is_causal=True)
    return attended.transpose(1, 2).reshape(2, 5, 8)


def grouped(net, x):
    q, (k, v) = heads(net.q(x), 4), (heads(layer(x), 2).repeat_interleave(2, 1) for layer in (net.k, net.v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(2, 5, 16)


def layers_of_sequences() -> None:
    linear = lambda outputs=8, bias=True: nn.Linear(6, outputs, bias=bias)
    three = lambda: {"q": linear(), "k": linear(), "v": linear()}
    first = lambda net, x: net.layer(x)[0]
    one = lambda net, x: net.layer(x)
    for kind, layer in (("lstm", nn.LSTM), ("gru", nn.GRU), ("rnn", nn.RNN)):
        sequence(kind, first, layer=layer(6, 4, batch_first=True))
        sequence(f"{kind}_deep", first, layer=layer(6, 4, 2, bidirectional=True, batch_first=True))
    sequence("rnn_relu", first, layer=nn.RNN(6, 4, nonlinearity="relu", bidirectional=True, batch_first=True))
    sequence("lstm_cell", lambda net, x: torch.cat(net.layer(x[:, 0], (x[:, 1, :4], x[:, 2, :4])), -1), layer=nn.LSTMCell(6, 4))
    sequence("gru_cell_twice", lambda net, x: net.layer(x[:, 0], net.layer(x[:, 1])), layer=nn.GRUCell(6, 4))
    sequence("attention_layer", lambda net, x: net.layer(x, x, x, need_weights=False)[0], layer=nn.MultiheadAttention(6, 2, batch_first=True))
    sequence("attention_weights", lambda net, x: sum(y.sum(-1) for y in net.layer(x, x.flip(1), x)), layer=nn.MultiheadAttention(6, 3, batch_first=True))
    sequence("encoder", one, layer=nn.TransformerEncoderLayer(6, 2, 8, 0.0, batch_first=True))
    sequence("encoder_norm_first", one, layer=nn.TransformerEncoderLayer(6, 2, 8, 0.0, "gelu", norm_first=True, batch_first=True))
    sequence("decoder", lambda net, x: net.layer(x, x.flip(1)), layer=nn.TransformerDecoderLayer(6, 2, 8, 0.0, batch_first=True))
    sequence("attention", attended, **three())
    sequence("attention_causal", lambda net, x: attended(net, x, is_causal=True), **three())
    sequence("attention_mask", lambda net, x: attended(net, x, attn_mask=torch.ones(5, 5).tril().bool()), **three())
    sequence("attention_bias", lambda net, x: attended(net, x, attn_mask=net.bias), **three(), bias=parameter(2, 5, 5))
    sequence("attention_scale", lambda net, x: attended(net, x, scale=0.2), **three())
    sequence("attention_grouped", grouped, q=linear(16, False), k=linear(8, False), v=linear(8, False))
    sequence("attention_rotary", rotary, **three())
    sequence("layer_norm", one, layer=nn.LayerNorm(6))
    sequence("layer_norm_skip", lambda net, x: net.norm(x + net.layer(x)), norm=nn.LayerNorm(6), layer=linear(6))
    sequence("rms_norm", one, layer=nn.RMSNorm(6))
    sequence("batch_norm", lambda net, x: net.layer(x.transpose(1, 2)), layer=nn.BatchNorm1d(6))
    sequence("prelu", one, layer=nn.PReLU(5))
    sequence("bilinear", lambda net, x: net.layer(x, x.flip(1)), layer=nn.Bilinear(6, 6, 3))
    sequence("swiglu", lambda net, x: net.down(F.silu(net.gate(x)) * net.up(x)), gate=linear(), up=linear(), down=nn.Linear(8, 6))
    sequence("experts", lambda net, x: (torch.softmax(net.router(x), -1).unsqueeze(-2) * torch.stack([net.a(x), net.b(x)], -1)).sum(-1), router=linear(2), a=linear(4), b=linear(4))
    sequence("weight_norm", one, layer=nn.utils.parametrizations.weight_norm(nn.Linear(6, 4)))
    sequence("again", lambda net, x: net.layer(torch.tanh(net.layer(torch.tanh(net.layer(x))))), layer=linear(6))
    sequence("tied", lambda net, x: F.linear(torch.tanh(net.layer(x)), net.layer.weight.t()), layer=linear(3))
    sequence("parameters", lambda net, x: x * net.scale + net.shift.softmax(0), scale=parameter(6), shift=parameter(6))


def layers_of_text() -> None:
    table = nn.Embedding
    text("embedding", lambda net, x: net.table(x), table=table(9, 6))
    text("positions", lambda net, x: net.norm(net.table(x) + net.places(torch.arange(5))), table=table(9, 6), places=table(5, 6), norm=nn.LayerNorm(6))
    text("tied", lambda net, x: torch.tanh(net.table(x)) @ net.table.weight.t(), table=table(9, 6))
    text("one_hot", lambda net, x: F.one_hot(x, 9).float() @ net.weight, weight=parameter(9, 4))
    text("mean", lambda net, x: (net.table(x) * (x > 2).unsqueeze(-1)).sum(1) / (x > 2).sum(1, keepdim=True).clamp(min=1), table=table(9, 6))
    text("largest", lambda net, x: net.table(x).max(1)[0], table=table(9, 6))


for part in (activations, elementwise, reductions, movement, layers_of_images, operations_on_images, layers_of_sequences, layers_of_text):
    part()
