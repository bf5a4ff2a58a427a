"""A command is split without a shell, and what needs one is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from reshape_controller.records import RecordInvalid, parse_record
from reshape_controller.records.command import script_of


def command_of(text: str) -> tuple[str, ...]:
    return parse_record({"name": "a", "command": text, "optional_gpus": [1]}).command


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("python train.py", ("python", "train.py")),
        ("python  'my script.py' --name=\"a b\"", ("python", "my script.py", "--name=a b")),
        ("grep ';' a\\;b '$(x)' \"a | b\"", ("grep", ";", "a;b", "$(x)", "a | b")),
        ("run --url=http://host/?a=1&b=2", ("run", "--url=http://host/?a=1&b=2")),
        ("run $HOME *.py ~", ("run", "$HOME", "*.py", "~")),
        ("run a->b x=>y --lt=a<b", ("run", "a->b", "x=>y", "--lt=a<b")),
    ],
)
def test_a_text_is_split_as_a_shell_would_but_nothing_is_expanded(
    text: str, arguments: tuple[str, ...]
) -> None:
    assert command_of(text) == arguments


@pytest.mark.parametrize(
    ("text", "token"),
    [
        ("a | b", "|"),
        ("a && b", "&&"),
        ("a || b", "||"),
        ("a; b", "a;"),
        ("a ; b", ";"),
        ("a &", "&"),
        ("a > b", ">"),
        ("a >b", ">b"),
        ("a >> b", ">>"),
        ("a 2>&1", "2>&1"),
        ("a 2> /dev/null", "2>"),
        ("a &> b", "&>"),
        ("a < b", "<"),
        ("a << EOF", "<<"),
        ("echo $(date)", "$(date)"),
        ("echo x$(date)", "x$(date)"),
        ("echo `date`", "`date`"),
    ],
)
def test_what_needs_a_shell_is_refused_and_named(text: str, token: str) -> None:
    with pytest.raises(RecordInvalid) as caught:
        command_of(text)
    (error,) = caught.value.errors
    assert f"uses {token}, which needs a shell" in error.message
    assert "script" in error.hint


def test_a_list_is_taken_word_for_word() -> None:
    words = ["sh", "-c", "a | b > c; $(d)"]
    record = {"name": "a", "command": words, "optional_gpus": [1]}
    assert parse_record(record).command == tuple(words)


@pytest.mark.parametrize(
    ("command", "script"),
    [
        ("python train.py --x y.py", "train.py"),
        ("python3.11 -u -X dev -W error train.py", "train.py"),
        ("/usr/bin/python -Iu sub/train.py", "sub/train.py"),
        ("python -m package.train x.py", None),
        ("python -Im package.train", None),
        ("python -c code", None),
        ("python -", None),
        ("python", None),
        ("./train.sh a.py", "./train.sh"),
        ("/opt/train", "/opt/train"),
        ("torchrun --nnodes 1 train.py --a b.py", "train.py"),
        ("sleep 5", None),
    ],
)
def test_the_script_of_a_command_is_told_where_it_can_be(command: str, script: str | None) -> None:
    assert script_of(tuple(command.split())) == script


def submit(folder: Path, **fields: object) -> list[tuple[str, str]]:
    record = {"name": "a", "command": "python train.py", "optional_gpus": [1], **fields}
    try:
        parse_record(record, folder=folder)
    except RecordInvalid as caught:
        return [(error.path, error.message) for error in caught.errors]
    return []


def test_a_script_that_is_not_there_is_found_before_anything_starts(tmp_path: Path) -> None:
    ((path, message),) = submit(tmp_path)
    assert path == "command"
    assert f"script missing: {tmp_path / 'train.py'} does not exist" in message
    (tmp_path / "train.py").touch()
    assert submit(tmp_path) == []
    ((_, message),) = submit(tmp_path, command="python /nowhere/train.py")
    assert "script missing: /nowhere/train.py does not exist" in message
    assert submit(tmp_path, command="python -m train") == []


def test_locations_begin_at_the_records_folder(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "train.py").touch()
    record = {
        "name": "a",
        "command": "python train.py",
        "optional_gpus": [1],
        "code": "./sub",
        "dataset": "../data",
        "checkpoints": "claim:models",
    }
    spec = parse_record(record, folder=tmp_path)
    assert spec.code == str(tmp_path / "sub")
    assert spec.dataset == str(tmp_path.parent / "data")
    assert spec.checkpoints == "claim:models"
    assert parse_record({**record, "code": str(tmp_path / "sub")}, folder=Path("/")).code == str(
        tmp_path / "sub"
    )


def test_the_code_is_beside_the_record_unless_it_says_otherwise(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    record = {"name": "a", "command": "python train.py", "optional_gpus": [1]}
    assert parse_record(record, folder=tmp_path).code == str(tmp_path)
    assert parse_record(record).code is None


def test_a_relative_code_folder_must_be_there_and_a_far_one_need_not(tmp_path: Path) -> None:
    ((path, message),) = submit(tmp_path, code="absent")
    assert path == "code"
    assert f"folder {tmp_path / 'absent'} does not exist" in message
    assert submit(tmp_path, code="/absent/on/this/machine") == []
    assert submit(tmp_path, code="claim:code/mnist") == []
