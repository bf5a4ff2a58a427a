"""Errors of the deciding code. The edges turn them into text for a terminal or the API."""

from __future__ import annotations


class ReshapeError(Exception):
    """Base of the errors that Reshape raises on purpose."""


class PlanRejected(ReshapeError):
    """A plan breaks a rule, so that nothing of it was applied. ``reason`` names the rule."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class UnknownJob(ReshapeError):
    """A request names a job that does not exist or has ended."""


class UnknownHost(ReshapeError):
    """A request names a host that is not in the inventory."""


class UnknownGpu(ReshapeError):
    """A request names a GPU that is not in the inventory."""


class InvariantError(ReshapeError):
    """The state contradicts itself, which is a defect. The controller stops."""
