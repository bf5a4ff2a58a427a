"""What training changes of a script's own state: looked at, saved, restored, or named.

Does: compares the values that a script keeps with what they were before the first step. What has an
exact form goes into the checkpoint and comes back; what has none is named with its path.

A start makes the same objects again. So a value is restored where the next start has its owner, and
only if training has changed it: paths, devices and numbers of ranks stay those of the start.
"""

from __future__ import annotations

import contextlib
import hashlib
import types
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from reshape_sidecar.hook import process_state, script_code
from reshape_sidecar.hook.exactness import EXACT, STEPS_ONLY, UNKNOWN, Verdict
from reshape_sidecar.verdict import beginning, forms, influence, leaves, order, origin
from reshape_sidecar.verdict.beginning import Beginning
from reshape_sidecar.verdict.channels import SENT, Channels
from reshape_sidecar.verdict.forms import NoData
from reshape_sidecar.verdict.leaves import Kind, Leaf
from reshape_sidecar.verdict.marks import Marker
from reshape_sidecar.verdict.reach import ALIAS, Reach
from reshape_sidecar.wire import Trajectory

Reason = tuple[str, Trajectory]
ALONE = "{} is trained on each GPU alone, outside of DistributedDataParallel"
DIFFERS = "{} differs between the GPUs: another number of them begins with rank 0's"
DRAWS = "{} draws random numbers: others at another GPU count"
AHEAD = "{} changes within an epoch, and the loader has read a batch ahead by then"
OTHERWISE = (
    "{} is another value at this start than at the first: it follows from the number of GPUs, or"
    " from what training had changed"
)
INSIDE = "{} changes with each micro-batch, of which a step has more on fewer GPUs"
SHOWN_MAX = 5
DIGESTS_MAX = 1000
"""Most values that the ranks compare."""
UNREADABLE = "no look can read it"
"""The mark of a value that refuses to be looked at."""
LOOKS = 3
"""Steps at the begin of a process after which it looks."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a value is, without the value: whether the next start can fill it in place."""

    kind: Kind
    type: type
    about: Any

    @classmethod
    def of(cls, leaf: Leaf) -> Shape:
        """Return the shape of a leaf."""
        return cls(leaf.kind, type(leaf.value), _about(leaf.value))

    def takes(self, value: Any) -> bool:
        """Return whether ``forms.put`` needs no owner to give such a value this one."""
        if forms.is_generator(value) or type(value) in (list, dict, set, *forms.MAPPINGS):
            return self.type is type(value)
        in_place = forms.is_strided(value) if forms.is_tensor(value) else forms.is_array(value)
        return in_place and self.type is type(value) and self.about == _about(value)


def _about(value: Any) -> Any:
    if forms.is_tensor(value) or forms.is_array(value):
        return forms.shape_of(value), str(value.dtype)
    return None


def _as_it_is(entry: Any) -> Any:
    return entry


class Watch:
    """The state that one training of a script changes beside its model."""

    def __init__(
        self, enter: Callable[[Reach], None], device: Any = None, *, keeps_ranks: bool = True
    ) -> None:
        """``enter`` gives a walk its roots. ``device``: of tensors that are made again.
        ``keeps_ranks``: whether a checkpoint holds what differs between the ranks for each."""
        self._enter, self._device, self._keeps_ranks = enter, device, keeps_ranks
        self.batch: int | None = None
        """Samples of a step on this GPU, if they are known."""
        self._first: dict[str, Shape] = {}
        """What was there before the first step, by path. No look keeps a value of the script."""
        self._shapes: frozenset[tuple[int, ...]] = frozenset()
        """Those of the model's weights."""
        self._owners: frozenset[str] = frozenset()
        """Paths of the objects that were there."""
        self._before: dict[bool, dict[str, Any]] = {}
        """Marks before the first step, by whether the look was deep; empty: not begun."""
        self._changed: dict[str, None] = {}
        """Paths of what has changed, in this process or in one before."""
        self._drawing: dict[str, None] = {}
        """Paths of generators that have drawn."""
        self._beside: set[str] = set()
        """Paths of what an optimizer trains beside the model."""
        self._lost: dict[str, None] = {}
        """Paths of what no start can be given."""
        self._differing: dict[str, None] = {}
        self._compared: dict[str, None] = {}
        """Paths of buffers that have changed: the checkpoint of the model holds them."""
        self._inside: Counter[str] = Counter()
        """How often a value has changed within a part of a step."""
        self._of_epoch: dict[str, Any] = {}
        """Marks of the data at the look before, if that was in the same epoch."""
        self._ahead: dict[str, None] = {}
        """Paths of data that training changes from step to step."""
        self._beginning = Beginning()
        self._channels = Channels()
        self._otherwise: dict[str, None] = {}
        """Paths of what no training changes, and begins otherwise than at the first start."""
        self._structure: set[str] = set()
        """Paths of what tells how a model or object is made, which matters by itself."""
        self._variables: set[str] = set()
        """Paths that end with a variable, of a module or an enclosing function."""
        self._scopes: dict[str, int] = {}
        """Of paths to a variable: where its function begins, 0 for a module."""
        self._metrics: set[str] = set()
        """Paths of what metrics count, whose names are not the script's."""
        self._said: set[tuple[str, ...]] = set()

    def arrive(self) -> None:
        """Note what is there before the callbacks of training's begin: what they make then is
        that of the first start, also at the next one."""
        self._beginning.arrive(_marks(self._walk(), deep=False))

    def begin(self) -> None:
        """Note what everything is, before anything is restored and before the first step."""
        if not self._before:
            now = self._walk()
            self._first = {path: Shape.of(leaf) for path, leaf in now.leaves.items()}
            self._owners, self._shapes = frozenset(now.owners), frozenset(now.shapes)
            self._before = {deep: _marks(now, deep=deep) for deep in (False, True)}
            self._beginning.begin(now, self._before[False])

    @property
    def has_begun(self) -> bool:
        """Whether ``begin`` was called."""
        return bool(self._before)

    def look(self, *, deep: bool = False, new_epoch: bool = False) -> None:
        """Note what has changed since the begin.

        deep: compare large arrays whole. new_epoch: an epoch begins.
        """
        if not self._before:
            return
        now, before = self._walk(), self._before[deep]
        marks = _marks(now, deep=deep)
        for path, mark in marks.items():
            if path in now.saved:
                self._note_saved(path, mark, before)
                continue
            if mark is UNREADABLE:
                self._lost[f"{path} ({UNREADABLE})"] = None
                continue
            is_new = path not in before and now.leaves[path].kind is not Kind.CODE
            is_other = is_new or before.get(path, mark) != mark
            if is_other or path in now.always or path in self._beginning.made:
                self._changed[path] = None
        for whole in now.partial:
            if any(path.startswith(f"{whole}[") for path in self._changed):
                self._lost[whole] = None  # nobody has looked at the rest of it
        for cache, data in now.caches.items():
            if any(path.startswith(f"{data}.") for path in self._changed):
                self._lost[cache] = None  # it holds samples as they were made before the change
        self._note_data(now, new_epoch=new_epoch)
        self._channels.look(now.channels, self._changed)
        for path in [path for path in self._changed if path not in now.leaves]:
            del self._changed[path]
        for path in self._changed:
            leaf = now.leaves[path]
            if not self._comes_back(leaf):
                self._lost[path] = None
                if leaf.kind is Kind.CODE and ALIAS not in str(leaf.value):
                    self._structure.add(path)
            elif forms.is_generator(leaf.value):
                self._drawing[path] = None

    def _note_saved(self, path: str, mark: Any, before: dict[str, Any]) -> None:
        """Note a buffer of the model that has changed: the ranks compare it."""
        if before.get(path, mark) != mark:
            self._compared[path] = None

    def _note_data(self, now: Reach, *, new_epoch: bool) -> None:
        """Note data that training changes between two steps: their loader has read ahead."""
        before = {} if new_epoch else self._of_epoch
        self._of_epoch = _marks(now, deep=False, only=now.of_data)
        for path, mark in self._of_epoch.items():
            if before.get(path, mark) != mark:
                self._ahead[path] = None

    def marks(self) -> dict[str, Any]:
        """Return the marks of everything now, for ``changed_inside``."""
        return _marks(self._walk(), deep=False) if self._before else {}

    def changed_inside(self, before: dict[str, Any]) -> None:
        """Note what has changed since ``before``, within a part of a step."""
        for path, mark in self.marks().items():
            if path not in self._beside and (path not in before or before[path] != mark):
                self._inside[path] += 1

    def digests(self) -> dict[str, str]:
        """Return a digest of each changed value, which is the same on all ranks if the value is."""
        now = self._walk()
        marker, found = Marker(deep=False, names=now.names), {}
        for path in [*self._changed, *self._compared][:DIGESTS_MAX]:
            leaf = now.leaves.get(path)
            if leaf is not None and leaf.kind in (Kind.DATA, Kind.STATE):
                text = repr(leaves.mark_of(leaf, marker))
                found[path] = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
        return found

    def compare(self, ranks: Iterable[dict[str, str]]) -> None:
        """Note the values that differ between the ranks. ``ranks``: the digests of each."""
        seen: dict[str, str] = {}
        for digests in ranks:
            for path, digest in digests.items():
                if seen.setdefault(path, digest) != digest:
                    self._differing[path] = None

    def judge(self, verdict: Verdict, remedy: str) -> Verdict:
        """Return ``verdict`` with what is new."""
        for reason, kind in self.reasons(remedy):
            verdict = verdict.noting(reason) if kind is EXACT else verdict.worse(reason, kind)
        return verdict

    def reasons(self, remedy: str) -> Iterator[Reason]:
        """Yield what is new against ``exact``, or as a note beside it, where no training reads it.

        remedy: what the user writes instead.
        """
        again = f"{{}} changes and begins again at a restart: {remedy}"
        beside = [path for path in self._differing if path in self._beside]
        differing = [path for path in self._differing if path not in self._beside]
        inside = [path for path, count in self._inside.items() if count > 1]
        lost = [path for path in self._lost if not leaves.is_below(path, self._lost)]
        yield from self._new(again, UNKNOWN, lost, "{} begins again at a restart")
        yield from self._new(SENT, UNKNOWN, self._channels.feeding())
        yield from self._new(ALONE, UNKNOWN, beside)
        kind = STEPS_ONLY if self._keeps_ranks else UNKNOWN
        yield from self._new(DIFFERS, kind, differing, DIFFERS)
        yield from self._new(DRAWS, STEPS_ONLY, self._drawing)
        yield from self._new(AHEAD, UNKNOWN, self._ahead, AHEAD)
        yield from self._new(INSIDE, STEPS_ONLY, inside, INSIDE)
        files = origin.files_of_script()
        other = [one for one in self._otherwise if not influence.tells_time(self._name(one), files)]
        other += [one for one in self._beginning.measures if self._follows_ranks(one, files)]
        yield from self._new(OTHERWISE, UNKNOWN, dict.fromkeys(other), OTHERWISE)

    def _follows_ranks(self, path: str, files: frozenset[str]) -> bool:
        """Return whether a measure that training does not change follows from the GPUs."""
        return path not in self._changed and influence.follows_ranks(self._name(path), files)

    def _new(
        self, text: str, kind: Trajectory, paths: Iterable[str], note: str | None = None
    ) -> Iterator[Reason]:
        """Yield ``text`` on the paths that are new, and ``note`` on those that nothing reads."""
        new = sorted(path for path in paths if (path, text) not in self._said)
        self._said.update((path, text) for path in new)
        files = origin.files_of_script() if new and note is not None else frozenset()
        if note is not None:
            new = [path for path in new if not order.is_set_first(self._name(path), files)]
        idle = [
            path
            for path in new
            if note is not None
            and path not in self._structure
            and not influence.steers(self._name(path), files)
        ]
        steering = [path for path in new if path not in idle]
        if steering:
            yield text.format(_listing(steering)), kind
        saving = [path for path in idle if influence.decides_saves(self._name(path), files)]
        printed = [path for path in idle if path not in saving]
        if saving and note is not None:
            yield f"{note.format(_listing(saving))}, and decides what the script saves", EXACT
        if printed and note is not None:
            yield f"{note.format(_listing(printed))}, and only output reads it", EXACT

    def _name(self, path: str) -> str:
        """Return the name under which the script's text has a value."""
        names, line = leaves.names_of(path) or [""], self._scopes.get(path)
        if path in self._metrics:
            files = origin.files_of_script()
            return next((one for one in reversed(names) if influence.is_set(one, files)), "")
        if path in self._variables or line is not None:
            return names[-1].removeprefix(".") + ("" if line is None else f"@{line}")
        return names[-1]

    # -- the checkpoint ---------------------------------------------------------------------------

    def capture(self, form: Callable[[Any], Any] = _as_it_is) -> list[Any]:
        """Return all that has changed and has an exact form, as plain data; look deep before.

        ``form`` makes of an entry what a checkpoint of another kind holds; TypeError refuses it.
        """
        found = self._entries((path for path in self._changed if path not in self._lost), form)
        begin = self._beginning.entry()
        return found if begin is None else [*found, form(begin)]

    def capture_own(self) -> list[dict[str, Any]]:
        """Return, of this rank, what differs between the ranks."""
        return self._entries(path for path in self._differing if path in self._changed)

    def _entries(self, paths: Iterable[str], form: Callable[[Any], Any] = _as_it_is) -> list[Any]:
        now = self._walk()
        found = []
        for path in [path for path in paths if path in now.leaves]:
            try:
                found.append(form(self._entry(now.leaves[path], now.names)))
            except Exception:  # NoData, what the form cannot hold, or a refusal of the script
                self._lost[path] = None
        return found

    def _entry(self, leaf: Leaf, names: forms.Names) -> dict[str, Any]:
        """Return what a checkpoint holds of a value. Raises NoData."""
        value = leaf.value
        if leaf.kind is Kind.STATE:
            state = value.state_dict()
            value = dict(state) if isinstance(state, dict) else state
        is_of_batch = forms.has_length(value, self.batch, but=self._shapes)
        is_of_batch &= not forms.is_tensor(leaf.owner)
        of_gpu = leaf.path in self._differing or is_of_batch
        return {
            "path": leaf.path,
            "owner": leaf.owner_path,
            "key": leaf.key if type(leaf.key) in forms.PLAIN else None,
            "kind": leaf.kind.name,
            "value": forms.copied(value, names),
            "process": _held_of_process(leaf.owner),
            "of_gpu": of_gpu,
            "same_as": leaf.same_as,
        }

    def restore(self, saved: list[dict[str, Any]], *, same_gpus: bool = True) -> None:
        """Give everything the values that ``capture`` returned.

        same_gpus: whether as many GPUs train as when it was saved. On another number a tensor stays
        out that has another shape there, or that is of the samples of one GPU.
        """
        self.begin()
        now = self._walk()
        kept_apart = set[str]() if same_gpus else self._kept_apart(now, saved)
        for entry in saved:
            if entry["kind"] == beginning.ENTRY:
                restored = [one["path"] for one in saved]
                self._otherwise |= dict.fromkeys(self._beginning.resume(entry["value"], restored))
                continue
            self._changed[entry["path"]] = None
            if _part(entry["owner"]) in kept_apart:
                self._lost[entry["path"]] = None
                continue
            try:
                self._put(now, entry, same_gpus=same_gpus)
            except NoData:
                self._lost[entry["path"]] = None

    def _kept_apart(self, now: Reach, saved: list[dict[str, Any]]) -> set[str]:
        """Return the parts of models of which a tensor stays that of the start: what else such a
        part keeps, the length of a table say, goes with it."""
        return {
            part
            for entry in saved
            if forms.is_module(now.owners.get(part := _part(entry["owner"])))
            and _stays(_own_data(now.leaves.get(entry["path"])), entry)
        }

    def _put(self, now: Reach, entry: dict[str, Any], *, same_gpus: bool) -> None:
        leaf, owner = now.leaves.get(entry["path"]), now.owners.get(entry["owner"])
        value = forms.with_objects(entry["value"], now.objects)
        if entry["kind"] == Kind.STATE.name:
            if leaf is None or leaf.kind is not Kind.STATE:
                raise NoData(entry["path"])
            _load(leaf.value, value)
            return
        if _is_flag(entry, leaf, owner) and entry["process"] != _held_of_process(owner):
            return  # about threads, files or profilers of the process before
        if leaf is not None and leaf.same_as and leaf.same_as == entry.get("same_as"):
            return  # it comes back under its first name
        there = _own_data(leaf)
        if not same_gpus and _stays(there, entry):
            raise NoData(entry["path"])
        in_place, bound = forms.put(there, value, self._device)
        if in_place:
            return
        if owner is None or entry["key"] is None:
            raise NoData(entry["path"])
        leaves.rebind(owner, entry["key"], bound)

    # -- what comes back --------------------------------------------------------------------------

    def _comes_back(self, leaf: Leaf) -> bool:
        """Return whether the next start can be given the value."""
        if leaf.kind in (Kind.OPAQUE, Kind.CODE):
            return False
        first = self._first.get(leaf.path)
        if leaf.kind is Kind.STATE:
            return first is not None and first.kind is Kind.STATE
        if first is not None and not leaf.same_as and first.takes(leaf.value):
            return True
        if leaf.owner is None or isinstance(leaf.owner, (tuple, list)):
            return False
        return leaf.owner_path in self._owners and type(leaf.key) in forms.PLAIN

    def _walk(self) -> Reach:
        """Return the state now."""
        now = Reach()
        try:
            self._enter(now)
        except Exception as error:  # an object of the script that refuses to be looked at
            self._lost[f"what a look could not read ({type(error).__name__}: {error})"] = None
        self._beside |= now.always
        self._metrics |= now.of_metrics
        self._scopes |= now.scopes
        for path, leaf in now.leaves.items():
            is_of_module = leaf.owner_path.startswith("module ")
            if isinstance(leaf.owner, types.CellType) or is_of_module:
                self._variables.add(path)
            if is_of_module:
                self._scopes[path] = 0
        return now


def _marks(walked: Reach, *, deep: bool, only: Iterable[str] | None = None) -> dict[str, Any]:
    marker = Marker(deep=deep, names=walked.names)
    found = {}
    for path in walked.leaves if only is None else only:
        try:
            found[path] = leaves.mark_of(walked.leaves[path], marker)
        except Exception:  # an object of the script that refuses to be read
            found[path] = UNREADABLE
    return found


def _load(there: Any, saved: Any) -> None:
    """Raises NoData."""
    try:
        forms.load(there, saved)
    except (RuntimeError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise NoData(str(error)) from error


def _part(owner: str) -> str:
    """Return the path of the part of a model that holds a value or buffer."""
    return owner.removesuffix(" (buffers)")


def _own_data(leaf: Leaf | None) -> Any:
    """Return the data that a leaf alone holds; None: there are none."""
    is_own = leaf is not None and leaf.kind is Kind.DATA and not leaf.same_as
    return leaf.value if leaf is not None and is_own else None


def _stays(there: Any, entry: dict[str, Any]) -> bool:
    """Return whether another number of GPUs keeps what is ``there`` instead of the saved value."""
    of_gpu = there is None and entry.get("of_gpu", False) and _has_tensors(entry["value"])
    return of_gpu or forms.has_other_shape(there, entry["value"])


def _has_tensors(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_has_tensors, value))
    return forms.is_tensor(value) or forms.is_array(value)


def _is_flag(entry: dict[str, Any], leaf: Leaf | None, owner: Any) -> bool:
    if isinstance(entry["value"], bool) or leaf is None:
        return True
    return entry["key"] in script_code.switches(script_code.methods(type(owner)))


def _held_of_process(owner: Any) -> dict[str, str]:
    """Return what the threads, files and locks of an object do at the moment, by attribute."""
    if not origin.is_open(owner):
        return {}
    found = {}
    for name, value in script_code.attributes(owner).items():
        with contextlib.suppress(Exception):  # a strange object
            if (doing := process_state.condition(value)) is not None:
                found[name] = doing
    return found


def _listing(paths: list[str]) -> str:
    shown = [path.replace(";", ",") for path in paths[:SHOWN_MAX]]
    more = len(paths) - len(shown)
    return ", ".join([*shown, f"{more} more"] if more > 0 else shown)
