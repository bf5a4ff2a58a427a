"""A job whose record names a URL for its checkpoints, as the version before took it, lives on."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from reshape_sidecar import claims
from reshape_sidecar.agent.spec import SPEC_FILE
from reshape_sidecar.contract import CLAIM_FILE
from reshape_sidecar.wire import Mode
from tests.support import training_programs as programs
from tests.support.sidecar_bed import DEVICES, bed, eventually


def test_an_accepted_job_goes_on_and_its_claim_lies_beside_its_checkpoints(tmp_path: Path) -> None:
    with bed(tmp_path) as job:
        folder = Path(str(job.code)) / "s3:" / "bucket" / "x"
        job.training(programs.SESSION, checkpoints="s3://bucket/x")
        assert "s3://bucket/x" in (job.folder.path / SPEC_FILE).read_text()
        job.kill_agent()  # its successor reads the same spec
        stop = job.coordinator.want(Mode.SAVE_AND_STOP)
        stopped = job.coordinator.until(
            "saved", lambda o: o.outcome is not None and o.outcome.generation == stop
        )
        step = stopped.progress.checkpoint_step
        assert step
        assert (folder / f"step-{step:010d}-a1").is_dir(), "the agent saw it where it is"
        job.remove()
        spec = job.spec(programs.SESSION, checkpoints="s3://bucket/x")
        try:
            go = job.coordinator.want(Mode.RUN, *DEVICES, attempt=2)
            job.launch(replace(spec, attempt=2))
            eventually("attempt 2", (job.code / f"ready-{go}").exists)
            held = claims.read(folder)
            assert held is not None
            assert (held.attempt, held.base) == (2, f"step-{step:010d}-a1")
            assert list(tmp_path.rglob(CLAIM_FILE)) == [folder / CLAIM_FILE]
        finally:
            asyncio.run(job.launcher.remove("job-1", 2, 0.0))
