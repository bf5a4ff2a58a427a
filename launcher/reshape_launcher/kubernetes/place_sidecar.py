"""First program in a pod: puts the SideCar where the job's container finds it.

With the word ``gpus`` it says instead which GPUs there are (``reshape_sidecar.probe``).

Does: checks that this Python can run the SideCar, unpacks the archive that this file is part of,
copies the attempt's files, and imports the SideCar once, so that what is missing is named here.
Written so that an old Python can read it and say that it is too old. Never: installs anything into
the image, or talks to the network. State: the folders that it fills.
"""

import json
import os
import shutil
import sys
import zipfile

LEAST = (3, 11)


def number_worker(spec, worker):  # type: ignore[no-untyped-def]
    """Say in the attempt's file which of several workers this is."""
    with open(spec, encoding="utf-8") as file:
        told = json.load(file)
    told["worker"] = worker
    with open(spec, "w", encoding="utf-8") as file:
        json.dump(told, file)


def main(archive, secret, to):  # type: ignore[no-untyped-def]
    """Fill the folder ``to`` from the archive and the mounted secret; 0, or 1 with the reason."""
    if sys.version_info[:2] < LEAST:
        text = "the image's Python {} is {}.{}; the SideCar needs {}.{} or newer"
        found = (sys.executable, *sys.version_info[:2], *LEAST)
        sys.stderr.write(text.format(*found))
        return 1
    sidecar, attempt = os.path.join(to, "sidecar"), os.path.join(to, "attempt")
    with zipfile.ZipFile(archive) as packed:
        packed.extractall(sidecar)
    for folder in ("run", "logs"):
        os.makedirs(os.path.join(attempt, folder), mode=0o700, exist_ok=True)
    worker = os.environ.get("JOB_COMPLETION_INDEX")  # the number of one of several workers
    for name in sorted(os.listdir(secret)):
        if name.startswith("."):
            continue
        target = os.path.join(attempt, name)
        if worker is not None and name.startswith("token-"):
            if name != "token-" + worker:
                continue
            target = os.path.join(attempt, "token")
        shutil.copyfile(os.path.join(secret, name), target)
        os.chmod(target, 0o600)
    if worker is not None:
        number_worker(os.path.join(attempt, "spec.json"), int(worker))  # type: ignore[no-untyped-call]
    link = os.path.join(to, "python")
    if not os.path.lexists(link):
        os.symlink(sys.executable, link)
    sys.path.insert(0, sidecar)
    try:
        import reshape_sidecar.agent.loop
        import reshape_sidecar.hook.run
        import reshape_sidecar.init.look
        import reshape_sidecar.init.supervisor  # noqa: F401
    except ImportError as error:
        sys.stderr.write(f"the image's Python {sys.executable} lacks a module: {error}")
        return 1
    return 0


if __name__ == "__main__":
    if sys.argv[1] == "gpus":
        from reshape_sidecar import probe

        sys.exit(probe.main(sys.argv[2:]))
    sys.exit(main(*sys.argv[1:4]))  # type: ignore[no-untyped-call]
