"""The room of usable hosts for jobs that may be on several: whole workers, by GPU type.

Does: says on how few hosts a job can be. It looks at usable GPUs, whether
they are idle or not. Nothing is placed or predicted here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from reshape_controller.core.plan import HostView, JobView


@dataclass(frozen=True, slots=True)
class GangRoom:
    """The usable GPUs of hosts."""

    types: tuple[str, ...]
    """GPU types, in alphabetical order."""
    gpus: tuple[tuple[int, ...], ...]
    """For each GPU type those of each host, the most first."""

    @staticmethod
    def of(hosts: Iterable[HostView]) -> GangRoom:
        """Return the room on ``hosts``."""
        by_type: dict[str, list[int]] = {}
        for host in hosts:
            by_type.setdefault(host.gpu_type, []).append(max(host.usable, host.idle))
        types = tuple(sorted(by_type))
        gpus = [tuple(sorted(by_type[kind], reverse=True)) for kind in types]
        return GangRoom(types, tuple(gpus))

    def fewest_hosts(self, type_number: int, workers: int, each: int) -> int:
        """Return the fewest hosts of a GPU type that hold so many workers with ``each`` GPUs; 0 if
        all together do not."""
        left = workers
        for number, gpus in enumerate(self.gpus[type_number], 1):
            left -= gpus // each
            if left <= 0:
                return number
        return 0

    def needed(self, job: JobView, gpu_type: str, size: int) -> int:
        """Return the fewest hosts of a GPU type that hold a job with ``size`` GPUs; 0 if all
        together do not."""
        number, workers = self.types.index(gpu_type), job.spec.workers
        if size <= self.gpus[number][0]:
            return 1
        return self.fewest_hosts(number, workers, size // workers)

    def holds(self, job: JobView, size: int) -> bool:
        """Whether the hosts of one GPU type hold a job that may be on several."""
        workers = job.spec.workers
        each, types = size // workers, range(len(self.gpus))
        return any(self.fewest_hosts(type_number, workers, each) for type_number in types)
