"""Write the small models under fixtures/: one folder a case, expected outputs by ONNX Runtime, or by PyTorch for its own programs.

    pip install -r scripts/requirements-fixtures.txt
    python scripts/make_fixtures.py [PATTERN ...]        # all cases, or those whose names match a glob pattern

The cases stand in `fixture_cases/`, a function each. Running this again gives the same bytes.
"""

from __future__ import annotations

import fnmatch
import importlib
import pathlib
import pkgutil
import sys

import torch

import fixture_cases
from fixture_lib import registry


def main() -> None:
    torch.set_num_threads(1)
    for module in sorted(m.name for m in pkgutil.iter_modules(fixture_cases.__path__)):
        importlib.import_module(f"fixture_cases.{module}")
    patterns = sys.argv[1:] or ["*"]
    names = [n for n in registry.MAKERS if any(fnmatch.fnmatch(n, p) for p in patterns)]
    for name in names:
        torch.manual_seed(0)
        try:
            directory = registry.write(name)
        except Exception as error:
            raise RuntimeError(f"case {name}") from error
        size = sum(f.stat().st_size for f in pathlib.Path(directory).rglob("*") if f.is_file())
        print(f"{name}: {size / 1000:.1f} kB", flush=True)


if __name__ == "__main__":
    main()
