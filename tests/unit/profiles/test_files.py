"""Files of profiles in every form: read, written, read again, and refused in one message."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reshape_controller.core.recorded_speeds import same_gpu
from reshape_profiles import files, gavel, loader, table
from reshape_profiles.schema import AccuracyPoint, Overhead, Profile, SpeedPoint

FULL = Profile(
    "mine-b64",
    'measured "here", by ada',
    64,
    100,
    (
        SpeedPoint("V100", 1, 0.1 + 0.2, "measured"),
        SpeedPoint("K80", 2, 1 / 3),
        SpeedPoint("K80", 2, 1 / 2, "measured", hosts=2),
    ),
    (AccuracyPoint(10, 0.2, "measured"), AccuracyPoint(20, 1 / 3)),
    Overhead(1.5, 2, 3, 4, 5, "measured, twice"),
)
BARE = Profile("nothing-known")

ORIGINAL: dict[str, Any] = {
    "v100": {
        "('TinyNet (batch size 16)', 1)": {"null": 40.0, "('TinyNet (batch size 8)', 1)": [1, 2]},
        "('TinyNet (batch size 8)', 2)": {"null": 64.0},
        "('TinyNet (batch size 4)', 4)": {"null": 100.0},
        "('TinyNet (batch size 8)', 1)": {"null": 62.5},
        "('TinyNet (batch size 32)', 1)": {"null": 0.0},
        "('Walker', 1)": {"null": 7.5},
        "('Walker', 2)": {"null": 14.0},
    },
    "v100_unconsolidated": {"('TinyNet (batch size 8)', 2)": {"null": 50.0}},
}
"""Made by hand, in the form of the files that come with Gavel."""


def rows(*parts: str) -> dict[str, Any]:
    """The same kind of figures as a list."""
    return {
        "columns": list(gavel.COLUMNS),
        "rows": [
            row
            for part in parts
            for row in (
                [part, "TinyNet", 16, "v100", 1, 40.0],
                [part, "TinyNet", 8, "v100", 2, 64.0],
                [part, "Walker", None, "v100", 1, 7.5],
            )
        ],
    }


def file(folder: Path, name: str, content: object) -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


@pytest.mark.parametrize(
    ("name", "written"), [("a.json", loader.write), ("a.csv", table.write)], ids=["json", "csv"]
)
def test_every_figure_of_a_profile_comes_back_as_it_was(
    tmp_path: Path, name: str, written: Any
) -> None:
    profiles = (FULL, BARE, *loader.bundled().profiles)
    again = files.load(file(tmp_path, name, written(profiles)))
    assert again.bundle.profiles == profiles
    assert again.notes == ()


def test_a_table_needs_only_the_columns_that_it_fills_in_any_order(tmp_path: Path) -> None:
    text = (
        "\ufeffgpus,job_type,seconds_per_step,gpu_type\r\n1,a,0.5,V100\r\n\r\n2,a, 0.25 ,V100\r\n"
    )
    (found,) = files.load(file(tmp_path, "a.csv", text)).bundle.profiles
    assert found == Profile("a", speed=(SpeedPoint("V100", 1, 0.5), SpeedPoint("V100", 2, 0.25)))


def test_a_wide_table_has_a_column_for_each_number_of_gpus(tmp_path: Path) -> None:
    text = "job_type,gpu_type,1,2,4,source\na,V100,0.5,0.25,,measured\na,P100,,,,\na,K80,2,,0.75,\n"
    (found,) = files.load(file(tmp_path, "a.csv", text)).bundle.profiles
    assert found.speed == (
        SpeedPoint("V100", 1, 0.5, "measured"),
        SpeedPoint("V100", 2, 0.25, "measured"),
        SpeedPoint("K80", 1, 2.0),
        SpeedPoint("K80", 4, 0.75),
    )


def test_figures_by_nodes_are_points_on_as_many_hosts(tmp_path: Path) -> None:
    head = "job_type,gpu_type,nodes,gpus_per_node,seconds_per_step\n"
    found = files.load(file(tmp_path, "a.csv", head + "a,V100,1,4,0.5\na,V100,2,4,0.3\n"))
    assert found.bundle.profiles[0].speed == (
        SpeedPoint("V100", 4, 0.5),
        SpeedPoint("V100", 8, 0.3, hosts=2),
    )
    assert found.notes == ()


def test_a_profile_of_the_version_before_with_a_type_of_several_nodes_still_loads() -> None:
    row = ["V100_2nodes", 8, 0.3, "measured"]
    found = loader.parse({"profile": [{"job_type": "a", "speed": [row]}]}, "a.json")
    assert found.profiles[0].speed == (SpeedPoint("V100_2nodes", 8, 0.3, "measured"),)
    assert not same_gpu("V100_2nodes", "tesla-v100-sxm2-16gb")


@pytest.mark.parametrize("hosts", [0, 3])
def test_gpus_on_no_host_or_on_more_hosts_than_gpus_are_refused(hosts: int) -> None:
    row = ["V100", 2, 0.3, "measured", hosts]
    with pytest.raises(loader.ProfileError, match=f"hosts is {hosts}, and must lie between 1 and"):
        loader.parse({"profile": [{"job_type": "a", "speed": [row]}]}, "a.json")


def test_a_batch_for_each_gpu_gives_a_type_for_each_batch_of_all_gpus(tmp_path: Path) -> None:
    head = "job_type,gpu_type,gpus,batch_per_gpu,seconds_per_step\n"
    rows = "a,V100,1,64,0.5\na,V100,2,32,0.3\na,V100,2,64,0.6\n"
    small, large = files.load(file(tmp_path, "a.csv", head + rows)).bundle.profiles
    assert (small.job_type, small.global_batch, len(small.speed)) == ("a-b64", 64, 2)
    assert (large.job_type, large.global_batch) == ("a-b128", 128)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("job_type,gpu_type,1,gpus\na,V100,0.5,2\n", "has the columns 1 and gpus; keep one form"),
        ("job_type,gpu_type,1,nodes\na,V100,0.5,2\n", "has the columns 1 and nodes; keep one"),
        ("job_type,gpus,nodes\na,1,1\n", "nodes go with gpus_per_node"),
        ("job_type,gpu_type,1\na,,0.5\n", "line 2: gpu_type: is empty; name the GPUs"),
        ("job_type,gpu_type,1\na,V100,fast\n", "line 2: 1: 'fast' is not a number"),
        ("job_type,gpu_type,nodes,seconds_per_step\na,V100,1,2\n", "gpus_per_node missing"),
        (
            "job_type,gpu_type,nodes,gpus_per_node,seconds_per_step\na,V100,0,1,2\n",
            "line 2: nodes: is 0",
        ),
        ("job_type,gpu_type,1,batch_per_gpu\na,V100,2,0\n", "batch_per_gpu: is 0, and must be"),
        (
            "job_type,gpu_type,1,batch_per_gpu,step,accuracy\na,V100,2,8,5,0.5\n",
            "goes with speeds, and the row has step",
        ),
    ],
)
def test_forms_that_do_not_go_together_are_refused(tmp_path: Path, text: str, what: str) -> None:
    with pytest.raises(loader.ProfileError) as error:
        files.load(file(tmp_path, "a.csv", text))
    assert what in str(error.value)


def test_throughputs_of_one_global_batch_are_one_profile(tmp_path: Path) -> None:
    found = files.load(file(tmp_path, "gavel.json", ORIGINAL))
    tiny = found.bundle.of("tinynet-b16")
    assert tiny is not None
    assert (tiny.global_batch, tiny.text) == (16, "TinyNet (batch size 16)")
    # 16 samples: one batch of 16 on one GPU, two of 8, four of 4; the rate is the GPUs' sum.
    assert [p.hosts for p in tiny.speed] == [1, 1, 1, 2]
    assert [(p.gpu_type, p.gpus, p.seconds_per_step) for p in tiny.speed] == [
        ("v100", 1, 1 / 40),
        ("v100", 2, 2 / 64),
        ("v100", 4, 4 / 100),
        ("v100", 2, 2 / 50),
    ]
    assert {p.source for p in tiny.speed} == {"measured: gavel.json"}
    walker = found.bundle.of("walker")
    assert walker is not None
    assert (walker.global_batch, len(walker.speed)) == (None, 1)
    assert found.notes == (
        "left out: 1 figures of 0 steps/s (not measured, or out of memory)",
        "left out: 1 figures of several GPUs without a batch size",
        "left out: 1 figures of two jobs on the same GPUs",
    )


def test_throughputs_come_back_in_their_own_form(tmp_path: Path) -> None:
    found = files.load(file(tmp_path, "gavel.json", ORIGINAL)).bundle
    text, left_out = gavel.write(found.profiles)
    assert left_out == ()
    wanted = {
        kind: {
            job: {"null": rates["null"]}
            for job, rates in table.items()
            if rates["null"] and job != "('Walker', 2)"
        }
        for kind, table in ORIGINAL.items()
    }
    assert json.loads(text) == wanted
    again = files.load(file(tmp_path, "gavel.json", text))
    assert set(again.bundle.profiles) == set(found.profiles)


def test_of_rows_for_the_same_figures_one_part_is_chosen(tmp_path: Path) -> None:
    one = files.load(file(tmp_path, "one.json", rows("cluster"))).bundle
    assert [p.job_type for p in one.profiles] == ["tinynet-b16", "walker"]
    both = file(tmp_path, "both.json", rows("cluster", "model"))
    with pytest.raises(
        loader.ProfileError, match=r"rows of cluster, model.*choose one with --part"
    ):
        files.load(both)
    with pytest.raises(
        loader.ProfileError, match="no rows of part 'other'; use one of: cluster, model"
    ):
        files.load(both, "other")
    first, _ = files.load(both, "model").bundle.profiles
    assert first.speed[0].source == "measured: both.json, model"
    with pytest.raises(loader.ProfileError, match="has no parts"):
        files.load(file(tmp_path, "a.csv", table.write((FULL,))), "model")


def test_what_the_form_of_throughputs_cannot_say_is_named() -> None:
    odd = Profile("odd", global_batch=6, speed=(SpeedPoint("V100", 4, 1.0),))
    text, left_out = gavel.write((FULL, odd))
    assert json.loads(text)["K80"] == {"('mine-b64 (batch size 32)', 2)": {"null": 6.0}}
    assert left_out == (
        "mine-b64: all but its speeds",
        "odd: the format cannot express a global batch of 6 on 4 GPUs",
    )


DEEP = "[" * 100_000
JOB = "('TinyNet (batch size 16)', 1)"
WRONG: list[tuple[str, object, str, str]] = [
    ("a.csv", "", "line 1", "column job_type is missing"),
    ("a.csv", "job_type,colour\n", "line 1", "unknown column 'colour'"),
    ("a.csv", "job_type,gpus,gpus\n", "line 1", "two columns 'gpus'"),
    ("a.csv", "job_type,gpus\na,two\n", "line 2: gpus", "'two' is not a whole number"),
    ("a.csv", "job_type,gpus\na,1\n", "line 2", "gpu_type, seconds_per_step missing"),
    ("a.csv", "job_type,text\n,x\n", "line 2: job_type", "is empty"),
    ("a.csv", "job_type,text\na,x,y\n", "line 2", "3 cells for 2 columns"),
    ("a.csv", "job_type,text\na,x\na,y\n", "line 3: text", "'y', and was 'x' above"),
    ("a.csv", "job_type,step,accuracy\na,1,1.5\n", "line 2", "between 0 and 1"),
    ("a.csv", 'job_type,text\na,"x\n', "line 2", "is not valid CSV"),
    (
        "a.csv",
        "job_type,gpu_type,gpus,seconds_per_step\na,V,1,nan\n",
        "line 2",
        "between 1e-09 and",
    ),
    ("a.csv", "job_type,gpu_type,gpus,seconds_per_step\na,V,1,1\na,V,1,2\n", "a", "two speeds"),
    ("a.csv", "job_type\na/b\n", "job_type", "'a/b' is not a job type name"),
    ("a.csv", f"job_type,global_batch\na,{10**30}\n", "a", "too large"),
    ("a.json", "{", "", "is not valid JSON"),
    ("a.json", DEEP, "", "nested too deeply"),
    ("a.json", "[]", "", "is not a table"),
    ("a.json", '{"profile": [{"job_type": "a", "speed": 3}]}', "speed", "is not a list"),
    ("a.json", '{"profile": [{"job_type": "\\ud800"}]}', "job_type", "is not a job type name"),
    ("a.json", '{"profile": [{"job_type": "a", "text": "\\ud800"}]}', "text", "is not a text"),
    ("a.json", '{"sets": {"one": 3}}', "sets.one", "is not a list"),
    (
        "a.json",
        f'{{"profile": [{{"job_type": "a", "speed": [["V", {10**30}, 1]]}}]}}',
        "profile[0]",
        "too large",
    ),
    (
        "a.json",
        f'{{"profile": [{{"job_type": "a", "speed": [["V", 1, {10**400}]]}}]}}',
        "speed[0][2]",
        "too large a number",
    ),
    ("a.toml", "a = " + DEEP, "", "nested too deeply"),
    ("a.json", {"v100": {JOB: {"null": "fast"}}}, JOB, "'fast' is not a number of steps"),
    ("a.json", {"v100": {JOB: {"null": -1}}}, JOB, "-1 steps per second"),
    ("a.json", {"v100": {JOB: 7}}, JOB, "is not a job with its rates"),
    ("a.json", {"columns": ["a"], "rows": []}, "columns", "the columns are not file, model"),
    ("a.json", {**rows(), "rows": [["a", "b"]]}, "rows[0]", "must have 6 entries"),
    (
        "a.json",
        {**rows(), "rows": [["a", "b", 1, "c", 0, 1]]},
        "rows[0]: num_gpus",
        "0 is not a whole",
    ),
    ("a.json", {**rows(), "rows": [["a", 1, 1, "c", 1, 1]]}, "rows[0]: model", "1 is not a name"),
    ("a.json", rows("a", "a"), "rows[3]", "a second rate of TinyNet on 1 v100"),
]


@pytest.mark.parametrize(("name", "content", "where", "what"), WRONG)
def test_a_wrong_file_is_refused_with_its_place(
    tmp_path: Path, name: str, content: object, where: str, what: str
) -> None:
    path = file(tmp_path, name, content)
    with pytest.raises(loader.ProfileError) as caught:
        files.load(path)
    assert str(path) in caught.value.path
    assert where in caught.value.path
    assert what in caught.value.message
    assert len(str(caught.value)) < 1000


def test_a_file_that_is_no_text_or_too_large_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(loader.ProfileError, match="is not UTF-8 text"):
        files.load(path)
    monkeypatch.setattr(files, "FILE_BYTES_MAX", 10)
    path.write_text("job_type,text\n")
    with pytest.raises(loader.ProfileError, match="more than 10 bytes"):
        files.load(path)
