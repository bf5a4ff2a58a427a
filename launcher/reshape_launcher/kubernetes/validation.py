"""Which fields of a job record ask for what no pod can have. Pure.

Does: report every such field at once, before the job is accepted. It asks the cluster nothing, for
what is there may change. A launch checks again, since settings may have changed in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from reshape_launcher.kubernetes import images, pod_mounts
from reshape_launcher.kubernetes.settings import PodSettings
from reshape_launcher.spec import LaunchSpec, RecordRefused

Check = Callable[[LaunchSpec, PodSettings], object]
"""Raises RecordRefused if the record asks for what no pod can have."""


def refusals(spec: LaunchSpec, settings: PodSettings) -> tuple[RecordRefused, ...]:
    """Return a problem for each field that is wrong."""
    return tuple(problem for check in CHECKS for problem in _problems(check, spec, settings))


def _problems(check: Check, spec: LaunchSpec, settings: PodSettings) -> Iterator[RecordRefused]:
    try:
        check(spec, settings)
    except RecordRefused as problem:
        yield problem


def _image(spec: LaunchSpec, settings: PodSettings) -> None:
    built, _ = images.build_for(spec, settings)
    images.image_of(built, settings)


CHECKS: tuple[Check, ...] = (
    _image,
    pod_mounts.code_folder,
    pod_mounts.dataset_folder,
    pod_mounts.checkpoint_folder,
)
