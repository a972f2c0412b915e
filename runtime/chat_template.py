"""Chat templates: a model's own Jinja template, in a sandbox. Knows nothing of tokens."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from sapwood.errors import InvalidRequest

# For models that bring no template (base models): roles in words.
PLAIN = (
    "{{ bos_token }}{% for message in messages %}{{ message['role'] | capitalize }}: {{ message['content'] }}\n"
    "{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}"
)


def render(template: str | None, messages: Sequence[Mapping[str, Any]], **names: Any) -> str:
    """The conversation as the model was trained to read it. `names`: what the template may use (bos_token, tools, ...)."""
    from jinja2 import TemplateError

    try:
        return str(_compiled(template or PLAIN).render(messages=list(messages), **names))
    except TemplateError as error:
        raise InvalidRequest(f"the model's chat template refused the messages: {error}") from error
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise InvalidRequest(f"the model's chat template can't render the messages: {error}") from error


@lru_cache(maxsize=32)
def _compiled(source: str) -> Any:
    """The template in the environment that Hugging Face's are written for."""
    from jinja2 import TemplateError, nodes
    from jinja2.ext import Extension, loopcontrols
    from jinja2.parser import Parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """{% generation %} ... {% endgeneration %} marks the assistant's words for training; here it is only its content."""

        tags = {"generation"}

        def parse(self, parser: Parser) -> list[nodes.Node]:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    def raise_exception(message: str) -> None:
        raise TemplateError(message)

    def tojson(
        value: object,
        ensure_ascii: bool = False,
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, Generation]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    try:
        return environment.from_string(source)
    except TemplateError as error:
        raise InvalidRequest(f"the chat template is no valid Jinja: {error}") from error
