"""Errors of the deciding code. Never: text for a terminal; the edges render these."""

from __future__ import annotations


class ReshapeError(Exception):
    """Base of every error that Reshape raises on purpose."""


class PlanRejected(ReshapeError):
    """A policy's plan breaks a rule; nothing of it was applied. ``reason`` says which rule."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class UnknownJob(ReshapeError):
    """A request names a job that is not there (or has ended)."""


class UnknownHost(ReshapeError):
    """A request names a host that is not in the inventory."""


class UnknownGpu(ReshapeError):
    """A request names a GPU that is not in the inventory."""


class InvariantError(ReshapeError):
    """The state contradicts itself: a defect. The controller stops rather than go on."""
