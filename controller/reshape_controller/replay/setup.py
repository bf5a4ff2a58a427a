"""The setup of a replay, and the scene of each seed: equal in every process of a sweep.

The values can be pickled. Files are read earlier, by the command line.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources

from reshape_controller.core.knowledge import Curve
from reshape_controller.core.model import Mechanism
from reshape_controller.core.plan import Policy
from reshape_controller.fits.convergence import FitRefused, fit
from reshape_controller.replay.generate import SIZES, Recipe, generate
from reshape_controller.replay.ground_truth import SPREAD, Truth, truth_of
from reshape_controller.replay.inputs import Cluster, Costs, Workload
from reshape_controller.replay.shell import Scene
from reshape_profiles.loader import Bundle
from reshape_profiles.schema import Profile
from reshape_sidecar import codec
from reshape_sidecar.device_truth import DeviceTruth

CODE = (
    *("reshape_controller.core", "reshape_controller.scheduling", "reshape_controller.fits"),
    *("reshape_controller.policies", "reshape_controller.replay", "reshape_sidecar"),
    "reshape_profiles",
)
"""Packages that determine a result, except policies of other packages."""


@cache
def code_mark() -> str:
    """Return a hash of the source code that determines a result."""
    found = hashlib.sha256()
    for package in CODE:
        for path in sorted(resources.files(package).iterdir(), key=lambda path: path.name):
            if path.name.endswith(".py"):
                found.update(f"{package}/{path.name}\n".encode() + path.read_bytes())
    return found.hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Contender:
    """A policy with a mechanism, and its name in tables."""

    label: str
    policy: Policy
    mechanism: Mechanism


def curves_of(profiles: tuple[Profile, ...]) -> tuple[tuple[str, Curve], ...]:
    """Return curves by job type, for the types with enough recorded accuracies."""
    found = []
    for profile in profiles:
        try:
            points = [(float(point.step), point.accuracy) for point in profile.accuracy]
            found.append((profile.job_type, fit(points)))
        except FitRefused:
            continue
    return tuple(found)


def faster(workload: Workload, load: float) -> Workload:
    """Return the workload whose jobs arrive ``load`` times as fast."""
    if load == 1.0:
        return workload
    first_s = min(job.submit_s for job in workload.jobs)
    jobs = (
        replace(job, submit_s=first_s + (job.submit_s - first_s) / load) for job in workload.jobs
    )
    return replace(workload, jobs=tuple(jobs))


@dataclass(frozen=True, slots=True)
class Setup:
    """Inputs of a replay: either ``recipe`` (drawn for each seed) or ``workload``."""

    bundle: Bundle
    cluster: Cluster
    costs: Costs
    recipe: Recipe | None = None
    workload: Workload | None = None
    jobs: int | None = None
    last_s: float | None = None
    """Arrival of the last generated job; None: the recipe's own."""
    load: float = 1.0
    """So many times as fast the jobs arrive."""
    sizes: tuple[int, ...] = SIZES
    spread: float = SPREAD
    device: DeviceTruth | None = None
    curves: tuple[tuple[str, Curve], ...] = ()

    @property
    def name(self) -> str:
        """Name of the workload, with a load other than 1, as in ``one@1.3``."""
        return self.base if self.load == 1.0 else f"{self.base}@{self.load:g}"

    @property
    def base(self) -> str:
        """Name of the workload, whatever the load."""
        if self.recipe is not None:
            return self.recipe.name
        assert self.workload is not None
        return self.workload.name

    def truth(self, seed: int) -> Truth:
        """Return the true values of a seed's world."""
        return truth_of(
            self.bundle.profiles,
            seed=seed,
            spread=self.spread,
            device=self.device,
            curves=self.curves,
        )

    def scene(self, seed: int) -> Scene:
        """Return everything but the policy, for a seed. Raises ReplayError."""
        truth = self.truth(seed)
        workload = None if self.workload is None else faster(self.workload, self.load)
        if workload is None:
            assert self.recipe is not None
            workload = generate(
                self.recipe,
                self.bundle,
                truth,
                seed,
                jobs=self.jobs,
                cluster=self.cluster,
                last_s=self.last_s,
                faster=self.load,
                sizes=self.sizes,
            )
        return Scene(workload, self.cluster, self.costs, self.bundle.profiles, truth)

    def with_bundle(self, bundle: Bundle) -> Setup:
        """Return the setup with other profiles and their curves."""
        return replace(self, bundle=bundle, curves=curves_of(bundle.profiles))

    def fingerprint(self) -> str:
        """Return a hash of all that determines a result, code included, except seed and policy."""
        parts = [code_mark()]
        parts += [codec.dumps(profile) for profile in self.bundle.profiles]
        parts += [
            repr(self.bundle.sets),
            codec.dumps(self.cluster),
            codec.dumps(self.costs),
            repr(self.recipe),
        ]
        if self.workload is not None:
            parts += [codec.dumps(job.spec) + repr(job.submit_s) for job in self.workload.jobs]
        parts += [repr((self.jobs, self.last_s, self.sizes, self.spread, self.device))]
        parts += [f"load {self.load!r}"]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
