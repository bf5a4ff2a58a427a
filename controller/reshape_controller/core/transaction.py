"""The transaction in which the engine takes in one event or plan.

Does: carries the state and the time from function to function, makes every change of a job, and
collects the commands and the history that come of the event. A change always starts from the job
that the state has, and the state takes it at once: nothing is rolled back.
"""

from __future__ import annotations

from typing import TypedDict, Unpack

from reshape_controller.core import run_bounds, service, transitions
from reshape_controller.core.commands import Command
from reshape_controller.core.fast_replace import with_changes
from reshape_controller.core.knowledge import Curve, Measured, Trend
from reshape_controller.core.limits import GAP_S, Limits
from reshape_controller.core.model import (
    AccuracySeen,
    Change,
    Deadline,
    Donation,
    Failure,
    GpuId,
    HandOver,
    HostId,
    Job,
    JobId,
    JobState,
    Service,
    Stage,
)
from reshape_controller.core.proofs import Proofs
from reshape_controller.core.record import HistoryEntry, PhaseCost
from reshape_controller.core.size_trial import SizeTrial
from reshape_controller.core.state import State
from reshape_sidecar.wire import Evaluation, Mode, Observed, Progress, Reached, Saves


class JobChanges(TypedDict, total=False):
    """Fields of a job that a transaction may change; ``Job`` explains them.

    ``stage`` is not among them: ``Transaction.move`` changes it.
    """

    state: JobState
    reason: str
    host: HostId | None
    attempt: int
    generation: int
    mode: Mode
    devices: tuple[GpuId, ...]
    force: bool
    gpus: tuple[GpuId, ...]
    hand_over: HandOver | None
    donation: Donation | None
    prepare: tuple[GpuId, ...] | None
    change: Change | None
    deadline: Deadline | None
    watched: bool
    after_end: JobState
    halt_wanted: bool
    answered: bool
    reachable: bool
    sequence: int
    observed: Observed | None
    progress: Progress
    struck: tuple[int, ...]
    start_failures: tuple[int, ...]
    trained_on: int
    trial: SizeTrial
    failures: int
    failure: Failure | None
    failed_starts: tuple[Failure, ...]
    failed_attempt: int
    initialized_at_s: float | None
    started_at_s: float | None
    finished_at_s: float | None
    refused_until_s: float
    reshaped_at_s: float | None
    reshape_ups: int
    reshape_downs: int
    steps_lost: int
    steps_lost_known: bool
    repeated_gpu_s: float
    lost_to: Reached | None
    process_restarts: int
    container_restarts: int
    longest_save_s: float
    only_host: HostId | None
    only_host_because: str
    unfit_on: tuple[HostId, ...]
    pinned: int | None
    uses: int
    progress_at_s: float | None
    measured: tuple[Measured, ...]
    trend: Trend | None
    straggling: bool
    reshape_cost_s: float | None
    accuracies: tuple[AccuracySeen, ...]
    curve: Curve | None
    saves: Saves | None
    has_resumed: bool
    left_at_step: int
    trains_since_s: float | None
    runs_since_s: float | None
    preempted_by: JobId | None
    preempted_at_s: float | None
    preemptions: int
    served: tuple[Service, ...]
    serves_since_s: float | None
    evaluations: tuple[Evaluation, ...]
    notes: tuple[tuple[str, str], ...]
    suspended: str
    hosts: tuple[HostId, ...]
    set_apart: str
    starts_since_s: float | None
    look_at_s: float | None
    ran_s: float
    late: str
    proofs: Proofs


class Transaction:
    """The state, the time and the effects of one event or plan. The engine makes one for each."""

    __slots__ = (
        "commands",
        "freed",
        "history",
        "keeps_history",
        "now_s",
        "observed_before",
        "state",
    )

    def __init__(self, state: State, now_s: float, *, keeps_history: bool) -> None:
        """Begin at ``now_s``. ``keeps_history``: false drops what is noted."""
        self.state, self.now_s, self.keeps_history = state, now_s, keeps_history
        self.commands: list[Command] = []
        self.history: list[HistoryEntry] = []
        self.freed: dict[HostId, None] = {}
        """Hosts on which a GPU became idle in this transaction."""
        self.observed_before = not state.observing
        """Whether every attempt had answered (R6) before this transaction."""

    @property
    def limits(self) -> Limits:
        return self.state.limits

    def update(
        self, job_id: JobId, *, changes_view: bool = True, **changes: Unpack[JobChanges]
    ) -> Job:
        """Change fields of the job that the state has, and return the changed job.

        ``changes_view``: false if the view that policies see stays the same. Raises
        InvalidTransition if the job's state must not follow its last state.
        """
        return self.take_changes(job_id, changes, changes_view=changes_view)

    def take_changes(self, job_id: JobId, changes: JobChanges, *, changes_view: bool = True) -> Job:
        """Do as ``update``, with changes that a function has collected."""
        before = self.state.jobs[job_id]
        if "state" in changes:
            self._check_state(before, changes["state"])
        if "gpus" in changes:
            job = with_changes(before, {**changes, **self._service(before, changes["gpus"])})
        else:
            job = with_changes(before, changes)
        self.state.put_job(job, changes_view=changes_view)
        return job

    def move(self, job_id: JobId, stage: Stage, **changes: Unpack[JobChanges]) -> Job:
        """Move the job to ``stage``, change further fields, and return the changed job.

        Raises InvalidTransition if the stage or the state must not follow the last.
        """
        before = self.state.jobs[job_id]
        if (before.stage, stage) not in transitions.LEGAL:
            recent = self.state.recent_history(job_id)
            raise transitions.InvalidTransition(job_id, before.stage, stage, recent)
        if "state" in changes:
            self._check_state(before, changes["state"])
        service_changes = self._service(before, changes.get("gpus", before.gpus))
        if before.stage is Stage.TRAINING and before.trial.since_s is not None:
            service_changes["trial"] = before.trial.ended(len(before.gpus), self.now_s)
        job = with_changes(before, {"stage": stage, **changes, **service_changes})
        self.state.put_job(job)
        return job

    def settle(self, job_id: JobId) -> None:
        """Add the job's service up to now to its account."""
        job = self.state.jobs[job_id]
        if job.gpus:
            self.take_changes(job_id, self._service(job, job.gpus))

    def pass_gap(self, before_s: float) -> None:
        """Count no service for a long time, since ``before_s``, in which no controller ran."""
        if self.limits.service_rules < 2 or self.now_s - before_s <= GAP_S:
            return
        for job in tuple(self.state.jobs.values()):
            if job.gpus and job.serves_since_s is not None:
                served = service.served_until(job, before_s, self.state.gpus, self.state.hosts)
                changes: JobChanges = {"served": served, "serves_since_s": self.now_s}
                if self.limits.bounds_runs:
                    changes["ran_s"] = run_bounds.ran_s(job, before_s)
                self.take_changes(job.id, changes)

    def _service(self, job: Job, gpus: tuple[GpuId, ...]) -> JobChanges:
        """Return the changes that settle the job's service before it has ``gpus``."""
        if not self.limits.service_rules or not (job.gpus or gpus):
            return {}
        served = service.served_until(job, self.now_s, self.state.gpus, self.state.hosts)
        changes: JobChanges = {"served": served, "serves_since_s": self.now_s if gpus else None}
        if job.gpus and job.serves_since_s is not None and self.limits.bounds_runs:
            changes["ran_s"] = run_bounds.ran_s(job, self.now_s)
        return changes

    def _check_state(self, job: Job, after: JobState) -> None:
        if after is not job.state and after not in transitions.STATE_CHANGES[job.state]:
            recent = self.state.recent_history(job.id)
            raise transitions.InvalidTransition(job.id, job.state, after, recent)

    def note(
        self,
        job: Job | None,
        kind: str,
        text: str,
        value: float | None = None,
        costs: tuple[PhaseCost, ...] = (),
    ) -> None:
        """Add an entry to the history: of a job, or of the cluster if ``job`` is None."""
        if not self.keeps_history:
            return
        if job is None:
            self.history.append(HistoryEntry(None, self.now_s, kind, text, value=value))
            return
        entry = HistoryEntry(
            job.id,
            self.now_s,
            kind,
            text,
            attempt=job.attempt,
            generation=job.generation,
            size=len(job.gpus),
            value=value,
            costs=costs,
        )
        self.history.append(entry)
        self.state.remember(entry)
