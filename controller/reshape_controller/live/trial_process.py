"""Runs trials in processes of their own, so that a long one holds nothing of the daemon up.

Does: one trial at a time for each identity and two in all; a few wait, and more are refused. The
process gets the engine's state and the policy on its standard input and ends with its answer; it
has a low priority, and is killed if it takes too long. State: the trials that run or wait.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import sys
from collections import Counter
from dataclasses import dataclass
from typing import cast

import structlog

from reshape_controller.core.errors import ReshapeError
from reshape_controller.core.model import JobSpec
from reshape_controller.core.plan import Policy
from reshape_controller.core.state import State
from reshape_controller.live.trial import trial
from reshape_gpu.values import Trial
from reshape_sidecar import death_signal

AT_ONCE = 2
OWN_MAX = 4
"""Trials of one identity that run or wait."""
WAITING_MAX = 32
"""Trials of all identities that run or wait."""
TRIAL_S = 60.0
"""Longest time for one trial, its start included."""
NICE = 10
MODULE = "reshape_controller.live.trial_process"

log = structlog.get_logger("reshape.trial")


class TooManyTrials(ReshapeError):
    """More trials wait than are run soon."""


class TrialFailed(ReshapeError):
    """A trial has no result; the message says why."""


@dataclass(frozen=True, slots=True)
class Question:
    """What a trial is about: the engine's state, the policy, the record, and the time."""

    state: State
    policy: Policy
    spec: JobSpec
    now_s: float

    def packed(self) -> bytes:
        """Return it as bytes; the environments of other jobs are not in it. Raises what pickle
        does."""
        parts = self.state.dump(with_env=False)
        return pickle.dumps((parts, self.policy, self.spec, self.now_s))


class TrialRuns:
    """One per daemon."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._own: dict[str, asyncio.Lock] = {}
        self._at_once = asyncio.Semaphore(AT_ONCE)

    async def run(
        self, identity: str, state: State, policy: Policy, spec: JobSpec, now_s: float
    ) -> Trial:
        """Return what would happen to a record, once it is its turn.

        Raises TooManyTrials, TrialFailed.
        """
        if self._counts[identity] >= OWN_MAX or self._counts.total() >= WAITING_MAX:
            own = self._counts[identity]
            whose = f"{own} trials of {identity}" if own >= OWN_MAX else "trials of others"
            raise TooManyTrials(f"{whose} run or wait; try again in a few seconds")
        self._counts[identity] += 1
        own_turn = self._own.setdefault(identity, asyncio.Lock())
        try:
            async with own_turn, self._at_once:
                return await _asked(Question(state.still(), policy, spec, now_s))
        finally:
            self._counts[identity] -= 1
            if self._counts[identity] <= 0:
                del self._counts[identity]
                self._own.pop(identity, None)


async def _asked(question: Question) -> Trial:
    try:
        packed = await asyncio.to_thread(question.packed)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        what = f"the policy {question.policy.name} cannot be tried in a process of its own"
        raise TrialFailed(f"{what}: {error}; make it an object of a module") from None
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", MODULE, str(os.getpid())),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=env,
    )
    try:
        async with asyncio.timeout(TRIAL_S):
            found, said = await process.communicate(packed)
    except TimeoutError:
        raise TrialFailed(f"the policy has not decided within {TRIAL_S:g} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        last = said.decode(errors="replace").strip().rpartition("\n")[2]
        log.error("trial-failed", code=process.returncode, said=last)
        raise TrialFailed(f"the trial failed: {last or f'exit code {process.returncode}'}")
    return cast(Trial, pickle.loads(found))


def main(parent: int) -> None:
    """Answer the question on standard input on standard output."""
    if not death_signal.die_with(parent):
        return
    os.nice(NICE)
    answer = os.dup(1)
    os.dup2(2, 1)  # what a policy prints is no answer
    parts, policy, spec, now_s = pickle.load(sys.stdin.buffer)
    with os.fdopen(answer, "wb") as out:
        out.write(pickle.dumps(trial(parts, policy, spec, now_s)))


if __name__ == "__main__":
    main(int(sys.argv[1]))
