"""Questions about a folder of texts, answered with citations that can't be invented: a quote is always a real sentence.

sapwood run examples/rag.py FOLDER "When was the bridge built?"

Passages are found by SQLite's full-text search. The model then cites by writing: its citation must be one of the passages' sentences,
by grammar, so that every quote stands word for word in a file.
"""

from __future__ import annotations

import re
import sqlite3
import sys
from dataclasses import dataclass
from pathlib import Path

import sapwood as sw


@dataclass(frozen=True)
class Sentence:
    file: str
    text: str


def index(folder: Path) -> sqlite3.Connection:
    """All sentences of a folder's .txt files, with full-text search."""
    store = sqlite3.connect(":memory:")
    store.execute("CREATE VIRTUAL TABLE sentences USING fts5(file UNINDEXED, text, tokenize='porter unicode61')")
    for path in sorted(folder.glob("*.txt")):
        for sentence in re.split(r"(?<=[.!?])\s+", " ".join(path.read_text().split())):
            if sentence:
                store.execute("INSERT INTO sentences VALUES (?, ?)", (path.name, sentence))
    return store


def search(store: sqlite3.Connection, question: str, limit: int = 4) -> list[Sentence]:
    """The sentences that fit best, best first."""
    words = " OR ".join(f'"{word}"' for word in re.findall(r"\w{3,}", question)) or '""'
    found = store.execute(
        "SELECT file, text FROM sentences WHERE sentences MATCH ? ORDER BY rank LIMIT ?", (words, limit)
    )
    return [Sentence(*row) for row in found]


@sw.function
def answer(s, question, passages):  # type: ignore[no-untyped-def]
    s += sw.system("You answer from the given sentences only, and quote the one that proves it.")
    listed = "\n".join(f"- {passage.text}" for passage in passages)
    s += sw.user(f"Sentences:\n{listed}\n\nQuestion: {question}")
    quotes = "|".join(re.escape(passage.text) for passage in passages)
    s += sw.assistant('It says: "' + sw.gen("quote", regex=quotes, max_tokens=200) + '". So the answer is:'
                      + sw.gen("answer", max_tokens=32, stop="\n"))  # fmt: skip
    s["source"] = next(passage.file for passage in passages if passage.text == s["quote"])


def main(folder: Path, question: str) -> None:
    passages = search(index(folder), question)
    if not passages:
        sys.exit("no sentence in the folder has to do with the question")
    state = answer.run(question=question, passages=passages, temperature=0)
    print(state["answer"].strip())
    print(f'    "{state["quote"]}" ({state["source"]})')


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: sapwood run examples/rag.py FOLDER QUESTION")
    main(Path(sys.argv[1]), " ".join(sys.argv[2:]))
