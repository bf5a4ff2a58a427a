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
    found = tuple(problem for check in CHECKS for problem in _problems(check, spec, settings))
    wrong = {problem.field for problem in found}
    closed = (*_closed_image(spec, settings), *pod_mounts.check_claims(spec, settings))
    return found + tuple(problem for problem in closed if problem.field not in wrong)


def _closed_image(spec: LaunchSpec, settings: PodSettings) -> Iterator[RecordRefused]:
    """Refuse an image that the operator does not allow: pods fetch it with the operator's secrets.
    A launch does not look: what was accepted stays so."""
    if spec.image is not None and settings.images and not spec.image.startswith(settings.images):
        what = f"{spec.image!r:.200} is not among the images that the cluster file allows"
        remedy = f"name one that begins with: {', '.join(settings.images)}; or leave it out"
        yield RecordRefused("image", what, remedy)


def _problems(check: Check, spec: LaunchSpec, settings: PodSettings) -> Iterator[RecordRefused]:
    try:
        check(spec, settings)
    except RecordRefused as problem:
        yield problem


def _image(spec: LaunchSpec, settings: PodSettings) -> None:
    built, _ = images.build_for(spec, settings)
    images.image_of(built, settings)


def _shared_memory(spec: LaunchSpec, settings: PodSettings) -> None:
    """Refuse more shared memory than the cluster file's limit; ``records`` knows a record's own."""
    shared = spec.shared_memory_bytes or 0
    if spec.memory_bytes is None and shared > settings.memory_bytes:
        what = f"{shared} bytes are more than the memory limit here, {settings.memory_bytes} bytes"
        raise RecordRefused("shared_memory_gb", what, "give the job more memory")


CHECKS: tuple[Check, ...] = (
    _image,
    _shared_memory,
    pod_mounts.code_folder,
    pod_mounts.dataset_folder,
    pod_mounts.checkpoint_folder,
)
