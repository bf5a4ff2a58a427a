"""The command ``reshape`` with a policy that reshapes without end: ``-m tests.chaos.daemon``.

Does: starts queued jobs, at random by shrinking others; grows and shrinks at random what trains.
The waits after failures are short, and kills strike no size: a campaign kills more often than the
product's figures are made for. State: none; the dice follow from the snapshot.
"""

from __future__ import annotations

import random
from dataclasses import replace

from reshape_controller.cli.main import main
from reshape_controller.cli.serve import up
from reshape_controller.core.limits import LOCAL
from reshape_controller.core.plan import Plan, Snapshot, Target
from reshape_controller.policies import BUILT_IN
from reshape_controller.scheduling import legal_moves

NAME = "churn"
AGAIN_S = 1.0
BACKOFF_S = 0.02
DEATHS_MAX = 1_000
KILL_AFTER_S = 2.0
"""Some escapes ignore SIGTERM."""


class Churn:
    """Hand-overs as often as the engine allows, by no reason."""

    name = NAME

    def decide(self, snapshot: Snapshot) -> Plan:
        dice = random.Random(f"{snapshot.seed} {snapshot.now_s}")
        for job in legal_moves.startable(snapshot):
            for host in legal_moves.hosts_for(snapshot, job):
                plan = _start(snapshot, dice, job.id, job.sizes, host.id, host.idle)
                if plan is not None:
                    return plan
        return _reshape(snapshot, dice) or Plan(wake_at_s=snapshot.now_s + AGAIN_S)


def _start(
    snapshot: Snapshot, dice: random.Random, job: str, sizes: tuple[int, ...], host: str, idle: int
) -> Plan | None:
    """Start a job, on GPUs of others if that is possible, and at times although some are idle."""
    donors = [each for each in legal_moves.donors(snapshot)[host] if each.trains]  # type: ignore[index]
    dice.shuffle(donors)
    size, targets = dice.choice(sizes), []
    missing = size - idle
    for donor in donors:
        if missing > 0:
            keeps = dice.choice([each for each in donor.sizes if each < donor.size])
            targets.append(Target(donor.id, keeps, donor.host))  # type: ignore[arg-type]
            missing -= donor.size - keeps
    if missing > 0:
        fitting = [each for each in sizes if each <= idle]
        if not fitting:
            return None
        size, targets = max(fitting), []
    start = Target(job, size, host)  # type: ignore[arg-type]
    return Plan((start, *targets), "churns", about=start.job)


def _reshape(snapshot: Snapshot, dice: random.Random) -> Plan | None:
    """Shrink or grow a job that trains; return None if none can."""
    movers = [job for job in snapshot.running if job.trains and not job.frozen and job.host]
    dice.shuffle(movers)
    idle = {host.id: host.idle for host in snapshot.hosts}
    for job in movers:
        assert job.host is not None
        room = job.size + idle.get(job.host, 0)  # a drained host is not shown
        sizes = [size for size in job.sizes if size != job.size and size <= room]
        if sizes and not job.fixed_because:
            return Plan((Target(job.id, dice.choice(sizes), job.host),), "churns", about=job.id)
    return None


if __name__ == "__main__":
    BUILT_IN[NAME] = Churn
    up.LOCAL = replace(  # type: ignore[attr-defined]
        LOCAL,
        retry_backoff_s=BACKOFF_S,
        start_failures_max=DEATHS_MAX,
        refusal_cooldown_s=1.0,
        kill_after_s=KILL_AFTER_S,
    )
    main()
