"""Starts a backend that died again, so that a crash costs its running requests and nothing more."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from sapwood.errors import InvalidRequest, SapwoodError

if TYPE_CHECKING:
    from sapwood.runtime.client import Client

LOOK_SECONDS = 0.25
FIRST_PAUSE = 0.5  # seconds after a start that failed; doubles up to LAST_PAUSE
LAST_PAUSE = 30.0

log = logging.getLogger("uvicorn.error")


async def supervise(client: Client) -> None:
    """Watch a client's backend for as long as the server runs."""
    pause = FIRST_PAUSE
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        if client.is_alive:
            pause = FIRST_PAUSE
            continue
        log.warning("the backend died; starting it again")
        try:
            await asyncio.to_thread(client.restart)
        except InvalidRequest:
            return  # somebody else's backend: the connection takes it up again when it is back
        except (SapwoodError, OSError) as error:
            log.error("the backend can't be started (%s); trying again in %g s", error, pause)
            await asyncio.sleep(pause)
            pause = min(2 * pause, LAST_PAUSE)
