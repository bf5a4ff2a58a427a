"""Builds the wheel and tries it where nothing else is: contents, dependencies, the command.

Does: ``python tests/wheel/check.py`` builds from this checkout, compares the wheel with the files
of the repository, installs it into empty environments and runs it there, away from the checkout.
Needs pip with a package index, and the build backend in the environment that runs it.
Never: touches the environment that runs it. State: one temporary folder, removed at the end.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
import venv
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {
    "controller/reshape_controller/": "reshape_controller/",
    "controller/reshape_gpu/": "reshape_gpu/",
    "sidecar/reshape_sidecar/": "reshape_sidecar/",
    "launcher/reshape_launcher/": "reshape_launcher/",
    "profiles/reshape_profiles/": "reshape_profiles/",
    "playbooks/": "reshape_launcher/playbooks/",
}
"""Folders of the repository, and where their files are in the wheel."""
SIDECAR_NEEDS = ("tornado", "nvidia-ml-py")
"""All that the SideCar's agent imports; with `pip install --no-deps` it goes into an image."""
OLD_EXTRAS = ("controller", "sidecar")
NEVER = {"tensorflow", "tensorflow-cpu", "keras", "torch"}
OF_OTHER_EXTRAS = {
    "reshape_launcher.kubernetes.api_errors",
    "reshape_launcher.kubernetes.api",
    "reshape_launcher.kubernetes.leases",
    "reshape_launcher.playbooks.library.reshape_apply",
}
"""Modules that need what the extras ``kubernetes`` and ``ansible`` bring; nothing else may."""
IN_A_JOB = {
    "reshape_sidecar.pytorch.accelerated",
    "reshape_sidecar.pytorch.collectives",
    "reshape_sidecar.pytorch.data",
    "reshape_sidecar.pytorch.exact_notes",
    "reshape_sidecar.pytorch.first_step",
    "reshape_sidecar.pytorch.hf_call",
    "reshape_sidecar.pytorch.hf_calls",
    "reshape_sidecar.pytorch.hf_patch",
    "reshape_sidecar.pytorch.hf_samples",
    "reshape_sidecar.pytorch.hf_state",
    "reshape_sidecar.pytorch.hf_verdict",
    "reshape_sidecar.pytorch.lightning_data",
    "reshape_sidecar.pytorch.lightning_fit",
    "reshape_sidecar.pytorch.lightning_micro",
    "reshape_sidecar.pytorch.lightning_patch",
    "reshape_sidecar.pytorch.lightning_script",
    "reshape_sidecar.pytorch.lightning_state",
    "reshape_sidecar.pytorch.lightning_verdict",
    "reshape_sidecar.pytorch.loop",
    "reshape_sidecar.pytorch.loop_state",
    "reshape_sidecar.pytorch.micro_batches",
    "reshape_sidecar.pytorch.weights",
    "reshape_sidecar.tensorflow.data",
    "reshape_sidecar.tensorflow.loop",
    "reshape_sidecar.tensorflow.parts",
    "reshape_sidecar.tensorflow.verdict",
    "reshape_sidecar.tensorflow.weights",
}
"""Modules that need a framework, which a job brings: its script imports it. Nothing else may."""
FIRST_LOOK, FIRST_PICTURE = "examples/demo/first_look.py", "inside the living container"
"""The part of `make demo` that comes before TensorFlow is installed."""
COMMAND_TIMEOUT_S = 600.0
JOB = """\
name: wheel
command: python work.py
optional_gpus: [2]
framework: other
epochs: 1
"""
EVENTUALLY_S = 60.0
"""How long the job of this test may take, on a slow machine."""
SETTLE_S = 2.0
"""The daemon removes the cgroup of an ended container a moment after the job has ended."""
CANCEL_S = 5.0


class Wrong(Exception):
    """The wheel is not as it should be. The text says what, and what to do about it."""


def run(*command: str | Path, cwd: Path, env: dict[str, str] | None = None) -> str:
    """Standard output of a command that must succeed."""
    words = [str(word) for word in command]
    done = subprocess.run(
        words,
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        raise Wrong(
            f"{' '.join(words)} ended with {done.returncode}\n{done.stdout}{done.stderr}".rstrip()
        )
    return done.stdout


@dataclass(frozen=True, slots=True)
class Trial:
    """The built wheel, and a folder for environments."""

    wheel: Path
    folder: Path

    @property
    def version(self) -> str:
        """Version in the wheel's name."""
        return self.wheel.name.split("-")[1]


def build(folder: Path) -> Trial:
    """Build the wheel from this checkout with the build backend that is installed here."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    run(*command, "--no-build-isolation", "--wheel-dir", folder, ROOT, cwd=folder)
    found = sorted(folder.glob("*.whl"))
    if len(found) != 1:
        raise Wrong(f"built {len(found)} wheels: {', '.join(path.name for path in found)}")
    return Trial(found[0], folder)


def wanted_files() -> set[str]:
    """Names that the wheel must hold: every committed file of the packages and playbooks."""
    listing = run("git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", cwd=ROOT)
    wanted = set()
    for name in listing.split("\0"):
        for folder, inside in PACKAGES.items():
            if name.startswith(folder) and (ROOT / name).is_file():
                wanted.add(inside + name.removeprefix(folder))
    return wanted


def contents(trial: Trial) -> str:
    """The wheel is pure, holds what the repository holds, its licence, and nothing else."""
    if not trial.wheel.name.endswith("-py3-none-any.whl"):
        raise Wrong(f"{trial.wheel.name} is not pure; remove the build hook from pyproject.toml")
    with zipfile.ZipFile(trial.wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
    info = {name for name in names if name.split("/")[0].endswith(".dist-info")}
    wanted = wanted_files()
    missing, extra = sorted(wanted - names), sorted(names - info - wanted)
    if missing or extra:
        raise Wrong(f"missing in the wheel: {missing}\nonly in the wheel: {extra}")
    if not any(name.endswith("licenses/LICENSE") for name in info):
        raise Wrong("the licence is not in the wheel")
    for part in ("init", "agent", "hook"):
        if not any(name.startswith(f"reshape_sidecar/{part}") for name in names):
            raise Wrong(f"reshape_sidecar has no {part}: a SideCar cannot start from this wheel")
    return f"{len(names)} files, {trial.wheel.stat().st_size // 1024} KiB"


def resolved(trial: Trial, extras: str = "") -> set[str]:
    """Names of the distributions that the wheel installs, everything that they need included."""
    report = trial.folder / "report.json"
    run(
        *(sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"),
        *("--report", report, f"{trial.wheel}{extras}"),
        cwd=trial.folder,
    )
    items = json.loads(report.read_text())["install"]
    return {re.sub(r"[-_.]+", "-", item["metadata"]["name"]).lower() for item in items}


def dependencies(trial: Trial) -> str:
    """The wheel installs what requirements-controller.lock pins, with the old extras no more."""
    found = resolved(trial)
    if found & NEVER:
        raise Wrong(f"the wheel installs {sorted(found & NEVER)}")
    pinned = {name for name, _ in pins("requirements-controller.lock")} | {"reshape-gpu"}
    if found != pinned:
        raise Wrong(f"installed or pinned, not both: {sorted(found ^ pinned)}")
    extras = f"[{','.join(OLD_EXTRAS)}]"
    if resolved(trial, extras) != found:
        raise Wrong(f"{extras} installs {sorted(resolved(trial, extras) ^ found)} as well")
    return f"{len(found) - 1} distributions, with {extras} the same"


def pins(lock: str) -> list[tuple[str, str]]:
    """Names and versions of a lock file."""
    return re.findall(r"^([A-Za-z0-9._-]+)==([^\s;]+)", (ROOT / lock).read_text(), re.MULTILINE)


def constraints(folder: Path) -> Path:
    """The versions of requirements.lock, without hashes (the wheel itself has none)."""
    path = folder / "constraints.txt"
    lines = [f"{name}=={version}\n" for name, version in pins("requirements.lock")]
    path.write_text("".join(lines))
    return path


def environment(trial: Trial, name: str, *what: str) -> Path:
    """Folder ``bin`` of a new environment with the wheel and ``what`` installed."""
    home = trial.folder / name
    venv.create(home, with_pip=True)
    pip = (home / "bin" / "python", "-m", "pip", "install", "--quiet")
    run(*pip, "--disable-pip-version-check", *what, cwd=trial.folder)
    return home / "bin"


def away(trial: Trial, bin_folder: Path, *command: str) -> str:
    """Run a command of an environment in an empty folder, with nothing of ours on the path."""
    empty = trial.folder / "elsewhere"
    empty.mkdir(exist_ok=True)
    env = {"PATH": f"{bin_folder}:/usr/bin:/bin", "HOME": str(empty), "LANG": "C.UTF-8"}
    return run(bin_folder / command[0], *command[1:], cwd=empty, env=env)


def bare(trial: Trial) -> str:
    """Without any dependency, what runs in people's images under init still imports."""
    bin_folder = environment(trial, "bare", "--no-deps", str(trial.wheel))
    names = [
        "reshape_sidecar.wire",
        "reshape_sidecar.contract",
        "reshape_sidecar.codec",
        *module_names("reshape_sidecar/init"),
        *module_names("reshape_sidecar/hook"),
    ]
    imports(trial, bin_folder, names)
    try:
        away(trial, bin_folder, "reshape", "get")
    except Wrong as error:
        if "Traceback" in str(error) or "pip install PATH" not in str(error):
            raise
    else:
        raise Wrong("`reshape get` works without its packages: this check is of no use any more")
    return f"{len(names)} modules on the standard library alone; the command says what it lacks"


def sidecar(trial: Trial) -> str:
    """In an image with Tornado and the NVML binding alone, every module of the SideCar imports."""
    pinned = str(constraints(trial.folder))
    what = ("--no-deps", "-c", pinned, str(trial.wheel), *SIDECAR_NEEDS)
    bin_folder = environment(trial, "sidecar", *what)
    names = sorted(set(module_names("reshape_sidecar")) - IN_A_JOB)
    imports(trial, bin_folder, names)
    return f"{len(names)} modules"


def controller(trial: Trial) -> str:
    """The installed command runs, and finds its data."""
    pinned = str(constraints(trial.folder))
    bin_folder = environment(trial, "whole", "-c", pinned, str(trial.wheel))
    version = away(trial, bin_folder, "reshape", "version")
    if trial.version not in version:
        raise Wrong(f"`reshape version` says {version.strip()!r}, not {trial.version}")
    shown = away(trial, bin_folder, "reshape", "--help")
    for verb in ("up", "submit", "get", "describe", "logs", "cancel", "gpus", "drain"):
        if not re.search(rf"\b{verb}\b", shown):
            raise Wrong(f"`reshape --help` does not name {verb!r}")
    names = [name for package in sorted(set(PACKAGES.values())) for name in module_names(package)]
    imports(trial, bin_folder, sorted(set(names) - OF_OTHER_EXTRAS - IN_A_JOB))
    if FIRST_PICTURE not in away(trial, bin_folder, "python", str(ROOT / FIRST_LOOK)):
        raise Wrong(f"{FIRST_LOOK} shows no picture with the controller's packages alone")
    return f"{version.strip()}; {len(names)} modules"


def cluster(trial: Trial) -> str:
    """With the extras for Kubernetes, everything imports, and the playbook is found."""
    pinned = str(constraints(trial.folder))
    what = f"{trial.wheel}[kubernetes,ansible]"
    bin_folder = environment(trial, "cluster", "-c", pinned, what)
    imports(trial, bin_folder, sorted(OF_OTHER_EXTRAS))
    program = (
        "from reshape_launcher import ansible; print((ansible.playbooks() / ansible.PLAYBOOK))"
    )
    shown = away(trial, bin_folder, "python", "-I", "-c", program).strip()
    if not Path(shown).is_relative_to(trial.folder) or not Path(shown).is_file():
        raise Wrong(f"the playbook is looked for at {shown}")
    return f"{len(OF_OTHER_EXTRAS)} modules of other extras, {Path(shown).name}"


def job(trial: Trial) -> str:
    """A daemon of the installed wheel runs a job to its end: init, agent and launcher are whole."""
    bin_folder = trial.folder / "whole" / "bin"
    home, code = trial.folder / "home", trial.folder / "code"
    code.mkdir()
    (code / "work.py").write_text("print('the work is done', flush=True)\n")
    (code / "job.yaml").write_text(JOB)
    env = {
        "PATH": f"{bin_folder}:/usr/bin:/bin",
        "HOME": str(trial.folder),
        "RESHAPE_HOME": str(home),
        "LANG": "C.UTF-8",
    }
    log = trial.folder / "daemon.log"
    with log.open("w") as output:
        daemon = subprocess.Popen(
            [bin_folder / "reshape", "up", "--simulated-gpus", "2", "--port", "0"],
            cwd=code,
            env=env,
            stdout=output,
            stderr=output,
        )
    try:
        eventually(lambda: run(bin_folder / "reshape", "gpus", cwd=code, env=env), log)
        run(bin_folder / "reshape", "submit", "job.yaml", cwd=code, env=env)
        begin_s = time.monotonic()
        show = (bin_folder / "reshape", "get", "wheel", "-o", "json")
        eventually(lambda: ended(run(*show, cwd=code, env=env)), log)
        shown = run(bin_folder / "reshape", "logs", "wheel", cwd=code, env=env)
    except Wrong:
        # A job outlives its daemon; this one must not outlive the test.
        subprocess.run([bin_folder / "reshape", "cancel", "wheel"], cwd=code, env=env, check=False)
        time.sleep(CANCEL_S)
        raise
    finally:
        time.sleep(SETTLE_S)
        daemon.terminate()
        daemon.wait(30)
    if "the work is done" not in shown:
        raise Wrong(f"the job's log is not what the job said: {shown!r}")
    return f"completed {time.monotonic() - begin_s:.1f} s after its submission"


def ended(text: str) -> None:
    """Raises Wrong while the job has not completed."""
    if '"completed"' not in text:
        raise Wrong(f"the job has not completed: {text}")


def eventually(look: Callable[[], object], log: Path) -> None:
    """Look again until it does not raise Wrong; at last with the daemon's log."""
    give_up_s = time.monotonic() + EVENTUALLY_S
    while True:
        try:
            look()
            return
        except Wrong as error:
            if time.monotonic() > give_up_s:
                raise Wrong(f"{error}\n{log.read_text()}") from None
        time.sleep(0.2)


def module_names(inside: str) -> list[str]:
    """Import names of the wheel's modules under a folder or of a module's name, mains excepted."""
    prefix = inside.rstrip("/")
    files = sorted(
        name
        for name in wanted_files()
        if name.endswith(".py") and (name == f"{prefix}.py" or name.startswith(f"{prefix}/"))
    )
    dotted = [name.removesuffix(".py").replace("/", ".") for name in files]
    return [name.removesuffix(".__init__") for name in dotted if not name.endswith(".__main__")]


def imports(trial: Trial, bin_folder: Path, names: list[str]) -> None:
    """Import modules in an isolated interpreter with warnings as errors."""
    program = "import importlib, sys; [importlib.import_module(n) for n in sys.argv[1:]]"
    away(trial, bin_folder, "python", "-I", "-W", "error", "-c", program, *names)


PARTS: tuple[Callable[[Trial], str], ...] = (
    contents,
    dependencies,
    bare,
    sidecar,
    controller,
    cluster,
    job,
)


def tried(trial: Trial) -> int:
    """Run every part and say how each went; 1 if one failed, else 0."""
    failed = 0
    for part in PARTS:
        begin_s = time.monotonic()
        try:
            text = part(trial)
        except (Wrong, OSError, subprocess.TimeoutExpired) as error:
            failed += 1
            print(f"FAILED  {part.__name__} ({time.monotonic() - begin_s:.1f} s): {error}")
        else:
            print(f"ok      {part.__name__} ({time.monotonic() - begin_s:.1f} s): {text}")
    return 1 if failed else 0


def main() -> int:
    """Build, run every part, and fail if one failed."""
    os.environ["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
    with tempfile.TemporaryDirectory(prefix="reshape-wheel-") as name:
        begin_s = time.monotonic()
        try:
            trial = build(Path(name))
        except Wrong as error:
            print(f"FAILED  build: {error}")
            return 1
        print(f"ok      build ({time.monotonic() - begin_s:.1f} s): {trial.wheel.name}")
        return tried(trial)


if __name__ == "__main__":
    sys.exit(main())
