"""The demo's summary and tables: structure, spread, labels, and what CI asks of them."""

from __future__ import annotations

import importlib.util
import io
import json
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
from rich.console import Console

from tests.support.demo_bed import ROOT, in_place, relaunched
from tests.support.json_schema import problems

# isort: split
from observed import Process, Run
from summary import summarize
from tables import comparison, is_kept, kept, order

SAID = {"set": "paper", "container_start_s": 8.3, "container_stop_s": 9.0}


def named(run: Run, preset: str) -> Run:
    return replace(run, preset=preset)


def runs() -> dict[str, list[Run]]:
    return {
        "default": [named(in_place(), "default")],
        "case-study-termination": [relaunched()],
        "termination": [named(relaunched(), "termination")],
        "adaptive": [in_place()],
    }


def slower(run: Run) -> Run:
    """The same run, its last job ten seconds later."""
    first, second = run.jobs
    assert first.finished_at_s is not None
    return replace(run, jobs=(replace(first, finished_at_s=first.finished_at_s + 10), second))


@pytest.fixture(scope="module")
def check_demo() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_demo", ROOT / ".ci" / "check_demo.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def shown(drawn: object, columns: int) -> str:
    file = io.StringIO()
    Console(file=file, width=columns, color_system=None).print(drawn)
    text = file.getvalue()
    assert all(len(line) <= columns for line in text.splitlines())
    return text


def test_ci_accepts_the_summary_of_four_good_presets(check_demo: ModuleType) -> None:
    assert check_demo.problems_of(summarize({"measured": runs()}, {})) == []


def test_ci_names_everything_that_is_wrong(check_demo: ModuleType) -> None:
    every = runs()
    del every["termination"]
    first, second = in_place().jobs
    lost = replace(in_place(), jobs=(replace(first, steps_lost=3), second))
    late = replace(lost, processes=(Process("job-1-id", 1, 1, 90),))
    every["adaptive"] = [late]
    summary = summarize({"measured": every}, {})
    text = "\n".join(check_demo.problems_of(summary))
    assert "no figures of termination" in text
    assert "steps_lost is 3" in text
    assert "not kept: no_step_was_lost" in text
    assert "93 steps came late" in check_demo.late_of(summary)
    assert "late" not in text
    assert check_demo.problems_of({}) != []
    assert check_demo.problems_of({"costs": {"measured": {"presets": {}}}}) != []


def test_assumed_costs_are_in_the_summary_only_when_they_were_run() -> None:
    alone = summarize({"measured": runs()}, {})
    both = summarize({"measured": runs(), "assumed": runs()}, {"assumed": SAID})
    assert set(alone["costs"]) == {"measured"}
    assert set(both["costs"]) == {"measured", "assumed"}
    assert both["costs"]["assumed"]["set"] == "paper"
    assert set(both["costs"]["measured"]) == {"presets"}
    assert alone["paced"] is True


def test_the_summary_is_what_its_published_schema_says() -> None:
    schema = json.loads((ROOT / "examples" / "demo" / "summary.schema.json").read_text())
    said = {**SAID, "scale": 0.1, "source": "x"}
    both = summarize({"measured": runs(), "assumed": runs()}, {"assumed": said})
    assert problems(json.loads(json.dumps(both)), schema, schema) == []
    both["costs"]["measured"]["presets"]["adaptive"]["makespan"] = 3
    del both["paced"]
    assert len(problems(both, schema, schema)) == 2


def test_repeats_give_the_mean_and_the_spread() -> None:
    found = summarize({"measured": {"adaptive": [in_place(), slower(in_place())]}}, {})
    figures = found["costs"]["measured"]["presets"]["adaptive"]
    assert figures["makespan_s"] == 85.0
    assert figures["spread"]["makespan_s"] == [80.0, 90.0]
    assert figures["steps_lost"] == 0
    assert len(figures["runs"]) == found["repeats"] == 2


def test_one_late_run_makes_the_whole_summary_invalid() -> None:
    late = replace(in_place(), processes=(Process("job-1-id", 1, 1, 11),))
    found = summarize({"measured": {"adaptive": [in_place(), late]}}, {})
    assert found["late_steps"] == 14
    assert found["valid"] is False


def test_the_phases_of_a_reshape_are_the_mean_of_one_and_add_up_to_it() -> None:
    figures = summarize({"measured": runs()}, {})["costs"]["measured"]["presets"]
    for name in ("adaptive", "case-study-termination"):
        phases: dict[str, float] = figures[name]["reshape_down_phases_s"]
        assert sum(phases.values()) == pytest.approx(figures[name]["reshape_down_s"])
    assert figures["case-study-termination"]["reshape_down_phases_s"]["container_stop_s"] == 2.0


@pytest.mark.parametrize("columns", [60, 100])
def test_the_table_fits_and_nothing_of_it_is_cut(columns: int) -> None:
    found = summarize({"measured": runs(), "assumed": runs()}, {"assumed": SAID})
    measured = shown(comparison("measured", found["costs"]["measured"]), columns)
    assumed = shown(comparison("assumed", found["costs"]["assumed"]), columns)
    assert "…" not in measured + assumed
    assert measured.startswith("Measured costs")
    for row in ("makespan", "mean completion", "container stop", "idle GPU-seconds"):
        assert row in measured
    for column in ("default", "adaptive", "termination"):
        assert column in measured
    flat = " ".join(assumed.split())
    assert "Assumed costs (paper): a container takes 8.3 s more to start and 9 s more" in flat


def test_a_phase_that_no_preset_has_gets_no_row() -> None:
    found = summarize({"measured": {"adaptive": [in_place()]}}, {})
    assert "container stop" not in shown(comparison("measured", found["costs"]["measured"]), 100)


def test_the_spread_is_shown_where_there_were_repeats() -> None:
    found = summarize({"measured": {"adaptive": [in_place(), slower(in_place())]}}, {})
    assert "80.0–90.0" in shown(comparison("measured", found["costs"]["measured"]), 100)


def test_the_order_says_where_repeats_overlap() -> None:
    """80 to 90 s against 80 to 80 s overlap; against 100 to 100 s they do not."""
    late = slower(slower(in_place()))
    found = summarize(
        {
            "measured": {
                "default": [named(late, "default")] * 2,
                "termination": [named(in_place(), "termination")] * 2,
                "adaptive": [in_place(), slower(in_place())],
            }
        },
        {},
    )
    text = shown(order(found["costs"]["measured"]), 100)
    assert "makespan: termination ≈ adaptive < default" in text


def test_one_run_of_each_preset_claims_no_order() -> None:
    text = shown(order(summarize({"measured": runs()}, {})["costs"]["measured"]), 100)
    assert "REPEATS=3" in text
    assert "<" not in text


def test_each_promise_is_shown_with_whether_it_held() -> None:
    good = summarize({"measured": runs()}, {})
    first, second = in_place().jobs
    lost = replace(in_place(), jobs=(replace(first, steps_lost=3), second))
    bad: dict[str, Any] = summarize({"measured": {**runs(), "adaptive": [lost]}}, {})
    assert is_kept(good)
    assert not is_kept(bad)
    line = next(text for text in shown(kept(bad), 60).splitlines() if "no step was lost" in text)
    assert line.split()[-1] == "NO"
    assert "NO" not in shown(kept(good), 60)
