"""Work on any store, for the contract that every one of them keeps."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from reshape_controller.core.record import LogRecord
from reshape_controller.store.protocol import Store

S = TypeVar("S", bound=Store)


def run(make: Callable[[], S], work: Callable[[S], Awaitable[None]]) -> None:
    """Open the store, do the work, close it."""

    async def main() -> None:
        store = make()
        await store.open()
        try:
            await work(store)
        finally:
            await store.close()

    asyncio.run(main())


async def read_all(store: Store, after_seq: int = 0) -> list[LogRecord]:
    return [found async for found in store.read(after_seq)]


async def fill(store: Store, made: tuple[LogRecord, ...]) -> None:
    for each in made:
        await store.append(each)
