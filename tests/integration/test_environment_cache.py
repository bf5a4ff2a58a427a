"""Environments from the cache: whole or not at all, and each checkout with its own paths."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / ".ci" / "environment.py"
NAME = "requirements-0123456789abcdef"


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module."""
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    yield importlib.import_module("environment")
    sys.modules.pop("environment")


class Builder:
    """Builds what looks like an environment, and counts how often."""

    def __init__(self, wait_s: float = 0) -> None:
        self.built = 0
        self._wait_s = wait_s

    def __call__(self, folder: Path) -> None:
        self.built += 1
        time.sleep(self._wait_s)
        (folder / "bin").mkdir(parents=True)
        (folder / "bin" / "python").symlink_to(sys.executable)
        tool = folder / "bin" / "tool"
        tool.write_text(f"#!{folder}/bin/python\nimport sys\nprint(sys.argv)\n")
        tool.chmod(0o755)
        (folder / "bin" / "activate").write_text(f"VIRTUAL_ENV={folder}\n")
        (folder / "pyvenv.cfg").write_text(f"command = python -m venv {folder}\n")
        packages = folder / "lib" / "python" / "site-packages"
        (packages / "__pycache__").mkdir(parents=True)
        (packages / "package.py").write_text("VALUE = 1\n")
        (packages / "__pycache__" / "package.pyc").write_text("compiled")


@pytest.fixture
def entries(tmp_path: Path) -> Path:
    made = tmp_path / "cache"
    made.mkdir()
    return made


def package(checkout: Path) -> Path:
    return checkout / "lib" / "python" / "site-packages" / "package.py"


def test_a_second_checkout_installs_nothing_and_has_paths_of_its_own(
    environment: Any, entries: Path, tmp_path: Path
) -> None:
    build = Builder()
    for name in ("one", "two"):
        home = tmp_path / name
        environment.provide(home, NAME, entries, build)
        said = subprocess.check_output([home / "bin" / "tool", "a b"], text=True)
        assert said == f"{[str(home / 'bin' / 'tool'), 'a b']}\n"
        assert (home / "bin" / "activate").read_text() == f"VIRTUAL_ENV={home}\n"
        for file in (*(home / "bin").glob("[at]*"), home / "pyvenv.cfg"):
            assert str(entries) not in file.read_text()
    assert build.built == 1
    assert package(tmp_path / "one").stat().st_ino == package(tmp_path / "two").stat().st_ino


def test_without_hard_links_a_checkout_gets_copies(
    environment: Any, entries: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    real = shutil.which("cp")
    (programs / "cp").write_text(f'#!/bin/sh\n[ "$1" = -al ] && exit 1\nexec {real} "$@"\n')
    (programs / "cp").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    environment.provide(tmp_path / "one", NAME, entries, Builder())
    assert package(tmp_path / "one").read_text() == "VALUE = 1\n"
    assert package(tmp_path / "one").stat().st_nlink == 1


@pytest.mark.parametrize("name", ["a folder", "long" * 40])
def test_scripts_run_where_a_first_line_could_not_name_their_python(
    environment: Any, entries: Path, tmp_path: Path, name: str
) -> None:
    home = tmp_path / name
    environment.provide(home, NAME, entries, Builder())
    said = subprocess.check_output([home / "bin" / "tool", "a b"], text=True)
    assert said == f"{[str(home / 'bin' / 'tool'), 'a b']}\n"


def test_an_interrupted_build_is_never_used(
    environment: Any, entries: Path, tmp_path: Path
) -> None:
    build = Builder()

    def interrupted(folder: Path) -> None:
        build(folder)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        environment.provide(tmp_path / "one", NAME, entries, interrupted)
    assert not (tmp_path / "one").exists()
    environment.provide(tmp_path / "one", NAME, entries, build)
    assert build.built == 2
    assert sorted(path.name for path in entries.iterdir()) == [NAME, f"{NAME}.lock"]


@pytest.mark.parametrize("damage", ["changed", "removed", "added", "not listed"])
def test_a_damaged_entry_is_made_again(
    environment: Any, entries: Path, tmp_path: Path, damage: str
) -> None:
    build = Builder()
    environment.provide(tmp_path / "one", NAME, entries, build)
    inside = package(entries / NAME / "content")
    if damage == "changed":  # the checkout has a hard link to it
        package(tmp_path / "one").write_text("VALUE = 2\n")
        assert inside.read_text() == "VALUE = 2\n"
    elif damage == "removed":
        inside.unlink()
    elif damage == "added":
        inside.with_name("other.py").touch()
    else:
        (entries / NAME / "listing").unlink()
    environment.provide(tmp_path / "two", NAME, entries, build)
    assert build.built == 2
    assert package(tmp_path / "two").read_text() == "VALUE = 1\n"


def test_what_python_compiles_again_is_no_damage(
    environment: Any, entries: Path, tmp_path: Path
) -> None:
    build = Builder()
    environment.provide(tmp_path / "one", NAME, entries, build)
    compiled = entries / NAME / "content" / "lib" / "python" / "site-packages" / "__pycache__"
    (compiled / "package.pyc").unlink()
    environment.provide(tmp_path / "two", NAME, entries, build)
    assert build.built == 1


def test_of_two_checkouts_at_once_one_builds_and_the_other_waits(
    environment: Any, entries: Path, tmp_path: Path
) -> None:
    build = Builder(wait_s=0.5)
    threads = [
        threading.Thread(
            target=environment.provide, args=(tmp_path / str(number), NAME, entries, build)
        )
        for number in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert build.built == 1
    assert all(package(tmp_path / str(number)).exists() for number in range(4))


def test_a_checkout_that_waits_for_another_says_so_at_once_and_again(
    environment: Any,
    entries: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(environment, "SAID_EVERY_S", 1.1)
    one, two = tmp_path / "one", tmp_path / "two"
    began, go_on = threading.Event(), threading.Event()

    def build(folder: Path) -> None:
        began.set()
        assert go_on.wait(30)
        Builder()(folder)

    first = threading.Thread(target=environment.provide, args=(one, NAME, entries, build))
    first.start()
    assert began.wait(30)
    environment.provide(tmp_path / "three", "requirements-other", entries, Builder())
    assert ": waits " not in capsys.readouterr().out, "another lock has packages of its own"
    second = threading.Thread(target=environment.provide, args=(two, NAME, entries, Builder()))
    second.start()
    holder = f"for {one} (process {os.getpid()}), which installs the same packages"
    said = ""
    while said.count(": waits ") < 2:
        said += capsys.readouterr().out
    go_on.set()
    for thread in (first, second):
        thread.join()
    assert said.startswith(f"{two}: waits {holder}\n{two}: waits (1 s) {holder}\n")


def test_an_installation_shows_how_far_it_is_and_names_large_downloads(
    environment: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [
        "Collecting absl-py==2.5.1 (from -r a.lock (line 1))",
        "  Downloading absl_py.whl (135 kB)",
        "Collecting tensorflow==2.20.0",
        "  Downloading tensorflow.whl (620.7 MB)",
        "Installing collected packages: absl-py, tensorflow",
    ]
    environment.show(lines, "a.lock", 2)
    large = "a.lock: 2 of 2: Downloading tensorflow.whl (620.7 MB)"
    assert capsys.readouterr().out.splitlines() == [
        large,
        "a.lock: all are there, writes them to the disk",
    ]
    monkeypatch.setattr(environment, "PROGRESS_EVERY_S", 0.0)
    environment.show(lines, "a.lock", 2)
    assert capsys.readouterr().out.startswith("a.lock: 1 of 2: Collecting absl-py==2.5.1")


def test_the_prompt_of_an_environment_is_its_own_name(environment: Any, tmp_path: Path) -> None:
    made = tmp_path / "content"
    venv = [sys.executable, "-m", "venv", "--without-pip", "--system-site-packages", str(made)]
    subprocess.run(venv, check=True)
    home = made.rename(tmp_path / ".venv")
    (home / "pyvenv.cfg").write_text(
        (home / "pyvenv.cfg").read_text().replace(str(made), str(home))
    )
    environment.name_prompt(home)
    shell = f"PS1='$ '; . '{home}/bin/activate'; printf %s \"$PS1\""
    assert subprocess.check_output(["bash", "-c", shell], text=True) == "(.venv) $ "


def test_a_checkout_needs_no_cache_once_it_has_its_environment(
    environment: Any, entries: Path, tmp_path: Path
) -> None:
    build = Builder()
    environment.provide(tmp_path / "one", NAME, entries, build)
    shutil.rmtree(entries)
    assert package(tmp_path / "one").read_text() == "VALUE = 1\n"
    entries.mkdir()
    environment.provide(tmp_path / "one", NAME, entries, build)
    assert build.built == 2


def test_each_lock_python_and_option_has_an_entry_of_its_own(
    environment: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, other = tmp_path / "a.lock", tmp_path / "b.lock"
    lock.write_text("a==1\n")
    other.write_text("a==2\n")
    keys = [environment.key(lock, []), environment.key(lock, ["--no-deps"])]
    keys.append(environment.key(other, []))
    monkeypatch.setattr(sys, "version", "3.13.0 of another day")
    keys.append(environment.key(lock, []))
    monkeypatch.undo()
    assert len({*keys}) == 4
    assert environment.key(lock, []) == keys[0]


def test_an_entry_that_no_checkout_asks_for_is_removed(
    environment: Any, entries: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment.provide(tmp_path / "one", "requirements-old", entries, Builder())
    environment.provide(tmp_path / "one", NAME, entries, Builder())
    assert (entries / "requirements-old").exists()
    monkeypatch.setattr(environment, "UNUSED_DAYS", -1)
    environment.provide(tmp_path / "one", NAME, entries, Builder())
    assert not (entries / "requirements-old").exists()


def test_a_failed_installation_is_one_message_and_leaves_no_environment(tmp_path: Path) -> None:
    (tmp_path / "bad.lock").write_text(f"./absent.whl --hash=sha256:{'0' * 64}\n")
    done = subprocess.run(
        [sys.executable, SCRIPT, "bad.lock", ".venv", "--no-index"],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "XDG_CACHE_HOME": "/dev/null/none"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "cannot be written" in done.stderr, "the checkout has to do"
    assert "-m pip install ... ended with 1" in done.stderr
    assert "bad.lock: installs 0 packages, once for all checkouts" in done.stdout
    assert "Traceback" not in done.stderr
    assert not (tmp_path / ".venv").exists()
    (left,) = (tmp_path / "out" / "environments").glob("bad-*")
    assert left.suffix == ".lock"
