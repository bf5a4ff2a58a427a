"""What leaves init's tree and clears its environment does not outlive a verified release.

All programs meet the kill of init; ``benchmarks/containment.py`` has each kill, many times.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from reshape_launcher.local.groups import ENV_BASE
from tests.support.cgroup_bed import base
from tests.support.containment_bed import KILL_AFTER_S, play
from tests.support.escapes import ESCAPES

LOAD_S = 20.0
"""For a machine that does other work as well."""
ROUNDS = [
    *((escape, "init") for escape in ESCAPES),
    *(("chaser", "agent"), ("clone_beside", "agent"), ("moves_itself", "daemon")),
]


@pytest.mark.parametrize(("escape", "killed"), ROUNDS)
def test_no_escape_lives_once_a_release_is_verified(
    tmp_path: Path, escape: str, killed: str
) -> None:
    base()
    found = play(tmp_path, escape, killed)
    assert found.survivors == 0
    assert found.release_s < KILL_AFTER_S + LOAD_S


def test_by_the_marker_alone_an_escape_outlives_the_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This is what ``containment: marker`` means; the program finds what the tests above claim."""
    monkeypatch.setenv(ENV_BASE, "off")
    assert play(tmp_path, "daemonised", "init").survivors == 1
