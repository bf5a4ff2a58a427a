"""What would happen to a record if it were submitted now.

Does: submits it to a copy of the engine, with the same policy. Nothing is written or started.
"""

from __future__ import annotations

from reshape_controller.core import events as ev
from reshape_controller.core.engine import Engine
from reshape_controller.core.model import JobId, JobSpec
from reshape_controller.core.plan import Policy
from reshape_controller.core.state import State
from reshape_controller.live.expectation import Expectation, forecast_of
from reshape_controller.scheduling import rounds
from reshape_controller.scheduling.planner import Planner
from reshape_gpu.values import Trial, TrialChange


def trial(parts: tuple[str, ...], policy: Policy, spec: JobSpec, now_s: float) -> Trial:
    """Submit a record to the engine whose state is ``parts``, and say what the policy decides."""
    engine, job_id = Engine(State.load(parts)), JobId(f"{spec.name}-trial")
    done = rounds.run(engine, Planner(policy), (ev.JobSubmitted(job_id, spec),), now_s)
    state = engine.state
    sizes = {target.job: target for plan in done.plans for target in plan.targets}
    own = sizes.pop(job_id, None)
    changes = [
        TrialChange(job, state.jobs[job].spec.name, len(state.jobs[job].gpus), target.size)
        for job, target in sizes.items()
        if job in state.jobs
    ]
    texts = [
        plan.text for plan in done.plans if plan.text and job_id in (plan.about, own and own.job)
    ]
    expected = forecast_of(engine.snapshot(), state).get(job_id, Expectation())
    return Trial(
        spec.name,
        own is not None,
        own.size if own is not None else 0,
        own.host if own is not None else None,
        texts[-1] if texts else state.jobs[job_id].reason,
        tuple(changes),
        expected.position if own is None else None,
        now_s if own is not None else expected.predicted_start_at_s,
        expected.predicted_end_at_s,
        own.all_hosts if own is not None and own.shares else (),
    )
