"""From projections to the views that the API shows.

Does: flattens rows, and overlays a job with its SideCar's newest report, which is fresher than the
log. Pure.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

from reshape_controller.core import target
from reshape_controller.core.explanation import costs_of, explain_json, explain_text
from reshape_controller.core.fast_replace import replace
from reshape_controller.core.model import (
    FieldError,
    Gpu,
    GpuState,
    Host,
    Job,
    JobId,
    Length,
    LengthUnit,
    Service,
    Stage,
)
from reshape_controller.core.record import HistoryEntry
from reshape_controller.store.protocol import Decision, JobRow
from reshape_gpu.values import (
    DecisionView,
    ErrorView,
    EventView,
    GpuView,
    HostView,
    JobView,
    NoteView,
    ServiceView,
)
from reshape_sidecar import codec
from reshape_sidecar.wire import Observed, PhaseTimes, Progress


def job_view(
    row: JobRow,
    observed: Observed | None = None,
    log_folder: str | None = None,
    trouble: str = "",
    progress_at_s: float | None = None,
) -> JobView:
    """The view of a row.

    ``observed``: its SideCar's newest report, whose progress came at ``progress_at_s``;
    ``trouble``: why its container does not come up.
    """
    base = JobView(
        id=row.id,
        name=row.name,
        user=row.user,
        state=row.state.value,
        stage="none",
        reason="",
        seq=row.seq,
        submitted_at_s=row.submitted_at_s,
        log_folder=log_folder,
    )
    if row.job is None:
        errors = tuple(ErrorView(*error) for error in row.errors)
        what = "; ".join(FieldError(*error).summary for error in row.errors)
        return replace(base, reason=what, errors=errors)
    view = _with_spec(_with_job(base, row.job), row.job)
    view = _with_report(view, row.job, observed, progress_at_s)
    if trouble and row.job.stage is not Stage.NONE:
        view = replace(view, reason=": ".join(filter(None, (view.reason, trouble))))
    return view


PUBLIC_FIELDS = (
    *("id", "name", "user", "state", "stage", "seq", "submitted_at_s", "initialized_at_s"),
    *("started_at_s", "finished_at_s", "host", "hosts", "gpus", "size", "optional_gpus", "pinned"),
    *("priority", "preemptions", "served", "served_until_s"),
    *("position", "predicted_start_at_s", "predicted_end_at_s"),
)
"""Fields of a job that other users see."""


def public_view(view: JobView) -> JobView:
    """The part of a view for other users; its other fields are as if nothing were known."""
    return JobView(**{name: getattr(view, name) for name in PUBLIC_FIELDS}, reason="")


def service_view(service: Service) -> ServiceView:
    """The view of a part of a job's attained service."""
    return ServiceView(service.gpu_type, service.phase, service.gpu_s)


def event_view(entry: HistoryEntry) -> EventView:
    """The view of a line of the history."""
    return EventView(
        entry.job,
        entry.at_s,
        entry.kind,
        entry.text,
        entry.attempt,
        entry.generation,
        entry.size,
        entry.value,
    )


def gpu_view(gpu: Gpu, host: Host | None, names: dict[str, str]) -> GpuView:
    """The view of a GPU; ``names`` has the names of jobs by id."""
    return GpuView(
        id=gpu.id,
        host=gpu.host,
        index=gpu.index,
        gpu_type=host.gpu_type if host is not None else "",
        state=gpu.state.value,
        owner=gpu.owner,
        owner_name=names.get(gpu.owner) if gpu.owner is not None else None,
        promised_to=gpu.promised_to,
        promised_to_name=names.get(gpu.promised_to) if gpu.promised_to is not None else None,
        drained=host.drained if host is not None else False,
        reason=gpu.reason or gpu.unseen or _closed(gpu, host),
    )


def _closed(gpu: Gpu, host: Host | None) -> str:
    """Return why an idle GPU is given to no job; empty if it may be."""
    return host.closed if host is not None and gpu.state is GpuState.IDLE else ""


def host_view(host: Host) -> HostView:
    return HostView(host.id, host.gpu_type, host.gpus, host.drained, host.present)


def decision_view(
    decision: Decision,
    names: Mapping[JobId, str],
    histories: Mapping[JobId, Sequence[HistoryEntry]],
) -> DecisionView:
    """The view of a decision.

    ``names``: names of jobs by id. ``histories``: those of the jobs that it started or reshaped.
    """
    plan, at_s, policy = decision.plan, decision.at_s, decision.policy
    costs = costs_of(plan, at_s, histories)
    value = json.loads(explain_json(plan, at_s=at_s, policy=policy, names=names, costs=costs))
    at = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at_s))
    value["explanation"] = explain_text(plan, at=at, policy=policy, names=names, costs=costs)
    value["seq"] = decision.seq
    view: DecisionView = codec.from_value(DecisionView, value)
    return view


def jobs_in(decision: Decision) -> tuple[JobId, ...]:
    """The jobs in a decision's text: its cause, and those of its targets, options and notes."""
    plan = decision.plan
    targets = [*plan.targets, *(target for option in plan.options for target in option.targets)]
    jobs = dict.fromkeys(target.job for target in targets) | dict.fromkeys(
        note.job for note in plan.notes
    )
    if plan.about is not None:
        jobs[plan.about] = None
    return tuple(jobs)


def _with_job(base: JobView, job: Job) -> JobView:
    deadline, hand_over = job.deadline, job.hand_over
    return replace(
        base,
        stage=job.stage.value,
        reason=job.reason,
        initialized_at_s=job.initialized_at_s,
        started_at_s=job.started_at_s,
        finished_at_s=job.finished_at_s,
        host=job.host,
        hosts=job.all_hosts if job.hosts else (),
        gpus=job.gpus,
        size=len(job.gpus),
        struck=job.struck,
        pinned=job.pinned,
        next_gpus=hand_over.gpus if hand_over is not None else (),
        donors=hand_over.donors if hand_over is not None else (),
        attempt=job.attempt,
        generation=job.generation,
        reachable=job.reachable,
        served=tuple(service_view(each) for each in job.served),
        served_until_s=job.serves_since_s,
        preempted_by=job.preempted_by,
        preempted_at_s=job.preempted_at_s,
        preemptions=job.preemptions,
        evaluations=job.evaluations,
        notes=tuple(NoteView(job.id, name, text) for name, text in job.notes),
        reshape_ups=job.reshape_ups,
        reshape_downs=job.reshape_downs,
        steps_lost=job.steps_lost,
        steps_lost_known=job.all_loss_known,
        size_before=job.trial.before or None,
        process_restarts=job.process_restarts,
        container_restarts=job.container_restarts,
        failures=job.failures,
        exit_code=job.failure.exit_code if job.failure is not None else None,
        signal=job.failure.signal if job.failure is not None else None,
        exception=job.failure.exception if job.failure is not None else None,
        exception_message=job.failure.message if job.failure is not None else None,
        proof_result=job.proofs.newest or None,
        proofs_agreed=job.proofs.agreed,
        proofs_missing=job.proofs.unproved,
        first_difference=job.proofs.difference or None,
        program=job.program.value if job.saves is not None else None,
        late=(job.late or None) if job.stage.has_gpus else None,
        deadline=deadline.kind.value if deadline is not None else None,
        deadline_at_s=deadline.at_s if deadline is not None else None,
    )


def _with_spec(base: JobView, job: Job) -> JobView:
    spec = job.spec
    return replace(
        base,
        optional_gpus=spec.optional_gpus,
        command=spec.command,
        framework=spec.framework.value,
        processes=spec.processes.value,
        processes_reason=spec.processes_reason or None,
        micro_batches=spec.micro_batches,
        notify=spec.notify,
        length=length_text(spec.length),
        epochs=_epochs(spec.length),
        retries=spec.retries,
        priority=spec.priority,
        on_save_timeout=spec.on_save_timeout.value,
        reshape_if=spec.reshape_if.value,
        proof=spec.proof.value,
        on_difference=spec.on_difference.value,
        may_restart=spec.may_restart,
        min_runtime_s=spec.min_runtime_s,
        max_run_s=spec.max_run_s,
        on_max_run=spec.on_max_run.value if spec.max_run_s is not None else None,
        progress_timeout_s=spec.progress_timeout_s,
        start_timeout_s=spec.start_timeout_s,
        start_limit_s=spec.start_limit_s,
        fixed_because=(job.fixed_because or None) if _is_judged(job) else None,
        code=spec.code,
        dataset=spec.dataset,
        checkpoints=spec.checkpoints,
        job_type=spec.job_type,
    )


def _is_judged(job: Job) -> bool:
    """Whether it is known what the job's program can do: not before it trains."""
    return job.stage.has_gpus and job.stage is not Stage.STARTING


def _with_report(
    base: JobView, job: Job, report: Observed | None, report_at_s: float | None
) -> JobView:
    if report is None or report.attempt != job.attempt or report.sequence < job.sequence:
        report, report_at_s = job.observed, job.progress_at_s
    progress = job.progress
    newer = report is not None and report.sequence > job.sequence
    if newer and report is not None and report.progress.step >= progress.step:
        progress = report.progress
    container = base.stage != "none"
    word, reason = job.proofs.verdict(progress)
    total = progress.total_steps or job.progress.total_steps or _steps(job.spec.length)
    return replace(
        base,
        phase=report.phase.value if report is not None and container else None,
        pid=report.pid if report is not None and container else None,
        step=progress.step,
        total_steps=total,
        reported_at_s=(report_at_s if container else job.progress_at_s) if progress.step else None,
        epoch=progress.epoch,
        progress_ratio=_ratio(progress, total),
        loss=progress.loss,
        accuracy=progress.accuracy,
        seconds_per_step=progress.seconds_per_step,
        evaluation_s=progress.evaluation_s,
        epoch_end_s=progress.epoch_end_s,
        apart_s_per_step=progress.apart_s_per_step,
        checkpoint_step=progress.checkpoint_step,
        unsaved_steps=job.unsaved_at(progress) or None,
        trajectory=word,
        trajectory_reason=reason,
        **_target_fields(job, progress),
        times=report.times if report is not None else PhaseTimes(),
        standby=report.standby if report is not None and container else None,
        prepared=report.prepared if report is not None and container else None,
        gpu_use=report.gpu_use if report is not None and container else (),
        error=report.error if report is not None else None,
    )


def _target_fields(job: Job, progress: Progress) -> dict[str, Any]:
    """Fields of a job's target accuracy; empty if its length is another."""
    length, curve, found = job.spec.length, job.curve, progress.target
    if length is None or not target.is_target(length):
        return {}
    if found is None or not (found.metric or found.note):
        found = job.progress.target or found
    steps = curve.step_of(length.value) if curve is not None else None
    if found is None:
        note = target.NOT_EVALUATED if job.stage is Stage.TRAINING else None
        return {"metric": job.spec.metric, "target_note": note}
    step, value = found.evaluations[-1] if found.evaluations else (None, None)
    return {
        "metric": found.metric or job.spec.metric,
        "metric_value": value,
        "metric_step": step,
        "target_steps": None if steps is None else math.ceil(steps),
        "target_note": found.note or None,
    }


def length_text(length: Length | None) -> str | None:
    """A job's length for users: ``12 epochs``; None if its record has none."""
    if length is None:
        return None
    if length.unit is LengthUnit.TARGET_ACCURACY:
        return f"to accuracy {length.value:g}"
    return f"{length.value:g} {length.unit.value}"


def _epochs(length: Length | None) -> int | None:
    if length is None or length.unit is not LengthUnit.EPOCHS:
        return None
    return int(length.value)


def _steps(length: Length | None) -> int | None:
    if length is None or length.unit is not LengthUnit.STEPS:
        return None
    return int(length.value)


def _ratio(progress: Progress, total: int | None) -> float | None:
    """Share of the steps done; None also at step 0, because a program of level 0 reports none."""
    return min(1.0, progress.step / total) if total and progress.step else None
