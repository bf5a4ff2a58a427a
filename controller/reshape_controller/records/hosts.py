"""A record against the hosts that are known. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from reshape_controller.core.model import FieldError, Host, JobSpec


def check_against_hosts(spec: JobSpec, hosts: Iterable[Host]) -> tuple[FieldError, ...]:
    """Numbers of GPUs that no known host has; a job's container is on one host.

    A host that is drained or silent counts: the job waits for it. No host known: nothing is wrong.
    """
    known = tuple(hosts)
    if not known:
        return ()
    largest = max(known, key=lambda host: (len(host.gpus), host.id))
    most = len(largest.gpus)
    fitting = [size for size in spec.optional_gpus if size <= most]
    hint = f"leave out sizes above {most}, or add a larger host first"
    if not fitting:
        hint = f"give at most {most} GPUs, or add a larger host first"
    return tuple(
        FieldError(
            f"optional_gpus[{number}]",
            f"{size} GPUs are more than any known host has ({largest.id} has {most})",
            hint,
        )
        for number, size in enumerate(spec.optional_gpus)
        if size > most
    )
