"""A cluster without Reshape: each job gets a fixed number of GPUs and keeps it.

Does: gives each job one of its sizes (drawn at random, as the paper's default scheduler does, or
the largest), and starts queued jobs that fit, also past jobs that do not. A running job keeps its
size. The draw follows from the seed of the state and the job's place, so it can be repeated.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import lru_cache

from reshape_controller.core.phrases import gpus
from reshape_controller.core.plan import HostView, JobView, Option, Plan, Snapshot
from reshape_controller.scheduling import gang_start, legal_moves

SIZES = ("random", "largest")
"""The ways to choose a size; the first is the default."""


class Default:
    """The policy. Its name shows how it chooses sizes, so that a log says which."""

    def __init__(self, sizes: str = "random") -> None:
        """``sizes``: ``random`` or ``largest``. Raises ValueError."""
        if sizes not in SIZES:
            raise ValueError(f"sizes is {sizes!r}; use one of {', '.join(SIZES)}")
        self._sizes = sizes
        self.name = "default" if sizes == SIZES[0] else f"default:sizes={sizes}"

    def may_act(self, *, queued: bool, idle: bool) -> bool:
        """Return whether a plan may change anything: it starts jobs on idle GPUs alone."""
        return queued and idle

    def decide(self, snapshot: Snapshot) -> Plan:
        """Return the next single decision."""
        waits = 0
        if not snapshot.idle:
            return Plan()
        largest = _largest_host(snapshot.hosts)
        for newcomer in legal_moves.startable(snapshot):
            sizes = newcomer.sizes
            if gang_start.may_span(newcomer):
                sizes = tuple(s for s in sizes if gang_start.can_ever_hold(snapshot, newcomer, s))
            else:
                hosts = legal_moves.hosts_for(snapshot, newcomer)
                most = largest if hosts is snapshot.hosts else _largest_host(hosts)
                if sizes[-1] > most:
                    sizes = tuple(size for size in sizes if size <= most)
            if not sizes:
                continue
            size = self._size(newcomer, sizes, snapshot.seed)
            targets = gang_start.start_on_idle(snapshot, newcomer, size)
            if targets:
                option = Option(targets, note=self._sizes)
                past = f", ahead of {waits} waiting jobs" if waits else ""
                return legal_moves.plan_of(
                    [option],
                    option,
                    code="starts-fixed",
                    text=f"{newcomer.spec.name} starts on {gpus(size)} and keeps them{past}",
                    about=newcomer.id,
                    weighed=1,
                )
            waits += 1
        return Plan()

    def _size(self, job: JobView, sizes: tuple[int, ...], seed: int) -> int:
        """The size of a job that may have ``sizes``."""
        if self._sizes == "largest":
            return max(sizes)
        return sizes[_random_number(seed, job.place) % len(sizes)]


def _largest_host(hosts: Iterable[HostView]) -> int:
    """The most usable GPUs of one of the hosts."""
    return max((host.usable for host in hosts), default=0)


@lru_cache(maxsize=100_000)
def _random_number(seed: int, place: int) -> int:
    """A number that depends on the arguments only. It is cached, because each decision draws for
    the whole queue."""
    return int.from_bytes(hashlib.sha256(f"{seed}:{place}".encode()).digest()[:8])
