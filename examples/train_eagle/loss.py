"""Cross entropy between the target's distribution and the head's, computed a few rows at a time."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

ROWS = 256  # with their [rows, draft vocabulary] logits at once


class _SoftCrossEntropy(torch.autograd.Function):
    """Makes the gradients while it makes the loss, so that no logits are kept."""

    @staticmethod
    def forward(
        ctx: Any, states: Tensor, weight: Tensor, target_states: Tensor, target_weight: Tensor, scales: Tensor
    ) -> Tensor:
        low, count = weight.bfloat16(), max(states.shape[1], 1)
        d_states = torch.empty(states.shape, dtype=torch.bfloat16)
        d_weight = torch.zeros(weight.shape, dtype=torch.float32)
        losses = torch.zeros(len(states))
        for start in range(0, states.shape[1], ROWS):
            rows = slice(start, start + ROWS)
            wanted = (target_states[rows] @ target_weight.T).float().softmax(-1)
            for number, scale in enumerate(scales.tolist()):
                h = states[number, rows].bfloat16()
                guessed = (h @ low.T).float().log_softmax(-1)
                losses[number] -= (wanted * guessed).sum()
                error = guessed.exp_().sub_(wanted).mul_(scale / count).bfloat16()
                d_states[number, rows] = error @ low
                d_weight += error.T @ h
        ctx.save_for_backward(d_states, d_weight)
        return losses / count

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        d_states, d_weight = ctx.saved_tensors
        return d_states.float(), d_weight, None, None, None


def soft_cross_entropy(
    states: Tensor, weight: Tensor, target_states: Tensor, target_weight: Tensor, scales: Tensor
) -> Tensor:
    """Mean over rows of -sum p log q for each pass: p = softmax(target_states @ target_weight.T), q = softmax(states @ weight.T).

    states [passes, rows, hidden]; target_states [rows, hidden]; both weights [draft vocabulary, hidden]. Gradients go to the
    first two, as if the passes' losses [passes] were summed with `scales`; what comes from above is not looked at.
    """
    losses: Tensor = _SoftCrossEntropy.apply(states, weight, target_states, target_weight, scales)
    return losses
