"""First program in a pod: installs the SideCar where the job's container finds it.

With the argument ``gpus`` it lists the GPUs instead (``reshape_sidecar.probe``); with ``reach`` it
asks an address whether the controller answers there.

Does: check that this Python can run the SideCar, unpack the archive that contains this file, copy
the attempt's files, and import the SideCar once, so that a missing module is reported here. An old
Python can parse this file and report that it is too old. It changes only the folder of the SideCar.
"""

import json
import os
import shutil
import sys
import zipfile

LEAST = (3, 11)
REACH_S = 10


def number_worker(spec, worker):  # type: ignore[no-untyped-def]
    """Write the worker's number into the attempt's spec file."""
    with open(spec, encoding="utf-8") as file:
        fields = json.load(file)
    fields["worker"] = worker
    with open(spec, "w", encoding="utf-8") as file:
        json.dump(fields, file)


def number_of(secret):  # type: ignore[no-untyped-def]
    """Return the number of this pod's worker; None if the job has only one.

    The spec in the Secret has the number of the first worker on this host.
    """
    index = os.environ.get("JOB_COMPLETION_INDEX")
    if index is None:
        return None
    with open(os.path.join(secret, "spec.json"), encoding="utf-8") as file:
        return json.load(file).get("worker", 0) + int(index)


def main(archive, secret, to):  # type: ignore[no-untyped-def]
    """Fill the folder ``to`` from the archive and the mounted secret; return the exit code."""
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
    worker = number_of(secret)  # type: ignore[no-untyped-call]
    for name in sorted(os.listdir(secret)):
        if name.startswith("."):
            continue
        target = os.path.join(attempt, name)
        if worker is not None and name.startswith("token-"):
            if name != "token-" + str(worker):
                continue
            target = os.path.join(attempt, "token")
        shutil.copyfile(os.path.join(secret, name), target)
        os.chmod(target, 0o600)
    if worker is not None:
        number_worker(os.path.join(attempt, "spec.json"), worker)  # type: ignore[no-untyped-call]
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


def reach(url, log):  # type: ignore[no-untyped-def]
    """Ask for a URL and write what came of it into ``log``; return the exit code."""
    import ssl
    import urllib.request

    text, code = "answers", 0
    try:
        # Whether the certificate is right is the SideCar's question.
        trust = ssl._create_unverified_context()
        urllib.request.urlopen(url, timeout=REACH_S, context=trust).close()
    except (OSError, ValueError) as error:
        text, code = str(error), 1
    with open(log, "w", encoding="utf-8") as file:
        file.write(text)
    return code


if __name__ == "__main__":
    if sys.argv[1] == "reach":
        sys.exit(reach(*sys.argv[2:4]))  # type: ignore[no-untyped-call]
    if sys.argv[1] == "gpus":
        from reshape_sidecar import probe

        sys.exit(probe.main(sys.argv[2:]))
    sys.exit(main(*sys.argv[1:4]))  # type: ignore[no-untyped-call]
