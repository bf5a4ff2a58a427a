"""The policies that docs/policies.md shows, and the command in which they have names.

Does: ``python -m tests.support.document_policies up --policy even-shares`` runs ``reshape`` with
them. Each starts queued jobs on idle GPUs first, as the document's first policy does, because some
of them only reshape. Never: changes a policy. State: none.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from reshape_controller.cli.main import main
from reshape_controller.core.plan import Plan, Policy, Snapshot
from reshape_controller.policies import BUILT_IN

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "policies.md").read_text()
FIRST = "FirstFit"
OTHERS = ("MakeRoom", "EvenShares", "Collects", "Packs", "StrictPriority", "TryAndKeep")


def examples() -> list[str]:
    """Return the texts of the document's policies."""
    return re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)


def policy_of(name: str) -> Policy:
    """Return the policy whose class has this name in the document."""
    names: dict[str, Any] = {}
    for text in examples():
        exec(compile(text, "docs/policies.md", "exec"), names)
    policy: Policy = names[name]()
    return policy


class StartsFirst:
    """Starts jobs as ``FirstFit`` does; if that starts none, another policy decides."""

    def __init__(self, policy: Policy) -> None:
        self.name = policy.name
        self.may_preempt = getattr(policy, "may_preempt", False)
        self._first, self._policy = policy_of(FIRST), policy

    def decide(self, snapshot: Snapshot) -> Plan:
        plan = self._first.decide(snapshot)
        return plan if plan.targets else self._policy.decide(snapshot)


def starts_first(name: str) -> Policy:
    """Return the document's policy of this class name, with starts on idle GPUs before it."""
    return StartsFirst(policy_of(name))


def _maker(name: str) -> Callable[[], Policy]:
    return lambda: starts_first(name)


if __name__ == "__main__":
    for each in OTHERS:
        BUILT_IN[policy_of(each).name] = _maker(each)
    main()
