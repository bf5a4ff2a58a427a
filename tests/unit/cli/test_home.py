"""The home folder: secrets for their owner only, one daemon at a time."""

from __future__ import annotations

import errno
import os
import stat
import threading
import time
from pathlib import Path

import pytest

from reshape_controller.cli import home as module
from reshape_controller.cli.exits import CliError
from reshape_controller.cli.home import Home
from reshape_controller.store.sqlite import lock
from reshape_gpu.home import Address


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    made.prepare()
    return made


def test_secrets_are_made_once_and_only_their_owner_may_read_them(home: Home) -> None:
    assert home.token() == home.token() != home.secret().decode()
    assert len(home.token()) == 64
    for name in ("token", "secret"):
        assert stat.S_IMODE((home.folder / name).stat().st_mode) == 0o600
    assert stat.S_IMODE(home.folder.stat().st_mode) == 0o700
    assert home.read_token() == home.token()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o622])
def test_a_secret_that_others_can_read_or_write_is_not_used(home: Home, mode: int) -> None:
    home.token()
    home.token_file.chmod(mode)
    with pytest.raises(CliError, match="other users can read or write") as refused:
        home.token()
    assert "chmod 600" in refused.value.text()


def test_an_empty_secret_is_not_used(home: Home) -> None:
    home.token_file.write_text("\n")
    home.token_file.chmod(0o600)
    with pytest.raises(CliError, match="holds no valid token"):
        home.token()


def test_one_daemon_at_a_time(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOCK_TRIES", 2)
    assert not home.has_daemon()
    held = home.lock()
    assert home.has_daemon()
    with pytest.raises(CliError, match=f"already runs in this home .pid {os.getpid()}"):
        home.lock()
    os.close(held)
    assert not home.has_daemon()
    os.close(home.lock())


def test_clients_that_look_do_not_keep_a_daemon_from_starting(home: Home) -> None:
    os.close(home.lock())
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            home.has_daemon()
            time.sleep(0.001)

    lookers = [threading.Thread(target=look) for _ in range(4)]
    for looker in lookers:
        looker.start()
    try:
        for _ in range(20):
            os.close(home.lock())
    finally:
        stop.set()
        for looker in lookers:
            looker.join()


def test_an_address_is_read_back_and_rubbish_is_none(home: Home) -> None:
    assert home.address() is None
    address = Address("http://127.0.0.1:1", 2, "0.1.0")
    home.write_address(address)
    assert home.address() == address
    home.address_file.write_text("{")
    assert home.address() is None


def test_looking_at_a_home_that_is_not_there_makes_none(tmp_path: Path) -> None:
    absent = Home(tmp_path / "absent")
    assert (absent.has_daemon(), absent.address(), absent.read_token()) == (False, None, None)
    assert not absent.folder.exists()


def test_a_full_disk_is_told_with_its_remedy_and_leaves_nothing_half(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    before = sorted(home.folder.iterdir())
    with pytest.raises(CliError, match=r"boot cannot be written.*No space left") as refused:
        home.note_boot()
    assert "remedy: free space" in refused.value.text()
    assert sorted(home.folder.iterdir()) == before


def test_a_changed_token_holds_at_once_and_a_torn_one_does_not(home: Home) -> None:
    read = home.current_token()
    first = read()
    for torn in ("", first[:10], "\n"):
        home.token_file.write_text(torn)
        assert read() == first
    home.token_file.write_text("n" * 64 + "\n")
    assert read() == "n" * 64
    home.token_file.write_text("o" * 65 + "\n")
    home.token_file.chmod(0o644)
    assert read() == "n" * 64, "others could have written it"
    home.token_file.unlink()
    assert read() == "n" * 64


@pytest.mark.parametrize(
    ("mode", "after"),
    [
        (0o700, 0o700),
        (0o711, 0o711),
        (0o755, 0o711),
        (0o777, 0o711),
        (0o770, 0o710),
        (0o2770, 0o2710),
    ],
)
def test_a_home_of_ones_own_is_closed_to_others_and_the_store_opens(
    home: Home, mode: int, after: int
) -> None:
    home.token()
    home.folder.chmod(mode)
    home.prepare()
    assert stat.S_IMODE(home.folder.stat().st_mode) == after
    lock.prepare(home.folder / "store.sqlite")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give files away")
def test_a_home_in_which_another_user_may_have_put_something_is_refused(home: Home) -> None:
    (home.folder / "token").write_text("x" * 64)
    os.chown(home.folder / "token", 40_001, -1)
    home.folder.chmod(0o777)
    with pytest.raises(CliError, match="token in it belongs to one") as refused:
        home.prepare()
    assert "look whose token is" in refused.value.text()
    home.folder.chmod(0o711)
    os.chown(home.folder, 40_001, -1)
    home.folder.chmod(0o755)
    with pytest.raises(CliError, match="other users can read or write the daemon's home"):
        home.prepare()
