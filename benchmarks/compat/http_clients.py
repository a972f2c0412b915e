"""Clients that people use, each with one structured extraction against a running server.

    pip install langchain-openai instructor 'pydantic-ai-slim[openai]' anthropic ollama
    sapwood serve & python benchmarks/compat/http_clients.py http://127.0.0.1:8000

Prints what each got; the exit status is the number of clients that failed. Nothing here knows Sapwood: any difference
between servers shows as a client that fails.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, Field

TEXT = "Extract the person: My neighbour Anna is 41 years old."
MESSAGES: Any = [{"role": "user", "content": TEXT}]


class Person(BaseModel):
    """What is to be extracted."""

    name: str = Field(max_length=40)
    age: int = Field(ge=0, le=150)


def langchain(url: str) -> object:
    """ChatOpenAI, by schema and by tool call, and a stream."""
    from langchain_openai import ChatOpenAI

    model = ChatOpenAI(base_url=f"{url}/v1", api_key="none", model="m", temperature=0, max_tokens=80)
    people = [
        model.with_structured_output(Person, method=how).invoke(TEXT) for how in ("json_schema", "function_calling")
    ]
    return people, "".join(str(chunk.content) for chunk in model.stream("Say hello."))


def instructor(url: str) -> object:
    """Instructor, by tool call and by schema."""
    import instructor as library
    import openai

    people = []
    for mode in (library.Mode.TOOLS, library.Mode.JSON_SCHEMA):
        client = library.from_openai(openai.OpenAI(base_url=f"{url}/v1", api_key="none"), mode=mode)
        fields: Any = {"model": "m", "temperature": 0, "max_tokens": 100}
        people.append(client.chat.completions.create(response_model=Person, messages=MESSAGES, **fields))
    return people


def pydantic_ai(url: str) -> object:
    """Pydantic AI, by tool call and by schema."""
    from pydantic_ai import Agent, NativeOutput
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    model = OpenAIChatModel("m", provider=OpenAIProvider(base_url=f"{url}/v1", api_key="none"))
    settings: Any = {"temperature": 0, "max_tokens": 100}
    outputs: list[Any] = [Person, NativeOutput(Person)]
    return [Agent(model, output_type=output, model_settings=settings).run_sync(TEXT).output for output in outputs]


def anthropic(url: str) -> object:
    """Anthropic's client: a message, a stream, a tool call."""
    import anthropic as library

    client = library.Anthropic(base_url=url, api_key="none")
    fields: Any = {"model": "m", "max_tokens": 60, "messages": MESSAGES, "extra_body": {"temperature": 0}}
    whole = client.messages.create(**fields)
    with client.messages.stream(**fields) as stream:
        streamed = "".join(stream.text_stream)
    tools: Any = [{"name": "save", "input_schema": Person.model_json_schema()}]
    call: Any = client.messages.create(**fields, tools=tools, tool_choice={"type": "tool", "name": "save"})
    return whole.content, streamed, Person.model_validate(call.content[0].input)


def ollama(url: str) -> object:
    """Ollama's client: a format, a stream, the list of models."""
    import ollama as library

    client = library.Client(host=url)
    name = client.list().models[0].model or ""
    options = {"temperature": 0, "num_predict": 60}
    answer = client.chat(model=name, messages=MESSAGES, format=Person.model_json_schema(), options=options)
    streamed = "".join(
        part.response for part in client.generate(model=name, prompt="hello", stream=True, options=options)
    )
    return Person.model_validate_json(answer.message.content or ""), streamed


CLIENTS: list[Callable[[str], object]] = [langchain, instructor, pydantic_ai, anthropic, ollama]


def main() -> int:
    """Run all of them."""
    url = sys.argv[1].rstrip("/") if len(sys.argv) > 1 else "http://127.0.0.1:8000"
    failed = 0
    for client in CLIENTS:
        try:
            print(f"{client.__name__:<12} ok      {client(url)}")
        except Exception as error:  # whatever a client raises is this program's result
            failed += 1
            print(f"{client.__name__:<12} FAILED  {type(error).__name__}: {error}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
