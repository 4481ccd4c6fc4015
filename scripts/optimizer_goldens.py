"""Ten steps of each optimizer in PyTorch, for the tests of Kiln's.

    pip install torch numpy
    python scripts/optimizer_goldens.py

Writes `runtime/optim/tests/goldens.json`: for each case the parameter after each step. The gradients of a step are those of
`Σ (p - target)² · weight / 2`, so that they depend on where earlier steps led. Writes `runtime/optim/tests/training.json`, too: steps of four
parameters in groups and with bounds on their gradients, and of a scaled loss.
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


SHAPES = {"body.weight": (2, 3), "body.bias": (3,), "head.weight": (3, 2), "head.bias": (2,)}


def adamw_groups(p):
    biases = [p["body.bias"], p["head.bias"]]
    groups = [
        {"params": biases, "weight_decay": 0.0},
        {"params": [p["head.weight"]], "lr": LR * 10},
        {"params": [p["body.weight"]]},
    ]
    return [torch.optim.AdamW(groups, lr=LR, eps=1e-5, weight_decay=0.1)]


def two_optimizers(p):
    head = [p["head.weight"], p["head.bias"]]
    body = [p["body.weight"], p["body.bias"]]
    return [torch.optim.SGD(head, lr=LR / 2, momentum=0.9), torch.optim.AdamW(body, lr=LR, eps=1e-5, weight_decay=0.1)]


def sgd(p):
    return [torch.optim.SGD(p.values(), lr=LR, momentum=0.9)]


def clip_each(p):
    for parameter in p.values():
        torch.nn.utils.clip_grad_norm_([parameter], 0.5)


GROUPS = {
    "adamw_groups": (adamw_groups, None),
    "two_optimizers": (two_optimizers, None),
    "clip_value": (sgd, lambda p: torch.nn.utils.clip_grad_value_(p.values(), 0.3)),
    "clip_norm": (sgd, clip_each),
    "clip_total_norm": (sgd, lambda p: torch.nn.utils.clip_grad_norm_(p.values(), 0.5)),
}


def training() -> dict:
    """Four parameters in two modules."""
    draw = lambda: {name: torch.randn(*shape, dtype=torch.float64) for name, shape in SHAPES.items()}
    flat = lambda values: [x for v in values.values() for x in v.detach().flatten().tolist()]
    start, target, weight = draw(), draw(), draw()
    weight = {name: values.abs() + 0.1 for name, values in weight.items()}
    result = {"start": flat(start), "target": flat(target), "weight": flat(weight), "cases": {}}
    for name, (make, clip) in GROUPS.items():
        parameters = {key: torch.nn.Parameter(values.clone()) for key, values in start.items()}
        optimizers = make(parameters)
        steps = []
        for _ in range(STEPS):
            for parameter in parameters.values():
                parameter.grad = None
            sum(((parameters[key] - target[key]) ** 2 * weight[key] / 2).sum() for key in SHAPES).backward()
            if clip:
                clip(parameters)
            for optimizer in optimizers:
                optimizer.step()
            steps.append(flat(parameters))
        result["cases"][name] = steps

    # A loss that is infinite at some steps.
    bad = [4, 5, 11, 12, 13]
    parameter = torch.nn.Parameter(start["body.weight"].clone())
    optimizer = torch.optim.SGD([parameter], lr=LR, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=3)
    scales, steps = [], []
    for step in range(20):
        optimizer.zero_grad()
        loss = ((parameter - target["body.weight"]) ** 2 * weight["body.weight"] / 2).sum()
        scaler.scale(loss * (float("inf") if step in bad else 1.0)).backward()
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
        steps.append(parameter.detach().flatten().tolist())
    result["scaler"] = {"bad": bad, "scales": scales, "steps": steps}
    return result


def write(name: str, goldens: dict) -> None:
    path = pathlib.Path(__file__).parent.parent / "runtime/optim/tests" / name
    path.parent.mkdir(exist_ok=True)
    rounded = json.loads(json.dumps(goldens), parse_float=lambda text: round(float(text), 9))
    path.write_text(json.dumps(rounded) + "\n")
    print(f"{path.name}: {len(goldens['cases'])} cases, {path.stat().st_size} bytes")


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
    write("goldens.json", goldens)
    write("training.json", training())


if __name__ == "__main__":
    main()
