"""The example job records are accepted as they are, and reach the scripts that they name."""

from __future__ import annotations

from pathlib import Path

import pytest

from reshape_controller.records import from_yaml

JOBS = Path(__file__).resolve().parents[2] / "examples" / "jobs"
RECORDS = sorted(JOBS.glob("*.yaml"))


def test_there_are_example_records() -> None:
    assert {path.stem for path in RECORDS} >= {"smallest", "elastic", "newcomer", "careful"}


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_an_example_record_is_accepted_and_its_script_is_there(path: Path) -> None:
    spec = from_yaml(path.read_text(), folder=path.parent)
    assert spec.name == path.stem, "a record is found by its file's name"
    assert spec.code is not None
    scripts = [word for word in spec.command if word.endswith(".py")]
    assert scripts
    assert (Path(spec.code) / scripts[0]).is_file()


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_an_example_record_says_at_its_top_what_it_shows(path: Path) -> None:
    assert path.read_text().startswith("# ")


def test_the_newcomer_fits_beside_the_elastic_job_on_four_gpus() -> None:
    """Else the walk through the documents would show a queue and no hand-over."""
    elastic, newcomer = (
        from_yaml((JOBS / f"{name}.yaml").read_text(), folder=JOBS)
        for name in ("elastic", "newcomer")
    )
    sizes = {(a, b) for a in elastic.optional_gpus for b in newcomer.optional_gpus}
    assert (4, 2) in sizes, "together they want more than there is"
    assert any(a + b == 4 for a, b in sizes), "and both can train at once"
