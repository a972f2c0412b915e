"""What an EAGLE head is, to the kernels: one layer that guesses how a target's text goes on, described as data.

Entry j of a text stands for its token x_j and the target's feature g of the position before; from there the head guesses
x_{j+1}. Guessing further, its own h takes the place of g.

    version 3   g = features @ fc.T                                      of the layers in `captures` (arXiv 2503.01840)
                r = g;  a = [rms_norm(embed, input_norm), rms_norm(g, hidden_norm)]
    version 1   g = the target's hidden state after its final norm       (arXiv 2401.15077, and 2406.16858)
                r = a = [embed, g] @ fc.T + fc_bias
    both        u = r + attention(rope(a @ wq.T), ...) @ wo.T
                h = u + (silu(n @ gate.T) * (n @ up.T)) @ down.T         with n = rms_norm(u, post_norm)
                guess = vocab[argmax([rms_norm](h, final_norm) @ head.T)]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sapwood.kernels.decoder import Rope, Weight


@dataclass(frozen=True, slots=True, eq=False)
class EagleHead:
    version: Literal[1, 3]
    captures: tuple[
        int, ...
    ]  # layers of the target whose inputs are features; its number of layers: what leaves the last
    num_heads: int
    num_kv_heads: int
    head_dim: int
    norm_eps: float
    fc: Weight  # version 3: [hidden, len(captures) * hidden]; version 1: [hidden, 2 * hidden]
    wq: Weight  # these three [.., 2 * hidden] in version 3, [.., hidden] in version 1
    wk: Weight
    wv: Weight
    wo: Weight
    gate: Weight
    up: Weight
    down: Weight
    head: Weight  # [len(vocab), hidden]
    post_norm: Weight
    rope: Rope
    vocab: NDArray[np.int32]  # the target's ids of the rows of `head`
    input_norm: Weight | None = None  # version 3
    hidden_norm: Weight | None = None  # version 3
    final_norm: Weight | None = None  # version 3
    target_norm: Weight | None = None  # version 1: the target's final norm
    fc_bias: Weight | None = None  # version 1
    norm_before_residual: bool = False  # version 3: r is the normed g
