"""When GPUs are free, as one forecast has it: as many as somebody asks for.

Does: merges idle GPUs, those whose jobs' ends are moments, and the others; for a GPU type or for a
host. Never: predicts when a job ends: tenures have that. State: figures of one forecast. Times are
whole milliseconds from now.
"""

from __future__ import annotations

from collections.abc import Sequence

from reshape_controller.core.places import Places
from reshape_controller.core.plan import HostView
from reshape_controller.core.prediction.tenures import Tenures

Change = tuple[int, tuple[int, ...], tuple[int, ...]]
"""On one host (by number): times at which GPUs no longer become free, and new ones."""


class Free:
    """The usable GPUs of all hosts."""

    def __init__(
        self, tenures: Tenures, places: Places, hosts: Sequence[HostView], now_ms: int
    ) -> None:
        self.places = places
        self.counts: list[int] = []
        """GPUs by host."""
        self.gpus = self.most = 0
        """All of them, and the most of one host."""
        self._tenures, self._now_ms = tenures, now_ms
        self._idle: list[int] = []
        self._idle_of_type = [0] * len(places.types)
        self._of_host: dict[int, list[int]] = {}
        self._of_type: dict[int, tuple[int, list[int]]] = {}
        used, type_of = tenures.used, places.type_of
        for number, host in enumerate(hosts):
            usable = host.usable if host.usable > host.idle else host.idle
            idle = usable - used[number]
            if idle < 0:
                idle = 0
            count = used[number] + idle
            self.counts.append(count)
            self._idle.append(idle)
            self._idle_of_type[type_of[number]] += idle
            self.gpus += count
            if count > self.most:
                self.most = count

    def of_host(self, host: int) -> list[int]:
        """When each GPU of a host is free, ascending."""
        times = self._of_host.get(host)
        if times is None:
            times = [0] * self._idle[host]
            for tenure in self._tenures.on_host[host].values():
                times += [tenure.left_ms(self._now_ms)] * tenure.job.size
            times.sort()
            self._of_host[host] = times
        return times

    def after(self, changes: Sequence[Change]) -> dict[int, list[int]]:
        """The same of the hosts that change, with the changes."""
        found: dict[int, list[int]] = {}
        for host, gone, come in changes:
            times = list(found.get(host) or self.of_host(host))
            for time in gone:
                times.remove(time)
            found[host] = sorted([*times, *come])
        return found

    def of_type(self, kind: int, count: int) -> list[int]:
        """When the first so many GPUs of a type (or more, or all that there are) are free,
        ascending."""
        asked, times = self._of_type.get(kind, (-1, []))
        if asked < count:
            asked = count + self.most
            times = self._first(kind, asked)
            self._of_type[kind] = (asked, times)
        return times

    def _first(self, kind: int, count: int) -> list[int]:
        tenures, now_ms = self._tenures, self._now_ms
        times = [end - now_ms for end in tenures.free[kind][:count]]
        times += [0] * self._idle_of_type[kind]
        for tenure in tenures.from_now.values():
            if tenure.kind == kind:
                times += [tenure.end_ms] * tenure.job.size
        times.sort()
        del times[count:]
        return times
