"""What takes several requests: waiting, following, pages. The daemon's answers are given."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from reshape_controller.core.attempts import PAUSED
from reshape_gpu import flows, lines, requests
from reshape_gpu.errors import NotFound, TooManyRequests, Unreachable, WaitTimeout
from reshape_gpu.flows import Flow, Item, LogPart, Pause, Run
from reshape_gpu.requests import Request, Response
from reshape_gpu.values import PAUSED_FOR_ERROR, EventView, History, JobPage, JobView

GONE = Unreachable.of("no daemon answers")


def job(state: str, reason: str = "") -> JobView:
    return JobView("a-1", "a", "ada", state, "none", reason, 1, 0.0)


def event(number: int) -> EventView:
    return EventView("a-1", float(number), "kind", f"text {number}")


def carried_out(flow: Flow[Any], *answers: Any) -> tuple[Any, list[Any], list[Request[Any]]]:
    """The result of a flow whose requests get these answers in order, its items and requests."""
    run, items, asked, left = Run(flow), [], [], list(answers)
    while (step := run.next_step()) is not None:
        if isinstance(step, Request):
            asked.append(step)
            answer = left.pop(0)
            give: Callable[[Any], None] = run.answered
            if isinstance(answer, Exception):
                give = run.failed
            give(answer)
        elif isinstance(step, Item):
            items.append(step.value)
    assert left == []
    return run.result, items, asked


def log(data: bytes, following: int, *, ended: bool = False, missed: str = "0") -> Response:
    names = {"attempt": "1", "next": str(following), "size": "9", "missed": missed}
    head = {f"reshape-log-{name}": text for name, text in names.items()}
    return Response(data, {**head, "reshape-log-ended": str(ended).lower()})


def test_a_wait_survives_a_daemon_that_is_away_and_goes_on_by_the_id() -> None:
    flow = flows.wait("a", None)
    found, _, asked = carried_out(flow, job("running"), GONE, GONE, job("completed"))
    assert found.state == "completed"
    assert [request.path for request in asked] == ["/v1/jobs/a", *["/v1/jobs/a-1"] * 3]


def test_a_wait_ends_at_a_pause_for_an_error_and_not_at_one_of_a_person() -> None:
    paused = job("halted", f"{PAUSED_FOR_ERROR}exit code 1")
    found, _, _ = carried_out(flows.wait("a", None), job("halted", "ada paused it"), paused)
    assert found is paused
    assert PAUSED_FOR_ERROR == PAUSED, "the engine says it so"


def test_a_wait_that_is_over_names_the_job_and_the_time() -> None:
    times = itertools.count()
    flow = flows.wait("a", 5.0, lambda: float(next(times)))
    with pytest.raises(WaitTimeout, match="a-1 has not ended after 5 s: it is running") as error:
        carried_out(flow, job("running"), job("running"))
    assert error.value.problems[0].where == "timeout_s=5"


@pytest.mark.parametrize("timeout_s", [0.0, 5.0])
def test_a_wait_is_over_in_time_while_no_daemon_answers(timeout_s: float) -> None:
    times = itertools.count()
    flow = flows.wait("a", timeout_s, lambda: float(next(times)))
    with pytest.raises(WaitTimeout, match="no daemon answers") as error:
        carried_out(flow, *[GONE] * 500)
    assert next(times) <= timeout_s + 5
    assert error.value.problems[0].where == f"timeout_s={timeout_s:g}"


def test_a_longer_wait_ends_once_the_daemon_is_away_for_long() -> None:
    times = itertools.count()
    flow = flows.wait("a", 2 * flows.PATIENCE_S, lambda: float(next(times)))
    with pytest.raises(Unreachable):
        carried_out(flow, *[GONE] * 500)
    assert next(times) <= flows.PATIENCE_S + 5


def test_the_patience_for_a_daemon_that_is_away_is_limited() -> None:
    times = iter([0.0, 60.0, 121.0])
    flow = flows.asked(requests.job("a"), flows.PATIENCE_S, lambda: next(times))
    with pytest.raises(Unreachable):
        carried_out(flow, GONE, GONE)


def test_a_request_that_changes_state_is_sent_once() -> None:
    with pytest.raises(Unreachable):
        carried_out(flows.asked(requests.act("a", "cancel"), flows.PATIENCE_S), GONE)


def too_many(again_after_s: float) -> TooManyRequests:
    error = TooManyRequests.of("ada sends more than 50 requests a second")
    error.again_after_s = again_after_s
    return error


def test_a_user_who_asks_too_often_is_asked_to_wait_and_every_request_comes_again() -> None:
    run = Run(flows.asked(requests.act("a", "cancel"), 0.0))
    assert isinstance(run.next_step(), Request)
    run.failed(too_many(3.0))
    assert run.next_step() == Pause(3.0), "as the daemon says"
    assert isinstance(run.next_step(), Request)
    run.answered(job("cancelled"))
    assert run.next_step() is None
    assert run.result == job("cancelled")


def test_a_request_that_comes_too_often_for_a_minute_is_an_error() -> None:
    times = itertools.count()
    flow = flows.asked(requests.job("a"), 0.0, lambda: float(next(times)))
    with pytest.raises(TooManyRequests, match="more than 50"):
        carried_out(flow, *[too_many(1.0)] * 500)
    assert next(times) <= flows.SHARE_S + 5


def test_an_error_of_the_daemon_ends_a_wait() -> None:
    with pytest.raises(NotFound):
        carried_out(flows.wait("a", None), NotFound.of("no such job"))


def test_a_log_is_followed_from_offset_to_offset_until_the_job_ends() -> None:
    flow = flows.log("a", "training.log", 10, follow=True)
    answers = (job("running"), log(b"one\n", 4), GONE, log(b"", 4), log(b"two\n", 9, ended=True))
    _, parts, asked = carried_out(flow, *answers)
    assert b"".join(part.data for part in parts) == b"one\ntwo\n"
    assert [part.is_last for part in parts] == [False, False, True]
    assert asked[1].query["tail"] == 10
    assert (asked[-1].query["offset"], asked[-1].query["attempt"]) == (4, 1)
    assert asked[-1].path == "/v1/jobs/a-1/logs"


def test_a_log_that_is_not_followed_is_read_to_its_end_and_says_what_is_missing() -> None:
    flow = flows.log("a", "training.log", 10, follow=False)
    _, parts, asked = carried_out(flow, log(b"a", 4, missed="7"), log(b"b", 9, missed="unknown"))
    assert [part.missed for part in parts] == [7, None]
    assert {request.query["wait_s"] for request in asked} == {0.0}


def test_events_are_yielded_once_each_while_a_job_is_followed() -> None:
    first, more = (event(1),), (event(1), event(2), event(3))
    answers = (job("running"), History(first), job("running"), History(more))
    end = (job("completed"), History((*more, event(4))))
    _, found, _ = carried_out(flows.events("a", follow=True), *answers, *end)
    assert [each.at_s for each in found] == [1.0, 2.0, 3.0, 4.0]


def test_entries_that_a_full_answer_has_lost_do_not_hide_new_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(flows, "HISTORY_MAX", 3)
    before = tuple(map(event, (1, 2, 3)))
    assert flows.overlap(before, tuple(map(event, (2, 3, 4)))) == 2
    assert flows.overlap(before, tuple(map(event, (7, 8, 9)))) == 0
    assert flows.overlap(tuple(map(event, (1, 2))), tuple(map(event, (1, 2, 3)))) == 2


def test_all_jobs_come_page_by_page_up_to_the_limit() -> None:
    page = JobPage((job("running"),), 3, "a-1")
    last = JobPage((job("running"),), 3, None)
    found, _, asked = carried_out(flows.all_jobs("running", None, None, None), page, last)
    assert (len(found.jobs), found.total) == (2, 3)
    assert [request.query["after"] for request in asked] == [None, "a-1"]
    found, _, asked = carried_out(flows.all_jobs(None, None, None, 1), page)
    assert (len(found.jobs), asked[0].query["limit"]) == (1, 1)


def test_a_flow_pauses_between_two_looks() -> None:
    run = Run(flows.wait("a", None))
    assert isinstance(run.next_step(), Request)
    run.answered(job("running"))
    assert run.next_step() == Pause(flows.POLL_S)


def test_lines_are_joined_over_parts_and_characters_over_bytes() -> None:
    parts = (b"on", b"e\ntw\xc3", b"\xb6\n\xff", b"end")
    last = len(parts) - 1
    found = [LogPart(data, 0, number == last) for number, data in enumerate(parts)]
    assert list(lines.joined(iter(found))) == ["one", "twö", "�end"]
