"""Records on real nodes name no folder of another job, neither directly nor by a link."""

from __future__ import annotations

import pytest

from reshape_sidecar.contract import CLAIM_FILE
from tests.kubernetes.grounds import Grounds
from tests.kubernetes.namespace import SHARED, open_to_all
from tests.kubernetes.pod_daemon import PodDaemon
from tests.support.daemon_bed import SAVES, eventually

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(900)]


def test_no_record_reaches_the_folder_of_another_job(
    daemon: PodDaemon, one_node: None, own_cluster: Grounds
) -> None:
    daemon.open_claims(SHARED, folder="home/{user}")
    daemon.up()
    victim = daemon.submit_counting("victim", [2], 20)
    user = daemon.wait(victim, "completes", state="completed", stage="none").user
    home = open_to_all(daemon.namespace.folder / "home" / user)
    (home / "run").symlink_to(f"../../{victim}/checkpoints")

    theirs = f"claim:{SHARED}/{victim}"
    foreign = [
        *({field: "claim:reshape/home"} for field in ("code", "dataset", "checkpoints")),
        *({field: f"{theirs}/checkpoints"} for field in ("code", "dataset", "checkpoints")),
        *({field: f"claim:{SHARED}"} for field in ("code", "dataset", "checkpoints")),
        {"dataset": f"{theirs}/attempt-1/logs"},
        {"checkpoints": f"claim:{SHARED}/home/somebody/run"},
        {"dataset": f"claim:{SHARED}/./../{victim}"},
    ]
    assert len(foreign) == 12
    for number, fields in enumerate(foreign):
        record = daemon.program_record(f"foreign-{number}", SAVES, [2], 10, "10", **fields)
        refused = daemon.reshape("submit", str(record))
        assert refused.returncode != 0, fields
        assert next(iter(fields)) in refused.stderr
        assert "remedy" in refused.stderr

    linked = daemon.submit_counting("linked", [2], 5, checkpoints=f"claim:{SHARED}/home/{user}/run")

    def ended() -> bool:
        job = daemon.view(linked)
        return job is not None and job.state in ("failed", "completed", "halted")

    eventually(ended, least_s=120.0, text=lambda: daemon.history(linked))
    checkpoints = daemon.namespace.folder / victim / "checkpoints"
    assert linked not in (checkpoints / CLAIM_FILE).read_text()
