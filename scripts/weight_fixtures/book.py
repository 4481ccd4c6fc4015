"""The checkpoints that the samples of the Burn Book's chapters on PyTorch and Safetensors load, by the names there."""

from __future__ import annotations

import torch
from safetensors.torch import save as to_safetensors
from torch import nn

from weight_fixtures import formats, store


class Net(nn.Module):
    """Two convolutions."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(2, 2, (2, 2))
        self.conv2 = nn.Conv2d(2, 2, (2, 2), bias=False)

    def forward(self, x):
        return self.conv2(self.conv1(x))


CONFIG = {
    "n_head": 2,
    "n_layer": 3,
    "d_model": 512,
    "some_float": 0.1,
    "some_int": 1,
    "some_bool": True,
    "some_str": "hello",
    "some_list_int": [1, 2, 3],
    "some_list_str": ["hello", "world"],
    "some_list_float": [0.1, 0.2, 0.3],
    "some_dict": {"some_key": "some_value"},
}


def book() -> None:
    torch.manual_seed(42)
    net = Net()
    state = net.state_dict()
    image = torch.randn(1, 2, 5, 5)
    with torch.no_grad():
        answer = net(image)
    store.write("book/conv2d.io.safetensors", to_safetensors({"image": image, "answer": answer}))

    def write(name, value, **more):
        store.write(f"book/{name}.pt", formats.saved(value, name))
        store.expect(f"book/{name}", torch.load(store.FOLDER / f"book/{name}.pt"), **more)

    write("conv2d", state)
    store.write("book/conv2d.safetensors", to_safetensors(state))
    prefixed = {f"conv.{k}": v for k, v in state.items()}
    write("key_remap", prefixed)
    store.write("book/model.safetensors", to_safetensors(prefixed))
    write("weights_with_config", {"my_model": state, "my_config": CONFIG}, top_level_key="my_model")
    write("tiny.en", {"my_state_dict": state, "epoch": 3}, top_level_key="my_state_dict")
