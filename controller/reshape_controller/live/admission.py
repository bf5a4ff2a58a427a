"""Checks of a valid request before it may enter the log.

Does: refuses names of the user's jobs that have not ended, checkpoint folders of jobs whose
containers have not ended and that may write there, sizes that no host has, and what no launcher can
give; checks a size to pin. A name that was admitted stays reserved until the engine knows its job.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

from reshape_controller.core.errors import ReshapeError
from reshape_controller.core.model import FieldError, Job, JobId, JobSpec
from reshape_controller.core.phrases import gpus
from reshape_controller.core.size_trial import SizeTrial
from reshape_controller.core.state import State
from reshape_controller.records import check_against_hosts
from reshape_controller.records.errors import text_of
from reshape_controller.store.protocol import request_key


class Refused(ReshapeError):
    """A record cannot be accepted; every reason with its field and remedy."""

    def __init__(self, errors: tuple[FieldError, ...]) -> None:
        super().__init__("; ".join(text_of(error) for error in errors))
        self.errors = errors


class Admission:
    """One per daemon; ``state`` reads the engine's."""

    def __init__(
        self,
        state: Callable[[], State],
        refusals: Callable[[JobSpec], tuple[FieldError, ...]] = lambda spec: (),
        may_write: Callable[[str, int | None], bool] = lambda folder, uid: True,
    ) -> None:
        """``refusals``: names the parts of a record that the launcher cannot give. ``may_write``:
        whether a Unix user may write in a folder."""
        self._state = state
        self._refusals = refusals
        self._may_write = may_write
        self._entering: dict[tuple[str, str], JobSpec] = {}
        """By user and name: records of jobs on their way into the log."""

    def admit(self, spec: JobSpec) -> None:
        """Admit a record, and reserve its name and folder until ``entered``. Raises Refused."""
        errors = check_against_hosts(spec, self._state().hosts.values()) + self._refusals(spec)
        jobs = self._state().jobs.values()
        named = (job for job in jobs if _name(job.spec) == _name(spec) and not job.state.terminal)
        holder = next(named, None)
        if holder is not None or _name(spec) in self._entering:
            errors += (_taken("name", spec.name, "name", holder, spec),)
        elif (folder := _folder(spec)) is not None:
            holder = next((job for job in jobs if self._holds(job.spec, folder, spec)), None)
            if holder is not None or any(
                self._holds(each, folder, spec) for each in self._entering.values()
            ):
                errors += (_taken("checkpoints", folder, "checkpoint folder", holder, spec),)
        if errors:
            raise Refused(errors)
        self._entering[_name(spec)] = spec

    def entered(self, spec: JobSpec) -> None:
        """Release the name: the engine knows the job now, or cannot get to know it any more."""
        self._entering.pop(_name(spec), None)

    def _holds(self, holder: JobSpec, folder: str, spec: JobSpec) -> bool:
        """Whether a job has a checkpoint folder for itself. Another user's job has so only what it
        may write in: nobody keeps a folder from its owner by naming it."""
        if _folder(holder) != folder:
            return False
        return (holder.user, holder.uid) == (spec.user, spec.uid) or self._may_write(
            folder, holder.uid
        )


def _name(spec: JobSpec) -> tuple[str, str]:
    """The name of a job, which is its user's own."""
    return spec.user, spec.name


def _folder(spec: JobSpec) -> str | None:
    if spec.checkpoints is None:
        return None
    found = os.path.normpath(spec.checkpoints)
    return found.removeprefix("/") if found.startswith("//") else found  # POSIX keeps two of them


def _taken(field: str, value: str, what: str, holder: Job | None, spec: JobSpec) -> FieldError:
    """The refusal of a value in use. ``holder``: the job that has it; None: one that is being
    submitted at this moment. ``spec``: the record, whose author learns no id of another's job."""
    if holder is not None and holder.spec.user != spec.user:
        message = f"{value!r} is the {what} of another user's job, which has not ended"
        return FieldError(field, message, f"choose another {what}, or ask an operator whose it is")
    if holder is not None and holder.state.terminal:
        who = f"a job whose container has not ended yet ({holder.id}, {holder.state.value})"
        remedy = f"submit it again in a moment, or choose another {what}"
        return FieldError(field, f"{value!r} is the {what} of {who}", remedy)
    which = f" ({holder.id}, {holder.state.value})" if holder is not None else ""
    message = f"{value!r} is the {what} of a job that has not ended{which}"
    return FieldError(field, message, f"choose another {what}, or cancel that job first")


def size_to_pin(job: Job, size: object) -> int | None:
    """Check a requested size and return it; None for all sizes. Raises Refused."""
    if size is None:
        return None
    sizes = replace(job, pinned=None, trial=SizeTrial(), uses=0).sizes
    message = f"{size!r:.40} is not a GPU count of {job.id}"
    if isinstance(size, int) and not isinstance(size, bool):
        if size in sizes:
            return size
        if size in job.struck:
            message = f"{job.id} failed to start on {gpus(size)}; pause and resume it to try again"
    choices = ", ".join(map(str, sizes)) or "none"
    raise Refused(
        (FieldError("size", message, f"use one of: {choices}; to allow all: reshape unpin"),)
    )


def job_id(name: str, key: str) -> JobId:
    """Id of a job: its name, and a short digest of ``key``, which is unique to the submission."""
    return JobId(f"{name}-{request_key(key)}")
