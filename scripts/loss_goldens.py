"""Losses and their gradients in PyTorch, for the tests of Kiln's.

    pip install torch numpy
    python scripts/loss_goldens.py

Writes `runtime/tests/losses.json`: for each case its operands, the loss with each reduction, and the gradient of that with regard to the
floating operands. Operands stand at the edges too: ties, zeros, probabilities of 0 and 1, targets that count nothing.
"""
from __future__ import annotations

import json
import math
import pathlib

import torch
import torch.nn.functional as F

torch.manual_seed(7)


def normal(*dims: int) -> torch.Tensor:
    return torch.randn(*dims, dtype=torch.float64)


def ints(values) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int64)


def floats(values) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


CASES: dict[str, dict] = {}


def case(name: str, function, *operands: torch.Tensor, reductions=("mean", "sum"), tracked: int = 1) -> None:
    """The first `tracked` operands get gradients."""
    result = {"operands": [o.flatten().tolist() for o in operands], "dims": [list(o.shape) for o in operands]}
    for reduction in reductions:
        leaves = [o.clone().requires_grad_() for o in operands[:tracked]]
        loss = function(*leaves, *operands[tracked:], reduction)
        loss.sum().backward()
        result[reduction] = {"loss": loss.detach().flatten().tolist(), "gradients": [l.grad.flatten().tolist() for l in leaves]}
    CASES[name] = result


LOGITS = normal(6, 4) * 3
LOGITS[1] = 0.0
LOGITS[2] = floats([50.0, -50.0, 0.0, 0.0])
TARGETS = ints([0, 3, 1, 2, 1, 3])
WEIGHTS = floats([0.5, 1.0, 2.0, 0.25])


def padded(logits, targets, tokens, **options):
    """Several tokens that do not count: PyTorch knows one."""
    kept = torch.tensor([t not in tokens for t in targets.tolist()])
    return F.cross_entropy(logits, torch.where(kept, targets, torch.full_like(targets, -100)), **options)


def classification() -> None:
    mean = ("mean",)
    case("ce", lambda x, t, r: F.cross_entropy(x, t, reduction=r), LOGITS, TARGETS, reductions=mean)
    case("ce_weights", lambda x, t, r: F.cross_entropy(x, t, WEIGHTS, reduction=r), LOGITS, TARGETS, reductions=mean)
    case("ce_smoothing", lambda x, t, r: F.cross_entropy(x, t, label_smoothing=0.2, reduction=r), LOGITS, TARGETS, reductions=mean)
    case("ce_smoothing_weights", lambda x, t, r: F.cross_entropy(x, t, WEIGHTS, label_smoothing=0.2, reduction=r), LOGITS, TARGETS, reductions=mean)
    case("ce_pad", lambda x, t, r: padded(x, t, [1, 2], reduction=r), LOGITS, TARGETS, reductions=mean)
    case("ce_pad_smoothing_weights", lambda x, t, r: padded(x, t, [1], weight=WEIGHTS, label_smoothing=0.1, reduction=r), LOGITS, TARGETS, reductions=mean)
    probabilities = F.softmax(normal(5, 4), 1)
    case("ce_probabilities", lambda p, t, r: F.nll_loss(p.log(), t, WEIGHTS, reduction=r), probabilities, TARGETS[:5], reductions=mean)

    scores = normal(4, 3) * 2
    scores[0] = floats([0.0, 60.0, -60.0])
    binary = ints([[1, 0, 1], [0, 0, 1], [1, 1, 0], [0, 1, 0]])
    case("bce_logits", lambda x, t, r: F.binary_cross_entropy_with_logits(x, t.double(), reduction=r), scores, binary, reductions=mean)
    smooth = lambda t: t.double() * 0.8 + 0.2 / 3
    case("bce_logits_smoothing", lambda x, t, r: F.binary_cross_entropy_with_logits(x, smooth(t), reduction=r), scores, binary, reductions=mean)
    chances = torch.sigmoid(normal(4, 3))
    case("bce", lambda x, t, r: F.binary_cross_entropy(x, t.double(), reduction=r), chances, binary, reductions=mean)
    # Where a sure answer is right, and the logarithm is bounded where it is wrong.
    sure = floats([[1.0, 0.0, 0.5], [0.0, 1.0, 0.5]])
    case("bce_sure", lambda x, t, r: F.binary_cross_entropy(x, t.double(), reduction=r), sure, ints([[1, 0, 1], [0, 1, 0]]), reductions=mean)
    case("bce_wrong", lambda x, t, r: F.binary_cross_entropy(x, t.double(), reduction=r), floats([[1.0, 0.0, 0.5]]), ints([[0, 1, 1]]), reductions=mean)

    weights = floats([0.5, 2.0, 1.0])
    weighted = lambda l, w: (l * w).sum() / w.sum()
    case("bce_weights", lambda x, t, r: weighted(F.binary_cross_entropy_with_logits(x, t.double(), reduction="none"), weights.expand(4, 3)), scores, binary, reductions=mean)
    line, ends = scores[:, 0].clone(), binary[:, 0]
    case("bce_weights_line", lambda x, t, r: weighted(F.binary_cross_entropy_with_logits(x, t.double(), reduction="none"), weights[t]), line, ends, reductions=mean)

    a, b = normal(7, 3), normal(7, 3)
    b[0] = a[0] * 2
    b[1] = -a[1]
    a[5:] = 0.0
    signs = ints([1, -1, 1, -1, -1, 1, -1])
    for name, margin in (("cosine", 0.0), ("cosine_margin", 0.4)):
        case(name, lambda a, b, t, r, m=margin: F.cosine_embedding_loss(a, b, t, m, reduction=r), a, b, signs, tracked=2)


def regression() -> None:
    # Residuals of 0, at both knees, and on each side of these.
    target = floats([[0.0, 1.0, -1.0, 0.5], [2.0, -3.0, 0.25, 4.0]])
    prediction = target + floats([[0.0, 0.5, -0.5, 0.4], [-0.6, 3.0, 1e-3, -20.0]])
    case("mse", lambda p, t, r: F.mse_loss(p, t, reduction=r), prediction, target, tracked=2)
    case("huber", lambda p, t, r: F.huber_loss(p, t, delta=0.5, reduction=r), prediction, target, tracked=2)
    counts = floats([[0.0, 1.0, 2.0, 7.0], [3.0, 0.0, 1.5, 40.0]])
    rates = normal(2, 4)
    case("poisson", lambda p, t, r: F.poisson_nll_loss(p, t, reduction=r), rates, counts)
    case("poisson_full", lambda p, t, r: F.poisson_nll_loss(p, t, full=True, reduction=r), rates, counts)
    positive = rates.exp()
    positive[0, 0] = 0.0
    case("poisson_rates", lambda p, t, r: F.poisson_nll_loss(p, t, log_input=False, eps=1e-6, full=True, reduction=r), positive, counts)


def ctc() -> None:
    def loss(blank, zero_infinity):
        def function(x, targets, inputs, lengths, reduction):
            return F.ctc_loss(F.log_softmax(x, 2), targets, inputs, lengths, blank, reduction, zero_infinity)
        return function

    all_reductions = ("none", "mean", "sum")
    x = normal(9, 5, 4) * 2
    # Repetitions, one label, no label, lengths that are just enough; what is beyond counts nothing.
    targets = ints([[1, 2, 3, 1], [2, 2, 2, 0], [3, 0, 0, 0], [0, 0, 0, 0], [1, 1, 2, 2]])
    inputs, lengths = ints([9, 5, 4, 7, 6]), ints([4, 3, 1, 0, 4])
    case("ctc", loss(0, False), x, targets, inputs, lengths, reductions=all_reductions)
    shifted = torch.where(targets == 0, 0, targets - 1)
    case("ctc_blank", loss(3, False), x, shifted, inputs, lengths, reductions=all_reductions)
    short = ints([3, 4, 4, 7, 6])
    case("ctc_zero_infinity", loss(0, True), x, targets, short, lengths, reductions=all_reductions)
    long = normal(60, 2, 6)
    labels = torch.randint(1, 6, (2, 20))
    case("ctc_long", loss(0, False), long, labels, ints([60, 51]), ints([20, 13]), reductions=all_reductions)


def many_classes() -> None:
    """Logits far from 0: what distinguishes the classes lies in their last digits, which f32, and nine decimal ones, hold exactly here."""
    mean = ("mean",)
    far = normal(4, 300).mul(16).round().div(8)
    far[0] += 1e4
    far[1] -= 1e4
    far[2, 7:200] = -math.inf
    far[3] *= 1e3
    targets, weights = ints([5, 299, 3, 250]), normal(300).abs().mul(64).round().div(64).add(0.125)
    case("ce_far", lambda x, t, w, r: F.cross_entropy(x, t, reduction=r), far, targets, weights, reductions=mean)
    case("ce_far_weights", lambda x, t, w, r: padded(x, t, [3], weight=w, reduction=r), far, targets, weights, reductions=mean)
    far = torch.where(far.isinf(), 0.0, far)
    case("ce_far_smoothing", lambda x, t, w, r: padded(x, t, [250], weight=w, label_smoothing=0.1, reduction=r), far, targets, weights, reductions=mean)


def rounded(value):
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, list):
        return [rounded(v) for v in value]
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in value.items()}
    return value


def text(value) -> str:
    """JSON has no infinities: they are written as text."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(k)}:{text(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(text(v) for v in value) + "]"
    if isinstance(value, float) and math.isinf(value):
        return '"inf"' if value > 0 else '"-inf"'
    return json.dumps(value)


def main() -> None:
    classification()
    regression()
    ctc()
    many_classes()
    path = pathlib.Path(__file__).parent.parent / "runtime/tests/losses.json"
    path.write_text(text(rounded(CASES)).replace('},"', '},\n"') + "\n")
    print(f"{path.name}: {len(CASES)} cases, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
