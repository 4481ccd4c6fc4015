#!/usr/bin/env python3
"""Times what scripts/cuda.sh packed on a GPU, launched kernel by kernel and as a graph, beside the peers that are there: PyTorch (eager, and
compiled with CUDA graphs) on the models that `--models` has, a folder with a module `export_models` whose table `MODELS` makes them by
their names; ONNX Runtime and TensorRT on the files in `--cases`, folders by the models' names with `model.onnx`.

    python3 cuda_bench.py [--models FOLDER] [--cases FOLDER] [--rounds 3] [--json FILE]

Each round times all of them in turn; the medians over the rounds are printed in milliseconds, of batch 1 with inputs and outputs on the device.
Products are those of f32 everywhere: nothing uses TF32.
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


def time_pytorch(name, models, compiled):
    import torch

    sys.path.insert(0, str(models))
    import export_models

    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    model, inputs, _ = export_models.MODELS[name]()
    model, inputs = model.eval().cuda(), [tensor.cuda() for tensor in inputs]
    with torch.inference_mode():
        if compiled:
            model = torch.compile(model, mode="reduce-overhead")
        return median_ms(lambda: model(*inputs), torch.cuda.synchronize)


def time_onnx(name, cases, provider):
    import numpy
    import onnx
    import onnxruntime
    from onnx import numpy_helper

    if provider not in onnxruntime.get_available_providers():
        raise RuntimeError(f"no {provider}")
    options = {"use_tf32": "0"} if provider == "CUDAExecutionProvider" else {}
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
    "PyTorch": lambda name, given: time_pytorch(name, given.models, compiled=False),
    "PyTorch compiled": lambda name, given: time_pytorch(name, given.models, compiled=True),
    "ONNX Runtime": lambda name, given: time_onnx(name, given.cases, "CUDAExecutionProvider"),
    "TensorRT": lambda name, given: time_onnx(name, given.cases, "TensorrtExecutionProvider"),
}


def time_peer(peer, name, given):
    """In a process of its own, so that peers do not hold each other's memory; nothing where it is not there, with the reason."""
    folder = {"models": given.models, "cases": given.cases}
    arguments = [word for option, path in folder.items() if path for word in (f"--{option}", path)]
    command = [sys.executable, HERE / "cuda_bench.py", *arguments, "--peer", peer, "--model", name]
    out = subprocess.run(command, capture_output=True, text=True, check=False)
    last = out.stdout.strip().splitlines()[-1:] or [""]
    try:
        return float(last[0]), None
    except ValueError:
        return None, (out.stderr.strip().splitlines() or ["no answer"])[-1]


def commands(file):
    lines = (HERE / file).read_text().splitlines() if (HERE / file).exists() else []
    return {pathlib.Path(name).name: command for name, command in (line.split("\t") for line in lines)}


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=pathlib.Path)
    parser.add_argument("--cases", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=pathlib.Path, default=HERE / "times.json")
    parser.add_argument("--peer", choices=PEERS, help=argparse.SUPPRESS)
    parser.add_argument("--model", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.peer:
        print(PEERS[given.peer](given.model, given))
        return 0

    plain, captured = commands("bench.tsv"), commands("bench_captured.tsv")
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
