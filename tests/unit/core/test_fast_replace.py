"""Changed copies are what the standard library's are, and nothing else."""

from __future__ import annotations

import dataclasses

import pytest

from reshape_controller.core.fast_replace import replace
from reshape_controller.core.model import Gpu, GpuId, GpuState, HandOver, HostId, JobId

GPU = Gpu(GpuId("gpu-0"), HostId("host-a"), 0)


def test_a_changed_copy_is_that_of_the_standard_library() -> None:
    changed = replace(GPU, state=GpuState.IN_USE, owner=JobId("a"))
    assert changed == dataclasses.replace(GPU, state=GpuState.IN_USE, owner=JobId("a"))
    assert GPU.owner is None


def test_a_value_with_slots_is_copied_as_well() -> None:
    assert replace(HandOver((GPU.id,)), shrink_asked=True) == HandOver((GPU.id,), (), True)


def test_a_field_that_a_value_does_not_have_is_refused() -> None:
    with pytest.raises(TypeError, match="Gpu has no field ownr"):
        replace(GPU, ownr=JobId("a"))  # type: ignore[call-arg]


def test_a_copy_is_as_frozen_as_what_it_was_made_of() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        replace(GPU, index=1).index = 2  # type: ignore[misc]
