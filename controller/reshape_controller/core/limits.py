"""Every deadline and bound of the deciding code, by name, with its consequence.

The command line builds a ``Limits`` from the configuration once, and it enters the log with
``ControllerStarted``, so that a log replays under the limits it ran with.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Limits:
    """Deadlines in seconds, and counts. A default must not change: logs leave it out."""

    early_init_s: float = 60.0
    """Launch to ``initialized``. Then: hand-over aborted, container removed, one failure."""
    save_min_s: float = 120.0
    """Shortest save deadline. Then: the SideCar refuses or kills, as the job record says."""
    save_factor: float = 3.0
    """The save deadline is at least this many times the longest save of the job."""
    save_answer_s: float = 60.0
    """Beyond the save deadline without an outcome: the request is withdrawn, once."""
    kill_after_s: float = 30.0
    """TERM to KILL of a process tree."""
    stop_s: float = 60.0
    """Outcome ``stopping`` to the tree being gone, beyond kill_after_s. Then: container removed."""
    verify_s: float = 30.0
    """Claimed release to verified release. Then: the GPU is quarantined."""
    first_step_s: float = 120.0
    """Start to first step, with ``start_rules`` below 4. Then: a failed start at that size."""
    start_timeout_s: float = 0.0
    """Silence of a start whose record gives no ``start_timeout_s``. Then: a failed start; 0: never.
    """
    initialized_hold_s: float = 600.0
    """Initialised to its GPUs (R9). Then: the container is removed, the job is queued again."""
    end_s: float = 60.0
    """Exit request to container gone, beyond save deadline and kill_after_s. Then: removed."""
    remove_retry_s: float = 60.0
    """Removal request to container gone. Then: the request is repeated, with a history entry."""
    silent_s: float = 30.0
    """Silence of a SideCar. Then: unreachable; before the point of no return its hand-over aborts.
    """
    host_silent_s: float = 120.0
    """Silence of a host. Then: its GPUs are lost, its jobs are launched on another host."""
    retry_backoff_s: float = 2.0
    """Wait of a failed job before its next start, doubled at each failure (at most 300 s)."""
    unsaved_wait_s: float = 60.0
    """Request to stop a program that cannot save, by a person. Then: it stops; its steps are lost.
    """
    prepare_s: float = 60.0
    """Plan to prepared successor. Then: the change goes on without a successor."""
    imports_s: float = 60.0
    """Initialised to imported, while donors train on. Then: the donors are asked all the same."""
    refusal_cooldown_s: float = 60.0
    """Time after a refused save in which the job is not asked to shrink."""
    start_failures_max: int = 2
    """R5: failed starts at one size before the size is struck."""
    start_rules: int = 1
    """R5: 2 or more if each start that follows a failure spends a retry; 3 if a failure soon after
    a reshape goes back, and a refusal is final; 4 if a start is bounded by its silence. Less in
    logs of earlier releases."""
    service_rules: int = 0
    """1 if starts are dated and attained service is counted; 2 if so, but not in a gap without a
    controller (``GAP_S``); 0 and 1 in logs of earlier releases."""
    cancel_rules: int = 0
    """1 if a cancelled program is killed kill_after_s after its TERM; 0 in logs of earlier releases
    (at its save deadline)."""

    loss_rules: int = 0
    """1 if a job notes whether it lost steps that nobody counted; 0 in logs of earlier releases."""
    import_rules: int = 0
    """1 if donors train on until the newcomer has imported its framework; 0 in logs of earlier
    releases (until it is initialised)."""
    word_rules: int = 0
    """1 if each user has one voice about a job type, and a save is no longer than the controller
    saw; 0 in logs of earlier releases."""

    @property
    def bounds_runs(self) -> bool:
        """Whether starts and runs have the bounds of ``core.run_bounds``; not in a log of an
        earlier release."""
        return self.start_rules >= 4


LOCAL = Limits(
    start_timeout_s=1800.0,
    start_rules=4,
    service_rules=2,
    cancel_rules=1,
    loss_rules=1,
    import_rules=1,
    word_rules=1,
)
KUBERNETES = replace(LOCAL, early_init_s=900.0, verify_s=300.0, prepare_s=300.0, imports_s=300.0)
"""Image pulls take minutes, and no release can be verified while an API server is away."""

START_ALERT_S = 7200.0
"""A start that takes longer is an alert; nothing is ended."""
PROGRESS_ALERT_S = 3600.0
"""A job that makes no further step for longer is an alert; nothing is ended."""
LOOK_MIN_S = 10.0
"""Shortest time between two looks at the bounds of a run: about that between two reports."""
LEAVE_AGAIN_S = 60.0
"""Time after which a job is asked again to leave that has had its ``max_run_s``, and did not."""
PREPARE_FACTOR = 1.5
"""A change waits for its successor for at most this many times the learned time of one."""
RETRY_BACKOFF_MAX_S = 300.0
BATCH_EVENTS_MAX = 500
BATCH_BYTES_MAX = 4 * 1024 * 1024
EQUAL_RUNTIME_MIN_S = 1800.0
"""Shortest run of a job before a job of equal priority may preempt it."""
EQUAL_PREEMPTION_EVERY_S = 3600.0
"""Shortest time from a preemption of a job to the next by a job of equal priority."""
TRIAL_S = 600.0
"""Time from the first step at a size until the job has proven that it trains at that size. A
program without reports of steps that fails earlier goes back to its size before (R5)."""
UNUSED_AFTER_S = 60.0
"""Time from a first step until a program is believed to use fewer GPUs than it has."""
GAP_S = 60.0
"""A longer time from a controller's last record to the first of the next is charged to nobody: jobs
may have trained in it or not, and the clock may have jumped."""
PLAN_AGAIN_MIN_S = 1.0
"""Shortest wait until the planning time that an empty plan names."""
PLAN_ROUNDS_MAX = 200
"""Most plans in one batch; further plans wait for the next batch. A sane policy needs few."""
