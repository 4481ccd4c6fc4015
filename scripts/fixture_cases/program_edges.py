"""Programs of PyTorch at the edges of what operators and views do: indices out of order, numbers that are none, sizes that depend on data."""

from __future__ import annotations

import torch
from torch import nn
from torch.export import Dim
from torch.nn import functional as F

from fixture_cases.program_operators import computes
from fixture_cases.programs import Computes, program
from fixture_lib.program import Program

NAN, INF = float("nan"), float("inf")
F64 = torch.float64


class Regions(nn.Module):
    def forward(self, x):
        results = []

        def base():
            results.append(x * 1)
            return results[-1]

        a = base()
        with torch.no_grad():
            row = a[0]
        row.add_(10)
        b = base()
        with torch.no_grad():
            b.detach().zero_()
        c = base()
        with torch.autocast("cpu"):
            row = c[1]
            column = row.view(4, 1)
        column.mul_(3)
        row.sub_(1)
        d = base()
        with torch.no_grad():
            late = d[:, 1]
        d.add_(5)
        e = base()
        row = e[2]
        with torch.no_grad():
            row.add_(7)
            doubled = e * 2
        f = base()
        with torch.no_grad():
            row = f[0]
            with torch.enable_grad():
                part = row[1:]
                part.add_(3)
            halved = row / 2
        f.mul_(2)
        return results, column, row, late, doubled, part, halved


@program("regions")
def regions(_):
    """Views that are made within parts without gradients, or of other dtypes, and are written outside, and the other way round."""
    return Program(Regions(), [(torch.randn(3, 4),)])


class OfOne(nn.Module):
    def forward(self, x):
        a, b, c, d = x * 1, x * 1, x * 1, x * 1
        torch.einsum("ij->ji", a).add_(torch.arange(16.0).view(4, 4))
        turned, diagonal, summed = torch.einsum("ij->ji", b), torch.einsum("ii->i", b), torch.einsum("ij->i", b)
        b.mul_(2)
        torch.cartesian_prod(c[1]).add_(1)
        first, middle, last = torch.tensor_split(d, (3, 1))
        first.add_(1)
        last.mul_(10)
        middle.add_(5)
        return a, turned, diagonal, summed, c, d, first, last


@program("shared_of_one")
def shared_of_one(_):
    """Operators that yield views of the only tensor that they are given, and parts that overlap."""
    return Program(OfOne(), [(torch.randn(4, 4),)])


@program("unbound")
def unbound(_):
    """All rows of a tensor, which is changed before they are read."""

    def compute(x):
        x = x * 1
        rows = x.unbind(0)
        x.add_(1)
        return torch.stack(rows[::-1])

    return computes(compute, torch.randn(100, 2))


class Unsized(nn.Module):
    def forward(self, x):
        positive = x.sum(1) > 0

        def chosen():
            return x[positive]

        a, b, c, d, e = chosen(), chosen(), chosen(), chosen(), x[x > 0]
        a.t().contiguous().add_(1)
        b.flatten().add_(1)
        c.ravel().mul_(2)
        turned = d.t().reshape(-1)
        turned.relu_()
        e.reshape(-1).add_(1)
        return a, b, c, turned, e


@program("shared_unsized")
def shared_unsized(_):
    """What is a view, and what a copy, of tensors whose sizes depend on data."""
    x = torch.randn(5, 3)
    x[1] = 1.0
    x[3] = -1.0
    return Program(Unsized(), [(x,), (x.abs(),)])


@program("operators_edges")
def edges(_):
    """Operators out of their usual range: shifts beyond the size, slices that end before they begin, infinities, equal elements."""

    def compute(x, y, i, wild, tiny):
        clipped = x * 1
        clipped[3:1] = 7.0
        clipped[1:-1] += 1
        clipped[-2:2] = 5.0
        clipped[2:9] *= 2
        clipped[-9:1] -= 1
        narrowed = x * 1
        torch.narrow(narrowed, 0, -2, 2).add_(10)
        torch.narrow(narrowed, 0, -4, 2).mul_(3)
        mask = torch.tensor([True, True, False, True])
        return (
            clipped, narrowed, torch.narrow(x, 0, -2, 2), torch.roll(x, 7), torch.roll(x, -7), torch.roll(x.view(5, 1), 12, 0),
            torch.slice_scatter(x, x[:0], 0, 3, 1), torch.slice_scatter(x, x[:2] * 9, 0, -3, 4),
            torch.isin(y, 0.1), torch.isin(y.float(), 0.1), torch.isin(0.1, y), torch.quantile(y * 0 + torch.arange(5).double(), 0.25),
            torch.quantile(torch.arange(11, dtype=F64) + y[0] * 0, 0.1, interpolation="higher"),
            torch.bucketize(0.1, y), torch.searchsorted(y, 0.1, right=True), torch.bucketize(wild, x), torch.bucketize(wild, x, right=True),
            torch.histc(x * 0 + 5, 4), torch.histc(x, 3, 2, 2), torch.histc(x, 1, 2, 2), torch.histc(torch.arange(49.0) + x[0], 49, 0, 49),
            torch.nan_to_num(wild, nan=-INF), torch.nan_to_num(wild, nan=INF, posinf=-INF),
            torch.ops.aten._unsafe_masked_index(x, mask, [torch.tensor([-1, 4, 9, -9])], 0.0),
            torch.linspace(0, 1, 50, dtype=torch.int64) + i[0], torch.linspace(-3.7, 5.2, 7, dtype=torch.int32) + i[0],
            torch.linspace(0.5, 0.9, 7) + x[0], torch.logspace(0, 3, 4, dtype=torch.int64) + i[0],
            torch.log1p(tiny), torch.expm1(tiny), torch.special.xlog1py(tiny, tiny), torch.erfc(tiny * 3), torch.erfc(tiny.double() * 3),
            torch.expm1(wild), torch.erfc(wild), torch.isclose(i, i + 1, rtol=0, atol=0), torch.isclose(i, i + 1), torch.isclose(i, i, 0, 0),
            torch.ops.aten.upsample_bilinear2d(x[:4].view(1, 1, 2, 2), [4, 3], False, 2.0, None),
            torch.combinations(x, 6), torch.combinations(x, 3, True),
        )  # fmt: skip

    y = torch.tensor([0.1, 0.2, 0.3, 0.4, 0.5], dtype=F64)
    wild = torch.tensor([1.0, NAN, 2.0, INF, -INF])
    tiny = torch.tensor([1e-10, -1e-7, 0.3, -0.9, 2.5, -3.0, 1.0, -1e-30])
    return computes(compute, torch.arange(5.0), y, torch.tensor([0, 2**24, 7]), wild, tiny)


@program("operators_double")
def doubles(_):
    """Activations of 64 bits, whose constants have as many."""

    def compute(x):
        return [F.hardsigmoid(x), F.leaky_relu(x), F.celu(x, 0.3), F.elu(x, 0.7), F.selu(x), F.rrelu(x), torch.log1p(x.abs()), torch.expm1(x)]

    return computes(compute, torch.tensor([1.0, -0.5, -2.0, 4.0, -4.0, 1e-9], dtype=F64))


@program("operators_complex_range")
def complex_range(_):
    """Complex numbers whose squares are too large, or too small."""

    def compute(x, y):
        z, w = torch.complex(x, y), torch.complex(y, x)
        results = [z.log(), z.sqrt(), z.reciprocal(), 1 / z, w / z, z / 2, z.pow(0.25), z.sgn(), (z / 1e30).expm1()]
        return [z.abs()] + [torch.view_as_real(result) for result in results]

    large = torch.tensor([1e30, 3.0, 1e-30, -2.0, 1e25])
    return computes(compute, large, torch.tensor([1e30, -4.0, 1e-30, -1e-3, -1e20]))


@program("rolled")
def rolled(_):
    """Shifts by more than a size that varies."""

    def compute(x):
        return torch.roll(x, 7), torch.roll(x, 1), torch.roll(x, -3, 0), x.var(0)

    rows = [(torch.randn(n, 2),) for n in (5, 2, 9)]
    return Program(Computes(compute), rows, (({0: Dim("rows", min=2, max=50)},),))


@program("narrowed")
def narrowed(_):
    """Elements from an index on that depends on data, and may count from the end."""

    def compute(x, at):
        return torch.narrow(x, 0, at.item(), 2) * 2

    x = torch.randn(5, 2)
    return Program(Computes(compute), [(x, torch.tensor(at)) for at in (-2, 1, -5, 3)])


class Dequantized(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("scales", torch.tensor([0.5, 0.25]))
        self.register_buffer("zero_points", torch.tensor([3, -900], dtype=torch.int64))

    def forward(self, x):
        ops, wide = torch.ops.quantized_decomposed, (-(2**31), 2**31 - 1, torch.int32)
        each = ops.dequantize_per_channel(x, self.scales, self.zero_points, 0, *wide)
        return ops.dequantize_per_tensor(x, 0.125, 7, *wide), each


@program("operators_dequantized")
def dequantized(_):
    """Integers of 32 bits with zero points, which ONNX has none of."""
    import torch.ao.quantization.fx._decomposed  # noqa: F401  registers the operators

    return Program(Dequantized(), [(torch.randint(-1000, 1000, (2, 3), dtype=torch.int32),)])


@program("given_truths")
def truths(_):
    """What is true, in the dtype of what it is written into."""

    def compute(x, y):
        changed = x * 1
        changed.gt_(0.5)
        other = y * 1
        other.logical_and_(x)
        unequal = y * 1
        unequal.ne_(y)
        given = torch.empty(2, 3)
        torch.gt(x, y, out=given)
        counted = (y * 2).to(torch.int64)
        counted.logical_not_()
        places = torch.argmax(x, 1, out=torch.empty(2, dtype=torch.int64))
        sums = torch.sum(x, 1, out=torch.empty(2))
        return changed + 1, other * 2, unequal - 3, given * 0.5, changed, counted + 3, places, sums

    return Program(Computes(compute), [(torch.randn(2, 3), torch.randn(2, 3))])


@program("autocast")
def autocast(_):
    """Layers that compute in bf16, of which the program tells only by their results."""
    net = nn.ModuleDict({"conv": nn.Conv1d(4, 4, 3, padding=1), "linear": nn.Linear(8, 8)})
    # Of numbers with one sign all digits of a sum are right.
    for parameter in net.parameters():
        parameter.data.abs_()

    class Rounded(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, x):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                linear = self.net["linear"](x) * (x @ x.transpose(1, 2) @ x)
                convolved = self.net["conv"](x)
                # Of which the last digit depends on the order of sums.
                attended = torch.nn.functional.scaled_dot_product_attention(x, x, x) * 0 + convolved
            return linear, convolved, attended

    return Program(Rounded(), [(torch.rand(2, 4, 8),)])


@program("changed_often")
def changed_often(_):
    """One tensor that is changed in place hundreds of times, and sizes of which one part is 0."""

    def compute(x):
        y = x * 1
        for n in range(200):
            y += n
        size = torch.hypot(x * 0, x)
        return y, size, size == x.abs()

    return Program(Computes(compute), [(torch.randn(2, 3),)])
