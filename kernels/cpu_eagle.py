"""An EAGLE head on the CPU: handed over to the native code (`kernels/cpu/eagle.h`) once, then one call a step and one a draft."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sapwood.kernels import _cpu
from sapwood.kernels.cpu_backend import CpuPlan, matrix_source, rope_source, vector_source
from sapwood.kernels.eagle import EagleHead
from sapwood.kernels.plan import Batch, Int32s

DEEPEST = 16  # tokens of a draft
MOST_REQUESTS = 64  # in one call
BINS = 16  # of chances, whose worth is looked up
AT_FACE_VALUE: NDArray[np.float32] = ((np.arange(BINS) + 0.5) / BINS).astype(np.float32)

_MATRICES = ("fc", "wq", "wk", "wv", "wo", "gate", "up", "down", "head")
_VECTORS = ("fc_bias", "target_norm", "input_norm", "hidden_norm", "post_norm", "final_norm")
_NUMBERS = ("version", "num_heads", "num_kv_heads", "head_dim", "norm_eps", "norm_before_residual")


class CpuEagle:
    """A head beside the plan of its target, which must capture `head.captures`."""

    def __init__(self, plan: CpuPlan, head: EagleHead) -> None:
        source = _cpu.EagleSource()
        for name in _NUMBERS:
            setattr(source, name, getattr(head, name))
        for name in _MATRICES:
            setattr(source, name, matrix_source(getattr(head, name)))
        for name in _VECTORS:
            setattr(source, name, vector_source(getattr(head, name)))
        source.rope = rope_source(head.rope)
        source.vocab = head.vocab.tolist()
        self._eagle = _cpu.Eagle(plan.native, source)

    @property
    def weight_bytes(self) -> int:
        """Memory that the packed weights take."""
        size: int = self._eagle.weight_bytes
        return size

    def observe(self, batch: Batch, features: NDArray[np.float32]) -> None:
        """Learn what the target made of a batch: features [rows, len(captures) * hidden]."""
        self._eagle.observe(batch.ids, batch.positions, batch.slots, batch.sequences, list(batch.tables), features)

    def draft(
        self,
        tables: Sequence[Int32s],
        last_ids: Sequence[int],
        depth: int,
        least: float,
        worth: NDArray[np.float32] = AT_FACE_VALUE,
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Guess up to `depth` tokens for each text: ids and the chances the head gives them, both [texts, depth].

        tables: the slots of all its positions, at least two, all but the last computed and observed; last_ids: the token of
        its last position; worth [BINS]: how often tokens with a chance in that sixteenth come true. A text goes on while the
        product of what its tokens are worth is at least `least`; the rest is -1.
        """
        ids = np.empty((len(tables), depth), np.int32)
        chances = np.empty((len(tables), depth), np.float32)
        for start in range(0, len(tables), MOST_REQUESTS):
            part = slice(start, start + MOST_REQUESTS)
            self._eagle.draft(
                list(tables[part]), np.array(last_ids[part], np.int32), least, worth, ids[part], chances[part]
            )
        return ids, chances
