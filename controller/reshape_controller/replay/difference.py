"""Comparison of two bundles: inputs and metrics that differ."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reshape_controller.replay.inputs import ReplayError
from reshape_sidecar import foreign

WRITES = "`reshape compare --out FOLDER`"


@dataclass(frozen=True, slots=True)
class MetricChange:
    """A metric of a policy in both bundles, as medians."""

    policy: str
    metric: str
    first: float
    second: float
    ratio: float | None
    """Second over first, less one."""
    clear: bool | None
    """True if the intervals do not overlap; None if a bundle has a single seed."""


@dataclass(frozen=True, slots=True)
class Difference:
    """All differences of two bundles.

    ``inputs``: different configuration values as (name, first, second). ``only_...``: policies, and
    metrics of common policies, that only one bundle has.
    """

    first: str
    second: str
    inputs: tuple[tuple[str, str, str], ...]
    metrics: tuple[MetricChange, ...]
    only_first: tuple[str, ...] = ()
    only_second: tuple[str, ...] = ()


def difference(first: Path, second: Path) -> Difference:
    """Compare two bundles. Raises ReplayError."""
    try:
        return _difference(first, second)
    except (AttributeError, KeyError, TypeError):
        raise ReplayError(f"{first} or {second} was not written by {WRITES}") from None


def _difference(first: Path, second: Path) -> Difference:
    configs = [_read(folder / "config.json") for folder in (first, second)]
    summaries = [_summary(folder / "summary.json") for folder in (first, second)]
    names = [name for name in configs[0] if configs[0].get(name) != configs[1].get(name)]
    inputs = tuple(
        (name, json.dumps(configs[0].get(name)), json.dumps(configs[1].get(name))) for name in names
    )
    spread = all(len(config.get("seeds", ())) > 1 for config in configs)
    metrics = []
    for policy, found in summaries[0].items():
        other = summaries[1].get(policy, {})
        for metric, one in found.items():
            two = other.get(metric)
            if two is None:
                continue
            ratio = two["median"] / one["median"] - 1.0 if one["median"] else None
            apart = two["low"] > one["high"] or two["high"] < one["low"]
            clear = apart if spread else None
            metrics.append(MetricChange(policy, metric, one["median"], two["median"], ratio, clear))
    alone = (_alone(*summaries), _alone(*reversed(summaries)))
    return Difference(str(first), str(second), inputs, tuple(metrics), *alone)


def _alone(one: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[str, ...]:
    policies = [policy for policy in one if policy not in other]
    metrics = [
        f"{policy}: {metric}"
        for policy in one
        if policy in other
        for metric in one[policy]
        if metric not in other[policy]
    ]
    return (*policies, *metrics)


def _summary(path: Path) -> Any:
    """Return the medians; a bundle of ``replay --out`` has one replay instead."""
    found = _read(path)
    if "summary" not in found:
        raise ReplayError(
            f"{path} holds one replay and no comparison; name folders that {WRITES} has written "
            "(--seeds 1 compares single replays)"
        )
    return found["summary"]


def _read(path: Path) -> Any:
    try:
        return json.loads(foreign.read_text(path, foreign.INPUT_BYTES_MAX))
    except OSError as error:
        workloads = [str(one.parent) for one in sorted(path.parent.glob("*/config.json"))]
        remedy = f"give folders that {WRITES} has written"
        if workloads:
            remedy = f"give one of their workloads: {', '.join(workloads)}"
        raise ReplayError(f"{path} cannot be read ({error.strerror}); {remedy}") from None
    except ValueError as error:
        raise ReplayError(f"{path} is not valid JSON ({error})") from None
