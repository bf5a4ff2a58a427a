"""Small training programs without any framework, each with one way to behave.

A test launches them instead of a real script. They need only Python and the package itself. Every
program writes ``ready-GENERATION`` into its folder once its signal handlers are set.
"""

from __future__ import annotations

READY = """
import os, signal, sys, time
def ready():
    open("ready-" + os.environ["RESHAPE_GENERATION"], "w").close()
"""

PLAIN = (
    READY
    + """
signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
ready()
print("works on", os.environ["RESHAPE_DEVICES"])
while True:
    time.sleep(0.01)
"""
)
"""Saves on SIGTERM (it says) and leaves with 75: the whole level 0."""

SESSION = (
    READY
    + """
if len(sys.argv) > 1:
    time.sleep(float(sys.argv[1]))  # to import a framework
import importlib.util, reshape_sidecar
from reshape_sidecar import session
job = session.start()
ready()
def save(folder):
    (folder / "state").write_text("whatever")
while True:
    time.sleep(0.01)
    job.step_done(save)
    if job.step == 1:
        print("has tornado", importlib.util.find_spec("tornado") is not None)
        print("trains on", job.devices, "with", reshape_sidecar.__file__, flush=True)
"""
)
"""A loop of its own (level 2), which says where it found the session API and what else it finds.
Its argument is how many seconds its imports take."""

SAVES_NOTHING = (
    READY
    + """
ready()
while True:
    time.sleep(0.01)
"""
)
"""Knows nothing of SIGTERM: each stop loses all that it has done."""

PRINTS_AT_THE_END = (
    READY
    + """
signal.signal(signal.SIGTERM, lambda *_: sys.exit(print("x" * int(sys.argv[1]) + "end")))
ready()
while True:
    time.sleep(0.01)
"""
)

IGNORES = (
    READY
    + """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
ready()
while True:
    time.sleep(0.01)
"""
)

CRASHES = """
print("about to fail")
raise SystemError("no such layer")
"""

DOUBLE_FORKS = (
    READY
    + """
signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
def told():
    with open("daemon.tmp", "w") as file:
        file.write(str(os.getpid()))
    os.rename("daemon.tmp", "daemon")
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if "clean" in sys.argv:
            code = "import time\\nwhile True: time.sleep(1)"
            code = "import signal\\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\\n" + code
            told()
            os.execve(sys.executable, [sys.executable, "-c", code], {})
        told()
        while True:
            time.sleep(1)
    os._exit(0)
os.wait()
while not os.path.exists("daemon"):
    time.sleep(0.01)
ready()
while True:
    time.sleep(0.01)
"""
)
"""Leaves a daemon behind that ignores SIGTERM; with the argument ``clean``, without environment."""

STEPS = (
    READY
    + """
import pathlib
from reshape_sidecar import checkpoints, codec
from reshape_sidecar.contract import HookPhase, HookReport
from reshape_sidecar.hook.report import post
from reshape_sidecar.wire import Progress

options = dict(word.split("=") for word in sys.argv[1:])
generation = int(os.environ["RESHAPE_GENERATION"])
attempt = int(os.environ["RESHAPE_ATTEMPT"])
folder = pathlib.Path(os.environ["RESHAPE_CHECKPOINTS"])
socket = pathlib.Path(os.environ["RESHAPE_SOCKET"])
keep_running = pathlib.Path(os.environ["RESHAPE_KEEP_RUNNING"])
asked = False
def ask(*_):
    global asked
    asked = True
signal.signal(signal.SIGTERM, ask)

def report(phase, step):
    said = HookReport(generation, phase, Progress(step, total_steps=total), first_step_s=0.01)
    try:
        post(socket, codec.dumps(said).encode())
    except OSError:
        pass

def save(step, complete=False):
    report(HookPhase.SAVING, step)
    time.sleep(float(options.get("save_s", 0)))
    if "dies" in options:
        os._exit(9)
    checkpoints.publish(folder, step=step, epoch=0, attempt=attempt, generation=generation,
                        complete=complete, write=lambda path: None)
    report(HookPhase.SAVED, step)

def further_step():
    time.sleep(float(options.get("further_s", 0)))
    match options.get("further"):
        case "raises":
            raise RuntimeError("no such layer")
        case "aborts":
            os.abort()
        case "is-killed":
            os.kill(os.getpid(), signal.SIGKILL)

total = int(options.get("total", 1000000))
found = checkpoints.newest(folder)
step = found.manifest.step if found else 0
ready()
while step < total:
    step += 1
    time.sleep(0.005)
    if step % 10 == 1:
        report(HookPhase.TRAINING, step)
    if options.get("every") and step % int(options["every"]) == 0:
        checkpoints.publish(folder, step=step, epoch=0, attempt=attempt, generation=generation,
                            write=lambda path: None)
    if asked and keep_running.exists():
        asked = False
    if asked and "deaf" not in options:
        save(step)
        further_step()
        os._exit(75)
save(step, complete=True)
"""
)
"""Steps of 5 ms with real checkpoints and reports. Options ``name=value``: total, every (steps per
checkpoint), save_s, dies (while saving), deaf (hears SIGTERM and never saves), further_s (time of a
step after the save at which it leaves) and further (how it ends in that step)."""
