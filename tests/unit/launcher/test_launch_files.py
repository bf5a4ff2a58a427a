"""What the launcher remembers of the files of a launch."""

from __future__ import annotations

from pathlib import Path

from reshape_launcher.local.launch_files import LaunchFiles
from reshape_sidecar import codec
from reshape_sidecar.agent.spec import SPEC_FILE, TOKEN_FILE, AttemptSpec, DeviceMode, Folder


def test_files_of_attempts_that_are_over_take_no_memory(tmp_path: Path) -> None:
    files = LaunchFiles()
    for number in range(20):
        folder = Folder(tmp_path / f"attempt-{number}")
        folder.path.mkdir()
        spec = AttemptSpec("a", number, "a", (), "/", "/", "http://x", 1, DeviceMode.SIMULATED)
        (folder.path / SPEC_FILE).write_text(codec.dumps(spec))
        (folder.path / TOKEN_FILE).write_text("secret\n")
        assert files.torn(folder) == ""
        files.forget(folder)
    assert not files._whole


def test_a_file_is_read_again_after_its_attempt_was_dropped(tmp_path: Path) -> None:
    files, folder = LaunchFiles(), Folder(tmp_path)
    files.forget(folder)
    assert files.torn(folder) == f"{tmp_path / SPEC_FILE} is missing"
