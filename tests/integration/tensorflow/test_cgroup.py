"""A fork of the zygote runs in the cgroup of its generation, and sees no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from reshape_launcher.local.groups import Groups
from reshape_launcher.spec import Hold
from reshape_sidecar import cgroup
from reshape_sidecar.wire import Mode, StandbyState, StartKind
from tests.support import coordinator_double, sidecar_bed
from tests.support.cgroup_bed import base
from tests.support.sidecar_bed import DEVICES, bed

pytestmark = [pytest.mark.tensorflow, pytest.mark.timeout(600)]

IMPORT_S = 240.0
"""The zygote imports TensorFlow, on a machine that may do other work."""
SCRIPT = """
import os, time
import keras
groups = [line for line in open("/proc/self/cgroup") if line.startswith("0::")]
points = [line.split()[4] for line in open("/proc/self/mountinfo") if " - cgroup2 " in line]
below = [name for each in points for name in os.listdir(each) if os.path.isdir(f"{each}/{name}")]
open("seen", "w").write(repr((groups, below)))
open("ready-" + os.environ["RESHAPE_GENERATION"], "w").close()
time.sleep(600)
"""


def test_a_fork_of_the_zygote_is_in_the_group_of_its_generation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base()
    for module in (coordinator_double, sidecar_bed):
        monkeypatch.setattr(module, "PATIENCE_S", IMPORT_S)
    with bed(tmp_path) as job:
        job.initialised(SCRIPT, framework="tensorflow")
        job.coordinator.until(
            "a zygote", lambda o: o.standby is not None and o.standby.state is StandbyState.READY
        )
        generation = job.coordinator.want(Mode.RUN, *DEVICES[:1])
        job.started(generation)
        training = job.process()
        assert training.how is StartKind.ZYGOTE
        groups = Groups(job.root)
        group = groups.of(job.folder)
        assert group is not None
        assert cgroup.pids(cgroup.of_generation(group, generation)) == [training.pid]
        assert training.pid not in cgroup.pids(group / cgroup.ZYGOTE)
        if groups.containment().hold is Hold.CGROUP:
            assert (job.code / "seen").read_text() == "(['0::/\\n'], [])"
