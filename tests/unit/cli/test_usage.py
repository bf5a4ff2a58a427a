"""The command usage: times, prices, the table and CSV."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from reshape_controller.cli.exits import CliError, Exit
from reshape_controller.cli.jobs import usage as module
from reshape_controller.cli.output import SafeConsole
from reshape_gpu.client import Client
from reshape_gpu.config import load
from reshape_gpu.target import Target
from reshape_gpu.usage import Usage, UsageRow

HOUR = 3600.0
ROWS = (
    UsageRow("", "H100", free_gpu_s=100 * HOUR, quarantined_gpu_s=3 * HOUR, silent_gpu_s=HOUR),
    UsageRow("=ada", "H100", 9 * HOUR, 0.5 * HOUR, 0.25 * HOUR, 0.25 * HOUR, 10 * HOUR),
    UsageRow("grace", "A100", 2 * HOUR, held_gpu_s=2 * HOUR),
)
FOUND = Usage(0.0, 86400.0, "user", ROWS, 116 * HOUR)


def drawn(found: Usage, prices: dict[str, float], columns: int = 120) -> str:
    out = SafeConsole(file=io.StringIO(), width=columns, highlight=False)
    with out.capture() as captured:
        out.print(module.table_of(found, prices))
    return captured.get()


def test_the_table_has_a_row_for_each_user_and_the_rest_below_it() -> None:
    lines = drawn(FOUND, {"H100": 2.5}).splitlines()
    assert lines[0].split() == [
        *("USER", "GPU", "TYPE", "TRAINED", "STARTING", "SAVING", "WAITING", "HELD", "COST")
    ]
    figures = ("9.000", "0.500", "0.250", "0.250", "10.0", "25.00")
    assert lines[1].split() == ["=ada", "H100", *figures]
    assert lines[2].split()[-1] == "-", "a GPU type without a price has no cost"
    text = " ".join(" ".join(lines[4:]).split())
    assert "116.0 in all, of which jobs held 12.0" in text
    assert "free 100.0, quarantined 3.000, host silent 1.000" in text


def test_time_that_was_repeated_is_said_below_the_table() -> None:
    lost = UsageRow("ada", "H100", 9 * HOUR, held_gpu_s=9 * HOUR, repeated_gpu_s=HOUR)
    text = " ".join(drawn(Usage(0.0, 1.0, "user", (lost,), 9 * HOUR, 40), {}).split())
    assert "lost 40 steps, and 1.000 of the GPU-hours trained were repeated." in text
    assert "repeated" not in drawn(FOUND, {})


def test_without_prices_there_is_no_cost() -> None:
    assert "COST" not in drawn(FOUND, {})


def test_csv_has_every_row_in_gpu_seconds_and_no_formula() -> None:
    rows = list(csv.DictReader(io.StringIO(module.csv_of(FOUND, {"H100": 2.5}))))
    assert [row["user"] for row in rows] == ["", "'=ada", "grace"]
    assert rows[0]["free_gpu_s"] == "360000.000"
    assert (rows[1]["trained_gpu_s"], rows[1]["cost"]) == ("32400.000", "25.0000")
    assert rows[2]["cost"] == ""


@pytest.mark.parametrize("text", ["H100", "H100=", "=2", "H100=-1", "H100=nan", "H100=inf"])
def test_a_wrong_price_is_named_with_its_source(tmp_path: Path, text: str) -> None:
    config = load({"prices": text}, {"XDG_CONFIG_HOME": str(tmp_path)})
    with pytest.raises(CliError) as refused:
        module.prices_of(config)
    assert refused.value.code is Exit.USAGE
    assert text in refused.value.text()
    assert "flag --prices" in refused.value.text()


def test_prices_are_read_by_type(tmp_path: Path) -> None:
    config = load({"prices": "H100=2.5, A 100=1"}, {"XDG_CONFIG_HOME": str(tmp_path)})
    assert module.prices_of(config) == {"H100": 2.5, "A 100": 1.0}


def test_a_time_is_a_date_a_time_of_day_or_a_span(monkeypatch: pytest.MonkeyPatch) -> None:
    daemon = Client.at(Target("http://127.0.0.1:1", "token", "", ""))
    daemon.now_s = 1_000_000.0
    monkeypatch.setattr(Client, "ask", lambda *_: None)
    assert module._time("1970-01-02", "--from", daemon) == 86400.0
    assert module._time("1970-01-01 00:01", "--from", daemon) == 60.0
    assert module._time("2h", "--from", daemon) == 1_000_000.0 - 7200
    with pytest.raises(CliError, match="'soon' is not a time"):
        module._time("soon", "--to", daemon)
