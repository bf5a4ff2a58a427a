"""A number of GPUs that no known host has is refused; a host that is away counts as known."""

from __future__ import annotations

from reshape_controller.core.model import GpuId, Host, HostId, JobSpec, Spans
from reshape_controller.records import check_against_hosts


def host(name: str, gpus: int, *, drained: bool = False, present: bool = True) -> Host:
    ids = tuple(GpuId(f"{name}-{n}") for n in range(gpus))
    return Host(HostId(name), "V100", ids, drained, present)


def job(*sizes: int) -> JobSpec:
    return JobSpec("a", ("x",), sizes)


def test_a_number_larger_than_every_known_host_is_an_error_that_names_the_largest() -> None:
    (error,) = check_against_hosts(job(1, 2, 16), [host("small", 2), host("large", 8)])
    assert error.path == "optional_gpus[2]"
    assert error.message == "16 GPUs are more than any known host has (large has 8)"
    assert "leave out sizes above 8" in error.hint


def test_every_number_that_fits_nowhere_is_named() -> None:
    found = check_against_hosts(job(4, 8), [host("small", 2)])
    assert [error.path for error in found] == ["optional_gpus[0]", "optional_gpus[1]"]
    assert "give at most 2 GPUs" in found[0].hint


def test_while_no_host_is_known_nothing_is_refused() -> None:
    assert check_against_hosts(job(1, 1024), ()) == ()


def test_a_fitting_host_that_is_drained_or_silent_is_waited_for() -> None:
    small = host("small", 1)
    assert check_against_hosts(job(4), [small, host("large", 4, drained=True)]) == ()
    assert check_against_hosts(job(4), [small, host("large", 4, present=False)]) == ()


def test_gpus_of_several_hosts_do_not_add_up() -> None:
    assert len(check_against_hosts(job(4), [host("one", 2), host("two", 2)])) == 1


def test_a_job_that_may_span_needs_room_for_whole_workers_on_hosts_of_one_type() -> None:
    spec = JobSpec("a", ("x",), (4, 8, 12), workers=2, span=Spans.ANY)
    (error,) = check_against_hosts(spec, [host("one", 4), host("two", 4), host("small", 2)])
    assert error.path == "optional_gpus[2]"
    assert "12 GPUs are 2 workers with 6 GPUs each" in error.message
    assert "the known hosts of one GPU type hold 0" in error.message
    assert "give more workers" in error.hint
