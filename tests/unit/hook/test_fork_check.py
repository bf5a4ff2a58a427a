"""What keeps a process from being forked, with frameworks of a few lines."""

from __future__ import annotations

import os
import sys
import threading
from types import SimpleNamespace

import pytest

from reshape_sidecar.hook import fork_check


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """The threads and descriptors of the tests' own process do not count."""
    monkeypatch.setattr(fork_check, "count_threads", lambda: 1)
    monkeypatch.setattr(fork_check, "open_files", lambda: ["/dev/null"])


def torch(initialised: bool = False, counted: int | None = None, bad: bool = False) -> object:
    return SimpleNamespace(
        cuda=SimpleNamespace(
            is_initialized=lambda: initialised,
            _cached_device_count=counted,
            _is_in_bad_fork=lambda: bad,
        )
    )


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (torch(), None),
        (torch(initialised=True), "the import of PyTorch has initialised CUDA"),
        (torch(counted=0), "the import of PyTorch has counted the GPUs"),
        (torch(bad=True), "the import of the framework has called CUDA"),
        (
            SimpleNamespace(cuda=SimpleNamespace()),
            "this PyTorch does not say whether it has called CUDA",
        ),
    ],
)
def test_pytorch_can_be_forked_before_its_first_call_of_cuda(
    monkeypatch: pytest.MonkeyPatch, module: object, reason: str | None
) -> None:
    monkeypatch.setitem(sys.modules, "torch", module)
    assert fork_check.pytorch() == reason


@pytest.mark.usefixtures("quiet")
def test_an_open_gpu_and_a_thread_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", torch())
    monkeypatch.setattr(fork_check, "count_threads", lambda: 3)
    assert fork_check.pytorch() == "the import of the framework has started 2 threads"
    monkeypatch.setattr(fork_check, "open_files", lambda: ["/dev/nvidiactl"])
    assert fork_check.pytorch() == "the import of the framework has opened /dev/nvidiactl"


def test_the_threads_and_open_files_are_those_of_this_process() -> None:
    wait = threading.Event()
    thread = threading.Thread(target=wait.wait)
    thread.start()
    reader, writer = os.pipe()
    try:
        assert fork_check.count_threads() >= 2
        assert any(name.startswith("pipe:") for name in fork_check.open_files())
    finally:
        wait.set()
        thread.join()
        os.close(reader)
        os.close(writer)
