"""Profiles measured from real processes; a small script stands in for a training framework."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pytest

from reshape_profiles import profiler
from reshape_profiles.files import load
from reshape_profiles.loader import bundled, write
from reshape_profiles.training_run import RunFailed, Script, run
from tests.support import processes

ROOT = Path(__file__).resolve().parents[3]
COSTS = dict(bundled().costs)["local"]
TRAINING = """
import os, signal, sys, time
from pathlib import Path
sys.path.insert(0, {sidecar!r})
from reshape_sidecar import codec, contract
from reshape_sidecar.hook.report import post
from reshape_sidecar.wire import Progress

devices = os.environ[contract.ENV_DEVICES].split(",")
wanted = []
signal.signal(signal.SIGTERM, lambda number, frame: wanted.append(number))
step_s = 0.04 / len(devices)

def tell(step, phase, **seconds):
    report = contract.HookReport(
        1, phase, Progress(step=step, steps_per_epoch=40, seconds_per_step=step_s),
        import_s=0.5, build_s=0.25, first_step_s=0.25, **seconds
    )
    post(Path(os.environ[contract.ENV_SOCKET]), codec.dumps(report).encode())

for step in range(1, 2000):
    time.sleep(step_s)
    if step % 5 == 0:
        tell(step, contract.HookPhase.TRAINING)
    if wanted:
        tell(step, contract.HookPhase.SAVED, save_s=0.125)
        sys.exit(75)
"""

LOOP = """
import importlib.util, os, sys, time
from reshape_sidecar import session
job = session.start()
tornado = importlib.util.find_spec("tornado") is not None
with open("says", "w") as file:
    file.write(f"{job.devices} {os.path.realpath(sys.executable)} {tornado}")
while True:
    time.sleep(0.01)
    job.step_done(lambda folder: (folder / "state").touch())
"""


def script(tmp_path: Path, text: str = TRAINING, **fields: object) -> Script:
    (tmp_path / "train.py").write_text(text.replace("{sidecar!r}", repr(str(ROOT / "sidecar"))))
    given = {"steps": 10, "timeout_s": 60.0, "framework": "other", "simulated": True, **fields}
    return Script(("python", str(tmp_path / "train.py")), tmp_path, "mine", **given)  # type: ignore[arg-type]


def test_a_script_is_measured_on_each_number_of_devices(tmp_path: Path) -> None:
    said: list[str] = []
    devices = ["d0", "d1", "d2", "d3"]
    wanted = script(tmp_path, global_batch=64)
    found = profiler.profile(wanted, "simulated", devices, (1, 2, 4), COSTS, said.append)
    assert [(p.gpus, p.seconds_per_step) for p in found.speed] == [(1, 0.04), (2, 0.02), (4, 0.01)]
    assert all(p.source.endswith("iterations on simulated devices") for p in found.speed)
    assert (found.steps_per_epoch, found.global_batch) == (40, 64)
    assert said[0] == "1 simulated: 0.0400 s per iteration"
    overhead = found.overhead
    assert overhead is not None
    assert (overhead.process_init_s, overhead.checkpoint_s) == (1.0, 0.125)
    assert (overhead.job_init_s, overhead.job_stop_s) == (COSTS.job_init_s, COSTS.job_stop_s)
    assert overhead.source.startswith("measured: process start, checkpoint, process stop; the rest")
    file = tmp_path / "mine.json"
    file.write_text(write((found,)))
    assert load(file).bundle.profiles == (found,)


def test_the_python_of_the_command_runs_the_script_and_finds_the_session_api(
    tmp_path: Path,
) -> None:
    """One that has nothing of ours installed, as that of another environment."""
    bare = str(Path(sys.base_prefix) / "bin" / "python3")
    (tmp_path / "loop.py").write_text(LOOP)
    wanted = Script((bare, "loop.py"), tmp_path, "mine", simulated=True, framework="other")
    figures = run(wanted, ["d0", "d1"])
    assert figures.seconds_per_step >= 0.01
    assert (tmp_path / "says").read_text() == f"2 {os.path.realpath(bare)} False"


def test_a_command_without_a_script_is_refused(tmp_path: Path) -> None:
    for command in ((), ("python",), ("python3",), ("/usr/bin/python3.11",)):
        with pytest.raises(RunFailed, match="no script is given"):
            run(Script(command, tmp_path, "mine"), ["d0"])


def test_a_command_that_cannot_be_started_is_told_with_its_reason(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="missing cannot be started: No such file"):
        run(Script(("missing", "train.py"), tmp_path, "mine"), ["d0"])


def test_what_a_script_that_ended_by_itself_did_not_show_is_not_called_measured(
    tmp_path: Path,
) -> None:
    short = script(tmp_path, TRAINING.replace("2000", "8"), steps=30)
    overhead = profiler.profile(short, "simulated", ["d0"], (1,), COSTS).overhead
    assert overhead is not None
    assert (overhead.process_init_s, overhead.process_stop_s) == (1.0, COSTS.process_stop_s)
    assert overhead.source.startswith("measured: process start; the rest ")


def test_a_script_that_crashes_on_the_way_gives_no_figures(tmp_path: Path) -> None:
    text = TRAINING.replace("2000", "8") + "\nraise SystemExit('out of memory')\n"
    failed = r"failed after 5 of 30 iterations \(exit code 1\).*\n.*out of memory"
    with pytest.raises(RunFailed, match=failed):
        run(script(tmp_path, text, steps=30), ["d0"])


def test_simulated_devices_are_called_paced_where_a_device_truth_paces_them(tmp_path: Path) -> None:
    truth = ROOT / "examples" / "demo" / "device_truth.json"
    paced = script(tmp_path, device_truth=truth)
    found = profiler.profile(paced, "simulated", ["d0"], (1,), COSTS)
    assert found.speed[0].source.endswith("iterations on simulated devices, paced")


def test_nothing_is_left_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    run(script(tmp_path), ["d0"])
    assert [entry.name for entry in tmp_path.iterdir()] == ["train.py"]
    assert list(processes.naming(f"{tmp_path}/train.py")) == []


def test_a_script_that_reports_nothing_is_refused_with_its_last_words(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match=r"no iteration \(exit code 3\).*\n.*no data here"):
        run(script(tmp_path, "import sys\nprint('no data here')\nsys.exit(3)\n"), ["d0"])


def test_a_script_that_is_too_slow_is_stopped_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match=r"0 of 10 iterations within 1 s"):
        run(script(tmp_path, "import time\ntime.sleep(600)\n", timeout_s=1.0), ["d0"])


def test_sizes_without_devices_or_an_even_batch_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match=r"sizes \[4\]; 2 devices are available"):
        profiler.profile(script(tmp_path), "simulated", ["a", "b"], (1, 4), COSTS)
    wanted = script(tmp_path, global_batch=64)
    with pytest.raises(RunFailed, match=r"a global batch of 64 cannot be split over \[3\]"):
        profiler.profile(wanted, "simulated", ["a", "b", "c"], (3,), COSTS)


@pytest.mark.tensorflow
def test_the_example_script_is_measured_under_the_hook(tmp_path: Path) -> None:
    """Unmodified Keras on one and two simulated devices."""
    wanted = Script(
        ("python", "train.py", "--epochs", "50", "--samples", "512"),
        ROOT / "examples" / "mnist_like",
        "mnist-like",
        global_batch=64,
        simulated=True,
        steps=20,
    )
    found = profiler.profile(wanted, "simulated", ["d0", "d1"], (1, 2), COSTS)
    assert [p.gpus for p in found.speed] == [1, 2]
    assert all(0.0 < p.seconds_per_step < 5.0 for p in found.speed)
    assert found.steps_per_epoch == 8
    assert found.overhead is not None
    assert found.overhead.process_init_s > 0.5
    assert found.overhead.checkpoint_s > 0.0
