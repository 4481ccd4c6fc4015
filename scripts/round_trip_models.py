"""Proves on whole models that generated modules take the original checkpoint, and go back to PyTorch.

    cargo build --release -p kiln-build --features cli
    python scripts/round_trip_models.py MODELS OUT [NAME ...]

MODELS is a folder with `export_models.py` (its table of networks is used) and its requirements installed; OUT is a new folder
outside the checkout (about 4 GB with gpt2_small). For each network:

1. export with one set of weights (`optimize=False`), generate its module, as it is and to be trained;
2. save another set of weights as `.pt` and as Safetensors, tied tensors once;
3. `Model::from_pytorch` and `from_safetensors`: the outputs, beside PyTorch's for these weights;
4. `save_weights` and `save_weights_like`: PyTorch loads the files into the original network, the outputs again.

Prints the largest error of each, beside the largest element of the output.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import torch
from safetensors.torch import load_file, save_file

from fixture_lib.export import export_dynamo, seed_weights

ROOT = pathlib.Path(__file__).resolve().parents[1]
KILN = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "kiln"
NAMES = ["resnet18", "minilm", "vit_tiny", "gpt2_small"]
FORMS = {"": [], "_trainable": ["--trainable"]}
LOADS = {"pt": "from_pytorch", "safetensors": "from_safetensors"}

MANIFEST = """[package]
name = "round-trip"
version = "0.1.0"
edition = "2024"

[dependencies]
kiln = {{ path = "{root}/runtime", features = ["pytorch", "safetensors"] }}

[workspace]
"""


PROGRAM = """use kiln::backend::NdArray;
use kiln::record::Safetensors;
use kiln::tensor::{Int, Tensor, TensorData};
use kiln::weights::{AdapterType, save_weights, save_weights_like};
type Cpu = NdArray;

#[allow(dead_code)]
fn floats<const D: usize>(data: TensorData) -> Tensor<Cpu, D> {
    Tensor::from_data(data, &Default::default())
}

#[allow(dead_code)]
fn integers<const D: usize>(data: TensorData) -> Tensor<Cpu, D, Int> {
    Tensor::from_data(data, &Default::default())
}

fn report(what: &str, actual: TensorData, expected: TensorData) {
    let (actual, expected): (Vec<f32>, Vec<f32>) = (actual.to_vec().unwrap(), expected.to_vec().unwrap());
    assert_eq!(actual.len(), expected.len());
    let error = actual.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    let largest = expected.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
    println!("{what}: error {error:.1e}, largest {largest:.2}");
}

"""

CASE = """    {{
        let file = "{folder}/checkpoint.{ending}";
        let model = {module}::Model::<Cpu>::{load}(file, &Default::default()).unwrap_or_else(|error| panic!("{{error}}"));
        let io = Safetensors::open("{folder}/io.safetensors".as_ref()).unwrap();
        report("{module} {load}", model.forward({inputs}).into_data(), io.tensor("output").unwrap());
        save_weights_like(&model, file, "{saved}.like.safetensors").unwrap();
        if let Err(error) = save_weights(&model, "{saved}.alone.safetensors", AdapterType::PyTorch) {{
            println!("{module} save_weights: {{error}}");
        }}
    }}
"""


def first(output) -> torch.Tensor:
    return output[0] if isinstance(output, (tuple, list)) else output


def prepare(name: str, make, folder: pathlib.Path) -> tuple:
    """The network and its input; writes what the program needs."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    network, args, options = make()
    model = export_dynamo(seed_weights(network, 0), args, optimize=False, **options)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    for form, flags in FORMS.items():
        command = [str(KILN), "convert", str(folder / "model.onnx"), "-o", str(folder / f"module{form}"), *flags]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    state = seed_weights(network, 1).state_dict()
    torch.save(state, folder / "checkpoint.pt")
    once = {tensor.data_ptr(): key for key, tensor in reversed(state.items())}
    kept = {key: state[key].contiguous() for key in state if once[state[key].data_ptr()] == key}
    save_file(kept, folder / "checkpoint.safetensors", metadata={"format": "pt"})
    with torch.no_grad():
        output = first(network(*args))
    io = {f"input_{i}": x.contiguous() for i, x in enumerate(args)}
    save_file({**io, "output": output.contiguous()}, folder / "io.safetensors")
    return network, args, output, set(state) - set(kept)


def cases(name: str, args, folder: pathlib.Path) -> tuple[str, str]:
    """The modules of a network, and what is asked of them."""
    modules, body = "", ""
    tensors = [f'{"floats" if x.is_floating_point() else "integers"}::<{x.dim()}>(io.tensor("input_{i}").unwrap())' for i, x in enumerate(args)]
    for form in FORMS:
        modules += f'#[allow(dead_code)]\nmod {name}{form} {{\n    include!("{folder}/module{form}/model.rs");\n}}\n'
        for ending, load in LOADS.items():
            saved = folder / f"saved{form}_{ending}"
            body += CASE.format(folder=folder, ending=ending, module=name + form, load=load, inputs=", ".join(tensors), saved=saved)
    return modules, body


def check(name: str, folder: pathlib.Path, network, args, expected, tied: set[str]) -> None:
    for saved in sorted(folder.glob("saved*.safetensors")):
        seed_weights(network, 2)
        missing, unexpected = network.load_state_dict(load_file(saved), strict=False)
        # Of tied tensors, a file like one that has them once has them once.
        once = "_safetensors.like" in saved.name
        assert not unexpected and (not missing or once and set(missing) <= tied), (saved, missing, unexpected)
        with torch.no_grad():
            error = (first(network(*args)) - expected).abs().max().item()
        print(f"{name} {saved.stem} in PyTorch: error {error:.1e}, largest {expected.abs().max().item():.2f}", flush=True)


def main() -> None:
    models, out = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    sys.path.insert(0, str(models))
    import export_models

    torch.backends.mha.set_fastpath_enabled(False)
    names = sys.argv[3:] or NAMES
    prepared = {name: prepare(name, export_models.MODELS[name], out / name) for name in names}
    parts = [cases(name, args, out / name) for name, (_, args, *_) in prepared.items()]
    source = PROGRAM + "".join(modules for modules, _ in parts) + "\nfn main() {\n" + "".join(body for _, body in parts) + "}\n"
    crate = out / "run"
    (crate / "src").mkdir(parents=True, exist_ok=True)
    (crate / "src" / "main.rs").write_text(source)
    (crate / "Cargo.toml").write_text(MANIFEST.format(root=ROOT))
    subprocess.run(["cargo", "run", "--release", "--quiet"], cwd=crate, check=True)
    for name, (network, args, output, tied) in prepared.items():
        check(name, out / name, network, args, output, tied)


if __name__ == "__main__":
    main()
