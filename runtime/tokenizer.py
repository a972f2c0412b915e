"""Text to token ids and back. The vocabulary, its merges and the chat template come from the model's own files.

A token is a string of bytes, and a text's bytes are its tokens' bytes put together: so decoding needs no library, streams
exactly, and grammars and stop strings work on bytes. Encoding is Hugging Face's `tokenizers`, built in `vocabulary.py`.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sapwood.errors import InvalidRequest
from sapwood.runtime import chat_template
from sapwood.runtime.store import resolve
from sapwood.runtime.vocabulary import Vocabulary, from_folder, from_gguf

_HALF = re.compile("[\ud800-\udfff]")


class Detokenizer:
    """Turns a stream of ids into text; never shows a part of a character."""

    def __init__(self, token_bytes: Sequence[bytes]) -> None:
        self._token_bytes = token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, ids: Iterable[int]) -> str:
        """The text that these ids complete."""
        return self._decoder.decode(b"".join(self._token_bytes[i] for i in ids))

    def finish(self) -> str:
        """What is left at the end: U+FFFD for a character that never was completed."""
        return self._decoder.decode(b"", final=True)


class Tokenizer:
    """A model's vocabulary. Satisfies `sapwood.constrained`'s Vocabulary.

    `token_bytes[i]` are the bytes of token i; special tokens have none. `vocab_size` is the width of the logits, which
    may be more than there are tokens.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocab_size = vocabulary.vocab_size
        padding = [b""] * (vocabulary.vocab_size - len(vocabulary.token_bytes))
        self.token_bytes: list[bytes] = vocabulary.token_bytes + padding
        self.special: dict[str, int] = vocabulary.special
        self.eos_ids: frozenset[int] = vocabulary.eos_ids
        self.bos_id: int | None = vocabulary.bos_id
        self.add_bos: bool = vocabulary.add_bos
        self.chat_template: str | None = vocabulary.chat_template
        self.fingerprint: str = vocabulary.fingerprint
        self._eos_id = vocabulary.eos_id
        self._encode = vocabulary.encode
        self._encode_special = vocabulary.encode_special
        self._names = {i: name for name, i in self.special.items()}

    def encode(self, text: str, *, special: bool = False, bos: bool = False) -> list[int]:
        """Token ids of a text. `special`: special tokens written out in it are recognised; `bos`: the model's first token
        is put before it, where the model wants one and the text doesn't begin with it."""
        if not text.isascii() and (half := _HALF.search(text)):
            raise InvalidRequest(f"the text's character {half.start()} is half of a surrogate pair, which is no text")
        ids = self._encode_special(text) if special else self._encode(text)
        if bos and self.add_bos and self.bos_id is not None and ids[:1] != [self.bos_id]:
            ids.insert(0, self.bos_id)
        return ids

    def decode(self, ids: Iterable[int], skip_special: bool = True) -> str:
        """The text of these ids; without `skip_special`, special tokens by their names."""
        if skip_special:
            return b"".join(self.token_bytes[i] for i in ids).decode("utf-8", "replace")
        return b"".join(self.token_bytes[i] or self._names.get(i, "").encode() for i in ids).decode("utf-8", "replace")

    def detokenizer(self) -> Detokenizer:
        return Detokenizer(self.token_bytes)

    def token_text(self, token: int) -> str:
        """One token for people: its text, or a special token's name."""
        return self._names.get(token) or self.token_bytes[token].decode("utf-8", "replace")

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **extra: Any,
    ) -> str:
        """A conversation as the model's chat template writes it; encode the result with special=True."""
        names = {
            "bos_token": self._name(self.bos_id),
            "eos_token": self._name(self._eos_id),
            **extra,
        }
        return chat_template.render(
            self.chat_template, messages, tools=tools, add_generation_prompt=add_generation_prompt, **names
        )

    def _name(self, token: int | None) -> str:
        return "" if token is None else self._names.get(token, "")


def load_tokenizer(name_or_path: str | Path) -> Tokenizer:
    """The tokenizer of a pulled model, a .gguf file or a Hugging Face folder."""
    path = resolve(name_or_path)
    return Tokenizer(from_folder(path) if path.is_dir() else from_gguf(path))
