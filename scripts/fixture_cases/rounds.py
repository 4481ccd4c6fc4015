"""Loops of Python that exporters write out: the same modules again and again, on what the round before left."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from fixture_cases.dialects import without_names
from fixture_lib.registry import case
from fixture_lib.torch_case import torch_case

BATCH = torch.export.Dim("batch", min=1, max=64)


def floats(*shape, seed=7):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


class SparseCode(nn.Module):
    """LISTA: a code that is refined by one matrix, and shrunk by thresholds."""

    def __init__(self, rounds=6):
        super().__init__()
        self.rounds = rounds
        self.encode = nn.Linear(6, 10, bias=False)
        self.refine = nn.Linear(10, 10, bias=False)
        self.threshold = nn.Parameter(torch.full((10,), 0.1))

    def shrink(self, x):
        return torch.sign(x) * F.relu(x.abs() - self.threshold)

    def forward(self, y):
        start = self.encode(y)
        code = self.shrink(start)
        for _ in range(self.rounds):
            code = self.shrink(start + self.refine(code))
        return code


class ConvGru(nn.Module):
    def __init__(self, hidden, inputs):
        super().__init__()
        self.update = nn.Conv2d(hidden + inputs, hidden, 3, padding=1)
        self.reset = nn.Conv2d(hidden + inputs, hidden, 3, padding=1)
        self.candidate = nn.Conv2d(hidden + inputs, hidden, 3, padding=1)

    def forward(self, h, x):
        hx = torch.cat([h, x], 1)
        z, r = torch.sigmoid(self.update(hx)), torch.sigmoid(self.reset(hx))
        return (1 - z) * h + z * torch.tanh(self.candidate(torch.cat([r * h, x], 1)))


class OpticalFlow(nn.Module):
    """RAFT: rounds carry a hidden state and the flow; all flows are results, joined."""

    def __init__(self, rounds=5):
        super().__init__()
        self.rounds = rounds
        self.features = nn.Conv2d(3, 4, 3, stride=2, padding=1)
        self.context = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.encoder = nn.Conv2d(6, 4, 3, padding=1)
        self.gru = ConvGru(4, 8)
        self.head = nn.Conv2d(4, 2, 3, padding=1)
        self.mask = nn.Conv2d(4, 4, 1)

    def forward(self, first, second):
        a, b = self.features(first), self.features(second)
        hidden, context = self.context(first).chunk(2, 1)
        hidden, context = torch.tanh(hidden), F.relu(context)
        flow = a[:, :2] * 0.1
        flows = []
        for _ in range(self.rounds):
            correlation = torch.tanh(a * (b + flow.mean(1, keepdim=True)))
            motion = F.relu(self.encoder(torch.cat([correlation, flow], 1)))
            hidden = self.gru(hidden, torch.cat([context, motion], 1))
            mask = self.mask(hidden)
            flow = flow + self.head(hidden)
            flows.append(flow)
        return torch.stack(flows), mask


class Recurrence(nn.Module):
    """Cells of its own over time, there and back; steps are found by their numbers."""

    def __init__(self, steps=6):
        super().__init__()
        self.steps = steps
        self.input, self.state = nn.Linear(3, 12), nn.Linear(4, 12, bias=False)
        self.back = nn.Linear(7, 4)

    def forward(self, x, later, h):
        there, back = [], []
        c = torch.tanh(h)
        for t in range(self.steps):
            f, i, u = (self.input(x[:, t]) + self.state(h)).chunk(3, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(u)
            h = torch.tanh(c) * h
            there.append(h)
        for t in range(self.steps):
            h = torch.tanh(self.back(torch.cat([later[:, self.steps - 1 - t], h], 1)))
            back.append(h.unsqueeze(1))
        return torch.stack(there, 1), torch.cat(back, 1), c


class Recursive(nn.Module):
    """A small recursive model: rounds of thinking in rounds of answers."""

    def __init__(self, answers=4, thoughts=5):
        super().__init__()
        self.answers, self.thoughts = answers, thoughts
        self.think = nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 6))
        self.norm = nn.LayerNorm(6)
        self.answer = nn.Linear(12, 6)

    def forward(self, x, y, z):
        for _ in range(self.answers):
            for _ in range(self.thoughts):
                z = self.norm(z + self.think(x + y * z))
            y = torch.tanh(self.answer(torch.cat([y, z], -1)))
        return y, z


class Stream(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        return torch.tanh(self.down(F.gelu(self.up(self.norm(x)))))


class JointBlock(nn.Module):
    """Two streams that see each other, as in diffusion transformers; the last one of such a network leaves the text alone."""

    def __init__(self, width, is_last=False):
        super().__init__()
        self.is_last = is_last
        self.modulate = nn.Linear(width, width)
        self.image, self.to_image = Stream(width), nn.Linear(width, width)
        if not is_last:
            self.text, self.to_text = Stream(width), nn.Linear(width, width)

    def forward(self, image, text, time):
        scale = torch.sigmoid(self.modulate(F.silu(time)))[:, None]
        mixed = torch.softmax(torch.tanh(image @ text.transpose(1, 2)), -1)
        hidden = torch.tanh(self.to_image(mixed @ text)) * scale
        if self.is_last:
            return hidden + self.image(hidden)
        text = torch.tanh(self.to_text(mixed.transpose(1, 2) @ image))
        return hidden + self.image(hidden), text + self.text(text)


class Lists(nn.Module):
    """Lists of modules: blocks that carry two values, the last of them one, two lists at once, and results of all items."""

    def __init__(self, width=4, depth=5):
        super().__init__()
        self.joint = nn.ModuleList([JointBlock(width, is_last=n + 1 == depth) for n in range(depth)])
        self.gates = nn.ModuleList([Stream(width) for _ in range(depth)])
        self.streams = nn.ModuleList([Stream(width) for _ in range(depth)])
        self.deep = nn.ModuleList([Stream(width) for _ in range(depth)])

    def forward(self, image, text, time):
        for block in self.joint[:-1]:
            image, text = block(image, text, time)
        image = self.joint[-1](image, text, time)
        for i, stream in enumerate(self.streams):
            image = image + stream(image)
            image = image * torch.sigmoid(self.gates[i](image))
        outputs = []
        for stream in self.deep:
            text = text + stream(text)
            outputs.append(text)
        return image, torch.cat(outputs, -1)


@case("rounds_lists")
def rounds_lists(_):
    torch.manual_seed(3)
    model = Lists()
    inputs = lambda n: (floats(n, 6, 4), floats(n, 3, 4, seed=8), floats(n, 4, seed=9))
    return torch_case(model, [inputs(2), inputs(1)], dynamic_shapes=({0: BATCH}, {0: BATCH}, {0: BATCH}))


@case("rounds_sparse_code")
def sparse_code(_):
    return torch_case(SparseCode(), [(floats(2, 6),), (floats(3, 6, seed=8),)], dynamic_shapes=({0: BATCH},))


@case("rounds_optical_flow")
def optical_flow(_):
    calls = [(floats(1, 3, 12, 16, seed=8), floats(1, 3, 12, 16, seed=9))]
    return torch_case(OpticalFlow(), calls)


@case("rounds_optical_flow_torchscript")
def optical_flow_torchscript(_):
    calls = [(floats(1, 3, 12, 16, seed=8), floats(1, 3, 12, 16, seed=9))]
    return torch_case(OpticalFlow(), calls, torchscript=True)


@case("rounds_without_names")
def rounds_without_names(_):
    return without_names(optical_flow(None))


@case("rounds_recurrence")
def recurrence(_):
    calls = [tuple(floats(n, *shape, seed=n) for shape in ((6, 3), (6, 3), (4,))) for n in (2, 1)]
    return torch_case(Recurrence(), calls, dynamic_shapes=({0: BATCH},) * 3)


@case("rounds_recursive")
def recursive(_):
    return torch_case(Recursive(), [tuple(floats(2, 5, 6, seed=seed) for seed in (1, 2, 3))])
