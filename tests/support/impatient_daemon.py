"""Run ``reshape`` with short deadlines: ``python -m tests.support.impatient_daemon``.

Does: what the command does, with a shorter deadline for several hosts, and a shorter wait before a
program that cannot save is stopped; all other deadlines are the product's. Never: gives up what is
not silent. State: none. It knows the policy ``halve-gangs``, which predicts nothing.
"""

from __future__ import annotations

from dataclasses import replace

from reshape_controller.cli.main import main
from reshape_controller.cli.serve import up
from reshape_controller.core.limits import KUBERNETES, LOCAL
from reshape_controller.policies import BUILT_IN
from tests.support.gang_policy import HalveGangs

HOST_SILENT_S = 40.0
"""More than the 30 s after which its SideCars are called silent, as in the product's order."""
LOCAL_HOST_SILENT_S = 5.0
"""For hosts that this machine plays, whose silence is a file."""
UNSAVED_WAIT_S = 5.0

if __name__ == "__main__":
    up.KUBERNETES = replace(KUBERNETES, host_silent_s=HOST_SILENT_S)  # type: ignore[attr-defined]
    up.LOCAL = replace(  # type: ignore[attr-defined]
        LOCAL, host_silent_s=LOCAL_HOST_SILENT_S, unsaved_wait_s=UNSAVED_WAIT_S
    )
    BUILT_IN[HalveGangs.name] = HalveGangs
    main()
