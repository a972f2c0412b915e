"""Sets of code points as sorted, disjoint, inclusive ranges, and the named ones that regular expressions use."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable
from functools import cache
from itertools import groupby

import numpy as np

Ranges = list[tuple[int, int]]

LAST = 0x10FFFF
ALL: Ranges = [(0, LAST)]
ASCII_DIGITS: Ranges = [(48, 57)]
ASCII_WORD: Ranges = [(48, 57), (65, 90), (95, 95), (97, 122)]
LINE_ENDS: Ranges = [(10, 10), (13, 13), (0x2028, 0x2029)]  # of ECMAScript
# ECMAScript's WhiteSpace and LineTerminator.
ECMA_SPACES: Ranges = [
    (9, 13), (32, 32), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029), (0x202F, 0x202F),
    (0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF),
]  # fmt: skip


def union(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Any ranges as sorted, disjoint ones."""
    out: Ranges = []
    for low, high in sorted(ranges):
        if out and low <= out[-1][1] + 1:
            if high > out[-1][1]:
                out[-1] = (out[-1][0], high)
        else:
            out.append((low, high))
    return out


def complement(ranges: Ranges) -> Ranges:
    out: Ranges = []
    start = 0
    for low, high in ranges:
        if low > start:
            out.append((start, low - 1))
        start = high + 1
    if start <= LAST:
        out.append((start, LAST))
    return out


# Beyond these code points Unicode has assigned nothing but private use.
LAST_ASSIGNED = 0x323AF
TAGS = (0xE0000, 0xE01EF)
PRIVATE = ((0xF0000, 0xFFFFD), (0x100000, 0x10FFFD))


@cache
def _characters() -> str:
    """All code points that are worth looking at, in order."""
    codes = [*range(LAST_ASSIGNED + 1), *range(TAGS[0], TAGS[1] + 1)]
    return np.array(codes, "<u4").tobytes().decode("utf-32-le", "surrogatepass")


def _where(holds: Callable[[str], bool]) -> Ranges:
    """The characters that `holds` is true of."""
    return union((ord(c), ord(c)) for c in _characters() if holds(c))


def _matching(pattern: str) -> Ranges:
    """The characters that a class of Python's `re` matches: what Python says, by Python."""
    runs = (run.group() for run in re.finditer(pattern + "+", _characters()))
    return union(pair for run in runs for pair in _split(run))


def _split(run: str) -> Ranges:
    """The ranges of a run of `_characters()`, which has one gap."""
    if ord(run[0]) <= LAST_ASSIGNED < ord(run[-1]):
        return [(ord(run[0]), LAST_ASSIGNED), (TAGS[0], ord(run[-1]))]
    return [(ord(run[0]), ord(run[-1]))]


@cache
def _categories() -> dict[str, Ranges]:
    """Ranges of each two-letter general category."""
    out: dict[str, Ranges] = {}
    for category, run in groupby(_characters(), unicodedata.category):
        out.setdefault(category, []).extend(_split("".join(run)))
    out["Co"] = union([*out.get("Co", []), *PRIVATE])
    known = union(pair for category, ranges in out.items() if category != "Cn" for pair in ranges)
    out["Cn"] = complement(known)
    return out


@cache
def python_word() -> Ranges:
    r"""`\w` of Python's str patterns."""
    return _matching(r"\w")


@cache
def python_digits() -> Ranges:
    r"""`\d` of Python's str patterns."""
    return _matching(r"\d")


@cache
def python_spaces() -> Ranges:
    r"""`\s` of Python's str patterns."""
    return _matching(r"\s")


LONG_NAMES = {
    "Letter": "L", "Lowercase_Letter": "Ll", "Uppercase_Letter": "Lu", "Titlecase_Letter": "Lt", "Modifier_Letter": "Lm",
    "Other_Letter": "Lo", "Mark": "M", "Nonspacing_Mark": "Mn", "Spacing_Mark": "Mc", "Enclosing_Mark": "Me",
    "Number": "N", "Decimal_Number": "Nd", "digit": "Nd", "Letter_Number": "Nl", "Other_Number": "No",
    "Punctuation": "P", "punct": "P", "Connector_Punctuation": "Pc", "Dash_Punctuation": "Pd", "Open_Punctuation": "Ps",
    "Close_Punctuation": "Pe", "Initial_Punctuation": "Pi", "Final_Punctuation": "Pf", "Other_Punctuation": "Po",
    "Symbol": "S", "Math_Symbol": "Sm", "Currency_Symbol": "Sc", "Modifier_Symbol": "Sk", "Other_Symbol": "So",
    "Separator": "Z", "Space_Separator": "Zs", "Line_Separator": "Zl", "Paragraph_Separator": "Zp",
    "Other": "C", "Control": "Cc", "cntrl": "Cc", "Format": "Cf", "Surrogate": "Cs", "Private_Use": "Co",
    "Unassigned": "Cn", "Cased_Letter": "LC",
}  # fmt: skip

# Scripts by the first word of their characters' names, which is what `unicodedata` has of them.
SCRIPTS = {
    "Latin": "LATIN ", "Greek": "GREEK ", "Cyrillic": "CYRILLIC ", "Hebrew": "HEBREW ", "Arabic": "ARABIC ",
    "Devanagari": "DEVANAGARI ", "Thai": "THAI ", "Hangul": "HANGUL ", "Hiragana": "HIRAGANA ", "Katakana": "KATAKANA ",
    "Han": "CJK ", "Armenian": "ARMENIAN ", "Georgian": "GEORGIAN ", "Bengali": "BENGALI ", "Tamil": "TAMIL ",
}  # fmt: skip


@cache
def named(name: str) -> Ranges | None:
    r"""The characters of `\p{name}`; None if the name is not known."""
    key, _, value = name.partition("=")
    if value and key in ("Script", "sc", "Script_Extensions", "scx"):
        prefix = SCRIPTS.get(value)
        return prefix and _where(lambda c: c.isalpha() and unicodedata.name(c, "").startswith(prefix)) or None
    short = value if value and key in ("General_Category", "gc") else name
    short = LONG_NAMES.get(short, short)
    if short == "LC":
        return union(r for c in ("Lu", "Ll", "Lt") for r in _categories()[c])
    found = [ranges for category, ranges in _categories().items() if category == short or category[0] == short]
    if found:
        return union(r for ranges in found for r in ranges)
    others: dict[str, Callable[[], Ranges]] = {
        "Any": lambda: ALL,
        "ASCII": lambda: [(0, 127)],
        "Alphabetic": lambda: _where(str.isalpha),
        "Alpha": lambda: _where(str.isalpha),
        "Lowercase": lambda: _where(str.islower),
        "Uppercase": lambda: _where(str.isupper),
        "White_Space": python_spaces,
        "ASCII_Hex_Digit": lambda: [(48, 57), (65, 70), (97, 102)],
    }
    return others[name]() if name in others else None


@cache
def _case_groups() -> dict[int, tuple[int, ...]]:
    """For each character with case: all that differ from it in nothing else."""
    groups: dict[str, set[int]] = {}
    for char in _characters():
        code = ord(char)
        if char.lower() != char or char.upper() != char:
            for other in (char.lower(), char.upper()):
                if len(other) == 1:
                    groups.setdefault(other.lower(), set()).update((code, ord(other)))
    return {code: tuple(sorted(group)) for group in groups.values() for code in group}


def fold_case(ranges: Ranges) -> Ranges:
    """With every character also those that differ from it by case only."""
    ascii_only = all(high < 128 for _, high in ranges)
    extra: Ranges = []
    if ascii_only:
        for low, high in ranges:
            extra += [(c ^ 32, c ^ 32) for c in range(low, high + 1) if chr(c).isalpha()]
        # Unicode's two characters whose lower case is ASCII: the Kelvin sign and the long s
        extra += [(0x212A, 0x212A) for low, high in ranges + extra if low <= ord("k") <= high]
        extra += [(0x17F, 0x17F) for low, high in ranges + extra if low <= ord("s") <= high]
        return union(ranges + extra)
    groups = _case_groups()
    for low, high in ranges:
        if high - low > len(groups):
            extra += [(o, o) for code, group in groups.items() if low <= code <= high for o in group]
        else:
            extra += [(o, o) for code in range(low, high + 1) for o in groups.get(code, ())]
    return union(ranges + extra)
