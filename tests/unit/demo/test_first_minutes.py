"""What `make demo` shows before and while its jobs run."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.support.demo_bed import DEMO, ROOT, in_place

# isort: split
import first_look
import prepare
from scenario import COMPARED, PRESETS, SETS
from watch import progress_of

from reshape_controller.replay.case_study import PANELS

LOG = """\
2026-01-01T00:00:00,000 Collecting numpy==2.4.6 (from -r requirements.lock (line 1))
2026-01-01T00:00:01,000   Downloading numpy-2.4.6-cp311-cp311-manylinux_2_28_x86_64.whl (16.9 MB)
2026-01-01T00:00:02,000   Using cached rich-15.0.0-py3-none-any.whl (310 kB)
"""


@pytest.fixture(scope="module")
def looks() -> list[first_look.Look]:
    return [first_look.replayed(panel) for panel in PANELS]


def test_the_replay_shows_what_the_command_replay_shows(looks: list[first_look.Look]) -> None:
    words = [sys.executable, "-m", "reshape_controller.cli.main", "replay", "-w", "case-study"]
    path = ":".join(str(ROOT / name) for name in prepare.SOURCES)
    environment = os.environ | {"PYTHONPATH": path, "COLUMNS": "100"}
    done = subprocess.run(words, capture_output=True, text=True, env=environment, check=True)
    for look in looks:
        for job, completed_s in look.completed_s.items():
            row = next(
                line for line in done.stdout.splitlines() if line.split()[:2] == [look.name, job]
            )
            assert f"{completed_s:,.0f} s" in row


def test_no_gpu_of_the_replay_does_two_things_at_once(looks: list[first_look.Look]) -> None:
    for look in looks:
        assert len(look.timeline.gpus) == 4
        for gpu in look.timeline.gpus:
            assert any(span.phase == "training" for span in gpu.spans)
            ends = [span.to_s or look.timeline.to_s for span in gpu.spans]
            assert all(end <= span.from_s for end, span in zip(ends, gpu.spans[1:], strict=False))


def test_the_picture_of_the_readme_is_the_one_that_the_replay_draws(
    looks: list[first_look.Look],
) -> None:
    path = ROOT / "docs" / "figures" / "case-study.svg"
    remedy = "python examples/demo/first_look.py --svg docs/figures/case-study.svg"
    assert path.read_text() == first_look.svg(looks), remedy
    texts = "".join(ElementTree.parse(path).getroot().itertext())
    assert all(heading in texts for heading in first_look.HEADINGS.values())


def test_the_demo_compares_two_presets_and_all_four_behind_an_option() -> None:
    assert SETS["compared"] == COMPARED == ("termination", "adaptive")
    assert SETS["all"] == tuple(preset.name for preset in PRESETS)
    assert len(SETS["all"]) == 4


def test_an_installation_tells_how_many_packages_are_there(tmp_path: Path) -> None:
    log, environment = tmp_path / "pip.log", tmp_path / "environment"
    assert prepare._how_far(log, str(environment), 3) == "makes the environment"
    made = tmp_path / "make.log"
    made.write_text("make setup\n/a/.venv: waits (31 s) for /b/.venv (process 7), which installs\n")
    assert prepare._waits(made) == "waits (31 s) for /b/.venv (process 7), which installs"
    made.write_text("a.lock: 3 of 9: Collecting keras\n")
    assert prepare._waits(made) == ""
    log.write_text(LOG)
    told = prepare._how_far(log, str(environment), 3)
    assert told == "2 of 3 packages downloaded, the newest is rich (310 kB)"
    log.write_text(
        LOG + "2026-01-01T00:00:03,000 Installing collected packages: numpy, rich, tensorflow-cpu\n"
    )
    (environment / "lib" / "python3" / "site-packages" / "numpy-2.4.6.dist-info").mkdir(
        parents=True
    )
    assert prepare._how_far(log, str(environment), 3) == "1 of 3 packages installed, now rich"


def test_an_installation_that_fails_shows_the_end_of_its_log(tmp_path: Path) -> None:
    make = tmp_path / "make"
    make.write_text("#!/bin/sh\necho 'no route to the package index'\nexit 2\n")
    make.chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    program = (
        f"import prepare, pathlib; prepare.OUT = pathlib.Path({str(tmp_path)!r}) / 'out'; "
        "raise SystemExit(prepare.main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=DEMO,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "installing 21 packages into .venv-controller" in done.stdout
    assert "no route to the package index" in done.stderr


def test_the_progress_of_a_job_names_its_stage_its_gpus_and_its_step() -> None:
    first = in_place().jobs[0]
    assert progress_of(first) == "is completed"
    assert _progress("running", "training", 4, 210) == "trains on 4 GPUs, step 210 of 440"
    assert _progress("queued", "none", 0, 0) == "is queued"
    assert _progress("queued", "ready", 0, 0) == "is initialised and waits for its GPUs"


def _progress(state: str, stage: str, size: int, step: int) -> str:

    job = replace(in_place().jobs[0], state=state, stage=stage, size=size, step=step)
    return progress_of(replace(job, total_steps=440))
