"""The paper's case study (its section II.C, Table I, Figure 3): two jobs on four GPUs.

Does: give the inputs that the text states as a workload, speeds and costs, and the times that it
prints for comparison. No input is fitted to a printed result.

Stated: submissions at 0 s and 180 s on four and two GPUs; 1.7 times the speed on two GPUs and 2.4
times on four; a start of 174 s; reshapes of 27 s and 37 s in place, of 204 s and 242 s by restart.
Job 1 takes its first step at 174 s in every panel: where the costs of a panel give a shorter start,
it is submitted later by the difference, so that all panels have done the same work at 180 s.
Work: Job 1 trains from the end of its start (174 s) to 633 s on four GPUs, Job 2 from 807 s to
1,249 s on two (panel a). How a sum splits into its parts is assumed: ``reshape_profiles`` says so
in ``data/README.md``.
"""

from __future__ import annotations

from dataclasses import dataclass

from reshape_controller.core.model import JobSpec, Length, LengthUnit
from reshape_controller.replay.ground_truth import truth_of
from reshape_controller.replay.inputs import Costs, WorkJob, Workload, cluster_of
from reshape_controller.replay.shell import Scene
from reshape_profiles.schema import Overhead, Profile, SpeedPoint

STEP_S = 0.1
"""Seconds of a step on one GPU: short, so that times do not depend on step boundaries."""
SPEEDUP = {1: 1.0, 2: 1.7, 4: 2.4}
SOURCE = "paper, introduction: 1.7 and 2.4 times the speed"
SAVE_S, STOP_S = 5.0, 5.0
JOB_1_S, JOB_2_S = 633.0 - 174.0, 1249.0 - 807.0
"""First step to completion in panel (a), the last checkpoint and stop included."""
FIRST_STEP_S = 174.0
"""First step of Job 1, in every panel."""
SUBMITTED_S = {"job-1": 0.0, "job-2": 180.0}
"""Submissions in the paper, from which completion times count."""
GPU_TYPE = "V100"

IN_PLACE = Costs(
    "case-study-in-place",
    Overhead(83.0, 17.0, SAVE_S, STOP_S, 90.0, "27 s down (two GPUs), 110 s to Job 2's first step"),
    ((4, 27.0),),
)
"""37 s up: the start on four GPUs takes 10 s longer. A job start takes 110 s - 27 s."""
BY_RESTART = Costs(
    "case-study-by-restart",
    Overhead(87.0, 17.0, SAVE_S, STOP_S, 90.0, "204 s down (two GPUs)"),
    ((4, 55.0),),
)
"""242 s up: the start on four GPUs takes 38 s longer."""
COLD = Costs(
    "case-study-cold",
    Overhead(157.0, 17.0, SAVE_S, STOP_S, 0.0, "174 s from Job 1's end to Job 2's first step"),
)

PRINTED = {
    "default": {"job-1": 633.0, "job-2": 1249.0},
    "termination": {"job-1": 1143.0, "job-2": 815.0},
    "sidecar": {"job-1": 845.0, "job-2": 692.0},
}
"""Completion times of Figure 3's panels."""


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel of Figure 3: its preset and its costs."""

    name: str
    policy: str
    mechanism: str
    costs: Costs


PANELS = (
    Panel("default", "default", "none", COLD),
    Panel("termination", "paper", "terminate", BY_RESTART),
    Panel("sidecar", "paper", "sidecar", IN_PLACE),
)


def profile(job_type: str) -> Profile:
    """Return the profile of the jobs, which differ only in their length."""
    points = tuple(SpeedPoint(GPU_TYPE, n, STEP_S / s, SOURCE) for n, s in SPEEDUP.items())
    return Profile(job_type, "case study", speed=points)


def steps(seconds: float, gpus: int) -> int:
    """Return the steps of a job that needs ``seconds`` from its first step to its completion."""
    training_s = seconds - SAVE_S - STOP_S
    return round(training_s * SPEEDUP[gpus] / STEP_S) + 1


def scene(costs: Costs, *, sizes: tuple[tuple[int, ...], ...] = ((1, 2, 4), (2,))) -> Scene:
    """Return the scene of the two jobs; ``sizes``: their optional numbers of GPUs."""
    jobs = []
    submit_1_s = FIRST_STEP_S - costs.overhead.job_init_s - costs.process_init_s(4)
    stated = ((submit_1_s, JOB_1_S, 4), (180.0, JOB_2_S, 2))
    for number, (submit_s, seconds, gpus) in enumerate(stated):
        spec = JobSpec(
            f"job-{number + 1}",
            ("python", "train.py"),
            sizes[number],
            Length(LengthUnit.STEPS, float(steps(seconds, gpus))),
            job_type="case-study",
        )
        jobs.append(WorkJob(submit_s, spec))
    known = (profile("case-study"),)
    workload = Workload("case-study", tuple(jobs), "paper, Table I")
    cluster = cluster_of(f"4x{GPU_TYPE}")
    return Scene(workload, cluster, costs, known, truth_of(known, spread=0.0))
