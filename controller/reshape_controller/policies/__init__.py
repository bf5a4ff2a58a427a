"""The policies, by name: ours, and those that other packages offer as entry points.

Does: names the presets (a policy with a mechanism), and builds a policy from its name and options.
Never: decides anything. To write a policy, see docs/policies.md. Installed entry points of the
group ``reshape.policies`` are looked up when a name is not one of ours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from inspect import signature

from reshape_controller.core.errors import ReshapeError
from reshape_controller.core.model import Mechanism
from reshape_controller.core.plan import Policy
from reshape_controller.policies.adaptive import Adaptive
from reshape_controller.policies.fixed import Default
from reshape_controller.policies.optimus import Optimus
from reshape_controller.policies.paper import Paper

ENTRY_POINT_GROUP = "reshape.policies"

BUILT_IN: dict[str, Callable[..., Policy]] = {
    "adaptive": Adaptive,
    "paper": Paper,
    "optimus": Optimus,
    "default": Default,
}


class UnknownPolicy(ReshapeError):
    """No policy has this name, or it does not take these options. The text names the remedy."""


@dataclass(frozen=True, slots=True)
class Preset:
    """A policy together with the way in which running jobs' GPUs change."""

    policy: str
    mechanism: Mechanism
    text: str


PRESETS: dict[str, Preset] = {
    "adaptive": Preset(
        "adaptive", Mechanism.SIDECAR, "this project's scheduler, inside running containers"
    ),
    "paper": Preset("paper", Mechanism.SIDECAR, "the paper's algorithms 1 and 2 as printed"),
    "termination": Preset(
        "optimus", Mechanism.TERMINATE, "the paper's comparison: only grows, by restarting jobs"
    ),
    "case-study-termination": Preset(
        "paper", Mechanism.TERMINATE, "the paper's case study: shrinks and grows by restarting jobs"
    ),
    "default": Preset("default", Mechanism.NONE, "no reshaping: a fixed GPU count for each job"),
}


def policy_names() -> tuple[str, ...]:
    """Every name that ``make_policy`` takes: ours, then the installed ones."""
    found = {entry.name for entry in metadata.entry_points(group=ENTRY_POINT_GROUP)}
    return (*BUILT_IN, *sorted(found - set(BUILT_IN)))


def make_policy(text: str, **options: object) -> Policy:
    """The policy called ``text``: a name, or ``NAME:OPTION=VALUE,...``. Raises UnknownPolicy."""
    name, _, rest = text.partition(":")
    said: set[str] = set()
    for entry in filter(None, rest.split(",")):
        option, _, value = entry.partition("=")
        if not option or not value:
            raise UnknownPolicy(
                f"policy {text!r}: {entry!r} is not an option; write NAME:OPTION=VALUE"
            )
        if option in said:
            raise UnknownPolicy(f"policy {text!r}: {option} appears twice; keep one")
        said.add(option)
        options[option] = value
    make: Callable[..., Policy] | None = BUILT_IN.get(name)
    if make is None:
        for found in metadata.entry_points(group=ENTRY_POINT_GROUP, name=name):
            make = found.load()
    if make is None:
        raise UnknownPolicy(f"unknown policy {name!r}; use one of {', '.join(policy_names())}")
    taken = signature(make)
    try:
        taken.bind(**options)
    except TypeError as error:
        known = ", ".join(taken.parameters) or "none"
        raise UnknownPolicy(f"policy {name!r}: {error}; its options: {known}") from error
    try:
        return make(**options)
    except (TypeError, ValueError) as error:
        known = ", ".join(taken.parameters)
        raise UnknownPolicy(f"policy {text!r}: {error}; its options: {known}") from error
