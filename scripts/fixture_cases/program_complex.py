"""Programs of PyTorch that compute with complex numbers: networks, and every operator that Kiln has a rule for."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.export import Dim
from torch.nn import functional as F

from fixture_cases.program_operators import computes, floats
from fixture_cases.programs import BATCH, program
from fixture_lib.export import seed_weights
from fixture_lib.program import Program

fft = torch.fft
number, pair = torch.view_as_complex, torch.view_as_real


def real(results):
    """Results that are real: complex ones as pairs."""
    return [pair(x.resolve_conj()) if x.is_complex() else x for x in results]


# ---- operators ----


@program("operators_complex")
def elements(_):
    """Functions of one complex number and of two, of real numbers among them; comparisons, and numbers that are no tensors."""

    def compute(a, b, x):
        z, w = number(a), number(b)
        plain = [torch.abs, torch.angle, torch.conj, torch.conj_physical, torch.real, torch.imag, torch.sgn, torch.reciprocal, torch.neg]
        plain += [torch.exp, torch.log, torch.sqrt, torch.rsqrt, torch.square, torch.sin, torch.cos, torch.tan, torch.sinh, torch.cosh]
        plain += [torch.tanh, torch.sigmoid, torch.log2, torch.log10, torch.log1p, torch.expm1, torch.isnan, torch.isfinite, torch.isinf]
        plain += [torch.sum, torch.mean, torch.positive]
        return real([f(z) for f in plain] + [
            z.sum(1), z.mean(0, keepdim=True), z.cumsum(1), z**2, z**3, z**-1, z**-2, z**0.5, z**1j, z**w, 2.0**z, (1 + 1j) ** z, (z / 4) ** 17,
            z + w, z - w, z * w, z / w, z + x, x + z, z - x, x - z, z * x, x * z, z / x, x / z, z + 1, z - 2.5, z * 2, z / 2, 2 / z, 1 - z,
            z + 1j, z * 1j, 1j * x, x + 1j, z * (2 - 3j), (1 + 2j) / z, x / (1 + 2j), torch.add(z, w, alpha=2), torch.sub(z, w, alpha=2.5),
            torch.sub(x, w, alpha=2.5), torch.polar(x.abs(), x), torch.complex(x, x[0] + 1), torch.exp(1j * x), torch.where(x > 0, z, w),
            torch.where(x > 0, z, 0), torch.where(x > 0, z, x), z == w, z != w, z == z, torch.addcmul(z, w, z, value=0.5),
            x.to(torch.complex64) * z, z.masked_fill(x > 0, 1j), torch.lerp(z, w, 0.5), z[0] + x, x + z[0], x[0] - z, z * torch.arange(4),
            z.unsqueeze(0) * w.unsqueeze(1), z.imag.neg(), z.conj().imag, x.angle(), x.conj(), z.isnan() | w.isinf(), (z + x.double()).abs(),
            z.to(torch.complex128).to(torch.complex64), (z * 0).sgn(), in_place(z, w, x), *between_views(z, w, x),
        ])  # fmt: skip

    return computes(compute, floats(3, 4, 2), floats(3, 4, 2), floats(3, 4))


def in_place(z, w, x):
    """Parts are written, and so is what they are parts of."""
    y = torch.zeros(3, 6, dtype=torch.complex64)
    y[:, :4] = z
    y[:, 1:3] += w[:, :2]
    y[0] *= 1j
    y[1:2, 2:] = x[1:2]
    y.transpose(0, 1)[4] = 2j
    y[torch.tensor([0, 2]), torch.tensor([5, 5])] = z[0, :2]
    return y


def between_views(z, w, x):
    """What is written into pairs, complex numbers have, and the other way round."""
    pairs = torch.zeros(3, 4, 2)
    number(pairs)[:, 1] = z[:, 1]
    first = z.clone()
    first.real[:] = x
    second = z.clone()
    second.imag.mul_(2)
    second.mul_(w)
    third = z.clone()
    pair(third)[..., 0].add_(1)
    fourth = z.clone()
    fourth.conj()[0] = w[0]
    fifth = torch.empty_like(z)
    fifth.copy_(w)
    fifth[x > 0] = 0
    sixth = z.clone()
    sixth.fill_(1 + 2j)
    sixth[:, ::2] = z[:, ::2]
    # What is conjugated when it is read is no view once it has been read.
    seventh = z.clone()
    copies = [seventh.conj().resolve_conj(), seventh.conj().imag.resolve_neg()]
    same = [seventh.resolve_conj(), seventh.conj().conj().resolve_conj(), seventh.imag.resolve_neg()]
    seventh.mul_(2)
    same[0].add_(1j)
    return [pairs, first, second, third, fourth.real, fourth.imag, fifth, sixth, seventh, *copies, *same]


@program("operators_complex_shape")
def shapes(_):
    """Other shapes, orders and parts of complex numbers, which have no last axis of 2."""

    def compute(a):
        z = number(a)
        y = z + 1
        rows, along = torch.tensor([0, 2]), torch.zeros(3, 2, 2, dtype=torch.long)
        return real([
            z.reshape(12, 2), z.view(3, 8), z.flatten(), z.flatten(1), z.unflatten(1, (2, 2)), z.permute(2, 0, 1), z.transpose(0, -1), z[0].t(),
            z.movedim(0, 2), z.mT, z.mH, z[0].T, z.swapaxes(0, 1), z.unsqueeze(-1), z[:1].squeeze(0), z[:1].expand(6, 4, 2), z.repeat(2, 1, 1),
            z.tile(2), z.repeat_interleave(2, 1), torch.cat([z, y], -1), torch.cat([z, a[..., 0]], -1), torch.stack([z, y], -1),
            torch.stack([z, y]), torch.hstack([z, y]), *z.split(1, -1), *z.chunk(2, 1), *z.split([1, 3], 1), *z.unbind(-1), z[:, 1:3],
            z[..., ::2], z[-1], z[..., -1], z.select(1, 2), z.narrow(1, 1, 2), z.flip(-1), z.flip((0, 1)), z.roll(1, -1),
            z.roll((1, -2), (0, 1)), z.roll(3), F.pad(z, (1, 2)), F.pad(z, (0, 1, 2, 0), value=3.0), z[rows], z[:, rows, [1, 0]],
            z.index_select(-1, rows // 2), z.gather(1, along), torch.take_along_dim(z, along[:, :1], 1), z.unfold(1, 2, 1),
            z.diagonal(0, 0, 1), z.tril(), z.triu(1), z.contiguous(), fft.fftshift(z), fft.ifftshift(z, dim=1), fft.fftshift(a),
            fft.ifftshift(a, 1), torch.zeros(2, 3, dtype=z.dtype) + z[0, 0, 0], torch.ones(2, dtype=z.dtype) * z[0, 0, 0],
            torch.full((2,), 1 + 2j) * z[0, 0, 0], torch.zeros_like(z), torch.ones_like(z), torch.full_like(z, 2j), z.new_zeros(3),
            z.new_ones(3), z.new_full((2,), 3j), z.view(torch.float32), a.view(torch.complex64), z.as_strided((2, 3), (1, 2)),
        ])  # fmt: skip

    return computes(compute, floats(3, 4, 2, 2))


@program("operators_complex_products")
def products(_):
    """Products of complex matrices, and sums over indices of some of which a tensor is real."""

    def compute(a, b, c, x):
        z, w, v = number(a), number(b), number(c)
        bias = v.new_full((3, 5), 1j)
        return real([
            z @ w, z[None].matmul(w), torch.mm(z, w), torch.bmm(z[None], w[None]), z @ v, torch.mv(z, v), torch.dot(v, v), torch.vdot(v, v),
            torch.outer(v, v), torch.addmm(bias, z, w), torch.addmm(bias, z, w, beta=0.5, alpha=2), torch.baddbmm(bias[None], z[None], w[None]),
            F.linear(z, w.mT.contiguous()), F.linear(z, w.mT.contiguous(), w[0]), torch.einsum("ij,jk->ik", z, w),
            torch.einsum("ij,jk->ik", z, x.to(z.dtype)), torch.einsum("ij,jk,k->ik", z, w, w[0]), torch.einsum("ij->ji", z),
            torch.einsum("ij,ij->", z, z.conj()), torch.tensordot(z, w, 1), torch.inner(z, z), torch.kron(z[:2, :2], w[:2, :2]),
        ])  # fmt: skip

    return computes(compute, floats(3, 4, 2), floats(4, 5, 2), floats(4, 2), floats(4, 5))


@program("operators_spectra")
def spectra(_):
    """Fourier transforms along one axis and several, of any length and norm; of frames, and back."""

    def compute(x, a, long):
        z = number(a)
        wide, narrow = torch.hann_window(16), torch.hann_window(12)
        frames = torch.stft(long, 16, 4, window=wide, return_complex=True)
        both = [f(v, norm=norm) for f in (fft.fft, fft.ifft) for v in (x, z) for norm in (None, "ortho", "forward")]
        half = [f(v, norm=norm) for f, v in ((fft.rfft, x), (fft.irfft, z), (fft.hfft, z), (fft.ihfft, x)) for norm in (None, "ortho", "forward")]
        return real(both + half + [
            fft.irfft(z, n=7), fft.irfft(z, n=5, dim=1), fft.irfft(z, n=12), fft.rfft(x, n=5), fft.rfft(x, n=9, dim=0), fft.fft(z, n=3, dim=1),
            fft.fft(x, n=8), fft.fft2(x), fft.fft2(z, norm="ortho"), fft.ifft2(z), fft.fft2(x, s=(5, 4)), fft.rfft2(x), fft.irfft2(z),
            fft.irfft2(z, s=(4, 7), norm="ortho"), fft.fftn(x), fft.fftn(x, dim=(1, 2)).real, fft.ifftn(z, norm="forward"),
            fft.rfftn(x, dim=(0, 1)), fft.rfftn(x), fft.irfftn(z), fft.irfftn(z, s=(6,), dim=(1,), norm="forward"), fft.hfft(z, n=7),
            fft.fftn(x, s=(4, 5)), fft.fft(x.to(torch.int32)), fft.irfft(x), fft.fftfreq(7, 0.5), fft.rfftfreq(8), fft.fft(x.double()).abs(),
            frames, torch.stft(long, 16, 4, window=wide, center=False, return_complex=True), torch.stft(long[0], 16, return_complex=True),
            torch.stft(long, 16, 5, 12, narrow, normalized=True, return_complex=True), torch.stft(long, 16, 4, onesided=False, return_complex=True),
            torch.istft(frames, 16, 4, window=wide), torch.istft(frames, 16, 4, window=wide, length=60), torch.istft(frames[0], 16, 4, window=wide),
            torch.istft(frames, 16, 4, window=wide, length=70), torch.istft(frames, 16, 4, 12, narrow, normalized=True),
            torch.istft(frames, 16, 4, center=False), torch.istft(torch.cat([frames, frames[:, 1:8].flip(1)], 1), 16, 4, window=wide, onesided=False),
        ])  # fmt: skip

    return computes(compute, floats(2, 4, 6), floats(2, 4, 6, 2), floats(2, 64))


@program("operators_spectra_decomposed")
def decomposed_spectra(_):
    """The operators that all transforms are made of."""

    def compute(x, a, long):
        z = number(a)
        frames = torch.stft(long, 16, 4, window=torch.hann_window(16), return_complex=True)
        return real([
            fft.fft(x), fft.ifft(z, norm="ortho"), fft.rfft2(x, norm="forward"), fft.irfft2(z, s=(4, 7)), fft.hfft(z), fft.ihfft(x),
            fft.fft2(z).conj().imag, frames.abs(), torch.istft(frames, 16, 4, window=torch.hann_window(16)),
        ])  # fmt: skip

    return computes(compute, floats(2, 4, 6), floats(2, 4, 6, 2), floats(2, 64), decomposed=True)


@program("operators_strides")
def strides(_):
    """Elements at strides, and strides of what varies in size."""

    def compute(x, y):
        z, turned = x + 1, (x * 2).t()
        return [
            z.as_strided((3, 4), (4, 1)), z.as_strided((4, 3), (1, 4)), z.as_strided((3, 2), (2, 1), 1), z.as_strided((5, 4), (2, 1)),
            z.as_strided((2, 2, 3), (0, 1, 2)), z.as_strided((), ()), turned.as_strided((3, 4), (4, 1)), turned.as_strided((4, 2), (1, 3)),
            y.as_strided((y.shape[0], 3, 2), (y.stride(0), 1, 1)), y * y.stride(0), y.mT.contiguous() * y.mT.stride(1),
        ]  # fmt: skip

    dims = ((None, {0: Dim("n", min=2, max=16), 1: Dim("m", min=4, max=16)}),)
    return computes(compute, floats(3, 4), floats(2, 5), dynamic_shapes=dims)


# ---- networks ----


class Spectral(nn.Module):
    """A convolution by its spectrum, of which low frequencies are learned (a Fourier neural operator's)."""

    def __init__(self, channels: int, modes: int):
        super().__init__()
        self.modes = modes
        shape = (channels, channels, modes, modes)
        self.low = nn.Parameter(torch.randn(shape, dtype=torch.cfloat) / channels)
        self.high = nn.Parameter(torch.randn(shape, dtype=torch.cfloat) / channels)

    def forward(self, x):
        m = self.modes
        spectrum = fft.rfft2(x)
        out = torch.zeros_like(spectrum)
        out[:, :, :m, :m] = torch.einsum("bixy,ioxy->boxy", spectrum[:, :, :m, :m], self.low)
        out[:, :, -m:, :m] = torch.einsum("bixy,ioxy->boxy", spectrum[:, :, -m:, :m], self.high)
        return fft.irfft2(out, s=x.shape[-2:])


class GlobalFilter(nn.Module):
    """A product of spectra, as in GFNet."""

    def __init__(self, channels: int, height: int, width: int):
        super().__init__()
        self.complex_weight = nn.Parameter(torch.randn(channels, height, width // 2 + 1, 2) * 0.1)

    def forward(self, x):
        spectrum = fft.rfft2(x, norm="ortho") * number(self.complex_weight)
        return x + fft.irfft2(spectrum, s=x.shape[-2:], norm="ortho")


class StateSpace(nn.Module):
    """A state space with a diagonal matrix, whose response is a sum of complex exponentials (S4D)."""

    def __init__(self, channels: int, states: int):
        super().__init__()
        self.log_step = nn.Parameter(torch.rand(channels) * 2 - 4)
        self.decay = nn.Parameter(torch.zeros(channels, states) - 0.7)
        self.frequency = nn.Parameter(math.pi * torch.arange(states).repeat(channels, 1).float())
        self.c = nn.Parameter(torch.randn(channels, states, dtype=torch.cfloat))

    def forward(self, x):
        length = x.shape[-1]
        rate = -torch.exp(self.decay) + 1j * self.frequency
        step = rate * torch.exp(self.log_step)[:, None]
        c = self.c * (torch.exp(step) - 1) / rate
        response = 2 * torch.einsum("hn,hnl->hl", c, torch.exp(step[..., None] * torch.arange(length))).real
        spectrum = fft.rfft(x, n=2 * length) * fft.rfft(response, n=2 * length)
        return fft.irfft(spectrum, n=2 * length)[..., :length]


class Fourier(nn.Module):
    def __init__(self):
        super().__init__()
        self.lift = nn.Conv2d(3, 4, 1)
        self.operators = nn.ModuleList(Spectral(4, 2) for _ in range(2))
        self.skips = nn.ModuleList(nn.Conv2d(4, 4, 1) for _ in range(2))
        self.filter = GlobalFilter(4, 6, 8)
        self.states = StateSpace(4, 3)
        self.norm = nn.LayerNorm(48)

    def forward(self, x):
        x = self.lift(x)
        for operator, skip in zip(self.operators, self.skips):
            x = F.gelu(operator(x) + skip(x))
        x = self.states(self.filter(x).flatten(2))
        return self.norm(x + fft.fftn(x, dim=(1, 2)).real)


def fourier_network(**options) -> Program:
    return Program(seed_weights(Fourier()), [(floats(2, 3, 6, 8),)], ({0: BATCH},), **options)


@program("fourier")
def fourier(_):
    """Spectra that are cut, filtered and summed over channels, a state space and the mixing of FNet; complex parameters."""
    return fourier_network()


@program("fourier_decomposed")
def fourier_decomposed(_):
    """The same, in the core of ATen's operators."""
    return fourier_network(decomposed=True)


class Vocoder(nn.Module):
    """A signal's spectra through a network, and back."""

    def __init__(self):
        super().__init__()
        self.register_buffer("window", torch.hann_window(16))
        self.net = nn.Conv1d(9, 18, 3, padding=1)

    def forward(self, signal):
        spectra = torch.stft(signal, 16, 4, window=self.window, return_complex=True)
        level, phase = self.net(torch.log(spectra.abs().pow(2) + 1e-5)).chunk(2, dim=1)
        made = torch.polar(level.clip(max=3).exp(), phase) * torch.exp(1j * spectra.angle())
        return torch.istft(made, 16, 4, window=self.window)


@program("vocoder")
def vocoder(_):
    """Frames of signals of any length: spectra, their levels and phases, and the signal that others have."""
    return Program(seed_weights(Vocoder()), [(floats(2, 64),), (floats(2, 96),)], ({1: 8 * Dim("length", min=4, max=64)},))


class Rotary(nn.Module):
    """Attention whose queries and keys are turned as complex numbers, as in the reference code of Llama."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, x, freqs_cis):
        q, k, v = (w(x).unflatten(-1, (self.heads, -1)) for w in (self.wq, self.wk, self.wv))
        q, k = (pair(number(x.float().unflatten(-1, (-1, 2))) * freqs_cis[:, None]).flatten(-2) for x in (q, k))
        y = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True)
        return self.wo(y.transpose(1, 2).flatten(2))


class RotaryNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok_embeddings = nn.Embedding(19, 16)
        self.layers = nn.ModuleList(Rotary(16, 2) for _ in range(2))
        angles = torch.outer(torch.arange(24), 100.0 ** (-torch.arange(0, 8, 2) / 8))
        self.register_buffer("freqs_cis", torch.polar(torch.ones_like(angles), angles), persistent=False)
        self.output = nn.Linear(16, 19, bias=False)

    def forward(self, tokens):
        x = self.tok_embeddings(tokens)
        freqs_cis = self.freqs_cis[: tokens.shape[1]]
        for layer in self.layers:
            x = x + layer(x, freqs_cis)
        return self.output(x)


@program("rotary")
def rotary(_):
    """A language model whose positions turn complex numbers, which a buffer holds."""
    dims = ({0: BATCH, 1: Dim("seq", min=2, max=24)},)
    tokens = [torch.randint(0, 19, shape) for shape in ((2, 7), (1, 12))]
    return Program(seed_weights(RotaryNet()), [(each,) for each in tokens], dims)
