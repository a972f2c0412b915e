"""Masks, rollback, forced bytes and jumps."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from grammar_texts import allowed, follows
from hypothesis import HealthCheck, given, settings, strategies as st

from sapwood.constrained import HuggingFaceVocabulary, Matcher, Vocabulary, compile

PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 6},
        "tags": {
            "type": "array",
            "items": {"enum": ["test", "testing", "日本", 'a"b']},
            "maxItems": 2,
            "uniqueItems": True,
        },
        "test": {"type": "integer", "minimum": 8, "maximum": 120},
    },
    "required": ["name", "test"],
}
SPECS: list[dict[str, Any]] = [
    {"json_schema": PERSON},
    {"json_schema": {**PERSON, "additionalProperties": False}},
    {"json_schema": {"type": "object", "patternProperties": {"^na": {"type": "string", "pattern": "^[a-c]{2,9}$"}}, "additionalProperties": False}},
    {"json_schema": {"oneOf": [{"properties": {"name": {"const": "test"}}}, {"properties": {"name": {"const": "yes"}}, "required": ["me"]}], "type": "object"}},
    {"json_schema": {"type": "array", "uniqueItems": True, "maxItems": 3}},
    {"json_schema": {"type": "string", "pattern": "te.t", "minLength": 5, "maxLength": 12}},
    {"regex": r"(test|testing)\d{2,3}(, \w+)*"},
    {"choices": ["yes", "yes please", "日本", "日"]},
]  # fmt: skip


@settings(max_examples=120, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(spec=st.sampled_from(SPECS), seed=st.integers(0, 1000), compact=st.booleans())
def test_a_mask_holds_exactly_the_tokens_that_are_taken(
    spec: dict[str, Any], seed: int, compact: bool, vocabulary: Vocabulary
) -> None:
    rng = random.Random(seed)
    grammar = compile(spec, vocabulary, whitespace="compact" if compact else "flexible", any_order=not compact)
    matcher = grammar.matcher()
    for _ in range(rng.randrange(12)):
        choices = sorted(allowed(matcher.mask()) - {0})
        if not choices:
            break
        matcher.advance(rng.choice(choices))
    mask = allowed(matcher.mask())
    assert (0 in mask) == matcher.may_end()
    for id in range(len(vocabulary.token_bytes) + 5):
        try:
            matcher.advance(id)
        except ValueError:
            assert id not in mask
        else:
            assert id in mask or compact or "json_schema" not in spec  # detours are left out, but taken
            matcher.rollback(1)
    assert allowed(matcher.mask()) == mask


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: json.dumps(spec)[:50])
def test_rollback_restores_masks_also_beyond_the_end(spec: dict[str, Any], vocabulary: Vocabulary) -> None:
    grammar = compile(spec, vocabulary)
    ids = [*vocabulary.encode(grammar.sample(random.Random(4))), 0]
    matcher, masks = grammar.matcher(), []
    for id in ids:
        masks.append(allowed(matcher.mask()))
        matcher.advance(id)
    assert matcher.is_done()
    for back in (1, 3, len(ids)):
        back = min(back, len(ids))
        matcher.rollback(back)
        assert allowed(matcher.mask()) == masks[len(ids) - back]
        for id in ids[len(ids) - back :]:
            matcher.advance(id)
    with pytest.raises(ValueError, match="rolled back"):
        matcher.rollback(len(ids) + 1)


def test_the_compact_layout_forces_what_the_schema_fixes(vocabulary: Vocabulary) -> None:
    closed = {**PERSON, "additionalProperties": False, "required": ["name", "tags", "test"]}
    matcher = compile({"json_schema": closed}, vocabulary, whitespace="compact", any_order=False).matcher()
    assert matcher.forced() == b'{"name":"'
    for id in vocabulary.encode('{"name":"x",'):
        matcher.advance(id)
    assert matcher.forced() == b'"tags":['
    for id in vocabulary.encode('"tags":["日本",'):
        matcher.advance(id)
    assert matcher.forced() == b'"'
    for id in vocabulary.encode('"test"'):
        matcher.advance(id)
    assert matcher.forced() == b'],"test":'
    for id in vocabulary.encode('],"test":9}'):
        matcher.advance(id)
    assert matcher.is_done()


def test_keys_come_in_the_schema_s_order_or_in_any(vocabulary: Vocabulary) -> None:
    text = '{"test": 10, "name": "x"}'
    assert compile({"json_schema": PERSON}, vocabulary).accepts(text)
    fixed = compile({"json_schema": PERSON}, vocabulary, any_order=False)
    assert not fixed.accepts(text)
    assert fixed.accepts('{"name": "x", "test": 10}')
    assert not fixed.accepts('{"name": "x", "other": 1, "test": 10}')
    assert fixed.accepts('{"name": "x", "test": 10, "other": 1}')
    assert not fixed.accepts('{"name": "x", "test": 10, "name": "x"}')


def write(matcher: Matcher, ids: list[int], vocabulary: Vocabulary, jump: bool) -> tuple[list[int], int]:
    """Write a text token by token, jumping where possible; what is out is canonical after every jump."""
    out: list[int] = []
    jumped = 0
    while len(out) < len(ids):
        tokens = matcher.jump() if jump else []
        for id in tokens or [ids[len(out)]]:
            matcher.advance(id)
            out.append(id)
        jumped += len(tokens)
        if tokens:
            text = b"".join(vocabulary.token_bytes[id] for id in out).decode(errors="replace")
            if not text.endswith("\ufffd"):
                assert vocabulary.encode(text) == out, text
    return out, jumped


def random_schema(rng: random.Random) -> dict[str, Any]:
    words = [
        "name",
        "product name",
        "日本語",
        "it's",
        'a"b',
        "price (€)",
        "x1",
        "12",
        " lead",
        "naïve",
        "emoji 😀",
        "the test",
    ]

    def value(depth: int) -> dict[str, Any]:
        kind = rng.randrange(7 if depth < 2 else 5)
        if kind == 0:
            return {"enum": rng.sample(words, 3)}
        if kind == 1:
            return {"const": rng.choice(words)}
        if kind == 2:
            return {"type": "integer", "minimum": rng.randrange(100), "maximum": 100 + rng.randrange(100)}
        if kind == 3:
            return {
                "type": "string",
                "pattern": rng.choice(["^SKU-[0-9]{4}$", "^[a-c]+ and [d-f]+$", "^(yes|yes please)$"]),
            }
        if kind == 4:
            return {"type": "boolean"}
        if kind == 5:
            return {"type": "array", "items": value(depth + 1), "minItems": 1, "maxItems": 3}
        keys = rng.sample(words, rng.randrange(1, 5))
        properties = {key: value(depth + 1) for key in keys}
        return {"type": "object", "properties": properties, "required": keys, "additionalProperties": False}

    return {
        "type": "object",
        "properties": {"root": value(0), "end": value(1)},
        "required": ["root", "end"],
        "additionalProperties": False,
    }


def byte_level(model: Any) -> Any:
    """A tokenizer over bytes for a BPE."""
    from tokenizers import Tokenizer, decoders, pre_tokenizers

    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


@pytest.fixture(scope="module")
def subwords() -> Vocabulary:
    """A byte-level BPE with real merges, trained on the spot."""
    from tokenizers import models, pre_tokenizers, trainers

    tokenizer = byte_level(models.BPE())
    rng = random.Random(0)
    corpus = [json.dumps(random_schema(rng), ensure_ascii=rng.random() < 0.2) for _ in range(300)]
    corpus += [text.replace(": ", ":").replace(", ", ",") for text in corpus]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=900, special_tokens=["<end>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(corpus, trainer)
    return HuggingFaceVocabulary(tokenizer, [0])


def test_jumps_keep_two_hundred_schemas_canonical_and_change_no_token(subwords: Vocabulary) -> None:
    rng = random.Random(1)
    jumped = total = 0
    for _ in range(200):
        grammar = compile({"json_schema": random_schema(rng)}, subwords, whitespace="compact", any_order=False)
        text = grammar.sample(rng, length=200)
        ids = subwords.encode(text)
        with_jumps, count = write(grammar.matcher(), ids, subwords, jump=True)
        without, _ = write(grammar.matcher(), ids, subwords, jump=False)
        assert with_jumps == without == ids
        assert follows(grammar, text, subwords), text  # no detours are left out that the tokenizer takes
        jumped, total = jumped + count, total + len(ids)
    assert jumped > total / 3


def test_nothing_is_jumped_that_a_longer_token_could_still_swallow(vocabulary: Vocabulary) -> None:
    matcher = compile({"regex": "testing?|tests"}, vocabulary).matcher()
    assert matcher.forced() == b"test"
    assert matcher.jump() == []  # `testing` is a token
    assert compile({"regex": "test[sx]"}, vocabulary).matcher().jump() == vocabulary.encode("test")


def test_a_jump_never_ends_inside_a_character(vocabulary: Vocabulary) -> None:
    matcher = compile({"choices": ["é1", "è1"]}, vocabulary).matcher()
    assert matcher.forced() == b"\xc3"
    assert matcher.jump() == []


def test_the_end_is_allowed_only_where_the_text_is_complete(vocabulary: Vocabulary) -> None:
    matcher = compile({"regex": "ab?"}, vocabulary).matcher()
    with pytest.raises(ValueError, match="not allowed"):
        matcher.advance(0)
    matcher.advance(vocabulary.encode("a")[0])
    matcher.advance(0)
    assert matcher.is_done() and allowed(matcher.mask()) == {0} and matcher.jump() == [] and matcher.forced() == b""


def test_a_token_beyond_the_vocabulary_is_never_allowed(vocabulary: Vocabulary) -> None:
    mask = compile({"json_schema": True}, vocabulary).matcher().mask()
    assert len(mask) == (vocabulary.vocab_size + 31) // 32
    assert max(allowed(mask)) < len(vocabulary.token_bytes)


def test_masks_of_a_fixed_layout_leave_out_detours_from_the_tokenizer_s_way(vocabulary: Vocabulary) -> None:
    schema = {
        "type": "object",
        "properties": {"name": {"const": "test"}},
        "required": ["name"],
        "additionalProperties": False,
    }
    compact = compile({"json_schema": schema}, vocabulary, whitespace="compact", any_order=False).matcher()
    assert allowed(compact.mask()) == set(vocabulary.encode('{"'))  # not "{", which `"` would have to follow
    flexible = compile({"json_schema": schema}, vocabulary).matcher()
    assert allowed(flexible.mask()) == set(vocabulary.encode("{") + vocabulary.encode('{"'))
    compact.advance(vocabulary.encode("{")[0])  # taken all the same
    assert compact.forced().startswith(b'"name"') and compact.jump() == []


def test_a_token_is_a_detour_if_whatever_may_follow_makes_it_another(vocabulary: Vocabulary) -> None:
    mask = compile({"regex": "x( a| 1)!"}, vocabulary).matcher()
    mask.advance(vocabulary.encode("x")[0])
    assert allowed(mask.mask()) == {*vocabulary.encode(" a"), *vocabulary.encode(" 1")}  # not the blank alone
    open_end = compile({"regex": "x( a| 1| z)!"}, vocabulary).matcher()
    open_end.advance(vocabulary.encode("x")[0])
    assert set(vocabulary.encode(" ")) < allowed(open_end.mask())  # " z" is no token


@pytest.fixture(scope="module")
def joining() -> Vocabulary:
    """A BPE that joins a quote with the colon before it, but rather with a full stop behind it."""
    from tokenizers import models, pre_tokenizers

    merges = [('"', ":"), ('"', "."), ('":', '"'), ("{", '"')]
    tokens = ["<end>", *sorted(pre_tokenizers.ByteLevel.alphabet()), *(left + right for left, right in merges)]
    model = models.BPE(vocab={token: id for id, token in enumerate(tokens)}, merges=merges)
    return HuggingFaceVocabulary(byte_level(model), [0])


@pytest.mark.parametrize("other_keys", [True, False])
def test_what_may_join_a_text_s_first_character_is_no_detour(joining: Vocabulary, other_keys: bool) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string"}},
        "required": ["a"],
        "additionalProperties": other_keys,
    }
    grammar = compile({"json_schema": schema}, joining, whitespace="compact", any_order=False)
    pieces = {text: [joining.token_bytes[id] for id in joining.encode(text)] for text in ('{"a":"b', '{"a":".b')}
    assert pieces == {'{"a":"b': [b'{"', b"a", b'":"', b"b"], '{"a":".b': [b'{"', b"a", b'":', b'".', b"b"]}
    assert all(follows(grammar, text + '"}', joining) for text in pieces)
    matcher = grammar.matcher()
    for id in joining.encode('{"a'):
        matcher.advance(id)
    assert joining.token_bytes.index(b'"') not in allowed(matcher.mask())  # the colon joins it in any case


def test_text_that_the_model_cut_its_own_way_does_not_end_jumping(vocabulary: Vocabulary) -> None:
    matcher = compile({"regex": "x( a| 1)!test[,x]"}, vocabulary).matcher()
    for token in (b"x", b" ", b"a"):
        matcher.advance(vocabulary.token_bytes.index(token))
    assert matcher.jump() == vocabulary.encode("!test")
    unfinished = compile({"regex": "tests?"}, vocabulary).matcher()
    unfinished.advance(vocabulary.token_bytes.index(b"t"))
    assert unfinished.forced() == b"est" and unfinished.jump() == []  # "t" would not stay what it is


def test_any_way_to_cut_a_valid_text_is_taken(vocabulary: Vocabulary) -> None:
    grammar = compile({"json_schema": PERSON}, vocabulary, whitespace="compact", any_order=False)
    text = b'{"name":"\\\\,y","tags":["testing"],"test":100}'
    ids = {token: id for id, token in enumerate(vocabulary.token_bytes) if token}
    rng = random.Random(0)
    for _ in range(50):
        matcher, at = grammar.matcher(), 0
        while at < len(text):
            token = rng.choice([text[at:end] for end in range(at + 1, len(text) + 1) if text[at:end] in ids])
            matcher.advance(ids[token])  # also where the mask leaves it out
            at += len(token)
        assert matcher.is_done()
