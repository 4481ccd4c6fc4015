"""Sequence architectures, shrunk: encoders, decoders, both together, and recurrent taggers."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F

from fixture_lib.registry import case
from fixture_lib.torch_case import torch_case

BATCH = torch.export.Dim("batch", min=1, max=64)
SEQ = torch.export.Dim("seq", min=2, max=32)
VOCAB = 50


def tokens(*shape, seed=7, vocab=VOCAB):
    return torch.randint(0, vocab, shape, generator=torch.Generator().manual_seed(seed))


def floats(*shape, seed=7):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def padding_mask(*lengths):
    return (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()


class BertSelfAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, dim)

    def split(self, x):
        return x.view(x.shape[0], -1, self.heads, x.shape[2] // self.heads).transpose(1, 2)

    def forward(self, x, mask):
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]) + mask
        return (F.softmax(scores, -1) @ v).transpose(1, 2).reshape(x.shape)


class BertLayer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.attention = BertSelfAttention(dim, heads)
        self.output, self.norm1 = nn.Linear(dim, dim), nn.LayerNorm(dim, eps=1e-12)
        self.intermediate, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.norm2 = nn.LayerNorm(dim, eps=1e-12)

    def forward(self, x, mask):
        x = self.norm1(x + self.output(self.attention(x, mask)))
        return self.norm2(x + self.down(F.gelu(self.intermediate(x))))


class Bert(nn.Module):
    def __init__(self, dim=32, heads=4, layers=2):
        super().__init__()
        self.word, self.position = nn.Embedding(VOCAB, dim), nn.Embedding(32, dim)
        self.norm = nn.LayerNorm(dim, eps=1e-12)
        self.layer = nn.ModuleList(BertLayer(dim, heads) for _ in range(layers))
        self.pooler = nn.Linear(dim, dim)

    def forward(self, input_ids, attention_mask):
        positions = torch.arange(input_ids.shape[1])
        x = self.norm(self.word(input_ids) + self.position(positions))
        mask = (1.0 - attention_mask[:, None, None, :].float()) * torch.finfo(torch.float32).min
        for layer in self.layer:
            x = layer(x, mask)
        return x, torch.tanh(self.pooler(x[:, 0]))


@case("net_bert_encoder")
def bert_encoder(_):
    return torch_case(
        Bert(),
        [(tokens(2, 7), padding_mask(7, 4)), (tokens(1, 5), padding_mask(5))],
        dynamic_shapes={"input_ids": {0: BATCH, 1: SEQ}, "attention_mask": {0: BATCH, 1: SEQ}},
    )


class GptBlock(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.c_attn, self.c_proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.c_fc, self.c_down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = (t.view(b, n, self.heads, -1).transpose(1, 2) for t in self.c_attn(self.ln_1(x)).split(d, 2))
        x = x + self.c_proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, n, d))
        return x + self.c_down(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    """A decoder with learned positions; the output layer's weight is the embedding's."""

    def __init__(self, dim=32, heads=4, layers=2):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCAB, dim), nn.Embedding(32, dim)
        self.h = nn.ModuleList(GptBlock(dim, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(dim)
        self.lm_head = nn.Linear(dim, VOCAB, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, input_ids):
        x = self.wte(input_ids) + self.wpe(torch.arange(input_ids.shape[1]))
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


@case("net_gpt_decoder")
def gpt_decoder(_):
    return torch_case(Gpt(), [(tokens(1, 6),), (tokens(1, 11),)], dynamic_shapes={"input_ids": {1: SEQ}})


@case("net_gpt_decoder_unfolded")
def gpt_decoder_unfolded(_):
    """`split` stays a sequence of tensors here."""
    return torch_case(
        Gpt(), [(tokens(2, 6),), (tokens(3, 9),)], dynamic_shapes={"input_ids": {0: BATCH, 1: SEQ}}, optimize=False
    )


class RmsNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


class LlamaLayer(nn.Module):
    """Rotary positions, grouped-query attention, a gated feed-forward."""

    def __init__(self, dim, heads, kv_heads):
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, dim // heads
        self.input_norm, self.post_norm = RmsNorm(dim), RmsNorm(dim)
        self.q_proj, self.o_proj = nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.k_proj, self.v_proj = (nn.Linear(dim, kv_heads * self.head_dim, bias=False) for _ in range(2))
        self.gate, self.up, self.down = (
            nn.Linear(dim, 48, bias=False),
            nn.Linear(dim, 48, bias=False),
            nn.Linear(48, dim, bias=False),
        )

    def forward(self, x, cos, sin):
        b, n, d = x.shape
        h = self.input_norm(x)
        q = rotate(self.q_proj(h).view(b, n, self.heads, self.head_dim).transpose(1, 2), cos, sin)
        k = rotate(self.k_proj(h).view(b, n, self.kv_heads, self.head_dim).transpose(1, 2), cos, sin)
        v = self.v_proj(h).view(b, n, self.kv_heads, self.head_dim).transpose(1, 2)
        k, v = (t.repeat_interleave(self.heads // self.kv_heads, 1) for t in (k, v))
        x = x + self.o_proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, n, d))
        h = self.post_norm(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    def __init__(self, dim=32, heads=4, kv_heads=2, layers=2):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, dim)
        self.layers = nn.ModuleList(LlamaLayer(dim, heads, kv_heads) for _ in range(layers))
        self.norm, self.head = RmsNorm(dim), nn.Linear(dim, VOCAB, bias=False)
        half = dim // heads // 2
        self.register_buffer("inverse_frequency", 1.0 / 100.0 ** (torch.arange(half) / half), persistent=False)

    def forward(self, input_ids):
        angles = torch.arange(input_ids.shape[1]).float()[:, None] * self.inverse_frequency
        angles = torch.cat([angles, angles], -1)
        cos, sin = angles.cos(), angles.sin()
        x = self.embed(input_ids)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.head(self.norm(x))


@case("net_llama_decoder")
def llama_decoder(_):
    return torch_case(Llama(), [(tokens(2, 6),), (tokens(1, 9),)], dynamic_shapes={"input_ids": {0: BATCH, 1: SEQ}})


class CachedLlama(Llama):
    """A step of generation: keys and values of earlier tokens are inputs of a fixed length, and come back with those of the new ones."""

    def forward(self, input_ids, positions, keys, values):
        angles = positions.float()[:, None] * self.inverse_frequency
        angles = torch.cat([angles, angles], -1)
        cos, sin = angles.cos(), angles.sin()
        mask = torch.arange(keys[0].shape[2]) <= positions[:, None]
        x, all_keys, all_values = self.embed(input_ids), [], []
        for n, layer in enumerate(self.layers):
            b, count, d = x.shape
            h = layer.input_norm(x)
            q, k, v = (p(h).view(b, count, -1, layer.head_dim).transpose(1, 2) for p in (layer.q_proj, layer.k_proj, layer.v_proj))
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
            if n == 0:
                k, v = keys[n].index_copy(2, positions, k), values[n].index_copy(2, positions, v)
            else:
                # Assignments, which the exporter turns into new tensors.
                old_keys, old_values = keys[n].clone(), values[n].clone()
                old_keys[:, :, positions], old_values[:, :, positions] = k, v
                k, v = old_keys, old_values
            all_keys.append(k)
            all_values.append(v)
            x = x + layer.o_proj(
                F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True).transpose(1, 2).reshape(b, count, d)
            )
            h = layer.post_norm(x)
            x = x + layer.down(F.silu(layer.gate(h)) * layer.up(h))
        return self.head(self.norm(x)), *all_keys, *all_values


@case("net_cached_decoder")
def cached_decoder(_):
    def call(seed, *positions):
        caches = [floats(2, 2, 9, 8, seed=seed + n) for n in range(4)]
        return tokens(2, len(positions), seed=seed), torch.tensor(positions), caches[:2], caches[2:]

    return torch_case(CachedLlama(), [call(1, 4, 5), call(2, 8, 0)])


class Translator(nn.Module):
    """PyTorch's own encoder-decoder, pre-norm, with a causal target mask."""

    def __init__(self, dim=24):
        super().__init__()
        self.source, self.target = nn.Embedding(VOCAB, dim), nn.Embedding(VOCAB, dim)
        self.transformer = nn.Transformer(dim, 4, 2, 2, 48, dropout=0.0, batch_first=True, norm_first=True)
        self.head = nn.Linear(dim, VOCAB)

    def forward(self, source, target):
        causal = torch.full((target.shape[1], target.shape[1]), float("-inf")).triu(1)
        return self.head(
            self.transformer(self.source(source), self.target(target), tgt_mask=causal, tgt_is_causal=True)
        )


@case("net_encoder_decoder")
def encoder_decoder(_):
    target = torch.export.Dim("target", min=2, max=32)
    return torch_case(
        Translator(),
        [(tokens(2, 7), tokens(2, 5, seed=8)), (tokens(2, 4), tokens(2, 6, seed=8))],
        dynamic_shapes={"source": {1: SEQ}, "target": {1: target}},
    )


class LstmTagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, 12)
        self.lstm = nn.LSTM(12, 16, num_layers=2, bidirectional=True, batch_first=True)
        self.out = nn.Linear(32, 5)

    def forward(self, input_ids):
        return self.out(self.lstm(self.emb(input_ids))[0])


@case("net_lstm_tagger")
def lstm_tagger(_):
    return torch_case(LstmTagger(), [(tokens(2, 9),)])


class RecurrentStates(nn.Module):
    """GRU and RNN whose states go in and come out, sequence first."""

    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(6, 8, num_layers=2)
        self.rnn = nn.RNN(8, 8, nonlinearity="relu", bidirectional=True)
        self.cell = nn.LSTM(16, 4, bias=False)

    def forward(self, x, gru_state, lstm_h, lstm_c):
        x, gru_state = self.gru(x, gru_state)
        x, _ = self.rnn(x)
        y, (lstm_h, lstm_c) = self.cell(x, (lstm_h, lstm_c))
        return y, gru_state, lstm_h, lstm_c


@case("net_recurrent_states")
def recurrent_states(_):
    return torch_case(
        RecurrentStates(),
        [(floats(7, 3, 6), floats(2, 3, 8, seed=1), floats(1, 3, 4, seed=2), floats(1, 3, 4, seed=3))],
    )


class Attentions(nn.Module):
    """Every way PyTorch users spell attention: functional with masks of both kinds, causal, scaled, and the module."""

    def __init__(self):
        super().__init__()
        self.mha = nn.MultiheadAttention(16, 4, batch_first=True)

    def forward(self, q, k, v, keep, bias):
        plain = F.scaled_dot_product_attention(q, k, v)
        causal = F.scaled_dot_product_attention(q, q, q, is_causal=True)
        masked = F.scaled_dot_product_attention(q, k, v, attn_mask=keep)
        biased = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=0.3)
        flat = q.transpose(1, 2).flatten(2)
        module, weights = self.mha(flat, flat, flat, need_weights=True)
        spelled = (
            torch.baddbmm(bias[0, 0].expand(2, 5, 6), q[:, 0], k[:, 0].transpose(1, 2), alpha=0.5).softmax(-1) @ v[:, 0]
        )
        return plain, causal, masked, biased, module, weights, spelled


@case("net_attention")
def attention(_):
    keep = floats(1, 1, 5, 6, seed=4) > -0.5
    keep[..., 0] = True
    args = (
        floats(2, 4, 5, 4),
        floats(2, 4, 6, 4, seed=8),
        floats(2, 4, 6, 4, seed=9),
        keep,
        floats(1, 1, 5, 6, seed=5),
    )
    return torch_case(Attentions(), [args])


class WindowBlock(nn.Module):
    """Shifted-window attention with a table of relative positions, as in Swin."""

    def __init__(self, dim=16, window=4, heads=2):
        super().__init__()
        self.window, self.heads = window, heads
        self.norm, self.qkv, self.proj = nn.LayerNorm(dim), nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.table = nn.Parameter(torch.zeros((2 * window - 1) ** 2, heads))
        grid = torch.stack(torch.meshgrid(torch.arange(window), torch.arange(window), indexing="ij")).flatten(1)
        relative = grid[:, :, None] - grid[:, None, :] + window - 1
        self.register_buffer("index", relative[0] * (2 * window - 1) + relative[1])

    def forward(self, x):
        b, h, w, c = x.shape
        s, n = self.window, self.window**2
        y = torch.roll(self.norm(x), (-s // 2, -s // 2), (1, 2))
        y = y.view(b, h // s, s, w // s, s, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, n, c)
        q, k, v = self.qkv(y).reshape(-1, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        bias = self.table[self.index.view(-1)].view(n, n, self.heads).permute(2, 0, 1)
        y = ((q * (c // self.heads) ** -0.5) @ k.transpose(-2, -1) + bias).softmax(-1) @ v
        y = self.proj(y.transpose(1, 2).reshape(-1, n, c))
        y = y.view(b, h // s, w // s, s, s, c).permute(0, 1, 3, 2, 4, 5).reshape(b, h, w, c)
        return x + torch.roll(y, (s // 2, s // 2), (1, 2))


@case("net_window_attention")
def window_attention(_):
    return torch_case(WindowBlock(), [(floats(1, 8, 8, 16),)])


class ScalarInputs(nn.Module):
    """Rank-0 inputs and outputs, a vector, and several results."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 4)

    def forward(self, x, temperature, offset):
        logits = self.fc(x) / temperature
        best = logits.max(-1)
        return logits.softmax(-1), best.values, best.indices + offset, logits.sum(), logits.norm()


@case("net_scalar_inputs")
def scalar_inputs(_):
    return torch_case(
        ScalarInputs(),
        [(floats(3, 6), torch.tensor(0.7), torch.tensor(10)), (floats(5, 6), torch.tensor(2.0), torch.tensor(-1))],
        dynamic_shapes={"x": {0: BATCH}, "temperature": None, "offset": None},
    )


class SharedLayer(nn.Module):
    """One layer applied four times, and a head that shares the embedding's table."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, 32)
        self.layer = BertLayer(32, 4)
        self.head = nn.Linear(32, VOCAB, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens, mask):
        x = self.embedding(tokens)
        mask = (1.0 - mask[:, None, None, :].float()) * -10000.0
        for _ in range(4):
            x = self.layer(x, mask)
        return self.head(x)


SHARED_CALLS = [(tokens(2, 7), padding_mask(7, 4))]


@case("net_shared_layer")
def shared_layer(_):
    return torch_case(SharedLayer(), SHARED_CALLS)


@case("net_shared_layer_torchscript")
def shared_layer_torchscript(_):
    return torch_case(SharedLayer(), SHARED_CALLS, torchscript=True)
