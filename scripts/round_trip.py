"""Proves that PyTorch loads what Kiln saves: export, load into a Kiln module, save, load back, outputs equal.

    cargo build -p kiln --features pytorch,safetensors --example round_trip
    python scripts/round_trip.py

The networks are the one of `weight_fixtures/network.py` and one with nested lists, attention and stacked LSTMs, in training
after a step, so that no parameter has its first value. Every tensor must come back bit for bit.

Then the networks of `checkpoint_cases.py`, which were exported to ONNX: the modules generated from them save what they loaded
from a checkpoint, alone and like the checkpoint. The networks take all of it and give the output of the checkpoint.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from checkpoint_cases import CASES, FOLDER  # noqa: E402
from weight_fixtures.network import Net  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[1]
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
PROGRAM = TARGET / "debug" / "examples" / "round_trip"


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm = nn.LayerNorm(8)
        self.mlp = nn.ModuleList([nn.Linear(8, 12), nn.Linear(12, 8, bias=False)])
        self.scale = nn.RMSNorm(8)
        self.act = nn.PReLU(12)

    def forward(self, x):
        y = self.norm(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        y = self.act(self.mlp[0](x).transpose(1, 2)).transpose(1, 2)
        return self.scale(x + self.mlp[1](y))


class Stack(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.lstm = nn.LSTM(8, 5, num_layers=2, batch_first=True)
        self.gru = nn.GRU(5, 3, num_layers=2, batch_first=True, bidirectional=True)
        self.rnn = nn.RNN(6, 8, batch_first=True)
        self.across = nn.MultiheadAttention(8, 2, kdim=6, vdim=5, batch_first=True)
        self.lookup = nn.Embedding(11, 8)
        self.image = nn.Conv2d(1, 2, 3, bias=False)
        self.image_norm = nn.BatchNorm2d(2)
        self.head = nn.Linear(8, 4)

    def forward(self, tokens, image):
        x = self.lookup(tokens)
        for block in self.blocks:
            x = block(x)
        seen = self.image_norm(self.image(image)).mean()
        short = self.lstm(x)[0]
        wide = self.gru(short)[0]
        x = self.across(self.rnn(wide)[0], wide, short, need_weights=False)[0]
        return self.head(x[:, -1]) + seen


def trained(net: nn.Module, inputs) -> nn.Module:
    """The network after a step of training: statistics and all parameters are no longer those of a new one."""
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    net.train()
    net(*inputs).square().sum().backward()
    optimizer.step()
    return net.eval()


def check(name: str, make, inputs, folder: pathlib.Path) -> None:
    torch.manual_seed(1)
    net = trained(make(), inputs)
    with torch.no_grad():
        expected = net(*inputs)
    for ending in ("pt", "safetensors"):
        original, saved = folder / f"{name}.{ending}", folder / f"{name}.saved.safetensors"
        if ending == "pt":
            torch.save(net.state_dict(), original)
        else:
            save_file(net.state_dict(), original)
        subprocess.run([str(PROGRAM), name, str(original), str(saved)], check=True)
        state = load_file(saved)
        again = make()
        again.load_state_dict(state, strict=True)
        for key, tensor in net.state_dict().items():
            # How many batches there were is for training only, and Kiln's BatchNorm does not count.
            if not key.endswith("num_batches_tracked"):
                assert torch.equal(state[key], tensor) and state[key].dtype == tensor.dtype, key
        with torch.no_grad():
            assert torch.equal(again.eval()(*inputs), expected), name
        print(f"{name}.{ending}: {len(state)} tensors are equal, and so is the output")


def check_generated(folder: pathlib.Path) -> None:
    """Loads what generated modules saved into the networks that they were generated from."""
    command = ["cargo", "test", "--quiet", "--package", "kiln-checkpoint-tests"]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "KILN_SAVED": str(folder)}, check=True, stdout=subprocess.DEVNULL)
    for name, make, *_ in CASES:
        io = load_file(FOLDER / name / "io.safetensors")
        for saved in sorted(folder.glob(f"{name}.*")) + sorted(folder.glob(f"{name}_trainable.*")):
            network = make()
            state = load_file(saved)
            missing, unexpected = network.load_state_dict(state, strict=False)
            # A tensor of several names may be there under one of them: the exported file does not tell all.
            own = network.state_dict()
            there = {own[key].data_ptr() for key in state}
            lost = [key for key in missing if own[key].data_ptr() not in there]
            assert not unexpected and not lost, (lost, unexpected)
            with torch.no_grad():
                torch.testing.assert_close(network.eval()(io["input"]), io["output"], rtol=1e-4, atol=1e-5)
            print(f"{saved.name}: {len(state)} tensors, and the output is the same")


def main() -> None:
    generator = torch.Generator().manual_seed(2)
    tokens = torch.randint(0, 10, (2, 7), generator=generator)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        check_generated(folder)
        check("net", Net, (torch.randn(2, 3, 4, 4, generator=generator), tokens), folder)
        check("stack", Stack, (tokens, torch.randn(2, 1, 5, 5, generator=generator)), folder)


if __name__ == "__main__":
    main()
