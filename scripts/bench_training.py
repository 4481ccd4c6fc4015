"""Time training steps of Kiln beside PyTorch's, in one run, in turn.

    pip install torch torchvision transformers onnx onnxscript numpy
    python scripts/bench_training.py [--threads 1] [--rounds 3] [--seconds 4] [--models /tmp/kiln-training] [MODEL...]

A step is forward, cross-entropy, backward and AdamW (PyTorch's fused one) on a batch that stays the same. PyTorch's own networks are
exported to ONNX in evaluation mode and without the exporter's optimizations; Kiln imports them as trainable, so that both begin with
the same weights. Each round runs a process of PyTorch, then one of Kiln, for each model. Printed are the medians over all rounds'
medians, the least time of any step, the resident memory at most, and, as a check, by how much the losses of the first steps differ.
With one thread the mean time for which that thread ran is printed too: what to compare on a machine that is busy with other work.
"""
from __future__ import annotations

import argparse
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
LOSSES, LEAST_STEPS = 5, 10


def resnet18():
    import torchvision
    return torchvision.models.resnet18(weights=None)


def mobilenet_v2():
    import torchvision
    return torchvision.models.mobilenet_v2(weights=None, dropout=0.0)


def efficientnet_b0():
    import torchvision
    return torchvision.models.efficientnet_b0(weights=None, dropout=0.0, stochastic_depth_prob=0.0)


def convnext_tiny():
    import torchvision
    return torchvision.models.convnext_tiny(weights=None, stochastic_depth_prob=0.0)


def swin_t():
    import torchvision
    network = torchvision.models.swin_t(weights=None)
    for module in network.modules():
        if isinstance(module, torchvision.ops.StochasticDepth):
            module.p = 0.0
    return network


def unet():
    import torch
    from torch import nn

    def block(inputs: int, outputs: int) -> nn.Sequential:
        return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(8, outputs), nn.SiLU(),
                             nn.Conv2d(outputs, outputs, 3, padding=1), nn.GroupNorm(8, outputs), nn.SiLU())

    class UNet(nn.Module):
        """Three levels, learned upsampling, and the classes of each pixel."""

        def __init__(self, widths=(32, 64, 128)):
            super().__init__()
            self.down = nn.ModuleList([block(i, o) for i, o in zip((3, *widths), widths)])
            self.pool = nn.MaxPool2d(2)
            self.up = nn.ModuleList([nn.ConvTranspose2d(o, i, 2, stride=2) for i, o in zip(widths, widths[1:])])
            self.merge = nn.ModuleList([block(2 * i, i) for i in widths[:-1]])
            self.head = nn.Conv2d(widths[0], 21, 1)

        def forward(self, x):
            kept = []
            for down in self.down:
                x = down(self.pool(x) if kept else x)
                kept.append(x)
            for skip, up, merge in reversed(list(zip(kept, self.up, self.merge))):
                x = merge(torch.cat([skip, up(x)], 1))
            return self.head(x).permute(0, 2, 3, 1)

    return UNet()


def wavenet():
    import torch
    from torch import nn

    class WaveNet(nn.Module):
        """Gated dilated convolutions over one axis, with a class for each sample."""

        def __init__(self, width=64):
            super().__init__()
            self.first = nn.Conv1d(1, width, 1)
            self.layers = nn.ModuleList([nn.Conv1d(width, 2 * width, 3, padding=2**i, dilation=2**i) for i in range(8)])
            self.mix = nn.ModuleList([nn.Conv1d(width, width, 1) for _ in range(8)])
            self.head = nn.Conv1d(width, 32, 1)

        def forward(self, x):
            x = self.first(x)
            for layer, mix in zip(self.layers, self.mix):
                gate, value = layer(x).chunk(2, 1)
                x = x + mix(torch.sigmoid(gate) * torch.tanh(value))
            return self.head(x).transpose(1, 2)

    return WaveNet()


def video():
    from torch import nn

    def layer(inputs: int, outputs: int, stride: int) -> list:
        return [nn.Conv3d(inputs, outputs, 3, stride, padding=1), nn.BatchNorm3d(outputs), nn.ReLU()]

    return nn.Sequential(*layer(3, 32, 2), *layer(32, 32, 1), *layer(32, 64, 2), *layer(64, 64, 1), nn.AdaptiveAvgPool3d(1),
                         nn.Flatten(), nn.Linear(64, 10))


def bert(attention="sdpa"):
    from transformers import BertConfig, BertForSequenceClassification
    config = BertConfig(vocab_size=8192, hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024,
                        num_labels=4, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, attn_implementation=attention)
    return logits_of(BertForSequenceClassification(config))


def gpt2(attention="sdpa"):
    from transformers import GPT2Config, GPT2LMHeadModel
    config = GPT2Config(vocab_size=8000, n_layer=12, n_embd=768, n_head=12, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
                        attn_implementation=attention, use_cache=False)
    return logits_of(GPT2LMHeadModel(config))


def logits_of(network):
    from torch import nn

    class Logits(nn.Module):
        def __init__(self):
            super().__init__()
            self.network = network

        def forward(self, input_ids):
            return self.network(input_ids=input_ids).logits

    return Logits()


def tagger(kind: str):
    from torch import nn

    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.Embedding(2000, 128)
            recurrent = getattr(nn, kind.upper())(128, 256, num_layers=2, bidirectional=True, batch_first=True)
            # Under its own name, which the parameters of the import have too.
            setattr(self, kind, recurrent)
            self.out = nn.Linear(512, 17)

        def forward(self, tokens):
            return self.out(getattr(self, kind)(self.emb(tokens))[0])

    return Tagger()


def lstm_tagger():
    return tagger("lstm")


def gru_tagger():
    return tagger("gru")


def mlp():
    from torch import nn
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))


# The network, the dims of a batch, how many tokens there are (none for images), the dims of the targets, how many classes.
MODELS = {
    "resnet18": (resnet18, (8, 3, 224, 224), None, (8,), 1000),
    "mobilenet_v2": (mobilenet_v2, (8, 3, 224, 224), None, (8,), 1000),
    "efficientnet_b0": (efficientnet_b0, (4, 3, 224, 224), None, (4,), 1000),
    "convnext_tiny": (convnext_tiny, (2, 3, 224, 224), None, (2,), 1000),
    "swin_t": (swin_t, (2, 3, 224, 224), None, (2,), 1000),
    "unet": (unet, (4, 3, 128, 128), None, (4, 128, 128), 21),
    "wavenet": (wavenet, (4, 1, 2048), None, (4, 2048), 32),
    "video": (video, (2, 3, 16, 64, 64), None, (2,), 10),
    "bert": (bert, (8, 64), 8192, (8,), 4),
    "gpt2": (gpt2, (2, 128), 8000, (2, 128), 8000),
    "lstm_tagger": (lstm_tagger, (16, 64), 2000, (16, 64), 17),
    "gru_tagger": (gru_tagger, (16, 64), 2000, (16, 64), 17),
    "mlp": (mlp, (64, 64), None, (64,), 10),
}


def network(name: str, **options):
    import torch
    torch.manual_seed(0)
    return MODELS[name][0](**options)


def batch(name: str):
    import torch
    _, dims, tokens, targets, classes = MODELS[name]
    generator = torch.Generator().manual_seed(7)
    inputs = torch.randn(dims, generator=generator) if tokens is None else torch.randint(0, tokens, dims, generator=generator)
    return inputs, torch.randint(0, classes, targets, generator=generator)


def export(name: str, folder: pathlib.Path) -> None:
    import torch
    folder.mkdir(parents=True, exist_ok=True)
    # Written out, attention is recognised as well; exporting the fused one leaves masks behind.
    model = network(name, **({"attention": "eager"} if name in ("bert", "gpt2") else {})).eval()
    inputs, targets = batch(name)
    (folder / "inputs.bin").write_bytes(inputs.numpy().tobytes())
    (folder / "targets.bin").write_bytes(targets.numpy().tobytes())
    with torch.no_grad():
        program = torch.onnx.export(model, (inputs,), dynamo=True, optimize=False, verbose=False)
    program.save(str(folder / f"{name}.onnx"))


def peer(name: str, threads: int, seconds: float) -> dict:
    """PyTorch's steps, in a process of their own."""
    import torch
    torch.set_num_threads(threads)
    model = network(name).train()
    inputs, targets = batch(name)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, eps=1e-6, weight_decay=1e-2, fused=True)
    before, losses, times, begun, ran = resident("VmRSS"), [], [], 0.0, 0.0
    while len(times) < LEAST_STEPS or time.perf_counter() - begun < seconds:
        started = time.perf_counter()
        logits = model(inputs)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, -2), targets.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        took = time.perf_counter() - started
        if len(losses) < LOSSES:
            losses.append(loss.item())
            begun, ran = time.perf_counter(), time.thread_time()
        else:
            times.append(took)
    thread_time = (time.thread_time() - ran) / len(times)
    times.sort()
    return {"losses": losses, "median_ms": times[len(times) // 2] * 1e3, "min_ms": times[0] * 1e3, 
            "thread_ms": thread_time * 1e3, "steps": len(times), "before_mb": before, "peak_mb": resident("VmHWM")}


def resident(line: str) -> float:
    status = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(float(text.split()[1]) / 1024 for text in status if text.startswith(line + ":"))


def run(command: list, threads: int) -> dict:
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    done = subprocess.run([str(word) for word in command], env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def build(models: pathlib.Path, features: str = "") -> tuple[pathlib.Path, pathlib.Path]:
    """The runner for the exported models that `models.txt` lists, and the folder of their records."""
    crate = ROOT / "benches/training"
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", crate / "target"))
    environment = {**os.environ, "KILN_TRAINING_MODELS": str(models), "CARGO_TARGET_DIR": str(target)}
    command = ["cargo", "build", "--release", "--quiet", "--message-format=json-render-diagnostics"]
    command += ["--features", features] if features else []
    built = subprocess.run(command, cwd=crate, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
    # Of every set of features there is another folder: cargo says which one is this build's.
    messages = [json.loads(line) for line in built.splitlines()]
    out = next(message["out_dir"] for message in messages
               if message["reason"] == "build-script-executed" and "kiln-training-bench" in message["package_id"])
    return target / "release/kiln-training-bench", pathlib.Path(out) / "models"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="MODEL", help=", ".join(MODELS))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0, help="how long each process takes steps")
    parser.add_argument("--models", type=pathlib.Path, default=pathlib.Path("/tmp/kiln-training"), help="where models are exported to")
    parser.add_argument("--peer", metavar="MODEL", help=argparse.SUPPRESS)
    parser.add_argument("--alone", action="store_true", help="run Kiln only, without PyTorch")
    args = parser.parse_args()
    if args.peer:
        print(json.dumps(peer(args.peer, args.threads, args.seconds)))
        return
    models = args.models.resolve()
    for name in MODELS:
        if not (models / name / f"{name}.onnx").exists():
            subprocess.run([sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT / 'scripts')!r}); import bench_training, "
                            f"pathlib; bench_training.export({name!r}, pathlib.Path({str(models / name)!r}))"], check=True)
    kinds = {name: "images" if tokens is None else "tokens" for name, (_, _, tokens, _, _) in MODELS.items()}
    (models / "models.txt").write_text("".join(f"{name} {kinds[name]} {' '.join(map(str, MODELS[name][1]))}\n" for name in MODELS))
    binary, records = build(models)

    names = args.names or list(MODELS)
    ours: dict[str, list[dict]] = {name: [] for name in names}
    theirs: dict[str, list[dict]] = {name: [] for name in names}
    for _ in range(args.rounds):
        for name in names:
            if not args.alone:
                theirs[name].append(run([sys.executable, __file__, "--peer", name, "--threads", args.threads,
                                         "--seconds", args.seconds], args.threads))
            ours[name].append(run([binary, name, records / f"{name}.safetensors", models / name, f"ndarray={args.threads}",
                                   args.seconds], args.threads))

    one = args.threads == 1
    print("| model | Kiln ms, median (least) | PyTorch ms, median (least) | ratio (of least) |"
          + (" Kiln ms, thread | PyTorch ms, thread | ratio |" if one else "")
          + " Kiln MB, peak (of steps) | PyTorch MB, peak (of steps) | losses differ by |")
    print("| --- |" + " ---: |" * (9 if one else 6))

    def of(rows: list[dict]) -> tuple[float, ...]:
        if not rows:
            return (math.nan,) * 5
        return (statistics.median(row["median_ms"] for row in rows), min(row["min_ms"] for row in rows),
                statistics.median(row["thread_ms"] for row in rows),
                max(row["peak_mb"] for row in rows), max(row["peak_mb"] - row["before_mb"] for row in rows))

    ratios: list[list[float]] = []
    for name in names:
        (a, a_least, a_thread, a_peak, a_steps), (b, b_least, b_thread, b_peak, b_steps) = of(ours[name]), of(theirs[name])
        differ = max((abs(x - y) / max(abs(y), 1e-9) for mine, other in zip(ours[name], theirs[name])
                      for x, y in zip(mine["losses"], other["losses"])), default=math.nan)
        ratios.append([a / b, a_least / b_least] + [a_thread / b_thread] * one)
        print(f"| {name} | {a:.2f} ({a_least:.2f}) | {b:.2f} ({b_least:.2f}) | {a / b:.2f} ({a_least / b_least:.2f}) |"
              + (f" {a_thread:.2f} | {b_thread:.2f} | {a_thread / b_thread:.2f} |" if one else "")
              + f" {a_peak:.0f} ({a_steps:.0f}) | {b_peak:.0f} ({b_steps:.0f}) | {differ:.1e} |")
    means = [math.exp(sum(map(math.log, column)) / len(column)) for column in zip(*ratios)]
    print("\ngeometric mean of the ratios: " + ", ".join(f"{name} {mean:.2f}" for name, mean in zip(
        ("of medians", "of least times", "of the thread's times"), means))
        + f" ({args.threads} thread{'s' if args.threads > 1 else ''}, {args.rounds} rounds)")


if __name__ == "__main__":
    main()
