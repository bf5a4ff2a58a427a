"""Settings, the save interval, reports, the import watch: each by itself."""

from __future__ import annotations

import functools
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reshape_profiles.hook_reports import listening
from reshape_sidecar import codec
from reshape_sidecar.contract import HookPhase, HookReport
from reshape_sidecar.hook import report, settings
from reshape_sidecar.hook.exactness import EXACT, STEPS_ONLY, UNKNOWN, Verdict
from reshape_sidecar.hook.imports import ImportWatch
from reshape_sidecar.hook.progress import ProgressReporter, numbers_of
from reshape_sidecar.hook.randomness import StartupRandomness
from reshape_sidecar.hook.report import ReportSender
from reshape_sidecar.hook.saving import SAVE_RATIO_MAX, SaveInterval
from reshape_sidecar.wire import Progress, Trajectory

WAIT_S = 20.0


def test_without_a_variable_of_ours_there_are_no_settings() -> None:
    assert settings.from_environment({"PATH": "/bin", "HOME": "/"}) is None


def test_settings_are_read_from_the_environment() -> None:
    told = settings.from_environment(
        {
            "RESHAPE_JOB": "j",
            "RESHAPE_JOB_NAME": "n",
            "RESHAPE_ATTEMPT": "2",
            "RESHAPE_GENERATION": "5",
            "RESHAPE_DEVICES": "a,b",
            "RESHAPE_DEVICE_MODE": "simulated",
            "RESHAPE_CHECKPOINTS": "/c",
            "RESHAPE_EPOCHS": "4",
            "RESHAPE_SEED": "0",
            "RESHAPE_HASHED_GENERATION": "4",
            "RESHAPE_SPAWNED_AT_S": "12.5",
        }
    )
    assert told == settings.HookSettings(
        job="j",
        name="n",
        attempt=2,
        generation=5,
        devices=("a", "b"),
        simulated=True,
        checkpoints=Path("/c"),
        hashed_generation=4,
        epochs=4,
        seed=0,
        spawned_at_s=12.5,
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("RESHAPE_EPOCHS", "0"),
        ("RESHAPE_STEPS", "-1"),
        ("RESHAPE_ATTEMPT", "one"),
        ("RESHAPE_SEED", "1.5"),
        ("RESHAPE_SPAWNED_AT_S", "now"),
        ("RESHAPE_SAVE_DEADLINE_S", "soon"),
        ("RESHAPE_PROOF", "on"),
    ],
)
def test_a_value_that_cannot_be_is_named(name: str, value: str) -> None:
    with pytest.raises(settings.SettingsError, match=f"{name}={value!r}"):
        settings.from_environment({name: value})


@given(st.floats(min_value=0.001, max_value=60), st.integers(min_value=20, max_value=200))
def test_periodic_saves_cost_less_than_two_percent_once_their_cost_is_known(
    cost_s: float, saves: int
) -> None:
    now_s = 0.0
    interval = SaveInterval(now_s)
    interval.save_ended(now_s, cost_s)
    for _ in range(saves):
        now_s += interval.interval_s() * 1.000001
        assert interval.due(now_s)
        now_s += cost_s
        interval.save_ended(now_s, cost_s)
    assert saves * cost_s / now_s < SAVE_RATIO_MAX


def test_the_first_save_of_a_large_model_waits_for_what_it_will_cost() -> None:
    small, large = SaveInterval(0.0), SaveInterval(0.0)
    small.expect(1_000_000)
    large.expect(20_000_000_000)
    assert small.due(6.0)
    assert not large.due(3600.0)


def test_a_slower_save_counts_at_once_and_a_failed_one_waits() -> None:
    interval = SaveInterval(0.0)
    interval.save_ended(0.0, 0.01)
    interval.save_ended(0.0, 1.0)
    assert interval.interval_s() > 50
    interval.save_failed(100.0)
    assert not interval.due(130.0)


def until(there: object, text: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not (there() if callable(there) else there):
        assert time.monotonic() < deadline, text
        time.sleep(0.01)


@pytest.mark.parametrize("folder", ["short", "l" * 120], ids=["short path", "long path"])
def test_reports_arrive_at_the_agent(tmp_path: Path, folder: str) -> None:
    place = tmp_path / folder
    place.mkdir()
    short = tmp_path / "s"
    short.symlink_to(place)
    # The server may bind a short name; the hook is told the long one.
    with listening(short / "agent.sock") as reports:
        reporter = ProgressReporter(ReportSender(place / "agent.sock"), 3, time.monotonic() - 1)
        reporter.phase_ended("import_s")
        reporter.set_verdict(Verdict(STEPS_ONLY, "why"))
        reporter.phase(HookPhase.BUILDING)
        reporter.report_logs({"loss": 0.5, "sparse_categorical_accuracy": 0.75})
        reporter.flush()
        until(lambda: reports and reports[-1].progress.loss == 0.5, "the newest report")
    newest = reports[-1]
    assert (newest.generation, newest.phase) == (3, HookPhase.BUILDING)
    assert newest.import_s is not None
    assert newest.import_s >= 1
    assert newest.progress.accuracy == 0.75
    assert (newest.progress.trajectory, newest.progress.trajectory_reason) == ("steps-only", "why")


def import_s(folder: Path, spawned_at_s: float, meanwhile: Callable[[], object]) -> float:
    """How long the import took, as the agent hears it, if it ends after ``meanwhile``."""
    with listening(folder / "agent.sock") as reports:
        reporter = ProgressReporter(ReportSender(folder / "agent.sock"), 3, spawned_at_s)
        meanwhile()
        reporter.phase_ended("import_s")
        reporter.phase(HookPhase.BUILDING)
        reporter.flush()
        until(lambda: reports, "the report")
    assert reports[-1].import_s is not None
    return float(reports[-1].import_s)


def test_a_clock_that_is_set_during_a_start_makes_no_phase_hours_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    later_s = time.time() + 7200
    set_clock = functools.partial(monkeypatch.setattr, time, "time", lambda: later_s)
    assert 1 <= import_s(tmp_path, time.monotonic() - 1, set_clock) < 60


def test_the_start_that_an_older_agent_tells_in_unix_time_is_that_of_the_hook(
    tmp_path: Path,
) -> None:
    assert 0.1 <= import_s(tmp_path, time.time(), lambda: time.sleep(0.1)) < 60


def test_half_a_character_in_a_text_does_not_mute_the_reporter(tmp_path: Path) -> None:
    with listening(tmp_path / "agent.sock") as reports:
        reporter = ProgressReporter(ReportSender(tmp_path / "agent.sock"), 3, time.monotonic())
        reporter.set_verdict(Verdict(STEPS_ONLY, "why \ud83d"))
        reporter.phase(HookPhase.BUILDING)
        reporter.flush()
        until(lambda: reports, "the report")
    assert reports[-1].progress.trajectory_reason == "why ?"


def test_an_agent_that_is_not_there_costs_training_nothing(tmp_path: Path) -> None:
    reporter = ReportSender(tmp_path / "nobody.sock")
    began_s = time.monotonic()
    for step in range(200):
        reporter.send(HookReport(generation=step, phase=HookPhase.TRAINING))
    assert time.monotonic() - began_s < 1.0
    reporter.flush()


def test_an_agent_that_never_answers_holds_nobody_up_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "SEND_TIMEOUT_S", 0.2)
    import socket

    path = tmp_path / "agent.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        reporter = ReportSender(path)
        reporter.send(HookReport(generation=1, phase=HookPhase.SAVED))
        began_s = time.monotonic()
        reporter.flush()
        assert time.monotonic() - began_s < report.LAST_REPORT_WAIT_S + 5


def test_without_a_socket_nothing_is_sent() -> None:
    ReportSender(None).send(HookReport(generation=1, phase=HookPhase.TRAINING))
    ReportSender(None).flush()


def test_numbers_of_logs_leave_out_what_is_none() -> None:
    logs = {"loss": 1, "text": "x", "nan": float("nan"), "none": None}
    assert numbers_of(logs) == {"loss": 1.0}
    assert numbers_of(None) == {}


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(str(tmp_path))
    before, finders = set(sys.modules), list(sys.meta_path)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]
    sys.meta_path[:] = finders


def test_the_watch_calls_back_after_the_body_of_a_module(modules: Path) -> None:
    (modules / "watched_one").mkdir()
    (modules / "watched_one" / "__init__.py").write_text("import watched_one.inner\nready = True\n")
    (modules / "watched_one" / "inner.py").write_text("ready = True\n")
    seen: list[str] = []

    def patch(module: ModuleType) -> None:
        assert module.ready
        seen.append(module.__name__)

    watch = ImportWatch()
    watch.after("watched_one", patch)
    watch.after("watched_one.inner", patch)
    watch.before("watched_one", lambda: seen.append("begins"))
    assert seen == []
    import watched_one  # type: ignore[import-not-found]

    assert watched_one.ready
    assert seen == ["begins", "watched_one.inner", "watched_one"]
    assert watch not in sys.meta_path
    watch.after("watched_one", patch)
    assert seen[-1] == "watched_one", "a module that is there already is patched at once"


def test_a_module_that_is_missing_or_broken_fails_as_ever(modules: Path) -> None:
    (modules / "watched_broken.py").write_text("1 / 0\n")
    watch = ImportWatch()
    watch.after("watched_broken", lambda module: pytest.fail("was patched"))
    watch.after("watched_missing", lambda module: pytest.fail("was patched"))
    with pytest.raises(ZeroDivisionError):
        import watched_broken  # type: ignore[import-not-found]  # noqa: F401
    with pytest.raises(ModuleNotFoundError, match="watched_missing"):
        import watched_missing  # type: ignore[import-not-found]  # noqa: F401


def test_random_numbers_that_nobody_has_seeded_begin_as_the_job_says() -> None:
    draws = []
    for _ in range(2):
        np.random.seed()
        random.seed()
        beginning = StartupRandomness()
        beginning.numpy_imported(np)
        beginning.tensorflow_begins()
        random.random()  # TensorFlow itself draws
        beginning.seed(7)
        draws.append((random.random(), float(np.random.random())))
    assert draws[0] == draws[1]


@pytest.mark.parametrize("use", [lambda: random.seed(1), lambda: np.random.seed(1)])
def test_random_numbers_that_the_script_has_seeded_are_left_to_it(use: Callable[[], None]) -> None:
    draws = []
    for number in range(2):
        random.seed(5)
        np.random.seed(5)
        beginning = StartupRandomness()
        beginning.numpy_imported(np)
        use()
        beginning.tensorflow_begins()
        beginning.seed(number)
        draws.append((random.random(), float(np.random.random())))
    assert draws[0] == draws[1]


def test_a_reason_of_before_a_restart_is_not_forgotten_after_it() -> None:
    uneven = Verdict(EXACT).worse("a batch; not dividing")
    assert Verdict(EXACT).after(uneven) == uneven
    assert uneven.worse("a batch") == uneven
    assert uneven.after(uneven) == uneven
    both = Verdict(STEPS_ONLY, "dropout; a batch; not dividing")
    assert Verdict(STEPS_ONLY, "dropout").after(uneven) == both
    noted = Verdict(EXACT, "the script uses 1 of 2")
    assert Verdict(EXACT).after(noted) == Verdict(EXACT)
    assert noted.after(uneven) == uneven


def test_a_verdict_is_as_bad_as_the_worst_of_its_reasons() -> None:
    doubted = Verdict(EXACT, "a note").worse("a list", UNKNOWN)
    assert doubted == Verdict(UNKNOWN, "a list")
    assert doubted.worse("dropout") == Verdict(UNKNOWN, "a list; dropout")
    assert Verdict(STEPS_ONLY, "dropout").worse("a list", UNKNOWN).kind is UNKNOWN
    assert Verdict(STEPS_ONLY, "a list").worse("a list", UNKNOWN) == doubted
    assert Verdict(EXACT).after(doubted) == doubted
    for verdict, meets in ((EXACT, 3), (STEPS_ONLY, 2), (UNKNOWN, 1)):
        assert sum(map(verdict.meets, Trajectory)) == meets


def test_a_report_without_a_word_or_with_that_of_a_later_version_is_an_unknown_verdict() -> None:
    assert [Trajectory.of(word) for word in ("exact", None, "better-than-exact")] == [
        EXACT,
        UNKNOWN,
        UNKNOWN,
    ]
    later = codec.loads(Progress, '{"step":7,"trajectory":"better-than-exact"}')
    assert Trajectory.of(later.trajectory) is UNKNOWN


def test_reports_of_evaluations_and_saves_do_not_hold_up_those_of_the_loss(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    reporter = ProgressReporter(ReportSender(None), 3, None)
    reporter.report_logs({"loss": 0.5})
    now_s[0] = 100.9
    reporter.send()
    reporter.save_ended(0.1)
    assert not reporter.due(100.9)
    assert reporter.due(101.0)
