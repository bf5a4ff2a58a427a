"""``db backup`` and ``db restore`` on a MongoDB store: refused, with what to use instead."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from reshape_controller.cli.db.commands import db_app
from reshape_controller.cli.exits import CliError, Exit

SERVER = "mongodb://db.example:27018/mine"


@pytest.mark.parametrize(
    ("words", "instead"),
    [
        (("backup", "copy"), "mongodump --uri=URI --out=FOLDER copies it"),
        (("restore", "copy"), "mongorestore --uri=URI FOLDER puts a mongodump back"),
    ],
)
def test_a_mongodb_store_is_copied_by_the_servers_own_tools_even_beside_a_file_of_earlier_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], instead: str
) -> None:
    (tmp_path / "store.sqlite").write_text("of a time before the server")
    monkeypatch.setenv("RESHAPE_HOME", str(tmp_path))
    monkeypatch.setenv("RESHAPE_STORE", SERVER)
    with pytest.raises(CliError) as refused:
        CliRunner().invoke(db_app, list(words), catch_exceptions=False)
    assert refused.value.code is Exit.USAGE
    (problem,) = refused.value.problems
    assert (
        problem.what == f"db {words[0]} is for SQLite files, and this store is a MongoDB database"
    )
    assert problem.where == SERVER
    assert instead in problem.remedy
    assert not (tmp_path / "copy").exists()


def test_a_server_on_the_command_line_is_refused_too(tmp_path: Path) -> None:
    with pytest.raises(CliError, match="this store is a MongoDB database"):
        CliRunner().invoke(
            db_app,
            ["backup", "copy", "--home", str(tmp_path), "--store", SERVER],
            catch_exceptions=False,
        )
