"""The worked example of CONTRIBUTING.md: its files are those of examples/policy, and they run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from examples.policy import test_shortest_first as example
from examples.policy.shortest_first import ShortestFirst
from reshape_controller import policies
from tests.support.replay_bed import reshape

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
FILES = ("shortest_first.py", "test_shortest_first.py")
TESTS = [name for name in vars(example) if name.startswith("test_")]


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The two lines that the page adds to ``policies/__init__.py``."""
    monkeypatch.setitem(policies.BUILT_IN, "shortest-first", ShortestFirst)


@pytest.mark.parametrize("name", FILES)
def test_the_page_shows_the_file_as_it_is(name: str) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)
    assert (ROOT / "examples" / "policy" / name).read_text() in blocks


def test_without_the_registration_the_first_test_fails_as_the_page_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(policies.BUILT_IN, "shortest-first", raising=False)  # a reader may have it
    with pytest.raises(policies.UnknownPolicy, match="no policy 'shortest-first'"):
        example.test_the_job_with_the_fewest_steps_starts_first()


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("name", TESTS)
def test_once_registered_the_policy_passes_its_tests(name: str) -> None:
    getattr(example, name)()


@pytest.mark.usefixtures("registered")
def test_the_bug_that_the_page_plants_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("examples.policy.shortest_first.steps", lambda job: 0.0)
    with pytest.raises(AssertionError):
        example.test_the_job_with_the_fewest_steps_starts_first()


@pytest.mark.usefixtures("registered")
def test_a_replay_runs_under_the_policy() -> None:
    words = ("replay", "--workload", "one", "--jobs", "3", "--policy", "shortest-first+none")
    done = reshape(*words)
    assert done.exit_code == 0, done.output
    assert "shortest-first" in done.output
