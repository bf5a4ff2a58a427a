"""What the agent accepts, stores, measures and reports."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import pytest
from tornado.httpclient import HTTPClientError, HTTPRequest, HTTPResponse
from tornado.httputil import HTTPHeaders
from tornado.simple_httpclient import SimpleAsyncHTTPClient

from reshape_sidecar import checkpoints, codec, limits
from reshape_sidecar.agent import process_exit, reporting, selfcheck, timing
from reshape_sidecar.agent.coordinator_link import CoordinatorLink
from reshape_sidecar.agent.memory import Memory, MemoryFile, ProcessExit
from reshape_sidecar.agent.spec import AttemptSpec, DeviceMode, Folder
from reshape_sidecar.agent.timing import Timestamps
from reshape_sidecar.contract import HookPhase, HookReport
from reshape_sidecar.init.values import InitStatus, TrainingProcess
from reshape_sidecar.wire import (
    LEVEL_HEADER,
    Desired,
    Mode,
    Observed,
    Phase,
    PhaseTimes,
    Progress,
    Proof,
    Saves,
)
from tests.unit.sidecar.test_environment import spec

OLD = Desired(epoch=2, job="j", attempt=1, generation=5, mode=Mode.RUN, devices=("a", "b"))


def test_a_higher_generation_or_epoch_is_taken_up() -> None:
    assert reporting.refusal_of(spec("./t"), None, OLD) is None
    assert reporting.refusal_of(spec("./t"), OLD, replace(OLD, generation=6)) is None
    assert reporting.refusal_of(spec("./t"), OLD, replace(OLD, epoch=3)) is None


def test_what_is_known_is_neither_taken_up_nor_worth_a_word() -> None:
    assert reporting.refusal_of(spec("./t"), OLD, OLD) == ""


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"generation": 4}, "generation 4 is refused"),
        ({"epoch": 1}, "epoch 1 generation 5 is refused"),
        ({"epoch": 3, "generation": 4}, "generation 4 is refused"),
        ({"devices": ("a",)}, "other devices"),
        ({"mode": Mode.EXIT, "epoch": 3}, "another mode"),
        ({"job": "k"}, "not for this attempt"),
        ({"attempt": 2}, "not for this attempt"),
        ({"version": 9}, "wire version 9"),
    ],
)
def test_what_is_older_or_not_meant_for_this_attempt_is_refused(
    change: dict[str, object], why: str
) -> None:
    new = replace(OLD, **change)  # type: ignore[arg-type]
    assert why in (reporting.refusal_of(spec("./t"), OLD, new) or "")


def test_the_memory_survives_and_every_start_has_a_higher_number(tmp_path: Path) -> None:
    file = MemoryFile(tmp_path)
    first = file.boot(1000.0)
    file.save(replace(first, desired=OLD, learned_at_s=7.5))
    second = MemoryFile(tmp_path).boot(1000.0)
    assert (first.boot, second.boot) == (1_000_000, 1_000_001)
    assert second.desired == OLD
    assert MemoryFile(tmp_path).boot(5.0).boot == 1_000_002, "the clock was set back"
    assert MemoryFile(tmp_path).boot(2000.0).boot == 2_000_000


def test_a_new_agent_does_not_say_what_training_may_have_left_behind(tmp_path: Path) -> None:
    """So the controller keeps the later step that it has heard of, until training speaks again."""
    then = Progress(106, total_steps=167, loss=0.5, seconds_per_step=0.1, checkpoint_step=106)
    MemoryFile(tmp_path).save(Memory(desired=OLD, progress=then))
    now = MemoryFile(tmp_path).boot(1000.0).progress
    assert now == replace(then, loss=None, seconds_per_step=None)


@pytest.mark.parametrize("text", [None, "", '{"type":"Memory","bo', '{"type":"Memory","x":1}'])
def test_a_memory_that_is_lost_or_damaged_begins_anew_under_a_higher_number(
    tmp_path: Path, text: str | None
) -> None:
    before = MemoryFile(tmp_path).boot(1000.0)
    (tmp_path / "agent.json").unlink()
    if text is not None:
        (tmp_path / "agent.json").write_text(text)
    after = MemoryFile(tmp_path).boot(1001.0)
    assert after == Memory(boot=1_001_000)
    assert after.boot > before.boot
    assert (tmp_path / "agent.damaged").exists() == (text is not None)


def test_the_number_of_a_start_needs_no_room_on_the_disk(tmp_path: Path) -> None:
    file = MemoryFile(tmp_path / "missing")
    assert file.boot(1000.0).boot == 1_000_000
    with pytest.raises(OSError, match="No such file"):
        file.save(Memory())


def test_half_a_character_in_a_report_is_neither_kept_from_the_disk_nor_from_the_coordinator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = codec.loads(Progress, '{"step":7,"trajectory_reason":"why \\ud83d"}')
    memory = Memory(desired=OLD, progress=said)
    MemoryFile(tmp_path).save(memory)
    assert MemoryFile(tmp_path).boot(1000.0).progress.trajectory_reason == "why ?"

    sent = []

    async def fetch(client: object, request: HTTPRequest) -> None:
        sent.append(request.body)
        raise ConnectionRefusedError

    monkeypatch.setattr(SimpleAsyncHTTPClient, "fetch", fetch)

    async def push() -> None:
        await CoordinatorLink(
            spec("./t"),
            token=lambda: "t",
            observe=lambda: reporting.observed_state(
                spec("./t"), memory, InitStatus(1, 1), True, 1, ()
            ),
            learn=lambda desired: True,
            on_acknowledged=lambda: None,
        ).push_once(30.0)

    asyncio.run(push())
    assert [codec.loads(Observed, body).progress.step for body in sent] == [7]


def test_reports_fall_back_to_the_first_level_once_a_coordinator_refuses_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A controller of the version before may have taken over; it knows no newer field."""
    sent: list[bytes] = []
    levels = iter(["2", None, "2"])

    async def fetch(client: object, request: HTTPRequest) -> HTTPResponse:
        sent.append(request.body)
        if (level := next(levels)) is None:
            raise HTTPClientError(400, "unknown field saves")
        headers = HTTPHeaders({LEVEL_HEADER: level})
        return HTTPResponse(request, 204, headers=headers, buffer=BytesIO())

    monkeypatch.setattr(SimpleAsyncHTTPClient, "fetch", fetch)
    seen = Observed("j", 1, 1, 1, Phase.RUNNING, saves=Saves.NEVER)

    async def push() -> None:
        link = CoordinatorLink(
            spec("./t"),
            token=lambda: "t",
            observe=lambda: seen,
            learn=lambda desired: True,
            on_acknowledged=lambda: None,
        )
        for _ in range(3):
            await link.push_once(30.0)

    asyncio.run(push())
    assert [codec.loads(Observed, body).saves for body in sent] == [None, Saves.NEVER, None]


@pytest.mark.parametrize(
    ("said", "least_s"), [("1", 1.0), ("", 0.0), ("-9", 0.0), ("soon", 0.0), ("9" * 9, 0.3)]
)
def test_a_coordinator_that_is_asked_too_often_says_when_to_ask_again(
    said: str, least_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_s: list[float] = []
    if len(said) > 2:
        monkeypatch.setattr(limits, "BACKOFF_MAX_S", 0.3)

    async def fetch(client: object, request: HTTPRequest) -> HTTPResponse:
        asked_s.append(asyncio.get_running_loop().time())
        headers = HTTPHeaders({"Retry-After": said})
        raise HTTPClientError(429, response=HTTPResponse(request, 429, headers=headers))

    monkeypatch.setattr(SimpleAsyncHTTPClient, "fetch", fetch)

    async def report_twice() -> None:
        link = CoordinatorLink(
            spec("./t"),
            token=lambda: "t",
            observe=lambda: Observed("j", 1, 1, 1, Phase.RUNNING),
            learn=lambda desired: True,
            on_acknowledged=lambda: None,
        )
        link.push()
        reporting = asyncio.create_task(link.push_forever())
        while len(asked_s) < 2:
            await asyncio.sleep(0.01)
        reporting.cancel()

    asyncio.run(asyncio.wait_for(report_twice(), 20))
    assert least_s <= asked_s[1] - asked_s[0] < least_s + 1.0


def test_sequences_of_a_later_start_are_all_higher() -> None:
    memory = Memory(boot=2, desired=OLD)
    late = memory.boot * reporting.SEQUENCES_PER_BOOT
    seen = reporting.observed_state(spec("./t"), memory, InitStatus(1, 1), True, late, ())
    assert seen.sequence > 1 * reporting.SEQUENCES_PER_BOOT + 999_999


def test_only_a_living_process_is_reported_with_its_pid_and_devices() -> None:
    memory = Memory(desired=OLD, devices=("a", "b"))
    process = TrainingProcess(5, 77, 9, 1.0)
    seen = reporting.observed_state(spec("./t"), memory, InitStatus(1, 1, process), True, 1, ())
    assert (seen.pid, seen.start_time, seen.devices) == (77, 9, ("a", "b"))
    process = replace(process, running=False, exit_code=1)
    seen = reporting.observed_state(spec("./t"), memory, InitStatus(1, 1, process), True, 1, ())
    assert (seen.pid, seen.start_time, seen.devices) == (None, None, ())


def test_the_devices_that_a_living_process_uses_are_reported() -> None:
    memory = Memory(desired=OLD, devices=("a", "b"))
    hook = HookReport(1, HookPhase.TRAINING, devices_used=1)
    for running, used in ((True, 1), (False, None)):
        process = TrainingProcess(5, 77, 9, 1.0, running=running)
        status = InitStatus(1, 1, process)
        seen = reporting.observed_state(spec("./t"), memory, status, True, 1, (), hook=hook)
        assert seen.devices_used == used


def test_the_seconds_of_a_reshape_add_up() -> None:
    timestamps = Timestamps(100.0, 100.1, saved_at_s=101.1, ended_at_s=101.3, swept_at_s=101.6)
    times = timing.stop_times(timestamps)
    assert times.save_s == pytest.approx(1.0)
    assert times.stop_s == pytest.approx(0.5)
    times = timing.add_start_times(times, replace(timestamps, spawned_at_s=101.65))
    assert times.sidecar_s == pytest.approx(0.15)


def test_what_was_not_seen_is_not_guessed() -> None:
    timestamps = Timestamps(100.0, ended_at_s=101.0, swept_at_s=101.5, spawned_at_s=102.0)
    times = timing.add_start_times(timing.stop_times(timestamps), timestamps)
    assert (times.save_s, times.stop_s, times.sidecar_s) == (None, 0.5, None)
    assert timing.add_start_times(PhaseTimes(), Timestamps(1.0)) == PhaseTimes()


def test_a_first_start_has_only_the_sidecars_own_seconds() -> None:
    assert (
        timing.add_start_times(PhaseTimes(), Timestamps(1.0, spawned_at_s=1.25)).sidecar_s == 0.25
    )


def test_the_first_step_of_a_session_begins_where_the_import_that_the_hook_saw_ended() -> None:
    hook = HookReport(1, HookPhase.BUILDING, import_s=2.0)
    session = HookReport(1, HookPhase.TRAINING, first_step_s=3.0)
    times = timing.add_reported_times(PhaseTimes(), hook)
    for report in (session, session, hook):
        times = timing.add_reported_times(times, report)
        assert (times.import_s, times.first_step_s) == (2.0, 1.0)


def test_the_phases_of_one_report_follow_each_other_as_they_are() -> None:
    report = HookReport(1, HookPhase.TRAINING, import_s=2.0, build_s=1.0, first_step_s=3.0)
    times = timing.add_reported_times(PhaseTimes(), report)
    assert (times.import_s, times.build_s, times.first_step_s) == (2.0, 1.0, 3.0)


@pytest.mark.parametrize(
    ("code", "asked", "complete", "finished"),
    [
        (0, False, False, True),
        (0, True, False, False),
        (0, True, True, True),
        (75, True, True, True),
        (75, True, False, False),
        (1, False, False, False),
    ],
)
def test_training_is_finished_when_it_says_so_or_left_unasked_with_0(
    code: int, asked: bool, complete: bool, finished: bool
) -> None:
    assert process_exit.reached_end(ProcessExit(1, code, asked, 10, 10, complete)) is finished


@pytest.mark.parametrize(
    ("worker", "desired", "over"), [(0, 1, True), (0, 2, True), (1, 1, True), (1, 2, False)]
)
def test_a_worker_that_has_nothing_left_to_do_begins_anew_with_a_chief_that_does(
    worker: int, desired: int, over: bool
) -> None:
    made = spec("python3", "train.py", worker=worker, workers=2)
    assert process_exit.is_over(made, ProcessExit(1, 0, False, 10, 10, True), desired) is over


def attempt(tmp_path: Path, **fields: object) -> tuple[AttemptSpec, Folder]:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text("")
    folder = Folder(tmp_path / "attempt")
    folder.run.mkdir(parents=True)
    folder.logs.mkdir()
    values = {"code": str(tmp_path / "code"), "checkpoints": str(tmp_path / "ckpt")} | fields
    return spec("python3", "train.py", **values), folder


def inspected(
    made: AttemptSpec, folder: Folder, process: TrainingProcess, step: int, *, memory_ran_out: bool
) -> ProcessExit:
    at_end = process_exit.at_end(made, folder, process.generation, step, None)
    return process_exit.inspect(folder, process, at_end, memory_ran_out=memory_ran_out)


def test_a_crash_is_told_by_the_last_lines_of_its_own_output(tmp_path: Path) -> None:
    made, folder = attempt(tmp_path)
    earlier = "an earlier start failed too\n"
    log = earlier + "".join(f"line {n}\n" for n in range(500)) + "ValueError: no\n\n"
    (folder.logs / "training.log").write_text(log)
    process = TrainingProcess(2, 5, 5, 1.0, False, 1, log_offset_bytes=len(earlier))
    ended = inspected(made, folder, process, step=4, memory_ran_out=False)
    assert ended.error is not None
    assert ended.error.startswith("training ended with exit code 1\n")
    assert ended.error.endswith("ValueError: no")
    assert "earlier" not in ended.error
    assert len(ended.error) < 2200
    assert (ended.step, ended.saved_step) == (4, None)


def test_what_a_program_tells_its_terminal_is_not_in_the_end_of_its_log(tmp_path: Path) -> None:
    """Keras writes its progress so into files, too."""
    made, folder = attempt(tmp_path)
    bar = "\x1b[1m{}/99\x1b[0m \x1b[32m━━━━\x1b[0m loss: 0.5" + 600 * "\b" + "\n"
    said = "\x1b]0;title\x07\tbefore it\r\n" + "".join(bar.format(n) for n in (1, 2))
    (folder.logs / "training.log").write_text("x" * 40_000 + "\n" + said, newline="")
    process = TrainingProcess(2, 5, 5, 1.0, False, 3)
    ended = inspected(made, folder, process, step=4, memory_ran_out=False)
    told = (ended.error or "").splitlines()
    assert told[0] == "training ended with exit code 3"
    assert told[2:] == ["\tbefore it", "1/99 ━━━━ loss: 0.5", "2/99 ━━━━ loss: 0.5"]
    assert len("\n".join(told[1:])) <= limits.ERROR_CHARS_MAX


@pytest.mark.parametrize(
    ("code", "memory_ran_out", "told"),
    [
        (137, True, "exit code 137: out of memory (limit: resources.memory)"),
        (137, False, "exit code 137 (SIGKILL)"),
        (139, False, "exit code 139 (SIGSEGV)"),
        (1, True, "exit code 1"),
        (255, False, "exit code 255"),
    ],
)
def test_a_process_that_was_killed_is_told_by_what_killed_it(
    tmp_path: Path, code: int, memory_ran_out: bool, told: str
) -> None:
    made, folder = attempt(tmp_path)
    process = TrainingProcess(2, 5, 5, 1.0, False, code)
    ended = inspected(made, folder, process, step=0, memory_ran_out=memory_ran_out)
    first = (ended.error or "").splitlines()[0]
    assert first == f"training ended with {told}"


def weights(path: Path) -> None:
    (path / "weights").write_bytes(b"12345")


def test_an_end_is_judged_by_the_newest_whole_checkpoint(tmp_path: Path) -> None:
    made, folder = attempt(tmp_path)
    ckpt = tmp_path / "ckpt"
    checkpoints.claim(ckpt, 1)
    for step in (10, 20):
        checkpoints.publish(
            ckpt,
            step=step,
            epoch=0,
            attempt=1,
            generation=2,
            write=weights,
        )
    process = TrainingProcess(2, 5, 5, 1.0, False, 75, rung=True)
    assert inspected(made, folder, process, step=20, memory_ran_out=False).saved_step == 20
    file = next(ckpt.glob("step-0000000020*/weights"))
    file.write_bytes(b"1234!")
    later = replace(process, generation=3)
    assert inspected(made, folder, later, step=20, memory_ran_out=False).saved_step == 10, (
        "another process's: hashed"
    )
    file.write_bytes(b"1234")
    assert inspected(made, folder, process, step=20, memory_ran_out=False).saved_step == 10, (
        "its own: by size"
    )


def test_leaving_with_75_unasked_is_a_crash_that_says_so(tmp_path: Path) -> None:
    made, folder = attempt(tmp_path)
    ended = inspected(
        made, folder, TrainingProcess(2, 5, 5, 1.0, False, 75), step=0, memory_ran_out=False
    )
    assert "although no stop was requested" in (ended.error or "")
    assert not process_exit.reached_end(ended)


def test_a_new_process_has_no_proof_yet() -> None:
    progress = Progress(step=50, proof=Proof("agrees", 40, 4, 2, "loss 0.5"))
    for ended in (None, ProcessExit(2, 75, True, 50, 50, False)):
        after = process_exit.progress_after(progress, ended)
        assert (after.proof, after.step) == (None, 50)


def test_a_new_process_begins_at_what_was_saved() -> None:
    progress = Progress(step=50, loss=0.5, total_steps=100)
    ended = ProcessExit(2, 137, True, 50, 40, False)
    after = process_exit.progress_after(progress, ended)
    assert (after.step, after.loss, after.total_steps) == (40, None, 100)
    assert process_exit.progress_after(progress, replace(ended, saved_step=50)) == progress


def test_the_self_check_passes_where_everything_is_there(tmp_path: Path) -> None:
    made, folder = attempt(tmp_path)
    assert selfcheck.fault(made, folder, {"PATH": "/usr/bin:/bin:/usr/local/bin"}) is None
    assert (tmp_path / "ckpt").is_dir()


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"code": "/nowhere/code"}, "code folder /nowhere/code does not exist"),
        ({"command": ("python3", "other.py")}, "script other.py is not in the code folder"),
        ({"command": ("no-such-program",)}, "program no-such-program does not exist"),
        ({"command": ()}, "the command is empty"),
        ({"checkpoints": "/proc/nowhere"}, "checkpoint folder /proc/nowhere is not writable"),
        ({"dataset": "/nowhere/data"}, "dataset /nowhere/data does not exist"),
        (
            {"device_mode": DeviceMode.POOL, "host_devices": ("GPU-missing",)},
            "GPU GPU-missing is not visible here",
        ),
    ],
)
def test_the_self_check_names_what_is_missing_and_the_remedy(
    tmp_path: Path, change: dict[str, object], what: str
) -> None:
    made, folder = attempt(tmp_path)
    made = replace(made, **change)  # type: ignore[arg-type]
    fault = selfcheck.fault(made, folder, {"PATH": "/usr/bin:/bin:/usr/local/bin"})
    assert fault is not None
    assert what in fault
    assert ";" in fault, "the remedy follows"


def test_the_spec_of_an_attempt_is_read_strictly(tmp_path: Path) -> None:
    from reshape_sidecar import codec

    made, folder = attempt(tmp_path)
    (folder.path / "spec.json").write_text(codec.dumps(made))
    assert folder.spec() == made
    text = json.loads(codec.dumps(made)) | {"colour": "red"}
    (folder.path / "spec.json").write_text(json.dumps(text))
    with pytest.raises(codec.CodecError, match="colour"):
        folder.spec()
