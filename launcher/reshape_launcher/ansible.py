"""Running a playbook by ansible-runner; the only place that starts one.

Does: runs one playbook with one variable, the name of a folder, and tells which task failed and
what it said. Never: passes a text of a user as a variable (Ansible reads variables as templates),
or keeps more than the newest artifacts. State: artifacts below ``root``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import reshape_launcher

ARTIFACTS_KEPT = 20
RUN_S = 1800.0
"""A build of an image may take long. Then: the run is ended, and it counts as failed."""
MESSAGE_CHARS_MAX = 1000
PLAYBOOK = "launch.yml"
Event = dict[str, Any]


class PlaybookFailed(Exception):
    """A task failed; the message names it. ``lasting``: a repeat would fail as well; ``away``: what
    the task needed could not be reached."""

    def __init__(self, message: str, *, lasting: bool = False, away: bool = False) -> None:
        super().__init__(message)
        self.lasting = lasting
        self.away = away


@dataclass(frozen=True, slots=True)
class TaskFailure:
    """What a failed task said."""

    task: str
    message: str
    lasting: bool = False
    away: bool = False


def playbooks() -> Path:
    """Folder of our playbooks: in the wheel beside the package, in a checkout at the top."""
    package = Path(reshape_launcher.__file__ or "").resolve().parent
    shipped = package / "playbooks"
    return shipped if shipped.is_dir() else package.parents[1] / "playbooks"


def run(root: Path, folder: Path, ident: str, playbook: Path | None = None) -> None:
    """Run the playbook on a run folder. Blocking. Raises PlaybookFailed."""
    if "{" in str(folder) or "}" in str(folder):
        raise PlaybookFailed(
            f"{folder}: Ansible reads braces as a template; give a home without braces"
        )
    import ansible_runner

    failures: list[TaskFailure] = []
    path = playbook or playbooks() / PLAYBOOK
    programs = Path(sys.executable).parent
    result = ansible_runner.run(
        private_data_dir=str(root),
        ident=ident,
        playbook=str(path),
        inventory={"all": {"hosts": {"localhost": None}}},
        extravars={"run_folder": str(folder)},
        envvars=_environment(root, path.parent, programs),
        event_handler=_collect(failures),
        rotate_artifacts=ARTIFACTS_KEPT,
        suppress_env_files=True,
        timeout=int(RUN_S),
        quiet=True,
    )
    if result.status == "successful":
        return
    if failures:
        first = failures[0]
        what = f"task {first.task!r}: {first.message}"
        raise PlaybookFailed(what, lasting=first.lasting, away=first.away)
    with result.stdout as output:
        said = " ".join(output.read().split())[-MESSAGE_CHARS_MAX:]
    raise PlaybookFailed(
        f"the playbook failed with status {result.status} (exit code {result.rc}): {said}"
    )


def failure_of(event: Event) -> TaskFailure | None:
    """What a failed task says; None for any other event."""
    if event.get("event") not in ("runner_on_failed", "runner_on_unreachable"):
        return None
    data = event.get("event_data") or {}
    if data.get("ignore_errors"):
        return None
    result = data.get("res") or {}
    # A command's own message says no more than "non-zero return code".
    texts = [result.get("stderr"), result.get("msg"), result.get("stdout")]
    said = next((str(text) for text in texts if text), "no message")
    message = " ".join(said.split())[-MESSAGE_CHARS_MAX:]
    task = str(data.get("task", ""))
    return TaskFailure(task, message, bool(result.get("lasting")), bool(result.get("away")))


def _collect(failures: list[TaskFailure]) -> Callable[[Event], bool]:
    def on_event(event: Event) -> bool:
        failure = failure_of(event)
        if failure is not None:
            failures.append(failure)
        return True

    return on_event


def _environment(root: Path, playbook_folder: Path, programs: Path) -> dict[str, str]:
    """All that Ansible could take from the machine's own configuration is said here."""
    return {
        "ANSIBLE_CONFIG": str(playbook_folder / "ansible.cfg"),
        "ANSIBLE_HOME": str(root / "ansible"),
        "ANSIBLE_LOCAL_TEMP": str(root / "tmp"),
        "ANSIBLE_REMOTE_TEMP": str(root / "tmp"),
        "ANSIBLE_LIBRARY": str(playbook_folder / "library"),
        "ANSIBLE_PYTHON_INTERPRETER": sys.executable,
        "ANSIBLE_NOCOLOR": "1",
        "LC_ALL": "C.UTF-8",
        "PATH": f"{programs}:{os.environ.get('PATH', os.defpath)}",
    }
