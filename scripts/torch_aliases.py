"""Writes the names of PyTorch's operators that yield tensors which share elements with their first argument, as their schemas say, to
importer/src/pt2/operators/aliases.txt; a test holds the importer's rules against them."""

from pathlib import Path

import torch

TARGET = Path(__file__).parent.parent / "importer/src/pt2/operators/aliases.txt"


def shares(schema) -> bool:
    """Whether a result is a view: one that an operator writes into is noted as written."""
    results = [result.alias_info for result in schema.returns]
    return any(alias is not None and not alias.is_write for alias in results)


def main() -> None:
    names = {
        f"{schema.name.removeprefix('aten::')}.{schema.overload_name or 'default'}"
        for schema in torch._C._jit_get_all_schemas()
        if schema.name.startswith("aten::") and schema.arguments and isinstance(schema.arguments[0].type, torch.TensorType) and shares(schema)
    }
    TARGET.write_text("".join(f"{name}\n" for name in sorted(names)))


if __name__ == "__main__":
    main()
