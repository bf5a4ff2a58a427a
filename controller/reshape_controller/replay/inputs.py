"""Inputs of a replay: cluster, costs and workload. Values only, checked when they are made."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

from reshape_controller.core.errors import ReshapeError
from reshape_controller.core.model import GpuId, HostId, JobSpec
from reshape_profiles.schema import Overhead

_HOST = re.compile(r"([1-9]\d{0,5})x((?!\d+x\w)(?=[\w.-]*[A-Za-z])[A-Za-z0-9][\w.-]*)")
HOSTS_MAX = 100_000
SECONDS_MAX = 1e10
"""Largest time. Unix seconds reach it in 2286, so that a larger number is a wrong unit."""


class ReplayError(ReshapeError):
    """The inputs cannot be replayed. The text says what is wrong, where, and the remedy."""


class PolicyError(ReplayError):
    """The policy failed during a replay, so that the replay has no figures. The text names the
    policy, the time and the error."""


@dataclass(frozen=True, slots=True)
class HostSpec:
    """A machine with ``gpus`` GPUs of one type."""

    id: HostId
    gpu_type: str
    gpus: int

    def gpu_ids(self) -> tuple[GpuId, ...]:
        """Return the ids of its GPUs, by index."""
        return tuple(GpuId(f"{self.id}-gpu-{number}") for number in range(self.gpus))


@dataclass(frozen=True, slots=True)
class Cluster:
    """All hosts. ``text`` is the notation of ``cluster_of``."""

    text: str
    hosts: tuple[HostSpec, ...]

    @property
    def gpus(self) -> int:
        """Number of GPUs of all hosts."""
        return sum(host.gpus for host in self.hosts)


def cluster_of(text: str) -> Cluster:
    """Return the cluster of a text. Raises ReplayError.

    ``8xV100+8xP100`` is a host with eight V100 and a host with eight P100; ``3*8xV100`` are three
    hosts.
    """
    hosts: list[HostSpec] = []
    for part in text.split("+"):
        count, star, rest = part.strip().rpartition("*")
        found = _HOST.fullmatch(rest.strip())
        if found is None or (star and not re.fullmatch(r"[1-9]\d{0,5}", count.strip())):
            raise ReplayError(
                f"cluster {text!r}: {part.strip()!r} is not a host; write GPUSxTYPE, or "
                "COUNT*GPUSxTYPE for several, as in 8xV100+8xP100 or 2*8xV100"
            )
        for _ in range(int(count) if star else 1):
            host = HostId(f"host-{len(hosts):04d}")
            hosts.append(HostSpec(host, found[2], int(found[1])))
            if len(hosts) > HOSTS_MAX:
                raise ReplayError(f"cluster {text!r}: more than {HOSTS_MAX} hosts")
    return Cluster(text, tuple(hosts))


@dataclass(frozen=True, slots=True)
class Costs:
    """A named set of times that the world needs for starts, saves and stops.

    ``process_init_by_gpus_s``: process starts for the numbers of GPUs at which they differ.
    """

    name: str
    overhead: Overhead
    process_init_by_gpus_s: tuple[tuple[int, float], ...] = ()
    import_s: float = 0.0
    """Time from ``initialized`` until the framework is imported; a start before that waits for it.
    0: process starts include it."""

    def process_init_s(self, gpus: int) -> float:
        """Return the time from a process start on ``gpus`` GPUs to the end of its first step."""
        for number, seconds in self.process_init_by_gpus_s:
            if number == gpus:
                return seconds
        return self.overhead.process_init_s


@dataclass(frozen=True, slots=True)
class WorkJob:
    """A job and its submission time. Its name is unique in the workload."""

    submit_s: float
    spec: JobSpec
    known_gpus: tuple[int, ...] = ()
    """Sizes that a trace says, of a job that has others too: those are assumed."""

    @property
    def optional_gpus(self) -> tuple[int, ...]:
        """All its sizes."""
        return self.spec.optional_gpus

    @property
    def workers(self) -> int:
        """Workers that share its GPUs equally."""
        return self.spec.workers


@dataclass(frozen=True, slots=True)
class Workload:
    """Jobs in the order of submission. ``origin`` names their source."""

    name: str
    jobs: tuple[WorkJob, ...]
    origin: str = ""

    def __post_init__(self) -> None:
        if not self.jobs:
            raise ReplayError(f"workload {self.name}: no jobs")
        seen: dict[str, None] = {}
        for job in self.jobs:
            if job.spec.name in seen:
                raise ReplayError(f"workload {self.name}: two jobs are called {job.spec.name}")
            seen[job.spec.name] = None
            if not 0.0 <= job.submit_s <= SECONDS_MAX:
                raise ReplayError(
                    f"workload {self.name}: {job.spec.name} is submitted at {job.submit_s:g} s; "
                    f"give seconds from 0 to {SECONDS_MAX:g}"
                )
        if any(a.submit_s > b.submit_s for a, b in pairwise(self.jobs)):
            raise ReplayError(f"workload {self.name}: jobs are not in the order of submission")
