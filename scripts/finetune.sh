#!/usr/bin/env bash
# Fine-tunes the digits network on another task (examples/finetune); with `--pytorch`, PyTorch then loads what was saved and has to
# give the same answers. Needs Rust and a C linker, for `--pytorch` scripts/requirements-fixtures.txt too.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cargo run --release --quiet -p finetune -- "$folder"
if [ "${1:-}" = --pytorch ]; then
    PYTHONPATH=scripts "${PYTHON:-python}" - "$folder" <<'PYTHON'
import pathlib
import sys

import numpy as np
import torch
from safetensors.torch import load_file

from train_digits import FIXTURES, Digits, as_input

folder = pathlib.Path(sys.argv[1])
network = Digits()
missing, unexpected = network.load_state_dict(load_file(folder / "state_dict.safetensors"), strict=False)
assert not unexpected and all(key.endswith("num_batches_tracked") for key in missing), (missing, unexpected)
records = np.fromfile(FIXTURES / "digits" / "held_out.bin", np.uint8).reshape(-1, 65)
with torch.no_grad():
    answers = network.eval()(as_input(records[:, :64])).argmax(1)
assert "".join(str(int(answer)) for answer in answers) == (folder / "answers.txt").read_text(), "other answers"
print("PyTorch loads the tuned network and gives the same answers")
PYTHON
fi
