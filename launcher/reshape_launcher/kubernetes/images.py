"""The image of an attempt, and whether it has to be built first. Pure.

If a record names no image and its code is a folder of this machine, it gets an image of its own on
top of the operator's, provided that the operator names a registry.
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
    """An image to build: ``code``, a folder of this machine, on top of ``base``."""

    base: str
    image: str
    code: str


def check_name(image: str) -> str:
    """Return the name of an image if it is valid. Raises RecordRefused."""
    if not _IMAGE.match(image):
        raise RecordRefused("image", f"{image!r} is not an image name", "write REGISTRY/NAME:TAG")
    return image


def image_of(spec: LaunchSpec, settings: PodSettings) -> str:
    """Return the record's image, or the operator's. Raises RecordRefused."""
    image = spec.image or settings.image
    if image is None:
        raise RecordRefused(
            "image",
            "the record has no image, and the cluster file has no default",
            "set `image` in the job record, or in the controller's cluster file",
        )
    return check_name(image)


def build_for(spec: LaunchSpec, settings: PodSettings) -> tuple[LaunchSpec, Build | None]:
    """Return the launch with its image, and the build that it needs. Raises RecordRefused."""
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
    image = check_name(f"{settings.registry}/{key}:{spec.attempt}")
    build = Build(check_name(settings.image), image, spec.code)
    return replace(spec, image=image, code=CODE_IN_IMAGE), build
