"""The run on a GPU machine: which wheels go along, and what its report says."""

from __future__ import annotations

import os
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pynvml
import pytest

from tests.support.gpu_bed import ROOT, RUN, load

# isort: split
from gpu import contexts, packages
from gpu.report import Check, Outcome, Report, Result, read_result, text, write_result
from gpu.step import Step

RESULT = Result("contexts", "6 two processes on one GPU", Outcome.PASSED, took_s=3.0)


def report(*results: Result) -> Report:
    return Report("2026-01-01", "", {"GPU": "NVIDIA H100"}, results)


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the wheels are for x86-64")
@pytest.mark.parametrize(
    ("name", "minors"),
    [
        ("rich-15.0.0-py3-none-any.whl", {11, 12, 13}),
        ("shellingham-1.5.4-py2.py3-none-any.whl", {11, 12, 13}),
        ("pyyaml-6.0.3-cp312-cp312-manylinux2014_x86_64.manylinux_2_17_x86_64.whl", {12}),
        ("tornado-6.6.1-cp312-abi3-manylinux_2_17_x86_64.whl", {12, 13}),
        ("pyyaml-6.0.3-cp312-cp312-manylinux_2_17_aarch64.whl", set()),
    ],
)
def test_a_wheel_is_for_the_pythons_that_its_name_says(name: str, minors: set[int]) -> None:
    assert {minor for minor in (11, 12, 13) if packages.fits(name, minor)} == minors


def test_a_bundle_that_lacks_a_package_for_this_python_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "rich-15.0.0-py3-none-any.whl").touch()
    assert packages.covers(tmp_path)
    (tmp_path / "pyyaml-6.0.3-cp39-cp39-manylinux_2_17_x86_64.whl").touch()
    assert not packages.covers(tmp_path)


def test_the_bundle_has_what_the_daemon_needs_without_the_large_ones() -> None:
    lock = packages.LOCK.read_text()
    names = {line.partition("==")[0] for line in lock.splitlines() if "==" in line}
    pins = packages.requirements(lock)
    left = {line.partition("==")[0] for line in pins.splitlines() if "==" in line}
    assert names - left == {"numpy", "scipy"}
    hashes = [line for line in lock.splitlines() if "--hash" in line]
    assert 0 < pins.count("--hash") < len(hashes)
    assert packages.missing() == [], "what it looks for is what this environment has"


def test_a_run_is_good_if_each_step_passed_or_was_refused_by_the_machine() -> None:
    refused = replace(RESULT, outcome=Outcome.REFUSED, reason="MIG is on")
    assert report(RESULT, refused).good
    for bad in (Outcome.FAILED, Outcome.TIMED_OUT, Outcome.NOT_RUN):
        assert not report(RESULT, replace(RESULT, outcome=bad)).good


def test_the_text_shows_each_check_and_each_figure() -> None:
    rows = [{"save_s": 0.25, "import_s": None}, {"save_s": 0.5, "import_s": 3.0}]
    checks = (Check("no grant before the memory was free", False, "901 MiB"),)
    shown = text(report(replace(RESULT, checks=checks, facts={"there": rows, "repeats": 2})))
    assert "BAD no grant before the memory was free (901 MiB)" in shown
    assert "      save_s                         0.250     0.500" in shown
    assert "      import_s                           -     3.000" in shown
    assert "    repeats: 2" in shown
    assert shown.endswith("1 passed\n")


def test_a_step_that_left_no_result_says_so_and_one_that_did_is_read_back(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    known = replace(RESULT, outcome=Outcome.NOT_RUN)
    missing = read_result(file, known)
    assert (missing.outcome, missing.reason[:19]) == (Outcome.NOT_RUN, "it left no result: ")
    full = replace(RESULT, checks=(Check("a", True),), facts={"a": 1}, ran_on=("GPU",))
    write_result(file, full)
    assert asdict(read_result(file, known)) == asdict(full)


def test_the_documents_have_a_row_for_each_step() -> None:
    page = (ROOT / "docs" / "gpus.md").read_text()
    for number, task in enumerate(load().TASKS, start=1):
        assert task.title.startswith(f"{number} ")
        assert f"\n| {number} | " in page
        assert (RUN / f"{task.name}.py").is_file()


@pytest.mark.parametrize("name", ["NVMLError_FunctionNotFound", "NVMLLibraryMismatchError"])
def test_a_driver_without_a_list_of_processes_ends_no_step(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def lacks(_handle: object) -> None:
        raise getattr(pynvml, name)("the driver is older")

    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByUUID", lambda uuid: uuid)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetComputeRunningProcesses", lacks)
    step = SimpleNamespace(uuid="GPU-1")
    assert list(contexts._by_process(cast(Step, step), (1, 2))) == ["not said"]
