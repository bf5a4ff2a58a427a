"""``hook/run.py`` runs a script as Python itself would run it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.hook_bed import RUN, clean_environment

TELLING = {"RESHAPE_JOB": "j", "RESHAPE_ATTEMPT": "1", "RESHAPE_GENERATION": "1"}
SHOW = """
import sys, __main__
print(sys.argv, sys.path[0], __name__, __file__, __main__.__file__, __doc__, __spec__)
print(sorted(name for name in vars() if name.startswith("__")))
"""


def python(
    *words: str, folder: Path, variables: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**clean_environment(), **(variables or {})},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def same_with_and_without(words: list[str], folder: Path, options: tuple[str, ...] = ()) -> str:
    """Run both ways, with and without the agent's environment; what it printed."""
    wanted = python(*options, *words, folder=folder)
    for variables in ({}, TELLING):
        got = python(*options, str(RUN), *words, folder=folder, variables=variables)
        assert (got.returncode, got.stdout, got.stderr) == (
            wanted.returncode,
            wanted.stdout,
            wanted.stderr,
        )
    return wanted.stdout + wanted.stderr


def script(folder: Path, text: str, name: str = "script.py") -> str:
    (folder / name).write_text(text)
    return name


def test_a_script_sees_its_own_arguments_path_and_name(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    name = script(tmp_path / "below", SHOW)
    out = same_with_and_without([f"below/{name}", "a", "--b"], tmp_path)
    assert "['below/script.py', 'a', '--b']" in out


def test_a_module_is_run_with_minus_m(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    script(tmp_path / "package", "")
    script(tmp_path / "package", "import sys; print(sys.argv, sys.path[0], __name__)", "it.py")
    assert "__main__" in same_with_and_without(["-m", "package.it", "x"], tmp_path)


def test_options_of_python_are_kept(tmp_path: Path) -> None:
    name = script(tmp_path, "import sys; print(sys.flags.safe_path, sys.path, sys.flags.optimize)")
    same_with_and_without([name], tmp_path, ("-P", "-O"))


@pytest.mark.parametrize(
    "text",
    [
        "import sys; sys.exit(3)",
        "import sys; sys.exit('a message')",
        "raise SystemExit",
        "def f():\n    return 1 / 0\nf()",
        "raise ValueError('one') from KeyError('two')",
        "this is no Python",
        "import os; os._exit(7)",
        "import warnings; warnings.warn('careful')",
        "import atexit, sys; atexit.register(lambda: print('end', data)); data = 5",
    ],
)
def test_a_script_ends_as_it_would_without_the_hook(tmp_path: Path, text: str) -> None:
    same_with_and_without([script(tmp_path, text)], tmp_path)


def test_a_script_that_is_not_there_is_named(tmp_path: Path) -> None:
    ended = python(str(RUN), "missing.py", folder=tmp_path)
    assert ended.returncode == 2
    assert "missing.py" in ended.stderr


def test_the_hook_imports_the_standard_library_alone_and_adds_nothing_to_the_path(
    tmp_path: Path,
) -> None:
    name = script(
        tmp_path,
        "import sys\n"
        "known = set(sys.stdlib_module_names)\n"
        "extra = {m.split('.')[0] for m in sys.modules} - known - {'__main__', '__mp_main__'}\n"
        "print(sorted(extra))\n"
        f"print({str(RUN.parent)!r} in sys.path, {str(RUN.parents[2])!r} in sys.path)\n",
    )
    ended = python("-S", str(RUN), name, folder=tmp_path, variables=TELLING)
    assert ended.stdout == "['_reshape_hook']\nFalse False\n", ended.stderr


def test_a_package_of_the_same_name_stays_the_users(tmp_path: Path) -> None:
    (tmp_path / "reshape_sidecar").mkdir()
    script(tmp_path / "reshape_sidecar", "mine = 'of the user'", "__init__.py")
    script(tmp_path / "reshape_sidecar", "value = 1", "codec.py")
    name = script(
        tmp_path,
        "import reshape_sidecar, reshape_sidecar.codec as codec\n"
        "print(reshape_sidecar.mine, codec.value)\n",
    )
    assert same_with_and_without([name], tmp_path) == "of the user 1\n"


def test_a_script_without_the_package_gets_the_session_api_from_the_hook(tmp_path: Path) -> None:
    name = script(
        tmp_path,
        "from reshape_sidecar import session\njob = session.start()\nprint(job.step)\n",
    )
    variables = {**TELLING, "RESHAPE_CHECKPOINTS": str(tmp_path / "c")}
    ended = python("-S", str(RUN), name, folder=tmp_path, variables=variables)
    assert (ended.returncode, ended.stdout) == (0, "0\n"), ended.stderr
    assert python("-S", str(RUN), name, folder=tmp_path).returncode == 1


def test_a_wrong_environment_is_one_clear_message(tmp_path: Path) -> None:
    variables = {**TELLING, "RESHAPE_EPOCHS": "many"}
    ended = python(str(RUN), script(tmp_path, "print('ran')"), folder=tmp_path, variables=variables)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "RESHAPE_EPOCHS='many'" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_program_that_trains_nothing_is_ended_by_sigterm_as_ever(tmp_path: Path) -> None:
    name = script(
        tmp_path,
        "import os, signal, time\n"
        "print('ready', flush=True)\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "time.sleep(30)\n",
    )
    assert python(str(RUN), name, folder=tmp_path, variables=TELLING).returncode == -15


def test_a_handler_of_the_script_takes_sigterm_over(tmp_path: Path) -> None:
    name = script(
        tmp_path,
        "import os, signal, sys\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n",
    )
    assert python(str(RUN), name, folder=tmp_path, variables=TELLING).returncode == 9


def test_workers_that_the_script_spawns_find_its_main_module(tmp_path: Path) -> None:
    name = script(
        tmp_path,
        "import multiprocessing\n"
        "def double(x):\n    return 2 * x\n"
        "if __name__ == '__main__':\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
        "        print(pool.map(double, [1, 2]))\n",
    )
    assert os.path.exists(tmp_path / name)
    assert same_with_and_without([name], tmp_path) == "[2, 4]\n"
