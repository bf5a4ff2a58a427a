"""Which GPUs a daemon may give: real ones as NVML shows them, simulated ones only on request."""

from __future__ import annotations

import pytest

from reshape_controller.cli.exits import CliError, Exit
from reshape_controller.cli.serve.devices import Devices, clash, find
from reshape_launcher.spec import DeviceMode
from reshape_sidecar import gpu

UUIDS = ("GPU-aaaa", "GPU-bbbb", "GPU-cccc")


@pytest.fixture
def three_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "visible", lambda: UUIDS)


@pytest.mark.usefixtures("three_gpus")
def test_real_gpus_are_taken_as_nvml_shows_them() -> None:
    assert find(None, None, "h200") == Devices(DeviceMode.POOL, "h200", UUIDS)
    assert find(None, 2, "h200").gpus == UUIDS[:2]


@pytest.mark.usefixtures("three_gpus")
def test_more_gpus_than_there_are_is_refused() -> None:
    with pytest.raises(CliError, match="has 3") as refused:
        find(None, 4, None)
    assert refused.value.code is Exit.USAGE


@pytest.mark.usefixtures("three_gpus")
def test_simulated_gpus_are_taken_when_asked_for_even_beside_real_ones() -> None:
    found = find(2, None, None)
    assert (found.mode, found.gpu_type, found.gpus) == (
        DeviceMode.SIMULATED,
        "simulated",
        ("sim-0", "sim-1"),
    )


def test_a_machine_without_gpu_gets_none_invented(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "visible", lambda: ())
    with pytest.raises(CliError, match="no GPU found") as refused:
        find(None, None, None)
    assert "--simulated-gpus 4" in refused.value.text()


def test_a_home_keeps_the_kind_of_gpus_that_it_has() -> None:
    real, simulated = (
        Devices(DeviceMode.POOL, "h200", UUIDS),
        Devices(DeviceMode.SIMULATED, "simulated", ("sim-0",)),
    )
    assert clash(real, ("sim-0",)) == "simulated"
    assert clash(simulated, UUIDS) == "real"
    assert clash(real, ()) == clash(real, UUIDS[:1]) == clash(simulated, ("sim-0", "sim-1")) == ""


def test_each_host_of_this_machine_has_as_many_simulated_gpus_with_names_of_their_own() -> None:
    found = find(2, None, None, 3)
    assert found.by_host == {
        "local": ("sim-0", "sim-1"),
        "local-1": ("sim-local-1-0", "sim-local-1-1"),
        "local-2": ("sim-local-2-0", "sim-local-2-1"),
    }
    assert found.text == "6 simulated GPUs on 3 hosts"
    assert find(2, None, None).by_host == {"local": ("sim-0", "sim-1")}
    assert find(2, None, None).text == "2 simulated GPUs"


@pytest.mark.usefixtures("three_gpus")
def test_the_hosts_of_this_machine_divide_its_gpus() -> None:
    assert find(None, None, "h200", 3).by_host == {
        "local": UUIDS[:1],
        "local-1": UUIDS[1:2],
        "local-2": UUIDS[2:],
    }
    assert find(None, 1, "h200", 2).by_host == {"local": UUIDS[:1], "local-1": UUIDS[1:2]}


@pytest.mark.parametrize(
    ("most", "hosts", "words"),
    [
        (None, 2, ("3 GPUs cannot be divided among 2 hosts", "--gpus 1")),
        (None, 4, ("--hosts asks for 4 hosts; this machine has 3 GPUs", "give at most 3")),
        (2, 2, ("--gpus asks for 2 GPUs on each of 2 hosts", "has 3", "give at most 1")),
    ],
    ids=["not divisible", "too many hosts", "too many GPUs"],
)
@pytest.mark.usefixtures("three_gpus")
def test_hosts_that_cannot_have_their_gpus_are_refused(
    most: int | None, hosts: int, words: tuple[str, ...]
) -> None:
    with pytest.raises(CliError) as refused:
        find(None, most, None, hosts)
    assert refused.value.code is Exit.USAGE
    assert all(each in refused.value.text() for each in words)
