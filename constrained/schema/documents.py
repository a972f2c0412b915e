"""Where the parts of a schema document are: `$id`, anchors, JSON pointers and references.

Only the document itself and the published metaschemas are known; nothing is fetched.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

from sapwood.errors import GrammarError

METASCHEMAS = Path(__file__).parent / "metaschemas"
DRAFTS = {"draft-03": 3, "draft-04": 4, "draft-06": 6, "draft-07": 7, "2019-09": 2019, "2020-12": 2020}
NEWEST = 2020

# Keywords whose values are schemas, lists of schemas, and objects of schemas.
ONE = (
    "additionalItems", "additionalProperties", "contains", "contentSchema", "else", "if", "items", "not",
    "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties",
)  # fmt: skip
MANY = ("allOf", "anyOf", "items", "oneOf", "prefixItems")
NAMED = ("$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties")


@dataclass(frozen=True)
class Pointer:
    """A JSON pointer, spelled only when an error needs it."""

    parent: Pointer | None = None
    token: str | int = ""

    def __truediv__(self, token: str | int) -> Pointer:
        return Pointer(self, token)

    def __str__(self) -> str:
        tokens = []
        at: Pointer | None = self
        while at is not None and at.parent is not None:
            tokens.append(str(at.token).replace("~", "~0").replace("/", "~1"))
            at = at.parent
        return "".join("/" + token for token in reversed(tokens))


@dataclass(frozen=True)
class Place:
    """A schema, the URI that its references are relative to, the draft it follows and where it stands."""

    schema: Any
    base: str
    draft: int | None  # None: not said
    pointer: Pointer


class Documents:
    """All that references can reach from one schema."""

    def __init__(self, schema: Any) -> None:
        self._resources: dict[str, Place] = {}
        self._anchors: dict[tuple[str, str], Place] = {}
        self.dynamic: dict[str, dict[str, Place]] = {}  # base -> dynamic anchors there
        self._places: dict[int, Place] = {}
        self.root = self._add(Place(schema, "", None, Pointer()))

    def _add(self, document: Place) -> Place:
        self._resources.setdefault(document.base, document)
        todo = [document]
        root = None
        while todo:
            place = self._enter(todo.pop())
            root = root or place
            todo.extend(_subschemas(place))
        assert root is not None
        return root

    def _enter(self, place: Place) -> Place:
        """Note what a schema calls itself; returns the place with its own base."""
        schema = place.schema
        if not isinstance(schema, dict):
            return place
        draft = draft_of(schema.get("$schema")) or place.draft
        base = place.base
        id = schema.get("$id", schema.get("id") if draft is None or draft < 6 else None)
        if isinstance(id, str) and not ("$ref" in schema and (draft or NEWEST) < 2019):
            uri, fragment = urldefrag(join(base, id))
            if fragment and (draft or 7) < 2019:
                self._anchors.setdefault((uri, fragment), Place(schema, base, draft, place.pointer))
            if uri != base:
                base = uri
                self._resources.setdefault(uri, Place(schema, uri, draft, place.pointer))
        place = Place(schema, base, draft, place.pointer)
        self._places[id_of(schema)] = place
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(schema.get(keyword), str):
                self._anchors.setdefault((base, schema[keyword]), place)
        if isinstance(schema.get("$dynamicAnchor"), str):
            self.dynamic.setdefault(base, {})[schema["$dynamicAnchor"]] = place
        if schema.get("$recursiveAnchor") is True:
            self.dynamic.setdefault(base, {})[""] = place
        return place

    def child(self, place: Place, *tokens: str | int) -> Place:
        """The subschema at `tokens` below a place."""
        schema, pointer = place.schema, place.pointer
        for token in tokens:
            schema, pointer = schema[token], pointer / token
        known = self._places.get(id_of(schema)) if isinstance(schema, dict) else None
        if known is not None:
            return known
        return self._enter(Place(schema, place.base, place.draft, pointer))

    def resolve(self, place: Place, reference: str, keyword: str) -> Place:
        """The target of a reference that stands at `place`."""
        where = str(place.pointer / keyword)
        uri, fragment = urldefrag(join(place.base, reference))
        resource = self._resources.get(uri)
        if resource is None and (metaschema := load_metaschema(uri)) is not None:
            resource = self._add(Place(metaschema, uri, None, Pointer()))
        if resource is None:
            raise GrammarError(f"{where}: the reference {reference!r} leads outside of the schema; inline it", where)
        fragment = unquote(fragment)
        if not fragment:
            return self._places.get(id_of(resource.schema), resource)
        if not fragment.startswith("/"):
            anchor = self._anchors.get((uri, fragment))
            if anchor is None:
                raise GrammarError(f"{where}: nothing is called {reference!r}", where)
            return self._places.get(id_of(anchor.schema), anchor)
        return self._follow(resource, fragment, reference, where)

    def _follow(self, resource: Place, fragment: str, reference: str, where: str) -> Place:
        place = self._places.get(id_of(resource.schema), resource)
        schema, pointer, base, draft = place.schema, resource.pointer, place.base, place.draft
        for raw in fragment[1:].split("/"):
            token: str | int = raw.replace("~1", "/").replace("~0", "~")
            try:
                if isinstance(schema, list):
                    token = int(token)
                schema = schema[token]
            except (LookupError, TypeError, ValueError):
                raise GrammarError(f"{where}: {reference!r} points to nothing", where) from None
            pointer = pointer / token
            known = self._places.get(id_of(schema))
            if known is not None:
                base, draft = known.base, known.draft
        known = self._places.get(id_of(schema))
        return known or self._add(Place(schema, base, draft, pointer))


def id_of(schema: Any) -> int:
    """Identity of a part of the document; the document outlives every use."""
    return id(schema)


def _subschemas(place: Place) -> Iterator[Place]:
    schema = place.schema
    if not isinstance(schema, dict):
        return
    for keyword in schema.keys() & _ALL:
        value = schema[keyword]
        at = place.pointer / keyword
        if isinstance(value, dict) and keyword in NAMED:
            for name, child in value.items():
                if isinstance(child, dict):
                    yield Place(child, place.base, place.draft, at / name)
        elif isinstance(value, list) and keyword in MANY:
            for index, child in enumerate(value):
                if isinstance(child, dict):
                    yield Place(child, place.base, place.draft, at / index)
        elif isinstance(value, dict) and keyword in ONE:
            yield Place(value, place.base, place.draft, at)


_ALL = frozenset((*ONE, *MANY, *NAMED))


def join(base: str, reference: str) -> str:
    """Like urljoin, for URNs and documents without a name too."""
    if not base or "://" in reference or reference.startswith("urn:"):
        return reference
    if reference.startswith("#") or not reference:
        return urldefrag(base)[0] + reference
    return urljoin(base, reference)


def draft_of(schema_uri: object) -> int | None:
    """The draft that a `$schema` names; None if it names none that is known."""
    if not isinstance(schema_uri, str):
        return None
    return next((draft for name, draft in DRAFTS.items() if f"/{name}/" in schema_uri), None)


@cache
def load_metaschema(uri: str) -> Any:
    """A published metaschema by its URI; None if `uri` is none."""
    files: dict[str, str] = json.loads((METASCHEMAS / "index.json").read_text())
    name = files.get(uri)
    return json.loads((METASCHEMAS / name).read_text()) if name else None
