"""The targets of notifications, as values, and which of them a record may name. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import IPv4Network, IPv6Network
from urllib.parse import urlsplit

from reshape_controller.core.model import FieldError, JobSpec

Network = IPv4Network | IPv6Network
MASK = "***"


class Event(StrEnum):
    """Kind of a notification."""

    ENDED = "ended"
    """A job is completed, cancelled or failed."""
    FAILED = "failed"
    """A job has failed, or is paused because its retries are used up."""
    RESHAPED = "reshaped"
    """A job trains again after a reshape."""
    WAITING = "waiting"
    """A job has waited for its first GPUs for longer than the target's ``after_s``."""
    LATE = "late"
    """A job does something for too long: it makes no first step for two hours, say."""
    DIFFERS = "differs"
    """The first step after a job's restart differs from that of the process before."""
    QUARANTINED = "quarantined"
    """A GPU is quarantined. It belongs to no job, so the target alone asks for it."""


@dataclass(frozen=True, slots=True)
class Target:
    """A receiver. Neither its secret nor its path, which may hold one, is in its text."""

    name: str
    url: str = field(repr=False)
    secret: bytes = field(repr=False)
    events: frozenset[Event]
    after_s: float = 0.0
    """Wait in the queue after which ``WAITING`` is sent."""
    allow: tuple[Network, ...] = ()
    """Addresses that are not public, and that it may have all the same."""

    @property
    def host(self) -> str:
        return urlsplit(self.url).hostname or ""

    @property
    def has_tls(self) -> bool:
        return urlsplit(self.url).scheme == "https"

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or (443 if self.has_tls else 80)

    @property
    def path(self) -> str:
        """Path and query, as a request has them."""
        parts = urlsplit(self.url)
        return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")

    @property
    def host_header(self) -> str:
        return urlsplit(self.url).netloc

    @property
    def shown(self) -> str:
        """The URL for people, without what may be a secret."""
        return f"{urlsplit(self.url).scheme}://{self.host_header}/{MASK}"


def unknown_targets(spec: JobSpec, targets: tuple[Target, ...]) -> tuple[FieldError, ...]:
    """Name the targets of a record that the operator has not defined."""
    known = [target.name for target in targets]
    choices = ", ".join(known) or "there is none: an operator defines targets by --notify FILE"
    return tuple(
        FieldError(
            f"notify[{number}]",
            f"{name!r} is not a target of notifications",
            f"use one of: {choices}" if known else f"leave it out; {choices}",
        )
        for number, name in enumerate(spec.notify)
        if name not in known
    )
