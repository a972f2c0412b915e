"""Tokenizers equal independent implementations, and their bytes put together are the text."""

from __future__ import annotations

import heapq
import random
import unicodedata
from functools import lru_cache
from pathlib import Path

import pytest
import regex
from hypothesis import given, settings, strategies as st

from sapwood.errors import InvalidRequest, ModelError
from sapwood.runtime import sentencepiece
from sapwood.runtime.models.gguf import GgufFile
from sapwood.runtime.tokenizer import Tokenizer, load_tokenizer

GPT2 = regex.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")


def random_text(rng: random.Random) -> str:
    """Pieces of several scripts, spaces, digits, marks and rare planes."""
    pools = [
        "abcdefghij",
        "ABC",
        "0123456789",
        " ",
        "  ",
        "\n",
        "\t",
        ".,:;!?'\"",
        "äöüßéñ",
        "日本語中文",
        "деёж",
        "🌧🏔👩\u200d🚀",
        "\u0301\u0300",
        "ﬁ\u00a0\u3000",
    ]
    parts = []
    for _ in range(rng.randrange(1, 12)):
        pool = rng.choice(pools)
        parts.append("".join(rng.choice(pool) for _ in range(rng.randrange(1, 6))))
        if rng.random() < 0.05:
            parts.append(chr(rng.choice([rng.randrange(0x20, 0xD7FF), rng.randrange(0xE000, 0x1FFFF)])))
    text = "".join(parts)
    # What Unicode hadn't assigned when the libraries' tables were made, they class differently.
    return "".join(c for c in text if unicodedata.category(c) != "Cn")


@pytest.fixture(scope="session")
def smollm2(smollm2_path: Path) -> Tokenizer:
    return load_tokenizer(smollm2_path)


@pytest.fixture(scope="session")
def gemma3(gemma3_path: Path) -> Tokenizer:
    return load_tokenizer(gemma3_path)


def plain_bpe(path: Path) -> object:
    """Byte-level BPE written out: split, map bytes, merge the lowest rank first."""
    file = GgufFile(path)
    ids = {token: i for i, token in enumerate(file.metadata["tokenizer.ggml.tokens"])}
    ranks = {tuple(m.split(" ", 1)): i for i, m in enumerate(file.metadata["tokenizer.ggml.merges"])}
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    visible = {b: chr(b) for b in printable}
    visible |= {b: chr(256 + n) for n, b in enumerate(b for b in range(256) if b not in printable)}

    @lru_cache(maxsize=100_000)
    def merge(word: str) -> tuple[int, ...]:
        parts = list(word)
        while len(parts) > 1:
            best = min(range(len(parts) - 1), key=lambda i: ranks.get((parts[i], parts[i + 1]), 1 << 30))
            if (parts[best], parts[best + 1]) not in ranks:
                break
            parts[best : best + 2] = [parts[best] + parts[best + 1]]
        return tuple(ids[p] for p in parts)

    def encode(text: str) -> list[int]:
        out: list[int] = []
        for span in regex.split(r"(\p{N})", text):  # SmolLM2: every digit by itself
            for word in [span] if regex.fullmatch(r"\p{N}", span) else GPT2.findall(span):
                out += merge("".join(visible[b] for b in word.encode()))
        return out

    return encode


def plain_spm(path: Path) -> object:
    """SentencePiece's BPE written out: user-defined pieces first, then the best-scored neighbours, leftmost on ties."""
    file = GgufFile(path)
    tokens, types = file.metadata["tokenizer.ggml.tokens"], file.metadata["tokenizer.ggml.token_type"]
    scores = dict(zip(tokens, file.metadata["tokenizer.ggml.scores"].tolist(), strict=True))
    ids = {token: i for i, token in enumerate(tokens)}
    user = sorted((t for t, what in zip(tokens, types, strict=True) if what == 4), key=len, reverse=True)
    normal = {t for t, what in zip(tokens, types, strict=True) if what == 1}
    splitter = regex.compile("|".join(map(regex.escape, user)))

    def pieces(text: str) -> list[str]:
        parts: list[str | None] = list(text)
        after = [*range(1, len(parts)), -1]
        before = [-1, *range(len(parts) - 1)]
        heap: list[tuple[float, int, int, str]] = []

        def push(left: int) -> None:
            right = after[left]
            if right >= 0:
                both = str(parts[left]) + str(parts[right])
                if both in normal:
                    heapq.heappush(heap, (-scores[both], left, right, both))

        for i in range(len(parts)):
            push(i)
        while heap:
            _, left, right, both = heapq.heappop(heap)
            if parts[left] is None or parts[right] is None or str(parts[left]) + str(parts[right]) != both:
                continue
            parts[left], parts[right] = both, None
            after[left] = after[right]
            if after[right] >= 0:
                before[after[right]] = left
            push(left)
            if before[left] >= 0:
                push(before[left])
        return [p for p in parts if p is not None]

    def encode(text: str) -> list[int]:
        out, at = list[int](), 0
        for found in [*splitter.finditer(text), None]:
            end = len(text) if found is None else found.start()
            for piece in pieces(text[at:end].replace(" ", "\u2581")):
                out += [ids[piece]] if piece in normal else [ids[f"<0x{b:02X}>"] for b in piece.encode()]
            if found is not None:
                out.append(ids[found.group()])
                at = found.end()
        return out

    return encode


def test_smollm2_equals_plain_bpe_on_ten_thousand_texts(smollm2: Tokenizer, smollm2_path: Path) -> None:
    encode, rng = plain_bpe(smollm2_path), random.Random(1)
    for _ in range(10_000):
        text = random_text(rng)
        assert smollm2.encode(text) == encode(text), repr(text)


def test_gemma3_equals_plain_sentencepiece_on_ten_thousand_texts(gemma3: Tokenizer, gemma3_path: Path) -> None:
    encode, rng = plain_spm(gemma3_path), random.Random(2)
    for _ in range(10_000):
        text = random_text(rng)
        assert gemma3.encode(text) == encode(text), repr(text)


@pytest.mark.parametrize("which", ["smollm2", "gemma3"])
@settings(max_examples=150, deadline=None)
@given(text=st.text(max_size=60), cut=st.integers(1, 4))
def test_bytes_and_streams_give_the_text_back(which: str, text: str, cut: int, request: pytest.FixtureRequest) -> None:
    tokenizer: Tokenizer = request.getfixturevalue(which)
    single = {coded for coded in tokenizer.token_bytes if len(coded) == 1}
    # SmolLM2 lacks some control bytes; SentencePiece writes U+2581 for a space, and so can't tell the two apart.
    text = "".join(c for c in text.replace("\u2581", " ") if all(bytes([b]) in single for b in c.encode()))
    ids = tokenizer.encode(text)
    assert b"".join(tokenizer.token_bytes[i] for i in ids) == text.encode()
    assert tokenizer.decode(ids) == text
    stream = tokenizer.detokenizer()
    pieces = [stream.push(ids[at : at + cut]) for at in range(0, len(ids), cut)]
    assert "".join(pieces) + stream.finish() == text
    assert all("\ufffd" not in piece for piece in pieces) or "\ufffd" in text


def test_special_tokens_count_only_where_asked(smollm2: Tokenizer) -> None:
    end = smollm2.special["<|im_end|>"]
    assert smollm2.encode("a<|im_end|>", special=True)[-1] == end
    assert end not in smollm2.encode("a<|im_end|>")
    assert smollm2.decode([end]) == "" and smollm2.decode([end], skip_special=False) == "<|im_end|>"
    assert end in smollm2.eos_ids


@pytest.mark.parametrize("which", ["smollm2", "gemma3"])
def test_special_tokens_in_a_text_are_those_that_the_library_finds(which: str, request: pytest.FixtureRequest) -> None:
    import tokenizers

    tokenizer: Tokenizer = request.getfixturevalue(which)
    pieces = tokenizers.Tokenizer(tokenizers.models.WordLevel({"?": 1 << 20}, unk_token="?"))
    pieces.add_special_tokens([tokenizers.AddedToken(name, normalized=False) for name in tokenizer.special])
    rng, names = random.Random(3), [*tokenizer.special, "<", "<|im_", "end|>", "<unused1"]
    for _ in range(500):
        text = "".join(rng.choice([rng.choice(names), random_text(rng)]) for _ in range(6))
        found = pieces.encode(
            text
        )  # a WordLevel of nothing: what isn't special is unknown, one piece between two others
        expected = []
        for token, (begin, end) in zip(found.tokens, found.offsets, strict=True):
            special = tokenizer.special.get(token)
            expected += tokenizer.encode(text[begin:end]) if special is None else [special]
        assert tokenizer.encode(text, special=True) == expected, repr(text)


def test_half_a_character_is_refused(smollm2: Tokenizer) -> None:
    with pytest.raises(InvalidRequest, match="character 2 is half"):
        smollm2.encode("a\u00e4\ud800b")


def test_gemma_s_merges_come_from_the_cache_and_survive_its_loss(
    gemma3_path: Path, gemma3: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = gemma3.encode("Two words, 2 more")
    monkeypatch.setenv("SAPWOOD_HOME", str(tmp_path))
    assert load_tokenizer(gemma3_path).encode("Two words, 2 more") == expected
    (kept,) = (tmp_path / "tokenizers").iterdir()
    monkeypatch.setattr(sentencepiece, "derive", None)
    assert load_tokenizer(gemma3_path).encode("Two words, 2 more") == expected
    monkeypatch.undo()
    monkeypatch.setenv("SAPWOOD_HOME", str(tmp_path))
    kept.write_bytes(kept.read_bytes()[:1000])
    assert load_tokenizer(gemma3_path).encode("Two words, 2 more") == expected
    assert kept.stat().st_size > 1000


def test_the_first_token_comes_once_where_the_model_wants_one(smollm2: Tokenizer, gemma3: Tokenizer) -> None:
    assert gemma3.encode("<bos>hi", special=True, bos=True) == gemma3.encode("hi", bos=True)
    assert gemma3.encode("hi", bos=True)[0] == gemma3.bos_id
    assert smollm2.encode("hi", bos=True) == smollm2.encode("hi")


def test_a_damaged_file_is_one_clear_error(tmp_path: Path, smollm2_path: Path) -> None:
    whole = smollm2_path.read_bytes()[: 1 << 20]
    for size, what in [(0, "empty"), (3, "no GGUF"), (100, "damaged|truncated"), (1 << 20, "damaged|truncated")]:
        file = tmp_path / f"{size}.gguf"
        file.write_bytes(whole[:size])
        with pytest.raises(ModelError, match=what):
            load_tokenizer(file)
