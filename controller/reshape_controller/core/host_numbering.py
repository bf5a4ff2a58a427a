"""Numbers of the usable hosts and of their GPU types.

Loops over all hosts index lists by these numbers instead of looking each host up by its id.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from reshape_controller.core.model import HostId


@dataclass(frozen=True, slots=True, eq=False)
class HostNumbering:
    """Hosts by number, in their order. The same value serves until a host comes or goes."""

    numbers: dict[HostId, int]
    types: tuple[str, ...]
    """GPU types, in alphabetical order."""
    type_of: tuple[int, ...]
    """For each host the number of its GPU type."""

    @staticmethod
    def of(hosts: Iterable[tuple[HostId, str]]) -> HostNumbering:
        """Number these hosts, each given with its GPU type."""
        types_of_hosts = dict(hosts)
        types = sorted(set(types_of_hosts.values()))
        numbers = {host: number for number, host in enumerate(types_of_hosts)}
        type_of = tuple([types.index(gpu_type) for gpu_type in types_of_hosts.values()])
        return HostNumbering(numbers, tuple(types), type_of)
