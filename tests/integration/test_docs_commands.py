"""Every command of README and docs is run: here, in the order of its document, or by CI.

A command that no rule below covers is a failure: add it to a session, or say what runs it.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.support.daemon_bed import DEADLINE_S, Bed, eventually
from tests.support.daemon_bed import bed as make_bed
from tests.support.docs_commands import ROOT, Command, commands, commands_of, session

SESSIONS = ("docs/getting-started.md",)
"""Documents whose `reshape` commands are one session with a daemon and TensorFlow jobs."""
TENSORFLOW_S = 200.0
MAKE = re.compile(r"make [a-z-]+( [A-Z]+=\S+)*")
BY_CI = (
    *("make setup", "make demo", "make test", "make test-tensorflow", "make test-pytorch"),
    *("make test-mongo", "make test-ferretdb", "make kubernetes"),
)
"""Parts of .ci/run."""
REPLAY = re.compile(r"reshape (replay|compare|experiment|workload|profile costs) ")
POD_LIST = (
    "name,num_gpu,gpu_milli,creation_time,deletion_time,scheduled_time\n"
    "pod-0,1,1000,0,60,0\n"
    "pod-1,1,1000,9900000,9907200,9900060\n"
    "pod-2,4,1000,10000000,10003600,10000000\n"
    "pod-3,1,500,10100000,10101800,10100000\n"
    "pod-4,0,0,10100000,10101800,10100000\n"
)
"""Rows in the form of the public list that docs/replay.md downloads, within its window."""
WHAT_IF = "reshape replay --from-live"
LIVE = " --jobs 2 --last 60 --speed-up 500 --repeats 1"
"""Makes a live replay short; of an option that is given twice the last counts."""


def rule_of(command: Command) -> str:
    """The name of what runs a command; empty if nothing does."""
    text = command.text
    if command.document in SESSIONS and text.startswith("reshape "):
        return "session"
    if MAKE.fullmatch(text):
        return "make"
    if command.document == "README.md" and text.startswith(("reshape ", "ADDRESS=")):
        return "journey"  # tests/journeys/test_journeys.py compares them
    if text in ('pip install ".[kubernetes,ansible]"', "kubectl apply -f deploy/kubernetes.yaml"):
        return "elsewhere"  # tests/wheel/check.py; tests/kubernetes/test_in_cluster.py, by the API
    if text.startswith("reshape verify "):
        return "verify"  # tests/integration/tensorflow/test_verify.py
    if text == "reshape up --hosts 2 --simulated-gpus 4":
        return "hosts"  # tests/integration/test_local_hosts.py and tests/e2e
    if text.startswith(("curl -LO https://", "TZ=UTC sacct ", "xdg-open ")):
        return "by hand"  # files, for which POD_LIST and an example stand here; a picture
    if text.startswith("python benchmarks/"):
        return "benchmark"
    if text.startswith(WHAT_IF):
        return "what if"
    if REPLAY.match(text):
        return "replay"
    if text in (". .venv/bin/activate", "bash .ci/run", "bash .ci/run all", "bash .ci/run fast"):
        return "ci"
    if text.startswith(".venv/bin/python -m pytest"):
        return "pytest"
    if command.document in ("docs/operations.md", "docs/api.md", "docs/metrics.md"):
        return "daemon"
    if command.document == "docs/database.md" and text.startswith("reshape up --store mongodb://"):
        return "mongo"  # with the address of its own server: tests/integration/test_store_daemon.py
    return ""


def of(rule: str) -> list[str]:
    """The commands of one rule, each once."""
    return list(dict.fromkeys(c.text for c in commands() if rule_of(c) == rule))


def test_every_command_of_the_documents_is_run_by_something() -> None:
    found = commands()
    assert len(found) > 30
    assert [command for command in found if not rule_of(command)] == []


def test_commands_are_found_after_a_dollar_and_at_the_beginning_of_a_line() -> None:
    block = "$ make demo      # remark\nreshape up   # remark\n# remark\noutput\nTOKEN=$(cat x)\n"
    assert commands_of(block) == ["make demo", "reshape up", "TOKEN=$(cat x)"]


@pytest.mark.parametrize("text", of("make"))
def test_make_knows_the_target_and_ci_runs_it_or_what_it_consists_of(text: str) -> None:
    done = subprocess.run(
        [*shlex.split(text), "--dry-run"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    ci = (ROOT / ".ci" / "parts.py").read_text()
    base = " ".join(text.split()[:2])
    if base in BY_CI:
        assert re.search(rf"{base}(?![\w-])", ci)
    for name, value in re.findall(r"([A-Z]+)=(\S+)", text):
        assert f"--{name.lower()} {value}" in done.stdout.replace("'", "")
    if "=" in text:
        script = ROOT / "examples" / "demo" / "demo.py"
        words = shlex.split(next(line for line in done.stdout.splitlines() if script.name in line))
        usage = subprocess.run(
            [sys.executable, str(script), *words[2:], "--help"], capture_output=True, check=False
        )
        assert usage.returncode == 0


@pytest.mark.parametrize("text", of("pytest"))
def test_a_test_run_of_the_documents_finds_tests(text: str) -> None:
    words = shlex.split(text)[1:]
    done = subprocess.run(
        [sys.executable, *words, "--collect-only"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    for made in make_bed(tmp_path):
        # Paths of the documents are relative to the repository.
        (made.folder / "examples").symlink_to(ROOT / "examples")
        (made.folder / "out").mkdir()
        yield made


def short(text: str) -> str:
    """A command that takes long, made shorter without another meaning."""
    text = re.sub(r"--seeds \d+", "--seeds 1", text)
    if text.startswith("reshape compare ") and " --load " in text:
        text = re.sub(r"--load \S+", "--load 0.8,1.3", text).replace(" all ", " two ")
    text = text.replace(" --record benchmarks/costs_tensorflow.yaml", "")  # takes TensorFlow
    if text.startswith("reshape profile costs"):
        text += " --rounds 1"
    if "--hindsight" in text or "--sensitivity" in text:
        text += " --jobs 8"
    if text.startswith("reshape experiment "):
        text += " --seeds 2" + (" --days 0.1" if " ffdl" in text else "")
    return text + LIVE if " --live " in text else text


@pytest.mark.parametrize("text", of("what if"))
def test_the_what_if_of_the_documents_is_answered(bed: Bed, text: str) -> None:
    bed.up()
    bed.submit("first", steps=3000)
    found = bed.json(*shlex.split(text)[1:])
    assert [line["job"] for line in found["jobs"]]


@pytest.mark.timeout(600)
def test_the_replays_of_the_documents_run_with_fewer_seeds(bed: Bed) -> None:
    (bed.folder / "trace.csv").write_text(
        "submit_time,gpu_num,duration\n0,2,600\n30,1,1200\n90,4,300\n"
    )
    (bed.folder / "openb_pod_list_default.csv").write_text(POD_LIST)
    shutil.copy(ROOT / "examples" / "trace" / "sacct.txt", bed.folder)
    for text in of("replay"):
        here = short(text)
        for folder in re.findall(r"(?:compare|report) (\S+) (\S+)$", here)[:1]:
            for name in folder:
                _result(bed, name)
        done = bed.reshape(*shlex.split(here)[1:])
        slow_machine = " --live " in text and "steps were late" in done.stderr
        assert done.returncode == 0 or slow_machine, f"{text}\n{done.stderr}"


@pytest.mark.parametrize("text", of("benchmark"))
def test_a_benchmark_of_the_documents_runs_with_fewer_seeds(text: str) -> None:
    _run(short(text).replace("python", sys.executable, 1), ROOT)


def _result(bed: Bed, folder: str) -> None:
    """A folder with the results of a replay, where no command before has made it."""
    if not (bed.folder / folder).exists():
        words = ("compare", "--workload", "one", "--seeds", "1", "--out", folder)
        assert bed.reshape(*words).returncode == 0


def test_the_operators_and_the_apis_commands_work_on_a_daemon(bed: Bed) -> None:
    backup = bed.folder / "backup"
    backup.mkdir(mode=0o700)
    bed.up()
    url = eventually(lambda: bed.json("config", "show") and _url(bed))
    for text in of("daemon"):
        if text.startswith("reshape up"):
            continue  # one daemon for one home: the sessions and the next test start one
        here = text.replace("HOME/", f"{bed.home}/").replace("/backup/", f"{backup}/")
        here = here.replace("~/.local/state/reshape", str(bed.home))
        here = here.replace("http://127.0.0.1:7470", url)
        if text.startswith("TOKEN="):
            assert (bed.home / "token").read_text().strip()
        elif text.startswith("sqlite3 ") and shutil.which("sqlite3") is None:
            _backup(shlex.split(here))
        elif text.startswith("curl "):
            token = (bed.home / "token").read_text().strip()
            answer = _run(here.replace("$TOKEN", token), bed.folder)
            assert '"jobs"' in answer
        elif text.startswith("reshape "):
            done = bed.reshape(*shlex.split(here)[1:])
            assert done.returncode == 0, f"{text}\n{done.stderr}"
        else:
            _run(here, bed.folder)
    assert sorted(path.name for path in backup.iterdir()) == [
        "address.json",
        "secret",
        "store.sqlite",
        "token",
    ]
    assert bed.reshape("db", "check", str(backup / "store.sqlite")).returncode == 0


def _url(bed: Bed) -> str:
    text = (bed.home / "address.json").read_text()
    return str(re.findall(r"http://[^\"]+", text)[0])


def _backup(words: list[str]) -> None:
    """What the program sqlite3 does with ``.backup``, where there is no such program."""
    target = shlex.split(words[2])
    assert target[0] == ".backup"
    source, copy = sqlite3.connect(words[1]), sqlite3.connect(target[1])
    with contextlib.closing(source), contextlib.closing(copy):
        source.backup(copy)


def _run(text: str, folder: Path) -> str:
    done = subprocess.run(
        shlex.split(text), cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{text}\n{done.stderr}"
    return done.stdout


def test_up_without_a_gpu_says_how_to_try_it_and_with_one_it_starts(bed: Bed) -> None:
    with bed.log.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "reshape_controller.cli.main", "up"],
            env=bed.environment(RESHAPE_PORT="0"),
            cwd=bed.folder,
            stdout=log,
            stderr=log,
        )
    bed.daemon = process
    eventually(lambda: process.poll() is not None or b"listens" in bed.log.read_bytes())
    if process.poll() is not None:
        assert process.returncode == 1
        assert "reshape up --simulated-gpus 4" in bed.log.read_text()


@pytest.mark.tensorflow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("document", SESSIONS)
def test_the_session_of_a_document_works_as_it_is_written(bed: Bed, document: str) -> None:
    for text in session(document):
        words = shlex.split(text)
        if words[0] != "reshape":
            continue
        if words[1] == "up":
            bed.up(*words[2:])
        elif "--watch" in words or "-f" in words:
            _follow(bed, words[1:])
        elif words[1] == "logs":  # empty until the program has said something
            eventually(partial(_shown, bed, text), least_s=TENSORFLOW_S)
        else:
            assert _shown(bed, text) or "--chart" in words, text
    for job in bed.json("get")["jobs"]:
        if job["state"] not in ("completed", "cancelled"):
            bed.reshape("cancel", job["id"])
    eventually(
        lambda: all(job["stage"] == "none" for job in bed.json("get")["jobs"]),
        least_s=TENSORFLOW_S,
    )


def _shown(bed: Bed, text: str) -> str:
    """What a command of a document writes."""
    done = bed.reshape(*shlex.split(text)[1:])
    if "log yet: starts on" in done.stderr:
        return ""
    assert done.returncode == 0, f"{text}\n{done.stderr}"
    return done.stdout


def _follow(bed: Bed, words: list[str]) -> None:
    """Run a command that does not end by itself until it has shown something."""
    path = bed.folder / "followed.txt"
    with path.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "reshape_controller.cli.main", *words],
            env=bed.environment(),
            cwd=bed.folder,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        give_up_s = time.monotonic() + DEADLINE_S + TENSORFLOW_S
        while path.stat().st_size == 0:
            assert process.poll() is None, path.read_text()
            assert time.monotonic() < give_up_s, f"{words} shows nothing"
            time.sleep(0.1)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGINT)
        process.wait(DEADLINE_S)
