"""Runs the failed tests of a part once more: a missed deadline on a busy machine is no defect.

Does: counts the tests that pytest noted as failed, and says how to run those alone. Never: hides
one: each test that failed at first is named in the summary. State: pytest's cache in the checkout.
docs/decisions/0206 says why.
"""

from __future__ import annotations

import json
from pathlib import Path

NOTED = Path(".pytest_cache/v/cache/lastfailed")
TESTS_MAX = 12
"""More failed tests than this are a defect, and no run is worth its time."""
ONLY_FAILED = {"PYTEST_ADDOPTS": "--last-failed --last-failed-no-failures=none"}
"""Variables of a part that runs again."""


def forget() -> None:
    """Remove what pytest noted in earlier parts and runs."""
    NOTED.unlink(missing_ok=True)


def failed() -> tuple[str, ...]:
    """Return the tests that failed in the part before; none if they cannot be known."""
    try:
        return tuple(sorted(json.loads(NOTED.read_text())))
    except (OSError, ValueError):
        return ()


def are_worth_it(tests: tuple[str, ...]) -> bool:
    """Whether these tests run once more."""
    return 0 < len(tests) <= TESTS_MAX
