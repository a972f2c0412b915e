"""What a grammar needs to know of a tokenizer: its tokens as bytes, and how it would spell a text.

`sapwood.runtime.tokenizer.Tokenizer` satisfies `Vocabulary`; `HuggingFaceVocabulary` adapts any fast tokenizer of the
`tokenizers` or `transformers` package. This file knows nothing of grammars.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Vocabulary(Protocol):
    """The tokens of a model and their canonical use."""

    @property
    def token_bytes(self) -> Sequence[bytes]:
        """The bytes of each token by id; special tokens are empty and never allowed inside a constrained text."""
        ...

    @property
    def eos_ids(self) -> frozenset[int]:
        """Tokens that end the text."""
        ...

    @property
    def vocab_size(self) -> int:
        """Width of a mask in tokens. May exceed the number of tokens: the rest is never allowed."""
        ...

    @property
    def fingerprint(self) -> str:
        """Changes when the tokens or their use change; part of the key under which grammars are cached."""
        ...

    def encode(self, text: str) -> list[int]:
        """The ids of `text` as the model was trained to see it, without special tokens."""
        ...


class HuggingFaceVocabulary:
    """A `Vocabulary` over a `tokenizers.Tokenizer` or a fast tokenizer of `transformers`."""

    def __init__(self, tokenizer: Any, eos_ids: Iterable[int] | None = None, vocab_size: int | None = None) -> None:
        backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
        if eos_ids is None:
            eos = getattr(tokenizer, "eos_token_id", None)
            eos_ids = [] if eos is None else [eos]
        self._backend = backend
        self.eos_ids = frozenset(eos_ids)
        self.token_bytes: list[bytes] = token_bytes_of(backend)
        self.vocab_size = vocab_size or len(self.token_bytes)
        text = backend.to_str()
        self.fingerprint = hashlib.sha256(f"{text}{sorted(self.eos_ids)}{self.vocab_size}".encode()).hexdigest()[:32]

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self._backend.encode(text, add_special_tokens=False).ids
        return ids


def as_vocabulary(tokenizer: Any) -> Vocabulary:
    """`tokenizer` itself if it is a `Vocabulary`, else an adapter around a Hugging Face tokenizer."""
    return tokenizer if isinstance(tokenizer, Vocabulary) else HuggingFaceVocabulary(tokenizer)


def token_bytes_of(backend: Any) -> list[bytes]:
    """The bytes of every token of a `tokenizers.Tokenizer`: byte-level BPE, or SentencePiece with byte fallback."""
    model = json.loads(backend.to_str())
    special = {token["id"] for token in model["added_tokens"] if token["special"]}
    byte_level = "ByteLevel" in json.dumps([model["pre_tokenizer"], model["decoder"]])
    added = {token["id"] for token in model["added_tokens"]}
    vocab = backend.get_vocab(with_added_tokens=True)
    tokens = [b""] * (max(vocab.values(), default=-1) + 1)
    for text, id in vocab.items():
        if id in special:
            continue
        if id in added:
            tokens[id] = text.encode()
        elif byte_level:
            tokens[id] = bytes(BYTE_OF_CHARACTER[c] for c in text)
        elif len(text) == 6 and text.startswith("<0x") and text.endswith(">"):
            tokens[id] = bytes([int(text[3:5], 16)])
        else:
            tokens[id] = text.replace("\u2581", " ").encode()
    return tokens


def _byte_level_alphabet() -> dict[str, int]:
    """GPT-2's printable stand-ins for the 256 bytes."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


BYTE_OF_CHARACTER = _byte_level_alphabet()
