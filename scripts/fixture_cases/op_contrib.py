"""Operators of ONNX Runtime's own domain that its tools write into transformers."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from fixture_lib.graph import BOOL, F16, F32, I8, I32, I64, U8, Graph
from fixture_lib.registry import Case, case

DOMAIN = "com.microsoft"


def floats(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


def packed(integers, bits):
    """Integers of the last axis in bytes, the first in the lowest bits."""
    per_byte = 8 // bits
    missing = -integers.shape[-1] % per_byte
    padded = np.pad(integers, [(0, 0)] * (integers.ndim - 1) + [(0, missing)])
    groups = padded.reshape(*integers.shape[:-1], -1, per_byte).astype(np.uint8)
    return np.bitwise_or.reduce(groups << (bits * np.arange(per_byte, dtype=np.uint8)), -1)


class Blocks:
    """A random matrix `[columns, depth]` of integers under scales of blocks."""

    def __init__(self, rng, columns, depth, bits, block):
        count = -(-depth // block)
        integers = lambda *shape: rng.integers(0, 1 << bits, shape)
        self.options = dict(K=depth, N=columns, bits=bits, block_size=block)
        self.weight = packed(integers(columns, count, block), bits)
        self.scales = rng.uniform(0.01, 0.1, (columns, count)).astype(np.float32)
        self.zeros = packed(integers(columns, count), bits)
        self.float_zeros = rng.uniform(0, 1 << bits, (columns, count)).astype(np.float32)


@case("op_matmul_n_bits")
def matmul_n_bits(rng):
    """Weights of 2, 4 and 8 bits; with the usual zero points, packed ones and floats; a last block that is not whole."""
    g = Graph("matmul_n_bits", opset=21)
    x, deep = g.input("x", F32, ["n", 40]), g.input("deep", F32, ["n", "s", 64])
    half = g.input("half", F16, ["n", 40])
    own = dict(domain=DOMAIN, dtype=F32)
    for bits, block in [(2, 16), (4, 16), (4, 32), (4, 128), (8, 32)]:
        m = Blocks(rng, 6, 40, bits, block)
        shape = dict(dims=["n", 6], **own, **m.options)
        label = f"bits_{bits}_{block}"
        g.show(label, "MatMulNBits", x, m.weight, m.scales, **shape)
        g.show(f"{label}_zeros", "MatMulNBits", x, m.weight, m.scales, m.zeros, None, floats(rng, 6), **shape)
        if bits < 8:
            g.show(f"{label}_floats", "MatMulNBits", x, m.weight, m.scales, m.float_zeros, accuracy_level=1, **shape)
    flat = Blocks(rng, 5, 64, 4, 16)
    shape = dict(dims=["n", "s", 5], **own, **flat.options)
    g.show("flat", "MatMulNBits", deep, flat.weight, flat.scales.reshape(-1), flat.zeros.reshape(-1), **shape)
    # Large enough to stay as it is.
    large = Blocks(rng, 260, 64, 4, 32)
    weight = [g.const(large.weight, "large.weight_Q4"), g.const(large.scales, "large.weight_scales")]
    g.show("large", "MatMulNBits", deep, *weight, large.zeros, dims=["n", "s", 260], **own, **large.options)
    # Scales that are powers of two, so that 16 bits hold every weight: ONNX Runtime's kernel widens both sides first.
    m = Blocks(rng, 3, 40, 4, 32)
    m.scales = np.full_like(m.scales, 1 / 16)
    shape = dict(domain=DOMAIN, dtype=F16, dims=["n", 3], **m.options)
    g.show("halves", "MatMulNBits", half, m.weight, m.scales.astype(np.float16), m.zeros, **shape)
    data = lambda n, s: [floats(rng, n, 40), floats(rng, n, s, 64), floats(rng, n, 40).astype(np.float16)]
    return Case(g.model(), [data(3, 2), data(1, 4)])


@case("op_gather_block_quantized")
def gather_block_quantized(rng):
    """Tables of bytes that hold integers of 2, 4 and 8 bits, and of integers of four bits."""
    g = Graph("gather_block_quantized", opset=21)
    indices, deep = g.input("indices", I64, ["n", 2]), g.input("deep", I32, [3])
    for bits in (2, 4, 8):
        for label, shape, scales in [("rows", (7, 48), (7, 3)), ("planes", (7, 3, 40), (7, 3, 3))]:
            integers = lambda *shape: rng.integers(0, 1 << bits, shape)
            block = dict(bits=bits, block_size=16, quantize_axis=-1, domain=DOMAIN, dtype=F32)
            table, scale = packed(integers(*shape), bits), rng.uniform(0.1, 1, scales).astype(np.float32)
            name, dims = f"{label}_{bits}", ["n", 2, *shape[1:]]
            g.show(name, "GatherBlockQuantized", table, indices, scale, dims=dims, **block)
            zeros = packed(integers(*scales), bits)
            g.show(f"{name}_zeros", "GatherBlockQuantized", table, deep, scale, zeros, dims=[3, *shape[1:]], **block)
    for label, dtype, low in [("i4", ml_dtypes.int4, -8), ("u4", ml_dtypes.uint4, 0)]:
        integers = lambda *shape: rng.integers(low, low + 16, shape).astype(dtype)
        block = dict(block_size=16, domain=DOMAIN, dtype=F32)
        scale = rng.uniform(0.1, 1, (2, 7)).astype(np.float32)
        operands = [integers(32, 7), indices, scale]
        g.show(label, "GatherBlockQuantized", *operands, gather_axis=1, quantize_axis=0, dims=[32, "n", 2], **block)
        operands = [integers(32, 7), deep, scale, integers(2, 7)]
        g.show(f"{label}_zeros", "GatherBlockQuantized", *operands, gather_axis=1, quantize_axis=0, dims=[32, 3], **block)
    data = lambda n: [rng.integers(-7, 7, (n, 2)), np.array([6, 0, -2], np.int32)]
    return Case(g.model(), [data(1), data(3)])


def caches(rng, length, half):
    angles = rng.standard_normal((length, half))
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


@case("op_rotary_contrib")
def rotary_contrib(rng):
    """Positions of each token, and of each sequence's first; heads in an axis of their own, or as many as the caches say."""
    g = Graph("rotary_contrib", opset=17)
    own = dict(domain=DOMAIN, dtype=F32)
    x, flat = g.input("x", F32, ["n", 3, "s", 8]), g.input("flat", F32, ["n", "s", 24])
    places, first = g.input("places", I64, ["n", "s"]), g.input("first", I64, [1])
    cos, sin = caches(rng, 12, 4)
    for pairs in (0, 1):
        options = dict(interleaved=pairs, **own)
        g.show(f"heads_{pairs}", "RotaryEmbedding", x, places, cos, sin, dims=["n", 3, "s", 8], **options)
        options = dict(dims=["n", "s", 24], **options)
        g.show(f"flat_{pairs}", "RotaryEmbedding", flat, places, cos, sin, **options)
        g.show(f"first_{pairs}", "RotaryEmbedding", flat, first, cos, sin, **options)
        part = dict(num_heads=3, rotary_embedding_dim=4, **options)
        g.show(f"part_{pairs}", "RotaryEmbedding", flat, places, cos[:, :2], sin[:, :2], **part)

    def data(n, s):
        return [floats(rng, n, 3, s, 8), floats(rng, n, s, 24), rng.integers(0, 12, (n, s)), np.array([12 - s])]

    return Case(g.model(), [data(2, 4), data(1, 1)])


@case("op_rotary_streams")
def rotary_streams(rng):
    """Positions in time, height and width, in sections and in turns; all features of heads, and the first ones."""
    g = Graph("rotary_streams", opset=17)
    x, flat = g.input("x", F32, ["n", 3, "s", 16]), g.input("flat", F32, ["n", "s", 48])
    places, (cos, sin) = g.input("places", I64, [3, "n", "s"]), caches(rng, 12, 8)
    for layout in (0, 1):
        own = dict(domain=DOMAIN, dtype=F32, mrope_layout=layout)
        heads = dict(dims=["n", 3, "s", 16], mrope_section=[4, 2, 2], **own)
        g.show(f"heads_{layout}", "MRotaryEmbedding", x, places, cos, sin, **heads)
        g.show(f"pairs_{layout}", "MRotaryEmbedding", x, places, cos, sin, interleaved=1, **heads)
        part = dict(dims=["n", "s", 48], mrope_section=[2, 1, 1], num_heads=3, rotary_embedding_dim=8, **own)
        g.show(f"part_{layout}", "MRotaryEmbedding", flat, places, cos[:, :4], sin[:, :4], **part)

    def data(n, s):
        return [floats(rng, n, 3, s, 16), floats(rng, n, s, 48), rng.integers(0, 12, (3, n, s))]

    return Case(g.model(), [data(2, 4), data(1, 1)])


@case("op_linear_attention_gate")
def linear_attention_gate(rng):
    """Both gates, and that of the decay alone."""
    g = Graph("linear_attention_gate", opset=17)
    a, b = (g.input(name, F32, ["n", "s", 3]) for name in "ab")
    bias, scale = floats(rng, 3), -np.exp(floats(rng, 3))
    g.op("LinearAttentionGate", a, bias, scale, b, out=["decay", "beta"], domain=DOMAIN)
    for name in ("decay", "beta"):
        g.output(name, F32, ["n", "s", 3])
    g.show("alone", "LinearAttentionGate", a, bias, scale, domain=DOMAIN, dtype=F32, dims=["n", "s", 3])
    return Case(g.model(), [[floats(rng, n, s, 3) * 3 for _ in "ab"] for n, s in [(2, 4), (1, 1)]])


@case("op_group_query_attention")
def group_query_attention(rng):
    """Caches that grow, and caches with room for more; batch entries of different lengths; rotary embeddings, windows, caps,
    sinks, biases; all of it packed in one input."""
    g = Graph("group_query_attention", opset=17)
    size, heads, groups = 16, 4, 2
    q = g.input("q", F32, ["n", "s", heads * size])
    k, v = (g.input(name, F32, ["n", "s", groups * size]) for name in "kv")
    past = [g.input(name, F32, ["n", groups, "past", size]) for name in ("past_key", "past_value")]
    lengths, total = g.input("lengths", I32, ["n", 1]), g.input("total", I32, [])
    bias = g.input("bias", F32, ["n", heads, "s", "total"])
    sink, (cos, sin) = floats(rng, heads), caches(rng, 20, size // 2)
    own = dict(domain=DOMAIN, num_heads=heads, kv_num_heads=groups)

    # ONNX Runtime overlooks a cache unless it is asked for the next one.
    def show(label, *operands, outputs=1, **options):
        names = [label, f"{label}_keys", f"{label}_values"]
        dims = [["n", "s", heads * size], *[["n", groups, None, size]] * 2]
        g.op("GroupQueryAttention", *operands, out=names, **own, **options)
        for name, dim in zip(names[:outputs], dims):
            g.output(name, F32, dim)

    all_of = [q, k, v, *past, lengths, total]
    show("plain", *all_of, outputs=3)
    show("rotary", *all_of, cos, sin, do_rotary=1, outputs=3)
    show("rotary_pairs", *all_of, cos, sin, do_rotary=1, rotary_interleaved=1)
    show("window", *all_of, local_window_size=3, softcap=2.0, scale=0.3)
    show("smooth", *all_of, smooth_softmax=1)
    show("sink", *all_of, None, None, None, None, sink)
    show("biased", *all_of, None, None, None, bias)
    show("biased_sink", *all_of, None, None, None, bias, sink, softcap=3.0)
    show("everywhere", *all_of, causal=0)
    together = g.op("Concat", q, k, v, axis=2)
    show("packed", together, None, None, *past, lengths, total, cos, sin, do_rotary=1)

    def data(n, s, room, counts, total):
        tensors = [floats(rng, n, s, heads * size), floats(rng, n, s, groups * size), floats(rng, n, s, groups * size)]
        tensors += [floats(rng, n, groups, room, size) for _ in range(2)]
        for cache in tensors[3:]:
            for entry, count in zip(cache, counts):
                entry[:, max(count + 1 - s, 0) :] = 0
        lengths = np.array(counts, np.int32)[:, None]
        return [*tensors, lengths, np.array(total, np.int32), floats(rng, n, heads, s, total)]

    # A step of two sequences, the next tokens of one, a step with room left, a first prompt with room left.
    steps = [data(2, 1, 6, [6, 3], 7), data(1, 3, 6, [8], 9), data(2, 1, 12, [6, 3], 7), data(2, 5, 12, [4, 4], 5)]
    return Case(g.model(), steps)


@case("op_group_query_prompt")
def group_query_prompt(rng):
    """Without a cache."""
    g = Graph("group_query_prompt", opset=17)
    size, heads = 16, 2
    q, k, v = (g.input(name, F32, ["n", "s", heads * size]) for name in "qkv")
    half = [g.op("Cast", x, to=F16) for x in (q, k, v)]
    lengths, total = g.input("lengths", I32, ["n"]), g.input("total", I32, [1])
    places = g.input("places", I64, ["n", "s"])
    cos, sin = caches(rng, 20, 8)
    own = dict(domain=DOMAIN, num_heads=heads, dims=["n", "s", heads * size])
    rest = [None, None, lengths, total]
    for label, x in [("plain", (q, k, v)), ("halves", half)]:
        dtype = F32 if label == "plain" else F16
        g.show(label, "GroupQueryAttention", *x, *rest, dtype=dtype, kv_num_heads=heads, **own)
    own = dict(kv_num_heads=heads, dtype=F32, **own)
    g.show("rotary", "GroupQueryAttention", q, k, v, *rest, cos, sin, do_rotary=1, **own)
    g.show("at_places", "GroupQueryAttention", q, k, v, *rest, cos, sin, places, do_rotary=1, **own)
    g.show("window", "GroupQueryAttention", q, k, v, *rest, local_window_size=2, **own)

    def data(n, s):
        tensors = [floats(rng, n, s, heads * size) for _ in range(3)]
        rows = np.tile(np.arange(s), (n, 1))
        return [*tensors, np.full(n, s - 1, np.int32), np.array([s], np.int32), rows]

    return Case(g.model(), [data(2, 5), data(1, 1)])


@case("op_group_query_window")
def group_query_window(rng):
    """Caches of a window, as long as it and longer: steps of entries of different lengths, of several tokens, and first prompts,
    shorter and longer than the cache; rotary embeddings, sinks, biases, integers."""
    g = Graph("group_query_window", opset=17)
    size, heads, groups, window = 16, 4, 2, 4
    q = g.input("q", F32, ["n", "s", heads * size])
    k, v = (g.input(name, F32, ["n", "s", groups * size]) for name in "kv")
    lengths, total = g.input("lengths", I32, ["n"]), g.input("total", I32, [])
    bias = g.input("bias", F32, ["n", heads, "s", "total"])
    sink, (cos, sin) = floats(rng, heads), caches(rng, 20, size // 2)
    own = dict(domain=DOMAIN, num_heads=heads, kv_num_heads=groups, local_window_size=window, sliding_window_cache=1)
    rooms, formats = {"tight": 4, "roomy": 6}, {"tight": "PER_TENSOR", "roomy": "PER_CHANNEL"}
    for label, room in rooms.items():
        # Rows behind those that are in use may hold anything.
        used = g.input(f"{label}_used", BOOL, ["n", 1, room, 1])

        def show(name, past, *rest, kind=F32, **options):
            name = f"{label}_{name}"
            names = [name, f"{name}_keys", f"{name}_values"]
            g.op("GroupQueryAttention", q, k, v, *past, lengths, total, *rest, out=names, **own, **options)
            g.output(name, F32, ["n", "s", heads * size])
            for cache in names[1:]:
                zero = np.zeros((), np.float32 if kind == F32 else np.int8)
                g.show(f"{cache}_used", "Where", used, cache, zero, dtype=kind, dims=["n", groups, room, size])

        shape = ["n", groups, room, size]
        past = [g.input(f"{label}_{name}", F32, shape) for name in ("past_key", "past_value")]
        show("plain", past)
        show("rotary", past, cos, sin, None, bias, sink, do_rotary=1)
        integers = [g.input(f"{label}_integer_{name}", I8, shape) for name in ("past_key", "past_value")]
        count = (1, groups, 1, size) if formats[label] == "PER_CHANNEL" else (1,)
        scales = [rng.uniform(0.02, 0.04, count).astype(np.float32) for _ in range(2)]
        kinds = dict(k_quant_type=formats[label], v_quant_type=formats[label], kv_cache_bit_width=8)
        show("integers", integers, *[None] * 5, *scales, kind=I8, **kinds)

    def data(s, counts):
        n, total = len(counts), max(counts)
        tensors = [floats(rng, n, s, heads * size), floats(rng, n, s, groups * size), floats(rng, n, s, groups * size)]
        tensors += [np.array(counts, np.int32) - 1, np.array(total, np.int32), floats(rng, n, heads, s, total)]
        for room in rooms.values():
            step = room - window + 1
            left = [count - max(count - window, 0) // step * step for count in counts]
            tensors.append((np.arange(room) < np.array(left)[:, None]).reshape(n, 1, room, 1))
            tensors += [floats(rng, n, groups, room, size) for _ in range(2)]
            tensors += [rng.integers(-99, 99, (n, groups, room, size)).astype(np.int8) for _ in range(2)]
        return tensors

    steps = [data(1, [9, 3, 12]), data(1, [2]), data(3, [8]), data(7, [13]), data(2, [2, 2]), data(9, [9, 9])]
    return Case(g.model(), steps)


@case("op_group_query_chunks")
def group_query_chunks(rng):
    """Chunks of a prompt with padding behind the tokens of each entry, one of which has none; caches with room, and of a window."""
    g = Graph("group_query_chunks", opset=17)
    size, heads, groups, s = 16, 4, 2, 3
    q = g.input("q", F32, ["n", s, heads * size])
    k, v = (g.input(name, F32, ["n", s, groups * size]) for name in "kv")
    counts, lengths = g.input("counts", I32, ["n"]), g.input("lengths", I32, ["n"])
    valid, (cos, sin) = g.input("valid", BOOL, ["n", s, 1]), caches(rng, 20, size // 2)
    own = dict(domain=DOMAIN, num_heads=heads, kv_num_heads=groups, do_rotary=1)
    rooms = {"room": (12, {}), "window": (5, dict(local_window_size=4, sliding_window_cache=1))}
    zero = np.zeros((), np.float32)
    for label, (room, options) in rooms.items():
        used, shape = g.input(f"{label}_used", BOOL, ["n", 1, room, 1]), ["n", groups, room, size]
        past = [g.input(f"{label}_{name}", F32, shape) for name in ("past_key", "past_value")]
        names = [f"{label}_{name}" for name in ("y", "keys", "values")]
        operands = [q, k, v, *past, lengths, np.array(12, np.int32), cos, sin, *[None] * 7, counts]
        g.op("GroupQueryAttention", *operands, out=names, **own, **options)
        g.show(f"{label}_shown", "Where", valid, names[0], zero, dtype=F32, dims=["n", s, heads * size])
        for cache in names[1:]:
            g.show(f"{cache}_used", "Where", used, cache, zero, dtype=F32, dims=shape)

    def data(totals, counts):
        n, totals, counts = len(totals), np.array(totals, np.int32), np.array(counts, np.int32)
        tensors = [floats(rng, n, s, heads * size), floats(rng, n, s, groups * size), floats(rng, n, s, groups * size)]
        tensors += [counts, totals - 1, (np.arange(s) < counts[:, None])[..., None]]
        for room, left in [(12, totals), (5, totals - np.maximum(totals - 4, 0) // 2 * 2)]:
            tensors.append((np.arange(room) < left[:, None]).reshape(n, 1, room, 1))
            tensors += [floats(rng, n, groups, room, size) for _ in range(2)]
        return tensors

    return Case(g.model(), [data([9, 4, 6, 3], [2, 3, 0, 1]), data([2, 1], [2, 1])])


@case("op_group_query_integers")
def group_query_integers(rng):
    """Caches of integers of 8 and of 4 bits, under one scale and under one for each feature."""
    g = Graph("group_query_integers", opset=17)
    size, heads, groups = 16, 4, 2
    q = g.input("q", F32, ["n", "s", heads * size])
    k, v = (g.input(name, F32, ["n", "s", groups * size]) for name in "kv")
    lengths, total = g.input("lengths", I32, ["n"]), g.input("total", I32, [])
    sink = floats(rng, heads)
    own = dict(domain=DOMAIN, num_heads=heads, kv_num_heads=groups)
    kinds = {8: (I8, size, 0.03), 4: (U8, size // 2, 0.3)}
    scale = lambda each, middle: (rng.uniform(0.7, 1.3, (1, groups, 1, size) if each else (1,)) * middle).astype(np.float32)
    for bits, (kind, width, middle) in kinds.items():
        shape = ["n", groups, "past", width]
        past = [g.input(f"past_{name}_{bits}", kind, shape) for name in ("key", "value")]
        for label, each in [("tensor", False), ("channel", True)]:
            names = [f"{label}_{bits}{part}" for part in ("", "_keys", "_values")]
            scales = [scale(each, middle) for _ in range(2)]
            rest = [*[None] * 4, sink] if label == "channel" else [None] * 5
            types = {f"{part}_quant_type": "PER_CHANNEL" if each else "PER_TENSOR" for part in "kv"}
            operands = [q, k, v, *past, lengths, total, *rest, *scales]
            g.op("GroupQueryAttention", *operands, out=names, kv_cache_bit_width=bits, **types, **own)
            g.output(names[0], F32, ["n", "s", heads * size])
            for name in names[1:]:
                g.output(name, kind, ["n", groups, None, width])

    def data(n, s, room, counts, total):
        tensors = [floats(rng, n, s, heads * size), floats(rng, n, s, groups * size), floats(rng, n, s, groups * size)]
        tensors += [np.array(counts, np.int32), np.array(total, np.int32)]
        for kind, width in [(np.int8, size), (np.uint8, size // 2)]:
            for _ in range(2):
                cache = rng.integers(-128, 128, (n, groups, room, width)).astype(np.int8).view(kind)
                # ONNX Runtime clears what a shorter entry does not use.
                for entry, count in zip(cache, counts):
                    entry[:, max(count + 1 - s, 0) :] = 0
                tensors.append(cache)
        return tensors

    return Case(g.model(), [data(2, 1, 6, [6, 3], 7), data(1, 3, 9, [5], 6), data(2, 4, 4, [3, 3], 4)])


@case("op_group_query_scores")
def group_query_scores(rng):
    """Scores before and after the softmax as outputs, beside all that changes them."""
    g = Graph("group_query_scores", opset=17)
    size, heads, groups = 16, 4, 2
    q = g.input("q", F32, ["n", "s", heads * size])
    k, v = (g.input(name, F32, ["n", "s", groups * size]) for name in "kv")
    past = [g.input(name, F32, ["n", groups, "past", size]) for name in ("past_key", "past_value")]
    lengths, total = g.input("lengths", I32, ["n"]), g.input("total", I32, [])
    bias, sink = g.input("bias", F32, ["n", heads, "s", "total"]), floats(rng, heads)
    own = dict(domain=DOMAIN, num_heads=heads, kv_num_heads=groups)
    rest = [None, None, None, bias]
    for stage in (1, 2):
        many = dict(softcap=2.0, local_window_size=3, qk_output=stage)
        for label, extra, options in [("plain", [], dict(qk_output=stage)), ("all", rest, many), ("sink", [*rest, sink], many)]:
            names = [f"{label}_{stage}{part}" for part in ("", "_keys", "_values", "_scores")]
            g.op("GroupQueryAttention", q, k, v, *past, lengths, total, *extra, out=names, **own, **options)
            g.output(names[0], F32, ["n", "s", heads * size])
            g.output(names[3], F32, ["n", heads, "s", "total"])

    def data(n, s, room, counts, total):
        tensors = [floats(rng, n, s, heads * size), floats(rng, n, s, groups * size), floats(rng, n, s, groups * size)]
        tensors += [floats(rng, n, groups, room, size) for _ in range(2)]
        lengths = np.array(counts, np.int32)
        return [*tensors, lengths, np.array(total, np.int32), floats(rng, n, heads, s, total)]

    return Case(g.model(), [data(2, 1, 9, [6, 3], 7), data(1, 3, 8, [5], 6)])


@case("op_group_query_norms")
def group_query_norms(rng):
    """Queries and keys that are normalized before they are turned."""
    size, heads, groups = 16, 4, 2
    weights, (cos, sin) = [floats(rng, size), floats(rng, size)], caches(rng, 20, size // 2)

    def model(fused):
        g = Graph("group_query_norms", opset=17)
        q = g.input("q", F32, ["n", "s", heads * size])
        k, v = (g.input(name, F32, ["n", "s", groups * size]) for name in "kv")
        past = [g.input(name, F32, ["n", groups, "past", size]) for name in ("past_key", "past_value")]
        lengths, total = g.input("lengths", I32, ["n"]), g.input("total", I32, [])
        options = dict(domain=DOMAIN, num_heads=heads, kv_num_heads=groups, do_rotary=1)
        rest = [*[None] * 5, *weights] if fused else []
        if fused:
            options |= dict(qk_norm_epsilon=1e-3, k_norm_epsilon=1e-2)
        else:
            normed = []
            for x, weight, epsilon in zip([q, k], weights, [1e-3, 1e-2]):
                split = g.op("Reshape", x, [0, 0, -1, size])
                normed.append(g.op("Reshape", g.op("SimplifiedLayerNormalization", split, weight, epsilon=epsilon), [0, 0, -1]))
            q, k = normed
        names = ["y", "keys", "values"]
        g.op("GroupQueryAttention", q, k, v, *past, lengths, total, cos, sin, *rest, out=names, **options)
        for name, dims in zip(names, [["n", "s", heads * size], *[["n", groups, None, size]] * 2]):
            g.output(name, F32, dims)
        return g.model()

    tensors = [floats(rng, 1, 3, heads * size), floats(rng, 1, 3, groups * size), floats(rng, 1, 3, groups * size)]
    tensors += [floats(rng, 1, groups, 4, size) for _ in range(2)]
    data = [*tensors, np.array([6], np.int32), np.array(7, np.int32)]
    return Case(model(True), [data], reference=model(False))


@case("op_multi_head_attention")
def multi_head_attention(rng):
    """Masks of ends, of keys and of queries and keys; biases before and of the scores; caches; keys that have their heads."""
    g = Graph("multi_head_attention", opset=17)
    heads, size = 2, 8
    width = heads * size
    q, k = g.input("q", F32, ["n", "s", width]), g.input("k", F32, ["n", "t", width])
    v, same = g.input("v", F32, ["n", "t", 12]), g.input("same", F32, ["n", "s", width])
    past = [g.input(name, F32, ["n", heads, "past", size]) for name in ("past_key", "past_value")]
    ends, of_keys = g.input("ends", I32, ["n"]), g.input("of_keys", I32, ["n", "t"])
    of_both, scores = g.input("of_both", I32, ["n", "s", "t"]), g.input("scores", F32, [1, heads, "s", "t"])
    own = dict(domain=DOMAIN, num_heads=heads)
    wide = dict(dtype=F32, dims=["n", "s", 12], **own)
    g.show("plain", "MultiHeadAttention", q, k, v, **wide)
    g.show("scale", "MultiHeadAttention", q, k, v, scale=0.7, **wide)
    g.show("bias", "MultiHeadAttention", q, k, v, floats(rng, 2 * width + 12), **wide)
    g.show("with_ends", "MultiHeadAttention", q, k, v, None, ends, **wide)
    g.show("keys", "MultiHeadAttention", q, k, v, None, of_keys, mask_filter_value=-3.0, **wide)
    g.show("both", "MultiHeadAttention", q, k, v, None, of_both, **wide)
    g.show("with_scores", "MultiHeadAttention", q, k, v, None, of_keys, scores, **wide)
    square = dict(dtype=F32, dims=["n", "s", width], **own)
    g.show("causal", "MultiHeadAttention", q, same, same, unidirectional=1, **square)
    # The first query sees no key but one that the mask hides.
    g.show("causal_ends", "MultiHeadAttention", q, same, same, None, ends, unidirectional=1, **square)
    turned = g.op("Transpose", g.op("Reshape", k, [0, 0, heads, size]), perm=[0, 2, 1, 3])
    g.show("with_heads", "MultiHeadAttention", q, turned, turned, **square)
    for label, causal in [("cached", 0), ("cached_causal", 1)]:
        names = [label, f"{label}_keys", f"{label}_values"]
        operands = [q, same, same, None, None, None, *past]
        g.op("MultiHeadAttention", *operands, out=names, unidirectional=causal, **own)
        for name, dims in zip(names, [["n", "s", width], *[["n", heads, None, size]] * 2]):
            g.output(name, F32, dims)

    def data(n, s, t, past):
        tensors = [floats(rng, n, s, width), floats(rng, n, t, width), floats(rng, n, t, 12), floats(rng, n, s, width)]
        tensors += [floats(rng, n, heads, past, size) for _ in range(2)]
        masks = [rng.integers(0, 2, shape).astype(np.int32) for shape in [(n, t), (n, s, t)]]
        ends = np.array([1, 3])[:n] if past else np.array([0])
        return [*tensors, ends.astype(np.int32), *masks, floats(rng, 1, heads, s, t)]

    return Case(g.model(), [data(2, 4, 6, 3), data(1, 1, 2, 0)])


@case("op_attention_contrib")
def attention_contrib(rng):
    """With the projections inside: masks of ends, of beginnings, of keys and of queries and keys; caches; wider values."""
    g = Graph("attention_contrib", opset=17)
    heads, size = 2, 8
    width = heads * size
    x, past = g.input("x", F32, ["n", "s", 10]), g.input("past", F32, [2, "n", heads, "past", size])
    ends, begins = g.input("ends", I32, ["n"]), g.input("begins", I32, ["n"])
    of_keys, of_both = g.input("of_keys", I32, ["n", "s"]), g.input("of_both", I32, ["n", "s", "s"])
    scores, of_all = g.input("scores", F32, [1, heads, "s", "s"]), g.input("of_all", I32, ["n", "all"])
    weights, bias = g.const(floats(rng, 10, 3 * width) / 3, "qkv.weight"), g.const(floats(rng, 3 * width), "qkv.bias")
    own = dict(domain=DOMAIN, num_heads=heads)
    shape = dict(dtype=F32, dims=["n", "s", width], **own)
    for causal in (0, 1):
        options = dict(unidirectional=causal, **shape)
        g.show(f"plain_{causal}", "Attention", x, weights, bias, **options)
        g.show(f"ends_{causal}", "Attention", x, weights, bias, ends, **options)
        g.show(f"keys_{causal}", "Attention", x, weights, bias, of_keys, mask_filter_value=-5.0, **options)
        g.show(f"both_{causal}", "Attention", x, weights, bias, of_both, **options)
        g.show(f"scores_{causal}", "Attention", x, weights, bias, None, None, scores, scale=0.5, **options)
        names = [f"past_{causal}", f"present_{causal}"]
        g.op("Attention", x, weights, bias, of_all, past, out=names, unidirectional=causal, **own)
        g.output(names[0], F32, ["n", "s", width])
        g.output(names[1], F32, [2, "n", heads, None, size])
    bounds = g.op("Concat", ends, begins, axis=0)
    g.show("bounds", "Attention", x, weights, bias, bounds, **shape)
    sizes = [width, width, 12]
    operands = [x, floats(rng, 10, sum(sizes)), floats(rng, sum(sizes))]
    g.show("sizes", "Attention", *operands, qkv_hidden_sizes=sizes, dtype=F32, dims=["n", "s", 12], **own)
    names = ["first", "first_present"]
    g.op("Attention", x, weights, bias, out=names, **own)
    g.output(names[0], F32, ["n", "s", width])
    g.output(names[1], F32, [2, "n", heads, "s", size])

    def data(n, s, past):
        masks = [rng.integers(0, 2, shape).astype(np.int32) for shape in [(n, s), (n, s, s)]]
        ends, begins = np.array([2, 3, 1][:n], np.int32), np.array([0, 1, 0][:n], np.int32)
        of_all = rng.integers(0, 2, (n, past + s)).astype(np.int32)
        state = floats(rng, 2, n, heads, past, size)
        return [floats(rng, n, s, 10), state, ends, begins, *masks, floats(rng, 1, heads, s, s), of_all]

    return Case(g.model(), [data(2, 4, 3), data(3, 3, 1)])


@case("op_embed_layer_norm")
def embed_layer_norm(rng):
    """Tables of words, positions and segments; positions that are given, and counts of words."""
    g = Graph("embed_layer_norm", opset=17)
    ids, segments, mask = (g.input(name, I32, ["n", "s"]) for name in ("ids", "segments", "mask"))
    places = g.input("places", I32, ["n", "s"])
    names = ["word", "position", "segment"]
    words, positions, kinds = (g.const(floats(rng, n, 6), f"{name}.weight") for n, name in zip([9, 7, 2], names))
    norm = [1 + floats(rng, 6) / 4, floats(rng, 6)]

    def show(label, *operands, **options):
        outputs = [label, f"{label}_count", f"{label}_sum"]
        g.op("EmbedLayerNormalization", *operands, out=outputs, domain=DOMAIN, **options)
        for name, dtype, dims in zip(outputs, [F32, I32, F32], [["n", "s", 6], ["n"], ["n", "s", 6]]):
            g.output(name, dtype, dims)

    show("bert", ids, segments, words, positions, kinds, *norm, mask, epsilon=1e-5)
    show("bare", ids, None, words, positions, None, *norm)
    show("given", ids, segments, words, positions, kinds, *norm, mask, places, mask_index_type=1)

    def data(n, s):
        mask = (np.arange(s) < rng.integers(1, s + 1, (n, 1))).astype(np.int32)
        integers = lambda high: rng.integers(0, high, (n, s)).astype(np.int32)
        return [integers(9), integers(2), mask, integers(7)]

    return Case(g.model(), [data(2, 4), data(1, 7)])


@case("op_fused_gemm")
def fused_gemm(rng):
    """Products with an activation behind."""
    g = Graph("fused_gemm", opset=17)
    x, y = g.input("x", F32, ["n", 4]), g.input("y", F32, [4, "n"])
    weight, bias = floats(rng, 4, 5), floats(rng, 5)
    own = dict(domain=DOMAIN, dtype=F32, dims=["n", 5])
    plain = ["Relu", "Tanh", "Sigmoid", "Softplus", "Softsign"]
    for name in plain:
        g.show(name, "FusedGemm", x, weight, bias, activation=name, **own)
    numbers = {"LeakyRelu": [0.3], "Elu": [0.7], "ThresholdedRelu": [0.4], "HardSigmoid": [0.3, 0.4]}
    for name, values in numbers.items():
        options = dict(zip(["activation_alpha", "activation_beta"], values))
        g.show(name, "FusedGemm", x, weight, bias, activation=name, **options, **own)
    turned = dict(transA=1, transB=1, alpha=0.5, beta=2.0, activation="Relu")
    g.show("turned", "FusedGemm", y, weight.T.copy(), bias, **turned, **own)
    g.show("no_bias", "FusedGemm", x, weight, activation="Tanh", **own)
    return Case(g.model(), [[floats(rng, n, 4), floats(rng, 4, n)] for n in (3, 1)])


@case("op_quantized_floats")
def quantized_floats(rng):
    """Products of integers that yield floats, of integers and of floats that are quantized first."""
    g = Graph("quantized_floats", opset=17)
    x, q = g.input("x", F32, ["n", 3, 8]), g.input("q", U8, ["n", 8])
    own = dict(domain=DOMAIN, dtype=F32)
    # Seven bits: see `op_quantized_products`.
    signed, unsigned = rng.integers(-64, 64, (8, 5)).astype(np.int8), rng.integers(0, 128, (8, 5)).astype(np.uint8)
    scale, scales = np.float32(0.02), rng.uniform(0.01, 0.1, 5).astype(np.float32)
    zeros, bias = rng.integers(-5, 5, 5).astype(np.int8), floats(rng, 5)
    deep = dict(dims=["n", 3, 5], **own)
    g.show("dynamic", "DynamicQuantizeMatMul", x, signed, scale, **deep)
    g.show("dynamic_zero", "DynamicQuantizeMatMul", x, unsigned, scale, np.uint8(60), bias, **deep)
    g.show("dynamic_columns", "DynamicQuantizeMatMul", x, signed, scales, zeros, **deep)
    flat = dict(dims=["n", 5], **own)
    g.show("floats", "MatMulIntegerToFloat", q, signed, np.float32(0.1), scale, **flat)
    operands = [q, signed, np.float32(0.1), scales, np.uint8(120), zeros, bias]
    g.show("floats_columns", "MatMulIntegerToFloat", *operands, **flat)
    return Case(g.model(), [[floats(rng, n, 3, 8), rng.integers(0, 256, (n, 8)).astype(np.uint8)] for n in (2, 1)])


@case("op_unique")
def unique(rng):
    """Of all numbers and of an axis, in ascending order and in that of their first appearance."""
    g = Graph("unique", opset=11)
    x, f = g.input("x", I64, ["n", 3]), g.input("f", F32, ["m"])
    deep, one = g.input("deep", I64, [2, "k", 2]), g.input("one", F32, [])

    def show(label, operand, dtype, dims, **options):
        names = [label, *(f"{label}_{part}" for part in ("indices", "inverse", "counts"))]
        g.op("Unique", operand, out=names, **options)
        g.output(names[0], dtype, dims)
        for name in names[1:]:
            g.output(name, I64, [None])

    for order, word in [(1, "sorted"), (0, "found")]:
        show(f"all_{word}", x, I64, [None], sorted=order)
        show(f"line_{word}", f, F32, [None], sorted=order)
        show(f"rows_{word}", x, I64, [None, 3], axis=0, sorted=order)
        show(f"middle_{word}", deep, I64, [2, None, 2], axis=-2, sorted=order)
    show("single", one, F32, [None])
    show("narrow", g.op("Cast", x, to=I8), I8, [None])

    def data(n, m, k):
        numbers = [rng.integers(-1, 2, (n, 3)), rng.integers(0, 4, m).astype(np.float32)]
        return [*numbers, rng.integers(0, 2, (2, k, 2)), np.array(2.5, np.float32)]

    return Case(g.model(), [data(9, 8, 12), data(1, 1, 1)])


@case("op_attention_packed")
def attention_packed(rng):
    """Queries, keys and values packed into one input, or keys and values, for which ONNX Runtime's CPU provider has no kernels."""
    heads, size = 2, 8
    width = heads * size
    bias = floats(rng, 3 * width)

    def build(packed: bool):
        g = Graph("attention_packed", opset=17)
        all = g.input("all", F32, ["n", "s", heads, 3, size])
        q, both = g.input("q", F32, ["n", "s", width]), g.input("both", F32, ["n", "t", heads, 2, size])

        def show(label, operands, count, *more, **options):
            packs = operands.pop()
            if not packed:
                parts = [g.op("Slice", packs, [n], [n + 1], [3]) for n in range(count)]
                operands += [g.op("Reshape", part, [0, 0, width]) for part in parts]
            else:
                operands.append(packs)
            operands += [None] * (3 - len(operands))
            own = dict(domain=DOMAIN, num_heads=heads, dtype=F32, dims=["n", "s", width])
            g.show(label, "MultiHeadAttention", *operands, *more, **options, **own)

        show("of_all", [all], 3)
        show("of_all_bias", [all], 3, bias, scale=0.3)
        show("of_both", [q, both], 2)
        return g.model()

    data = lambda n, s, t: [floats(rng, n, s, heads, 3, size), floats(rng, n, s, width), floats(rng, n, t, heads, 2, size)]
    return Case(build(True), [data(2, 4, 3), data(1, 2, 5)], reference=build(False))


@case("op_attention_quantized")
def attention_quantized(rng):
    """Projections of integers: scales and zero points of the whole weight and of its columns; masks, and a cache."""
    g = Graph("attention_quantized", opset=17)
    heads, size = 2, 8
    width = heads * size
    x, past = g.input("x", U8, ["n", "s", 10]), g.input("past", F32, [2, "n", heads, "past", size])
    ends, of_all = g.input("ends", I32, ["n"]), g.input("of_all", I32, ["n", "all"])
    # Seven bits: see `op_quantized_products`.
    signed = rng.integers(-64, 64, (10, 3 * width)).astype(np.int8)
    unsigned = rng.integers(0, 128, (10, 3 * width)).astype(np.uint8)
    bias, scale = floats(rng, 3 * width), np.float32(0.02)
    scales = rng.uniform(0.005, 0.02, 3 * width).astype(np.float32)
    zeros = rng.integers(-5, 5, 3 * width).astype(np.int8)
    own = dict(domain=DOMAIN, num_heads=heads)
    shape = dict(dtype=F32, dims=["n", "s", width], **own)
    step, zero = np.float32(0.02), np.uint8(120)
    g.show("plain", "QAttention", x, signed, bias, step, scale, **shape)
    g.show("zero", "QAttention", x, unsigned, bias, step, scale, ends, zero, np.uint8(60), **shape)
    columns = [x, signed, bias, step, scales, None, zero, zeros]
    g.show("columns", "QAttention", *columns, unidirectional=1, scale=0.5, **shape)
    names = ["cached", "present"]
    g.op("QAttention", x, signed, bias, step, scales, of_all, zero, zeros, past, out=names, **own)
    g.output(names[0], F32, ["n", "s", width])
    g.output(names[1], F32, [2, "n", heads, None, size])

    def data(n, s, past):
        integers = rng.integers(0, 256, (n, s, 10)).astype(np.uint8)
        of_all = rng.integers(0, 2, (n, past + s)).astype(np.int32)
        return [integers, floats(rng, 2, n, heads, past, size), np.array([2, 3][:n], np.int32), of_all]

    return Case(g.model(), [data(2, 4, 3), data(1, 3, 1)])


@case("op_embed_layer_norm_quantized")
def embed_layer_norm_quantized(rng):
    """Tables and parameters of integers."""
    g = Graph("embed_layer_norm_quantized", opset=17)
    ids, segments, mask = (g.input(name, I32, ["n", "s"]) for name in ("ids", "segments", "mask"))
    integers = lambda *shape: rng.integers(0, 256, shape).astype(np.uint8)
    tables = [integers(9, 6), integers(7, 6), integers(2, 6)]
    norm = [integers(6), integers(6)]
    scales = [np.float32(scale) for scale in (0.02, 0.01, 0.015, 0.008, 0.005)]
    zeros = [np.uint8(zero) for zero in (120, 7, 130, 0, 100)]

    def show(label, *operands, **options):
        outputs = [label, f"{label}_count"]
        g.op("QEmbedLayerNormalization", *operands, out=outputs, domain=DOMAIN, **options)
        for name, dtype, dims in zip(outputs, [F32, I32], [["n", "s", 6], ["n"]]):
            g.output(name, dtype, dims)

    show("bert", ids, segments, *tables, *norm, mask, *scales, *zeros, epsilon=1e-5)
    without = lambda values: [*values[:2], None, *values[3:]]
    show("bare", ids, None, *without(tables), *norm, None, *without(scales), *without(zeros))

    def data(n, s):
        mask = (np.arange(s) < rng.integers(1, s + 1, (n, 1))).astype(np.int32)
        rows = lambda high: rng.integers(0, high, (n, s)).astype(np.int32)
        return [rows(9), rows(2), mask]

    return Case(g.model(), [data(2, 4), data(1, 7)])


@case("op_matrices_contrib")
def matrices_contrib(rng):
    """Distances of rows; what has other names in ONNX's own domain, or had at first."""
    g = Graph("matrices_contrib", opset=13)
    a, b = g.input("a", F32, ["n", 5]), g.input("b", F32, ["k", 5])
    own = dict(domain=DOMAIN, dtype=F32)
    g.show("squares", "CDist", a, b, metric="sqeuclidean", dims=["n", "k"], **own)
    g.show("distances", "CDist", a, b, metric="euclidean", dims=["n", "k"], **own)
    g.show("product", "TransposeMatMul", a, b, transB=1, alpha=0.5, dims=["n", "k"], **own)
    g.show("lower", "Trilu", a, np.int64(1), upper=0, dims=["n", 5], **own)
    return Case(g.model(), [[floats(rng, n, 5), floats(rng, k, 5)] for n, k in ((3, 4), (2, 1))])


@case("op_diffusion_contrib")
def diffusion_contrib(rng):
    """What ONNX Runtime's optimizer makes of diffusion models, for which its CPU provider has no kernels."""
    last, first = [0, 2, 3, 1], [0, 3, 1, 2]
    gamma, beta = 1 + floats(rng, 8) / 4, floats(rng, 8)
    bias, kernel, grouped = floats(rng, 8), floats(rng, 6, 8, 3, 3) / 4, floats(rng, 4, 4, 3, 3) / 4
    row = floats(rng, 8)

    def build(contrib: bool):
        g = Graph("diffusion_contrib", opset=21)
        own = dict(domain=DOMAIN) if contrib else {}
        x, skip = g.input("x", F32, ["n", "h", "w", 8]), g.input("skip", F32, ["n", "h", "w", 8])
        each, rows = g.input("each", F32, ["n", 8]), g.input("rows", F32, ["n", "s", 8])
        more = g.input("more", F32, ["n", "s", 8])
        image = ["n", "h", "w", 8]

        def norm(label, x, groups, silu, channels_last=1, epsilon=1e-5):
            dims = image if channels_last else ["n", 8, "h", "w"]
            if contrib:
                options = dict(groups=groups, activation=silu, channels_last=channels_last, epsilon=epsilon)
                g.show(label, "GroupNorm", x, gamma, beta, dtype=F32, dims=dims, **options, **own)
                return
            x = g.op("Transpose", x, perm=first) if channels_last else x
            y = g.op("GroupNormalization", x, gamma, beta, num_groups=groups, epsilon=epsilon)
            y = g.op("Mul", y, g.op("Sigmoid", y)) if silu else y
            g.show(label, "Transpose", y, perm=last if channels_last else [0, 1, 2, 3], dtype=F32, dims=dims)

        def skip_norm(label, skip, bias):
            names = [label, f"{label}_sum"]
            if contrib:
                g.op("SkipGroupNorm", x, gamma, beta, skip, bias, out=names, groups=4, activation=1, **own)
                for name in names:
                    g.output(name, F32, image)
                return
            skip = g.op("Unsqueeze", skip, [1, 2]) if skip == each else skip
            sum = g.op("Add", x, skip)
            sum = g.op("Add", sum, bias) if bias is not None else sum
            norm(label, sum, 4, 1)
            g.show(names[1], "Identity", sum, dtype=F32, dims=image)

        norm("norm", x, 4, 0)
        norm("norm_silu", x, 2, 1, epsilon=1e-3)
        norm("norm_first", g.op("Transpose", x, perm=first), 4, 1, channels_last=0)
        skip_norm("skip_norm", skip, None)
        skip_norm("skip_norm_each", each, bias)

        def conv(label, weight, dims, *operands, **options):
            shown = dict(dtype=F32, dims=dims)
            if contrib:
                weight = np.ascontiguousarray(weight.transpose(last))
                g.show(label, "NhwcConv", x, weight, *operands, **options, **shown, **own)
                return
            y = g.op("Conv", g.op("Transpose", x, perm=first), weight, *operands, **options)
            g.show(label, "Transpose", y, perm=last, **shown)

        conv("conv", kernel, ["n", "h", "w", 6], pads=[1, 1, 1, 1])
        strided = dict(strides=[2, 2], group=2, kernel_shape=[3, 3])
        conv("conv_grouped", grouped, ["n", None, None, 4], floats(np.random.default_rng(1), 4), **strided)
        if contrib:
            g.show("added", "BiasAdd", rows, row, more, dtype=F32, dims=["n", "s", 8], **own)
            g.show("gated", "BiasSplitGelu", rows, row, dtype=F32, dims=["n", "s", 4], **own)
        else:
            sum = g.op("Add", rows, row)
            g.show("added", "Add", sum, more, dtype=F32, dims=["n", "s", 8])
            left, right = g.op("Split", sum, [4, 4], axis=-1, out=2)
            g.show("gated", "Mul", left, g.op("Gelu", right), dtype=F32, dims=["n", "s", 4])
        return g.model()

    def data(n, h, w, s):
        image = lambda: floats(rng, n, h, w, 8)
        return [image(), image(), floats(rng, n, 8), floats(rng, n, s, 8), floats(rng, n, s, 8)]

    return Case(build(True), [data(2, 4, 5, 3), data(1, 6, 3, 2)], reference=build(False))


@case("op_twins_contrib")
def twins_contrib(rng):
    """Operators that ONNX has too, or took up later."""
    g = Graph("twins_contrib", opset=13)
    image, grid = g.input("image", F32, ["n", 2, 5, 6]), g.input("grid", F32, ["n", 3, 4, 2])
    rows, places = g.input("rows", F32, ["k", 4]), g.input("places", I64, ["p", 1])
    matrices = g.input("matrices", F32, ["n", 3, 3])
    own = dict(domain=DOMAIN, dtype=F32)
    for mode, padding in [("bilinear", "zeros"), ("nearest", "border"), ("bicubic", "reflection")]:
        options = dict(mode=mode, padding_mode=padding, align_corners=int(mode == "nearest"))
        g.show(f"sampled_{mode}", "GridSample", image, grid, dims=["n", 2, 3, 4], **options, **own)
    g.show("gathered", "GatherND", rows, places, dims=["p", 4], **own)
    g.show("padded", "Pad", rows, [1, 0, 0, 2], np.float32(0.5), dims=[None, 6], **own)
    g.show("reflected", "Pad", rows, [0, 1, 0, 2], mode="reflect", dims=["k", 7], **own)
    g.show("expanded", "ExpandDims", rows, np.int32(-1), dims=["k", 4, 1], **own)
    count = g.op("Squeeze", g.op("Slice", g.op("Shape", rows), [0], [1]), [0])
    g.show("range", "Range", np.int64(0), count, domain=DOMAIN, dtype=I64, dims=["k"])
    g.show("range_steps", "Range", np.float32(1), np.float32(3), np.float32(0.5), dims=[4], **own)
    column = g.op("Slice", rows, [0], [1], [1])
    column = g.op("Reshape", column, [-1])
    outputs = ["unique", "unique_places", "unique_counts"]
    g.op("Unique", g.op("Round", column), out=outputs, domain=DOMAIN)
    for name, dtype, size in zip(outputs, [F32, I64, I64], [None, "k", None]):
        g.output(name, dtype, [size])
    g.show("inverse", "Inverse", matrices, dims=["n", 3, 3], **own)

    def data(n, k, p):
        places = rng.integers(-k, k, (p, 1))
        grid = rng.uniform(-1.2, 1.2, (n, 3, 4, 2)).astype(np.float32)
        # Rows must change places.
        matrices = floats(rng, n, 3, 3) + 3 * np.eye(3, dtype=np.float32)[[2, 0, 1]]
        return [floats(rng, n, 2, 5, 6), grid, floats(rng, k, 4), places, matrices]

    return Case(g.model(), [data(2, 5, 3), data(1, 3, 1)])


@case("op_recurrence_contrib")
def recurrence_contrib(rng):
    """What ONNX Runtime writes for hybrids of attention and recurrence: ONNX's operators with more to say, and gates."""
    g = Graph("recurrence_contrib", opset=21)
    x, past = g.input("x", F32, ["n", 3, "t"]), g.input("past", F32, ["n", 3, 6])
    q, k, v = g.input("q", F32, ["n", "t", 24]), g.input("k", F32, ["n", "t", 12]), g.input("v", F32, ["n", "t", 10])
    state, decay, beta = g.input("state", F32, ["n", 2, 6, 5]), g.input("decay", F32, ["n", "t", 2]), g.input("beta", F32, ["n", "t", 2])
    gate, one = g.input("gate", F32, ["n", "t", 12]), g.input("one", F32, ["n", "t", 1])
    own = dict(domain=DOMAIN)
    weight, bias = floats(rng, 3, 1, 4), floats(rng, 3)
    for label, inputs, size, options in [
        ("plain", (weight,), 3, {}),
        ("dilated", (weight, bias, past), 6, dict(activation="silu", dilation=2)),
    ]:
        y, after = g.op("CausalConvWithState", x, *inputs, out=2, **options, **own)
        g.show(label, "Identity", y, dtype=F32, dims=["n", 3, "t"])
        g.show(f"{label}_state", "Identity", after, dtype=F32, dims=["n", 3, size])
    heads = dict(q_num_heads=4, kv_num_heads=2, update_rule="gated_delta")
    y, after = g.op("LinearAttention", q, k, v, state, decay, beta, out=2, **heads, **own)
    g.show("attention", "Identity", y, dtype=F32, dims=["n", "t", 20])
    g.show("attention_state", "Identity", after, dtype=F32, dims=["n", 2, 6, 5])
    shown = dict(dtype=F32, dims=["n", "t", 12])
    g.show("norm", "GatedRMSNorm", k, 1 + floats(rng, 12) / 4, gate, epsilon=1e-6, **shown, **own)
    g.show("norm_heads", "GatedRMSNorm", k, 1 + floats(rng, 4) / 4, gate, activation="sigmoid", **shown, **own)
    g.show("added", "GatedAdd", k, gate, one, **shown, **own)

    def data(n, t):
        k = floats(rng, n, t, 2, 6)
        k = (k / np.linalg.norm(k, axis=-1, keepdims=True)).reshape(n, t, 12)
        decay, beta = -rng.uniform(0, 1, (n, t, 2)).astype(np.float32), rng.uniform(0, 1, (n, t, 2)).astype(np.float32)
        return [
            *(floats(rng, n, 3, t), floats(rng, n, 3, 6), floats(rng, n, t, 24), k, floats(rng, n, t, 10)),
            *(floats(rng, n, 2, 6, 5), decay, beta, floats(rng, n, t, 12), floats(rng, n, t, 1)),
        ]

    return Case(g.model(), [data(2, 5), data(1, 1)])


@case("op_matmul_bnb4")
def matmul_bnb4(rng):
    """Both tables of codes; an odd number of weights; a last block that is not whole."""
    g = Graph("matmul_bnb4", opset=21)
    x, odd = g.input("x", F32, ["n", 40]), g.input("odd", F32, ["n", "s", 7])
    own = dict(domain=DOMAIN, dtype=F32)

    def parts(layer, columns, depth, block):
        count = columns * depth
        codes = g.const(rng.integers(0, 256, (count + 1) // 2, np.uint8), f"{layer}.weight_Bnb4")
        scales = g.const(rng.uniform(0.1, 1, -(-count // block)).astype(np.float32), f"{layer}.weight_absmax")
        return codes, scales, dict(K=depth, N=columns, block_size=block)

    for kind, name in enumerate(["fp4", "nf4"]):
        codes, scales, options = parts(f"layer{kind}", 6, 40, 16)
        g.show(name, "MatMulBnb4", x, codes, scales, quant_type=kind, dims=["n", 6], **options, **own)
    codes, scales, options = parts("last", 5, 7, 32)
    g.show("not_whole", "MatMulBnb4", odd, codes, scales, quant_type=1, dims=["n", "s", 5], **options, **own)
    return Case(g.model(), [[floats(rng, n, 40), floats(rng, n, s, 7)] for n, s in ((3, 2), (1, 4))])
