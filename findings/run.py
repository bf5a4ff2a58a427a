"""Run the scripts of this folder and note in README.md when each last behaved as it says.

    make findings [NAME=slurm-rows] [LATEST=1] [AGAIN=1]

A script gets ten minutes and 6 GB in a folder that is removed. Scripts that passed today are not
run again, so a run that was cut goes on where it ended; AGAIN=1 runs them all. LATEST=1 takes the
newest versions of the packages and says which behaviour changed; it notes no date.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
INDEX = HERE / "README.md"
LIMIT_S = 600.0
LIMIT_BYTES = 6 << 30
LOOK_S = 2.0
"""Seconds between two looks at the size of the folder."""


def bytes_of(folder: Path) -> int:
    """Return the size of what a folder holds; files that go meanwhile do not count."""
    done = subprocess.run(["du", "-sk", str(folder)], capture_output=True, text=True)
    return int(done.stdout.split()[0]) << 10 if done.stdout else 0


def run(script: Path) -> str:
    """Run a script; return why it failed, or nothing."""
    with tempfile.TemporaryDirectory(prefix="findings-") as folder:
        env = {**os.environ, "FINDING_ROOT": folder}
        process = subprocess.Popen(
            ["bash", str(script)], cwd=HERE.parent, env=env, start_new_session=True
        )
        end_s, why = time.monotonic() + LIMIT_S, ""
        try:
            while not why:
                try:
                    code = process.wait(LOOK_S)
                    return f"ended with {code}" if code else ""
                except subprocess.TimeoutExpired:
                    if time.monotonic() > end_s:
                        why = f"ran longer than {LIMIT_S:.0f} s"
                    elif bytes_of(Path(folder)) > LIMIT_BYTES:
                        why = f"holds more than {LIMIT_BYTES >> 30} GB"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
                try:
                    process.wait(10.0)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
    return why


def note(name: str, date: str) -> None:
    """Write the date of a script's last run into its row of the index."""
    text = INDEX.read_text(encoding="utf-8")
    row = re.compile(rf"^(\| \[{re.escape(name)}\]\(.*\| )[^|]*( \|)$", re.MULTILINE)
    INDEX.write_text(row.sub(rf"\g<1>{date}\g<2>", text), encoding="utf-8")


def main() -> int:
    """Run the scripts that NAME names, or all; return 1 if one failed."""
    latest, again = bool(os.environ.get("LATEST")), bool(os.environ.get("AGAIN"))
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    scripts = sorted(each for each in HERE.glob("*.sh") if wanted in ("", each.stem))
    if not scripts:
        names = ", ".join(sorted(each.stem for each in HERE.glob("*.sh")))
        print(f"findings: no script {wanted!r}; NAME= is one of: {names}", file=sys.stderr)
        return 2
    today = time.strftime("%Y-%m-%d", time.gmtime())
    index, failed = INDEX.read_text(encoding="utf-8"), []
    for script in scripts:
        passed_today = re.search(rf"\[{re.escape(script.stem)}\].*\| {today} \|", index)
        if passed_today and not (again or latest or wanted):
            print(f"== {script.stem}: passed today", flush=True)
            continue
        print(f"== {script.stem}", flush=True)
        why = run(script)
        if why:
            failed.append(script.stem)
            print(f"== {script.stem}: {why}", flush=True)
        elif not latest:
            note(script.stem, today)
    word = "behave otherwise in the newest versions" if latest else "failed"
    print(f"{len(scripts) - len(failed)} of {len(scripts)} behave as written", flush=True)
    if failed:
        print(f"{word}: {', '.join(failed)}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    if shutil.which("bash") is None:
        raise SystemExit("findings need bash")
    raise SystemExit(main())
