"""What a model file says about its tokens: their bytes, which are special, and what turns text into them.

Byte-level BPE (GPT-2 and after) is built here, SentencePiece's (Gemma, Llama 2) in `sentencepiece.py`.
Source: llama.cpp's token types and names of pre-tokenizers (llama-vocab.cpp).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers

from sapwood.errors import ModelError
from sapwood.runtime import sentencepiece
from sapwood.runtime.models.gguf import GgufFile
from sapwood.runtime.sentencepiece import SPACE

Encoder = Callable[[str], list[int]]

# How GGUF names what a token is (llama.cpp's llama_token_type).
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _BYTE = 1, 2, 3, 4, 6

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
_WHOLE_WORDS = {"llama-bpe", "llama3", "llama-v3"}  # a word that is a token needs no merges
_PATTERNS = {
    **dict.fromkeys(("gpt-2", "default", "phi-2", "olmo"), _GPT2),
    **dict.fromkeys(_WHOLE_WORDS, _LLAMA3),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen"), _QWEN2),
}
_SINGLE_DIGITS = {"smollm", "starcoder", "refact", "command-r"}  # digits one by one, then GPT-2's pattern
# Names of tokens that end a turn, in models whose files name only one end.
_TURN_ENDS = ("<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<|end|>", "<|endoftext|>", "</s>")


@dataclass(slots=True)
class Vocabulary:
    """All that `Tokenizer` keeps. `encode` takes special tokens in a text for text, `encode_special` recognises them."""

    vocab_size: int
    token_bytes: list[bytes]
    special: dict[str, int]
    eos_ids: frozenset[int]
    eos_id: int | None  # the one that the model calls its end; templates may write it
    bos_id: int | None
    add_bos: bool
    chat_template: str | None
    fingerprint: str
    encode: Encoder
    encode_special: Encoder


def from_gguf(path: Path) -> Vocabulary:
    """The vocabulary that a GGUF file carries."""
    file = GgufFile(path)
    tokens, types = _pieces(file)
    special = {tokens[i]: i for i, what in enumerate(types) if what in (_CONTROL, _UNKNOWN)}
    kind, pre = file.get("tokenizer.ggml.model"), str(file.get("tokenizer.ggml.pre", "default"))
    if kind not in ("gpt2", "llama"):
        raise ModelError(
            f"{path} has a tokenizer of kind '{kind}'; supported are 'gpt2' (byte-level BPE) and 'llama' (SPM)"
        )
    encode = _byte_level(file, tokens, types, pre) if kind == "gpt2" else _sentencepiece(file, tokens, types)
    normal, user_defined = (_from_visible, str.encode) if kind == "gpt2" else (_from_piece, _from_piece)
    meaning = {_NORMAL: normal, _BYTE: normal, _USER_DEFINED: user_defined}
    info = file.tensors.get("token_embd.weight")
    eos_id, eot_id, eom_id, bos_id = (_token_id(file, name, len(tokens)) for name in ("eos", "eot", "eom", "bos"))
    ends = {eos_id, eot_id, eom_id, *(special.get(name) for name in _TURN_ENDS)}
    template = file.metadata.get("tokenizer.chat_template")
    digest = hashlib.sha256("\0".join([pre, *tokens]).encode() + bytes(types))
    return Vocabulary(
        vocab_size=info.shape[0] if info else len(tokens),
        token_bytes=[
            meaning[what](token) if what in meaning else b"" for token, what in zip(tokens, types, strict=True)
        ],
        special=special,
        eos_ids=frozenset(end for end in ends if end is not None),
        eos_id=eos_id,
        bos_id=bos_id,
        add_bos=bool(file.get("tokenizer.ggml.add_bos_token", kind == "llama")),
        chat_template=template if isinstance(template, str) else None,
        fingerprint=digest.hexdigest()[:32],
        encode=encode,
        encode_special=recognising(special, encode),
    )


def _pieces(file: GgufFile) -> tuple[list[str], list[int]]:
    """The tokens and their types; ModelError unless they fit together and into the model."""
    tokens = file.get("tokenizer.ggml.tokens")
    info = file.tensors.get("token_embd.weight")
    if not isinstance(tokens, list) or (info and info.shape[0] < len(tokens)):
        raise ModelError(f"{file.path} has no sound list of tokens. Download it again.")
    types = list(map(int, file.get("tokenizer.ggml.token_type", [_NORMAL] * len(tokens))))
    if len(types) != len(tokens) or not all(0 <= what < 256 for what in types):
        raise ModelError(f"{file.path} doesn't say of each token what it is. Download it again.")
    return tokens, types


def _token_id(file: GgufFile, name: str, num_tokens: int) -> int | None:
    token = file.metadata.get(f"tokenizer.ggml.{name}_token_id")
    return token if isinstance(token, int) and 0 <= token < num_tokens else None


def from_folder(path: Path) -> Vocabulary:
    """The vocabulary of a Hugging Face folder: tokenizer.json, tokenizer_config.json, generation_config.json."""
    source = path / "tokenizer.json"
    described = _json(source)
    if not described:
        raise ModelError(f"{path} has no tokenizer.json; save the model's fast tokenizer there")
    plain, whole = (_folder_tokenizer(source) for _ in range(2))
    plain.encode_special_tokens = True
    names = {i: token for token, i in whole.get_vocab(with_added_tokens=True).items()}
    added = {entry["content"]: entry for entry in described.get("added_tokens", [])}
    special = {content: entry["id"] for content, entry in added.items() if entry.get("special")}
    byte_level = "ByteLevel" in json.dumps([described.get("decoder"), described.get("pre_tokenizer")])
    of_kind = _from_visible if byte_level else _from_piece
    token_bytes = [b""] * (max(names, default=-1) + 1)
    for i, token in names.items():
        if token not in special:
            token_bytes[i] = token.encode() if token in added else of_kind(token)
    config, generation, model = (
        _json(path / name) for name in ("tokenizer_config.json", "generation_config.json", "config.json")
    )
    bos_id, eos_id = (special.get(_content(config.get(f"{end}_token"))) for end in ("bos", "eos"))
    ends = generation.get("eos_token_id", model.get("eos_token_id"))
    eos_ids = {eos_id, *(ends if isinstance(ends, list) else [ends]), *(special.get(name) for name in _TURN_ENDS)}
    written = path / "chat_template.jinja"
    template = written.read_text() if written.exists() else config.get("chat_template")
    return Vocabulary(
        vocab_size=max(int(model.get("vocab_size", 0)), len(token_bytes)),
        token_bytes=token_bytes,
        special=special,
        eos_ids=frozenset(end for end in eos_ids if end is not None),
        eos_id=eos_id,
        bos_id=bos_id,
        add_bos=bos_id is not None and whole.encode("a").ids[:1] == [bos_id],
        chat_template=template if isinstance(template, str) else None,
        fingerprint=hashlib.sha256(source.read_bytes()).hexdigest()[:32],
        encode=encoder(plain),
        encode_special=encoder(whole),
    )


def _folder_tokenizer(source: Path) -> tokenizers.Tokenizer:
    try:
        return tokenizers.Tokenizer.from_file(str(source))
    except Exception as error:  # the library raises nothing narrower
        raise ModelError(f"{source} can't be read ({error}); download it again") from error


def _content(token: object) -> str:
    """A token's text, which configs write as such or in a record."""
    return str(token.get("content") if isinstance(token, dict) else token)


def _json(path: Path) -> dict[str, Any]:
    """A file's object; empty where there is no such file."""
    try:
        value = json.loads(path.read_text()) if path.exists() else {}
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"can't read {path}: {error}; download it again") from error
    return value if isinstance(value, dict) else {}


def encoder(backend: tokenizers.Tokenizer) -> Encoder:
    """The ids that a `tokenizers` object gives a text."""

    def encode(text: str) -> list[int]:
        ids: list[int] = backend.encode(text, add_special_tokens=False).ids
        return ids

    return encode


def recognising(special: Mapping[str, int], encode: Encoder) -> Encoder:
    """Special tokens whole wherever they stand, the longest first; what is between them as `encode` takes it."""
    names = {name: i for name, i in special.items() if name}
    if not names:
        return encode
    lengths = sorted({len(name) for name in names}, reverse=True)
    starts = re.compile("[" + re.escape("".join({name[0] for name in names})) + "]")

    def encode_special(text: str) -> list[int]:
        ids: list[int] = []
        done = at = 0
        while found := starts.search(text, at):
            begin = found.start()
            name = next((text[begin : begin + n] for n in lengths if text[begin : begin + n] in names), None)
            if name is None:
                at = begin + 1
                continue
            if begin > done:
                ids += encode(text[done:begin])
            ids.append(names[name])
            done = at = begin + len(name)
        if done < len(text):
            ids += encode(text[done:])
        return ids

    return encode_special


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


_BYTE_PIECE = re.compile("<0x([0-9A-Fa-f]{2})>")


def _from_piece(token: str) -> bytes:
    if token.startswith("<0x") and (byte := _BYTE_PIECE.fullmatch(token)):
        return bytes([int(byte[1], 16)])
    return token.replace(SPACE, " ").encode()


def _byte_level(file: GgufFile, tokens: list[str], types: list[int], pre: str) -> Encoder:
    pairs = [(left, right) for left, _, right in (merge.partition(" ") for merge in file.get("tokenizer.ggml.merges"))]
    try:
        model = models.BPE({token: i for i, token in enumerate(tokens)}, pairs, ignore_merges=pre in _WHOLE_WORDS)
    except Exception as error:  # the library raises nothing narrower
        raise ModelError(f"{file.path}: its merges don't fit its tokens ({error}). Download it again.") from error
    made = tokenizers.Tokenizer(model)
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
    return encoder(_with_user_defined(made, tokens, types))


def _sentencepiece(file: GgufFile, tokens: list[str], types: list[int]) -> Encoder:
    """Built at the first use: a backend that is given ids needs no encoder, and large vocabularies take half a second."""
    scores = file.get("tokenizer.ggml.scores")
    if len(scores) != len(tokens):
        raise ModelError(f"{file.path} has {len(scores):,} scores for {len(tokens):,} tokens. Download it again.")
    prefix = bool(file.get("tokenizer.ggml.add_space_prefix", True))
    made: list[Encoder] = []

    def encode(text: str) -> list[int]:
        if not made:
            normal = [i for i, what in enumerate(types) if what == _NORMAL]
            unknown = "<unk>" if "<unk>" in tokens else None
            built = sentencepiece.build(tokens, normal, scores, unknown, prefix)
            made.append(encoder(_with_user_defined(built, tokens, types)))
        return made[0](text)

    return encode


def _with_user_defined(made: tokenizers.Tokenizer, tokens: list[str], types: list[int]) -> tokenizers.Tokenizer:
    """These tokens are taken whole wherever they stand."""
    chosen = [token for token, what in zip(tokens, types, strict=True) if what == _USER_DEFINED]
    if chosen:
        made.add_tokens([AddedToken(token, normalized=SPACE in token) for token in chosen])
    return made
