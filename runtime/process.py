"""Starts a backend process and watches over it: its progress while it loads, its end, and what it leaves behind."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec

from sapwood import errors
from sapwood.errors import BackendDied, SapwoodError
from sapwood.runtime.options import BackendOptions

END_SECONDS = 5.0  # until a backend that doesn't end by itself is killed


class BackendProcess:
    """One child process that serves `options`. It ends when `close` is called or when this process ends, however it ends."""

    def __init__(self, options: BackendOptions) -> None:
        self._folder = tempfile.mkdtemp(prefix="sapwood-") if options.address is None else ""
        self.address = options.address or f"ipc://{Path(self._folder) / 'backend'}"
        options = msgspec.structs.replace(options, address=self.address)
        status_read, status_write = os.pipe()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "sapwood.runtime.backend", str(status_write), self._folder],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=(status_write,),
                start_new_session=True,  # Ctrl-C is this process's matter
                env={**os.environ, "PYTHONSAFEPATH": "1"},
            )
        finally:
            os.close(status_write)
        self._status = os.fdopen(status_read)
        assert self._process.stdin is not None
        self._leash = self._process.stdin
        with contextlib.suppress(BrokenPipeError):  # it died already: `wait_until_ready` says so
            self._leash.write(msgspec.json.encode(options) + b"\n")
            self._leash.flush()

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_until_ready(self, progress: Callable[[str], None] = lambda text: None) -> None:
        """Return when it serves; raise what went wrong there if it can't."""
        for line in self._status:
            told = json.loads(line)
            if "progress" in told:
                progress(told["progress"])
            elif "ready" in told:
                self.address = told["ready"]
                return
            else:
                self.close()
                raise _error(told["error"], told["message"])
        self.close()
        raise BackendDied(f"the backend ended while it was starting ({self.describe_end()}); its message is above")

    def describe_end(self) -> str:
        """How it ended, in words; it is expected to have ended or to be about to."""
        try:
            code = self._process.wait(0.5)
        except subprocess.TimeoutExpired:
            return "its process still runs"
        return f"signal {-code}" if code < 0 else f"exit status {code}"

    def close(self) -> None:
        """End it and wait for it; leaves no process and no file."""
        with contextlib.suppress(OSError):
            self._leash.close()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._status.close()
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)


def _error(name: str, message: str) -> SapwoodError:
    kind = getattr(errors, name, None)
    return kind(message) if isinstance(kind, type) and issubclass(kind, SapwoodError) else SapwoodError(message)
