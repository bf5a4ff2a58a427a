"""Settings that exist for simulated GPUs only."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from reshape_controller.cli.exits import CliError, Exit
from reshape_controller.cli.serve import up
from reshape_gpu.config import Config, load
from reshape_profiles.loader import bundled


def test_container_costs_are_those_of_a_bundled_set_at_a_scale() -> None:
    config = load({"simulated_gpus": 4, "container_costs": "paper:0.1"}, {})
    found = up.container_costs(config)
    overhead = bundled().with_costs("paper").overhead
    assert found is not None
    assert overhead is not None
    assert found.label == "assumed:paper:0.1"
    assert found.start_s == pytest.approx(overhead.job_init_s / 10)
    assert found.stop_s == pytest.approx(overhead.job_stop_s / 10)


def test_without_the_settings_nothing_is_declared_and_nothing_paced() -> None:
    config = load({"simulated_gpus": 4}, {})
    assert up.container_costs(config) is None
    assert up.truth_file(config) is None


@pytest.mark.parametrize("text", ["nobody", "paper:0", "paper:2", "paper:x", "paper:nan"])
def test_costs_that_cannot_be_are_refused_with_the_flag_and_a_remedy(text: str) -> None:
    with pytest.raises(CliError) as caught:
        up.container_costs(load({"simulated_gpus": 4, "container_costs": text}, {}))
    assert caught.value.code is Exit.USAGE
    assert "flag --container-costs" in caught.value.text()
    assert "remedy" in caught.value.text()


@pytest.mark.parametrize(
    ("name", "check"),
    [
        ("container_costs", up.container_costs),
        ("device_truth", up.truth_file),
    ],
)
def test_real_gpus_are_neither_paced_nor_slowed(
    name: str, check: Callable[[Config], object]
) -> None:
    with pytest.raises(CliError, match="simulated GPUs"):
        check(load({name: "paper:0.1"}, {}))
