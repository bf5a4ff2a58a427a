"""Bounds on event streams: their number, in total and for each identity.

Does: keeps connections free for other requests, which open streams would take one by one. State:
the open streams of each identity.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from reshape_controller.http.errors import ApiError, ErrorBody

STREAMS_MAX = 100
"""Event streams that may be open."""
IDENTITY_STREAMS_MAX = 20
"""Event streams of one identity that may be open."""


class Streams:
    """The open event streams; one per daemon."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    @contextmanager
    def open(self, name: str) -> Iterator[None]:
        """Count a stream of the identity ``name`` as long as the block runs. Raises ApiError."""
        if self._counts[name] >= IDENTITY_STREAMS_MAX:
            raise _too_many(f"{name} has {self._counts[name]} event streams open", "close some")
        if self._counts.total() >= STREAMS_MAX:
            what = f"{self._counts.total()} event streams are open"
            raise _too_many(what, "ask for GET /v1/jobs now and then, or try again later")
        self._counts[name] += 1
        try:
            yield
        finally:
            self._counts[name] -= 1
            self._counts += Counter()  # drop names without a stream


def _too_many(what: str, remedy: str) -> ApiError:
    return ApiError(429, ErrorBody("too-many-streams", what, "header Authorization", remedy))
