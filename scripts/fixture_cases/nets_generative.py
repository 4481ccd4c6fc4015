"""Decoders as ONNX Runtime's tools for generative models write them: operators of its own domain, weights of a few bits."""

from __future__ import annotations

import numpy as np

from fixture_cases.op_contrib import DOMAIN, packed
from fixture_lib.graph import F32, I32, I64, Graph
from fixture_lib.registry import Case, case

BLOCK = 32


def quantized(weight, bits):
    """Blocks of each column's numbers as integers from 0 on: bytes, scales, and zero points in bytes."""
    blocks = weight.reshape(len(weight), -1, BLOCK)
    low, high = np.minimum(blocks.min(-1), 0), np.maximum(blocks.max(-1), 0)
    scales = ((high - low) / ((1 << bits) - 1)).astype(np.float32)
    zeros = np.round(-low / scales)
    integers = np.clip(np.round(blocks / scales[..., None]) + zeros[..., None], 0, (1 << bits) - 1)
    return packed(integers.astype(np.uint8), bits), scales, packed(zeros.astype(np.uint8), bits)


class Decoder:
    """Nodes named by the modules that they come from, and values by their nodes."""

    def __init__(self, rng, width):
        self.rng, self.width = rng, width
        self.g = Graph("main_graph", opset=21)

    def node(self, name, op_type, *operands, outputs=1, **attributes):
        names = [f"{name}/output_{n}" for n in range(outputs)]
        self.g.op(op_type, *operands, out=names, name=name, **attributes)
        return names[0] if outputs == 1 else names

    def linear(self, name, x, columns, depth, bits=4):
        """Without a bias, as the quantizer leaves it."""
        weight = f"{name.strip('/').replace('/', '.')}.MatMul.weight"
        numbers = self.rng.standard_normal((columns, depth)).astype(np.float32) / np.sqrt(depth)
        parts = zip(quantized(numbers, bits), [f"_Q{bits}", "_scales", "_zero_points"])
        operands = [self.g.const(part, weight + suffix) for part, suffix in parts]
        options = dict(K=depth, N=columns, bits=bits, block_size=BLOCK)
        return self.node(f"{name}/MatMul_Q{bits}", "MatMulNBits", x, *operands, domain=DOMAIN, **options)

    def norm(self, name, x, skip=None, sum=True):
        scale = 1 + self.rng.standard_normal(self.width).astype(np.float32) / 8
        scale = self.g.const(scale, f"{name.strip('/').replace('/', '.')}.weight")
        if skip is None:
            options = dict(axis=-1, epsilon=1e-5, stash_type=1)
            return self.node(f"{name}/LayerNorm", "SimplifiedLayerNormalization", x, scale, **options), x
        name = f"{name}/SkipLayerNorm"
        names = [f"{name}/output_0", "", "", f"{name}/output_3"] if sum else [f"{name}/output_0"]
        options = dict(domain=DOMAIN, epsilon=1e-5)
        self.g.op("SkipSimplifiedLayerNormalization", x, skip, scale, out=names, name=name, **options)
        return names[0], names[-1]


@case("net_llama_four_bits")
def llama_four_bits(rng):
    width, heads, groups, size, hidden, vocab, layers = 160, 10, 2, 16, 256, 128, 2
    d = Decoder(rng, width)
    g = d.g
    ids = g.input("input_ids", I64, ["batch_size", "sequence_length"])
    mask = g.input("attention_mask", I64, ["batch_size", "total_sequence_length"])
    past = ["batch_size", groups, "past_sequence_length", size]
    parts = [(layer, part) for layer in range(layers) for part in ("key", "value")]
    for layer, part in parts:
        g.input(f"past_key_values.{layer}.{part}", F32, past)
    base = "/model/attn_mask_reformat/attn_mask_subgraph"
    one = g.const(np.array([1]), "/model/constants/INT64/[1]")
    count = d.node(f"{base}/ReduceSum", "ReduceSum", mask, one)
    before = d.node(f"{base}/Sub", "Sub", count, one)
    lengths = d.node(f"{base}/Sub/Cast", "Cast", before, to=I32)
    shape = d.node(f"{base}/Shape", "Shape", mask)
    total = d.node(f"{base}/Gather", "Gather", shape, g.const(np.array(1), "/model/constants/INT64/1"), axis=0)
    total = d.node(f"{base}/Gather/Cast", "Cast", total, to=I32)
    angles = np.arange(64)[:, None] / 10_000 ** (np.arange(0, size, 2) / size)
    cos, sin = g.const(np.cos(angles).astype(np.float32), "cos_cache"), g.const(np.sin(angles).astype(np.float32), "sin_cache")
    table = rng.standard_normal((vocab, width)).astype(np.float32)
    x = d.node("/model/embed_tokens/Gather", "Gather", g.const(table, "model.embed_tokens.weight"), ids)
    y = None
    for layer in range(layers):
        name = f"/model/layers.{layer}"
        inner, x = d.norm(f"{name}/input_layernorm", x, y)
        projected = d.linear(f"{name}/attn/qkv_proj", inner, (heads + 2 * groups) * size, width)
        attention = f"{name}/attn/GroupQueryAttention"
        outputs = [f"{attention}/output_0", f"present.{layer}.key", f"present.{layer}.value"]
        operands = [projected, "", "", f"past_key_values.{layer}.key", f"past_key_values.{layer}.value"]
        options = dict(num_heads=heads, kv_num_heads=groups, scale=size**-0.5, do_rotary=1, rotary_interleaved=0)
        operands += [lengths, total, cos, sin]
        options |= dict(local_window_size=-1, softcap=0.0)
        g.op("GroupQueryAttention", *operands, out=outputs, name=attention, domain=DOMAIN, **options)
        y = d.linear(f"{name}/attn/o_proj", outputs[0], width, heads * size)
        inner, x = d.norm(f"{name}/post_attention_layernorm", x, y)
        gate, up = (d.linear(f"{name}/mlp/{part}_proj", inner, hidden, width) for part in ("gate", "up"))
        sigmoid = d.node(f"{name}/mlp/act_fn/Sigmoid", "Sigmoid", gate)
        gate = d.node(f"{name}/mlp/act_fn/Mul", "Mul", gate, sigmoid)
        inner = d.node(f"{name}/mlp/Mul", "Mul", gate, up)
        y = d.linear(f"{name}/mlp/down_proj", inner, width, hidden)
    inner, _ = d.norm(f"/model/layers.{layers}/final_norm_layernorm", x, y, sum=False)
    logits = d.linear("/lm_head", inner, vocab, width, bits=8)
    g.nodes[-1].output[0] = "logits"
    g.output("logits", F32, ["batch_size", "sequence_length", vocab])
    present = ["batch_size", groups, "total_sequence_length", size]
    for layer, part in parts:
        g.output(f"present.{layer}.{part}", F32, present)
    model = g.model()
    model.producer_name = "onnxruntime-genai"

    def data(n, s, past):
        state = [rng.standard_normal((n, groups, past, size)).astype(np.float32) for _ in parts]
        return [rng.integers(0, vocab, (n, s)), np.ones((n, past + s), np.int64), *state]

    # A prompt, a step of two sequences, and more tokens of one.
    # ONNX has no `SimplifiedLayerNormalization`, which ONNX Runtime writes into its domain nevertheless.
    return Case(model, [data(1, 5, 0), data(2, 1, 6), data(1, 3, 4)], checked=False)
