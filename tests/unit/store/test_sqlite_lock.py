"""Where a store may lie, who may read it, and that one process has it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from reshape_controller.store.protocol import StoreError
from reshape_controller.store.sqlite.lock import ProcessLock, filesystem_of, prepare

MOUNTS = """\
/dev/vda / ext4 rw 0 0
server:/home /home nfs4 rw 0 0
/dev/vdb /home/user ext4 rw 0 0
tmpfs /mnt/with\\040space tmpfs rw 0 0
old /mnt/twice ext4 rw 0 0
new /mnt/twice cifs rw 0 0
broken
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/", "ext4"),
        ("/srv/reshape", "ext4"),
        ("/home", "nfs4"),
        ("/home/users/x", "nfs4"),
        ("/home/user/ada", "ext4"),
        ("/homework", "ext4"),
        ("/mnt/with space/x", "tmpfs"),
        ("/mnt/twice", "cifs"),
    ],
)
def test_the_file_system_of_a_folder_is_that_of_its_nearest_mount(folder: str, kind: str) -> None:
    assert filesystem_of(Path(folder), MOUNTS) == kind


def test_the_folder_is_made_private(tmp_path: Path) -> None:
    prepare(tmp_path / "a" / "b" / "reshape.db")
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700


def test_a_folder_or_file_that_others_can_read_is_refused_with_the_remedy(tmp_path: Path) -> None:
    open_folder = tmp_path / "open"
    open_folder.mkdir(mode=0o755)
    with pytest.raises(StoreError, match=rf"chmod 700 {open_folder}"):
        prepare(open_folder / "reshape.db")
    file = tmp_path / "reshape.db"
    file.touch()
    file.chmod(0o640)
    with pytest.raises(StoreError, match=rf"chmod 600 {file}"):
        prepare(file)


@pytest.mark.parametrize("folder", ["/proc/reshape", "/dev/null/reshape"])
def test_a_folder_that_cannot_be_made_is_named_with_the_remedy(folder: str) -> None:
    with pytest.raises(StoreError, match=rf"{folder}/reshape.db: .*remedy: name a file in a"):
        prepare(Path(folder, "reshape.db"))


def test_a_folder_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "reshape.db").mkdir(mode=0o700)
    with pytest.raises(StoreError, match="is not a file"):
        prepare(tmp_path / "reshape.db")


def test_the_lock_names_its_holder_and_is_free_again_when_the_holder_dies(tmp_path: Path) -> None:
    path = tmp_path / "reshape.db"
    program = (
        "import sys, pathlib\n"
        "from reshape_controller.store.sqlite.lock import ProcessLock\n"
        "lock = ProcessLock(pathlib.Path(sys.argv[1])); lock.take()\n"
        "print('held', flush=True); sys.stdin.read()\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(StoreError, match=rf"{path}: another.*pid {holder.pid}\)"):
            ProcessLock(path).take()
    finally:
        holder.kill()
        holder.communicate()
    lock = ProcessLock(path)
    lock.take()
    lock.drop()
    lock.drop()
