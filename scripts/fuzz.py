"""Compare Kiln with ONNX Runtime on random graphs and attributes; what differs is shrunk and kept as a case directory.

    pip install -r scripts/requirements-fixtures.txt
    cargo build --release -p kiln-build --features cli
    python scripts/fuzz.py [--seed 1] [--cases 400] [--batch 100] [--keep target/fuzz] [--kiln target/release/kiln]

Each case is drawn from a seed of its own, which its folder is named after; `--seed N --cases 1` draws it again. A batch is
compiled in one crate. ONNX Runtime runs without graph optimizations. Where it and Kiln differ, ONNX's own evaluator has
the last word: if that agrees with Kiln, the case is counted, not kept. A model that Kiln refuses is counted under its reason.
Exit status: 0 when nothing differs, 1 otherwise. A kept case becomes a fixture as a maker in `fixture_cases/`.
"""

from __future__ import annotations

import argparse
import collections
import json
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import warnings

import numpy as np
import onnx

from fixture_lib.case import evaluate_with_numpy, write_case
from fuzz_lib.draw import Draw, Refused
from fuzz_lib.nodes import FAMILIES
from fuzz_lib.patterns import PATTERNS
from fuzz_lib.rare import RARE

OPSETS = [13, 17, 18, 21]
REFUSALS = ["not supported", "must be a constant"]


def draw(seed: int) -> tuple[onnx.ModelProto, list[np.ndarray]] | None:
    choices = random.Random(seed)
    drawing = Draw(seed, choices.choice(OPSETS))
    wanted = choices.randint(1, 7)
    for _ in range(4 * wanted):
        try:
            choices.choice(choices.choice([FAMILIES, PATTERNS, RARE]))(drawing)
        except Refused:
            continue
        wanted -= 1
        if wanted == 0:
            break
    if not drawing.graph.nodes:
        return None
    return drawing.model(), drawing.inputs


def write(folder: pathlib.Path, model: onnx.ModelProto, inputs: list[np.ndarray], by_specification=False) -> bool:
    """Whether the model has answers: for its inputs, and where it has any, for inputs of other sizes."""
    others = resized(model, inputs)
    same = all(one.shape == other.shape for one, other in zip(inputs, others, strict=True))
    for sets in [[inputs]] if same else [[inputs, others], [inputs]]:
        try:
            write_case(folder, model, sets, numpy_answers=by_specification, checked=False)
            return True
        except Exception:
            shutil.rmtree(folder, ignore_errors=True)
    return False


def resized(model: onnx.ModelProto, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """Inputs whose free axes have other sizes, the same where they had the same. One element may stand for many: it stays one."""
    others = {2: 4, 3: 5, 4: 7, 5: 3}

    def sizes(declared: onnx.ValueInfoProto, array: np.ndarray) -> list[int]:
        dims = declared.type.tensor_type.shape.dim
        return [others.get(size, size) if dim.dim_param else size for dim, size in zip(dims, array.shape, strict=True)]

    given = zip(model.graph.input, inputs, strict=True)
    return [np.resize(array, sizes(declared, array)) for declared, array in given]


def verify(kiln: pathlib.Path, folders: list[pathlib.Path]) -> dict[pathlib.Path, str | None]:
    """What is wrong with each case, if anything is."""
    if not folders:
        return {}
    command = [kiln, "verify", "--json", "--rtol", "2e-3", "--atol", "2e-3", *folders]
    done = subprocess.run(command, capture_output=True, text=True)
    outcomes = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if len(outcomes) != len(folders):
        raise RuntimeError(f"kiln verify: {done.stderr[-2000:]}")
    found = {pathlib.Path(o["case"]): None if o["ok"] else o.get("error", "differs") for o in outcomes}
    return {folder: found[folder] for folder in folders}


def refusal(error: str) -> str | None:
    """The kind of a model that is refused on purpose, without what is its own."""
    line = error.strip().splitlines()[0]
    if "error[" in error or "panicked" in error or not any(text in line for text in REFUSALS):
        return None
    return line.split("): ", 1)[-1][:100]


def parts(model: onnx.ModelProto) -> list[onnx.ModelProto]:
    """The model for one output each, with what that needs, and for each value on the way to it."""
    models = []
    made = [name for node in model.graph.node for name in node.output if name]
    known = {info.name: info for info in [*model.graph.output, *model.graph.value_info]}
    for name in made:
        part = onnx.ModelProto()
        part.CopyFrom(model)
        needed, kept = {name}, []
        for node in reversed(part.graph.node):
            if needed & set(node.output):
                kept.insert(0, node)
                needed |= set(node.input)
        kept = [onnx.NodeProto.FromString(node.SerializeToString()) for node in kept]
        constants = [c for c in part.graph.initializer if c.name in needed]
        constants = [onnx.TensorProto.FromString(c.SerializeToString()) for c in constants]
        del part.graph.node[:], part.graph.output[:], part.graph.initializer[:]
        part.graph.node.extend(kept)
        part.graph.initializer.extend(constants)
        if name not in known:
            inferred = onnx.shape_inference.infer_shapes(model)
            known |= {info.name: info for info in inferred.graph.value_info}
        if name in known:
            part.graph.output.append(known[name])
            models.append(part)
    return models


def shrink(kiln: pathlib.Path, model: onnx.ModelProto, inputs: list[np.ndarray], folder: pathlib.Path):
    """The part with the fewest nodes that differs still: its folder, and what is wrong."""
    folders = []
    for k, part in enumerate(parts(model)):
        place = folder / f"part_{k}"
        if write(place, part, inputs):
            folders.append(place)
    wrong = {place: error for place, error in verify(kiln, folders).items() if error}
    count = lambda place: len(onnx.load(place / "model.onnx").graph.node)
    return min(wrong.items(), key=lambda item: count(item[0]), default=(None, None))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1, help="of the first case; the next ones count upwards")
    parser.add_argument("--cases", type=int, default=400)
    parser.add_argument("--batch", type=int, default=100, help="cases that are compiled together")
    parser.add_argument("--keep", type=pathlib.Path, default=pathlib.Path("target/fuzz"), help="where failing cases go")
    parser.add_argument("--kiln", type=pathlib.Path, default=pathlib.Path("target/release/kiln"))
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    tally: collections.Counter[str] = collections.Counter()
    kept = 0
    for first in range(arguments.seed, arguments.seed + arguments.cases, arguments.batch):
        last = min(first + arguments.batch, arguments.seed + arguments.cases)
        with tempfile.TemporaryDirectory() as name:
            kept += batch(arguments, range(first, last), pathlib.Path(name), tally)
    for outcome, count in tally.most_common():
        print(f"{count:6} {outcome}")
    return 1 if kept else 0


def batch(arguments, seeds: range, place: pathlib.Path, tally: collections.Counter[str]) -> int:
    """Number of cases that were kept."""
    drawn = {}
    for seed in seeds:
        case = draw(seed)
        folder = place / f"seed_{seed}"
        if case and write(folder, *case):
            drawn[folder] = (seed, *case)
        else:
            tally["not run by ONNX Runtime"] += 1
    kept = 0
    for folder, error in verify(arguments.kiln, list(drawn)).items():
        seed, model, inputs = drawn[folder]
        reason = error and refusal(error)
        if error is None or reason:
            tally[f"refused: {reason}" if reason else "equal"] += 1
            continue
        small, message = shrink(arguments.kiln, model, inputs, place / f"shrunk_{seed}")
        if small:
            folder, error, model = small, message, onnx.load(small / "model.onnx")
        by_specification = place / f"specification_{seed}"
        agrees = write(by_specification, model, inputs, by_specification=True)
        if agrees and verify(arguments.kiln, [by_specification])[by_specification] is None:
            tally["equal to ONNX's evaluator, not to ONNX Runtime"] += 1
            continue
        kept += 1
        tally["different"] += 1
        target = arguments.keep / f"seed_{seed}"
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(folder, target)
        nodes = ", ".join(node.op_type for node in model.graph.node)
        print(f"seed {seed}: {nodes}\n    {target}\n    {error.strip()[:600]}", flush=True)
    return kept


if __name__ == "__main__":
    sys.exit(main())
