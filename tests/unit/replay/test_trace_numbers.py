"""Numbers of public traces that cannot be: each numeric column names its bad rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from reshape_controller.replay.conversion import Choices, Columns, Conversion, by_reason
from reshape_controller.replay.convert import convert
from reshape_controller.replay.trace_rows import BadRowsError
from reshape_profiles.loader import bundled

VGG = "vgg16-b64-imagenet"
GOOD = {"at": "0", "gpus": "2", "milli": "1000", "seconds": "600"}
GOOD_ITERATIONS = {"at": "0", "gpus": "2", "model": VGG, "iters": "100", "batch": "64"}
GPUS = "and must be a number of GPUs from 0 to 1000000"
ITERATIONS = r"and must be a number from 0 to 1e\+12"
SAMPLES = "and must be a whole number of samples from 1 to 1000000000"
NO_NUMBER = "and must be a number"
TIME = r"and must be seconds, at most 1e\+10"


def of_rows(folder: Path, *rows: dict[str, str], skip_bad: bool = False) -> Conversion:
    """Convert a trace with these rows; columns are those that the first row has."""
    path = folder / "t.csv"
    lines = [",".join(rows[0]), *(",".join(row.values()) for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    by_field = {"milli": "milli", "duration": "seconds", "iterations": "iters"}
    by_field |= {"batch": "batch", "model": "model", "priority": "rank"}
    named = {field: column for field, column in by_field.items() if column in rows[0]}
    return convert([path], Columns("at", "gpus", **named), bundled(), Choices(skip_bad=skip_bad))


@pytest.mark.parametrize("gpus", ["-1", "-0.5", "-1e300", "1e7", "1e308"])
def test_a_number_of_gpus_that_no_job_has_is_a_bad_row_and_not_one_without_a_gpu(
    tmp_path: Path, gpus: str
) -> None:
    with pytest.raises(BadRowsError, match=rf"t\.csv: line 3: gpus is '{gpus}', {GPUS}"):
        of_rows(tmp_path, GOOD, GOOD | {"gpus": gpus})
    found = of_rows(tmp_path, GOOD, GOOD | {"gpus": gpus}, skip_bad=True)
    assert (len(found.jobs), found.left_out, found.bad.count) == (1, (), 1)


@pytest.mark.parametrize(
    ("column", "value", "what"),
    [
        *(("at", value, TIME) for value in ("inf", "-inf", "1e11", "-1e11", "1e308")),
        *(("gpus", value, NO_NUMBER) for value in ("inf", "-inf", "1e999", "-", "two")),
        *(("milli", value, "and must be thousandths") for value in ("-1", "1001", "1e308")),
        *(("milli", value, NO_NUMBER) for value in ("inf", "half")),
        ("seconds", "-1", "times run backwards"),
        ("seconds", "-1e308", "times run backwards"),
        *(("seconds", value, NO_NUMBER) for value in ("inf", "-inf", "1e999", "long")),
        *(("seconds", value, r"must be at most 1e\+10 seconds") for value in ("1e11", "1e308")),
        *(("rank", value, "and must be a whole number") for value in ("0.5", "1e308", "-1e7")),
        *(("rank", value, NO_NUMBER) for value in ("inf", "high")),
        *(("iters", value, ITERATIONS) for value in ("-1", "1e13", "1e308")),
        *(("iters", value, NO_NUMBER) for value in ("inf", "-inf", "1e999")),
        *(("batch", value, SAMPLES) for value in ("", "nan", "0", "-64", "1.5", "1e10", "1e308")),
        *(("batch", value, NO_NUMBER) for value in ("inf", "many")),
    ],
)
def test_a_value_that_a_numeric_column_cannot_have_is_named_by_line_and_reason(
    tmp_path: Path, column: str, value: str, what: str
) -> None:
    good = GOOD_ITERATIONS if column in ("iters", "batch") else GOOD | {"rank": "0"}
    with pytest.raises(BadRowsError, match=rf"t\.csv: line 3: {column} is .*{what}") as bad:
        of_rows(tmp_path, good, good | {column: value})
    assert bad.value.bad.count == 1


@pytest.mark.parametrize("missing", ["", "NaN", "nan", "-nan", "null", "None"])
@pytest.mark.parametrize(
    ("column", "reason"),
    [
        ("at", "without a submission"),
        ("gpus", "without a GPU"),
        ("seconds", "without a length"),
        ("iters", "without a length"),
    ],
)
def test_a_missing_number_is_a_row_left_out_and_never_a_bad_one(
    tmp_path: Path, column: str, reason: str, missing: str
) -> None:
    good = GOOD_ITERATIONS if column == "iters" else GOOD
    found = of_rows(tmp_path, good, good | {column: missing})
    assert [(text, count) for text, count, _ in by_reason(found.left_out)] == [(reason, 1)]


@pytest.mark.parametrize("zero", ["0", "0.0", "-0", "0e5"])
@pytest.mark.parametrize(
    ("column", "reason"),
    [
        ("gpus", "without a GPU"),
        ("milli", "without a GPU"),
        ("seconds", "without a length"),
        ("iters", "without a length"),
    ],
)
def test_zero_is_nothing_and_no_mistake(
    tmp_path: Path, column: str, reason: str, zero: str
) -> None:
    good = GOOD_ITERATIONS if column == "iters" else GOOD
    found = of_rows(tmp_path, good, good | {column: zero})
    assert [(text, count) for text, count, _ in by_reason(found.left_out)] == [(reason, 1)]


def test_a_missing_priority_is_none_and_a_missing_part_a_whole_gpu(tmp_path: Path) -> None:
    good = GOOD | {"rank": "5"}
    found = of_rows(tmp_path, good, good | {"rank": "NaN", "milli": "-nan"})
    assert sorted(job.priority for job in found.jobs) == [0, 5]
    assert not found.left_out
