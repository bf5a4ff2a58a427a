"""Every product module reads files through ``reshape_sidecar.foreign``, with few exceptions.

The list says why each place gets no path that a job, a user or a damaged disk decides on. It only
shrinks: a count that is too high fails as one that is too low does.
"""

from __future__ import annotations

import ast

from tests.unit.test_tidy import ROOT, product_modules, relative

OWN_PROCESS = (
    "sidecar/reshape_sidecar/hook/",
    "sidecar/reshape_sidecar/ranks/",
    "sidecar/reshape_sidecar/pytorch/",
    "sidecar/reshape_sidecar/tensorflow/",
    "sidecar/reshape_sidecar/proof/",
    "sidecar/reshape_sidecar/session.py",
    "sidecar/reshape_sidecar/loop_origin.py",
)
"""Code that runs in the training process itself: what it reads there can hold up that job alone."""

EXCEPTIONS = {
    # The kernel's files, devices, folders, and files that are made anew under a fresh name.
    "sidecar/reshape_sidecar/cgroup.py": 3,
    "sidecar/reshape_sidecar/agent/abilities.py": 1,
    "sidecar/reshape_sidecar/init/files.py": 3,
    "sidecar/reshape_sidecar/init/processes.py": 1,
    "sidecar/reshape_sidecar/init/spawn.py": 1,
    "sidecar/reshape_sidecar/durable.py": 3,
    "launcher/reshape_launcher/local/users.py": 1,
    "controller/reshape_controller/store/mark.py": 2,
    "controller/reshape_controller/store/sqlite/file.py": 2,
    "controller/reshape_controller/store/sqlite/backup.py": 1,
    "controller/reshape_controller/store/sqlite/lock.py": 1,
    "controller/reshape_controller/access/token_file.py": 1,
    "controller/reshape_controller/cli/home.py": 1,
    "controller/reshape_controller/cli/streams.py": 3,
    # Files of the installation.
    "controller/reshape_controller/replay/setup.py": 1,
    "controller/reshape_controller/http/page_files.py": 1,
    "profiles/reshape_profiles/loader.py": 1,
    "launcher/reshape_launcher/kubernetes/sidecar_archive.py": 2,
    # In a pod, before anything of the user runs there.
    "launcher/reshape_launcher/kubernetes/place_sidecar.py": 3,
    # Files that the same command has just written, or wrote before.
    "controller/reshape_controller/bench.py": 1,
    "controller/reshape_controller/cli/profiles/costs.py": 1,
    "controller/reshape_controller/cli/replays/own_daemon.py": 2,
    "controller/reshape_controller/cli/replays/folder.py": 1,
    "launcher/reshape_launcher/kubernetes/apply.py": 4,
    "profiles/reshape_profiles/recorded_run.py": 4,
    "profiles/reshape_profiles/training_run.py": 1,
    # They write, without following a link, to a file that they made.
    "sidecar/reshape_sidecar/step_file.py": 2,
    "controller/reshape_controller/live/clock.py": 1,
    # A copy of a checkpoint that was read whole; it does not follow links.
    "sidecar/reshape_sidecar/takeover.py": 1,
}
READS = {"read_text", "read_bytes"}
COPIES = {"copytree", "rmtree", "copyfile", "copy2"}


def is_written(call: ast.Call) -> bool:
    """Whether a call of ``open`` names a mode that only writes."""
    modes = [a.value for a in call.args if isinstance(a, ast.Constant)]
    modes += [k.value.value for k in call.keywords if isinstance(k.value, ast.Constant)]
    return any(isinstance(mode, str) and mode[:1] in "wax" and len(mode) <= 2 for mode in modes)


def reads_freely(call: ast.Call) -> bool:
    """Whether a call opens or walks a path in another way than ``foreign`` does."""
    match call.func:
        case ast.Name("open"):
            return not is_written(call)
        case ast.Attribute(ast.Name("os"), "open") | ast.Attribute(ast.Name("io"), "open"):
            return True
        case ast.Attribute(ast.Name("shutil"), name):
            return name in COPIES
        case ast.Attribute(ast.Name("foreign"), _):
            return False
        case ast.Attribute(_, name) if name in READS:
            return True
        case ast.Attribute(_, "open"):
            mode = call.args[0] if call.args else None
            return isinstance(mode, ast.Constant) and str(mode.value)[:1] == "r"
    return False


def found_in(text: str) -> int:
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    return sum(map(reads_freely, calls))


def test_no_other_module_opens_what_others_may_have_written() -> None:
    counts = {}
    for path in product_modules():
        name = relative(path)
        if name.startswith(OWN_PROCESS) or name == "sidecar/reshape_sidecar/foreign.py":
            continue
        if count := found_in(path.read_text(encoding="utf-8")):
            counts[name] = count
    assert counts == EXCEPTIONS, "read it with reshape_sidecar.foreign, or shorten the list"


def test_the_rule_sees_each_way_to_open_a_file() -> None:
    for text in (
        "open(path)",
        "open(path, 'rb')",
        "os.open(path, flags)",
        "path.read_text()",
        "Path(name).read_bytes()",
        "path.open('rb')",
        "shutil.rmtree(path)",
    ):
        assert found_in(text) == 1, text
    for text in ("open(path, 'w')", "foreign.read_text(path, 1)", "store.open()"):
        assert found_in(text) == 0, text


def test_each_exception_is_a_module_that_is_there() -> None:
    assert [name for name in EXCEPTIONS if not (ROOT / name).is_file()] == []
