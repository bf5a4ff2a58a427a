"""A training program of several workers in lock-step, without any framework.

Does: what a synchronous collective does, over TCP at the addresses of TF_CONFIG: no worker ends a
step before all have begun it, and a worker that is gone fails the others. Uses the session API.
"""

LOCKSTEP = """
import errno, json, os, socket, struct, sys, time
from reshape_sidecar import session

steps, pause_s, every = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
config = json.loads(os.environ["TF_CONFIG"])
worker, peers = config["task"]["index"], config["cluster"]["worker"]
host, _, port = peers[0].rpartition(":")
NUMBER = struct.Struct("!q")


def read(link):
    data = b""
    while len(data) < NUMBER.size:
        more = link.recv(NUMBER.size - len(data))
        if not more:
            raise ConnectionError("a worker is gone")
        data += more
    return NUMBER.unpack(data)[0]


time.sleep(float(os.environ.get("START_S", "0")))
if worker == 0:
    listener = socket.create_server((host, int(port)))
    links = [listener.accept()[0] for _ in peers[1:]]
else:
    while True:
        try:
            links = [socket.create_connection((host, int(port)))]
            break
        except OSError:
            time.sleep(0.02)


def together(step):
    # The chief hears of all, then answers all.
    if worker == 0:
        heard = [read(link) for link in links]
        if heard != [step] * len(heard):
            raise SystemExit(f"out of step: {step} and {heard}")
        for link in links:
            link.sendall(NUMBER.pack(step))
    else:
        links[0].sendall(NUMBER.pack(step))
        if read(links[0]) != step:
            raise SystemExit("out of step")


def save(folder):
    together(-job.step)  # a save takes part of all workers, as that of a collective does
    print("worker", worker, "saves step", job.step, flush=True)
    time.sleep(float(os.environ.get("SAVE_S", "0")))
    if worker == 0 and job.step == steps and fails == "last save":
        raise OSError(errno.ENOSPC, "no space")
    (folder / "state").write_text(str(job.step))


job = session.start(total_steps=steps, save_every_steps=every)
if job.checkpoint is not None:
    found = int((job.checkpoint / "state").read_text())
    assert found == job.step, (found, job.step)
fails = os.environ.get("CHIEF_FAILS") if job.checkpoint is None else None
where = f'on {os.environ["RESHAPE_DEVICES"]} at {peers[worker]}'
print("worker", worker, "begins after step", job.step, where, flush=True)
while job.step < steps:
    time.sleep(pause_s / len(os.environ["RESHAPE_DEVICES"].split(",")))
    together(job.step + 1)
    job.step_done(save)
job.finished(save)
if worker == 0 and fails == "after it":
    links[0].recv(1)  # until the other has ended
if worker == 0 and fails:
    raise SystemExit("what comes after training fails")
while worker == 1 and fails == "before the other ends" and not job.should_stop():
    time.sleep(0.02)
print("worker", worker, "done", flush=True)
"""
"""Arguments: steps, seconds of a step on one device each, steps between two saves. ``START_S``:
seconds before a start goes on; ``SAVE_S``: seconds in which a worker writes its part of a save.
``CHIEF_FAILS``: the chief that began at step 0 fails in its ``last save``, ``after it`` when the
other has ended, or ``before the other ends``."""
