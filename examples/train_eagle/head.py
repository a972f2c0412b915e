"""The EAGLE-3 head (arXiv:2503.01840) and its target, as torch modules for training.

Entry j of a text stands for its token x_j and the target's feature of the position before it; from there the head guesses
x_{j+1}, as the target will at position j.

    g_j = fc(hidden states entering three of the target's layers, at position j)
    e_j = input_norm(embed(x_j)),   n_j = hidden_norm(g_{j-1})
    u_j = g_{j-1} + attention(concat(e_j, n_j)),   h_j = u_j + mlp(post_norm(u_j))
    draft logits of x_{j+1} = lm_head(norm(h_j)), over the most frequent tokens

Guessing further, h_j takes the place of g_j. Training does the same (the paper's training-time test): pass i feeds the head
with what pass i - 1 made, so that it learns to live with its own mistakes.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from sapwood.kernels.decoder import Decoder, Layer, Rope, Weight
from sapwood.kernels.reference import load, rms_norm


def default_captures(num_layers: int) -> tuple[int, int, int]:
    """The layers whose inputs are features, by the public convention."""
    return 2, num_layers // 2, num_layers - 3


def rotation(rope: Rope, length: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines [length, dim / 2] for positions 0, 1, ..."""
    angles = torch.arange(length)[:, None].float() * torch.from_numpy(rope.inv_freq)
    return angles.cos() * rope.magnitude, angles.sin() * rope.magnitude


def rotate(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
    """Rotary embedding of x [batch, heads, length, dim]."""
    if interleaved:
        first, second = x[..., 0::2], x[..., 1::2]
        return torch.stack((first * cos - second * sin, second * cos + first * sin), dim=-1).flatten(-2)
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


class Target:
    """The frozen model in bfloat16: features and final hidden states of whole texts. Full attention only."""

    def __init__(self, decoder: Decoder, captures: tuple[int, ...]) -> None:
        assert not any(layer.window for layer in decoder.layers), "windows aren't supported here"
        self.decoder, self.captures = decoder, captures
        self.embed = self._load(decoder.embed)
        self.head = self.embed if decoder.head is decoder.embed else self._load(decoder.head)
        self.final_norm = load(decoder.final_norm)
        self._layers = [
            {name: self._load(getattr(layer, name)) for name in ("wq", "wk", "wv", "wo", "gate", "up", "down")}
            for layer in decoder.layers
        ]
        self._norms = [(load(layer.attn_norm), load(layer.ffn_norm)) for layer in decoder.layers]

    @staticmethod
    def _load(weight: Weight) -> Tensor:
        return load(weight).bfloat16()

    @torch.no_grad()
    def run(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """ids [batch, length] -> features [batch, length, captures * hidden], final hidden states [batch, length, hidden]."""
        eps = self.decoder.norm_eps
        x = self.embed[ids].float() * self.decoder.embed_scale
        captured = []
        for index, (layer, spec) in enumerate(zip(self._layers, self.decoder.layers, strict=True)):
            if index in self.captures:
                captured.append(x.bfloat16())
            attn_norm, ffn_norm = self._norms[index]
            x = x + self._attention(layer, spec, rms_norm(x, attn_norm, eps).bfloat16())
            h = rms_norm(x, ffn_norm, eps).bfloat16()
            gate = functional.linear(h, layer["gate"])
            act = (
                functional.silu(gate)
                if self.decoder.activation == "silu"
                else functional.gelu(gate, approximate="tanh")
            )
            x = x + functional.linear(act * functional.linear(h, layer["up"]), layer["down"])
        return torch.cat(captured, dim=-1), rms_norm(x, self.final_norm, eps).bfloat16()

    def _attention(self, layer: dict[str, Tensor], spec: Layer, h: Tensor) -> Tensor:
        dim = self.decoder.head_dim
        cos, sin = rotation(spec.rope, h.shape[1])
        q, k, v = (
            functional.linear(h, layer[name]).unflatten(-1, (-1, dim)).transpose(1, 2) for name in ("wq", "wk", "wv")
        )
        q, k = (rotate(t.float(), cos, sin, spec.rope.interleaved).bfloat16() for t in (q, k))
        mixed = functional.scaled_dot_product_attention(
            q, k, v, is_causal=True, scale=self.decoder.attn_scale, enable_gqa=True
        )
        return functional.linear(mixed.transpose(1, 2).flatten(2), layer["wo"])


class Norm(nn.Module):
    """Root mean square norm."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(x.float(), self.weight, self.eps)


class Head(nn.Module):
    """The trained part. `vocab`: the target's ids that it can guess, ascending."""

    def __init__(self, decoder: Decoder, num_features: int, vocab: Tensor, ffn: int) -> None:
        super().__init__()
        hidden, dim, eps = decoder.hidden_size, decoder.head_dim, decoder.norm_eps
        self.heads, self.kv_heads, self.dim = decoder.num_heads, decoder.num_kv_heads, dim
        self.rope = decoder.layers[-1].rope
        self.fc = nn.Linear(num_features * hidden, hidden, bias=False)
        self.input_norm, self.hidden_norm, self.post_norm, self.norm = (Norm(hidden, eps) for _ in range(4))
        self.q = nn.Linear(2 * hidden, self.heads * dim, bias=False)
        self.k = nn.Linear(2 * hidden, self.kv_heads * dim, bias=False)
        self.v = nn.Linear(2 * hidden, self.kv_heads * dim, bias=False)
        self.o = nn.Linear(self.heads * dim, hidden, bias=False)
        self.gate = nn.Linear(hidden, ffn, bias=False)
        self.up = nn.Linear(hidden, ffn, bias=False)
        self.down = nn.Linear(ffn, hidden, bias=False)
        self.lm_head = nn.Linear(hidden, len(vocab), bias=False)
        self.register_buffer("vocab", vocab)

    def start_from(self, decoder: Decoder) -> None:
        """Begin with the target's last layer, seeing the last feature: nearer to the goal than random numbers."""
        layer, hidden = decoder.layers[-1], decoder.hidden_size
        with torch.no_grad():
            self.fc.weight.mul_(0.1)[:, -hidden:] += torch.eye(hidden)
            for linear, weight in ((self.q, layer.wq), (self.k, layer.wk), (self.v, layer.wv)):
                linear.weight.mul_(0.1)[:, hidden:] += load(weight)
            self.o.weight.copy_(load(layer.wo))
            for linear, weight in ((self.gate, layer.gate), (self.up, layer.up), (self.down, layer.down)):
                full = load(weight)
                linear.weight.copy_(full[: linear.out_features, : linear.in_features])
            self.hidden_norm.weight.copy_(load(layer.attn_norm))
            self.post_norm.weight.copy_(load(layer.ffn_norm))
            self.norm.weight.copy_(load(decoder.final_norm))
            self.lm_head.weight.copy_(load(decoder.head)[self.vocab])

    def project(self, features: Tensor) -> Tensor:
        """features [batch, length, captures * hidden] -> g [batch, length, hidden]."""
        return self.fc(features)

    def passes(self, embedded: Tensor, g: Tensor, count: int) -> list[Tensor]:
        """What `count` passes make of each entry, [batch, length - 1, hidden] before the last norm; row j - 1 is entry j's.

        embedded [batch, length, hidden]: the target's embeddings of the text. In pass i entry j sees true features up to
        entry j - i and its own guesses after that.
        """
        e = self.input_norm(embedded[:, 1:])
        state = g[:, :-1].float()
        length = state.shape[1]
        cos, sin = rotation(self.rope, length + 1)
        cos, sin = cos[1:], sin[1:]
        shift = torch.arange(length)[:, None] - torch.arange(length)[None, :]
        keys: list[Tensor] = []
        values: list[Tensor] = []
        states = []
        for number in range(count):
            x = torch.cat((e, self.hidden_norm(state)), dim=-1)
            q, k, v = (f(x).unflatten(-1, (-1, self.dim)).transpose(1, 2) for f in (self.q, self.k, self.v))
            q, k = (rotate(t.float(), cos, sin, self.rope.interleaved).to(v.dtype) for t in (q, k))
            k, v = (t.repeat_interleave(self.heads // self.kv_heads, dim=1) for t in (k, v))
            keys.append(k)
            values.append(v)
            mixed = self._attend(q, keys, values, shift >= number)
            state = state + self.o(mixed.transpose(1, 2).flatten(2)).float()
            h = self.post_norm(state)
            state = state + self.down(functional.silu(self.gate(h)) * self.up(h)).float()
            states.append(state)
            state = functional.pad(state[:, :-1], (0, 0, 1, 0))  # entry j goes on from what entry j - 1 made
        return states

    def _attend(self, q: Tensor, keys: list[Tensor], values: list[Tensor], visible: Tensor) -> Tensor:
        """Over the first pass's entries where visible, and one entry of each later pass: those made on the way here."""
        scale, last = self.dim**-0.5, len(keys) - 1
        scores = (q @ keys[0].transpose(-1, -2)).float().mul(scale).masked_fill(~visible, -torch.inf)
        own = [
            (q * _later(keys[i], last - i)).sum(-1, dtype=torch.float32, keepdim=True) * scale
            for i in range(1, last + 1)
        ]
        weights = torch.cat([scores, *own], dim=-1).softmax(-1).to(q.dtype)
        length = scores.shape[-1]
        mixed = weights[..., :length] @ values[0]
        for i in range(1, last + 1):
            mixed = mixed + weights[..., length + i - 1, None] * _later(values[i], last - i)
        return mixed


def _later(x: Tensor, steps: int) -> Tensor:
    """x [batch, heads, length, dim] with entry j - steps at j."""
    return x if not steps else functional.pad(x[:, :, :-steps], (0, 0, steps, 0))
