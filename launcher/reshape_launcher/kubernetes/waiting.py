"""For how long each pod has had the trouble that keeps it from coming up.

Does: remembers when a trouble was first seen; one that is waited for longer or shorter is another.
Never: counts from the pod's creation: a pull may take long before the registry has a hiccup. State:
since when, by pod; forgotten at a restart, when every wait begins anew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from reshape_launcher.kubernetes.cluster import PodSeen
from reshape_launcher.kubernetes.status import patience_s


class Troubles:
    """One per launcher. ``monotonic_s`` is any steady clock."""

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self._monotonic_s = monotonic_s
        self._since_s: dict[tuple[str, float], float] = {}
        """By pod and the patience with its trouble."""

    def timed(self, pods: tuple[PodSeen, ...]) -> tuple[PodSeen, ...]:
        """All pods of one look, with how long each has had its trouble."""
        now_s, before = self._monotonic_s(), self._since_s
        keys = {pod.name: (pod.name, patience_s(pod)) for pod in pods if pod.trouble}
        since_s = self._since_s = {key: before.get(key, now_s) for key in keys.values()}
        return tuple(
            replace(pod, waits_s=now_s - since_s[keys[pod.name]]) if pod.trouble else pod
            for pod in pods
        )
