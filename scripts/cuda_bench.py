#!/usr/bin/env python3
"""Times what scripts/cuda.sh packed on a GPU, launched kernel by kernel and as a graph, beside the peers that are there: PyTorch (eager, and
compiled with CUDA graphs) on the models that `--models` has, a folder with a module `export_models` whose table `MODELS` makes them by
their names; ONNX Runtime and TensorRT on the files in `--cases`, folders by the models' names with `model.onnx`.

    python3 cuda_bench.py [--models FOLDER] [--cases FOLDER] [--compute f32|tf32|bf16] [--batch 1] [--mode reduce-overhead] [--rounds 3] [--json FILE]

Each round times all of them in turn; the medians over the rounds are printed in milliseconds, with inputs and outputs on the device. `--compute`
says as what floats are multiplied: products of f32 use TF32 nowhere or everywhere, and bf16 is that of weights and inputs too (PyTorch alone beside it).
`--batch` is that of the packed cases, as many of which PyTorch's inputs are repeated to. `--mode` is PyTorch's compiler's; beside `max-autotune`, `KILN_TUNE=1` in the
environment has Kiln time its ways of doing the same, too.
"""

import argparse
import json
import math
import pathlib
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent


def run_kiln(command):
    """The numbers that a packed case prints, by name."""
    out = subprocess.run(command.split(), cwd=HERE, capture_output=True, text=True, check=False)
    if out.returncode != 0:
        raise RuntimeError(out.stderr.strip().splitlines()[-1] if out.stderr.strip() else f"exit status {out.returncode}")
    pairs = (line.split(" ", 1) for line in out.stdout.splitlines())
    return {name: float(number) for name, number in pairs}


def median_ms(call, wait, seconds=2.0):
    for _ in range(10):
        call()
    wait()
    times, begun = [], time.perf_counter()
    while len(times) < 5 or (time.perf_counter() - begun < seconds and len(times) < 10_000):
        start = time.perf_counter()
        call()
        wait()
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


def time_pytorch(name, given, compiled):
    import torch

    sys.path.insert(0, str(given.models))
    import export_models

    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = given.compute == "tf32"
    model, inputs, _ = export_models.MODELS[name]()
    model, inputs = model.eval().cuda(), [tensor.cuda() for tensor in inputs]
    inputs = [tensor.repeat(given.batch, *[1] * (tensor.dim() - 1)) for tensor in inputs]
    if given.compute == "bf16":
        model, inputs = model.bfloat16(), [tensor.bfloat16() if tensor.is_floating_point() else tensor for tensor in inputs]
    with torch.inference_mode():
        if compiled:
            model = torch.compile(model, mode=given.mode)
        return median_ms(lambda: model(*inputs), torch.cuda.synchronize)


def time_onnx(name, given, provider):
    if given.compute == "bf16":
        raise RuntimeError("the files are those of f32")
    cases = given.cases
    import numpy
    import onnx
    import onnxruntime
    from onnx import numpy_helper

    if provider not in onnxruntime.get_available_providers():
        raise RuntimeError(f"no {provider}")
    options = {"use_tf32": str(int(given.compute == "tf32"))} if provider == "CUDAExecutionProvider" else {}
    session = onnxruntime.InferenceSession(cases / name / "model.onnx", providers=[(provider, options)])
    folder = sorted((cases / name).glob("test_data_set_*"))[0]
    paths = sorted(folder.glob("input_*.pb"), key=lambda path: int(path.stem.split("_")[1]))
    arrays = [numpy_helper.to_array(onnx.load_tensor(path)) for path in paths]
    binding = session.io_binding()
    for wanted, array in zip(session.get_inputs(), arrays):
        value = onnxruntime.OrtValue.ortvalue_from_numpy(numpy.ascontiguousarray(array), "cuda", 0)
        binding.bind_ortvalue_input(wanted.name, value)
    for wanted in session.get_outputs():
        binding.bind_output(wanted.name, "cuda")
    return median_ms(lambda: session.run_with_iobinding(binding), binding.synchronize_outputs)


PEERS = {
    "PyTorch": lambda name, given: time_pytorch(name, given, compiled=False),
    "PyTorch compiled": lambda name, given: time_pytorch(name, given, compiled=True),
    "ONNX Runtime": lambda name, given: time_onnx(name, given, "CUDAExecutionProvider"),
    "TensorRT": lambda name, given: time_onnx(name, given, "TensorrtExecutionProvider"),
}


def time_peer(peer, name, given):
    """In a process of its own, so that peers do not hold each other's memory; nothing where it is not there, with the reason."""
    folder = {"models": given.models, "cases": given.cases}
    arguments = [word for option, path in folder.items() if path for word in (f"--{option}", path)]
    arguments += ["--compute", given.compute, "--batch", str(given.batch), "--mode", given.mode]
    command = [sys.executable, HERE / "cuda_bench.py", *arguments, "--peer", peer, "--model", name]
    out = subprocess.run(command, capture_output=True, text=True, check=False)
    last = out.stdout.strip().splitlines()[-1:] or [""]
    try:
        return float(last[0]), None
    except ValueError:
        return None, (out.stderr.strip().splitlines() or ["no answer"])[-1]


def commands(file, compute):
    """Those of a list, by the models' names."""
    path = HERE / (f"{file}_bf16.tsv" if compute == "bf16" else f"{file}.tsv")
    lines = path.read_text().splitlines() if path.exists() else []
    setting = " tf32" if compute == "tf32" else ""
    return {pathlib.Path(name).name: command + setting for name, command in (line.split("\t") for line in lines)}


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=pathlib.Path)
    parser.add_argument("--cases", type=pathlib.Path)
    parser.add_argument("--compute", choices=["f32", "tf32", "bf16"], default="f32")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--mode", default="reduce-overhead")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=pathlib.Path, default=HERE / "times.json")
    parser.add_argument("--peer", choices=PEERS, help=argparse.SUPPRESS)
    parser.add_argument("--model", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.peer:
        print(PEERS[given.peer](given.model, given))
        return 0

    plain, captured = (commands(file, given.compute) for file in ("bench", "bench_captured"))
    peers = [peer for peer in PEERS if (given.models if peer.startswith("PyTorch") else given.cases)]
    rows, missing, failed = {}, {}, False
    for name in plain:
        rows[name] = {kind: [] for kind in ["Kiln", "Kiln as a graph", *peers]}
    for _ in range(given.rounds):
        for name, row in rows.items():
            for kind, command in [("Kiln", plain[name]), ("Kiln as a graph", captured.get(name))]:
                try:
                    row[kind].append(run_kiln(command))
                except (RuntimeError, AttributeError) as error:
                    missing[name, kind], failed = str(error), True
            for peer in peers:
                if (name, peer) in missing:
                    continue
                took, reason = time_peer(peer, name, given)
                if took is None:
                    missing[name, peer] = reason
                else:
                    row[peer].append({"median_ms": took})
            given.json.write_text(json.dumps(rows, indent=1))

    middle = {
        name: {kind: statistics.median(run["median_ms"] for run in runs) for kind, runs in row.items() if runs}
        for name, row in rows.items()
    }
    kinds = ["Kiln", "Kiln as a graph", *peers]
    print("| model | " + " | ".join(kinds) + " | launches | recording |")
    print("| --- " * (len(kinds) + 3) + "|")
    for name, times in middle.items():
        cells = [f"{times[kind]:.3f}" if kind in times else "–" for kind in kinds]
        first = rows[name]["Kiln"][0] if rows[name]["Kiln"] else {}
        cells += [f"{first.get('dispatches', math.nan):g}", f"{first.get('encode_ms', math.nan):.3f}"]
        print(f"| {name} | " + " | ".join(cells) + " |")
    for peer in peers:
        both = [times for times in middle.values() if peer in times and "Kiln as a graph" in times]
        if both:
            ratio = geometric_mean([times["Kiln as a graph"] / times[peer] for times in both])
            print(f"Kiln as a graph takes {ratio:.2f} of {peer}'s time on {len(both)} models (geometric mean)")
    for (name, kind), reason in missing.items():
        print(f"{name}, {kind}: {reason}")
    return 1 if failed else 0


sys.exit(main())
