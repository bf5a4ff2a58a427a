"""Try the newest version of each library that Reshape patches or calls.

    make versions [NAME=keras] [AGAIN=1]

Does: for each package copies the checkout with its locked environments into a temporary folder,
installs there the newest release (where the lock has that, the newest candidate for one) with the
newest of what it requires, runs tests of its tier, and writes a row into docs/dev/versions.md. A
package that was tried today is not tried again, so a run that was cut goes on where it ended;
AGAIN=1 tries all. A failed test runs once more, as in CI. Never: changes the checkout's own
environments or its locks.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree
from dataclasses import dataclass
from pathlib import Path

import again

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "dev" / "versions.md"
LIMIT_S = 1800.0
"""What the tests of one package may take, on a busy machine too."""
TENSORFLOW, PYTORCH = ".venv", ".venv-pytorch"
HEAD = (
    "| Package | From | To | Newer beneath it | Passed | Failed | Tried |\n"
    "|---|---|---|---|---|---|---|\n"
)


@dataclass(frozen=True, slots=True)
class Package:
    """A package, the environment of the checkout that has it, and the tests that run."""

    name: str
    environment: str
    tests: tuple[str, ...]
    prepare: tuple[str, ...] = ()
    """Words for Python before the tests."""


KERAS, TORCH = "tests/integration/tensorflow", "tests/integration/pytorch"
PACKAGES = (
    Package("pymongo", ".venv", ("-m", "mongo and gate", "tests/contract", "tests/integration")),
    Package("tensorflow-cpu", TENSORFLOW, ("-m", "tensorflow and not mongo and gate")),
    Package(
        "keras",
        TENSORFLOW,
        (
            *("-m", "tensorflow and gate", f"{KERAS}/test_exact_resume.py"),
            *(f"{KERAS}/test_named.py", f"{KERAS}/test_restored.py"),
        ),
    ),
    Package(
        "torch",
        PYTORCH,
        (
            *("-m", "pytorch and gate", f"{TORCH}/test_plain_loop.py", f"{TORCH}/test_zygote.py"),
            *(f"{TORCH}/test_data_parallel.py", f"{TORCH}/test_forked_ranks.py"),
        ),
    ),
    Package(
        "transformers",
        PYTORCH,
        ("-k", "not twelve and not daemon", f"{TORCH}/test_hugging_face.py"),
    ),
    Package("lightning", PYTORCH, ("-k", "not daemon", f"{TORCH}/test_lightning.py")),
    Package("accelerate", PYTORCH, (f"{TORCH}/test_accelerate.py",)),
    Package(
        "kubernetes",
        ".venv",
        (
            *("-m", "(not kubernetes or gate) and not kueue", "tests/unit/launcher"),
            *("tests/integration/test_api_server_faults.py", "tests/kubernetes/test_cluster.py"),
        ),
        ("-m", "tests.kubernetes.grounds", "prepare"),
    ),
)
"""In the order in which they are tried."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was installed, and what the tests said of it."""

    before: str
    after: str
    beneath: int
    """Packages that became newer beside it."""
    passed: int
    failed: tuple[str, ...]


def copy_checkout(folder: Path) -> None:
    """Copy every file that git knows or would add."""
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(words, cwd=ROOT, capture_output=True, check=True).stdout
    for name in filter(None, os.fsdecode(listed).split("\0")):
        if (ROOT / name).is_file():  # not deleted meanwhile
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)


def versions(python: Path) -> dict[str, str]:
    """Return the version of each package that an environment has."""
    words = [str(python), "-m", "pip", "list", "--format=json", "--disable-pip-version-check"]
    listed = subprocess.run(words, capture_output=True, check=True, text=True).stdout
    return {row["name"].lower().replace("_", "-"): row["version"] for row in json.loads(listed)}


def install(package: Package, python: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Install the newest version; return the versions of all packages before and after."""

    def pip(*words: str) -> None:
        options = ("install", "--quiet", "--disable-pip-version-check", "--upgrade")
        subprocess.run([str(python), "-m", "pip", *options, *words], check=True)

    before, newest = versions(python), ("--upgrade-strategy", "eager")
    pip(*newest, package.name)
    after = versions(python)
    if after[package.name] == before[package.name]:
        pip("--pre", "--no-deps", package.name)
        if (found := versions(python))[package.name] != before[package.name]:
            pip(*newest, f"{package.name}=={found[package.name]}")
            after = versions(python)
    return before, after


def run_tests(package: Package, folder: Path) -> tuple[int, tuple[str, ...]]:
    """Return how many tests passed, and which failed twice."""
    python, report = str(folder / ".venv" / "bin" / "python"), folder / "report.xml"
    if package.prepare:
        subprocess.run([python, *package.prepare], cwd=folder, check=True)
    workers = ("-n", os.environ.get("WORKERS") or "1", "--dist", "loadfile")
    words = [python, "-m", "pytest", "-q", *workers, f"--junitxml={report}", *package.tests]
    run_limited(words, folder, {})
    passed, failed = read(report)
    if again.are_worth_it(failed):
        run_limited(words, folder, again.ONLY_FAILED)
        more, failed = read(report)
        passed += more
    return passed, failed


def run_limited(words: list[str], folder: Path, variables: dict[str, str]) -> None:
    """Run tests; end them and what they started once they take longer than they may."""
    env = {**os.environ, "GATE": "1", **variables}
    process = subprocess.Popen(words, cwd=folder, env=env, start_new_session=True)
    try:
        process.wait(LIMIT_S)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(20.0)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def read(report: Path) -> tuple[int, tuple[str, ...]]:
    """Return of a report how many tests passed, and the names of those that failed."""
    passed, failed = 0, []
    for case in xml.etree.ElementTree.parse(report).iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            failed.append(f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}")
        elif case.find("skipped") is None:
            passed += 1
    report.unlink()
    return passed, tuple(sorted(set(failed)))


def attempt(package: Package) -> Outcome:
    """Try the newest version of a package. Raises CalledProcessError, TimeoutExpired, OSError."""
    with tempfile.TemporaryDirectory(prefix="versions-") as temporary:
        folder = Path(temporary)
        copy_checkout(folder)
        targets = ["setup"] + ([".venv-pytorch/.ready"] if package.environment == PYTORCH else [])
        subprocess.run(["make", "--quiet", *targets], cwd=folder, check=True)
        before, after = install(package, folder / package.environment / "bin" / "python")
        newer = [name for name in after if before.get(name) != after[name]]
        print(*(f"{name} {after[name]}" for name in newer), sep=", ", flush=True)
        passed, failed = run_tests(package, folder)
        beneath = len([name for name in newer if name != package.name])
        return Outcome(before[package.name], after[package.name], beneath, passed, failed)


def note(package: Package, outcome: Outcome, date: str) -> None:
    """Write a package's row into the page, in the order of ``PACKAGES``."""
    to = outcome.after if outcome.after != outcome.before else "the same"
    failed = f"{len(outcome.failed)}" + "".join(f"<br>`{name}`" for name in outcome.failed)
    cells = (package.name, outcome.before, to, outcome.beneath, outcome.passed, failed, date)
    rows = {**rows_of_page(), package.name: "| " + " | ".join(map(str, cells)) + " |\n"}
    text = PAGE.read_text(encoding="utf-8")
    head, _, rest = text.partition(HEAD)
    rest = re.sub(r"\A(\|.*\n)*", "", rest)
    table = "".join(rows[each.name] for each in PACKAGES if each.name in rows)
    PAGE.write_text(f"{head}{HEAD}{table}{rest}", encoding="utf-8")


def rows_of_page() -> dict[str, str]:
    """Return the rows of the page by package."""
    rows = re.finditer(r"^\| ([a-z-]+) \|.*\n", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return {row[1]: row[0] for row in rows}


def main() -> int:
    """Try the package that NAME names, or all; return 1 if a test failed."""
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    packages = [each for each in PACKAGES if wanted in ("", each.name)]
    if not packages:
        names = ", ".join(each.name for each in PACKAGES)
        print(f"versions: no package {wanted!r}; NAME= is one of: {names}", file=sys.stderr)
        return 2
    today, bad = time.strftime("%Y-%m-%d", time.gmtime()), []
    for package in packages:
        row = rows_of_page().get(package.name, "")
        if row.endswith(f"| {today} |\n") and not (wanted or os.environ.get("AGAIN")):
            print(f"== {package.name}: tried today", flush=True)
            continue
        print(f"== {package.name}", flush=True)
        try:
            outcome = attempt(package)
        except (subprocess.SubprocessError, OSError) as error:
            print(f"== {package.name}: not tried: {error}", flush=True)
            bad.append(package.name)
            continue
        note(package, outcome, today)
        words = f"{outcome.passed} passed, {len(outcome.failed)} failed"
        print(f"== {package.name} {outcome.before} -> {outcome.after}: {words}", flush=True)
        if outcome.failed:
            bad.append(package.name)
    if bad:
        print(f"not good with their newest versions: {', '.join(bad)}", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
