"""A checkpoint with every layer that PyTorch has parameters for, and what each of them computes."""

from __future__ import annotations

import warnings

import torch
from safetensors.torch import save as to_safetensors
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune

from fixture_lib.export import seed_weights
from weight_fixtures import formats, store


class Block(nn.Module):
    """An item of a list; the first has a part that the others lack."""

    def __init__(self, shortcut: bool):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.norm = nn.LayerNorm(4)
        if shortcut:
            self.shortcut = nn.Linear(4, 4, bias=False)

    def forward(self, x):
        kept = self.shortcut(x) if hasattr(self, "shortcut") else x
        return kept + self.norm(self.fc(x))


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1d = nn.Conv1d(4, 6, 3)
        self.conv3d = nn.Conv3d(2, 3, 2)
        self.dw = nn.Conv2d(6, 6, 3, groups=6)
        self.deconv1d = nn.ConvTranspose1d(4, 3, 2)
        self.deconv2d = nn.ConvTranspose2d(4, 6, 3, groups=2)
        self.deconv3d = nn.ConvTranspose3d(2, 3, 2, bias=False)
        self.group_norm = nn.GroupNorm(4, 4)
        self.instance_norm = nn.InstanceNorm1d(4, affine=True)
        self.tracked_norm = nn.InstanceNorm1d(4, affine=True, track_running_stats=True)
        self.plain_norm = nn.BatchNorm1d(4, affine=False)
        self.rms_norm = nn.RMSNorm(4, eps=1e-5)
        self.layer_norm = nn.LayerNorm(4, bias=False)
        self.prelu = nn.PReLU(4)
        self.act = nn.PReLU()
        self.embedding = nn.EmbeddingBag(7, 4)
        self.bilinear = nn.Bilinear(4, 4, 3)
        self.rnn = nn.RNN(4, 3, num_layers=2)
        self.bi_rnn = nn.RNN(4, 3, bidirectional=True, bias=False)
        self.gru = nn.GRU(4, 3, num_layers=2, bidirectional=True, batch_first=True)
        self.lstm = nn.LSTM(4, 3, num_layers=2, bias=False, batch_first=True)
        self.projected = nn.LSTM(4, 3, proj_size=2)
        self.rnn_cell = nn.RNNCell(4, 3)
        self.gru_cell = nn.GRUCell(4, 3)
        self.lstm_cell = nn.LSTMCell(4, 3)
        self.attention = nn.MultiheadAttention(8, 8, batch_first=True)
        self.across = nn.MultiheadAttention(8, 8, kdim=3, vdim=5, batch_first=True)
        self.unbiased = nn.MultiheadAttention(8, 8, bias=False, batch_first=True)
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(8, 8, 12, activation="gelu", batch_first=True), 2, enable_nested_tensor=False
        )
        self.weighted = parametrizations.weight_norm(nn.Conv1d(4, 3, 2))
        self.weighted_up = parametrizations.weight_norm(nn.ConvTranspose1d(4, 3, 2))
        self.spectral = parametrizations.spectral_norm(nn.Linear(4, 3))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.weighted_before = nn.utils.weight_norm(nn.Linear(4, 3))
            self.spectral_before = nn.utils.spectral_norm(nn.Conv1d(4, 3, 2))
        self.pruned = prune.random_unstructured(nn.Linear(4, 3), "weight", amount=5)
        self.blocks = nn.ModuleList([Block(True), Block(False), Block(False)])
        self.steps = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 4))
        self.lists = nn.ParameterList([nn.Parameter(torch.ones(2, 3)), nn.Parameter(torch.ones(3, 2))])
        self.dicts = nn.ParameterDict({"match": nn.Parameter(torch.ones(2)), "a/b": nn.Parameter(torch.ones(()))})
        self.tied = nn.Linear(4, 4)
        self.match = nn.Linear(4, 4, bias=False)
        self.match.weight = self.tied.weight
        self.add_module("größe-1", nn.Linear(4, 2))
        self.register_buffer("mask", torch.tensor([[True, False], [False, True]]))
        self.register_buffer("position", torch.arange(4))


def computed(net: Layers) -> dict[str, torch.Tensor]:
    """What the layers yield, for inputs that are named after their shapes."""
    gen = torch.Generator().manual_seed(11)
    rows, line = torch.randn(2, 5, 4, generator=gen), torch.randn(2, 4, 7, generator=gen)
    wide, image = torch.randn(2, 5, 8, generator=gen), torch.randn(2, 6, 5, 5, generator=gen)
    cube, keys = torch.randn(1, 2, 4, 3, 3, generator=gen), torch.randn(2, 3, 8, generator=gen)
    made = {"rows": rows, "line": line, "wide": wide, "image": image, "cube": cube, "keys": keys}
    made["bag"] = torch.tensor([[0, 3], [6, 1]])
    for name in ("conv1d", "deconv1d", "group_norm", "instance_norm", "tracked_norm", "plain_norm", "prelu", "weighted"):
        made[f"{name}.out"] = getattr(net, name)(line)
    for name in ("weighted_up", "spectral_before"):
        made[f"{name}.out"] = getattr(net, name)(line)
    for name in ("rms_norm", "layer_norm", "act", "spectral", "weighted_before", "pruned", "steps", "tied", "match", "größe-1"):
        made[f"{name}.out"] = net.get_submodule(name)(rows)
    for name in ("conv3d", "deconv3d"):
        made[f"{name}.out"] = getattr(net, name)(cube)
    made["dw.out"], made["deconv2d.out"] = net.dw(image), net.deconv2d(image[:, :4])
    made["embedding.out"] = net.embedding(made["bag"])
    for name in ("rnn", "bi_rnn", "gru", "lstm"):
        made[f"{name}.out"] = getattr(net, name)(rows)[0]
    for name in ("rnn_cell", "gru_cell"):
        made[f"{name}.out"] = getattr(net, name)(rows[:, 0])
    made["lstm_cell.out"] = net.lstm_cell(rows[:, 0])[0]
    for name in ("attention", "unbiased"):
        made[f"{name}.out"] = getattr(net, name)(wide, wide, wide)[0]
    made["across.out"] = net.across(wide, keys[:, :, :3], keys[:, :, 3:])[0]
    made["encoder.out"] = net.encoder(wide)
    x = rows
    for block in net.blocks:
        x = block(x)
    made["blocks.out"] = x
    return {name: tensor.contiguous() for name, tensor in made.items()}


def layers() -> None:
    net = seed_weights(Layers(), 17)
    net.match.weight = net.tied.weight
    with torch.no_grad():
        for parameter in net.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn(parameter.shape) * 0.3)
    for norm in (net.plain_norm, net.tracked_norm):
        norm.running_mean.uniform_(-1, 1)
        norm.running_var.uniform_(0.5, 2)
    net.eval()
    with torch.no_grad():
        # One step of the power iteration, which spectral normalization makes in training.
        net.train()
        net.spectral(torch.ones(1, 4)), net.spectral_before(torch.ones(1, 4, 2))
        net.eval()
        made = computed(net)
    assert parametrize.is_parametrized(net.weighted)
    state = net.state_dict()
    store.write("layers.pt", formats.saved(state, "layers"))
    store.expect("layers", torch.load(store.FOLDER / "layers.pt"))
    store.write("layers.io.safetensors", to_safetensors(made))
