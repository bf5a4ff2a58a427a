"""A disk that is full when a job starts: the start waits, and the report says why."""

from __future__ import annotations

import asyncio
import errno
import os
import tempfile
from pathlib import Path
from typing import cast

import pytest

from reshape_sidecar import codec, durable
from reshape_sidecar.agent import converge, selfcheck
from reshape_sidecar.agent.actions import Actions
from reshape_sidecar.agent.coordinator_link import CoordinatorLink
from reshape_sidecar.agent.init_link import InitLink
from reshape_sidecar.agent.spec import SPEC_FILE
from reshape_sidecar.agent.state import AgentState
from reshape_sidecar.init.values import InitStatus
from tests.unit.sidecar.test_agent_values import attempt

SEARCH = {"PATH": "/usr/bin:/bin:/usr/local/bin"}


def no_room(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_start_waits_for_room_for_its_claim_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no fault of the attempt: jobs that began while a disk was full failed for good."""
    made, folder = attempt(tmp_path)
    (folder.path / SPEC_FILE).write_text(codec.dumps(made))

    async def scenario() -> None:
        errors: list[str | None] = []
        state = AgentState(folder)
        state.status = lambda: InitStatus(1, 1)
        state.push = lambda: errors.append(state.observe().error)
        actions = Actions(state, cast(InitLink, None), cast(CoordinatorLink, None))
        state.checked = True
        with monkeypatch.context() as full:
            full.setattr(durable, "write_synced", no_room)
            for _ in range(2):
                state.wake.set()
                await actions.do(converge.Start(1))
        assert (state.memory.claimed, state.memory.unfit, state.fault) == (False, None, None)
        assert len(errors) == 1
        assert "free space there" in (errors[0] or "")
        await actions.do(converge.Start(1))
        assert state.memory.claimed
        assert errors[1:] == [None]

    asyncio.run(scenario())


def test_the_self_check_leaves_a_full_disk_to_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, folder = attempt(tmp_path)
    monkeypatch.setattr(tempfile, "TemporaryFile", no_room)
    assert selfcheck.fault(made, folder, SEARCH) is None
