"""A program of one process reports once that its trainer leaves GPUs unused, or is not saved."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from reshape_profiles.hook_reports import listening
from reshape_sidecar import contract
from reshape_sidecar.agent import environment, library
from reshape_sidecar.contract import HookPhase
from reshape_sidecar.wire import Trajectory

LIBRARIES = {
    "transformers/trainer.py": """
from types import SimpleNamespace
from accelerate.accelerator import Accelerator
class Trainer:
    def __init__(self, n_gpu=0, world_size=1, spread=False):
        self.args = SimpleNamespace(n_gpu=n_gpu, world_size=world_size)
        self.is_model_parallel = spread
        self.accelerator = Accelerator()
    def train(self):
        return "trained"
""",
    "accelerate/accelerator.py": """
class Accelerator:
    def __init__(self, num_processes=1):
        self.num_processes = num_processes
""",
    "lightning/pytorch/trainer/trainer.py": """
class Trainer:
    def __init__(self, devices=1, world_size=1):
        self.num_devices, self.world_size = devices, world_size
    def fit(self):
        return "trained"
""",
}
HUGGING_FACE = (
    "from transformers.trainer import Trainer\nfor _ in range(2): print(Trainer({}).train())"
)
LIGHTNING = "from lightning.pytorch.trainer.trainer import Trainer\nprint(Trainer({}).fit())"
ACCELERATE = "from accelerate.accelerator import Accelerator\nAccelerator({})\nprint('trained')"
LESS = "trains on 1 of 2 GPUs and is not saved: write processes: per-gpu"
UNSAVED = "is not saved in a single process: write processes: per-gpu"


def reports(folder: Path, script: str, gpus: int, **variables: str) -> list[contract.HookReport]:
    """What a script reports on ``gpus``, which must print that it has trained."""
    for name, text in LIBRARIES.items():
        path = folder / "lib" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "train.py").write_text(script)
    made = library.install(folder)
    assert made is not None
    with listening(folder / "s") as received:
        ended = subprocess.run(
            [sys.executable, "train.py"],
            cwd=folder,
            env={
                "PATH": os.environ["PATH"],
                "PYTHONPATH": f"{made}:{made / environment.ALONE}:{folder / 'lib'}",
                contract.ENV_DEVICES: ",".join(f"gpu-{number}" for number in range(gpus)),
                contract.ENV_GENERATION: "3",
                contract.ENV_SOCKET: str(folder / "s"),
                **variables,
            },
            capture_output=True,
            text=True,
            check=False,
        )
    assert "trained" in ended.stdout, ended.stderr
    assert ended.stderr.count("reshape: ") == len(received)
    return received


@pytest.mark.parametrize(
    ("script", "gpus", "said"),
    [
        (HUGGING_FACE.format(""), 2, LESS),
        (HUGGING_FACE.format(""), 1, UNSAVED),
        (HUGGING_FACE.format("n_gpu=2"), 2, UNSAVED),
        (LIGHTNING.format(""), 2, LESS),
        (ACCELERATE.format(""), 2, LESS),
        ("import subprocess, sys\nsubprocess.run([sys.executable, '-c', '''\n"
         + LIGHTNING.format("") + "''' ])", 2, LESS),
    ],
)  # fmt: skip
def test_a_trainer_in_one_process_is_noticed_once(
    tmp_path: Path, script: str, gpus: int, said: str
) -> None:
    (report,) = reports(tmp_path, script, gpus)
    assert (report.generation, report.phase) == (3, HookPhase.NOTICED)
    assert report.progress.trajectory == Trajectory.UNKNOWN.value
    assert report.progress.trajectory_reason == said


@pytest.mark.parametrize(
    ("script", "gpus"),
    [
        (HUGGING_FACE.format("world_size=2"), 2),
        (HUGGING_FACE.format("spread=True"), 2),
        (LIGHTNING.format("devices=2, world_size=2"), 2),
        (ACCELERATE.format("2"), 2),
        (ACCELERATE.format(""), 1),
        ("from reshape_sidecar import session\n" + LIGHTNING.format(""), 2),
        ("print('trained')", 2),
    ],
)
def test_other_programs_hear_nothing(tmp_path: Path, script: str, gpus: int) -> None:
    assert reports(tmp_path, script, gpus) == []


def test_the_sitecustomize_that_the_watch_hides_is_imported(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "sitecustomize.py").write_text("import sys\nsys.customised = __file__")
    script = LIGHTNING.format("") + "\nimport sys, sitecustomize\nprint(sys.customised)"
    script += "\nassert sitecustomize.__file__ == sys.customised"
    assert len(reports(tmp_path, script, 2)) == 1


def test_a_fault_of_the_watch_does_not_reach_the_script(tmp_path: Path) -> None:
    nowhere = {contract.ENV_SOCKET: str(tmp_path / "none"), contract.ENV_GENERATION: "x"}
    (folder := tmp_path / "a").mkdir()
    assert reports(folder, LIGHTNING.format(""), 2, **nowhere) == []
