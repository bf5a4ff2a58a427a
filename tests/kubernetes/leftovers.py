"""What a test run left in a cluster: things of every kind that the API server knows.

Does: looks by discovery, so also at kinds that no test means to make. Never: removes. State: none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.kubernetes.api import Api, ApiError
from tests.kubernetes.running import eventually

PATIENCE_S = 300.0
"""What a namespace's end and the removal of its volumes may take."""
PASSING = ("events",)
"""Kinds that the API server itself forgets."""


def nothing_left(api: Api, beginning: str) -> None:
    """Wait until nothing is there whose name or namespace has ``beginning`` in it, nor a volume of
    such a namespace. Raises ClusterError with what stays."""
    eventually(
        f"nothing of {beginning} is left in the cluster",
        lambda: _only_nothing(list(left(api, beginning))),
        PATIENCE_S,
    )


def left(api: Api, beginning: str) -> Iterator[str]:
    """Everything of that name now, each by its kind."""
    for path in _collections(api):
        try:
            things = api.get(path)["items"]
        except ApiError:  # of an extension that does not answer, or that nobody may list
            continue
        for thing in things:
            who = thing["metadata"]
            of = thing.get("spec", {}).get("claimRef") or {}
            names = (who["name"], who.get("namespace", ""), of.get("namespace", ""))
            if any(beginning in name for name in names):
                yield f"{path.rpartition('/')[2]} {who.get('namespace', '')}/{who['name']}"


def _collections(api: Api) -> Iterator[str]:
    groups = (
        f"/apis/{group['preferredVersion']['groupVersion']}" for group in api.get("/apis")["groups"]
    )
    for group in ("/api/v1", *groups):
        try:
            kinds: list[dict[str, Any]] = api.get(group)["resources"]
        except ApiError:
            continue
        for kind in kinds:
            if "list" in kind["verbs"] and kind["name"] not in PASSING:
                yield f"{group}/{kind['name']}"


def _only_nothing(found: list[str]) -> bool:
    if found:
        raise LookupError(", ".join(found))
    return True
