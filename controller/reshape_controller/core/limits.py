"""Every deadline and bound of the deciding code, by name, with its consequence.

Never: read from a file here; the edge builds a ``Limits`` from the configuration once, and it
enters the log with ``ControllerStarted``, so that a log replays under the limits it ran with.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Deadlines in seconds; the defaults are the local launcher's."""

    early_init_s: float = 60.0
    """Launch to ``initialized``. Then: hand-over aborted, container removed, one failure."""
    save_min_s: float = 120.0
    """Shortest save deadline; the SideCar judges it (refuse or kill, as the record says)."""
    save_factor: float = 3.0
    """The save deadline is at least this many times the longest save seen of the job."""
    save_answer_s: float = 60.0
    """Beyond the save deadline without an outcome: the request is withdrawn, once."""
    kill_after_s: float = 30.0
    """TERM to KILL of a process tree."""
    stop_s: float = 60.0
    """Outcome ``stopping`` to the tree being gone, beyond kill_after_s. Then: container removed."""
    verify_s: float = 30.0
    """Claimed release to verified release. Then: the GPU is quarantined."""
    first_step_s: float = 120.0
    """Start to first step. Then: a failed start at that size."""
    initialized_hold_s: float = 600.0
    """R9: an initialised job without GPUs keeps its container so long, then is queued again."""
    end_s: float = 60.0
    """Exit asked to container gone, beyond save deadline and kill_after_s. Then: removed."""
    remove_retry_s: float = 60.0
    """Removal asked to container gone. Then: removal is asked for again, visibly."""
    silent_s: float = 30.0
    """No word of a SideCar: unreachable. Before the point of no return its hand-over aborts."""
    host_silent_s: float = 120.0
    """No word of a host: its GPUs are lost, its jobs are relaunched on another host."""
    retry_backoff_s: float = 2.0
    """A failed job waits this long, doubled at each failure (at most 300 s), before it starts."""
    refusal_cooldown_s: float = 60.0
    """A job that refused to save in time is not asked to shrink for so long."""
    start_failures_max: int = 2
    """R5: failed starts at one size before the size is struck."""


KUBERNETES = Limits(early_init_s=900.0, first_step_s=600.0, verify_s=300.0)
"""Images are pulled; while an API server is away, for minutes, no release can be looked at."""

RETRY_BACKOFF_MAX_S = 300.0
BATCH_EVENTS_MAX = 500
BATCH_BYTES_MAX = 4 * 1024 * 1024
PLAN_AGAIN_MIN_S = 1.0
"""A policy that wants to be asked again at a time is not asked earlier than after this long."""
PLAN_ROUNDS_MAX = 200
"""Plans taken in one batch; the rest wait for the next batch (never reached by a sane policy)."""
