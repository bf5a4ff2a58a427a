"""Values of the wire as a peer of an earlier release can read them: without the fields that came
with a later level. ``wire`` has the levels. Pure."""

from __future__ import annotations

from dataclasses import replace

from reshape_sidecar.wire import (
    LEVEL_ABILITIES,
    LEVEL_DEVICES,
    LEVEL_ENDS,
    LEVEL_EVALUATIONS,
    LEVEL_PROOFS,
    LEVEL_REACHED,
    LEVEL_STARTS,
    LEVEL_TIMES,
    Desired,
    Observed,
)


def at_level(observed: Observed, level: int) -> Observed:
    """Return the report without the fields that a coordinator of ``level`` does not know."""
    if level < LEVEL_ENDS and observed.ending:
        observed = replace(observed, ending=False)
    if level < LEVEL_DEVICES and observed.devices_used is not None:
        observed = replace(observed, devices_used=None)
    if level < LEVEL_PROOFS and observed.progress.proof is not None:
        observed = replace(observed, progress=replace(observed.progress, proof=None))
    if level < LEVEL_TIMES:
        progress = replace(
            observed.progress, evaluation_s=None, epoch_end_s=None, apart_s_per_step=None
        )
        observed = replace(observed, silent_s=None, progress=progress)
    if level < LEVEL_REACHED:
        observed = replace(observed, reached=None, refused=False)
        if observed.outcome is not None and observed.outcome.says_saved:
            observed = replace(observed, outcome=replace(observed.outcome, says_saved=False))
    if level < LEVEL_EVALUATIONS and observed.progress.evaluations:
        observed = replace(observed, progress=replace(observed.progress, evaluations=()))
    if level < LEVEL_STARTS:
        times = replace(observed.times, how=None, fallback=None, position_s=None, prepare_s=None)
        observed = replace(
            observed, times=times, standby=None, can_prepare=False, prepare=None, prepared=None
        )
    if level < LEVEL_ABILITIES:
        progress = replace(observed.progress, target=None)
        observed = replace(
            observed, progress=progress, saves=None, exception=None, exception_message=None
        )
    return observed


def desired_at_level(desired: Desired, level: int) -> Desired:
    """Return the desired state without the fields that a SideCar of ``level`` does not know."""
    if level < LEVEL_STARTS and desired.prepare is not None:
        desired = replace(desired, prepare=None)
    if level < LEVEL_ENDS and desired.failed:
        desired = replace(desired, failed=False)
    return desired


def level_in(header: str | None) -> int:
    """Return the level that the text of a ``LEVEL_HEADER`` names; 1 without one.

    Raises ValueError if the text is no whole number.
    """
    return int(header or "1")
