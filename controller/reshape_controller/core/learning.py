"""Learning from running jobs: their speed, their accuracy, the costs of starts and saves.

Does: compares each report with the estimates, moves these towards it by a bounded weight, and notes
in the history when a job straggles and what a start or reshape cost. The job and the profile book
hold the results. Curves are fitted outside the engine and come back as ``CurveFitted``.
"""

from __future__ import annotations

from typing import Any

from reshape_controller.core import starts, target
from reshape_controller.core.explanation import START_PHASES
from reshape_controller.core.fast_replace import replace
from reshape_controller.core.knowledge import (
    ARRAY_TYPE,
    INIT_FIELDS,
    Curve,
    Learned,
    Measured,
    Trend,
    as_before,
    at_size,
    blend,
    measure,
    with_start_phases,
)
from reshape_controller.core.model import AccuracySeen, Job, JobId, Stage
from reshape_controller.core.phrases import how_text, seconds_text
from reshape_controller.core.profile_book import total_steps
from reshape_controller.core.record import PhaseCost
from reshape_controller.core.transaction import JobChanges, Transaction
from reshape_profiles.schema import DEFAULT_TYPE, SECONDS_MAX, STEP_MIN_S, Profile
from reshape_sidecar.wire import Observed, PhaseTimes, Progress, StartKind

SPEED_WEIGHT = 0.5
"""How far one measurement of a job moves the estimate of this job."""
TYPE_WEIGHT = 0.1
"""How far one measurement of a job moves the estimate of its type."""
COST_WEIGHT = 0.3
"""How far one measured start, save or stop moves the estimate of its type."""
STRAGGLE_RATIO = 1.5
"""A job straggles when its steps take this many times what its profile says."""
STRAGGLE_OVER_RATIO = 1.25
"""A straggling job no longer straggles when its steps take less than this times its profile's."""
STRAGGLE_COUNT = 3
"""Measurements at a size before the job may be called straggling."""
TYPE_EVERY = 10
"""The job type learns one in this many measurements of a job at a size."""
LENGTH_NEWS = 0.05
"""A reported job length that differs from the estimate by more than this part asks for a plan."""
ACCURACIES_MAX = 64
"""Most points of an accuracy curve; with more, every second old point is dropped."""


def record_profile(tx: Transaction, profile: Profile) -> None:
    """Put a recorded profile into the profile book; a profile without a verification keeps the
    one that its job type has."""
    known = tx.state.profiles.of(profile.job_type)
    if known is not None and profile.verification is None:
        profile = replace(profile, verification=known.verification)
    tx.state.profiles = tx.state.profiles.with_profile(profile)
    tx.state.plan_wanted = True
    figures = f"{len(profile.speed)} speeds, {len(profile.accuracy)} accuracies"
    tx.note(None, "profile-recorded", f"job type {profile.job_type}: {figures}")


def record_curve(tx: Transaction, job_id: JobId | None, job_type: str, curve: Curve) -> None:
    """Store a fitted accuracy curve, of a job or (``job_id`` None) of a job type."""
    if job_id is None:
        known = tx.state.profiles.learned_of(job_type)
        tx.state.profiles = tx.state.profiles.with_learned(replace(known, curve=curve))
        return
    job = tx.state.jobs.get(job_id)
    if job is not None:
        tx.state.plan_wanted = tx.state.plan_wanted or job.curve is None
        job = tx.update(job_id, curve=curve)
        tx.note(job, "curve-fitted", f"learning curve through {curve.points} accuracy points")


def learn_report(tx: Transaction, before: Job, report: Observed) -> None:
    """Learn from a report that ``reports.take`` has taken in; ``before``: the job before that."""
    job = tx.state.jobs.get(before.id)
    if job is None or job.attempt != before.attempt:
        return
    launch = before.deadline
    # A job whose GPUs are reserved already passes READY and is STARTING in the same transaction.
    up = before.stage is Stage.LAUNCHING and job.stage in (Stage.READY, Stage.STARTING)
    if up and launch is not None and before.watched:
        took_s = tx.now_s - (launch.at_s - launch.length_s)
        if tx.keeps_history:
            believed = tx.state.profiles.overhead(job.spec.job_type)
            _note_start(tx, job, PhaseCost("job start", believed.job_init_s, took_s))
        _learn_costs(tx, job, job_init_s=took_s)
    if job.stage is not Stage.TRAINING or report.generation != job.generation:
        return
    if before.stage is not Stage.TRAINING:
        _learn_start(tx, before, report.times)
        job = tx.update(job.id, progress_at_s=tx.now_s, trend=None)
    changes: JobChanges = {}
    add_progress(changes, tx, job, report, before.progress, job.progress)
    tx.take_changes(job.id, changes)


def add_progress(
    changes: JobChanges,
    tx: Transaction,
    job: Job,
    report: Observed,
    before: Progress,
    after: Progress,
) -> None:
    """Add to ``changes`` what a report of the job's training process teaches.

    ``before`` and ``after``: the job's progress without and with that of the report.
    """
    if report.generation != job.generation:
        return
    at_s, measured = job.progress_at_s, job.measured
    if report.progress.step > before.step:
        at_s = changes["progress_at_s"] = tx.now_s
        # A successor that is being prepared takes processor time from the process that trains.
        found = report.progress if job.prepare is None else Progress()
        measured = _learn_speed(changes, tx, job, found)
    if before.total_steps is None and after.total_steps is not None:
        believed = total_steps(tx.state.profiles, job.spec, before, job.curve)
        if believed is None or abs(believed - after.total_steps) > LENGTH_NEWS * believed:
            tx.state.plan_wanted = True
    if at_s is not None and job.host is not None:
        gpu_type = tx.state.hosts[job.host].gpu_type
        trend = job.trend
        size, hosts = len(job.gpus), len(job.all_hosts)
        if trend is None or not trend.expects(after, at_s, measured, gpu_type, size, hosts):
            changes["trend"] = Trend(after, at_s, measured)
    accuracies = _accuracies(job, report, before, after)
    if accuracies is not job.accuracies:
        changes["accuracies"] = accuracies


def _learn_start(tx: Transaction, before: Job, times: PhaseTimes) -> None:
    """Learn the costs of a start or reshape that has reached its first step."""
    init_s = init_s_of(times)
    job, change = tx.state.jobs[before.id], before.change
    if change is not None:
        took_s = tx.now_s - change.asked_at_s if before.watched else None
        job = tx.update(job.id, reshape_cost_s=took_s)
    if tx.keeps_history:
        start = change.start if change is not None else starts.promised(before)
        _note_costs(tx, job, times, init_s, start, reshaped=change is not None)
    _learn_costs(
        tx,
        job,
        **{INIT_FIELDS[times.how or StartKind.COLD]: init_s},
        checkpoint_s=times.save_s if change is not None else None,
        process_stop_s=times.stop_s if change is not None else None,
        prepare_s=times.prepare_s if times.how is StartKind.SUCCESSOR else None,
    )
    if times.how is not None:
        phases = {
            name: seconds
            for name, seconds in start_phases_of(times).items()
            if 0.0 <= seconds <= SECONDS_MAX
        }
        moved = with_start_phases(_voice(tx, job), times.how, phases, COST_WEIGHT)
        _teach(tx, job, moved)


def learn_run(tx: Transaction, job: Job) -> None:
    """Learn from a member of an array that completes how long its siblings are, and how fast: they
    may be too short to teach their speed while they train."""
    kind = job.spec.job_type
    if kind is None or not kind.startswith(ARRAY_TYPE) or job.host is None or not job.gpus:
        return
    size, hosts = len(job.gpus), len(job.all_hosts)
    gpu_type = tx.state.hosts[job.host].gpu_type
    own = at_size(job.measured, gpu_type, size, hosts)
    steps, seconds = float(job.progress.step), own.seconds_per_step if own is not None else None
    if not job.reports_steps:
        is_whole = not (job.process_restarts or job.container_restarts)
        since_s = job.trial.since_s
        steps = 1.0
        seconds = tx.now_s - since_s if is_whole and since_s is not None else None
    if seconds is None or not STEP_MIN_S <= seconds <= SECONDS_MAX:
        return
    known, was_known = _voice(tx, job), tx.state.profiles.learned_of(kind).total_steps is not None
    spoken = _with_speed(known, gpu_type, size, seconds, hosts=hosts, prior_s=None, is_median=True)
    total = blend(known.total_steps, steps, COST_WEIGHT)
    _teach(tx, job, replace(spoken, total_steps=total))
    tx.state.plan_wanted = tx.state.plan_wanted or not was_known


def learn_prepare(tx: Transaction, job: Job, seconds: float) -> None:
    """Learn that a successor was not prepared in ``seconds``, so that later waits are longer."""
    _learn_costs(tx, job, prepare_s=seconds)


def init_s_of(times: PhaseTimes) -> float | None:
    """Return the seconds from the start of a process to the end of its first step; of a successor
    without what it did before. None if it did not say."""
    parts = start_phases_of(times).values()
    return sum(parts) if any(parts) else None


def start_phases_of(times: PhaseTimes) -> dict[str, float]:
    """Return the seconds of each phase of a process's start that the report has."""
    found = {phase: getattr(times, name) for phase, name in START_PHASES.items()}
    return {phase: seconds for phase, seconds in found.items() if seconds is not None}


def _note_costs(
    tx: Transaction,
    job: Job,
    times: PhaseTimes,
    init_s: float | None,
    start: StartKind,
    *,
    reshaped: bool,
) -> None:
    """Note the seconds of each phase beside those predicted for a process that starts as
    ``start``."""
    believed = tx.state.profiles.overhead(job.spec.job_type, start)
    known = _voice(tx, job)
    phases: tuple[PhaseCost, ...] = ()
    if times.prepare_s is not None:
        phases += (PhaseCost("prepare", known.prepare_s, times.prepare_s),)
    if times.save_s is not None:
        phases += (PhaseCost("checkpoint", believed.checkpoint_s, times.save_s),)
    if times.stop_s is not None:
        phases += (PhaseCost("process stop", believed.process_stop_s, times.stop_s),)
    within: tuple[PhaseCost, ...] = ()
    if init_s is not None:
        phases += (
            PhaseCost("process start", believed.process_init_s, init_s, times.how, times.fallback),
        )
        within = tuple(
            PhaseCost(phase, known.start_phase_s(start, phase), seconds)
            for phase, seconds in start_phases_of(times).items()
            if times.how is not None
        )
    if reshaped and job.reshape_cost_s is not None:
        cost_s = job.reshape_cost_s
        predicted_s = believed.checkpoint_s + believed.process_stop_s + believed.process_init_s
        whole = PhaseCost("whole reshape", predicted_s, cost_s)
        text = "; ".join(map(_phase_text, (*phases, *within)))
        whole_text = f"took {seconds_text(cost_s)}, predicted {seconds_text(predicted_s)}"
        text = f"{whole_text} ({text})" if text else whole_text
        tx.note(job, "reshape-cost", text, cost_s, (*phases, *within, whole))
    elif init_s is not None:
        _note_start(tx, job, phases[-1], within)


def _note_start(
    tx: Transaction, job: Job, cost: PhaseCost, within: tuple[PhaseCost, ...] = ()
) -> None:
    text = "; ".join(map(_phase_text, (cost, *within)))
    tx.note(job, "start-cost", text, cost.measured_s, (cost, *within))


def _phase_text(cost: PhaseCost) -> str:
    made = how_text(cost.how, cost.fallback)
    predicted = "" if cost.predicted_s is None else f", predicted {seconds_text(cost.predicted_s)}"
    times = f"{cost.phase} {seconds_text(cost.measured_s)}{predicted}"
    return times + (f", {made}" if made else "")


def _voice(tx: Transaction, job: Job) -> Learned:
    """Return what jobs of the same user taught about the job's type; in a log of an earlier
    release, what all jobs taught."""
    profiles = tx.state.profiles
    if not tx.limits.word_rules:
        return profiles.learned_of(job.spec.job_type)
    return profiles.voice(job.spec.job_type, job.spec.user)


def _teach(tx: Transaction, job: Job, taught: Learned) -> None:
    """Store what ``_voice`` returns from now on."""
    profiles = tx.state.profiles
    if tx.limits.word_rules:
        tx.state.profiles = profiles.with_voice(job.spec.user, taught)
    else:
        tx.state.profiles = profiles.with_learned(taught)


def _learn_costs(tx: Transaction, job: Job, **measured_s: float | None) -> None:
    """Move the estimates of the type's costs, named as in ``Learned``, towards measured seconds."""
    known = _voice(tx, job)
    believed = tx.state.profiles.voice_overhead(known)
    moved: dict[str, Any] = {
        # The first start of a faster kind counts as it is: nothing is recorded of it.
        name: blend(getattr(believed, name, getattr(known, name)), seconds, COST_WEIGHT)
        for name, seconds in measured_s.items()
        if seconds is not None and 0.0 <= seconds <= SECONDS_MAX
    }
    if any(getattr(known, name) != seconds for name, seconds in moved.items()):
        _teach(tx, job, replace(known, **moved))


def _learn_speed(
    changes: JobChanges, tx: Transaction, job: Job, found: Progress
) -> tuple[Measured, ...]:
    """Add to ``changes`` what the speed of a job whose steps moved teaches; return its speeds. A
    gang teaches a speed on as many hosts as it has.

    ``found``: without seconds per step, or with an impossible figure, it teaches no speed. What
    evaluations and ends of epochs take is part of the speed, as it is of the way to the end.
    """
    seconds, apart_s = found.seconds_per_step, found.apart_s_per_step
    if seconds is None or not STEP_MIN_S <= seconds <= SECONDS_MAX:
        return job.measured
    is_median = apart_s is not None and 0.0 <= apart_s <= SECONDS_MAX
    apart_s = apart_s if apart_s is not None and is_median else 0.0
    seconds += apart_s
    state, size, job_type = tx.state, len(job.gpus), job.spec.job_type
    hosts = len(job.all_hosts)
    assert job.host is not None
    gpu_type = state.hosts[job.host].gpu_type
    known = state.profiles.knows_speed(job_type, gpu_type)
    batches = state.profiles.batches(job_type, job.spec.global_batch)
    # What others say of the type must not make this job look slow, or its own word would be lost.
    voice = _voice(tx, job)
    step_s = state.profiles.voice_seconds_per_step(voice, gpu_type, size, hosts)
    believed_s = step_s * batches
    prior_s = believed_s if known else None
    measured = measure(
        *(job.measured, gpu_type, size, seconds),
        prior_s=prior_s,
        weight=SPEED_WEIGHT,
        hosts=hosts,
        is_median=is_median,
    )
    changes["measured"] = measured
    here = at_size(measured, gpu_type, size, hosts)
    assert here is not None
    straggling = job.straggling
    if known:
        straggling = _straggles(tx, job, here, believed_s, apart_s)
        if straggling is not job.straggling:
            changes["straggling"] = straggling
    settled = here.count % TYPE_EVERY == STRAGGLE_COUNT and not straggling
    if settled and job_type not in (None, DEFAULT_TYPE):
        # A type without any figure takes its first measurement as it is: the job is its probe.
        prior_s = believed_s / batches if known or voice.speed else None
        seen = (gpu_type, size, seconds / batches)
        spoken = _with_speed(voice, *seen, hosts=hosts, prior_s=prior_s, is_median=is_median)
        _teach(tx, job, spoken)
    return measured


def _with_speed(
    voice: Learned,
    gpu_type: str,
    size: int,
    step_s: float,
    *,
    hosts: int,
    prior_s: float | None,
    is_median: bool,
) -> Learned:
    """Return a voice that has heard one more speed; it says another one only once that differs."""
    heard = measure(
        *(voice.heard or voice.speed, gpu_type, size, step_s),
        prior_s=prior_s,
        weight=TYPE_WEIGHT,
        hosts=hosts,
        is_median=is_median,
    )
    speed = voice.speed if as_before(voice.speed, heard) else heard
    return replace(voice, speed=speed, heard=heard)


def _straggles(
    tx: Transaction, job: Job, here: Measured, believed_s: float, apart_s: float
) -> bool:
    """Return whether the job straggles, and note when that begins or ends; ``believed_s``: expected
    seconds per step; ``apart_s``: what evaluations and ends of epochs take, which is no straggling.
    """
    step_s = max(0.0, here.seconds_per_step - apart_s)
    ratio = step_s / believed_s
    if not job.straggling and here.count >= STRAGGLE_COUNT and ratio > STRAGGLE_RATIO:
        text = f"a step takes {step_s:.3g} s; its profile says {believed_s:.3g} s"
        tx.note(job, "straggling", text, ratio)
        return True
    if job.straggling and ratio < STRAGGLE_OVER_RATIO:
        tx.note(job, "straggling-over", "its step time matches its profile again", ratio)
        return False
    return job.straggling


def _accuracies(
    job: Job, report: Observed, before: Progress, after: Progress
) -> tuple[AccuracySeen, ...]:
    """Return the points of the job's accuracy curve with the evaluations of a report."""
    if not target.is_target(job.spec.length):
        return job.accuracies
    if report.progress.target is None:
        points = _with_running_accuracy(job, report)
    elif after.target is None:  # a report of an earlier step, of which nothing was taken in
        points = job.accuracies
    else:
        points = target.points(job.accuracies, before, after)
    if points is not job.accuracies and len(points) > ACCURACIES_MAX:
        points = (*points[: ACCURACIES_MAX // 2 : 2], *points[ACCURACIES_MAX // 2 :])
    return points


def _with_running_accuracy(job: Job, report: Observed) -> tuple[AccuracySeen, ...]:
    """Return the points with the accuracy of a SideCar that reports no evaluations: it is of a
    version before them, or of a replay."""
    progress, last = report.progress, job.accuracies[-1] if job.accuracies else None
    if progress.accuracy is None or (last is not None and progress.step <= last.step):
        return job.accuracies
    if last is not None and progress.accuracy == last.accuracy:
        return job.accuracies
    return (*job.accuracies, AccuracySeen(progress.step, progress.accuracy))
