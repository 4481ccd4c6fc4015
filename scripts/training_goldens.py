"""Write fixtures/training/: small networks exported to be trained, and how PyTorch trains them.

    pip install -r scripts/requirements-fixtures.txt transformers
    python scripts/training_goldens.py [--large FOLDER]

    <case>/model.onnx             the network with its first weights, exported as `trainable(true)` wants it
    <program>/model.pt2           those that are exported programs instead
    <case>/batch.safetensors      its inputs in order (`input_0`, …) and the classes that it should yield (`targets`)
    <case>/<optimizer>.safetensors  the learning rate, the loss before each of 20 steps, and every tensor of the `state_dict`
                                  after them
    dropout/                      a network with dropout, with what it yields in evaluation
    gpt/lora_before/, lora_after/ low-rank pairs under PEFT's names, and what 20 steps of AdamW make of them

`tests/training` takes the same steps with the generated models. Losses are mean cross-entropies over all positions.
`--large` writes the same networks in sizes that are used, to a folder outside of the repository: a measurement, not a test
(`KILN_TRAINING_CASES=FOLDER cargo test --release -p kiln-training-tests`).
Running it again gives the same bytes.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import shutil

import torch
from onnx import numpy_helper
from safetensors.torch import save as to_safetensors
from torch import nn
from torch.nn import functional as F

from fixture_lib.export import export_dynamo, export_torchscript, seed_weights
from fixture_lib.program import save_program

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "fixtures" / "training"
STEPS = 20
PROGRAMS = ("program", "parts")
LORA_RANK, LORA_ALPHA = 2, 4.0

# As tests/training has them.
OPTIMIZERS = {
    "sgd": lambda parameters, rate: torch.optim.SGD(parameters, lr=rate, momentum=0.9),
    "adamw": lambda parameters, rate: torch.optim.AdamW(parameters, lr=rate, eps=1e-5, weight_decay=0.01),
}
SMALL_RATES = {"sgd": 0.05, "adamw": 2e-3}
LARGE_RATES = {"sgd": 2e-3, "adamw": 2e-4}


class Mlp(nn.Module):
    def __init__(self, inputs: int, hidden: int, classes: int):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(inputs, hidden), nn.Linear(hidden, hidden), nn.Linear(hidden, classes)
        # Not trained: a buffer, and a norm without parameters.
        self.register_buffer("shift", torch.zeros(inputs))
        self.norm = nn.LayerNorm(hidden, elementwise_affine=False)

    def forward(self, x):
        x = torch.relu(self.fc1(x - self.shift))
        return self.fc3(torch.relu(self.norm(self.fc2(x))))


class BasicBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = (
            nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
            if stride > 1
            else nn.Identity()
        )

    def forward(self, x):
        y = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(y)) + self.downsample(x))


class ResNet(nn.Module):
    def __init__(self, width: int, blocks: int, classes: int):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, 1, 1, bias=False)
        # Another momentum and epsilon than layers have anyway, and a norm without parameters, whose statistics move.
        self.bn1 = nn.BatchNorm2d(width, momentum=0.2, eps=1e-3)
        self.layer1 = nn.Sequential(*(BasicBlock(width, width, 1) for _ in range(blocks)))
        self.layer2 = nn.Sequential(
            *(BasicBlock(width if n == 0 else 2 * width, 2 * width, 2 if n == 0 else 1) for n in range(blocks))
        )
        self.norm = nn.BatchNorm1d(2 * width, affine=False)
        self.fc = nn.Linear(2 * width, classes)

    def forward(self, x):
        x = torch.relu(self.bn1(self.conv1(x)))
        x = self.layer2(self.layer1(F.max_pool2d(x, 2)))
        return self.fc(self.norm(x.mean((2, 3))))


class Dropping(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.bn, self.drop, self.fc2 = nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Dropout(0.4), nn.Linear(16, 3)

    def forward(self, x):
        return self.fc2(self.drop(torch.relu(self.bn(self.fc1(x)))))


class Program(nn.Module):
    """What an exported program tells of training: where gradients stop, what is frozen, how fast statistics move."""

    def __init__(self, inputs: int, hidden: int, classes: int):
        super().__init__()
        self.fc1, self.bn = nn.Linear(inputs, hidden), nn.BatchNorm1d(hidden, momentum=0.3)
        self.gate, self.frozen = nn.Linear(inputs, hidden), nn.Linear(hidden, hidden)
        self.scale = nn.Parameter(torch.ones(hidden))
        self.fc2 = nn.Linear(hidden, classes)
        self.frozen.requires_grad_(False)

    def forward(self, x):
        y = self.bn(self.fc1(x))
        # The gradient goes straight through.
        y = y + (torch.tanh(2 * y) - y).detach()
        with torch.no_grad():
            gate = torch.sigmoid(self.gate(x))
        return self.fc2(torch.relu(self.frozen(y)) * gate * self.scale * self.scale.detach())


class Parts(nn.Module):
    """Parameters that are joined with others, or with themselves, and used elsewhere, too; a row of padding that does not learn."""

    def __init__(self, words: int, size: int):
        super().__init__()
        self.table, self.more = nn.Embedding(words, size, padding_idx=0), nn.Parameter(torch.zeros(2, size))
        self.gru = nn.GRU(size, size, bidirectional=True, batch_first=True)
        # Both directions are one.
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            setattr(self.gru, f"{name}_l0_reverse", getattr(self.gru, f"{name}_l0"))
        self.down, self.shift = nn.Linear(2 * size, size, bias=False), nn.Parameter(torch.zeros(size // 2))

    def forward(self, ids):
        x = self.gru(self.table(ids))[0]
        x = F.linear(x, self.down.weight, torch.cat([self.shift, self.shift]))
        return F.linear(x, torch.cat([self.table.weight, self.more]))


class FakeQuantized(nn.Module):
    """Weights and activations that are rounded to what bytes stand for, and learn as if they were not; some are out of range."""

    def __init__(self, inputs: int, hidden: int, classes: int):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(inputs, hidden), nn.Linear(hidden, classes)

    def forward(self, x):
        rounded = torch.fake_quantize_per_tensor_affine
        x = F.linear(rounded(x, 0.02, 120, 0, 255), rounded(self.fc1.weight, 0.004, 0, -128, 127), self.fc1.bias)
        return F.linear(rounded(torch.relu(x), 0.01, -128, -128, 127), rounded(self.fc2.weight, 0.004, 0, -128, 127), self.fc2.bias)


class Tagger(nn.Module):
    def __init__(self, vocabulary: int, size: int, hidden: int, tags: int):
        super().__init__()
        self.emb = nn.Embedding(vocabulary, size)
        self.lstm = nn.LSTM(size, hidden, num_layers=2, bidirectional=True, batch_first=True)
        self.out = nn.Linear(2 * hidden, tags)

    def forward(self, tokens):
        return self.out(self.lstm(self.emb(tokens))[0])


class Logits(nn.Module):
    """A model of Hugging Face's that takes and yields tensors."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask=None):
        return self.model(input_ids=input_ids, attention_mask=attention_mask).logits


def bert(**sizes) -> nn.Module:
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, num_labels=3, attn_implementation="sdpa", **sizes
    )
    return Logits(BertForSequenceClassification(config))


def gpt(**sizes) -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False, attn_implementation="sdpa", **sizes
    )
    return Logits(GPT2LMHeadModel(config))


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(3))


def tokens(vocabulary: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, vocabulary, shape, generator=torch.Generator().manual_seed(5))


def mask(*lengths: int) -> torch.Tensor:
    return (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()


def small():
    """Name, network, inputs, number of classes."""
    text = tokens(23, 3, 9)
    sizes = {"vocab_size": 23, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    return [
        ("mlp_tiny", lambda: Mlp(6, 12, 3), (numbers(10, 6),), 3),
        ("resnet", lambda: ResNet(4, 1, 5), (numbers(6, 3, 12, 12),), 5),
        ("resnet_torchscript", lambda: ResNet(4, 1, 5), (numbers(6, 3, 12, 12),), 5),
        (
            "bert",
            lambda: bert(intermediate_size=24, max_position_embeddings=12, **sizes),
            (text, mask(9, 7, 4)),
            3,
        ),
        ("gpt", lambda: gpt(vocab_size=23, n_positions=12, n_embd=16, n_layer=2, n_head=2), (text,), 23),
        ("tagger", lambda: Tagger(23, 8, 8, 4), (text,), 4),
        ("shared", lambda: Shared(7, 6), (tokens(7, 3, 5),), 7),
        ("program", lambda: Program(6, 12, 3), (numbers(10, 6),), 3),
        ("parts", lambda: Parts(7, 6), (tokens(7, 3, 5),), 9),
        ("fake_quantized", lambda: FakeQuantized(6, 12, 3), (numbers(10, 6),), 3),
    ]


def large():
    text = tokens(1000, 4, 48)
    sizes = {"vocab_size": 1000, "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4}
    return [
        ("mlp_tiny", lambda: Mlp(64, 256, 10), (numbers(64, 64),), 10),
        ("resnet", lambda: ResNet(32, 2, 10), (numbers(16, 3, 32, 32),), 10),
        ("resnet_torchscript", lambda: ResNet(32, 2, 10), (numbers(16, 3, 32, 32),), 10),
        (
            "bert",
            lambda: bert(intermediate_size=1024, max_position_embeddings=64, **sizes),
            (text, mask(48, 40, 31, 12)),
            3,
        ),
        ("gpt", lambda: gpt(vocab_size=1000, n_positions=64, n_embd=256, n_layer=4, n_head=4), (text,), 1000),
        ("tagger", lambda: Tagger(1000, 64, 96, 12), (text,), 12),
    ]


def loss_of(network: nn.Module, inputs, targets) -> torch.Tensor:
    logits = network(*inputs)
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets)


def train(network: nn.Module, optimizer, inputs, targets) -> list[float]:
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(network, inputs, targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def steps(rate: float, losses: list[float]) -> dict:
    numbers = {"rate": [rate], "losses": losses}
    return {name: torch.tensor(values, dtype=torch.float64) for name, values in numbers.items()}


def once(state: dict) -> dict:
    """Float tensors, of tied ones the first."""
    found, seen = {}, set()
    for key, value in state.items():
        if value.is_floating_point() and value.data_ptr() not in seen:
            found[key] = value.detach().contiguous().clone()
        seen.add(value.data_ptr())
    return found


class Shared(nn.Module):
    """Parameters that are used in several layouts, and by no layer of their own the second time."""

    def __init__(self, words: int, size: int):
        super().__init__()
        self.table, self.down = nn.Embedding(words, size), nn.Linear(size, 3)
        self.shift = nn.Parameter(torch.zeros(words))

    def forward(self, ids):
        x = self.table(ids)
        x = x + F.linear(torch.tanh(self.down(x)), self.down.weight.T)
        return x @ self.table.weight.T * (1 + self.shift) + self.shift[:, None].T


class LowRank(nn.Module):
    """A linear layer of GPT-2's (its weight is `[inputs, outputs]`) with a pair beside it, as PEFT has one."""

    def __init__(self, base: nn.Module, generator: torch.Generator):
        super().__init__()
        self.base = base
        inputs, outputs = base.weight.shape
        bound = inputs**-0.5
        self.a = nn.Parameter((torch.rand(LORA_RANK, inputs, generator=generator) * 2 - 1) * bound)
        self.b = nn.Parameter(torch.zeros(outputs, LORA_RANK))

    def forward(self, x):
        return self.base(x) + (LORA_ALPHA / LORA_RANK) * (x @ self.a.T @ self.b.T)


def adapted(network: nn.Module, generator: torch.Generator) -> dict[str, LowRank]:
    """Puts pairs beside all of attention's linear layers and freezes the rest."""
    network.requires_grad_(False)
    found = {}
    for name, module in list(network.named_modules()):
        if ".attn." in name and type(module).__name__ == "Conv1D":
            parent, _, field = name.rpartition(".")
            found[name] = LowRank(module, generator)
            setattr(network.get_submodule(parent), field, found[name])
    return found


# What Kiln reads of the exporter's metadata; the rest is most of a small model's bytes.
READ_METADATA = ("name_scopes", "class_hierarchy", "InputSpec.kind", "InputSpec.persistent", "graph_signature")


def slim(model):
    """The model without metadata that Kiln does not read."""

    def keep(item) -> None:
        kept = [entry for entry in item.metadata_props if entry.key.endswith(READ_METADATA)]
        del item.metadata_props[:]
        item.metadata_props.extend(kept)

    graph = model.graph
    graph.doc_string = ""
    keep(graph)
    for item in (*graph.node, *graph.value_info, *graph.input, *graph.output, *graph.initializer):
        item.doc_string = ""
        keep(item)
    return model


def save_pairs(folder: pathlib.Path, pairs: dict[str, LowRank]) -> None:
    folder.mkdir(parents=True)
    tensors = {}
    for name, pair in pairs.items():
        tensors[f"base_model.model.{name}.lora_A.weight"] = pair.a.detach().clone()
        tensors[f"base_model.model.{name}.lora_B.weight"] = pair.b.detach().clone()
    (folder / "adapter_model.safetensors").write_bytes(to_safetensors(tensors, metadata={"format": "pt"}))
    config = {
        "peft_type": "LORA",
        "r": LORA_RANK,
        "lora_alpha": LORA_ALPHA,
        "target_modules": ["c_attn", "attn.c_proj"],
        "fan_in_fan_out": True,
        "bias": "none",
        "lora_dropout": 0.0,
    }
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n")


def exported(name: str, network: nn.Module, inputs):
    """Neither exporter folds anything; the older one writes batch normalizations that train."""
    if name.endswith("_torchscript"):
        training = {"training": torch.onnx.TrainingMode.TRAINING, "do_constant_folding": False}
        return export_torchscript(network.train(), inputs, **training)
    return slim(export_dynamo(network, inputs, optimize=False))


def write_dropout(folder: pathlib.Path) -> None:
    directory = folder / "dropout"
    directory.mkdir(parents=True)
    network, inputs = seed_weights(Dropping(), 0), numbers(8, 6)
    with torch.no_grad():
        output = network(inputs)
    model = slim(export_dynamo(network.train(), (inputs,), optimize=False))
    (directory / "model.onnx").write_bytes(model.SerializeToString(deterministic=True))
    (directory / "batch.safetensors").write_bytes(to_safetensors({"input_0": inputs, "output": output}))


def write(folder: pathlib.Path, rates: dict, name: str, make, inputs, classes: int) -> None:
    directory = folder / name
    directory.mkdir(parents=True)

    def fresh():
        torch.manual_seed(0)
        return seed_weights(make(), 0)

    if name in PROGRAMS:
        weights = fresh().state_dict()
        save_program(torch.export.export(fresh().train(), inputs), directory / "model.pt2")
    else:
        model = exported(name, fresh(), inputs)
        (directory / "model.onnx").write_bytes(model.SerializeToString(deterministic=True))
        # The older exporter runs a network that trains, which moves its statistics: the file's are those to begin with.
        weights = {
            tensor.name: torch.from_numpy(numpy_helper.to_array(tensor).copy()) for tensor in model.graph.initializer
        }

    def network():
        made = fresh()
        made.load_state_dict(weights, strict=False)
        return made

    with torch.no_grad():
        positions = network()(*inputs)[..., 0].numel()
    targets = tokens(classes, positions)
    batch = {f"input_{n}": value for n, value in enumerate(inputs)}
    (directory / "batch.safetensors").write_bytes(to_safetensors({**batch, "targets": targets}))
    for kind, optimizer in OPTIMIZERS.items():
        trained = network().train()
        losses = train(trained, optimizer(trained.parameters(), rates[kind]), inputs, targets)
        assert losses[-1] < losses[0], (name, kind, losses)
        state = {**once(trained.state_dict()), **steps(rates[kind], losses)}
        (directory / f"{kind}.safetensors").write_bytes(to_safetensors(state))
    if name == "gpt":
        trained = network().train()
        pairs = adapted(trained, torch.Generator().manual_seed(8))
        save_pairs(directory / "lora_before", pairs)
        parameters = [matrix for pair in pairs.values() for matrix in (pair.a, pair.b)]
        losses = train(trained, OPTIMIZERS["adamw"](parameters, rates["adamw"]), inputs, targets)
        assert losses[-1] < losses[0]
        save_pairs(directory / "lora_after", pairs)
        (directory / "lora_after" / "steps.safetensors").write_bytes(to_safetensors(steps(rates["adamw"], losses)))
    size = sum(f.stat().st_size for f in directory.rglob("*") if f.is_file())
    print(f"{name}: {size / 1000:.1f} kB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--large", metavar="FOLDER", type=pathlib.Path, help="write larger networks to this folder")
    folder = parser.parse_args().large
    torch.set_num_threads(1)
    torch.backends.mha.set_fastpath_enabled(False)
    target = folder or FOLDER
    shutil.rmtree(target, ignore_errors=True)
    for case in large() if folder else small():
        write(target, LARGE_RATES if folder else SMALL_RATES, *case)
    write_dropout(target)


if __name__ == "__main__":
    main()
