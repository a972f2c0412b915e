r"""Reads regular expressions of Python's `re` and of ECMAScript (JSON Schema's `pattern`).

Everything that describes a regular language is read: lazy quantifiers (the same language), classes, `\p{...}`, anchors
anywhere, look-around, `\b`, bounded repeats, flags and case-insensitive groups. Back-references, conditionals and
recursion are errors with the offset of the offending part. Knows nothing of automata.
"""

from __future__ import annotations

from typing import Literal

from sapwood.constrained.regex.tree import Alt, Begin, Cat, End, Look, Node, Repeat, Set
from sapwood.constrained.regex.unicode import (
    ALL,
    ASCII_DIGITS,
    ASCII_WORD,
    ECMA_SPACES,
    LINE_ENDS,
    Ranges,
    complement,
    fold_case,
    named,
    python_digits,
    python_spaces,
    python_word,
    union,
)  # fmt: skip
from sapwood.errors import GrammarError

Dialect = Literal["python", "ecma"]

MAX_DEPTH = 100  # groups in groups
EMPTY = Cat(())
CONTROL = {"n": 10, "t": 9, "r": 13, "f": 12, "v": 11}


def parse(pattern: str, dialect: Dialect) -> Node:
    """The tree of a pattern. Raises GrammarError with `where` the offset of what is wrong."""
    return _Parser(pattern, dialect).parse()


class _Parser:
    def __init__(self, pattern: str, dialect: Dialect) -> None:
        self.text = pattern
        self.at = 0
        self.python = dialect == "python"
        self.flags = frozenset[str]()  # of i, s, m, x, a
        self.depth = 0

    def parse(self) -> Node:
        if self.python and self.text.startswith("(?"):
            close = self.text.find(")")
            if close > 0 and self.text[2:close].isalpha():  # global flags
                self.flags = self._checked_flags(self.text[2:close], 2)
                self.at = close + 1
        node = self.alternatives()
        if self.at < len(self.text):
            raise self.error("unbalanced parenthesis")
        return node

    def error(self, message: str, at: int | None = None) -> GrammarError:
        at = self.at if at is None else at
        begin = max(0, at - 40)
        line = self.text[begin : at + 40].replace("\n", " ")
        return GrammarError(f"{message} at offset {at} of the pattern\n  {line}\n  {' ' * (at - begin)}^", at)

    def peek(self, text: str) -> bool:
        return self.text.startswith(text, self.at)

    def take(self, text: str) -> bool:
        if self.peek(text):
            self.at += len(text)
            return True
        return False

    # Structure

    def alternatives(self) -> Node:
        ways = [self.sequence()]
        while self.take("|"):
            ways.append(self.sequence())
        return ways[0] if len(ways) == 1 else Alt(tuple(ways))

    def sequence(self) -> Node:
        nodes: list[Node] = []
        while self.at < len(self.text) and not self.peek("|") and not self.peek(")"):
            if "x" in self.flags and self.skip_verbose():
                continue
            nodes.append(self.quantified(self.atom()))
        return nodes[0] if len(nodes) == 1 else Cat(tuple(nodes))

    def skip_verbose(self) -> bool:
        if self.text[self.at].isspace():
            self.at += 1
            return True
        if self.take("#"):
            end = self.text.find("\n", self.at)
            self.at = len(self.text) if end < 0 else end + 1
            return True
        return False

    def quantified(self, node: Node) -> Node:
        while True:
            start = self.at
            bounds = self.quantifier()
            if bounds is None:
                return node
            if self.peek("+") and self.python:
                raise self.error("possessive quantifiers are not supported", start)
            self.take("?")  # lazy: the same language
            low, high = bounds
            if isinstance(node, (Begin, End, Look)):
                node = node if low > 0 else EMPTY if high == 0 else Alt((node, EMPTY))
            else:
                node = EMPTY if high == 0 else Repeat(node, low, high)

    def quantifier(self) -> tuple[int, int | None] | None:
        if self.take("*"):
            return 0, None
        if self.take("+"):
            return 1, None
        if self.take("?"):
            return 0, 1
        if not self.peek("{"):
            return None
        close = self.text.find("}", self.at)
        low, comma, high = self.text[self.at + 1 : max(close, self.at + 1)].partition(",")
        digits = (low.isascii() and low.isdigit(), high.isascii() and high.isdigit())
        if close < 0 or not (digits[0] or (self.python and comma and not low)) or not (digits[1] or not high):
            return None  # a literal brace
        bounds = int(low or 0), (int(high) if high else None) if comma else int(low)
        if bounds[1] is not None and bounds[1] < bounds[0]:
            raise self.error("the repeat's bounds are out of order")
        self.at = close + 1
        return bounds

    def atom(self) -> Node:
        c = self.text[self.at]
        match c:
            case "(":
                return self.group()
            case "[":
                self.at += 1
                return self.set(self.char_class())
            case ".":
                self.at += 1
                ends = [(10, 10)] if self.python else LINE_ENDS
                return Set(ALL if "s" in self.flags else complement(ends))
            case "^":
                self.at += 1
                return self.line_begin() if "m" in self.flags else Begin()
            case "$":
                self.at += 1
                return self.line_end() if "m" in self.flags else End()
            case "\\":
                return self.escape()
            case "*" | "+" | "?":
                raise self.error("nothing to repeat")
        self.at += 1
        return self.set([(ord(c), ord(c))])

    def set(self, ranges: Ranges) -> Set:
        return Set(fold_case(ranges) if "i" in self.flags else ranges)

    def line_begin(self) -> Node:
        return Alt((Begin(), Look(Set([(10, 10)] if self.python else LINE_ENDS), behind=True, negative=False)))

    def line_end(self) -> Node:
        return Alt((End(), Look(Set([(10, 10)] if self.python else LINE_ENDS), behind=False, negative=False)))

    # Groups

    def group(self) -> Node:
        start = self.at
        self.at += 1
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.error(f"groups are nested more than {MAX_DEPTH} deep", start)
        outer = self.flags
        node = self.after_parenthesis(start)
        self.flags = outer
        self.depth -= 1
        return node

    def after_parenthesis(self, start: int) -> Node:
        looks = {"?=": (False, False), "?!": (False, True), "?<=": (True, False), "?<!": (True, True)}
        for opening, (behind, negative) in sorted(looks.items(), key=lambda item: -len(item[0])):
            if self.take(opening):
                return Look(self.closed(start), behind, negative)
        if self.take("?#"):
            end = self.text.find(")", self.at)
            if end < 0:
                raise self.error("the comment is not closed", start)
            self.at = end + 1
            return EMPTY
        if self.take("?:"):
            return self.closed(start)
        if self.take("?P<") or self.take("?<"):
            close = self.text.find(">", self.at)
            if close < 0 or not self.text[self.at : close].isidentifier():
                raise self.error("the group's name is malformed")
            self.at = close + 1
            return self.closed(start)
        for opening, what in (("?P=", "back-references"), ("?(", "conditionals"), ("?>", "atomic groups")):
            if self.peek(opening):
                raise self.error(f"{what} are not supported: they don't describe a regular language", start)
        if self.take("?"):
            return self.flag_group(start)
        return self.closed(start)

    def flag_group(self, start: int) -> Node:
        begin = self.at
        while self.at < len(self.text) and (self.text[self.at].isalpha() or self.text[self.at] == "-"):
            self.at += 1
        on, _, off = self.text[begin : self.at].partition("-")
        self.flags = (self.flags | self._checked_flags(on, begin)) - self._checked_flags(off, begin)
        if not self.take(":"):
            raise self.error("unknown extension of a group", start)
        return self.closed(start)

    def _checked_flags(self, flags: str, at: int) -> frozenset[str]:
        unknown = set(flags) - set("ismxau")
        if unknown:
            raise self.error(f"the flag {min(unknown)!r} is not supported", at)
        return frozenset(flags) - {"u"}

    def closed(self, start: int) -> Node:
        node = self.alternatives()
        if not self.take(")"):
            raise self.error("the group is not closed", start)
        return node

    # Escapes and classes

    def escape(self) -> Node:
        start = self.at
        c = self.text[self.at + 1 : self.at + 2]
        if c in ("b", "B"):
            self.at += 2
            return self.word_border(c == "B")
        if self.python and c in ("A", "Z"):
            self.at += 2
            return Begin() if c == "A" else End()
        if c and (c in "123456789" or (c == "k" and not self.python)):
            raise self.error("back-references are not supported: they don't describe a regular language", start)
        return self.set(self.escaped_set(in_class=False))

    def word_border(self, negative: bool) -> Node:
        word = Set(self.word())
        ways = []
        for before in (False, True):
            after = before == negative
            ways.append(Cat((Look(word, True, not before), Look(word, False, not after))))
        return Alt(tuple(ways))

    def word(self) -> Ranges:
        return python_word() if self.python and "a" not in self.flags else ASCII_WORD

    def escaped_set(self, in_class: bool) -> Ranges:
        start = self.at
        self.at += 2
        if self.at > len(self.text):
            raise self.error("a backslash at the end", start)
        c = self.text[self.at - 1]
        unicode = self.python and "a" not in self.flags
        if c in "dD":
            ranges = python_digits() if unicode else ASCII_DIGITS
        elif c in "wW":
            ranges = self.word()
        elif c in "sS":
            ranges = python_spaces() if unicode else [(9, 13), (32, 32)] if self.python else ECMA_SPACES
        elif c in "pP":
            ranges = self.property(start)
        else:
            code = self.escaped_code(c, in_class, start)
            return [(code, code)]
        return complement(ranges) if c.isupper() else ranges

    def property(self, start: int) -> Ranges:
        if self.take("{"):
            close = self.text.find("}", self.at)
            if close < 0:
                raise self.error("the property is not closed", start)
            name = self.text[self.at : close]
            self.at = close + 1
        else:
            name = self.text[self.at : self.at + 1]
            self.at += 1
        inverted = name.startswith("^")
        ranges = named(name.removeprefix("^"))
        if ranges is None:
            raise self.error(f"the Unicode property {name!r} is not known", start)
        return complement(ranges) if inverted else ranges

    def escaped_code(self, c: str, in_class: bool, start: int) -> int:
        if c in CONTROL:
            return CONTROL[c]
        if c == "a" and self.python:
            return 7
        if c == "b" and in_class:
            return 8
        if c == "0":
            while self.python and self.text[self.at : self.at + 1] in tuple("01234567"):
                self.at += 1
            return int(self.text[start + 1 : self.at], 8)
        if c == "x":
            return self.hexadecimal(2, start)
        if c == "u":
            return self.unicode_escape(start)
        if c == "U" and self.python:
            return self.hexadecimal(8, start)
        if c == "c" and not self.python and self.text[self.at : self.at + 1].isalpha():
            self.at += 1
            return ord(self.text[self.at - 1]) % 32
        if c.isascii() and c.isalnum() and (self.python or c in "123456789"):
            raise self.error(f"bad escape \\{c}", start)
        return ord(c)

    def unicode_escape(self, start: int) -> int:
        if not self.python and self.take("{"):
            close = self.text.find("}", self.at)
            digits = self.text[self.at : max(close, self.at)]
            self.at = close + 1
            try:
                return min(int(digits, 16), 0x10FFFF)
            except ValueError:
                raise self.error("bad escape \\u{", start) from None
        code = self.hexadecimal(4, start)
        if 0xD800 <= code < 0xDC00 and self.text.startswith("\\u", self.at):
            here = self.at
            self.at += 2
            low = self.hexadecimal(4, start)
            if 0xDC00 <= low < 0xE000:
                return 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)
            self.at = here
        return code

    def hexadecimal(self, size: int, start: int) -> int:
        digits = self.text[self.at : self.at + size]
        if len(digits) < size or any(d not in "0123456789abcdefABCDEF" for d in digits):
            raise self.error("bad escape: hexadecimal digits expected", start)
        self.at += size
        return int(digits, 16)

    def char_class(self) -> Ranges:
        start = self.at - 1
        negative = self.take("^")
        ranges: Ranges = []
        first = self.at
        while not (self.peek("]") and (self.at > first or not self.python)):
            if self.at >= len(self.text):
                raise self.error("the class is not closed", start)
            item = self.at
            low = self.class_item()
            if self.peek("-") and self.at + 1 < len(self.text) and self.text[self.at + 1] != "]":
                self.at += 1
                high = self.class_item()
                if len(low) == 1 and len(high) == 1 and low[0][0] == low[0][1] and high[0][0] == high[0][1]:
                    if high[0][0] < low[0][0]:
                        raise self.error("the range is out of order", item)
                    low = [(low[0][0], high[0][0])]
                elif self.python:
                    raise self.error("a class can't be the end of a range", item)
                else:
                    low = low + [(45, 45)] + high
            ranges += low
        self.at += 1
        folded = fold_case(union(ranges)) if "i" in self.flags else union(ranges)
        return complement(folded) if negative else folded

    def class_item(self) -> Ranges:
        if self.peek("\\"):
            return self.escaped_set(in_class=True)
        self.at += 1
        return [(ord(self.text[self.at - 1]),) * 2]
