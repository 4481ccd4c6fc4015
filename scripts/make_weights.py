"""Write the checkpoints under fixtures/weights/: every kind that PyTorch and Safetensors know, and hostile ones.

    pip install -r scripts/requirements-fixtures.txt
    python scripts/make_weights.py

All are read back by PyTorch or the safetensors package, and what they hold is recorded beside them (`store.py` there
says how); the hostile ones are never loaded. Running this again gives the same bytes.
"""

from __future__ import annotations

import warnings

import torch

from weight_fixtures import book, hostile, hostile_costs, kinds, layers, network, safetensor_files, store


def main() -> None:
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    store.clear()
    for part in (network.network, network.of_cases, layers.layers, kinds.kinds, safetensor_files.files, hostile.hostile, book.book, hostile_costs.costs):
        torch.manual_seed(0)
        part()
    sizes = [f.stat().st_size for f in store.FOLDER.rglob("*") if f.is_file()]
    print(f"{len(sizes)} files, {sum(sizes) / 1000:.0f} kB")


if __name__ == "__main__":
    main()
