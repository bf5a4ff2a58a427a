"""The exception that a report names is the one that ended the program, and no other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from reshape_sidecar import exceptions
from reshape_sidecar.agent.printed_exception import REFUSALS, exception_in, is_refusal
from reshape_sidecar.exceptions import MESSAGE_CHARS_MAX, describe
from tests.support.hook_bed import Job, clean_environment

CAUGHT = "import sys, traceback\ntry:\n    [][0]\nexcept IndexError:\n    traceback.print_exc()\n"
RECURSES = "def one(number): two(number)\ndef two(number): one(number)\none(1)"
NONE = None, None

PROGRAMS: dict[str, tuple[str, int, tuple[str | None, str | None]]] = {
    "raised": ("raise LookupError('no layer')", 1, ("LookupError", "no layer")),
    "without a text": ("raise LookupError", 1, ("LookupError", "")),
    "raised from another": (
        "try:\n    [][0]\nexcept IndexError as error:\n    raise OSError('gone') from error",
        1,
        ("OSError", "gone"),
    ),
    "caught, printed, and code 1": (
        CAUGHT + "sys.stderr.write('gives up\\n')\nsys.exit(1)",
        1,
        NONE,
    ),
    "caught, printed, and another": (CAUGHT + "raise OSError('gone')", 1, ("OSError", "gone")),
    "caught in a function": (
        "def work():\n" + CAUGHT.replace("\n", "\n    ").join(["    ", ""]) + "\nwork()\n"
        "raise SystemExit(1)",
        1,
        NONE,
    ),
    "caught, printed, and code 3": (CAUGHT + "sys.exit(3)", 3, NONE),
    "code 1": ("raise SystemExit(1)", 1, NONE),
    "os._exit": (CAUGHT + "import os\nos._exit(3)", 3, NONE),
    "a group": (
        "raise ExceptionGroup('many', [KeyError('k'), ExceptionGroup('in', [OSError()])])",
        1,
        ("ExceptionGroup", "many (2 sub-exceptions); the first: KeyError: 'k'"),
    ),
    "a group of exits": (
        "raise BaseExceptionGroup('both', [KeyboardInterrupt()])",
        1,
        ("BaseExceptionGroup", "both (1 sub-exception); the first: KeyboardInterrupt"),
    ),
    "a group with tracebacks": (
        "try:\n    [][0]\nexcept IndexError as error:\n    raise ExceptionGroup('all', [error])",
        1,
        ("ExceptionGroup", "all (1 sub-exception); the first: IndexError: list index out of range"),
    ),
    "a syntax error": ("def (:\n    pass", 1, ("SyntaxError", "invalid syntax")),
    "a wrong indent": ("if 1:\npass", 1, ("IndentationError", "expected an indented block")),
    "not UTF-8": ("x = '\udce9'", 1, ("SyntaxError", "")),
    "a missing module": (
        "import no_such_module",
        1,
        ("ModuleNotFoundError", "No module named 'no_such_module'"),
    ),
    "recursion": ("def f(): f()\nf()", 1, ("RecursionError", "maximum recursion depth exceeded")),
    "recursion of two": (RECURSES, 1, ("RecursionError", "maximum recursion depth exceeded")),
    "no memory": ("raise MemoryError", 1, ("MemoryError", "")),
    "a thread fails": (
        "import threading\nt = threading.Thread(target=lambda: [][0])\nt.start()\nt.join()\n"
        "raise SystemExit(1)",
        1,
        NONE,
    ),
    "an exit handler fails": (
        "import atexit\natexit.register(lambda: [][0])\nraise LookupError('no layer')",
        1,
        ("LookupError", "no layer"),
    ),
    "a destructor fails": (
        "class Thing:\n    def __del__(self):\n        [][0]\nthing = Thing()\ndel thing\n"
        "raise SystemExit(1)",
        1,
        NONE,
    ),
    "a child fails": (
        "import multiprocessing\nif __name__ == '__main__':\n"
        "    context = multiprocessing.get_context('fork')\n"
        "    child = context.Process(target=lambda: [][0])\n    child.start()\n    child.join()\n"
        "    raise SystemExit(child.exitcode)",
        1,
        NONE,
    ),
}


@pytest.mark.parametrize("hooked", [False, True], ids=["plain", "hooked"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_report_names_the_exception_that_ended_the_program(
    name: str, hooked: bool, tmp_path: Path
) -> None:
    text, code, (kind, message) = PROGRAMS[name]
    script = tmp_path / "train.py"
    script.write_text(text, errors="surrogateescape")
    ended, found = (run_hooked if hooked else run_plain)(script)
    assert (ended, found[0]) == (code, kind)
    if message is None:
        assert found[1] is None
    else:
        assert (found[1] or "").startswith(message)


Found = tuple[int, tuple[str | None, str | None]]


def run_plain(script: Path) -> Found:
    """Exit code, and the exception in the log, of which the agent reads no more than the end."""
    done = subprocess.run(
        [sys.executable, str(script)],
        env=clean_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=60,
        check=False,
    )
    return done.returncode, exception_in(done.stdout[-16_000:]) if done.returncode == 1 else NONE


def run_hooked(script: Path) -> Found:
    """The same of a program under the hook, whose report counts if it has one."""
    done = Job(script.parent / "job", script).run()
    for report in done.reports:
        if report.exception is not None:
            return done.code, (report.exception, report.exception_message)
    return done.code, exception_in(done.err) if done.code == 1 else NONE


@pytest.mark.parametrize(
    ("word", "found"),
    [("'no data'", ("SystemExit", "no data")), ("2", (None, None)), ("None", (None, None))],
)
def test_the_hook_reports_the_text_of_an_exit(
    word: str, found: tuple[str | None, str | None], tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(f"raise SystemExit({word})")
    reports = Job(tmp_path / "job", script).run().reports
    last = [(report.exception, report.exception_message) for report in reports][-1:]
    assert (last or [(None, None)]) == [found]


def test_an_exception_whose_text_fails_is_still_named() -> None:
    class Broken(ValueError):
        def __str__(self) -> str:
            raise OSError("no text")

    assert describe(Broken()) == ("Broken", "no text (OSError)")


def test_the_message_of_a_group_is_bounded() -> None:
    _, message = describe(ExceptionGroup("many", [ValueError("x" * 2 * MESSAGE_CHARS_MAX)]))
    assert len(message) == MESSAGE_CHARS_MAX


def test_a_program_in_another_language_has_no_exception() -> None:
    log = 'Exception in thread "main" java.io.IOException: gone\n\tat Main.main(Main.java:3)'
    assert exception_in(log) == NONE
    assert exception_in("./train.sh: line 3: python4: command not found") == NONE


RANK_LOG = """\
Traceback (most recent call last):
  File "/code/train.py", line 3, in <module>
    raise ValueError("no room")
reshape: rank 1 (pid 12) raised builtins.ValueError: no room
Traceback (most recent call last):
  File "/code/train.py", line 9, in <module>
    step()
ConnectionError: gone
reshape: rank 0 (pid 11) raised builtins.ConnectionError: gone
reshape: rank {first} of 2 (pid {pid}) ended with exit code 1, and 1 others end with it
ConnectionError: printed while it was killed
"""


@pytest.mark.parametrize(
    ("first", "pid", "found"),
    [
        (1, 12, ("ValueError", "no room")),
        (0, 11, ("ConnectionError", "gone")),
        (1, 13, NONE),
    ],
    ids=["rank 1", "rank 0", "a rank that said nothing"],
)
def test_of_several_ranks_it_is_the_exception_of_the_first_that_failed(
    first: int, pid: int, found: tuple[str | None, str | None]
) -> None:
    assert exception_in(RANK_LOG.format(first=first, pid=pid)) == found


def test_a_group_whose_ranks_say_nothing_has_the_exception_that_python_printed() -> None:
    log = (
        'Traceback (most recent call last):\n  File "/code/train.py", line 9, in <module>\n'
        "    step()\nOSError: gone\nreshape: rank 0 of 1 (pid 11) ended with exit code 1\n"
    )
    assert exception_in(log) == ("OSError", "gone")


@pytest.mark.parametrize(
    ("name", "refused"),
    [
        ("reshape_sidecar.loop_epochs.LoopError", True),
        ("_reshape_hook.pytorch.lightning_fit.FitError", True),
        ("reshape_sidecar.proof.first_steps.ProofDiffers", True),
        ("mine.ProofDiffers", False),
        ("mine.LoopError", False),
        ("LoopError", False),
        ("reshape_sidecar.claims.CheckpointError", False),
    ],
)
def test_a_refusal_is_known_by_the_class_and_its_module(name: str, refused: bool) -> None:
    log = (
        'Traceback (most recent call last):\n  File "/code/train.py", line 9, in <module>\n'
        f"    step()\n{name}: no\n"
    )
    assert is_refusal(log) is refused
    line = f"reshape: rank 0 (pid 7) raised {name}: no\nreshape: rank 0 of 2 (pid 7) ended with "
    assert is_refusal(line) is refused


def test_each_class_of_a_refusal_is_one_of_the_sidecar() -> None:
    package = Path(exceptions.__file__).parent
    texts = [path.read_text() for path in package.rglob("*.py")]
    assert [name for name in REFUSALS if not any(f"class {name}(" in text for text in texts)] == []
