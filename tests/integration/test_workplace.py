"""Training runs in its job's own folder, and a job without one is told so before it trains."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from reshape_sidecar.wire import Mode, Phase
from tests.support import training_programs as programs
from tests.support.sidecar_bed import DEVICES, bed, eventually


def test_a_job_without_code_writes_in_a_folder_beside_its_checkpoints(tmp_path: Path) -> None:
    with bed(tmp_path) as job:
        work = tmp_path / "checkpoints" / "work"
        spec = job.spec(programs.PLAIN, code=str(work), work=str(work))
        script = tmp_path / "code" / "train.py"
        job.coordinator.want(Mode.SAVE_AND_STOP)
        job.launch(replace(spec, command=("python", str(script))))
        generation = job.coordinator.want(Mode.RUN, *DEVICES)
        eventually("a file beside it", (work / f"ready-{generation}").exists)


def test_a_job_that_can_write_nowhere_learns_it_at_the_start(tmp_path: Path) -> None:
    with bed(tmp_path) as job:
        (tmp_path / "file").touch()
        work = str(tmp_path / "file" / "work")
        job.coordinator.want(Mode.SAVE_AND_STOP)
        job.launch(job.spec(programs.PLAIN, code=work, work=work))
        seen = job.coordinator.until("unfit", lambda o: o.phase is Phase.UNFIT)
        assert f"working folder {work} cannot be filled" in (seen.error or "")
        assert seen.pid is None
