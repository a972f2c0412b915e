"""An HTML page about a run: its calls over time (a flame graph of the program), what each reused, its text."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sapwood.lang.executor import Event
    from sapwood.lang.state import ProgramState

_STYLE = """
body { font: 14px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem }
.lane { position: relative; height: 1.7rem; border-bottom: 1px solid #e5e8eb }
.call { position: absolute; height: 1.4rem; overflow: hidden; white-space: nowrap; font-size: 12px; padding-left: 4px;
        background: #cfe8d5; border-left: 2px solid #3c8d5a; box-sizing: border-box }
.select { background: #fbe3b6; border-color: #b98511 }
table { border-collapse: collapse; margin: 1rem 0 } td, th { padding: 2px 12px 2px 0; text-align: left }
pre { white-space: pre-wrap; background: #f5f7f8; padding: 1rem }
"""


def write_report(state: ProgramState, path: Path) -> Path:
    """Write the page; returns its path."""
    events = state.events()
    usage = state.usage()
    error = state.error()
    text = state.text() if error is None else f"failed: {error}"
    reused = f"{usage.cached_tokens} of {usage.prompt_tokens} prompt tokens came from the tree"
    seconds = max((event.ended for event in events), default=0) - min((event.began for event in events), default=0)
    body = [
        f"<h1>{len(events)} calls in {seconds:.2f} s</h1>",
        f"<p>{reused}; {usage.completion_tokens} tokens came out, {usage.jumped_tokens} of them forced by grammars.</p>",
        *_lanes(events),
        "<table><tr><th>call<th>line<th>ms<th>prompt<th>reused<th>new</tr>",
        *(_row(event) for event in events),
        "</table><h2>Text</h2>",
        f"<pre>{escape(text)}</pre>",
    ]
    page = f"<!doctype html><meta charset=utf-8><title>Sapwood run</title><style>{_STYLE}</style>\n" + "\n".join(body)
    path.write_text(page, encoding="utf-8")
    return path


def _lanes(events: list[Event]) -> list[str]:
    """Calls that overlap lie in different lanes."""
    if not events:
        return []
    first, last = events[0].began, max(event.ended for event in events)
    scale = 100 / max(last - first, 1e-9)
    ends: list[float] = []
    lanes: list[list[str]] = []
    for event in events:
        lane = next((i for i, end in enumerate(ends) if end <= event.began), len(ends))
        if lane == len(ends):
            ends.append(0)
            lanes.append([])
        ends[lane] = event.ended
        left, width = (event.began - first) * scale, (event.ended - event.began) * scale
        label = escape(f"{event.name or event.kind} · {(event.ended - event.began) * 1000:.0f} ms")
        lanes[lane].append(
            f'<div class="call {event.kind}" style="left:{left:.2f}%;width:{width:.2f}%" title="{label}">{label}</div>'
        )
    return [f'<div class="lane">{"".join(lane)}</div>' for lane in lanes]


def _row(event: Event) -> str:
    usage = event.usage
    counts = (usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens) if usage else ("", "", "")
    cells = [event.name or event.kind, event.line, f"{(event.ended - event.began) * 1000:.1f}", *map(str, counts)]
    return "<tr>" + "".join(f"<td>{escape(cell)}" for cell in cells) + "</tr>"
