"""A plan that was compared with no other option."""

from __future__ import annotations

from reshape_controller.core.model import JobId
from reshape_controller.core.plan import Option, Plan, Preemption, Target


def only_option(
    targets: tuple[Target, ...],
    code: str,
    text: str,
    about: JobId,
    preemption: Preemption | None = None,
) -> Plan:
    """Return a plan about a job that shows these targets alone."""
    options = (Option(targets),)
    return Plan(targets, code, text, about, options, 0, weighed=1, preemption=preemption)
