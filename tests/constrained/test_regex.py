"""Regular expressions mean what Python's `re`, or ECMAScript for JSON Schema, means by them."""

from __future__ import annotations

import re

import pytest
from grammar_texts import Accepts
from hypothesis import HealthCheck, given, settings, strategies as st

from sapwood.constrained import GrammarError, Vocabulary, compile

PATTERNS = [
    "", "a|", "a{2,3}", "a{2}", "a{,2}", "a{2,}", "(?:ab)*c?", "[^a-c]", "[]a]", "[a-]", r"[\w-]+", r"\d+\.\d*", r"\bab\b", r"a\Bb",
    "(?i)aB", "(?i:a)B", "(?s).", ".", "(?x) a b # c", "(?m)^a$", "a(?=b)b", "a(?!b).", "(?<=a)b|ab", "(?<!a)b|cb", "(?=.*b)a+b*",
    r"(?:(?!ab).)*", "^a$", "^^a", "a$b", "(a*)*b", "((a|b)*)*", "(?:a?){3}", r"\x61\u0062", r"é+|日", "[é-ü]", r"[\s\S]", "a+",
    r"\Aab\Z", "(?P<n>a)b", "(?#x)a", "[a-z&]", r"\.|\\|\/", "x{", "x{a}", "2}",
]  # fmt: skip
TEXTS = ["", "a", "b", "c", "ab", "abc", "aa", "aaa", "aaaa", "aab", "bb", "cb", "-", "]", "1.5", "1.", "AB", "aB", "Ab", "a\nb", "\n",
         "é", "ééé", "日", "ü", " ", "a b", "x{", "x{a}", "2}", ".", "\\", "/", "aaab", "ba"]  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_matches_what_python_matches(pattern: str, vocabulary: Vocabulary) -> None:
    grammar = compile({"regex": pattern}, vocabulary)
    wrong = [text for text in TEXTS if grammar.accepts(text) != bool(re.fullmatch(pattern, text))]
    assert not wrong


PIECES = st.recursive(
    st.sampled_from(["a", "b", "[ab]", ".", "[^a]", "^", "$", r"\b", "(?=a)", "(?!b)", "(?<=a)"]),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: "(?:" + "|".join(parts) + ")"),
        st.tuples(inner, st.sampled_from(["*", "+?", "?", "{2}", "{1,2}"])).map(lambda two: f"(?:{two[0]}){two[1]}"),
    ),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(pattern=PIECES, text=st.text("abc", max_size=5))
def test_any_pattern_matches_what_python_matches(pattern: str, text: str, vocabulary: Vocabulary) -> None:
    assert compile({"regex": pattern}, vocabulary).accepts(text) == bool(re.fullmatch(pattern, text)), (pattern, text)


@pytest.mark.parametrize(
    ("pattern", "text", "right"),
    [
        (r"^\p{Lu}\p{Script=Greek}+$", "Αβγ", True), (r"^\p{L}+$", "a1", False), (r"^\P{L}$", "1", True), (r"^\cC$", "\x03", True),
        (r"^\d$", "१", False), (r"^\w$", "é", False), (r"^\s$", "\ufeff", True), (r"^\u{1F600}$", "😀", True), (r"^[^]$", "\n", True),
        (r"^(?<year>\d{4})$", "2024", True), ("^a{,2}$", "a{,2}", True), (r"\-\_", "-_", True), (r"^[\d-z]$", "-", True),
    ],
)  # fmt: skip
def test_schemas_have_the_dialect_of_ecmascript(pattern: str, text: str, right: bool, accepts: Accepts) -> None:
    assert accepts({"type": "string", "pattern": pattern}, text) == right


@pytest.mark.parametrize(
    ("pattern", "where"),
    [("a(b", 1), ("ab)", 2), ("[a", 0), ("*a", 0), ("a{3,2}", 1), (r"(a)\1", 3), ("a(?P=n)", 1), ("(?(1)a)", 0), ("a\\", 1),
     (r"\p{Nonsense}", 0), ("[b-a]", 1), ("a*+", 1), (r"\q", 0)],
)  # fmt: skip
def test_an_error_points_at_the_offset(pattern: str, where: int, vocabulary: Vocabulary) -> None:
    with pytest.raises(GrammarError) as error:
        compile({"regex": pattern}, vocabulary)
    assert error.value.where == where
    assert str(error.value).splitlines()[-1] == "  " + " " * where + "^"
