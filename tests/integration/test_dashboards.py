"""The alerts and dashboards that operators import: Prometheus' checker, and a real scrape."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.support import promtool
from tests.support.daemon_bed import Bed, eventually
from tests.support.daemon_bed import bed as make_bed
from tests.support.requirement import missing

ROOT = Path(__file__).resolve().parents[2]
ALERTS = ROOT / "deploy" / "alerts.yml"
CASES = Path(__file__).with_name("alerts_test.yml")
DASHBOARDS = sorted((ROOT / "deploy" / "grafana").glob("*.json"))
COLUMNS = 24
METRIC = re.compile(r"\b(?:reshape|process)_[a-z_]+\b")


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    yield from make_bed(tmp_path)


def rules() -> list[dict[str, Any]]:
    return [
        rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]
    ]


def dashboard(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def expressions(document: dict[str, Any]) -> list[str]:
    """The queries of a dashboard, with a value for Grafana's own variable."""
    queries = [target["expr"] for panel in document["panels"] for target in panel["targets"]]
    return [query.replace("$__rate_interval", "5m") for query in queries]


def promtool_says(*words: str) -> None:
    """Run the checker; it must agree. Where it cannot be had, CI fails and others skip."""
    try:
        program = promtool.program()
    except RuntimeError as error:
        missing(str(error))
    done = subprocess.run([program, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_takes_the_alerts_and_their_cases_hold() -> None:
    promtool_says("check", "rules", str(ALERTS))
    promtool_says("test", "rules", str(CASES))


def test_each_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    fires: dict[str, set[bool]] = {}
    for case in yaml.safe_load(CASES.read_text())["tests"]:
        for check in case["alert_rule_test"]:
            fires.setdefault(check["alertname"], set()).add(bool(check["exp_alerts"]))
    assert fires == {rule["alert"]: {True, False} for rule in rules()}


def test_each_alert_says_what_happened_and_the_operators_document_names_it() -> None:
    text = (ROOT / "docs" / "operations.md").read_text()
    for rule in rules():
        assert set(rule["annotations"]) == {"summary", "description"}, rule["alert"]
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert f"| `{rule['alert']}` |" in text, rule["alert"]


def test_promtool_can_read_every_query_of_every_dashboard(tmp_path: Path) -> None:
    assert len(DASHBOARDS) == 3
    queries = [query for path in DASHBOARDS for query in expressions(dashboard(path))]
    records = [{"record": f"panel:{n}", "expr": query} for n, query in enumerate(queries)]
    file = tmp_path / "queries.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "all", "rules": records}]}))
    promtool_says("check", "rules", "--lint=none", str(file))


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_a_dashboard_can_be_imported_as_it_is(path: Path) -> None:
    document = dashboard(path)
    assert document["uid"] == path.stem
    assert document["title"].startswith("Reshape: ")
    assert document["schemaVersion"] >= 36
    assert "id" not in document, "Grafana gives the id"
    (variable,) = document["templating"]["list"]
    assert (variable["name"], variable["type"]) == ("datasource", "datasource")
    panels = document["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len({panel["title"] for panel in panels}) == len(panels)
    for panel in panels:
        assert panel["title"], panel["id"]
        assert panel["description"], panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        names = [target["refId"] for target in panel["targets"]]
        assert len(set(names)) == len(names) > 0, panel["title"]
        for source in (panel, *panel["targets"]):
            assert source["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        place = panel["gridPos"]
        assert 0 <= place["x"] < place["x"] + place["w"] <= COLUMNS, panel["title"]
    for one, other in combinations((panel["gridPos"] for panel in panels), 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        above = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or above, (one, other)


def scrape(bed: Bed, bearer: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Value of each sample, by its name and labels."""
    url = json.loads((bed.home / "address.json").read_text())["url"]
    request = urllib.request.Request(
        f"{url}/metrics", headers={"Authorization": f"Bearer {bearer}"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        text = answer.read().decode()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_each_metric_of_alerts_and_dashboards_is_in_a_scrape_after_a_reshape_and_a_restart(
    bed: Bed,
) -> None:
    bed.up()
    bearer = bed.json("token", "create", "prometheus", "--role", "scraper")["token"]
    elastic = bed.submit("elastic", steps=100_000)
    bed.reaches(elastic, "running", size=4)
    newcomer = bed.submit("newcomer", steps=5, optional_gpus=[2], max_wait_s=1)
    bed.reaches(newcomer, "completed")
    bed.reaches(elastic, "running", size=4)
    used = [rule["expr"] for rule in rules()]
    used += [query for path in DASHBOARDS for query in expressions(dashboard(path))]
    named = {name for query in used for name in METRIC.findall(query)}
    before = scrape(bed, bearer)
    assert named - {name for name, _ in before} == set()
    done = {
        labels: value
        for (name, labels), value in before.items()
        if name == "reshape_reshapes_total" and value
    }
    assert set(done.values()) == {1.0}
    assert sorted(dict(labels)["direction"] for labels in done) == ["down", "up"]
    bed.stop(signal.SIGKILL)
    bed.up()
    eventually(lambda: scrape(bed, bearer)["reshape_figures_seq", frozenset()] > 0)
    after = scrape(bed, bearer)
    counters = ("reshape_reshape", "reshape_queue_wait", "reshape_jobs_submitted", "reshape_starts")
    fallen = [
        key for key, value in before.items() if key[0].startswith(counters) and after[key] < value
    ]
    assert fallen == []
    assert {labels: after["reshape_reshapes_total", labels] for labels in done} == done
