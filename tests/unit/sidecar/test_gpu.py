"""GPU readings by NVML; empty without NVML."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from reshape_sidecar import gpu
from reshape_sidecar.wire import GpuUse


class NvmlError(Exception):
    pass


class Nvml:
    """Two GPUs; the second cannot say its utilisation, nor what of its memory is reserved."""

    NVMLError = NvmlError

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        return f"GPU-{index}"

    def nvmlDeviceGetUUID(self, handle: str) -> bytes:
        return handle.encode()

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        if uuid not in ("GPU-0", "GPU-1"):
            raise NvmlError
        return uuid

    nvmlMemory_v2 = 2

    def nvmlDeviceGetMemoryInfo(self, handle: str, version: int | None = None) -> Any:
        if version and handle == "GPU-1":
            raise NvmlError  # an old driver
        reserved = 0 if version else 600
        return SimpleNamespace(used=100 + reserved, total=1000)

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> Any:
        if handle == "GPU-1":
            raise NvmlError
        return SimpleNamespace(gpu=25)


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "_tried", True)
    monkeypatch.setattr(gpu, "_nvml", Nvml())


@pytest.mark.usefixtures("nvml")
def test_readings_are_what_nvml_says_and_what_it_cannot_say_is_none() -> None:
    assert gpu.visible() == ("GPU-0", "GPU-1")
    assert gpu.use(("GPU-0", "GPU-1", "GPU-9")) == (
        GpuUse("GPU-0", 100, 1000, 0.25),
        GpuUse("GPU-1", 700, 1000),
    )


class WithADeadOne(Nvml):
    """Three GPUs; the first has fallen off the bus."""

    def nvmlDeviceGetCount(self) -> int:
        return 3

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        if index == 0:
            raise NvmlError("GPU is lost")
        return super().nvmlDeviceGetHandleByIndex(index)


def test_a_gpu_that_has_died_hides_none_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "_tried", True)
    monkeypatch.setattr(gpu, "_nvml", WithADeadOne())
    assert gpu.visible() == ("GPU-1", "GPU-2")


def test_without_nvml_nothing_is_invented(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "_tried", True)
    monkeypatch.setattr(gpu, "_nvml", None)
    assert gpu.visible() == ()
    assert gpu.use(("GPU-0",)) == ()


def test_a_gpu_that_is_lost_is_unreadable_and_one_that_nvml_does_not_know_is_none_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Code(NvmlError):
        def __init__(self, value: int, text: str) -> None:
            super().__init__(text)
            self.value = value

    class Failing(Nvml):
        def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
            codes = {"GPU-1": Code(15, "GPU is lost"), "sim": Code(6, "Not Found")}
            if uuid in codes:
                raise codes[uuid]
            return uuid

    monkeypatch.setattr(gpu, "_tried", True)
    monkeypatch.setattr(gpu, "_nvml", Failing())
    assert gpu.unreadable(("GPU-0", "GPU-1", "sim")) == (("GPU-1", "GPU is lost"),)
    monkeypatch.setattr(gpu, "_nvml", None)
    assert gpu.unreadable(("GPU-0",)) == ()
