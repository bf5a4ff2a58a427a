"""The folder of the session API, and which scripts use it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reshape_sidecar import limits
from reshape_sidecar.agent import library
from tests.unit.sidecar.test_environment import spec


@pytest.mark.parametrize(
    ("command", "used"),
    [
        ("python train.py", True),
        ("python -u train.py reshape_sidecar", True),
        ("python plain.py reshape_sidecar", False),
        ("python missing.py", False),
        ("python -m train", False),
        ("python pipe", False),
        ("./train.py", False),
        ("torchrun train.py", False),
    ],
)
def test_a_script_that_names_the_package_uses_it(tmp_path: Path, command: str, used: bool) -> None:
    (tmp_path / "train.py").write_text("import torch\nfrom reshape_sidecar import session\n")
    (tmp_path / "plain.py").write_text("import torch\n")
    os.mkfifo(tmp_path / "pipe")
    made = spec(*command.split(), code=str(tmp_path), framework="pytorch")
    waits_s = library.prepares_s(made)
    assert waits_s == (limits.FIRST_STEP_SEEN_S if used else limits.UNHOOKED_RUNNING_S)


@pytest.mark.parametrize(
    ("text", "waits_s"),
    [
        ("import keras\n", limits.FIRST_STEP_SEEN_S),
        ("from tensorflow import data\n", limits.FIRST_STEP_SEEN_S),
        ("import numpy\n", limits.HOOKED_RUNNING_S),
    ],
)
def test_a_script_that_names_keras_prepares_until_its_fit(
    tmp_path: Path, text: str, waits_s: float
) -> None:
    (tmp_path / "train.py").write_text(text)
    made = spec("python", "train.py", code=str(tmp_path), framework="keras")
    assert library.prepares_s(made) == waits_s


def test_the_folder_holds_this_package_alone_and_may_be_there_already(tmp_path: Path) -> None:
    folder = library.install(tmp_path)
    assert folder is not None
    assert library.install(tmp_path) == folder
    assert [entry.name for entry in folder.iterdir()] == ["reshape_sidecar"]
    assert (folder / "reshape_sidecar" / "session.py").is_file()


def test_a_folder_that_cannot_be_made_is_no_end_of_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "python").write_text("a file in its place")
    assert library.install(tmp_path) is None
    assert "cannot import reshape_sidecar" in caplog.text
