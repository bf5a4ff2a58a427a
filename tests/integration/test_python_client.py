"""The Python client against a real daemon, also over its restart; docs/python.md runs as it is."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from reshape_controller.cli.home import Home
from reshape_gpu import AsyncClient, Client, NotFound, RecordRejected
from reshape_gpu.target import of_home
from tests.support.daemon_bed import DEADLINE_S, Bed
from tests.support.daemon_bed import bed as make_bed

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "python.md"
PANDAS = """
class DataFrame(list):
    def to_string(self, columns):
        return "\\n".join(str([row[name] for name in columns]) for row in self)
"""
"""As much of pandas as the document uses."""


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    for made in make_bed(tmp_path_factory.mktemp("client")):
        made.up()
        yield made


def client(bed: Bed) -> Client:
    return Client.at(of_home(Home(bed.home)))


def test_the_example_of_the_document_runs_as_it_is(bed: Bed, tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 3
    (tmp_path / "pandas.py").write_text(PANDAS)
    environment = bed.environment()
    environment["PYTHONPATH"] += f":{tmp_path}"
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(blocks)],
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,
        timeout=2 * DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for expected in ("hello from 2 GPUs", "completed", "submitted", "hello, asyncio"):
        assert expected in done.stdout


def test_a_wait_a_log_and_a_stream_of_events_survive_a_daemon_that_is_killed(bed: Bed) -> None:
    job = bed.submit("long", steps=60)
    bed.reaches(job, "running")
    with ThreadPoolExecutor(3) as threads:
        ended = threads.submit(client(bed).wait, "long")
        lines = threads.submit(lambda: list(client(bed).logs(job, follow=True)))
        events = threads.submit(lambda: [e.kind for e in client(bed).events(job, follow=True)])
        bed.pid(job)
        bed.stop(signal.SIGKILL)
        bed.up()
        assert ended.result(2 * DEADLINE_S).state == "completed"
        assert lines.result(DEADLINE_S)[-1] == "done"
        assert events.result(DEADLINE_S) == [e.kind for e in client(bed).events(job)]


def test_the_asynchronous_client_does_the_same_for_several_jobs_at_once(bed: Bed) -> None:
    async def one(asked: AsyncClient, name: str) -> tuple[str, list[str]]:
        record = bed.record(name, steps=3, optional_gpus=[2])
        job = await asked.submit(record)
        lines = [line async for line in asked.logs(job.id, follow=True)]
        ended = await asked.wait(job.id)
        assert [e.kind async for e in asked.events(job.id)]
        assert (await asked.explain(job.id))[0].explanation
        return ended.state, lines

    async def inside() -> None:
        async with AsyncClient.at(of_home(Home(bed.home))) as asked:
            for state, lines in await asyncio.gather(one(asked, "as-1"), one(asked, "as-2")):
                assert (state, lines[-1]) == ("completed", "done")
            usage = await asked.usage(by="job")
            assert {"as-1", "as-2"} <= {row.name.rpartition("-")[0] for row in usage.rows}
            with pytest.raises(NotFound):
                await asked.get("absent")

    asyncio.run(inside())


def test_an_error_of_the_daemon_names_field_value_and_remedy(bed: Bed) -> None:
    with pytest.raises(RecordRejected) as error:
        client(bed).submit(
            {"name": "bad", "command": "true", "optional_gpus": [2], "steps": "many"}
        )
    (problem,) = error.value.problems
    assert problem.where == "steps"
    assert "many" in problem.what
    assert problem.remedy
    with pytest.raises(NotFound) as absent:
        client(bed).cancel("absent")
    assert "absent" in str(absent.value)


def test_a_trial_changes_nothing_and_jobs_are_found_by_pattern(bed: Bed) -> None:
    found = client(bed).try_out(bed.record("tried", optional_gpus=[4]))
    assert found.name == "tried"
    assert client(bed).jobs(name="tried*") == ()
    assert len(client(bed).gpus()) == 4
    assert client(bed).whoami().role == "operator"
