"""For how long a start has been silent, by the signs of work of its processes."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from reshape_sidecar.agent.silence import Signs, Silence, signs
from reshape_sidecar.limits import SILENCE_MAX_S

EVERY_S = 5.0
BURN = "import time\nwhile time.process_time() < 0.4: pass\n"
"""More than the 0.3 s that are looked for: the kernel rounds each figure down to a clock tick."""


def silence_after(cpu_s: Iterable[float], lines: Iterable[int] = ()) -> float:
    """The silence after looks that found these totals of processor time and lengths of the log."""
    heard, now_s = Silence(1, 0.0), 0.0
    lengths = dict(enumerate(lines))
    length = 0
    for number, used_s in enumerate(cpu_s):
        now_s = number * EVERY_S
        length = lengths.get(number, length)
        heard.look(Signs(used_s, (("training.log", length),)), now_s)
    return heard.reported_s(now_s)


def looks(seconds: float) -> int:
    return int(seconds / EVERY_S) + 1


def test_a_process_that_sleeps_is_silent_in_steps_of_five_seconds() -> None:
    heard = Silence(1, 0.0)
    heard.look(Signs(0.5, ()), 0.0)
    assert [heard.reported_s(now_s) for now_s in (4.9, 5.0, 94.0)] == [0.0, 5.0, 90.0]


def test_a_second_of_processor_time_in_a_minute_is_work() -> None:
    per_look = 1.0 / (60.0 / EVERY_S)
    assert silence_after(per_look * 1.05 * n for n in range(looks(600.0))) == 0.0
    assert silence_after(per_look * 0.5 * n for n in range(looks(600.0))) == 600.0


def test_a_burst_counts_for_the_minute_behind_it() -> None:
    used = [0.0] * looks(100.0) + [3.0] * looks(50.0)
    assert silence_after(used) == 0.0
    assert 60.0 <= silence_after(used + [3.0] * looks(65.0)) <= 70.0


def test_a_line_of_output_is_a_sign_of_work_and_so_is_a_log_that_was_emptied() -> None:
    assert silence_after([0.0] * looks(100.0), [10]) == 100.0
    lines = [10] * looks(55.0) + [20]
    assert silence_after([0.0] * looks(100.0), lines) == 40.0
    emptied = [10] * looks(55.0) + [0]
    assert silence_after([0.0] * looks(100.0), emptied) == 40.0


def test_time_of_processes_that_have_ended_is_not_taken_off_again() -> None:
    worked = [0.0, 0.5, 0.0, 0.5, 0.0, 0.5]
    assert silence_after(worked + [0.5] * looks(20.0)) == 0.0


def test_a_silence_that_is_reported_has_an_end() -> None:
    assert Silence(1, 0.0).reported_s(1e9) == SILENCE_MAX_S


def test_the_signs_are_those_of_the_processes_below_init_and_of_the_children_they_waited_for(
    tmp_path: Path,
) -> None:
    (tmp_path / "training.log").write_text("Epoch 1\n")
    (tmp_path / "agent.log").write_text("ours")
    burn = (
        f"import subprocess, sys; subprocess.run([sys.executable, '-S', '-c', {BURN!r}]); input()"
    )
    code = (
        "import subprocess, sys\n"
        f"child = subprocess.Popen([sys.executable, '-S', '-c', {burn!r}])\n"
        "print(child.pid, flush=True)\nchild.wait()\n"
    )
    command = [sys.executable, "-S", "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as root:
        assert root.stdin is not None
        assert root.stdout is not None
        child = int(root.stdout.readline())
        while (found := signs(root.pid, 0, tmp_path)).cpu_s < 0.3:
            assert root.poll() is None
            time.sleep(0.02)
        assert found.output == (("training.log", 8),)
        assert signs(root.pid, child, tmp_path).cpu_s == 0.0
        root.stdin.close()
