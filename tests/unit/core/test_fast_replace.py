"""Changed copies are what the standard library's are, and nothing else."""

from __future__ import annotations

import dataclasses

import pytest

from reshape_controller.core.fast_replace import fast_init, replace
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


@fast_init
@dataclasses.dataclass(frozen=True, slots=True)
class Pair:
    left: int
    right: int = 2


def test_a_fast_constructor_takes_what_the_usual_one_takes() -> None:
    assert Pair(1) == Pair(1, 2) == Pair(left=1) == Pair(right=2, left=1)
    assert dataclasses.replace(Pair(1), right=3) == Pair(1, 3)
    for wrong in ((), (1, 2, 3)):
        with pytest.raises(TypeError, match=r"__init__\(\)"):
            Pair(*wrong)


def test_a_value_of_a_fast_constructor_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Pair(1).left = 2  # type: ignore[misc]


def test_a_constructor_that_does_more_than_set_fields_is_not_replaced() -> None:
    @dataclasses.dataclass(frozen=True, slots=True)
    class WithFactory:
        found: list[int] = dataclasses.field(default_factory=list)

    @dataclasses.dataclass(frozen=True, slots=True)
    class WithCheck:
        found: int

        def __post_init__(self) -> None:
            assert self.found

    for cls in (WithFactory, WithCheck):
        with pytest.raises(TypeError, match=f"{cls.__name__} does more than set its fields"):
            fast_init(cls)
