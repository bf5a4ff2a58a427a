"""A container of a test without processes of the machine: the real ``converge`` and the real init.

Does: has init serve an agent that persists and asks as the real one does. Never: waits, or touches
a process of the machine (``fake_kernel``).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from reshape_sidecar.agent import converge, standby
from reshape_sidecar.agent.memory import Memory, ProcessExit
from reshape_sidecar.contract import ENV_DEVICES
from reshape_sidecar.init.processes import Marker
from reshape_sidecar.init.supervisor import Supervisor
from reshape_sidecar.init.values import (
    Adopt,
    Drop,
    Prepare,
    Request,
    SendSigterm,
    Spawn,
    Sweep,
    UseZygote,
    WithdrawSigterm,
)
from reshape_sidecar.wire import Outcome, OutcomeKind
from tests.support.fake_kernel import Kernel, Process, Role

KEY = "k"


class Container:
    """One attempt: its init, and what its agent has persisted."""

    def __init__(self, kernel: Kernel, job: str, attempt: int, folder: Path) -> None:
        for name in ("run", "logs"):
            (folder / name).mkdir(parents=True)
        self.kernel = kernel
        self.process = kernel.new(0, Role.INIT)
        kernel.me = self.process.pid
        marker = Marker(job, attempt, str(folder / "agent.sock"))
        self.init = Supervisor(folder, marker, (Role.AGENT.value,))
        self.memory = Memory(claimed=True)
        self.requests: list[Request] = [UseZygote(KEY, ("zygote",), "/", ())]
        """Requests of the agent that init has not read."""
        self.late: list[Request] = []
        """Requests of agents that died, which init has not read either."""
        self.run()

    def processes(self, *roles: Role) -> list[Process]:
        return self.kernel.of(self.process.pid, *roles)

    def run(self) -> None:
        """Have init serve the agent, then do what is due."""
        self._serve(self.requests)
        self.kernel.run_init(self.init, self.process.pid)

    def serve_late(self) -> None:
        """Have init read what agents asked that have died."""
        self._serve(self.late)

    def agent_dies(self) -> None:
        for process in self.processes(Role.AGENT):
            self.kernel.kill(process)
            self.late += self.requests
            self.requests.clear()

    def _serve(self, requests: list[Request]) -> None:
        self.kernel.me = self.process.pid
        while requests:
            self.init._serve(requests.pop(0))

    def close(self) -> None:
        self.init._successor.give_up_fork("the container ends")
        self.init._lock.close()
        for key in list(self.init._selector.get_map().values()):
            if not isinstance(key.fileobj, int):
                key.fileobj.close()  # type: ignore[attr-defined]
        self.init._selector.close()

    def act(self, *, sends: bool = True) -> None:
        """Have the agent do its next action; without ``sends`` it dies once that is persisted."""
        if not self.processes(Role.AGENT) or self.requests:
            return  # it waits for init's answer
        status = self.init._status
        action = converge.decide(
            self.memory, status, saving=False, ready=True, now_s=self.kernel.now_s
        )
        request = self._persisted(action)
        if request is not None and sends:
            self.requests.append(request)

    def _persisted(self, action: converge.Action) -> Request | None:
        """Persist what an action persists, as ``actions`` does; return its request to init."""
        desired = self.memory.desired
        match action:
            case converge.RecordExit(training):
                code = 0 if training.exit_code is None else training.exit_code
                ended = ProcessExit(training.generation, code, training.rung, 1, 1, False)
                self.memory = replace(self.memory, ended=ended)
            case converge.PersistOutcome(outcome):
                self.memory = replace(self.memory, outcome=outcome)
            case converge.PersistKillOutcome(generation):
                outcome = Outcome(generation, OutcomeKind.STOPPING, 1, 0)
                self.memory = replace(self.memory, outcome=outcome)
            case converge.ConfirmStopped(generation):
                self.memory = replace(self.memory, stopped_generation=generation)
            case converge.RequestSave(generation):
                return SendSigterm(generation)
            case converge.WithdrawRequest(generation):
                return WithdrawSigterm(generation)
            case converge.StopProcessTree(generation, kill_after_s, spare):
                return Sweep(generation, kill_after_s, spare)
            case converge.DropSuccessor(number):
                return Drop(number)
            case converge.PrepareSuccessor(number):
                assert desired is not None
                assert desired.prepare is not None
                env = ((ENV_DEVICES, ",".join(desired.prepare)),)
                return Prepare(number, desired.prepare, ("python",), "/", env, KEY)
            case converge.AdoptSuccessor(generation, number):
                self._begin(generation)
                return Adopt(generation, number)
            case converge.Start(generation):
                self._begin(generation)
                if standby.is_importing(self.init._status, 0.0, self.kernel.now_s):
                    return None
                assert desired is not None
                env = ((ENV_DEVICES, ",".join(desired.devices)),)
                doubt = standby.doubt(self.memory, self.init._status)
                return Spawn(generation, ("python",), "/", env, KEY, doubt)
        return None

    def _begin(self, generation: int) -> None:
        assert self.memory.desired is not None
        devices = self.memory.desired.devices
        self.memory = replace(self.memory, started_generation=generation, devices=devices)
