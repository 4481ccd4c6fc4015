#!/usr/bin/env python3
"""Greedy generation by imported decoders beside PyTorch: GPT-2 small and a Llama of 1 B, both with arbitrary weights, token by token with static caches.

    python scripts/cuda_generate.py [DECODER…]                   # here, on the CPU: small decoders and GPT-2, beside PyTorch and ONNX Runtime
    python scripts/cuda_generate.py --pack FOLDER [DECODER…]     # for a machine with a GPU and without Rust
    python3 FOLDER/cuda_generate.py [DECODER…]                   # there

A step of generation is exported with `transformers` as it is: token, position and caches are inputs, and outputs of the same shapes. Kiln's runner
(`benches/generation`) keeps all of them on the device, where also the next token is chosen, on CUDA operation by operation and as a graph with state.
PyTorch does the same with a `StaticCache`: as it is, and compiled in both modes with CUDA graphs. The tokens that the small decoders generate
are compared; of the large ones no weights are packed, but made where they run, since times do not depend on them. Times are of 256 tokens.

Packing needs Rust, torch, transformers, onnx and onnxscript, 11 GB of memory and as much disk for the Llama in f32.
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
ROOT = HERE.parent
FIRST, TOKENS = 1, 256
# Peers that compile take minutes.
LONGEST_PEER = 600


def gpt2(layers=12, width=768, heads=12, vocabulary=50257, length=TOKENS):
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=vocabulary, n_positions=max(length, 64), n_embd=width, n_layer=layers, n_head=heads,
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=None, eos_token_id=None,
        )
    )


def llama(layers=16, width=2048, heads=32, key_heads=8, wide=8192, vocabulary=128256, length=TOKENS):
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=vocabulary, hidden_size=width, intermediate_size=wide, num_hidden_layers=layers, num_attention_heads=heads,
            num_key_value_heads=key_heads, max_position_embeddings=max(length, 64), rope_parameters={"rope_type": "default", "rope_theta": 500000.0},
            tie_word_embeddings=True, bos_token_id=None, eos_token_id=None,
        )
    )


def small_gpt2():
    return gpt2(layers=2, width=48, heads=4, vocabulary=101)


def small_llama():
    return llama(layers=2, width=64, heads=4, key_heads=2, wide=96, vocabulary=101)


# By their names: the network, whether it is in bf16, whether its weights are packed.
DECODERS = {
    "small_gpt2": (small_gpt2, False, True),
    "small_llama": (small_llama, False, True),
    "small_llama_bf16": (small_llama, True, True),
    "gpt2": (gpt2, False, False),
    "gpt2_bf16": (gpt2, True, False),
    "llama": (llama, False, False),
    "llama_bf16": (llama, True, False),
}
HERE_ON_CPU = ["small_gpt2", "small_llama", "gpt2"]


def network(name, layers=None):
    import torch

    torch.manual_seed(0)
    make, is_bf16, _ = DECODERS[name]
    net = make(layers=layers) if layers and "small" not in name else make()
    with torch.no_grad():
        for parameter in net.parameters():
            # What is equal would be merged by the exporter.
            if parameter.dim() == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
            elif "small" in name:
                # Else a small decoder says one token for ever.
                parameter.mul_(8.0)
    return (net.bfloat16() if is_bf16 else net).eval()


def caches_of(net):
    """How many caches the network has, and the shape of each."""
    config = net.config
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return 2 * config.num_hidden_layers, [1, heads, TOKENS, size]


def static_cache(net):
    from transformers import StaticCache

    return StaticCache(config=net.config, max_cache_len=TOKENS)


def step(net):
    """A step of generation without anything that it changes."""
    import torch

    class Step(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, token, position, keys, values):
            cache = static_cache(net)
            for layer, key, value in zip(cache.layers, keys, values):
                layer.lazy_initialization(key, value)
                layer.keys, layer.values, layer.cumulative_length = key.clone(), value.clone(), position.reshape(()).clone()
            logits = self.net(input_ids=token, position_ids=position.unsqueeze(0), past_key_values=cache, use_cache=True).logits
            token = logits[:, -1].argmax(-1, keepdim=True)
            return token, position + 1, [layer.keys for layer in cache.layers], [layer.values for layer in cache.layers]

    return Step().eval()


def begin(net):
    import torch

    count, shape = caches_of(net)
    caches = [torch.zeros(shape, dtype=net.dtype) for _ in range(count)]
    return torch.tensor([[FIRST]]), torch.tensor([0]), caches[: count // 2], caches[count // 2 :]


def export(name, folder, layers):
    """Writes the decoder's ONNX file, and yields its line of the list that the runner is built by."""
    import torch

    net = network(name, layers)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.onnx"
    with torch.no_grad():
        program = torch.onnx.export(step(net), begin(net), dynamo=True, verbose=False)
    program.save(str(path), external_data=True)
    count, [_, heads, length, size] = caches_of(net)
    return f"{name} {count} {heads} {length} {size} {'BF16' if net.dtype == torch.bfloat16 else 'F32'}"


def export_all(names, folder, layers):
    """In a process for each, whose memory goes with it."""
    lines = []
    for name in names:
        known = folder / name / "line.txt"
        if not known.exists():
            command = [sys.executable, __file__, "--export", name, "--models", folder, *(["--layers", str(layers)] if layers else [])]
            subprocess.run(list(map(str, command)), check=True)
        lines.append(known.read_text())
    (folder / "decoders.txt").write_text("".join(lines))


def build(folder, features):
    crate = ROOT / "benches/generation"
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", crate / "target"))
    environment = {**os.environ, "KILN_GENERATION_MODELS": str(folder), "CARGO_TARGET_DIR": str(target)}
    command = ["cargo", "build", "--release", "--quiet", *(["--features", features] if features else [])]
    subprocess.run(command, cwd=crate, env=environment, check=True)
    records = sorted((target / "release/build").glob("kiln-generation-bench-*/out/models"), key=lambda path: path.stat().st_mtime)
    return target / "release/kiln-generation-bench", records[-1]


def run_kiln(runner, name, record, backend, runs, setting=()):
    command = [runner, name, record, backend, TOKENS, runs, *setting]
    out = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if out.returncode != 0:
        raise RuntimeError((out.stderr.strip().splitlines() or [f"exit status {out.returncode}"])[-1])
    return json.loads(out.stdout)


def seconds(generate, runs):
    """Of each run but the first, and the tokens of the last."""
    times, tokens = [], []
    for _ in range(runs + 1):
        started = time.perf_counter()
        tokens = generate()
        times.append(time.perf_counter() - started)
    times = sorted(times[1:])
    return {"tokens": tokens, "median_s": statistics.median(times), "min_s": times[0]}


def run_pytorch(name, given, mode):
    import torch

    is_gpu = given.device == "cuda"
    torch.set_num_threads(given.threads)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = given.compute == "tf32"
    net = network(name, given.layers).to(given.device)
    cache = static_cache(net)
    count, [_, heads, _, size] = caches_of(net)
    cache.early_initialization(1, heads, size, net.dtype, torch.device(given.device))

    def decode(token, position):
        logits = net(input_ids=token, position_ids=position.unsqueeze(0), past_key_values=cache, use_cache=True).logits
        return logits[:, -1].argmax(-1, keepdim=True)

    decode_one = torch.compile(decode, mode=mode, fullgraph=True) if mode else decode

    def generate():
        for layer in cache.layers:
            layer.keys.zero_(), layer.values.zero_(), layer.cumulative_length.zero_()
        token = torch.tensor([[FIRST]], device=given.device)
        position = torch.zeros(1, dtype=torch.int64, device=given.device)
        text = []
        for _ in range(TOKENS):
            if mode:
                torch.compiler.cudagraph_mark_step_begin()
            # A graph writes the next token over the last.
            token = decode_one(token, position).clone()
            position += 1
            text.append(token)
        return torch.cat(text, 1)[0].tolist()

    with torch.inference_mode(not mode), torch.no_grad():
        found = seconds(generate, given.runs)
    if is_gpu:
        found["peak_mb"] = torch.cuda.max_memory_allocated() / 2**20
    return found


def run_onnx(name, given):
    """On the CPU; its caches are new ones in each step."""
    import numpy
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = given.threads
    session = onnxruntime.InferenceSession(given.models / name / f"{name}.onnx", options, providers=["CPUExecutionProvider"])
    inputs, outputs = ([value.name for value in values] for values in (session.get_inputs(), session.get_outputs()))
    shapes = [value.shape for value in session.get_inputs()]
    value = onnxruntime.OrtValue.ortvalue_from_numpy

    def generate():
        state = [value(numpy.array([[FIRST]])), value(numpy.array([0]))]
        state += [value(numpy.zeros(shape, numpy.float32)) for shape in shapes[2:]]
        text = []
        for _ in range(TOKENS):
            state = session.run_with_ort_values(outputs, dict(zip(inputs, state)))
            text.append(int(state[0].numpy()[0, 0]))
        return text

    return seconds(generate, given.runs)


PEERS = {
    "PyTorch": lambda name, given: run_pytorch(name, given, None),
    "PyTorch reduce-overhead": lambda name, given: run_pytorch(name, given, "reduce-overhead"),
    "PyTorch max-autotune": lambda name, given: run_pytorch(name, given, "max-autotune"),
    "ONNX Runtime": run_onnx,
}


def run_peer(peer, name, given, device, compute):
    """In a process of its own; nothing where it is not there, with the reason."""
    command = [sys.executable, __file__, "--peer", peer, "--device", device, "--compute", compute, "--threads", given.threads]
    command += ["--runs", given.runs, "--models", given.models, *(["--layers", given.layers] if given.layers else []), name]
    try:
        out = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, timeout=LONGEST_PEER)
        return json.loads((out.stdout.strip().splitlines() or [""])[-1]), None
    except ValueError:
        return None, (out.stderr.strip().splitlines() or ["no answer"])[-1]
    except subprocess.TimeoutExpired:
        return None, f"takes longer than {LONGEST_PEER} s"


def table(rows, kinds):
    """Milliseconds a token, and tokens a second."""
    print("| decoder | " + " | ".join(kinds) + " |")
    print("| --- |" + " ---: |" * len(kinds))
    for name, row in rows.items():
        cells = [row.get(kind) for kind in kinds]
        cells = [f"{found['median_s'] / TOKENS * 1e3:.3f} ({TOKENS / found['median_s']:.0f})" if found else "–" for found in cells]
        print(f"| {name} | " + " | ".join(cells) + " |")
    print(f"\nmilliseconds a token (tokens a second), medians over runs of {TOKENS} tokens")
    for name, row in rows.items():
        launches = row.get("Kiln", {}).get("launches")
        if launches:
            print(f"{name}: Kiln launches {launches:.0f} kernels a token")


def compare(name, row, kinds, failed):
    """Whether all say the same tokens as PyTorch; in 16 bits sums differ, so that at a tie of two tokens generation goes another way."""
    expected = row.get("PyTorch", {}).get("tokens")
    for kind in kinds:
        tokens = row.get(kind, {}).get("tokens")
        if not tokens or not expected or tokens == expected:
            continue
        same = next((n for n, (a, b) in enumerate(zip(tokens, expected)) if a != b), len(expected))
        print(f"{name}, {kind}: the first {same} of {len(expected)} tokens are PyTorch's")
        if not DECODERS[name][1]:
            failed.append(f"{name}, {kind}: other tokens")


def run_here(names, given):
    folder = given.models
    export_all(names, folder, given.layers)
    runner, records = build(folder, "")
    kinds = ["Kiln", "PyTorch", "ONNX Runtime"]
    rows, failed = {}, []
    for name in names:
        row = rows[name] = {"Kiln": run_kiln(runner, name, records / f"{name}.safetensors", f"ndarray={given.threads}", given.runs)}
        for peer in kinds[1:]:
            found, reason = run_peer(peer, name, given, "cpu", "f32")
            if found:
                row[peer] = found
            else:
                print(f"{name}, {peer}: {reason}")
        compare(name, row, kinds, failed)
    table(rows, kinds)
    return failed


def pack(names, given):
    sys.path.insert(0, str(HERE))
    import cuda_weights

    folder, to = given.models, given.pack.resolve()
    export_all(names, folder, given.layers)
    runner, records = build(folder, "cuda")
    to.mkdir(parents=True, exist_ok=True)
    shutil.copy(runner, to / "generate")
    expected = {}
    for name in names:
        record = records / f"{name}.safetensors"
        if DECODERS[name][2]:
            shutil.copy(record, to)
            expected[name], reason = run_peer("PyTorch", name, given, "cpu", "f32")
            if reason:
                raise RuntimeError(f"{name}: {reason}")
        else:
            (to / record.name).write_bytes(cuda_weights.header(record)[0])
    (to / "decoders.json").write_text(json.dumps({"names": names, "layers": given.layers, "expected": expected}))
    for script in ["cuda_generate.py", "cuda_weights.py"]:
        shutil.copy(HERE / script, to)
    return []


def run_packed(names, given):
    sys.path.insert(0, str(HERE))
    import cuda_weights

    packed = json.loads((HERE / "decoders.json").read_text())
    given.layers = packed["layers"]
    rows, failed, peers = {}, [], [peer for peer in PEERS if peer.startswith("PyTorch") and not given.alone]
    for name in names or packed["names"]:
        record = HERE / f"{name}.safetensors"
        cuda_weights.fill(record)
        for compute in ["bf16"] if DECODERS[name][1] else ["f32", "tf32"]:
            row = rows[f"{name} {compute}"] = {}
            setting = ["tf32"] if compute == "tf32" else []
            for kind, backend in [("Kiln", "cuda"), ("Kiln as a graph", "captured")]:
                try:
                    row[kind] = run_kiln(HERE / "generate", name, record, backend, given.runs, setting)
                except RuntimeError as error:
                    failed.append(f"{name} {compute}, {kind}: {error}")
            if name in packed["expected"]:
                row["PyTorch"] = packed["expected"][name]
                compare(name, row, ["Kiln", "Kiln as a graph"], failed if compute == "f32" else [])
                del row["PyTorch"]
                continue
            for peer in peers:
                found, reason = run_peer(peer, name, given, "cuda", compute)
                if found:
                    row[peer] = found
                else:
                    print(f"{name} {compute}, {peer}: {reason}", flush=True)
            (HERE / "generation.json").write_text(json.dumps(rows))
            table({f"{name} {compute}": row}, ["Kiln", "Kiln as a graph", *peers])
    table(rows, ["Kiln", "Kiln as a graph", *peers])
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="DECODER", help=", ".join(DECODERS))
    parser.add_argument("--pack", type=pathlib.Path, metavar="FOLDER")
    parser.add_argument("--models", type=pathlib.Path, default=pathlib.Path("/tmp/kiln-generation"), help="where decoders are exported to")
    parser.add_argument("--layers", type=int, help="of the large decoders, for trials")
    parser.add_argument("--runs", type=int, default=3, help="of 256 tokens each")
    parser.add_argument("--threads", type=int, default=1, help="on the CPU")
    parser.add_argument("--alone", action="store_true", help="without PyTorch")
    parser.add_argument("--export", metavar="DECODER", help=argparse.SUPPRESS)
    parser.add_argument("--peer", choices=PEERS, help=argparse.SUPPRESS)
    parser.add_argument("--device", default="cpu", help=argparse.SUPPRESS)
    parser.add_argument("--compute", default="f32", help=argparse.SUPPRESS)
    given = parser.parse_args()
    given.models = given.models.resolve()
    if given.export:
        line = export(given.export, given.models / given.export, given.layers)
        (given.models / given.export / "line.txt").write_text(line + "\n")
        return 0
    if given.peer:
        print(json.dumps(PEERS[given.peer](given.names[0], given)))
        return 0
    for name in given.names:
        if name not in DECODERS:
            parser.error(f"no decoder is called {name}")
    if (HERE / "decoders.json").exists():
        failed = run_packed(given.names, given)
    elif given.pack:
        failed = pack(given.names or list(DECODERS), given)
    else:
        failed = run_here(given.names or HERE_ON_CPU, given)
    for what in failed:
        print(f"FAILED: {what}")
    return 1 if failed else 0


sys.exit(main())
