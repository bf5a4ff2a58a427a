"""First in, first out: each job waits for all that came before it.

Does: starts the oldest queued job at its smallest size, and lets no later job pass it. A running
job keeps its size, and priorities do not count.
"""

from __future__ import annotations

from reshape_controller.core.phrases import gpus
from reshape_controller.core.plan import Option, Plan, Snapshot
from reshape_controller.scheduling import gang_start, legal_moves


class Fifo:
    """The policy; it has no settings."""

    name = "fifo"

    def may_act(self, *, queued: bool, idle: bool) -> bool:
        """Return whether a plan may change anything: it starts jobs alone."""
        return queued

    def decide(self, snapshot: Snapshot) -> Plan:
        """Return the next single decision."""
        newcomer = min(legal_moves.startable(snapshot), key=lambda job: job.place, default=None)
        if newcomer is None:
            return Plan()
        size, name = newcomer.sizes[0], newcomer.spec.name
        targets = gang_start.start_on_idle(snapshot, newcomer, size)
        if targets:
            text = f"{name} is the oldest and starts on {gpus(size)}"
            shown = (Option(targets),)
            return Plan(targets, "starts-oldest", text, newcomer.id, shown, 0, weighed=1)
        text = f"{name} is the oldest and waits for {gpus(size)}"
        return Plan((), "waits-nothing-fits", text, newcomer.id, looked_up_to=newcomer.id)
