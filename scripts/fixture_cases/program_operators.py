"""Programs of PyTorch that call operators one after the other: a program for each kind, whose results are all of theirs."""

from __future__ import annotations

import torch
from torch import nn
from torch.export import Dim
from torch.nn import functional as F

from fixture_cases.programs import Computes, program
from fixture_lib.program import Program


def floats(*shape):
    return torch.randn(*shape)


def integers(limit: int, *shape):
    return torch.randint(0, limit, shape)


def computes(compute, *inputs, **options) -> Program:
    return Program(Computes(compute), [inputs], **options)


@program("operators_unary")
def unary(_):
    """Functions of one number, activations among them, of floats and of integers."""

    def compute(x, p, i, b):
        plain = [torch.abs, torch.asinh, torch.atan, torch.ceil, torch.cos, torch.cosh, torch.erf, torch.erfc, torch.exp, torch.exp2]
        plain += [torch.expm1, torch.floor, torch.neg, torch.relu, torch.round, torch.sigmoid, torch.sign, torch.sin, torch.sinh]
        plain += [torch.tan, torch.tanh, torch.trunc, torch.frac, torch.square, torch.isnan, torch.isfinite, torch.isinf]
        plain += [F.logsigmoid, F.gelu, F.silu, F.mish, F.hardswish, F.hardsigmoid, F.softplus, F.selu, F.relu6, F.softshrink]
        plain += [F.hardshrink, F.tanhshrink, F.softsign, F.celu, F.leaky_relu, F.hardtanh]
        positive = [torch.log, torch.log2, torch.log10, torch.log1p, torch.sqrt, torch.rsqrt, torch.reciprocal]
        others = (
            torch.acosh(p + 1), torch.asin(p / 2), torch.acos(p / 2), torch.atanh(p / 2), torch.logit(p / 2, eps=0.1),
            F.gelu(x, approximate="tanh"), F.softplus(x, 2.0), F.elu(x, 0.7), F.threshold(x, 0.1, 20.0), F.glu(x, 1), F.rrelu(x),
            torch.nan_to_num(x / (x > 0)), torch.sqrt(i), torch.sin(i), torch.floor(i), -i, ~i, ~b, torch.logical_not(i),
            torch.signbit(x), torch.round(x, decimals=1),
        )  # fmt: skip
        return [f(x) for f in plain] + [f(p) for f in positive] + list(others)

    return computes(compute, floats(3, 4), torch.rand(3, 4) + 0.1, integers(9, 3, 4), integers(2, 3, 4) > 0)


@program("operators_binary")
def binary(_):
    """Functions of two numbers: dtypes are promoted, numbers are no tensors, and quotients are rounded in three ways."""

    def compute(x, y, i, j, b):
        p = y.abs() + 0.1
        quotients = [f(u, v) for u, v in ((x, p), (i - 4, j)) for f in QUOTIENTS]
        return quotients + [
            torch.add(x, y, alpha=2.5), i - x, 1 - x, b * ~b, i + 2.5, i + b, x / 3, i // 3, i % 3, torch.remainder(7, j),
            p**x, p**2, p**0.5, p**-1, 2**p, i**2, torch.maximum(x, y), torch.minimum(x, y), torch.fmax(x, y), torch.fmin(x, y),
            torch.atan2(x, y), torch.hypot(x, y), torch.copysign(x, y), torch.xlogy(x, p), torch.logaddexp(x, y),
            torch.heaviside(x, y), x < y, x >= 0, x == y, x != 0, i > 2, i <= 2.5, x > i, i & j, i | j, i ^ 3, b & b, b | ~b, b ^ b,
            i << 2, j >> 1, torch.logical_and(i, j), torch.logical_or(i, b), torch.logical_xor(i, b),
            torch.lerp(x, y, 0.3), torch.lerp(x, y, y), torch.addcmul(x, y, p, value=0.5), torch.addcdiv(x, y, p),
            x.clamp(-0.5, 0.5), x.clamp(min=0), x.clamp(max=y), i.clamp(2, 5), torch.where(b, i, 0), torch.where(b, 1.0, 0.0),
            i.masked_fill(b, -7), in_place(x, p, i), torch.true_divide(x, 3), torch.xlogy(x, 2.0), F.prelu(x, y[0]), x.long(), b.float(), x.half().float(), i.to(x), x.type_as(i),
        ]  # fmt: skip

    return computes(compute, floats(3, 4), floats(3, 4), integers(9, 3, 4), integers(4, 3, 4) + 1, integers(2, 3, 4) > 0)


def in_place(x, p, i):
    """Operators whose forms in place have other overloads than those that yield."""
    z = x.abs() + 1
    z.floor_divide_(p)
    z.pow_(p)
    z.clip_(p, z + 1)
    z.multiply_(2)
    z.divide_(p, rounding_mode="floor")
    z.subtract_(1)
    z.transpose_(0, 1)
    return z


QUOTIENTS = [
    torch.div,
    lambda u, v: torch.div(u, v, rounding_mode="floor"),
    lambda u, v: torch.div(u, v, rounding_mode="trunc"),
    lambda u, v: u // v,
    lambda u, v: u % v,
    torch.fmod,
]


@program("operators_shape")
def shapes(_):
    """Other shapes, orders, parts and repetitions; paddings; diagonals and windows."""

    def compute(x):
        y = x + 1
        return [
            x.view(12, 5), x.reshape(3, 2, -1), x.flatten(), x.flatten(1), x.flatten(0, 1), x.unflatten(1, (2, 2)),
            x.permute(2, 0, 1), x.transpose(0, -1), x[0].t(), x.movedim(0, 2), x.movedim((0, 1), (2, 0)), x.mT, x[0].T,
            x[:, :1].squeeze(1), x.unsqueeze(-1), x[:1, :, :1].squeeze(), x[:, :1].expand(3, 6, 5), x[:1].expand(-1, -1, 5),
            x[:, :1].expand_as(x), x.repeat(2, 1, 1, 1), x.tile(2), x.repeat_interleave(2, 1), x.repeat_interleave(3),
            torch.cat([x, y], 1), torch.stack([x, y], -1), torch.cat([x[:0], y]), torch.hstack([x, y]),
            *x.split(2, 2), *x.chunk(2, 1), *x.unbind(0), *x.split([1, 3], 1), *torch.tensor_split(x, 3, 2),
            *torch.tensor_split(x, (1, 3), 2), x[1:], x[:, :-1], x[..., ::2], x[-1], x.narrow(1, 1, 2), x[0:100], x[2:1],
            x.flip(0), x.flip((1, 2)), x.roll(1, 0), x.roll((1, -2), (0, 2)), x.roll(3), x.rot90(1, (1, 2)), x.rot90(2), x.rot90(3),
            F.pad(x, (1, 2)), F.pad(x, (1, 0, 0, 2), value=3.0), F.pad(x, (-1, 1)), F.pad(x, (1, 2), "reflect"),
            F.pad(x, (2, 1), "replicate"), F.pad(x, (1, 2), "circular"), x.tril(), x.triu(1), x[0].diagonal(),
            x.diagonal(1, 1, 2), x[0].diagonal(-1), x[0, 0].diag(), x[0].diag(1), torch.diag_embed(x), x.unfold(1, 2, 1),
            x.unfold(2, 3, 2), *torch.meshgrid(x[0, 0], x[0, :, 0], indexing="ij"),
            *torch.meshgrid(x[0, 0], x[0, :, 0], x[:, 0, 0], indexing="xy"), *torch.broadcast_tensors(x, x[:, :1], x[0]),
        ]  # fmt: skip

    return computes(compute, floats(3, 4, 5))


def of_any_length(compute, *inputs: list[torch.Tensor]) -> Program:
    """The first axis of the first input varies."""
    rest = [None] * (len(inputs[0]) - 1)
    return Program(Computes(compute), inputs, (({0: Dim("n", min=2, max=64)}, *rest),))


@program("operators_reduce")
def reductions(_):
    """Sums and the like, statistics, running ones, and orders; of an axis whose size varies."""

    def compute(x, i, b):
        return [
            x.sum(), x.sum(1), x.sum((0, 2), keepdim=True), i.sum(0), b.sum(1), x.mean(-1), x.mean((0, 1), True), x.prod(1), i.prod(0),
            x.amax((0, 2)), x.amin(1, True), *torch.aminmax(x), *x.max(1), *x.min(-1, keepdim=True), x.max(), x.argmax(), x.argmin(1),
            b.any(), b.any(1), b.all(0, keepdim=True), x.var(), x.var(1), x.var((0, 2), correction=0), x.std(-1, unbiased=False),
            *torch.var_mean(x, 1), *torch.std_mean(x), x.logsumexp(1), x.softmax(1), x.log_softmax(-1), F.softmin(x, 2),
            x.softmax(0, dtype=torch.float64), x.cumsum(0), x.cumprod(-1), b.cumsum(0), *x.cummax(1), x.logcumsumexp(1),
            *x.median(1), x.median(), x.quantile(0.3, 1), x.count_nonzero(0), x.diff(dim=1), x[0].trace(), x[0, :, :3].det(),
            *x.sort(1, descending=True), x.argsort(0), *x.topk(2), *x.topk(2, 1, largest=False), *x.kthvalue(2),
            torch.linalg.vector_norm(x, 2, 1), x.norm(3), torch.linalg.vector_norm(x, float("inf"), (0, 2)), F.normalize(x),
        ]  # fmt: skip

    inputs = [(floats(n, 3, 4), integers(9, 3, 4).int(), integers(2, 3, 4) > 0) for n in (2, 5)]
    return of_any_length(compute, *inputs)


@program("operators_index")
def indexing(_):
    """What is picked by indices and masks, put there, and added up there."""

    def compute(x, i, j, mask, words):
        rows = torch.arange(x.shape[0], device=x.device)
        put, filled, masked = x.clone(), x.clone(), x.clone()
        put[:, i] = 1.5
        filled[rows, 0] = x[:, 1]
        masked[x > 0] = -1
        order = torch.stack([i, i.flip(0)], -1)[None].expand(x.shape[0], -1, -1)
        return [
            put, filled, masked, x[:, i], x[rows, 0, j[0]], x[:, i, j], x[:, i[:, None], j[None]], x[..., j], x[:, mask], x[x > 1],
            x.index_select(1, i), x.gather(1, order), x[..., :2].take_along_dim(order, 1), x.take(i), x.masked_select(mask[:, None]),
            x.nonzero(), *torch.where(x > 1), x.scatter(1, order, x[..., :2]), x.scatter(1, order, 9.0),
            x.scatter_add(1, order, x[..., :2]), x.scatter_reduce(1, order, x[..., :2], "amax"),
            x.scatter_reduce(1, order, x[..., :2], "mean", include_self=False), x.index_add(1, i, x), x.index_copy(1, i, x),
            x.index_fill(2, j, 3.0), x.select_scatter(x[:, 0], 1, -1), x.slice_scatter(x[:, :2], 1, 1),
            x.index_put((rows,), x, accumulate=True), F.one_hot(i, 5), F.embedding(words, x[0]), torch.isin(words, i),
            F.embedding_bag(words.view(2, -1), x[0]), torch.searchsorted(x[0, 0].sort()[0], x), torch.bucketize(x, x[0, 0].sort()[0]),
            torch.repeat_interleave(words, 2), words.bincount(minlength=6), *torch.unique(words, return_inverse=True),
            torch.tril_indices(3, 4) + i[0],
        ]  # fmt: skip

    rest = (torch.tensor([2, 0, 1]), torch.tensor([3, 0, -2]), torch.tensor([True, False, True]), integers(3, 8))
    return computes(compute, floats(2, 3, 4), *rest)


@program("operators_create")
def creation(_):
    """Tensors that are made from sizes and numbers."""

    def compute(x):
        n = x.shape[0]
        made = [
            torch.arange(n), torch.arange(1, n + 3), torch.arange(0, n * 2, 2), torch.arange(0, 1, 0.1), torch.arange(n - 1, -1, -1),
            torch.arange(5, 0, -2), torch.zeros(n, 2), torch.ones(2, 3), torch.full((n, 2), 2.5), torch.full((3,), 7), torch.full((n,), n),
            torch.zeros_like(x), torch.ones_like(x, dtype=torch.int64), torch.full_like(x, 3.5), x.new_zeros(n, 3), x.new_full((2, n), -1.0),
            torch.eye(3), torch.eye(n), torch.eye(n, 3, dtype=torch.int64), torch.linspace(0, 1, 11), torch.logspace(-1, 1, 4, base=2.0),
            torch.hann_window(8), torch.hamming_window(8, False), torch.scalar_tensor(3.0),
        ]  # fmt: skip
        drawn = [torch.rand(n, 3), torch.randn_like(x), torch.randint(2, 7, (4,)), torch.bernoulli(x.sigmoid()), torch.randperm(n)]
        return [x.sum() * 0 + value for value in made] + [value * 0 for value in drawn]

    return of_any_length(compute, (floats(2, 3),), (floats(5, 3),))


@program("operators_products")
def products(_):
    """Products of vectors, matrices and stacks of them, and what is computed by them."""

    def compute(a, b, v, stack):
        return [
            torch.addmm(v, a, b, beta=0.5, alpha=2), torch.addmv(v[:2], a, b[:, 0]), torch.mm(a, b), torch.mv(a, b[:, 0]), torch.dot(v, v),
            torch.outer(v, v), torch.inner(a, a), stack @ b, b.t() @ b, torch.bmm(stack, stack.mT), v @ b.t(),
            torch.baddbmm(stack[:, :, :2], stack, stack.mT[..., :2], beta=0.5), torch.addbmm(a @ a.t(), stack, stack.mT),
            torch.einsum("bij,jk->bik", stack, b), torch.einsum("...ij->...i", stack), torch.kron(a, v[:2]), torch.cross(b, b + 1, 0),
            torch.tensordot(stack, stack, dims=([1, 2], [1, 2])), torch.cdist(a, a + 1), torch.cdist(a, a + 1, 1.0),
            F.cosine_similarity(a, a + 1), F.pairwise_distance(a, a + 1), torch.linalg.vecdot(a, a),
        ]  # fmt: skip

    return computes(compute, floats(2, 3), floats(3, 3), floats(3), floats(4, 2, 3))


class Images(nn.Module):
    def __init__(self):
        super().__init__()
        self.same = nn.Conv2d(4, 4, 4, padding="same")
        self.strided = nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2)
        self.back = nn.ConvTranspose2d(6, 4, 3, stride=2, padding=1, output_padding=1)
        self.line, self.line_back = nn.Conv1d(4, 3, 3, dilation=2), nn.ConvTranspose1d(4, 3, 2)
        self.volume = nn.Conv3d(1, 2, 2)
        self.norms = nn.ModuleList([nn.BatchNorm2d(4), nn.InstanceNorm2d(4, affine=True), nn.GroupNorm(2, 4), nn.LocalResponseNorm(3)])
        self.layer, self.rms = nn.LayerNorm(8), nn.RMSNorm([9, 8], eps=0.1, elementwise_affine=False)
        self.scaled = nn.utils.weight_norm(nn.Linear(8, 3))
        self.dropout = nn.Dropout2d(0.3)

    def forward(self, x, grid, theta):
        corners = {"mode": "bilinear", "align_corners": True}
        line = x[:, :, 0]
        return [
            self.same(x), self.back(self.strided(x)), self.line(line), self.line_back(line), self.volume(x[:, None]),
            *[norm(x) for norm in self.norms], self.layer(x), self.rms(x), self.scaled(x), self.dropout(x),
            F.max_pool2d(x, 2), *F.max_pool2d(x, 3, 2, 1, ceil_mode=True, return_indices=True), F.max_pool1d(line, 2),
            F.avg_pool2d(x, 3, 2, 1), F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), F.avg_pool2d(x, 2, divisor_override=3),
            F.avg_pool1d(line, 2), F.adaptive_avg_pool2d(x, 1), F.adaptive_avg_pool2d(x, (3, 4)), F.adaptive_avg_pool2d(x, (4, 3)),
            F.adaptive_max_pool2d(x, (4, 3)), F.max_unpool2d(*F.max_pool2d(x[..., :8, :], 2, return_indices=True), 2),
            F.interpolate(x, scale_factor=2), F.interpolate(x, size=(5, 7), mode="bilinear"), F.interpolate(x, scale_factor=1.5, **corners),
            F.interpolate(x, scale_factor=0.7, mode="bicubic"), F.interpolate(x, size=(12, 4), mode="nearest-exact"),
            F.interpolate(line, scale_factor=2, mode="linear"), F.interpolate(x, size=(4, 3), mode="bilinear", antialias=True),
            F.grid_sample(x, grid, align_corners=False), F.grid_sample(x, grid, "nearest", "border", True),
            F.affine_grid(theta, [2, 3, 4, 5], align_corners=False), F.pixel_shuffle(x, 2), F.pixel_unshuffle(x[..., :8, :], 2),
            F.channel_shuffle(x, 2), F.unfold(x, (2, 3), padding=1), F.fold(F.unfold(x, 2), (9, 8), 2),
        ]  # fmt: skip


@program("operators_images")
def images(_):
    """Convolutions, normalizations, pooling, resizing, sampling, and other orders of images."""
    network = Images().eval()
    for norm in network.norms[:3]:
        nn.init.uniform_(norm.weight, 0.5, 1.5)
    return Program(network, [(floats(2, 4, 9, 8), torch.rand(2, 3, 5, 2) * 2.6 - 1.3, floats(2, 2, 3))])


class Sequences(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells = nn.ModuleList([nn.GRUCell(8, 3), nn.RNNCell(8, 3)])
        self.lstm_cell = nn.LSTMCell(8, 3)
        self.rnn = nn.RNN(8, 3, nonlinearity="relu", bidirectional=True)
        self.lstm = nn.LSTM(8, 3, num_layers=2, bias=False)
        self.projected = nn.LSTM(8, 3, proj_size=2)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.encoder = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, activation="gelu", norm_first=True)
        self.bilinear = nn.Bilinear(8, 8, 2)

    def forward(self, x, seen, state):
        q, k, v = x.view(2, 5, 2, 4).transpose(1, 2), x.view(2, 5, 2, 4).transpose(1, 2) + 1, x.view(2, 5, 2, 4).transpose(1, 2)
        attend = F.scaled_dot_product_attention
        grouped = attend(q.repeat(1, 2, 1, 1), k, v, enable_gqa=True)
        return [
            *[cell(x[:, 0], state) for cell in self.cells], *self.lstm_cell(x[:, 0], (state, state)), *self.rnn(x), *self.lstm(x)[1],
            self.projected(x)[0], self.attention(x, x, x)[0], self.encoder(x), self.bilinear(x, x), attend(q, k, v, is_causal=True, scale=0.3),
            attend(q, k, v, seen), attend(q, k, v, torch.where(seen, 0.0, -2.0)), attend(x, x, x), grouped,
        ]  # fmt: skip


@program("operators_sequences")
def sequences(_):
    """Recurrent layers and cells, and attention with masks of both kinds."""
    seen = torch.rand(5, 5) > 0.3
    seen[2] = False
    return Program(Sequences(), [(floats(2, 5, 8), seen, floats(2, 3))])


@program("operators_losses")
def losses(_):
    """Losses, as networks compute them for themselves."""

    def compute(x, y, classes, signs):
        p, t = x.sigmoid(), y.sigmoid()
        weight = torch.tensor([0.5, 1.0, 2.0, 0.1])
        found = []
        for reduction in ("mean", "sum", "none"):
            r = {"reduction": reduction}
            found += [
                F.mse_loss(x, y, **r), F.l1_loss(x, y, **r), F.smooth_l1_loss(x, y, beta=0.4, **r), F.huber_loss(x, y, delta=0.6, **r),
                F.binary_cross_entropy(p, t, **r), F.binary_cross_entropy_with_logits(x, t, weight, pos_weight=weight, **r),
                F.kl_div(p.log(), t, **r), F.cross_entropy(x, classes, **r), F.nll_loss(x.log_softmax(1), classes, weight, **r),
                F.cross_entropy(x, classes, weight, ignore_index=1, label_smoothing=0.1, **r), F.cross_entropy(x, y.softmax(1), **r),
                F.cosine_embedding_loss(x, y, signs, 0.1, **r), F.margin_ranking_loss(x[:, 0], y[:, 0], signs, 0.1, **r),
                F.triplet_margin_loss(x, y, x + y, **r), F.soft_margin_loss(x[:, 0], signs, **r), F.poisson_nll_loss(x, t, **r),
                F.hinge_embedding_loss(x[:, 0], signs, **r), F.multi_margin_loss(x, classes, **r),
            ]  # fmt: skip
        return found

    return computes(compute, floats(3, 4), floats(3, 4), torch.tensor([0, 3, 2]), torch.tensor([1.0, -1.0, 1.0]))


class Quantized(nn.Module):
    """A linear layer as `pt2e` leaves it: weights in eight bits a channel, activations in eight bits."""

    def __init__(self):
        super().__init__()
        self.register_buffer("weight", torch.randint(-127, 128, (5, 8), dtype=torch.int8))
        self.register_buffer("scales", torch.rand(5) * 0.02 + 0.01)
        self.register_buffer("zero_points", torch.zeros(5, dtype=torch.int64))
        self.register_buffer("bias", torch.randint(-900, 900, (5,), dtype=torch.int32))

    def forward(self, x):
        ops = torch.ops.quantized_decomposed
        signed = (-128, 127, torch.int8)
        given = ops.quantize_per_tensor(x, 0.03, 5, *signed)
        weight = ops.dequantize_per_channel(self.weight, self.scales, self.zero_points, 0, -127, 127, torch.int8)
        bias = ops.dequantize_per_tensor(self.bias, 0.001, 0, -(2**31), 2**31 - 1, torch.int32)
        y = F.linear(ops.dequantize_per_tensor(given, 0.03, 5, *signed), weight, bias)
        scale, zero_point = ops.choose_qparams.tensor(y, 0, 255, 1e-5, torch.uint8)
        dynamic = ops.quantize_per_tensor.tensor(y, scale, zero_point, 0, 255, torch.uint8)
        narrow = ops.quantize_per_channel(weight, self.scales, self.zero_points, 0, -7, 7, torch.int8)
        return given, y, scale, dynamic, ops.dequantize_per_tensor.tensor(dynamic, scale, zero_point, 0, 255, torch.uint8), narrow


@program("operators_quantized")
def quantized(_):
    """Quantized layers of `pt2e`, static ones and dynamic ones."""
    import torch.ao.quantization.fx._decomposed  # noqa: F401  registers the operators

    return Program(Quantized(), [(floats(3, 8),)])


class FakeQuantized(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(6)
        self.weight = nn.Parameter(torch.randn(5, 8))
        self.register_buffer("scales", torch.rand(5) * 0.02 + 0.002)
        self.register_buffer("zero_points", torch.tensor([0, 3, -2, 7, 0], dtype=torch.int32))
        self.register_buffer("offsets", torch.tensor([0, 0.4, -2.5, 7.3, 0.5]))

    def forward(self, x):
        weight = torch.fake_quantize_per_channel_affine(self.weight, self.scales, self.zero_points, 0, -127, 127)
        moved = torch.fake_quantize_per_channel_affine(self.weight, self.scales, self.offsets, 0, -127, 127)
        halves = torch.fake_quantize_per_tensor_affine(torch.round(8 * x) / 2, 1.0, 3, -20, 20)
        x = torch.fake_quantize_per_tensor_affine(x, 0.03, 5, -20, 20)
        y = F.linear(x, weight)
        return x, weight, moved, halves, torch.fake_quantize_per_tensor_affine(y, self.scales[1], self.zero_points[1], 0, 255)


@program("operators_fake_quantize")
def fake_quantize(_):
    """Numbers rounded to what integers stand for, within ranges of any width, under one scale or one for each channel; halves, and zero points that are no integers."""
    return Program(FakeQuantized(), [(floats(3, 8),)])


@program("operators_special")
def special(_):
    """Functions whose ends matter: signed zeros, infinities, NaN, quotients next to an integer, and those that are computed of others."""
    ends = torch.tensor([float("inf"), float("-inf"), float("nan"), 0.0, -0.0, 0.3, -0.3, 1.5, -2.5, 7.0])

    def compute(x, y, p, i, j, u, h):
        plain = [torch.angle, F.hardshrink, F.softshrink, torch.signbit, torch.sinc, torch.deg2rad, torch.isposinf, torch.isneginf]
        quotients = [torch.atan2, torch.copysign, torch.hypot, torch.logaddexp, torch.logaddexp2, torch.floor_divide, torch.remainder]
        quotients += [torch.xlogy, torch.special.xlog1py, torch.isclose, lambda x, y: torch.lerp(x, y, 0.7)]
        positive = [torch.lgamma, torch.digamma, torch.i0, torch.special.ndtr, torch.special.entr, torch.special.expit, torch.erfinv]
        return (
            [f(x) for f in plain]
            + [f(x[:, None], y) for f in quotients]
            + [f(p) for f in positive]
            + [
                torch.lgamma(p - 3), torch.digamma(p - 3), torch.i0(40 * p), x**-0.5, F.threshold(x, 0.1, 20.0), F.softplus(x, 0.5, 3.0),
                torch.round(100 * p, decimals=-1), torch.logit(p, eps=0.2), torch.float_power(p, 2), torch.ldexp(p, j[:4]),
                (i - 5) >> 1, (i - 5) << 1, torch.cummax(u, 0)[1], torch.cummin(x, 0)[1], torch.clamp(u, min=-3), u @ u, torch.norm(h),
                torch.maximum(u > 2, i > 4), torch.sign(u > 2), torch.einsum("i,i->", u, u), torch.arange(5, 0, -0.5, dtype=torch.int64),
                (i - 128).to(torch.int8) // 3, h // 0.1, torch.absolute(x), torch.special.psi(p), torch.dist(p, 2 * p),
            ]
        )  # fmt: skip

    i = integers(9, 10)
    return computes(
        compute, ends, ends.flip(0), torch.rand(4) * 0.9 + 0.05, i, integers(5, 10), torch.randint(0, 256, (10,), dtype=torch.uint8),
        torch.tensor([300.0, -0.3, 0.7], dtype=torch.float16),
    )  # fmt: skip


@program("operators_masked_scatter")
def masked_scatter(_):
    """Elements in the places of a mask, of which none may be set: then there may be no elements either."""

    def compute(x, number, some, none):
        return [
            x.masked_scatter(some[..., None], x[some] * 2), x.masked_scatter(none[..., None], x[none] * 2),
            number.masked_scatter(some, number[some] + 1), number.masked_scatter(none, number[none] + 1),
            some.masked_scatter(some, ~some[some]), some.masked_scatter(none, some[none]), x.masked_scatter(some[..., None], x.flip(0)),
        ]  # fmt: skip

    some = torch.tensor([[False, True, True], [True, False, False]])
    return computes(compute, floats(2, 3, 4), integers(5, 2, 3), some, torch.zeros_like(some))


@program("operators_special_wide")
def special_wide(_):
    """Special functions over wide ranges, in floats of 32 and 64 bits, with their ends where PyTorch has those: its `i0` of infinity is no number, and
    its `trigamma` is finite at the poles."""
    special = torch.special
    inf, nan = float("inf"), float("nan")

    def compute(x, p, y, q, ends, rows):
        of_all = [special.i0e, special.i1, special.i1e, special.erfcx, special.log_ndtr, torch.i0]
        orders = [1, 2, 3, 6]
        return (
            [f(z) for f in of_all for z in (x, y)]
            + [f(ends) for f in (special.i0e, special.i1e, special.erfcx, special.log_ndtr)]
            + [special.ndtri(z) for z in (p, q)]
            + [torch.polygamma(n, z) for n in orders for z in (x.clamp(min=-4.4), y.clamp(min=-4.4))]
            + [special.polygamma(0, q), special.multigammaln(q + 3, 3), torch.mvlgamma(p + 1, 2)]
            + [torch.cdist(rows, rows.flip(1), compute_mode=mode) for mode in ("donot_use_mm_for_euclid_dist", "use_mm_for_euclid_dist")]
        )  # fmt: skip

    x = [-12.0, -9.5, -4.25, -1.5, -0.7, -1e-3, 1e-30, 1e-3, 0.49, 0.5, 1.0, 2.5, 7.9, 15.9, 16.1, 40.0, 85.0]
    p = [0.0, 1e-30, 1e-8, 0.01, 0.13, 0.14, 0.4, 0.5, 0.7, 0.86, 0.87, 0.999, 1.0]
    y = torch.tensor([*x, -25.0, -20.0, 300.0, 700.0, 1e6, 0.0, nan], dtype=torch.float64)
    q = torch.tensor([*p, 1e-300, 1 - 1e-12, -0.1, 1.1, nan], dtype=torch.float64)
    return computes(compute, torch.tensor(x), torch.tensor(p), y, q, torch.tensor([inf, nan]), floats(2, 4, 3))


@program("operators_matrices")
def matrices(_):
    """Diagonals, powers and blocks of matrices, parts of tensors by other names, copies of views, and areas below lines."""

    def compute(x, y, t):
        changed = torch.zeros(4, 5)
        changed.diagonal(1).add_(t)
        filled = x.clone().fill_diagonal_(7.0)
        return [
            changed, filled, torch.diag_embed(x, 1), torch.diag_embed(x, -2, 0, 2), torch.diag(t, 1), torch.diag(t, -1), torch.diagflat(x[:2], 1),
            torch.block_diag(x, t, y[0]), torch.linalg.diagonal(y), torch.linalg.matrix_power(x, 3), torch.linalg.matrix_power(x, -1),
            torch.linalg.matrix_power(x, 0), torch.linalg.solve(x, x.T), torch.linalg.solve(x, t), torch.linalg.vander(x, N=3), x.H,
            torch.fliplr(x), torch.flipud(x), *torch.atleast_2d(t, x), torch.atleast_3d(t), *torch.hsplit(x, 2), *torch.vsplit(x, [1, 3]),
            *torch.dsplit(y, 2), torch.moveaxis(y, 0, 2), y.sum_to_size(3, 1), torch.trapezoid(x, dx=0.5, dim=0), torch.trapezoid(x, t),
            torch.cumulative_trapezoid(x), torch.expand_copy(t, (2, 4)), torch.diagonal_copy(x), *torch.split_copy(x, 3),
            torch.ops.aten._safe_softmax(x.masked_fill(x < 0.4, float("-inf")), 1), F.pad(y, (-1, 3), mode="replicate"),
            F.cosine_similarity(x[:, None], y[0, :, :4], dim=1),
        ]  # fmt: skip

    return computes(compute, floats(4, 4) + 3 * torch.eye(4), floats(2, 3, 4), torch.rand(4))


@program("operators_slopes")
def slopes(_):
    """Slopes along axes, with ends of both orders and neighbours that are as far apart as one likes."""

    def compute(x, line):
        return [
            *torch.gradient(x), *torch.gradient(x, spacing=0.5), *torch.gradient(x, dim=1), *torch.gradient(x, spacing=2.0, dim=-1, edge_order=2),
            *torch.gradient(x, spacing=[0.5, 3.0], dim=(2, 0), edge_order=2), *torch.gradient(x, dim=(1, 2)), *torch.gradient(line), *torch.gradient(line[:2]),
        ]  # fmt: skip

    return computes(compute, floats(3, 4, 5), floats(6))


@program("operators_decompositions")
def decompositions(_):
    """Decompositions of matrices and what is computed by them: of symmetric ones, of others, of batches, of more rows or more columns. Signs of eigenvectors and of
    singular vectors are nobody's, so that what they make is compared."""
    linalg = torch.linalg

    def compute(definite, square, tall, wide, right):
        lower = linalg.cholesky(definite)
        values, vectors = linalg.eigh(definite)
        u, singular, rows = linalg.svd(tall, full_matrices=False)
        whole, _, whole_rows = linalg.svd(wide)
        q, r = linalg.qr(tall)
        complete, upper = linalg.qr(wide, mode="complete")
        p, l, up = linalg.lu(tall)
        factors, pivots = linalg.lu_factor(square)
        old_u, old_values, old_v = torch.svd(wide)
        return [
            lower, linalg.cholesky(definite, upper=True), linalg.cholesky_ex(definite)[0], torch.cholesky_solve(right, lower),
            torch.cholesky_solve(right[0], lower.mT, upper=True), torch.cholesky_inverse(lower), linalg.solve_triangular(square, right, upper=True),
            linalg.solve_triangular(square, right[0], upper=False, unitriangular=True), linalg.solve_triangular(square, right.mT, upper=True, left=False),
            torch.triangular_solve(right, square, upper=False, transpose=True)[0], values, linalg.eigvalsh(definite, UPLO="U"), vectors.abs(),
            vectors * (values / 4).exp()[..., None, :] @ vectors.mT, singular, u.abs(), (u * singular[..., None, :]) @ rows, u @ rows, whole.abs(), whole_rows[..., :3, :].abs(),
            old_values, (old_u * old_values[..., None, :]) @ old_v.mT, linalg.svdvals(wide), q, r, linalg.qr(square, mode="r")[1], complete, upper, p, l, up, factors, pivots,
            linalg.lu_solve(factors, pivots, right), linalg.pinv(tall), linalg.pinv(definite[0], hermitian=True), torch.pinverse(wide[0]), linalg.pinv(tall[0] * 1e-3, atol=2e-3),
            linalg.pinv(tall[0], rtol=0.5), linalg.matrix_rank(tall[:, :, :1] @ wide[:, :1]), linalg.matrix_rank(definite, hermitian=True), linalg.matrix_rank(tall, tol=1.0),
            linalg.cond(square), linalg.cond(square, p=-2), linalg.matrix_norm(tall, "nuc"), linalg.matrix_norm(wide, 2, keepdim=True), linalg.norm(wide[0], -2),
            linalg.matrix_norm(tall, 2, dim=(2, 0)), linalg.vector_norm(tall[0, 0, 0], dim=-1), linalg.matrix_exp(square), torch.matrix_exp(definite / 4), linalg.householder_product(tall, tall[:, 0] / 4),
            linalg.solve_ex(square, right)[0], linalg.tensorinv(square[0].reshape(2, 2, 4), ind=2), linalg.tensorsolve(square[0].reshape(4, 2, 2), right[0, :, 0]),
        ]  # fmt: skip

    some = floats(2, 4, 4)
    return computes(
        compute, some @ some.mT + torch.eye(4), floats(2, 4, 4) + 3 * torch.eye(4), floats(2, 5, 3), floats(2, 3, 5), floats(2, 4, 2)
    )


@program("operators_decompositions_decomposed")
def decompositions_decomposed(_):
    """The operators that decompositions are made of, and checks of their errors, which are effects with an order."""
    linalg = torch.linalg

    def compute(definite, tall, right):
        values, vectors = linalg.eigh(definite)
        u, singular, rows = linalg.svd(tall, full_matrices=False)
        lower = linalg.cholesky(definite)
        return [
            linalg.inv(definite), lower, torch.cholesky_solve(right, lower), values, linalg.eigvalsh(definite), vectors * values[..., None, :] @ vectors.mT,
            singular, u @ rows, linalg.svdvals(tall), *linalg.qr(tall), *linalg.lu(definite), *linalg.lu_factor(definite), linalg.matrix_exp(definite / 4),
            linalg.pinv(tall), linalg.solve(definite, right), linalg.det(definite), *linalg.slogdet(definite), linalg.matrix_norm(tall, 2),
        ]  # fmt: skip

    some = floats(2, 4, 4)
    return computes(compute, some @ some.mT + torch.eye(4), floats(2, 5, 3), floats(2, 4, 2), decomposed=True)
