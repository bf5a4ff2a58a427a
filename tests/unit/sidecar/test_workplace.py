"""Where code cannot be written, training runs in a copy of it that is the job's own."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from reshape_sidecar.agent import workplace
from reshape_sidecar.agent.workplace import NoWorkplace, folder_for


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of code that the processes of the test count as closed."""
    folder = tmp_path / "code"
    (folder / "package").mkdir(parents=True)
    (folder / "train.py").write_text("import package.layers\nopen('final', 'w').write('model')\n")
    (folder / "package" / "layers.py").touch()
    monkeypatch.setattr(workplace, "_can_write", lambda folder: False)
    return folder


def later(path: Path, text: str, ns: int) -> None:
    """Write a file that is newer by ``ns`` than it was."""
    was_ns = path.stat().st_mtime_ns
    path.write_text(text)
    os.utime(path, ns=(was_ns, was_ns + ns))


def test_code_that_can_be_written_is_where_training_runs(tmp_path: Path) -> None:
    assert folder_for(tmp_path, tmp_path / "work") == tmp_path
    assert folder_for(tmp_path, None) == tmp_path
    assert not (tmp_path / "work").exists()


def test_a_script_writes_beside_itself_and_finds_its_modules(code: Path, tmp_path: Path) -> None:
    work = folder_for(code, tmp_path / "checkpoints" / "work")
    assert work == tmp_path / "checkpoints" / "work"
    subprocess.run([sys.executable, "train.py"], cwd=work, check=True)
    assert (work / "final").read_text() == "model"
    assert not (code / "final").exists()


def test_what_the_program_wrote_stays_and_what_is_newer_in_the_code_comes(
    code: Path, tmp_path: Path
) -> None:
    work = folder_for(code, tmp_path / "work")
    later(work / "train.py", "the program's own", 5)
    (work / "out").mkdir()
    (work / "out" / "checkpoint").touch()
    later(code / "package" / "layers.py", "mended", 5)
    folder_for(code, work)
    assert (work / "train.py").read_text() == "the program's own"
    assert (work / "package" / "layers.py").read_text() == "mended"
    later(code / "train.py", "mended too", 9)
    folder_for(code, work)
    assert (work / "train.py").read_text() == "mended too"
    assert (work / "out" / "checkpoint").exists()
    assert sorted(path.name for path in work.iterdir()) == ["out", "package", "train.py"]


def test_large_files_links_and_odd_things_are_links_to_the_code(
    code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workplace, "COPY_BYTES_MAX", 100)
    (code / "data.bin").write_bytes(bytes(101))
    (code / "alias.py").symlink_to("train.py")
    os.mkfifo(code / "pipe")
    work = folder_for(code, tmp_path / "work")
    for name in ("data.bin", "alias.py", "pipe"):
        assert (work / name).readlink() == code / name
    assert not (work / "train.py").is_symlink()


def test_the_bounds_on_what_is_copied_hold(
    code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = code / "images"
    images.mkdir()
    for number in range(9):
        (images / f"{number}.png").write_bytes(bytes(50))
    monkeypatch.setattr(workplace, "TOTAL_BYTES_MAX", 300)
    few = folder_for(code, tmp_path / "few")
    copied = [path for path in (few / "images").iterdir() if not path.is_symlink()]
    assert 0 < len(copied) < 9
    monkeypatch.setattr(workplace, "ENTRIES_MAX", 3)
    none = folder_for(code, tmp_path / "none")
    assert (none / "images").readlink() == images
    assert (none / "train.py").exists()


def test_workers_on_several_hosts_may_fill_it_at_once(code: Path, tmp_path: Path) -> None:
    for number in range(200):
        (code / f"{number}.py").write_text(str(number))
    found: list[Path] = []
    threads = [
        threading.Thread(target=lambda: found.append(folder_for(code, tmp_path / "work")))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert {path.name for path in found[0].iterdir()} == {path.name for path in code.iterdir()}


def test_a_folder_that_cannot_be_made_is_named_with_its_remedy(code: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NoWorkplace, match="make the folder of the checkpoints writable for uid"):
        folder_for(code, tmp_path / "file" / "work")
