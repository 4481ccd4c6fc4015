#!/usr/bin/env python3
"""Training steps of imported networks on CUDA beside PyTorch: ResNet-50 on 64 images, and BERT-base on 32 texts of 128 words.

    python scripts/cuda_training.py [NET…]                   # here, on the CPU: small networks, whose losses must be PyTorch's
    python scripts/cuda_training.py --pack FOLDER [NET…]     # for a machine with a GPU and without Rust
    python3 FOLDER/cuda_training.py [NET…]                   # there

A step is forward, cross-entropy, backward and AdamW (PyTorch's fused one) on a batch that stays the same. PyTorch's own networks are exported to ONNX
in evaluation mode, and Kiln's runner (`benches/training`) imports them as trainable. PyTorch takes the steps as it is, and with forward and loss
compiled. Kiln takes them operation by operation, and with forward and backward as a captured graph. All wait for the device after each step. Times are medians of at least 10 steps after 5 that are not timed; memory is what is held of the
device's, in use or not.

Each network is trained in f32, in f32 with products of TF32, and in bf16. The last is no mixed precision: weights, activations, gradients and the
optimizer's averages are all bf16 on both sides, as `network.bfloat16()` says it in PyTorch, so that like is compared with like.

The losses of the small networks' first steps are compared with PyTorch's on the CPU. Of the large networks no weights are packed, but arbitrary ones
made where they run, since times do not depend on them: in training, batch normalization divides by its batch's variance, not by a stored one.

Packing needs Rust, torch, torchvision, transformers, onnx and onnxscript.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
# Steps whose losses are reported, and which are not timed; steps that are timed at least.
LOSSES, LEAST_STEPS = 5, 10
# Peers that compile take minutes.
LONGEST_PEER, LONGEST_KILN = 300, 300
# How far losses may be from PyTorch's, relative to them.
TOLERANCE = {"f32": 1e-4, "tf32": 1e-2, "bf16": 5e-2}


def resnet50(_):
    import torchvision

    return torchvision.models.resnet50(weights=None)


def small_resnet(_):
    from torch import nn
    from torchvision.models.resnet import Bottleneck

    shortcut = nn.Sequential(nn.Conv2d(16, 32, 1, stride=2, bias=False), nn.BatchNorm2d(32))
    return nn.Sequential(
        nn.Conv2d(3, 16, 7, stride=2, padding=3, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(3, stride=2, padding=1),
        Bottleneck(16, 8, stride=2, downsample=shortcut), Bottleneck(32, 8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
    )


def bert(attention, layers=12, width=768, heads=12, words=30522):
    from torch import nn
    from transformers import BertConfig, BertForSequenceClassification

    network = BertForSequenceClassification(
        BertConfig(
            vocab_size=words, hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads, intermediate_size=4 * width, num_labels=4,
            hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, attn_implementation=attention,
        )
    )

    class Logits(nn.Module):
        def __init__(self):
            super().__init__()
            self.network = network

        def forward(self, input_ids):
            return self.network(input_ids=input_ids).logits

    return Logits()


def small_bert(attention):
    return bert(attention, layers=2, width=48, heads=4, words=101)


# By their names: the network, the dims of a batch, how many words there are (none for images), how many classes, whether its weights are packed.
NETWORKS = {
    "small_resnet": (small_resnet, (4, 3, 32, 32), None, 10, True),
    "small_bert": (small_bert, (4, 16), 101, 4, True),
    "resnet50": (resnet50, (64, 3, 224, 224), None, 1000, False),
    "bert_base": (bert, (32, 128), 30522, 4, False),
}
HERE_ON_CPU = ["small_resnet", "small_bert"]
# What computes: the runner's backend, and whether products are of TF32.
COMPUTES = {"f32": ("cuda", False), "tf32": ("cuda", True), "bf16": ("cuda-bf16", False)}


def network(name, attention="sdpa"):
    import torch

    torch.manual_seed(0)
    return NETWORKS[name][0](attention)


def batch(name):
    import torch

    _, dims, words, classes, _ = NETWORKS[name]
    generator = torch.Generator().manual_seed(7)
    inputs = torch.randn(dims, generator=generator) if words is None else torch.randint(0, words, dims, generator=generator)
    return inputs, torch.randint(0, classes, dims[:1], generator=generator)


def write_batch(name, folder):
    inputs, targets = batch(name)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "inputs.bin").write_bytes(inputs.numpy().tobytes())
    (folder / "targets.bin").write_bytes(targets.numpy().tobytes())


def export(name, folder):
    import torch

    write_batch(name, folder)
    # Written out, attention is recognised as well; exporting the fused one leaves masks behind.
    with torch.no_grad():
        program = torch.onnx.export(network(name, "eager").eval(), (batch(name)[0],), dynamo=True, optimize=False, verbose=False)
    program.save(str(folder / f"{name}.onnx"))


def export_and_build(names, folder, features):
    """Exports each network in a process of its own, whose memory goes with it, and yields the runner and the folder of its records."""
    sys.path.insert(0, str(HERE))
    import bench_training

    lines = []
    for name in names:
        if not (folder / name / f"{name}.onnx").exists():
            subprocess.run([sys.executable, __file__, "--export", name, "--models", str(folder)], check=True)
        _, dims, words, _, _ = NETWORKS[name]
        lines.append(" ".join([name, "images" if words is None else "tokens", *map(str, dims)]) + "\n")
    (folder / "models.txt").write_text("".join(lines))
    return bench_training.build(folder, features)


def run_pytorch(name, given, mode):
    """Training steps of PyTorch, in a process of their own."""
    import torch

    is_gpu = given.device == "cuda"
    torch.set_num_threads(given.threads)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = given.compute == "tf32"
    # Convolutions by the fastest algorithm, which is looked for in steps that are not timed.
    torch.backends.cudnn.benchmark = True
    net, (inputs, targets) = network(name).train(), batch(name)
    if given.compute == "bf16":
        net, inputs = net.bfloat16(), inputs.bfloat16() if inputs.is_floating_point() else inputs
    net, inputs, targets = net.to(given.device), inputs.to(given.device), targets.to(given.device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, eps=1e-6, weight_decay=1e-2, fused=True)

    def loss_of(inputs, targets):
        return torch.nn.functional.cross_entropy(net(inputs), targets)

    compiled = torch.compile(loss_of, mode=mode) if mode else loss_of
    losses, times, begun = [], [], 0.0
    while len(times) < LEAST_STEPS or time.perf_counter() - begun < given.seconds:
        started = time.perf_counter()
        if mode:
            torch.compiler.cudagraph_mark_step_begin()
        loss = compiled(inputs, targets)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if is_gpu:
            torch.cuda.synchronize()
        took = time.perf_counter() - started
        if len(losses) < LOSSES:
            losses.append(loss.item())
            begun = time.perf_counter()
        else:
            times.append(took)
    found = {"losses": losses, "median_ms": statistics.median(times) * 1e3, "min_ms": min(times) * 1e3, "steps": len(times)}
    if is_gpu:
        found["device_mb"] = torch.cuda.max_memory_reserved() / 2**20
    return found


# Kiln's ways, by what is said to the runner.
WAYS = {"Kiln": [], "Kiln captured": ["captured"]}
PEERS = {
    "PyTorch": None,
    "PyTorch reduce-overhead": "reduce-overhead",
    "PyTorch max-autotune": "max-autotune",
}


def answer(command, longest):
    """The last line of what a process prints; nothing where it fails, with the reason."""
    try:
        out = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, timeout=longest)
        return json.loads((out.stdout.strip().splitlines() or [""])[-1]), None
    except ValueError:
        return None, (out.stderr.strip().splitlines() or [f"exit status {out.returncode}"])[-1]
    except subprocess.TimeoutExpired:
        return None, f"takes longer than {longest} s"


def run_kiln(runner, name, record, folder, given, backend, options=()):
    return answer([runner, name, record, folder, backend, given.seconds, *options], LONGEST_KILN)


def run_peer(peer, name, given, device, compute):
    command = [sys.executable, __file__, "--peer", peer, "--device", device, "--compute", compute, "--threads", given.threads]
    return answer([*command, "--seconds", given.seconds, name], LONGEST_PEER)


def compare(what, found, expected, compute, failed):
    """Whether the losses of the first steps are PyTorch's."""
    worst = max(abs(a - b) / abs(b) for a, b in zip(found["losses"], expected["losses"], strict=True))
    print(f"{what}: losses differ from PyTorch's by {worst:.1e}", flush=True)
    # Not greater than the tolerance, nor NaN.
    if not worst <= TOLERANCE[compute]:
        failed.append(f"{what}: losses {found['losses']}, PyTorch's are {expected['losses']}")


def table(rows, kinds):
    print("| network | " + " | ".join(kinds) + " |")
    print("| --- |" + " ---: |" * len(kinds))
    for name, row in rows.items():
        cells = [row.get(kind) for kind in kinds]
        cells = [f"{found['median_ms']:.2f} ({found.get('device_mb', 0) / 1024:.1f})" if found else "–" for found in cells]
        print(f"| {name} | " + " | ".join(cells) + " |")
    print("\nmilliseconds a step, medians (GB of the device's memory that are held)")
    for name, row in rows.items():
        for way in WAYS:
            found = row.get(way, {})
            if found.get("launches"):
                print(f"{name}: {way} launches {found['launches']:.0f} kernels a step, which move {found['moved_mb']:.0f} MB")
    sys.stdout.flush()


def run_here(names, given):
    runner, records = export_and_build(names, given.models, "")
    rows, failed = {}, []
    for name in names:
        row = rows[name] = {}
        ours, reason = run_kiln(runner, name, records / f"{name}.safetensors", given.models / name, given, f"ndarray={given.threads}")
        theirs, reason_of_theirs = run_peer("PyTorch", name, given, "cpu", "f32")
        if ours and theirs:
            row.update({"Kiln": ours, "PyTorch": theirs})
            compare(name, ours, theirs, "f32", failed)
        else:
            failed.append(f"{name}: {reason or reason_of_theirs}")
    table(rows, ["Kiln", "PyTorch"])
    return failed


def pack(names, given):
    sys.path.insert(0, str(HERE))
    import cuda_weights

    to = given.pack.resolve()
    runner, records = export_and_build(names, given.models, "cuda")
    to.mkdir(parents=True, exist_ok=True)
    shutil.copy(runner, to / "train")
    subprocess.run(["strip", str(to / "train")], check=True)
    expected = {}
    for name in names:
        record = records / f"{name}.safetensors"
        if not NETWORKS[name][-1]:
            (to / record.name).write_bytes(cuda_weights.header(record)[0])
            continue
        shutil.copy(record, to)
        shutil.copytree(given.models / name, to / name, ignore=shutil.ignore_patterns("*.onnx*"), dirs_exist_ok=True)
        for compute in ["f32", "bf16"]:
            found, reason = run_peer("PyTorch", name, given, "cpu", compute)
            if reason:
                raise RuntimeError(f"{name} {compute}: {reason}")
            expected[f"{name} {compute}"] = found
        # As exactly as it is known: products of TF32 are no other ones.
        expected[f"{name} tf32"] = expected[f"{name} f32"]
    (to / "networks.json").write_text(json.dumps({"names": names, "expected": expected}))
    for script in ["cuda_training.py", "cuda_weights.py"]:
        shutil.copy(HERE / script, to)
    return []


def run_packed(names, given):
    sys.path.insert(0, str(HERE))
    import cuda_weights

    packed = json.loads((HERE / "networks.json").read_text())
    peers = [] if given.alone else [peer for peer in PEERS if given.autotune or PEERS[peer] != "max-autotune"]
    rows, failed = {}, []
    for name in names or packed["names"]:
        record = HERE / f"{name}.safetensors"
        cuda_weights.fill(record)
        if not (HERE / name).exists():
            write_batch(name, HERE / name)
        for compute in given.compute.split(","):
            title = f"{name} {compute}"
            backend, tf32 = COMPUTES[compute]
            row = rows[title] = {}
            for way, options in WAYS.items():
                found, reason = run_kiln(HERE / "train", name, record, HERE / name, given, backend, options + ["tf32"] * tf32)
                if reason:
                    failed.append(f"{title}, {way}: {reason}")
                    print(f"{title}, {way}: {reason}", flush=True)
                    continue
                row[way] = found
                if title in packed["expected"]:
                    compare(f"{title}, {way}", found, packed["expected"][title], compute, failed)
            if title in packed["expected"]:
                continue
            for peer in peers:
                found, reason = run_peer(peer, name, given, "cuda", compute)
                if found:
                    row[peer] = found
                else:
                    print(f"{title}, {peer}: {reason}", flush=True)
            # What is known by now stays, should time run out.
            (given.out or HERE / "training.json").write_text(json.dumps(rows))
            table({title: row}, [*WAYS, *peers])
    table(rows, [*WAYS, *peers])
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NET", help=", ".join(NETWORKS))
    parser.add_argument("--pack", type=pathlib.Path, metavar="FOLDER")
    parser.add_argument("--models", type=pathlib.Path, default=pathlib.Path("/tmp/kiln-training-cuda"), help="where networks are exported to")
    parser.add_argument("--seconds", type=float, default=3.0, help="how long each process takes steps")
    parser.add_argument("--compute", default=",".join(COMPUTES), help="which of these, with commas between them")
    parser.add_argument("--threads", type=int, default=1, help="on the CPU")
    parser.add_argument("--alone", action="store_true", help="without PyTorch")
    parser.add_argument("--autotune", action="store_true", help="PyTorch compiled by max-autotune too, which takes minutes for each network")
    parser.add_argument("--out", type=pathlib.Path, metavar="FILE", help="where the numbers go, as JSON")
    parser.add_argument("--export", metavar="NET", help=argparse.SUPPRESS)
    parser.add_argument("--peer", choices=PEERS, help=argparse.SUPPRESS)
    parser.add_argument("--device", default="cpu", help=argparse.SUPPRESS)
    given = parser.parse_args()
    given.models = given.models.resolve()
    if given.export:
        export(given.export, given.models / given.export)
        return 0
    if given.peer:
        print(json.dumps(run_pytorch(given.names[0], given, PEERS[given.peer])))
        return 0
    for name in given.names:
        if name not in NETWORKS:
            parser.error(f"no network is called {name}")
    for compute in given.compute.split(","):
        if compute not in COMPUTES:
            parser.error(f"nothing is computed in {compute}")
    if (HERE / "networks.json").exists():
        failed = run_packed(given.names, given)
    elif given.pack:
        failed = pack(given.names or list(NETWORKS), given)
    else:
        failed = run_here(given.names or HERE_ON_CPU, given)
    for what in failed:
        print(f"FAILED: {what}")
    return 1 if failed else 0


sys.exit(main())
