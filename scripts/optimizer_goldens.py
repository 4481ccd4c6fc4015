"""Ten steps of each optimizer in PyTorch, for the tests of Kiln's.

    pip install torch numpy
    python scripts/optimizer_goldens.py

Writes `runtime/optim/tests/goldens.json`: for each case the parameter after each step. The gradients of a step are those of
`Σ (p - target)² · weight / 2`, so that they depend on where earlier steps led.
"""
from __future__ import annotations

import json
import pathlib

import torch

STEPS = 10
LR = 0.05

CASES = {
    "sgd": lambda p: torch.optim.SGD(p, lr=LR),
    "sgd_decay": lambda p: torch.optim.SGD(p, lr=LR, weight_decay=0.1),
    "sgd_momentum": lambda p: torch.optim.SGD(p, lr=LR, momentum=0.9),
    "sgd_dampening": lambda p: torch.optim.SGD(p, lr=LR, momentum=0.8, dampening=0.25),
    "sgd_nesterov": lambda p: torch.optim.SGD(p, lr=LR, momentum=0.9, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=LR, betas=(0.9, 0.99), eps=1e-5),
    "adam_decay": lambda p: torch.optim.Adam(p, lr=LR, eps=1e-5, weight_decay=0.1),
    "adam_amsgrad": lambda p: torch.optim.Adam(p, lr=LR, betas=(0.9, 0.9), eps=1e-5, amsgrad=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=LR, eps=1e-5, weight_decay=0.1),
    "adamw_amsgrad": lambda p: torch.optim.AdamW(p, lr=LR, betas=(0.9, 0.9), eps=1e-5, weight_decay=0.1, amsgrad=True),
    "adamax": lambda p: torch.optim.Adamax(p, lr=LR, betas=(0.9, 0.9), eps=1e-8, weight_decay=0.1),
    "nadam": lambda p: torch.optim.NAdam(p, lr=LR, eps=1e-8, weight_decay=0.1),
    "rms_prop": lambda p: torch.optim.RMSprop(p, lr=LR, alpha=0.9, eps=1e-8, weight_decay=0.1),
    "rms_prop_centered": lambda p: torch.optim.RMSprop(p, lr=LR, alpha=0.9, eps=1e-6, centered=True),
    "rms_prop_momentum": lambda p: torch.optim.RMSprop(p, lr=LR, alpha=0.9, eps=1e-6, momentum=0.9),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=LR, lr_decay=0.1, eps=1e-5, weight_decay=0.1),
    "muon": lambda p: torch.optim.Muon(p, lr=LR, momentum=0.9, weight_decay=0.1),
    "muon_plain": lambda p: torch.optim.Muon(p, lr=LR, nesterov=False, adjust_lr_fn="match_rms_adamw", weight_decay=0.0),
    "adadelta": lambda p: torch.optim.Adadelta(p, lr=LR, rho=0.9, eps=1e-6, weight_decay=0.1),
}


def main() -> None:
    # Muon computes its iteration in bfloat16, Kiln in the parameters' own precision: here in theirs too.
    torch.bfloat16 = torch.float64
    torch.manual_seed(0)
    start, target, weight = (torch.randn(3, 4, dtype=torch.float64) for _ in range(3))
    weight = weight.abs() + 0.1
    goldens = {name: values.flatten().tolist() for name, values in (("start", start), ("target", target), ("weight", weight))}
    goldens["cases"] = {}
    for name, make in CASES.items():
        parameter = torch.nn.Parameter(start.clone())
        optimizer = make([parameter])
        steps = []
        for _ in range(STEPS):
            optimizer.zero_grad()
            ((parameter - target) ** 2 * weight / 2).sum().backward()
            optimizer.step()
            steps.append(parameter.detach().flatten().tolist())
        goldens["cases"][name] = steps
    path = pathlib.Path(__file__).parent.parent / "runtime/optim/tests/goldens.json"
    path.parent.mkdir(exist_ok=True)
    rounded = json.loads(json.dumps(goldens), parse_float=lambda text: round(float(text), 9))
    path.write_text(json.dumps(rounded) + "\n")
    print(f"{path.name}: {len(CASES)} cases, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
