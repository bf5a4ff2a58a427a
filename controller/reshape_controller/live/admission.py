"""What is checked of a valid record before it may become a job here.

Does: names that live jobs have, sizes that no host has. Never: parses (records does), or queues.
State: names that were let in and are not in the engine yet.
"""

from __future__ import annotations

from collections.abc import Callable

from reshape_controller.core.errors import ReshapeError
from reshape_controller.core.model import FieldError, JobId, JobSpec
from reshape_controller.core.state import State
from reshape_controller.records import check_against_hosts
from reshape_controller.store.protocol import request_key


class Refused(ReshapeError):
    """A record cannot be accepted; every reason with its field and remedy."""

    def __init__(self, errors: tuple[FieldError, ...]) -> None:
        super().__init__("; ".join(f"{e.path}: {e.message} ({e.hint})" for e in errors))
        self.errors = errors


class Admission:
    """One per daemon; ``state`` reads the engine's."""

    def __init__(self, state: Callable[[], State]) -> None:
        self._state = state
        self._entering: set[str] = set()

    def admit(self, spec: JobSpec) -> None:
        """Let a record in, and keep its name until ``entered``. Raises Refused."""
        errors = tuple(check_against_hosts(spec, self._state().hosts.values()))
        holder = next(
            (job for job in self._state().jobs.values() if job.spec.name == spec.name), None
        )
        if holder is not None or spec.name in self._entering:
            which = f" ({holder.id}, {holder.state.value})" if holder is not None else ""
            errors += (
                FieldError(
                    "name",
                    f"{spec.name!r} is the name of a job that has not ended{which}",
                    "choose another name, or cancel that job first",
                ),
            )
        if errors:
            raise Refused(errors)
        self._entering.add(spec.name)

    def entered(self, spec: JobSpec) -> None:
        """The engine knows the job now (or never will)."""
        self._entering.discard(spec.name)


def job_id(name: str, key: str) -> JobId:
    """Id of a job: its name and a short digest of what makes this submission one of its kind."""
    return JobId(f"{name}-{request_key(key)}")
