"""Hostile texts in every text field of a record, up to the pod: refused, or there as they are.

The API server is asked to make each object, and says what it would make (a dry run); one job with
all texts in it goes all the way, by the playbook and by the client.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import yaml

from reshape_controller.core.fast_replace import replace
from reshape_controller.core.model import GpuId, HostId, Job, JobId
from reshape_controller.live.launching import LaunchSettings, launch_spec
from reshape_controller.records.errors import RecordInvalid
from reshape_controller.records.limits import TEXT_LENGTH_MAX
from reshape_controller.records.parse import from_json, from_yaml
from reshape_launcher.kubernetes import naming
from reshape_launcher.kubernetes.apply import AttemptObjects
from reshape_launcher.kubernetes.images import Build
from reshape_launcher.kubernetes.launcher import KubernetesLauncher
from reshape_launcher.kubernetes.settings import OpenClaim
from reshape_launcher.spec import DeviceMode, LaunchError
from reshape_sidecar import codec
from reshape_sidecar.agent.spec import AttemptSpec
from tests.kubernetes.namespace import SHARED, Namespace
from tests.kubernetes.pod_bed import PodBed
from tests.kubernetes.pod_daemon import BATCH_GROUP, PodDaemon
from tests.support.hostile_texts import CANARY, HOSTILE, NO_TEXTS
from tests.support.sidecar_bed import bed

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(900)]
JOB = Job(JobId("a-0123456789"), from_json('{"name":"a","image":"b","optional_gpus":[1]}'), 1, 0.0)
RECORD = {"name": "a", "command": ["python", "train.py"], "optional_gpus": [2], "steps": 9}
CLAIM = f"claim:{SHARED}"
FIELDS: dict[str, Any] = {
    "name": lambda text: {"name": text},
    "command": lambda text: {"command": ["python", "train.py", text]},
    "command[0]": lambda text: {"command": [text, "train.py"]},
    "image": lambda text: {"image": text},
    "job_type": lambda text: {"job_type": text},
    "framework": lambda text: {"framework": text},
    "on_save_timeout": lambda text: {"on_save_timeout": text},
    "user": lambda text: {"user": text},
    "env": lambda text: {"env": {"TEXT": text}},
    "env name": lambda text: {"env": {text: "x"}},
    "memory": lambda text: {"resources": {"memory": text}},
    "code": lambda text: {"code": text},
    "code in a claim": lambda text: {"code": f"{CLAIM}/{text}"},
    "dataset": lambda text: {"dataset": text},
    "dataset in a claim": lambda text: {"dataset": f"{CLAIM}/{text}"},
    "checkpoints": lambda text: {"checkpoints": text},
    "checkpoints in a claim": lambda text: {"checkpoints": f"{CLAIM}/{text}"},
    "claim": lambda text: {"code": f"claim:{text}"},
    "a field of its own": lambda text: {text: "x"},
}
HARMLESS = {"code": "/opt/code", "dataset": "/opt/data", "code in a claim": "folder"}
CLAIM_VOLUME = "persistentVolumeClaim"
LABEL = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")
IN_MANIFEST = ("image", "command[0]", "claim")
"""Fields of which the manifest has the text, each checked by a pattern; and folders of claims."""
PRINTS = """
import json, os, pathlib, sys
found = {"words": sys.argv[1:], "env": {k: v for k, v in os.environ.items() if k[:2] == "T_"}}
pathlib.Path(os.environ["RESHAPE_CHECKPOINTS"], "found.json").write_text(json.dumps(found))
"""


class DryRun:
    """Asks the API server to make the objects, and keeps what it would make."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self.sent: AttemptObjects | None = None
        self.pod: dict[str, Any] = {}
        self._pods: dict[str, dict[str, Any]] = {}
        """By what was sent: most texts change nothing of it."""
        self.secret: dict[str, Any] = {}

    def __call__(self, objects: AttemptObjects, build: Build | None) -> None:
        assert build is None
        self.sent = objects
        api, path = self._namespace.api, self._namespace.path
        self.secret = api.create(f"{path('secrets')}?dryRun=All", objects.secret)
        key = json.dumps(objects.job)
        if key not in self._pods:
            api.create(f"{path('jobs', group=BATCH_GROUP)}?dryRun=All", objects.job)
            pod = {**objects.job["spec"]["template"], "apiVersion": "v1", "kind": "Pod"}
            pod["metadata"] = {"name": "dry-run", **pod["metadata"]}
            self._pods[key] = api.create(f"{path('pods')}?dryRun=All", pod)
        self.pod = self._pods[key]

    @property
    def told(self) -> AttemptSpec:
        """What the SideCar would be told."""
        return codec.loads(AttemptSpec, base64.b64decode(self.secret["data"]["spec.json"]))


@pytest.mark.gate
def test_a_hostile_text_is_refused_with_its_field_or_arrives_as_it_is(
    namespace: Namespace, tmp_path: Path
) -> None:
    with bed(tmp_path, lambda path: PodBed(path, namespace)) as world:
        assert isinstance(world, PodBed)
        bring = DryRun(namespace)
        settings = replace(world.settings, claims=(OpenClaim("shared"),))
        launcher = KubernetesLauncher(world.api, settings, world.devices, bring)
        wrong = [found for field in FIELDS for found in wrong_with(launcher, bring, field)]
        launcher.close()
    assert wrong == []
    assert not CANARY.exists()


def wrong_with(launcher: KubernetesLauncher, bring: DryRun, field: str) -> Iterator[str]:
    """What is not as it should be when each text is in this field."""
    launch(launcher, FIELDS[field](HARMLESS.get(field, "harmless")))
    usual, name = bring.sent, "code" if field == "claim" else field.split()[0].split("[")[0]
    for text in (*HOSTILE, *NO_TEXTS):
        bring.sent = None
        refused = launch(launcher, FIELDS[field](text))
        where = f"{field}: {text[:60]!r}"
        if refused is not None:
            if not (name in refused or "field" in refused) or "tried again" in refused:
                yield f"{where} is refused as {refused!r}"
            continue
        if text in NO_TEXTS or not arrived(field, text, bring):
            yield f"{where} is not what the pod gets"
        free = field not in IN_MANIFEST and "claim" not in field + text
        if free and bring.sent and usual and unlabelled(bring.sent.job) != unlabelled(usual.job):
            yield f"{where} changes the manifest"


def unlabelled(job: dict[str, Any]) -> dict[str, Any]:
    """A Job without the labels of user, job and type, which have the letters of a label alone."""
    found: dict[str, Any] = json.loads(json.dumps(job))
    for part in (found, found["spec"]["template"]):
        labels = part["metadata"]["labels"]
        for name in (naming.USER, naming.JOB_NAME, naming.JOB_TYPE):
            assert LABEL.fullmatch(labels.pop(name, "")), job
    return found


def launch(launcher: KubernetesLauncher, fields: dict[str, Any]) -> str | None:
    """Submit and launch as the daemon does; why it was refused, with field, value and remedy."""
    record = RECORD | fields
    try:
        spec = from_json(json.dumps(record))
    except RecordInvalid as invalid:
        for error in invalid.errors:
            assert error.path or "field" in error.message, error
            assert error.message, error
            assert error.hint, error
        return str(invalid)
    assert spec == from_yaml(yaml.safe_dump(record)), record
    job = replace(JOB, spec=spec, attempt=1)
    settings = LaunchSettings("http://192.0.2.1:1", Path("/reshape/jobs"), DeviceMode.SIMULATED)
    wanted = launch_spec(settings, job, HostId("node1"), (GpuId("sim-node1-0"),), 1, 60.0)
    said = None
    try:
        asyncio.run(launcher.launch(wanted, "token"))
    except LaunchError as error:
        said = f"{error}{' (and it would be tried again)' * error.retryable}"
    refusals = [str(one) for one in launcher.refusals(wanted)]
    if said is None:  # a launch lets through a claim that was accepted before claims were listed
        assert all("claim" in one for one in refusals), refusals
        return refusals[0] if refusals else None
    assert said in refusals, "as at submission"
    return said


def arrived(field: str, text: str, bring: DryRun) -> bool:
    """Whether the text is where it belongs, as it is."""
    told, (container,) = bring.told, bring.pod["spec"]["containers"]
    if field.endswith("in a claim"):
        folders = {mount["mountPath"]: mount.get("subPath") for mount in container["volumeMounts"]}
        parts = [part for part in text.split("/") if part not in ("", ".")]
        folder = PurePosixPath(getattr(told, field.split()[0]))
        mount = next(one for one in (folder, *folder.parents) if str(one) in folders)
        below = folder.relative_to(mount).parts
        return [*(folders[str(mount)] or "").split("/"), *below] in (parts, ["", *parts])
    if field == "claim":
        volumes = bring.pod["spec"]["volumes"]
        claims = [v["persistentVolumeClaim"]["claimName"] for v in volumes if CLAIM_VOLUME in v]
        return text.split("/")[0] in claims
    there: dict[str, object] = {
        "name": told.name,
        "command": told.command[-1],
        "command[0]": told.command[0],
        "image": container["image"],
        "job_type": told.job_type,
        "user": text,  # which no pod is told
        "env": dict(told.env).get("TEXT"),
        "env name": next((name for name, _ in told.env), None),
        "code": told.code,
        "dataset": told.dataset,
        "checkpoints": told.checkpoints,
    }
    return there[field] == text


@pytest.mark.parametrize("way", ["ansible", "client"])
def test_every_text_that_is_accepted_reaches_the_program_as_it_is(
    daemon: PodDaemon, way: str
) -> None:
    words = [text for text in HOSTILE if len(text) <= TEXT_LENGTH_MAX]
    environment = {f"T_{number}": text for number, text in enumerate(HOSTILE)}
    daemon.up("--launch-by", way)
    job = daemon.submit_record(
        "prints",
        PRINTS,
        command=["python", "prints.py", *words],
        env=environment,
        framework="other",
        optional_gpus=[1],
        steps=1,
        user="{{ 7 * 7 }} $(id)",
    )
    daemon.wait(job, "it prints", state="completed", stage="none")
    folder = daemon.namespace.shared / job / "checkpoints"
    found = json.loads((folder / "found.json").read_text())
    assert found == {"words": words, "env": environment}
    assert [path.name for path in folder.iterdir() if "canary" in path.name] == []
    assert not CANARY.exists()
