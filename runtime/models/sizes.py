"""The numbers that every architecture has, checked before anything is built from them."""

from __future__ import annotations

from dataclasses import dataclass

from sapwood.errors import ModelError
from sapwood.runtime.models.checkpoint import Checkpoint, integer, number


@dataclass(frozen=True, slots=True)
class Sizes:
    """From the keys `{architecture}.*`."""

    architecture: str
    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    context_length: int
    norm_eps: float

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> Sizes:
        arch = str(checkpoint.get("general.architecture"))
        if checkpoint.get(f"{arch}.expert_count", 0):
            raise ModelError("this model is a mixture of experts, which isn't supported yet; take a dense one")
        hidden, heads = (integer(checkpoint, f"{arch}.{key}") for key in ("embedding_length", "attention.head_count"))
        kv_heads = integer(checkpoint, f"{arch}.attention.head_count_kv", heads)
        if hidden < heads or heads % kv_heads:
            raise ModelError(
                f"the checkpoint announces {heads} heads and {kv_heads} of keys for a width of {hidden}; it is damaged"
            )
        head_dim = integer(checkpoint, f"{arch}.attention.key_length", hidden // heads)
        if head_dim > 1 << 16:
            raise ModelError(f"the checkpoint announces heads of {head_dim:,} channels; it is damaged")
        context = integer(checkpoint, f"{arch}.context_length")
        if "rope_factors_short.weight" in checkpoint.tensors:  # beyond it other factors hold, for all positions
            context = min(context, integer(checkpoint, f"{arch}.rope.scaling.original_context_length", context))
        return cls(
            architecture=arch,
            num_layers=integer(checkpoint, f"{arch}.block_count"),
            hidden_size=hidden,
            num_heads=heads,
            num_kv_heads=kv_heads,
            head_dim=head_dim,
            context_length=context,
            norm_eps=number(checkpoint, f"{arch}.attention.layer_norm_rms_epsilon"),
        )
