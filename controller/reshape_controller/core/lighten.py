"""The replacing plan of R2, made by the engine: idle GPUs spare a running job.

Does: lets a hand-over that has taken nothing yet take GPUs that became idle instead of a donor's.
Never: touches one past its point of no return. State: none. docs/decisions/0002 says why it is
here and not in a policy.
"""

from __future__ import annotations

from reshape_controller.core import handover, ledger
from reshape_controller.core.model import HandOver, HostId, JobId
from reshape_controller.core.replacing import replace
from reshape_controller.core.state import Turn


def lighten(turn: Turn, host: HostId) -> None:
    """GPUs became idle: a hand-over that has taken nothing yet takes them instead of a running
    job's (the replacing plan of R2: it takes less)."""
    jobs = turn.state.jobs
    for newcomer in sorted((jobs[job] for job in turn.state.unasked), key=lambda job: job.place):
        assert newcomer.hand_over is not None
        for donor_id in newcomer.hand_over.donors:
            _spare(turn, newcomer.id, donor_id, host)
        handover.advance(turn, newcomer.id)


def _spare(turn: Turn, newcomer_id: JobId, donor_id: JobId, host: HostId) -> None:
    newcomer, donor = turn.state.jobs[newcomer_id], turn.state.jobs[donor_id]
    assert newcomer.hand_over is not None
    promised = tuple(g for g in donor.gpus if turn.state.gpus[g].promised_to == newcomer_id)
    idle = turn.state.idle_gpus(host)
    if donor.host != host or len(idle) < len(promised):
        return
    instead = idle[: len(promised)]
    ledger.promise(turn, promised, None)
    ledger.reserve(turn, instead, newcomer_id)
    turn.state.put_job(replace(donor, donation=None))
    gpus = tuple(gpu for gpu in newcomer.hand_over.gpus if gpu not in promised) + instead
    donors = tuple(job for job in newcomer.hand_over.donors if job != donor_id)
    turn.state.put_job(replace(newcomer, hand_over=HandOver(gpus, donors)))
    turn.note(newcomer, "replanned", f"takes idle GPUs; {donor.spec.name} keeps its own")
