"""The users' own inboxes of a MongoDB store share what a poll reads. The server is left out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from reshape_controller.store.mongo import inbox, request_fields
from reshape_controller.store.mongo.store import MongoStore
from reshape_controller.store.protocol import InboxItem

BYTES_MAX = 40
USERS = ("ada", "bob", "eve")


async def nothing(*_: object) -> AsyncIterator[InboxItem]:
    none: tuple[InboxItem, ...] = ()
    for item in none:
        yield item


async def own(_: object, limit: int, user: str) -> AsyncIterator[InboxItem]:
    """Ada's documents fill a poll; the others have a short one each."""
    for number in range(limit if user == "ada" else 1):
        size = BYTES_MAX // 2 if user == "ada" else 2
        yield InboxItem(f"{user}{number}", "submit", "x" * size, user)


def test_a_user_whose_documents_fill_a_poll_leaves_the_next_to_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def on(_: object, work: Callable[..., Awaitable[Any]], *given: object) -> Any:
        return await work(None, *given)

    monkeypatch.setattr(MongoStore, "_on", on)
    monkeypatch.setattr(request_fields, "pending", nothing)
    for name in ("_requests", "_job_records"):
        monkeypatch.setattr(inbox, name, nothing)
    monkeypatch.setattr(inbox, "_own_requests", own)
    monkeypatch.setattr(inbox, "READ_BYTES_MAX", BYTES_MAX)
    store = MongoStore("mongodb://127.0.0.1:1/x", insert_users=USERS)

    async def polls() -> list[list[str]]:
        return [[item.owner for item in await store.requests(30)] for _ in range(4)]

    first, second, third, fourth = asyncio.run(polls())
    assert first == fourth == ["ada", "ada"], "the size of a poll is bounded"
    assert second == ["bob", "eve", "ada", "ada"]
    assert third == ["eve", "ada", "ada"]
