"""The process of a Prefect server of ours: of a command's own one and that of `make serve`; arguments: port and host.

Two things are otherwise than with `prefect server start`:

- Its start is imports. They make much and drop nothing, so the garbage collector waits until they are done, which
  saves a sixth of the time.
- On SQLite, writers take turns. Prefect begins most transactions as readers, and one that reads first and writes then
  is refused at once if another wrote meanwhile, however long it might wait (SQLITE_BUSY_SNAPSHOT,
  https://www.sqlite.org/rescode.html#busy_snapshot). The server passes that on as 503, and the client pauses for two
  seconds and more. A transaction that begins as a writer waits for its turn instead, for up to the 60 s that Prefect
  sets; it does so itself where it changes the state of a run.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from prefect.server.database.configurations import AioSqliteConfiguration
    from sqlalchemy.ext.asyncio import AsyncSession, AsyncSessionTransaction

SECONDS = 60  # that Prefect lets SQLite wait


def main(port: int, host: str = "127.0.0.1") -> None:
    """Serves until it is told to end."""
    gc.disable()
    import uvicorn
    from prefect.server.api.server import create_app

    take_turns()
    app = create_app()
    gc.freeze()  # what was imported is never looked at again
    gc.enable()
    uvicorn.run(app, host=host, port=port, log_level="error", lifespan="on")


def take_turns() -> None:
    """Lets every transaction of this process that may write on SQLite begin as a writer, one after the other.

    They queue here: SQLite would let each look again and again, with pauses of up to 0.1 s.
    """
    from prefect.server.database.configurations import AioSqliteConfiguration

    begin = AioSqliteConfiguration.begin_transaction
    turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()
    holder: ContextVar[asyncio.Task[Any] | None] = ContextVar("holder", default=None)

    @asynccontextmanager
    async def as_writer(
        self: AioSqliteConfiguration, session: AsyncSession, with_for_update: bool = False
    ) -> AsyncGenerator[AsyncSessionTransaction, None]:
        this = asyncio.current_task()
        if holder.get() is this:  # inside of another one: to wait for its end would be for ever
            async with begin(self, session, with_for_update=with_for_update) as transaction:
                yield transaction
            return
        turn = turns.setdefault(asyncio.get_running_loop(), asyncio.Lock())
        has_turn = await _acquired(turn)
        before = holder.set(this)
        try:
            async with begin(self, session, with_for_update=True) as transaction:
                yield transaction
        finally:
            holder.reset(before)
            if has_turn:
                turn.release()

    AioSqliteConfiguration.begin_transaction = as_writer


async def _acquired(turn: asyncio.Lock) -> bool:
    """Waits for a turn; False after as long as SQLite would wait, so that it says what is wrong."""
    try:
        async with asyncio.timeout(SECONDS):
            return await turn.acquire()
    except TimeoutError:
        return False


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:3])
