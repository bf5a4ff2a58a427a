"""Objects by which a script receives what another thread, process or program makes.

Does: tells queues, pipes, sockets and children by their classes. What they will give is state of
the other side, which no look sees. The text of the script says whether training receives it.
"""

from __future__ import annotations

import functools
from collections.abc import Set
from typing import Any

from reshape_sidecar.verdict import influence, origin
from reshape_sidecar.verdict.leaves import names_of

SENT = "{} gives what another thread or process makes, which begins again at a restart"
TYPES = frozenset(
    {
        *("queue.Queue", "queue.LifoQueue", "queue.PriorityQueue", "_queue.SimpleQueue"),
        *(f"multiprocessing.queues.{name}" for name in ("Queue", "JoinableQueue", "SimpleQueue")),
        *("multiprocessing.connection._ConnectionBase", "subprocess.Popen", "socket.socket"),
        *(f"torch.multiprocessing.queue.{name}" for name in ("Queue", "SimpleQueue")),
        *("torch.multiprocessing.queue.ConnectionWrapper", "zmq.sugar.socket.Socket"),
        *("ray.actor.ActorHandle", "aiohttp.client_ws.ClientWebSocketResponse"),
    }
)

TASKS = frozenset({"concurrent.futures._base.Future", "multiprocessing.pool.ApplyResult"})
"""Classes of what runs ahead, if an object holds it from step to step; a variable may be of one."""


class Channels:
    """What the looks of a process have found, and whether training receives what it gives."""

    def __init__(self) -> None:
        self._feeds: dict[str, bool] = {}

    def look(self, paths: Set[str], changed: dict[str, None]) -> None:
        """Note the channels at ``paths``, which are ``changed`` by what comes out of them alone."""
        for path in paths - self._feeds.keys():
            self._feeds[path] = influence.feeds(names_of(path), origin.files_of_script())
        for path in paths & changed.keys():
            del changed[path]

    def feeding(self) -> list[str]:
        """Return the paths of those from which training receives values."""
        return [path for path, feeds in self._feeds.items() if feeds]


def is_channel(value: Any, path: str) -> bool:
    """Return whether the value at ``path`` gives what another thread, process or program makes."""
    kind: type = type(value)
    names = _names_of(kind)
    return not names.isdisjoint(TYPES) or ("." in path and not names.isdisjoint(TASKS))


@functools.cache
def _names_of(kind: type) -> frozenset[str]:
    return frozenset(f"{one.__module__}.{one.__qualname__}" for one in kind.__mro__)
