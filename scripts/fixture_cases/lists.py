"""Lists of plain layers, as `nn.ModuleList` holds them."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from fixture_cases.rounds import BATCH, floats
from fixture_lib.registry import case
from fixture_lib.torch_case import torch_case


class Perceptron(nn.Module):
    """Layers of one width in a loop, then layers of other widths one by one."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(5)])
        widths = [8, 12, 6, 3]
        self.heads = nn.ModuleList([nn.Linear(a, b) for a, b in zip(widths, widths[1:])])

    def forward(self, x):
        for layer in self.layers:
            x = F.relu(layer(x))
        for head in self.heads[:-1]:
            x = torch.tanh(head(x))
        return self.heads[-1](x)


class Order(nn.Module):
    """Lists whose layers are called in another order, twice, or to read a weight."""

    def __init__(self):
        super().__init__()
        self.forth = nn.ModuleList([nn.Linear(6, 6) for _ in range(4)])
        self.back = nn.ModuleList([nn.Linear(6, 6, bias=False) for _ in range(3)])

    def forward(self, x):
        for layer in self.forth:
            x = F.gelu(layer(x))
        for layer in reversed(self.back):
            x = torch.sigmoid(layer(x))
        x = self.forth[2](x) + self.forth[0](x)
        return x @ self.back[1].weight


class Pairs(nn.Module):
    """Two lists in one loop, in blocks of one struct that are a list themselves."""

    class Stack(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(4)])
            self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(4)])

        def forward(self, x):
            for norm, layer in zip(self.norms, self.layers):
                x = x + F.silu(layer(norm(x)))
            return x

    def __init__(self):
        super().__init__()
        self.narrow = Pairs.Stack(6)
        self.widen = nn.Linear(6, 10)
        self.wide = Pairs.Stack(10)

    def forward(self, x):
        return self.wide(self.widen(self.narrow(x)))


class Pyramid(nn.Module):
    """Convolutions of dilations that grow, and of one image each: their results are joined."""

    def __init__(self):
        super().__init__()
        self.branches = nn.ModuleList([nn.Conv2d(4, 3, 3, padding=d, dilation=d) for d in (1, 2, 3, 4)])
        self.embeddings = nn.ModuleList([nn.Embedding(5, 12) for _ in range(6)])

    def forward(self, image, indices):
        seen = torch.cat([torch.relu(branch(image)) for branch in self.branches], 1)
        words = [embedding(indices[:, i]) for i, embedding in enumerate(self.embeddings)]
        return seen, torch.stack(words, 1)


@case("lists_perceptron")
def perceptron(_):
    return torch_case(Perceptron(), [(floats(2, 8),), (floats(5, 8, seed=8),)], dynamic_shapes=({0: BATCH},))


@case("lists_order")
def order(_):
    return torch_case(Order(), [(floats(3, 6),)])


@case("lists_pairs")
def pairs(_):
    return torch_case(Pairs(), [(floats(2, 4, 6),), (floats(3, 4, 6, seed=8),)], dynamic_shapes=({0: BATCH},))


@case("lists_pyramid")
def pyramid(_):
    indices = torch.randint(5, (2, 6, 3), generator=torch.Generator().manual_seed(3))
    return torch_case(Pyramid(), [(floats(2, 4, 9, 9), indices)])


class Optional(nn.Module):
    """Stages that differ in sizes and in optional layers: some follow from the sizes of a stage, not from those of what is in it."""

    class Gate(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.inner, self.outer = nn.Conv2d(width, 2, 1), nn.Conv2d(2, width, 1)

        def forward(self, x):
            return self.outer(F.relu(self.inner(x)))

    class Inner(nn.Module):
        """A gate and what follows it are there together."""

        def __init__(self, widths, gated):
            super().__init__()
            self.layers = nn.ModuleList([nn.Conv2d(a, b, 1) for a, b in zip(widths, widths[1:])])
            self.gate = Optional.Gate(widths[-1]) if gated else None

        def forward(self, x):
            for layer in self.layers:
                x = torch.tanh(layer(x))
            return self.gate(x).softmax(1) if self.gate else x

    class Stage(nn.Module):
        def __init__(self, given, width, widths):
            super().__init__()
            self.first = nn.Conv2d(given, width, 1)
            self.inner = Optional.Inner([width, *widths, width], given != width)

        def forward(self, x):
            x = F.relu(self.first(x))
            return x + self.inner(x)

    def __init__(self):
        super().__init__()
        self.stages = nn.Sequential(
            Optional.Stage(8, 8, [7, 6, 5, 4, 3, 9]),
            Optional.Stage(8, 10, [9, 7, 8, 6, 5, 11]),
            Optional.Stage(10, 10, [5, 4, 6, 7, 8, 3]),
            Optional.Stage(10, 12, [6, 9, 5, 8, 7, 4]),
        )

    def forward(self, x):
        return self.stages(x)


@case("lists_optional")
def optional(_):
    return torch_case(Optional(), [(floats(2, 8, 3, 2),), (floats(3, 8, 3, 2, seed=8),)], dynamic_shapes=({0: BATCH},))
