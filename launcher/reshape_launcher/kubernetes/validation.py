"""What a job's record asks for that no pod can have. Pure.

Does: names each field at once, before the job is accepted. Never: asks the cluster; what is there
may change. State: none. A launch looks again: settings may have changed since.
"""

from __future__ import annotations

from collections.abc import Callable

from reshape_launcher.kubernetes import images, pod_mounts
from reshape_launcher.kubernetes.settings import ClaimMount, PodSettings
from reshape_launcher.spec import LaunchSpec, RecordRefused


def refusals(spec: LaunchSpec, settings: PodSettings) -> tuple[RecordRefused, ...]:
    """Each field of which something is wrong."""
    mounts: list[ClaimMount] = []
    looks: tuple[Callable[[], object], ...] = (
        lambda: _image(spec, settings),
        lambda: pod_mounts.code(spec, mounts),
        lambda: pod_mounts.dataset(spec, mounts),
        lambda: pod_mounts.checkpoints(spec, settings, mounts),
    )
    found = []
    for look in looks:
        try:
            look()
        except RecordRefused as refused:
            found.append(refused)
    return tuple(found)


def _image(spec: LaunchSpec, settings: PodSettings) -> str:
    built, _ = images.wanted(spec, settings)
    return images.chosen(built, settings)
