"""Builds a response's output items, and the events that tell of their growth."""

from __future__ import annotations

from typing import Any

from sapwood.runtime.server.reader import Part
from sapwood.runtime.server.service import new_id
from sapwood.runtime.server.sse import named_event


class ResponseWriter:
    """Appends to `body["output"]` part by part. One item is open at a time."""

    def __init__(self, body: dict[str, Any]) -> None:
        self._body = body
        self._kind: str | None = None
        self._text: list[str] = []
        self._sequence = 0

    def begin(self) -> bytes:
        """The first events."""
        return self._event("response.created", response=self._body) + self._event(
            "response.in_progress", response=self._body
        )

    def push(self, part: Part) -> bytes:
        """The events for one part."""
        kind = "call" if part.kind == "arguments" else part.kind
        data = b""
        if kind != self._kind or part.kind == "call":
            data = self.close() + self._open(kind, part.text)
        if part.kind == "call":
            return data
        self._text.append(part.text)
        name = {
            "content": "response.output_text.delta",
            "reasoning": "response.reasoning_text.delta",
            "call": "response.function_call_arguments.delta",
        }[kind]
        extra: dict[str, Any] = {"logprobs": []} if kind == "content" else {}
        return data + self._event(name, **self._place(kind), delta=part.text, **extra)

    def close(self) -> bytes:
        """Complete the open item, if any."""
        kind, self._kind = self._kind, None
        if kind is None:
            return b""
        item, text = self._body["output"][-1], "".join(self._text)
        item["status"] = "completed"
        place = self._place(kind)
        if kind == "call":
            item["arguments"] = text
            done = self._event("response.function_call_arguments.done", **place, name=item["name"], arguments=text)
        else:
            item["content"][0]["text"] = text
            name = "response.output_text.done" if kind == "content" else "response.reasoning_text.done"
            done = self._event(name, **place, text=text, logprobs=[])
            done += self._event("response.content_part.done", **place, part=item["content"][0])
        return done + self._event("response.output_item.done", output_index=self._index, item=item)

    def end(self) -> bytes:
        """The last event; the body is complete by then."""
        return self._event(f"response.{self._body['status']}", response=self._body)

    @property
    def _index(self) -> int:
        return len(self._body["output"]) - 1

    def _place(self, kind: str) -> dict[str, Any]:
        place = {"item_id": self._body["output"][-1]["id"], "output_index": self._index}
        return place if kind == "call" else {**place, "content_index": 0}

    def _open(self, kind: str, name: str) -> bytes:
        self._kind = kind
        self._text = []
        item: dict[str, Any]
        if kind == "call":
            item = {"id": new_id("fc_"), "type": "function_call", "call_id": new_id("call_"), "name": name}
            item |= {"arguments": "", "status": "in_progress"}
        elif kind == "reasoning":
            item = {"id": new_id("rs_"), "type": "reasoning", "summary": [], "status": "in_progress"}
            item["content"] = [{"type": "reasoning_text", "text": ""}]
        else:
            item = {"id": new_id("msg_"), "type": "message", "role": "assistant", "status": "in_progress"}
            item["content"] = [{"type": "output_text", "text": "", "annotations": [], "logprobs": []}]
        self._body["output"].append(item)
        data = self._event("response.output_item.added", output_index=self._index, item=item)
        if kind != "call":
            data += self._event("response.content_part.added", **self._place(kind), part=item["content"][0])
        return data

    def _event(self, name: str, /, **fields: Any) -> bytes:
        self._sequence += 1
        return named_event(name, {"type": name, "sequence_number": self._sequence - 1, **fields})
