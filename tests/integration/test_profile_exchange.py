"""``reshape profile import`` and ``export`` on a real daemon, with a file and a server as store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from reshape_profiles import loader, table
from reshape_profiles.schema import AccuracyPoint, Overhead, Profile, SpeedPoint
from tests.support.daemon_bed import Bed, bed, eventually, start_of
from tests.support.mongo_bed import Database

MINE = Profile(
    "mine",
    "a test",
    8,
    100,
    (SpeedPoint("SIM", 2, 0.5, "measured"), SpeedPoint("SIM", 4, 0.25, "measured")),
    (AccuracyPoint(10, 0.5, "measured"),),
    Overhead(1.0, 2.0, 3.0, 4.0, 5.0, "measured"),
)
THROUGHPUTS = {
    "v100": {
        "('TinyNet (batch size 16)', 1)": {"null": 40.0},
        "('TinyNet (batch size 8)', 2)": {"null": 64.0},
    }
}
"""Made by hand, in the form of the files that come with Gavel."""


@pytest.fixture(name="bed")
def _bed(tmp_path: Path) -> Iterator[Bed]:
    yield from bed(tmp_path)


def write(bed: Bed, name: str, text: str) -> str:
    path = bed.folder / name
    path.write_text(text)
    return str(path)


def test_every_form_is_imported_outlives_a_restart_and_is_given_back(
    bed: Bed, words: tuple[str, ...]
) -> None:
    bed.up(*words)
    done = bed.json("profile", "import", write(bed, "mine.csv", table.write((MINE,))))
    assert done == {"recorded": ["mine"], "unchanged": []}
    done = bed.json("profile", "import", write(bed, "gavel.json", json.dumps(THROUGHPUTS)))
    assert done == {"recorded": ["tinynet-b16"], "unchanged": []}
    again = bed.json("profile", "import", write(bed, "mine.json", loader.write((MINE,))))
    assert again == {"recorded": [], "unchanged": ["mine"]}
    bed.stop()
    bed.up(*words)
    given = bed.reshape("profile", "export", "mine")
    assert given.stdout == loader.write((MINE,))
    assert bed.reshape("profile", "export", "mine", "--as", "csv").stdout == table.write((MINE,))
    given = bed.reshape("profile", "export", "tinynet-b16", "--as", "gavel")
    assert json.loads(given.stdout) == THROUGHPUTS
    assert given.stderr == ""
    everything = bed.folder / "all.json"
    assert bed.reshape("profile", "export", "--into", str(everything)).returncode == 0
    found = bed.json("profile", "import", str(everything))
    assert found["recorded"] == [], "what was exported is what is recorded"
    assert {"mine", "tinynet-b16", "resnet18-b64-imagenet"} <= set(found["unchanged"])
    bed.stop()
    assert bed.json("db", "check", *words)["wrong"] == []


def test_an_import_beside_a_running_job_leaves_its_process_alone(
    bed: Bed, words: tuple[str, ...]
) -> None:
    bed.up(*words)
    job = bed.submit("long", steps=100_000, job_type="mine")
    pid = bed.pid(job, size=4)
    started = start_of(pid)
    bed.json("profile", "import", write(bed, "mine.json", loader.write((MINE,))))
    # The next decision is there when another job has been weighed by it.
    bed.reaches(bed.submit("next", steps=3, job_type="mine", optional_gpus=[4]), "submitted")
    bed.json("explain", "next")
    assert bed.job(job)["attempt"] == 1
    assert started is not None
    assert start_of(pid) == started


@pytest.mark.mongo
def test_a_profile_is_recorded_by_a_plain_insert_and_is_in_three_collections(
    bed: Bed, user: Database, address: str
) -> None:
    bed.up("--store", address)
    (document,) = loader.document((MINE,))["profile"]
    user.inbox.insert_one({"kind": "profile", "body": {"profile": [document]}})
    wrong = user.inbox.insert_one({"kind": "profile", "body": {"profile": [{"speed": 1}]}})
    found = eventually(lambda: user.speed_profiles.find_one({"_id": "mine"}))
    assert [point["seconds_per_step"] for point in found["speeds"]] == [0.5, 0.25]
    accuracy = eventually(lambda: user.accuracy_profiles.find_one({"_id": "mine"}))
    assert accuracy["accuracies"][0]["accuracy"] == 0.5
    overhead = eventually(lambda: user.overhead_profiles.find_one({"_id": "mine"}))
    assert overhead["recorded"]["job_stop_s"] == 5.0
    here = {"_id": wrong.inserted_id, "error": {"$exists": True}}
    refused = eventually(lambda: user.inbox.find_one(here))
    assert "body: profile[0].speed: is not a list" in refused["error"]
    assert bed.reshape("profile", "export", "mine").stdout == loader.write((MINE,))


def test_what_cannot_be_imported_or_exported_is_one_error_with_place_and_remedy(
    bed: Bed,
) -> None:
    mine = write(bed, "mine.csv", table.write((MINE,)))
    nobody = bed.reshape("profile", "import", mine)
    assert (nobody.returncode, "no daemon has ever run" in nobody.stderr) == (4, True)
    bed.up()
    rows: tuple[tuple[tuple[str, ...], int, str, str], ...] = (
        (("import", "nowhere.csv"), 2, "cannot be read", "give a file of profiles"),
        (("import", write(bed, "a.csv", "job_type,gpus\na,two\n")), 2, "'two'", "line 2: gpus"),
        (("import", write(bed, "e.toml", "")), 2, "the file has no profile", "[[profile]]"),
        (("import", mine, "--part", "x"), 2, "has no parts", "leave 'x' out"),
        (("export", "nobody"), 3, "no recorded profile of nobody", "recorded types:"),
        (("export", "--into", mine), 2, "the file exists already", "--into FILE"),
        (("export", "--as", "xml"), 2, "xml", "json"),
    )
    for command, code, what, where in rows:
        done = bed.reshape("profile", *command)
        assert (done.returncode, done.stdout) == (code, ""), done.stderr
        assert what in done.stderr
        assert where in done.stderr
        assert "Traceback" not in done.stderr
    assert "mine" not in bed.reshape("profile", "export").stdout
