"""Every class that is stored or sent has its tag, and no tag changes."""

from __future__ import annotations

import dataclasses
import importlib
import typing
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import reshape_controller.tags
import reshape_gpu.tags
import reshape_launcher.tags
import reshape_profiles.tags
import reshape_sidecar.tags
from reshape_controller.access.sessions import SessionFile
from reshape_controller.access.token_file import TokenFile
from reshape_controller.core import state
from reshape_controller.core.record import HistoryEntry, LogRecord
from reshape_controller.http.errors import ErrorBody
from reshape_controller.http.routes import OPERATIONS
from reshape_controller.replay.account import Moment
from reshape_controller.replay.inputs import Cluster, Costs
from reshape_controller.store.protocol import Decision, JobRow, ProfileRow
from reshape_gpu import values
from reshape_gpu.home import Address
from reshape_gpu.logins import Logins
from reshape_launcher.local.groups import GroupFile
from reshape_launcher.spec import LaunchSpec
from reshape_sidecar import codec
from reshape_sidecar.agent.memory import Memory
from reshape_sidecar.agent.spec import AttemptSpec
from reshape_sidecar.contract import Claim, HookReport, Manifest, Release, StandbyReport
from reshape_sidecar.gpu import Inventory
from reshape_sidecar.init.values import ExitFile, InitFile, InitStatus, Request, TrainingProcess
from reshape_sidecar.proof.figures import LeftStep
from reshape_sidecar.wire import Desired, Observed

FILE = Path(__file__).with_name("codec-tags.txt")
TABLES = {
    "reshape_controller": reshape_controller.tags.TAGS,
    "reshape_gpu": reshape_gpu.tags.TAGS,
    "reshape_launcher": reshape_launcher.tags.TAGS,
    "reshape_profiles": reshape_profiles.tags.TAGS,
    "reshape_sidecar": reshape_sidecar.tags.TAGS,
}
LOG = (LogRecord, state._Head, state._Row)
PROJECTIONS = (Decision, HistoryEntry, JobRow, ProfileRow)
WIRE = (
    AttemptSpec,
    Desired,
    HookReport,
    InitStatus,
    LaunchSpec,
    Observed,
    Release,
    Request,
    StandbyReport,
)
FILES = (
    *(Address, Claim, ExitFile, GroupFile, InitFile, Inventory, LeftStep, Manifest, Memory),
    TrainingProcess,
    SessionFile,
    TokenFile,
    Logins,
)
BUNDLES = (Cluster, Costs, Moment)
ANSWERS = (entry.answer for entry in OPERATIONS)
HTTP = (ErrorBody, values.DecisionView, *filter(dataclasses.is_dataclass, ANSWERS))
ROOTS = (*LOG, *PROJECTIONS, *WIRE, *FILES, *BUNDLES, *HTTP)


def classes_in(kind: Any) -> Iterator[type]:
    """The dataclasses that a type names, itself included."""
    if isinstance(kind, typing.NewType):
        yield from classes_in(kind.__supertype__)
    elif dataclasses.is_dataclass(kind):
        yield typing.cast(type, kind)
    for part in typing.get_args(kind):
        yield from classes_in(part)


def reachable() -> set[type]:
    """Every class that can be in a stored or sent value."""
    found: set[type] = set()
    waiting = [cls for root in ROOTS for cls in classes_in(root)]
    while waiting:
        cls = waiting.pop()
        if cls not in found:
            found.add(cls)
            hints = typing.get_type_hints(cls).values()
            waiting += [each for hint in hints for each in classes_in(hint)]
    return found


def class_at(package: str, place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(f"{package}.{module}"), name)


def test_the_tags_are_the_committed_ones() -> None:
    """A tag that is gone or renamed makes old logs and stores unreadable. A new one is added."""
    tags = sorted(f"{package} {tag}" for package, table in TABLES.items() for tag in table)
    assert tags == FILE.read_text().splitlines()


def test_every_class_that_is_stored_or_sent_has_one_tag_and_every_tag_its_class() -> None:
    tagged = [class_at(package, place) for package, t in TABLES.items() for place in t.values()]
    assert [cls for cls, count in Counter(tagged).items() if count > 1] == []
    names = {f"{cls.__module__}:{cls.__qualname__}" for cls in tagged}
    wanted = {f"{cls.__module__}:{cls.__qualname__}" for cls in reachable()}
    assert names == wanted


@pytest.mark.parametrize("root", ROOTS, ids=str)
def test_what_is_stored_or_sent_has_a_decoder(root: Any) -> None:
    """Making it fails for two classes of one tag in a union."""
    assert callable(codec._decoder(root))


@dataclasses.dataclass(frozen=True)
class Untagged:
    """A value that no table knows."""

    number: int = 0


def test_a_class_without_a_tag_is_neither_written_nor_read() -> None:
    match = r"test_tags.*:Untagged has no tag.*remedy: add it to TAGS in .*tags\.py"
    with pytest.raises(TypeError, match=match):
        codec.dumps(Untagged())
    with pytest.raises(TypeError, match=match):
        codec.loads(Untagged, "{}")


@dataclasses.dataclass(frozen=True)
class Twin:
    """A value with the tag of another."""


def test_two_classes_of_one_tag_make_no_union(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(codec._tags, f"{Twin.__module__}:{Twin.__qualname__}", "Desired")
    with pytest.raises(TypeError, match="have one tag"):
        codec.from_value(Twin | Desired, {"type": "Desired"})
