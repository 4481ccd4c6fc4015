"""Compare gradients of imported networks with PyTorch's: small networks around one layer or operation each, from both exporters to ONNX and as exported
programs.

    pip install -r scripts/requirements-fixtures.txt
    python scripts/gradients.py [--backend ndarray|wgpu|cuda] [--only PART] [--folder target/gradients]

Each network is imported to be trained and takes one step of gradient descent with rate 1, so that the change of its weights is their
gradient; that, the input's and the output are compared with PyTorch's. The networks (`gradients_lib/networks.py`) are compiled in one
crate. What an exporter refuses is left out and counted. Exit status: 0 when all agree, 1 otherwise.

On CUDA without a GPU, what `scripts/cuda_driver.sh` builds stands in: with its `LD_LIBRARY_PATH`, `KILN_CUDA_CACHE` and `KILN_HOST_KERNELS`.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import copy
import io
import json
import os
import pathlib
import shutil
import subprocess
import sys
import warnings

import onnx
import torch
from safetensors.torch import save_file

from fixture_lib.export import export_dynamo, export_torchscript
from gradients_lib.networks import NETWORKS, Built

ROOT = pathlib.Path(__file__).resolve().parents[1]
BACKENDS = {"ndarray": "NdArray", "wgpu": "Wgpu", "cuda": "Cuda"}
EXPORTERS = ("dynamo", "torchscript", "program")


def export(network: torch.nn.Module, x: torch.Tensor, exporter: str, folder: pathlib.Path) -> None:
    """As the README says that models are exported which are to be trained."""
    if exporter == "program":
        torch.export.save(torch.export.export(network.eval(), (x,)), folder / "model.pt2")
        return
    if exporter == "dynamo":
        model = export_dynamo(network.eval(), (x,), optimize=False)
    else:
        model = export_torchscript(
            network.train(), (x,), training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False
        )
    onnx.save(model, folder / "model.onnx")


def write(folder: pathlib.Path, name: str, exporter: str) -> tuple[int, int]:
    """A network's model and what PyTorch computes of it; the ranks of its input and output."""
    torch.manual_seed(sum(map(ord, name)))
    network = NETWORKS[name]
    built = Built(network, copy.deepcopy(network.parts))
    with torch.no_grad():
        for weight in built.parameters():
            weight.copy_(torch.randn(weight.shape) * 0.5)
    x = torch.randn(network.shape) if network.words is None else torch.randint(0, network.words, network.shape)
    before = copy.deepcopy(built.state_dict())
    folder.mkdir(parents=True)
    export(built, x, exporter, folder)
    # The older exporter runs a network that trains, which moves its statistics.
    built.load_state_dict(before)
    built.train()
    given = x.clone().requires_grad_(network.words is None)
    y = built(given)
    weights = torch.randn(y.shape)
    (y * weights).sum().backward()
    known = {"input": x, "weights": weights, "output": y.detach()}
    if network.words is None:
        known["gradient_of_input"] = given.grad
    for key, weight in built.named_parameters():
        if weight.grad is not None:
            known[f"gradient.{key}"] = weight.grad
    save_file({key: value.contiguous() for key, value in known.items()}, folder / "known.safetensors")
    return x.dim(), y.dim()


def write_crate(folder: pathlib.Path, cases: dict[str, tuple[int, int]], backend: str) -> None:
    (folder / "src").mkdir(parents=True)
    features = json.dumps(["train", "safetensors", *([] if backend == "ndarray" else [backend])])
    paths = {name: json.dumps(str(ROOT / name)) for name in ("runtime", "runtime/record", "build-support")}
    (folder / "Cargo.toml").write_text(
        f"""[package]
name = "gradients"
version = "0.0.0"
edition = "2024"
[workspace]
[dependencies]
kiln = {{ path = {paths["runtime"]}, features = {features} }}
kiln-record = {{ path = {paths["runtime/record"]} }}
[build-dependencies]
kiln-build = {{ path = {paths["build-support"]}, features = ["pt2"] }}
"""
    )
    cases_folder = json.dumps(str(folder.parent / "cases"))
    (folder / "build.rs").write_text(
        f"""fn main() {{
    let out = std::path::PathBuf::from(std::env::var_os("OUT_DIR").unwrap());
    for name in {json.dumps(list(cases))} {{
        let mut model = kiln_build::ModelGen::new();
        let case = std::path::Path::new({cases_folder}).join(name);
        let input = ["model.onnx", "model.pt2"].map(|file| case.join(file)).into_iter().find(|file| file.exists()).unwrap();
        let lines = model.input(input).out_dir(name).trainable(true).run_below(&out);
        lines.iter().filter(|line| line.starts_with("cargo::error")).for_each(|line| println!("{{line}}"));
    }}
}}
"""
    )
    program = (pathlib.Path(__file__).parent / "gradients_lib" / "main.rs").read_text()
    program = program.replace("CASES_FOLDER", cases_folder).replace("Host", BACKENDS[backend])
    kinds = {name: "floats" if NETWORKS[name.rsplit("-", 1)[0]].words is None else "words" for name in cases}
    declared = "".join(
        f'case!({name.replace("-", "_")}, "{name}", {kinds[name]}, {x}, {y});\n' for name, (x, y) in cases.items()
    )
    calls = "".join(f'    run("{name}", {name.replace("-", "_")}::check);\n' for name in cases)
    (folder / "src/main.rs").write_text(f"{program}\n{declared}\nfn main() {{\n{calls}}}\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", choices=BACKENDS, default="ndarray")
    parser.add_argument("--only", default="", help="networks whose names have this in them")
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "target" / "gradients")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    folder = arguments.folder.resolve()
    shutil.rmtree(folder / "cases", ignore_errors=True)
    shutil.rmtree(folder / "crate", ignore_errors=True)
    cases, counts = {}, collections.Counter()
    for name in (name for name in NETWORKS if arguments.only in name):
        for exporter in EXPORTERS:
            case = f"{name}-{exporter}"
            try:
                # A graph that cannot be exported is printed in full.
                with contextlib.redirect_stdout(io.StringIO()):
                    cases[case] = write(folder / "cases" / case, name, exporter)
            except Exception:
                # What PyTorch cannot export is no matter of Kiln's.
                counts["not exported"] += 1
                shutil.rmtree(folder / "cases" / case, ignore_errors=True)
    write_crate(folder / "crate", cases, arguments.backend)
    environment = {"CARGO_TARGET_DIR": str(folder / "target"), **os.environ}
    run = subprocess.run(["cargo", "run", "--quiet"], cwd=folder / "crate", env=environment, stdout=subprocess.PIPE, text=True)
    for line in run.stdout.splitlines():
        outcome, case = line.split(" ", 1)
        counts[outcome] += 1
        if outcome != "equal":
            print(line)
    counts["did not run"] = len(cases) - sum(counts[outcome] for outcome in ("equal", "different"))
    print(", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count))
    return 0 if counts["equal"] == len(cases) else 1


if __name__ == "__main__":
    sys.exit(main())
