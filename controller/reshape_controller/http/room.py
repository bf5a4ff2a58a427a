"""The share of each identity of what a daemon can do at once.

Does: bounds the requests of an identity that are under way, those that wait for something to
happen, and lets long lists and other long work take turns: one at a time for each identity, two in
all. A part of the connections is kept for requests that wait for nothing. ``Paces`` bounds the
requests a second. State: the requests under way, and the newest ones, by identity.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from reshape_controller.access.identity import Identity, Role
from reshape_controller.http.connections import connections_max
from reshape_controller.http.errors import ApiError, ErrorBody, TooSoon
from reshape_controller.live.pace import Pace

HELD_MAX = 200
"""Requests of people that may wait for something to happen, event streams among them."""
IDENTITY_HELD_MAX = 20
WORKER_HELD_MAX = 4
"""Polls of one worker that may wait: its SideCar's own, and those of broken connections."""
UNDER_WAY_MIN = 8
"""Requests of an identity that may be under way, whatever the limit of open files."""
TURNS_MAX = 2
"""Long answers that are made at once."""
TURNS_WAITING_MAX = 100
"""Long answers of one identity that wait for their turn."""
PACE, PACE_BURST = 50.0, 200.0
"""Requests a second of one person, on average, and at once."""
WORKER_PACE, WORKER_BURST = 20.0, 60.0
"""The same of one worker's SideCar, which sends one in two seconds, and one at each change."""
STRANGER_PACE, STRANGER_BURST = 100.0, 400.0
"""The same of all requests from one address that need a token and have none that is valid."""


class Paces:
    """The paces of a daemon. An operator has none: nobody else is more urgent."""

    def __init__(self, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._people = Pace(PACE, PACE_BURST, monotonic_s)
        self._workers = Pace(WORKER_PACE, WORKER_BURST, monotonic_s)
        self._strangers = Pace(STRANGER_PACE, STRANGER_BURST, monotonic_s)

    def take(self, identity: Identity | None, share: str) -> None:
        """Count a request. ``share``: under which name; of a stranger its address. Raises
        TooSoon."""
        if identity is not None and identity.role is Role.OPERATOR:
            return
        pace = self._people
        if identity is None:
            pace = self._strangers
        elif identity.role is Role.SIDECAR:
            pace = self._workers
        wait_s = pace.wait_s(share)
        if wait_s > 0:
            what = f"{share} sends more than {pace.rate:g} requests a second"
            hint = "ask less often: as the header Retry-After says"
            body = ErrorBody("too-many-requests", what, "header Authorization", hint)
            raise TooSoon(429, body, math.ceil(wait_s))


class Room:
    """One per daemon."""

    def __init__(self, connections: int | None = None) -> None:
        """``connections``: most that people may have open; None: as this process's limit allows."""
        room = connections_max() if connections is None else connections
        self._under_way_max = max(UNDER_WAY_MIN, room // 8)
        self._held_max = min(HELD_MAX, max(UNDER_WAY_MIN, room // 8))
        self._polls_max = max(UNDER_WAY_MIN, room * 13 // 16)
        self._under_way: Counter[str] = Counter()
        self._held: Counter[str] = Counter()
        self._polls: Counter[str] = Counter()
        self._turns = asyncio.Semaphore(TURNS_MAX)
        self._own_turns: dict[str, asyncio.Lock] = {}
        self._waiting: Counter[str] = Counter()

    @property
    def held(self) -> int:
        """Number of requests of people that wait."""
        return self._held.total()

    def under_way(self, name: str) -> int:
        """Number of requests of ``name`` that are under way."""
        return self._under_way[name]

    def enter(self, name: str) -> None:
        """Count a request of ``name`` until ``leave``. Raises ApiError."""
        if self._under_way[name] >= self._under_way_max:
            what = f"{name} has {self._under_way[name]} requests under way"
            raise _too_many(what, "wait for their answers, and read them")
        self._under_way[name] += 1

    def leave(self, name: str) -> None:
        """Forget a request that ``enter`` counted."""
        _subtract(self._under_way, name)

    @contextmanager
    def hold(self, name: str) -> Iterator[None]:
        """Count a request of ``name`` that waits for something to happen. Raises ApiError.

        An identity may hold as many as are still free, so that several greedy ones leave some.
        """
        own, total = self._held[name], self._held.total()
        if own >= min(IDENTITY_HELD_MAX, self._held_max - total):
            if own:
                raise _too_many(f"{name} has {own} requests that wait", "close some of them")
            what = f"{total} requests wait for something to happen"
            raise _too_many(what, "ask without wait_s, now and then")
        self._held[name] += 1
        try:
            yield
        finally:
            _subtract(self._held, name)

    @contextmanager
    def hold_poll(self, worker: str) -> Iterator[bool]:
        """Count a SideCar's poll; the value is whether there is room to hold it. Raises ApiError
        if this worker holds too many."""
        own = self._polls[worker]
        if own >= WORKER_HELD_MAX:
            raise _too_many(f"{worker} has {own} polls that wait", "close some of them")
        has_room = self._polls.total() < self._polls_max
        self._polls[worker] += has_room
        try:
            yield has_room
        finally:
            if has_room:
                _subtract(self._polls, worker)

    @asynccontextmanager
    async def turn(self, name: str) -> AsyncIterator[None]:
        """Wait until it is this identity's turn to make a long answer. Raises ApiError."""
        if self._waiting[name] >= TURNS_WAITING_MAX:
            what = f"{self._waiting[name]} long answers of {name} are not made yet"
            raise _too_many(what, "wait for them")
        self._waiting[name] += 1
        own = self._own_turns.setdefault(name, asyncio.Lock())
        try:
            async with own, self._turns:
                yield
        finally:
            _subtract(self._waiting, name)
            if not self._waiting[name]:
                self._own_turns.pop(name, None)


def _subtract(counts: Counter[str], name: str) -> None:
    counts[name] -= 1
    if counts[name] <= 0:
        del counts[name]


def _too_many(what: str, remedy: str) -> ApiError:
    return ApiError(429, ErrorBody("too-many-requests", what, "header Authorization", remedy), 1)
