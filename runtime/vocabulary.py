"""Building a tokenizer from what a model file says: byte-level BPE (GPT-2 and after) and SentencePiece BPE (Gemma, Llama 2).

Sources: llama.cpp's pre-tokenizer names (llama-vocab.cpp), SentencePiece's BPE (arXiv 1808.06226).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers

from sapwood.errors import ModelError
from sapwood.runtime.models.gguf import GgufFile

# How GGUF names what a token is (llama.cpp's llama_token_type).
_NORMAL, _CONTROL, _USER_DEFINED, _BYTE = 1, 3, 4, 6
_SPACE = "\u2581"  # what SentencePiece writes for a space

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
_PATTERNS = {"gpt-2": _GPT2, "default": _GPT2, "llama-bpe": _LLAMA3, "llama3": _LLAMA3, "qwen2": _QWEN2}
_SINGLE_DIGITS = {"smollm", "starcoder", "refact", "command-r"}  # digits one by one, then GPT-2's pattern
# Names of tokens that end a turn, in models whose files name only one end.
_TURN_ENDS = ("<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<|end|>", "<|endoftext|>", "</s>")


@dataclass(slots=True)
class Vocabulary:
    """All that `Tokenizer` keeps. `backend` takes special tokens in a text for text, `backend_special` recognises them."""

    vocab_size: int
    token_bytes: list[bytes]
    special: dict[str, int]
    eos_ids: frozenset[int]
    bos_id: int | None
    add_bos: bool
    chat_template: str | None
    fingerprint: str
    backend: tokenizers.Tokenizer
    backend_special: Callable[[], tokenizers.Tokenizer]  # made at first use: large vocabularies take a while to copy


def from_gguf(path: Path) -> Vocabulary:
    """The vocabulary that a GGUF file carries."""
    file = GgufFile(path)
    kind = file.get("tokenizer.ggml.model")
    tokens: list[str] = file.get("tokenizer.ggml.tokens")
    types: list[int] = list(file.get("tokenizer.ggml.token_type", [_NORMAL] * len(tokens)))
    if kind == "gpt2":
        merges: list[str] = file.get("tokenizer.ggml.merges")
        make = _byte_level(tokens, merges, str(file.get("tokenizer.ggml.pre", "default")))
        token_bytes = [_from_visible(token) for token in tokens]
    elif kind == "llama":
        make = _sentencepiece(
            tokens, types, file.get("tokenizer.ggml.scores"), bool(file.get("tokenizer.ggml.add_space_prefix", True))
        )
        token_bytes = [
            bytes([int(token[3:5], 16)]) if what == _BYTE else token.replace(_SPACE, " ").encode()
            for token, what in zip(tokens, types, strict=True)
        ]
    else:
        raise ModelError(
            f"{path} has a tokenizer of kind '{kind}'; supported are 'gpt2' (byte-level BPE) and 'llama' (SPM)"
        )
    special = {token: i for i, (token, what) in enumerate(zip(tokens, types, strict=True)) if what == _CONTROL}
    for i in special.values():
        token_bytes[i] = b""
    for i in (i for i, what in enumerate(types) if what == _USER_DEFINED and kind == "gpt2"):
        token_bytes[i] = tokens[i].encode()
    user_defined = [token for token, what in zip(tokens, types, strict=True) if what == _USER_DEFINED]
    ends = {int(file.metadata[key]) for key in _end_keys() if key in file.metadata}
    ends |= {special[name] for name in _TURN_ENDS if name in special}
    info = file.tensors.get("token_embd.weight")
    digest = hashlib.sha256("\0".join(tokens).encode())
    digest.update(str(file.get("tokenizer.ggml.pre", "")).encode())
    return Vocabulary(
        vocab_size=info.shape[0] if info else len(tokens),
        token_bytes=token_bytes,
        special=special,
        eos_ids=frozenset(ends),
        bos_id=file.metadata.get("tokenizer.ggml.bos_token_id"),
        add_bos=bool(file.get("tokenizer.ggml.add_bos_token", kind == "llama")),
        chat_template=file.metadata.get("tokenizer.chat_template"),
        fingerprint=digest.hexdigest()[:32],
        backend=_with_added(make, user_defined, []),
        backend_special=lambda: _with_added(make, user_defined, list(special)),
    )


def _end_keys() -> tuple[str, ...]:
    return ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id")


def from_folder(path: Path) -> Vocabulary:
    """The vocabulary of a Hugging Face folder: tokenizer.json, tokenizer_config.json, generation_config.json."""
    source = path / "tokenizer.json"
    if not source.exists():
        raise ModelError(f"{path} has no tokenizer.json")
    described = json.loads(source.read_text())
    config, generation, model = (
        _json(path / f) for f in ("tokenizer_config.json", "generation_config.json", "config.json")
    )
    added = {entry["content"]: entry["id"] for entry in described.get("added_tokens", []) if entry.get("special")}
    recognising = tokenizers.Tokenizer.from_file(str(source))
    described["added_tokens"] = [e for e in described.get("added_tokens", []) if not e.get("special")]
    plain = tokenizers.Tokenizer.from_str(json.dumps(described))
    names = {i: token for token, i in recognising.get_vocab(with_added_tokens=True).items()}
    byte_level = "ByteLevel" in json.dumps(described.get("decoder")) or "ByteLevel" in json.dumps(
        described.get("pre_tokenizer")
    )
    token_bytes = [b""] * (max(names) + 1)
    for i, token in names.items():
        if token not in added:
            token_bytes[i] = _from_visible(token) if byte_level else _from_piece(token)
    template = (
        config.get("chat_template") or (path / "chat_template.jinja").read_text()
        if (path / "chat_template.jinja").exists()
        else config.get("chat_template")
    )
    ends = generation.get("eos_token_id", model.get("eos_token_id"))
    eos_ids = set(ends if isinstance(ends, list) else [] if ends is None else [ends])
    eos_ids |= {added[name] for name in _TURN_ENDS if name in added}
    bos = config.get("bos_token")
    bos = bos.get("content") if isinstance(bos, dict) else bos
    return Vocabulary(
        vocab_size=int(model.get("vocab_size", len(token_bytes))),
        token_bytes=token_bytes,
        special=added,
        eos_ids=frozenset(eos_ids),
        bos_id=added.get(bos) if bos else None,
        add_bos=bool(config.get("add_bos_token", False)),
        chat_template=template if isinstance(template, str) else None,
        fingerprint=hashlib.sha256(source.read_bytes()).hexdigest()[:32],
        backend=plain,
        backend_special=lambda: recognising,
    )


def _json(path: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return value


def _visible_bytes() -> dict[str, int]:
    """GPT-2's table: every byte as a printable character."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {chr(b): b for b in printable}
    hidden = [b for b in range(256) if b not in printable]
    return table | {chr(256 + n): b for n, b in enumerate(hidden)}


_VISIBLE = _visible_bytes()


def _from_visible(token: str) -> bytes:
    try:
        return bytes([_VISIBLE[c] for c in token])
    except KeyError:
        return token.encode()


def _from_piece(token: str) -> bytes:
    if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
        return bytes([int(token[3:5], 16)])
    return token.replace(_SPACE, " ").encode()


def _byte_level(tokens: list[str], merges: list[str], pre: str) -> tokenizers.Tokenizer:
    pairs = [(left, right) for left, _, right in (merge.partition(" ") for merge in merges)]
    made = tokenizers.Tokenizer(
        models.BPE({t: i for i, t in enumerate(tokens)}, pairs, ignore_merges=pre in {"llama-bpe", "llama3"})
    )
    if pre in _SINGLE_DIGITS:
        steps = [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    elif pre in _PATTERNS:
        steps = [
            pre_tokenizers.Split(Regex(_PATTERNS[pre]), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    else:
        known = ", ".join(sorted({*_PATTERNS, *_SINGLE_DIGITS}))
        raise ModelError(f"the pre-tokenizer '{pre}' is not supported; supported are {known}")
    made.pre_tokenizer = pre_tokenizers.Sequence(steps)
    made.decoder = decoders.ByteLevel()
    return made


def _sentencepiece(tokens: list[str], types: list[int], scores: Any, space_prefix: bool) -> tokenizers.Tokenizer:
    """BPE whose merges are every way to put a piece together, best score first."""
    ids = {token: i for i, token in enumerate(tokens)}
    score = dict(zip(tokens, map(float, scores), strict=True))
    normal = {token for token, what in zip(tokens, types, strict=True) if what == _NORMAL}
    merges: list[tuple[str, str]] = []
    for piece in sorted(normal, key=score.__getitem__, reverse=True):
        cuts = [
            (left, piece[cut:])
            for cut in range(1, len(piece))
            if (left := piece[:cut]) in normal and piece[cut:] in normal
        ]
        merges += sorted(cuts, key=lambda pair: (ids[pair[0]], ids[pair[1]])) if len(cuts) > 1 else cuts
    unknown = next((t for t in ("<unk>",) if t in ids), None)
    made = tokenizers.Tokenizer(models.BPE(ids, merges, byte_fallback=True, fuse_unk=True, unk_token=unknown))
    steps = [normalizers.Prepend(_SPACE)] if space_prefix else []
    made.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", _SPACE)])
    return made


def _with_added(base: tokenizers.Tokenizer, user_defined: list[str], special: list[str]) -> tokenizers.Tokenizer:
    """A copy of `base` that takes these tokens whole wherever they stand."""
    made = tokenizers.Tokenizer.from_str(base.to_str()) if special else base
    if user_defined:
        made.add_tokens([AddedToken(token, normalized=_SPACE in token) for token in user_defined])
    if special:
        made.add_special_tokens([AddedToken(token, normalized=False) for token in special])
    return made
