"""Which image an attempt runs, and whether it is built first. Pure.

Does: a record without an image whose code is a folder of this machine gets an image of its own, on
top of the operator's, where there is a registry for it. Never: takes a name that is no image's.
State: none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from reshape_launcher.kubernetes import naming
from reshape_launcher.kubernetes.pod_mounts import OWN
from reshape_launcher.kubernetes.settings import PodSettings
from reshape_launcher.spec import LaunchSpec, RecordRefused

CODE_IN_IMAGE = "/opt/reshape/code"
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,511}\Z")


@dataclass(frozen=True, slots=True)
class Build:
    """An image to be built first: ``code``, a folder of this machine, on top of ``base``."""

    base: str
    image: str
    code: str


def checked(image: str) -> str:
    """The name, if it can be an image's. Raises RecordRefused."""
    if not _IMAGE.match(image):
        raise RecordRefused("image", f"{image!r} is not an image name", "write REGISTRY/NAME:TAG")
    return image


def chosen(spec: LaunchSpec, settings: PodSettings) -> str:
    """The record's image, or the operator's. Raises RecordRefused."""
    image = spec.image or settings.image
    if image is None:
        raise RecordRefused(
            "image",
            "the record has no image, and the cluster file has no default",
            "set `image` in the job record, or in the controller's cluster file",
        )
    return checked(image)


def wanted(spec: LaunchSpec, settings: PodSettings) -> tuple[LaunchSpec, Build | None]:
    """The launch with its image, and what is to be built for it. Raises RecordRefused."""
    local = spec.code.startswith("/") and not PurePosixPath(spec.code).is_relative_to(OWN)
    if spec.image is not None or settings.registry is None or not local:
        return spec, None
    if settings.image is None:
        raise RecordRefused(
            "image",
            "an image must be built, and there is no base image",
            "set `image` in the controller's cluster file, or in the job record",
        )
    key = naming.key_of(settings.controller, spec.job)
    image = checked(f"{settings.registry}/{key}:{spec.attempt}")
    build = Build(checked(settings.image), image, spec.code)
    return replace(spec, image=image, code=CODE_IN_IMAGE), build
