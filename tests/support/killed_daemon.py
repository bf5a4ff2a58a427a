"""Run ``reshape`` and kill it after every step: ``python -m tests.support.killed_daemon``.

Does: SIGKILL right after an append that commands something, starts a plan, or holds an event that
is no SideCar's report: before its effects, as a power cut would. Never: after what every start
appends (itself and its hosts), for then no life would get any further. State: none.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable

from reshape_controller.cli.main import main
from reshape_controller.core.events import ControllerStarted, HostAdded, SideCarReported
from reshape_controller.core.record import LogRecord
from reshape_controller.live.journal import Journal

_append = Journal.append


async def _append_and_die(
    self: Journal, record: LogRecord, stopping: Callable[[], bool]
) -> LogRecord:
    record = await _append(self, record, stopping)
    if _is_step(record):
        told = [type(event).__name__ for event in record.events]
        wanted = [type(command).__name__ for command in record.commands]
        print(f"killed after {record.seq}: {told} {wanted}", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    return record


def _is_step(record: LogRecord) -> bool:
    if any(isinstance(event, ControllerStarted) for event in record.events):
        return False
    usual = all(isinstance(event, SideCarReported | HostAdded) for event in record.events)
    return bool(record.commands or any(plan.targets for plan in record.plans) or not usual)


if __name__ == "__main__":
    Journal.append = _append_and_die  # type: ignore[method-assign]
    main()
