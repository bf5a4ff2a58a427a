"""Checkpoints are claimed by one attempt and published whole, or not at all."""

from __future__ import annotations

import errno
import json
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from reshape_sidecar import checkpoints, claims, durable, foreign
from reshape_sidecar.checkpoints import PublishedCheckpoint
from reshape_sidecar.claims import CheckpointError, StaleAttempt
from reshape_sidecar.contract import Manifest


def writes(content: bytes) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / "state.bin").write_bytes(content)
        (folder / "more").mkdir()
        (folder / "more" / "part").write_bytes(content[::-1])

    return write


def publish(
    folder: Path, step: int, attempt: int = 1, complete: bool = False
) -> PublishedCheckpoint:
    return checkpoints.publish(
        folder,
        step=step,
        epoch=step // 10,
        attempt=attempt,
        generation=1,
        write=writes(b"%d/%d" % (step, attempt)),
        complete=complete,
    )


def newest_step(folder: Path) -> int | None:
    found = checkpoints.newest(folder)
    return found.manifest.step if found else None


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_an_empty_or_missing_folder_has_no_newest_checkpoint(tmp_path: Path) -> None:
    assert checkpoints.newest(tmp_path) is None
    assert checkpoints.newest(tmp_path / "missing") is None


def test_a_published_checkpoint_is_found_with_its_files(tmp_path: Path) -> None:
    checkpoints.claim(tmp_path, 1)
    published = publish(tmp_path, 12)
    found = checkpoints.newest(tmp_path)
    assert found == published
    assert found is not None
    assert found.path.name == "step-0000000012-a1"
    assert (found.path / "state.bin").read_bytes() == b"12/1"
    assert {entry.name for entry in found.manifest.files} == {"state.bin", "more/part"}


def test_links_inside_a_checkpoint_hold_where_it_is_published(tmp_path: Path) -> None:
    def write(folder: Path) -> None:
        writes(b"state")(folder)
        os.symlink(folder / "state.bin", folder / "last")
        os.symlink(folder / "more", folder / "newest")
        os.symlink(folder.resolve() / "state.bin", folder / "more" / "best")

    os.symlink(tmp_path, tmp_path / "same")
    folder = tmp_path / "same" / "checkpoints"
    checkpoints.claim(folder, 1)
    checkpoints.publish(folder, step=3, epoch=0, attempt=1, generation=1, write=write)
    found = checkpoints.newest(folder)
    assert found is not None
    for name in ("last", "newest/part", "more/best"):
        assert (found.path / name).read_bytes() in (b"state", b"etats")


def test_a_file_whose_name_is_no_utf8_is_published_like_any_other(tmp_path: Path) -> None:
    def write(folder: Path) -> None:
        (folder / os.fsdecode(b"\xff.bin")).write_bytes(b"state")

    checkpoints.claim(tmp_path, 1)
    published = checkpoints.publish(tmp_path, step=3, epoch=0, attempt=1, generation=1, write=write)
    assert checkpoints.newest(tmp_path) == published
    assert Path(os.fsdecode(os.fsencode(published.path) + b"/\xff.bin")).read_bytes() == b"state"


def test_a_file_with_the_manifests_name_is_refused_and_the_older_checkpoint_stays(
    tmp_path: Path,
) -> None:
    def write(folder: Path) -> None:
        (folder / "manifest.json").write_text("{}")

    checkpoints.claim(tmp_path, 1)
    publish(tmp_path, 3)
    with pytest.raises(CheckpointError, match=r"manifest\.json.*use another name"):
        checkpoints.publish(tmp_path, step=4, epoch=0, attempt=1, generation=1, write=write)
    assert newest_step(tmp_path) == 3
    assert names(tmp_path) == {"claim.json", "step-0000000003-a1"}


def test_a_save_that_misses_a_file_names_it(tmp_path: Path) -> None:
    def write(folder: Path) -> None:
        (tmp_path / "vocabulary.txt").read_text()

    checkpoints.claim(tmp_path, 1)
    with pytest.raises(CheckpointError, match=r"vocabulary\.txt"):
        checkpoints.publish(tmp_path, step=4, epoch=0, attempt=1, generation=1, write=write)


def test_a_file_that_cannot_be_replaced_leaves_no_other_behind(tmp_path: Path) -> None:
    (tmp_path / "claim.json").mkdir()
    with pytest.raises(OSError, match="claim"):
        durable.write_whole(tmp_path / "claim.json", b"{}")
    assert names(tmp_path) == {"claim.json"}


def test_the_last_two_are_kept(tmp_path: Path) -> None:
    checkpoints.claim(tmp_path, 1)
    for step in (5, 9, 14):
        publish(tmp_path, step)
    assert names(tmp_path) == {"claim.json", "step-0000000009-a1", "step-0000000014-a1"}


@pytest.mark.parametrize("damage", ["shorten", "alter", "remove", "manifest", "foreign manifest"])
def test_a_torn_newest_checkpoint_falls_back_to_the_one_before(tmp_path: Path, damage: str) -> None:
    checkpoints.claim(tmp_path, 1)
    publish(tmp_path, 5)
    state = publish(tmp_path, 9).path / "state.bin"
    if damage == "shorten":
        state.write_bytes(b"9")
    elif damage == "alter":
        state.write_bytes(b"9/2")
    elif damage == "remove":
        state.unlink()
    elif damage == "manifest":
        (state.parent / "manifest.json").write_text('{"step": 9')
    else:
        text = (tmp_path / "step-0000000005-a1" / "manifest.json").read_text()
        (state.parent / "manifest.json").write_text(text)
    assert newest_step(tmp_path) == 5


def test_what_a_process_has_just_published_is_not_read_again_at_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints.claim(tmp_path, 1)
    publish(tmp_path, 5)
    state = publish(tmp_path, 9).path / "state.bin"
    read: list[Path] = []
    whole = foreign.sha256

    def noted(path: Path, stop: Callable[[], bool] = foreign.never) -> str:
        read.append(path)
        return whole(path, stop)

    monkeypatch.setattr(foreign, "sha256", noted)
    own, other = (1, 1), (1, 2)
    found = checkpoints.newest(tmp_path, own)
    assert found is not None
    assert (found.manifest.step, read) == (9, [])
    checkpoints.newest(tmp_path, other)
    assert {path.name for path in read} == {"state.bin", "part"}
    state.write_bytes(b"shorter or longer")
    found = checkpoints.newest(tmp_path, own)
    assert found is not None
    assert found.manifest.step == 5


def test_a_checkpoint_of_another_attempt_is_hashed_whatever_its_generation(tmp_path: Path) -> None:
    checkpoints.claim(tmp_path, 1)
    publish(tmp_path, 5)
    state = publish(tmp_path, 9).path / "state.bin"
    state.write_bytes(bytes(len(state.read_bytes())))
    checkpoints.claim(tmp_path, 1)
    found = checkpoints.newest(tmp_path, (2, 1))
    assert found is not None
    assert found.manifest.step == 5
    found = checkpoints.newest(tmp_path, (1, 1))
    assert found is not None
    assert found.manifest.step == 9, "its own process has hashed it, so its bytes are not read"


def test_a_torn_checkpoint_goes_away_when_training_has_passed_from_the_one_before(
    tmp_path: Path,
) -> None:
    checkpoints.claim(tmp_path, 1)
    publish(tmp_path, 5)
    (publish(tmp_path, 9).path / "state.bin").unlink()
    publish(tmp_path, 7)
    assert newest_step(tmp_path) == 7
    assert names(tmp_path) == {"claim.json", "step-0000000005-a1", "step-0000000007-a1"}


def test_a_manifest_that_points_outside_is_torn(tmp_path: Path) -> None:
    checkpoints.claim(tmp_path, 1)
    path = publish(tmp_path, 5).path / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["files"][0]["name"] = "../claim.json"
    path.write_text(json.dumps(manifest))
    with pytest.raises(checkpoints.DamagedCheckpoint, match="outside"):
        checkpoints.verify(path.parent)


def test_publishing_a_step_again_replaces_it(tmp_path: Path) -> None:
    checkpoints.claim(tmp_path, 1)
    publish(tmp_path, 5)
    publish(tmp_path, 9)
    publish(tmp_path, 9, complete=True)
    found = checkpoints.newest(tmp_path)
    assert found is not None
    assert found.manifest.complete
    assert names(tmp_path) == {"claim.json", "step-0000000005-a1", "step-0000000009-a1"}


def test_a_new_attempt_starts_from_the_newest_of_the_one_before(tmp_path: Path) -> None:
    checkpoints.claim(tmp_path, 1)
    publish(tmp_path, 5)
    claim = checkpoints.claim(tmp_path, 2)
    assert claim.base == "step-0000000005-a1"
    assert newest_step(tmp_path) == 5
    publish(tmp_path, 6, attempt=2)
    assert newest_step(tmp_path) == 6


def test_an_old_attempt_can_neither_publish_nor_claim(tmp_path: Path) -> None:
    checkpoints.claim(tmp_path, 1)
    publish(tmp_path, 5)
    checkpoints.claim(tmp_path, 2)
    with pytest.raises(StaleAttempt, match="claimed by attempt 2"):
        publish(tmp_path, 6, attempt=1)
    with pytest.raises(StaleAttempt):
        checkpoints.claim(tmp_path, 1)
    assert names(tmp_path) == {"claim.json", "step-0000000005-a1"}


def test_two_threads_of_a_process_may_claim_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hook reads the checkpoints in a thread while the script's session claims the folder."""
    written, real = threading.Barrier(2, timeout=30), durable.write_synced

    def both_before_either_goes_on(path: Path, content: bytes, *how: Any) -> None:
        real(path, content, *how)
        written.wait()

    monkeypatch.setattr(durable, "write_synced", both_before_either_goes_on)
    with ThreadPoolExecutor(2) as threads:
        made = list(threads.map(lambda _: checkpoints.claim(tmp_path, 1), range(2)))
    assert made[0] == made[1] == claims.read(tmp_path)
    assert names(tmp_path) == {"claim.json"}


def test_a_claim_leaves_the_save_of_a_thread_that_has_claimed_earlier(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session claims and saves while the hook's thread is still in its claim."""
    real = durable.write_whole

    def and_a_thread_saves(path: Path, content: bytes) -> None:
        real(path, content)
        (tmp_path / ".tmp-a1-77-5").mkdir()
        (tmp_path / ".tmp-a2-88-5").mkdir()

    monkeypatch.setattr(durable, "write_whole", and_a_thread_saves)
    checkpoints.claim(tmp_path, 2)
    assert names(tmp_path) == {"claim.json", ".tmp-a2-88-5"}


def test_a_claim_during_the_save_of_an_old_attempt_fences_it(tmp_path: Path) -> None:
    checkpoints.claim(tmp_path, 1)

    def write(folder: Path) -> None:
        (folder / "state.bin").write_bytes(b"late")
        checkpoints.claim(tmp_path, 2)

    with pytest.raises(StaleAttempt):
        checkpoints.publish(tmp_path, step=3, epoch=0, attempt=1, generation=1, write=write)
    assert checkpoints.newest(tmp_path) is None
    assert names(tmp_path) == {"claim.json"}


def test_what_an_old_attempt_published_after_the_claim_is_ignored(tmp_path: Path) -> None:
    checkpoints.claim(tmp_path, 1)
    publish(tmp_path, 5)
    late = publish(tmp_path, 8).path
    late.rename(tmp_path / "elsewhere")
    checkpoints.claim(tmp_path, 2)
    (tmp_path / "elsewhere").rename(late)
    assert newest_step(tmp_path) == 5


def test_a_damaged_base_falls_back_to_what_its_attempt_published_before(tmp_path: Path) -> None:
    checkpoints.claim(tmp_path, 1)
    publish(tmp_path, 5)
    state = publish(tmp_path, 9).path / "state.bin"
    checkpoints.claim(tmp_path, 2)
    state.write_bytes(b"")
    assert newest_step(tmp_path) == 5


def test_claiming_again_changes_nothing(tmp_path: Path) -> None:
    first = checkpoints.claim(tmp_path, 1)
    publish(tmp_path, 5)
    assert checkpoints.claim(tmp_path, 1) == first
    assert newest_step(tmp_path) == 5


def test_publishing_without_a_claim_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="claim it first"):
        publish(tmp_path, 5)


def test_an_unreadable_claim_is_named_and_nothing_is_published(tmp_path: Path) -> None:
    (tmp_path / "claim.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"claim\.json cannot be read"):
        publish(tmp_path, 5)


def test_a_full_disk_is_one_clear_error_and_the_older_ones_remain(tmp_path: Path) -> None:
    checkpoints.claim(tmp_path, 1)
    publish(tmp_path, 5)

    def full(folder: Path) -> None:
        (folder / "state.bin").write_bytes(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(CheckpointError, match=r"checkpoint of step 9.*No space.*free space"):
        checkpoints.publish(tmp_path, step=9, epoch=0, attempt=1, generation=1, write=full)
    assert newest_step(tmp_path) == 5
    assert names(tmp_path) == {"claim.json", "step-0000000005-a1"}


def test_an_error_of_the_writer_passes_through_and_leaves_nothing_behind(tmp_path: Path) -> None:
    checkpoints.claim(tmp_path, 1)

    def broken(folder: Path) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        checkpoints.publish(tmp_path, step=9, epoch=0, attempt=1, generation=1, write=broken)
    assert names(tmp_path) == {"claim.json"}


def test_leftovers_of_a_killed_save_are_removed_but_never_a_later_attempts(tmp_path: Path) -> None:
    checkpoints.claim(tmp_path, 2)
    (tmp_path / ".tmp-a2-77-5").mkdir()
    (tmp_path / ".tmp-a1-77-5").mkdir()
    (tmp_path / ".tmp-a3-77-5").mkdir()
    publish(tmp_path, 5, attempt=2)
    assert names(tmp_path) == {"claim.json", "step-0000000005-a2", ".tmp-a3-77-5"}


def test_a_reader_looks_again_when_the_newest_was_replaced_under_its_eyes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints.claim(tmp_path, 1)
    publish(tmp_path, 5)
    real = checkpoints.verify
    steps = iter((6, 7))

    def verify_while_training_goes_on(
        path: Path, process: tuple[int, int] | None, stop: Callable[[], bool]
    ) -> Manifest:
        for step in steps:
            publish(tmp_path, step)
        return real(path, process, stop)

    monkeypatch.setattr(checkpoints, "verify", verify_while_training_goes_on)
    assert newest_step(tmp_path) == 7
