"""Tool calls in Python's syntax, `[get_weather(city="Oslo", days=[1, 2]), now()]`: their grammar, their spelling, their values.

As Llama 4 and others are trained to write them. An answer is either one list of calls or text. Strings are written as in
JSON, which Python reads alike; true, false and null are spelled True, False and None.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from sapwood.runtime.server.errors import invalid
from sapwood.runtime.server.schemas import moved

ABOUT = frozenset({"title", "description", "default", "examples", "$comment", "deprecated", "readOnly", "writeOnly"})
CALL = frozenset({"type", "properties", "required", "additionalProperties", "$defs", "definitions", "$schema", "$id"})
LIST = frozenset({"type", "items", "minItems", "maxItems"})
LAYOUT = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
Thought = Literal["none", "possible", "open"]
NAMES = {"true": True, "false": False, "null": None}


def calls_grammar(schemas: Mapping[str, Any], *, text: bool, several: bool, thought: Thought = "none") -> str:
    """A Lark grammar of a list of calls; `schemas` are the JSON Schemas of the arguments, by tool.

    `text`: instead of calls the answer may be any text that doesn't begin like one, and a `thought` in think tags may
    precede either: "open" if its tag is open already. Raises ApiError for a schema that says more of the arguments than
    which there are.
    """
    rules = _Rules()
    blanks = "\\s*" if text else ""
    begins = [f"/{blanks}\\[{_pattern(name)}\\(/" for name in schemas]  # terminals: text competes with all of one
    ends = [f"{rules.arguments(name, schema)} {_quoted(')')}" for name, schema in schemas.items()]
    rules.add("first", " | ".join(f"{begin} {end}" for begin, end in zip(begins, ends, strict=True)))
    more = [f"{_quoted(f', {name}(')} {end}" for name, end in zip(schemas, ends, strict=True)]
    rules.add("calls", f"first ({' | '.join(more)})* {_quoted(']')}" if several else f"first {_quoted(']')}")
    if not text:
        return rules.lark("calls")
    any_name = "|".join(map(_pattern, schemas))
    rules.add("TEXT", f"/(?s:.*)/ & ~/\\s*\\[({any_name})\\((?s:.*)/")
    rules.add("answer", "calls | TEXT")
    if thought == "none":
        return rules.lark("answer")
    if thought == "open":  # only its end leads to an answer
        rules.add("thought[lazy]", '/(?s:.*)/ "</think>"')
        rules.add("UNFINISHED", "/(?s:.*)/")
        return rules.lark("thought answer | UNFINISHED")
    rules.add("thought[lazy]", '/\\s*<think>(?s:.*)/ "</think>"')
    return rules.lark("thought? answer")


def rest_of_call_grammar(name: str, schema: Any) -> str:
    """A Lark grammar of what follows `[name(` if one call is all."""
    rules = _Rules()
    return rules.lark(f"{rules.arguments(name, schema)} {_quoted(')]')}")


def spelled_calls(calls: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """Calls, as (name, arguments), as the model would write them."""
    written = [
        f"{name}({', '.join(f'{key}={spelled(value)}' for key, value in arguments.items())})"
        for name, arguments in calls
    ]
    return f"[{', '.join(written)}]"


def spelled(value: Any) -> str:
    """A JSON value in Python's spelling."""
    if isinstance(value, list):
        return f"[{', '.join(map(spelled, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_quoted(str(key))}: {spelled(part)}" for key, part in value.items()) + "}"
    if value is None or isinstance(value, bool):
        return str(value)
    return json.dumps(value, ensure_ascii=False)


def value_of(text: str) -> Any:
    """The JSON value that a Python or JSON literal stands for. Raises ValueError."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes that Python doesn't know
            return _value(ast.parse(text.strip(), mode="eval").body, text.strip())
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"{text!r} is no literal: {error}") from None


def _value(node: ast.expr, source: str) -> Any:
    if isinstance(node, (ast.List, ast.Tuple)):
        return [_value(part, source) for part in node.elts]
    if isinstance(node, ast.Dict):
        keys = [_value(key, source) if key else None for key in node.keys]
        return {str(key): _value(part, source) for key, part in zip(keys, node.values, strict=True)}
    if isinstance(node, ast.Name) and node.id in NAMES:
        return NAMES[node.id]
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        try:  # JSON's escapes are not all Python's
            return json.loads(ast.get_source_segment(source, node) or "", strict=False)
        except ValueError:
            return node.value
    value = ast.literal_eval(node)
    if value is not None and not isinstance(value, (bool, int, float)):
        raise ValueError(f"a {type(value).__name__} is no JSON value")
    return value


class _Rules:
    """Rules of a Lark grammar, one for each schema that needs a name."""

    def __init__(self) -> None:
        self._rules: dict[str, str] = {}
        self._references: dict[tuple[int, str], str] = {}

    def lark(self, start: str) -> str:
        """The grammar as text."""
        return "\n".join(f"{name}: {body}" for name, body in {"start": start, **self._rules}.items())

    def add(self, name: str, body: str) -> str:
        """A rule by name."""
        self._rules[name] = body
        return name

    def new(self, body: str) -> str:
        """A rule with a name of its own."""
        return self.add(f"r{len(self._rules)}", body)

    def arguments(self, name: str, schema: Any) -> str:
        """The arguments of a call, `city="Oslo", days=[1, 2]`, in the order of the schema's properties."""
        known = schema.get("properties") or {} if isinstance(schema, dict) else {}
        required = schema.get("required") or () if isinstance(schema, dict) else ()
        if unspeakable := [key for key in known if re.search(r"[=\s]", key) or not key]:
            raise invalid(f"{name} has a parameter {unspeakable[0]!r}, which Python's syntax can't write", "tools")
        more = sorted(schema.keys() - CALL - ABOUT if isinstance(schema, dict) else ())
        more += sorted(set(required) - set(known))
        if more:
            raise invalid(
                f"the parameters of {name} say more ({', '.join(more)}) than which properties there are, and calls in "
                "Python's syntax can't be held to that; name all properties, or serve with another --tool-format",
                "tools",
            )
        return self._members({f"{key}=": part for key, part in known.items()}, {f"{key}=" for key in required}, schema)

    def _members(self, members: Mapping[str, Any], required: set[str], root: dict[str, Any]) -> str:
        """Those of `members` (text before the value -> schema) that are wanted, with commas between them."""
        head = tail = '""'
        for key, schema in reversed(list(members.items())):
            member = self.new(f"{_quoted(key)} {self.value(schema, root)}")
            follows, may_end = self.new(f"{_quoted(', ')} {member} {tail}"), key not in required
            head = self.new(f"{member} {tail}" + (f" | {head}" if may_end else ""))
            tail = self.new(f"{follows} | {tail}") if may_end else follows
        return head

    def value(self, schema: Any, root: dict[str, Any]) -> str:
        """One value. What has no Python spelling of its own here is written as JSON, which `value_of` reads too."""
        if not isinstance(schema, dict):
            return self._json(schema, root)
        says = schema.keys() - ABOUT
        kind = schema.get("type")
        if says == {"$ref"} and (found := _resolved(schema["$ref"], root)) is not None:
            return self._reference(schema["$ref"], found, root)
        if "const" in says and says <= {"const", "type"}:
            return _quoted(spelled(schema["const"]))
        if "enum" in says and says <= {"enum", "type"} and not isinstance(kind, list):
            return self._any([_quoted(spelled(value)) for value in schema["enum"] if _is_of(value, kind)])
        if says == {"anyOf"}:
            return self._any([self.value(part, root) for part in schema["anyOf"]])
        if isinstance(kind, list):
            return self._any([self.value({**schema, "type": one}, root) for one in kind])
        if says == {"type"} and kind in ("boolean", "null"):
            return self._any([_quoted("True"), _quoted("False")]) if kind == "boolean" else _quoted("None")
        if kind == "array" and says <= LIST:
            return self._list(schema, root)
        if kind == "object" and says <= CALL and _is_closed(schema):
            members = {f"{_quoted(key)}: ": part for key, part in schema["properties"].items()}
            required = {f"{_quoted(key)}: " for key in schema.get("required") or ()}
            return f"{_quoted('{')} {self._members(members, required, root)} {_quoted('}')}"
        return self._json(schema, root)

    def _any(self, options: Sequence[str]) -> str:
        if not options:
            raise invalid("a parameter has an empty enum or anyOf, so that no value is possible", "tools")
        return self.new(" | ".join(options))

    def _list(self, schema: dict[str, Any], root: dict[str, Any]) -> str:
        item = self.new(self.value(schema.get("items", True), root))
        least, most = schema.get("minItems", 0), schema.get("maxItems")
        begin, end = _quoted("["), _quoted("]")
        if most == 0:
            return f"{begin} {end}"
        more = f"({_quoted(', ')} {item}){{{max(least - 1, 0)},{most - 1 if most else ''}}}" if most != 1 else ""
        return f"{begin} {item} {more} {end}" if least else f"{begin} ({item} {more})? {end}"

    def _reference(self, path: str, found: Any, root: dict[str, Any]) -> str:
        key = (id(root), path)
        if key not in self._references:
            self._references[key] = f"d{len(self._references)}"  # before its body, which may refer to it
            self.add(self._references[key], self.value(found, root))
        return self._references[key]

    def _json(self, schema: Any, root: dict[str, Any]) -> str:
        whole = {**schema, "x-guidance": LAYOUT} if isinstance(schema, dict) else {"x-guidance": LAYOUT}
        if schema is False:
            whole["not"] = {}
        if "$ref" in json.dumps(schema):
            whole = {**moved(whole, "root"), "$defs": {"root": moved(root, "root")}}
        return self.new(f"%json {json.dumps(whole)}")


def _resolved(reference: Any, root: Any) -> Any:
    """The schema to which a local reference leads; None if it isn't a plain one."""
    if reference == "#":
        return root
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return None
    for part in reference[2:].split("/"):
        part = part.replace("~1", "/").replace("~0", "~")
        root = root.get(part) if isinstance(root, dict) else None
    return root


def _is_closed(schema: dict[str, Any]) -> bool:
    known = schema.get("properties") or {}
    required = schema.get("required") or ()
    return bool(known) and schema.get("additionalProperties") is False and set(required) <= set(known)


def _is_of(value: Any, kind: str | None) -> bool:
    kinds: dict[str, tuple[type, ...]] = {
        "string": (str,),
        "integer": (int,),
        "number": (int, float),
        "array": (list,),
        "object": (dict,),
        "null": (type(None),),
    }
    if isinstance(value, bool):
        return kind in (None, "boolean")
    return kind is None or isinstance(value, kinds.get(kind, ()))


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _pattern(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]", lambda found: f"\\{found[0]}", name)
