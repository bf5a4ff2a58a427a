"""What the agent can tell about a training process: when it saves, and which exception ended it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from reshape_sidecar.agent import abilities
from reshape_sidecar.agent.environment import ranks_path
from reshape_sidecar.agent.printed_exception import exception_in
from reshape_sidecar.contract import HookPhase, HookReport
from reshape_sidecar.exceptions import message_of
from reshape_sidecar.init.values import TrainingProcess
from reshape_sidecar.limits import UNHOOKED_RUNNING_S
from reshape_sidecar.wire import (
    Saves,
    signal_of,
)

HANDLER = "signal.signal(signal.SIGTERM, lambda *_: None)"
IGNORES = "signal.signal(signal.SIGTERM, signal.SIG_IGN)"
TRACE = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    f()\n'


@pytest.mark.parametrize(("line", "found"), [(HANDLER, True), ("", False), (IGNORES, False)])
def test_a_handler_of_sigterm_is_read_from_the_kernel(
    tmp_path: Path, line: str, found: bool
) -> None:
    ready = tmp_path / "ready"
    code = f"import signal, time\n{line}\nopen({str(ready)!r}, 'w').close()\ntime.sleep(60)\n"
    process = subprocess.Popen([sys.executable, "-S", "-c", code])
    try:
        while not ready.exists():
            time.sleep(0.01)
        assert abilities.catches(process.pid, signal.SIGTERM) is found
    finally:
        process.kill()
        process.wait()


def test_a_process_that_is_gone_catches_nothing(tmp_path: Path) -> None:
    assert not abilities.catches(os.getpid(), signal.SIGTERM, tmp_path)


def of(
    report: HookReport | None, *, prepares_s: float = 90.0, now_s: float = 101.0
) -> Saves | None:
    training = TrainingProcess(3, os.getpid(), 1, 100.0)
    return abilities.saves(training, report, prepares_s=prepares_s, now_s=now_s)


def test_the_word_of_the_hook_counts() -> None:
    for word in Saves:
        assert of(HookReport(3, HookPhase.BUILDING, saves=word)) is word


def test_a_hook_of_the_release_before_saves_once_a_fit_runs() -> None:
    assert of(HookReport(3, HookPhase.BUILDING)) is Saves.NEVER
    assert of(HookReport(3, HookPhase.TRAINING)) is Saves.BOUNDARY


def test_a_hook_that_has_not_reported_is_waited_for_and_then_counts_as_none() -> None:
    assert of(None) is None
    assert of(None, now_s=1000.0) is Saves.NEVER


@pytest.mark.parametrize(("found", "when"), [(True, Saves.SIGTERM), (False, Saves.NEVER)])
def test_a_program_that_reports_nothing_is_judged_by_its_handler(
    found: bool, when: Saves, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(abilities, "catches", lambda pid, signum: found)
    assert of(None, prepares_s=UNHOOKED_RUNNING_S) is when


@pytest.mark.parametrize(("line", "when"), [(HANDLER, Saves.SIGTERM), ("", Saves.NEVER)])
def test_ranks_without_a_session_are_judged_by_their_own_handlers(
    tmp_path: Path, line: str, when: Saves
) -> None:
    ready = tmp_path / "ready"
    code = f"import signal, time\n{line}\nopen({str(ready)!r}, 'w').close()\ntime.sleep(60)\n"
    env = {"RESHAPE_DEVICES": "gpu-0", "PYTHONPATH": "", "PATH": os.environ["PATH"]}
    command = [sys.executable, "-I", str(ranks_path()), sys.executable, "-S", "-c", code]
    parent = subprocess.Popen(command, env=env)
    try:
        while not ready.exists():
            assert parent.poll() is None
            time.sleep(0.01)
        training = TrainingProcess(3, parent.pid, 1, 100.0)
        assert (
            abilities.saves(
                training, None, prepares_s=UNHOOKED_RUNNING_S, now_s=101.0, per_gpu=True
            )
            is when
        )
    finally:
        parent.kill()
        parent.wait()


GRAPH = """Graph execution error:

Detected at node read defined at (most recent call last):
  File "train.py", line 3, in <module>

Node: 'read'
2 root error(s) found.
  (0) UNKNOWN:  no file
\t [[{{node read}}]]
  (1) CANCELLED: stopped
0 successful operations.
0 derived errors ignored. [Op:__inference_step_1]"""


@pytest.mark.parametrize(
    ("log", "kind", "message"),
    [
        (TRACE + "ValueError: no such layer", "ValueError", "no such layer"),
        (TRACE + "torch.cuda.OutOfMemoryError: CUDA", "OutOfMemoryError", "CUDA"),
        (TRACE + "KeyError", "KeyError", ""),
        (TRACE + "KeyError: 1\n\nDuring ...:\n\n" + TRACE + "OSError: 2", "OSError", "2"),
        (TRACE + "OSError: 2\nthe script goes on", None, None),
        (TRACE + "OSError: 2\n2026-01-02 03:04:05.6: W tensorflow/core: x", "OSError", "2"),
        (TRACE + "OSError: 2\n[W1121 23:01:02 Module.cpp:1] Warning: x", "OSError", "2"),
        (
            TRACE + "RuntimeError: CUDA\nCompile with `TORCH_USE_CUDA_DSA` to",
            "RuntimeError",
            "CUDA",
        ),
        (
            TRACE + "t.InvalidArgumentError: " + GRAPH,
            "InvalidArgumentError",
            "(0) UNKNOWN: no file",
        ),
        ("cut off\nt.UnknownError: " + GRAPH, "UnknownError", "(0) UNKNOWN: no file"),
        ("ValueError: this was only printed", None, None),
        (TRACE, None, None),
        ("", None, None),
    ],
)
def test_the_last_exception_in_a_log_is_found(
    log: str, kind: str | None, message: str | None
) -> None:
    assert exception_in(log) == (kind, message)


def test_an_exit_code_names_its_signal() -> None:
    assert (signal_of(137), signal_of(139)) == ("SIGKILL", "SIGSEGV")
    assert [signal_of(code) for code in (None, 0, 1, 3, 75, 127, 128, 255)] == [None] * 8


def test_a_message_keeps_its_lines_unless_a_graph_failed() -> None:
    assert message_of("no such layer:\n  dense") == "no such layer: dense"
    assert message_of(GRAPH) == "(0) UNKNOWN: no file"
    assert message_of("Graph execution error:") == "Graph execution error:"
