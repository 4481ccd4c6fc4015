"""Resizing: every mode with every transformation, rounding and target, in every opset; a mode's results as one output."""

from __future__ import annotations

import itertools

import numpy as np

from fixture_lib.graph import F32, Graph
from fixture_lib.registry import Case, case

# Scales that give no whole size, scales whose single precision is below or above their decimal, and sizes.
SCALES = [(1.3, 0.6), (0.6, 2.6), (0.35, 1.3), (1.0, 0.7), (2.0, 1.0)]
SIZES = [(6, 13), (7, 3), (1, 6)]
ROUNDINGS = ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]
# Where these meet what is rounded, ONNX Runtime's last bit decides, which no formula of the specification gives.
ROUNDINGS_OF = {"half_pixel_symmetric": ROUNDINGS[:2], "tf_half_pixel_for_nn": ROUNDINGS[2:]}


def transformations(opset):
    names = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"]
    return names + ["tf_half_pixel_for_nn"] * (opset < 13) + ["half_pixel_symmetric"] * (opset >= 19)


class Results:
    """Nodes over one image, whose results become one vector a mode."""

    def __init__(self, opset: int):
        self.g = Graph(f"resize_{opset}", opset=opset)
        self.x = self.g.input("x", F32, [1, 1, 4, 9])
        self.flat: dict[str, list[str]] = {}

    def add(self, mode, target, roi=None, **attributes):
        """A node for a pair of scales (floats) or of sizes (integers)."""
        # What is not given was an empty tensor once.
        absent = np.zeros(0, np.float32) if self.g.opset < 13 else None
        roi = absent if roi is None else roi
        if isinstance(target[0], float):
            target = [roi, np.array([1, 1, *target], np.float32)]
        else:
            target = [roi, absent, [1, 1, *target]]
        if self.g.opset < 11:
            target = target[1:]
        y = self.g.op("Resize", self.x, *target, mode=mode, **attributes)
        self.flat.setdefault(mode, []).append(self.g.op("Reshape", y, [-1]))

    def case(self, rng) -> Case:
        for mode, flat in self.flat.items():
            self.g.show(mode, "Concat", *flat, axis=0)
        return Case(self.g.model(), [[rng.standard_normal((1, 1, 4, 9)).astype(np.float32)]])


@case("op_resize_opset_10")
def resize_opset_10(rng):
    """Before there were roundings to choose from: down where an axis grows, up where it shrinks."""
    results = Results(10)
    for target in SCALES:
        results.add("nearest", target)
        results.add("linear", target)
    return results.case(rng)


def resize_since(opset, rng):
    results = Results(opset)
    targets = SCALES + SIZES
    for transformation, target in itertools.product(transformations(opset), targets):
        where = {"coordinate_transformation_mode": transformation}
        for rounding in ROUNDINGS_OF.get(transformation, ROUNDINGS):
            results.add("nearest", target, nearest_mode=rounding, **where)
        if transformation == "tf_half_pixel_for_nn":
            continue
        results.add("linear", target, **where)
        for exclude in [0, 1]:
            results.add("cubic", target, exclude_outside=exclude, **where)
            if opset >= 18:
                for mode in ["linear", "cubic"]:
                    results.add(mode, target, antialias=1, exclude_outside=exclude, **where)
    roi = np.array([0, 0, 0.1, -0.2, 1, 1, 0.8, 1.1], np.float32)
    # ONNX Runtime does not crop axes of scale 1.
    scaled = [target for target in targets if 1.0 not in target]
    for mode, target in itertools.product(["nearest", "linear", "cubic"], scaled):
        results.add(mode, target, roi, coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=2.5)
    return results.case(rng)


for version in [11, 13, 18, 19]:
    case(f"op_resize_opset_{version}")(lambda rng, version=version: resize_since(version, rng))
