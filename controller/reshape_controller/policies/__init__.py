"""The policies by name: the built-in ones, and those that other packages offer as entry points.

Does: names the presets (a policy with a mechanism), and builds a policy from its name and options.
A name that is not built in is looked up among the installed entry points of the group
``reshape.policies``. To write a policy, see docs/policies.md.
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
from reshape_controller.policies.adaptive_v1 import AdaptiveV1
from reshape_controller.policies.dragon import Dragon
from reshape_controller.policies.ffdl import Ffdl
from reshape_controller.policies.fifo import Fifo
from reshape_controller.policies.fixed import Default
from reshape_controller.policies.optimus import Optimus
from reshape_controller.policies.paper import Paper
from reshape_controller.policies.srtf import Srtf
from reshape_controller.policies.tiresias import Tiresias
from reshape_controller.policies.weighted import Weighted

ENTRY_POINT_GROUP = "reshape.policies"

BUILT_IN: dict[str, Callable[..., Policy]] = {
    "adaptive": Adaptive,
    "adaptive-v1": AdaptiveV1,
    "paper": Paper,
    "optimus": Optimus,
    "default": Default,
    "fifo": Fifo,
    "ffdl": Ffdl,
    "srtf": Srtf,
    "tiresias": Tiresias,
    "dragon": Dragon,
    "weighted": Weighted,
}
"""The classes of the built-in policies, by name."""


class UnknownPolicy(ReshapeError):
    """No policy has this name, or the policy does not take these options."""


@dataclass(frozen=True, slots=True)
class Preset:
    """A policy together with the mechanism that changes the GPUs of running jobs."""

    policy: str
    """The name of the policy."""
    mechanism: Mechanism
    text: str
    """One line for the list of presets."""


PRESETS: dict[str, Preset] = {
    "adaptive": Preset(
        "adaptive", Mechanism.SIDECAR, "this project's scheduler, inside running containers"
    ),
    "adaptive-v1": Preset("adaptive-v1", Mechanism.SIDECAR, "its first release, for comparisons"),
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
    """Return every name that ``make_policy`` takes: the built-in ones, then the installed ones."""
    installed = {entry.name for entry in metadata.entry_points(group=ENTRY_POINT_GROUP)}
    return (*BUILT_IN, *sorted(installed - set(BUILT_IN)))


def make_policy(text: str, **options: object) -> Policy:
    """Return the policy that ``text`` names: ``NAME``, or ``NAME:OPTION=VALUE,...``. Raises
    UnknownPolicy."""
    name, _, rest = text.partition(":")
    in_text: set[str] = set()
    for entry in filter(None, rest.split(",")):
        option, _, value = entry.partition("=")
        if not option or not value:
            raise UnknownPolicy(
                f"policy {text!r}: {entry!r} is not an option; write NAME:OPTION=VALUE"
            )
        if option in in_text:
            raise UnknownPolicy(f"policy {text!r}: {option} appears twice; keep one")
        in_text.add(option)
        options[option] = value
    make: Callable[..., Policy] | None = BUILT_IN.get(name)
    if make is None:
        for entry_point in metadata.entry_points(group=ENTRY_POINT_GROUP, name=name):
            make = entry_point.load()
    if make is None:
        raise UnknownPolicy(f"unknown policy {name!r}; use one of {', '.join(policy_names())}")
    constructor = signature(make)
    try:
        constructor.bind(**options)
    except TypeError as error:
        known = ", ".join(constructor.parameters) or "none"
        raise UnknownPolicy(f"policy {name!r}: {error}; its options: {known}") from error
    try:
        return make(**options)
    except (TypeError, ValueError) as error:
        known = ", ".join(constructor.parameters)
        raise UnknownPolicy(f"policy {text!r}: {error}; its options: {known}") from error
