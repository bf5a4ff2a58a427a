"""Checks that `make demo` shows its first picture within 90 seconds in an empty clone.

    python .ci/first_picture.py

Does: copies the files that git does not ignore into an empty folder, and runs `make demo` there
with an empty cache of environments, until the demo says when its picture came; then ends it. Exit
code 1 if the demo ends before that, or is late.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

LIMIT_S = 90.0
CAME = re.compile(r"the first picture came after (\d+) s")
ROOT = Path(__file__).resolve().parents[1]


def main() -> int:
    """Run the demo in an empty clone; the exit code."""
    with tempfile.TemporaryDirectory(prefix="reshape-first-picture-") as temporary:
        clone, cache = Path(temporary, "clone"), Path(temporary, "cache")
        copy(clone)
        output: list[str] = []
        came_s = first_picture_s(clone, cache, output)
    if came_s is None:
        print(*output[-15:], sep="")
        print("FAILED  make demo ended before its first picture")
        return 1
    verdict = "ok     " if came_s <= LIMIT_S else "FAILED "
    print(
        f"{verdict} the first picture of an empty clone came after {came_s:.0f} of {LIMIT_S:.0f} s"
    )
    return 0 if came_s <= LIMIT_S else 1


def copy(clone: Path) -> None:
    """Copy every file of the checkout that git does not ignore."""
    listed = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, check=True).stdout.decode()
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():
            (clone / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, clone / name)


def first_picture_s(clone: Path, cache: Path, output: list[str]) -> float | None:
    """Return when the demo's picture came, by its own words; None if the demo ended before.

    ``output``: takes the lines of the demo.
    """
    with subprocess.Popen(
        ["make", "demo"],
        cwd=clone,
        env=os.environ | {"XDG_CACHE_HOME": str(cache)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as demo:
        assert demo.stdout is not None
        try:
            for line in demo.stdout:
                output.append(line)
                if (found := CAME.search(line)) is not None:
                    return float(found[1])
            return None
        finally:
            end(demo)


def end(demo: subprocess.Popen[str]) -> None:
    """End the demo and the installation that it has begun."""
    for number in (signal.SIGINT, signal.SIGKILL):
        try:
            os.killpg(demo.pid, number)
            demo.wait(10)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue


if __name__ == "__main__":
    sys.exit(main())
