"""The usable hosts by number, for loops that would otherwise look each up by name.

Does: numbers hosts and their GPU types. Never: changes: other hosts have another value.
State: none.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from reshape_controller.core.model import HostId


@dataclass(frozen=True, slots=True, eq=False)
class HostNumbering:
    """Hosts by number, in their order; one value for as long as there are no others."""

    numbers: dict[HostId, int]
    types: tuple[str, ...]
    """GPU types, in alphabetical order."""
    type_of: tuple[int, ...]
    """For each host the number of its GPU type."""

    @staticmethod
    def of(hosts: Iterable[tuple[HostId, str]]) -> HostNumbering:
        """The places of hosts, each with its GPU type."""
        kinds = dict(hosts)
        types = sorted(set(kinds.values()))
        numbers = {host: number for number, host in enumerate(kinds)}
        return HostNumbering(
            numbers, tuple(types), tuple([types.index(kind) for kind in kinds.values()])
        )
