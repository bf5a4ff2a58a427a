"""The variables that a script sets above its imports, as its text says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from reshape_sidecar.agent import environment, script_variables
from reshape_sidecar.agent.spec import AttemptSpec, DeviceMode
from reshape_sidecar.wire import Processes

SPEC = AttemptSpec("j", 1, "j", ("t",), "/c", "/p", "http://x", 1, DeviceMode.SIMULATED)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"', "3"),
        ('os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")', "2"),
        ('from os import environ\nenviron["TF_CPP_MIN_LOG_LEVEL"] = "1"', "1"),
        ('os.environ["TF_CPP_MIN_LOG_LEVEL"] = str(2)', None),
        ('other["TF_CPP_MIN_LOG_LEVEL"] = "3"', None),
        ('def later():\n    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"', None),
        ('os.environ["TF_CPP_MIN_LOG_LEVEL"] = ', None),
    ],
)
def test_a_variable_that_an_import_reads_is_found(
    tmp_path: Path, text: str, expected: str | None
) -> None:
    (tmp_path / "train.py").write_text(f"import os\n{text}\nimport tensorflow\n")
    spec = replace(SPEC, code=str(tmp_path), command=("python", "train.py"))
    env = {"PATH": "/bin"}
    found = script_variables.after(spec, env)
    assert found == env | ({"TF_CPP_MIN_LOG_LEVEL": expected} if expected else {})


def test_a_default_stays_below_what_the_record_sets_and_other_names_are_left_out(
    tmp_path: Path,
) -> None:
    text = 'os.environ.setdefault("TF_SEEN", "script")\nos.environ["HOME"] = "/else"\n'
    (tmp_path / "train.py").write_text("import os\n" + text)
    spec = replace(SPEC, code=str(tmp_path), command=("python", "train.py"))
    assert script_variables.after(spec, {"TF_SEEN": "record"}) == {"TF_SEEN": "record"}


def test_what_a_script_of_ranks_takes_from_libraries_is_found(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import torch, accelerate.utils as tools\n"
        "import transformers\n"
        "from transformers import Trainer, BertConfig as Config\n"
        "from transformers.trainer_utils import *\n"
        "from .transformers import mine\n"
        "def later():\n    import accelerate\n    return transformers.set_seed(1), tools.gather\n"
    )
    spec = replace(SPEC, code=str(tmp_path), command=("python", "train.py"))
    assert script_variables.names_of_libraries(spec) == (), "it has one process"
    ranks = replace(spec, framework="pytorch", processes=Processes.PER_GPU)
    found = script_variables.names_of_libraries(ranks)
    assert found == (
        "accelerate.utils",
        "accelerate.utils:gather",
        "transformers",
        "transformers.trainer_utils",
        "transformers:BertConfig",
        "transformers:Trainer",
        "transformers:set_seed",
    )
    command = environment.zygote_command(ranks, found)
    assert command is not None
    assert f"ranks:{','.join(found)}" in command
    missing = replace(ranks, command=("python", "absent.py"))
    assert script_variables.names_of_libraries(missing) == ()


def test_without_a_script_that_can_be_read_nothing_is_added(tmp_path: Path) -> None:
    for command in (("python", "absent.py"), ("python", "-m", "module"), ("./program",)):
        spec = replace(SPEC, code=str(tmp_path), command=command)
        assert script_variables.after(spec, {"A": "b"}) == {"A": "b"}
