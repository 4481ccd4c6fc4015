"""One small network saved in each kind of checkpoint, and state dicts for some of the ONNX cases."""

from __future__ import annotations

import copy
import json

import torch
from safetensors.torch import save as to_safetensors
from torch import nn

from fixture_cases import dialects, nets_sequence, nets_vision
from fixture_lib.export import seed_weights
from weight_fixtures import formats, store


class Net(nn.Module):
    """A layer of each kind whose weights differ in layout between frameworks."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.bn = nn.BatchNorm2d(4)
        self.up = nn.ConvTranspose2d(4, 6, 2, 2)
        self.group_norm = nn.GroupNorm(3, 6)
        self.emb = nn.Embedding(10, 6)
        self.conv1d = nn.Conv1d(6, 6, 3, padding=1, groups=2)
        self.norm = nn.LayerNorm(6)
        self.lstm = nn.LSTM(6, 5, batch_first=True, bidirectional=True)
        self.gru = nn.GRU(10, 4, batch_first=True)
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
        self.fc = nn.Linear(10, 3, bias=False)

    def forward(self, image, tokens):
        seen = self.group_norm(self.up(torch.relu(self.bn(self.conv(image))))).mean((2, 3))
        x = self.norm(self.conv1d(self.emb(tokens).transpose(1, 2)).transpose(1, 2))
        x = self.gru(self.lstm(x)[0])[0]
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return self.fc(torch.cat([seen, x[:, -1]], 1))


def make_net() -> Net:
    return seed_weights(Net(), 3)


def write_state(name: str, content: bytes, **load) -> None:
    store.write(name, content)
    store.expect(name.rsplit(".", 1)[0], torch.load(store.FOLDER / name, **load))


def network() -> None:
    net = make_net()
    state = net.state_dict()
    gen = torch.Generator().manual_seed(5)
    image, tokens = torch.randn(2, 3, 4, 4, generator=gen), torch.randint(0, 10, (2, 7), generator=gen)
    with torch.no_grad():
        answer = net(image, tokens)
    store.write("net.io.safetensors", to_safetensors({"image": image, "tokens": tokens, "answer": answer}))

    write_state("net.pt", formats.saved(state, "net"))
    write_state("net_legacy.pt", formats.legacy_checkpoint(state))
    write_state("net_tar.pt", formats.tar_checkpoint(dict(state)), weights_only=False)
    write_state(
        "net_half.pt", formats.saved({k: v.half() if v.is_floating_point() else v for k, v in state.items()}, "net")
    )
    write_state(
        "net_bfloat16.pt",
        formats.saved({k: v.bfloat16() if v.is_floating_point() else v for k, v in state.items()}, "net"),
    )
    store.write("net.safetensors", to_safetensors(state, metadata={"format": "pt"}))
    nested(net, state)
    sharded(state)

    script = torch.jit.script(copy.deepcopy(net))
    store.write("net_torchscript.pt", formats.scripted(script))
    store.expect("net_torchscript", dict(torch.jit.load(store.FOLDER / "net_torchscript.pt").state_dict()))
    traced = torch.jit.trace(copy.deepcopy(net), (image, tokens))
    store.write("net_traced.pt", formats.scripted(traced))
    store.expect("net_traced", dict(torch.jit.load(store.FOLDER / "net_traced.pt").state_dict()))

    store.write("net_whole_module.pt", formats.saved(net, "net"))
    store.refuse(
        "net_whole_module",
        "a whole module was pickled, not its state_dict",
        "state_dict",
        "weight_fixtures.network.Net",
    )


def nested(net: Net, state) -> None:
    """A training checkpoint: the weights are one entry among many."""
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    net.fc.weight.grad = torch.ones_like(net.fc.weight)
    kept = copy.deepcopy(state)
    optimizer.step()
    optimizer.zero_grad()
    net.load_state_dict(kept)
    checkpoint = {
        "epoch": 7,
        "global_step": 1 << 40,
        "best_score": 0.9375,
        "finished": False,
        "note": None,
        "model": {
            "state_dict": kept,
            "ema": {
                "decay": 0.999,
                "state_dict": {f"module.{k}": v * 0.5 for k, v in kept.items() if v.is_floating_point()},
            },
        },
        "optimizer": optimizer.state_dict(),
        "config": {
            "name": "net",
            "hidden": 4,
            "dropout": 0.1,
            "sizes": [3, 4, 6],
            "nested": {"bias": False, "activation": "tanh"},
            "optional": None,
            "pair": (1, "two"),
        },
        "history": [(1, 0.5), (2, 0.25), (3, float("inf"))],
        "classes": ["cat", "dög", "鸟"],
        "seen": {1, 2, 3},
        7: "an integer key",
        (1, 2): "a tuple key",
    }
    store.write("net_nested.pt", formats.saved(checkpoint, "net"))
    store.expect("net_nested", torch.load(store.FOLDER / "net_nested.pt"), top_level_key="model.state_dict")
    store.write("net_nested_legacy.pt", formats.legacy_checkpoint(checkpoint))
    store.expect(
        "net_nested_legacy", torch.load(store.FOLDER / "net_nested_legacy.pt"), top_level_key="model.state_dict"
    )


def sharded(state) -> None:
    """Two shards and an index, as Hugging Face writes them."""
    keys = list(state)
    parts = [keys[: len(keys) // 2], keys[len(keys) // 2 :]]
    total = sum(v.nbytes for v in state.values())
    for folder, stem, ending in (("net_sharded", "model", "safetensors"), ("net_sharded_bin", "pytorch_model", "bin")):
        where = {}
        for number, part in enumerate(parts, 1):
            name = f"{stem}-{number:05}-of-{len(parts):05}.{ending}"
            some = {k: state[k].clone() for k in part}
            content = (
                to_safetensors(some, metadata={"format": "pt"})
                if ending == "safetensors"
                else formats.saved(some, name)
            )
            store.write(f"{folder}/{name}", content)
            where |= dict.fromkeys(part, name)
        index = {"metadata": {"total_size": total}, "weight_map": where}
        store.write(f"{folder}/{stem}.{ending}.index.json", (json.dumps(index, indent=2) + "\n").encode())
        store.expect(folder, dict(state))


# Checkpoints of networks that `make_fixtures.py` exports: `from_pytorch` must take them as they are.
OF_CASES = {
    "net_residual_cnn_unfolded": nets_vision.ResidualCnn,
    "net_vit": nets_vision.VisionTransformer,
    "net_bert_encoder": nets_sequence.Bert,
    "net_gpt_decoder_unfolded": nets_sequence.Gpt,
    "scopes_dynamo_unfolded": dialects.Scoped,
}


def of_cases() -> None:
    for case, make in OF_CASES.items():
        store.write(f"of_cases/{case}.pt", formats.saved(seed_weights(make()).state_dict(), case))
