"""Where files and batches live: one SQLite database, so that a restart keeps them. Knows nothing of HTTP."""

from __future__ import annotations

import sqlite3
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import msgspec

from sapwood.errors import InvalidRequest

SCHEMA = """
create table if not exists files (
    id text primary key, filename text not null, purpose text not null, created_at integer not null, content blob not null
);
create table if not exists batches (id text primary key, created_at integer not null, body text not null);
"""


class StoredFile(msgspec.Struct):
    """A file without its content, as OpenAI describes it."""

    id: str
    filename: str
    purpose: str
    created_at: int
    bytes: int
    object: str = "file"
    status: str = "processed"


class Storage:
    """Files and batches. Safe to use from several threads; every write is one transaction."""

    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(folder / "server.sqlite", check_same_thread=False)
            self._db.executescript(SCHEMA)
        except (OSError, sqlite3.Error) as error:
            raise InvalidRequest(f"can't keep files and batches in {folder}: {error}; check --data-dir") from None
        self._lock = threading.Lock()

    def close(self) -> None:
        """Let go of the database."""
        with self._lock:
            self._db.close()

    def add_file(self, filename: str, purpose: str, content: bytes) -> StoredFile:
        """Keep a file."""
        stored = StoredFile(f"file-{uuid.uuid4().hex}", filename, purpose, int(time.time()), len(content))
        with self._lock, self._db:
            row = (stored.id, filename, purpose, stored.created_at, content)
            self._db.execute("insert into files values (?, ?, ?, ?, ?)", row)
        return stored

    def files(self, id: str | None = None) -> list[StoredFile]:
        """All files, newest first, or the one with this id."""
        query = "select id, filename, purpose, created_at, length(content) from files"
        with self._lock:
            if id is None:
                rows = self._db.execute(query + " order by created_at desc, rowid desc").fetchall()
            else:
                rows = self._db.execute(query + " where id = ?", (id,)).fetchall()
        return [StoredFile(*row) for row in rows]

    def content(self, id: str) -> bytes | None:
        """A file's content."""
        with self._lock:
            row = self._db.execute("select content from files where id = ?", (id,)).fetchone()
        return None if row is None else bytes(row[0])

    def delete_file(self, id: str) -> bool:
        """Forget a file; False if there is none."""
        with self._lock, self._db:
            return self._db.execute("delete from files where id = ?", (id,)).rowcount > 0

    def put_batch(self, batch: dict[str, Any]) -> None:
        """Keep a batch as it is now."""
        with self._lock, self._db:
            row = (batch["id"], batch["created_at"], msgspec.json.encode(batch).decode())
            self._db.execute("insert or replace into batches values (?, ?, ?)", row)

    def batches(self, id: str | None = None) -> list[dict[str, Any]]:
        """All batches, newest first, or the one with this id."""
        with self._lock:
            if id is None:
                rows = self._db.execute("select body from batches order by created_at desc, rowid desc").fetchall()
            else:
                rows = self._db.execute("select body from batches where id = ?", (id,)).fetchall()
        return [msgspec.json.decode(row[0]) for row in rows]
