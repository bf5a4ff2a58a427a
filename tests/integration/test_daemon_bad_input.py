"""Bad input, row by row: one clear message (what, where, remedy), its exit code, nothing on stdout.

The list of the issue, and what belongs to it. One daemon serves all rows.
"""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from reshape_sidecar import gpu
from tests.support.daemon_bed import CRASHES, SAVES, Bed
from tests.support.daemon_bed import bed as make_bed

RECORD = {
    "name": "good",
    "command": ["python", "good.py"],
    "framework": "other",
    "optional_gpus": [1, 2],
    "steps": 5,
}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    for bed in make_bed(tmp_path_factory.mktemp("bad-input")):
        (bed.code / "good.py").write_text(SAVES)
        (bed.code / "crashes.py").write_text(CRASHES)
        bed.up()
        yield bed


@dataclass(frozen=True)
class Said:
    """Return the output of a command that fails."""

    code: int
    stdout: str
    stderr: str

    def must_be(self, code: int, what: str, where: str, remedy: str) -> None:
        shown = f"exit {self.code}\n{self.stderr}"
        assert self.code == code, shown
        assert self.stdout == "", shown
        assert "Traceback" not in self.stderr, shown
        errors = self.stderr[self.stderr.index("error: ") :].splitlines()
        assert [line.startswith("error: ") for line in errors].count(True) == 1, shown
        assert what in errors[0], shown
        assert errors[1].startswith("  where:  "), shown
        assert where in errors[1], shown
        assert errors[2].startswith("  remedy: "), shown
        assert remedy in errors[2], shown


def said(bed: Bed, *words: str, stdin: str = "", **more: str) -> Said:
    done = bed.reshape(*words, stdin=stdin, **more)
    return Said(done.returncode, done.stdout, done.stderr)


def without(*names: str) -> dict[str, object]:
    return {name: value for name, value in RECORD.items() if name not in names}


RECORDS: dict[str, tuple[dict[str, object], str, str, str]] = {
    "unknown field": ({**RECORD, "gpu": 2}, "gpu: is not a field", "bad.yaml", "docs/jobs.md"),
    "wrong type": ({**RECORD, "steps": "many"}, "steps: 'many' is not", "bad.yaml", "5000"),
    "no sizes": (without("optional_gpus"), "optional_gpus: is missing", "bad.yaml", "[1, 2"),
    "more than any host has": (
        {**RECORD, "optional_gpus": [8]},
        "optional_gpus[0]: 8",
        "bad.yaml",
        "4",
    ),
    "negative length": ({**RECORD, "steps": -5}, "steps: -5", "bad.yaml", "5000"),
    "two lengths": ({**RECORD, "epochs": 3}, "epochs", "bad.yaml", "one"),
    "script missing": ({**RECORD, "command": ["python", "gone.py"]}, "gone.py", "bad.yaml", ""),
    "reserved environment name": (
        {**RECORD, "env": {"CUDA_VISIBLE_DEVICES": "0"}},
        "env.CUDA_VISIBLE_DEVICES",
        "bad.yaml",
        "",
    ),
}


@pytest.mark.parametrize("row", RECORDS)
def test_a_bad_record_is_rejected_with_its_field_and_a_remedy(shared: Bed, row: str) -> None:
    record, what, where, remedy = RECORDS[row]
    path = shared.code / "bad.yaml"
    path.write_text(yaml.safe_dump(record))
    said(shared, "submit", str(path)).must_be(5, what, where, remedy)
    assert "good" not in {job["name"] for job in shared.json("get")["jobs"]}


@pytest.mark.parametrize("row", RECORDS)
def test_a_bad_record_on_stdin_is_rejected_alike(shared: Bed, row: str) -> None:
    record, what, _, remedy = RECORDS[row]
    text = json.dumps({**record, "code": str(shared.code)})
    said(shared, "submit", "-", stdin=text).must_be(5, what, "stdin", remedy)


@pytest.mark.parametrize("row", RECORDS)
def test_a_bad_record_over_http_is_rejected_alike(shared: Bed, row: str) -> None:
    record, what, _, remedy = RECORDS[row]
    status, body = shared.post("/v1/jobs", {**record, "code": str(shared.code)})
    assert (status, body["code"]) == (422, "rejected")
    assert what in f"{body['path']}: {body['message']}"
    assert remedy in body["hint"]
    assert body["errors"][0] == {name: body[name] for name in ("path", "message", "hint")}
    assert "good" not in {job["name"] for job in shared.json("get")["jobs"]}


TEXTS = {
    "no YAML": ("name: [", "stdin, line 1", "correct the YAML"),
    "a field twice": ("name: a\nname: b\n", "stdin, line 2", "correct the YAML"),
    "no record": ("- 1\n", "stdin", "fields and values"),
    "two documents": ("name: a\n---\nname: b\n", "stdin, line 2", "its own file"),
}


@pytest.mark.parametrize("row", TEXTS)
def test_a_text_that_is_no_record_is_rejected_with_its_line(shared: Bed, row: str) -> None:
    text, where, remedy = TEXTS[row]
    said(shared, "submit", "-", stdin=text).must_be(5, "", where, remedy)


def test_a_script_that_crashes_at_once_fails_with_the_way_to_its_log(shared: Bed) -> None:
    record = {**RECORD, "name": "crashes", "command": ["python", "crashes.py"], "retries": 0}
    path = shared.code / "crashes.json"
    path.write_text(json.dumps(record))
    answer = said(shared, "submit", "--wait", str(path))
    assert (answer.code, "Traceback" in answer.stderr) == (1, False)
    assert answer.stdout.startswith("crashes-")
    assert "exit code 1" in answer.stderr
    assert "remedy: reshape logs crashes-" in answer.stderr


def test_a_name_that_a_living_job_has_is_rejected(shared: Bed) -> None:
    path = shared.record("twin", steps=100_000)
    assert shared.reshape("submit", str(path)).returncode == 0
    said(shared, "submit", str(path)).must_be(5, "name: 'twin'", "twin.json", "another name")
    assert shared.reshape("cancel", "twin").returncode == 0


COMMANDS: dict[str, tuple[tuple[str, ...], int, str, str, str]] = {
    "no such file": (("submit", "gone.yaml"), 2, "does not exist", "gone.yaml", "job record"),
    "a folder as file": (("submit", "code"), 2, "cannot be read", "code", "job record"),
    "no such job": (("describe", "nobody"), 3, "'nobody'", "home", "reshape get"),
    "no such job to cancel": (("cancel", "nobody"), 3, "'nobody'", "home", "reshape get"),
    "no such host": (("drain", "elsewhere"), 3, "'elsewhere'", "home", "reshape gpus"),
    "no name of a job": (("get", "a/history"), 3, "'a/history'", "JOB", "reshape get"),
    "a name that is no text": (("halt", "\udcff"), 3, "'\\udcff'", "JOB", "reshape get"),
    "no name of a host": (("drain", ""), 3, "''", "HOST", "reshape gpus"),
    "no name of a GPU": (("clear", "é"), 3, "'é'", "GPU", "reshape gpus"),
    "a page after nobody": (("get", "--after", "x"), 5, "'x'", "query after", "first page"),
    "second daemon": (("up", "--simulated-gpus", "4"), 1, "already runs", "home", "--home"),
    "beyond loopback": (
        ("up", "--simulated-gpus", "1", "--bind", "0.0.0.0", "--home", "other"),
        2,
        "loopback only",
        "--bind",
        "ssh -L",
    ),
    "both kinds of GPUs": (
        ("up", "--simulated-gpus", "1", "--gpus", "1"),
        2,
        "cannot be used together",
        "--gpus",
        "one of the two",
    ),
    "no such preset": (
        ("up", "--simulated-gpus", "1", "--preset", "magic"),
        2,
        "'magic'",
        "flag --preset",
        "adaptive",
    ),
    "no such policy": (
        ("up", "--simulated-gpus", "1", "--policy", "magic"),
        2,
        "'magic'",
        "flag --policy",
        "",
    ),
    "port out of range": (("up", "--port", "70000"), 2, "70000", "flag --port", "port"),
    "no device truth": (
        ("up", "--simulated-gpus", "1", "--device-truth", "gone.json"),
        2,
        "gone.json",
        "flag --device-truth",
        "seconds_per_step",
    ),
    "no span": (("timeline", "--last", "soon"), 2, "'soon'", "--last", "10m"),
    "unknown form": (("get", "-o", "xml"), 2, "'xml'", "flag --output", "json"),
    "no store to check": (
        ("db", "check", "gone.sqlite"),
        3,
        "does not exist",
        "gone.sqlite",
        "--home",
    ),
}


@pytest.mark.parametrize("row", COMMANDS)
def test_a_bad_command_says_what_where_and_remedy(shared: Bed, row: str) -> None:
    words, code, what, where, remedy = COMMANDS[row]
    answer = said(shared, *words)
    answer.must_be(code, what, where, remedy)


def test_the_port_of_another_program_is_not_taken(shared: Bed) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        answer = said(shared, "up", "--simulated-gpus", "1", "--port", port, "--home", "elsewhere")
    answer.must_be(1, f"port {port} of 127.0.0.1 is in use", "--port", "0 for a free one")


def test_a_home_that_cannot_be_written_is_refused(shared: Bed) -> None:
    (shared.folder / "file").write_text("in the way")
    answer = said(shared, "up", "--simulated-gpus", "1", "--home", "file/home")
    answer.must_be(1, "cannot be written", "file/home", "--home DIR")


def test_a_token_file_that_others_may_read_is_refused(shared: Bed) -> None:
    home = shared.folder / "leaky"
    home.mkdir(mode=0o700)
    (home / "token").write_text("0" * 64)
    (home / "token").chmod(0o644)
    answer = said(shared, "up", "--simulated-gpus", "1", "--home", "leaky", "--port", "0")
    answer.must_be(1, "token file", "leaky/token", "chmod 600")


def test_a_wrong_token_is_refused(shared: Bed) -> None:
    other = shared.folder / "another-home"
    other.mkdir(mode=0o700)
    shutil.copy(shared.home / "address.json", other)
    (other / "daemon.lock").symlink_to(shared.home / "daemon.lock")
    (other / "token").write_text("0" * 64)
    (other / "token").chmod(0o600)
    refused = said(shared, "get", "--home", str(other))
    refused.must_be(5, "refuses the token", "http://127.0.0.1:", "--home")


def test_without_any_daemon_the_way_to_start_one_is_told(shared: Bed) -> None:
    said(shared, "get", "--home", "empty").must_be(4, "no daemon", "empty", "reshape up")


@pytest.mark.skipif(bool(gpu.visible()), reason="this machine has a GPU")
def test_a_machine_without_gpu_says_so_and_how_to_go_on(shared: Bed) -> None:
    said(shared, "up", "--home", "none").must_be(1, "no GPU found", "up", "--simulated-gpus 4")


CONFIGS: dict[str, tuple[str, str, str]] = {
    "unknown setting": ("prot: 1\n", "'prot'", "port"),
    "wrong type": ("port: many\n", "'many'", "port"),
    "no settings": ("- 1\n", "not a list of settings", "port: 7470"),
    "no YAML": ("port: [\n", "read as YAML: line 2", "port: 7470"),
    "a setting twice": ("port: 1\nport: 2\n", "line 2: 'port' appears twice", "port: 7470"),
}


@pytest.mark.parametrize("row", CONFIGS)
def test_a_bad_configuration_file_is_named(shared: Bed, row: str) -> None:
    text, what, remedy = CONFIGS[row]
    path = shared.folder / "config.yaml"
    path.write_text(text)
    answer = said(shared, "config", "show", RESHAPE_CONFIG=str(path))
    answer.must_be(2, what, str(path), remedy)


def test_a_bad_environment_variable_is_named(shared: Bed) -> None:
    answer = said(shared, "config", "show", RESHAPE_PORT="many")
    answer.must_be(2, "'many'", "environment RESHAPE_PORT", "port")


def _truncate(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


@pytest.mark.parametrize("damage", [_truncate])
def test_a_damaged_store_is_left_alone_and_can_be_recovered(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    for bed in make_bed(tmp_path):
        bed.up()
        bed.reaches(bed.submit("before", steps=3), "completed")
        bed.stop()
        store = bed.home / "store.sqlite"
        damage(store)
        damaged = store.read_bytes()
        answer = said(bed, "up", "--simulated-gpus", "4", "--port", "0")
        answer.must_be(1, "last good seq", str(store), f"reshape db recover {store}")
        assert store.read_bytes() == damaged, "nothing was touched"
        checked = bed.reshape("db", "check")
        assert checked.returncode == 1
        assert "DAMAGED" in checked.stdout


def test_a_store_is_checked_and_copied_while_its_daemon_runs(shared: Bed) -> None:
    assert "sound" in shared.reshape("db", "check").stdout
    target = shared.folder / "copy.sqlite"
    found = shared.json("db", "recover", "--into", str(target))
    assert found["last_seq"] > 0
    assert shared.reshape("db", "check", str(target)).returncode == 0
    said(shared, "db", "recover", "--into", str(target)).must_be(1, "exists", str(target), "")
    shutil.rmtree(shared.folder / "elsewhere", ignore_errors=True)
