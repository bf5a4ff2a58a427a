"""Latency of a cold decision with jobs on several hosts, beside the same cluster without.

    .venv/bin/python benchmarks/gang_decisions.py [--repeats N] [--policy NAME] [--part PART]

Prints a JSON document with the conditions. A tenth of the running jobs (``--part``) are gangs of
two workers: two jobs of one size, on hosts of one GPU type, exchange half of their GPUs, so that
hosts, sizes and the number of jobs stay the same. As large a part of the queue may span. Each
cluster is decided on once with and once without, in turn; ``ratio`` is that of the medians.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
from dataclasses import replace

from decision_latency import SIZES, conditions, figures, snapshot

from reshape_controller.core.model import HostId, Share, Spans
from reshape_controller.core.plan import JobView, Policy, Snapshot
from reshape_controller.policies import make_policy

CASES = ((0, 50), (1, 0), (1000, 0))
"""Queued jobs, and running jobs that have just ended, whose GPUs are idle."""
EVEN = tuple(size for size in SIZES if size % 2 == 0)


def may_span(job: JobView) -> JobView:
    """Return the job with two workers that may be on two hosts."""
    spec = replace(job.spec, optional_gpus=EVEN, workers=2, span=Spans.ANY)
    return replace(job, spec=spec, sizes=EVEN)


def with_gangs(seen: Snapshot, part: float) -> Snapshot:
    """Return the cluster with this part of its jobs on two hosts, or able to be."""
    wanted = round(part * len(seen.running))
    jobs, single = list(seen.running), dict[tuple[str, int], int]()
    for number, job in enumerate(jobs):
        key = (job.gpu_type, job.size)
        if job.size % 2 or wanted < 2:
            continue
        other = single.get(key)
        if other is None or jobs[other].host == job.host:
            single[key] = number
            continue
        del single[key]
        assert job.host is not None
        first = jobs[other].host
        assert first is not None
        shares = (Share(first, 1), Share(job.host, 1))
        for at in (other, number):
            jobs[at] = replace(may_span(jobs[at]), host=first, shares=shares)
        wanted -= 2
    every = max(1, round(1 / part))
    queue = [
        job if number % every else may_span(job) for number, job in enumerate(seen.queued, every)
    ]
    return replace(seen, running=tuple(jobs), queued=tuple(queue))


def without_first(seen: Snapshot, count: int) -> Snapshot:
    """Return the cluster in which the first ``count`` jobs have ended."""
    idle: dict[HostId, int] = {}
    for job in seen.running[:count]:
        assert job.host is not None
        idle[job.host] = idle.get(job.host, 0) + job.size
    hosts = tuple(replace(host, idle=host.idle + idle.get(host.id, 0)) for host in seen.hosts)
    return replace(seen, running=seen.running[count:], hosts=hosts)


def milliseconds(policy: Policy, seen: Snapshot) -> float:
    """Return the processor time of a decision."""
    gc.collect()
    begun_s = time.process_time()
    policy.decide(seen)
    return (time.process_time() - begun_s) * 1e3


def compared(
    policy: Policy, queued: int, ended: int, part: float, repeats: int
) -> dict[str, object]:
    """Measure decisions with and without gangs on ``repeats`` clusters of 1,000 running jobs."""
    times: dict[bool, list[float]] = {False: [], True: []}
    gangs, plain = 0, snapshot(1, 0, 0)
    for seed in range(repeats):
        plain = without_first(snapshot(1000 + ended, queued, seed), ended)
        spanning = with_gangs(plain, part)
        gangs = sum(bool(job.shares) for job in spanning.running)
        for has_gangs in (False, True) if seed % 2 else (True, False):
            seen = spanning if has_gangs else plain
            times[has_gangs].append(milliseconds(policy, seen))
    ratio = statistics.median(times[True]) / statistics.median(times[False])
    return {
        "running": 1000,
        "on_two_hosts": gangs,
        "queued": queued,
        "idle_gpus": sum(host.idle for host in plain.hosts),
        "without_cpu_ms": figures(times[False]),
        "with_cpu_ms": figures(times[True]),
        "ratio": round(ratio, 2),
    }


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--repeats", type=int, default=100, help="clusters")
    arguments.add_argument("--policy", default="adaptive")
    arguments.add_argument("--part", type=float, default=0.1, help="part of the jobs")
    options = arguments.parse_args()
    policy = make_policy(options.policy)
    document = {
        "policy": options.policy,
        "conditions": conditions(),
        "repeats": options.repeats,
        "decisions": [compared(policy, *case, options.part, options.repeats) for case in CASES],
    }
    print(json.dumps(document, indent=1))


if __name__ == "__main__":
    main()
