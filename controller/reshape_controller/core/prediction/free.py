"""When GPUs are free, as one forecast has it: as many as somebody asks for.

Does: merges idle GPUs, those whose jobs' ends are moments, and the others; for a GPU type or for a
host. Never: predicts when a job ends: tenures have that. State: figures of one forecast. Times are
whole milliseconds from now, but for those of a GPU type: these are moments, as tenures have them.
"""

from __future__ import annotations

from reshape_controller.core.places import Places
from reshape_controller.core.plan import HostView
from reshape_controller.core.prediction.tenures import Tenures

Change = tuple[int, tuple[int, ...], tuple[int, ...]]
"""On one host (by number): times at which GPUs no longer become free, and new ones."""


class Free:
    """The usable GPUs of all hosts."""

    def __init__(
        self, tenures: Tenures, places: Places, hosts: tuple[HostView, ...], now_ms: int
    ) -> None:
        self.places, self.now_ms = places, now_ms
        self.counts = tenures.used.copy()
        """GPUs by host."""
        self._tenures = tenures
        self._idle = [0] * len(hosts)
        self._idle_of_type = [0] * len(places.types)
        self._of_host: dict[int, list[int]] = {}
        self._moments: list[list[int]] = []
        self._asked = -1
        """So many GPUs of each type are in there."""
        gpus = most = 0
        for number, host in enumerate(hosts):
            count, usable = self.counts[number], host.usable
            if host.idle > usable:
                usable = host.idle
            if usable > count:
                self._idle[number] = usable - count
                self._idle_of_type[places.type_of[number]] += usable - count
                self.counts[number] = count = usable
            gpus += count
            if count > most:
                most = count
        self.gpus, self.most = gpus, most
        """All of them, and the most of one host."""

    def of_host(self, host: int) -> list[int]:
        """When each GPU of a host is free, ascending."""
        times = self._of_host.get(host)
        if times is None:
            times = [0] * self._idle[host]
            for tenure in self._tenures.on_host[host].values():
                times += [tenure.left_ms(self.now_ms)] * tenure.job.size
            times.sort()
            self._of_host[host] = times
        return times

    def after(self, changes: tuple[Change, ...]) -> dict[int, list[int]]:
        """The same of the hosts that change, with the changes."""
        found: dict[int, list[int]] = {}
        for host, gone, come in changes:
            times = list(found.get(host) or self.of_host(host))
            for time in gone:
                times.remove(time)
            found[host] = sorted([*times, *come])
        return found

    def moments(self, kind: int, count: int) -> list[int]:
        """At which the first so many GPUs of a type (or more, or all that there are) are free,
        ascending."""
        if self._asked < count:
            self._asked = count + self.most
            self._moments = self._first(self._asked)
        return self._moments[kind]

    def _first(self, count: int) -> list[list[int]]:
        tenures, now_ms = self._tenures, self.now_ms
        rows = [
            [now_ms] * self._idle_of_type[kind] + row[:count]
            for kind, row in enumerate(tenures.free)
        ]
        for tenure in tenures.from_now.values():
            if tenure.host >= 0:
                for _ in range(tenure.job.size):
                    rows[tenure.kind].append(now_ms + tenure.end_ms)
        for row in rows:
            row.sort()
            del row[count:]
        return rows
