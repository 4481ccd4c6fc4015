"""What exporters write out of several nodes, and what is nearly that: an axis, a constant or an order is another now and then."""

from __future__ import annotations

import numpy as np

from fuzz_lib.draw import Draw
from fuzz_lib.nodes import image


def number(d: Draw, usual: float, *others: float) -> np.float32:
    return np.float32(usual if d.random.random() < 0.8 else d.random.choice(others or (usual * 0.5, -usual, 0.0)))


def either(d: Draw, op_type: str, a, b) -> str:
    """Of two operands in either order."""
    return d.op(op_type, *d.random.sample([a, b], 2))


def means(d: Draw, x: str, axes: list[int]) -> str:
    keep = dict(keepdims=1)
    return d.op("ReduceMean", x, np.array(axes), **keep) if d.graph.opset >= 18 else d.op("ReduceMean", x, axes=axes, **keep)


def norm(d: Draw):
    """Layer and RMS norms in their parts."""
    x = d.value()
    rank = d.values[x].ndim
    usual = list(range(-d.random.randint(1, min(rank, 2)), 0))
    axes = usual if d.random.random() < 0.8 else sorted(d.random.sample(range(-rank, 0), d.random.randint(1, rank)))
    centered = d.op("Sub", x, means(d, x, axes)) if d.random.random() < 0.6 else x
    if d.random.random() < 0.5:
        square = either(d, "Mul", centered, centered)
    else:
        square = d.op("Pow", centered, number(d, 2, 3, 4))
    variance = either(d, "Add", means(d, square, axes), number(d, 1e-5, 1e-3, 0.0))
    if d.random.random() < 0.5:
        y = d.op("Div", centered, d.op("Sqrt", variance))
    else:
        y = either(d, "Mul", centered, d.op("Reciprocal", d.op("Sqrt", variance)))
    scaled = d.random.choice([list(d.values[x].shape[axes[0] :]), list(d.values[x].shape[-1:]), [], None])
    if scaled is not None:
        y = either(d, "Mul", y, d.array(scaled))
        if d.random.random() < 0.6:
            either(d, "Add", y, d.array(scaled))


def group_norm(d: Draw):
    """As `InstanceNormalization` of rows, with scales and shifts of channels."""
    x = image(d, d.random.randint(1, 2))
    shape = d.values[x].shape
    groups = d.random.choice([n for n in range(1, shape[1] + 1) if shape[1] % n == 0])
    rows = d.op("Reshape", x, np.array([0, groups, -1]))
    ones = np.ones(groups, np.float32) if d.random.random() < 0.8 else d.array([groups], special=False)
    zeros = np.zeros(groups, np.float32) if d.random.random() < 0.8 else d.array([groups], special=False)
    y = d.op("InstanceNormalization", rows, ones, zeros, epsilon=float(number(d, 1e-5, 1e-3)))
    y = d.op("Reshape", y, d.op("Shape", x))
    channels = [shape[1], *([1] * (len(shape) - 2))]
    y = either(d, "Mul", y, d.array(channels if d.random.random() < 0.8 else shape[-1:]))
    either(d, "Add", y, d.array(channels))


def gate(d: Draw):
    """Activations in their parts. Of an infinity Kiln yields the limit, where the parts are NaN."""
    fits = lambda v: v.dtype == np.float32 and v.size > 0 and bool(np.isfinite(v).all())
    x = d.pick(fits) or d.input(d.array(d.sizes(2), special=False))
    kind = d.random.randrange(6)
    if kind == 0:
        either(d, "Mul", x, d.op("Sigmoid", either(d, "Mul", x, number(d, 1.702, 1.0)) if d.random.random() < 0.5 else x))
    elif kind == 1:
        erf = d.op("Erf", d.op("Div", x, number(d, 2**0.5)))
        half = either(d, "Mul", x, number(d, 0.5))
        either(d, "Mul", half, either(d, "Add", erf, number(d, 1)))
    elif kind == 2:
        cube = d.op("Pow", x, number(d, 3, 2)) if d.random.random() < 0.5 else either(d, "Mul", x, either(d, "Mul", x, x))
        inner = either(d, "Add", x, either(d, "Mul", cube, number(d, 0.044715)))
        tanh = d.op("Tanh", either(d, "Mul", inner, number(d, 0.7978845608)))
        either(d, "Mul", either(d, "Mul", x, number(d, 0.5)), either(d, "Add", tanh, number(d, 1)))
    elif kind == 3:
        clipped = d.op("Clip", either(d, "Add", x, number(d, 3)), number(d, 0, 1), number(d, 6))
        either(d, "Mul", x, d.op("Div", clipped, number(d, 6)))
    elif kind == 4:
        either(d, "Mul", x, d.op("Tanh", d.op("Softplus", x)))
    else:
        # A softplus, or what is none.
        d.op("Log", either(d, "Add", d.op("Exp", x), number(d, 1)))


def affine(d: Draw):
    """What follows a product, a convolution or a norm and may become a part of it."""
    if d.random.random() < 0.5:
        x = image(d, d.random.randint(1, 2))
        shape = d.values[x].shape
        outs = d.random.randint(1, 4)
        weight = d.array([outs, shape[1], *[d.random.randint(1, min(size, 3)) for size in shape[2:]]], special=False)
        bias = d.array([outs], special=False) if d.random.random() < 0.5 else None
        y = d.op("Conv", x, weight, bias)
        of_channels = [outs, *[1] * (len(shape) - 2)]
    else:
        x = d.value(rank=d.random.randint(2, 3))
        outs = d.random.randint(1, 4)
        y = d.op("MatMul", x, d.array([d.values[x].shape[-1], outs], special=False))
        of_channels = [outs]
    for _ in range(d.random.randint(1, 4)):
        shape = d.values[y].shape
        usual = d.array(d.random.choice([of_channels, of_channels, [], [1]]), special=False)
        odd = d.array([n if d.random.random() < 0.5 else 1 for n in shape], special=False)
        operand = usual if d.random.random() < 0.8 else odd
        kind = d.random.randrange(7)
        if kind < 2:
            y = either(d, "Add", y, operand)
        elif kind < 4:
            y = either(d, "Mul", y, operand)
        elif kind == 4:
            y = d.op(d.random.choice(["Sub", "Div"]), y, operand)
        elif kind == 5:
            y = d.op("Sub", operand, y)
        elif len(shape) > 2 and len(of_channels) > 1:
            channel = lambda: d.array([outs], special=False)
            y = d.op("BatchNormalization", y, channel(), channel(), channel(), np.abs(channel()) + np.float32(0.1))


def moves(d: Draw):
    """Elements that are moved about, several times."""
    x = d.value(rank=d.random.randint(2, 4))
    for _ in range(d.random.randint(2, 6)):
        shape = d.values[x].shape
        rank, kind = len(shape), d.random.randrange(8)
        axis = d.random.randrange(rank)
        if kind < 2:
            x = d.op("Transpose", x, perm=d.random.sample(range(rank), rank))
        elif kind == 2:
            # Neighbours are joined, or one is split.
            if rank > 1 and d.random.random() < 0.5:
                at = d.random.randrange(rank - 1)
                target = [*shape[:at], shape[at] * shape[at + 1], *shape[at + 2 :]]
            else:
                divisors = [n for n in range(1, shape[axis] + 1) if shape[axis] % n == 0]
                n = d.random.choice(divisors) if divisors else 1
                target = [*shape[:axis], n, shape[axis] // n, *shape[axis + 1 :]] if rank < 5 else list(shape)
            x = d.op("Reshape", x, np.array(target, np.int64))
        elif kind == 3:
            low = d.random.randint(-1, 1)
            high = d.random.choice([shape[axis], 2**31, -1, 2])
            x = d.op("Slice", x, np.array([low]), np.array([high]), np.array([axis]), np.array([d.random.choice([1, 1, 2])]))
        elif kind == 4:
            pieces = d.op("Split", x, np.array([1, shape[axis] - 1]), out=2, axis=axis) if shape[axis] > 1 else [x, x]
            x = d.op("Concat", *d.random.sample(pieces, 2), axis=axis)
        elif kind == 5:
            x = d.op("Unsqueeze", x, np.array([axis])) if rank < 5 else x
        elif kind == 6:
            ones = [a for a, size in enumerate(shape) if size == 1]
            x = d.op("Squeeze", x, np.array([d.random.choice(ones)])) if ones and rank > 1 else x
        else:
            x = d.op("Gather", x, np.int64(d.random.randrange(-shape[axis], shape[axis])), axis=axis) if rank > 1 and shape[axis] else x
        if d.values[x].ndim == 0 or d.values[x].size == 0:
            return


def rotary(d: Draw):
    """Rotary positions, of halves or of pairs."""
    heads, steps, size = d.random.randint(1, 3), d.random.randint(1, 5), d.random.choice([4, 8])
    x = d.input(d.array([1, heads, steps, size], special=False))
    angles = d.array([1, 1, steps, size // 2], special=False)
    wide = np.concatenate([angles, angles], -1) if d.random.random() < 0.7 else d.array([1, 1, steps, size], special=False)
    half = size // 2
    part = lambda low, high, step=1: d.op("Slice", x, np.array([low]), np.array([high]), np.array([-1]), np.array([step]))
    if d.random.random() < 0.7:
        turned = d.op("Concat", d.op("Neg", part(half, 2**62)), part(0, half), axis=-1)
    else:
        evens, odds = part(0, 2**62, 2), part(1, 2**62, 2)
        pairs = [d.op("Unsqueeze", v, np.array([-1])) for v in (d.op("Neg", odds), evens)]
        turned = d.op("Reshape", d.op("Concat", *pairs, axis=-1), np.array(d.values[x].shape))
        wide = np.repeat(angles, 2, -1)
    either(d, "Add", either(d, "Mul", x, np.cos(wide)), either(d, "Mul", turned, np.sin(wide)))


def heads(d: Draw):
    """Attention as networks have it: products with weights, heads split and joined again."""
    batch, steps, count, size = d.random.randint(1, 2), d.random.randint(1, 6), d.random.randint(1, 3), d.random.choice([2, 4])
    groups = d.random.choice([n for n in range(1, count + 1) if count % n == 0])
    width = count * size
    x = d.input(d.array([batch, steps, width], special=False))
    weight = lambda outs: d.array([width, outs], special=False) * np.float32(0.3)

    def split(outs):
        y = d.op("MatMul", x, weight(outs * size))
        if d.random.random() < 0.6:
            y = either(d, "Add", y, d.array([outs * size], special=False))
        return d.op("Reshape", y, np.array([batch if d.random.random() < 0.5 else 0, steps, outs, size]))

    turn = lambda v, perm: d.op("Transpose", v, perm=perm)
    q, k, v = turn(split(count), [0, 2, 1, 3]), split(groups), turn(split(groups), [0, 2, 1, 3])
    if groups < count:
        k = turn(k, [0, 2, 1, 3])

        def repeated(y):
            y = d.op("Expand", d.op("Unsqueeze", y, np.array([2])), np.array([batch, groups, count // groups, steps, size]))
            return d.op("Reshape", y, np.array([batch, count, steps, size]))

        k, v = turn(repeated(k), [0, 1, 3, 2]), repeated(v)
    else:
        k = turn(k, [0, 2, 3, 1])
    scores = d.op("MatMul", q, k)
    if d.random.random() < 0.8:
        scores = d.op("Div", scores, number(d, size**0.5)) if d.random.random() < 0.5 else either(d, "Mul", scores, number(d, size**-0.5))
    if d.random.random() < 0.4:
        hidden = np.where(np.tril(np.ones([steps, steps], bool)), 0, -np.inf if d.random.random() < 0.5 else -1e4)
        scores = either(d, "Add", scores, hidden.astype(np.float32))
    weights = d.op("Softmax", scores, axis=-1 if d.random.random() < 0.9 else -2)
    y = turn(d.op("MatMul", weights, v), [0, 2, 1, 3])
    d.op("MatMul", d.op("Reshape", y, np.array([batch, -1, width])), weight(d.random.randint(1, 4)))


PATTERNS = [norm, norm, group_norm, gate, gate, affine, affine, affine, moves, moves, moves, rotary, heads]
