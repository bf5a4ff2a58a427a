"""Log snapshots of many jobs with large records: cut by their bytes, and read again."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from reshape_controller.core.model import Job, JobId, JobSpec
from reshape_controller.core.state import State
from reshape_controller.live import journal
from reshape_controller.store.protocol import SNAPSHOT_PART_BYTES_MAX
from reshape_controller.store.sqlite.store import SqliteStore
from tests.support.http_bed import RECORD, Api, run
from tests.support.store_values import records


def state_of(jobs: int, env_chars: int) -> State:
    """A state of queued jobs whose environments have so many characters of two bytes."""
    state, env = State(), (("TEXT", "é" * env_chars),)
    for number in range(jobs):
        spec = JobSpec(f"job-{number}", ("x",), (1,), env=env)
        state.put_job(Job(JobId(f"job-{number}"), spec, number, 0.0))
    return state


def test_5000_jobs_of_32_kb_each_are_in_one_snapshot(tmp_path: Path) -> None:
    parts = state_of(5000, 16_000).dump()
    assert max(len(part.encode()) for part in parts) < SNAPSHOT_PART_BYTES_MAX
    assert sum(part.count("\n") + 1 for part in parts[1:]) == 5000

    async def written_and_read() -> tuple[str, ...]:
        store = SqliteStore(tmp_path / "store.sqlite")
        await store.open()
        (record,) = records(1)
        await store.append(record)
        await store.write_snapshot(1, parts)
        found = await store.latest_snapshot()
        await store.close()
        assert found is not None
        return found[1]

    assert asyncio.run(written_and_read()) == parts


@pytest.mark.parametrize(("jobs", "env_chars"), [(0, 0), (1, 10), (1001, 10), (3, 300_000)])
def test_a_dump_of_any_size_is_read_as_it_was(jobs: int, env_chars: int) -> None:
    state = state_of(jobs, env_chars)
    parts = state.dump()
    assert State.load(parts).dump() == parts
    assert all(part for part in parts)


def test_two_arrays_of_500_jobs_with_4_kb_of_environment_stop_no_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "SNAPSHOT_EVERY", 5)

    async def test(it: Api) -> None:
        for name in ("one", "two"):
            env = {"TEXT": "x" * 4096}
            array = {"seed": list(range(500))}
            record = {**RECORD, "name": name, "env": env, "array": array}
            answer = await it.post("/v1/arrays", json.dumps(record))
            assert answer.code == 201, answer.json
        for number in range(6):
            await it.post("/v1/jobs", {**RECORD, "name": f"small-{number}"})
        status = (await it.get("/v1/status")).json
        assert status["waits_for"] == ""
        assert it.context.control.since_snapshot() <= 5
        assert await it.context.control.store.latest_snapshot() is not None

    run(tmp_path, test)
