"""The planner: the engine's snapshot to a plan, and the plan to the engine.

Does: treats a policy that fails, and a plan that the engine rejects, the same in every shell: an
empty plan that says why takes their place, about the job of the rejected plan and with that plan as
its refused option; and the failure is returned. Before and after the policy, jobs get the sizes
that are settled whatever the policy (``due_sizes``). Each engine has a planner of its own, and each
planner an index of its engine's jobs. A plan of a policy from elsewhere is taken in the form in
which the log holds it, or not at all. It reads no clock: a subclass may time ``plan``, and bound
``ask``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from reshape_controller.core.engine import Engine, Step
from reshape_controller.core.errors import PlanRejected, ReshapeError
from reshape_controller.core.fast_replace import fast_init, replace
from reshape_controller.core.plan import Option, Plan, Policy, Snapshot
from reshape_controller.core.state import State
from reshape_controller.scheduling import legal_moves, preemption_reason
from reshape_controller.scheduling.assumed_inputs import with_assumed_inputs
from reshape_controller.scheduling.cluster_index import ClusterIndex
from reshape_controller.scheduling.due_sizes import DueSizes
from reshape_controller.scheduling.empty_plan import NOTHING_TO_DO
from reshape_sidecar import codec

OWN_POLICIES = "reshape_controller.policies."
"""Begins the modules of policies whose plans have the right form: tests and types say so."""
PLAN_BYTES_MAX = 1 << 20
"""Longest plan of another policy, as JSON."""
ERROR_CHARS_MAX = 1_000
"""Most characters of a policy's error that a plan and people get."""
ASK_AGAIN_MIN_S, ASK_AGAIN_MAX_S = 1.0, 60.0
"""Pause before a policy that failed is asked again: the first, and the longest of doubled ones."""


class PolicyLeft(ReshapeError):
    """The policy tried to end the program that asks it."""


class NoPlan(ReshapeError):
    """The policy returned something that the log cannot hold as a plan."""


class FailureKind(StrEnum):
    """How a policy can fail; the reason code of the plan that takes its plan's place."""

    POLICY_FAILED = "policy-failed"
    PLAN_REJECTED = "plan-rejected"


@dataclass(frozen=True, slots=True)
class PolicyFailure:
    """An error of a policy, or a plan of it that breaks a rule of the engine."""

    kind: FailureKind
    policy: str
    """Name of the policy."""
    at_s: float
    error: Exception
    """The policy's error, or the engine's ``PlanRejected``."""
    since_s: float
    """Time of the first of the failures in a row that this is the newest of."""
    in_a_row: int = 1

    @property
    def text(self) -> str:
        """Return the error as one text for people, whatever its class makes of itself."""
        try:
            said = str(self.error) if isinstance(self.error, ReshapeError) else repr(self.error)
        except Exception:
            said = type(self.error).__name__
        return said.encode(errors="backslashreplace").decode()[:ERROR_CHARS_MAX]

    @property
    def ask_again_s(self) -> float:
        """Return the pause before the policy is asked again, even if nothing happens."""
        doubled = ASK_AGAIN_MIN_S * 2.0 ** min(self.in_a_row - 1, 10)
        return min(doubled, ASK_AGAIN_MAX_S)


@fast_init
@dataclass(frozen=True, slots=True)
class Decision:
    """A plan that the engine has applied, with its effects."""

    plan: Plan
    step: Step
    failure: PolicyFailure | None = None
    """The reason why ``plan`` is empty; None if the plan is the policy's own."""


class Planner:
    """Makes the plans of one engine."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.failure: PolicyFailure | None = None
        """The newest failure, until the policy has decided again; None if it does not fail."""
        self._index = ClusterIndex()
        self._due_sizes = DueSizes()
        self._proposed: Plan | None = None
        """The policy's newest plan, before it was checked; None if the policy failed."""

    def plan(self, engine: Engine) -> Plan:
        """Return the plan for the engine's state: the policy's, or one to a settled size. Raises
        every error of the policy, and PlanRejected if the plan must not preempt as it does."""
        if not self._may_act(engine.state):
            self._proposed = NOTHING_TO_DO
            return NOTHING_TO_DO
        snapshot = engine.snapshot(self._index)
        changed = engine.state.snapshot_builder.drain_changed_views()
        self._due_sizes.follow(changed)
        snapshot = self._index.follow(snapshot, changed)
        proposed = self._due_sizes.shrink(snapshot) or self.ask(snapshot)
        self._proposed = proposed
        plan = preemption_reason.confirmed(proposed, snapshot, self.policy)
        if not plan.targets:
            self._proposed = plan = self._due_sizes.instead_of(
                plan, snapshot, engine.state.jobs, self.ask
            )
        if plan.about is None or not snapshot.explain:
            return plan
        job = engine.state.jobs.get(plan.about)
        plan = legal_moves.with_unusable_hosts(plan, job, snapshot.hosts)
        plan = legal_moves.with_fixed_jobs(plan, snapshot.running)
        return with_assumed_inputs(plan, snapshot)

    def ask(self, snapshot: Snapshot) -> Plan:
        """Return the policy's plan. Raises every error of the policy."""
        try:
            plan = self.policy.decide(snapshot)
        except SystemExit as error:
            raise PolicyLeft(f"it asks this program to end: {error!r}") from None
        is_own = type(self.policy).__module__.startswith(OWN_POLICIES)
        return plan if is_own else _well_formed(plan)

    def _may_act(self, state: State) -> bool:
        """Whether there may be something to decide, by the word of a policy that says so."""
        may_act = getattr(self.policy, "may_act", None)
        if may_act is None or state.any_size_settled:
            return True
        return bool(may_act(queued=state.any_queued, idle=state.any_idle))

    def decide(self, engine: Engine, now_s: float) -> Decision:
        """Apply the policy's next plan, or an empty plan if the policy fails or the engine rejects
        its plan; return the applied plan. A policy that failed is asked again after a pause."""
        self._proposed = None
        try:
            plan, failure = self.plan(engine), None
        except PlanRejected as rejected:
            plan, failure = self._rejected(rejected, now_s)
        except Exception as error:
            self._index = ClusterIndex()  # it may have taken in a part of the snapshot only
            plan, failure = self._empty(FailureKind.POLICY_FAILED, error, now_s)
        try:
            step = engine.apply(plan, now_s)
        except PlanRejected as rejected:
            plan, failure = self._rejected(rejected, now_s)
            step = engine.apply(plan, now_s)
        self.failure = failure
        return Decision(plan, step, failure)

    def _rejected(self, rejected: PlanRejected, now_s: float) -> tuple[Plan, PolicyFailure]:
        """Return the empty plan in the place of a rejected one, which ``explain`` shows."""
        plan, failure = self._empty(FailureKind.PLAN_REJECTED, rejected, now_s)
        proposed = self._proposed
        if proposed is None:
            return plan, failure
        option = Option(proposed.targets, refused=plan.text)
        return replace(plan, about=proposed.about, options=(option,)), failure

    def _empty(
        self, kind: FailureKind, error: Exception, now_s: float
    ) -> tuple[Plan, PolicyFailure]:
        before = self.failure
        failure = PolicyFailure(kind, self.policy.name, now_s, error, now_s)
        if before is not None:
            failure = replace(failure, since_s=before.since_s, in_a_row=before.in_a_row + 1)
        again_at_s = now_s + failure.ask_again_s
        begin = "the policy failed: " if kind is FailureKind.POLICY_FAILED else ""
        plan = Plan(reason_code=kind.value, text=begin + failure.text, wake_at_s=again_at_s)
        return plan, failure


def _well_formed(proposed: object) -> Plan:
    """Return a plan as the log will hold it. Raises NoPlan if it cannot."""
    try:
        text = codec.dumps(proposed).encode()
        plan = codec.loads(Plan, text) if len(text) <= PLAN_BYTES_MAX else None
    except (ValueError, TypeError, RecursionError) as error:
        raise NoPlan(f"what it returned is no plan: {error}") from None
    if plan is None:
        raise NoPlan(f"its plan is longer than {PLAN_BYTES_MAX} bytes")
    return plan
