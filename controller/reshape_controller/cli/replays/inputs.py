"""Conversion of the options of ``replay``, ``compare`` and ``workload`` to the inputs of a replay.

Does: read the named files, and turn every mistake into an error with a remedy.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from reshape_controller.cli.exits import CliError, Exit, failed
from reshape_controller.cli.output import note
from reshape_controller.core.model import Mechanism
from reshape_controller.core.recorded_speeds import DEFAULT_SECONDS_PER_STEP
from reshape_controller.policies import PRESETS, UnknownPolicy, make_policy, policy_names
from reshape_controller.records.limits import GPUS_MAX
from reshape_controller.replay import traces
from reshape_controller.replay.elastic import assumed_text
from reshape_controller.replay.generate import RECIPES, SIZES
from reshape_controller.replay.ground_truth import SPREAD
from reshape_controller.replay.inputs import (
    SECONDS_MAX,
    Costs,
    PolicyError,
    ReplayError,
    Workload,
    cluster_of,
)
from reshape_controller.replay.setup import Contender, Setup, curves_of
from reshape_controller.replay.shell import Scene
from reshape_controller.replay.trace_rows import JSON_SUFFIXES
from reshape_profiles.files import load
from reshape_profiles.loader import Bundle, ProfileError, bundled
from reshape_sidecar import foreign
from reshape_sidecar.device_truth import DeviceTruth, DeviceTruthError
from reshape_sidecar.device_truth import load as load_truth

WIDEST_CLUSTER = "8xV100+8xP100"
"""Cluster of traces without one."""
SEEDS_MAX = 10_000
LOAD_MAX = 100.0
"""Jobs arrive at most so many times as fast as in their workload, and at least 1 / so many."""


def contender(label: str, option: str = "--policy") -> Contender:
    """Return the contender of a preset (with options) or POLICY+MECHANISM. Raises CliError."""
    name, plus, way = label.partition("+")
    preset_name, _, options = name.partition(":")
    preset = PRESETS.get(preset_name)
    try:
        if preset is not None and not plus:
            policy = make_policy(f"{preset.policy}:{options}" if options else preset.policy)
            return Contender(label, policy, preset.mechanism)
        if plus:
            return Contender(label, make_policy(name), Mechanism(way))
    except UnknownPolicy as error:
        raise failed(Exit.USAGE, str(error), f"{option} {label}") from None
    except ValueError:
        ways = ", ".join(mechanism.value for mechanism in Mechanism)
        what = f"unknown mechanism {way!r}; use one of: {ways}"
        raise failed(Exit.USAGE, what, f"{option} {label}") from None
    what = f"unknown preset {label!r}; use one of: {', '.join(PRESETS)}"
    remedy = f"or give a policy with a mechanism, such as {policy_names()[0]}+terminate"
    raise failed(Exit.USAGE, what, option, remedy)


def labels_of(text: str) -> tuple[str, ...]:
    """Split labels at commas, which a policy's settings contain too."""
    labels: list[str] = []
    for part in text.split(","):
        if labels and ":" in labels[-1] and "=" in part and ":" not in part:
            labels[-1] += f",{part.strip()}"  # a further setting of the same policy
        else:
            labels.append(part.strip())
    return tuple(labels)


def seeds_of(text: str) -> tuple[int, ...]:
    """Return seeds: ``30`` means 0 to 29; ``5-9`` and ``1,4,7`` are literal. Raises CliError."""
    try:
        if text.isascii() and text.isdigit():
            found = tuple(range(min(int(text), SEEDS_MAX + 1)))
        elif "-" in text:
            first, last = map(int, text.split("-"))
            found = tuple(range(first, min(last, first + SEEDS_MAX) + 1))
        else:
            found = tuple(int(part) for part in text.split(","))
    except ValueError:
        found = ()
    if not found or len(found) > SEEDS_MAX or min(found) < 0 or len(set(found)) < len(found):
        what = f"{text!r} is not a list of at most {SEEDS_MAX} different seeds"
        raise failed(Exit.USAGE, what, "--seeds", "for example 30, or 5-9, or 1,4,7")
    return found


def loads_of(text: str) -> tuple[float, ...]:
    """Return loads, such as ``0.8,1.0,1.3``: how many times as fast jobs arrive. Raises
    CliError."""
    try:
        found = tuple(float(part) for part in text.split(","))
    except ValueError:
        found = ()
    most = LOAD_MAX
    if not found or len(set(found)) < len(found) or not all(1 / most <= x <= most for x in found):
        what = f"{text!r} is not a list of different loads from {1 / most:g} to {most:g}"
        raise failed(Exit.USAGE, what, "--load", "for example 0.5,0.8,1.0,1.3")
    return found


def sizes_of(text: str) -> tuple[int, ...]:
    """Return optional numbers of GPUs, such as ``1,2,4``. Raises CliError."""
    try:
        found = tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError:
        found = ()
    if not found or found[0] < 1 or found[-1] > GPUS_MAX:
        what = f"{text!r} is not a list of GPU counts from 1 to {GPUS_MAX}"
        raise failed(Exit.USAGE, what, "--sizes", "for example 1,2,4")
    return found


def profiles_of(name: str | None) -> Bundle:
    """Return the bundled profiles, replaced by those of a file. Raises CliError."""
    bundle = bundled()
    if name is None:
        return bundle
    try:
        own = load(Path(name)).bundle
    except OSError as error:
        raise unreadable(name, error, "--profiles") from None
    except ProfileError as error:
        raise failed(Exit.USAGE, str(error), "--profiles") from None
    types = {profile.job_type: profile for profile in (*bundle.profiles, *own.profiles)}
    return Bundle(
        tuple(types.values()),
        tuple({**dict(bundle.sets), **dict(own.sets)}.items()),
        tuple({**dict(bundle.costs), **dict(own.costs)}.items()),
    )


def costs_of(bundle: Bundle, name: str) -> Costs:
    """Return a named set of costs, or that of a file. Raises CliError."""
    overhead = dict(bundle.costs).get(name)
    if overhead is not None:
        return Costs(name, overhead)
    path = Path(name)
    try:
        found = load(path).bundle.costs if path.is_file() else ()
    except OSError as error:
        raise unreadable(name, error, "--costs") from None
    except ProfileError as error:
        raise failed(Exit.USAGE, str(error), "--costs") from None
    if len(found) == 1:
        return Costs(f"{found[0][0]} of {path.name}", found[0][1])
    known = ", ".join(known for known, _ in bundle.costs)
    what = (
        f"{name} has {len(found)} sets of costs"
        if path.is_file()
        else f"unknown set of costs {name!r}"
    )
    remedy = f"use one of {known}, or a file of reshape profile costs"
    raise failed(Exit.USAGE, what, "--costs", remedy)


def trace_of(name: str, bundle: Bundle) -> Workload:
    """Return the workload of a trace file. Raises CliError."""
    path = Path(name)
    known = [profile.job_type for profile in bundle.profiles]
    try:
        text = foreign.read_text(path, foreign.INPUT_BYTES_MAX, "utf-8-sig")
    except OSError as error:
        more = "replay also accepts case-study, compare also all"
        remedy = f"give a trace file, or one of {', '.join(RECIPES)}; {more}"
        raise unreadable(name, error, f"--workload {name}", remedy) from None
    except UnicodeDecodeError:
        what = f"{name} is not UTF-8 text"
        raise failed(Exit.USAGE, what, "--workload", "save it as UTF-8") from None
    try:
        return traces.parse(text, path.name, known, jsonl=path.suffix in JSON_SUFFIXES)
    except ReplayError as error:
        raise failed(Exit.USAGE, str(error), name, "docs/replay.md describes the columns") from None


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """The options that determine the inputs of a replay."""

    workload: str
    cluster: str | None = None
    costs: str = "paper"
    profiles: str | None = None
    sizes: str | None = None
    jobs: int | None = None
    last_s: float | None = None
    spread: float | None = None
    device_truth: str | None = None
    load: float = 1.0

    @property
    def files(self) -> tuple[str | None, ...]:
        """Return the options that may name a file to read."""
        return (self.workload, self.costs, self.profiles, self.device_truth)


def setup_of(asked: ReplayRequest) -> Setup:
    """Return the setup of the options. Raises CliError."""
    bundle = profiles_of(asked.profiles)
    recipe = RECIPES.get(asked.workload)
    trace = trace_of(asked.workload, bundle) if recipe is None else None
    drawn = (("--jobs", asked.jobs), ("--last", asked.last_s), ("--sizes", asked.sizes))
    for name, value in drawn:
        if trace is not None and value is not None:
            what = f"{name} applies to generated workloads only"
            raise failed(Exit.USAGE, what, f"--workload {asked.workload}")
    if asked.device_truth is not None and asked.spread is not None:
        what = "--spread cannot be used with --device-truth, which sets the speed of each job"
        raise failed(Exit.USAGE, what, f"--spread {asked.spread:g}", "leave out one of the two")
    if asked.last_s is not None and not 0.0 <= asked.last_s <= SECONDS_MAX:
        what = f"--last is {asked.last_s:g} s, which is out of range"
        remedy = f"give seconds from 0 to {SECONDS_MAX:g}"
        raise failed(Exit.USAGE, what, f"--last {asked.last_s:g}", remedy)
    own = recipe.cluster if recipe is not None else WIDEST_CLUSTER
    try:
        setup = Setup(
            bundle,
            cluster_of(own if asked.cluster is None else asked.cluster),
            costs_of(bundle, asked.costs),
            recipe,
            trace,
            asked.jobs,
            last_s=asked.last_s,
            load=asked.load,
            sizes=sizes_of(asked.sizes) if asked.sizes is not None else SIZES,
            spread=SPREAD if asked.spread is None else asked.spread,
            device=device_of(asked.device_truth),
            curves=curves_of(bundle.profiles),
        )
        scene = setup.scene(0)
    except ReplayError as error:
        raise replay_failed(error) from None
    if setup.device is None:
        _tell_guessed_speeds(scene)
    assumed = assumed_text(scene.workload.jobs)
    if assumed:
        note(f"{assumed}: reshape workload convert --elastic chooses another rule")
    return setup


def _tell_guessed_speeds(scene: Scene) -> None:
    """Print the job types whose speed on GPUs of the cluster is a guess."""
    book = scene.truth.book
    kinds = sorted({job.spec.job_type or "" for job in scene.workload.jobs})
    profiled = {profile.job_type for profile in scene.profiles if profile.speed}
    blank = [kind for kind in kinds if kind not in profiled]
    if blank:
        note(
            f"no profile has a speed of {some_of(blank)}: assumed that a step on one GPU takes "
            f"{DEFAULT_SECONDS_PER_STEP:g} s; give speeds with --profiles"
        )
    for gpu_type in sorted({host.gpu_type for host in scene.cluster.hosts}):
        guessed = [
            kind for kind in kinds if kind not in blank and not book.knows_speed(kind, gpu_type)
        ]
        if guessed:
            note(
                f"no profile has speeds of {some_of(guessed)} on {gpu_type}: assumed as "
                "fast as the slowest GPU type in its profile"
            )


def some_of(names: list[str]) -> str:
    """Return the first three names, and the number of further ones."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{', '.join(names[:3])}{more}"


def device_of(name: str | None) -> DeviceTruth | None:
    """Return the content of a device truth file. Raises CliError."""
    if name is None:
        return None
    try:
        return load_truth(Path(name))
    except DeviceTruthError as error:
        raise failed(Exit.USAGE, str(error), "--device-truth") from None


def replay_failed(error: ReplayError, code: Exit = Exit.USAGE, where: str = "") -> CliError:
    """Return the error for a replay without a result; ``code`` and ``where`` are those of inputs
    that cannot be replayed."""
    if isinstance(error, PolicyError):
        remedy = "use another policy, or correct yours"
        return failed(Exit.FAILED, str(error), "--policy", remedy)
    return failed(code, str(error), where)


def unreadable(name: str, error: OSError, where: str, remedy: str = "") -> CliError:
    """Return the error for a file that cannot be read."""
    what = f"{name or repr(name)} cannot be read: {error.strerror or error}"
    return failed(Exit.USAGE, what, where, remedy)
