"""The daemon has room for the connections of many SideCars."""

from __future__ import annotations

import resource

import pytest

from reshape_controller.cli.serve import daemon

INFINITY = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("soft", "hard", "after"),
    [
        (1024, 4096, 4096),
        (1024, 1 << 20, daemon.OPEN_FILES),
        (1024, INFINITY, daemon.OPEN_FILES),
        (1 << 20, 1 << 20, 1 << 20),
        (INFINITY, INFINITY, INFINITY),
    ],
)
def test_the_limit_of_open_files_is_raised_and_never_lowered(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, after: int
) -> None:
    limits = [(soft, hard)]
    monkeypatch.setattr(resource, "getrlimit", lambda kind: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda kind, both: limits.append(both))
    daemon.allow_open_files()
    assert limits[-1] == (after, hard)
