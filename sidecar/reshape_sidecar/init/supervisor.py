"""Init: PID 1 of a container, or the leader of a local job's session.

Does: keeps the agent running, starts and ends training processes on request, reaps every child, and
writes which processes run. Standard library only, no network. Init goes on if its agent or the
controller ends, a disk is full or its folder is gone, because training would die with it.

Its state is in memory (``InitStatus``): if init dies, agent and training die with it, so it reads
nothing back.
"""

from __future__ import annotations

import fcntl
import functools
import os
import selectors
import signal
import time
from dataclasses import replace
from pathlib import Path

from reshape_sidecar import codec, limits
from reshape_sidecar.cgroup import CgroupError
from reshape_sidecar.contract import ENV_GENERATION
from reshape_sidecar.init import files, logs, processes, spawn
from reshape_sidecar.init.agent_process import AgentProcess
from reshape_sidecar.init.clients import Clients
from reshape_sidecar.init.echo import Echo
from reshape_sidecar.init.groups import NO_GROUPS, Groups
from reshape_sidecar.init.processes import Identity, Marker
from reshape_sidecar.init.successor import Successor
from reshape_sidecar.init.values import (
    AGENT_LOG,
    EXIT_FILE,
    INIT_FILE,
    KEEP_RUNNING_FILE,
    LOCK_FILE,
    NOT_EXECUTABLE,
    SOCKET_NAME,
    TRAINING_FILE,
    TRAINING_LOG,
    ZYGOTE_LOG,
    Adopt,
    Drop,
    End,
    ExitFile,
    GetStatus,
    InitFile,
    InitStatus,
    Prepare,
    Request,
    SendSigterm,
    Spawn,
    Sweep,
    TrainingProcess,
    UseZygote,
    WithdrawSigterm,
)
from reshape_sidecar.init.zygote import Fork, Order, Zygote
from reshape_sidecar.user import User
from reshape_sidecar.wire import SIGNAL_BASE, StartKind

STANDARD_OUTPUT = 1


class AlreadyRunning(Exception):
    """Another init holds this attempt's folder."""


class Supervisor:
    """Init as one loop of a single thread."""

    def __init__(
        self,
        folder: Path,
        marker: Marker,
        agent_command: tuple[str, ...],
        grace_s: float = limits.GRACE_S,
        zygote_again_s: float = limits.ZYGOTE_AGAIN_S,
        groups: Groups = NO_GROUPS,
        user: User | None = None,
        *,
        echoes: bool = False,
    ) -> None:
        """``echoes``: copy the output of training to init's own output."""
        self._run, self._logs = folder / "run", folder / "logs"
        self._marker = marker
        self._groups, self._user = groups, user
        self._lock = open(self._run / LOCK_FILE, "w")  # noqa: SIM115 (held until init ends)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise AlreadyRunning(f"another init process holds {self._run / LOCK_FILE}") from None
        me = os.getpid()
        self._agent = AgentProcess(agent_command, self._run, self._logs / AGENT_LOG, marker)
        self._grace_s = grace_s
        self._term, self._asked_to_end = False, False
        self._sweeping: processes.SweepState | None = None
        self._end_by_s: float | None = None
        self._logs_due_s = 0.0
        self._echo = Echo(self._logs / TRAINING_LOG, STANDARD_OUTPUT) if echoes else None
        self._selector = selectors.DefaultSelector()
        self._zygote = Zygote(
            *(self._logs / ZYGOTE_LOG, marker, self._selector, self._went_cold, zygote_again_s),
            *(groups, user),
        )
        self._status = InitStatus(me, processes.start_time(me), zygote=self._zygote.status)
        self._sent_status = self._status
        self._fork: Fork | None = None
        """The start that the zygote is to serve, until it begins or is cold."""
        self._forking = 0
        """Generation of ``_fork``."""
        self._successor = Successor(
            self._logs / TRAINING_LOG,
            marker,
            self._selector,
            functools.partial(self._went_cold, prefix="prepared in vain: "),
            self._zygote,
            *(groups, user),
        )

    def run(self) -> int:
        """Serve until the container ends; returns init's exit code."""
        spawn.become_subreaper()
        (self._run / EXIT_FILE).unlink(missing_ok=True)
        self._catch_signals()
        clients = Clients(
            self._run / SOCKET_NAME, self._selector, self._serve, lambda: self._status
        )
        files.write_by_rename(self._run / INIT_FILE, self._files()[INIT_FILE])
        pid, marker = self._status.pid, self._marker
        logs.write_line(f"pid {pid} keeps {marker.job} attempt {marker.attempt}")
        while True:
            try:
                if self._run_once(clients):
                    break
            except Exception as error:  # a defect here must not end a training that runs
                logs.write_line(f"goes on after {error!r}")
                time.sleep(limits.SWEEP_POLL_S)
        if self._echo is not None:
            self._echo.copy_all()
        end = ExitFile(0, "ended on request; no process is left")
        self._write(EXIT_FILE, codec.dumps(end))
        logs.write_line(end.reason)
        return files.exit_code(self._run, asked=self._asked_to_end)

    def _run_once(self, clients: Clients) -> bool:
        """Do what is due, then wait for a signal or a request; True once the container ended."""
        now_s = time.monotonic()
        if self._term:
            self._term = False
            self._end(self._grace_s)
        self._reap(now_s)
        self._advance_sweep(now_s)
        if self._advance_end(now_s):
            return True
        failure = self._agent.start_if_due(now_s) if self._end_by_s is None else None
        if failure:
            logs.write_line(failure)
        self._zygote.give_up_if_due(now_s)
        self._zygote.start_if_due(self._status.training, now_s)
        self._status = replace(self._status, zygote=self._zygote.status)
        self._rotate_logs(now_s)
        if self._echo is not None:
            self._echo.copy_all()
        self._successor.kill_if_due(now_s)
        self._note_successor()
        if self._status != self._sent_status:
            self._sent_status = self._status
            clients.broadcast()
        for key, _ in self._selector.select(self._wait_s()):
            if self._selector.get_map().get(key.fd) is key:  # else an earlier key closed it
                key.data()
        return False

    # --- requests

    def _serve(self, request: Request) -> None:
        match request:
            case Spawn():
                self._spawn(request)
            case UseZygote():
                self._zygote.use(request)
                self._zygote.start_if_due(self._status.training, time.monotonic())
                self._status = replace(self._status, zygote=self._zygote.status)
            case Prepare():
                if not self._status.ending:
                    self._successor.prepare(request, time.monotonic())
            case Adopt():
                self._adopt(request)
            case Drop(number):
                self._successor.drop(number, time.monotonic())
            case SendSigterm(generation):
                self._ring(generation)
            case WithdrawSigterm(generation):
                self._keep_running(True)
                withdrawn = max(generation, self._status.withdrawn)
                self._status = replace(self._status, withdrawn=withdrawn)
            case Sweep():
                self._sweep(request)
            case End(grace_s):
                self._asked_to_end = True
                self._end(grace_s)
            case GetStatus():
                pass
        self._note_successor()

    def _note_successor(self) -> None:
        successor = self._successor
        self._status = replace(
            self._status, prepared=successor.status, prepare_number=successor.number
        )

    def _starts(self, generation: int) -> bool:
        """Return whether a training process of ``generation`` may begin now.

        None does whose generation a sweep has ended: its devices may be another job's.
        """
        old, status = self._status.training, self._status
        newer = old is None or (generation > old.generation and not old.running)
        return newer and generation >= status.swept and not status.ending

    def _spawn(self, request: Spawn) -> None:
        if not self._starts(request.generation) or self._forking >= request.generation:
            return
        self._give_up_fork()
        self._keep_running(False)
        env = dict(request.env) | self._marker.environment()
        env[ENV_GENERATION] = str(request.generation)
        now_s = time.monotonic()
        log = self._logs / TRAINING_LOG

        def begin(answer: int | str | None) -> None:
            self._fork, self._forking = None, 0
            self._begin(request, env, now_s, answer)

        if request.key is None or request.doubt is not None:
            begin(request.doubt)
            return
        self._forking = request.generation
        order = Order(request.key, request.command, request.folder, env, log)
        fork = self._zygote.fork(order, now_s, begin)
        if self._forking:
            self._fork = fork

    def _begin(
        self, request: Spawn, env: dict[str, str], asked_at_s: float, answer: int | str | None
    ) -> None:
        """Note the fork with the pid ``answer``; otherwise start cold, for the reason in it."""
        log = self._logs / TRAINING_LOG
        pid, fallback = (answer, None) if isinstance(answer, int) else (0, answer)
        how = StartKind.ZYGOTE if pid else StartKind.COLD
        try:
            offset = log.stat().st_size if log.exists() else 0
            if not pid:
                group = self._groups.training(request.generation)
                pid = spawn.spawn(
                    request.command, request.folder, env, log, group=group, user=self._user
                )
        except (spawn.SpawnError, CgroupError, OSError) as error:
            training = TrainingProcess(
                request.generation, 0, 0, asked_at_s, False, NOT_EXECUTABLE, asked_at_s, str(error)
            )
            logs.write_line(str(error))
        else:
            training = TrainingProcess(
                request.generation,
                pid,
                processes.start_time(pid),
                asked_at_s,
                log_offset_bytes=offset,
                how=how,
                fallback=fallback,
            )
            text = f"training of generation {request.generation} has pid {pid}, {how.value} start"
            logs.write_line(text if fallback is None else f"{text}: {fallback}")
        self._put_training(training)

    def _give_up_fork(self) -> None:
        """Give up a start that has not begun: its fork ends without init's word."""
        if self._fork is not None:
            self._zygote.give_up(self._fork)
        self._fork, self._forking = None, 0

    def _went_cold(self, pid: int, reason: str, prefix: str = "") -> None:
        """Note that a fork of the zygote, or a successor, has executed the cold command.

        ``prefix``: begins the reason that reports give.
        """
        training = self._status.training
        if training is not None and training.running and training.pid == pid:
            logs.write_line(f"training pid {pid} goes on as a cold start: {reason}")
            self._put_training(replace(training, how=StartKind.COLD, fallback=prefix + reason))

    def _ring(self, generation: int) -> None:
        training = self._status.training
        if generation <= self._status.rung or training is None or not training.running:
            return
        self._keep_running(False)
        logs.write_line(f"SIGTERM to training pid {training.pid} for generation {generation}")
        # Its pid is not reused before init reaps it, and init reaps only in this thread.
        os.kill(training.pid, signal.SIGTERM)
        self._status = replace(self._status, rung=generation, training=replace(training, rung=True))

    def _adopt(self, request: Adopt) -> None:
        if not self._starts(request.generation):
            return
        self._keep_running(False)
        now_s = time.monotonic()
        log = self._logs / TRAINING_LOG
        offset = log.stat().st_size if log.exists() else 0
        successor = self._successor.adopt(request, now_s)
        if successor is None:
            return
        self._give_up_fork()
        text = f"training of generation {request.generation} has pid {successor.pid}"
        logs.write_line(f"{text}, prepared before")
        self._put_training(
            TrainingProcess(
                request.generation,
                successor.pid,
                successor.start_time,
                now_s,
                log_offset_bytes=offset,
                how=StartKind.SUCCESSOR,
            )
        )

    def _sweep(self, request: Sweep) -> None:
        if request.generation <= self._status.swept:
            return
        self._give_up_fork()
        self._successor.give_up_fork("a sweep came before it began")
        kill_at_s = time.monotonic() + request.kill_after_s
        if self._sweeping is None:
            state = processes.SweepState(request.generation, kill_at_s, request.spare)
            self._sweeping = state
        else:
            state = self._sweeping
            state.generation = max(request.generation, state.generation)
            state.kill_at_s = min(kill_at_s, state.kill_at_s)
            state.spare = request.spare if request.spare == state.spare else None
        self._advance_sweep(time.monotonic())

    def _end(self, grace_s: float) -> None:
        end_by_s = time.monotonic() + grace_s
        if self._end_by_s is not None:
            self._end_by_s = min(self._end_by_s, end_by_s)
            return
        logs.write_line(f"the container ends within {grace_s:g} s")
        self._end_by_s = end_by_s
        self._give_up_fork()
        self._successor.drop(self._successor.number, time.monotonic())
        self._zygote.end()
        self._status = replace(self._status, ending=True)
        training = self._status.training
        if training is not None and training.running:
            self._keep_running(False)
            os.kill(training.pid, signal.SIGTERM)
            self._status = replace(self._status, training=replace(training, rung=True))

    # --- what goes on between requests

    def _reap(self, now_s: float) -> None:
        while True:
            try:
                pid, wait_status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            code = os.waitstatus_to_exitcode(wait_status)
            code = code if code >= 0 else SIGNAL_BASE - code
            training = self._status.training
            if pid == self._agent.pid:
                logs.write_line(self._agent.on_exit(code, now_s))
            elif pid == self._zygote.pid:
                self._zygote.on_exit(code)
            elif self._successor.on_exit(pid, code):
                logs.write_line(f"the prepared pid {pid} ended with exit code {code}")
            elif training is not None and training.running and pid == training.pid:
                logs.write_line(f"training pid {pid} ended with exit code {code}")
                self._put_training(
                    replace(training, running=False, exit_code=code, ended_at_s=now_s)
                )

    def _put_training(self, training: TrainingProcess) -> None:
        self._status = replace(self._status, training=training)
        self._write(TRAINING_FILE, codec.dumps(training))

    def _files(self) -> dict[str, str]:
        """Return the files that say what runs here, by name, as they must be now."""
        status = self._status
        texts = {INIT_FILE: codec.dumps(InitFile(status.pid, status.start_time, files.boot_id()))}
        if status.training is not None:
            texts[TRAINING_FILE] = codec.dumps(status.training)
        return texts

    def _mend_files(self) -> None:
        """Write a file again that was cut, emptied or removed."""
        for name, text in self._files().items():
            if not files.holds(self._run / name, text):
                logs.write_line(f"{name} is not as it was written: written again")
                self._write(name, text)

    def _write(self, name: str, text: str) -> None:
        """Write a file for agent and launcher; a failure is logged, and init goes on."""
        try:
            files.write_by_rename(self._run / name, text)
        except OSError as error:
            logs.write_line(f"{name} cannot be written: {error}")

    def _keep_running(self, withdraw: bool) -> None:
        """Create or remove the file that withdraws a SIGTERM which training has not served."""
        path = self._run / KEEP_RUNNING_FILE
        try:
            path.touch() if withdraw else path.unlink(missing_ok=True)
        except OSError as error:
            logs.write_line(f"{path} cannot be changed: {error}")

    def _advance_sweep(self, now_s: float) -> None:
        if self._sweeping is None:
            return
        waiting, groups = self._waiting(), self._groups_to_empty()
        if processes.advance_sweep(
            self._sweeping, self._marker, self._agent.pid, now_s, waiting, groups
        ):
            self._groups.remove(groups)
            swept = max(self._sweeping.generation, self._status.swept)
            self._status = replace(self._status, swept=swept, swept_at_s=now_s)
            self._sweeping = None

    def _advance_end(self, now_s: float) -> bool:
        """Go on with the end of the container; True once only init is left."""
        if self._end_by_s is None:
            return False
        training = self._status.training
        if training is not None and training.running and now_s < self._end_by_s:
            return False
        if self._sweeping is None and processes.leftovers(
            self._marker, self._agent.pid, groups=self._groups_to_empty()
        ):
            self._sweeping = processes.SweepState(self._status.swept, self._end_by_s)
        if self._sweeping is not None:
            kill_at_s = min(self._end_by_s, now_s + limits.LEFTOVER_GRACE_S)
            self._sweeping.kill_at_s = min(self._sweeping.kill_at_s, kill_at_s)
            return False
        return self._agent.end(now_s)

    def _waiting(self) -> tuple[Identity, ...]:
        """Return the processes that a sweep spares: the zygote, until the container ends, and the
        successor that the sweep's generation will adopt."""
        if self._end_by_s is not None:
            return ()
        spare = None if self._sweeping is None else self._sweeping.spare
        zygote, successor = self._zygote.status, self._successor.spared(spare)
        return successor if zygote.pid == 0 else (*successor, (zygote.pid, zygote.start_time))

    def _groups_to_empty(self) -> list[Path]:
        """Return the groups of what a sweep does not spare (``_waiting``)."""
        if self._end_by_s is not None:
            return self._groups.swept(zygote=False, successor=None)
        spare = None if self._sweeping is None else self._sweeping.spare
        successor = spare if self._successor.spared(spare) else None
        return self._groups.swept(zygote=self._zygote.pid is not None, successor=successor)

    def _rotate_logs(self, now_s: float) -> None:
        if now_s >= self._logs_due_s:
            self._logs_due_s = now_s + limits.LOG_CHECK_S
            logs.rotate(self._logs, limits.LOG_BYTES_MAX)
            self._mend_files()

    def _wait_s(self) -> float:
        now_s, due_s = time.monotonic(), self._logs_due_s
        if self._echo is not None:
            due_s = min(due_s, now_s + limits.ECHO_EVERY_S)
        if self._sweeping is not None or self._agent.ending:
            due_s = now_s + limits.SWEEP_POLL_S
        for other_s in (self._successor.due_s(), self._zygote.wait_until_s()):
            due_s = due_s if other_s is None else min(due_s, other_s)
        if self._end_by_s is not None:
            due_s = min(due_s, max(self._end_by_s, now_s + limits.SWEEP_POLL_S))
        else:
            if self._agent.pid is None:
                due_s = min(due_s, self._agent.due_s)
            zygote_due_s = self._zygote.due_s(self._status.training, now_s)
            due_s = due_s if zygote_due_s is None else min(due_s, zygote_due_s)
        return max(0.0, due_s - now_s)

    def _catch_signals(self) -> None:
        reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        self._selector.register(reader, selectors.EVENT_READ, lambda: os.read(reader, 4096))
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._on_term)
        for signum in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(signum, signal.SIG_IGN)

    def _on_term(self, *_: object) -> None:
        self._term = True  # served by the loop: a handler may interrupt anything
