#!/usr/bin/env python3
"""ONNX's own cases of single operators, on a backend: how many agree with their golden outputs, which do not, and what is refused, by its reason.

    scripts/onnx_node_cases.py [--backend cuda] [--captured] [--only NAMES…] [--stand-in]

The cases are those of the `onnx` package, whose wheel is downloaded (17 MB; later versions do not hold them). `--backend` and `--captured` are `kiln verify`'s.
Where there is no GPU, `--stand-in` runs CUDA's kernels as the host's compiler makes them (tests/cuda_driver). Exits with 1 if a case that is not
known to differ does, or does not run. Takes about ten minutes, most of them to compile 1,500 models as one program, and the kernels.
"""

import argparse
import collections
import os
import pathlib
import re
import subprocess
import sys
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PLACE = ROOT / "target/onnx_node_cases"
VERSION = "1.20.0"
# What a case is about that is no part of Kiln: training's operators, files of images, tables and texts.
ELSEWHERE = "training|adagrad|adam|momentum|image_decoder|string_concat|string_split|equal_string|regex|strnorm|tfidf"
# Where the golden outputs of that version are not what the specification asks for.
DIFFERENT = {
    r"bernoulli": "random numbers",
    r"cast(like)?_FLOAT(16)?_to_U?INT2": "floats beyond the range of an integer, whose results are undefined",
    r"l2normalization_axis_0": "0 / 0, which later versions yield 0 for",
    r"maxunpool_export_with_output_shape": "positions of a smaller tensor, which later versions take for those of the result",
    r"qlinearmatmul_\dD_int8_float": "the reference wraps where the specification saturates",
    r"attention_.*_qk_matmul_(bias|softcap)": "numbers of modes that later versions exchanged",
}


def cases():
    """The folders of the cases."""
    data = PLACE / "onnx/backend/test/data/node"
    if not data.is_dir():
        wheels = PLACE / "wheels"
        download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", wheels]
        subprocess.run([*download, f"onnx=={VERSION}"], check=True)
        for wheel in wheels.glob("*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                members = [name for name in archive.namelist() if "/test/data/node/" in name]
                archive.extractall(PLACE, members)
    return sorted(case for case in data.iterdir() if not re.search(ELSEWHERE, case.name))


def stand_in():
    """Variables with which CUDA's libraries are those that stand in for them."""
    subprocess.run(["cargo", "build", "--release", "--quiet", "-p", "kiln-cuda-driver-tests"], cwd=ROOT, check=True)
    libraries, kernels = PLACE / "libraries", PLACE / "kernels"
    for folder in [libraries, kernels]:
        folder.mkdir(parents=True, exist_ok=True)
    for name in ["cuda", "nvrtc", "cublasLt", "cudnn"]:
        link = libraries / f"lib{name}.so"
        link.unlink(missing_ok=True)
        link.symlink_to(ROOT / "target/release/libkiln_cuda_driver.so")
    return {"LD_LIBRARY_PATH": libraries, "KILN_HOST_KERNELS": kernels, "KILN_CUDA_CACHE": PLACE / "cache"}


def results(printed):
    """What was said of each case, by its name."""
    found, said = {}, None
    for line in printed.splitlines():
        if heading := re.match(r"\S.*/(test_\S+): (ok|FAILED)", line):
            said = found[heading[1]] = (heading[2], [])
        elif said:
            said[1].append(line.strip())
    return found


def reason(lines):
    """What is the same of all cases that are refused for it."""
    text = re.sub(r"\S*model\.onnx: ", "", " ".join(lines))
    text = re.sub(r"the node that yields `[^`]*` \((\w+),[^)]*\)", r"\1", text)
    return re.sub(r", in `[^`]*`|`", "", text)[:100]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="ndarray")
    parser.add_argument("--captured", action="store_true")
    parser.add_argument("--only", nargs="+", help="what the names of cases contain")
    parser.add_argument("--stand-in", action="store_true")
    options = parser.parse_args()

    build = ["cargo", "build", "--release", "--quiet", "-p", "kiln-build", "--features", "cli"]
    subprocess.run(build, cwd=ROOT, check=True)
    variables = stand_in() if options.stand_in else {}
    chosen = [case for case in cases() if any(name in case.name for name in options.only or [""])]
    command = [ROOT / "target/release/kiln", "verify", "--backend", options.backend, *chosen]
    if options.captured:
        command.append("--captured")
    environment = os.environ | {name: str(value) for name, value in variables.items()}
    run = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    found = results(run.stdout)
    if len(found) < len(chosen):
        print(run.stdout[-4000:])
        sys.exit(f"{len(chosen) - len(found)} of {len(chosen)} cases were not told of")

    agree = [name for name, (state, _) in found.items() if state == "ok"]
    unequal, stopped, refused = [], [], collections.Counter()
    for name, (state, lines) in found.items():
        if state != "ok" and any("differ by more" in line for line in lines):
            unequal.append(name)
        elif state != "ok" and any("model.onnx" in line for line in lines):
            refused[reason(lines)] += 1
        elif state != "ok":
            stopped.append(name)
            print(f"does not run: {name}: {' '.join(lines)}")
    for why, count in refused.most_common():
        print(f"{count:5} refused: {why}")
    unexpected = 0
    for name in unequal:
        why = next((why for known, why in DIFFERENT.items() if re.search(known, name)), None)
        unexpected += why is None
        print(f"differs: {name}: {why or 'unexpected'}")
    print(f"{options.backend}: {len(agree)} of {len(found)} agree, {len(unequal)} differ, {sum(refused.values())} are refused, {len(stopped)} do not run")
    sys.exit(1 if unexpected or stopped else 0)


if __name__ == "__main__":
    main()
