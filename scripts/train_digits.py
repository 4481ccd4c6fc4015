"""Train the digits example's network and write fixtures/digits/.

    pip install -r scripts/requirements-fixtures.txt
    python scripts/train_digits.py

The data are scikit-learn's bundled handwritten digits (1,797 images of 8x8 pixels with values 0 to 16, from the UCI
repository's "Optical Recognition of Handwritten Digits"). 360 of them, stratified by label, are held out. It takes
about ten seconds on one core, and the same versions on the same kind of machine give the same bytes.
"""

from __future__ import annotations

import json

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

from fixture_lib.case import FIXTURES, write_case
from fixture_lib.export import export_dynamo

HELD_OUT = 360
EPOCHS = 30


class ConvBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(outputs)

    def forward(self, x):
        return torch.relu(self.norm(self.conv(x)))


class Digits(nn.Module):
    """Two convolution blocks, a pool, and a linear classifier: 9,978 parameters."""

    def __init__(self):
        super().__init__()
        self.block1 = ConvBlock(1, 16)
        self.block2 = ConvBlock(16, 32)
        self.pool = nn.MaxPool2d(2)
        self.classifier = nn.Linear(32 * 4 * 4, 10)

    def forward(self, image):
        x = self.pool(self.block2(self.block1(image)))
        return self.classifier(x.flatten(1))


def as_input(pixels: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(pixels.astype(np.float32) / 16.0).reshape(-1, 1, 8, 8)


def train(pixels: np.ndarray, labels: np.ndarray) -> Digits:
    torch.manual_seed(0)
    model = Digits()
    x, y = as_input(pixels), torch.from_numpy(labels)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=5e-3, epochs=EPOCHS, steps_per_epoch=len(x) // 64 + 1
    )
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(x)).split(64):
            loss = nn.functional.cross_entropy(model(x[batch]), y[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return model.eval()


def main() -> None:
    torch.set_num_threads(1)
    digits = load_digits()
    pixels = digits.data.astype(np.uint8)
    train_x, test_x, train_y, test_y = train_test_split(
        pixels, digits.target, test_size=HELD_OUT, random_state=0, stratify=digits.target
    )
    model = train(train_x, train_y)
    images = as_input(test_x)
    with torch.no_grad():
        logits = model(images)
    predictions = logits.argmax(1).numpy()

    shapes = {"image": {0: torch.export.Dim("batch", min=1, max=1024)}}
    names = {"input_names": ["image"], "output_names": ["logits"], "dynamic_shapes": shapes}
    folder = FIXTURES / "digits"
    batches = [images[:8].numpy(), images[8:9].numpy()]
    write_case(folder, export_dynamo(model, (images[:2],), **names), [[b] for b in batches])
    unfolded = export_dynamo(model, (images[:2],), optimize=False, **names)
    write_case(folder / "unfolded", unfolded, [[b] for b in batches])
    torch.save(model.state_dict(), folder / "state_dict.pt")

    records = np.concatenate([test_x, test_y[:, None].astype(np.uint8)], axis=1)
    (folder / "held_out.bin").write_bytes(records.tobytes())
    correct = int((predictions == test_y).sum())
    expected = {
        "images": HELD_OUT,
        "correct": correct,
        "accuracy": correct / HELD_OUT,
        "predictions": "".join(map(str, predictions)),
        "first_logits": [round(float(v), 5) for v in logits[0]],
    }
    (folder / "expected.json").write_text(json.dumps(expected, indent=2) + "\n")
    print(f"{correct} of {HELD_OUT} held-out images right")


if __name__ == "__main__":
    main()
