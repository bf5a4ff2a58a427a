"""The Lease of each node: which controller gives its GPUs to jobs.

Does: take the Lease of a node that no store holds, and tell which store holds it else. The holder
is a store, so that controllers that stand by for each other share it.
Never: take a Lease because time has passed. It changes hands only after its holder has released it,
or after a person has deleted it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace

from reshape_launcher.kubernetes.values import LeaseApi, NodeLease

LOOK_EVERY_S = 10.0
"""Pause between two looks at all Leases. A new node is looked at at once."""
NO_HOLDER = ""


class NodeLeases:
    """The Leases as one store's controller sees them. ``monotonic_s`` is any steady clock.

    ``holder`` is the store's id; ``who`` names the controller for people.
    """

    def __init__(
        self,
        api: LeaseApi,
        holder: str,
        who: str,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._holder = holder
        self._who = who
        self._monotonic_s = monotonic_s
        self._leases: dict[str, NodeLease] = {}
        self._look_at_s = 0.0

    def take(self, nodes: Iterable[str]) -> dict[str, str]:
        """Take each free node; return by node why this controller must not use it.

        Raises KubernetesError.
        """
        nodes = tuple(nodes)
        if self._monotonic_s() >= self._look_at_s or not self._leases.keys() >= set(nodes):
            self._look()
        return {node: why for node in nodes if (why := self._take(node))}

    def release(self, node: str) -> None:
        """Let another controller take the node, if this one has it. Raises KubernetesError."""
        self._look()
        lease = self._leases.get(node)
        if lease is not None and lease.holder == self._holder:
            self._write(replace(lease, holder=NO_HOLDER, who=""))

    def _take(self, node: str) -> str:
        lease = self._leases.get(node, NodeLease(node))
        if lease.holder == NO_HOLDER:
            lease = self._write(replace(lease, holder=self._holder, who=self._who))
        if lease.holder == self._holder:
            return ""
        return f"its GPUs are held by {lease.who or 'another controller'} (store {lease.holder})"

    def _write(self, lease: NodeLease) -> NodeLease:
        """Write a Lease as it was read, and return it as it is now."""
        written = self._api.write_node_lease(lease)
        if written is None:  # another controller was faster
            self._look()
            return self._leases.get(lease.node, NodeLease(lease.node, "unknown"))
        self._leases[lease.node] = written
        return written

    def _look(self) -> None:
        self._leases = {lease.node: lease for lease in self._api.node_leases()}
        self._look_at_s = self._monotonic_s() + LOOK_EVERY_S
